// SPDX-License-Identifier: BSD-3-Clause
//
// Update functions of plug-ins as a server calls them: forms, failures, alignment, types, and those that are shipped.
#include "server/plugin/user_functions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/error.hpp>

#include "server/plugin/plugin_registry.hpp"
#include "test/support/paths.hpp"

namespace paracel::srv {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class V, class D>
struct ran {
  V value{};
  std::string error;
  abi::outcome outcome = abi::ok;
};

template <class V, class D>
ran<V, D> run_update(const loaded_update& u, const V& value, const D& delta) {
  ran<V, D> r;
  std::vector<std::byte> out;
  const encoded<V> v(value);
  const encoded<D> d(delta);
  const auto tag = apply(u, v.view(), d.view(), out, r.error, &r.outcome);
  EXPECT_EQ(tag == value_tag::none, !r.error.empty());
  if (tag != value_tag::none) r.value = decode<V>({tag, out});
  return r;
}

template <class T, class D>
std::string run_in_place(const loaded_update& u, std::vector<T>& value, const std::vector<D>& delta,
                         abi::outcome* outcome = nullptr) {
  std::string error;
  const encoded<std::vector<D>> d(delta);
  const bool done =
      apply_in_place(u, array_tag_of<T>(), std::as_writable_bytes(std::span(value)), d.view(), error, outcome);
  EXPECT_EQ(done, error.empty());
  return error;
}

template <class V, class D>
V first_value(const loaded_update& u, const D& delta, std::string& error) {
  std::vector<std::byte> out;
  const encoded<D> d(delta);
  const auto tag = apply_to_missing(u, d.view(), out, error);
  EXPECT_EQ(tag == value_tag::none, !error.empty());
  return tag == value_tag::none ? V{} : decode<V>({tag, out});
}

class UpdateInServer : public testing::Test {
 protected:
  plugin_registry registry_{{test::plugin_folder(), test::default_plugin_folder()}};
  const loaded_update& good(const std::string& f) { return registry_.load_update("good_updates", f); }
  const loaded_update& failing(const std::string& f) { return registry_.load_update("failing_updates", f); }
  const loaded_update& shipped(const std::string& f) { return registry_.load_update("", f); }
};

using list = std::vector<double>;
using words = std::map<std::string, int>;

TEST_F(UpdateInServer, GeneralFormsGiveTheNewValue) {
  EXPECT_EQ(run_update(good("add_lists"), list{1, 2}, list{3, 4}).value, (list{4, 6}));
  EXPECT_EQ(run_update(good("append_list"), list{1}, list{2, 3}).value, (list{1, 2, 3}));
  EXPECT_EQ(run_update(good("count_words"), words{{"a", 1}}, std::pair<std::string, int>("b", 2)).value,
            (words{{"a", 1}, {"b", 2}}));
  EXPECT_EQ(run_update(good("multiply"), 3.0, 4.0).value, 12.0);
  EXPECT_EQ(run_update(good("add_unsigned"), 3UL, 4UL).value, 7UL);
}

TEST_F(UpdateInServer, AFailureNamesTheFunctionItsTypesAndTheReason) {
  const auto thrown = run_update(failing("throws_text"), 1.0, 2.0);
  EXPECT_EQ(thrown.error, "libfailing_updates.so:throws_text (f64, f64): cannot go on with this value");
  EXPECT_EQ(thrown.outcome, abi::failed);
  EXPECT_THAT(run_update(failing("throws_number"), 1.0, 2.0).error, HasSubstr("not a std::exception"));
  const auto mismatch = run_update(good("add_lists"), words{}, list{1});
  EXPECT_EQ(mismatch.error,
            "libgood_updates.so:add_lists (f64 array, f64 array): value is packed map, asked for f64 array");
  EXPECT_EQ(mismatch.outcome, abi::type_mismatch);
}

TEST_F(UpdateInServer, ANonsenseResultIsAFailureAndNotAValue) {
  EXPECT_THAT(run_update(failing("returns_malformed"), 1.0, 2.0).error, HasSubstr("returned no valid value"));
  EXPECT_THAT(run_update(failing("returns_nothing"), 1.0, 2.0).error, HasSubstr("returned no valid value"));
}

TEST_F(UpdateInServer, InPlaceWorksOnTheValueItself) {
  std::vector<float> value{1, 2, 3};
  EXPECT_EQ(run_in_place(good("half_step"), value, std::vector<float>{2, 2, 2}), "");
  EXPECT_EQ(value, (std::vector<float>{0, 1, 2}));
  float one = 5;
  std::string error;
  const encoded<float> delta(2.0F);
  EXPECT_TRUE(apply_in_place(good("half_step"), value_tag::f32, std::as_writable_bytes(std::span(&one, 1)),
                             delta.view(), error));
  EXPECT_EQ(one, 4.0F);
  // And through the form that creates a new value.
  EXPECT_EQ(run_update(good("half_step"), std::vector<float>{4}, std::vector<float>{2}).value, std::vector<float>{3});
}

TEST_F(UpdateInServer, AFunctionThatThrowsHalfwayLeavesTheValueAsItWas) {
  const list before{1, 2, 3, 4};
  list value = before;
  abi::outcome outcome = abi::ok;
  EXPECT_EQ(run_in_place(failing("throws_halfway"), value, list{9, 9, 9, 9}, &outcome),
            "libfailing_updates.so:throws_halfway (f64, f64): stopped halfway");
  EXPECT_EQ(value, before);
  EXPECT_EQ(outcome, abi::failed);
  EXPECT_THAT(run_update(failing("throws_halfway"), value, list{9, 9, 9, 9}).error, HasSubstr("stopped halfway"));
}

TEST(PluginRegistry, AForbiddenFunctionFailsWithTheReasonInEveryForm) {
  const auto id = plugin_registry({test::default_plugin_folder()}).load_update("", "").id;
  for (const bool loaded_before : {true, false}) {
    plugin_registry registry({test::plugin_folder(), test::default_plugin_folder()});
    if (loaded_before) (void)registry.load_update("", "");
    registry.forbid(id, "it has ended s1");
    registry.forbid(id, "a later reason");
    const auto& add = registry.load_update("", "");
    const auto ended = run_update(add, 1.0, 2.0);
    EXPECT_THAT(ended.error, HasSubstr("it has ended s1"));
    EXPECT_EQ(ended.outcome, abi::failed);
    double value = 1;
    const double delta = 2;
    std::string error;
    const value_view change{value_tag::f64, std::as_bytes(std::span(&delta, 1))};
    EXPECT_FALSE(apply_in_place(add, value_tag::f64, std::as_writable_bytes(std::span(&value, 1)), change, error));
    EXPECT_EQ(value, 1);
    EXPECT_FALSE(cannot_fail(add, {value_tag::f64, std::as_bytes(std::span(&value, 1))}, change));
    std::vector<std::byte> out;
    EXPECT_EQ(apply_to_missing(add, change, out, error), value_tag::none);
  }
  plugin_registry registry({test::plugin_folder()});
  const auto& filter = registry.load_filter("filters", "ends_with_seven");
  registry.forbid(filter.id, "it has ended s2");
  std::string error;
  EXPECT_FALSE(paracel::srv::test(filter, "k7", {}, error).has_value());
  EXPECT_THAT(error, HasSubstr("it has ended s2"));
}

TEST_F(UpdateInServer, ADeltaAtAnyAddressIsUnderstood) {
  const list numbers{10, 20, 30};
  for (std::size_t shift = 0; shift < 9; ++shift) {
    std::vector<std::byte> memory(shift + 24);
    std::memcpy(memory.data() + shift, numbers.data(), 24);
    const value_view delta{value_tag::f64_array, std::span(memory).subspan(shift)};
    list value{1, 2, 3};
    std::string error;
    ASSERT_TRUE(apply_in_place(shipped("paracel_add"), value_tag::f64_array, std::as_writable_bytes(std::span(value)),
                               delta, error));
    EXPECT_EQ(value, (list{11, 22, 33})) << shift;
  }
}

TEST_F(UpdateInServer, AFunctionSeesOnlyAlignedDeltas) {
  const auto check = update_in_place<double>([](std::span<double> value, std::span<const double> delta) noexcept {
    value[0] = static_cast<double>(reinterpret_cast<std::uintptr_t>(delta.data()) % alignof(double));
  });
  const loaded_update u{.id = 1, .name = "check", .function = &check, .additive = false};
  alignas(double) const std::array<std::byte, 16> memory{};
  for (std::size_t shift = 0; shift < 8; ++shift) {
    double value = -1;
    std::string error;
    ASSERT_TRUE(apply_in_place(u, value_tag::f64, std::as_writable_bytes(std::span(&value, 1)),
                               {value_tag::f64, std::span(memory).subspan(shift, 8)}, error));
    EXPECT_EQ(value, 0) << shift;
  }
}

TEST_F(UpdateInServer, ALargeMisalignedDeltaIsUnderstoodToo) {
  const std::size_t n = 300000;  // larger than the buffer that a thread keeps
  std::vector<std::byte> memory(n * 8 + 1);
  const list ones(n, 1.0);
  std::memcpy(memory.data() + 1, ones.data(), n * 8);
  for (int i = 0; i < 2; ++i) {
    list value(n, 2.0);
    std::string error;
    ASSERT_TRUE(apply_in_place(shipped("paracel_add"), value_tag::f64_array, std::as_writable_bytes(std::span(value)),
                               {value_tag::f64_array, std::span(memory).subspan(1)}, error));
    EXPECT_EQ(value, list(n, 3.0));
  }
}

TEST_F(UpdateInServer, ANarrowerDeltaWidensAndAWiderOneIsRefused) {
  const auto& add = shipped("paracel_add");
  list value{1, 2};
  EXPECT_EQ(run_in_place(add, value, std::vector<int>{1, -1}), "");
  EXPECT_EQ(run_in_place(add, value, std::vector<float>{0.5F, 0.5F}), "");
  EXPECT_EQ(value, (list{2.5, 1.5}));
  abi::outcome outcome = abi::ok;
  EXPECT_EQ(
      run_in_place(add, value, std::vector<std::int64_t>{1, 1}, &outcome),
      "libparacel_default.so:paracel_add (any number, any number): value is f64 array of 2, delta is i64 array of "
      "2: the delta would lose precision");
  EXPECT_EQ(outcome, abi::type_mismatch);
  std::vector<int> whole{1};
  EXPECT_THAT(run_in_place(add, whole, list{0.5}), HasSubstr("lose precision"));
  EXPECT_EQ(whole, std::vector<int>{1});
  EXPECT_EQ(run_update(add, 1.0, 2).value, 3.0);
  EXPECT_EQ(run_update(add, std::int64_t{1} << 40, 2).value, (std::int64_t{1} << 40) + 2);
}

TEST_F(UpdateInServer, SizesAndShapesMustAgree) {
  const auto& add = shipped("paracel_add");
  list value{1, 2, 3};
  EXPECT_THAT(run_in_place(add, value, list{1, 2}),
              HasSubstr("value is f64 array of 3, delta is f64 array of 2: both must have the same size"));
  EXPECT_THAT(run_update(add, value, 1.0).error, HasSubstr("one number and an array cannot be combined"));
  EXPECT_THAT(run_update(add, 1.0, list{1.0}).error, HasSubstr("one number and an array cannot be combined"));
  EXPECT_THAT(run_update(add, std::string("a"), 1.0).error, HasSubstr("value is packed string, delta is f64"));
  EXPECT_THAT(run_update(add, 1.0, std::string("a")).error, HasSubstr("value is f64, delta is packed string"));
  EXPECT_THAT(run_update(good("half_step"), list{1}, list{1}).error, HasSubstr("the value has a different type"));
  EXPECT_EQ(value, (list{1, 2, 3}));
}

TEST_F(UpdateInServer, AnEmptyArrayIsAnArray) {
  list value;
  EXPECT_EQ(run_in_place(shipped("paracel_add"), value, list{}), "");
  EXPECT_EQ(run_update(good("add_lists"), list{}, list{}).error, "");
  EXPECT_EQ(run_update(shipped("paracel_assign"), list{1}, list{}).error, "");
}

TEST_F(UpdateInServer, TheBestPathIsTold) {
  const list two{1, 2}, three{1, 2, 3};
  const encoded<list> a(two), b(three);
  const encoded<std::string> text(std::string("x"));
  EXPECT_EQ(path_of(shipped("paracel_add"), a.view(), a.view()), apply_path::in_place);
  EXPECT_EQ(path_of(good("add_lists"), a.view(), a.view()), apply_path::general);
  EXPECT_EQ(path_of(shipped("paracel_assign"), a.view(), a.view()), apply_path::in_place);
  EXPECT_EQ(path_of(shipped("paracel_assign"), a.view(), b.view()), apply_path::general);
  EXPECT_EQ(path_of(shipped("paracel_assign"), text.view(), text.view()), apply_path::general);
  EXPECT_EQ(path_of(shipped("paracel_add"), text.view(), a.view()), apply_path::general);
}

TEST_F(UpdateInServer, AMissingKeyTakesTheDelta) {
  std::string error;
  EXPECT_EQ((first_value<list>(shipped("paracel_add"), list{1, 2}, error)), (list{1, 2}));
  EXPECT_EQ((first_value<list>(good("add_lists"), list{1, 2}, error)), (list{1, 2}));
  EXPECT_EQ((first_value<std::string>(shipped("paracel_assign"), std::string("x"), error)), "x");
  EXPECT_EQ((first_value<std::uint64_t>(good("add_unsigned"), 5UL, error)), 5UL);
  EXPECT_EQ(error, "");
}

TEST_F(UpdateInServer, AMissingKeyTakesTheDeltaAsTheTypeOfTheValue) {
  std::string error;
  std::vector<std::byte> out;
  const encoded<int> one(1);
  EXPECT_EQ(apply_to_missing(shipped("default_incr_d"), one.view(), out, error), value_tag::f64);
  EXPECT_EQ(decode<double>({value_tag::f64, out}), 1.0);
  const std::vector<int> ints{1, 2};
  const encoded<std::vector<int>> e(ints);
  EXPECT_EQ(apply_to_missing(shipped("default_incr_ld"), e.view(), out, error), value_tag::f64_array);
  EXPECT_EQ(apply_to_missing(good("add_lists"), e.view(), out, error), value_tag::f64_array);
  const encoded<std::vector<unsigned>> packed(std::vector<unsigned>{1, 2});
  EXPECT_EQ(apply_to_missing(shipped("default_incr_li"), packed.view(), out, error), value_tag::i32_array);
  EXPECT_EQ(decode<std::vector<int>>({value_tag::i32_array, out}), ints);
  EXPECT_EQ(error, "");
}

TEST_F(UpdateInServer, ADeltaThatCannotBeAValueDoesNotBecomeOne) {
  const auto refused = [](const loaded_update& u, const auto& delta) {
    std::string error;
    (void)first_value<double>(u, delta, error);
    return error;
  };
  EXPECT_THAT(refused(good("count_words"), std::pair<std::string, int>("a", 1)),
              HasSubstr("the key does not exist, and a delta that is packed list cannot become its value"));
  EXPECT_THAT(refused(shipped("default_incr_i"), 0.5), HasSubstr("value is f64, asked for i32"));
  EXPECT_THAT(refused(shipped("paracel_add"), std::string("x")), HasSubstr("packed string cannot become its value"));
  EXPECT_THAT(refused(good("multiply"), list{1}), HasSubstr("value is f64 array, asked for f64"));
}

TEST_F(UpdateInServer, AnInitialiserBeginsAndTheUpdateFollows) {
  std::string error;
  EXPECT_EQ((first_value<list>(good("running_mean"), 3.0, error)), (list{3, 1}));
  EXPECT_EQ(run_update(good("running_mean"), list{3, 1}, 5.0).value, (list{8, 2}));
  EXPECT_EQ(error, "");
}

// ---- the functions that are shipped --------------------------------------------------------------------------------

template <class T>
std::vector<T> shipped_on(const loaded_update& u, std::vector<T> value, const std::vector<T>& delta) {
  EXPECT_EQ(run_in_place(u, value, delta), "");
  return value;
}

TEST_F(UpdateInServer, TheShippedFunctionsWorkOnEveryNumberType) {
  const auto check = [&]<class T>(T) {
    using v = std::vector<T>;
    const v a{1, -5, 7, 0, 3}, b{2, -6, 7, 1, -3};
    EXPECT_EQ(shipped_on(shipped("paracel_add"), a, b), (v{3, -11, 14, 1, 0}));
    EXPECT_EQ(shipped_on(shipped("paracel_max"), a, b), (v{2, -5, 7, 1, 3}));
    EXPECT_EQ(shipped_on(shipped("paracel_min"), a, b), (v{1, -6, 7, 0, -3}));
    EXPECT_EQ(shipped_on(shipped("paracel_assign"), a, b), b);
    EXPECT_EQ(run_update(shipped("paracel_add"), a[0], b[0]).value, T{3});
    // Long enough for the vectorised part and its rest.
    v many(1003), ones(1003, T{1});
    for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<T>(i);
    const auto sum = shipped_on(shipped("paracel_add"), many, ones);
    for (std::size_t i = 0; i < many.size(); ++i) ASSERT_EQ(sum[i], static_cast<T>(i + 1));
  };
  check(std::int32_t{}), check(std::int64_t{}), check(float{}), check(double{});
}

TEST_F(UpdateInServer, ParacelsNamesTakeTheTypeTheyName) {
  EXPECT_EQ(run_update(shipped("default_incr_i"), 1, 2).value, 3);
  EXPECT_EQ(run_update(shipped("default_incr_f"), 1.0F, 2.0F).value, 3.0F);
  EXPECT_EQ(run_update(shipped("default_incr_d"), 1.0, 2.0).value, 3.0);
  EXPECT_EQ(run_update(shipped("default_incr_li"), std::vector<int>{1}, std::vector<int>{2}).value,
            std::vector<int>{3});
  EXPECT_EQ(run_update(shipped("default_incr_lf"), std::vector<float>{1}, std::vector<float>{2}).value,
            std::vector<float>{3});
  EXPECT_EQ(run_update(shipped("default_incr_ld"), list{1}, list{2}).value, list{3});
  EXPECT_THAT(run_update(shipped("default_incr_i"), 1.0, 2.0).error, HasSubstr("the value has a different type"));
  for (const auto* f : {"paracel_add", "default_incr_i", "default_incr_f", "default_incr_d", "default_incr_li",
                        "default_incr_lf", "default_incr_ld"})
    EXPECT_TRUE(shipped(f).additive) << f;
  for (const auto* f : {"paracel_assign", "paracel_max", "paracel_min"}) EXPECT_FALSE(shipped(f).additive) << f;
}

TEST_F(UpdateInServer, IntegersWrapAround) {
  constexpr auto top = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(run_update(shipped("paracel_add"), top, 1).value, std::numeric_limits<std::int32_t>::min());
  constexpr auto bottom = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(run_update(shipped("paracel_add"), bottom, std::int64_t{-1}).value,
            std::numeric_limits<std::int64_t>::max());
}

TEST_F(UpdateInServer, ANotANumberNeverWinsAComparison) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto* f : {"paracel_max", "paracel_min"}) {
    EXPECT_EQ(run_update(shipped(f), 1.0, nan).value, 1.0);
    EXPECT_TRUE(std::isnan(run_update(shipped(f), nan, 1.0).value));
  }
}

TEST_F(UpdateInServer, AssignReplacesTypeAndSize) {
  std::vector<std::byte> out;
  std::string error;
  const std::string text("new");
  const encoded<double> number(1.0);
  const encoded<std::string> word(text);
  EXPECT_EQ(apply(shipped("paracel_assign"), number.view(), word.view(), out, error), value_tag::packed);
  EXPECT_EQ(decode<std::string>({value_tag::packed, out}), "new");
  EXPECT_EQ(run_update(shipped("paracel_assign"), list{1}, list{2, 3}).value, (list{2, 3}));
}

}  // namespace
}  // namespace paracel::srv
