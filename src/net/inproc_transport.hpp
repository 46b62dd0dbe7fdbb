// SPDX-License-Identifier: BSD-3-Clause
//
// The transport inside one process, with our own locks and queues: for tests, for the sanitizers (an uninstrumented
// libzmq causes false reports of ThreadSanitizer) and for the embedded mode.
#pragma once

#include <memory>

#include "net/transport.hpp"

namespace paracel::net {

/// Ports that exchange messages within the process. The transport object is the namespace of its addresses: two objects
/// never interact.
///
/// An address is any text, `inproc://name` by convention; a trailing `*` is replaced by a free number. Requests sent
/// before the address is bound wait and are delivered then. Tails are passed by reference: the receiver holds the
/// sender's shared_buffer, not a copy. Thread-safety: any thread. Lifetime: ports may outlive the transport, in any
/// order.
class inproc_transport final : public transport {
 public:
  explicit inproc_transport(transport_limits limits = {});
  ~inproc_transport() override;
  std::unique_ptr<port> open() override;

 private:
  class hub;
  class inproc_port;
  struct mailbox;
  struct place;
  struct message;
  std::shared_ptr<hub> hub_;
  transport_limits limits_;
};

}  // namespace paracel::net
