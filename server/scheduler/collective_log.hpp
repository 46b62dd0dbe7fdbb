// SPDX-License-Identifier: BSD-3-Clause
//
// The results of collectives, kept for the replacement of a dead worker, which repeats what that worker had called
// (src/worker/job/collective_sequence.hpp). Large ones are in an unlinked file, so that it vanishes with the scheduler,
// however that ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <paracel/detail/value.hpp>

#include "core/shared_buffer.hpp"

namespace paracel::srv {

/// Thread-safety: owned by the scheduler's thread.
class collective_log {
 public:
  struct options {
    std::uint32_t ranks = 1;
    std::string folder = ".";                         ///< of the file
    std::size_t file_from = 64 * 1024;                ///< larger answers are in the file
    std::size_t most_bytes = std::size_t{256} << 20;  ///< of the others, and of the bookkeeping
  };
  explicit collective_log(options o);
  ~collective_log();
  collective_log(const collective_log&) = delete;
  collective_log& operator=(const collective_log&) = delete;

  /// All ranks got the answer `shared`, or each of them its own, if there are `own`. `what`: the call in words.
  void keep(std::uint64_t number, std::string what, value_tag tag, const shared_buffer& shared,
            std::vector<shared_buffer> own = {});
  /// What a rank would repeat: the numbers [first, second), and those from `from` on. Others are dropped once no
  /// rank needs them.
  void needs(std::uint32_t rank, std::vector<std::pair<std::uint64_t, std::uint64_t>> again, std::uint64_t from);
  /// This rank will not repeat anything any more.
  void needs_nothing(std::uint32_t rank);

  enum class found : std::uint8_t { no, yes, dropped, differs };
  /// The answer that `rank` got, or would have got. no: not given yet. dropped, differs: it was, and `why`
  /// says why it is not an answer to this call.
  found find(std::uint64_t number, std::uint32_t rank, const std::string& what, shared_buffer& out, value_tag& tag,
             std::string& why);

  [[nodiscard]] std::size_t size() const noexcept { return answers_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t file_bytes() const noexcept { return file_bytes_; }

 private:
  struct stored {
    shared_buffer bytes;
    std::uint64_t at = 0;    // in the file
    std::uint64_t size = 0;  // there; 0: in memory
  };
  struct answer {
    std::string what;
    value_tag tag = value_tag::none;
    std::vector<stored> parts;  // one for all, or one per rank
    std::size_t bytes = 0;
  };
  struct need {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> again;
    std::uint64_t from = 0;
  };

  stored store(const shared_buffer& bytes);
  void drop(std::map<std::uint64_t, answer>::iterator it);
  void tidy();

  options options_;
  std::map<std::uint64_t, answer> answers_;
  std::map<std::uint32_t, need> needs_;  // by rank; of those that can be replaced
  std::uint64_t known_ = 0;              // those below have been given
  std::size_t bytes_ = 0;
  int file_ = -1;
  std::uint64_t file_end_ = 0;
  std::uint64_t file_bytes_ = 0;
};

}  // namespace paracel::srv
