// SPDX-License-Identifier: BSD-3-Clause
//
// The receiver's end of src/net/reliable_channel.hpp: checks that requests arrive over the same connection as earlier
// ones. The transport reconnects when a connection breaks, and messages in flight are lost; later ones must not be
// served as if nothing were missing.
//
// Server threads use it through their replication_chain, the scheduler through its reply_cache, which also keeps its
// own state of each sender here.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <variant>

#include "core/short_bytes.hpp"
#include "net/protocol.hpp"
#include "net/transport.hpp"
#include "server/request/byte_budget.hpp"

namespace paracel::srv {

/// The sender of a stream (net::flag_stream).
struct stream_sender {
  std::uint64_t client = 0;
  std::uint32_t rank = 0;
  [[nodiscard]] static stream_sender of(const net::request_header& h) noexcept { return {h.client, h.rank}; }
  friend auto operator<=>(const stream_sender&, const stream_sender&) = default;
};

/// The connection of each sender of a stream, and a `State` for the owner's use. When there are more senders than the
/// budget allows, those that started, or were last marked as recent, longest ago are dropped: their next request is
/// refused, and they start again.
///
/// Thread-safety: none. Cost: a map lookup when the sender is not that of the previous request; `sender_bytes` a
/// sender.
template <class State = std::monostate>
class sender_table {
 public:
  static constexpr std::size_t sender_bytes = 256;

  struct entry {
    net::peer from;
    State state{};
    std::uint64_t age = 0;  ///< the table's own
    held_bytes held{};      ///< likewise
  };

  /// `budget`: of all senders; null: they are not counted. Lifetime: it must outlive this.
  explicit sender_table(byte_budget* budget = nullptr) noexcept : budget_(budget) {}
  sender_table(sender_table&& other) noexcept { *this = std::move(other); }
  sender_table& operator=(sender_table&& other) noexcept {
    budget_ = other.budget_;
    senders_ = std::move(other.senders_);
    by_age_ = std::move(other.by_age_);
    newest_ = other.newest_;
    recent_ = senders_.end();
    other.recent_ = other.senders_.end();
    return *this;
  }

  /// Whether no earlier request of this sender can be missing.
  [[nodiscard]] bool accepts(const net::request_header& h, const net::peer& from) {
    return (h.flags & net::flag_stream) == 0 || accept(h, from) != nullptr;
  }
  /// The same for a request of a stream. The first one makes its connection the only valid one; requests still arriving
  /// over an older one are rejected. Returns: its sender, null to refuse it. Lifetime: until the sender is dropped.
  [[nodiscard]] entry* accept(const net::request_header& h, const net::peer& from) {
    const auto who = stream_sender::of(h);
    if ((h.flags & net::flag_first) == 0) {
      if (recent_ == senders_.end() || recent_->first != who) recent_ = senders_.find(who);
      return recent_ != senders_.end() && is_same(recent_->second.from, from) ? &recent_->second : nullptr;
    }
    const auto known = senders_.find(who);
    if (known != senders_.end()) {
      known->second.from = from;
      mark_recent(who, known->second);
      return &known->second;
    }
    held_bytes held;
    while (budget_ != nullptr && !held.take(*budget_, sender_bytes)) {
      if (by_age_.empty()) return nullptr;
      drop_oldest([](const entry&) {});
    }
    by_age_.emplace(++newest_, who);  // first: if there is no memory for the entry, this refers to no sender
    return &senders_.emplace(who, entry{.from = from, .age = newest_, .held = std::move(held)}).first->second;
  }

  /// Rejects requests of this sender until it starts again.
  void end(const net::request_header& h) {
    const auto at = senders_.find(stream_sender::of(h));
    if (at == senders_.end()) return;
    by_age_.erase(at->second.age);
    erase(at);
  }
  void mark_recent(const stream_sender& who, entry& e) {
    by_age_.emplace(newest_ + 1, who);
    by_age_.erase(std::exchange(e.age, ++newest_));
  }
  /// `f` is called with the entry before it is removed.
  template <class F>
  void drop_oldest(const F& f) {
    const auto oldest = senders_.find(by_age_.begin()->second);
    by_age_.erase(by_age_.begin());
    if (oldest == senders_.end()) return;
    f(oldest->second);
    erase(oldest);
  }
  /// Null: not known, or dropped.
  [[nodiscard]] entry* find(const stream_sender& who) {
    const auto at = senders_.find(who);
    return at == senders_.end() ? nullptr : &at->second;
  }

  [[nodiscard]] static bool are_of_one(const net::request_header& a, const net::request_header& b) noexcept {
    return (a.flags & b.flags & net::flag_stream) != 0 && stream_sender::of(a) == stream_sender::of(b);
  }
  [[nodiscard]] std::size_t size() const noexcept { return senders_.size(); }

 private:
  using table = std::map<stream_sender, entry>;
  static bool is_same(const net::peer& a, const net::peer& b) noexcept {
    return a.size == b.size && equal_short(a.id.data(), b.id.data(), a.size);
  }
  void erase(typename table::iterator at) {
    if (recent_ == at) recent_ = senders_.end();
    senders_.erase(at);
  }

  byte_budget* budget_;
  table senders_;
  typename table::iterator recent_ = senders_.end();  // most requests come from the sender of the previous one
  std::map<std::uint64_t, stream_sender> by_age_;
  std::uint64_t newest_ = 0;
};

using sender_connections = sender_table<>;

}  // namespace paracel::srv
