// SPDX-License-Identifier: BSD-3-Clause
//
// The scheduler's side of lines that may break (src/net/question_line.hpp): what comes again is taken once, and is answered
// where its sender can be reached now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "core/blob.hpp"
#include "net/protocol.hpp"
#include "net/transport.hpp"
#include "server/completion.hpp"

namespace paracel::srv {

/// Replies through a port. Of each line the last answer is kept until its next request, so what a collective has brought a
/// rank is held that long.
///
/// Thread-safety: owned by the port's thread. Cost: one lookup in a map of the lines a request, and one a reply.
class asked_again final : public reply_sink {
 public:
  explicit asked_again(net::port& p) noexcept : port_(p) {}

  /// Whether this request is to be handled. If not it was taken before, and its answer goes to `from`, or it was refused.
  [[nodiscard]] bool takes(const net::request_header& h, const net::peer& from);
  void send(const net::peer& to, const net::outgoing& message) override;

 private:
  struct line {
    net::peer at;                      // where its sender is
    std::vector<net::peer> peers;      // that it has been since its last request
    std::uint64_t last = 0;            // number of that request
    bool answered = false;
    std::vector<std::byte> answer;
    blob tail;
  };

  net::port& port_;
  std::map<std::uint64_t, line> lines_;           // by client
  std::map<net::peer, std::uint64_t> line_of_;
};

}  // namespace paracel::srv
