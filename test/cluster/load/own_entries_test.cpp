// SPDX-License-Identifier: BSD-3-Clause
//
// Entries that workers have in memory are loaded as the same ones of a file.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/distributed_graph.hpp>
#include <paracel/error.hpp>
#include <paracel/sparse.hpp>

#include "test/support/cluster.hpp"
#include "test/support/entry_files.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel::test::entries {
namespace {

using files_list = std::vector<std::string>;

/// One side of a worker's entries.
struct own_side {
  std::vector<std::uint64_t> numbers;
  std::vector<std::string> names;
  std::vector<std::uint32_t> name;
  bool numeric = true;

  void add(const std::string& id) {
    if (numeric) return numbers.push_back(std::stoull(id));
    name.push_back(static_cast<std::uint32_t>(names.size()));  // the same name may have several indices
    names.push_back(id);
  }
  [[nodiscard]] own_entries::side view() const { return {numbers, names, name, numeric}; }
};

/// A worker's share of some entries.
struct own_part {
  own_side rows, columns;
  std::vector<double> values;

  own_part(const std::vector<entry>& all, std::size_t rank, std::size_t size, bool numeric_rows, bool numeric_columns) {
    rows.numeric = numeric_rows;
    columns.numeric = numeric_columns;
    for (std::size_t k = all.size() * rank / size; k < all.size() * (rank + 1) / size; ++k) {
      rows.add(all[k].row);
      columns.add(all[k].column);
      values.push_back(all[k].value);
    }
  }
  [[nodiscard]] own_entries view() const { return {rows.view(), columns.view(), values, "ours"}; }
};

/// Runs `load` with files, and with entries in memory; what it writes must be the same on each worker.
template <class Load>
void expect_same(const std::string& file, const std::vector<entry>& entries, bool numeric_rows, bool numeric_columns,
                 const Load& load) {
  for (const auto workers : worker_counts) {
    std::vector<std::string> of_file(workers);
    std::vector<std::string> of_memory(workers);
    cluster job({.workers = workers});
    job.run([&](Comm comm) {
      const auto rank = comm.get_rank();
      of_file[rank] = load(comm, {file}, nullptr);
      const own_part part(entries, rank, workers, numeric_rows, numeric_columns);
      const auto own = part.view();
      of_memory[rank] = load(comm, {}, &own);
    });
    EXPECT_EQ(of_file, of_memory) << workers << " workers";
  }
}

void add(std::string& out, const id_list& ids) {
  for (std::size_t i = 0; i < ids.size(); ++i) out += ids.text(i) + ' ';
  out += ids.numeric() ? "numbers\n" : "names\n";
}
template <class T>
void add(std::string& out, const std::vector<T>& numbers) {
  out.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)) += '\n';
}

std::string matrix_of(Comm comm, const std::vector<std::string>& files, const entry_options& options) {
  const auto rows = load_sparse(std::move(comm), files, options);
  std::string out;
  add(out, rows.row_ids);
  add(out, rows.column_ids);
  add(out, rows.row_first);
  add(out, rows.begin);
  add(out, rows.column);
  add(out, rows.value);
  return out + std::to_string(rows.entries_total);
}

std::string problem_of(const std::vector<entry>& entries, const entry_options& options, bool numeric = true) {
  std::string found;
  std::mutex mutex;
  cluster job({.workers = 3});
  job.run([&](Comm comm) {
    const own_part part(entries, comm.get_rank(), 3, numeric, numeric);
    const auto own = part.view();
    auto mine = options;
    mine.own = &own;
    try {
      load_sparse(comm, {}, mine);
    } catch (const error& e) {
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(found.empty() || found == e.what()) << e.what();
      found = e.what();
    }
  });
  return found;
}

TEST(OwnEntries, AreAMatrixAsThoseOfAFile) {
  const temporary_folder here;
  std::uint64_t seed = 0;
  for (const auto id : {plain, scattered, named}) {
    for (const auto rule : {duplicate_rule::sum, duplicate_rule::last, duplicate_rule::keep}) {
      for (const bool transpose : {false, true}) {
        const auto entries = random_entries(++seed, 6000, 120, 60, id);
        const auto file = here.write("entries", text_of(entries));
        expect_same(file, entries, id != named, id != named,
                    [&](Comm comm, const files_list& files, const own_entries* own) {
                      return matrix_of(comm, files, {.own = own, .transpose = transpose, .duplicates = rule});
                    });
      }
    }
  }
}

TEST(OwnEntries, NumbersBecomeNamesWhereTheOthersAre) {
  const temporary_folder here;
  auto entries = random_entries(3, 5000, 50, 40, plain);
  for (auto& e : entries) e.column = "n" + e.column;
  const auto file = here.write("entries", text_of(entries));
  expect_same(file, entries, true, false, [](Comm comm, const files_list& files, const own_entries* own) {
    return matrix_of(comm, files, {.own = own});
  });
  expect_same(file, entries, true, false, [](Comm comm, const files_list& files, const own_entries* own) {
    return matrix_of(comm, files, {.own = own, .values = entry_options::value_rule::ignore});
  });
}

TEST(OwnEntries, AreAGraphAsThoseOfAFile) {
  const temporary_folder here;
  for (const auto id : {plain, named}) {
    const auto entries = random_entries(5, 4000, 90, 90, id);
    const auto file = here.write("edges", text_of(entries));
    for (const bool undirected : {false, true}) {
      expect_same(file, entries, id != named, id != named,
                  [&](Comm comm, const files_list& files, const own_entries* own) {
                    graph_options options;
                    options.entries.own = own;
                    options.weighted = true;
                    options.undirected = undirected;
                    const auto graph = load_graph(comm, files, options);
                    std::string out;
                    add(out, graph.ids);
                    add(out, graph.first);
                    add(out, graph.ghosts);
                    add(out, graph.out.begin);
                    add(out, graph.out.target);
                    add(out, graph.out.weight);
                    return out + std::to_string(graph.edges_total);
                  });
    }
  }
}

TEST(OwnEntries, AreRefusedOnEveryWorker) {
  const std::vector<entry> some{{"1", "2", 3}, {"1", "4", -1}, {"5", "6", 7}, {"1", "2", 1}};
  EXPECT_EQ(problem_of(some, {.non_negative = true}), "ours:1: found -1, want a number of at least 0");
  EXPECT_EQ(problem_of(some, {.duplicates = duplicate_rule::refuse}),
            "ours: found an entry of row \"1\" and column \"2\" for the second time, want each at most once");
  EXPECT_EQ(problem_of(some, {.ids = entry_options::id_kind::number}, false),
            "ours: found ids that are names, want numbers");
  EXPECT_EQ(problem_of(some, {.rows_also = {"file"}}),
            "ours: found a cache or further rows, want neither with entries in memory");
  EXPECT_EQ(problem_of(some, {}), "");
}

}  // namespace
}  // namespace paracel::test::entries
