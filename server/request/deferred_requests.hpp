// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/hash.hpp"
#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "server/request/byte_budget.hpp"
#include "server/request/completion.hpp"

namespace paracel::srv {

/// Keeps the order of a client's requests when one of them was refused because its key set, or list of rows, is
/// unknown.
///
/// The client then sends set_prepare and the request again, or the request with the ids of its rows; what it had sent
/// in between must not overtake them. So from the refusal on its requests are held back, unanswered, until that request
/// has been retried, after the set_prepare of its set, and has been handled. A ping abandons the refused request: what
/// is held proceeds without it.
///
/// Thread-safety: owned by the shard thread.
class deferred_requests {
 public:
  static constexpr std::size_t most_bytes = std::size_t{64} << 20;  ///< held requests of all clients together
  static constexpr std::size_t most_clients = 4096;

  /// A held request.
  struct held {
    net::request_header header;
    std::vector<std::byte> body;
    shared_buffer tail;
    completion done;
    held_bytes counted;
    [[nodiscard]] net::request_view view() const noexcept { return {header, body}; }
  };
  /// What to do with a request.
  enum class verdict : std::uint8_t {
    proceed,             ///< handle it
    proceed_then_drain,  ///< handle it, and if it was not refused, what `next` returns
    hold,
  };

  [[nodiscard]] bool empty() const noexcept { return clients_.empty(); }
  /// Total size held. Thread-safety: any thread.
  [[nodiscard]] const byte_budget& budget() const noexcept { return budget_; }

  /// A request of this client was refused. False: there is no room, and its order is not preserved.
  bool refused(std::uint64_t client, const digest128& set) {
    if (const auto at = clients_.find(client); at != clients_.end()) {
      at->second.set = set;
      at->second.refused_again = true;
      return true;
    }
    if (clients_.size() >= most_clients) return false;
    clients_[client].set = set;
    return true;
  }

  [[nodiscard]] verdict judge(const net::request_view& request) {
    const auto at = clients_.find(request.header.client);
    if (at == clients_.end()) return verdict::proceed;
    auto& c = at->second;
    const bool same_set = names(request, c.set);
    if (request.header.what == net::verb::set_prepare) {  // of another set: it changes nothing
      c.next_passes = c.next_passes || same_set;
      return verdict::proceed;
    }
    const bool brings_its_list = same_set && is_row_list(request.header.what);
    if ((c.next_passes && same_set) || brings_its_list || request.header.what == net::verb::ping) {
      c.next_passes = false;
      c.refused_again = false;
      return verdict::proceed_then_drain;
    }
    return verdict::hold;
  }

  /// False: there is no room, and nothing was moved from.
  [[nodiscard]] bool hold(const net::request_view& request, shared_buffer&& tail, completion&& done) {
    auto& c = clients_.at(request.header.client);
    held_bytes counted;
    if (!counted.take(budget_, request.body.size() + tail.size() + sizeof(held))) return false;
    c.waiting.push_back({request.header,
                         {request.body.begin(), request.body.end()},
                         std::move(tail),
                         std::move(done),
                         std::move(counted)});
    return true;
  }

  /// The next request of a client that may proceed, in order; false when there is none or the last one was refused.
  bool next(std::uint64_t client, held& out) {
    const auto at = clients_.find(client);
    if (at == clients_.end() || at->second.refused_again) return false;
    auto& c = at->second;
    if (c.waiting.empty()) {
      clients_.erase(at);
      return false;
    }
    out = std::move(c.waiting.front());
    c.waiting.pop_front();
    return true;
  }

  /// Answers the held requests of this client, whose refused request is no longer expected; `through` replaces the
  /// sinks of their completions.
  void forget(std::uint64_t client, net::status why, reply_sink* through = nullptr) {
    const auto at = clients_.find(client);
    if (at == clients_.end()) return;
    refuse(at->second, why, {}, through);
    clients_.erase(at);
  }

  /// Answers everything that is held.
  void close(net::status why, std::string_view text, reply_sink* through = nullptr) {
    for (auto& known : clients_) refuse(known.second, why, text, through);
    clients_.clear();
  }

 private:
  struct client_state {
    std::deque<held> waiting;
    digest128 set;             // that was unknown
    bool next_passes = false;  // its set_prepare has arrived: the next one is the refused request
    bool refused_again = false;
  };
  static void refuse(client_state& c, net::status why, std::string_view text, reply_sink* through) {
    for (auto& h : c.waiting) {
      if (through != nullptr) h.done.leave_through(*through);
      h.done.fail(why, text);
    }
  }
  static bool is_row_list(net::verb v) noexcept { return net::kind_of(v) == net::verb_kind::rows && net::has_items(v); }
  static bool names(const net::request_view& request, const digest128& set) noexcept {
    const auto& h = request.header;
    const bool may =
        net::kind_of(h.what) == net::verb_kind::key_set || (is_row_list(h.what) && (h.flags & net::flag_listed) == 0);
    return may && request.key().size() == sizeof set && std::memcmp(request.key().data(), &set, sizeof set) == 0;
  }

  byte_budget budget_{most_bytes};
  std::unordered_map<std::uint64_t, client_state> clients_;
};

}  // namespace paracel::srv
