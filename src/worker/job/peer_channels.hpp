// SPDX-License-Identifier: BSD-3-Clause
//
// Messages between the workers of a job, each on a channel of its own from the sender's port to the receiver's. The
// scheduler introduces them: a worker's join says where it is bound, and `find_worker` looks that up.
//
//   sender     numbers its messages to each receiver; a reliable_channel keeps each one until it is acknowledged, and
//              resends all of them when the receiver has missed one
//   receiver   accepts the message that is next in order, acknowledges one that it already has, rejects one after a
//              gap: each is delivered once and in order, even if a connection breaks
//
//   links      over tcp, workers that have exchanged a few messages connect directly (direct_links.hpp): the owner
//              reads and writes these connections itself, looks at them for a moment before it sleeps, and acknowledges
//              many messages at once. The next message takes that way once all before it are acknowledged. When the
//              connection ends or the network is silent, what is unacknowledged goes through ZeroMQ as before
//
// No thread: messages arrive while the owner sends (over a direct connection, once in a MiB) or receives. In between,
// ZeroMQ carries them as far as the queue of the receiver's socket.
//
// A worker that was replaced is another receiver: messages to the previous process, and those that it had sent and no
// peer had received, are lost. Peers notice by the new process's first message, which says how many were this worker
// before.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/growing_timer.hpp"
#include "core/message_matcher.hpp"
#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "net/reliable_channel.hpp"
#include "net/transport.hpp"
#include "worker/job/direct_links.hpp"

namespace paracel {

class usage;

/// Where a worker is, as the scheduler knows it.
struct worker_place {
  std::string address;
  std::uint32_t turn = 0;  ///< how many processes were this worker before
  std::string gone;        ///< why it neither sends nor receives any more; empty: it is up
  bool awaited = false;    ///< it is gone, and another process will take its place
};

/// Thread-safety: owned by the thread that runs the algorithm.
class peer_channels {
 public:
  using milliseconds = std::chrono::milliseconds;
  struct options {
    std::uint64_t job = 0;
    std::uint32_t rank = 0;
    std::uint32_t size = 1;
    std::uint64_t client = 0;  ///< of this process; a replacement has another
    std::uint32_t turn = 0;    ///< how many processes were this worker before
    std::function<worker_place(std::uint32_t rank)> find;
    /// Throws when the job has ended; called at least every `patience`.
    std::function<void()> check;
    milliseconds patience{100};
    /// While waiting for a peer, the scheduler is asked whether it is up, and pending messages are checked: first after
    /// `patience`, at last every time that this has passed.
    milliseconds doubt = net::late;
    usage* used = nullptr;  ///< counts what is sent and received, if not null
    /// `send` waits while more bytes than this to one peer are unacknowledged.
    std::size_t window_bytes = std::size_t{256} << 20U;
    std::string link_host{};  ///< where this worker listens for direct connections; empty: it has none
    bool encrypts = false;    ///< the job is encrypted
    std::size_t max_message_bytes = net::transport_limits{}.max_message_bytes;
  };

  /// `bound`: a port that accepts requests at the address which the scheduler tells others.
  peer_channels(options o, std::unique_ptr<net::port> bound);

  /// Call it before the first message.
  void set_turn(std::uint32_t turn) noexcept { options_.turn = turn; }

  /// Copies nothing: the message keeps the bytes. `waits`: blocks while more than the window is unacknowledged (the
  /// receiver acknowledges only inside its own calls); otherwise never blocks. Throws: network_error that names the
  /// peer that is gone or has not acknowledged by `limit`; what `check` throws.
  void send(const message_address& to, shared_buffer bytes, bool waits, std::optional<milliseconds> limit = {});
  [[nodiscard]] message_matcher::ticket post(const message_address& from) { return arrived_.post(from); }
  void give_up(message_matcher::ticket t) { arrived_.give_up(t); }
  /// What else to do while nothing arrives. `waits` says whether that is still so.
  struct side_work {
    milliseconds interval{100};
    std::function<void(const std::function<bool()>& waits)> run{};
  };
  /// The message of a ticket. Blocks: until it has arrived, at most `limit`.
  /// Returns: nothing when it has not. Throws: network_error when the peer that must send it is gone; what `check`
  /// throws.
  [[nodiscard]] std::optional<received_message> take(message_matcher::ticket t, std::optional<milliseconds> limit,
                                                     const side_work& meanwhile);
  [[nodiscard]] std::optional<received_message> take(message_matcher::ticket t, std::optional<milliseconds> limit) {
    return take(t, limit, {});
  }
  /// For a caller that waits for a worker by other means: handles what has arrived; `doubts`: asks the scheduler
  /// whether the worker is up. Throws: as take.
  void attend(std::uint32_t rank, bool doubts);
  /// Asks the scheduler whether a worker has left, and no other process will take its place.
  [[nodiscard]] bool is_gone(std::uint32_t rank) const;
  /// For a caller that waits for something else that may depend on its messages: handles what has arrived, and checks
  /// connections over which messages have been unacknowledged for long. Never blocks. Throws: what `check` throws.
  void check_links();
  /// Waits until every message is acknowledged, at most `limit`. Returns: whether they are.
  bool flush(milliseconds limit);
  /// Whether messages to this worker take a direct connection now.
  [[nodiscard]] bool is_linked(std::uint32_t rank) const;
  /// Of the messages to this worker.
  [[nodiscard]] std::size_t unacknowledged_bytes(std::uint32_t rank) const;

 private:
  using steady_clock = std::chrono::steady_clock;
  struct outgoing_peer {
    net::reliable_channel channel;
    std::uint32_t turn = 0;
    std::uint64_t last = 0;        // sequence
    std::uint64_t oldest = 0;      // kept message, at the last check
    int checks = 0;                // since it is the oldest
    int turnings = 0;              // how often `send` has waited to take the direct connection
    bool on_link = false;          // all that is unacknowledged took the direct connection
    std::size_t unread_bytes = 0;  // sent over it since arrivals were read
  };
  struct incoming_peer {
    std::uint64_t client = 0;
    std::uint32_t turn = 0;
    std::uint64_t taken = 0;  // sequence
  };

  outgoing_peer& reach(std::uint32_t rank);
  [[nodiscard]] net::request_header header_for(const outgoing_peer& p) const;
  void transmit(std::uint32_t rank, outgoing_peer& p, net::request_header& h, shared_buffer bytes);
  void turn_to_link(std::uint32_t rank);
  void check_link(std::uint32_t rank, outgoing_peer& p);
  bool read_links();
  void on_record(std::uint32_t rank, direct_links::peer_link& over, const net::link_record& r, byte_vector body);
  [[nodiscard]] std::uint64_t taken_over(std::uint32_t rank, const direct_links::peer_link& over);
  void acknowledge(direct_links::peer_link& over, std::uint64_t received);
  void acknowledge_all();
  bool receive_for(milliseconds wait);
  void on_port();
  void forget_before(std::uint32_t rank, std::uint32_t turn);
  /// Handles what has arrived. Returns: whether anything had.
  bool progress(milliseconds wait);
  void on_message();
  void on_reply();
  void question(std::uint32_t rank, const char* what);
  void question_all();

  options options_;
  std::unique_ptr<net::port> port_;
  message_matcher arrived_;
  std::map<std::uint32_t, outgoing_peer> to_;
  std::map<std::uint32_t, incoming_peer> from_;
  std::map<std::uint32_t, std::uint32_t> met_;             // the turn in which a peer was first met
  std::chrono::steady_clock::time_point links_checked_{};  // when check_links did
  std::map<std::uint32_t, int> absences_;  // how often in a row a peer was found gone; under this rank: all peers
  net::incoming in_;
  std::optional<direct_links> links_;
  unsigned reads_ = 0;  // of them
};

}  // namespace paracel
