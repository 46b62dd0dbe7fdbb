// SPDX-License-Identifier: BSD-3-Clause
//
// Messages from rank to rank in jobs whose workers are replaced. They are kept until the receiver has committed the
// iteration in which it received them: its replacement, which repeats that iteration, gets them again, and what the
// replacement of a sender sends again is ignored.
//
//   number   (clock, count): iterations that the caller has committed, and messages to, or from, the other rank since
//            then. A replacement gives its messages the numbers that they had
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <paracel/detail/value.hpp>

#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "server/request/completion.hpp"

namespace paracel::srv {

/// Answers with bytes of any length.
void answer_with(completion& done, const shared_buffer& bytes, net::reply_header fields = {});

/// Thread-safety: owned by the thread of its completions.
class message_log {
 public:
  struct number {
    std::uint32_t clock = 0;
    std::uint64_t count = 0;
    friend auto operator<=>(const number&, const number&) = default;
  };
  using ranks = std::pair<std::uint32_t, std::uint32_t>;  // sender, receiver

  /// The next message of a sender. One with a number that it has used before is ignored.
  void send(const ranks& of, const number& n, shared_buffer bytes);
  /// Answers with the message that this receive got before, or the next one. Returns: whether it did; else `done`
  /// waits.
  bool receive(const ranks& of, const number& n, completion done);
  /// Answers receives that wait for this sender, which waits in a collective, with what it has contributed.
  void calls(std::uint32_t sender, const shared_buffer& contribution);
  /// Fails receives that wait for this sender: it sends nothing any more.
  void fail(std::uint32_t sender, std::string_view why);
  void fail_all(net::status why, std::string_view text);
  /// Another process acts as this rank from now on.
  void replace(std::uint32_t rank);

  /// Size of the messages that are kept.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct message {
    shared_buffer bytes;
    std::optional<number> taken;  // by which receive
  };
  struct stream {
    std::optional<number> last;  // sent
    std::deque<message> messages;
    number wanted;
    completion waiting;
  };

  std::map<ranks, stream> streams_;
  std::size_t bytes_ = 0;
};

}  // namespace paracel::srv
