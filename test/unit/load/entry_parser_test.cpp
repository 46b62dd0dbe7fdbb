// SPDX-License-Identifier: BSD-3-Clause
//
// The fast path for common lines gives the same results as the general one. A line without a line end never takes the
// fast path.
#include "load/format/entry_parser.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

namespace paracel {
namespace {

struct outcome {
  std::vector<std::tuple<std::string, std::string, double>> entries;
  std::vector<std::string> rows;
  std::string error;
  bool operator==(const outcome&) const = default;
};

void PrintTo(const outcome& o, std::ostream* to) {
  *to << o.error;
  for (const auto& [r, c, v] : o.entries) *to << " (" << r << ' ' << c << ' ' << v << ')';
}

outcome parse(const std::string& text, const entry_options& options, bool quickly) {
  const std::string name = "f";
  outcome out;
  try {
    auto layout = layout_of(std::string_view(text).substr(0, text.find('\n')), options.format);
    if (layout.format == entry_format::matrix_market) {
      layout.matrices.emplace_back();
      if (!read_matrix_header(input_piece(name, text), layout.matrices[0])) return out;
    }
    entry_parser parser(layout, options, {});
    if (quickly) {
      parser.parse(input_piece(name, text));
    } else {
      for (auto rest = std::string_view(text); !rest.empty();) {
        const auto end = rest.find('\n');
        parser.parse(input_piece(name, text, rest.substr(0, end)));
        rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      }
    }
    auto local = parser.take();
    const auto id = [](const id_interner::sorted_ids& ids, std::uint32_t i) {
      return ids.ids.text(ids.place.empty() ? i : ids.place[i]);
    };
    local.entries.each_block([&](const chunked_vector::view& b) {
      for (std::size_t k = 0; k < b.size; ++k)
        out.entries.emplace_back(id(local.rows, b.row[k]), id(local.columns, b.column[k]), b.value[k]);
    });
    for (std::size_t i = 0; i < local.rows.ids.size(); ++i) out.rows.push_back(local.rows.ids.text(i));
  } catch (const data_error& e) {
    out.error = e.what();
  }
  return out;
}

void expect_no_difference(const std::string& first, const std::vector<std::string>& lines) {
  for (const auto& line : lines) {
    for (const auto* end : {"\n", "\r\n"}) {
      const std::string text = first + end + line + end + first.substr(first.rfind('\n') + 1) + end;
      for (const auto values :
           {entry_options::value_rule::need, entry_options::value_rule::take, entry_options::value_rule::ignore}) {
        for (const bool non_negative : {false, true}) {
          entry_options options;
          options.values = values;
          options.non_negative = non_negative;
          EXPECT_EQ(parse(text, options, true), parse(text, options, false)) << "\"" << line << "\" " << int(values);
        }
      }
    }
  }
}

TEST(EntryParser, NumbersAreReadQuicklyAsTheyAreThoroughly) {
  expect_no_difference("1\t2\t3", {"4\t5\t-1", "4\t5",    "4\t05",     "4\t5\tx",  "4\t5\t1\t7",
                                   "4\t5:2",   "4\t5|-2", "4\t5:2\t1", " 4\t5",    "4\t5 ",
                                   "4",        "",        "#",         "# 4\t5",   "#4\t5",
                                   "%4\t5",    "//4\t5",  "/4\t5",     "\"4\"\t5", "4\t18446744073709551616",
                                   "4\ta"});
  expect_no_difference("1 2 3", {"4  5   6", "4\t5 6 ", "4 5 ", "4 5", " 4 5 6", "4 5 6 7", "4 a", "4 5:1", "4 5|-1"});
}

TEST(EntryParser, NamesAreReadQuicklyAsTheyAreThoroughly) {
  for (const char* separator : {"\t", ",", " ", "|"}) {
    const std::string s = separator;
    expect_no_difference("a" + s + "b" + s + "3", {"c" + s + "d",
                                                   "c" + s + "d" + s + "4",
                                                   "c" + s + "d" + s + "-4",
                                                   "c" + s + "d" + s + "x",
                                                   "c" + s + "d" + s,
                                                   "c" + s + "d" + s + "4" + s + "5",
                                                   "c" + s + " d",
                                                   "c " + s + "d ",
                                                   "c" + s + "d ",
                                                   " c" + s + "d",
                                                   "c" + s,
                                                   s + "c",
                                                   s,
                                                   "c",
                                                   "",
                                                   "#",
                                                   "# c" + s + "d",
                                                   "#c" + s + "d",
                                                   "%c" + s + "d",
                                                   "// c" + s + "d",
                                                   "/c" + s + "d",
                                                   "/" + s + "/d",
                                                   "c" + s + "%d",
                                                   "c" + s + "#d",
                                                   "c" + s + "d:2",
                                                   "c" + s + "d:e",
                                                   "c" + s + "7:e",
                                                   "c" + s + "d:2" + s + "1",
                                                   "c" + s + ":2",
                                                   "c" + s + "d|2",
                                                   "\"c\"" + s + "d",
                                                   "c" + s + "\"d\"",
                                                   "\"c" + s + "d",
                                                   "c\"" + s + "d\"",
                                                   "07" + s + "7",
                                                   "7" + s + "8",
                                                   "c\r" + s + "d",
                                                   "c" + s + "d\re",
                                                   "\xc3\xa4" + s + "\xff",
                                                   "c" + s + "d" + s + " 4",
                                                   "c" + s + "d" + s + "nan"});
  }
}

TEST(EntryParser, FieldsBetweenTwoColonsAreReadQuicklyAsTheyAreThoroughly) {
  expect_no_difference("1::2::3", {"4::5::6", "4::5::-1", "4::5::6::978300760", "4::5", "4::5::", "4::5::x", "4:5::6",
                                   "4::5:6", "4::05::1", "a::b::1", "a::b", "4 :: 5::1", "::5", "4::", "4", "",
                                   "# 4::5", "4::5::1:7", "4::5::1\t7"});
}

TEST(EntryParser, LibsvmIsReadQuicklyAsItIsThoroughly) {
  expect_no_difference("1 2:3 4:5", {"2 2:1 3:1 ", "2",         "2 ",     "2\t3:1\t4:2", "2 3:1 4", "2 3:1 4:",
                                     "2 3:1 :4",   "2 3:1 4:x", "2 3:-1", "2 3:1 4:-1",  "2 03:1",  "2 3:1 04:1",
                                     "02 3:1",     "a 3:1 4:2", "2 a:1",  "2 3:1 a:1",   " 2 3:1",  "2 3:1 4:1\r5",
                                     "2 3:1#",     "# 2 3:1",   "-1 2:1", "2 3 :1"});
}

TEST(EntryParser, MatrixMarketIsReadQuicklyAsItIsThoroughly) {
  const std::vector<std::string> lines{"2 3 4.5", "2 3 -4.5", "2\t3  4", " 2 3 4", "2 3 4 ", "2 3",    "2 3 x",
                                       "2 3 4 5", "0 3 4",    "2 0 4",   "10 3 4", "2 10 4", "02 3 4", "2",
                                       "",        "%",        "% 2 3 4", "2 3 x ", "3 3 1",  "2 3 nan"};
  const std::string banner = "%%MatrixMarket matrix coordinate ";
  for (const auto* kind : {"real general", "real symmetric", "pattern general", "pattern symmetric"})
    expect_no_difference(banner + kind + "\n9 9 3\n1 2 3", lines);
  for (const auto* kind : {"pattern general", "pattern symmetric"})
    expect_no_difference(banner + kind + "\n9 9 3\n1 2", lines);
}

TEST(EntryParser, ValuesAreReadQuicklyAsTheyAreThoroughly) {
  std::vector<std::string> lines;
  for (const auto* value : {"0.1",
                            "-0.3",
                            "00012.500",
                            "5.",
                            ".5",
                            "-.5",
                            ".",
                            "-",
                            "-.",
                            "+5",
                            "+.25",
                            "+-1",
                            "1e5",
                            "1.5e-3",
                            "1.5E+300",
                            "7e",
                            "123456789012345",
                            "0.123456789012345",
                            "1234567890123456.7",
                            "0.1234567890123456789",
                            "99999999999999999999",
                            "1.2.3",
                            "0x10",
                            "1_",
                            "1 2",
                            "inf",
                            "nan",
                            "1e999",
                            "1e-999",
                            "12345678.12345678",
                            "3,5"})
    lines.push_back("2 3 " + std::string(value));
  expect_no_difference("1 2 3", lines);
  for (auto& line : lines) std::ranges::replace(line, ' ', '\t');
  expect_no_difference("1\t2\t3", lines);
}

TEST(EntryParser, NamesInQuotesOfManyLinesAreTheirOwn) {
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += "\"a," + std::to_string(i) + "\",\"b," + std::to_string(i % 7) + "\"\n";
  const auto got = parse(text, {}, true);
  ASSERT_EQ(got.entries.size(), 10'000U);
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_EQ(std::get<0>(got.entries[static_cast<std::size_t>(i)]), "a," + std::to_string(i));
    EXPECT_EQ(std::get<1>(got.entries[static_cast<std::size_t>(i)]), "b," + std::to_string(i % 7));
  }
}

TEST(EntryParser, LinesAreKeptWhereverTheFirstLargeIdOrNameIs) {
  // From there on numbers are no longer their own indices, which are in blocks of 131,072 entries.
  for (const auto* id : {"3000000000", "a name"}) {
    for (const int at : {100'000, 131'072}) {
      std::vector<std::pair<std::string, std::string>> wanted;
      std::string text;
      for (int i = 0; i < 140'000; ++i) {
        wanted.emplace_back(i == at ? id : std::to_string(i % 977), std::to_string(i * 7 % 1013));
        text += wanted.back().first + "\t" + wanted.back().second + "\n";
      }
      const auto got = parse(text, {}, true);
      ASSERT_EQ(got.error, "");
      ASSERT_EQ(got.entries.size(), wanted.size()) << id << " in line " << at + 1;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const auto& [row, column, value] = got.entries[i];
        ASSERT_EQ(std::pair(row, column), wanted[i]) << id << " in line " << at + 1;
      }
    }
  }
}

}  // namespace
}  // namespace paracel
