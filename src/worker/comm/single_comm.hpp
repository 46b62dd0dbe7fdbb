// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <utility>

#include "core/message_matcher.hpp"
#include "worker/comm/comm_backend.hpp"

namespace paracel {

/// One worker alone: messages return to the sender.
class single_comm final : public comm_backend {
 public:
  [[nodiscard]] std::size_t rank() const override { return 0; }
  [[nodiscard]] std::size_t size() const override { return 1; }
  void send(const message_address& to, byte_vector bytes, bool, patience) override {
    arrived_.arrive({to, std::move(bytes)});
  }
  ticket post(const message_address& from) override { return arrived_.post(from); }
  void give_up(ticket t) noexcept override { arrived_.give_up(t); }
  std::optional<received_message> take(ticket t, patience limit) override {
    auto message = arrived_.take(t);
    if (message || limit) return message;
    throw network_error("no message can arrive: the only worker of this job is the one that waits", false);
  }
  std::shared_ptr<comm_backend> split(int) override { return std::make_shared<single_comm>(); }

 private:
  message_matcher arrived_;
};

}  // namespace paracel
