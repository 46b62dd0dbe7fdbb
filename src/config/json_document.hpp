// SPDX-License-Identifier: BSD-3-Clause
//
// A JSON text as a tree that remembers the position of each key, so that an error can say file:line:column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace paracel {

struct config_member;

struct config_node {
  enum class kind { null, boolean, integer, number, string, list, object };

  kind type = kind::null;
  bool boolean = false;
  double number = 0;                   ///< integer and number
  std::string text;                    ///< string: the string; integer and number: as written
  std::vector<config_node> items;      ///< list
  std::vector<config_member> members;  ///< object, in file order, duplicates included

  /// The member of that name, or null. The last of duplicates.
  [[nodiscard]] const config_node* find(std::string_view name) const noexcept;
  /// For errors, a description of what was found: `string "ten"`, `number 1.5`, `list`, ...
  [[nodiscard]] std::string described() const;

  // Lenient conversion as in Paracel's configs: "10" is also the integer 10, "true" and 1 are also true, and a number
  // or a boolean is also the string that was written.
  [[nodiscard]] std::optional<std::int64_t> as_integer() const;
  [[nodiscard]] std::optional<double> as_number() const;
  [[nodiscard]] std::optional<bool> as_boolean() const;
  [[nodiscard]] std::optional<std::string> as_string() const;
};

struct config_member {
  std::string name;
  std::size_t line = 0;    ///< of the key, 1-based
  std::size_t column = 0;  ///< of the key, 1-based, in bytes
  config_node value;
  std::string origin{};   ///< the file in which it stands, or "--set"
  std::string written{};  ///< of --set: the value as it was given

  /// For errors: file:line:column, or "--set".
  [[nodiscard]] std::string place() const {
    return line == 0 ? origin : origin + ":" + std::to_string(line) + ":" + std::to_string(column);
  }
};

/// Deepest nesting accepted; configs need two levels, and unlimited recursion could crash a program.
inline constexpr std::size_t config_depth_limit = 32;

/// The one of `names` most likely meant by `name`, or empty: at most a third of its letters, and at most three, differ.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

/// Parses `text`, which came from `file` (for error texts).
/// Throws: config_error with file:line:column.
config_node parse_config(const std::string& file, std::string_view text);

/// What a reader of configs has accepted although it was probably not meant so, each with file:line:column. A remark
/// that was made before is not repeated. Thread-safety: any thread.
void add_config_remark(const std::string& text);
std::vector<std::string> config_remarks();

/// The folders of the configs that this process has read, the first one first: plug-ins are looked up there.
/// Thread-safety: any thread.
std::vector<std::string> config_folders();
void note_config_folder(const std::string& file);

}  // namespace paracel
