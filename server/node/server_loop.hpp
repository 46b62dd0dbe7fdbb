// SPDX-License-Identifier: BSD-3-Clause
//
// One iteration of each thread of a server, without the threads: server_node runs each loop in a thread, and
// the simulation (test/sim) runs those of a whole job one step at a time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/membership.hpp"
#include "net/clock_source.hpp"
#include "net/transport.hpp"
#include "server/node/server.hpp"
#include "server/replication/replication_chain.hpp"
#include "server/request/port_sink.hpp"

namespace paracel::srv {

/// What a loop works with. Lifetime: all of it must outlive the loop.
struct loop_context {
  server& of;
  net::port& port;
  const std::atomic<bool>& stop;  ///< the node is stopping
  const std::atomic<std::int64_t>&
      lease_end;                       ///< nothing is sent at or after it; as the time since the epoch of time_point
  std::atomic<std::uint32_t>& synced;  ///< set to the epoch of which all replicas of this thread are complete
  const net::clock_source& time;
  std::function<void(const std::string&)> log{};  ///< a line of text, on the loop's thread; may be empty
};

/// Decodes a request; answers one that cannot be decoded, whose sender is a slow consumer, or that is not for this
/// thread of this job (verb_rules.hpp), and returns false.
bool decode_for(server& s, place at, reply_sink& sink, const net::incoming& in, net::request_view& request);

/// Thread-safety: owned by the thread that runs the steps.
class server_loop {
 public:
  // How long a thread sleeps when idle. A stop wakes it earlier; this bounds the cost of a lost wake-up.
  static constexpr std::chrono::milliseconds idle{100};

  virtual ~server_loop() { in_.of.end_replication(thread_); }
  server_loop(const server_loop&) = delete;
  server_loop& operator=(const server_loop&) = delete;
  /// Waits at most `sleep` for requests, handles those that have arrived, sends changes and replies that are due.
  /// Returns: how long the next step may sleep.
  virtual std::chrono::milliseconds step(std::chrono::milliseconds sleep) = 0;
  /// The node's own `stop` has arrived.
  [[nodiscard]] bool told_to_stop() const noexcept { return told_; }

 protected:
  /// A reply of another server. Returns: whether it was meant for the loop itself, and not for its replication.
  virtual bool take_reply(const net::incoming& /*in*/) { return false; }
  /// `thread`: number of the shard, or the number after the last one's for the clock.
  server_loop(const loop_context& s, place at, unsigned thread);
  /// Serves a request, and records when, if its client traces it.
  void serve_traced(const net::request_view& request, shared_buffer tail, completion done);
  /// Handles a request in its turn.
  virtual void serve(const net::request_view& request, shared_buffer tail, completion done) = 0;
  /// A newer membership with replicas.
  virtual void adopt(const replica_view& /*view*/) {}
  virtual void expect(std::span<const net::request_view> /*requests*/) {}
  /// Receives the waiting requests, `expect`s them together and handles each in order. Returns: whether there were any.
  bool take(std::chrono::milliseconds sleep);
  /// After a batch: sends the changes, and the replies that need not wait any longer.
  /// Returns: how long to sleep.
  std::chrono::milliseconds end_batch();

  const loop_context in_;
  const unsigned thread_;
  replication_chain& chain_;  // the server's

 private:
  // Most requests received at once: enough to hide the cache misses of one behind those of the
  // others, without delaying the first reply. A batch of 32 single keys is handled in 3 to 5 us.
  static constexpr std::size_t batch = 32;

  const place at_;
  port_sink unreplicated_;
  bool told_ = false;
  std::array<net::incoming, batch> messages_;
  std::array<net::request_view, batch> requests_;
  std::array<net::incoming*, batch> from_{};
};

class shard_loop final : public server_loop {
 public:
  shard_loop(const loop_context& s, request_handler& handler, unsigned index);
  /// What is parked is answered while the port exists, even when the thread ends by an exception.
  ~shard_loop() override;
  std::chrono::milliseconds step(std::chrono::milliseconds sleep) override;

 private:
  bool fold();
  bool tidy(bool is_idle);
  void serve(const net::request_view& request, shared_buffer tail, completion done) override;
  void adopt(const replica_view& view) override { in_.of.adopt(thread_, view); }
  void expect(std::span<const net::request_view> requests) override { handler_.expect(thread_, requests); }

  request_handler& handler_;
  // Giving memory back: whether it is being done, or was seen to be necessary; when to look again.
  enum class tidying : std::uint8_t { no, soon, yes } tidying_ = tidying::no;
  net::clock_source::time_point next_tidying_{};
  unsigned busy_turns_ = 0;
};

class clock_loop final : public server_loop {
 public:
  /// `self` as in the membership; `newest` returns the newest membership, or null.
  clock_loop(const loop_context& s, const server_entry& self,
             std::function<std::shared_ptr<const membership>()> newest);
  /// As for shard_loop.
  ~clock_loop() override;
  std::chrono::milliseconds step(std::chrono::milliseconds sleep) override;

 private:
  bool take_reply(const net::incoming& in) override;
  void serve(const net::request_view& request, shared_buffer tail, completion done) override;
  class clock_notifier;
  [[nodiscard]] net::clock_source::time_point now() const { return in_.time.now(); }

  std::unique_ptr<clock_notifier> notifier_;
};

}  // namespace paracel::srv
