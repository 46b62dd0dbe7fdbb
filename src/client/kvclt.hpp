// SPDX-License-Identifier: BSD-3-Clause
//
// The client of one server. What is shared by all servers of a worker is elsewhere: the place of a key in
// routing_table, request numbers and unanswered requests in request_window, waiting and membership changes in
// server_group.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/request_window.hpp"
#include "core/hash.hpp"
#include "core/membership.hpp"
#include "core/shared_buffer.hpp"
#include "net/clock_source.hpp"
#include "net/protocol.hpp"
#include "net/reliable_channel.hpp"
#include "net/transport.hpp"

namespace paracel {

struct kvclt_options {
  /// Silence of the servers after which a blocking call gives up; 0: never, for jobs whose scheduler monitors the
  /// servers.
  std::chrono::milliseconds timeout{60'000};
  std::size_t max_outstanding_bytes = 256UL << 20;  ///< sent and not yet answered; beyond it a sender blocks
  std::size_t max_message_bytes = 1UL << 30;
  std::size_t multi_chunk_bytes = 8UL << 20;  ///< a multi request is split into requests of about this size
  std::uint64_t incarnation = 0;              ///< 0: a random one is generated
  const net::clock_source* time = nullptr;    ///< null: the machine's clock
  /// Requests are retained until they are answered and resent after a connection breaks, even if servers never change.
  /// If they may change, this is always done.
  bool resends = true;
  /// Silence after which the client checks whether a late reply, or its request, was lost.
  std::chrono::milliseconds resend_after = net::late;
};

/// What the clients of all servers share: their identity towards the servers, their port, and their requests.
struct client_context {
  /// `key`: of one; else null, and `listed` has the keys if the request lists them in its items. Both null: any keys.
  using before_request = std::function<void(net::verb, const std::string_view* key, const net::request_items* listed)>;
  /// Of requests, and of their replies; those that are sent again do not count.
  struct traffic {
    std::uint64_t requests = 0;
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_bytes = 0;
  };

  kvclt_options options;
  std::unique_ptr<net::port> port;
  std::uint64_t job = 0;
  std::uint64_t incarnation = 0;
  std::uint32_t rank = 0;
  std::uint32_t epoch = 0;        // of the membership in force
  bool may_change = false;        // servers may change
  bool retains = true;            // requests are retained until they are answered
  bool left_behind = false;       // a retained request is to be retried (request_replay)
  bool in_handler = false;        // blocking and routing changes are not allowed
  std::size_t prepared_sets = 0;  // at all shards
  traffic counted{};
  before_request before{};
  std::function<void()> after_reply{};
  request_window window;

  /// Whether the next request is traced: one that waits for few others, and one in trace::every() of the rest.
  [[nodiscard]] bool traces_next() const noexcept;
  /// A traced request is answered.
  void trace_answer(request_window::entry& e, request_window::sequence s, net::status result,
                    std::size_t reply_bytes) const noexcept;
  /// Runs the handler of a reply.
  void run(const request_window::handler& done, const kv_result& result);
  /// Completes an open request on behalf of a server.
  void complete_locally(request_window::sequence s, net::status result, std::string_view text);
};

/// While it exists nothing blocks and no route changes, as inside a handler.
class nonblocking_scope {
 public:
  explicit nonblocking_scope(client_context& c) : flag_(c.in_handler), before_(std::exchange(flag_, true)) {}
  ~nonblocking_scope() { flag_ = before_; }
  nonblocking_scope(const nonblocking_scope&) = delete;
  nonblocking_scope& operator=(const nonblocking_scope&) = delete;

 private:
  bool& flag_;
  bool before_;
};

/// The client of one server: its connections, and what is sent over them.
///
/// Threads of the server are numbered, shards first: only this class knows how many connections lead to them.
/// (Now it is one per thread.)
///
/// Order: requests to one thread arrive in the order in which they were sent, unless the connection breaks; then no
/// later request is executed before it has been renewed (net::reliable_channel). Lost requests are in the window, for
/// request_replay; a client that retains none treats a broken connection as an error.
/// Thread-safety: owned by the thread of the context. Lifetime: the context outlives it.
class kvclt {
 public:
  using handler = request_window::handler;
  using sequence = request_window::sequence;

  /// What a request carries besides key and value.
  struct call {
    net::verb what = net::verb::none;
    std::uint64_t function = 0;
    std::uint32_t clock = net::no_clock;
    std::uint16_t flags = 0;
    std::uint32_t table = 0;
    std::uint32_t credit = 0;  ///< limit on the bytes of the reply; 0: none
    /// In a single-key request: what precedes the value in its payload. Read before `request` returns.
    std::span<const std::byte> prefix{};
  };
  [[nodiscard]] static net::request_header header_of(const call& c) noexcept;
  /// Throws: protocol_error for a key that is too long.
  static void check_key(std::string_view key);

  kvclt(client_context& shared, const server_entry& server);
  ~kvclt();
  kvclt(const kvclt&) = delete;
  kvclt& operator=(const kvclt&) = delete;

  /// Whether that is the process this client talks to.
  [[nodiscard]] bool is_of(std::uint32_t slot, std::uint64_t incarnation) const noexcept {
    return slot_ == slot && incarnation_ == incarnation;
  }
  [[nodiscard]] std::uint32_t slot() const noexcept { return slot_; }
  /// Requests to a server that does not serve are retained, to be sent to others.
  [[nodiscard]] bool serves() const noexcept { return serves_; }
  void set_serves(bool serves) noexcept { serves_ = serves; }
  [[nodiscard]] std::uint32_t threads() const noexcept { return static_cast<std::uint32_t>(links_.size()); }
  [[nodiscard]] std::uint32_t shards() const noexcept { return threads() - 2; }
  [[nodiscard]] std::uint32_t clock_thread() const noexcept { return threads() - 2; }
  [[nodiscard]] const std::string& address(std::uint32_t thread) const noexcept {
    return links_[thread].channel.address();
  }

  /// Sends a new request and opens it in the window as one to `channel`; a subscription is parked instead. The window
  /// must have room. Sets the header fields known here: sender, number, lengths.
  /// Throws: network_error when it cannot be queued; it is not open then.
  sequence send(std::uint32_t thread, std::uint32_t channel, net::request_header& h, std::string_view key,
                std::span<const std::byte> prefix, std::span<const std::byte> payload, shared_buffer&& tail,
                handler&& done);
  /// Retries a request, or a part of it, under its old number. Epoch and watermark of the header are set.
  void resend(std::uint32_t thread, net::request_header& h, std::span<const std::byte> body, const shared_buffer& tail);

  // ---- connections

  /// The port's number of the connection to a thread; -1 before anything was sent to it.
  [[nodiscard]] int connection(std::uint32_t thread) const noexcept { return links_[thread].channel.connection(); }
  /// Whether the connection is one to this thread: see net::reliable_channel.
  [[nodiscard]] bool owns(std::uint32_t thread, int connection) const noexcept {
    return links_[thread].channel.owns(connection);
  }
  /// A reply that shows whether the connection to this thread has broken.
  void take(std::uint32_t thread, const net::reply_header& h, int connection) noexcept {
    links_[thread].channel.take(h, connection);
  }
  /// A reply is late: pings the thread, or finds that the connection is broken. `now`: by any monotonic clock. Nothing
  /// waits for the reply to a ping: it is not a request of the window.
  void check_health(std::uint32_t thread, std::chrono::nanoseconds now, const net::reliable_channel::silence& so_far);
  [[nodiscard]] bool is_broken(std::uint32_t thread) const noexcept { return links_[thread].channel.is_broken(); }
  /// The next request uses a new connection. The thread then has no key set of this client.
  void renew(std::uint32_t thread);
  /// The server is gone.
  void disconnect();

  // ---- prepared key sets, where the shards are known to have them

  [[nodiscard]] bool has_set(std::uint32_t thread, const digest128& digest) const {
    return links_[thread].sets.contains({digest.low, digest.high});
  }
  [[nodiscard]] bool has_sets(std::uint32_t thread) const noexcept { return !links_[thread].sets.empty(); }
  void record_set(std::uint32_t thread, const digest128& digest);
  void forget_sets(std::uint32_t thread) noexcept;

 private:
  struct link {
    net::reliable_channel channel;
    std::set<std::pair<std::uint64_t, std::uint64_t>> sets{};
  };

  void add_link(const std::string& address);
  retained_request& retain(std::uint32_t thread, std::uint32_t channel, const net::request_header& h,
                           std::string_view key, std::span<const std::byte> prefix, std::span<const std::byte> payload,
                           const shared_buffer& tail);

  client_context& shared_;
  std::uint32_t slot_;
  std::uint64_t incarnation_;  // of the server
  bool serves_;
  std::vector<link> links_;       // shards, then clock, then control
  std::vector<std::byte> front_;  // header, key and prefix of a request that is not retained
};

}  // namespace paracel
