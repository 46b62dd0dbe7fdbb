// SPDX-License-Identifier: BSD-3-Clause
//
// Requests of every kind to shard number 0 of very many, to which all their keys belong.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/hash.hpp"
#include "net/protocol.hpp"
#include "net/row_codec.hpp"
#include "net/scan_codec.hpp"
#include "server/plugin/plugin_registry.hpp"
#include "test/support/paths.hpp"

namespace paracel::test::shard_requests {

using net::verb;
using bytes = std::vector<std::byte>;

inline constexpr std::uint32_t threads = 1024;  // 16 partitions in a shard: several keys of a request are in the same
                                                // one

template <class T>
bytes raw(const std::vector<T>& numbers) {
  const auto all = std::as_bytes(std::span(numbers));
  return {all.begin(), all.end()};
}
inline void join(bytes& to, std::span<const std::byte> what) { to.insert(to.end(), what.begin(), what.end()); }
inline value_view array(const bytes& b) { return {value_tag::f64_array, b}; }

/// The i-th name, or id, that belongs to the shard.
inline const std::string& name(std::size_t i) {
  static std::vector<std::string> names;
  for (std::size_t n = 0; names.size() <= i; ++n) {
    auto text = "a key that no string keeps in itself " + std::to_string(n);
    if (std::find(names.begin(), names.end(), text) != names.end()) continue;
    if (partition_of(hash_key(text)) % threads == 0) names.push_back(std::move(text));
  }
  return names[i];
}
inline std::uint64_t id(std::size_t i) {
  static std::vector<std::uint64_t> ids;
  for (std::uint64_t n = ids.empty() ? 0 : ids.back() + 1; ids.size() <= i; ++n) {
    if (partition_of(net::hash_row(n)) % threads == 0) ids.push_back(n);
  }
  return ids[i];
}

inline srv::plugin_registry& test_plugins() {
  static srv::plugin_registry all({plugin_folder()});
  return all;
}
inline std::uint64_t function(std::string_view plugin, std::string_view symbol) {
  return test_plugins().load_update(plugin, symbol).id;
}

struct request {
  net::request_header h;
  std::string key;
  bytes payload;
  bool in_tail = false;
};

inline const std::vector<double> delta{1, 2, 3};

inline request single(verb what, std::size_t key, std::vector<double> value = delta, std::uint64_t f = 0) {
  request r{{.what = what, .function = f}, name(key), raw(value), false};
  if (!value.empty()) r.h.tag = value_tag::f64_array;
  return r;
}
inline request staged(std::size_t key, std::uint32_t clock, std::uint64_t f = 0) {
  auto r = single(verb::update, key, delta, f);
  r.h.flags = net::flag_staged;
  r.h.clock = clock;
  return r;
}
inline request bsp(request r, std::uint32_t clock) {
  r.h.flags |= net::flag_bsp_read;
  r.h.clock = clock;
  return r;
}
inline constexpr std::size_t many = 40;  // more than are handled at once
inline request multi(verb what, std::uint64_t f = 0) {
  request r{{.what = what, .function = f, .count = many}, {}, {}, false};
  const auto value = raw(delta);
  bytes both;
  net::append_item(both, {}, array(value));
  net::append_item(both, {}, array(value));
  bytes elements = raw(std::vector<std::int32_t>{0, 2});
  join(elements, raw(std::vector<double>{5, 6}));
  for (std::size_t i = 0; i < many; ++i) {
    value_view v;
    if (what == verb::update_default_multi) v = {value_tag::packed, both};
    else if (what == verb::update_at_multi) v = {value_tag::f64_array, elements};
    else if (what != verb::remove_multi) v = array(value);
    net::append_item(r.payload, name(i), v);
  }
  return r;
}
inline bytes set_keys() {
  bytes keys;
  for (std::size_t i = 0; i < many; ++i) net::append_item(keys, name(i));
  return keys;
}
inline std::string set_name() {
  const auto d = digest_of(set_keys());
  return {reinterpret_cast<const char*>(&d), sizeof d};
}
inline request prepare_set() { return {{.what = verb::set_prepare, .count = many}, set_name(), set_keys(), false}; }
inline request of_set(verb what) {
  request r{{.what = what, .tag = value_tag::f64_array, .count = many}, set_name(), {}, false};
  for (std::size_t i = 0; i < many; ++i) join(r.payload, raw(delta));
  return r;
}
inline request scan_request(verb what) {
  request r{{.what = what}, "a key", {}, false};
  net::append(r.payload, net::scan_request{});
  return r;
}
inline request open(std::string_view symbol) {
  net::table_definition d;
  d.element = value_tag::f32;
  d.width = 2;
  d.init = row_init::uniform(-1, 1, 3);
  if (!symbol.empty()) d.plugin = "libparacel_default.so";
  d.symbol = symbol;
  return {{.what = verb::table_open}, "table", net::encode(d), false};
}
inline request rows(verb what, bool named, std::size_t first = 0) {
  request r{{.what = what, .tag = value_tag::f32, .table = net::table_id("table"), .count = many}, {}, {}, false};
  if (named) r.h.flags = net::flag_named;
  for (std::size_t i = first; i < first + many; ++i) {
    const auto length = static_cast<std::uint32_t>(name(i).size());
    if (named) join(r.payload, std::as_bytes(std::span(&length, 1)));
    else join(r.payload, raw(std::vector{id(i)}));
  }
  for (std::size_t i = first; named && i < first + many; ++i) join(r.payload, net::bytes_of(name(i)));
  r.payload.resize((r.payload.size() + 7) / 8 * 8);
  if (what == verb::rows_push || what == verb::rows_update) {
    for (std::size_t i = 0; i < many; ++i) join(r.payload, raw(std::vector<float>{float(i) + 1, 2}));
  }
  return r;
}
inline request staged(request r, std::uint32_t clock) {
  r.h.flags |= net::flag_staged;
  r.h.clock = clock;
  return r;
}

}  // namespace paracel::test::shard_requests
