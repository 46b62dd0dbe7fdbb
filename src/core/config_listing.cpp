// SPDX-License-Identifier: BSD-3-Clause
#include "core/config_listing.hpp"

#include <nlohmann/json.hpp>

#include "core/config_tree.hpp"
#include "core/json_text.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

std::string quoted(const std::string& text) { return json_text(nlohmann::json(text)); }

/// Numbers stay as they were written. Recursion as deep as a config may be.
std::string value_text(const config_node& n) {
  std::string all;
  switch (n.type) {
    case config_node::kind::null: return "null";
    case config_node::kind::boolean: return n.boolean ? "true" : "false";
    case config_node::kind::integer:
    case config_node::kind::number: return n.text;
    case config_node::kind::string: return quoted(n.text);
    case config_node::kind::list:
      for (const auto& item : n.items) all += (all.empty() ? "" : ",") + value_text(item);
      return "[" + all + "]";
    case config_node::kind::object:
      for (const auto& m : n.members) all += (all.empty() ? "" : ",") + quoted(m.name) + ":" + value_text(m.value);
      return "{" + all + "}";
  }
  return "null";
}

}  // namespace

std::string config_listing(const std::string& file) try {
  const auto root = read_config(file);
  if (root.type != config_node::kind::object) {
    throw config_error(file + ":1:1: found " + root.described() + ", want an object {\"key\": value, ...}");
  }
  std::string keys;
  for (const auto& m : root.members) {
    const auto value = value_text(m.value);
    keys += (keys.empty() ? "" : ",") + std::string("{\"name\":") + quoted(m.name) + ",\"line\":" + std::to_string(m.line) +
            ",\"column\":" + std::to_string(m.column) + ",\"written\":" + quoted(value) + ",\"value\":" + value + "}";
  }
  return "{\"keys\":[" + keys + "]}";
} catch (const config_error& e) {
  return "{\"error\":" + quoted(e.what()) + "}";
}

}  // namespace paracel
