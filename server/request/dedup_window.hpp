// SPDX-License-Identifier: BSD-3-Clause
//
// Deduplication: which requests a shard has applied, so that a retried one is answered and not applied again. The unit
// is the part of a request that concerns one partition, since a retried request of many keys may be split
// differently.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/short_bytes.hpp"
#include "server/request/byte_budget.hpp"

namespace paracel::srv {

/// Thread-safety: owned by the shard thread.
/// Cost: a request that is the newest of its client costs an append to a list; a retried one a binary search. Places of
/// an older request, and parts of other servers, are appended, too, and sorted in all at once when something is looked
/// up. 48 bytes a part, and the answer if it is longer than 16. At the limit, the oldest requests of clients above
/// their share are dropped, and new clients are refused.
class dedup_window {
 public:
  /// Requests remembered per client; those below its watermark are dropped anyway. Beyond this the oldest are dropped.
  static constexpr std::size_t most_requests = 4096;
  static constexpr std::size_t default_bytes = std::size_t{256} << 20;
  static constexpr std::size_t client_bytes = 1024;  ///< of a client without remembered requests, approximately
  /// A client that has sent a request is never forgotten: its requests must not be applied again.
  static constexpr std::size_t most_clients = std::size_t{1} << 16;

  explicit dedup_window(std::size_t most_bytes = default_bytes) : budget_(most_bytes) {}

  enum class verdict : std::uint8_t {
    fresh,    ///< never seen
    applied,  ///< applied already: `answer` is what was answered
    expired,  ///< too old: unknown
  };
  struct answer {
    std::uint16_t flags = 0;           ///< of the record
    std::span<const std::byte> items;  ///< valid until the window changes
  };
  /// One part, as passed by `each`.
  struct part {
    std::uint64_t client;
    std::uint64_t low;  ///< the client's watermark
    std::uint64_t sequence;
    answer what;
  };

  [[nodiscard]] verdict find(std::uint64_t client, std::uint64_t sequence, std::uint16_t partition, answer& out) {
    const auto* known = settled_window_of(client);
    if (known == nullptr) return verdict::fresh;
    const auto& c = *known;
    const place where{sequence, partition};
    const auto e = std::lower_bound(c.parts.begin(), c.parts.end(), where, before);
    if (e != c.parts.end() && e->is(where) && !e->awaited) {
      out = {e->flags, e->items()};
      return verdict::applied;
    }
    return sequence < c.low ? verdict::expired : verdict::fresh;
  }
  /// Whether requests of this client can be remembered; a refusal is counted.
  [[nodiscard]] bool admits(std::uint64_t client) noexcept {
    if (window_of(client) != nullptr || (clients_.size() < most_clients && !budget_.is_over())) [[likely]]
      return true;
    budget_.refuse();
    return false;
  }
  /// Total size. Thread-safety: any thread.
  [[nodiscard]] const byte_budget& budget() const noexcept { return budget_; }
  /// Whether anything is known of this request, in any partition.
  [[nodiscard]] bool knows(std::uint64_t client, std::uint64_t sequence) {
    const auto* known = settled_window_of(client);
    if (known == nullptr) return false;
    const auto& c = *known;
    if (sequence < c.low) return true;
    if (c.parts.empty() || c.parts.back().at.sequence < sequence) [[likely]]
      return false;
    const auto e = std::lower_bound(c.parts.begin(), c.parts.end(), place{sequence, 0}, before);
    return e != c.parts.end() && e->at.sequence == sequence;
  }

  /// Reserves the place of a part whose request is about to change something: `find` sees it once it has been added,
  /// and `add` then needs memory only for an answer of more than 16 bytes. Throws: std::bad_alloc; nothing is reserved.
  void await(std::uint64_t client, std::uint64_t sequence, std::uint16_t partition) {
    ++changes_;
    auto& c = make_window_of(client);
    if (sequence < c.low) return;
    const place where{sequence, partition};
    const bool is_newest = c.late == 0 && (c.parts.empty() || c.parts.back().at.sequence < sequence);
    count(c, c.parts.emplace_back(where));
    if (is_newest) [[likely]]
      ++c.requests;
    else ++c.late;
  }
  /// Releases the unfilled places reserved for this request.
  void release_places(std::uint64_t client, std::uint64_t sequence) noexcept {
    auto* known = settled_window_of(client);
    if (known == nullptr) return;
    auto& c = *known;
    const auto first = std::lower_bound(c.parts.begin(), c.parts.end(), place{sequence, 0}, before);
    auto last = first;
    while (last != c.parts.end() && last->at.sequence == sequence) ++last;
    const auto kept = std::remove_if(first, last, [&](const entry& e) {
      if (e.awaited) uncount(c, e);
      return e.awaited;
    });
    if (kept == last) return;
    ++changes_;
    if (kept == first) --c.requests;
    c.parts.erase(kept, last);
  }
  /// Remembers a part, replacing an existing one. Everything of the client below `low` is dropped.
  /// Throws: std::bad_alloc; the part is as before.
  void add(std::uint64_t client, std::uint64_t low, std::uint64_t sequence, std::uint16_t partition,
           const answer& what) {
    ++changes_;
    auto& c = make_window_of(client);
    settle(c);
    forget_below(c, low);
    if (sequence < c.low) return;
    const place where{sequence, partition};
    if (!c.parts.empty() && c.parts.back().is(where)) [[likely]] {
      fill(c, c.parts.back(), what);  // it was reserved
    } else if (const auto at = std::lower_bound(c.parts.begin(), c.parts.end(), where, before);
               at != c.parts.end() && at->is(where)) {
      fill(c, *at, what);
    } else {
      append_late(c, where, what);
      settle(c);
    }
    forget_oldest(c);
    if (budget_.is_over()) [[unlikely]]
      make_room(c);
  }
  /// The same for a part of a request that another server has applied. Many of them, one after the other, may come in
  /// any order. Throws: std::bad_alloc; the part is as before.
  void add_copy(std::uint64_t client, std::uint64_t low, std::uint64_t sequence, std::uint16_t partition,
                const answer& what) {
    ++changes_;
    auto& c = make_window_of(client);
    if (low > c.low) c.low = low;  // what is below it goes when the window is sorted
    if (sequence < c.low) return;
    append_late(c, {sequence, partition}, what);
    // Often enough that few are unsorted, and rarely enough that the sorted ones are not moved for a few.
    constexpr std::size_t few = 64;
    if (c.late > few + (c.parts.size() - c.late) / 4) settle(c);
    if (budget_.is_over()) [[unlikely]]
      make_room(c);
  }
  /// Drops the parts of the partitions in `gone`. Cost: O(all parts).
  template <class F>
  void drop_if(const F& gone) {
    ++changes_;
    for (auto& known : clients_) {
      auto& c = known.second;  // clang 14 cannot capture a binding
      settle(c);
      std::erase_if(c.parts, [&](const entry& e) {
        const bool goes = gone(e.at.partition);
        if (goes) uncount(c, e);
        return goes;
      });
      c.requests = count_requests(c, c.parts.begin(), c.parts.end());
    }
  }
  /// Calls f(const part&) for each part of the partition, by client and sequence.
  /// Cost: O(all parts) after a change, then O(those of the partition): a caller that needs all partitions visits them
  /// without changes in between.
  template <class F>
  void each(std::uint16_t partition, const F& f) {
    make_index();
    const auto begin = std::lower_bound(index_.begin(), index_.end(), partition,
                                        [](const indexed& i, std::uint16_t p) { return i.what->at.partition < p; });
    for (auto i = begin; i != index_.end() && i->what->at.partition == partition; ++i) {
      f(part{i->client, i->low, i->what->at.sequence, {i->what->flags, i->what->items()}});
    }
  }

  [[nodiscard]] std::size_t size() noexcept {
    std::size_t n = 0;
    for (auto& [client, c] : clients_) {
      settle(c);
      n += c.parts.size();
    }
    return n;
  }

 private:
  struct place {
    std::uint64_t sequence;
    std::uint16_t partition;
  };
  struct entry {
    static constexpr std::size_t inside = 16;  // one reply item without a value
    explicit entry(const place& where) noexcept : at(where) {}
    /// Throws: std::bad_alloc; nothing has changed.
    void set(const answer& what) {
      const auto n = what.items.size();
      if (n > inside) {
        auto fresh = std::make_unique<std::byte[]>(n);
        std::memcpy(fresh.get(), what.items.data(), n);
        large = std::move(fresh);
      } else {
        copy_short(small.data(), what.items.data(), n);
        if (large != nullptr) [[unlikely]]
          large = nullptr;
      }
      flags = what.flags;
      bytes = static_cast<std::uint32_t>(n);
      awaited = false;
    }
    [[nodiscard]] std::size_t memory() const noexcept { return sizeof *this + (large != nullptr ? bytes : 0); }
    [[nodiscard]] std::span<const std::byte> items() const noexcept {
      return {large != nullptr ? large.get() : small.data(), bytes};
    }
    [[nodiscard]] bool is(const place& p) const noexcept {
      return at.sequence == p.sequence && at.partition == p.partition;
    }
    place at;
    std::uint16_t flags = 0;
    bool awaited = true;  // its request is being handled
    std::uint32_t bytes = 0;
    std::array<std::byte, inside> small{};
    std::unique_ptr<std::byte[]> large;
  };
  struct client_window {
    std::uint64_t low = 0;     // everything below it is expired
    std::size_t requests = 0;  // that the parts belong to, as far as these are sorted
    std::size_t bytes = 0;     // of the parts
    std::deque<entry> parts;   // by sequence and partition, but
    std::size_t late = 0;      // so many at the end in any order, each place perhaps twice
  };
  using parts_iterator = std::deque<entry>::const_iterator;
  struct indexed {
    std::uint64_t client;
    std::uint64_t low;
    const entry* what;
  };

  /// Most requests come from the same client as the previous one.
  [[nodiscard]] client_window* window_of(std::uint64_t client) noexcept {
    if (recent_ != nullptr && recent_client_ == client) [[likely]]
      return recent_;
    const auto at = clients_.find(client);
    if (at == clients_.end()) return nullptr;
    recent_client_ = client;
    return recent_ = &at->second;
  }
  client_window* settled_window_of(std::uint64_t client) noexcept {
    auto* known = window_of(client);
    if (known != nullptr) settle(*known);
    return known;
  }
  client_window& make_window_of(std::uint64_t client) {
    if (auto* known = window_of(client)) [[likely]]
      return *known;
    auto& c = clients_[client];
    budget_.add_alone(client_bytes);
    return c;
  }
  static bool before(const entry& e, const place& p) noexcept {
    return e.at.sequence != p.sequence ? e.at.sequence < p.sequence : e.at.partition < p.partition;
  }
  /// Requests that begin in this range.
  static std::size_t count_requests(const client_window& c, parts_iterator first, parts_iterator last) noexcept {
    std::size_t n = 0;
    for (auto at = first; at != last; ++at)
      if (at == c.parts.begin() || std::prev(at)->at.sequence != at->at.sequence) ++n;
    return n;
  }
  void append_late(client_window& c, const place& where, const answer& what) {
    entry added(where);
    added.set(what);
    count(c, c.parts.emplace_back(std::move(added)));
    ++c.late;
  }
  void settle(client_window& c) noexcept {
    if (c.late != 0) [[unlikely]]
      sort_in(c);
  }
  /// Sorts what was appended to where it belongs. Of two parts at one place the newer one stays, unless it is reserved
  /// only.
  [[gnu::noinline]] void sort_in(client_window& c) noexcept {
    const auto earlier = [](const entry& a, const entry& b) { return before(a, b.at); };
    const auto late = c.parts.end() - static_cast<std::ptrdiff_t>(std::exchange(c.late, 0));
    std::stable_sort(late, c.parts.end(), earlier);
    const auto first = std::lower_bound(c.parts.begin(), late, late->at, before);
    c.requests -= count_requests(c, first, late);
    std::inplace_merge(first, late, c.parts.end(), earlier);
    auto end = first;  // of those that stay
    for (auto at = first; at != c.parts.end(); ++at) {
      if (end == first || !std::prev(end)->is(at->at)) {
        if (end != at) *end = std::move(*at);
        ++end;
        continue;
      }
      auto& other = *std::prev(end);
      uncount(c, at->awaited ? *at : other);
      if (!at->awaited) other = std::move(*at);
    }
    c.parts.erase(end, c.parts.end());
    c.requests += count_requests(c, first, c.parts.end());
    forget_old(c);
    forget_oldest(c);
  }
  void forget_oldest(client_window& c) noexcept {
    while (c.requests > most_requests) forget_below(c, c.parts.front().at.sequence + 1);
  }
  void count(client_window& c, const entry& e) noexcept {
    c.bytes += e.memory();
    budget_.add_alone(e.memory());
  }
  void uncount(client_window& c, const entry& e) noexcept {
    c.bytes -= e.memory();
    budget_.give_back_alone(e.memory());
  }
  /// Throws: std::bad_alloc; the part is as before.
  void fill(client_window& c, entry& e, const answer& what) {
    const auto earlier = e.memory();
    e.set(what);
    if (e.memory() == earlier) [[likely]]
      return;
    budget_.add_alone(e.memory() - earlier);  // modulo 2^64, as it may have become less
    c.bytes += e.memory() - earlier;
  }
  /// Half of the limit is shared equally, so that this does not recur soon. `mine` may have one request
  /// that is too large by itself.
  void make_room(client_window& mine) noexcept {
    const auto share = budget_.limit() / 2 / clients_.size();
    for (auto& [client, c] : clients_) {
      settle(c);
      while (c.bytes > share && c.requests > 1) forget_below(c, c.parts.front().at.sequence + 1);
    }
    if (budget_.is_over() && !mine.parts.empty()) forget_below(mine, mine.parts.back().at.sequence + 1);
  }
  void forget_below(client_window& c, std::uint64_t low) noexcept {
    if (low <= c.low) return;
    c.low = low;
    forget_old(c);
  }
  void forget_old(client_window& c) noexcept {
    while (!c.parts.empty() && c.parts.front().at.sequence < c.low) {
      const auto gone = c.parts.front().at.sequence;
      uncount(c, c.parts.front());
      c.parts.pop_front();
      if (c.parts.empty() || c.parts.front().at.sequence != gone) --c.requests;
    }
  }
  void make_index() {
    if (indexed_at_ == changes_) return;
    index_.clear();
    for (auto& [client, c] : clients_) {
      settle(c);
      for (const auto& e : c.parts) index_.push_back({client, c.low, &e});
    }
    std::sort(index_.begin(), index_.end(), [](const indexed& a, const indexed& b) {
      if (a.what->at.partition != b.what->at.partition) return a.what->at.partition < b.what->at.partition;
      return a.client != b.client ? a.client < b.client : a.what->at.sequence < b.what->at.sequence;
    });
    indexed_at_ = changes_;
  }

  byte_budget budget_;
  std::unordered_map<std::uint64_t, client_window> clients_;  // never erased
  std::uint64_t recent_client_ = 0;
  client_window* recent_ = nullptr;
  std::vector<indexed> index_;
  std::uint64_t changes_ = 1;
  std::uint64_t indexed_at_ = 0;
};

}  // namespace paracel::srv
