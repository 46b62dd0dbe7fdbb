// SPDX-License-Identifier: BSD-3-Clause
//
// The transport between processes: ZeroMQ over ipc:// (same host) and tcp://. Only the zmq_* files of this folder use
// it, through cppzmq (zmq.hpp).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "net/job_key.hpp"
#include "net/transport.hpp"

namespace paracel::net {

class zmq_context;

/// Ports made of ZeroMQ sockets: one ROUTER at the first `bind`, one DEALER per channel, with the envelope of REQ and
/// REP (an empty frame, then the one or two frames of the message), so that a plain REQ socket of any language is a
/// client. The ports of a group share one ROUTER, and the channels to its addresses one DEALER (lane_address.hpp).
///
/// Addresses are `ipc:///path` and `tcp://host:port`; `tcp://127.0.0.1:*` picks a free port. `bind` does not translate
/// `tcp://0.0.0.0:*` or an interface name into an address that another host can connect to: the caller knows its name.
/// Requests sent before the other side is bound are queued and sent then. A peer is gone when its connection is.
/// Thread-safety: any thread. Lifetime: ports may outlive the transport; the last of them ends its I/O thread.
class zmq_transport final : public transport {
 public:
  /// `dropped` is called with the reason when a connection to this process is dropped because of what it sends, or
  /// because there are too many (connection_guard.hpp), on ZeroMQ's thread; and when one of this process to another is
  /// replaced because of what arrived, on the port's.
  /// `secret`: tcp connections are encrypted with it, and only processes that have it can connect or be connected to.
  /// Throws: network_error when ZeroMQ cannot be started, or not encrypt.
  explicit zmq_transport(transport_limits limits = {}, std::function<void(std::string_view why)> dropped = {},
                         const std::optional<curve_secret>& secret = job_curve_secret());
  ~zmq_transport() override;
  std::unique_ptr<port> open() override;
  port_group open_group(const std::string& address, std::size_t ports) override;

 private:
  class zmq_port;
  std::shared_ptr<zmq_context> context_;
  transport_limits limits_;
};

}  // namespace paracel::net
