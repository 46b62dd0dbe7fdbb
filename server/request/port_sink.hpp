// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "net/transport.hpp"
#include "server/request/completion.hpp"

namespace paracel::srv {

/// Replies through a port. Thread-safety: owned by the port's thread.
class port_sink final : public reply_sink {
 public:
  explicit port_sink(net::port& p) noexcept : port_(p) {}
  void send(const net::peer& to, const net::outgoing& message) override { port_.reply(to, message); }

 private:
  net::port& port_;
};

}  // namespace paracel::srv
