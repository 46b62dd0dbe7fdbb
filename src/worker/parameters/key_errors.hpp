// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>
#include <utility>

#include <paracel/error.hpp>

#include "core/number_parsing.hpp"

namespace paracel {

/// The text of `e`, which is about the value of this key, begins with the key from now on.
[[noreturn]] inline void rethrow_naming(std::string_view key, const type_error& e) {
  if (std::string_view(e.what()).starts_with("key ")) throw type_error(e);
  throw type_error("key " + quote_for_error(key) + ": " + e.what(), e.status());
}

/// Passes the value of a key on; a type_error then begins with the key.
template <class F>
void naming_key(std::string_view key, F&& put) {
  try {
    std::forward<F>(put)();
  } catch (const type_error& e) {
    rethrow_naming(key, e);
  }
}

}  // namespace paracel
