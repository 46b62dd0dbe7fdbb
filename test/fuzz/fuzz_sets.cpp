// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes as the payloads of set requests: accepted input has the announced length and lies within its body.
#include <cstdint>
#include <cstring>
#include <span>

#include "property.hpp"
#include "server/store/key_sets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paracel;
  if (size < 5) return 0;
  std::uint32_t count = 0;
  std::memcpy(&count, data, sizeof count);
  const auto tag = static_cast<value_tag>(data[4]);
  const std::span<const std::byte> body(reinterpret_cast<const std::byte*>(data + 5), size - 5);
  srv::set_values values;
  if (is_known(tag) && srv::parse_set_values(tag, body, count, values) == nullptr) {
    if (values.uniform()) {
      require(values.bytes * count == body.size(), "uniform values fill their body");
      if (count != 0) {
        const auto last = values.at(count - 1);
        require(is_well_formed(last), "a uniform value is a value");
        require(last.bytes.data() + last.bytes.size() == body.data() + body.size(),
                "the last value ends with the body");
      }
    } else {
      net::request_items cursor(body, count);
      std::uint32_t n = 0;
      for (net::request_item item; cursor.next(item);) ++n;
      require(n == count && cursor.ok(), "accepted items can be read");
    }
  }
  srv::key_sets sets;
  const auto digest = digest_of(body);
  require(sets.prepare({digest.low + 1, digest.high}, body, count) != nullptr, "another digest is refused");
  if (sets.prepare(digest, body, count) == nullptr) {
    const auto* set = sets.find(digest);
    require(set != nullptr && set->size() == count, "an accepted set has its keys");
    net::request_items cursor(body, count);
    std::size_t i = 0;
    for (net::request_item item; cursor.next(item); ++i) {
      require(set->key(i) == item.key && set->hash(i) == hash_key(item.key), "each where it was");
    }
  } else {
    require(sets.size() == 0, "what is refused is not kept");
  }
  return 0;
}
