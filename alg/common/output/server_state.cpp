// SPDX-License-Identifier: BSD-3-Clause
#include "server_state.hpp"

#include <algorithm>

#include <paracel/consistency.hpp>
#include <paracel/error.hpp>

namespace paracel::alg {

void state_plugin::functions_key(key_list& k, const char* file_key, const char* functions_key, const char* help,
                                 std::vector<std::string> defaults) {
  std::vector<std::string> named;
  k(functions_key, named, help);
  const auto refuse = [&](const std::string& why) { throw config_error(k.from()->place_of(functions_key) + why); };
  if (!given() && !named.empty())
    refuse(std::string(": given without ") + file_key + ", the plug-in that contains them");
  if (named.size() > defaults.size()) {
    refuse(": found " + std::to_string(named.size()) + " functions, want at most " + std::to_string(defaults.size()));
  }
  functions = std::move(defaults);
  std::ranges::move(named, functions.begin());
}

void state_plugin::function_keys(key_list& k, const char* file_key, std::initializer_list<function_key> keys) {
  functions.clear();
  for (const auto& f : keys) {
    std::string name;
    k(f.key, name, f.help);
    if (!given() && !name.empty())
      throw config_error(k.from()->place_of(f.key) + ": given without " + file_key + ", the plug-in that contains it");
    functions.push_back(name.empty() ? f.fallback : std::move(name));
  }
}

void refuse_keys(const config& from, std::initializer_list<const char*> keys, const std::string& why) {
  for (const auto* key : keys) {
    if (from.given(key)) throw config_error(from.place_of(key) + ": " + why);
  }
}

server_fold::server_fold(paralg& job, std::string file) : job_(job), file_(std::move(file)) {
  job_.set_consistency(consistency_model::bsp);
}

void server_fold::forget(const std::string& key) {
  // All workers have read the previous key, because they have committed since. Each worker removes it, or its cache
  // would keep growing.
  if (!last_.empty()) job_.paracel_remove(last_);
  last_ = key;
}

}  // namespace paracel::alg
