// SPDX-License-Identifier: BSD-3-Clause
//
// The unanswered requests of one client incarnation, whichever servers they went to.
//
// They are numbered by one counter, and have one low watermark, although each server has its own client (kvclt):
//
//   * A number is a request's identity. Servers remember what they have applied by (incarnation, number, partition),
//     and replicate that to their replicas. When a server is lost, its unanswered requests go to other servers under
//     their old numbers, and those that had been applied are answered from that memory. With a counter per server, two
//     requests of one incarnation could meet at one server under one number: the second would pass for the first.
//   * Below a client's low watermark servers remember nothing and reject retries as expired. A watermark per server
//     would run ahead of requests that another server still owes, and the server that takes those over would reject
//     them. So the watermark is the lowest number that any server still owes.
//
// The price is that one silent server holds back the watermark of all. That is bounded: a client makes no more requests
// once `most_unanswered` numbers have passed since the lowest one, and a shard remembers more than these.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "client/retained_request.hpp"
#include "core/inplace_function.hpp"
#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"

namespace paracel {

struct multi_request;

/// A reply. The views are valid inside the handler only; `tail` may be kept.
struct kv_result {
  net::reply_header header;
  std::span<const std::byte> body;
  shared_buffer tail;
  [[nodiscard]] bool ok() const noexcept { return header.result == net::status::ok; }
  [[nodiscard]] value_view value() const noexcept { return {header.tag, tail ? tail.bytes() : body}; }
  /// The failure, in the server's words.
  [[nodiscard]] std::string_view text() const noexcept { return net::text_of(body); }
};

/// Thread-safety: none; owned by the thread of its clients.
/// Cost: opening and closing a request is O(1) and, once the window has reached its size, allocation-free.
class request_window {
 public:
  using sequence = std::uint64_t;
  using handler = inplace_function<void(const kv_result&)>;

  /// What a shard remembers of a client's requests (server/request/dedup_window.hpp), minus those that a handler may
  /// add.
  static constexpr std::uint64_t most_unanswered = 3072;

  struct entry {
    handler done;
    std::uint32_t channel = 0;  ///< to which it went (routing_table)
    std::uint32_t bytes = 0;
    net::verb what = net::verb::none;
    bool open = false;
    std::uint16_t slot = 0;                        ///< of a traced one: the server
    std::uint64_t traced_since = 0;                ///< when it was sent, by trace::now; 0: it is not traced
    multi_request* multi = nullptr;                ///< it stands for several requests, and has no reply of its own
    std::unique_ptr<retained_request> retained{};  ///< to be retried
  };
  /// A request that its server answers when an event occurs. Nothing waits for it.
  struct subscription {
    std::uint32_t channel = 0;
    std::uint32_t clock = 0;
    handler done;
  };

  request_window();

  /// The number of the next request.
  [[nodiscard]] sequence next() const noexcept { return next_; }
  /// Every number below it is answered.
  [[nodiscard]] sequence low() const noexcept { return low_; }
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }
  /// Bytes of the requests in flight.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Whether as many requests are in flight as a shard remembers.
  [[nodiscard]] bool is_full() const noexcept { return next_ - low_ >= most_unanswered; }

  [[nodiscard]] bool is_open(sequence s) const noexcept { return s >= low_ && s < next_ && at(s).open; }
  [[nodiscard]] bool answered(sequence s) const noexcept { return s < low_ || (s < next_ && !at(s).open); }
  /// `s` must not be below low() nor above next(). Lifetime: until `reserve`.
  [[nodiscard]] entry& at(sequence s) noexcept { return entries_[s & (entries_.size() - 1)]; }
  [[nodiscard]] const entry& at(sequence s) const noexcept { return entries_[s & (entries_.size() - 1)]; }

  /// Reserves a slot for the next request.
  void reserve() {
    if (next_ - low_ >= entries_.size()) [[unlikely]]
      widen();
  }
  /// The next request was sent: at(next()) describes it, except for the arguments here. Returns: its number.
  sequence open(net::verb what, std::uint32_t channel, std::size_t bytes, handler&& done) noexcept {
    auto& e = at(next_);
    e.done = std::move(done);
    e.channel = channel;
    e.bytes = static_cast<std::uint32_t>(std::min<std::size_t>(bytes, UINT32_MAX));
    e.what = what;
    e.open = true;
    e.multi = nullptr;
    ++in_flight_;
    bytes_ += e.bytes;
    return next_++;
  }
  /// The same for a number that stands for several requests.
  sequence open(net::verb what, multi_request& several) noexcept;
  /// The request is answered. Its handler must have been moved out before.
  void close(entry& e) noexcept {
    e.open = false;
    if (e.retained != nullptr) [[likely]]
      recycle(e);
    --in_flight_;
    bytes_ -= e.bytes;
    advance_watermark();
  }
  /// Where the next request is retained; it may hold the buffers of an earlier one.
  retained_request& retain_next();

  /// Whether the counters and the watermark fit the entries: for assertions. Cost: O(next() - low()).
  [[nodiscard]] bool is_consistent() const;

  /// Disables the handlers of open requests from `first` to `last`.
  void forget(sequence first, sequence last) noexcept;
  /// Disables those of requests that change nothing.
  void forget_reads() noexcept;
  /// f(number, entry) for each request in flight, except numbers that stand for several.
  template <class F>
  void for_each_open(const F& f) {
    for (auto s = low_; s < next_; ++s)
      if (auto& e = at(s); e.open && e.multi == nullptr) f(s, e);
  }

  // Subscriptions have numbers and are not in flight.
  sequence park(subscription s);
  [[nodiscard]] std::size_t parked() const noexcept { return parked_.size(); }
  /// Removes and returns the one with number `s`, if there is one.
  std::optional<subscription> take_parked(sequence s) {
    if (parked_.empty()) [[likely]]
      return std::nullopt;
    return find_parked(s);
  }
  /// Removes and returns those of one channel that have a handler.
  std::vector<subscription> take_parked_at(std::uint32_t channel);
  void drop_parked() noexcept { parked_.clear(); }

 private:
  void widen();
  void recycle(entry& e) noexcept;
  void advance_watermark() noexcept {
    while (low_ < next_ && !at(low_).open) ++low_;
  }
  std::optional<subscription> find_parked(sequence s);

  sequence next_ = 1;
  sequence low_ = 1;
  std::size_t in_flight_ = 0;
  std::size_t bytes_ = 0;
  std::vector<entry> entries_;                            // ring over numbers; its size is a power of two
  std::vector<std::unique_ptr<retained_request>> spare_;  // to be reused, with their buffers
  std::size_t large_spare_ = 0;                           // how many of them have a large buffer
  std::map<sequence, subscription> parked_;
};

}  // namespace paracel
