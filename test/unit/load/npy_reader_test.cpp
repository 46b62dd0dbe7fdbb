// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/npy_reader.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "paracel/error.hpp"
#include "test/support/temporary_folder.hpp"

namespace {

using paracel::sample_options;

template <class T>
std::string npy(const std::string& type, const std::string& shape, const std::vector<T>& values,
                const char* order = "False", char major = 1) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  const std::size_t before = major == 1 ? 10 : 12;
  header.resize((before + header.size() + 64) / 64 * 64 - before, ' ');
  header.back() = '\n';
  std::string file = "\x93NUMPY";
  file += {major, '\0', static_cast<char>(header.size() & 255U), static_cast<char>(header.size() >> 8U)};
  if (major > 1) file += std::string(2, '\0');
  file += header;
  file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return file;
}

class NpyReader : public ::testing::Test {
 protected:
  NpyReader() { options_.label = sample_options::label_rule::none; }

  std::string write(const std::string& bytes, const std::string& name = "a.npy") {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return (folder_ / name).string();
  }
  /// The error message, without the folder.
  std::string error_of(const std::string& bytes) {
    const auto path = write(bytes);
    try {
      paracel::read_samples({path}, 0, 1, options_);
    } catch (const paracel::data_error& e) {
      return std::string(e.what()).substr(path.size());
    }
    return "accepted";
  }

  const paracel::test::temporary_folder folder_{"npy_reader_"};
  sample_options options_;
};

TEST_F(NpyReader, FourTypesOneOrTwoDimensionsAndEveryVersion) {
  const std::vector<double> want{1, -2, 3, 4, 5, 6};
  EXPECT_EQ(paracel::read_samples({write(npy<double>("<f8", "(2, 3)", want))}, 0, 1, options_).value, want);
  EXPECT_EQ(paracel::read_samples({write(npy<float>("<f4", "(2, 3)", {1, -2, 3, 4, 5, 6}))}, 0, 1, options_).value,
            want);
  const auto longs = npy<std::int64_t>("<i8", "(2,3)", {1, -2, 3, 4, 5, 6});
  EXPECT_EQ(paracel::read_samples({write(longs)}, 0, 1, options_).value, want);
  const auto ints = npy<std::int32_t>("<i4", "(6,)", {1, -2, 3, 4, 5, 6}, "True", 2);
  const auto rows = paracel::read_samples({write(ints)}, 0, 1, options_);
  EXPECT_EQ(rows.value, want);
  EXPECT_EQ(rows.columns, 1U);
  EXPECT_EQ(rows.rows(), 6U);
}

TEST_F(NpyReader, TheLastColumnIsTheLabel) {
  const auto path = write(npy<double>("<f8", "(2, 3)", {1, 2, 0, 4, 5, 1}));
  options_.label = sample_options::label_rule::real;
  EXPECT_EQ(paracel::read_samples({path}, 0, 1, options_).label, (std::vector<double>{0, 1}));
  options_.label = sample_options::label_rule::binary;
  const auto rows = paracel::read_samples({path}, 0, 1, options_);
  EXPECT_EQ(rows.label, (std::vector<double>{-1, 1}));
  EXPECT_EQ(rows.value, (std::vector<double>{1, 2, 4, 5}));
  options_.without_label = true;
  options_.columns = 2;
  EXPECT_EQ(paracel::read_samples({path}, 0, 1, options_).value, (std::vector<double>{1, 2, 4, 5}));
  options_.columns = 3;
  EXPECT_EQ(paracel::read_samples({path}, 0, 1, options_).columns, 3U);
}

TEST_F(NpyReader, ColumnsAreChosenByNumberAndKeptByAModel) {
  const auto path = write(npy<double>("<f8", "(2, 4)", {0, 1, 2, 3, 4, 5, 6, 7}));
  options_.label = sample_options::label_rule::real;
  options_.target = "1";
  options_.features = {"3", "0"};
  const auto rows = paracel::read_samples({path}, 0, 1, options_);
  EXPECT_EQ(rows.value, (std::vector<double>{3, 0, 7, 4}));
  EXPECT_EQ(rows.label, (std::vector<double>{1, 5}));
  options_.fields = rows.fields;
  options_.columns = 2;
  options_.without_label = true;
  EXPECT_EQ(paracel::read_samples({path}, 0, 1, options_).value, rows.value);
  const auto two = write(npy<double>("<f8", "(1, 2)", {8, 9}), "b.npy");
  EXPECT_EQ(paracel::read_samples({two}, 0, 1, options_).value, (std::vector<double>{8, 9}));
}

TEST_F(NpyReader, AColumnIsTheWeightAndValuesMayBeMissingCategoriesAndFloats) {
  const auto file = npy<double>("<f8", "(2, 5)", {1, 0.5, NAN, 7, 0, NAN, 2, 1e300, 0, 1});
  options_.label = sample_options::label_rule::real;
  EXPECT_EQ(error_of(file), ":1:3: found nan, want a finite number");
  options_.missing = options_.floats = true;
  options_.weight = "1";
  options_.categorical = {"3", "0"};
  const auto rows = paracel::read_samples({write(file)}, 0, 1, options_);
  EXPECT_EQ(rows.weight, (std::vector<double>{0.5, 2}));
  EXPECT_EQ(rows.label, (std::vector<double>{0, 1}));
  EXPECT_EQ(rows.categorical, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_TRUE(rows.value.empty());
  ASSERT_EQ(rows.floats.size(), 6U);
  EXPECT_EQ(rows.floats[0], 1);
  EXPECT_TRUE(std::isnan(rows.floats[1]) && std::isnan(rows.floats[3]));
  EXPECT_EQ(rows.floats[4], std::numeric_limits<float>::max() / 2);
  options_.missing_as = {"-999", "7"};
  const auto numbers = paracel::read_samples({write(npy<double>("<f8", "(1, 5)", {1, 7, -999, 7, 7}))}, 0, 1, options_);
  EXPECT_TRUE(std::isnan(numbers.floats[1]) && std::isnan(numbers.floats[2]));
  EXPECT_EQ(numbers.floats[0] + numbers.weight[0] + numbers.label[0], 15);
  options_.missing_as.clear();
  EXPECT_EQ(error_of(npy<double>("<f8", "(1, 5)", {1, 0.5, 0, 7.5, 0})),
            ":1:4: found category 7.5, want an integer from 0 to 16777215");
  EXPECT_EQ(error_of(npy<double>("<f8", "(1, 5)", {1, -1, 0, 7, 0})), ":1:2: found -1, want a weight of 0 or more");
  EXPECT_EQ(error_of(npy<double>("<f8", "(1, 3)", {1, 1, 0})),
            ": found no field \"3\" in a line of 3 fields, want a number from 0, or a header with that name");
  options_.categorical = {"1"};
  EXPECT_EQ(error_of(file), ": categorical field \"1\" is not a feature");
}

TEST_F(NpyReader, AColumnIsTheGroup) {
  options_.label = sample_options::label_rule::relevance;
  options_.weight = "2";
  options_.group = "0";
  options_.categorical = {"3"};
  const auto rows = paracel::read_samples(
      {write(npy<double>("<f8", "(3, 5)", {7, 1, 2, 3, 0, 8, 4, 5, 6, 30, 7, 1, 1, 0, 2}))}, 0, 1, options_);
  EXPECT_EQ(rows.value, (std::vector<double>{1, 3, 4, 6, 1, 0}));
  EXPECT_EQ(rows.weight, (std::vector<double>{2, 5, 1}));
  EXPECT_EQ(rows.label, (std::vector<double>{0, 30, 2}));
  EXPECT_EQ(rows.categorical, (std::vector<std::uint32_t>{1}));
  ASSERT_EQ(rows.group.size(), 3U);
  EXPECT_EQ(rows.group[0], rows.group[2]);
  EXPECT_NE(rows.group[0], rows.group[1]);
  EXPECT_EQ(error_of(npy<double>("<f8", "(1, 5)", {7, 1, 2, 3.5, 0})),
            ":1:4: found category 3.5, want an integer from 0 to 16777215");
  EXPECT_EQ(error_of(npy<double>("<f8", "(1, 5)", {7, 1, 2, 3, 31})),
            ":1:5: found label 31, want an integer from 0 to 30");
  options_.weight = "0";
  EXPECT_EQ(error_of(npy<double>("<f8", "(1, 5)", {7, 1, 2, 3, 0})), ": field \"0\" is the weight and the group");
}

TEST_F(NpyReader, RanksTogetherReadEveryRowOnce) {
  std::vector<double> values(3 * 101);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) / 8;
  const auto a = write(npy<double>("<f8", "(100, 3)", {values.begin(), values.end() - 3}), "a.npy");
  const auto b = write(npy<double>("<f8", "(1, 3)", {values.end() - 3, values.end()}), "b.npy");
  for (const std::size_t size : {1U, 2U, 3U, 5U, 500U}) {
    std::vector<double> all;
    for (std::size_t r = 0; r < size; ++r) {
      const auto rows = paracel::read_samples({a, b}, r, size, options_);
      EXPECT_EQ(rows.columns, 3U);
      all.insert(all.end(), rows.value.begin(), rows.value.end());
    }
    EXPECT_EQ(all, values);
  }
}

TEST_F(NpyReader, SaysWhatIsWrong) {
  const std::vector<double> six{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(error_of(npy<double>("<f8", "(2, 3)", {1, 2, 3, 4, NAN, 6})), ":2:2: found nan, want a finite number");
  EXPECT_EQ(error_of(npy<std::int64_t>("<i8", "(1, 2)", {1, (std::int64_t{1} << 53) + 1})),
            ":1:2: found 9007199254740993, want an integer of at most 2^53, which a double represents exactly");
  EXPECT_EQ(error_of(npy<double>(">f8", "(2, 3)", six)), ": found numbers of type \">f8\", want <f8, <f4, <i8 or <i4");
  EXPECT_EQ(error_of(npy<double>("<f8", "(2, 3)", six, "True")),
            ": found an array in column order (fortran_order), want row order");
  EXPECT_EQ(error_of(npy<double>("<f8", "(1, 2, 3)", six)), ": found an array of 3 dimensions, want 1 or 2");
  EXPECT_EQ(error_of(npy<double>("<f8", "(3, 3)", six)),
            ": found 48 bytes of numbers, want 3 rows of 3 numbers of 8 bytes");
  EXPECT_EQ(error_of(npy<double>("<f8", "(18446744073709551615, 18446744073709551615)", six)).substr(0, 7), ": found");
  EXPECT_EQ(error_of(npy<double>("<f8", "(0, 3)", {})), ": found no row, want samples");
  EXPECT_EQ(error_of(npy<double>("<f8", "(2, 0)", {})), ": found rows without columns");
  const auto whole = npy<double>("<f8", "(2, 3)", six);
  EXPECT_EQ(error_of(whole.substr(0, 60)), ": the .npy header is cut off");
  for (std::size_t n = 6; n < whole.size(); ++n) EXPECT_NE(error_of(whole.substr(0, n)), "accepted");
  options_.label = sample_options::label_rule::binary;
  EXPECT_EQ(error_of(npy<double>("<f8", "(1, 2)", {1, 2})), ": found only the label 2, want two classes");
  EXPECT_EQ(error_of(npy<double>("<f8", "(2,)", {1, 0})), ": found one column, want features and a label");
}

}  // namespace
