// SPDX-License-Identifier: BSD-3-Clause
//
// The sender's end of a connection that may break while both ends are alive. The transport reconnects then, and
// messages in flight are lost: there is no notification, a reply is just late.
//
// What is sent to one thread of another process is a stream (flag_stream): it uses one connection, in order, and the
// first message over a connection is marked (flag_first). The receiver (server/request/sender_connections.hpp) refuses
// an unmarked message over another connection, `connection_reset`: earlier ones may be lost.
//
//     a reply is late --> ping --> refused connection_reset                   --> broken --> renewed: what is
//                              --> answered over another connection, the      -->            unanswered is sent again,
//                                  probe, but not over this one                              asked about, or failed
//                              --> answered nowhere: the other side is busy, stopped or out of reach, and both wait
//
// A connection may fall silent without breaking, as behind a firewall that has forgotten it, while a new one would
// work. The probe tells that from a slow thread: it is a second connection, on which only pings are sent. Two of them
// must be answered, one after the other, while nothing arrives on the first connection. Then the probe replaces it.
//
// Used by workers towards servers (src/client/kvclt.hpp) and each other (src/worker/job/peer_channels.hpp), by every
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
/// suspended. Replies are late after `after`, and from then on connections are checked four times as often.
/// Thread-safety: none.
class silence_timer {
 public:
  explicit silence_timer(std::chrono::nanoseconds after = late) noexcept : after_(after) {}

  /// Nothing has arrived for another `time`. Returns: whether connections are to be checked.
  [[nodiscard]] bool add(std::chrono::nanoseconds time) noexcept {
    waited_ += time;
    silence_ += time;
    if (silence_ < after_) return false;
    silence_ = after_ - after_ / 4;
    return true;
  }
  /// A message has arrived, not over a probe.
  void reset() noexcept {
    silence_ = {};
    heard_ = waited_;
  }
  /// When the last message arrived, by `waited`.
  [[nodiscard]] std::chrono::nanoseconds heard() const noexcept { return heard_; }
  /// All time waited in vain: a monotonic clock for `reliable_channel::check_health`.
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept { return waited_; }

 private:
  std::chrono::nanoseconds after_;
  std::chrono::nanoseconds waited_{};
  std::chrono::nanoseconds silence_{};
  std::chrono::nanoseconds heard_{};
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
    /// How long a ping may be unanswered until the probe is sent, in addition to the time that messages in flight may
    /// take to arrive (at 20 MB/s; the time during which the kernel sees them travel does not count). It doubles with
    /// each renewal, at most six times, until something arrives over the new connection.
    std::chrono::milliseconds silent = late / 4;
  };

  /// Connects at the first message.
  reliable_channel(port& over, std::string address, const settings& how)
      : port_(&over), address_(std::move(address)), settings_(how) {}

  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  /// The port's number of the connection; -1 while there is none.
  [[nodiscard]] int connection() const noexcept { return connection_; }
  /// Whether a reply with this number of a connection is for `take`: it came over the connection, or over the probe.
  [[nodiscard]] bool owns(int connection) const noexcept {
    return connection >= 0 && (connection == connection_ || connection == probe_);
  }
  [[nodiscard]] bool is_probe(int connection) const noexcept { return connection >= 0 && connection == probe_; }

  // ---- sending

  /// Sends a message; sets stream flags and lengths of its header.
  /// Throws: network_error when it cannot be queued.
  void send(request_header& h, std::span<const std::byte> body, const shared_buffer& tail = {});
  /// The same with on_loss::resend, and keeps the buffers until they are acknowledged. Numbers must ascend; the low
  /// watermark of each transmission is the oldest number kept then.
  void send_kept(const request_header& h, shared_buffer body, shared_buffer tail);
  /// The same, but sends nothing: the owner does, over a connection of its own, or by `renew`.
  void keep(const request_header& h, shared_buffer body, shared_buffer tail);
  /// The reply to a kept message has arrived. Returns: whether it was still kept.
  bool acknowledge(std::uint64_t sequence) noexcept;
  /// All messages below a number have arrived.
  void acknowledge_before(std::uint64_t sequence) noexcept;
  [[nodiscard]] bool keeps() const noexcept { return !kept_.empty(); }
  /// The number of the oldest kept message; there must be one.
  [[nodiscard]] std::uint64_t oldest_kept() const noexcept { return kept_.front().header.sequence; }
  /// Bytes of the bodies and tails.
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

  /// A reply over a connection that this channel owns: to a ping, or any that shows whether the connection has broken.
  void take(const reply_header& h, int connection) noexcept;
  /// What the owner knows of the silence.
  struct silence {
    /// When something last arrived over the connection, or, if the owner does not tell, over any, by the clock of
    /// `now`.
    std::chrono::nanoseconds heard = std::chrono::nanoseconds::min();
    std::size_t in_flight_bytes = 0;  ///< unanswered requests, besides kept messages
  };
  /// A reply is late: sends a ping, again after four times `silent`, since it may be lost with its connection; sends
  /// the probe; or presumes the connection broken. To be called about as often as `silent` passes. `now`: by any
  /// monotonic clock. `identity`: its fields for the sender are used (job, client, rank, epoch, watermark).
  void check_health(std::chrono::nanoseconds now, const request_header& identity, const silence& so_far);
  /// Messages may be lost, and what is sent now may be refused.
  [[nodiscard]] bool is_broken() const noexcept { return broken_; }
  /// The next message uses a new connection; what is kept is sent again, in order. Not with on_loss::fail.
  /// Throws: as `send`.
  void renew();
  /// The other process is gone.
  void disconnect();

 private:
  static constexpr unsigned most_doublings = 6;
  static constexpr unsigned most_probe_doublings = 3;
  static constexpr unsigned needed_answers = 2;
  struct kept_message {
    request_header header;
    shared_buffer body;
    shared_buffer tail;
    [[nodiscard]] std::size_t bytes() const noexcept { return body.size() + tail.size(); }
  };
  void send(kept_message& k);
  void ping(request_header h);
  void probe(request_header h, std::chrono::nanoseconds now);
  void close_probe() noexcept;

  port* port_;
  std::string address_;
  settings settings_;
  int connection_ = -1;
  bool begun_ = false;  // something has been sent over this connection
  bool marks_ = true;
  bool broken_ = false;
  bool pinged_ = false;                                               // since `since_`, without a reply
  unsigned renewals_ = 0;                                             // since something last arrived
  std::chrono::nanoseconds since_{};                                  // of the first ping
  std::chrono::nanoseconds again_ = std::chrono::nanoseconds::min();  // before then no other ping is sent
  std::chrono::nanoseconds renewed_{};                                // when the last connection was presumed broken
  std::uint64_t traffic_ = 0;                                         // of the connection, then
  int probe_ = -1;
  bool probe_asked_ = false;  // without an answer, since `probed_`
  std::chrono::nanoseconds probed_{};
  unsigned probes_ = 0;  // unanswered ones that were given up
  unsigned probe_answers_ = 0;
  std::deque<kept_message> kept_;  // by number
  std::size_t kept_bytes_ = 0;
};

}  // namespace paracel::net
