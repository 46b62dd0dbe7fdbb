// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "server/replication/chain_context.hpp"
#include "server/replication/replication_links.hpp"
#include "server/request/byte_budget.hpp"
#include "server/request/completion.hpp"
#include "server/request/sender_connections.hpp"

namespace paracel::srv {

/// Whether requests of an epoch are served now: they wait for a membership that is not known here yet, for replicas
/// that are incomplete, and for other servers that may still serve by an older membership.
///
/// Thread-safety: as its chain. Lifetime: context and links must outlive it.
class epoch_admission {
 public:
  struct parked {
    net::request_header header;
    std::vector<std::byte> body;
    shared_buffer tail;
    completion done;
    held_bytes held;
  };

  epoch_admission(const chain_context& of, replication_links& links) noexcept : context_(of), links_(links) {}

  enum class verdict : std::uint8_t {
    serve,
    park,
    refuse_stale,    ///< of an older epoch
    refuse_no_peer,  ///< of a server that is not one of this epoch
    replicate,       ///< for the replica
    confirm,         ///< an older membership is no longer served here
  };
  /// `is_synced`: all replicas of this epoch are complete.
  [[nodiscard]] verdict judge(const net::request_header& h, bool is_synced) const;

  /// Returns: false when there is no room; the arguments are then unchanged.
  [[nodiscard]] bool park(const net::request_view& request, shared_buffer& tail, completion& done);
  [[nodiscard]] bool has_parked() const noexcept { return !parked_.empty(); }
  /// Those that waited, in order of arrival.
  [[nodiscard]] std::vector<parked> take_parked() { return std::exchange(parked_, {}); }
  /// Calls refuse(completion&) for what is parked of the stream that this request restarts, and drops it.
  template <class F>
  void drop_parked_of(const net::request_header& first, const F& refuse) {
    std::erase_if(parked_, [&](parked& p) {
      if (!sender_connections::are_of_one(p.header, first)) return false;
      refuse(p.done);
      return true;
    });
  }

  /// A new epoch. Asks the servers of `before` whether they have stopped serving by it, if they may have not.
  void begin_epoch(const replica_view* before);
  /// Whether no other server may still serve, by an earlier membership, what is served here now.
  [[nodiscard]] bool serves() const noexcept { return questions_.empty(); }
  [[nodiscard]] bool awaits(std::uint64_t number) const { return questions_.contains(number); }
  /// A reply to one that it awaits.
  void answered(std::uint64_t number) { questions_.erase(number); }
  /// Asks again what is unanswered from there.
  void renew(const chain_hop& to);
  void add_waits(replication_links::oldest_waits& out) const;

 private:
  struct question {
    chain_hop to;
    chain_context::time_point at;
  };

  [[nodiscard]] bool is_of_peer(const net::request_header& h) const;
  [[nodiscard]] bool needs_handover(const replica_view* before) const;
  void request_handover();
  void ask(const chain_hop& to);

  const chain_context& context_;
  replication_links& links_;
  std::vector<parked> parked_;
  std::map<std::uint64_t, question> questions_;  // unanswered, by number
};

}  // namespace paracel::srv
