// SPDX-License-Identifier: BSD-3-Clause
//
// The replicas of a thread's partitions on other servers: of a shard's, or of the clock in its reserved partition. A
// partition's servers are its replication chain, in order of succession. The first one, its head, serves it; what a
// batch of requests has changed there is sent to all others as records, and no reply is sent before everything that the
// thread had sent by then has been acknowledged.
//
//                    --replicate--> second
//     client --> head --replicate--> third      each answers the head
//
// From the head to each, not from one to the next: a batch is one message to each server with replicas, whatever
// the chains of its partitions, and waits for one round trip.
//
//     replicate   u32 thread of the receiver | entries
//     thread      number of a shard, or 2^32 - 1 for the clock
//     entry       u16 partition | u16 what | u32 after | u64 bytes | u64 previous | u64 index | records
//     what        0 changes: apply if the replica is at `previous`; 1 the whole state: replace it unless the replica
//                 is at `index`; 2 nothing: is the replica at `index`?
//                 A whole state is split at record ends: after 1 comes 3, more of it, as often as `after` says, and
//                 the replica is at `index` with the last. So its length is unlimited. Until then the previous version
//                 is kept, if there is one. A body with a single record that exceeds the message limit is sent in
//                 pieces; the header's count says how many follow this one. All but the last are answered at once.
//     reply       the partitions whose replicas are out of step: count * u16
//     handover    empty; answered when an older membership is no longer served here
//
// Both name their sender, by incarnation and slot, and their receiver (verb_rules.hpp, `link`): an address may
// belong to another process by now. A replica accepts what comes from the head of the partition, a sender the replies
// of the server that it asked; all else is rejected or ignored, and changes nothing.
//
// A replica is at an index: (epoch in which its head began to write) * 2^32 + changes since, initially 0. Two replicas
// at one index are equal. A replica that reports another index is sent the whole partition, also when it is ahead: it
// may have received a last change of the previous head that others have not, and that no client was answered.
//
// A new epoch restarts everything: what was not answered is rejected (clients retry, and what was applied is
// remembered), the head of each partition asks its replicas for their indices, and sends whole partitions to those that
// differ; a partition that is in use goes first. When all are complete the epoch is `synced`.
//
// A connection between two servers may break while both live, and messages in flight are lost. The receiver rejects
// what comes over a new connection (server/request/sender_connections.hpp), the sender asks after a second without a
// reply; then the connection is renewed and the replicas there are asked for their indices, as in a new epoch
// (replication_links.hpp).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "core/shared_buffer.hpp"
#include "net/clock_source.hpp"
#include "net/protocol.hpp"
#include "net/transport.hpp"
#include "server/replication/chain_context.hpp"
#include "server/replication/commit_queue.hpp"
#include "server/replication/epoch_admission.hpp"
#include "server/replication/replica.hpp"
#include "server/replication/replication_head.hpp"
#include "server/replication/replication_links.hpp"
#include "server/request/completion.hpp"
#include "server/request/port_sink.hpp"
#include "server/request/sender_connections.hpp"

namespace paracel::srv {

/// The layer around the store of a thread: admits requests by epoch, and holds their replies until the replicas have
/// what they reflect. Its parts: the head of some partitions, the replica of others, the links to other servers.
///
/// Thread-safety: owned by the shard thread. No socket, no thread, no clock of its own: time is an argument,
/// messages go through the port. Lifetime: store, budgets and port must outlive it.
class replication_chain final : public reply_sink {
 public:
  /// The reply to a sender that is not a server of the membership, or means a server other than this one.
  static constexpr std::string_view no_peer = "it does not come from a server of this epoch, or is for another one";
  using time_point = net::clock_source::time_point;
  using serve_function = std::function<void(const net::request_view&, shared_buffer, completion)>;

  /// `budgets`: of what is held here for others; must outlive it.
  replication_chain(const replication_chain_options& options, server_budgets& budgets, replicated_store& of,
                    net::port& port, serve_function serve);

  /// A newer membership; the shard uses it from now on.
  void follow(std::shared_ptr<const replica_view> view);
  /// It has become known that partitions have no replicas: early requests are served.
  void run_unreplicated(std::uint32_t epoch);
  [[nodiscard]] bool active() const noexcept { return context_.view != nullptr; }
  /// Whether we are the head of this partition; false before there is a membership with replicas.
  [[nodiscard]] std::optional<bool> heads(std::uint16_t partition) const noexcept {
    return context_.view == nullptr ? std::nullopt : std::optional(context_.view->owned.mine[partition]);
  }
  /// Whether no earlier request to this thread can be missing (sender_connections::accepts). Waiting requests of a
  /// sender that starts again are refused: they will be resent, in order.
  [[nodiscard]] bool accepts(const net::request_header& h, const net::peer& from) {
    if (!streams_.accepts(h, from)) return false;
    if ((h.flags & net::flag_first) != 0) forget_waiting(h);
    return true;
  }
  [[nodiscard]] bool has_parked() const noexcept { return admission_.has_parked(); }
  [[nodiscard]] std::uint32_t epoch() const noexcept { return context_.epoch; }

  /// A traced request is being served: so are the messages to the replicas, and the wait for them, of its batch.
  void trace_batch() noexcept { context_.traced = true; }
  /// Serves a request, or parks or rejects it. `done` answers through this object.
  void handle(const net::request_view& request, shared_buffer tail, completion done);
  /// The reply to a message sent from here.
  void take_reply(const net::incoming& in);
  /// The end of a batch: sends the changes, and the replies that need not wait any longer. None is sent at or after
  /// `lease_end`: the clock is read after all their contents, so that a process that was suspended in between notices
  /// it.
  void end_batch(const net::clock_source& time, time_point lease_end);
  /// Whether something waits, for a reply or for the lease.
  [[nodiscard]] bool waits() const noexcept { return !held_.empty() || !head_.is_idle(); }
  /// The epoch of which all replicas are complete; 0: none yet.
  [[nodiscard]] std::uint32_t synced() const noexcept { return synced_; }
  /// The state of the thread as a number: all replicas have it once `is_replicated`. Valid within one epoch.
  [[nodiscard]] std::uint64_t state_number() const noexcept { return head_.last_sent(); }
  [[nodiscard]] bool is_replicated(std::uint64_t state) const noexcept { return state < head_.next_open(); }
  /// Whether no other server may still serve, by an earlier membership, what is served here now.
  [[nodiscard]] bool serves() const noexcept { return admission_.serves(); }
  /// The thread exits: what is parked is answered.
  void close();

  /// A reply to a request served here: it waits for the replicas.
  void send(const net::peer& to, const net::outgoing& message) override;

 private:
  void retry_parked();
  void refuse(completion& done, net::status why, std::string_view text);
  void refuse_for_lack_of_room(const net::request_header& h, completion& done, std::string_view why);
  void confirm(completion& done);
  void forget_waiting(const net::request_header& first);
  void admit(const net::request_view& request, shared_buffer tail, completion done);
  void serve(const net::request_view& request, shared_buffer tail, completion done);
  void flush();
  void check_synced();
  void check_links();
  void renew(chain_hop to);
  void trace_hold();
  void trace_release();
  void replicate_traced(const net::request_view& request, completion done);

  /// Replies to traced requests that wait for the replicas.
  struct traced_hold {
    std::uint64_t need;   // the last message that they wait for
    std::uint64_t since;  // trace::now
  };

  chain_context context_;
  net::port& port_;
  port_sink at_once_;  // for replies that need not wait
  serve_function serve_;
  replication_links links_;
  replication_head head_;
  replica replica_;
  commit_queue held_;
  epoch_admission admission_;  // after held_: what is still parked at the end answers through it
  std::uint32_t synced_ = 0;
  sender_connections streams_;  // of the senders to this thread
  std::deque<traced_hold> traced_;
};

}  // namespace paracel::srv
