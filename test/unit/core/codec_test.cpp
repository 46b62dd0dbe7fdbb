// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/codec.hpp>

#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace paracel {

/// In a named namespace, because msgpack accesses its members.
struct point {
  double x = 0;
  std::vector<float> weights;
  std::string label;
  bool operator==(const point&) const = default;
  MSGPACK_DEFINE(x, weights, label)
};

namespace {

using bytes = std::vector<unsigned>;

bytes bytes_of(const value_view& v) {
  bytes b;
  for (const auto x : v.bytes) b.push_back(std::to_integer<unsigned>(x));
  return b;
}

template <class T>
bytes encoding(const T& object) {
  const encoded<T> e(object);
  return bytes_of(e.view());
}

template <class T>
value_tag tag(const T& object) {
  const encoded<T> e(object);
  return e.view().tag;
}

std::vector<std::byte> make(const bytes& b) {
  std::vector<std::byte> out;
  for (const auto x : b) out.push_back(static_cast<std::byte>(x));
  return out;
}

template <class T>
T round_trip(const T& object) {
  const encoded<T> e(object);
  return decode<T>(e.view());
}

/// The error of reading `from` as a To; empty if it succeeds.
template <class To, class From>
std::string failure(const From& from) {
  try {
    const encoded<From> e(from);
    (void)decode<To>(e.view());
    return {};
  } catch (const type_error& e) {
    return e.what();
  }
}

template <class To>
std::string packed_failure(const bytes& b) {
  const auto raw = make(b);
  try {
    (void)decode<To>({value_tag::packed, raw});
    return {};
  } catch (const type_error& e) {
    return std::string("type: ") + e.what();
  } catch (const protocol_error& e) {
    return std::string("protocol: ") + e.what();
  }
}

TEST(Codec, BytesOfEachTypeArePinned) {
  EXPECT_EQ(encoding(std::int32_t{-2}), (bytes{0xfe, 0xff, 0xff, 0xff}));
  EXPECT_EQ(tag(std::int32_t{-2}), value_tag::i32);
  EXPECT_EQ(encoding(std::int64_t{0x0102030405060708}), (bytes{8, 7, 6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(tag(std::int64_t{1}), value_tag::i64);
  EXPECT_EQ(encoding(1.5F), (bytes{0, 0, 0xc0, 0x3f}));
  EXPECT_EQ(tag(1.5F), value_tag::f32);
  EXPECT_EQ(encoding(-2.0), (bytes{0, 0, 0, 0, 0, 0, 0, 0xc0}));
  EXPECT_EQ(tag(-2.0), value_tag::f64);
  EXPECT_EQ(encoding(std::vector<std::int32_t>{1, 2}), (bytes{1, 0, 0, 0, 2, 0, 0, 0}));
  EXPECT_EQ(tag(std::vector<std::int32_t>{}), value_tag::i32_array);
  EXPECT_EQ(tag(std::vector<long>{}), value_tag::i64_array);
  EXPECT_EQ(tag(std::vector<long long>{}), value_tag::i64_array);
  EXPECT_EQ(tag(std::vector<float>{}), value_tag::f32_array);
  EXPECT_EQ(tag(std::array<double, 3>{}), value_tag::f64_array);

  EXPECT_EQ(tag(true), value_tag::packed);
  EXPECT_EQ(encoding(true), (bytes{0xc3}));
  EXPECT_EQ(encoding(300U), (bytes{0xcd, 1, 0x2c}));
  EXPECT_EQ(encoding('a'), (bytes{0x61}));
  EXPECT_EQ(encoding(std::string("abc")), (bytes{0xa3, 'a', 'b', 'c'}));
  EXPECT_EQ(encoding("abc"), (bytes{0xa3, 'a', 'b', 'c'}));
  EXPECT_EQ(encoding(std::map<std::string, int>{{"a", 1}, {"b", -1}}), (bytes{0x82, 0xa1, 'a', 1, 0xa1, 'b', 0xff}));
  EXPECT_EQ(encoding(std::pair<int, std::string>{5, "x"}), (bytes{0x92, 5, 0xa1, 'x'}));
  EXPECT_EQ(encoding(std::vector<std::vector<float>>{{1}}), (bytes{0x91, 0x91, 0xca, 0x3f, 0x80, 0, 0}));
  EXPECT_EQ(encoding(point{.x = 1, .weights = {}, .label = "p"}),
            (bytes{0x93, 0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0x90, 0xa1, 'p'}));
}

TEST(Codec, AListOfNumbersIsNotCopied) {
  const std::vector<double> numbers{1, 2, 3};
  const encoded<std::vector<double>> e(numbers);
  EXPECT_EQ(static_cast<const void*>(e.view().bytes.data()), numbers.data());
  const std::span<const double> part(numbers.data() + 1, 2);
  const encoded<std::span<const double>> s(part);
  EXPECT_EQ(static_cast<const void*>(s.view().bytes.data()), numbers.data() + 1);
  EXPECT_EQ(s.view().bytes.size(), 16U);
}

TEST(Codec, ANumberLivesInTheEncodedObject) {
  const auto make_one = [] {
    const double x = 3.25;
    return encoded<double>(x);
  };
  const auto e = make_one();
  EXPECT_EQ(decode<double>(e.view()), 3.25);
}

TEST(Codec, AnArrayReadsFromAnyAddress) {
  const std::vector<double> numbers{1.5, -2.5, 1e300};
  for (std::size_t shift = 0; shift < 9; ++shift) {
    std::vector<std::byte> memory(shift + 24);
    std::memcpy(memory.data() + shift, numbers.data(), 24);
    const value_view v{value_tag::f64_array, std::span(memory).subspan(shift)};
    EXPECT_EQ(decode<std::vector<double>>(v), numbers) << shift;
  }
}

TEST(Codec, ReadingUsesTheCapacityAgain) {
  const std::vector<float> numbers(100, 2.0F);
  std::vector<float> out(200);
  const auto* before = out.data();
  decode_into(encoded<std::vector<float>>(numbers).view(), out);
  EXPECT_EQ(out, numbers);
  EXPECT_EQ(out.data(), before);
}

TEST(Codec, AFailedReadLeavesNumbersAsTheyWere) {
  std::vector<int> out{1, 2};
  const std::vector<double> numbers{5};
  EXPECT_THROW(decode_into(encoded<std::vector<double>>(numbers).view(), out), type_error);
  EXPECT_EQ(out, (std::vector<int>{1, 2}));
}

// The complete table: rows are stored types, columns requested ones.
TEST(Codec, NumbersWidenAndNeverNarrow) {
  const auto row = []<class From>(From x) {
    const std::vector<From> list{x};
    std::string s;
    const auto mark = [&]<class To>(To) {
      const bool one = failure<To>(x).empty();
      EXPECT_EQ(one, failure<std::vector<To>>(list).empty());
      if (one) {
        EXPECT_EQ(decode<To>(encoded<From>(x).view()), static_cast<To>(x));
        EXPECT_EQ(decode<std::vector<To>>(encoded<std::vector<From>>(list).view()),
                  std::vector<To>{static_cast<To>(x)});
      }
      s += one ? '1' : '.';
    };
    mark(std::int32_t{}), mark(std::int64_t{}), mark(float{}), mark(double{});
    mark(std::uint32_t{}), mark(std::uint64_t{}), mark(short{});
    return s;
  };
  //                                         i32 i64 f32 f64 u32 u64 i16
  EXPECT_EQ(row(std::int32_t{7}), "11.111.");
  EXPECT_EQ(row(std::int64_t{7}), ".1...1.");
  EXPECT_EQ(row(7.0F), "..11...");
  EXPECT_EQ(row(7.0), "...1...");
}

TEST(Codec, ExtremesWidenExactly) {
  for (const std::int32_t x :
       {std::numeric_limits<std::int32_t>::min(), -1, std::numeric_limits<std::int32_t>::max()}) {
    EXPECT_EQ(decode<std::int64_t>(encoded<std::int32_t>(x).view()), x);
    EXPECT_EQ(decode<double>(encoded<std::int32_t>(x).view()), x);
  }
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(decode<double>(encoded<float>(tiny).view()), static_cast<double>(tiny));
  EXPECT_TRUE(std::isnan(decode<double>(encoded<float>(std::numeric_limits<float>::quiet_NaN()).view())));
}

TEST(Codec, OneNumberAndAListAreNotMixed) {
  EXPECT_EQ(failure<std::vector<double>>(1.0), "value is f64, asked for f64 array");
  EXPECT_EQ(failure<double>(std::vector<double>{1}), "value is f64 array, asked for f64");
  EXPECT_EQ(failure<std::vector<int>>(std::vector<double>{1}), "value is f64 array, asked for i32 array");
  EXPECT_EQ(failure<unsigned>(std::vector<int>{1}), "value is i32 array, asked for u32");
  EXPECT_EQ(failure<std::vector<unsigned>>(1), "value is i32, asked for list<u32>");
}

TEST(Codec, ErrorsNameBothTypes) {
  EXPECT_EQ(failure<std::string>(1.0), "value is f64, asked for string");
  EXPECT_EQ(failure<double>(std::string("abc")), "value is packed string, asked for f64");
  EXPECT_EQ((failure<std::vector<std::string>>(std::map<std::string, int>{{"a", 1}})),
            "value is packed map, asked for list<string>");
  EXPECT_EQ((failure<std::map<std::string, std::vector<double>>>(std::vector<bool>{true})),
            "value is packed list, asked for dict<string, f64 array>");
  EXPECT_EQ((failure<std::pair<int, bool>>(2.0F)), "value is f32, asked for pair<i32, bool>");
  EXPECT_EQ(failure<point>(2.0F), "value is f32, asked for a user type");
  EXPECT_EQ(failure<unsigned>(-3), "value is i32, asked for u32: it is -3");
  EXPECT_EQ((failure<std::array<double, 2>>(std::vector<double>(3))),
            "value is f64 array, asked for f64 array: it has 3 elements, not 2");
}

TEST(Codec, NothingIsNoValueOfAnyType) {
  EXPECT_THROW((void)decode<double>({}), type_error);
  EXPECT_THROW((void)decode<std::string>({}), type_error);
}

TEST(Codec, PackedIntegersAreReadWhereTheyFit) {
  EXPECT_EQ(decode<int>(encoded<std::size_t>(7).view()), 7);
  EXPECT_EQ(decode<double>(encoded<unsigned>(7).view()), 7.0);
  EXPECT_EQ(decode<unsigned>(encoded<int>(7).view()), 7U);
  EXPECT_EQ(decode<std::vector<long>>(encoded<std::vector<unsigned>>(std::vector<unsigned>{1, 2}).view()),
            (std::vector<long>{1, 2}));
  EXPECT_EQ(failure<int>(std::size_t{1} << 40), "value is packed integer, asked for i32");
  EXPECT_EQ(failure<short>(70000U), "value is packed integer, asked for i16");
  EXPECT_EQ(failure<double>((std::size_t{1} << 60) + 1),
            "value is packed integer, asked for f64: an integer has too many digits");
  EXPECT_EQ(failure<double>(std::size_t{1} << 53), "");
  EXPECT_EQ(failure<bool>(1U), "value is packed integer, asked for bool");
}

TEST(Codec, NestedNumbersKeepTheirPrecision) {
  using doubles = std::map<std::string, std::vector<double>>;
  using floats = std::map<std::string, std::vector<float>>;
  EXPECT_EQ(failure<floats>(doubles{{"a", {1}}}),
            "value is packed map, asked for dict<string, f32 array>: a packed f64 may not fit f32");
  EXPECT_EQ(failure<doubles>(floats{{"a", {1}}}), "");
  EXPECT_EQ((failure<std::vector<std::pair<int, float>>>(std::vector<std::pair<int, double>>{{1, 2.0}})),
            "value is packed list, asked for list<pair<i32, f32>>: a packed f64 may not fit f32");
  using wide = std::vector<std::vector<std::int64_t>>;
  EXPECT_NE(failure<std::vector<std::vector<double>>>(wide{{std::numeric_limits<std::int64_t>::min() + 1}}), "");
  EXPECT_EQ(failure<std::vector<std::vector<double>>>(wide{{-1, 1}}), "");
}

TEST(Codec, TuplesAndPairsKeepTheirLength) {
  const std::vector<std::string> three{"a", "b", "c"};
  using pair = std::pair<std::string, std::string>;
  using triple = std::tuple<std::string, std::string, std::string>;
  using four = std::tuple<std::string, std::string, std::string, std::string>;
  EXPECT_EQ(failure<triple>(three), "");
  EXPECT_NE(failure<pair>(three), "");
  EXPECT_NE(failure<four>(three), "");
  EXPECT_NE((failure<std::array<std::string, 4>>(three)), "");
}

TEST(Codec, UsersTypesArePacked) {
  const point p{.x = 2.5, .weights = {1, 2}, .label = "here"};
  EXPECT_EQ(round_trip(p), p);
  const std::map<std::string, std::vector<point>> nested{{"a", {p, p}}, {"b", {}}};
  EXPECT_EQ(round_trip(nested), nested);
}

TEST(Codec, PackedFloatsKeepEveryBit) {
  const std::vector<std::vector<double>> numbers{{-0.0, 0.0, 1e300, 18446744073709551616.0, -9223372036854775808.0,
                                                  std::numeric_limits<double>::infinity(), 5e-324}};
  const auto back = round_trip(numbers);
  ASSERT_EQ(back.size(), 1U);
  ASSERT_EQ(back[0].size(), numbers[0].size());
  EXPECT_EQ(std::memcmp(back[0].data(), numbers[0].data(), numbers[0].size() * sizeof(double)), 0);
}

TEST(Codec, FloatsThatOtherWritersPackAsIntegersAreRead) {
  // 10^18 and -3, as msgpack-c and many others pack the doubles 1e18 and -3.0.
  const auto raw = make({0x92, 0xcf, 0x0d, 0xe0, 0xb6, 0xb3, 0xa7, 0x64, 0x00, 0x00, 0xfd});
  EXPECT_EQ(decode<std::vector<double>>({value_tag::packed, raw}), (std::vector<double>{1e18, -3}));
}

TEST(Codec, TextMayHoldAnyByte) {
  const std::string text("a\0b\xff\nparacel", 12);
  EXPECT_EQ(round_trip(text), text);
  EXPECT_EQ(decode<std::string>(encoded<std::string_view>(text).view()), text);
}

// ---- hostile bytes -------------------------------------------------------------------------------------------------

TEST(Codec, LengthsBeyondTheBytesAreRefusedBeforeAllocation) {
  using texts = std::vector<std::string>;
  using table = std::map<std::string, int>;
  EXPECT_EQ(packed_failure<texts>({0xdd, 0xff, 0xff, 0xff, 0xff, 0xa0}),
            "protocol: packed value announces more items than it has bytes");
  EXPECT_EQ(packed_failure<table>({0xdf, 0xff, 0xff, 0xff, 0xff, 0xa0}),
            "protocol: packed value announces more items than it has bytes");
  EXPECT_EQ(packed_failure<std::string>({0xdb, 0xff, 0xff, 0xff, 0xff, 'a'}), "protocol: packed value is cut short");
  EXPECT_EQ(packed_failure<std::string>({0xc9, 0xff, 0xff, 0xff, 0xff, 1, 'a'}), "protocol: packed value is cut short");
  EXPECT_EQ(packed_failure<std::string>({}), "protocol: value of 0 bytes cannot be packed");
  EXPECT_EQ(packed_failure<std::string>({0xc1}), "protocol: packed value has the unused MessagePack byte 0xc1");
  // Each level alone would fit into the remaining bytes; together they announce five items in three bytes.
  EXPECT_EQ(packed_failure<texts>({0x93, 0x93, 0xc0, 0xc0, 0xc0}),
            "protocol: packed value announces more items than it has bytes");
}

TEST(Codec, BytesAfterTheEndAreRefused) {
  EXPECT_EQ(packed_failure<std::string>({0xa1, 'x', 0xc0}), "protocol: 1 bytes follow the end of a packed value");
  EXPECT_EQ(packed_failure<bool>({0xc3, 0xc3, 0xc3}), "protocol: 2 bytes follow the end of a packed value");
}

TEST(Codec, NestingHasALimit) {
  bytes deep(max_packed_depth, 0x91);
  deep.push_back(0xc0);
  EXPECT_EQ(packed_failure<std::string>(deep), "type: value is packed list, asked for string");
  deep.insert(deep.begin(), 0x91);
  EXPECT_EQ(packed_failure<std::string>(deep), "protocol: packed value nests deeper than 64");
  EXPECT_EQ(packed_failure<std::string>(bytes(100000, 0x91)), "protocol: packed value nests deeper than 64");
}

TEST(Codec, NumbersOfTheWrongLengthAreRefused) {
  const std::vector<std::byte> seven(7);
  for (const auto t : {value_tag::f64, value_tag::f64_array, value_tag::i32, value_tag::f32_array, value_tag::none})
    EXPECT_THROW((void)decode<std::vector<double>>({t, seven}), protocol_error) << name_of(t);
  EXPECT_THROW((void)decode<double>({static_cast<value_tag>(0x33), std::span(seven).first(4)}), protocol_error);
}

TEST(Codec, RandomBytesAreAValueOrAnErrorOfOurs) {
  std::mt19937 engine(20);
  int values = 0;
  for (int i = 0; i < 20000; ++i) {
    bytes b(engine() % 24);
    for (auto& x : b) x = (engine() % 3 == 0 ? 0x80 + engine() % 0x60 : engine()) % 256;
    // Any exception but type_error and protocol_error fails the test here.
    values += packed_failure<std::map<std::string, std::vector<double>>>(b).empty();
    values += packed_failure<std::vector<std::string>>(b).empty();
    values += packed_failure<point>(b).empty();
    values += packed_failure<double>(b).empty();
  }
  EXPECT_GT(values, 100) << "the bytes are too wild to test what follows the first check";
}

}  // namespace
}  // namespace paracel
