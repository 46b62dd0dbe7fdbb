// SPDX-License-Identifier: BSD-3-Clause
#include "config/launch_facts.hpp"

#include <algorithm>
#include <string_view>
#include <variant>

#include <nlohmann/json.hpp>

#include "config/config_sources.hpp"
#include "config/json_document.hpp"
#include "core/json_io.hpp"
#include "paracel/error.hpp"
#include "paracel/schema.hpp"

namespace paracel {

namespace {

bool names_plugin(std::string_view key) { return key == "update_file" || key == "filter_file" || key == "handle_file"; }

bool is_library(std::string_view text) { return text.ends_with(".so"); }

void add_plugin(launch_facts& facts, const std::string& name) {
  if (!name.empty() && std::ranges::find(facts.plugins, name) == facts.plugins.end()) facts.plugins.push_back(name);
}

/// Texts at any depth that end in ".so". Recursion is limited by config_depth_limit.
void add_libraries(launch_facts& facts, const config_node& node) {
  if (node.type == config_node::kind::string && is_library(node.text)) add_plugin(facts, node.text);
  for (const auto& item : node.items) add_libraries(facts, item);
  for (const auto& m : node.members) add_libraries(facts, m.value);
}

bool is_standard_input(const config_node& node) { return node.type == config_node::kind::string && node.text == "-"; }

}  // namespace

launch_facts facts_of(const config& checked, const config_schema& of) {
  launch_facts facts;
  facts.not_resumable_key = of.not_resumable_key(checked);
  for (const auto& [name, type, value] : checked.all()) {
    if (type == key_type::output_folder && facts.output.empty()) facts.output = std::get<std::string>(value);
    if (!checked.given(name)) continue;
    if (const auto* text = std::get_if<std::string>(&value)) {
      if (type == key_type::plugin || names_plugin(name) || is_library(*text)) add_plugin(facts, *text);
    } else if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
      for (const auto& one : *list) {
        if (is_library(one)) add_plugin(facts, one);
      }
      if (type == key_type::files && facts.standard_input.empty() && std::ranges::find(*list, "-") != list->end())
        facts.standard_input = checked.place_of(name);
    }
  }
  return facts;
}

launch_facts facts_of_file(const std::string& file, const std::vector<std::string>& overrides) {
  const auto root = read_config(file, overrides);
  if (root.type != config_node::kind::object)
    throw config_error(file + ":1:1: found " + root.described() + ", want an object {\"key\": value, ...}");
  launch_facts facts;
  for (const auto& m : root.members) {
    if (root.find(m.name) != &m.value) continue;  // of duplicates the last one counts
    if (names_plugin(m.name) && m.value.type == config_node::kind::string) add_plugin(facts, m.value.text);
    add_libraries(facts, m.value);
    if (!facts.standard_input.empty()) continue;
    if (!is_standard_input(m.value) && !std::ranges::any_of(m.value.items, is_standard_input)) continue;
    facts.standard_input = m.place() + ": key \"" + m.name + '"';
  }
  return facts;
}

std::string facts_json(const launch_facts& facts, const config_schema* of) {
  nlohmann::json answer = {{"plugins", facts.plugins}, {"standard_input", facts.standard_input}};
  if (of != nullptr) {
    answer["program"] = of->program();
    answer["resumable"] = of->resumable() && facts.not_resumable_key.empty();
    if (!facts.output.empty()) answer["output"] = facts.output;
    if (!facts.remarks.empty()) answer["remarks"] = facts.remarks;
    if (!facts.not_resumable_key.empty()) answer["not_resumable_key"] = facts.not_resumable_key;
  }
  return json_text(answer);
}

std::string failure_json(const error& e) { return json_text({{"error", e.what()}, {"status", e.status()}}); }

}  // namespace paracel
