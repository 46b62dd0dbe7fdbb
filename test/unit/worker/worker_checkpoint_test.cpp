// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/worker_checkpoint.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <paracel/detail/saved_state.hpp>

#include "storage/checkpoint_store.hpp"
#include "test/support/crash_disk.hpp"

namespace paracel {
namespace {

/// A checkpoint of workers that have each saved their rank, and what the workers of the next job restore.
class CheckpointParts : public testing::Test {
 protected:
  static constexpr std::uint32_t clock = 7;
  static constexpr const char* folder = "ckpt/0000000007";

  void save(std::uint32_t workers, const std::vector<std::uint32_t>& ranks) {
    storage::checkpoint_manifest m{.job = 3, .clock = clock, .workers = workers, .servers = 1};
    for (const auto rank : ranks) {
      worker_checkpoint parts;
      parts.enter(0, [rank](saved_state& to) { to.put("rank", static_cast<int>(rank)); });
      for (std::uint32_t i = 0; i < clock; ++i) parts.committed(0);
      m.files.push_back(parts.write(disk_, folder,
                                    {.kind = storage::checkpoint_kind::worker,
                                     .clock = clock,
                                     .index = rank,
                                     .job = 3,
                                     .thread = 0,
                                     .count = workers}));
    }
    const auto text = m.to_text();
    auto file = disk_.create(std::string(folder) + "/" + storage::manifest_name);
    file->append(std::as_bytes(std::span(text)));
    file->commit();
  }

  struct found {
    std::uint32_t begin, commits;
    bool resumed, same_workers;
    int own;
    std::vector<int> all;
    friend bool operator==(const found&, const found&) = default;
  };
  [[nodiscard]] found read(std::uint32_t rank, std::uint32_t workers) const {
    worker_checkpoint parts;
    checkpoint_plan plan;
    plan.resume = folder;
    plan.clock = clock;
    parts.read(disk_, plan, rank, workers);
    const auto number = parts.enter(clock, [](saved_state&) {});
    const auto states = parts.states(number);
    const auto rank_in = [](const saved_state& s) {
      int saved = -1;
      s.get("rank", saved);
      return saved;
    };
    found f{parts.at(number).begin, parts.at(number).commits, parts.is_resumed(number),
            states.same_workers(),  rank_in(states.own()),    {}};
    for (const auto& s : states.all()) f.all.push_back(rank_in(s));
    return f;
  }

  test::crash_disk disk_;
};

TEST_F(CheckpointParts, EachOfAsManyWorkersTakesUpItsOwn) {
  save(3, {0, 1, 2});
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(read(static_cast<std::uint32_t>(rank), 3), (found{0, clock, true, true, rank, {rank}}));
}

TEST_F(CheckpointParts, AnotherNumberOfWorkersSeesWhatAllHaveSaved) {
  save(3, {0, 1, 2});
  for (std::uint32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(read(rank, 2), (found{0, clock, true, false, 0, {0, 1, 2}}));
}

TEST_F(CheckpointParts, AfterAnEjectionAsManyWorkersAllBeginAlike) {
  save(3, {0, 2});
  for (std::uint32_t workers = 2; workers <= 4; ++workers)
    for (std::uint32_t rank = 0; rank < workers; ++rank)
      EXPECT_EQ(read(rank, workers), (found{0, clock, true, false, 0, {0, -1, 2}})) << rank << " of " << workers;
}

TEST_F(CheckpointParts, TheFirstThatIsThereStandsForARankZeroThatHadGone) {
  save(3, {1, 2});
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(read(rank, 3), (found{0, clock, true, false, 1, {1, -1, 2}}));
}

}  // namespace
}  // namespace paracel
