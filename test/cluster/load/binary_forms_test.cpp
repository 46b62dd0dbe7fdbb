// SPDX-License-Identifier: BSD-3-Clause
//
// Binary inputs that the Python package hands over: sparse rows, entries in .npy, files in memory. They are what the
// same numbers are as text, for any number of workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/error.hpp>
#include <paracel/samples.hpp>
#include <paracel/sparse.hpp>

#include "storage/memory_file.hpp"
#include "test/support/cluster.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel::test {
namespace {

using ::testing::HasSubstr;

template <class T>
void put(std::string& to, const std::vector<T>& numbers) {
  to.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
}

/// Rows of src/load/format/csr_reader.hpp.
struct csr {
  std::uint64_t columns = 5;
  std::vector<double> label{1, 0, 1, 1};
  std::vector<double> group{};
  std::vector<std::uint64_t> row_begin{0, 2, 2, 3, 6};
  std::vector<double> value{0.5, -2, 3, 1, 4, 1e-9};
  std::vector<std::uint32_t> column{0, 4, 2, 0, 1, 3};

  [[nodiscard]] std::string bytes() const {
    std::string out("\x93PARCSR1", 8);
    const std::uint64_t parts = (label.empty() ? 0U : 1U) + (group.empty() ? 0U : 2U);
    put(out, std::vector<std::uint64_t>{row_begin.size() - 1, columns, value.size(), parts});
    put(out, label);
    put(out, group);
    put(out, row_begin);
    put(out, value);
    put(out, column);
    return out;
  }
};

std::string npy(std::size_t rows, std::size_t columns, const std::vector<double>& numbers) {
  std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", " +
                       std::to_string(columns) + "), }";
  header.resize(117, ' ');
  std::string out("\x93NUMPY\x01\x00\x76\x00", 10);
  out += header + '\n';
  put(out, numbers);
  return out;
}

class BinaryForms : public ::testing::Test {
 protected:
  /// The rows of all workers.
  static sample_rows load(std::size_t workers, const std::string& file, const sample_options& options = {}) {
    cluster job({.workers = workers});
    std::vector<sample_rows> parts(workers);
    job.run([&](Comm comm) { parts[comm.get_rank()] = load_samples(comm, {file}, options); });
    auto all = parts[0];
    for (std::size_t w = 1; w < workers; ++w) {
      const auto& p = parts[w];
      EXPECT_EQ(p.columns, all.columns);
      EXPECT_EQ(p.first_row, all.row_count);
      all.label.insert(all.label.end(), p.label.begin(), p.label.end());
      all.group.insert(all.group.end(), p.group.begin(), p.group.end());
      all.column.insert(all.column.end(), p.column.begin(), p.column.end());
      all.value.insert(all.value.end(), p.value.begin(), p.value.end());
      all.floats.insert(all.floats.end(), p.floats.begin(), p.floats.end());
      for (std::size_t i = 0; i < p.rows() && !p.dense; ++i)
        all.row_begin.push_back(all.row_begin.back() + p.row_begin[i + 1] - p.row_begin[i]);
      all.row_count += p.row_count;
    }
    return all;
  }
  static void expect_same(const sample_rows& a, const sample_rows& b) {
    EXPECT_EQ(a.dense, b.dense);
    EXPECT_EQ(a.columns, b.columns);
    EXPECT_EQ(a.label, b.label);
    EXPECT_EQ(a.group, b.group);
    EXPECT_EQ(a.row_begin, b.row_begin);
    EXPECT_EQ(a.column, b.column);
    EXPECT_EQ(a.value, b.value);
    EXPECT_EQ(a.floats, b.floats);
    EXPECT_EQ(a.classes, b.classes);
  }

  void expect_refused(const std::string& bytes, const std::string& what, const sample_options& options = {}) {
    const auto file = folder_.write("wrong", bytes);
    try {
      (void)read_samples({file}, 0, 1, options);
      ADD_FAILURE() << "accepted, want: " << what;
    } catch (const data_error& e) {
      EXPECT_THAT(e.what(), HasSubstr(file + ":"));
      EXPECT_THAT(e.what(), HasSubstr(what));
    }
  }

  temporary_folder folder_;
};

TEST_F(BinaryForms, SparseRowsAreThoseOfLibsvm) {
  const auto text = folder_.write("rows.svm", "1 1:0.5 5:-2\n0\n1 3:3\n1 1:1 2:4 4:1e-9\n");
  const auto binary = folder_.write("rows", csr().bytes());
  for (const bool floats : {false, true}) {
    sample_options options;
    options.floats = floats;
    const auto expected = load(1, text, options);
    for (const std::size_t workers : {1, 2, 3, 5}) expect_same(load(workers, binary, options), expected);
  }
  sample_options classes;
  classes.label = sample_options::label_rule::classes;
  expect_same(load(2, binary, classes), load(1, text, classes));
}

TEST_F(BinaryForms, SparseRowsHaveGroups) {
  csr rows;
  rows.group = {7, 7, 8, 8};
  sample_options options;
  options.label = sample_options::label_rule::relevance;
  options.group = "qid";
  const auto text = folder_.write("rows.svm", "1 qid:7 1:0.5 5:-2\n0 qid:7\n1 qid:8 3:3\n1 qid:8 1:1 2:4 4:1e-9\n");
  expect_same(load(2, folder_.write("rows", rows.bytes()), options), load(1, text, options));
}

TEST_F(BinaryForms, ColumnsBeyondTheModelsAreDropped) {
  sample_options options;
  options.columns = 3;
  options.without_label = true;
  csr rows;
  rows.label.clear();
  const auto text = folder_.write("rows.svm", "1:0.5 5:-2\n0\n3:3\n1:1 2:4 4:1e-9\n");
  expect_same(load(1, folder_.write("rows", rows.bytes()), options), load(1, text, options));
}

TEST_F(BinaryForms, SparseRowsThatAreNone) {
  const auto bytes = csr().bytes();
  expect_refused(bytes.substr(0, 20), "found 20 bytes, want a header");
  expect_refused(bytes + "x", "bytes, want those of 4 rows and 6 entries");
  csr rows;
  rows.label.clear();
  expect_refused(rows.bytes(), "found no labels, want them");
  rows = {};
  rows.row_begin = {0, 2, 1, 3, 6};
  expect_refused(rows.bytes(), ":2: found a row that ends before it begins");
  rows = {};
  rows.column[1] = 0;
  expect_refused(rows.bytes(), ":1: found column 0, want columns that increase, below 5");
  rows = {};
  rows.column[2] = 5;
  expect_refused(rows.bytes(), ":3: found column 5");
  rows = {};
  rows.value[2] = std::numeric_limits<double>::infinity();
  expect_refused(rows.bytes(), ":3: found inf in column 2, want a finite number");
  rows = {};
  rows.label[1] = std::numeric_limits<double>::quiet_NaN();
  expect_refused(rows.bytes(), ":2: found nan, want a finite number");
  rows = {};
  rows.columns = std::uint64_t{1} << 40U;
  expect_refused(rows.bytes(), "columns, want 1 to 134217728");
  sample_options weighted;
  weighted.weight = "2";
  expect_refused(csr().bytes(), "want weights in row_weights", weighted);
}

using entries = std::vector<std::tuple<std::string, std::string, double>>;

/// The entries of all workers.
entries load_entries(std::size_t workers, const std::string& file, const entry_options& options = {}) {
  cluster job({.workers = workers});
  std::vector<entries> parts(workers);
  job.run([&](Comm comm) {
    const auto part = load_sparse(comm, {file}, options);
    for (std::size_t i = 0; i < part.rows(); ++i) {
      for (auto k = part.begin[i]; k < part.begin[i + 1]; ++k)
        parts[comm.get_rank()].emplace_back(part.row_ids.text(i), part.column_ids.text(part.column[k]), part.value[k]);
    }
  });
  entries all;
  for (const auto& p : parts) all.insert(all.end(), p.begin(), p.end());
  return all;
}

TEST_F(BinaryForms, EntriesAreThoseOfText) {
  const auto text = folder_.write("entries.csv", "3,70,0.5\n9,2,-1\n3,5,2\n9007199254740992,5,4\n0,70,1\n");
  const auto binary =
      folder_.write("entries", npy(5, 3, {3, 70, 0.5, 9, 2, -1, 3, 5, 2, 9007199254740992, 5, 4, 0, 70, 1}));
  entry_options transposed;
  transposed.transpose = true;
  entry_options names;
  names.ids = entry_options::id_kind::name;
  for (const auto& options : {entry_options(), transposed, names}) {
    const auto expected = load_entries(1, text, options);
    for (const std::size_t workers : {1, 2, 4}) EXPECT_EQ(load_entries(workers, binary, options), expected);
  }
}

TEST_F(BinaryForms, EntriesWithoutValues) {
  const auto binary = folder_.write("entries", npy(3, 2, {1, 2, 3, 4, 1, 3}));
  EXPECT_EQ(load_entries(2, binary), (entries{{"1", "2", 1}, {"1", "3", 1}, {"3", "4", 1}}));
  entry_options needed;
  needed.values = entry_options::value_rule::need;
  EXPECT_THROW(load_entries(1, binary, needed), data_error);
}

TEST_F(BinaryForms, RowsWithoutEntries) {
  entry_options options;
  options.rows_also = {folder_.write("rows", npy(3, 1, {8, 1, 0}))};
  const auto binary = folder_.write("entries", npy(1, 3, {1, 2, 3}));
  for (const std::size_t workers : {1, 2}) {
    cluster job({.workers = workers});
    job.run([&](Comm comm) {
      const auto part = load_sparse(comm, {binary}, options);
      const auto rows = all_row_ids(comm, part);
      ASSERT_EQ(rows.size(), 3U);
      EXPECT_EQ(rows.text(2), "8");
    });
  }
}

TEST_F(BinaryForms, EntriesThatAreNone) {
  const auto expect_refused_entries = [&](const std::string& bytes, const std::string& what,
                                          const entry_options& options = {}) {
    const auto file = folder_.write("wrong", bytes);
    try {
      (void)load_entries(1, file, options);
      ADD_FAILURE() << "accepted, want: " << what;
    } catch (const data_error& e) {
      EXPECT_THAT(e.what(), HasSubstr(file + ":"));
      EXPECT_THAT(e.what(), HasSubstr(what));
    }
  };
  expect_refused_entries(npy(1, 4, {1, 2, 3, 4}), "found 4 columns, want row, column and, optional, value");
  expect_refused_entries(npy(2, 2, {1, 2, 1.5, 2}), ":2:1: found 1.5, want an id: a whole number from 0 to 2^53");
  expect_refused_entries(npy(1, 2, {1, -2}), ":1:2: found -2, want an id");
  expect_refused_entries(npy(1, 3, {1, 2, std::numeric_limits<double>::quiet_NaN()}),
                         ":1:3: found nan, want a finite number");
  entry_options positive;
  positive.non_negative = true;
  expect_refused_entries(npy(1, 3, {1, 2, -1}), ":1:3: found -1, want a number of at least 0", positive);
}

TEST_F(BinaryForms, FilesInMemory) {
  const auto bytes = csr().bytes();
  const std::string name = "memory:binary_forms_test";
  const auto read = [bytes](std::uint64_t offset, std::span<char> to) {
    std::memcpy(to.data(), bytes.data() + offset, to.size());
  };
  EXPECT_THROW((void)read_samples({name}), data_error);
  storage::add_memory_file(name, {bytes.size(), read});
  EXPECT_THROW(storage::add_memory_file(name, {bytes.size(), read}), error);
  EXPECT_THROW(storage::add_memory_file("no_prefix", {bytes.size(), read}), error);
  const auto expected = load(1, folder_.write("rows", bytes));
  for (const std::size_t workers : {1, 3}) expect_same(load(workers, name), expected);
  storage::remove_memory_file(name);
  EXPECT_THROW((void)read_samples({name}), data_error);
}

}  // namespace
}  // namespace paracel::test
