// SPDX-License-Identifier: BSD-3-Clause
//
// The replicas of a thread's partitions on other servers: of a shard's, or of the clock in its reserved partition. The
// head of a partition serves it; what a batch of requests has changed there is sent down the rest of the replication
// chain as records, and no reply is sent before everything that the thread had sent by then has been acknowledged.
//
//     client --> head --replicate--> second --replicate--> tail
//            <--        <--answer--         <--answer--
//
//     replicate   u32 n | n * (u32 slot, u32 thread) the route, the receiver first | entries
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
// belong to another process by now. A replica accepts what comes from its predecessor in the partition's chain, a
// sender the replies of the server that it asked; all else is rejected or ignored, and changes nothing.
//
// A replica is at an index: (epoch in which its head began to write) * 2^32 + changes since, initially 0. Two replicas
// at one index are equal. A replica that reports another index is sent the whole partition.
//
// A new epoch restarts everything: what was not answered is rejected (clients retry, and what was applied is
// remembered), the head of each partition asks the rest of the chain for their indices, and sends whole partitions to
// new members; a partition that is in use goes first. When all are complete the epoch is `synced`.
//
// A connection between two servers may break while both live, and messages in flight are lost. The receiver rejects
// what comes over a new connection (server/request/sender_connections.hpp), the sender asks after a second without a
// reply; then the connection is renewed and the rest of the chain is asked for its index, as in a new epoch
// (replication_links.cpp). The heads before the break get `expired` as the reply to what they had sent through it, and
// ask over the connections that they have.
#pragma once

#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/membership.hpp"
#include "net/clock_source.hpp"
#include "net/protocol.hpp"
#include "net/reliable_channel.hpp"
#include "net/transport.hpp"
#include "server/replication/commit_queue.hpp"
#include "server/request/byte_budget.hpp"
#include "server/request/completion.hpp"
#include "server/request/port_sink.hpp"
#include "server/request/sender_connections.hpp"
#include "server/request/verb_rules.hpp"
#include "server/store/key_store.hpp"
#include "server/store/replicated_store.hpp"

namespace paracel::srv {

struct replication_entry;

/// The servers that may send each other requests.
[[nodiscard]] std::vector<server_identity> identities_in(const membership& members);

/// A membership shared by the threads of a server.
struct replica_view {
  membership members;
  key_router router;
  ownership owned;
  explicit replica_view(membership m, std::uint32_t slot);
  /// Index of this slot in members.servers.
  std::uint32_t self = 0;
};

struct replication_chain_options {
  std::uint64_t job = 0;
  std::uint64_t incarnation = 0;
  std::uint32_t slot = 0;
  /// Which thread of its server this is, and its partitions: those p with p % threads == index. The clock's
  /// thread has one, the reserved clock_partition.
  place at = place::shard;
  std::uint32_t index = 0;
  std::uint32_t threads = 1;
  /// Limit on whole partitions in flight. A reply waits for all of them.
  std::size_t sweep_bytes = std::size_t{1} << 20;
  /// Target size of a message; a single entry may be larger.
  std::size_t message_bytes = std::size_t{4} << 20;
  std::size_t most_body_bytes = std::size_t{1} << 29;  ///< longer bodies are sent in pieces
  std::chrono::milliseconds resend_after = net::late;  ///< if a reply is later, the connection is checked
  std::function<void(const std::string&)> log{};       ///< a line of text, on the chain's thread; may be empty
};

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
  [[nodiscard]] bool active() const noexcept { return view_ != nullptr; }
  /// Whether we are the head of this partition; false before there is a membership with replicas.
  [[nodiscard]] std::optional<bool> heads(std::uint16_t partition) const noexcept {
    return view_ == nullptr ? std::nullopt : std::optional(view_->owned.mine[partition]);
  }
  /// Whether no earlier request to this thread can be missing (sender_connections::accepts). Waiting requests of a
  /// sender that starts again are refused: they will be resent, in order.
  [[nodiscard]] bool accepts(const net::request_header& h, const net::peer& from) {
    if (!streams_.accepts(h, from)) return false;
    if ((h.flags & net::flag_first) != 0) forget_waiting(h);
    return true;
  }
  [[nodiscard]] bool has_parked() const noexcept { return !parked_.empty(); }
  [[nodiscard]] std::uint32_t epoch() const noexcept { return epoch_; }

  /// Serves a request, or parks or rejects it. `done` answers through this object.
  void handle(const net::request_view& request, shared_buffer tail, completion done);
  /// The reply to a message sent from here.
  void take_reply(const net::incoming& in);
  /// The end of a batch: sends the changes, and the replies that need not wait any longer. None is sent at or after
  /// `lease_end`: the clock is read after all their contents, so that a process that was suspended in between notices
  /// it.
  void end_batch(const net::clock_source& time, time_point lease_end);
  /// Whether something waits, for a reply or for the lease.
  [[nodiscard]] bool waits() const noexcept { return !held_.empty() || !pending_.empty() || !installs_.empty(); }
  /// The epoch of which all replicas are complete; 0: none yet.
  [[nodiscard]] std::uint32_t synced() const noexcept { return synced_; }
  /// The state of the thread as a number: all replicas have it once `is_replicated`. Valid within one epoch.
  [[nodiscard]] std::uint64_t state_number() const noexcept { return last_sent_; }
  [[nodiscard]] bool is_replicated(std::uint64_t state) const noexcept { return state < next_open(); }
  /// Whether no other server may still serve, by an earlier membership, what is served here now.
  [[nodiscard]] bool serves() const noexcept { return asked_ == 0; }
  /// The thread exits: what is parked is answered.
  void close();

  /// A reply to a request served here: it waits for the replicas.
  void send(const net::peer& to, const net::outgoing& message) override;

 private:
  /// A thread of a server: one of its shards, or the clock.
  static constexpr std::uint32_t clock_thread = 0xffffffff;
  struct hop {
    std::uint32_t slot;
    std::uint32_t thread;
    friend auto operator<=>(const hop&, const hop&) = default;
  };
  using route = std::vector<hop>;
  struct sent {
    std::size_t open = 1;      ///< outstanding replies: its own, and those of messages sent in its place
    std::uint64_t parent = 0;  ///< that waits for this one
    std::size_t bytes = 0;     ///< if it was sent by `sweep`
    std::uint32_t route = 0;   ///< its number
    bool again = false;        ///< it asks about the fate of others: what replicas lack is what those carried
    time_point at{};
    std::vector<std::uint16_t> probes;
  };
  struct forwarded {
    completion done;
    std::vector<std::uint16_t> lacking;
    hop to;
    time_point at;
  };
  struct asked {
    hop to;
    time_point at;
  };
  struct parked {
    net::request_header header;
    std::vector<std::byte> body;
    shared_buffer tail;
    completion done;
    held_bytes held;
  };
  /// The state of a message that arrives in pieces.
  struct joined {
    std::vector<std::byte> bytes;
    std::uint32_t left = 0;  ///< outstanding pieces
    held_bytes held;
  };
  struct replica_link {
    net::reliable_channel channel;
    std::uint64_t incarnation;             ///< of the server
    replicated_store::definitions told{};  ///< already known to the other side
    time_point heard{};                    ///< when the last reply arrived
  };
  /// Entries for the same route.
  struct bundle {
    std::vector<std::byte> entries;
    std::vector<std::uint16_t> probes;
    bool makes_whole = false;  ///< whole partitions are among them
  };
  void ask_about(bundle& b, std::uint16_t partition) const;
  using bundles = std::map<std::uint32_t, bundle>;  // by number of the route

  void begin_epoch();
  bool needs_handover(const replica_view* before) const;
  void request_handover();
  void park(const net::request_view& request, shared_buffer&& tail, completion&& done);
  void retry_parked();
  void refuse(completion& done, net::status why, std::string_view text);
  void refuse_stale(completion& done);
  void confirm(completion& done);
  [[nodiscard]] static std::vector<std::byte> replicate_body(const route& to, std::span<const std::byte> entries);
  [[nodiscard]] hop hop_to(const server_entry& s, std::uint16_t partition) const noexcept;
  [[nodiscard]] bool is_of_peer(const net::request_header& h) const;
  [[nodiscard]] bool follows(std::uint16_t partition, const server_identity& sender) const;
  void find_restored();
  void replicate(const net::request_view& request, completion done);
  bool apply(const replication_entry& e);
  void apply_to_replica(std::uint16_t partition, std::span<const std::byte> records);
  void empty_copy(std::uint16_t partition);
  void answer(completion& done, const std::vector<std::uint16_t>& lacking);
  void flush();
  void sweep();
  void install(std::uint16_t partition, bundles& into, std::uint64_t parent, std::size_t sweep);
  std::uint64_t dispatch(std::uint32_t route_number, bundle& b, std::uint64_t parent, std::size_t sweep);
  void answered(std::uint64_t number, const std::vector<std::uint16_t>& lacking);
  void close_one(std::uint64_t number);
  replica_link& link_to(const hop& to);
  void give_up_links();
  void replay_registrations(replica_link& to);
  void check_links();
  void renew(hop to);
  void ask_after(std::uint64_t number);
  void ask_again(std::uint32_t route_number);
  bool take_refusal(const hop& from, replica_link& over, const net::reply_header& reply, int connection);
  void forget_waiting(const net::request_header& first);
  enum class piece : std::uint8_t { last, more, unexpected };
  piece join_pieces(const net::request_view& request, std::vector<std::byte>& whole);
  void refuse_for_lack_of_room(const net::request_header& h, completion& done, std::string_view why);
  void admit(const net::request_view& request, shared_buffer tail, completion done);
  std::uint64_t transmit(const hop& to, net::verb what, std::span<const std::byte> body);
  std::uint64_t send_on(replica_link& to, net::verb what, std::string_view key, std::span<const std::byte> payload,
                        std::size_t pieces_after = 0);
  [[nodiscard]] std::uint64_t next_open() const noexcept {
    return pending_.empty() ? next_ + 1 : pending_.begin()->first;
  }
  [[nodiscard]] bool is_whole() const noexcept { return installs_.empty() && next_open() > last_install_; }
  void check_synced();

  static constexpr std::size_t most_kept_state_bytes = std::size_t{16} << 20;

  const replication_chain_options options_;
  server_budgets& budgets_;
  replicated_store& store_;
  net::port& port_;
  port_sink at_once_;  // for replies that need not wait
  serve_function serve_;

  std::shared_ptr<const replica_view> view_;
  std::uint32_t epoch_ = 0;
  std::uint32_t synced_ = 0;
  std::size_t asked_ = 0;                    // servers that may still serve by an older membership
  std::vector<std::uint64_t> index_;         // by partition / threads
  std::vector<std::uint32_t> route_of_;      // likewise: number of the route, 0 where there is none
  std::vector<route> routes_;                // number 0: nowhere
  std::bitset<partition_count> incomplete_;  // headed here, and the rest of the chain is not known to be up to date
  std::deque<std::uint16_t> installs_;       // the rest is known to be out of date
  std::uint64_t last_install_ = 0;           // number of the last message with a question or a whole state
  std::size_t sweeping_bytes_ = 0;

  std::uint64_t next_ = 0;       // number of the last message
  std::uint64_t last_sent_ = 0;  // number of the last one that replies wait for
  std::map<std::uint64_t, sent> pending_;
  std::map<std::uint64_t, forwarded> forwarded_;
  std::map<std::uint64_t, asked> questions_;  // of request_handover
  std::map<hop, replica_link> links_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, joined> pieces_;  // pieces received, by client and rank
  /// A whole state that has not arrived completely. If the replica is at an index the parts are kept aside: it may be
  /// the only one if the sender dies. Otherwise, or when there is no room aside, they replace the replica, which is
  /// then torn.
  struct partial {
    std::uint64_t index = 0;
    std::uint32_t after = 0;
    bool is_aside = false;
    std::vector<std::byte> aside{};
    held_bytes held{};
  };
  std::map<std::uint16_t, partial> partial_;  // by partition
  commit_queue held_;
  std::vector<parked> parked_;
  sender_connections streams_;    // of the senders to this thread
  time_point now_{};              // at the last batch
  time_point next_look_{};        // of the connection check
  time_point next_log_{};         // of a refusal
  std::vector<std::byte> state_;  // capacity is reused
};

}  // namespace paracel::srv
