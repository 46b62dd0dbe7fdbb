// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/sample_layout.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/hash.hpp"
#include "core/number_parsing.hpp"
#include "load/format/csv_fields.hpp"
#include "load/format/missing_values.hpp"
#include "load/input/input.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

using rule = sample_options::label_rule;

/// A field's number; nothing for a name, or for none of `fields` (0: unknown).
std::optional<std::uint64_t> field_number(const std::string& text, std::uint64_t fields) {
  std::int64_t number = 0;
  constexpr std::int64_t most = sample_role::is_group;
  if (!read_whole_integer(text, number) || number < 0 || number >= most) return std::nullopt;
  const auto field = static_cast<std::uint64_t>(number);
  return fields != 0 && field >= fields ? std::nullopt : std::optional(field);
}

/// Whether no field is a number, and none is missing: a line of data with an invalid field is not taken for a header.
/// The first one may be empty: it heads row numbers.
bool names_only(const std::vector<std::string>& fields, const missing_values& missing) {
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const auto& text = fields[f];
    if (f == 0 && fields.size() > 1 && text.empty()) continue;
    if (text.empty() || missing.is_missing(text) ||
        read_number(text.data(), text.data() + text.size()).outcome != number_outcome::not_a_number)
      return false;
  }
  return true;
}

bool only_numbers(const std::vector<std::string>& names) {
  return std::ranges::all_of(names, [](const auto& n) { return field_number(n, 0).has_value(); });
}

/// Whether the first line of a file names the fields.
bool is_header(const std::vector<std::string>& fields, const sample_options& options) {
  using header = sample_options::header_rule;
  if (options.header != header::automatic) return options.header == header::yes;
  if (names_only(fields, missing_values(options))) return true;
  std::unordered_set<std::string_view> has(fields.begin(), fields.end());
  const auto has_all = [&](const std::vector<std::string>& names) {
    return std::ranges::all_of(names, [&](const auto& n) { return has.contains(n); });
  };
  if (!options.names.empty() && !only_numbers(options.names) && has_all(options.names)) return true;
  // A name that the options ask for, and that is no number, is in no line of data.
  const auto named = [&](const std::string& name) {
    return !name.empty() && !field_number(name, 0) && has.contains(name);
  };
  const auto& trained = options.fields;
  return named(options.target) || named(options.weight) || named(options.group) || named(trained.target) ||
         named(trained.weight) || named(trained.group) || std::ranges::any_of(options.features, named) ||
         std::ranges::any_of(options.categorical, named);
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

void sort_distinct(std::vector<std::uint32_t>& columns) {
  std::sort(columns.begin(), columns.end());
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
}

std::string no_field(const std::string& text, std::uint64_t fields) {
  return "found no field " + quote_for_error(text) + (fields == 0 ? "" : " in a line of " + fields_text(fields)) +
         ", want a number from 0, or a header with that name";
}

/// Decides what each field of CSV lines, or each column of .npy, is.
class field_planner {
 public:
  field_planner(const sample_layout& layout, const sample_options& options)
      : layout_(layout), options_(options), npy_(layout.format == sample_format::npy) {
    for (std::uint32_t f = 0; f < layout.names.size(); ++f) fields_of_[layout.names[f]].push_back(f);
  }

  field_plan plan() {
    if (!npy_ && !layout_.header && options_.header == sample_options::header_rule::automatic &&
        !options_.names.empty() && only_numbers(options_.names))
      refuse("cannot tell a header from a row, because the names of the model are numbers; want the key header");
    plan_.role.assign(layout_.fields, not_read);
    make(is_weight, options_.weight, options_.fields.weight, options_.fields.weight_at);
    make(is_group, options_.group, options_.fields.group, options_.fields.group_at);
    if (layout_.header && !options_.names.empty()) {
      plan_as_named();
    } else if (has_model() && !(layout_.header && options_.names.empty() && asks_for_fields())) {
      if (options_.fields.count != 0 && layout_.fields == options_.fields.count) plan_as_trained();
      else plan_in_order();
    } else {
      plan_as_asked();
    }
    if (!reads_labels(options_)) std::replace(plan_.role.begin(), plan_.role.end(), std::uint32_t{is_label}, unread);
    describe();
    find_categories();
    return std::move(plan_);
  }

 private:
  static constexpr std::uint32_t unread = not_read;

  [[noreturn]] void refuse(const std::string& what) const { throw data_error(layout_.place + ": " + what); }
  [[nodiscard]] bool has(const std::string& name) const {
    return layout_.header ? fields_of_.contains(name) || field_number(name, layout_.fields)
                          : field_number(name, layout_.fields).has_value();
  }
  [[nodiscard]] bool has_model() const { return !options_.names.empty() || options_.fields.count != 0; }
  [[nodiscard]] bool asks_for_fields() const { return !options_.target.empty() || !options_.features.empty(); }
  [[nodiscard]] std::size_t count(std::uint32_t role) const {
    return static_cast<std::size_t>(std::count(plan_.role.begin(), plan_.role.end(), role));
  }

  [[noreturn]] void not_in_header(const std::string& name, const char* more = "") const {
    std::string has;
    for (const auto& n : layout_.names) has += (has.empty() ? "" : ", ") + n;
    refuse("found no field " + quote_for_error(name) + " in the header, which has " + has + more);
  }

  /// By name, else by number.
  [[nodiscard]] std::size_t field_of(const std::string& name) const {
    const auto number = field_number(name, layout_.fields);
    if (!layout_.header) {
      if (number) return *number;
      if (npy_ && !field_number(name, 0))
        refuse("found an .npy file, want a file whose header names " + quote_for_error(name));
      refuse(no_field(name, layout_.fields));
    }
    const auto at = fields_of_.find(name);
    if (at == fields_of_.end()) {
      if (number) return *number;
      not_in_header(name);
    }
    if (at->second.size() > 1) refuse("found two fields " + quote_for_error(name) + " in the header");
    return at->second.front();
  }

  /// Whether the options ask for the field that had a role in training: by its name, or by its number there, which is
  /// another one where fields have another order.
  static bool is_trained(const std::string& asked, const std::string& name, std::uint32_t at) {
    return at != sample_fields::none &&
           (name.empty() ? asked == std::to_string(at) : asked == name || field_number(asked, 0) == std::uint64_t{at});
  }

  /// The field of weights or groups; `name` and `at`: what it was in training. Rows to predict may lack it where fields
  /// have names, and if they are only features; where names are matched it is not looked for.
  void make(sample_role role, const std::string& asked, const std::string& name, std::uint32_t at) {
    if (asked.empty()) return;
    const bool trained = is_trained(asked, name, at);
    const bool by_place = trained && !layout_.header;
    const bool as_long = layout_.fields == options_.fields.count;
    const bool lacks = layout_.header ? !has(asked) || !options_.names.empty()
                       : by_place     ? !as_long
                                      : layout_.fields == options_.columns;
    if (options_.without_label && lacks) return;
    if (by_place && !as_long)
      refuse(found_fields() + std::to_string(options_.fields.count) + ": the " +
             (role == is_weight ? "weight" : "group") + " of the training rows was field " + std::to_string(at));
    auto& to = plan_.role[by_place                                     ? at
                          : trained && layout_.header && !name.empty() ? named_field(name)
                                                                       : field_of(asked)];
    if (to == is_weight) refuse("field " + quote_for_error(asked) + " is the weight and the group");
    to = role;
  }

  void make_label(std::size_t field) {
    const auto role = plan_.role[field];
    if (role == is_weight || role == is_group)
      refuse(std::string("found the ") + (role == is_weight ? "weight" : "group") +
             " where the label is, want target to name the label");
    plan_.role[field] = is_label;
  }

  void make_feature(std::size_t field, std::uint32_t column, const std::string& name) {
    auto& role = plan_.role[field];
    if (role != not_read)
      refuse("field " + quote_for_error(name) +
             (role == is_label    ? " is the label, too"
              : role == is_weight ? " is the weight, too"
              : role == is_group  ? " is the group, too"
                                  : " is a feature twice"));
    role = column;
  }

  /// The field of a model's name, which may be a number, but is never that of a position.
  [[nodiscard]] std::size_t named_field(const std::string& name) const {
    if (layout_.header && !fields_of_.contains(name)) not_in_header(name);
    return field_of(name);
  }
  /// Whether the options ask for another label than that of the training rows.
  [[nodiscard]] bool asks_for_other_label() const {
    return !options_.target.empty() && !is_trained(options_.target, options_.fields.target, options_.fields.label);
  }
  /// Without a header: whether that one is to be found in this line.
  [[nodiscard]] bool wants_other_label() const {
    return asks_for_other_label() && (reads_labels(options_) || has(options_.target));
  }
  /// Names of a model.
  void plan_as_named() {
    const auto& trained = options_.fields;
    const bool is_asked = asks_for_other_label();
    const auto& target = is_asked ? options_.target : trained.target;
    const auto field = [&] { return is_asked ? field_of(target) : named_field(target); };
    if (reads_labels(options_)) make_label(target.empty() ? layout_.fields - 1 : field());
    else if (!target.empty() && (is_asked ? has(target) : fields_of_.contains(target))) make_label(field());
    // Of names that occur twice in the model and here, the first is the first.
    std::unordered_map<std::string_view, std::size_t> times;
    for (const auto& n : options_.names) ++times[n];
    std::unordered_map<std::string_view, std::size_t> used;
    for (std::uint32_t c = 0; c < options_.names.size(); ++c) {
      const auto& name = options_.names[c];
      const auto at = fields_of_.find(name);
      const bool twice = at != fields_of_.end() && at->second.size() > 1 && at->second.size() == times[name];
      make_feature(twice ? at->second[used[name]++] : named_field(name), c, name);
    }
    want_columns(options_.names.size());
  }

  /// The fields of the training rows, in lines that are as long.
  void plan_as_trained() {
    const auto& trained = options_.fields;
    if (wants_other_label()) make_label(field_of(options_.target));
    else if (reads_labels(options_)) make_label(trained.label < layout_.fields ? trained.label : layout_.fields - 1);
    for (std::uint32_t c = 0; c < trained.features.size(); ++c)
      make_feature(trained.features[c], c, std::to_string(trained.features[c]));
    want_columns(trained.features.size());
  }

  /// What the options ask for; this is how training rows are read.
  void plan_as_asked() {
    const auto& target = options_.target;
    const auto& wanted = options_.features;
    const auto is_name = [](const std::string& text) { return !field_number(text, 0); };
    const auto name = !target.empty() && is_name(target) ? &target : nullptr;
    const auto feature = std::ranges::find_if(wanted, is_name);
    if (!layout_.header && !npy_ && (name != nullptr || feature != wanted.end()))
      refuse("found no header, want one that names " + quote_for_error(name != nullptr ? *name : *feature));
    if (target.empty() && wanted.empty()) return plan_in_order();
    if (!target.empty()) {
      if (reads_labels(options_) || has(target)) make_label(field_of(target));
    } else if (reads_labels(options_)) {
      make_label(layout_.fields - 1);
    }
    if (wanted.empty()) return number_features();
    for (std::uint32_t c = 0; c < wanted.size(); ++c) make_feature(field_of(wanted[c]), c, wanted[c]);
    want_columns(wanted.size());
  }

  void want_columns(std::size_t found) const {
    if (options_.columns != 0 && found != options_.columns)
      refuse("found " + std::to_string(found) + " named features, want " + std::to_string(options_.columns));
  }

  /// pandas writes row numbers under an empty name.
  [[nodiscard]] bool skips_first() const {
    return layout_.header && layout_.fields > 1 && layout_.names.front().empty() && plan_.role.front() == not_read;
  }

  void number_features() {
    std::uint32_t column = 0;
    for (std::size_t f = skips_first() ? 1 : 0; f < plan_.role.size(); ++f) {
      if (plan_.role[f] == not_read) plan_.role[f] = column++;
    }
    if (options_.columns != 0 && column != options_.columns)
      refuse(found_fields() + std::to_string(options_.columns) + " features");
  }

  [[nodiscard]] std::string found_fields() const {
    if (npy_)
      return "found " + std::to_string(layout_.fields) + (layout_.fields == 1 ? " column" : " columns") + ", want ";
    return "found " + fields_text(layout_.fields) + " in the first line, want ";
  }

  void make_last_label() {
    const auto last = layout_.fields - 1;
    if (wants_other_label() && field_of(options_.target) != last)
      refuse("found the label in field " + quote_for_error(options_.target) +
             ", want it in the last one, as the line has not all fields of the training rows");
    make_label(last);
  }

  /// All fields that have no other role are features; the label is the last one.
  void plan_in_order() {
    const auto all = layout_.fields;
    const auto& trained = options_.fields;
    const bool last = trained.count == 0 || trained.label == trained.count - 1;  // the label
    const auto others = count(is_weight) + count(is_group) + (skips_first() ? 1 : 0);
    auto want = std::to_string(options_.columns) + " features";
    if (count(is_weight) > 0) want += ", a weight";
    if (count(is_group) > 0) want += ", a group";
    auto features = all - others;
    if (reads_labels(options_)) {
      --features;
      if (options_.columns != 0 && features != options_.columns)
        refuse(found_fields() + std::to_string(options_.columns + others + 1) + ": " + want + " and a label");
      if (!last && !wants_other_label())
        refuse(found_fields() + std::to_string(trained.count) + ": the label of the training rows was field " +
               std::to_string(trained.label));
      make_last_label();
    } else if (options_.without_label && options_.label != rule::none) {
      const bool extra = features == options_.columns + std::size_t{1} && last;
      if (features != options_.columns && !extra) refuse(found_fields() + want + ", with or without a label");
      if (extra) make_last_label();
    } else if (options_.columns != 0 && features != options_.columns) {
      refuse(found_fields() + want);
    }
    number_features();
  }

  void describe() {
    auto& fields = plan_.fields;
    for (const auto r : plan_.role) plan_.columns += is_feature(r) ? 1 : 0;
    fields.count = static_cast<std::uint32_t>(layout_.fields);
    if (!npy_ && layout_.fields > 1) fields.separator = layout_.separator;
    fields.features.resize(plan_.columns);
    if (layout_.header) plan_.names.resize(plan_.columns);
    for (std::uint32_t f = 0; f < layout_.fields; ++f) {
      const auto role = plan_.role[f];
      if (role == is_label) fields.label = f;
      if (role == is_weight) fields.weight_at = f;
      if (role == is_group) fields.group_at = f;
      if (layout_.header) {
        if (role == is_label) fields.target = layout_.names[f];
        if (role == is_weight) fields.weight = layout_.names[f];
        if (role == is_group) fields.group = layout_.names[f];
      }
      if (!is_feature(role)) continue;
      fields.features[role] = f;
      if (layout_.header) plan_.names[role] = layout_.names[f];
    }
  }

  void find_categories() {
    for (const auto& [column, words] : options_.words) {
      if (npy_ && !words.empty())
        refuse("found rows of numbers, want CSV: feature " + std::to_string(column) + " of the model has words");
      if (column >= plan_.columns)
        refuse("found " + std::to_string(plan_.columns) + " features, want at least " +
               std::to_string(column + std::uint64_t{1}) + ": that one is categorical");
      plan_.categorical.push_back(column);
    }
    for (const auto& name : options_.words.empty() ? options_.categorical : std::vector<std::string>()) {
      // A first row of words, which looks like a header, is one that only categories have.
      if (layout_.header && options_.header == sample_options::header_rule::automatic && !fields_of_.contains(name))
        not_in_header(name, field_number(name, 0) ? "; want a name, or the key header" : "");
      const auto role = plan_.role[field_of(name)];
      if (!is_feature(role)) refuse("categorical field " + quote_for_error(name) + " is not a feature");
      plan_.categorical.push_back(role);
    }
    sort_distinct(plan_.categorical);
  }

  const sample_layout& layout_;
  const sample_options& options_;
  const bool npy_;
  std::unordered_map<std::string_view, std::vector<std::uint32_t>> fields_of_;  // by name
  field_plan plan_;
};

/// Whether a text is index:value of libsvm, whatever the value.
bool is_pair(std::string_view token) {
  const auto colon = token.find(':');
  return colon != std::string_view::npos && colon > 0 && colon + 1 < token.size() &&
         token.find_first_not_of("0123456789") == colon && token.find_first_of(",;\"") == std::string_view::npos;
}

/// Whether a line with a colon outside quotes is CSV all the same, by its separator: 05:25,3,0 is, 1,2:3 4:5 is not.
bool is_csv_with_colons(std::string_view line, char separator) {
  if (separator == 0 || separator == ' ') return false;
  std::size_t pairs = 0;
  std::size_t others = 0;
  for (std::size_t at = 0; at < line.size();) {
    const auto end = std::min(line.find_first_of(" \t", at), line.size());
    if (end > at) ++(is_pair(line.substr(at, end - at)) ? pairs : others);
    at = end + 1;
  }
  // Tabs separate libsvm, too; there the label is the only field that is no pair.
  return separator == '\t' ? others > 1 : pairs == 0;
}

/// Whether a line, unless it can only be libsvm, has the fields of the training rows between their separators.
bool is_as_trained(std::string_view line, const sample_options& options) {
  const auto separator = options.fields.separator;
  std::vector<std::string> fields;
  const char* problem = nullptr;
  line = line.substr(0, line.find(" #"));  // a comment of libsvm
  if (separator == 0 || !all_fields(line, separator, fields, problem) || fields.size() < 2) return false;
  const std::unordered_set<std::string_view> has(fields.begin(), fields.end());
  if (!options.names.empty() && std::ranges::all_of(options.names, [&](const auto& n) { return has.contains(n); }))
    return true;
  const auto& count = options.fields.count;
  const auto features = options.fields.features.size();
  if (fields.size() != count && fields.size() != features && fields.size() != features + 1) return false;
  const bool blank = separator == ' ' || separator == '\t';
  const bool words = std::ranges::any_of(options.words, [](const auto& w) { return !w.second.empty(); });
  return !blank || words || is_pair(fields[0]) ||
         !std::all_of(fields.begin() + 1, fields.end(), [](const auto& f) { return is_pair(f); });
}

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

bool find_layout(const std::string& file, std::string_view text, const sample_options& options, sample_layout& out) {
  const input_piece piece(file, text);
  text = piece.text();
  std::string_view first;
  std::string_view uncommented;  // the first line that does not begin with #
  const bool named =
      options.names.empty() && options.fields.count == 0 && (!options.target.empty() || !options.features.empty());
  const bool said = options.separator != 0 || named || options.header == sample_options::header_rule::yes;
  for_each_line(text, [&](std::string_view line, std::size_t) {
    const auto begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return;
    if (first.empty()) first = line;
    if (uncommented.empty() && line[begin] != '#') uncommented = line;
  });
  if (first.empty()) return false;
  out = {};
  out.place = piece.place(first.data());
  bool csv = said;
  out.separator = options.separator;
  // What the training rows were tells more than a guess.
  const auto is_known = [&](std::string_view line) { return is_as_trained(line, options); };
  if (out.separator == 0 && is_known(first) && (uncommented.empty() || is_known(uncommented))) {
    out.separator = options.fields.separator;
    csv = true;
  }
  if (out.separator == 0) {
    const auto looks_like_libsvm = [&](std::string_view line) {
      return !said && line.find(':') != std::string_view::npos && !is_csv_with_colons(line, separator_of(line, false));
    };
    // SVMlight: lines of comments. Elsewhere # may begin a name.
    const bool only_comments = !said && uncommented.empty() && separator_of(first, false) == 0;
    if (first.data() != uncommented.data() && looks_like_libsvm(uncommented)) first = uncommented;
    const bool pairs = only_comments || looks_like_libsvm(first);
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
  out.header = is_header(names, options);
  if (out.header) out.names = std::move(names);
  return true;
}

bool is_row(const sample_layout& layout, std::string_view line) noexcept {
  const auto begin = line.find_first_not_of(" \t");
  return begin != std::string_view::npos && !(layout.format == sample_format::libsvm && line[begin] == '#');
}

field_plan plan_fields(const sample_layout& layout, const sample_options& options) {
  return field_planner(layout, options).plan();
}

libsvm_plan plan_libsvm(const std::string& where, const sample_options& options) {
  libsvm_plan found;
  const auto find = [&](const std::string& text) {
    const auto number = field_number(text, 0);
    if (!number) throw data_error(where + ": " + no_field(text, 0));
    return *number;
  };
  if (!options.weight.empty()) found.weight = find(options.weight);
  if (!options.group.empty() && options.group != "qid")
    throw data_error(where + ": found a libsvm line, want group \"qid\" instead of " + quote_for_error(options.group));
  for (const auto& [column, words] : options.words) {
    if (!words.empty())
      throw data_error(where + ": found rows of numbers, want CSV: feature " + std::to_string(column) +
                       " of the model has words");
    found.categorical.push_back(column);
  }
  for (const auto& text : options.words.empty() ? options.categorical : std::vector<std::string>()) {
    const auto field = find(text);
    if (field == found.weight)
      throw data_error(where + ": categorical field " + quote_for_error(text) + " is not a feature");
    found.categorical.push_back(static_cast<std::uint32_t>(field) - (found.weight && field > *found.weight ? 1 : 0));
  }
  sort_distinct(found.categorical);
  return found;
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
  const auto f = static_cast<float>(std::clamp(v, -most, most));
  return f == 0 && v != 0 ? std::copysign(std::numeric_limits<float>::denorm_min(), static_cast<float>(v)) : f;
}

}  // namespace paracel
