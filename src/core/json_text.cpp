// SPDX-License-Identifier: BSD-3-Clause
#include "core/json_text.hpp"

#include <nlohmann/json.hpp>

namespace paracel {

using nlohmann::json;

namespace {

constexpr int deepest = 16;
struct too_deep {};

}  // namespace

std::string json_text(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); }

json json_from(std::string_view text, std::size_t most_bytes) {
  if (text.size() > most_bytes) return json(json::value_t::discarded);
  const auto within = [](int depth, json::parse_event_t event, json&) {
    const bool opens = event == json::parse_event_t::array_start || event == json::parse_event_t::object_start;
    if (opens && depth >= deepest) throw too_deep();
    return true;
  };
  try {
    return json::parse(text, within, false);
  } catch (const too_deep&) {
    return json(json::value_t::discarded);
  }
}

}  // namespace paracel
