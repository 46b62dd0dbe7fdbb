// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/schema.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <span>

#include "config/config_sources.hpp"
#include "config/json_document.hpp"
#include "core/number_parsing.hpp"
#include "paracel/json_parser.hpp"
#include "storage/file_glob.hpp"
#include "storage/memory_file.hpp"

namespace paracel {

namespace {

const char* type_name(key_type t) {
  switch (t) {
    case key_type::string:
      return "string";
    case key_type::integer:
      return "int";
    case key_type::number:
      return "double";
    case key_type::boolean:
      return "bool";
    case key_type::numbers:
      return "doubles";
    case key_type::strings:
      return "strings";
    case key_type::file:
      return "file";
    case key_type::files:
      return "files";
    case key_type::plugin:
      return "plugin";
    case key_type::output_folder:
      return "folder_out";
  }
  return "string";
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string s;
  for (std::size_t i = 0; i < words.size(); ++i) s += (i == 0 ? "" : between) + words[i];
  return s;
}

std::string json_list(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const auto& w : words) quoted.push_back(json_quoted(w));
  return "[" + joined(quoted, ", ") + "]";
}

/// Whether it is an empty text or list, which is equivalent to an absent key.
bool is_empty(const config_value& v) {
  if (const auto* s = std::get_if<std::string>(&v)) return s->empty();
  if (const auto* l = std::get_if<std::vector<std::string>>(&v)) return l->empty();
  return false;
}

config_value zero_of(key_type t) {
  switch (t) {
    case key_type::integer:
      return std::int64_t{0};
    case key_type::number:
      return 0.0;
    case key_type::boolean:
      return false;
    case key_type::files:
    case key_type::strings:
      return std::vector<std::string>{};
    case key_type::numbers:
      return std::vector<double>{};
    default:
      return std::string();
  }
}

/// A limit in plain notation: 1000000000 and not 1e+09.
std::string limit_text(double v) {
  return std::abs(v) < 1e15 && v == std::floor(v) ? std::to_string(static_cast<std::int64_t>(v)) : number_text(v);
}

std::string json_of(const config_value& v) {
  if (const auto* b = std::get_if<bool>(&v)) return *b ? "true" : "false";
  if (const auto* i = std::get_if<std::int64_t>(&v)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&v)) return number_text(*d);
  if (const auto* s = std::get_if<std::string>(&v)) return json_quoted(*s);
  return "null";
}

/// The name of one existing file, folder or pattern.
/// Throws: config_error; data_error when there is nothing in the folder, as for a file with nothing in it.
void require_input(const std::string& name, const std::string& place) {
  const auto wrong = [&](const std::string& what) { throw config_error(place + ": " + what); };
  if (storage::find_memory_file(name) != nullptr) return;
  if (!storage::file_exists(name)) wrong("no such file or folder: " + name);
  const auto files = storage::expand_files(name);
  if (files.empty()) throw data_error(place + ": no file in folder: " + name);
  for (const auto& f : files) {
    struct stat about {};
    if (::stat(f.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) wrong("not a regular file: " + f);
    // Opened rather than checked: access(2) ignores capabilities on network file systems.
    if (std::FILE* in = std::fopen(f.c_str(), "rbe")) std::fclose(in);
    else wrong("cannot be read: " + f);
  }
}

}  // namespace

bool config::given(std::string_view name) const {
  const auto found = entries_.find(name);
  return found != entries_.end() && !found->second.place.empty();
}

bool config::has_value(std::string_view name) const {
  const auto& e = at(name);
  return !e.place.empty() || e.has_default;
}

const config::entry& config::at(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw config_error(file_ + ": the schema has no key \"" + std::string(name) + "\"");
  return found->second;
}

std::string config::place_of(std::string_view name) const {
  const auto found = entries_.find(name);
  const bool stands = found != entries_.end() && !found->second.place.empty();
  return (stands ? found->second.place : file_) + ": key \"" + std::string(name) + "\"";
}

std::vector<config::setting> config::all() const {
  std::vector<setting> settings;
  for (const auto& [name, e] : entries_) settings.push_back({name, e.type, e.value});
  return settings;
}

config_schema::config_schema(std::string program, std::string summary, const char* marker)
    : program_(std::move(program)), summary_(std::move(summary)), marker_(marker) {}

key_spec& config_schema::key(std::string name, key_type type, std::string help) {
  return keys_.emplace_back(std::move(name), type, std::move(help));
}

void config_schema::add_output_files() {
  output_files_ = true;
  key(output_files_key, key_type::integer, "1: one file of results for all workers; absent: one per worker")
      .at_least(1)
      .at_most(1);
}

std::string config_schema::not_resumable_key(const config& checked) const {
  const auto key = std::ranges::find_if(keys_, [&](const auto& k) { return !k.resumable_ && checked.given(k.name_); });
  if (key != keys_.end()) return checked.place_of(key->name_);
  return not_resumable_with_ ? not_resumable_with_(checked) : "";
}

std::string config_schema::to_json() const {
  std::string s = "{\"format\": " + json_quoted(marker_) + ", \"program\": " + json_quoted(program_);
  if (!resumable_) s += ", \"resumable\": false";
  s += ", \"keys\": [";
  bool first = true;
  for (const auto& k : keys_) {
    s += first ? "\n" : ",\n";
    first = false;
    s += "  {\"name\": " + json_quoted(k.name_) + ", \"type\": \"" + type_name(k.type_) +
         "\", \"required\": " + (k.required_ ? "true" : "false");
    if (!k.required_unless_.empty()) s += ", \"required_unless\": " + json_list(k.required_unless_);
    if (!std::holds_alternative<std::monostate>(k.fallback_)) s += ", \"default\": " + json_of(k.fallback_);
    if (!k.choices_.empty()) s += ", \"choices\": " + json_list(k.choices_);
    if (k.least_) s += ", \"min\": " + limit_text(*k.least_);
    if (k.least_ && k.exclusive_least_) s += ", \"exclusive_min\": true";
    if (k.most_) s += ", \"max\": " + limit_text(*k.most_);
    if (k.numbers_) s += ", \"or_numbers\": true";
    if (!k.resumable_) s += ", \"resumable\": false";
    s += ", \"help\": " + json_quoted(k.help_) + "}";
  }
  return s + "\n]}\n";
}

namespace {

/// "an integer >= 1", "dgd, ipm, downpour or agd", ...
std::string limits_text(const std::optional<double>& least, bool exclusive, const std::optional<double>& most) {
  std::string s;
  if (least && least == most && !exclusive) return " = " + limit_text(*least);
  if (least) s += (exclusive ? " > " : " >= ") + limit_text(*least);
  if (most) s += (least ? " and <= " : " <= ") + limit_text(*most);
  return s;
}

/// Paracel 0.3 read every value as a text, so its configs may have any of them in quotes. It is probably a slip
/// elsewhere.
void remark_quotes(const config_node& node, key_type type, const std::string& place) {
  const auto is_quoted = [](const config_node& n) { return n.type == config_node::kind::string; };
  const auto say = [&](const config_node& found) {
    add_config_remark(place + ": found " + found.described() + ", taken as " + found.text + "; want it without quotes");
  };
  if (type == key_type::integer || type == key_type::number || type == key_type::boolean) {
    if (is_quoted(node)) say(node);
  } else if (type == key_type::numbers) {
    if (is_quoted(node)) return say(node);
    if (const auto it = std::ranges::find_if(node.items, is_quoted); it != node.items.end()) say(*it);
  }
}

/// The value of a key; that of a text is what was given to --set, even if it looks like a number: output=2024.
config_node value_for(key_type type, const config_member& m) {
  const bool is_text = type == key_type::string || type == key_type::strings || type == key_type::file ||
                       type == key_type::files || type == key_type::plugin || type == key_type::output_folder;
  const auto kind = m.value.type;
  using enum config_node::kind;
  if (m.written.empty() || !is_text || kind == string || kind == list || kind == object) return m.value;
  config_node text;
  text.type = string;
  text.text = m.written;
  return text;
}

}  // namespace

std::string config_schema::help_text() const {
  std::size_t width = 0;
  for (const auto& k : keys_) width = std::max(width, k.name_.size());
  std::string s = program_ + (summary_.empty() ? "" : ": " + summary_) +
                  "\n\nusage: prun.py -w WORKERS -p SERVERS -c CONFIG.json -m local " + program_ + "\n       " +
                  program_ + " --cfg_file CONFIG.json      one process with an embedded server\n       " + program_ +
                  " --check CONFIG.json | --schema | --help\n\nkeys of the config, of files that it includes "
                  "(\"include\": \"base.json\"), and of --set KEY=VALUE, which overrides them:\n";
  for (const auto& k : keys_) {
    s += "  " + k.name_ + std::string(width - k.name_.size() + 2, ' ') + type_name(k.type_);
    s += limits_text(k.least_, k.exclusive_least_, k.most_);
    if (!k.choices_.empty()) s += " (" + joined(k.choices_, "|") + ")";
    if (k.required_) s += ", required";
    if (!k.required_unless_.empty()) s += ", required without " + joined(k.required_unless_, " or ");
    if (!std::holds_alternative<std::monostate>(k.fallback_)) s += ", default " + json_of(k.fallback_);
    s += ": " + k.help_ + "\n";
  }
  return s;
}

config config_schema::check(const std::string& file, bool check_files,
                            const std::vector<std::string>& overrides) const {
  if (file.empty()) throw config_error("no config file given: want --cfg_file FILE");
  return check_tree(file, read_config(file, overrides), check_files);
}

config config_schema::check_text(const std::string& file, std::string_view text) const {
  return check_tree(file, parse_sources(file, text, {}), true);
}

config config_schema::check_tree(const std::string& file, const config_node& root, bool check_files) const {
  if (root.type != config_node::kind::object) {
    throw config_error(file + ":1:1: found " + root.described() + ", want an object {\"key\": value, ...}");
  }
  config result;
  result.file_ = file;
  for (const auto& k : keys_) {
    auto& entry = result.entries_[k.name_];
    entry.has_default = !std::holds_alternative<std::monostate>(k.fallback_);
    entry.value = entry.has_default ? k.fallback_ : zero_of(k.type_);
    entry.type = k.type_;
  }
  std::map<std::string_view, std::size_t> lines;
  for (const auto& m : root.members) {
    const auto place = m.place() + ": key " + quote_for_error(m.name);
    const auto spec = std::find_if(keys_.begin(), keys_.end(), [&](const auto& k) { return k.name_ == m.name; });
    if (spec == keys_.end()) {
      std::vector<std::string> names;
      for (const auto& k : keys_) names.push_back(k.name_);
      const auto near = nearest_name(m.name, names);
      throw config_error(place + " is unknown; " + (near.empty() ? "" : "did you mean \"" + near + "\"? ") +
                         "allowed keys: " + joined(names, ", "));
    }
    const auto [before, is_first] = lines.emplace(m.name, m.line);
    if (!is_first) throw config_error(place + " is given twice, first in line " + std::to_string(before->second));
    auto& entry = result.entries_[m.name];
    entry.place = m.place();
    entry.value = checked(*spec, value_for(spec->type_, m), place, check_files);
    if (m.written.empty()) remark_quotes(m.value, spec->type_, place);
  }
  result.one_output_file_ = output_files_ && result.given(output_files_key);
  const auto stands = [&](const std::string& name) { return result.given(name) && !is_empty(result.at(name).value); };
  for (const auto& k : keys_) {
    const auto& others = k.required_unless_;
    const bool needed = k.required_ || (!others.empty() && std::ranges::none_of(others, stands));
    if (!needed || stands(k.name_)) continue;
    throw config_error(file + ": key \"" + k.name_ + "\" is missing (" + type_name(k.type_) +
                       limits_text(k.least_, k.exclusive_least_, k.most_) +
                       (k.choices_.empty() ? "" : ": " + joined(k.choices_, ", ")) + "): " + k.help_ +
                       (others.empty() ? "" : "; not needed with " + joined(others, " or ")));
  }
  if (verify_) verify_(result);
  return result;
}

config_value config_schema::checked(const key_spec& spec, const config_node& node, const std::string& place,
                                    bool check_files) const {
  const auto limits = limits_text(spec.least_, spec.exclusive_least_, spec.most_);
  const auto wrong = [&](const std::string& wanted) {
    throw config_error(place + ": found " + node.described() + ", want " + wanted);
  };
  const auto within = [&](double v) {
    if (spec.least_ && (spec.exclusive_least_ ? v <= *spec.least_ : v < *spec.least_)) return false;
    return !(spec.most_ && v > *spec.most_);
  };
  switch (spec.type_) {
    case key_type::integer: {
      const auto v = node.as_integer();
      const bool only_one = spec.least_ && spec.least_ == spec.most_;  // a switch: the number, or nothing
      if (!v || !within(static_cast<double>(*v)))
        wrong(only_one ? limit_text(*spec.least_) + ", or the key left out" : "an integer" + limits);
      return *v;
    }
    case key_type::number: {
      const auto v = node.as_number();
      if (!v || !within(*v)) wrong("a number" + limits);
      return *v;
    }
    case key_type::boolean: {
      const auto v = node.as_boolean();
      if (!v) wrong("true or false");
      return *v;
    }
    case key_type::numbers: {
      const std::string wanted = "a list of numbers" + (limits.empty() ? "" : ", each" + limits);
      const bool list = node.type == config_node::kind::list;
      if (list && node.items.empty()) wrong(wanted);
      std::vector<double> values;
      for (const auto& item : list ? std::span(node.items) : std::span(&node, 1)) {
        const auto v = item.as_number();
        if (!v || !within(*v)) wrong(wanted);
        values.push_back(*v);
      }
      return values;
    }
    case key_type::strings: {
      const bool list = node.type == config_node::kind::list;
      std::vector<std::string> values;
      for (const auto& item : list ? std::span(node.items) : std::span(&node, 1)) {
        const auto& known = spec.choices_;
        const bool number = spec.numbers_ && item.type == config_node::kind::integer;
        if ((item.type != config_node::kind::string && !number) || item.text.find('\0') != std::string::npos)
          wrong(spec.numbers_ ? "a list of strings and integers" : "a list of strings");
        if (!known.empty() && std::find(known.begin(), known.end(), item.text) == known.end()) {
          wrong("a list of " + joined(known, ", "));
        }
        values.push_back(item.text);
      }
      return values;
    }
    case key_type::files: {
      std::vector<std::string> names;
      if (node.type == config_node::kind::string) {
        names.push_back(node.text);
      } else if (node.type == config_node::kind::list) {
        for (const auto& item : node.items) {
          if (item.type != config_node::kind::string) wrong("a file, folder or pattern, or a list of them");
          names.push_back(item.text);
        }
      } else {
        wrong("a file, folder or pattern, or a list of them");
      }
      if (!spec.required_ && names.size() == 1 && names[0].empty()) return std::vector<std::string>{};
      if (names.empty()) wrong("at least one file");
      for (const auto& name : names) {
        if (name == "-" || !check_files) continue;  // standard input
        require_input(name, place);
      }
      return names;
    }
    case key_type::string:
    case key_type::file:
    case key_type::plugin:
    case key_type::output_folder:
      break;
  }
  const bool number = spec.numbers_ && node.type == config_node::kind::integer;
  if (node.type != config_node::kind::string && !number) wrong(spec.numbers_ ? "a string or an integer" : "a string");
  const auto& text = node.text;
  if (text.find('\0') != std::string::npos) wrong("a string without a zero byte");
  if (!spec.choices_.empty() && std::find(spec.choices_.begin(), spec.choices_.end(), text) == spec.choices_.end()) {
    const auto near = nearest_name(text, spec.choices_);
    throw config_error(place + ": found " + node.described() + ", want one of " + joined(spec.choices_, ", ") +
                       (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
  }
  if (text.empty() && spec.required_) wrong("a name");
  if (text.empty() || !check_files) return text;
  std::error_code problem;
  if (spec.type_ == key_type::file) {
    require_input(text, place);
    if (std::filesystem::is_directory(text, problem)) throw config_error(place + ": is a folder, want a file: " + text);
  }
  if (spec.type_ == key_type::plugin && text.find('/') != std::string::npos && !storage::file_exists(text)) {
    throw config_error(place + ": no such file: " + text);
  }
  if (spec.type_ == key_type::output_folder) {
    if (const auto why = storage::why_not_writable(text); !why.empty()) {
      throw config_error(place + ": cannot write to " + text + ": " + why);
    }
  }
  return text;
}

}  // namespace paracel
