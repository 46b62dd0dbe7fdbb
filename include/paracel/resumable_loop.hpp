// SPDX-License-Identifier: BSD-3-Clause
//
// A loop that can resume from a checkpoint, and that the replacement of a dead worker can join: it declares which
// variables carry over from one iteration to the next, and commits each iteration.
//
//   std::vector<double> centres = first_centres();
//   double before = 0;
//   resumable_loop loop(job);
//   loop.keep("centres", centres).keep("before", before);
//   while (loop.next(rounds)) {                    // at most `rounds` iterations
//     const double now = improve(centres);         // collectives, parameters, what an iteration needs
//     if (loop.iteration() > 0 && before - now < tolerance) loop.stop();   // this was the last one
//     before = now;
//   }
//
// A resumed program runs from its beginning. Its loops restore their variables: one that had ended does nothing else,
// the one that was interrupted continues, later ones begin. So the code outside loops must be deterministic, and call
// the same collectives on every worker; under wait:T too. See doc/checkpoints.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <paracel/detail/saved_state.hpp>
#include <paracel/error.hpp>

namespace paracel {

class paralg;

/// Loops follow one another in the same order on every worker, and may be nested: then an outer loop's variables must
/// change only after its inner loops, because an inner loop resumes within the outer one's iteration, whose code before
/// it runs again. Every iteration is one of the job's clock (iter_commit), unless that makes no difference: without
/// checkpoints, wait:T, ssp and bsp nothing is committed, and the loop costs nothing. Thread-safety: none; on the
/// thread of its job. Lifetime: the kept variables must outlive it.
class resumable_loop {
 public:
  static constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

  explicit resumable_loop(paralg& job) noexcept : job_(&job) {}
  /// Null, for a function that may be called without a paralg: a plain loop, for which nothing is kept.
  explicit resumable_loop(paralg* job) noexcept : job_(job) {}
  ~resumable_loop();
  resumable_loop(const resumable_loop&) = delete;
  resumable_loop& operator=(const resumable_loop&) = delete;

  /// The variable is saved with each checkpoint, and restored by the first `next`. T: any type that has an encoding
  /// (codec.hpp). Names must be unique within a loop. Call it before the first `next`.
  template <class T>
  resumable_loop& keep(const std::string& name, T& variable) {
    return keep_with([name, &variable](saved_state& to, const std::string& prefix) { to.put(prefix + name, variable); },
                     [name, &variable](const saved_state& from, const std::string& prefix) {
                       if (!from.get(prefix + name, variable)) refuse_missing(name);
                     });
  }
  /// An engine of <random>.
  template <class Engine>
  resumable_loop& keep_random(const std::string& name, Engine& engine) {
    return keep_with(
        [name, &engine](saved_state& to, const std::string& prefix) { to.put_random(prefix + name, engine); },
        [name, &engine](const saved_state& from, const std::string& prefix) {
          if (!from.get_random(prefix + name, engine)) refuse_missing(name);
        });
  }
  using saver = std::function<void(saved_state& to, const std::string& prefix)>;
  using restorer = std::function<void(const saved_state& from, const std::string& prefix)>;
  /// For state that is not a variable. The names of its values must begin with `prefix`.
  resumable_loop& keep_with(saver save, restorer restore);

  /// Says that all that is kept is the same on every worker, so that the loop may resume with another number of them.
  resumable_loop& same_on_every_worker() noexcept {
    same_ = true;
    return *this;
  }

  /// Commits even where it makes no other difference: for a loop whose workers count each other's clocks.
  resumable_loop& always_commits() noexcept {
    always_ = true;
    return *this;
  }

  /// Ends the current iteration, if any, and commits it. Returns: whether there is another one. Every worker must pass
  /// the same limit and make the same decisions (`stop`).
  /// The first call restores, and returns false if the loop had ended; a loop that had ended at a lower limit
  /// continues.
  /// Throws: config_error when the checkpoint is from another number of workers; what iter_commit throws.
  [[nodiscard]] bool next(std::int64_t limit = no_limit);
  /// Makes the current iteration the last one. Between iterations: as if a limit had been reached.
  void stop() noexcept { stopped_ = true; }
  /// Iterations done, including those before a resume; inside the loop, the number of the current one, from 0.
  [[nodiscard]] std::int64_t iteration() const noexcept { return done_; }
  /// Whether it is the first loop of its paralg.
  [[nodiscard]] bool is_first() const;
  /// Whether the first `next` found the loop in a checkpoint.
  [[nodiscard]] bool resumed() const noexcept { return resumed_; }

 private:
  friend class paralg;
  [[noreturn]] static void refuse_missing(const std::string& name);
  void begin();
  void commit();
  void finish();
  void save(saved_state& to) const;

  paralg* job_;  // may be null
  std::vector<std::pair<saver, restorer>> kept_;
  std::string prefix_;
  std::string siblings_;          // the common prefix of this loop and those after it
  std::size_t loops_inside_ = 0;  // of the current iteration
  std::size_t level_ = 0;         // of its collectives
  std::int64_t done_ = 0;
  bool commits_ = false;
  bool always_ = false;
  bool same_ = false;
  bool begun_ = false;
  bool open_ = false;
  bool running_ = false;
  bool stopped_ = false;
  bool resumed_ = false;
};

}  // namespace paracel
