// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/json_parser.hpp"

#include <charconv>
#include <string_view>

#include <nlohmann/json.hpp>

#include "config/config_sources.hpp"
#include "config/json_document.hpp"
#include "core/json_io.hpp"
#include "paracel/error.hpp"
#include "storage/file_glob.hpp"

namespace paracel {

namespace {

const config_node* find_path(const config_node& root, std::string_view key) {
  // A key that itself contains a dot is found before the path that it resembles.
  if (const auto* direct = root.find(key)) return direct;
  const config_node* at = &root;
  while (at != nullptr) {
    const auto dot = key.find('.');
    at = at->find(key.substr(0, dot));
    if (dot == std::string_view::npos) return at;
    key.remove_prefix(dot + 1);
  }
  return nullptr;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string s;
  for (const auto& n : names) s += (s.empty() ? "" : ", ") + n;
  return s;
}

}  // namespace

std::string json_quoted(std::string_view text) { return json_text(nlohmann::json(text)); }

json_parser::json_parser(const std::string& file) : file_(file) {
  if (file.empty()) throw config_error("no config file given: want --cfg_file FILE");
  root_ = std::make_shared<const config_node>(read_config(file));
  if (root_->type != config_node::kind::object) {
    throw config_error(file + ":1:1: found " + root_->described() + ", want an object {\"key\": value, ...}");
  }
}

bool json_parser::has(const std::string& key) const { return find_path(*root_, key) != nullptr; }

const config_node& json_parser::at(const std::string& key) const {
  if (const auto* found = find_path(*root_, key)) return *found;
  std::vector<std::string> names;
  for (const auto& m : root_->members) names.push_back(m.name);
  std::string text = file_ + ": key \"" + key + "\" is missing";
  if (const auto near = nearest_name(key, names); !near.empty()) text += "; is it misspelt as \"" + near + "\"?";
  throw config_error(text + " (keys found: " + list_of(names) + ")");
}

const config_node& json_parser::item(const std::string& key, const std::size_t* index) const {
  const auto& node = at(key);
  if (index == nullptr || node.type != config_node::kind::list) return node;
  return node.items[*index];
}

std::size_t json_parser::count(const std::string& key) const {
  const auto& node = at(key);
  return node.type == config_node::kind::list ? node.items.size() : 1;
}

void json_parser::wrong(const std::string& key, const config_node& found, const std::string& wanted) const {
  std::string place = file_;
  for (const auto& m : root_->members) {
    if (&m.value == &found) place = m.place();
  }
  throw config_error(place + ": key \"" + key + "\": found " + found.described() + ", want " + wanted);
}

void json_parser::check_exists(const std::string& key, const std::string& name) const {
  if (storage::file_exists(name)) return;
  throw argument_error(file_ + ": key \"" + key + "\": no such file or folder: " + name, exit_status::config);
}

void json_parser::get(const std::string& key, const std::size_t* index, std::string& to) const {
  const auto& node = item(key, index);
  auto value = node.as_string();
  if (!value) wrong(key, node, "a string");
  to = std::move(*value);
}

void json_parser::get(const std::string& key, const std::size_t* index, bool& to) const {
  const auto& node = item(key, index);
  const auto value = node.as_boolean();
  if (!value) wrong(key, node, "true or false");
  to = *value;
}

void json_parser::get(const std::string& key, const std::size_t* index, double& to) const {
  const auto& node = item(key, index);
  const auto value = node.as_number();
  if (!value) wrong(key, node, "a number");
  to = *value;
}

void json_parser::get(const std::string& key, const std::size_t* index, float& to) const {
  double wide = 0;
  get(key, index, wide);
  to = static_cast<float>(wide);
}

std::int64_t json_parser::signed_at(const std::string& key, const std::size_t* index, std::int64_t least,
                                    std::int64_t most) const {
  const auto& node = item(key, index);
  const auto value = node.as_integer();
  if (!value || *value < least || *value > most) {
    wrong(key, node, "an integer from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return *value;
}

std::uint64_t json_parser::unsigned_at(const std::string& key, const std::size_t* index, std::uint64_t most) const {
  const auto& node = item(key, index);
  const auto value = node.as_integer();
  std::uint64_t wide = 0;
  if (value && *value >= 0) {
    wide = static_cast<std::uint64_t>(*value);
  } else {
    const char* last = node.text.data() + node.text.size();
    const auto [end, problem] = std::from_chars(node.text.data(), last, wide);
    if (problem != std::errc() || end != last) wrong(key, node, "an integer from 0 to " + std::to_string(most));
  }
  if (wide > most) wrong(key, node, "an integer from 0 to " + std::to_string(most));
  return wide;
}

}  // namespace paracel
