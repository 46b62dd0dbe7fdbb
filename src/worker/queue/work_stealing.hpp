// SPDX-License-Identifier: BSD-3-Clause
//
// Moves chunks of rows from late tasks to idle ones, within one computation of a superstep.
//
//   owner                                      helper
//   computes its chunks, from the first one    computes its chunks
//                                          <-  idle, to all
//   between two chunks: grant, from the    ->  computes them
//   last one, the rows with it once        <-  result of each
//   nothing left: idle, to all             ->
//
// A task announces that it is idle while it still has two chunks of its own, unless others are much faster: so the
// first grant has arrived when it needs it. It computes these two itself.
//
// Each result is folded at the owner in the order of the chunks. A task is done when its own chunks are folded, it has
// computed what it was given, and all others are idle. After its `idle` a task only sends results, which their owners
// wait for; so no message is left over when all are done, and the computation is a barrier, as a collective is.
//
// An owner hands out chunks without being asked, so no task waits for an answer from one that is computing.
//
// If dead workers are replaced, messages may be lost with a process. Recovery needs no more than this:
//
//   replacement   computes alone what its predecessor may have computed with the others, and tells them, so that they
//                 expect no chunks from it. It takes part again after the first collective that the predecessor had not
//                 called
//   the others    notice the new process by its first message, take back the chunks that they had given to the old one,
//                 and drop those that it had given to them; the rows that it kept for them are gone
//
// A superstep with computations ends with a collective: a task that has passed it has every result, so a worker that
// commits leaves nothing behind that its replacement would not repeat. A waiting task asks once a second whether those
// it waits for have been ejected.
//
// A task that fails says so (`left`): others finish the computation without it, and see the error in their next
// collective.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/collectives.hpp>
#include <paracel/comm.hpp>
#include <paracel/over_rows.hpp>

#include "worker/comm/comm_backend.hpp"
#include "worker/comm/stealing_messages.hpp"

namespace paracel {

/// Work stealing in one run of a queue.
/// Thread-safety: owned by the thread that runs the algorithm. Lifetime: of `all`.
class work_stealing {
 public:
  using seconds = std::chrono::duration<double>;

  /// `on`: the same at every task.
  work_stealing(const Comm& comm, collectives& all, bool on);
  work_stealing(const work_stealing&) = delete;
  work_stealing& operator=(const work_stealing&) = delete;
  ~work_stealing();

  /// Whether chunks may move: it is enabled, and there are several tasks.
  [[nodiscard]] bool is_on() const noexcept { return on_; }
  /// Once, before the first superstep. A collective.
  void begin_run();
  /// A superstep begins.
  void begin_step(int step) noexcept;
  /// compute_chunks.
  void run(const chunk_work& work, std::span<std::byte> result);
  /// Whether the superstep must end with a collective.
  [[nodiscard]] bool needs_collective() const noexcept { return log_ != nullptr && number_ > 0; }
  /// This task fails.
  void leave() noexcept;

  // ---- since begin_step

  [[nodiscard]] std::size_t given() const noexcept { return given_; }  ///< own chunks that other tasks computed
  [[nodiscard]] std::size_t taken() const noexcept { return taken_; }  ///< chunks of other tasks computed here
  [[nodiscard]] seconds computed() const noexcept { return computed_; }
  [[nodiscard]] seconds waited() const noexcept { return waited_; }

 private:
  class computation;
  struct kept_rows {
    std::vector<bool> chunks;
    std::size_t bytes = 0;
  };

  [[nodiscard]] byte_vector header_of(steal_message what) const;
  void send(std::size_t to, byte_vector message);
  void send_to_all(const byte_vector& message);
  [[nodiscard]] std::optional<received_message> take(comm_backend::patience limit);
  void forget_rows(std::size_t rank);

  std::shared_ptr<comm_backend> over_;
  comm_backend::patience limit_;
  collectives& all_;
  bool on_;
  logged_collectives* log_;  // null: the job does not survive a worker's death
  std::uint64_t run_ = 0;
  std::uint64_t process_;  // this one
  std::uint32_t step_ = 0;
  std::uint32_t number_ = 0;
  std::vector<bool> left_;
  std::vector<std::uint64_t> processes_;                // by rank: of its last message; 0: none
  std::vector<received_message> early_;                 // of later computations
  std::map<std::string, std::vector<kept_rows>> sent_;  // by computation and rank: which of our rows that one keeps
  std::map<std::pair<std::string, std::uint64_t>, std::shared_ptr<const void>> kept_;  // others' rows
  std::size_t given_ = 0;
  std::size_t taken_ = 0;
  seconds computed_{};
  seconds waited_{};
};

}  // namespace paracel
