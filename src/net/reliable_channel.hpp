// SPDX-License-Identifier: BSD-3-Clause
//
// The sender's end of a connection that may break while both ends are alive. The transport reconnects then, and
// messages in flight are lost: there is no notification, a reply is just late.
//
// What is sent to one thread of another process is a stream (flag_stream): it uses one connection, in order, and the
// first message over a connection is marked (flag_first). The receiver (server/request/sender_connections.hpp) refuses
// an unmarked message over another connection, `connection_reset`: earlier ones may be lost.
//
//     a reply is late --> ping --> refused connection_reset            --> broken --> renewed: what is unanswered is
//                              --> nothing arrives for 5, 10, ... s    -->            sent again, asked about, or
//                              failed
//
// Used by workers towards servers (src/client/kvclt.hpp) and each other (src/worker/peer_channels.hpp), by every
// process that talks to the scheduler (scheduler_channel.hpp) and by the heads of replication chains
// (server/replication/replication_links.cpp). Numbers are assigned by the owner: a request may be sent over several
// channels and keep its number.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>

#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "net/transport.hpp"

namespace paracel::net {

/// A live process answers within milliseconds. If a reply takes longer, the sender pings (prun.py --resend-after).
inline constexpr std::chrono::milliseconds late{1000};

/// How long an owner has waited for replies in vain: only waiting counts, not time in which the process computed or was
/// suspended.
/// Thread-safety: none.
class silence_timer {
 public:
  explicit silence_timer(std::chrono::nanoseconds after = late) noexcept : after_(after) {}

  /// Nothing has arrived for another `time`. Returns: whether replies are late; if so, the measurement restarts.
  [[nodiscard]] bool add(std::chrono::nanoseconds time) noexcept {
    waited_ += time;
    silence_ += time;
    if (silence_ < after_) return false;
    silence_ = {};
    return true;
  }
  /// A message has arrived.
  void reset() noexcept { silence_ = {}; }
  /// All time waited in vain: a monotonic clock for `reliable_channel::look`.
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept { return waited_; }

 private:
  std::chrono::nanoseconds after_;
  std::chrono::nanoseconds waited_{};
  std::chrono::nanoseconds silence_{};
};

/// What happens to unanswered messages when a connection breaks.
enum class on_loss : std::uint8_t {
  resend,  ///< `renew` sends what the channel has kept again, in order, under the old numbers
  notify,  ///< the owner calls `renew`, and resends or queries what it knows to be unanswered
  fail,    ///< nothing can be resent: the connection is never renewed, and a broken one is an error of the owner
};

/// Thread-safety: none; owned by the port's thread. Lifetime: the port outlives it. Destroying it does not disconnect.
/// Cost: sending takes one branch more than with the port.
class reliable_channel {
 public:
  struct settings {
    on_loss policy = on_loss::notify;
    /// How long a ping may be unanswered until the connection is presumed broken, in addition to the time that kept
    /// messages may take to arrive (at 20 MB/s). It doubles with each renewal, at most six times, until a connection is
    /// known to have broken: the other side may also be in a user function, or stopped.
    std::chrono::milliseconds silent{5000};
  };

  /// Connects at the first message.
  reliable_channel(port& over, std::string address, const settings& how)
      : port_(&over), address_(std::move(address)), settings_(how) {}

  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  /// The port's number of the connection; -1 while there is none.
  [[nodiscard]] int connection() const noexcept { return connection_; }

  // ---- sending

  /// Sends a message; sets stream flags and lengths of its header.
  /// Throws: network_error when it cannot be queued.
  void send(request_header& h, std::span<const std::byte> body, const shared_buffer& tail = {});
  /// The same with on_loss::resend, and keeps the buffers until they are acknowledged. Numbers must ascend; the low
  /// watermark of each transmission is the oldest number kept then.
  void send_kept(const request_header& h, shared_buffer body, shared_buffer tail);
  /// The reply to a kept message has arrived. Returns: whether it was still kept.
  bool acknowledge(std::uint64_t sequence) noexcept;
  /// All messages below a number have arrived.
  void acknowledge_before(std::uint64_t sequence) noexcept;
  [[nodiscard]] bool keeps() const noexcept { return !kept_.empty(); }
  /// The number of the oldest kept message; there must be one.
  [[nodiscard]] std::uint64_t oldest_kept() const noexcept { return kept_.front().header.sequence; }
  /// Of bodies and tails.
  [[nodiscard]] std::size_t kept_bytes() const noexcept { return kept_bytes_; }

  // For owners that encode headers themselves:

  /// Whether the next message needs `mark`. With on_loss::fail only the first one does.
  [[nodiscard]] bool has_to_mark() const noexcept { return marks_; }
  /// Sets the stream flags in the header of a message that is about to be transmitted.
  void mark(request_header& h) noexcept {
    h.flags = static_cast<std::uint16_t>((h.flags & ~flag_first) | flag_stream);
    if (!begun_) [[unlikely]] {
      begun_ = true;
      h.flags |= flag_first;
      // Where connections are never renewed it suffices that pings are marked: they detect that it has broken.
      if (settings_.policy == on_loss::fail) marks_ = false;
    }
  }
  void transmit(const outgoing& message) {
    if (connection_ < 0) [[unlikely]]
      connection_ = port_->connect(address_);
    port_->send(connection_, message);
  }

  // ---- the connection

  /// A reply over this connection: to a ping, or any that shows whether the connection has broken.
  void take(const reply_header& h) noexcept;
  /// A reply is late: sends a ping, even if the last one is unanswered, since it may be lost with its connection; or,
  /// after too long a silence, presumes the connection broken. `now`: by any monotonic clock. `identity`: its fields
  /// for the sender are used (job, client, rank, epoch, watermark).
  void check_health(std::chrono::nanoseconds now, request_header identity);
  /// Messages may be lost, and what is sent now may be refused.
  [[nodiscard]] bool is_broken() const noexcept { return broken_; }
  /// The next message uses a new connection; what is kept is sent again, in order. Not with on_loss::fail.
  /// Throws: as `send`.
  void renew();
  /// The other process is gone.
  void disconnect();

 private:
  static constexpr unsigned most_doublings = 6;
  struct kept_message {
    request_header header;
    shared_buffer body;
    shared_buffer tail;
    [[nodiscard]] std::size_t bytes() const noexcept { return body.size() + tail.size(); }
  };
  void send(kept_message& k);

  port* port_;
  std::string address_;
  settings settings_;
  int connection_ = -1;
  bool begun_ = false;  // something has been sent over this connection
  bool marks_ = true;
  bool broken_ = false;
  bool pinged_ = false;    // since `since_`, without a reply
  unsigned renewals_ = 0;  // since it was last known to have broken
  std::chrono::nanoseconds since_{};
  std::deque<kept_message> kept_;  // by number
  std::size_t kept_bytes_ = 0;
};

}  // namespace paracel::net
