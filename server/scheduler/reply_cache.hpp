// SPDX-License-Identifier: BSD-3-Clause
//
// The scheduler's end of connections that may break (src/net/scheduler_channel.hpp): a retried request is executed
// once, and answered over the connection on which its sender can be reached now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "net/transport.hpp"
#include "server/request/completion.hpp"
#include "server/request/sender_connections.hpp"

namespace paracel::srv {

/// Replies through a port. The last reply of each channel is kept until its next request, so the result of a
/// collective is held that long. When there are more channels than `most_channels`, or their replies take more than
/// `most_bytes`, the least recently used are dropped: their next request is refused, and they start
/// again. Frames of their own that take more than `most_tail_bytes` are dropped alone, the oldest first: the request
/// is still known to be executed, and a repetition of it fails with too_large.
///
/// Thread-safety: owned by the port's thread. Cost: one map lookup a request, and one a reply.
class reply_cache final : public reply_sink {
 public:
  static constexpr std::size_t most_channels = std::size_t{1} << 14;
  static constexpr std::size_t most_bytes = std::size_t{256}
                                            << 20;  ///< of answers, except those in frames of their own
  /// Limit of these frames; memory that several replies share counts once. The newest is kept whatever its size.
  static constexpr std::size_t most_tail_bytes = std::size_t{1} << 30;

  explicit reply_cache(net::port& p, std::size_t tail_bytes = most_tail_bytes) noexcept
      : port_(p), most_tail_bytes_(tail_bytes) {}

  /// Whether to handle this request. If not, it is a duplicate, whose reply is sent to `from`, or it was refused.
  [[nodiscard]] bool accepts(const net::request_header& h, const net::peer& from);
  void send(const net::peer& to, const net::outgoing& message) override;
  [[nodiscard]] std::size_t size() const noexcept { return channels_.size(); }
  [[nodiscard]] std::size_t tail_bytes() const noexcept { return tail_bytes_; }

 private:
  struct last_request {
    net::peer over;  // the connection on which it came first, which its completion knows
    std::uint64_t number = 0;
    bool answered = false;
    std::vector<std::byte> answer;
    shared_buffer tail;
    std::uint64_t tail_number = 0;  // in tails_; 0: there is none
    bool lacks_tail = false;        // it was dropped
  };

  void make_room();
  void keep_tail(const stream_sender& of, last_request& last, const shared_buffer& tail);
  void release_tail(const last_request& last) noexcept;

  net::port& port_;
  std::size_t most_tail_bytes_;
  sender_table<last_request> channels_;
  std::size_t bytes_ = 0;  // of the answers
  std::map<net::peer, stream_sender> sender_at_;
  std::map<std::uint64_t, stream_sender> tails_;      // the oldest first
  std::map<const std::byte*, std::size_t> users_of_;  // of the memory of tails: how many replies share it
  std::uint64_t last_tail_ = 0;
  std::size_t tail_bytes_ = 0;
};

}  // namespace paracel::srv
