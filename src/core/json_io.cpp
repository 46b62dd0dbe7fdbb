// SPDX-License-Identifier: BSD-3-Clause
#include "core/json_io.hpp"

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

namespace paracel {

using nlohmann::json;

namespace {

constexpr int deepest = 16;

bool within_depth(int depth, json::parse_event_t event, json&) {
  const bool opens = event == json::parse_event_t::array_start || event == json::parse_event_t::object_start;
  if (opens && depth >= deepest) throw data_error("nested deeper than " + std::to_string(deepest) + " levels");
  return true;
}

}  // namespace

std::string json_text(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); }

json json_from(std::string_view text, std::size_t most_bytes) {
  if (text.size() > most_bytes) return json(json::value_t::discarded);
  try {
    return json::parse(text, within_depth, false);
  } catch (const data_error&) {
    return json(json::value_t::discarded);
  }
}

json json_or_throw(std::string_view text) { return json::parse(text, within_depth); }

}  // namespace paracel
