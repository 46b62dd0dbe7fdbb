// SPDX-License-Identifier: BSD-3-Clause
//
// Samples read by several workers: the same rows in the same order for any number of workers, and one error for all.
#include <paracel/paralg.hpp>
#include <paracel/samples.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <vector>

#include "test/support/cluster.hpp"
#include "test/support/compressed.hpp"
#include "test/support/temporary_folder.hpp"

namespace {

using paracel::sample_options;
using paracel::sample_rows;
using paracel::test::cluster;
using paracel::test::gzip;

class LoadSamples : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const { return folder_.write(name, text); }

  /// The samples of all workers, merged.
  static sample_rows load(std::size_t workers, const std::vector<std::string>& names, const sample_options& options) {
    cluster job({.workers = workers});
    std::vector<sample_rows> parts(workers);
    job.run([&](paracel::Comm comm) { parts[comm.get_rank()] = paracel::load_samples(comm, names, options); });
    sample_rows all = parts[0];
    for (std::size_t w = 0; w < workers; ++w) {
      const auto& p = parts[w];
      EXPECT_EQ(p.columns, all.columns);
      EXPECT_EQ(p.dense, all.dense);
      EXPECT_EQ(p.names, all.names);
      EXPECT_EQ(p.classes, all.classes);
      EXPECT_EQ(p.rows_total, all.rows_total);
      if (w == 0) continue;
      EXPECT_EQ(p.first_row, all.row_count);
      all.row_count += p.row_count;
      for (std::size_t i = 1; i < p.row_begin.size(); ++i) all.row_begin.push_back(all.value.size() + p.row_begin[i]);
      all.column.insert(all.column.end(), p.column.begin(), p.column.end());
      all.value.insert(all.value.end(), p.value.begin(), p.value.end());
      all.label.insert(all.label.end(), p.label.begin(), p.label.end());
    }
    EXPECT_EQ(all.row_count, all.rows_total);
    return all;
  }

  /// The error on every worker; fails if they differ.
  static std::string error_of(std::size_t workers, const std::vector<std::string>& names,
                              const sample_options& options = {}) {
    cluster job({.workers = workers});
    std::mutex mutex;
    std::vector<std::string> said;
    job.run([&](paracel::Comm comm) {
      try {
        paracel::load_samples(comm, names, options);
      } catch (const paracel::data_error& e) {
        const std::lock_guard lock(mutex);
        said.emplace_back(e.what());
      }
    });
    EXPECT_EQ(said.size(), workers);
    for (const auto& s : said) EXPECT_EQ(s, said.front());
    return said.empty() ? "accepted" : said.front();
  }

  const paracel::test::temporary_folder folder_{"load_samples_"};
};

TEST_F(LoadSamples, RowsAreThoseOfTheFileWhateverTheNumberOfWorkers) {
  std::string text;
  for (int i = 0; i < 97; ++i)
    text += std::to_string(i) + ".5 1:" + std::to_string(i) + " " + std::to_string(i % 7 + 2) + ":1\n";
  const auto name = write("a.libsvm", text);
  sample_options real;
  real.label = sample_options::label_rule::real;
  const auto one = load(1, {name}, real);
  EXPECT_EQ(one.rows_total, 97U);
  EXPECT_EQ(one.columns, 8U);
  EXPECT_EQ(one.label[96], 96.5);
  for (const std::size_t workers : {2U, 3U, 5U}) {
    const auto many = load(workers, {name}, real);
    EXPECT_EQ(many.value, one.value);
    EXPECT_EQ(many.column, one.column);
    EXPECT_EQ(many.row_begin, one.row_begin);
    EXPECT_EQ(many.label, one.label);
  }
}

TEST_F(LoadSamples, FloatsAreDenseAndNumberedFieldsAreCheckedByAllWorkers) {
  const auto name = write("wide.libsvm", "1 1:2 2:0.5\n0 3:4\n2 4:1.5\n");
  sample_options o;
  o.label = sample_options::label_rule::real;
  o.floats = true;
  o.weight = "1";
  for (const std::size_t workers : {1U, 2U, 5U}) {
    cluster job({.workers = workers});
    std::vector<sample_rows> parts(workers);
    job.run([&](paracel::Comm comm) { parts[comm.get_rank()] = paracel::load_samples(comm, {name}, o); });
    std::vector<float> all;
    std::vector<double> weight;
    for (const auto& p : parts) {
      EXPECT_TRUE(p.dense);
      EXPECT_EQ(p.columns, 3U);
      all.insert(all.end(), p.floats.begin(), p.floats.end());
      weight.insert(weight.end(), p.weight.begin(), p.weight.end());
    }
    EXPECT_EQ(all, (std::vector<float>{2, 0, 0, 0, 4, 0, 0, 0, 1.5}));
    EXPECT_EQ(weight, (std::vector<double>{0.5, 0, 0}));
  }
  o.categorical = {"4"};
  EXPECT_EQ(error_of(3, {name}, o), name + ": found 3 features, want at least 4: that one is categorical");
  o.categorical = {};
  o.weight = "6";
  EXPECT_EQ(error_of(3, {name}, o), name + ": found no weight above 0 in field 6, index 7, want at least one");
}

TEST_F(LoadSamples, AFileSmallerThanTheNumberOfWorkersLoads) {
  const auto name = write("tiny", "1,1\n");
  for (const std::size_t workers : {1U, 2U, 3U, 5U}) EXPECT_EQ(load(workers, {name}, {}).value, std::vector<double>{1});
}

TEST_F(LoadSamples, EveryWorkerHasTheErrorOfTheFirstRank) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += i == 17 || i == 35 ? "x,1\n" : "1,1\n";
  const auto name = write("bad.csv", text);
  for (const std::size_t workers : {1U, 2U, 3U, 5U}) {
    EXPECT_EQ(error_of(workers, {name}), name + ":18:1: found \"x\", want a number");
  }
  EXPECT_EQ(error_of(3, {name + "x"}), name + "x: no such file or folder");
  const auto labels = write("labels", "-1 1:1\n-1 1:1\n0 1:1\n0 1:1\n");
  EXPECT_EQ(error_of(2, {labels}), labels + ": found labels 0 and -1, want 0 and 1, or -1 and +1");
}

TEST_F(LoadSamples, AHeaderOfEveryFileIsLeftOutEvenBehindBlankLines) {
  const auto a = write("a.csv", "\n\n\n\n\n\n\n\nx;y;t\r\n1;2;3\r\n4;5;6\r\n");
  const auto b = write("b.csv", "x;y;t\n7;8;9");
  sample_options real;
  real.label = sample_options::label_rule::real;
  for (const std::size_t workers : {1U, 2U, 3U, 5U}) {
    const auto rows = load(workers, {a, b}, real);
    EXPECT_EQ(rows.value, (std::vector<double>{1, 2, 4, 5, 7, 8}));
    EXPECT_EQ(rows.label, (std::vector<double>{3, 6, 9}));
    EXPECT_EQ(rows.names, (std::vector<std::string>{"x", "y"}));
  }
}

TEST_F(LoadSamples, CompressedAndPlainFilesTogetherAreTheSameRows) {
  std::vector<std::string> names;
  std::vector<double> values;
  for (int f = 0; f < 7; ++f) {
    std::string text = "x,y\n";
    for (int i = 0; i < 5 + 40 * (f % 3); ++i) {
      values.push_back(f * 1000 + i);
      text += std::to_string(f * 1000 + i) + ",0\n";
    }
    names.push_back(write(std::to_string(f) + (f % 2 == 0 ? ".csv" : ".csv.gz"), f % 2 == 0 ? text : gzip(text)));
  }
  for (const std::size_t workers : {1U, 2U, 3U, 5U}) EXPECT_EQ(load(workers, names, {}).value, values);

  const auto bytes = gzip("1,0\n2,0\n");
  const auto cut = write("cut.csv.gz", bytes.substr(0, bytes.size() - 9));
  for (const std::size_t workers : {1U, 2U, 3U, 5U}) {
    EXPECT_EQ(error_of(workers, {names[0], cut}),
              cut + ": byte " + std::to_string(bytes.size() - 9) + ": the gzip data is cut off");
  }
}

TEST_F(LoadSamples, AMatrixOfNumPyIsSpreadByRows) {
  std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (9, 2), }";
  header.resize(117, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\0", 8);
  bytes += {static_cast<char>(header.size()), '\0'};
  bytes += header;
  std::vector<double> values;
  for (std::int32_t i = 0; i < 18; ++i) {
    values.push_back(i);
    bytes.append(reinterpret_cast<const char*>(&i), sizeof i);
  }
  const auto name = write("a.npy", bytes);
  sample_options none;
  none.label = sample_options::label_rule::none;
  for (const std::size_t workers : {1U, 2U, 3U, 5U}) EXPECT_EQ(load(workers, {name}, none).value, values);
  const auto text = write("b.csv", "1,2\n");
  for (const std::size_t workers : {1U, 3U}) {
    EXPECT_EQ(error_of(workers, {name, text}, none),
              text + ": found no .npy header, want one: the first file is an .npy file");
  }
}

TEST_F(LoadSamples, WorkersAgreeOnClassesThatTheyDoNotAllSee) {
  std::string text;
  for (int i = 0; i < 90; ++i) text += "1," + std::string(i < 30 ? "pear" : i < 60 ? "apple" : "fig") + "\n";
  sample_options options;
  options.label = sample_options::label_rule::classes;
  const auto name = write("classes.csv", text);
  const auto one = load(1, {name}, options);
  EXPECT_EQ(one.classes, (std::vector<std::string>{"apple", "fig", "pear"}));
  for (const std::size_t workers : {2U, 3U, 5U}) {
    const auto many = load(workers, {name}, options);
    EXPECT_EQ(many.classes, one.classes);
    EXPECT_EQ(many.label, one.label);
  }
  options.classes = {"pear", "apple"};
  EXPECT_EQ(error_of(3, {name}, options), name + ":61:3: found label \"fig\", want a class of the model: pear, apple");
}

TEST_F(LoadSamples, StandardInputIsTheFirstWorkersAndTheOthersKnowItsColumns) {
  std::string text = "t;a;b\n";
  for (int i = 0; i < 300; ++i) text += std::to_string(i) + ";1;2\n";
  for (const std::size_t workers : {1U, 3U}) {
    const auto name = write("stdin" + std::to_string(workers), text);
    const int file = ::open(name.c_str(), O_RDONLY);
    const int kept = ::dup(0);
    ::dup2(file, 0);
    ::close(file);
    sample_options named;
    named.label = sample_options::label_rule::real;
    named.target = "t";
    named.features = {"b", "a"};
    const auto rows = load(workers, {"-"}, named);
    ::dup2(kept, 0);
    ::close(kept);
    EXPECT_EQ(rows.rows_total, 300U);
    EXPECT_EQ(rows.columns, 2U);
    EXPECT_EQ(rows.names, named.features);
    EXPECT_EQ(rows.label[299], 299);
  }
}

TEST_F(LoadSamples, LinesOfAnAlgorithmComeThroughTheSameDoor) {
  const auto packed = write("lines.gz", gzip("one\ntwo\n"));
  const auto plain = write("lines", "three\r\n\nfive");
  const std::vector<std::string> want{"one", "two", "three", "", "five"};
  cluster job({.workers = 3});
  std::vector<std::vector<std::string>> part(3);
  std::vector<std::vector<std::string>> handled(3);
  const auto name = write("stdin", "a\nb\n");
  const int file = ::open(name.c_str(), O_RDONLY);
  const int kept = ::dup(0);
  ::dup2(file, 0);
  ::close(file);
  job.run([&](paracel::Comm comm) {
    paracel::paralg a("", comm, "", 1, 0, true);
    const std::vector<std::string> names{packed, plain};
    const auto rank = comm.get_rank();
    part[rank] = a.paracel_load(names);
    a.paracel_load_handle(names, [&](const std::string& line) { handled[rank].push_back(line); });
    EXPECT_EQ(a.paracel_loadall(names), want);
    EXPECT_EQ(a.paracel_loadall(std::string("-")), (std::vector<std::string>{"a", "b"}));
    std::vector<std::string> all;
    a.paracel_sequential_loadall(
        names, [&](std::vector<std::string>& lines) { all.insert(all.end(), lines.begin(), lines.end()); });
    EXPECT_EQ(all, want);
  });
  ::dup2(kept, 0);
  ::close(kept);
  EXPECT_EQ(handled, part);
  std::vector<std::string> all;
  for (const auto& p : part) all.insert(all.end(), p.begin(), p.end());
  EXPECT_EQ(all, want);
}

TEST_F(LoadSamples, StandardInputIsThePartOfWorkerZeroOnEveryWorker) {
  const auto name = write("stdin", "a\n\nb\n");
  const int file = ::open(name.c_str(), O_RDONLY);
  const int kept = ::dup(0);
  ::dup2(file, 0);
  ::close(file);
  cluster job({.workers = 3});
  job.run([&](paracel::Comm comm) {
    paracel::paralg a("", comm, "", 1, 0, true);
    std::vector<std::vector<std::string>> parts;
    a.paracel_sequential_loadall(std::string("-"), [&](std::vector<std::string>& lines) { parts.push_back(lines); });
    EXPECT_EQ(parts, (std::vector<std::vector<std::string>>{{"a", "", "b"}, {}, {}}));
  });
  ::dup2(kept, 0);
  ::close(kept);
}

}  // namespace
