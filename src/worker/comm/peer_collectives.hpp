// SPDX-License-Identifier: BSD-3-Clause
//
// Collectives among the ranks of a communicator, so that local processes, MPI and groups share one implementation: in
// shared memory if all ranks run on one host, otherwise built on messages. A rank's first message to another in an
// operation contains its call, alone or with others; the receiver compares it with its own (format: peer_call.hpp).
//
//   short vectors   every rank gets every call with its payload (dissemination: in step s it sends all calls that it
//                   has so far to the rank 2^s before it; few ranks send directly), and folds them in rank order
//   long vectors    reduce-scatter: each owner gets the others' pieces of its range directly and folds them in rank
//                   order; then all-gather: it sends its range to all. Piece k + 2 is sent once all pieces k have been
//                   received, so a rank buffers at most 4 pieces from each peer and has 4 of its own in flight to it
//
//   exchanges       where the backend supports them, they move long vectors without copies, after a step in which all
//                   ranks have compared their calls. Not with a program's fold: it may fail midway
//
// A job that survives worker deaths (session::survives_deaths) does not keep workers' messages: there the operations
// use logged_collectives. Where workers are replaced, messages of a queue's steps go through that log, too.
//
// Where all ranks run on one host, the operations use shared memory instead (memory_collectives); the first one detects
// this.
//
// A rank that fails, by itself or because calls differ, sends its failure to all and waits for one from each. A rank
// that receives one does the same, so all ranks see all causes and throw that of the lowest rank.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <paracel/collectives.hpp>

#include "worker/comm/comm_backend.hpp"
#include "worker/comm/peer_call.hpp"
#include "worker/comm/rank_memory.hpp"

namespace paracel {

/// Thread-safety: owned by the thread that runs the algorithm.
class peer_collectives {
 public:
  using patience = comm_backend::patience;
  using fold_rule = collectives::fold_rule;

  /// An operation uses at most two of these in addition to its vectors: one for what it has received, one for what it
  /// has sent and the receivers have not taken yet.
  static constexpr std::size_t chunk_bytes = std::size_t{4} << 20U;

  /// Vectors go through the log in blocks of at most this size.
  static constexpr std::size_t logged_block_bytes = std::size_t{8} << 20U;

  /// The tag of Comm's operations, so that they never match messages of `collectives` (0) or of work stealing
  /// (stealing_messages.hpp).
  static constexpr int own_tag = 2;

  /// `log`: what carries the operations out; null: they use messages and shared memory. `tag`: of the messages; those
  /// with another tag are not received.
  peer_collectives(comm_backend& over, patience limit, logged_collectives* log, int tag = 0)
      : over_(over), limit_(limit), log_(log), tag_(tag) {}

  [[nodiscard]] std::size_t rank() const { return over_.rank(); }
  [[nodiscard]] std::size_t size() const { return over_.size(); }

  void all_reduce(const fold_rule& how, std::span<std::byte> values, std::string_view name);
  void reduce(const fold_rule& how, std::span<std::byte> values, std::size_t root, std::string_view name);
  void reduce_scatter(const fold_rule& how, std::span<std::byte> values, std::string_view name);
  /// `place(bytes of each rank)`: where to put each rank's bytes.
  using places = std::vector<std::span<std::byte>>;
  void all_gather(value_tag element, std::span<const std::byte> mine, std::string_view name,
                  const std::function<places(const std::vector<std::size_t>&)>& place);
  void broadcast(value_tag element, std::span<const std::byte> mine, std::size_t root, std::string_view name,
                 const std::function<std::span<std::byte>(std::size_t)>& place);
  void all_to_all(value_tag element, const std::vector<std::span<const std::byte>>& blocks, std::string_view name,
                  const std::function<std::span<std::byte>(std::size_t, std::size_t)>& place);
  /// Returns: whether a rank has set `flag`, if the barrier went over messages.
  bool barrier(std::string_view name, bool flag = false);

  void keep_messages() { keeps_ = log_ != nullptr && log_->keeps_messages(); }
  void send_value(std::size_t to, const value_view& v);
  [[nodiscard]] byte_vector receive_value(std::size_t from);

  [[noreturn]] void fail(const std::string& what, int status);
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept { return waited_; }

  static void apply(const fold_rule& how, std::span<std::byte> into, std::span<const std::byte> from);
  static void copy_to(std::span<std::byte> to, std::span<const std::byte> from);

  /// The length in bytes from which reduce-scatter and all-gather are used.
  [[nodiscard]] static std::size_t long_bytes(std::size_t ranks) noexcept;

 private:
  using failure = peer_failure;
  using peer_list = std::vector<std::pair<std::size_t, std::size_t>>;  // rank, number of pieces
  using blocks_out = std::vector<std::span<const std::byte>>;          // by rank; the own one is not used
  using blocks_in = std::vector<std::span<std::byte>>;                 // likewise
  using next_piece = std::function<std::span<const std::byte>(std::size_t k, std::size_t to)>;

  /// Returns: whether the operation was done in shared memory.
  template <class Operation>
  bool in_memory(const peer_call& c, const Operation& operation);
  void share_memory(const peer_call& c, shared_memory& with);
  /// What is known of the shared memory; null if these operations use none.
  [[nodiscard]] shared_memory* shared_state();
  /// The shared memory once it has been detected; null if there is none.
  [[nodiscard]] rank_memory* memory();
  [[nodiscard]] byte_vector receive_kept(std::size_t from);
  [[nodiscard]] byte_vector receive_beside(rank_memory& m, std::size_t from);
  void send(std::size_t to, byte_vector bytes);
  [[nodiscard]] std::optional<byte_vector> receive_within(std::size_t from, patience limit);
  [[nodiscard]] byte_vector receive(const peer_call& c, std::size_t from, bool first);
  [[nodiscard]] byte_vector receive_call(const peer_call& c, std::size_t from);
  [[nodiscard]] byte_vector receive_piece(const peer_call& c, std::size_t from, std::size_t number);
  void compare(const peer_call& mine, std::size_t from, std::span<const std::byte> theirs);
  [[nodiscard]] std::vector<byte_vector> gather_calls(const peer_call& c, std::span<const std::byte> payload);
  [[nodiscard]] std::vector<byte_vector> gather_directly(const peer_call& c, std::span<const std::byte> payload);
  [[nodiscard]] std::vector<byte_vector> gather_logged(std::span<const std::byte> mine);
  void fold_calls(const fold_rule& how, std::vector<byte_vector>& calls, std::span<std::byte> into);
  void reduce_logged(const fold_rule& how, std::span<std::byte> values);

  [[nodiscard]] std::uint32_t checked_root(std::size_t root) const;
  [[nodiscard]] peer_list others(std::size_t steps) const;
  [[nodiscard]] peer_list around(std::size_t root, std::size_t steps) const;
  [[nodiscard]] std::size_t steps_of(std::size_t bytes) const;
  [[nodiscard]] std::size_t steps_of_ranges(std::size_t length, std::size_t width) const;
  [[nodiscard]] std::span<std::byte> piece_of(std::span<std::byte> values, std::size_t width, std::size_t owner,
                                              std::size_t steps, std::size_t k) const;
  [[nodiscard]] std::span<std::byte> range_of(std::span<std::byte> values, std::size_t width, std::size_t owner) const;
  void in_steps(const peer_call& c, std::size_t first_step, const peer_list& peers, const next_piece& piece,
                const std::function<void(std::size_t)>& take_all);
  void scatter_folded(const peer_call& c, const fold_rule& how, std::span<std::byte> values, std::size_t steps);
  [[nodiscard]] comm_exchanges* exchanges() const;
  [[nodiscard]] comm_exchanges* exchanges(const fold_rule& how) const;
  void reduce_ranges(const peer_call& c, const fold_rule& how, std::span<std::byte> values, std::size_t steps);
  void finish_exchange(comm_exchanges& over, const peer_call& c);
  void exchange_folded(comm_exchanges& over, const peer_call& c, const fold_rule& how, std::span<std::byte> values,
                       std::size_t steps);
  void exchange_blocks(comm_exchanges& over, const peer_call& c, const blocks_out& out, const blocks_in& in);
  void exchange_ranges(comm_exchanges& over, const peer_call& c, std::span<std::byte> values, std::size_t width,
                       std::optional<std::size_t> has_all = {});
  void exchange_broadcast(comm_exchanges& over, const peer_call& c, std::span<std::byte> values, std::size_t width);
  void gather_ranges(const peer_call& c, std::span<std::byte> values, std::size_t width, std::size_t steps,
                     std::size_t first_step, std::optional<std::size_t> has_all = {});
  void gather_at_root(const peer_call& c, std::span<std::byte> values, std::size_t width, std::size_t steps,
                      std::size_t first_step);

  [[noreturn]] void fail_together(failure mine, std::optional<std::size_t> heard = {});
  [[noreturn]] void raise(const failure& f);

  comm_backend& over_;
  patience limit_;
  logged_collectives* log_;
  int tag_;
  bool keeps_ = false;  // messages of the program
  bool failed_ = false;
  std::chrono::nanoseconds waited_{};
};

}  // namespace paracel
