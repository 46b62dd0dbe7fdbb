// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <paracel/error.hpp>
#include <paracel/settings.hpp>
#include <paracel/sparse.hpp>

namespace paracel::alg {

/// `cache`, `cache_folder`. Throws: config_error for a folder without `"cache": true`.
inline void cache_keys(key_list& k, load_cache_options& cache) {
  k("cache", cache.on, "keep the loaded input in binary form, which later jobs read while the input is unchanged");
  k("cache_folder", cache.folder, "folder of the cache; default: .paracel_cache next to the first file");
  if (const auto* from = k.from(); from != nullptr && from->given("cache_folder") && !cache.on)
    throw config_error(from->place_of("cache_folder") + R"(: only with "cache": true)");
}

}  // namespace paracel::alg
