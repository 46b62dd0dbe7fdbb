// SPDX-License-Identifier: BSD-3-Clause
//
// The numbers of a worker's collectives. They count from 0, the same at every rank, because every rank calls
// them in the same order. The replacement of a dead worker repeats the collectives that its predecessor had called
// before each loop and in the iteration after its last commit, but not those of earlier iterations. It gives them their
// old numbers, and the scheduler answers from its log.
//
//     0 1 2 3 | 4 5 | 6 7 | 8 9 | 10 ...      0 to 3: before first_iteration(); then two an iteration; two commits
//     repeated: 0 1 2 3, then 8 9 10 ...
//
// So the start of a loop must be marked (paralg::first_iteration), and nothing before it may be random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

#include "worker/job/recovery_file.hpp"

namespace paracel {

/// At most `most` ranges that together contain `ranges`, which ascend: adjacent ones are joined, then the oldest. For
/// messages of limited length; what is kept for a range that is never repeated only takes memory.
[[nodiscard]] inline std::vector<std::pair<std::uint64_t, std::uint64_t>> enclosing_ranges(
    const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges, std::size_t most) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> joined;
  for (const auto& range : ranges) {
    if (!joined.empty() && joined.back().second == range.first) joined.back().second = range.second;
    else joined.push_back(range);
  }
  if (joined.size() <= most) return joined;
  const auto first = joined.front().first;
  joined.erase(joined.begin(), joined.end() - static_cast<std::ptrdiff_t>(most));
  joined.front().first = first;
  return joined;
}

/// Thread-safety: owned by the thread that runs the algorithm.
class collective_sequence {
 public:
  /// This process replaces another one, which had called those below `passed`.
  void begin_again(replay_range what, std::uint64_t passed) {
    setups_ = std::move(what.ranges);
    since_ = what.from;
    passed_ = passed;
    at_ = 0;
    next_ = setups_.empty() ? since_ : setups_.front().first;
  }

  /// The number of the current collective. Throws: error when the previous process had none here.
  std::uint64_t next() {
    if (repeats_setup() && next_ == setups_[at_].second) differ();
    return next_++;
  }
  /// A loop begins: what was called since the last commit is repeated by this worker's replacement.
  /// Returns: the number of loops that have begun and not been forgotten, this one included.
  /// Throws: error when the previous process had called more up to here.
  std::size_t loop_begins() {
    if (!repeats_setup()) {
      setups_.emplace_back(since_, next_);
      since_ = next_;
      return at_ = setups_.size();
    }
    if (next_ != setups_[at_].second) differ();
    ++at_;
    next_ = repeats_setup() ? setups_[at_].first : since_;
    return at_;
  }
  /// An iteration ends. `loops`: loops beyond this number are forgotten, since they ran inside this iteration.
  /// Returns: what would be repeated from here. Throws: as loop_begins.
  replay_range commit(std::size_t loops = ~std::size_t{0}) {
    if (repeats_setup()) differ();
    if (loops < setups_.size()) setups_.resize(loops);
    at_ = setups_.size();
    since_ = next_;
    return {setups_, since_};
  }

  /// The previous process had called the next one as well, so everything in between has been done.
  [[nodiscard]] bool repeats() const noexcept { return next_ < passed_; }
  /// No collective has been called yet that the previous process had not called.
  [[nodiscard]] bool may_repeat() const noexcept { return next_ <= passed_; }
  /// This process has got as far as the previous one.
  [[nodiscard]] bool caught_up() const noexcept { return !repeats_setup() && !repeats(); }

 private:
  [[nodiscard]] bool repeats_setup() const noexcept { return at_ < setups_.size(); }
  [[noreturn]] void differ() const {
    throw error("as the replacement of a dead worker: before its loop that worker called collectives up to number " +
                std::to_string(setups_[at_].second) + ", this one does not call the same (now " +
                std::to_string(next_) + ")");
  }

  std::vector<std::pair<std::uint64_t, std::uint64_t>> setups_;
  std::size_t at_ = 0;       // the one that is repeated; past the end: none
  std::uint64_t since_ = 0;  // the first one after the last commit, or the beginning of the last loop
  std::uint64_t next_ = 0;
  std::uint64_t passed_ = 0;
};

}  // namespace paracel
