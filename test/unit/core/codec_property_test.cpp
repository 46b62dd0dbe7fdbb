// SPDX-License-Identifier: BSD-3-Clause
//
// Properties of the codec on random values, nested to a random depth: what is written is read back bit by bit; and
// after any modification of the bytes reading returns a value or throws one of our errors, and never reads out of
// bounds. The bytes to be read end at the end of a page that is followed by an inaccessible one, so reading beyond them
// crashes the test in every build, not only under a sanitizer.
#include <paracel/codec.hpp>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <random>
#include <variant>

namespace paracel {

/// A value of any shape that MessagePack supports.
struct any_value {
  using list = std::vector<any_value>;
  using dict = std::map<std::string, any_value>;
  /// Integers are unsigned unless they are negative: MessagePack does not distinguish more.
  std::variant<std::monostate, bool, std::uint64_t, std::int64_t, float, double, std::string, list, dict> v;

  friend bool operator==(const any_value& a, const any_value& b) {
    if (a.v.index() != b.v.index()) return false;
    if (const auto* x = std::get_if<float>(&a.v))
      return std::bit_cast<std::uint32_t>(*x) == std::bit_cast<std::uint32_t>(std::get<float>(b.v));
    if (const auto* x = std::get_if<double>(&a.v))
      return std::bit_cast<std::uint64_t>(*x) == std::bit_cast<std::uint64_t>(std::get<double>(b.v));
    return a.v == b.v;
  }
};

}  // namespace paracel

namespace msgpack {
MSGPACK_API_VERSION_NAMESPACE(MSGPACK_DEFAULT_API_NS) {
  namespace adaptor {

  template <>
  struct pack<paracel::any_value> {
    template <class Stream>
    msgpack::packer<Stream>& operator()(msgpack::packer<Stream>& to, const paracel::any_value& value) const {
      std::visit(
          [&]<class T>(const T& x) {
            if constexpr (std::is_same_v<T, std::monostate>) to.pack_nil();
            else to.pack(x);
          },
          value.v);
      return to;
    }
  };

  template <>
  struct convert<paracel::any_value> {
    const msgpack::object& operator()(const msgpack::object& from, paracel::any_value& value) const {
      switch (from.type) {
        case msgpack::type::NIL:
          value.v = std::monostate{};
          break;
        case msgpack::type::BOOLEAN:
          value.v = from.via.boolean;
          break;
        case msgpack::type::POSITIVE_INTEGER:
          value.v = from.via.u64;
          break;
        case msgpack::type::NEGATIVE_INTEGER:
          value.v = from.via.i64;
          break;
        case msgpack::type::FLOAT32:
          value.v = static_cast<float>(from.via.f64);
          break;
        case msgpack::type::FLOAT64:
          value.v = from.via.f64;
          break;
        case msgpack::type::STR:
          value.v = from.as<std::string>();
          break;
        case msgpack::type::ARRAY:
          value.v = from.as<paracel::any_value::list>();
          break;
        case msgpack::type::MAP:
          value.v = from.as<paracel::any_value::dict>();
          break;
        default:
          throw msgpack::type_error();
      }
      return from;
    }
  };

  }  // namespace adaptor
}
}  // namespace msgpack

namespace paracel {
namespace {

unsigned first_seed() {
  const char* text = std::getenv("PARACEL_SEED");
  return text != nullptr ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : 1;
}

/// Memory that ends at an inaccessible page.
class guarded_bytes {
 public:
  explicit guarded_bytes(std::size_t most) : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    room_ = (most / page_ + 1) * page_;
    auto* memory = ::mmap(nullptr, room_ + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte*>(memory);
    if (::mprotect(memory_ + room_, page_, PROT_NONE) != 0) throw std::runtime_error("mprotect");
  }
  ~guarded_bytes() { ::munmap(memory_, room_ + page_); }
  guarded_bytes(const guarded_bytes&) = delete;
  guarded_bytes& operator=(const guarded_bytes&) = delete;

  /// A copy of `bytes` that ends just before the inaccessible page. Valid until the next call.
  std::span<const std::byte> at_the_end(std::span<const std::byte> bytes) {
    if (bytes.size() > room_) throw std::length_error("more bytes than the guarded memory holds");
    auto* begin = memory_ + room_ - bytes.size();
    if (!bytes.empty()) std::memcpy(begin, bytes.data(), bytes.size());
    return {begin, bytes.size()};
  }

 private:
  std::size_t page_;
  std::size_t room_ = 0;
  std::byte* memory_ = nullptr;
};

constexpr std::size_t most_bytes = std::size_t{4} << 20;

/// Random values of every type that can be stored.
class generator {
 public:
  explicit generator(unsigned seed) : engine_(seed) {}

  std::uint64_t number(std::uint64_t below) { return engine_() % below; }

  void fill(bool& x) { x = (engine_() & 1U) != 0; }
  template <class T>
  requires std::is_integral_v<T>
  void fill(T& x) {
    // Near the limits, and near the values at which MessagePack changes the width.
    const auto bits = engine_() % (sizeof(T) * 8 + 1);
    const auto top = bits == 64 ? std::uint64_t{0} : std::uint64_t{1} << bits;
    x = static_cast<T>(top + engine_() % 3 - 1);
  }
  void fill(float& x) {
    x = std::bit_cast<float>(quiet(static_cast<std::uint32_t>(engine_()), 0x7f800000U, 0x00400000U));
  }
  void fill(double& x) {
    x = std::bit_cast<double>(quiet(engine_(), std::uint64_t{0x7ff} << 52U, std::uint64_t{1} << 51U));
  }
  void fill(std::string& x) {
    constexpr std::size_t widths[] = {0, 1, 31, 32, 255, 256, 65535, 65536};  // where the encoding of the length
                                                                              // changes
    x.resize(engine_() % 16 == 0 ? widths[engine_() % 8] : engine_() % 12);
    for (auto& c : x) c = static_cast<char>(engine_());
  }
  void fill(any_value& x) { fill(x, engine_() % 12); }
  template <class T>
  void fill(std::vector<T>& x) {
    x.clear();
    for (auto n = length(); n > 0; --n) {
      T item{};
      fill(item);
      x.push_back(std::move(item));
    }
  }
  template <class A, class B>
  void fill(std::pair<A, B>& x) {
    fill(x.first);
    fill(x.second);
  }
  template <class... T>
  void fill(std::tuple<T...>& x) {
    std::apply([&](auto&... item) { (fill(item), ...); }, x);
  }
  template <class Map>
  requires requires { typename Map::mapped_type; }
  void fill(Map& x) {
    for (auto n = length(); n > 0; --n) {
      std::pair<typename Map::key_type, typename Map::mapped_type> item;
      fill(item);
      x.insert(std::move(item));
    }
  }
  template <class T>
  void fill(std::optional<T>& x) {
    if ((engine_() & 1U) == 0) return;
    x.emplace();
    fill(*x);
  }

 private:
  std::size_t length() { return engine_() % 4; }
  /// A signalling NaN may become a quiet one when it passes through a register.
  template <class Bits>
  static Bits quiet(Bits bits, Bits exponent, Bits quiet_bit) {
    return (bits & exponent) == exponent ? bits | quiet_bit : bits;
  }
  void fill(any_value& x, std::size_t depth) {
    const auto kind = engine_() % (depth == 0 ? 7 : 11);
    switch (kind) {
      case 0:
        x.v = std::monostate{};
        break;
      case 1:
        x.v = (engine_() & 1U) != 0;
        break;
      case 2:
        put<std::uint64_t>(x);
        break;
      case 3: {
        std::int64_t n = 0;
        fill(n);
        if (n < 0) x.v = n;
        else x.v = static_cast<std::uint64_t>(n);
        break;
      }
      case 4:
        put<float>(x);
        break;
      case 5:
        put<double>(x);
        break;
      case 6:
        put<std::string>(x);
        break;
      case 7:
      case 8: {
        // Occasionally enough items for a length of two or four bytes.
        any_value::list items(depth < 3 && engine_() % 64 == 0 ? 15 + engine_() % 3 : length());
        for (auto& item : items) fill(item, depth - 1);
        x.v = std::move(items);
        break;
      }
      default: {
        any_value::dict items;
        for (auto n = length(); n > 0; --n) {
          std::string key;
          fill(key);
          fill(items[key], depth - 1);
        }
        x.v = std::move(items);
      }
    }
  }
  template <class T>
  void put(any_value& x) {
    T item{};
    fill(item);
    x.v = std::move(item);
  }

  std::mt19937_64 engine_;
};

/// Compares NaNs as equal.
template <class T>
bool same(const T& a, const T& b) {
  return a == b;
}
bool same(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }
bool same(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b);
template <class A, class B>
bool same(const std::pair<A, B>& a, const std::pair<A, B>& b);
template <class... T>
bool same(const std::tuple<T...>& a, const std::tuple<T...>& b);
template <class T>
bool same(const std::optional<T>& a, const std::optional<T>& b) {
  return a.has_value() == b.has_value() && (!a || same(*a, *b));
}
template <class K, class V>
bool same(const std::map<K, V>& a, const std::map<K, V>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return same(x.first, y.first) && same(x.second, y.second);
         });
}
template <class K, class V>
bool same(const std::unordered_map<K, V>& a, const std::unordered_map<K, V>& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a)
    if (const auto other = b.find(key); other == b.end() || !same(value, other->second)) return false;
  return true;
}
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same(static_cast<const T&>(a[i]), static_cast<const T&>(b[i]))) return false;
  return true;
}
template <class A, class B>
bool same(const std::pair<A, B>& a, const std::pair<A, B>& b) {
  return same(a.first, b.first) && same(a.second, b.second);
}
template <class... T>
bool same(const std::tuple<T...>& a, const std::tuple<T...>& b) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) { return (same(std::get<i>(a), std::get<i>(b)) && ...); }
  (std::index_sequence_for<T...>{});
}

// Static types, nested N levels deep; each level is a different container.
template <std::size_t N>
struct nest;
template <std::size_t N>
using nested = typename nest<N>::type;
template <>
struct nest<0> {
  using type = double;
};
template <std::size_t N>
struct nest {
  static auto make() {
    using inner = nested<N - 1>;
    if constexpr (N % 5 == 1) return std::optional<inner>();
    else if constexpr (N % 5 == 2) return std::map<std::string, inner>();
    else if constexpr (N % 5 == 3) return std::tuple<std::int32_t, inner, std::string>();
    else if constexpr (N % 5 == 4) return std::vector<inner>();
    else return std::pair<float, inner>();
  }
  using type = decltype(make());
};

/// Reads `v` as T. Returns whether it is one. Any exception but our two errors fails the test.
template <class T>
bool reads_as(const value_view& v) {
  try {
    (void)decode<T>(v);
    return true;
  } catch (const type_error&) {
    return false;
  } catch (const protocol_error&) {
    return false;
  }
}

std::size_t reads_as_anything(const value_view& v) {
  using shape = std::map<std::string, std::vector<std::tuple<int, std::optional<std::string>, float>>>;
  return static_cast<std::size_t>(reads_as<any_value>(v)) + reads_as<shape>(v) + reads_as<std::vector<any_value>>(v) +
         reads_as<std::string>(v) + reads_as<std::vector<double>>(v) + reads_as<std::uint64_t>(v) +
         reads_as<std::vector<std::uint32_t>>(v) + reads_as<float>(v) + reads_as<nested<7>>(v);
}

class CodecProperty : public testing::TestWithParam<unsigned> {
 protected:
  template <class T>
  void round_trips(int values) {
    for (int i = 0; i < values; ++i) {
      T object{};
      source_.fill(object);
      const encoded<T> e(object);
      const auto view = e.view();
      ASSERT_TRUE(is_well_formed(view));
      ASSERT_LE(view.bytes.size(), most_bytes);
      const value_view guarded{view.tag, memory_.at_the_end(view.bytes)};
      ASSERT_TRUE(same(decode<T>(guarded), object)) << "value " << i << " of " << codec_detail::type_text<T>::get();
    }
  }

  generator source_{first_seed() * 1000 + GetParam()};
  guarded_bytes memory_{most_bytes};
};

TEST_P(CodecProperty, ValuesNestedToAnyDepthComeBackBitForBit) {
  round_trips<any_value>(400);
  round_trips<std::vector<any_value>>(100);
  round_trips<std::map<std::string, any_value>>(100);
}

TEST_P(CodecProperty, EveryNestOfContainersComesBack) {
  [&]<std::size_t... n>(std::index_sequence<n...>) { (round_trips<nested<n>>(30), ...); }
  (std::make_index_sequence<16>{});
}

TEST_P(CodecProperty, ArraysAndNumbersComeBack) {
  round_trips<std::int32_t>(100);
  round_trips<std::int64_t>(100);
  round_trips<std::uint32_t>(100);
  round_trips<std::uint64_t>(100);
  round_trips<float>(100);
  round_trips<double>(100);
  round_trips<bool>(10);
  round_trips<std::string>(100);
  round_trips<std::vector<std::int32_t>>(50);
  round_trips<std::vector<std::int64_t>>(50);
  round_trips<std::vector<std::uint64_t>>(50);
  round_trips<std::vector<float>>(50);
  round_trips<std::vector<double>>(50);
  round_trips<std::vector<bool>>(50);
  round_trips<std::vector<std::string>>(50);
  round_trips<std::unordered_map<std::string, std::vector<std::pair<std::uint64_t, float>>>>(50);
  round_trips<std::vector<short>>(50);
  round_trips<std::vector<std::map<int, std::vector<std::string>>>>(50);
  round_trips<std::tuple<int, std::string, std::vector<std::vector<float>>, bool, char>>(50);
  round_trips<std::optional<std::vector<std::optional<std::string>>>>(50);
  round_trips<std::pair<std::int64_t, std::map<std::pair<int, int>, unsigned>>>(50);
}

TEST_P(CodecProperty, NoBeginningOfAValueIsAValue) {
  for (int i = 0; i < 60; ++i) {
    any_value object;
    source_.fill(object);
    const encoded<any_value> e(object);
    const auto bytes = e.view().bytes;
    for (std::size_t n = 0; n < bytes.size(); n += n < 200 ? 1 : 1 + bytes.size() / 50) {
      const value_view cut{value_tag::packed, memory_.at_the_end(bytes.first(n))};
      ASSERT_THROW((void)decode<any_value>(cut), protocol_error) << n << " of " << bytes.size();
    }
  }
}

TEST_P(CodecProperty, ChangedBytesAreAValueOrAnErrorOfOurs) {
  std::size_t values = 0;
  std::vector<std::byte> before;
  for (int i = 0; i < 250; ++i) {
    any_value object;
    source_.fill(object);
    const encoded<any_value> e(object);
    std::vector<std::byte> bytes(e.view().bytes.begin(), e.view().bytes.end());
    for (int change = 0; change < 12; ++change) {
      const auto at = static_cast<std::ptrdiff_t>(bytes.empty() ? 0 : source_.number(bytes.size()));
      switch (source_.number(6)) {
        case 0:  // one bit
          if (!bytes.empty()) bytes[static_cast<std::size_t>(at)] ^= static_cast<std::byte>(1U << source_.number(8));
          break;
        case 1:  // a byte that starts an encoding
          if (!bytes.empty()) bytes[static_cast<std::size_t>(at)] = static_cast<std::byte>(0x80 + source_.number(0x60));
          break;
        case 2:
          bytes.resize(static_cast<std::size_t>(at));
          break;
        case 3:
          bytes.insert(bytes.begin() + at, static_cast<std::byte>(source_.number(256)));
          break;
        case 4:
          if (!bytes.empty()) bytes.erase(bytes.begin() + at);
          break;
        default:  // a piece of the previous value
          if (!before.empty()) {
            const auto from = static_cast<std::ptrdiff_t>(source_.number(before.size()));
            const auto size = std::min<std::ptrdiff_t>(20, static_cast<std::ptrdiff_t>(before.size()) - from);
            bytes.insert(bytes.begin() + at, before.begin() + from, before.begin() + from + size);
          }
      }
      values += reads_as_anything({value_tag::packed, memory_.at_the_end(bytes)});
    }
    before.assign(e.view().bytes.begin(), e.view().bytes.end());
  }
  EXPECT_GT(values, 20U) << "the changes are too wild to test what follows the first check";
}

TEST_P(CodecProperty, AnyBytesUnderAnyTagAreAValueOrAnErrorOfOurs) {
  for (int i = 0; i < 4000; ++i) {
    std::vector<std::byte> bytes(source_.number(40));
    for (auto& b : bytes) b = static_cast<std::byte>(source_.number(256));
    const auto tag = static_cast<value_tag>(source_.number(0x20));
    (void)reads_as_anything({tag, memory_.at_the_end(bytes)});
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CodecProperty, testing::Range(0U, 5U));

}  // namespace
}  // namespace paracel
