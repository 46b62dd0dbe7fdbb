// SPDX-License-Identifier: BSD-3-Clause
//
// JSON for manifests, metrics and reports: fields in the order in which they are added, numbers with all their digits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/json_parser.hpp>

namespace paracel::alg {

/// A finite number as JSON with all its digits; anything else is null.
std::string json_number(double v);

/// A JSON object under construction: fields in the order they are added.
class json_object {
 public:
  json_object& add(const std::string& name, double v) { return raw(name, json_number(v)); }
  json_object& add(const std::string& name, int v) { return raw(name, std::to_string(v)); }
  json_object& add(const std::string& name, std::int64_t v) { return raw(name, std::to_string(v)); }
  json_object& add(const std::string& name, std::uint64_t v) { return raw(name, std::to_string(v)); }
  json_object& add(const std::string& name, bool v) { return raw(name, v ? "true" : "false"); }
  json_object& add(const std::string& name, const std::string& v) { return raw(name, json_quoted(v)); }
  json_object& add(const std::string& name, const char* v) { return raw(name, json_quoted(v)); }
  /// Writes `json` unchanged.
  json_object& raw(const std::string& name, const std::string& json);
  /// The fields of `other`, after those here.
  json_object& append(const json_object& other);
  /// The next field begins a new line.
  json_object& on_new_line();
  [[nodiscard]] bool has(const std::string& name) const { return std::ranges::find(names_, name) != names_.end(); }
  [[nodiscard]] std::string text() const { return "{" + fields_ + "}"; }

 private:
  std::string fields_;
  const char* separator_ = ", ";
  std::vector<std::string> names_;
};

/// Items that are JSON already, or texts that become it, as a list.
std::string json_list(const std::vector<std::string>& items);
std::string json_list_of_texts(const std::vector<std::string>& texts);
std::string json_list(std::span<const std::uint64_t> numbers);
std::string json_list(std::span<const double> numbers);

}  // namespace paracel::alg
