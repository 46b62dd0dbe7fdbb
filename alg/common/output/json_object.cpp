// SPDX-License-Identifier: BSD-3-Clause
#include "json_object.hpp"

#include <cmath>

#include <paracel/text_output.hpp>

namespace paracel::alg {

std::string json_number(double v) {
  if (!std::isfinite(v)) return "null";
  std::string s;
  append_text(s, v);
  return s;
}

json_object& json_object::raw(const std::string& name, const std::string& json) {
  if (!fields_.empty()) fields_ += separator_;
  separator_ = ", ";
  fields_ += json_quoted(name) + ": " + json;
  names_.push_back(name);
  return *this;
}

json_object& json_object::append(const json_object& other) {
  if (!fields_.empty() && !other.fields_.empty()) fields_ += separator_;
  fields_ += other.fields_;
  names_.insert(names_.end(), other.names_.begin(), other.names_.end());
  return *this;
}

json_object& json_object::on_new_line() {
  separator_ = ",\n ";
  return *this;
}

std::string json_list(const std::vector<std::string>& items) {
  std::string s = "[";
  for (std::size_t i = 0; i < items.size(); ++i) s.append(i > 0 ? ", " : "").append(items[i]);
  return s + "]";
}
std::string json_list_of_texts(const std::vector<std::string>& texts) {
  std::vector<std::string> items;
  for (const auto& text : texts) items.push_back(json_quoted(text));
  return json_list(items);
}
std::string json_list(std::span<const std::uint64_t> numbers) {
  std::vector<std::string> items;
  for (const auto n : numbers) items.push_back(std::to_string(n));
  return json_list(items);
}
std::string json_list(std::span<const double> numbers) {
  std::vector<std::string> items;
  for (const auto n : numbers) items.push_back(json_number(n));
  return json_list(items);
}

}  // namespace paracel::alg
