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

#include <paracel/error.hpp>

#include "net/inproc_transport.hpp"
#include "net/protocol.hpp"

namespace paracel::test {

/// A transport whose connections break as ZeroMQ's do: a message is lost, with all replies in flight; later
/// messages are sent over a new connection, and neither side is notified. Or they swallow everything from now on, in
/// both directions, until their owner opens new ones.
///
/// It affects only traffic that is designed to survive that: streams (net::flag_stream) and the replication of the
/// clock; on request, everything. Connections with heartbeats swallow, too.
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
  /// Instead of breaking, a connection swallows everything from then on.
  void set_swallows(bool swallows) { state_->swallows = swallows; }
  /// So do all connections that are open now.
  void swallow_all() { ++state_->generation; }
  /// The next request with this verb arrives, and the reply is lost with the connection.
  void lose_answer_to(net::verb what) { state_->unanswered = what; }
  /// From now on no connection can be opened, as if no descriptor were left.
  void set_connects(bool connects) { state_->connects = connects; }
  [[nodiscard]] std::size_t broken() const { return state_->broken; }

 private:
  struct state {
    unsigned one_in = 0;
    bool hits_all = false;
    std::atomic<bool> breaks{false};
    std::atomic<bool> swallows{false};
    std::atomic<bool> connects{true};
    std::atomic<std::uint64_t> generation{0};
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
      if (!state_->connects) throw network_error("cannot open a socket: Too many open files", false);
      channels_.push_back({address, open(address, static_cast<int>(channels_.size())), state_->generation, false});
      return static_cast<int>(channels_.size()) - 1;
    }
    void disconnect(int channel) override { inner_->disconnect(channels_.at(static_cast<std::size_t>(channel)).inner); }
    void send(int channel, const net::outgoing& message) override {
      auto& c = channels_.at(static_cast<std::size_t>(channel));
      auto what = verb_of(message);
      const bool loses_answer =
          what != net::verb::none && state_->unanswered.compare_exchange_strong(what, net::verb::none);
      const bool hits = state_->breaks && (state_->hits_all || can_bear_it(message)) && random_() % state_->one_in == 0;
      if (is_swallowed(c)) return;
      if (loses_answer || !hits) inner_->send(c.inner, message);
      if (!loses_answer && !hits) return;
      if (hits && state_->swallows) {
        c.swallowed = true;
        ++state_->broken;
        return;
      }
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
      std::size_t kept = 0;
      for (std::size_t i = 0; i < n; ++i) {
        if (out[i].channel >= 0) {
          out[i].channel = outer_.at(static_cast<std::size_t>(out[i].channel));
          if (is_swallowed(channels_[static_cast<std::size_t>(out[i].channel)])) continue;
        }
        if (kept != i) out[kept] = std::move(out[i]);
        ++kept;
      }
      return kept;
    }

   private:
    struct line {
      std::string address;
      int inner;
      std::uint64_t generation;
      bool swallowed;
    };
    [[nodiscard]] bool is_swallowed(const line& l) const { return l.swallowed || l.generation != state_->generation; }
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
    [[nodiscard]] bool can_bear_it(const net::outgoing& message) const {
      std::uint16_t flags = 0;
      std::memcpy(&flags, message.head.data() + 6, sizeof flags);
      const auto what = verb_of(message);
      return (flags & net::flag_stream) != 0 || what == net::verb::replicate ||
             (state_->swallows && what == net::verb::heartbeat);
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
