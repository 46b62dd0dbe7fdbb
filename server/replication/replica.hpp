// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "net/protocol.hpp"
#include "server/replication/chain_context.hpp"
#include "server/request/byte_budget.hpp"
#include "server/request/completion.hpp"

namespace paracel::srv {

struct replication_entry;

/// The replicas that this thread keeps for other heads: applies what these send. Nothing is changed before a whole
/// message is known to be well-formed and from the head of its partitions.
///
/// Thread-safety: as its chain. Lifetime: context and sink must outlive it.
class replica {
 public:
  /// `at_once`: for replies that wait for nothing.
  replica(chain_context& of, reply_sink& at_once) : context_(of), at_once_(at_once), head_of_(of.index.size(), none) {}

  /// A `replicate` request.
  void replicate(const net::request_view& request, completion done);
  /// A new epoch: drops the replicas that are not ours any more.
  void begin_epoch();

  /// Forgets the pieces from a sender that starts again.
  void forget_pieces(const net::request_header& first) { pieces_.erase({first.client, first.rank}); }

 private:
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

  static constexpr std::uint16_t none = 0xffff;

  chain_context& context_;
  reply_sink& at_once_;
  std::vector<std::uint16_t> head_of_;  // by place: the server that sends us its changes, an index of the membership's
  std::map<std::pair<std::uint64_t, std::uint32_t>, joined> pieces_;  // pieces received, by client and rank
  std::map<std::uint16_t, partial> partial_;                          // by partition
  chain_context::time_point next_log_{};                              // of a refusal
};

}  // namespace paracel::srv
