// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <paracel/consistency.hpp>
#include <paracel/types.hpp>

#include "client/kvclt.hpp"
#include "client/server_group.hpp"
#include "core/ssp_clock.hpp"
#include "net/protocol.hpp"
#include "worker/job/session.hpp"

namespace paracel {

/// This worker's clock and the consistency of each key: when a read may proceed, and the clocks that requests carry.
///
/// The rule is that of paralg.hpp. Under ASP there is none. Keys and tables have the usual consistency unless their
/// names begin with a prefix that has another one.
/// Thread-safety: none; owned by the thread of its client. Lifetime: session and client outlive it.
class worker_clock {
 public:
  /// `begin`: iterations that this worker had finished elsewhere in the job when this one's first began.
  worker_clock(session& job, server_group& client, const consistency& c, std::uint32_t begin)
      : job_(job), client_(client), usual_(c), begin_(begin) {}

  [[nodiscard]] const consistency& usual() const noexcept { return usual_; }
  void set_model(consistency_model model) noexcept { usual_.model = model; }
  /// For names that begin with `prefix`, and with no longer one that has a consistency too.
  void set_consistency(std::string prefix, const consistency& c);
  /// The consistency of a key, or of the table with this name. Cost: O(prefixes), none usually.
  [[nodiscard]] const consistency& of(std::string_view name) const noexcept {
    return others_.empty() ? usual_ : find(name);
  }
  /// The consistency of all of them. Throws: config_error when they differ. Cost: O(names * prefixes), O(1) without
  /// prefixes.
  [[nodiscard]] const consistency& of(std::span<const std::string> names) const;
  /// The strictest of all names that begin with `prefix`.
  [[nodiscard]] const consistency& of_range(std::string_view prefix) const noexcept;
  /// Whether there is a key with this model.
  [[nodiscard]] bool uses(consistency_model model) const noexcept;
  void set_total_iters(std::uint32_t n) noexcept { total_iters_ = n; }
  /// Whether reads wait for the clock.
  [[nodiscard]] static bool is_clocked(const consistency& c) noexcept { return c.model != consistency_model::asp; }
  /// Whether a read may be served from earlier reads.
  [[nodiscard]] bool may_cache(const consistency& c) const noexcept {
    return is_clocked(c) && finished() - begin_ < total_iters_;
  }

  /// Iterations of this worker.
  [[nodiscard]] std::uint32_t finished() const noexcept { return job_.finished(); }
  /// Those that the slowest worker must have finished for a read.
  [[nodiscard]] std::uint32_t needed(const consistency& c) const noexcept {
    return needed_minimum(finished(), c.model == consistency_model::bsp ? 0 : c.staleness);
  }
  /// The slowest worker's clock as known here.
  [[nodiscard]] std::uint32_t slowest() const noexcept { return slowest_; }
  void record_slowest(std::uint32_t clock) noexcept { slowest_ = std::max(slowest_, clock); }
  /// How many iterations the last read was behind this worker.
  [[nodiscard]] std::uint32_t last_staleness() const noexcept { return last_staleness_; }
  void record_staleness(std::uint32_t minimum) noexcept {
    last_staleness_ = finished() - std::min(finished(), minimum);
  }

  /// Blocks: until the rule allows a read.
  void wait_for_minimum(const consistency& c);
  /// The same before a read that goes to the servers. Under ASP it returns at once.
  void begin_read(const consistency& c) {
    if (!is_clocked(c)) return;
    wait_for_minimum(c);
    record_staleness(slowest_);
  }
  [[nodiscard]] kvclt::call read_call(const consistency& c, net::verb what) const noexcept;
  /// The clock of a write: under BSP completed iterations are folded before it. Blocks: under BSP, as a read.
  [[nodiscard]] kvclt::call write_call(const consistency& c, net::verb what);
  /// `of_iteration`: an update of this iteration, which BSP stages. Blocks: others, under BSP, as a read.
  [[nodiscard]] kvclt::call update_call(const consistency& c, net::verb what, std::uint64_t function,
                                        bool of_iteration);

  /// This worker has finished another iteration. Returns: whether it is to stop for a checkpoint. Blocks: one round
  /// trip.
  bool tick();
  /// Under BSP: folds all updates of iterations that every worker has finished into the values. Throws: the error of
  /// one of them.
  void fold_finished();
  /// The same for the iterations that this worker has finished. Blocks: until every worker has.
  void fold_committed();

 private:
  [[nodiscard]] const consistency& find(std::string_view name) const noexcept;

  session& job_;
  server_group& client_;
  consistency usual_;                                        // with the staleness of ssp whatever the model
  std::vector<std::pair<std::string, consistency>> others_;  // by prefix, the longest first
  std::uint32_t total_iters_ = UINT32_MAX;
  std::uint32_t begin_;
  std::uint32_t slowest_ = 0;  // of all workers, as far as it is known here
  std::uint32_t last_staleness_ = 0;
};

}  // namespace paracel
