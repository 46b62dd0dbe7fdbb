// SPDX-License-Identifier: BSD-3-Clause
//
// The transport between processes of one host: Unix sockets without a thread between them (`--transport unix`).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "net/transport.hpp"

namespace paracel::net {

/// Ports that read and write their Unix sockets themselves. On the wire it is what zmq_transport does over
/// `ipc://path`, its only addresses, so either can be used by each process of a job, and a plain REQ socket is a client
/// here, too.
///
/// Only processes of the same user, or root's, are accepted and connected to. What a receiver has not read yet waits
/// here, and is sent by a thread that exists only then; so do requests to an address that is not bound yet. A
/// connection that breaks is replaced by the next message on its channel.
/// Thread-safety: any thread. Lifetime: ports may outlive the transport; the last of them ends its thread.
class unix_transport final : public transport {
 public:
  /// `dropped` is called with the reason when a connection is dropped because of what it sends or who it is, on its
  /// port's thread.
  explicit unix_transport(transport_limits limits = {}, std::function<void(std::string_view why)> dropped = {});
  ~unix_transport() override;
  std::unique_ptr<port> open() override;
  /// Throws: network_error for more than one port: their threads have connections of their own.
  port_group open_group(const std::string& address, std::size_t ports) override;

 private:
  class hub;
  class unix_port;
  std::shared_ptr<hub> hub_;
};

}  // namespace paracel::net
