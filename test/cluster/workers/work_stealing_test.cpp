// SPDX-License-Identifier: BSD-3-Clause
//
// Steps over rows in chunks, with work stealing and without: the same bits, the same errors; which data is sent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>
#include <paracel/over_rows.hpp>

#include "test/support/cluster.hpp"
#include "test/support/document_samples.hpp"
#include "test/support/same_texts.hpp"
#include "test/support/temporary_folder.hpp"
#include "worker/queue/chunk_shares.hpp"

namespace paracel {

namespace {
/// Rows that count how often some of them are cut out.
struct counted_rows {
  std::vector<double> values;
  static inline std::atomic<int> slices{0};
  MSGPACK_DEFINE(values)
};
}  // namespace

template <>
struct row_slices<counted_rows> {
  static std::size_t count(const counted_rows& rows) { return rows.values.size(); }
  static counted_rows slice(const counted_rows& rows, std::size_t begin, std::size_t end) {
    ++counted_rows::slices;
    return {row_slices<std::vector<double>>::slice(rows.values, begin, end)};
  }
};

namespace {

using test::cluster;
using test::expect_one_text;
using test::texts_of_job;
using test::with_job;
using testing::AllOf;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::ResultOf;
using numbers = std::vector<double>;
using table = std::vector<numbers>;
using milliseconds = std::chrono::milliseconds;

constexpr std::size_t width = 5;
constexpr int steps = 4;

struct problem {
  std::vector<table> rows;                       // of each task
  std::vector<std::chrono::microseconds> pause;  // of each task, for a chunk
  std::size_t chunks = 64;
};

problem random_problem(std::uint64_t seed, std::size_t tasks) {
  std::mt19937_64 dice(seed);
  problem p;
  const std::size_t most[] = {0, 1, 3, 20, 150};
  const std::size_t chunks[] = {1, 2, 7, 16, 64};
  p.chunks = chunks[dice() % 5];
  for (std::size_t r = 0; r < tasks; ++r) {
    p.rows.emplace_back(dice() % (most[dice() % 5] + 1), numbers(width));
    for (auto& row : p.rows.back())
      for (auto& x : row) x = std::ldexp(static_cast<double>(dice() >> 11U), -52) - 1;
    p.pause.emplace_back(dice() % 3 == 0 ? 1500 : dice() % 100);
  }
  return p;
}

void add_rows(const table& rows, std::size_t begin, std::size_t end, const numbers& w, std::span<double> sums) {
  for (std::size_t i = begin; i < end; ++i)
    for (std::size_t j = 0; j < width; ++j) sums[j] += std::sin(w[j] + rows[i][j]) / 3;
}

void move(numbers& w, const numbers& sums) {
  for (std::size_t j = 0; j < width; ++j) w[j] = 0.5 * w[j] + sums[j] / 7;
}

/// The same additions in one loop.
numbers serial(const problem& p) {
  numbers w(width, 0.25);
  for (int s = 0; s < steps; ++s) {
    numbers all;
    for (const auto& rows : p.rows) {
      numbers own(width);
      const auto n = std::min(p.chunks, rows.size());
      for (std::size_t c = 0; c < n; ++c) {
        const auto r = owned_range_of(rows.size(), n, c);
        numbers part(width);
        add_rows(rows, r.begin, r.end, w, part);
        for (std::size_t j = 0; j < width; ++j) own[j] += part[j];
      }
      if (all.empty()) all = own;
      else
        for (std::size_t j = 0; j < width; ++j) all[j] += own[j];
    }
    move(w, all);
  }
  return w;
}

numbers solve(paralg& job, const problem& p, bool stealing, std::vector<superstep_report>* seen = nullptr) {
  const auto me = job.get_worker_id();
  com_queue q(job);
  q.set_work_stealing(stealing);
  q.init_with_partitioned_data("rows", std::cref(p.rows[me]));
  q.init_with_broadcast_data("w", numbers(width, 0.25));
  q.add(over_rows(
      row_work<table>{.rows = "rows",
                      .result = "sums",
                      .reads = {"w"},
                      .length = [](com_context&) { return width; },
                      .compute =
                          [&](const row_chunk<table>& chunk, std::span<double> sums) {
                            std::this_thread::sleep_for(p.pause[me]);
                            EXPECT_EQ(chunk.rows()[chunk.begin()], p.rows[chunk.owner()][chunk.first_row()]);
                            add_rows(chunk.rows(), chunk.begin(), chunk.end(), chunk.get_obj<numbers>("w"), sums);
                          },
                      .chunks = p.chunks}));
  q.add(all_reduce("sums"));
  q.add([](com_context& c) { move(c.get_obj<numbers>("w"), c.get_obj<const numbers>("sums")); });
  q.set_max_iter(steps);
  q.close_with([](com_context& c) { return c.get_obj<numbers>("w"); });
  if (seen != nullptr) q.set_watch([seen](const superstep_report& r) { seen->push_back(r); });
  return q.exec<numbers>();
}

TEST(WorkStealing, BitsAreThoseOfOneLoopForAnyRowsChunksAndDelays) {
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    const std::size_t tasks = std::vector<std::size_t>{1, 2, 3, 5, 8}[seed % 5];
    const auto p = random_problem(seed, tasks);
    const auto expected = serial(p);
    with_job(tasks, [&](paralg& job) {
      for (const bool stealing : {false, true, true}) EXPECT_EQ(solve(job, p, stealing), expected) << seed;
    });
  }
}

/// On a busy machine one of the others may be late in a single superstep, and be helped by task 0: sums over all
/// supersteps tell who was late.
TEST(WorkStealing, ALateTaskGivesManyMoreChunksThanItTakes) {
  problem p{{}, {}, 32};
  p.rows.assign(4, table(320, numbers(width, 0.5)));
  p.pause.assign(4, std::chrono::microseconds{300});
  p.pause[0] = std::chrono::microseconds{3000};
  with_job(4, [&](paralg& job) {
    std::vector<superstep_report> seen;
    (void)solve(job, p, true, &seen);
    if (job.get_worker_id() != 0) return;
    ASSERT_EQ(seen.size(), std::size_t{steps});
    std::size_t given = 0;
    std::size_t taken = 0;
    for (const auto& r : seen) {
      given += r.chunks_given;
      taken += r.chunks_taken;
      EXPECT_GE(r.computing, 0.003);
    }
    EXPECT_GE(given, std::size_t{8 * steps});
    EXPECT_LT(4 * taken, given);
  });
}

TEST(WorkStealing, RowsOfASteadyStragglerTravelOnce) {
  counted_rows::slices = 0;
  constexpr int many = 12;
  std::atomic<std::size_t> given = 0;
  with_job(2, [&](paralg& job) {
    com_queue q(job);
    q.set_work_stealing(true);
    q.init_with_partitioned_data("rows", counted_rows{numbers(100, 1.5)});
    q.add(over_rows(row_work<counted_rows>{.rows = "rows",
                                           .result = "sum",
                                           .length = [](com_context&) { return std::size_t{1}; },
                                           .compute =
                                               [&](const row_chunk<counted_rows>& chunk, std::span<double> sum) {
                                                 std::this_thread::sleep_for(
                                                     milliseconds(job.get_worker_id() == 0 ? 4 : 1));
                                                 for (std::size_t i = chunk.begin(); i < chunk.end(); ++i)
                                                   sum[0] += chunk.rows().values[i];
                                               },
                                           .chunks = 20}));
    q.add([](com_context& c) { EXPECT_EQ(c.get_obj<numbers>("sum")[0], 150); });
    q.add(all_reduce("sum"));
    q.set_max_iter(many);
    q.set_watch([&](const superstep_report& r) { given += r.chunks_given; });
    q.exec();
  });
  EXPECT_GE(given, std::size_t{2 * many});
  EXPECT_LE(counted_rows::slices, 40);  // at most each chunk once
  EXPECT_LT(static_cast<std::size_t>(counted_rows::slices), given);
}

TEST(WorkStealing, StepsThatFollowEachOtherWithoutACollectiveDoNotMixTheirMessages) {
  with_job(5, [](paralg& job) {
    std::mt19937 dice(static_cast<unsigned>(job.get_worker_id()));
    const auto pause = [&] { std::this_thread::sleep_for(std::chrono::microseconds(dice() % 8 == 0 ? 3000 : 50)); };
    com_queue q(job);
    q.set_work_stealing(true);
    q.init_with_partitioned_data("rows", std::vector<std::int64_t>(30, 3));
    using work = row_work<std::vector<std::int64_t>, std::int64_t>;
    using chunk_of = row_chunk<std::vector<std::int64_t>>;
    const auto length = [](com_context&) { return std::size_t{1}; };
    for (const std::string name : {"a", "b", "c"}) {
      q.add(over_rows(work{.rows = "rows",
                           .result = name,
                           .length = length,
                           .compute = [&](const chunk_of& c, std::span<std::int64_t> to) {
                             pause();
                             for (auto i = c.begin(); i < c.end(); ++i) to[0] += c.rows()[i];
                           }}));
    }
    q.add(over_rows(work{.rows = "rows",
                         .result = "least",
                         .length = length,
                         .compute =
                             [&](const chunk_of& c, std::span<std::int64_t> to) {
                               pause();
                               to[0] = static_cast<std::int64_t>(100 * c.owner() + 70 - c.first_row());
                             },
                         .empty = std::numeric_limits<std::int64_t>::max(),
                         .op = reduce_op::min}));
    q.add(over_rows(
        work{.rows = "rows",
             .result = "last",
             .length = length,
             .compute =
                 [&](const chunk_of& c, std::span<std::int64_t> to) {
                   pause();
                   to[0] = static_cast<std::int64_t>(c.first_row());
                 },
             .fold = [](std::span<std::int64_t> into, std::span<const std::int64_t> from) { into[0] = from[0]; }}));
    q.add([](com_context& c) {
      for (const std::string name : {"a", "b", "c"}) EXPECT_EQ(c.get_obj<std::vector<std::int64_t>>(name)[0], 90);
      EXPECT_EQ(c.get_obj<std::vector<std::int64_t>>("least")[0], static_cast<std::int64_t>(100 * c.task_id() + 41));
      EXPECT_EQ(c.get_obj<std::vector<std::int64_t>>("last")[0], 29);
    });
    q.set_max_iter(6);
    q.exec();
    q.exec();
  });
}

/// 40 rows a task in 10 chunks; task `late` needs 3 ms for a chunk. `check` may throw for a chunk.
std::multiset<std::string> texts_with(bool stealing, std::size_t late, const std::function<void(com_context&)>& before,
                                      const std::function<void(const row_chunk<numbers>&)>& check) {
  return texts_of_job(3, [&](paralg& job) {
    com_queue q(job);
    q.set_work_stealing(stealing);
    q.set_max_iter(3);
    q.init_with_partitioned_data("rows", numbers(40, 1));
    q.add([&](com_context& c) { before(c); });
    q.add(over_rows(row_work<numbers>{.rows = "rows",
                                      .result = "sum",
                                      .reads = {"w"},
                                      .length = [](com_context&) { return std::size_t{1}; },
                                      .compute =
                                          [&](const row_chunk<numbers>& chunk, std::span<double> sum) {
                                            std::this_thread::sleep_for(
                                                std::chrono::microseconds(job.get_worker_id() == late ? 3000 : 100));
                                            sum[0] += chunk.get_obj<double>("w");
                                            check(chunk);
                                          },
                                      .chunks = 10}));
    q.add(all_reduce("sum"));
    q.exec();
  });
}

TEST(WorkStealing, AnErrorOfAChunkIsTheSameWhereverItIsComputed) {
  for (const bool stealing : {false, true}) {
    for (const std::size_t late : {1U, 2U}) {
      for (const std::size_t bad : {0U, 20U, 36U}) {
        const auto texts = texts_with(
            stealing, late, [](com_context& c) { c.put_obj("w", static_cast<double>(c.step_no())); },
            [&](const row_chunk<numbers>& chunk) {
              if (chunk.get_obj<double>("w") == 2 && chunk.owner() == 1 && chunk.first_row() >= bad)
                throw data_error("row " + std::to_string(chunk.first_row()) + " has no label");
            });
        expect_one_text(
            texts, HasSubstr("superstep 2, over_rows(\"rows\", \"sum\"), task 1: rows " + std::to_string(bad) + " to " +
                             std::to_string(bad + 3) + ": row " + std::to_string(bad) + " has no label"));
      }
    }
  }
}

TEST(WorkStealing, AnErrorElsewhereEndsTasksThatWaitForChunks) {
  const auto fine = [](const row_chunk<numbers>&) {};
  for (const bool stealing : {false, true}) {
    expect_one_text(texts_with(
                        stealing, 1,
                        [](com_context& c) {
                          c.put_obj("w", 1.0);
                          if (c.task_id() == 2 && c.step_no() == 2) throw error("no luck");
                        },
                        fine),
                    HasSubstr("superstep 2, item 1, task 2: no luck"));
    expect_one_text(texts_with(
                        stealing, 1, [](com_context& c) { c.put_obj("v", 1.0); }, fine),
                    HasSubstr("superstep 1, over_rows(\"rows\", \"sum\"), task 0:"));
  }
}

TEST(WorkStealing, ObjectsThatChunksReadMustBeTheSameAtEveryTask) {
  const auto fine = [](const row_chunk<numbers>&) {};
  expect_one_text(
      texts_with(
          true, 1, [](com_context& c) { c.put_obj("w", c.task_id() == 1 && c.step_no() == 3 ? 1.5 : 1.0); }, fine),
      AllOf(HasSubstr("superstep 3, over_rows(\"rows\", \"sum\"), task "), HasSubstr("\"w\" is not the same at task"),
            HasSubstr("task 1"),
            ResultOf(test::without_numbers,
                     HasSubstr(test::document_samples("doc/com_queue.md", "work_stealing_test").at(0)))));
  expect_one_text(texts_with(
                      true, 1, [](com_context& c) { c.put_local("w", std::string("text")); }, fine),
                  HasSubstr("put_local"));
  for (const bool stealing : {false, true})
    expect_one_text(texts_with(
                        stealing, 1, [](com_context& c) { c.put_obj("w", 1.0); },
                        [](const row_chunk<numbers>& chunk) { (void)chunk.get_obj<double>("v"); }),
                    HasSubstr("rows 0 to 3: \"v\" is not one of the objects that the step reads"));
}

TEST(WorkStealing, LengthsThatDifferAreAnError) {
  expect_one_text(texts_of_job(2,
                               [](paralg& job) {
                                 com_queue q(job);
                                 q.set_work_stealing(true);
                                 q.set_max_iter(1);
                                 q.init_with_partitioned_data("rows", numbers(9, 1));
                                 q.add(over_rows(row_work<numbers>{
                                     .rows = "rows",
                                     .result = "sum",
                                     .length = [](com_context& c) { return c.task_id() + 1; },
                                     .compute = [](const row_chunk<numbers>&, std::span<double>) {}}));
                                 q.exec();
                               }),
                  HasSubstr("task 0 and task 1 give a different name, length or number of chunks"));
}

TEST(WorkStealing, MetricsHaveTheChunksThatTravelled) {
  test::temporary_folder folder;
  problem p{{}, {}, 16};
  p.rows.assign(2, table(160, numbers(width, 0.5)));
  p.pause = {std::chrono::microseconds{100}, std::chrono::microseconds{3000}};
  cluster c({.workers = 2, .servers = 1});
  c.run([&](Comm comm) {
    for (const bool stealing : {false, true}) {
      const auto output = folder.path() + (stealing ? "/on" : "/off");
      paralg job("", comm, output);
      (void)solve(job, p, stealing);
      if (comm.get_rank() != 0) continue;
      std::ifstream file(output + "/metrics.jsonl");
      std::string line;
      int taken = 0;
      int given = 0;
      while (std::getline(file, line)) {
        const auto j = nlohmann::json::parse(line);
        EXPECT_EQ(j.contains("chunks_taken"), stealing);
        EXPECT_EQ(j.contains("chunks_given"), stealing);
        taken += j.value("chunks_taken", 0);
        given += j.value("chunks_given", 0);
      }
      EXPECT_GE(taken, stealing ? 4 * steps : 0);
      EXPECT_LE(4 * given, taken);
    }
  });
}

TEST(ChunkShares, AHelperGetsOfItsShareWhatItCanComputeUntilTheOwnerChecksAgain) {
  const auto shares = [](std::size_t open, double own, const std::vector<chunk_helper>& helpers) {
    return chunk_shares(open, own, helpers);
  };
  // 12 chunks, a helper twice as fast: 8 and 4.
  EXPECT_THAT(shares(12, 0.2, {{.rank = 1, .seconds = 0.1}}), ElementsAre(4));
  EXPECT_THAT(shares(24, 0.2, {{.rank = 1, .seconds = 0.1}}), ElementsAre(4));
  EXPECT_THAT(shares(24, 0.2, {{.rank = 1, .busy = 3, .seconds = 0.1}}), ElementsAre(1));
  EXPECT_THAT(shares(24, 0.2, {{.rank = 1, .busy = 6, .seconds = 0.1}}), ElementsAre(0));
  EXPECT_THAT(shares(3, 1, {{.rank = 1, .seconds = 0.1}, {.rank = 4, .seconds = 0.1}}), ElementsAre(2, 1));
  // The helper still has chunks of its own.
  EXPECT_THAT(shares(12, 0.2, {{.rank = 1, .seconds = 0.1, .ready = 0.35}}), ElementsAre(1));
  EXPECT_THAT(shares(12, 0.2, {{.rank = 1, .seconds = 0.1, .ready = 0.5}}), ElementsAre(0));
  // Not worth the transfer.
  EXPECT_THAT(shares(5, 1e-5, {{.rank = 1, .seconds = 1e-5}}), ElementsAre(0));
  // Shorter chunks than the way of a message.
  EXPECT_THAT(shares(500, 1e-5, {{.rank = 1, .seconds = 1e-5}}), ElementsAre(80));
  // Nothing known, nothing open.
  EXPECT_THAT(shares(4, 0, {{.rank = 1}}), ElementsAre(Ge(1U)));
  EXPECT_THAT(shares(0, 1, {{.rank = 1}}), ElementsAre(0));
}

TEST(ChunkShares, LateTasksDoNotGiveMoreThanTheHelpersCanComputeBetweenThem) {
  EXPECT_THAT(chunk_shares(24, 0.2, std::vector<chunk_helper>{{.rank = 1, .seconds = 0.1}}, 2), ElementsAre(2));
  std::mt19937_64 dice(7);
  for (int turn = 0; turn < 2000; ++turn) {
    const std::size_t late = 1 + dice() % 40;
    const double own = 1e-3 * static_cast<double>(1 + dice() % 50);
    std::vector<chunk_helper> helpers(1 + dice() % 8);
    for (auto& h : helpers) h.seconds = 1e-3 * static_cast<double>(1 + dice() % 20);
    const std::size_t open = dice() % 200;
    const auto shares = chunk_shares(open, own, helpers, late);
    std::size_t given = 0;
    for (std::size_t i = 0; i < helpers.size(); ++i) {
      given += shares[i];
      // Of all late tasks, if each has as many chunks: two turns of theirs, and one chunk of each.
      const double work = static_cast<double>(late * shares[i]) * helpers[i].seconds;
      EXPECT_LE(work, 2 * own + static_cast<double>(late) * helpers[i].seconds + 1e-12);
      // It would not end later than the owner, which computes the rest, by more than a chunk.
      EXPECT_LE(work, own * static_cast<double>(open) + static_cast<double>(late) * helpers[i].seconds);
    }
    EXPECT_LE(given, open);
  }
}

}  // namespace
}  // namespace paracel
