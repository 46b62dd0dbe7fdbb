// SPDX-License-Identifier: BSD-3-Clause
//
// All servers of a job as one: many requests in flight, replies matched by number, driven by its caller (it has no
// thread of its own). A key's request goes straight to the shard thread that owns the key.
//
//   routing_table   the ring, and a kvclt per server: the channel of each partition
//   kvclt           the client of one server: connections, what is sent over them
//   request_window  unanswered requests, of all servers, under one counter (request_window.hpp says why)
//   request_replay  what is retried when servers or connections have changed
//   multi_client    requests of many keys and of prepared sets
//   server_group    requests, waiting for replies, and following the membership
//
// Every request is retained until it is answered. A connection that breaks or stays silent is renewed, and its
// unanswered requests are retried, in the original order, under their old numbers; a server that has already applied a
// request answers from its memory. So handlers run once, and an update is applied once. When the membership changes,
// all unanswered requests are retried in the same way, at the servers that own their partitions then. Nothing else
// makes this client give up on a server: a silent one is the scheduler's business (server_group_failover.cpp). A client
// that retains nothing (kvclt_options::resends) treats a broken connection as an error.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "client/abort_signal.hpp"
#include "client/kvclt.hpp"
#include "client/latest_membership.hpp"
#include "client/multi_client.hpp"
#include "client/request_replay.hpp"
#include "client/request_window.hpp"
#include "client/routing_table.hpp"
#include "core/membership.hpp"
#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "net/transport.hpp"

namespace paracel {

/// A client of every server of a job.
///
/// Order: requests for one key are executed in the order they were made. Only when a server or a connection was lost
/// while several of them were in flight may a read be executed after an update that was made after it.
/// Thread-safety: owned by the thread that created it; a program with several threads creates one for each.
/// Handlers run inside `wait`, `wait_all`, `poll`, or a request that had to wait for room. They may make requests,
/// which then do not wait for room (the views of the current reply would not outlive it), but they may not block.
class server_group {
 public:
  using call = kvclt::call;
  using handler = kvclt::handler;
  using sequence = kvclt::sequence;

  /// `ended` is raised when the job has ended, for whatever reason: if given, a server that reports the end itself is
  /// not trusted, since it knows neither the cause nor the status.
  server_group(net::transport& transport, membership servers, std::uint32_t rank, kvclt_options options = {},
               std::shared_ptr<abort_signal> ended = nullptr, std::shared_ptr<latest_membership> board = nullptr);
  ~server_group();
  server_group(const server_group&) = delete;
  server_group& operator=(const server_group&) = delete;

  // ---- requests

  /// Sends a single-key request and returns at once. `value` is copied unless `large` holds it, which is then sent
  /// without a copy (its bytes must not change until the reply).
  /// Throws: network_error when it is larger than the limit; job_error when the job has ended.
  sequence request(const call& c, std::string_view key, const value_view& value, handler done,
                   shared_buffer large = {});
  /// To one shard of one server (by its index in the membership); returns at once. `key` does not select a place.
  sequence shard_request(const call& c, std::uint32_t server, std::uint32_t shard, std::string_view key,
                         std::span<const std::byte> payload, handler done);
  /// A request that is not of one key, to the shard thread behind `channel`. `payload` is copied; `large`, if present,
  /// is sent in a frame of its own, without a copy (its bytes must not change until the reply).
  sequence shard_request(const call& c, std::uint32_t channel, std::uint32_t count, value_tag tag,
                         std::span<const std::byte> payload, handler done, shared_buffer large = {},
                         std::string_view key = {});
  /// For a request that names its rows by a list: if servers change, it is resent with their ids, in the order of
  /// `place`, the number of its first attempt.
  void retain_rows(sequence s, std::shared_ptr<const listed_rows> rows, std::uint32_t part, sequence place);
  /// The same request to every shard of every server; returns after the last reply.
  void broadcast(const call& c, std::string_view key, std::span<const std::byte> payload, const handler& each);
  /// To the clock thread of the server that owns the clock. `clock`: finished iterations (tick), needed minimum (wait).
  sequence clock_request(net::verb what, std::uint32_t clock, handler done, std::uint16_t flags = 0);
  /// Asks a shard to answer when the clock is beyond `clock` (items: key and known version). It is completed only by a
  /// poll or a call that drives the client for another reason.
  sequence subscribe(std::uint32_t server, std::uint32_t shard, std::uint32_t clock, std::span<const std::byte> items,
                     std::uint32_t count, handler done);
  /// Requests on many keys.
  [[nodiscard]] multi_client& many() noexcept { return many_; }
  /// What all of these call: sends a request whose header is complete except for what kvclt sets. Blocks: until the
  /// window has room, unless inside a handler.
  sequence send(std::uint32_t channel, net::request_header& h, std::string_view key, std::span<const std::byte> prefix,
                std::span<const std::byte> payload, shared_buffer&& tail, handler&& done);
  /// Waits until a request of this many bytes has room in the window, unless inside a handler.
  void wait_for_window(std::size_t bytes);
  /// Set by code that holds requests back (combined updates): it is called before a request leaves that could observe
  /// or be observed by them, with its key, or with null when it is about many. It may make requests, and may not block.
  void set_pre_send_hook(client_context::before_request before) { shared_.before = std::move(before); }
  /// Called now and then by a call that waits for replies; it must not make requests of this client.
  void set_waiting_hook(std::function<void()> waits) { waiting_ = std::move(waits); }

  /// Set by code that holds requests back until others are answered: it is called after the handler of each reply. It
  /// may make requests, and may not block.
  void set_post_reply_hook(std::function<void()> after) { shared_.after_reply = std::move(after); }

  // ---- replies

  /// Drives the client until `s` is answered.
  /// Throws: network_error when a server has been silent for the timeout (it is unknown whether the request was
  /// applied); job_error when the job has ended; what a handler throws.
  void wait(sequence s);
  void wait_all();
  /// Handles replies that have arrived; never blocks. Returns the number of replies.
  std::size_t poll();
  /// Disables the handlers of requests that change nothing: what they would fill may be destroyed.
  void forget_reads() noexcept { shared_.window.forget_reads(); }
  [[nodiscard]] bool answered(sequence s) const noexcept { return shared_.window.answered(s); }
  /// What has been sent and received since the last call.
  [[nodiscard]] client_context::traffic take_traffic() noexcept { return std::exchange(shared_.counted, {}); }
  [[nodiscard]] std::size_t in_flight() const noexcept { return shared_.window.in_flight(); }
  /// The number of the next request: in the hook before a request, the number of that one.
  [[nodiscard]] sequence next() const noexcept { return shared_.window.next(); }

  // ---- routing

  [[nodiscard]] const membership& servers() const noexcept { return routes_.members(); }
  /// The shard of a key.
  [[nodiscard]] location locate(std::string_view key) const noexcept { return routes_.locate(key); }
  [[nodiscard]] location locate_partition(std::uint16_t p) const noexcept { return routes_.locate_partition(p); }
  /// The channel of the shard thread that owns a partition.
  [[nodiscard]] std::uint32_t channel_of(std::uint16_t partition) const noexcept {
    return routes_.channel_of(partition);
  }
  /// Applies the newest membership known to this process, if it is not the current one, and renews broken connections.
  /// No-op inside a handler.
  void refresh_membership() {
    if (shared_.retains) [[likely]]
      if (broken_ || shared_.left_behind || is_behind()) [[unlikely]]
        follow_newest();
  }
  /// Pins the routing table while alive (`channel_of`, `locate`, servers()), for a caller that looks up a place and
  /// then sends there.
  class [[nodiscard]] pin_routing {
   public:
    explicit pin_routing(server_group& c) : client_(c) { ++client_.pins_; }
    ~pin_routing() { --client_.pins_; }
    pin_routing(const pin_routing&) = delete;
    pin_routing& operator=(const pin_routing&) = delete;

   private:
    server_group& client_;
  };

  [[nodiscard]] std::uint64_t incarnation() const noexcept { return shared_.incarnation; }
  [[nodiscard]] const kvclt_options& options() const noexcept { return shared_.options; }

 private:
  /// How often a blocked call checks whether the membership has changed.
  static constexpr std::chrono::milliseconds refresh_interval{20};

  /// Drives until `reached()`; `s` is the request waited for, to be named if it is never answered.
  template <class Reached>
  void run_until(const Reached& reached, sequence s);
  bool receive(std::chrono::milliseconds timeout);
  void take_sign(const net::reply_header& h, int connection);
  [[noreturn]] void give_up_connection(const routing_table::end& to) const;
  [[noreturn]] void give_up(sequence s, std::chrono::milliseconds silence) const;
  /// Waiting for room while the routing is pinned would wait for servers that are gone.
  [[nodiscard]] bool waits_in_vain() const noexcept {
    return shared_.retains && pins_ != 0 && (shared_.left_behind || broken_ || is_behind());
  }

  // Where requests are retained, in server_group_failover.cpp:
  [[nodiscard]] bool is_behind() const noexcept { return shared_.may_change && board_->epoch() > servers().epoch; }
  void follow_newest();
  void apply_membership(const membership& fresh);
  void subscribe_to_clock();
  void renew(std::uint32_t channel);
  void record_silence(std::chrono::nanoseconds time);
  void record_silence_while_polling();
  void clear_everywhere(const call& c, const handler& each);

  client_context shared_;
  routing_table routes_;
  request_replay replay_;
  multi_client many_;
  std::function<void()> waiting_;
  std::shared_ptr<abort_signal> ended_;
  std::shared_ptr<latest_membership> board_;
  net::incoming incoming_;
  bool broken_ = false;  // one of the connections is
  unsigned pins_ = 0;
  bool subscribes_ = false;            // the clock has been told so
  std::chrono::nanoseconds polled_{};  // when it was last polled in vain, by options().time
  net::silence_timer silence_;         // of all servers
};

}  // namespace paracel
