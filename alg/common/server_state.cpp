// SPDX-License-Identifier: BSD-3-Clause
#include "server_state.hpp"

#include <paracel/consistency.hpp>
#include <paracel/error.hpp>

namespace paracel::alg {

state_plugin read_state_plugin(const config& from, const char* file_key, const char* functions_key,
                               std::vector<std::string> defaults) {
  state_plugin plugin{from.get<std::string>(file_key), std::move(defaults)};
  const auto named = from.get<std::vector<std::string>>(functions_key);
  if (!plugin.given() && !named.empty())
    throw config_error(from.place_of(functions_key) + ": given without " + file_key +
                       ", the plug-in that contains them");
  if (named.size() > plugin.functions.size()) {
    throw config_error(from.place_of(functions_key) + ": found " + std::to_string(named.size()) +
                       " functions, want at most " + std::to_string(plugin.functions.size()));
  }
  for (std::size_t i = 0; i < named.size(); ++i) plugin.functions[i] = named[i];
  return plugin;
}

state_plugin read_state_plugin(const config& from, const char* file_key,
                               std::initializer_list<std::pair<const char*, const char*>> keys_and_defaults) {
  state_plugin plugin{from.get<std::string>(file_key), {}};
  for (const auto& [key, fallback] : keys_and_defaults) {
    auto name = from.get<std::string>(key);
    if (!plugin.given() && !name.empty())
      throw config_error(from.place_of(key) + ": given without " + file_key + ", the plug-in that contains it");
    plugin.functions.push_back(name.empty() ? fallback : std::move(name));
  }
  return plugin;
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
