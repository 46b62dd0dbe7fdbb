// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "net/protocol.hpp"
#include "server/replication/chain_context.hpp"
#include "server/replication/replication_links.hpp"
#include "server/request/byte_budget.hpp"
#include "server/request/completion.hpp"

namespace paracel::srv {

struct replication_entry;

/// The replicas that this thread keeps for other heads: applies what its predecessors in the chains send, and passes it
/// on. Nothing is changed before a whole message is known to be well-formed and from our predecessor in the chains of
/// its partitions.
///
/// Thread-safety: as its chain. Lifetime: context, links and sink must outlive it.
class replica {
 public:
  /// `at_once`: for replies that wait for nothing.
  replica(chain_context& of, replication_links& links, reply_sink& at_once) noexcept
      : context_(of), links_(links), at_once_(at_once) {}

  /// A `replicate` request.
  void replicate(const net::request_view& request, completion done);
  /// A new epoch: drops the replicas that are not ours any more.
  void begin_epoch();

  [[nodiscard]] bool awaits(std::uint64_t number) const { return forwarded_.contains(number); }
  /// A reply to one that it awaits: it is passed on, with the partitions that are out of step here.
  void answered(std::uint64_t number, const std::vector<std::uint16_t>& lacking);
  /// A connection further down the chain has broken. The head of this message will ask again.
  void ask_after(std::uint64_t number);
  /// The same for everything that is unanswered from there.
  void renew(const chain_hop& to);
  void add_waits(replication_links::oldest_waits& out) const;

  /// Forgets the pieces from a sender that starts again.
  void forget_pieces(const net::request_header& first) { pieces_.erase({first.client, first.rank}); }
  /// Answers what waits for the rest of the chain.
  void refuse_forwarded(net::status why, std::string_view text);

 private:
  struct forwarded {
    completion done;
    std::vector<std::uint16_t> lacking;
    chain_hop to;
    chain_context::time_point at;
    std::uint64_t traced_since;  ///< 0: it is not traced
  };
  /// The state of a message that arrives in pieces.
  struct joined {
    std::vector<std::byte> bytes;
    std::uint32_t left = 0;  ///< outstanding pieces
    held_bytes held;
  };
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
  enum class piece : std::uint8_t { last, more, unexpected };

  piece join_pieces(const net::request_view& request, std::vector<std::byte>& whole);
  [[nodiscard]] bool follows(std::uint16_t partition, const server_identity& sender) const;
  bool apply(const replication_entry& e);
  void apply_records(std::uint16_t partition, std::span<const std::byte> records);
  void drop(std::uint16_t partition);
  static void answer(completion& done, const std::vector<std::uint16_t>& lacking);

  chain_context& context_;
  replication_links& links_;
  reply_sink& at_once_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, joined> pieces_;  // pieces received, by client and rank
  std::map<std::uint16_t, partial> partial_;                          // by partition
  std::map<std::uint64_t, forwarded> forwarded_;                      // by number
  chain_context::time_point next_log_{};                              // of a refusal
};

}  // namespace paracel::srv
