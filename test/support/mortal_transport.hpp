// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "net/transport.hpp"

namespace paracel::test {

/// Thrown in the thread of a process that dies. Not a std::exception, so programs do not catch it.
struct death {};

/// When a process dies: at this message of its algorithm, counted from 0, before it is sent or after.
struct fate {
  static constexpr std::uint64_t never = ~std::uint64_t{0};
  std::uint64_t step = never;
  bool before = false;
};

/// The network of one process, which dies as if by SIGKILL: from then on nothing leaves it and nothing reaches it.
/// Must be constructed by the thread that runs the algorithm; the other threads merely fall silent.
class mortal_transport final : public net::transport {
 public:
  explicit mortal_transport(std::shared_ptr<net::transport> inner) : inner_(std::move(inner)) {}
  std::unique_ptr<net::port> open() override { return std::make_unique<mortal_port>(inner_->open(), life_); }
  /// From here on messages are counted.
  void begins(fate end) { life_->end = end; }
  /// From here on it does not die. Returns: the messages that the algorithm has sent.
  std::uint64_t ends() {
    life_->end.reset();
    return life_->steps;
  }

 private:
  struct life {
    std::optional<fate> end;  // empty: messages are not counted
    std::thread::id algorithm = std::this_thread::get_id();
    std::uint64_t steps = 0;
    std::atomic<bool> over{false};

    /// Sends, unless the process is dead or dies before this message. Throws: death, when it dies.
    template <class Send>
    void step(Send&& send) {
      if (over) return;
      if (std::this_thread::get_id() != algorithm || !end || std::uncaught_exceptions() != 0) return send();
      const bool ends = steps++ == end->step;
      if (!ends || !end->before) send();
      if (!ends) return;
      over = true;
      throw death();
    }
  };

  class mortal_port final : public net::port {
   public:
    mortal_port(std::unique_ptr<net::port> inner, std::shared_ptr<life> l)
        : inner_(std::move(inner)), life_(std::move(l)) {}
    std::string bind(const std::string& address) override { return inner_->bind(address); }
    int connect(const std::string& address) override { return inner_->connect(address); }
    void disconnect(int channel) override { inner_->disconnect(channel); }
    void send(int channel, const net::outgoing& message) override {
      life_->step([&] { inner_->send(channel, message); });
    }
    void reply(const net::peer& to, const net::outgoing& message) override {
      life_->step([&] { inner_->reply(to, message); });
    }
    bool receive(net::incoming& out, std::chrono::milliseconds timeout) override {
      return receive_batch({&out, 1}, timeout) != 0;
    }
    std::size_t receive_batch(std::span<net::incoming> out, std::chrono::milliseconds timeout) override {
      if (!life_->over) return inner_->receive_batch(out, timeout);
      std::this_thread::sleep_for(timeout);
      return 0;
    }

   private:
    std::unique_ptr<net::port> inner_;
    std::shared_ptr<life> life_;
  };

  std::shared_ptr<net::transport> inner_;
  std::shared_ptr<life> life_ = std::make_shared<life>();
};

}  // namespace paracel::test
