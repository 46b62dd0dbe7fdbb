// SPDX-License-Identifier: BSD-3-Clause
//
// Memory that the ranks of a communicator share when all of them run on one host. It has no name, so nothing is left
// behind however they end: rank 0 creates a memfd, which the others open through its /proc/PID/fd.
//
//     front       how often all have met; how many ranks sleep until they do
//     per rank
//       state     the last step that it has published, and the last ones in which it has failed
//       2 heads   its call, and how many values it had sent to each rank before
//       2 notes   the text of a failure
//       2 blocks  data
//
// The ranks work in steps, numbered from 1, which alternate between the two heads, notes and blocks. In a step a rank
// writes its own, publishes the number, waits until all others have, and reads theirs. It writes for step s only when
// all have published s - 1, and a rank that has published s - 1 no longer reads anything of s - 2. So no rank, however
// late, finds data of another step; what a rank was writing when it died is never published; and nothing is reset.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/comm/peer_call.hpp"

namespace paracel {

/// What each rank tells the others before they share memory.
struct memory_offer {
  std::uint64_t host = 0;  ///< differs between hosts, users and namespaces; 0: this rank shares no memory
  // Where rank 0's file is:
  std::int64_t process = 0;
  std::int64_t descriptor = -1;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;

  /// Without a file. Returns: one with host 0 where /proc lacks the information.
  static memory_offer of_this_process();
};

/// Thread-safety: an object represents one rank and is owned by the thread that runs its algorithm.
class rank_memory {
 public:
  static constexpr std::size_t most_ranks = 64;
  static constexpr std::size_t block_bytes = std::size_t{512} << 10U;

  class file;  ///< rank 0's; closed when all have opened it
  /// Called by rank 0. Adds the file to the offer. Returns: null when the system cannot create one.
  static std::shared_ptr<file> make(std::size_t ranks, memory_offer& offer);
  /// Returns: null when it cannot be opened or mapped.
  static std::unique_ptr<rank_memory> open(const memory_offer& of_rank_0, std::size_t rank, std::size_t ranks);
  /// In `zeros`: bytes_for(ranks) zero bytes, aligned to 64 bytes.
  rank_memory(std::shared_ptr<std::byte> zeros, std::size_t rank, std::size_t ranks);
  [[nodiscard]] static std::size_t bytes_for(std::size_t ranks);

  [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::size_t ranks() const noexcept { return ranks_; }
  /// The last step that this rank has published.
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] std::span<std::byte> block(std::size_t rank, std::uint64_t step) const;

  // ---- of this rank. All others must have published step() first.
  void publish(const peer_header& f, std::string_view name);
  /// Ends the next step in a failure. The others need not have published step(), only the step after `last_note()`.
  void publish(const peer_failure& f);
  [[nodiscard]] std::uint64_t last_note() const;
  void count_sent(std::size_t to, std::uint32_t values = 1) { sent_[to] += values; }
  void count_received(std::size_t from, std::uint32_t values = 1) { received_[from] += values; }

  // ---- of a rank that has published the step
  [[nodiscard]] bool has_published(std::size_t rank, std::uint64_t step) const;
  [[nodiscard]] bool has_failed(std::size_t rank, std::uint64_t step) const;
  /// The failure of a rank that has failed.
  [[nodiscard]] peer_failure failure_of(std::size_t rank, std::uint64_t step) const;
  /// The header of a rank that has not.
  [[nodiscard]] const peer_header& header_of(std::size_t rank, std::uint64_t step) const;
  [[nodiscard]] peer_call call_of(std::size_t rank, std::uint64_t step) const;
  /// Whether all values that it had sent to this rank before have been received.
  [[nodiscard]] bool all_received_of(std::size_t rank, std::uint64_t step) const;

  /// Changes when all have published a step.
  [[nodiscard]] std::uint32_t round() const noexcept;
  /// Blocks: until round() is no longer `round`, at most `limit`; may return early.
  void sleep(std::uint32_t round, std::chrono::nanoseconds limit);

 private:
  struct front;
  struct state;
  struct head;
  struct note;
  void announce();

  std::shared_ptr<std::byte> memory_;
  std::size_t rank_;
  std::size_t ranks_;
  front* front_;
  state* states_;
  head* heads_;
  note* notes_;
  std::byte* blocks_;
  std::uint64_t step_ = 0;
  std::vector<std::uint32_t> sent_, received_;
};

/// A communicator's shared memory, if any; its first collective finds out.
struct shared_memory {
  bool allowed = true;
  bool known = false;
  std::unique_ptr<rank_memory> all;                     ///< null: collectives are messages
  std::map<std::size_t, std::uint32_t> sent, received;  ///< number of values, by rank, before it was known

  void count_sent(std::size_t to) {
    if (all) all->count_sent(to);
    else if (!known) ++sent[to];
  }
  void count_received(std::size_t from) {
    if (all) all->count_received(from);
    else if (!known) ++received[from];
  }
  void set(std::unique_ptr<rank_memory> found) {
    known = true;
    all = std::move(found);
    if (!all) return;
    for (const auto& [to, values] : sent) all->count_sent(to, values);
    for (const auto& [from, values] : received) all->count_received(from, values);
  }
};

}  // namespace paracel
