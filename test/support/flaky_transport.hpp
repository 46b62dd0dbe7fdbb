// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/inproc_transport.hpp"
#include "net/protocol.hpp"

namespace paracel::test {

/// A transport whose connections break as ZeroMQ's do: a message is lost, with all replies in flight; later
/// messages are sent over a new connection, and neither side is notified.
///
/// It affects only traffic that is designed to survive that: streams (net::flag_stream) and the replication of the
/// clock; on request, everything.
class flaky_transport final : public net::transport {
 public:
  /// One in `one_in` messages is lost while `breaks` is set.
  explicit flaky_transport(unsigned one_in, bool hits_all = false) : state_(std::make_shared<state>()) {
    state_->one_in = one_in;
    state_->hits_all = hits_all;
  }

  std::unique_ptr<net::port> open() override {
    return std::make_unique<flaky_port>(inner_.open(), state_, ++state_->ports);
  }
  void set_breaks(bool breaks) { state_->breaks = breaks; }
  /// The next request with this verb arrives, and the reply is lost with the connection.
  void lose_answer_to(net::verb what) { state_->unanswered = what; }
  [[nodiscard]] std::size_t broken() const { return state_->broken; }

 private:
  struct state {
    unsigned one_in = 0;
    bool hits_all = false;
    std::atomic<bool> breaks{false};
    std::atomic<net::verb> unanswered{net::verb::none};
    std::atomic<std::size_t> broken{0};
    std::atomic<std::uint64_t> ports{0};
  };

  class flaky_port final : public net::port {
   public:
    flaky_port(std::unique_ptr<net::port> inner, std::shared_ptr<state> s, std::uint64_t number)
        : inner_(std::move(inner)), state_(std::move(s)), random_(number) {}

    std::string bind(const std::string& address) override { return inner_->bind(address); }
    int connect(const std::string& address) override {
      channels_.push_back({address, open(address, static_cast<int>(channels_.size()))});
      return static_cast<int>(channels_.size()) - 1;
    }
    void disconnect(int channel) override { inner_->disconnect(channels_.at(static_cast<std::size_t>(channel)).inner); }
    void send(int channel, const net::outgoing& message) override {
      auto& c = channels_.at(static_cast<std::size_t>(channel));
      auto what = verb_of(message);
      const bool loses_answer =
          what != net::verb::none && state_->unanswered.compare_exchange_strong(what, net::verb::none);
      const bool hits = state_->breaks && (state_->hits_all || can_bear_it(message)) && random_() % state_->one_in == 0;
      if (loses_answer || !hits) inner_->send(c.inner, message);
      if (!loses_answer && !hits) return;
      inner_->disconnect(c.inner);
      c.inner = open(c.address, channel);
      ++state_->broken;
    }
    void reply(const net::peer& to, const net::outgoing& message) override { inner_->reply(to, message); }
    bool receive(net::incoming& out, std::chrono::milliseconds timeout) override {
      return receive_batch({&out, 1}, timeout) != 0;
    }
    std::size_t receive_batch(std::span<net::incoming> out, std::chrono::milliseconds timeout) override {
      const auto n = inner_->receive_batch(out, timeout);
      for (auto& in : out.first(n))
        if (in.channel >= 0) in.channel = outer_.at(static_cast<std::size_t>(in.channel));
      return n;
    }

   private:
    struct line {
      std::string address;
      int inner;
    };
    int open(const std::string& address, int outer) {
      const int inner = inner_->connect(address);
      outer_.resize(static_cast<std::size_t>(inner) + 1, -1);
      outer_[static_cast<std::size_t>(inner)] = outer;
      return inner;
    }
    static net::verb verb_of(const net::outgoing& message) {
      std::uint8_t what = 0;
      std::memcpy(&what, message.head.data() + 5, sizeof what);
      return static_cast<net::verb>(what);
    }
    static bool can_bear_it(const net::outgoing& message) {
      std::uint16_t flags = 0;
      std::memcpy(&flags, message.head.data() + 6, sizeof flags);
      return (flags & net::flag_stream) != 0 || verb_of(message) == net::verb::replicate;
    }

    std::unique_ptr<net::port> inner_;
    std::shared_ptr<state> state_;
    std::mt19937_64 random_;
    std::vector<line> channels_;
    std::vector<int> outer_;  // by channel of the inner port
  };

  net::inproc_transport inner_;
  std::shared_ptr<state> state_;
};

}  // namespace paracel::test
