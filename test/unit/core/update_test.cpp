// SPDX-License-Identifier: BSD-3-Clause
//
// The plug-in boundary, from the plug-in's side: what the macros export and how it behaves when called through its C
// function pointers.
#include <paracel/update.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace paracel {
namespace {

struct answer {
  std::int32_t outcome = -1;
  value_tag tag = value_tag::none;
  std::vector<std::byte> bytes;
  std::string error;

  template <class T>
  [[nodiscard]] T as() const {
    return decode<T>({tag, bytes});
  }
};

std::byte* place(void* context, std::uint8_t tag, std::uint64_t bytes) noexcept {
  auto& a = *static_cast<answer*>(context);
  a.tag = static_cast<value_tag>(tag);
  a.bytes.assign(bytes + 1, std::byte{});
  a.bytes.resize(bytes);
  return a.bytes.data();
}

abi::value border(const value_view& v) {
  return {v.bytes.data(), v.bytes.size(), static_cast<std::uint8_t>(v.tag), {}};
}

template <class V, class D>
answer call(const update_result& u, const V& value, const D& delta, std::size_t error_capacity = 200) {
  answer a;
  std::string text(error_capacity, '?');
  abi::error_text error{text.data(), text.size()};
  const encoded<V> v(value);
  const encoded<D> d(delta);
  const auto current = border(v.view());
  const auto change = border(d.view());
  const abi::sink sink{&a, place};
  a.outcome = u.apply(&u, &current, &change, &sink, &error);
  if (a.outcome != abi::ok && error_capacity != 0) a.error = text.c_str();
  return a;
}

using list = std::vector<double>;

list local_update(list a, list b) {
  list r;
  for (std::size_t i = 0; i < a.size(); ++i) r.push_back(a[i] + b[i]);
  return r;
}
list by_reference(const list& a, const list& b) { return local_update(a, b); }
void in_reference(list& a, list b) { a = local_update(a, std::move(b)); }
list never_throwing(list a, const list&) noexcept { return a; }

TEST(Update, LayoutOfTheBorderIsPinned) {
  EXPECT_EQ(offsetof(update_result, magic), 0U);
  EXPECT_EQ(offsetof(update_result, abi_version), 4U);
  EXPECT_EQ(offsetof(update_result, struct_bytes), 6U);
  EXPECT_EQ(offsetof(update_result, flags), 8U);
  EXPECT_EQ(offsetof(update_result, value_tag), 12U);
  EXPECT_EQ(offsetof(update_result, value_type), 16U);
  EXPECT_EQ(offsetof(update_result, context), 112U);
  EXPECT_EQ(offsetof(update_result, apply), 120U);
  EXPECT_EQ(offsetof(update_result, in_place), 128U);
  EXPECT_EQ(offsetof(update_result, initialise), 136U);
  EXPECT_EQ(sizeof(update_result), 152U);
  EXPECT_EQ(offsetof(filter_result, context), 64U);
  EXPECT_EQ(sizeof(filter_result), 80U);
  EXPECT_EQ(sizeof(abi::value), 24U);
  const auto u = update_proxy(local_update);
  EXPECT_EQ(std::memcmp(&u.magic, "PRCU", 4), 0);
  EXPECT_EQ(u.abi_version, 1);
  EXPECT_EQ(u.struct_bytes, 152);
}

TEST(Update, AFunctionOfManyShapesIsAccepted) {
  const auto lambda = [](list a, list b) { return local_update(std::move(a), std::move(b)); };
  struct functor {
    list operator()(list a, const list& b) const { return local_update(std::move(a), b); }
  };
  for (const auto& u :
       {update_proxy(local_update), update_proxy(&local_update), update_proxy(by_reference), update_proxy(in_reference),
        update_proxy(lambda), update_proxy(functor()), update_proxy(std::function<list(list, list)>(local_update)),
        update_proxy<list>([](auto a, auto b) { return local_update(a, b); })}) {
    const auto a = call(u, list{1, 2}, list{10, 20});
    EXPECT_EQ(a.outcome, abi::ok) << a.error;
    EXPECT_EQ(a.as<list>(), (list{11, 22}));
    EXPECT_STREQ(u.value_type, "f64 array");
    EXPECT_EQ(u.value_tag, static_cast<std::uint8_t>(value_tag::f64_array));
    EXPECT_EQ(u.in_place, nullptr);
    EXPECT_EQ(u.flags, 0U);
  }
  EXPECT_EQ(call(update_proxy(never_throwing), list{1}, list{2}).as<list>(), list{1});
}

TEST(Update, ALambdaKeepsWhatItCaptured) {
  auto table = std::make_unique<int>(7);
  const auto u = [&] {
    const int factor = *table;
    return update_proxy([factor](int a, int b) { return a + factor * b; });
  }();
  table.reset();
  EXPECT_EQ(call(u, 1, 2).as<int>(), 15);
}

TEST(Update, ValueAndDeltaMayBeOfDifferentTypes) {
  const auto u = update_proxy([](std::map<std::string, double> value, const std::pair<std::string, double>& delta) {
    value[delta.first] += delta.second;
    return value;
  });
  EXPECT_STREQ(u.value_type, "dict<string, f64>");
  EXPECT_STREQ(u.delta_type, "pair<string, f64>");
  using table = std::map<std::string, double>;
  const auto a = call(u, table{{"a", 1}}, std::pair<std::string, double>{"a", 0.5});
  EXPECT_EQ(a.as<table>(), (table{{"a", 1.5}}));
}

TEST(Update, TheResultMayHaveAnotherSize) {
  const auto u = update_proxy([](list a, double b) {
    a.push_back(b);
    return a;
  });
  EXPECT_EQ(call(u, list{}, 4.0).as<list>(), list{4});
  const auto clear = update_proxy([](const list&, int) { return list(); });
  const auto a = call(clear, list{1}, 1);
  EXPECT_EQ(a.outcome, abi::ok);
  EXPECT_TRUE(a.as<list>().empty());
}

TEST(Update, WrongTypesAreNamedAndTheDeltaIsSaidToBeIt) {
  const auto u = update_proxy(local_update);
  const auto value = call(u, std::string("abc"), list{1});
  EXPECT_EQ(value.outcome, abi::type_mismatch);
  EXPECT_EQ(value.error, "value is packed string, asked for f64 array");
  const auto delta = call(u, list{1}, 3);
  EXPECT_EQ(delta.outcome, abi::type_mismatch);
  EXPECT_EQ(delta.error, "the delta: value is i32, asked for f64 array");
}

TEST(Update, ExceptionsEndAtTheBorder) {
  const auto fails = [](auto x) {
    return update_proxy([x](double a, double) -> double {
      if (a > 0) throw x;
      return a;
    });
  };
  const auto text = call(fails(std::runtime_error("out of luck")), 1.0, 1.0);
  EXPECT_EQ(text.outcome, abi::failed);
  EXPECT_EQ(text.error, "out of luck");
  const auto number = call(fails(42), 1.0, 1.0);
  EXPECT_EQ(number.outcome, abi::failed);
  EXPECT_EQ(number.error, "threw something that is not a std::exception");
  EXPECT_EQ(text.tag, value_tag::none) << "nothing was placed";
}

TEST(Update, ALongErrorIsCutToTheRoom) {
  const auto u = update_proxy([](double a, double) -> double {
    if (a > 0) throw std::runtime_error(std::string(5000, 'x'));
    return a;
  });
  EXPECT_EQ(call(u, 1.0, 1.0, 10).error, std::string(9, 'x'));
  EXPECT_EQ(call(u, 1.0, 1.0, 1).error, "");
  EXPECT_EQ(call(u, 1.0, 1.0, 0).outcome, abi::failed);
}

TEST(Update, NoMemoryForTheResultIsAFailure) {
  const auto u = update_proxy(local_update);
  const list one{1};
  const encoded<list> e(one);
  const auto v = border(e.view());
  const abi::sink full{nullptr, [](void*, std::uint8_t, std::uint64_t) noexcept -> std::byte* { return nullptr; }};
  std::array<char, 100> text{};
  abi::error_text error{text.data(), text.size()};
  EXPECT_EQ(u.apply(&u, &v, &v, &full, &error), abi::failed);
  EXPECT_STREQ(text.data(), "no memory for a result of 8 bytes");
}

TEST(Update, InPlaceChangesTheNumbersWhereTheyLie) {
  const auto u = update_in_place<float>([](std::span<float> value, std::span<const float> delta) {
    for (std::size_t i = 0; i < value.size(); ++i) value[i] -= 0.5F * delta[i];
  });
  EXPECT_EQ(u.apply, nullptr);
  EXPECT_EQ(u.value_tag, static_cast<std::uint8_t>(value_tag::f32));
  EXPECT_EQ(u.flags & abi::no_throw, 0U) << "it is not noexcept";
  std::vector<float> value{1, 2, 3};
  const std::vector<float> delta{2, 2, 2};
  abi::error_text none{nullptr, 0};
  const auto run = [&](float* v, std::size_t n) {
    return u.in_place(&u, u.value_tag, reinterpret_cast<std::byte*>(v),
                      reinterpret_cast<const std::byte*>(delta.data()), n, &none);
  };
  EXPECT_EQ(run(value.data(), 3), abi::ok);
  EXPECT_EQ(value, (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(run(value.data(), 1), abi::ok) << "one number is a span of 1";
  EXPECT_EQ(value, (std::vector<float>{-1, 1, 2}));
  EXPECT_EQ(run(nullptr, 0), abi::ok);
}

TEST(Update, NoexceptIsSeenAndTold) {
  const auto quiet = [](auto, auto) noexcept {};
  const auto loud = [](auto, auto) {};
  EXPECT_EQ(update_in_place<double>(quiet).flags, abi::no_throw);
  EXPECT_EQ(update_in_place<double>(loud).flags, 0U);
  EXPECT_EQ(update_in_place_any(quiet).flags, abi::no_throw);
  EXPECT_EQ(update_in_place_any(loud).flags, 0U);
  const auto u = update_in_place<double>([](std::span<double>, std::span<const double>) { throw std::string("x"); });
  std::array<char, 100> text{};
  abi::error_text error{text.data(), text.size()};
  EXPECT_EQ(u.in_place(&u, u.value_tag, nullptr, nullptr, 0, &error), abi::failed);
  EXPECT_STREQ(text.data(), "threw something that is not a std::exception");
}

TEST(Update, OneFunctionForEveryNumberGetsTheElementsItIsCalledWith) {
  const auto u = update_in_place_any([](auto value, auto delta) {
    for (std::size_t i = 0; i < value.size(); ++i) value[i] += delta[i];
  });
  abi::error_text none{nullptr, 0};
  const auto check = [&]<class T>(T) {
    std::vector<T> value{1, 2};
    const std::vector<T> delta{3, 4};
    EXPECT_EQ(u.in_place(&u, static_cast<std::uint8_t>(tag_of<T>()), reinterpret_cast<std::byte*>(value.data()),
                         reinterpret_cast<const std::byte*>(delta.data()), 2, &none),
              abi::ok);
    EXPECT_EQ(value, (std::vector<T>{4, 6}));
  };
  check(std::int32_t{}), check(std::int64_t{}), check(float{}), check(double{});
  EXPECT_EQ(u.in_place(&u, static_cast<std::uint8_t>(value_tag::packed), nullptr, nullptr, 0, &none),
            abi::type_mismatch);
}

TEST(Update, AdditiveChangesOnlyItsFlag) {
  const auto u = update_in_place<double>([](std::span<double>, std::span<const double>) noexcept {});
  const auto a = additive(u);
  EXPECT_EQ(a.flags, u.flags | abi::additive);
  EXPECT_EQ(a.in_place, u.in_place);
  EXPECT_EQ(a.context, u.context);
}

TEST(Update, AnInitialiserMakesTheFirstValueFromTheDelta) {
  const auto u = initialised_by(update_proxy([](list value, double x) {
                                  for (auto& v : value) v += x;
                                  return value;
                                }),
                                [](double x) { return list(static_cast<std::size_t>(x), 0.0); });
  const encoded<double> three(3.0);
  const auto delta = border(three.view());
  answer a;
  const abi::sink sink{&a, place};
  std::array<char, 100> text{};
  abi::error_text error{text.data(), text.size()};
  EXPECT_EQ(u.initialise(&u, &delta, &sink, &error), abi::ok);
  EXPECT_EQ(a.as<list>(), (list{0, 0, 0}));
  EXPECT_EQ(call(u, list{1}, 2.0).as<list>(), list{3});
}

TEST(Filter, SeesKeysAndValues) {
  std::array<char, 100> text{};
  abi::error_text error{text.data(), text.size()};
  std::uint8_t keep = 9;
  const auto by_key = filter_proxy([](const std::string& key) { return key.starts_with("w_"); });
  EXPECT_EQ(std::memcmp(&by_key.magic, "PRCF", 4), 0);
  EXPECT_EQ(by_key.flags, 0U);
  EXPECT_EQ(by_key.test(&by_key, "w_1", 3, nullptr, &keep, &error), abi::ok);
  EXPECT_EQ(keep, 1);
  EXPECT_EQ(by_key.test(&by_key, "x", 1, nullptr, &keep, &error), abi::ok);
  EXPECT_EQ(keep, 0);

  const auto by_value = filter_proxy([](std::string_view key, double value) { return key == "a" && value > 1; });
  EXPECT_EQ(by_value.flags, abi::takes_value);
  EXPECT_STREQ(by_value.value_type, "f64");
  const encoded<double> two(2.0);
  const auto v = border(two.view());
  EXPECT_EQ(by_value.test(&by_value, "a", 1, &v, &keep, &error), abi::ok);
  EXPECT_EQ(keep, 1);
  const encoded<std::string> word(std::string("abc"));
  const auto w = border(word.view());
  EXPECT_EQ(by_value.test(&by_value, "a", 1, &w, &keep, &error), abi::type_mismatch);
  EXPECT_STREQ(text.data(), "value is packed string, asked for f64");
}

}  // namespace
}  // namespace paracel
