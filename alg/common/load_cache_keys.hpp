// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <paracel/error.hpp>
#include <paracel/schema.hpp>
#include <paracel/sparse.hpp>

namespace paracel::alg {

/// `cache`, `cache_folder`.
inline void add_cache_keys(config_schema& s) {
  s.key("cache", key_type::boolean,
        "keep the loaded input in binary form, which later jobs read while the input is unchanged")
      .fallback(false);
  s.key("cache_folder", key_type::string, "folder of the cache; default: .paracel_cache next to the first file");
}

/// Throws: config_error for a folder without `"cache": true`.
inline load_cache_options cache_options(const config& from) {
  load_cache_options o{.on = from.get<bool>("cache"), .folder = {}};
  if (!from.given("cache_folder")) return o;
  if (!o.on) throw config_error(from.place_of("cache_folder") + R"(: only with "cache": true)");
  o.folder = from.get<std::string>("cache_folder");
  return o;
}

}  // namespace paracel::alg
