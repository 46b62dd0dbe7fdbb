// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/sample_layout.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/hash.hpp"
#include "core/number_parsing.hpp"
#include "load/format/csv_fields.hpp"
#include "load/input/input.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

using rule = sample_options::label_rule;

/// Whether no field is a number, and none is missing: a line of data with an invalid field is not taken for a header.
bool names_only(const std::vector<std::string>& fields, bool missing) {
  return std::none_of(fields.begin(), fields.end(), [&](const std::string& f) {
    return f.empty() || (missing && is_missing(f)) ||
           read_number(f.data(), f.data() + f.size()).outcome != number_outcome::not_a_number;
  });
}

/// The separator of a line that is not libsvm; 0: none, it is one field.
char separator_of(std::string_view line, bool blanks_too) {
  bool inside = false;
  bool tab = false;
  bool blank = false;
  while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
  while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
  for (const char c : line) {
    if (c == '"') inside = !inside;
    if (inside) continue;
    if (c == ',' || c == ';') return c;
    tab = tab || c == '\t';
    blank = blank || c == ' ';
  }
  if (tab) return '\t';
  return blank && blanks_too ? ' ' : '\0';
}

/// A field's number; nothing if it is none of `fields` (0: unknown).
std::optional<std::uint64_t> field_number(const std::string& text, std::uint64_t fields) {
  std::int64_t number = 0;
  constexpr std::int64_t most = sample_role::is_group;
  if (!read_whole_integer(text, number) || number < 0 || number >= most) return std::nullopt;
  const auto field = static_cast<std::uint64_t>(number);
  return fields != 0 && field >= fields ? std::nullopt : std::optional(field);
}

void sort_distinct(std::vector<std::uint32_t>& columns) {
  std::sort(columns.begin(), columns.end());
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
}

std::string no_field(const std::string& text, std::uint64_t fields) {
  return "found no field " + quote_for_error(text) + (fields == 0 ? "" : " in a line of " + fields_text(fields)) +
         ", want a number from 0, or a header with that name";
}

/// Finds the fields of a CSV line that options name.
class csv_planner {
 public:
  csv_planner(const sample_layout& layout, const sample_options& options)
      : layout_(layout), options_(options), wanted_(options.names.empty() ? options.features : options.names) {}

  csv_plan plan() {
    if (!layout_.header && (!options_.target.empty() || !wanted_.empty()))
      refuse("found no header, want one that names " +
             quote_for_error(options_.target.empty() ? wanted_.front() : options_.target));
    plan_.role.assign(layout_.fields, not_read);
    make(is_weight, options_.weight);
    make(is_group, options_.group);
    if (!options_.target.empty()) {
      last_is_label_ = false;
      if (reads_labels(options_) || has(options_.target)) make_label(field_of(options_.target));
    }
    if (wanted_.empty()) plan_all();
    else plan_wanted();
    if (!reads_labels(options_)) std::replace(plan_.role.begin(), plan_.role.end(), std::uint32_t{is_label}, unread);
    for (const auto r : plan_.role) plan_.columns += is_feature(r) ? 1 : 0;
    if (layout_.header) {
      plan_.names.resize(plan_.columns);
      for (std::size_t f = 0; f < layout_.fields; ++f) {
        if (is_feature(plan_.role[f])) plan_.names[plan_.role[f]] = layout_.names[f];
      }
    }
    for (const auto& [column, words] : options_.words) {
      if (column >= plan_.columns)
        refuse("found " + std::to_string(plan_.columns) + " features, want at least " +
               std::to_string(column + std::uint64_t{1}) + ": that one is categorical");
      plan_.categorical.push_back(column);
    }
    for (const auto& name : options_.words.empty() ? options_.categorical : std::vector<std::string>()) {
      const auto role = plan_.role[field_of(name)];
      if (!is_feature(role)) refuse("categorical field " + quote_for_error(name) + " is not a feature");
      plan_.categorical.push_back(role);
    }
    sort_distinct(plan_.categorical);
    return std::move(plan_);
  }

 private:
  static constexpr std::uint32_t unread = not_read;

  [[noreturn]] void refuse(const std::string& what) const { throw data_error(layout_.place + ": " + what); }
  [[nodiscard]] bool has(const std::string& name) const {
    return std::find(layout_.names.begin(), layout_.names.end(), name) != layout_.names.end();
  }
  [[nodiscard]] std::size_t count(std::uint32_t role) const {
    return static_cast<std::size_t>(std::count(plan_.role.begin(), plan_.role.end(), role));
  }

  /// By name, or without a header by number.
  [[nodiscard]] std::size_t field_of(const std::string& name) const {
    if (!layout_.header) {
      const auto number = field_number(name, layout_.fields);
      if (!number) refuse(no_field(name, layout_.fields));
      return *number;
    }
    const auto& names = layout_.names;
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) {
      std::string has;
      for (const auto& n : names) has += (has.empty() ? "" : ", ") + n;
      refuse("found no field " + quote_for_error(name) + " in the header, which has " + has);
    }
    if (std::find(at + 1, names.end(), name) != names.end())
      refuse("found two fields " + quote_for_error(name) + " in the header");
    return static_cast<std::size_t>(at - names.begin());
  }

  /// The field of weights or groups, if it has a name. Rows to predict may lack it.
  void make(sample_role role, const std::string& name) {
    if (name.empty() || (options_.without_label && layout_.header && !has(name))) return;
    auto& to = plan_.role[field_of(name)];
    if (to == is_weight) refuse("field " + quote_for_error(name) + " is the weight and the group");
    to = role;
  }

  void make_label(std::size_t field) {
    const auto role = plan_.role[field];
    if (role == is_weight || role == is_group)
      refuse(std::string("found the ") + (role == is_weight ? "weight" : "group") +
             " where the label is, want target to name the label");
    plan_.role[field] = is_label;
  }

  void plan_wanted() {
    if (last_is_label_ && reads_labels(options_)) make_label(layout_.fields - 1);
    std::uint32_t column = 0;
    for (const auto& name : wanted_) {
      auto& role = plan_.role[field_of(name)];
      if (role != not_read)
        refuse("field " + quote_for_error(name) +
               (role == is_label    ? " is the label, too"
                : role == is_weight ? " is the weight, too"
                : role == is_group  ? " is the group, too"
                                    : " is a feature twice"));
      role = column++;
    }
    if (options_.columns != 0 && column != options_.columns)
      refuse("found " + std::to_string(column) + " named features, want " + std::to_string(options_.columns));
  }

  void plan_all() {
    const auto all = layout_.fields;
    const auto others = count(is_weight) + count(is_group);
    const auto found = "found " + fields_text(all) + " in the first line, want ";
    auto want = std::to_string(options_.columns) + " features";
    if (count(is_weight) > 0) want += ", a weight";
    if (count(is_group) > 0) want += ", a group";
    auto features = all - others - count(is_label);
    if (last_is_label_ && reads_labels(options_)) {
      --features;
      if (options_.columns != 0 && features != options_.columns)
        refuse(found + std::to_string(options_.columns + others + 1) + ": " + want + " and a label");
      make_label(all - 1);
    } else if (options_.without_label && options_.label != rule::none) {
      const bool extra = features == options_.columns + std::size_t{1} && options_.target.empty();
      if (features != options_.columns && !extra) refuse(found + want + ", with or without a label");
      if (extra) make_label(all - 1);
    } else if (options_.columns != 0 && features != options_.columns) {
      refuse(found + want);
    }
    std::uint32_t column = 0;
    for (auto& r : plan_.role) {
      if (r == not_read) r = column++;
    }
  }

  const sample_layout& layout_;
  const sample_options& options_;
  const std::vector<std::string>& wanted_;
  bool last_is_label_ = true;
  csv_plan plan_;
};

}  // namespace

std::string unquoted(std::string_view field) {
  std::string s;
  for (std::size_t i = 0; i < field.size(); ++i) {
    s += field[i];
    if (field[i] == '"' && i + 1 < field.size() && field[i + 1] == '"') ++i;
  }
  return s;
}

bool all_fields(std::string_view line, char separator, std::vector<std::string>& names, const char*& problem) {
  csv_fields fields(line, separator);
  std::string_view field;
  bool quoted = false;
  do {
    if (!fields.next(field, quoted)) {
      problem = field.data();
      return false;
    }
    names.push_back(quoted ? unquoted(field) : std::string(field));
  } while (fields.more());
  return true;
}

std::string fields_text(std::size_t n) { return std::to_string(n) + (n == 1 ? " field" : " fields"); }

bool is_missing(std::string_view field) noexcept {
  return field.empty() || field == "NA" || field == "nan" || field == "NaN" || field == "null" || field == "?";
}

bool find_layout(const std::string& file, std::string_view text, const sample_options& options, sample_layout& out) {
  const input_piece piece(file, text);
  text = piece.text();
  std::string_view first;
  const bool named = !options.target.empty() || !options.features.empty();
  const bool said = options.separator != 0 || named || options.header == sample_options::header_rule::yes;
  for_each_line(text, [&](std::string_view line, std::size_t) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) return;
    if (first.empty()) first = line;
  });
  if (first.empty()) return false;
  out = {};
  out.place = piece.place(first.data());
  bool csv = said;
  out.separator = options.separator;
  if (out.separator == 0) {
    const bool pairs = first.find(':') != std::string_view::npos && !said;
    out.separator = pairs ? '\0' : separator_of(first, options.label != rule::binary);
    // With labels a line of one field is a libsvm sample without features, since a CSV sample has a feature.
    csv = csv || out.separator != 0;
    if (!csv && !pairs && (options.without_label ? options.columns == 1 : options.label == rule::none)) {
      // One field: a column of numbers, unless a later line has an index:value.
      csv = text.find(':') == std::string_view::npos;
    }
    if (out.separator == 0) out.separator = ',';
  }
  out.format = csv ? sample_format::csv : sample_format::libsvm;
  if (!csv) return true;
  std::vector<std::string> names;
  const char* problem = nullptr;
  if (!all_fields(first, out.separator, names, problem)) piece.fail(problem, open_quote);
  out.fields = names.size();
  using header = sample_options::header_rule;
  out.header =
      options.header == header::yes || (options.header == header::automatic && names_only(names, options.missing));
  if (out.header) out.names = std::move(names);
  return true;
}

csv_plan plan_csv(const sample_layout& layout, const sample_options& options) {
  return csv_planner(layout, options).plan();
}

numbered_fields find_numbered_fields(const std::string& where, const sample_options& options, std::uint64_t fields) {
  numbered_fields found;
  const auto find = [&](const std::string& text) {
    const auto number = field_number(text, fields);
    if (!number) throw data_error(where + ": " + no_field(text, fields));
    return *number;
  };
  if (!options.weight.empty()) found.weight = find(options.weight);
  if (fields == 0) {
    if (!options.group.empty() && options.group != "qid")
      throw data_error(where + ": found a libsvm line, want group \"qid\" instead of " +
                       quote_for_error(options.group));
  } else if (!options.group.empty()) {
    found.group = find(options.group);
    if (found.group == found.weight)
      throw data_error(where + ": field " + quote_for_error(options.group) + " is the weight and the group");
  }
  for (const auto& [column, words] : options.words) {
    if (!words.empty())
      throw data_error(where + ": found rows of numbers, want CSV: feature " + std::to_string(column) +
                       " of the model has words");
    found.categorical.push_back(column);
  }
  for (const auto& text : options.words.empty() ? options.categorical : std::vector<std::string>()) {
    const auto field = find(text);
    if (field == found.weight || field == found.group)
      throw data_error(where + ": categorical field " + quote_for_error(text) + " is not a feature");
    std::uint32_t before = 0;
    for (const auto& other : {found.weight, found.group}) before += other && field > *other ? 1 : 0;
    found.categorical.push_back(static_cast<std::uint32_t>(field) - before);
  }
  sort_distinct(found.categorical);
  return found;
}

std::uint64_t numbered_fields::field_of(std::uint64_t column) const noexcept {
  auto one = weight.value_or(UINT64_MAX);
  auto other = group.value_or(UINT64_MAX);
  if (one > other) std::swap(one, other);
  if (column >= one) ++column;
  return column >= other ? column + 1 : column;
}

std::string no_category(const std::string& written, bool words) {
  return "found category " + written + ", want an integer from 0 to " +
         std::to_string(sample_options::greatest_category) + (words ? ", or a word" : "");
}

std::uint64_t group_of(std::string_view written) {
  // Beyond, different integers are the same double.
  constexpr double exact = 9007199254740992;
  double v = 0;
  if (!read_whole_number(written, v) || v > exact || v < -exact) return hash_key(written);
  return hash_key(number_text(v == 0 ? 0.0 : v));
}

std::string no_relevance(const std::string& written) {
  return "found label " + written + ", want an integer from 0 to " + std::to_string(sample_options::greatest_relevance);
}

float to_float(double v) noexcept {
  constexpr double most = std::numeric_limits<float>::max() / 2;
  return static_cast<float>(std::clamp(v, -most, most));
}

}  // namespace paracel
