// SPDX-License-Identifier: BSD-3-Clause
//
// Rows of an id and numbers, read from one text and by several workers.
#include <paracel/dense_rows.hpp>

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include <paracel/error.hpp>

#include "test/support/cluster.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel {
namespace {

using test::cluster;

std::string error_of(const std::string& text, const vector_options& options = {}) {
  try {
    parse_vectors("f", text, options);
  } catch (const data_error& e) {
    return e.what();
  }
  return "";
}

TEST(ParseVectors, AcceptsParacelsFormsAndOthers) {
  const std::vector<double> expected{0.25, -1.5, 3, 1, 2, 3};
  for (const std::string text : {"7\t0.25|-1.5|3\n8\t1|2|3\n", "7,0.25,-1.5,3\r\n\n8,1,2,3", "7 0.25 -1.5 3\n8 1 2 3\n",
                                 "7;0.25;-1.5;3\n8;1;2;3\n", "7\t0.25,-1.5,3\n \n8\t1,2,3\n"}) {
    const auto rows = parse_vectors("f", text);
    EXPECT_EQ(rows.columns, 3U);
    EXPECT_EQ(rows.value, expected) << text;
    EXPECT_EQ(rows.ids, id_list(std::vector<std::uint64_t>{7, 8}));
  }
}

TEST(ParseVectors, AHeaderIsALineThatAloneHasNoNumbers) {
  for (const std::string text :
       {"id,x,y\n7,1,2\n", "\xef\xbb\xbf\n\"id\"\t\"x\"\t\"y\"\r\n7\t1\t2\r\n", ",x,y\n7,1,2"}) {
    const auto rows = parse_vectors("f", text);
    EXPECT_EQ(rows.ids, id_list(std::vector<std::uint64_t>{7})) << text;
    EXPECT_EQ(rows.value, (std::vector<double>{1, 2}));
  }
  EXPECT_EQ(error_of("id,x\n1,2\n", {.header = entry_options::header_rule::no}),
            "f:1:4: found \"x\", want a finite number");
  EXPECT_EQ(parse_vectors("f", "0,1\n7,8\n", {.header = entry_options::header_rule::yes}).value,
            std::vector<double>{8});
  EXPECT_EQ(error_of("7,x\n8,1\n"), "f:1:3: found \"x\", want a finite number");
  EXPECT_EQ(error_of("id,x\n"), "f:1:1: found no line, want an id and numbers");
}

TEST(ParseVectors, NumbersAndQuotesAreThoseOfOtherText) {
  const auto rows = parse_vectors("f", "\"a,1\",+1,1e-400,\"2.5\"\n \"b \"\"c\"\"\" ; 1 ;\t2;3 \n\"d,1,2,3\n");
  EXPECT_EQ(rows.ids.text(0) + rows.ids.text(1) + rows.ids.text(2), "a,1b \"c\"\"d");
  EXPECT_EQ(rows.value, (std::vector<double>{1, 0, 2.5, 1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(parse_vectors("f", "a|b,1,2\n").ids.text(0), "a|b");
  EXPECT_EQ(parse_vectors("f", "a|1|2\n").columns, 2U);
}

TEST(ParseVectors, WithoutIdsAndTheLastField) {
  vector_options options;
  options.with_ids = false;
  options.skip_last = true;
  for (const std::string text : {"1,2,grey\n3,4,\n", "1 2  5\n3 4 6 \n", "x,y,kind\n1,2,\"a,b\"\n3,4,c"}) {
    const auto rows = parse_vectors("f", text, options);
    EXPECT_EQ(rows.value, (std::vector<double>{1, 2, 3, 4})) << text;
    EXPECT_EQ(rows.ids, id_list(std::vector<std::uint64_t>{0, 1})) << text;
  }
  EXPECT_EQ(error_of("5\n", options), "f:1:1: found no number");
}

TEST(ParseVectors, IdsAreNumbersIfAllAreAndNamesOtherwise) {
  EXPECT_EQ(parse_vectors("f", "18446744073709551615,1\n").ids.number(0), 18446744073709551615U);
  const auto names = parse_vectors("f", "5,1\nAL,2\n007,3\n").ids;
  EXPECT_FALSE(names.numeric());
  EXPECT_EQ(names.text(0) + names.text(1) + names.text(2), "5AL007");
  EXPECT_FALSE(parse_vectors("f", "18446744073709551616,1\n").ids.numeric());
  EXPECT_FALSE(parse_vectors("f", "07,1\n").ids.numeric());
}

TEST(ParseVectors, SaysWhereSomethingIsWrong) {
  EXPECT_EQ(error_of("1\t2|3\n4\t5\n"), "f:2:1: found 1 numbers, want 2");
  EXPECT_EQ(error_of("1\t2|x\n"), "f:1:5: found \"x\", want a finite number");
  EXPECT_EQ(error_of("1\t2|nan\n"), "f:1:5: found \"nan\", want a finite number");
  EXPECT_EQ(error_of("1\t2|3y\n"), "f:1:5: found \"3y\", want a finite number");
  EXPECT_EQ(error_of("1\t2|\n"), "f:1:5: found \"\", want a finite number");
  EXPECT_EQ(error_of("\n\t2|3\n"), "f:2:1: found no id, want an id and numbers");
  EXPECT_EQ(error_of("1\n"), "f:1:1: found an id alone, want an id and numbers");
  EXPECT_EQ(error_of("\n \n"), "f:1:1: found no line, want an id and numbers");
  EXPECT_EQ(error_of("1\t2\n", {.columns = 2}), "f:1:1: found 1 numbers, want 2");
}

class LoadVectors : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(folder_ / "rows", std::ios::binary) << text;
    return (folder_ / "rows").string();
  }
  const test::temporary_folder folder_{"load_vectors_"};
};

TEST_F(LoadVectors, IsTheSameForAnyNumberOfWorkers) {
  for (const std::string last : {"1000", "last"}) {  // with a name among the ids, on one worker only
    std::string text;
    for (int i = 0; i < 40; ++i)
      text += std::to_string(i) + "\t" + std::to_string(i) + ".5|" + std::to_string(-i) + "\n";
    text += last + "\t1|2\n";
    const auto file = write(text);
    const auto whole = parse_vectors(file, text);
    for (const std::size_t workers : {1U, 2U, 3U, 5U, 9U}) {
      for (const bool everywhere : {false, true}) {
        cluster job({.workers = workers});
        std::vector<vector_rows> parts(workers);
        job.run([&](Comm comm) {
          parts[comm.get_rank()] = load_vectors(comm, {file}, {.columns = 0, .everywhere = everywhere});
        });
        std::uint64_t at = 0;
        for (const auto& p : parts) {
          EXPECT_EQ(p.columns, 2U);
          EXPECT_EQ(p.rows_total, 41U);
          EXPECT_EQ(p.first_row, everywhere ? 0 : at);
          EXPECT_EQ(p.ids.numeric(), whole.ids.numeric());
          if (everywhere) at = 0;
          for (std::size_t i = 0; i < p.rows(); ++i, ++at) {
            EXPECT_EQ(p.ids.text(i), whole.ids.text(at));
            EXPECT_EQ(p.row(i)[0], whole.row(at)[0]);
            EXPECT_EQ(p.row(i)[1], whole.row(at)[1]);
          }
        }
        EXPECT_EQ(at, 41U);
      }
    }
  }
}

TEST_F(LoadVectors, TheSecondOfTwoIdsIsNamedAndAHeaderIsReadOnce) {
  const auto file = write("id,x\n1,2\n2,3\n\n3,4\n2,5\n1,6\n");
  for (const std::size_t workers : {1U, 2U, 3U, 7U}) {
    cluster job({.workers = workers});
    job.run([&](Comm comm) {
      EXPECT_EQ(load_vectors(comm, {file}).rows_total, 5U);
      try {
        load_vectors(comm, {file}, {.distinct_ids = true});
        ADD_FAILURE();
      } catch (const data_error& e) {
        EXPECT_EQ(e.what(), file + ":6:1: found the id \"2\" of an earlier row, want a different id for each row");
      }
    });
  }
}

TEST_F(LoadVectors, EveryWorkerSaysTheSameError) {
  const auto file = write("1\t2|3\n2\t3|4\n3\t4|5|6\n");
  for (const std::size_t workers : {1U, 3U}) {
    cluster job({.workers = workers});
    std::vector<std::string> said(workers);
    job.run([&](Comm comm) {
      try {
        load_vectors(comm, {file});
      } catch (const data_error& e) {
        said[comm.get_rank()] = e.what();
      }
    });
    for (const auto& s : said) EXPECT_EQ(s, file + ":3:1: found 3 numbers, want 2");
  }
}

}  // namespace
}  // namespace paracel
