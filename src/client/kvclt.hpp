// SPDX-License-Identifier: BSD-3-Clause
//
// The client of one server. What belongs to all servers of a worker is elsewhere: where a key lives in routing_table,
// the numbers of requests and what is unanswered in request_window, waiting and membership changes in server_group.
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
#include "net/link_monitor.hpp"
#include "net/protocol.hpp"
#include "net/transport.hpp"

namespace paracel {

struct kvclt_options {
  /// Silence of the servers before a waiting call gives up; 0: never, for jobs whose scheduler watches over the
  /// servers.
  std::chrono::milliseconds timeout{60'000};
  std::size_t max_outstanding_bytes = 256UL << 20;  ///< sent and not yet answered; a sender waits beyond it
  std::size_t max_message_bytes = 1UL << 30;
  std::size_t multi_chunk_bytes = 8UL << 20;  ///< a multi request is cut into requests of about this size
  std::uint64_t incarnation = 0;              ///< 0: a random one is made
  const net::clock_source* time = nullptr;    ///< none: that of the machine
};

/// What the clients of all servers share: who they are to the servers, their port, and their requests.
struct client_context {
  using before_request = std::function<void(net::verb, const std::string_view* key)>;

  kvclt_options options;
  std::unique_ptr<net::port> port;
  std::uint64_t job = 0;
  std::uint64_t incarnation = 0;
  std::uint32_t rank = 0;
  std::uint32_t epoch = 0;        // of the membership in force
  bool may_change = false;        // servers may: requests are retained until they are answered
  bool left_behind = false;       // a retained request is to be sent again (request_replay)
  bool in_handler = false;        // nothing may wait, and no place may change
  std::size_t prepared_sets = 0;  // at all shards
  before_request before{};
  request_window window;

  /// Runs the handler of an answer.
  void run(const request_window::handler& done, const kv_result& result);
  /// Answers an open request in a server's stead.
  void complete_locally(request_window::sequence s, net::status result, std::string_view text);
};

/// While it exists nothing waits and no place changes, as inside a handler.
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
/// Threads of the server are named by number, shards first: how many connections there are to them is known here alone.
/// (Now it is one a thread.)
///
/// Order: what is sent to one thread arrives in that order, or a connection was lost, and then nothing that comes
/// behind it is executed before the connection has been renewed (net::flag_stream, net::flag_first).
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
    std::uint32_t credit = 0;  ///< bytes that an answer may have; 0: as many as the server likes
    /// Of a single-key request: what stands in its payload before the value. Read before `request` returns.
    std::span<const std::byte> prefix{};
  };
  [[nodiscard]] static net::request_header header_of(const call& c) noexcept;
  /// Throws: protocol_error for a key that is too long.
  static void check_key(std::string_view key);

  kvclt(client_context& shared, const server_entry& server);
  ~kvclt();
  kvclt(const kvclt&) = delete;
  kvclt& operator=(const kvclt&) = delete;

  /// Whether that is the process whose client this is.
  [[nodiscard]] bool is_of(std::uint32_t slot, std::uint64_t incarnation) const noexcept {
    return slot_ == slot && incarnation_ == incarnation;
  }
  [[nodiscard]] std::uint32_t slot() const noexcept { return slot_; }
  /// What is sent to a server that does not serve is left behind, to be sent to others.
  [[nodiscard]] bool serves() const noexcept { return serves_; }
  void set_serves(bool serves) noexcept { serves_ = serves; }
  [[nodiscard]] std::uint32_t threads() const noexcept { return static_cast<std::uint32_t>(lines_.size()); }
  [[nodiscard]] std::uint32_t shards() const noexcept { return threads() - 2; }
  [[nodiscard]] std::uint32_t clock_thread() const noexcept { return threads() - 2; }
  [[nodiscard]] std::uint32_t control_thread() const noexcept { return threads() - 1; }
  [[nodiscard]] const std::string& address(std::uint32_t thread) const noexcept { return lines_[thread].address; }

  /// Sends a new request and opens it in the window as one to `channel`; a subscription is parked instead. The window
  /// has room. Of the header what is said here is set: who asks, the number, the lengths.
  /// Throws: network_error when it cannot be queued; it is not open then.
  sequence send(std::uint32_t thread, std::uint32_t channel, net::request_header& h, std::string_view key,
                std::span<const std::byte> prefix, std::span<const std::byte> payload, shared_buffer&& tail,
                handler&& done);
  /// Sends a request again, or a part of it, under its old number. Epoch and watermark of the header are set.
  void resend(std::uint32_t thread, net::request_header& h, std::span<const std::byte> body, const shared_buffer& tail);
  /// Asks whether a thread lives. Nobody waits for the answer: it is no request of the window.
  void ping(std::uint32_t thread);

  // ---- connections

  /// The port's number of the connection to a thread; -1 before anything was sent to it.
  [[nodiscard]] int connection(std::uint32_t thread) const noexcept { return lines_[thread].number; }
  /// What comes over this connection comes from a thread that lives; or from one that knows another connection of ours,
  /// so that something may be lost. Returns: whether the connection is one of these.
  bool record_alive(int connection) noexcept;
  bool record_broken(int connection) noexcept;
  /// An answer is late. `now`: by any clock that only goes forward.
  [[nodiscard]] net::link_monitor::action look(std::uint32_t thread, std::chrono::nanoseconds now) noexcept {
    return lines_[thread].care.look(now);
  }
  void mark_broken(std::uint32_t thread) noexcept { lines_[thread].broken = true; }
  [[nodiscard]] bool is_broken(std::uint32_t thread) const noexcept { return lines_[thread].broken; }
  /// The next request goes over a new connection. The thread has then no key set of this client.
  void renew(std::uint32_t thread);
  /// The server is no more.
  void disconnect();

  // ---- prepared key sets, as far as the shards are known to have them

  [[nodiscard]] bool has_set(std::uint32_t thread, const digest128& digest) const {
    return lines_[thread].sets.contains({digest.low, digest.high});
  }
  [[nodiscard]] bool has_sets(std::uint32_t thread) const noexcept { return !lines_[thread].sets.empty(); }
  void record_set(std::uint32_t thread, const digest128& digest);
  void forget_sets(std::uint32_t thread) noexcept;

 private:
  struct line {
    int number = -1;  // of the port; -1 while it is not open
    std::string address;
    bool begun = false;   // something has been sent over this connection
    bool broken = false;  // the other side has seen another connection
    net::link_monitor care{};
    std::set<std::pair<std::uint64_t, std::uint64_t>> sets{};
  };

  void begin_stream(line& to, net::request_header& h) const noexcept;
  void transmit(line& to, const net::outgoing& message);
  void retain(std::uint32_t thread, std::uint32_t channel, const net::request_header& h,
              std::span<const std::byte> payload, const shared_buffer& tail);

  client_context& shared_;
  std::uint32_t slot_;
  std::uint64_t incarnation_;  // of the server
  bool serves_;
  std::vector<line> lines_;       // shards, then clock, then control
  std::vector<std::byte> front_;  // header, key and prefix of the request being sent
};

}  // namespace paracel
