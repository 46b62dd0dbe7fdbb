// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "server/byte_budget.hpp"
#include "server/chain.hpp"
#include "server/clock_service.hpp"
#include "server/held_replies.hpp"

namespace paracel::srv {

/// The copies of the clock on the other servers of its partition's chain. The head sends them what has changed, the whole
/// small state each time, and answers ticks and waits when all of them have it. Ticks only ever raise a number, so a copy
/// takes over whatever is newer, and what comes twice does no harm. What may have been lost with a connection is sent again.
///
/// Thread-safety: owned by the clock thread. Lifetime: clock and port outlive it.
class clock_copies final : public reply_sink {
 public:
  using time_point = net::time_source::time_point;
  using serve_function = std::function<void(const net::request_view&, completion)>;

  /// `budgets`: as of chain.
  clock_copies(std::uint64_t job, const server_identity& self, server_budgets& budgets, clock_service& clock, net::port& port,
               serve_function serve)
      : job_(job), self_(self), budgets_(budgets), clock_(clock), port_(port), serve_(std::move(serve)),
        streams_(&budgets.streams), held_(&budgets.replies) {}

  void follow(std::shared_ptr<const copies_view> view, time_point now);
  [[nodiscard]] bool active() const noexcept { return view_ != nullptr; }
  /// As of chain.
  [[nodiscard]] bool takes(const net::request_header& h, const net::peer& from) { return streams_.takes(h, from); }
  [[nodiscard]] std::uint32_t epoch() const noexcept { return epoch_; }
  /// Whether the clock is kept here; nothing before there is a membership with copies.
  [[nodiscard]] std::optional<bool> keeps() const noexcept {
    return view_ == nullptr ? std::nullopt : std::optional(view_->router.clock_server() == view_->self);
  }
  [[nodiscard]] std::uint32_t synced() const noexcept { return synced_; }
  [[nodiscard]] bool waits() const noexcept { return !held_.empty(); }
  [[nodiscard]] bool has_parked() const noexcept { return !parked_.empty(); }
  /// As chain::stay_alone.
  void stay_alone(std::uint32_t epoch, time_point now);

  void handle(const net::request_view& request, completion done, time_point now);
  void take_reply(const net::incoming& in);
  /// As chain::settle.
  void settle(const net::time_source& time, time_point lease_end);
  void close();

  void send(const net::peer& to, const net::outgoing& message) override;

 private:
  struct parked {
    net::request_header header;
    std::vector<std::byte> body;
    completion done;
    held_bytes held;
  };

  void refuse(completion& done, net::status why, std::string_view text);
  void go_on(time_point now);
  void spread();
  void admit(const net::request_view& request, completion done, time_point now);

  const std::uint64_t job_;
  const server_identity self_;
  server_budgets& budgets_;
  clock_service& clock_;
  net::port& port_;
  serve_function serve_;
  std::shared_ptr<const copies_view> view_;
  std::uint32_t epoch_ = 0;
  std::uint32_t synced_ = 0;
  std::uint64_t spread_changes_ = 0;  // of the clock, that the copies have been sent
  std::vector<std::pair<int, std::uint64_t>> copies_;  // channel, and the incarnation of the server behind it
  std::uint64_t next_ = 0;
  std::uint64_t last_sent_ = 0;
  std::map<std::uint64_t, int> pending_;  // numbers of messages, and over which channel
  time_point spread_at_{};
  streams streams_;  // of the clients
  held_replies held_;
  std::vector<parked> parked_;
  bool direct_ = false;
};

}  // namespace paracel::srv
