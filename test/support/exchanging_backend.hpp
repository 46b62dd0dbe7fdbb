// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "worker/comm/comm_backend.hpp"

namespace paracel::test {

/// A communicator with exchanges, like MPI's, implemented with another communicator's messages.
class exchanging_backend final : public comm_backend, public comm_exchanges {
 public:
  /// `before`: called before each exchange.
  explicit exchanging_backend(std::shared_ptr<comm_backend> inner, std::function<void()> before = nullptr)
      : inner_(std::move(inner)), before_(std::move(before)) {}

  [[nodiscard]] std::size_t rank() const override { return inner_->rank(); }
  [[nodiscard]] std::size_t size() const override { return inner_->size(); }
  void send(const message_address& to, byte_vector bytes, bool waits, patience limit) override {
    inner_->send(to, std::move(bytes), waits, limit);
  }
  ticket post(const message_address& from) override { return inner_->post(from); }
  void give_up(ticket t) noexcept override { inner_->give_up(t); }
  std::optional<received_message> take(ticket t, patience limit) override { return inner_->take(t, limit); }
  std::shared_ptr<comm_backend> split(int color) override {
    return std::make_shared<exchanging_backend>(inner_->split(color));
  }

  [[nodiscard]] comm_exchanges* exchanges() override { return this; }
  void begin_exchange(std::span<const std::span<const std::byte>> out,
                      std::span<const std::span<std::byte>> in) override {
    if (before_) before_();
    auto& e = open_.emplace_back();
    for (std::size_t r = 0; r < size(); ++r) {
      const message_address peer{static_cast<int>(r), 0, communicator};
      if (!out[r].empty()) inner_->send(peer, {out[r].begin(), out[r].end()}, false, {});
      if (!in[r].empty()) e.push_back({r, inner_->post(peer), in[r]});
    }
  }
  std::optional<std::size_t> finish_exchange(patience limit) override {
    const auto parts = std::exchange(open_.front(), {});
    open_.pop_front();
    for (const auto& p : parts) {
      const auto m = inner_->take(p.from, limit);
      if (!m || m->bytes.size() != p.to.size()) return p.rank;
      std::memcpy(p.to.data(), m->bytes.data(), p.to.size());
    }
    return std::nullopt;
  }

 private:
  static constexpr std::uint64_t communicator = 3;  // next to those of the program and of collectives
  struct part {
    std::size_t rank;
    ticket from;
    std::span<std::byte> to;
  };
  std::shared_ptr<comm_backend> inner_;
  std::function<void()> before_;
  std::deque<std::vector<part>> open_;
};

}  // namespace paracel::test
