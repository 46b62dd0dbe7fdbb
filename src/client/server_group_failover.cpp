// SPDX-License-Identifier: BSD-3-Clause
//
// How a client handles broken connections and changes of the servers: see the head of server_group.hpp.
//
//   reply stale_epoch, or the heartbeat thread --> latest_membership --> apply_membership: new ring, new channels
//                                                                     --> functions and tables to new servers
//                                                                     --> everything unanswered is retried, in order
//   reply connection_reset, or silence even to a ping, while another connection is answered
//                                                  --> renew: a new connection
//                                                  --> what is unanswered there is retried, in order
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "client/server_group.hpp"

namespace paracel {

void server_group::follow_newest() {
  if (shared_.in_handler || pins_ != 0) return;
  if (is_behind()) apply_membership(*board_->newest());
  if (broken_) {
    broken_ = false;
    for (std::uint32_t channel = 0; channel < routes_.channels(); ++channel) {
      const auto& to = routes_.at(channel);
      if (to.client->is_broken(to.thread)) renew(channel);
    }
  }
  if (shared_.left_behind) replay_.resend();
}

void server_group::apply_membership(const membership& fresh) {
  const auto heads = [](const server_entry& s) { return may_head(s.state); };
  if (std::ranges::none_of(fresh.servers, heads)) return;  // the scheduler ends the job
  std::set<int> with_sets;  // connections to shards that may hold requests back until a set is sent again
  for (std::uint32_t channel = 0; channel < routes_.channels(); ++channel) {
    const auto& to = routes_.at(channel);
    if (to.client->has_sets(to.thread)) with_sets.insert(to.client->connection(to.thread));
    to.client->forget_sets(to.thread);
  }
  const auto strangers = routes_.apply(fresh);
  many_.forget_places();
  shared_.window.drop_parked();  // subscribers check the epoch
  shared_.left_behind = true;

  const nonblocking_scope sending(shared_);
  for (const auto server : strangers) {  // before it gets any request that needs them
    replay_.replay_registrations([&](const call& c, std::string_view key, std::span<const std::byte> payload) {
      for (std::uint32_t shard = 0; shard < routes_.client(server).shards(); ++shard) {
        auto h = kvclt::header_of(c);
        send(routes_.channel_of(server, shard), h, key, {}, payload, {}, nullptr);
      }
    });
  }
  subscribe_to_clock();
  for (std::uint32_t channel = 0; channel < routes_.channels(); ++channel) {
    const auto& to = routes_.at(channel);
    const auto connection = to.client->connection(to.thread);
    if (connection < 0 || !with_sets.contains(connection)) continue;
    net::request_header h;
    h.what = net::verb::ping;  // abandons what is held back
    send(channel, h, {}, {}, {}, {}, nullptr);
  }
}

void server_group::subscribe_to_clock() {
  if (!subscribes_) return;
  net::request_header h;
  h.what = net::verb::subscribe;
  send(routes_.clock_channel(), h, {}, {}, {}, {}, nullptr);
}

/// A new connection replaces one that may have lost messages. What is unanswered there will be retried.
void server_group::renew(std::uint32_t channel) {
  const auto& to = routes_.at(channel);
  to.client->renew(to.thread);
  replay_.record_renewed(channel);
  const nonblocking_scope sending(shared_);
  if (channel == routes_.clock_channel()) subscribe_to_clock();
  for (const auto& lost : shared_.window.take_parked_at(channel)) {
    net::reply_header nothing;  // no key has changed; the subscriber asks again
    nothing.what = net::verb::subscribe;
    nothing.clock = lost.clock;
    shared_.run(lost.done, {nothing, {}, {}});
  }
}

/// Nothing has arrived for another `time`. After a while servers that owe a reply are pinged, on every connection.
void server_group::record_silence(std::chrono::nanoseconds time) {
  if (!silence_.add(time)) return;
  std::map<std::uint32_t, std::size_t> checked;  // bytes in flight, by channel
  shared_.window.for_each_open([&](sequence, const request_window::entry& e) {
    request_replay::for_each_owing(e, [&](std::uint32_t channel) { checked[channel] += e.bytes; });
  });
  // What has silenced one connection to a server may have silenced all, and each would cost its own delay.
  const auto owing = checked;
  for (const auto& [channel, bytes] : owing) {
    const auto& to = routes_.at(channel);
    for (std::uint32_t thread = 0; shared_.retains && thread < to.client->threads(); ++thread)
      if (to.client->connection(thread) >= 0) checked.try_emplace(channel - to.thread + thread, 0);
  }
  for (const auto& [channel, bytes] : checked) {
    const auto& to = routes_.at(channel);
    if (!to.client->serves()) continue;
    to.client->check_health(to.thread, silence_.waited(), {.heard = silence_.heard(), .in_flight_bytes = bytes});
    if (!to.client->is_broken(to.thread)) continue;
    if (!shared_.retains) give_up_connection(to);
    broken_ = true;  // it is renewed as soon as routing is not pinned
  }
}

/// Time between two checks is silence too, but not time in which this process is suspended or computes.
void server_group::record_silence_while_polling() {
  const auto* time = shared_.options.time;
  const std::chrono::nanoseconds now = (time != nullptr ? time->now() : net::boot_clock::now()).time_since_epoch();
  const auto passed = now - std::exchange(polled_, now);
  record_silence(std::clamp<std::chrono::nanoseconds>(passed, std::chrono::nanoseconds{0}, refresh_interval));
}

/// One number for all shards: a partition that moves between two of them is cleared once.
void server_group::clear_everywhere(const call& c, const handler& each) {
  sequence s = 0;
  {
    const pin_routing here(*this);
    auto h = kvclt::header_of(c);
    s = send(routes_.channel_of(clock_partition), h, {}, {}, {}, {}, [&each](const kv_result& r) {
      if (each) each(r);
    });
    replay_.send_everywhere(shared_.window.at(s));
  }
  wait(s);
}

}  // namespace paracel
