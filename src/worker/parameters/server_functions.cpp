// SPDX-License-Identifier: BSD-3-Clause
#include "worker/parameters/server_functions.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include <paracel/error.hpp>

#include "worker/job/request_failures.hpp"

namespace paracel {

bool server_functions::is_additive(std::uint64_t function) const {
  if (function == 0) return true;
  const auto found = std::ranges::find_if(known_, [&](const auto& f) { return f.second.id == function; });
  return found != known_.end() && found->second.additive;
}

std::string server_functions::symbol_with(const std::string& symbol, const hyper_parameters& hyper) {
  std::string text = symbol;
  for (const auto& [name, value] : hyper) {
    if (!std::isfinite(value))
      throw plugin_error(symbol + ": hyper-parameter '" + name + "' is " + std::to_string(value) +
                         ", want a finite number");
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    text += text.size() == symbol.size() ? '\0' : ',';
    text += name + '=';
    text.append(digits.data(), end);
  }
  return text;
}

std::uint64_t server_functions::find_function(const plugin_function& f) {
  return find(f.file_name, symbol_with(f.func_name, f.hyper), net::verb::register_update);
}

std::uint64_t server_functions::find_filter(const std::string& file, const std::string& symbol) {
  return find(file, symbol, net::verb::register_filter);
}

std::uint64_t server_functions::find(const std::string& file, const std::string& symbol, net::verb what) {
  const std::filesystem::path path(file);
  auto name = path.filename().string();
  const auto known_as = name + '\0' + symbol + '\0' + net::name_of(what);
  for (const auto& [name_and_symbol, f] : known_)
    if (name_and_symbol == known_as) return f.id;
  if (path.has_parent_path()) job_.allow_plugin_folder(path.parent_path().string());

  outcome o;
  known_function found;
  client_.broadcast({.what = what}, file, net::bytes_of(symbol), [&](const kv_result& r) {
    if (!r.ok()) {
      if (o.ok()) o = outcome(r);
    } else if (r.body.size() >= 9) {
      std::memcpy(&found.id, r.body.data(), 8);
      found.additive = r.body[8] != std::byte{0};
    } else {
      o = {net::status::internal, "a server's answer to register is too short"};
    }
  });
  // Up to the zero: without the hyper-parameters.
  if (!o.ok()) o.raise("registering " + name + ":" + symbol.c_str());
  known_.emplace_back(known_as, found);
  return found.id;
}

}  // namespace paracel
