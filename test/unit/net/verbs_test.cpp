// SPDX-License-Identifier: BSD-3-Clause
#include "net/verbs.hpp"

#include <gtest/gtest.h>

#include <string>

namespace paracel::net {
namespace {

TEST(Verbs, AListOrASetOfKeysIsNamedAfterWhatItDoesToEachAndHasItsEffect) {
  unsigned lists = 0;
  for (std::size_t i = 0; i < verb_count; ++i) {
    const auto& t = verb_table[i];
    const auto what = static_cast<verb>(i);
    if (!has_items(what) || t.kind == verb_kind::rows) continue;
    ++lists;
    const auto& each = traits_of(t.each);
    EXPECT_EQ(each.kind, verb_kind::key) << t.name;
    EXPECT_EQ(each.effect, t.effect) << t.name;
    EXPECT_EQ(takes_function(what), takes_function(t.each)) << t.name;
    const std::string name = each.name;
    EXPECT_EQ(t.name, t.kind == verb_kind::keys ? name + "_multi" : "set_" + name);
    if (t.kind == verb_kind::keys) {
      EXPECT_EQ(multi_of(t.each), what) << t.name;
    }
  }
  EXPECT_EQ(lists, 13U);
}

TEST(Verbs, APreparedSetIsNotItselfAList) {
  EXPECT_FALSE(has_items(verb::set_prepare));
  EXPECT_FALSE(has_items(verb::table_open));
  EXPECT_FALSE(has_items(verb::rows_scan));
  EXPECT_FALSE(has_items(verb::pull));
  EXPECT_TRUE(has_items(verb::rows_pull));
}

TEST(Verbs, ANumberWithoutAVerbIsUnknown) {
  for (const unsigned number : {0U, 11U, 23U, 103U, 111U, 255U}) {
    EXPECT_FALSE(is_known(static_cast<verb>(number))) << number;
    EXPECT_FALSE(only_looks(static_cast<verb>(number))) << number;
  }
  EXPECT_STREQ(name_of(static_cast<verb>(111)), "unknown");
}

}  // namespace
}  // namespace paracel::net
