// SPDX-License-Identifier: BSD-3-Clause
//
// The operations of peer_collectives among ranks of one host, in the steps of rank_memory. Every rank takes part in
// every step and reads the heads of all, so all find the same difference or failure in the same step, without a further
// message. An operation's first step already carries the calls of all ranks.
//
//   short vectors   1 step: a rank's block is its vector
//   all_reduce      in step k every rank writes piece k of each owner's range, as in reduce-scatter, and its own folded
//                   piece k - 1: one step more than there are pieces
//   broadcast       all ranks read root's block: each byte is written once, whatever the number of ranks
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <paracel/collectives.hpp>

#include "worker/comm/comm_backend.hpp"
#include "worker/comm/peer_call.hpp"
#include "worker/comm/rank_memory.hpp"

namespace paracel {

/// For one operation. Throws: peer_failure, the same at every rank; job_error.
class memory_collectives {
 public:
  using fold_rule = collectives::fold_rule;

  /// `waited`: the time until the others have begun the operation is added to it. `among_messages`: a value that was
  /// sent before and has not been received counts as a difference between the calls.
  memory_collectives(rank_memory& m, comm_backend& over, comm_backend::patience limit, std::chrono::nanoseconds& waited,
                     bool among_messages = true)
      : m_(m), over_(over), limit_(limit), waited_(waited), among_messages_(among_messages) {}

  void all_reduce(const peer_call& c, const fold_rule& how, std::span<std::byte> values);
  void reduce(const peer_call& c, const fold_rule& how, std::span<std::byte> values);
  void reduce_scatter(const peer_call& c, const fold_rule& how, std::span<std::byte> values);
  void all_gather(const peer_call& c, std::span<const std::byte> mine,
                  const std::function<std::vector<std::span<std::byte>>(const std::vector<std::size_t>&)>& place);
  void broadcast(const peer_call& c, std::span<const std::byte> mine,
                 const std::function<std::span<std::byte>(std::size_t)>& place);
  void all_to_all(const peer_call& c, const std::vector<std::span<const std::byte>>& blocks,
                  const std::function<std::span<std::byte>(std::size_t, std::size_t)>& place);
  void barrier(const peer_call& c);

  /// `heard`: a rank that need not be waited for.
  [[noreturn]] void fail(peer_failure mine, std::optional<std::size_t> heard = {});

 private:
  [[nodiscard]] std::span<std::byte> begin(const peer_call& c);
  void meet(const peer_call& c, std::size_t number);
  void compare(const peer_call& c);
  void await(const peer_call& c, bool or_failed);
  [[nodiscard]] std::size_t missing(std::uint64_t step, std::optional<std::size_t> but = {}) const;
  [[nodiscard]] bool await_briefly(std::uint64_t step, std::optional<std::size_t> but = {});
  [[nodiscard]] bool anybody_failed(std::uint64_t step) const;
  [[nodiscard]] std::span<std::byte> theirs(std::size_t rank) const { return m_.block(rank, m_.step()); }

  void fold_short(const fold_rule& how, std::span<std::byte> values);
  enum class folded { by_owner, to_all, to_root };
  void fold_pieces(const peer_call& c, const fold_rule& how, std::span<std::byte> values, folded where);
  [[nodiscard]] std::span<std::byte> slot(std::span<std::byte> block, std::size_t rank) const;

  rank_memory& m_;
  comm_backend& over_;
  comm_backend::patience limit_;
  std::chrono::nanoseconds& waited_;
  bool among_messages_;
};

}  // namespace paracel
