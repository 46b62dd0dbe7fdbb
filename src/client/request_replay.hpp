// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/kvclt.hpp"
#include "client/request_window.hpp"
#include "client/retained_request.hpp"
#include "client/routing_table.hpp"
#include "net/protocol.hpp"

namespace paracel {

/// Sends what is unanswered again, where servers may change: in the order in which it was made, under its old numbers,
/// to the servers that serve its partitions now. A server that has applied a request already answers from what it
/// remembers.
///
/// A request of many keys may have to go to several servers in place of one: it is taken apart, and put together again
/// from the answers.
///
/// Thread-safety: none; owned by the thread of the context. Lifetime: context and table outlive it.
class request_replay {
 public:
  request_replay(client_context& shared, routing_table& routes) : shared_(shared), routes_(routes) {}

  /// What every server has to know before anything else: functions and tables. Other verbs are ignored.
  void record_registration(const kvclt::call& c, std::string_view key, std::span<const std::byte> payload);
  /// `send` gets each registration and is to send it to all shards of a server that has just come.
  void replay_registrations(const std::function<void(const kvclt::call&, std::string_view key,
                                                     std::span<const std::byte> payload)>& send) const;

  /// What was sent to a channel goes again at the next `resend`, its connection having been replaced.
  void record_renewed(std::uint32_t channel);
  /// Sends what waits for it: what was sent in another epoch, or left behind. May run handlers.
  void resend();
  /// Makes the request, which has gone to one shard or to none, one to all shards of all servers: each is asked under
  /// the same number, and the answers become one.
  void send_everywhere(request_window::entry& e);

  /// An answer to a retained request. Parts are put together here, and the last one runs the request's handler.
  /// Returns: whether it is the answer to the whole request, which the caller then completes.
  bool accepts(request_window::entry& e, const net::reply_view& reply, const net::incoming& from);
  /// Adds the channels that owe an answer to the request.
  template <class F>
  static void for_each_owing(const request_window::entry& e, const F& f) {
    if (e.retained == nullptr || e.retained->parts.empty()) return f(e.channel);
    for (const auto& part : e.retained->parts)
      if (!part.answered) f(part.channel);
  }

 private:
  struct registration {
    kvclt::call what;
    std::string key;
    std::vector<std::byte> payload;
  };

  void resend(request_window::sequence s);
  void resend_whole(request_window::entry& e, std::uint32_t channel);
  void resend_split(request_window::entry& e);
  void send_part(retained_request& r, request_part part, net::request_header h, std::span<const std::byte> body);

  client_context& shared_;
  routing_table& routes_;
  std::vector<registration> registrations_;
};

}  // namespace paracel
