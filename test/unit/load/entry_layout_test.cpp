// SPDX-License-Identifier: BSD-3-Clause
//
// Headers, comments and columns of files of edges and ratings.
#include "load/format/entry_layout.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <paracel/error.hpp>

namespace paracel {
namespace {

using rule = entry_options::header_rule;

entry_layout layout_of_texts(const std::vector<std::string>& texts, const entry_options& options,
                             entry_role role = entry_role::edges) {
  std::vector<std::string> names;
  for (std::size_t f = 0; f < texts.size(); ++f) names.push_back(std::string(1, static_cast<char>('f' + f)));
  const auto head = [&](std::size_t file, std::size_t, std::uint64_t& offset) {
    offset = texts[file].starts_with("\xef\xbb\xbf") ? 3 : 0;
    return texts[file].substr(offset);
  };
  return find_entry_layout(names, head, options, role);
}

/// The header of a text; "-" if it has none, the error if it is refused.
std::string header_of(const std::string& text, entry_role role = entry_role::edges, const entry_options& options = {}) {
  try {
    const auto found = layout_of_texts({text}, options, role);
    if (found.files.empty() || found.files[0].header == entry_layout::fields_file::no_header) return "-";
    const auto at = static_cast<std::size_t>(found.files[0].header);
    return text.substr(at, text.find_first_of("\r\n", at) - at);
  } catch (const data_error& e) {
    return e.what();
  }
}

TEST(EntryLayout, AFirstLineThatAloneHasNoNumbersIsAHeader) {
  EXPECT_EQ(header_of("source,target\n1,2\n2,3\n"), "source,target");
  EXPECT_EQ(header_of("source,target,weight\n1,2,0.5\n"), "source,target,weight");
  EXPECT_EQ(header_of("source,target,weight\na,b,0.5\nc,d,-1e3\n"), "source,target,weight");
  EXPECT_EQ(header_of("\xef\xbb\xbf\"from\";\"to\"\r\n\r\n1;2\r\n"), "\"from\";\"to\"");
  EXPECT_EQ(header_of("% sym unweighted\n% 3 3\n\nu v\n1 2\n"), "u v");
  EXPECT_EQ(header_of("# FromNodeId\tToNodeId\n0\t1\n"), "-");
  EXPECT_EQ(header_of("u\tv\n01\t02\n"), "u\tv");
  EXPECT_EQ(header_of("u v\n1 2:0.5\n"), "u v");
}

TEST(EntryLayout, NamesAreEntries) {
  EXPECT_EQ(header_of("a,b\nc,d\n"), "-");
  EXPECT_EQ(header_of("a,b\n1,2\nc,4\n"), "-");
  EXPECT_EQ(header_of("a b\n"), "-");
  EXPECT_EQ(header_of("a b knows\nb c likes\n"), "-");
  EXPECT_EQ(header_of("a\tb:1\tc\n", entry_role::entries), "-");
  EXPECT_EQ(header_of("7 b\n1 2\n"), "-");
  EXPECT_EQ(header_of("a,\n1,2\n"), "-");
  EXPECT_EQ(header_of(""), "-");
  EXPECT_EQ(header_of("# nothing\n"), "-");
  // In a graph both ids are of a kind.
  EXPECT_EQ(header_of("a b\nc 7\n"), "-");
}

TEST(EntryLayout, OfEntriesOneColumnOfNumbersIsEnough) {
  const auto role = entry_role::entries;
  EXPECT_EQ(header_of("user,item\nann,7\nbob,8\n", role), "user,item");
  EXPECT_EQ(header_of("userId,movieId,rating,timestamp\n1,31,2.5,1260759144\n", role),
            "userId,movieId,rating,timestamp");
  EXPECT_EQ(header_of("user::item::rating\n1::2::3\n", role), "user::item::rating");
  // Alone it cannot be an entry: its rating is none.
  EXPECT_EQ(header_of("ann,bob,cat\n", role), "ann,bob,cat");
}

TEST(EntryLayout, WhatNobodyCanKnowIsRefused) {
  const std::string want = R"(, which may be a header or an entry; want "header": "yes" or "header": "no")";
  EXPECT_EQ(header_of("source,target\nann,bob\n"), R"(f:1:1: found "source,target")" + want);
  EXPECT_EQ(header_of("# edges\nFrom Node\tTo Node\n"), R"(f:2:1: found "From Node,To Node")" + want);
  EXPECT_EQ(header_of("source target\nsource drain\n"), "-");
  entry_options options;
  for (const auto& [given, found] : {std::pair(rule::yes, "source,target"), {rule::no, "-"}}) {
    options.header = given;
    EXPECT_EQ(header_of("source,target\nann,bob\n", entry_role::edges, options), found);
  }
}

TEST(EntryLayout, VerticesMayHaveAHeaderToo) {
  EXPECT_EQ(header_of("id\tname\n1\tx\n", entry_role::rows), "id\tname");
  EXPECT_EQ(header_of("1\tx\n2\ty\n", entry_role::rows), "-");
  EXPECT_EQ(header_of("ann\nbob\n", entry_role::rows), "-");
  EXPECT_EQ(header_of("node\nann\n", entry_role::rows).substr(0, 21), "f:1:1: found \"node\", ");
}

TEST(EntryLayout, EachFileHasItsOwnHeaderAndColumns) {
  entry_options options;
  options.columns = {"user", "item", "rating"};
  const auto found =
      layout_of_texts({"user,item,rating\n1,2,3\n", "\nrating,when,item,user\n", ""}, options, entry_role::entries);
  ASSERT_EQ(found.files.size(), 3U);
  EXPECT_EQ(found.files[0].column, (std::array<std::uint64_t, 3>{0, 1, 2}));
  EXPECT_EQ(found.files[1].column, (std::array<std::uint64_t, 3>{3, 2, 0}));
  EXPECT_EQ(found.files[1].header, 1U);
  EXPECT_EQ(found.header_place, "f:1");
  EXPECT_TRUE(found.has_values);
  EXPECT_EQ(header_of("a,b,c\n1,2,3\n", entry_role::entries, options),
            "f:1:1: found no field \"user\" in the header, which has a, b, c");
  options.columns = {"2", "0"};
  EXPECT_EQ(layout_of_texts({"1,2,3\n"}, options).files[0].column[1], 0U);
  EXPECT_EQ(header_of("x y z\n1 2 3\n", entry_role::edges, options), "x y z");
}

TEST(EntryLayout, ColumnsAreDifferentFields) {
  entry_options options;
  options.columns = {"user", "1", "0"};
  EXPECT_EQ(header_of("user,item,rating\n1,2,3\n", entry_role::entries, options),
            "f:1:1: the columns \"user\" and \"0\" are both field 0, want different fields");
  options.columns = {"user", "item", "1"};
  EXPECT_EQ(header_of("user,item,rating\n1,2,3\n", entry_role::entries, options),
            "f:1:1: the columns \"item\" and \"1\" are both field 1, want different fields");
  options.columns = {"1", "1"};
  EXPECT_EQ(header_of("1,2\n", entry_role::edges, options),
            "f:1:1: the columns \"1\" and \"1\" are both field 1, want different fields");
  options.columns = {"user", "item"};
  EXPECT_EQ(header_of("user,item,user\n1,2,3\n", entry_role::edges, options),
            "f:1:1: found two fields \"user\" in the header, want one");
  EXPECT_EQ(header_of("user,item,x,x\n1,2,3,4\n", entry_role::edges, options), "user,item,x,x");
}

TEST(EntryLayout, CommentsAreEntriesIfTheyAreNotWanted) {
  EXPECT_TRUE(without_entry(" #x"));
  EXPECT_TRUE(without_entry("%"));
  EXPECT_TRUE(without_entry("\t// x"));
  EXPECT_FALSE(without_entry("/x y"));
  EXPECT_FALSE(without_entry("#x", false));
  EXPECT_TRUE(without_entry(" ", false));
  entry_options options;
  options.comments = false;
  EXPECT_EQ(header_of("#from #to\n1 2\n", entry_role::edges, options), "#from #to");
}

TEST(EntryLayout, ValuesAreThoseOfTheFirstEntry) {
  const auto has_values = [](const std::string& text) { return layout_of_texts({"", text}, {}).has_values; };
  EXPECT_FALSE(has_values("# a b c\nu v\n1 2\n"));
  EXPECT_FALSE(has_values("a b:c\n"));
  EXPECT_TRUE(has_values("source,target,weight\n1,2,3\n"));
  EXPECT_TRUE(has_values("a b:2\n"));
  EXPECT_TRUE(has_values("1 2:3 4:5\n"));
}

}  // namespace
}  // namespace paracel
