// SPDX-License-Identifier: BSD-3-Clause
//
// The transport inside one process, with locks and queues of our own: for tests, for the sanitizers (an uninstrumented
// libzmq makes ThreadSanitizer lie) and for the embedded mode.
#pragma once

#include <memory>

#include "net/transport.hpp"

namespace paracel::net {

/// Ports that hand messages to each other. The transport object is the name space of its addresses: two objects never
/// meet.
///
/// An address is any text, `inproc://name` by custom; a last `*` is replaced by a number that is free. Requests sent
/// before the address is bound wait and are delivered then. Tails go by reference: the receiver holds the sender's
/// shared_buffer, not a copy. Thread-safety: any thread. Lifetime: ports may outlive the transport and go in any order.
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
