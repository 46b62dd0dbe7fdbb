// SPDX-License-Identifier: BSD-3-Clause
//
// The keys of a program's config, declared once: the program checks its config against them, also for prun.py
// (`--check FILE`), which rejects a bad config before any process starts; `--schema` prints them as JSON, and `--help`
// as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <paracel/error.hpp>

namespace paracel {

struct config_node;

/// These bytes inside an executable mark that it supports `--check` and `--schema`, and are the schema's "format".
inline constexpr char schema_marker[] = "paracel-schema-v1";

/// The key of add_output_files.
inline constexpr char output_files_key[] = "output_files";

/// The type of a key. The comment is the name in the published schema.
enum class key_type {
  string,         ///< "string"
  integer,        ///< "int"
  number,         ///< "double"
  boolean,        ///< "bool"
  numbers,        ///< "doubles": a list of numbers, or one; limits apply to each
  strings,        ///< "strings": a list of strings, or one; choices apply to each
  file,           ///< "file": one existing file
  files,          ///< "files": an existing file or folder, a glob pattern that matches, or a list of these
  plugin,         ///< "plugin": the name of a plug-in; if it contains a slash, an existing file
  output_folder,  ///< "folder_out": a folder that exists or can be created, and is writable
};

using config_value = std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::string>,
                                  std::vector<double>>;

/// One key. Built by `config_schema::key` and the setters, which return the same object.
class key_spec {
 public:
  key_spec(std::string name, key_type type, std::string help)
      : name_(std::move(name)), help_(std::move(help)), type_(type) {}

  /// The config must have it, so there is no default.
  key_spec& required() {
    required_ = true;
    fallback_ = {};
    return *this;
  }
  /// Required unless one of these keys is given and not empty: training keys are not needed when a model is read.
  key_spec& required_unless(std::vector<std::string> others) {
    required_unless_ = std::move(others);
    fallback_ = {};
    return *this;
  }
  /// The default value. A key that is neither required nor has a fallback is "", 0 or false.
  key_spec& fallback(bool v) {
    fallback_ = v;
    return *this;
  }
  key_spec& fallback(int v) {
    fallback_ = static_cast<std::int64_t>(v);
    return *this;
  }
  key_spec& fallback(std::int64_t v) {
    fallback_ = v;
    return *this;
  }
  key_spec& fallback(double v) {
    fallback_ = v;
    return *this;
  }
  key_spec& fallback(const char* v) {
    fallback_ = std::string(v);
    return *this;
  }
  key_spec& fallback(std::string v) {
    fallback_ = std::move(v);
    return *this;
  }
  key_spec& one_of(std::vector<std::string> choices) {
    choices_ = std::move(choices);
    return *this;
  }
  key_spec& at_least(double v) {
    least_ = v;
    return *this;
  }
  key_spec& at_most(double v) {
    most_ = v;
    return *this;
  }
  /// string, strings: an integer stands for its digits, as in `"field": 3`.
  key_spec& or_numbers() {
    numbers_ = true;
    return *this;
  }
  /// As config_schema::not_resumable, if the config has this key.
  key_spec& not_resumable() {
    resumable_ = false;
    return *this;
  }
  /// Greater than v, not equal to it.
  key_spec& above(double v) {
    least_ = v;
    exclusive_least_ = true;
    return *this;
  }

 private:
  friend class config_schema;
  std::string name_;
  std::string help_;
  std::vector<std::string> choices_;
  std::vector<std::string> required_unless_;
  config_value fallback_;
  std::optional<double> least_;
  std::optional<double> most_;
  key_type type_;
  bool required_ = false;
  bool exclusive_least_ = false;
  bool resumable_ = true;
  bool numbers_ = false;
};

/// A config that was checked against its schema.
/// Thread-safety: const-concurrent
class config {
 public:
  /// The value of a key of the schema. T: std::string, bool, double, an integer type, std::vector<std::string> for
  /// `files` and `strings`, or std::vector<double> for `numbers`. An integer that does not fit into T is rejected by
  /// `check` only if the schema bounds it. Throws: config_error when the schema has no such key or another type, or the
  /// integer does not fit.
  template <class T>
  [[nodiscard]] T get(std::string_view name) const {
    const auto& v = at(name).value;
    if constexpr (std::is_same_v<T, double>) {
      if (const auto* d = std::get_if<double>(&v)) return *d;
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (const auto* i = std::get_if<std::int64_t>(&v)) {
        if (std::in_range<T>(*i)) return static_cast<T>(*i);
      }
    } else {
      if (const auto* t = std::get_if<T>(&v)) return *t;
    }
    throw config_error(file_ + ": key \"" + std::string(name) + "\" does not have the type or the range asked for");
  }
  /// Whether the file, one that it includes or the command line has the key; false where its fallback is in use.
  [[nodiscard]] bool given(std::string_view name) const;
  /// Whether the key is given, or the schema has a default. Throws: config_error when the schema has no such key.
  [[nodiscard]] bool has_value(std::string_view name) const;
  /// Whether the results of all workers go to one file: the schema has the key of add_output_files, and it is given.
  [[nodiscard]] bool one_output_file() const { return one_output_file_; }
  /// A key with its value, given or default.
  struct setting {
    std::string name;
    key_type type;
    config_value value;
  };
  /// All of them, in name order.
  [[nodiscard]] std::vector<setting> all() const;
  /// The prefix of an error about that key: `file:line:column: key "name"`, or `--set: key "name"`.
  [[nodiscard]] std::string place_of(std::string_view name) const;

 private:
  friend class config_schema;
  struct entry {
    config_value value;
    std::string place;  // where it is given, file:line:column or "--set"; empty: nowhere
    key_type type = key_type::string;
    bool has_default = false;
  };
  [[nodiscard]] const entry& at(std::string_view name) const;

  std::string file_;
  std::map<std::string, entry, std::less<>> entries_;
  bool one_output_file_ = false;
};

/// The keys of one program.
class config_schema {
 public:
  // The marker is an argument so that its bytes are in the program and not only in this library.
  explicit config_schema(std::string program, std::string summary = "", const char* marker = schema_marker);

  /// Adds a key. Lifetime: the reference is valid until the next call.
  key_spec& key(std::string name, key_type type, std::string help);

  /// Adds the optional key "output_files": absent, one result file per worker; 1, one for all workers. For programs
  /// whose workers all make the same calls of paracel_dump_*, which are then collectives (paralg::set_one_output_file).
  void add_output_files();

  [[nodiscard]] const std::string& program() const noexcept { return program_; }
  /// The program commits iterations without calling `first_iteration()`: a dead worker cannot be replaced, so prun.py
  /// rejects --on-worker-death wait:T (doc/workers.md).
  config_schema& not_resumable() {
    resumable_ = false;
    return *this;
  }
  /// The same, depending on the config: `place` returns the place of the value that makes it so, or "".
  config_schema& not_resumable_with(std::function<std::string(const config&)> place) {
    not_resumable_with_ = std::move(place);
    return *this;
  }
  [[nodiscard]] bool resumable() const noexcept { return resumable_; }
  /// The place of the key in `checked` that makes it not resumable; "" if there is none.
  [[nodiscard]] std::string not_resumable_key(const config& checked) const;

  /// Further constraints, across keys: `verify` throws config_error when one is violated. The last step of
  /// `check`.
  config_schema& also(std::function<void(const config&)> verify) {
    verify_ = std::move(verify);
    return *this;
  }

  /// {"format": "paracel-schema-v1", "program": ..., "resumable": false, "keys": [{"name", "type", "required",
  /// "required_unless", "default", "choices", "min", "max", "exclusive_min", "or_numbers": true, "resumable": false,
  /// "help"}]}; absent fields are omitted.
  [[nodiscard]] std::string to_json() const;
  /// The same as text, a key per line.
  [[nodiscard]] std::string help_text() const;

  /// Reads a config file with what it includes, and checks for unknown, duplicate and missing keys, types, limits,
  /// choices, files and folders. Creates nothing. The first error is reported, in the order of included files, the
  /// file, overrides; missing keys come after that, and the constraints of `also` last. `check_files`: false when files
  /// and folders are on other hosts. `overrides`: KEY=VALUE, which replace keys of the file; VALUE is JSON, or else a
  /// text. Throws: config_error, one line: `file:line:column: key "name"...`, what was found, what is allowed;
  /// usage_error when an override is not KEY=VALUE.
  [[nodiscard]] config check(const std::string& file, bool check_files = true,
                             const std::vector<std::string>& overrides = {}) const;
  /// The same for text read from `file`.
  [[nodiscard]] config check_text(const std::string& file, std::string_view text) const;

 private:
  [[nodiscard]] config check_tree(const std::string& file, const config_node& root, bool check_files) const;
  [[nodiscard]] config_value checked(const key_spec& spec, const config_node& node, const std::string& place,
                                     bool check_files) const;

  std::string program_;
  std::string summary_;
  std::string marker_;
  bool resumable_ = true;
  bool output_files_ = false;
  std::vector<key_spec> keys_;
  std::function<void(const config&)> verify_;
  std::function<std::string(const config&)> not_resumable_with_;
};

}  // namespace paracel
