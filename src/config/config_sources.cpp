// SPDX-License-Identifier: BSD-3-Clause
#include "config/config_sources.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>
#include <utility>

#include "core/number_parsing.hpp"
#include "paracel/error.hpp"
#include "paracel/json_parser.hpp"
#include "storage/memory_file.hpp"

namespace paracel {

namespace {

constexpr std::size_t most_files = 256;  // without a limit a few files that include each other twice are read for ever
constexpr char set_option[] = "--set";

/// `place`: of the key that names the file; empty for the config itself.
std::string config_text(const std::string& file, const std::string& place) {
  if (const auto memory = storage::find_memory_file(file)) {
    std::string text(memory->bytes, '\0');
    memory->read(0, text);
    return text;
  }
  constexpr std::size_t limit = 16U << 20U;
  const auto refuse = [&](const std::string& why) {
    throw config_error((place.empty() ? "" : place + ": ") + file + ": " + why);
  };
  const auto closer = [](std::FILE* f) { std::fclose(f); };
  std::unique_ptr<std::FILE, decltype(closer)> in(std::fopen(file.c_str(), "rbe"), closer);
  if (in == nullptr) refuse(std::string("cannot be read: ") + std::strerror(errno));
  std::string text;
  char buffer[1 << 16];
  std::size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof buffer, in.get())) > 0) {
    text.append(buffer, got);
    if (text.size() > limit) refuse("larger than 16 MB, not a config");
  }
  if (std::ferror(in.get()) != 0) refuse(std::string("cannot be read: ") + std::strerror(errno));
  return text;
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code absent;
  return a == b || std::filesystem::equivalent(a, b, absent);
}

/// Adds members to others, of which those with the same names go.
void put_over(std::vector<config_member>& all, std::vector<config_member> by) {
  std::erase_if(all, [&](const config_member& old) {
    return std::ranges::any_of(by, [&](const config_member& m) { return m.name == old.name; });
  });
  std::ranges::move(by, std::back_inserter(all));
}

class include_resolver {
 public:
  /// Puts what `node`, which was read from `file`, includes before its own keys.
  void resolve(const std::string& file, config_node& node) {
    if (node.type != config_node::kind::object) return;
    std::erase_if(node.members, [](const config_member& m) { return m.name == schema_key; });
    const auto is_include = [](const config_member& m) { return m.name == include_key; };
    const auto found = std::ranges::find_if(node.members, is_include);
    if (found == node.members.end()) return;
    if (const auto again = std::find_if(found + 1, node.members.end(), is_include); again != node.members.end())
      throw config_error(again->place() + ": key \"include\" is given twice, first in line " +
                         std::to_string(found->line));
    const auto place = found->place() + ": key \"include\"";
    const auto names = names_in(found->value, place);
    node.members.erase(found);

    chain_.push_back(file);
    std::vector<config_member> members;
    for (const auto& name : names) {
      auto included = (std::filesystem::path(file).parent_path() / name).string();
      refuse_cycle(included, place);
      if (chain_.size() > config_depth_limit || ++files_ > most_files)
        throw config_error(place + ": more than " +
                           (files_ > most_files ? std::to_string(most_files) + " files are included"
                                                : std::to_string(config_depth_limit) + " files include each other"));
      auto base = parse_config(included, config_text(included, place));
      if (base.type != config_node::kind::object)
        throw config_error(included + ":1:1: found " + base.described() + ", want an object {\"key\": value, ...}");
      resolve(included, base);
      put_over(members, std::move(base.members));
    }
    chain_.pop_back();
    put_over(members, std::move(node.members));
    node.members = std::move(members);
  }

 private:
  static std::vector<std::string> names_in(const config_node& value, const std::string& place) {
    std::vector<std::string> names;
    const bool list = value.type == config_node::kind::list;
    const auto* items = list ? value.items.data() : &value;
    for (std::size_t i = 0; i < (list ? value.items.size() : 1); ++i) {
      const auto& text = items[i].text;
      const bool has_control = std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
      if (items[i].type != config_node::kind::string || text.empty() || has_control)  // an error is one line
        throw config_error(place + ": found " + items[i].described() + ", want the name of a file, or a list of them");
      names.push_back(text);
    }
    return names;
  }
  void refuse_cycle(const std::string& next, const std::string& place) const {
    const auto begin = std::ranges::find_if(chain_, [&](const auto& file) { return is_same_file(file, next); });
    if (begin == chain_.end()) return;
    std::string circle;
    std::for_each(begin, chain_.end(), [&](const std::string& file) { circle += file + " -> "; });
    throw config_error(place + ": includes itself: " + circle + next);
  }

  std::vector<std::string> chain_;  // of files, each included by the one before it
  std::size_t files_ = 0;
};

config_node override_value(const std::string& text) {
  try {
    return parse_config(set_option, text);
  } catch (const config_error&) {  // not JSON
    config_node n;
    n.type = config_node::kind::string;
    n.text = text;
    return n;
  }
}

/// Where `name` is: itself, or inside an object. Returns: the object, and the name there.
std::pair<config_node*, std::string> holder_of(config_node& root, std::string name) {
  auto* in = &root;
  for (auto dot = name.find('.'); dot != std::string::npos && in->find(name) == nullptr; dot = name.find('.')) {
    const auto outer = std::ranges::find_if(in->members, [&](const auto& m) {
      return m.name == std::string_view(name).substr(0, dot) && m.value.type == config_node::kind::object;
    });
    if (outer == in->members.end()) break;
    in = &outer->value;
    name.erase(0, dot + 1);
  }
  return {in, name};
}

void apply_overrides(config_node& root, const std::vector<std::string>& overrides) {
  std::vector<std::pair<std::string, std::string>> seen;
  for (const auto& word : overrides) {
    const auto equals = word.find('=');
    if (equals == std::string::npos || equals == 0)
      throw usage_error("--set: found " + quote_for_error(word) + ", want KEY=VALUE");
    const auto key = word.substr(0, equals);
    const auto text = word.substr(equals + 1);
    const auto place = std::string(set_option) + ": key " + quote_for_error(key);
    if (key == include_key) throw config_error(place + ": want it in the config");
    const auto before = std::ranges::find_if(seen, [&](const auto& s) { return s.first == key; });
    if (before != seen.end())
      throw config_error(place + " is given twice, first as " + quote_for_error(before->second));
    seen.emplace_back(key, text);
    const auto [in, name] = holder_of(root, key);
    std::vector<config_member> one(1);
    one[0].name = name;
    one[0].origin = set_option;
    one[0].written = text;
    one[0].value = override_value(text);
    put_over(in->members, std::move(one));
  }
}

void add_json(std::string& to, const config_node& node) {
  const char* between = "";
  switch (node.type) {
    case config_node::kind::null:
      to += "null";
      break;
    case config_node::kind::boolean:
      to += node.boolean ? "true" : "false";
      break;
    case config_node::kind::integer:
    case config_node::kind::number:
      to += node.text;
      break;
    case config_node::kind::string:
      to += json_quoted(node.text);
      break;
    case config_node::kind::list:
      to += '[';
      for (const auto& item : node.items) {
        to += std::exchange(between, ", ");
        add_json(to, item);
      }
      to += ']';
      break;
    case config_node::kind::object:
      to += '{';
      for (const auto& m : node.members) {
        to += std::exchange(between, ", ") + json_quoted(m.name) + ": ";
        add_json(to, m.value);
      }
      to += '}';
      break;
  }
}

bool is_number(const config_node& n) {
  return n.type == config_node::kind::integer || n.type == config_node::kind::number;
}

void add_changes(std::vector<config_change>& all, const std::string& outer, const config_node& before,
                 const config_node& now) {
  for (const auto& [name, line, column, old, origin, written] : before.members) {
    if (before.find(name) != &old) continue;
    const auto* fresh = now.find(name);
    if (fresh == nullptr) {
      all.push_back({outer + name, config_json(old), ""});
    } else if (old.type == config_node::kind::object && fresh->type == config_node::kind::object) {
      add_changes(all, outer + name + '.', old, *fresh);
    } else {
      const auto a = config_json(old), b = config_json(*fresh);
      const bool same = is_number(old) && is_number(*fresh) ? old.as_number() == fresh->as_number() : a == b;
      if (!same) all.push_back({outer + name, a, b});
    }
  }
  for (const auto& m : now.members) {
    if (before.find(m.name) == nullptr && now.find(m.name) == &m.value)
      all.push_back({outer + m.name, "", config_json(m.value)});
  }
}

}  // namespace

config_node parse_sources(const std::string& file, std::string_view text, const std::vector<std::string>& overrides) {
  auto root = parse_config(file, text);
  include_resolver().resolve(file, root);
  if (root.type == config_node::kind::object) apply_overrides(root, overrides);
  return root;
}

config_node read_config(const std::string& file, const std::vector<std::string>& overrides) {
  const auto text = config_text(file, "");
  auto root = parse_sources(file, text, overrides);
  if (storage::find_memory_file(file) == nullptr) note_config_folder(file);
  return root;
}

std::string config_json(const config_node& node) {
  std::string text;
  add_json(text, node);
  return text;
}

std::vector<config_change> config_changes(const config_node& before, const config_node& now) {
  std::vector<config_change> all;
  add_changes(all, "", before, now);
  return all;
}

}  // namespace paracel
