// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/sample_parser.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "core/number_parsing.hpp"
#include "paracel/error.hpp"
#include "test/support/temporary_folder.hpp"

namespace {

using paracel::parse_samples;
using paracel::sample_options;

/// The error of a text that must be rejected.
std::string error_of(const std::string& text, const paracel::sample_options& options = {}) {
  try {
    parse_samples("f", text, options);
  } catch (const paracel::data_error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(DataReader, ReadsCsvWithItsLabelLast) {
  const auto rows = parse_samples("f", "1.5,-2,1\n.25,3e2,0\n");
  EXPECT_TRUE(rows.dense);
  EXPECT_EQ(rows.rows(), 2U);
  EXPECT_EQ(rows.columns, 2U);
  EXPECT_EQ(rows.value, (std::vector<double>{1.5, -2, .25, 300}));
  EXPECT_EQ(rows.label, (std::vector<double>{1, -1}));
}

TEST(DataReader, ReadsLibsvmAndKeepsItSparse) {
  const auto rows = parse_samples("f", "+1 1:0.5 7:2\n-1\n-1 3:1\n");
  EXPECT_FALSE(rows.dense);
  EXPECT_EQ(rows.columns, 7U);
  EXPECT_EQ(rows.row_begin, (std::vector<std::size_t>{0, 2, 2, 3}));
  EXPECT_EQ(rows.column, (std::vector<std::uint32_t>{0, 6, 2}));
  EXPECT_EQ(rows.value, (std::vector<double>{0.5, 2, 1}));
  EXPECT_EQ(rows.label, (std::vector<double>{1, -1, -1}));
}

sample_options of_classes(std::vector<std::string> known = {}) {
  sample_options o;
  o.label = sample_options::label_rule::classes;
  o.classes = std::move(known);
  return o;
}

TEST(DataReader, ClassesAreNumbersOrWords) {
  const auto numbers = parse_samples("f", "+1 1:2\n10 1:3\n-1 2:1\n1.0 1:1\n1e0 1:1\n-0 1:1\n0 1:1\n", of_classes());
  EXPECT_EQ(numbers.classes, (std::vector<std::string>{"-1", "0", "1", "10"}));
  EXPECT_EQ(numbers.label, (std::vector<double>{2, 3, 0, 2, 2, 1, 1}));
  const auto words = parse_samples(
      "f", "1,pear\n2, \"a \"\"big\"\" one\" \n3,pear\n4,10\r\n5,two words\n6,Birne\xc3\xbc", of_classes());
  EXPECT_EQ(words.classes, (std::vector<std::string>{"10", "Birne\xc3\xbc", "a \"big\" one", "pear", "two words"}));
  EXPECT_EQ(words.label, (std::vector<double>{3, 2, 3, 0, 4, 1}));
  EXPECT_EQ(words.value, (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST(DataReader, KnownClassesAreTheOnlyOnesAndKeepTheirOrder) {
  const auto rows = parse_samples("f", "b 1:1\na 2:1\nb 1:2\n", of_classes({"c", "b", "a"}));
  EXPECT_EQ(rows.classes, (std::vector<std::string>{"c", "b", "a"}));
  EXPECT_EQ(rows.label, (std::vector<double>{1, 2, 1}));
  EXPECT_EQ(error_of("1,b\n2,B\n", of_classes({"a", "b"})),
            "f:2:3: found label \"B\", want a class of the model: a, b");
}

TEST(DataReader, RefusesWhatIsNoClass) {
  EXPECT_EQ(error_of("1,a\n2,\n", of_classes()), "f:2:3: found an empty label, want a class");
  EXPECT_EQ(error_of("a 1:1\nnan 1:1\n", of_classes()), "f:2:1: found label \"nan\", want a finite number or a text");
  EXPECT_EQ(error_of("a 1:1\n1:2 2:1\n", of_classes()), "f:2:1: found \"1:2\", want a label, and index:value after it");
  for (const char* bad : {"\x01", "\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"})
    EXPECT_NE(error_of("1,a\n2,x" + std::string(bad) + "\n", of_classes()).find("want UTF-8"), std::string::npos);
  EXPECT_NE(error_of("1," + std::string(1001, 'x') + "\n", of_classes()).find("1001 bytes"), std::string::npos);
}

TEST(DataReader, ASampleWithoutFeaturesMayComeFirst) {
  const auto rows = parse_samples("f", "1\n0 2:1\n");
  EXPECT_FALSE(rows.dense);
  EXPECT_EQ(rows.label, (std::vector<double>{1, -1}));
}

TEST(DataReader, AcceptsCrlfBlankLinesBlanksAndAMissingLastLineEnd) {
  EXPECT_EQ(parse_samples("f", "\r\n 1 , 2 ,1\r\n\r\n   \t\r\n3,4,0").value, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(parse_samples("f", "\n\n1  1:2\t 3:4 \r\n\n0 2:5").value, (std::vector<double>{2, 4, 5}));
  EXPECT_EQ(parse_samples("f",
                          "\xef\xbb\xbf"
                          "1,2,1\n")
                .value,
            (std::vector<double>{1, 2}));
}

TEST(DataReader, BinaryLabelsAreAnyTwo) {
  EXPECT_EQ(parse_samples("f", "0 1:1\n1 1:1\n1.0 1:1\n").label, (std::vector<double>{-1, 1, 1}));
  EXPECT_EQ(parse_samples("f", "-1 1:1\n+1 1:1\n").label, (std::vector<double>{-1, 1}));
  EXPECT_EQ(error_of("-1 1:1\n0 1:1\n"),
            "f:2:1: found label \"0\" in an input that has label -1 too; want 0 and 1, or -1 and +1");
  EXPECT_FALSE(parse_samples("f", "+1 1:1\n01 1:1\n").has_label_zero);
  EXPECT_EQ(parse_samples("f", "1,-1\n1,1\n1,-1.0\n").label, (std::vector<double>{-1, 1, -1}));
  const auto words = parse_samples("f", "1,yes\n1,no\n1,\"yes\"\n1,yes\n");
  EXPECT_EQ(words.label, (std::vector<double>{1, -1, 1, 1}));
  EXPECT_EQ(words.classes, (std::vector<std::string>{"no", "yes"}));
  EXPECT_EQ(parse_samples("f", "2 1:1\n1 1:1\n10 1:1\n", of_classes()).label, (std::vector<double>{1, 0, 2}));
  EXPECT_EQ(parse_samples("f", "2 1:1\n1 1:1\n1 1:1\n2 1:1\n").label, (std::vector<double>{1, -1, -1, 1}));
  EXPECT_EQ(error_of("2 1:1\n1 1:1\n10 1:1\n"), "f:3:1: found label \"10\" after 2 and 1, want two classes");
  EXPECT_EQ(error_of("1,0\n1,1\n1,yes\n"), "f:3:3: found label \"yes\" after 0 and 1, want two classes");
  EXPECT_EQ(error_of("2 1:1\n"), "f: found only the label 2, want two classes");
  const std::string line(500, 'x'), cut = std::string(40, 'x') + "...";
  EXPECT_EQ(error_of("1," + line + "a\n1," + line + "b\n1,c\n"),
            "f:3:3: found label \"c\" after " + cut + " and " + cut + ", want two classes");
  EXPECT_EQ(error_of("1," + line + "\n"), "f: found only the label " + cut + ", want two classes");
  EXPECT_EQ(error_of("1,2,\n"), "f:1:5: found an empty label, want a class");
  EXPECT_EQ(error_of("nan 1:1\n"), "f:1:1: found label \"nan\", want a finite number or a text");
}

TEST(DataReader, OneLabelIsEnoughIfItIsOneZeroOrMinusOne) {
  const auto ones = parse_samples("f", "1 1:1\n+1 1:1\n");
  EXPECT_EQ(ones.label, (std::vector<double>{1, 1}));
  EXPECT_EQ(ones.classes, (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(parse_samples("f", "0 1:1\n").label, (std::vector<double>{-1}));
  EXPECT_EQ(parse_samples("f", "-1 1:1\n").classes, (std::vector<std::string>{"-1", "1"}));
}

TEST(DataReader, BinaryLabelsOfAModelAreItsClasses) {
  sample_options o;
  o.classes = {"no", "yes"};
  EXPECT_EQ(parse_samples("f", "1,yes\n1,yes\n", o).label, (std::vector<double>{1, 1}));
  EXPECT_EQ(error_of("1,1\n", o), "f:1:3: found label \"1\", want a class of the model: no, yes");
  // Both forms of the usual labels, but not in one input.
  o.classes = {"0", "1"};
  EXPECT_EQ(parse_samples("f", "-1 1:1\n+1 1:1\n-1 1:1\n", o).label, (std::vector<double>{-1, 1, -1}));
  o.classes = {"-1", "1"};
  EXPECT_EQ(parse_samples("f", "0 1:1\n1 1:1\n0 1:1\n", o).label, (std::vector<double>{-1, 1, -1}));
  EXPECT_EQ(error_of("0 1:1\n-1 1:1\n", o),
            "f:2:1: found label \"-1\" in an input that has label 0 too; want 0 and 1, or -1 and +1");
}

TEST(DataReader, CommentsOfLibsvmAreSkipped) {
  const auto rows = parse_samples("f", "# SVMlight\n2 1:3 2:4 #docid = A\n #\n1 # nothing\n2 1:5\n", of_classes());
  EXPECT_EQ(rows.rows(), 3U);
  EXPECT_EQ(rows.value, (std::vector<double>{3, 4, 5}));
}

TEST(DataReader, SaysWhereAWordStandsForANumber) {
  EXPECT_EQ(error_of("1,2,1\n3,abc,0\n"), "f:2:3: found \"abc\", want a number");
  EXPECT_EQ(error_of("1,,1\n"), "f:1:3: found \"\", want a number");
  EXPECT_EQ(error_of("1,2x,1\n"), "f:1:3: found \"2x\", want a number");
  EXPECT_EQ(error_of("1,0x10,1\n"), "f:1:3: found \"0x10\", want a number");
  EXPECT_EQ(error_of("1,+-2,1\n"), "f:1:3: found \"+-2\", want a number");
  EXPECT_EQ(error_of("1,2 3,1\n"), "f:1:5: found \"3\" after a number, want a comma");
  EXPECT_EQ(error_of("1 1:x\n"), "f:1:5: found \"x\", want a number");
  EXPECT_EQ(error_of("1 1:\n"), "f:1:5: found \"\", want a number");
  EXPECT_EQ(error_of("1 1:2\n1 1:2,3:4\n"), "f:2:5: found \"2,3:4\", want a number");
  EXPECT_EQ(error_of("1 1:2 junk\n"), "f:1:7: found \"junk\", want index:value");
  EXPECT_EQ(error_of("1 1:2 5\n"), "f:1:7: found \"5\", want index:value");
  EXPECT_EQ(error_of("1 qid:3 1:2\n"),
            "f:1:3: found \"qid:3\", want index:value; gbdt reads groups, with \"group\": \"qid\"");
  EXPECT_EQ(error_of("1 -1:2\n"), "f:1:3: found \"-1:2\", want index:value");
  EXPECT_EQ(error_of(std::string("1,\0,1\n", 6)), "f:1:3: found \"\\x00\", want a number");
}

TEST(DataReader, RefusesWhatIsNotFinite) {
  for (const std::string word : {"nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e999", "-1e999"}) {
    EXPECT_EQ(error_of("1," + word + ",1\n"), "f:1:3: found \"" + word + "\", want a finite number");
    EXPECT_EQ(error_of("1 1:" + word + "\n"), "f:1:5: found \"" + word + "\", want a finite number");
  }
  EXPECT_EQ(parse_samples("f", "1e-999,4.9e-324,1\n").value, (std::vector<double>{0, 4.9e-324}));
}

TEST(DataReader, RefusesARowOfAnotherWidth) {
  EXPECT_EQ(error_of("1,2,3,1\n1,2,1\n"), "f:2:6: found 3 fields, want 4 as in the first line");
  EXPECT_EQ(error_of("1,2,1\n1,2,1,0\n"), "f:2:6: found 4 fields, want 3 as in the first line");
  EXPECT_EQ(error_of("1,2,1\n1,2,7,1\n"), "f:2:6: found 4 fields, want 3 as in the first line");
  EXPECT_EQ(error_of("1,2,1\n1,2,1,\n"), "f:2:6: found 4 fields, want 3 as in the first line");
  EXPECT_EQ(error_of("1,2,1\n7\n"), "f:2:2: found 1 field, want 3 as in the first line");
}

TEST(DataReader, RefusesIndicesThatAreZeroOutOfOrderOrBeyondTheLimit) {
  EXPECT_EQ(error_of("1 0:1\n"), "f:1:3: found index 0, want 1 or more");
  EXPECT_EQ(error_of("1 3:1 2:1\n"), "f:1:7: found index 2 after 3, want increasing indices");
  EXPECT_EQ(error_of("1 3:1 3:1\n"), "f:1:7: found index 3 after 3, want increasing indices");
  EXPECT_EQ(error_of("1 134217729:1\n"), "f:1:3: found index 134217729, want at most 134217728");
  EXPECT_EQ(parse_samples("f", "1 134217728:1\n").column, (std::vector<std::uint32_t>{134217727U}));
  paracel::sample_options ten;
  ten.index_limit = 10;
  EXPECT_EQ(error_of("1 11:1\n", ten), "f:1:3: found index 11, want at most 10");
  EXPECT_EQ(error_of("1 99999999999999999999:1\n"), "f:1:3: found \"99999999999999999999:1\", want index:value");
}

TEST(DataReader, AnEmptyInputIsAnError) {
  EXPECT_EQ(error_of(""), "f:1:1: found no line, want samples");
  EXPECT_EQ(error_of("\n \r\n\t\n"), "f:1:1: found no line, want samples");
  EXPECT_EQ(error_of("x,y\n"), "f: found no row, want samples");
  EXPECT_EQ(error_of("# nothing\n# 1 1:2\n", of_classes()), "f: found no row, want samples");
}

TEST(DataReader, KnownColumnsFixTheWidthOfCsvAndCutLibsvm) {
  paracel::sample_options two;
  two.columns = 2;
  EXPECT_EQ(parse_samples("f", "1 1:1 2:2 9:9\n", two).value, (std::vector<double>{1, 2}));
  EXPECT_EQ(parse_samples("f", "1 1:1\n", two).columns, 2U);
  EXPECT_EQ(error_of("1,2,3,1\n", two), "f:1:1: found 4 fields in the first line, want 3: 2 features and a label");
}

TEST(DataReader, InputToPredictMayLackTheLabelOrHaveAnything) {
  paracel::sample_options predict;
  predict.columns = 2;
  predict.without_label = true;
  for (const auto* text : {"1,2\n3,4\n", "1,2,1\n3,4,what\n"}) {
    const auto rows = parse_samples("f", text, predict);
    EXPECT_EQ(rows.value, (std::vector<double>{1, 2, 3, 4}));
    EXPECT_TRUE(rows.label.empty());
    EXPECT_EQ(rows.rows(), 2U);
  }
  EXPECT_EQ(parse_samples("f", "1:5\n-1 2:6\n", predict).value, (std::vector<double>{5, 6}));
  EXPECT_EQ(error_of("1,2,3,4\n", predict),
            "f:1:1: found 4 fields in the first line, want 2 features, with or without a label");
}

sample_options real() {
  sample_options o;
  o.label = sample_options::label_rule::real;
  return o;
}
sample_options none() {
  sample_options o;
  o.label = sample_options::label_rule::none;
  return o;
}

TEST(DataReader, RealLabelsAreAnyFiniteNumber) {
  EXPECT_EQ(parse_samples("f", "1,2,-3.5\n4,5,1e3\n", real()).label, (std::vector<double>{-3.5, 1000}));
  EXPECT_EQ(parse_samples("f", "7 1:1\n-0.25 2:1\n", real()).label, (std::vector<double>{7, -0.25}));
  EXPECT_EQ(parse_samples("f", "1 2 3\n4  5\t6 \n", real()).label, (std::vector<double>{3, 6}));
  EXPECT_EQ(error_of("1,2,x\n", real()), "f:1:5: found label \"x\", want a number");
  EXPECT_EQ(error_of("1,2,\n", real()), "f:1:5: found label \"\", want a number");
  EXPECT_EQ(error_of("1,2,nan\n", real()), "f:1:5: found label \"nan\", want a finite number");
  EXPECT_EQ(error_of("inf 1:1\n", real()), "f:1:1: found label \"inf\", want a finite number");
}

TEST(DataReader, WithoutLabelsEveryFieldIsAFeature) {
  for (const auto* text : {"1,2\n3,4\n", "1;2\n3;4", "1\t2\r\n3\t4\r\n", " 1 2\n3\t 4 \n"}) {
    const auto rows = parse_samples("f", text, none());
    EXPECT_TRUE(rows.dense);
    EXPECT_EQ(rows.value, (std::vector<double>{1, 2, 3, 4})) << text;
    EXPECT_TRUE(rows.label.empty());
  }
  EXPECT_EQ(parse_samples("f", "5\n6\n", none()).value, (std::vector<double>{5, 6}));
  EXPECT_EQ(parse_samples("f", "5\n6 1:7\n", none()).value, (std::vector<double>{7}));
  EXPECT_EQ(parse_samples("f", "doc 1:2\n \n\n", none()).rows(), 1U);
  EXPECT_EQ(parse_samples("f", "doc 1:2\n3:4\n", none()).value, (std::vector<double>{2, 4}));
}

TEST(DataReader, AHeaderNamesFieldsAndWhatIsNotNamedIsNotRead) {
  auto o = real();
  const std::string text = "day;cnt;a;\"b \"\"x\"\"; y\"\n2011-01-01;16;0.5;1\n2011-01-02;40;1.5;2\n";
  o.target = "cnt";
  o.features = {"b \"x\"; y", "a"};
  const auto rows = parse_samples("f", text, o);
  EXPECT_EQ(rows.value, (std::vector<double>{1, 0.5, 2, 1.5}));
  EXPECT_EQ(rows.label, (std::vector<double>{16, 40}));
  EXPECT_EQ(rows.names, o.features);
  EXPECT_EQ(rows.columns, 2U);

  o.features = {"a", "c"};
  EXPECT_EQ(error_of(text, o), "f:1:1: found no field \"c\" in the header, which has day, cnt, a, b \"x\"; y");
  o.features = {"a", "cnt"};
  EXPECT_EQ(error_of(text, o), "f:1:1: field \"cnt\" is the label, too");
  o.features = {"a", "a"};
  EXPECT_EQ(error_of(text, o), "f:1:1: field \"a\" is a feature twice");
  o.features = {};
  EXPECT_EQ(error_of(text, o), "f:2:1: found \"2011-01-01\", want a number");
  EXPECT_EQ(error_of("1,2\n", o), "f:1:1: found no header, want one that names \"cnt\"");
  EXPECT_EQ(error_of("a,a,cnt\n1,2,3\n",
                     [] {
                       auto twice = real();
                       twice.features = {"a"};
                       return twice;
                     }()),
            "f:1:1: found two fields \"a\" in the header");
}

TEST(DataReader, ALineIsAHeaderWhenNoneOfItsFieldsIsANumber) {
  EXPECT_EQ(parse_samples("f", "a,b\n1,0\n").names, (std::vector<std::string>{"a"}));
  EXPECT_EQ(error_of("a,2\n1,0\n"), "f:1:1: found \"a\", want a number");
  sample_options no;
  no.header = sample_options::header_rule::no;
  EXPECT_EQ(error_of("a,b\n1,0\n", no), "f:1:1: found \"a\", want a number");
  sample_options yes;
  yes.header = sample_options::header_rule::yes;
  EXPECT_EQ(parse_samples("f", "1,2\n1,0\n", yes).rows(), 1U);
  EXPECT_EQ(parse_samples("f", "\n\na,b\n\n1,0\n", yes).rows(), 1U);
}

TEST(DataReader, ALineIsAHeaderWhenItHasANameThatIsAskedFor) {
  auto o = real();
  o.target = "y";
  EXPECT_EQ(parse_samples("f", "0,1,y\n4,5,6\n", o).names, (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(error_of("0,1,z\n4,5,6\n", o), "f:1:1: found no header, want one that names \"y\"");
}

TEST(DataReader, AFirstFieldWithoutANameIsNoFeature) {
  const auto rows = parse_samples("f", ",x,y\n0,1,2\n1,3,4\n", real());
  EXPECT_EQ(rows.names, (std::vector<std::string>{"x"}));
  EXPECT_EQ(rows.value, (std::vector<double>{1, 3}));
  EXPECT_EQ(rows.label, (std::vector<double>{2, 4}));
  EXPECT_EQ(error_of("x,,y\n0,1,2\n", real()), "f:1:1: found \"x\", want a number");
}

TEST(DataReader, ColonsInFieldsMakeNoLibsvm) {
  auto o = real();
  o.features = {"1"};
  for (const auto* text : {"05:25,3,0\n05:26,4,1\n", "\"05:25\",3,0\n", "2020-01-02 05:25:00,3,0\n", "a:b;3;0\n",
                           "05:25\t3\t0\n", "time:utc,x,y\n05:25,3,0\n"})
    EXPECT_EQ(parse_samples("f", text, o).value.front(), 3) << text;
  EXPECT_EQ(parse_samples("f", "1\t1:3\t2:4\n", real()).value, (std::vector<double>{3, 4}));
}

TEST(DataReader, FilesMustHaveTheHeaderInTheSameOrder) {
  const paracel::test::temporary_folder folder("data_reader_");
  std::ofstream(folder / "a.csv") << "a,b,y\n1,2,3\n";
  std::ofstream(folder / "b.csv") << "b,a,y\n2,1,3\n";
  try {
    paracel::read_samples({folder.path()}, 0, 1, real());
    ADD_FAILURE();
  } catch (const paracel::data_error& e) {
    EXPECT_EQ(std::string(e.what()), (folder / "b.csv").string() +
                                         ":1:1: found a header that differs from the first file's, want the same "
                                         "fields in the same order");
  }
}

TEST(DataReader, AQuotedFieldMayHaveSeparatorsAndIsANumberOtherwise) {
  auto o = real();
  o.features = {"x"};
  EXPECT_EQ(parse_samples("f", "n,x,y\n\"a, \"\"b\"\"\",1,2\n\"\", 3 ,\" 4\"\n", o).value, (std::vector<double>{1, 3}));
  EXPECT_EQ(parse_samples("f", "\"1\",\"2\"\n", real()).value, (std::vector<double>{1}));
  EXPECT_EQ(error_of("\"1,5\",\"2\"\n", real()), "f:1:2: found \"1,5\", want a number");
  EXPECT_EQ(error_of("1,\"2\"x\n", real()), "f:1:6: found \"x\" after a quoted field, want a comma");
  const auto open = error_of("1,2\n3,\"4\n5\",6\n", real());
  EXPECT_TRUE(open.starts_with("f:2:3: found a quote that does not end in its line")) << open;
}

TEST(DataReader, TheSeparatorIsTheFirstLinesOrTheCallers) {
  auto o = none();
  o.separator = '|';
  EXPECT_EQ(parse_samples("f", "1|2\n", o).value, (std::vector<double>{1, 2}));
  EXPECT_EQ(error_of("1;2\n3,4\n", none()), "f:2:1: found \"3,4\", want a number");
  EXPECT_EQ(error_of("1;2\n3 4;5\n", none()), "f:2:3: found \"4\" after a number, want a semicolon");
  EXPECT_EQ(error_of("1 2\n3 4 5\n", none()), "f:2:5: found 3 fields, want 2 as in the first line");
  EXPECT_EQ(error_of("1\t2\n3\n", none()), "f:2:2: found 1 field, want 2 as in the first line");
  EXPECT_EQ(error_of("1\t2\n\t3\n", none()), "f:2:1: found \"\", want a number");
}

TEST(DataReader, RanksTogetherReadEverySampleOnceAndNameLinesOfTheWholeFile) {
  const paracel::test::temporary_folder folder("data_reader_");
  std::string text;
  for (int i = 1; i <= 500; ++i) {
    text += std::to_string(i) + "," + std::to_string(i % 2) + (i % 50 == 0 ? "\n\n" : "\n");
  }
  std::ofstream(folder / "a.csv") << text;
  std::ofstream(folder / "b.csv") << "";
  std::ofstream(folder / "c.csv") << "501,1";
  for (const std::size_t size : {1U, 3U, 8U, 1000U}) {
    std::vector<double> all;
    for (std::size_t r = 0; r < size; ++r) {
      const auto rows = paracel::read_samples({folder.path()}, r, size);
      EXPECT_TRUE(rows.dense);
      EXPECT_EQ(rows.columns, 1U);
      all.insert(all.end(), rows.value.begin(), rows.value.end());
    }
    ASSERT_EQ(all.size(), 501U);
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<double>(i + 1));
  }
  const auto bad = (folder / "bad.csv").string();
  std::ofstream(bad) << text << "oops,1\n";
  try {
    paracel::read_samples({bad}, 3, 4);
    ADD_FAILURE();
  } catch (const paracel::data_error& e) {
    EXPECT_EQ(std::string(e.what()), bad + ":511:1: found \"oops\", want a number");
  }
  EXPECT_NO_THROW(paracel::read_samples({bad}, 0, 4));
  // A rank that has no bytes of the file still knows the number of columns and rejects an empty input.
  EXPECT_THROW(paracel::read_samples({(folder / "b.csv").string()}, 1, 2), paracel::data_error);
}

TEST(DataReader, ALongFirstLineOverManyShortOnesReservesNoMoreThanTheText) {
  std::string text = "1";
  for (int i = 0; i < 100000; ++i) text += ",1";
  text += "\n";
  for (int i = 0; i < 1000000; ++i) text += "\n";
  EXPECT_EQ(parse_samples("f", text).columns, 100000U);
}

TEST(TextNumber, ReadsWhatItWritesBitForBit) {
  for (const double v : {0.1, 1.0 / 3, 1e300, 4.9e-324, -123456789.125, 1e22, 123456789012345680.0}) {
    double back = 0;
    ASSERT_TRUE(paracel::read_whole_number(paracel::number_text(v), back));
    EXPECT_EQ(back, v);
  }
  double zero = 1;
  ASSERT_TRUE(paracel::read_whole_number("-0", zero));
  EXPECT_TRUE(std::signbit(zero));
}

}  // namespace
