// SPDX-License-Identifier: BSD-3-Clause
//
// The first byte is the tag of a value, the rest its bytes. For any input each reader returns an object or throws one
// of our two errors, allocates in proportion to the bytes, and an object that was read survives being written and read
// again unchanged.
#include <paracel/codec.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace fuzzed {

struct record {
  double x = 0;
  std::vector<std::pair<std::string, float>> items;
  std::optional<bool> flag;
  MSGPACK_DEFINE(x, items, flag)
};

}  // namespace fuzzed

namespace {

template <class T>
void read(const paracel::value_view& v) {
  T object{};
  try {
    paracel::decode_into(v, object);
  } catch (const paracel::type_error&) {
    return;
  } catch (const paracel::protocol_error&) {
    return;
  }
  // NaN is not equal to itself, so bytes are compared: written, read and written again.
  const paracel::encoded<T> once(object);
  const T again = paracel::decode<T>(once.view());
  const paracel::encoded<T> twice(again);
  const auto a = once.view();
  const auto b = twice.view();
  if (a.tag != b.tag || !std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end())) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // A copy of exact size, so that the sanitizer detects reads beyond it.
  const auto bytes = std::make_unique<std::byte[]>(size - 1);
  if (size > 1) std::memcpy(bytes.get(), data + 1, size - 1);
  const paracel::value_view v{static_cast<paracel::value_tag>(data[0]), {bytes.get(), size - 1}};
  read<double>(v);
  read<std::int32_t>(v);
  read<std::uint64_t>(v);
  read<std::string>(v);
  read<std::vector<float>>(v);
  read<std::vector<std::int64_t>>(v);
  read<std::vector<unsigned>>(v);
  read<std::vector<bool>>(v);
  read<std::vector<std::string>>(v);
  read<std::map<std::string, std::vector<double>>>(v);
  read<std::vector<std::map<int, std::vector<std::string>>>>(v);
  read<std::tuple<int, std::string, std::vector<std::vector<float>>, bool, char>>(v);
  read<fuzzed::record>(v);
  return 0;
}
