// SPDX-License-Identifier: BSD-3-Clause
//
// Missing values, weights, categories, floats and names of a model in samples of text.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "load/format/sample_parser.hpp"
#include "paracel/error.hpp"

namespace {

using paracel::parse_samples;
using paracel::sample_options;
using paracel::sample_rows;

using numbers = std::vector<double>;
constexpr double missing_value = -1;  // in results, so that they can be compared

sample_options real_labels() {
  sample_options o;
  o.label = sample_options::label_rule::real;
  return o;
}

sample_options with_missing() {
  auto o = real_labels();
  o.missing = true;
  return o;
}

numbers values_of(const sample_rows& rows) {
  numbers found(rows.floats.begin(), rows.floats.end());
  if (found.empty()) found = rows.value;
  for (auto& v : found) {
    if (std::isnan(v)) v = missing_value;
  }
  return found;
}

std::string refusal_of(const std::string& text, const sample_options& options) {
  try {
    parse_samples("f", text, options);
  } catch (const paracel::data_error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(SampleOptions, MissingFieldsAreNan) {
  for (const auto* field : {"", "NA", "nan", "NaN", "null", "?", " ", " NA ", "\"\"", "\"?\""}) {
    const auto text = "1,2,3\n" + std::string(field) + ",5,6\n7," + field + ",8\n";
    EXPECT_EQ(values_of(parse_samples("f", text, with_missing())), (numbers{1, 2, missing_value, 5, 7, missing_value}))
        << field;
  }
  EXPECT_EQ(values_of(parse_samples("f", "1\t2\t3\n\t5\t6\n", with_missing())), (numbers{1, 2, missing_value, 5}));
  EXPECT_EQ(values_of(parse_samples("f", "1 2 3\n4  5 6\n? 5 6\n", with_missing())),
            (numbers{1, 2, 4, 5, missing_value, 5}));
  EXPECT_EQ(refusal_of("1,2,3\n4,inf,6\n", with_missing()), "f:2:3: found \"inf\", want a finite number");
  EXPECT_EQ(refusal_of("1,2,3\n4,5,\n", with_missing()), "f:2:5: found label \"\", want a number");
  EXPECT_EQ(refusal_of("1 1:?\n", with_missing()), "f:1:5: found \"?\", want a number");
  EXPECT_EQ(refusal_of("1 2 3\n4 ? \n", with_missing()), "f:2:5: found 2 fields, want 3 as in the first line");
  // A blank line is not a row.
  EXPECT_EQ(values_of(parse_samples("f", "a\n\n5\n",
                                    [] {
                                      auto o = with_missing();
                                      o.label = sample_options::label_rule::none;
                                      return o;
                                    }())),
            numbers{5});
  EXPECT_EQ(parse_samples("f", "1\t2\t3\n\t\t\n", with_missing()).rows(), 1U);
  // A line of missing values is not a header.
  EXPECT_EQ(parse_samples("f", "NA,?,1\n1,2,3\n", with_missing()).rows(), 2U);
  EXPECT_EQ(refusal_of("NA,b,c\n1,2,3\n", with_missing()), "f:1:4: found \"b\", want a number");
}

TEST(SampleOptions, OtherSpellingsMayBeMissingValues) {
  auto o = with_missing();
  o.missing_as = {"-999", "unknown", "n/a", "1e3"};
  for (const auto* field : {"-999", "-999.0", "-9.99e2", "-999.00000000000000000", "unknown", "n/a", "1000", "NA", "",
                            "\"-999\"", " unknown "}) {
    const auto text = "1,2,3\n" + std::string(field) + ",5,6\n7," + field + ",8\n";
    EXPECT_EQ(values_of(parse_samples("f", text, o)), (numbers{1, 2, missing_value, 5, 7, missing_value})) << field;
  }
  EXPECT_EQ(values_of(parse_samples("f", "999,-998,3\n", o)), (numbers{999, -998}));
  // Not where a label is.
  EXPECT_EQ(parse_samples("f", "1,2,-999\n", o).label, numbers{-999});
  EXPECT_EQ(refusal_of("1,2,3\n1,unknown thing,3\n", o), "f:2:3: found \"unknown\", want a number");
  // A first line of them is no header.
  EXPECT_EQ(refusal_of("unknown,n/a,x\n1,2,3\n", o), "f:1:13: found label \"x\", want a number");
  EXPECT_EQ(values_of(parse_samples("f", "1 1:-999 2:5\n2 1:3 2:-999.0 \n", o)),
            (numbers{missing_value, 5, 3, missing_value}));
  o.categorical = {"0", "1"};
  EXPECT_EQ(values_of(parse_samples("f", "3,-999,1\n-999,7,1\nunknown,7,1\n1000,n/a,1\n", o)),
            (numbers{3, missing_value, missing_value, 7, missing_value, 7, missing_value, missing_value}));
  EXPECT_EQ(values_of(parse_samples("f", "1 1:-999 2:5\n", o)), (numbers{missing_value, 5}));
  o.categorical = {"0"};
  const auto words = parse_samples("f", "red,1,0\nunknown,1,0\nred,1,0\n-999,1,0\nblue,-999,0\n", o);
  EXPECT_EQ(values_of(words), (numbers{1, 1, missing_value, 1, 1, 1, missing_value, 1, 0, missing_value}));
  EXPECT_EQ(words.words.at(0), (std::vector<std::string>{"blue", "red"}));
  // Only where values may be missing.
  o = real_labels();
  o.missing_as = {"-999"};
  EXPECT_EQ(parse_samples("f", "-999,2,3\n", o).value, (numbers{-999, 2}));
}

TEST(SampleOptions, LongNumbersAreReadExactly) {
  const auto rows = parse_samples("f", "0.1234567890123456789,1e-3,1\n-12345678901234567890,+2,0\n", real_labels());
  EXPECT_EQ(rows.value, (numbers{0.1234567890123456789, 1e-3, -12345678901234567890.0, 2}));
}

TEST(SampleOptions, AFieldIsTheWeight) {
  auto o = real_labels();
  o.weight = "w";
  const auto named = parse_samples("f", "a,w,b,y\n1,0.5,2,3\n4,0,5,6\n", o);
  EXPECT_EQ(named.value, (numbers{1, 2, 4, 5}));
  EXPECT_EQ(named.weight, (numbers{0.5, 0}));
  EXPECT_EQ(named.label, (numbers{3, 6}));
  EXPECT_EQ(named.names, (std::vector<std::string>{"a", "b"}));
  o.weight = "1";
  EXPECT_EQ(parse_samples("f", "1,0.5,2,3\n", o).weight, numbers{0.5});
  const auto sparse = parse_samples("f", "3 1:1 2:0.5 4:2\n6 1:4\n7 2:3\n", o);
  EXPECT_EQ(sparse.weight, (numbers{0.5, 0, 3}));
  EXPECT_EQ(sparse.column, (std::vector<std::uint32_t>{0, 2, 0}));
  EXPECT_EQ(sparse.columns, 3U);

  EXPECT_EQ(refusal_of("1,-0.5,2,3\n", o), "f:1:3: found \"-0.5\", want a weight of 0 or more");
  EXPECT_EQ(refusal_of("1 2:-2\n", o), "f:1:5: found \"-2\", want a weight of 0 or more");
  EXPECT_EQ(refusal_of("1,x,2,3\n", o), "f:1:3: found \"x\", want a number");
  EXPECT_EQ(refusal_of("1,2\n", o), "f:1:1: found the weight where the label is, want target to name the label");
  o.weight = "4";
  EXPECT_EQ(refusal_of("1,2,3,4\n", o),
            "f:1:1: found no field \"4\" in a line of 4 fields, want a number from 0, or a header with that name");
  o.columns = 3;
  o.weight = "0";
  EXPECT_EQ(refusal_of("1,2,3,4\n", o),
            "f:1:1: found 4 fields in the first line, want 5: 3 features, a weight and a label");
}

TEST(SampleOptions, InputToPredictMayLackAWeightThatHasAName) {
  auto o = real_labels();
  o.without_label = true;
  o.columns = 2;
  o.weight = "w";
  for (const auto* text : {"a,b\n1,2\n", "a,w,b\n1,9,2\n", "a,b,w,y\n1,2,9,z\n"})
    EXPECT_EQ(parse_samples("f", text, o).value, (numbers{1, 2})) << text;
  o.weight = "1";
  EXPECT_EQ(parse_samples("f", "1,2\n", o).value, (numbers{1, 2}));
  EXPECT_EQ(parse_samples("f", "1,9,2\n", o).value, (numbers{1, 2}));
  o.columns = 1;
  o.weight.clear();
  EXPECT_EQ(parse_samples("f", "5\n6\n", o).value, (numbers{5, 6}));
}

TEST(SampleOptions, AFieldIsTheGroup) {
  auto o = real_labels();
  o.group = "q";
  const auto named =
      parse_samples("f", "a,q,b,y\n1,7,2,3\n1,7.0,2,3\n4,seven,5,6\n4, seven ,5,6\n4,\"seven\",5,6\n", o);
  EXPECT_EQ(named.value, (numbers{1, 2, 1, 2, 4, 5, 4, 5, 4, 5}));
  EXPECT_EQ(named.names, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(named.group.size(), 5U);
  EXPECT_EQ(named.group[0], named.group[1]);
  EXPECT_NE(named.group[1], named.group[2]);
  EXPECT_EQ(named.group[2], named.group[3]);
  EXPECT_EQ(named.group[2], named.group[4]);
  o.group = "qid";
  const auto sparse = parse_samples("f", "3 qid:7 1:1 4:2\n6\tqid:8\t1:4\n7 qid:+7\n", o);
  EXPECT_EQ(sparse.column, (std::vector<std::uint32_t>{0, 3, 0}));
  EXPECT_EQ(sparse.group[0], named.group[0]);
  EXPECT_EQ(sparse.group[2], named.group[0]);
  EXPECT_NE(sparse.group[1], named.group[0]);

  EXPECT_EQ(refusal_of("1 1:2\n", o), "f:1:3: found \"1:2\", want the group, qid:7");
  EXPECT_EQ(refusal_of("1qid:7 1:2\n", o), "f:1:1: found label \"1qid:7\", want a number");
  EXPECT_EQ(refusal_of("1 qid:\n", o), "f:1:7: found an empty group, want a number or a text");
  EXPECT_EQ(refusal_of("1 qid:2\n", real_labels()),
            "f:1:3: found \"qid:2\", want index:value; gbdt reads groups, with \"group\": \"qid\"");
  o.without_label = true;
  o.columns = 2;
  for (const auto* text : {"1 qid:7 1:5\n", "qid:7 1:5\n", "1:5\n"})
    EXPECT_EQ(parse_samples("f", text, o).value, numbers{5}) << text;
  o = real_labels();
  o.group = "1";
  EXPECT_EQ(refusal_of("1,,2\n", o), "f:1:3: found an empty group, want a number or a text");
  EXPECT_EQ(refusal_of("1,2\n", o), "f:1:1: found the group where the label is, want target to name the label");
  o.weight = "1";
  EXPECT_EQ(refusal_of("1,2,3\n", o), "f:1:1: field \"1\" is the weight and the group");
  o.weight = "2";
  o.columns = 3;
  EXPECT_EQ(refusal_of("1,2,3,4\n", o),
            "f:1:1: found 4 fields in the first line, want 6: 3 features, a weight, a group and a label");
}

TEST(SampleOptions, RelevancesAreIntegersUpTo30) {
  sample_options o;
  o.label = sample_options::label_rule::relevance;
  EXPECT_EQ(parse_samples("f", "1,0\n1,30.0\n2,3e0\n", o).label, (numbers{0, 30, 3}));
  for (const auto* bad : {"31", "-1", "0.5", "1e9"}) {
    EXPECT_EQ(refusal_of("1,1\n1," + std::string(bad) + "\n", o),
              "f:2:3: found label " + std::string(bad) + ", want an integer from 0 to 30");
  }
  EXPECT_EQ(refusal_of("1,x\n", o), "f:1:3: found label \"x\", want a number");
}

TEST(SampleOptions, CategoriesAreIntegers) {
  auto o = with_missing();
  o.categorical = {"2", "0"};
  const auto rows = parse_samples("f", "3,0.5,16777215,1\n,1.5,0,1\n", o);
  EXPECT_EQ(rows.categorical, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(values_of(rows), (numbers{3, 0.5, 16777215, missing_value, 1.5, 0}));
  for (const auto* bad : {"1.5", "-1.5", "16777216"})
    EXPECT_EQ(refusal_of("1,2,3,4\n" + std::string(bad) + ",2,3,4\n", o),
              "f:2:1: found category " + std::string(bad) + ", want an integer from 0 to 16777215, or a word");
  EXPECT_EQ(refusal_of("1 1:-1\n", o), "f:1:5: found category -1, want an integer from 0 to 16777215");
  EXPECT_EQ(refusal_of("1 1:0.5\n", o), "f:1:5: found category 0.5, want an integer from 0 to 16777215");
  EXPECT_EQ(parse_samples("f", "1 1:7 2:0.5\n", o).value, (numbers{7, 0.5}));
  o.categorical = {"3"};
  EXPECT_EQ(refusal_of("1,2,3,4\n", o), "f:1:1: categorical field \"3\" is not a feature");
  o.categorical = {"1"};
  EXPECT_EQ(refusal_of("red,green,blue\nblue,green,red\n", o),
            "f:1:1: found no field \"1\" in the header, which has red, green, blue; want a name, or the key header");
  o.categorical = {"c"};
  EXPECT_EQ(refusal_of("a,b\n1,2\n", o), "f:1:1: found no field \"c\" in the header, which has a, b");
}

TEST(SampleOptions, CategoriesMayBeWords) {
  auto o = with_missing();
  o.categorical = {"0", "1"};
  o.header = sample_options::header_rule::no;
  const auto rows = parse_samples("f", "12,7,0\n3,8,0\n?,9,0\nred,7,0\n12.0,8,0\n\"a \"\"b\"\"\",9,0\n 3,7,0\n", o);
  EXPECT_EQ(rows.words, (std::map<std::uint32_t, std::vector<std::string>>{{0, {"12", "3", "a \"b\"", "red"}}}));
  EXPECT_EQ(values_of(rows), (numbers{0, 7, 1, 8, missing_value, 9, 3, 7, 0, 8, 2, 9, 1, 7}));

  o.categorical.clear();
  o.words = {{0, {"blue", "red"}}, {1, {}}};
  const auto known = parse_samples("f", "red,7,0\nblue,8,0\npurple,x,0\n,9,0\n0,9,0\nred,7,0\n", o);
  EXPECT_EQ(values_of(known),
            (numbers{1, 7, 0, 8, missing_value, missing_value, missing_value, 9, missing_value, 9, 1, 7}));
  EXPECT_TRUE(known.words.empty());
  EXPECT_EQ(known.categorical, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(refusal_of("1 1:0\n", o), "f:1:1: found rows of numbers, want CSV: feature 0 of the model has words");
}

TEST(SampleOptions, IntegersBelowZeroAreWords) {
  auto o = with_missing();
  o.categorical = {"0"};
  const auto rows = parse_samples("f", "12,0\n-1,0\n3,0\n-1.0,0\n,0\n", o);
  EXPECT_EQ(rows.words, (std::map<std::uint32_t, std::vector<std::string>>{{0, {"-1", "3", "12"}}}));
  EXPECT_EQ(values_of(rows), (numbers{2, 0, 1, 0, missing_value}));
  o.words = {{0, {}}};
  EXPECT_EQ(values_of(parse_samples("f", "12,0\n-1,0\n", o)), (numbers{12, missing_value}));
}

TEST(SampleOptions, FloatsAreRoundedAndBounded) {
  auto o = real_labels();
  o.floats = true;
  const auto rows = parse_samples("f", "0.1,-1e300,0.1\n", o);
  EXPECT_TRUE(rows.value.empty());
  EXPECT_EQ(rows.floats, (std::vector<float>{0.1F, -std::numeric_limits<float>::max() / 2}));
  EXPECT_EQ(rows.label, numbers{0.1});
  const auto sparse = parse_samples("f", "1 1:0.1 3:2\n2\n", o);
  EXPECT_EQ(sparse.floats, (std::vector<float>{0.1F, 2}));
  EXPECT_EQ(sparse.row_begin, (std::vector<std::size_t>{0, 2, 2}));
}

/// What a model of these training rows knows.
sample_options model_of(const std::string& training, sample_options o) {
  const auto rows = parse_samples("train", training, o);
  o.names = rows.names;
  o.fields = rows.fields;
  o.columns = rows.columns;
  return o;
}

TEST(SampleOptions, FieldsOfAModelAreMatchedByNameWhereBothHaveAHeader) {
  auto o = model_of("b,a,y\n1,2,3\n", real_labels());
  const auto rows = parse_samples("f", "a,unread,y,b\n1,x,3,2\n", o);
  EXPECT_EQ(rows.value, (numbers{2, 1}));
  EXPECT_EQ(rows.label, numbers{3});
  EXPECT_EQ(rows.names, o.names);
  EXPECT_EQ(refusal_of("a,c,y\n1,2,3\n", o), "f:1:1: found no field \"b\" in the header, which has a, c, y");
  EXPECT_EQ(refusal_of("a,b,z\n1,2,3\n", o), "f:1:1: found no field \"y\" in the header, which has a, b, z");
  o.target = "z";
  EXPECT_EQ(parse_samples("f", "a,b,z\n1,2,4\n", o).label, numbers{4});
  o.target.clear();
  EXPECT_EQ(parse_samples("f", "3 1:2 2:1\n", o).value, (numbers{2, 1}));
  o.without_label = true;
  for (const auto* text : {"a,b\n1,2\n", "y,a,b\nx,1,2\n", "a,z,b\n1,0,2\n"})
    EXPECT_EQ(parse_samples("f", text, o).value, (numbers{2, 1})) << text;
  EXPECT_EQ(refusal_of("a,c\n1,2\n", o), "f:1:1: found no field \"b\" in the header, which has a, c");
}

TEST(SampleOptions, FieldsOfAModelKeepTheirPlacesWhereThereIsNoHeader) {
  auto o = real_labels();
  o.target = "y";
  o.features = {"c", "a"};
  o = model_of("y,a,b,c\n0,1,2,3\n", o);
  EXPECT_EQ(o.fields.features, (std::vector<std::uint32_t>{3, 1}));
  EXPECT_EQ(parse_samples("f", "9,1,x,3\n", o).value, (numbers{3, 1}));
  EXPECT_EQ(parse_samples("f", "9,1,x,3\n", o).label, numbers{9});
  EXPECT_EQ(refusal_of("1,2,3\n", o),
            "f:1:1: found 3 fields in the first line, want 4: the label of the training rows was field 0");
  o.without_label = true;
  EXPECT_EQ(parse_samples("f", "z,1,x,3\n", o).value, (numbers{3, 1}));
  EXPECT_EQ(parse_samples("f", "3,1\n", o).value, (numbers{3, 1}));

  // Without names in the model a header is not compared.
  auto plain = model_of("1,2,3\n", real_labels());
  EXPECT_EQ(parse_samples("f", "a,b,y\n4,5,6\n", plain).value, (numbers{4, 5}));
  EXPECT_EQ(refusal_of("a,b,c,y\n4,5,6,7\n", plain),
            "f:1:1: found 4 fields in the first line, want 3: 2 features and a label");
}

TEST(SampleOptions, FieldsMayBeNumbers) {
  auto o = real_labels();
  o.target = "0";
  o.features = {"3", "1"};
  for (const auto* text : {"9,1,x,3\n", "y,a,b,c\n9,1,x,3\n"}) {
    EXPECT_EQ(parse_samples("f", text, o).value, (numbers{3, 1})) << text;
    EXPECT_EQ(parse_samples("f", text, o).label, numbers{9}) << text;
  }
  o.features = {"4"};
  EXPECT_EQ(refusal_of("9,1,2,3\n", o),
            "f:1:1: found no field \"4\" in a line of 4 fields, want a number from 0, or a header with that name");
  // A name precedes a number.
  o.target = "y";
  o.features = {"1"};
  EXPECT_EQ(parse_samples("f", "1,0,y\n7,8,9\n", o).value, numbers{7});
}

TEST(SampleOptions, NamesThatAreNumbersNeedTheKeyHeader) {
  auto o = real_labels();
  o.header = sample_options::header_rule::yes;
  o = model_of("0,1,2\n4,5,6\n", o);
  EXPECT_EQ(parse_samples("f", "1,0,2\n5,4,6\n", o).value, (numbers{4, 5}));
  o.header = sample_options::header_rule::automatic;
  EXPECT_EQ(refusal_of("1,0,2\n5,4,6\n", o),
            "f:1:1: cannot tell a header from a row, because the names of the model are numbers; want the key header");
  o.header = sample_options::header_rule::no;
  EXPECT_EQ(parse_samples("f", "1,0,2\n5,4,6\n", o).rows(), 2U);
}

TEST(SampleOptions, NamesOfAModelThatAreNumbersAreNoPositions) {
  auto o = real_labels();
  o.header = sample_options::header_rule::yes;
  o = model_of("0,1,2\n4,5,6\n", o);
  EXPECT_EQ(refusal_of("1,7,2\n5,4,6\n", o), "f:1:1: found no field \"0\" in the header, which has 1, 7, 2");
  EXPECT_EQ(refusal_of("1,0,7\n5,4,6\n", o), "f:1:1: found no field \"2\" in the header, which has 1, 0, 7");
  o.without_label = true;
  EXPECT_EQ(parse_samples("f", "7,1,0\nx,5,4\n", o).value, (numbers{4, 5}));

  o = real_labels();
  o.header = sample_options::header_rule::yes;
  o.weight = "3";
  o = model_of("0,3,2,y\n4,5,6,7\n", o);
  EXPECT_EQ(refusal_of("0,2,y,9\n4,6,7,8\n", o), "f:1:1: found no field \"3\" in the header, which has 0, 2, y, 9");
}

TEST(SampleOptions, TheTargetWeightAndGroupOfAModelTellAHeader) {
  auto o = real_labels();
  o.target = "y";
  o = model_of("0,1,y\n4,5,6\n", o);
  o.target.clear();
  EXPECT_EQ(parse_samples("f", "1,0,y\n5,4,6\n", o).value, (numbers{4, 5}));
  o = real_labels();
  o.weight = "w";
  o = model_of("0,1,w,2\n4,5,6,7\n", o);
  o.weight.clear();
  o.header = sample_options::header_rule::automatic;
  EXPECT_EQ(parse_samples("f", "w,1,0,2\n6,5,4,7\n", o).value, (numbers{4, 5}));
}

TEST(SampleOptions, AWeightByNumberIsThatOfTheTrainingRows) {
  for (const auto* asked : {"2", "w"}) {
    auto o = real_labels();
    o.weight = asked;
    o.features = {"a", "b"};
    o = model_of("a,junk,w,b,y\n1,x,2,3,4\n", o);
    EXPECT_EQ(o.fields.weight, "w");
    EXPECT_EQ(o.fields.weight_at, 2U);
    for (const auto* text : {"1,x,2,3,4\n", "w,y,b,a\n2,4,3,1\n"}) {
      const auto rows = parse_samples("f", text, o);
      EXPECT_EQ(rows.value, (numbers{1, 3})) << asked << text;
      EXPECT_EQ(rows.weight, numbers{2}) << asked << text;
      EXPECT_EQ(rows.label, numbers{4}) << asked << text;
    }
    // Not field 2 of a shorter line.
    EXPECT_EQ(refusal_of("1,3,2,4\n", o),
              "f:1:1: found 4 fields in the first line, want 5: the weight of the training rows was field 2");
    EXPECT_EQ(refusal_of("a,b,y,v\n1,2,3,4\n", o), "f:1:1: found no field \"w\" in the header, which has a, b, y, v");
    o.without_label = true;
    for (const auto* text : {"1,x,2,3,4\n", "1,3\n", "1,3,4\n", "y,b,a\n9,3,1\n"})
      EXPECT_EQ(parse_samples("f", text, o).value, (numbers{1, 3})) << asked << text;
  }
  // Without names: a line of features and a label is not read from the weight's place.
  auto o = real_labels();
  o.weight = "0";
  o = model_of("9,1,2,3\n", o);
  EXPECT_EQ(parse_samples("f", "8,1,2,3\n", o).weight, numbers{8});
  o.without_label = true;
  EXPECT_EQ(parse_samples("f", "1,2,3\n", o).value, (numbers{1, 2}));
}

TEST(SampleOptions, AGroupByNumberIsThatOfTheTrainingRows) {
  auto o = real_labels();
  o.group = "1";
  o = model_of("a,q,b,y\n1,7,2,3\n", o);
  const auto seven = parse_samples("f", "1,7,2,3\n", o).group;
  EXPECT_EQ(parse_samples("f", "q,a,b,y\n7,1,2,3\n", o).group, seven);
  EXPECT_EQ(refusal_of("1,7,2,3,4\n", o),
            "f:1:1: found 5 fields in the first line, want 4: the group of the training rows was field 1");
}

TEST(SampleOptions, ATargetByNumberIsThatOfTheTrainingRows) {
  auto o = real_labels();
  o.target = "0";
  o = model_of("y,a,b\n1,2,3\n", o);
  EXPECT_EQ(parse_samples("f", "a,b,y\n2,3,1\n", o).label, numbers{1});
  o.without_label = true;
  EXPECT_EQ(parse_samples("f", "a,b\n2,3\n", o).value, (numbers{2, 3}));
}

TEST(SampleOptions, LinesLikeTheTrainingRowsAreNotTakenForLibsvm) {
  auto o = real_labels();
  o.features = {"2"};
  o.target = "3";
  // Blanks and colons in fields that are not read.
  for (const auto* text : {"a 5:25 b,x,7,8\n", "a 5:25 6:30;x;7;8\n", "x\t3:4\t7\t8\n", "1\t1:2\t7\t8\n"}) {
    auto model = model_of(text, o);
    model.target.clear();
    EXPECT_EQ(parse_samples("f", text, model).value, numbers{7}) << text;
    EXPECT_EQ(parse_samples("f", text, model).label, numbers{8}) << text;
    EXPECT_EQ(parse_samples("f", "8 1:7\n", model).value, numbers{7}) << text;
    EXPECT_EQ(parse_samples("f", "8 1:7 # a,b;c\td\n", model).value, numbers{7}) << text;
  }
  auto named = real_labels();
  named.target = "y";
  named = model_of("5:25 6:30,y\n7,8\n", named);
  named.target.clear();
  EXPECT_EQ(parse_samples("f", "y,5:25 6:30\n8,7\n", named).value, numbers{7});
  // The separator, too.
  o.separator = ';';
  auto semicolons = model_of("1,5;x;7;8\n", o);
  semicolons.target.clear();
  semicolons.separator = 0;
  EXPECT_EQ(parse_samples("f", "1,5;x;7;8\n", semicolons).value, numbers{7});
}

TEST(SampleOptions, EqualNamesOfAModelAreMatchedInTheirOrder) {
  const auto o = model_of("a,a,y\n1,2,3\n", real_labels());
  EXPECT_EQ(parse_samples("f", "y,a,a\n3,1,2\n", o).value, (numbers{1, 2}));
  EXPECT_EQ(refusal_of("a,a,a,y\n1,2,3,4\n", o), "f:1:1: found two fields \"a\" in the header");
}

TEST(SampleOptions, ClassesMayBeSeparatedByBlanks) {
  sample_options o;
  o.label = sample_options::label_rule::classes;
  const auto rows = parse_samples("f", "1 2 yes\n3  4 no\n", o);
  EXPECT_EQ(rows.value, (numbers{1, 2, 3, 4}));
  EXPECT_EQ(rows.classes, (std::vector<std::string>{"no", "yes"}));
}

}  // namespace
