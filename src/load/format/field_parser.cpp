// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/field_parser.hpp"

#include <charconv>
#include <system_error>

#include "core/number_parsing.hpp"

namespace paracel {

namespace {

std::string_view name(std::string_view field) {
  const auto text = trimmed(field);
  if (text.empty()) throw field_problem{field.data(), "found nothing, want an id"};
  return text;
}

/// `id`, `id:weight` or `id|weight`.
void weighted(std::string_view row, std::string_view field, std::vector<entry_view>& entries) {
  const auto at = field.find_first_of(":|");
  if (at == field.npos) entries.push_back({row, name(field), 1});
  else entries.push_back({row, name(field.substr(0, at)), read_weight(field.substr(at + 1))});
}

}  // namespace

std::string_view trimmed(std::string_view text) noexcept {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

void split_fields(std::string_view line, std::vector<std::string_view>& fields) {
  const auto between = [](char c) { return c == ',' || c == ' ' || c == '\t' || c == ';' || c == '\r'; };
  for (std::size_t at = 0; at < line.size();) {
    if (between(line[at])) {
      ++at;
      continue;
    }
    const auto begin = at;
    while (at < line.size() && !between(line[at])) ++at;
    fields.push_back(line.substr(begin, at - begin));
  }
}

std::uint64_t read_id(std::string_view field) {
  std::uint64_t id = 0;
  const auto* last = field.data() + field.size();
  const auto [end, failure] = std::from_chars(field.data(), last, id);
  if (failure != std::errc() || end != last)
    throw field_problem{field.data(),
                        "found " + quote_for_error(field) + ", want an id from 0 to 18446744073709551615"};
  return id;
}

double read_weight(std::string_view field) {
  double weight = 0;
  if (!read_whole_number(trimmed(field), weight))
    throw field_problem{field.data(), "found " + quote_for_error(field) + ", want a number"};
  return weight;
}

void read_entries(std::span<const std::string_view> fields, bool mixed, std::vector<entry_view>& entries) {
  if (fields.empty()) return;
  const auto row = name(fields[0]);
  if (mixed) {
    for (const auto field : fields.subspan(1)) weighted(row, field, entries);
  } else if (fields.size() == 2) {
    weighted(row, fields[1], entries);
  } else if (fields.size() == 3) {
    entries.push_back({row, name(fields[1]), read_weight(fields[2])});
  } else {
    const auto found = std::to_string(fields.size()) + (fields.size() == 1 ? " field" : " fields");
    throw field_problem{fields[0].data(), "found " + found + ", want 2 or 3 (or mix_flag)"};
  }
}

}  // namespace paracel
