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

/// Retries unanswered requests when connections or servers have changed: in their original order, under their old
/// numbers, at the servers that serve their partitions now. A server that has already applied a request answers from
/// its deduplication window.
///
/// A request of many keys may have to go to several servers instead of one: it is split, and the replies are
/// merged.
///
/// Thread-safety: none; owned by the thread of the context. Lifetime: context and table must outlive it.
class request_replay {
 public:
  request_replay(client_context& shared, routing_table& routes) : shared_(shared), routes_(routes) {}

  /// Records what every server must know first: functions and tables. Other verbs are ignored.
  void record_registration(const kvclt::call& c, std::string_view key, std::span<const std::byte> payload);
  /// `send` is called with each registration and is to send it to all shards of a server that has just joined.
  void replay_registrations(const std::function<void(const kvclt::call&, std::string_view key,
                                                     std::span<const std::byte> payload)>& send) const;

  /// What was sent to a channel is retried at the next `resend`, since its connection was replaced.
  void record_renewed(std::uint32_t channel);
  /// Retries pending requests: those sent in another epoch, or retained. May run handlers.
  void resend();
  /// Turns a request that went to one shard or none into one to all shards of all servers: each is asked under
  /// the same number, and the replies are merged.
  void send_everywhere(request_window::entry& e);

  /// A reply to a retained request. Parts are merged here, and the last one runs the request's handler.
  /// Returns: whether it is the reply to the whole request, which the caller then completes.
  bool accepts(request_window::entry& e, const net::reply_view& reply, const net::incoming& from);
  /// f(channel) for each channel that owes a reply to the request.
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
