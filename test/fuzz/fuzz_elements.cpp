// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes as the elements of pull_at and update_at, on an array of any size. Accepted operations are also
// applied to a plain vector, element by element, with the same result.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <paracel/update.hpp>

#include "core/hash.hpp"
#include "property.hpp"
#include "server/store/element_access.hpp"

namespace {

using namespace paracel;
using namespace paracel::srv;

using number = std::uint32_t;  // bits of an int32, which wraps

template <bool Adds>
struct change {
  void operator()(std::span<std::int32_t> value, std::span<const std::int32_t> delta) const noexcept {
    for (std::size_t i = 0; i < value.size(); ++i) {
      value[i] = static_cast<std::int32_t>((Adds ? static_cast<number>(value[i]) : 0) + static_cast<number>(delta[i]));
    }
  }
};

const loaded_update& function(bool adds) {
  static const update_result sum = additive(update_in_place<std::int32_t>(change<true>()));
  static const update_result last = update_in_place<std::int32_t>(change<false>());
  static const loaded_update both[] = {{1, "last", &last, false}, {2, "sum", &sum, true}};
  return both[adds ? 1 : 0];
}

number load(std::span<const std::byte> from, std::size_t i) {
  number n = 0;
  std::memcpy(&n, from.data() + i * sizeof n, sizeof n);
  return n;
}

std::size_t element(const element_choice& c, std::size_t i) { return c.is_range ? c.first + i : load(c.offsets, i); }

bool all_there(const element_choice& c, std::size_t size) {
  if (c.is_range) return std::uint64_t{c.first} + c.count <= size;
  for (std::size_t i = 0; i < c.count; ++i) {
    if (element(c, i) >= size) return false;
  }
  return true;
}

void pull(std::span<const std::byte> payload, bool range, const std::vector<number>& model) {
  element_choice c;
  if (parse_pull_at({value_tag::i32_array, payload}, range, c) != nullptr) return;
  value_view out;
  std::vector<std::byte> memory;
  std::string why;
  const auto s = pull_elements({value_tag::i32_array, std::as_bytes(std::span(model))}, c, out, memory, why);
  require((s == net::status::ok) == all_there(c, model.size()), "elements are pulled when they are there");
  if (s != net::status::ok) return;
  require(out.bytes.size() == std::size_t{c.count} * sizeof(number), "as many as were asked for");
  for (std::size_t i = 0; i < c.count; ++i) require(load(out.bytes, i) == model[element(c, i)], "the ones asked for");
}

void update(std::span<const std::byte> payload, bool range, bool adds, std::vector<number> model) {
  element_change c;
  if (parse_update_at({value_tag::i32_array, payload}, range, c) != nullptr) return;
  chunk_pool pool;
  arena memory{pool};
  table_stats family;
  table t(memory, family);
  const auto hash = hash_key("k");
  auto& e = t.store(hash, "k", {value_tag::i32_array, std::as_bytes(std::span(model))});
  std::string why;
  const auto s = update_elements(function(adds), t, e, c, why);
  require((s == net::status::ok) == all_there(c.where, model.size()), "elements are changed when they are there");
  if (s == net::status::ok) {
    for (std::size_t i = 0; i < c.where.count; ++i) {
      auto& m = model[element(c.where, i)];
      m = (adds ? m : 0) + load(c.numbers.bytes, i);
    }
  }
  const auto now = e.value();
  for (std::size_t i = 0; i < model.size(); ++i)
    require(load(now, i) == model[i], "exactly the chosen elements change");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const bool range = (data[0] & 1U) != 0;
  const bool adds = (data[0] & 2U) != 0;
  std::vector<number> model(data[1]);
  for (std::size_t i = 0; i < model.size(); ++i) model[i] = static_cast<number>(i) * 2654435761U;
  const auto* from = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> payload(from + 2, from + size);  // exact size, so that reads beyond it are detected
  pull(payload, range, model);
  update(payload, range, adds, model);
  return 0;
}
