// SPDX-License-Identifier: BSD-3-Clause
//
// How many bytes of replies are queued in this process for a peer that does not read them.
//
// ZeroMQ does not report the length of its queues. But it releases a message when its last byte has been passed to the
// connection, or when the connection is given up, and the messages of a peer are sent in order.
// So every 64 KiB one reply is sent in memory of our own, a probe: when it is released, everything sent before
// it has left too. Whatever a client claims, this is what it costs the process.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include <tsl/robin_map.h>

#include "core/shared_buffer.hpp"
#include "net/transport.hpp"

namespace paracel::net {

/// The accounts of one port's peers.
///
/// Thread-safety: owned by the port's thread; probes are released on any.
/// Cost: of a reply, a comparison when it has the same receiver as the last one, otherwise a lookup; of a request, one
/// comparison while no peer has more than `noticed_bytes` unread.
class send_queue_meter {
  struct account {
    std::atomic<std::uint64_t> left{0};     ///< bytes known to have left
    std::atomic<std::uint32_t> holders{1};  ///< the table and the probes in flight
    std::uint64_t sent = 0;
    std::uint64_t probed = 0;  ///< `sent` when the last probe was sent
    bool noticed = false;
  };

 public:
  static constexpr std::uint64_t mark_interval_bytes = 64 * 1024;
  /// Smaller amounts are ignored: `unread` returns 0.
  static constexpr std::uint64_t noticed_bytes = std::uint64_t{1} << 20;
  /// What a reply costs besides its bytes: ZeroMQ's record of each of its parts and malloc's of the frame. Measured in
  /// a server with a client that reads no replies: 200 with replies of 72 bytes, 214 with 1,088.
  static constexpr std::uint64_t bytes_a_reply = 216;

  /// Memory whose release by ZeroMQ is observed: the frame of a reply, or the holder of its tail.
  class probe {
   public:
    /// ZeroMQ's callback on release; `hint` is the probe.
    static void release(void*, void* hint) {
      auto* m = static_cast<probe*>(hint);
      auto* of = m->of_.load(std::memory_order_acquire);  // pairs with the store in `due`: ZeroMQ's synchronisation is
                                                          // invisible to sanitizers
      auto known = of->left.load(std::memory_order_relaxed);
      while (known < m->sent_ && !of->left.compare_exchange_weak(known, m->sent_, std::memory_order_relaxed)) {
      }
      shared_buffer::drop(m->tail_);
      std::free(m);
      drop(of);
    }
    [[nodiscard]] std::byte* frame() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
    /// Takes over the reference held by `c`.
    void hold(shared_buffer::control* c) noexcept { tail_ = c; }

   private:
    friend class send_queue_meter;
    std::atomic<account*> of_{nullptr};
    std::uint64_t sent_ = 0;
    shared_buffer::control* tail_ = nullptr;
  };

  send_queue_meter() = default;
  send_queue_meter(const send_queue_meter&) = delete;
  send_queue_meter& operator=(const send_queue_meter&) = delete;
  ~send_queue_meter() {
    for (const auto& [id, a] : accounts_) drop(a);
  }

  /// Counts a reply. Returns: a probe with room for `frame_bytes` when one is due; the caller sends it in the reply, as
  /// its frame or as the holder of its tail, or releases it.
  [[nodiscard]] probe* due(const peer& to, std::size_t frame_bytes, std::size_t tail_bytes) {
    account& a = account_of(to);
    a.sent += frame_bytes + tail_bytes + bytes_a_reply;
    if (a.sent - a.probed < mark_interval_bytes) [[likely]]
      return nullptr;
    void* memory = std::malloc(sizeof(probe) + (tail_bytes == 0 ? frame_bytes : 0));
    if (memory == nullptr) throw std::bad_alloc();
    auto* m = new (memory) probe;
    a.probed = m->sent_ = a.sent;
    a.holders.fetch_add(1, std::memory_order_relaxed);
    m->of_.store(&a, std::memory_order_release);
    notice(a);
    return m;
  }

  /// Bytes of replies to this peer that have not left, accurate to 64 KiB; 0 below `noticed_bytes`.
  [[nodiscard]] std::uint64_t unread(const peer& from) {
    if (noticed_ == 0) [[likely]]
      return 0;
    const auto at = accounts_.find(from);
    if (at == accounts_.end()) return 0;
    return notice(*at->second);
  }

 private:
  struct hasher {
    std::size_t operator()(const peer& p) const noexcept {
      // ZeroMQ counts its peers in the last four of five bytes.
      std::uint64_t h = p.size;
      for (std::size_t i = 0; i < p.size; ++i) h = (h ^ static_cast<std::uint64_t>(p.id[i])) * 0x9e3779b97f4a7c15U;
      return h ^ (h >> 32U);
    }
  };
  struct equal {
    static constexpr std::size_t named_by_zeromq = 5;  // a constant length needs no call
    bool operator()(const peer& a, const peer& b) const noexcept {
      if (a.size != b.size) return false;
      if (a.size == named_by_zeromq) [[likely]]
        return std::memcmp(a.id.data(), b.id.data(), named_by_zeromq) == 0;
      return std::memcmp(a.id.data(), b.id.data(), a.size) == 0;
    }
  };

  static void drop(account* a) noexcept {
    if (a->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete a;
  }

  account& account_of(const peer& to) {
    if (last_ != nullptr && equal{}(to, last_peer_)) [[likely]]
      return *last_;
    auto at = accounts_.find(to);
    if (at == accounts_.end()) {
      if (accounts_.size() >= next_sweep_) sweep();
      at = accounts_.insert({to, new account}).first;
    }
    last_ = at->second;
    last_peer_ = to;
    return *last_;
  }

  /// Drops peers that have read everything but the last 64 KiB: those that are gone are among them.
  void sweep() {
    last_ = nullptr;
    for (auto at = accounts_.begin(); at != accounts_.end();) {
      notice(*at->second);
      if (at->second->left.load(std::memory_order_relaxed) < at->second->probed) {
        ++at;
        continue;
      }
      if (at->second->noticed) --noticed_;
      drop(at->second);
      at = accounts_.erase(at);
    }
    next_sweep_ = std::max(least_sweep, 2 * accounts_.size());
  }

  std::uint64_t notice(account& a) noexcept {
    const auto waiting = a.sent - a.left.load(std::memory_order_relaxed);
    const bool much = waiting >= noticed_bytes;
    if (much != a.noticed) {
      a.noticed = much;
      if (much) ++noticed_;
      else --noticed_;
    }
    return much ? waiting : 0;
  }

  static constexpr std::size_t least_sweep = 4096;
  tsl::robin_map<peer, account*, hasher, equal> accounts_;
  std::size_t next_sweep_ = least_sweep;
  std::size_t noticed_ = 0;  // accounts with more than noticed_bytes, as far as seen
  account* last_ = nullptr;
  peer last_peer_;
};

}  // namespace paracel::net
