// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <utility>

#include <paracel/comm.hpp>

#include "core/message_matcher.hpp"

namespace paracel {

/// One worker alone: every collective is the identity, and messages return to the sender.
class single_comm final : public comm_backend {
 public:
  [[nodiscard]] std::size_t rank() const override { return 0; }
  [[nodiscard]] std::size_t size() const override { return 1; }
  void barrier() override {}
  void bcast(byte_vector&, std::size_t) override {}
  void allreduce(value_tag, std::span<std::byte>, reduce_op) override {}
  std::vector<byte_vector> allgather(std::span<const std::byte> mine) override {
    return {byte_vector(mine.begin(), mine.end())};
  }
  std::vector<byte_vector> alltoall(const std::vector<byte_vector>& blocks) override { return blocks; }
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
