// SPDX-License-Identifier: BSD-3-Clause
#include "tree_table.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <paracel/error.hpp>
#include <paracel/npy_header.hpp>
#include <paracel/samples.hpp>
#include <paracel/text_output.hpp>

namespace paracel::alg {

namespace {

constexpr float missing_value = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint64_t most_columns = 1U << 20U;
// For one that tells the format.
constexpr std::size_t lines_looked_at = 1000;

// What a field of a line is, if not a feature.
enum table_role : std::int64_t { role_unread = -1, role_label = -2, role_weight = -3 };

bool table_blank(char c) noexcept { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view without_blanks(std::string_view s) noexcept {
  while (!s.empty() && table_blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && table_blank(s.back())) s.remove_suffix(1);
  return s;
}

bool is_missing(std::string_view s) noexcept {
  return s.empty() || s == "NA" || s == "nan" || s == "NaN" || s == "null" || s == "?";
}

/// A finite number, or nothing. The usual short decimals are exact without the library's function, which takes twice as
/// long.
std::optional<double> table_number(std::string_view s) noexcept {
  static constexpr std::array<double, 16> power{1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  const bool minus = !s.empty() && s.front() == '-';
  if (!s.empty() && (minus || s.front() == '+')) s.remove_prefix(1);
  if (s.empty() || s.front() == '-' || s.front() == '+') return std::nullopt;
  if (s.size() <= 16) {
    std::uint64_t digits = 0;
    std::size_t count = 0;
    std::size_t after = 0;
    bool point = false;
    for (const char c : s) {
      const unsigned d = static_cast<unsigned char>(c) - unsigned{'0'};
      if (d < 10) {
        digits = digits * 10 + d;
        ++count;
        after += point ? 1 : 0;
      } else if (c == '.' && !point) {
        point = true;
      } else {
        count = 0;
        break;
      }
    }
    if (count > 0 && count <= 15) {
      const double v = static_cast<double>(digits) / power[after];
      return minus ? -v : v;
    }
  }
  double v = 0;
  const auto end = std::from_chars(s.data(), s.data() + s.size(), v);
  if (end.ec != std::errc() || end.ptr != s.data() + s.size() || !std::isfinite(v)) return std::nullopt;
  return minus ? -v : v;
}

float to_float(double v) noexcept {
  constexpr double most = std::numeric_limits<float>::max() / 2;  // less than a threshold that all values are below
  return static_cast<float>(std::clamp(v, -most, most));
}

/// The name of a class: of a number its shortest form.
std::string class_name(std::string_view field) {
  const auto v = table_number(field);
  if (!v) return std::string(field);
  std::string s;
  append_text(s, *v == 0 ? 0.0 : *v);
  return s;
}

std::string in_quotes(std::string_view s) { return "\"" + std::string(s.substr(0, 60)) + "\""; }

/// Visits the fields of a line; `f(number, field, where it begins)`. Returns: how many there are. `bad(at, what)` must
/// throw.
template <class F, class Bad>
std::size_t visit_fields(std::string_view line, char separator, F&& f, Bad&& bad) {
  std::size_t number = 0;
  const char* at = line.data();
  const char* const last = at + line.size();
  const bool blanks = separator == ' ';
  if (blanks)
    while (at != last && table_blank(*at)) ++at;
  for (;; ++number) {
    while (!blanks && at != last && table_blank(*at) && *at != separator) ++at;
    if (at != last && *at == '"') {
      const char* const begin = ++at;
      while (at != last && *at != '"') ++at;
      if (at == last) bad(begin - 1, "found a quote that does not end in its line");
      f(number, std::string_view(begin, static_cast<std::size_t>(at - begin)), begin);
      ++at;
      while (at != last && table_blank(*at) && *at != separator) ++at;
      if (at != last && *at != separator && !blanks) bad(at, "found " + in_quotes({at, 1}) + " after a quoted field");
    } else {
      const char* const begin = at;
      while (at != last && *at != separator && !(blanks && table_blank(*at))) ++at;
      f(number, without_blanks({begin, static_cast<std::size_t>(at - begin)}), begin);
    }
    if (blanks)
      while (at != last && table_blank(*at)) ++at;
    else if (at != last) {
      ++at;
      continue;
    }
    if (at == last) return number + 1;
  }
}

/// What all lines have in common.
struct table_layout {
  enum kind : int { csv, libsvm, npy };
  int form = csv;
  char separator = ',';
  std::size_t fields = 0;
  std::vector<std::string> header;
};

table_layout layout_of_line(std::string_view line, char separator) {
  table_layout l;
  const auto text = without_blanks(line);
  l.separator = separator;
  if (l.separator == 0) {
    const bool pairs = text.find(':') != std::string_view::npos && text.find(',') == std::string_view::npos &&
                       text.find(';') == std::string_view::npos;
    for (const char c : {',', ';', '\t', ' '}) {
      if (l.separator == 0 && text.find(c) != std::string_view::npos) l.separator = c;
    }
    if (l.separator == 0) l.separator = ',';
    if (pairs) l.form = table_layout::libsvm;
  }
  if (l.form == table_layout::libsvm) return l;
  std::vector<std::string> fields;
  bool names = true;
  l.fields = visit_fields(
      line, l.separator,
      [&](std::size_t, std::string_view field, const char*) {
        names = names && !is_missing(field) && !table_number(field);
        fields.emplace_back(field);
      },
      [](const char*, const std::string& what) { throw data_error(what); });
  if (names) l.header = std::move(fields);
  return l;
}

/// Rank 0 looks at the first line, and all others learn what it found.
table_layout find_table_layout(Comm& comm, const std::vector<std::string>& files, const table_options& options) {
  struct found {};
  std::vector<std::string> said;
  if (comm.get_rank() == 0) {
    try {
      const auto all = expand(files);
      if (std::ranges::find(all, "-") != all.end())
        throw data_error("-: found standard input, want files: they are read twice");
      std::array<char, 6> magic{};
      std::ifstream(all.front(), std::ios::binary).read(magic.data(), magic.size());
      table_layout l;
      if (std::string_view(magic.data(), magic.size()) == npy_magic) {
        l.form = table_layout::npy;
      } else {
        std::string first;
        std::size_t looked_at = 0;
        try {
          visit_lines(all, 0, 1, [&](std::string&& line) {
            if (line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
            const auto text = without_blanks(line);
            if (text.empty()) return;
            // A line of one field may be a sparse row of zeros: a later one tells.
            const bool one_field = text.find_first_of(",; \t") == std::string_view::npos;
            if (first.empty() || text.find(':') != std::string_view::npos) first = line;
            if (!one_field || ++looked_at == lines_looked_at) throw found();
          });
        } catch (const found&) {
        }
        if (first.empty()) throw data_error(all.front() + ":1:1: found no line, want rows");
        l = layout_of_line(first, options.separator);
      }
      said = {"", std::to_string(l.form), std::string(1, l.separator), std::to_string(l.fields)};
      said.insert(said.end(), l.header.begin(), l.header.end());
    } catch (const error& e) {
      said = {e.what()};
    }
  }
  comm.bcast(said);
  if (!said[0].empty()) throw data_error(said[0]);
  table_layout l;
  l.form = std::stoi(said[1]);
  l.separator = said[2][0];
  l.fields = std::stoull(said[3]);
  l.header.assign(said.begin() + 4, said.end());
  return l;
}

class table_reader {
 public:
  table_reader(table_layout layout, const table_options& options, std::string where)
      : layout_(std::move(layout)), options_(options), where_(std::move(where)) {
    if (layout_.form == table_layout::csv) plan();
    else if (!options_.features.empty() || !options_.names.empty() || !options_.target.empty())
      throw data_error(where_ + ": found no header, want one that names the features");
    if (!layout_.header.empty()) header_line_ = layout_.header;
    for (std::size_t c = 0; c < options_.classes.size(); ++c) class_at_[options_.classes[c]] = static_cast<double>(c);
  }

  void text(std::string_view run, const text_failure& fail) {
    while (!run.empty()) {
      const auto end = run.find('\n');
      const auto line = run.substr(0, end);
      run.remove_prefix(end == std::string_view::npos ? run.size() : end + 1);
      if (without_blanks(line).empty()) continue;
      if (layout_.form == table_layout::csv) csv_line(line, fail);
      else libsvm_line(line, fail);
    }
  }
  void samples(const sample_rows& from);
  /// The rows, with the width of all workers' rows.
  table_rows take(Comm comm);

 private:
  void plan();
  [[nodiscard]] std::size_t field_of(const std::string& name, const char* what);
  [[nodiscard]] bool labelled() const { return !options_.without_label; }
  void csv_line(std::string_view line, const text_failure& fail);
  void libsvm_line(std::string_view line, const text_failure& fail);
  void label(std::string_view field, const char* at, const text_failure& fail);
  void agree_on_classes(Comm& comm);
  void take_out_column(std::size_t column);
  void find_columns();

  table_layout layout_;
  const table_options& options_;
  std::string where_;
  std::vector<std::int64_t> role_;  // by field
  std::vector<std::string> header_line_;
  table_rows rows_;
  std::map<std::string, double, std::less<>> class_at_;
  std::vector<std::size_t> row_begin_{0};  // libsvm
  std::vector<std::uint32_t> column_;
  std::vector<float> entry_;
  std::optional<std::size_t> weight_column_;  // libsvm, npy
};

/// The number of a field that is named, or numbered.
std::size_t table_reader::field_of(const std::string& name, const char* what) {
  const auto& names = layout_.header;
  const auto at = std::ranges::find(names, name);
  if (at != names.end()) return static_cast<std::size_t>(at - names.begin());
  const auto number = table_number(name);
  if (names.empty() && number && *number >= 0 && *number < static_cast<double>(layout_.fields) &&
      *number == std::floor(*number))
    return static_cast<std::size_t>(*number);
  std::string has;
  for (const auto& n : names) has += (has.empty() ? "" : ", ") + n;
  throw data_error(where_ + ":1:1: found no " + what + " " + in_quotes(name) +
                   (names.empty() ? " in a line of " + std::to_string(layout_.fields) + " fields, want a number from 0"
                                  : " in the header, which has " + has));
}

/// The roles of a CSV line's fields.
void table_reader::plan() {
  const auto& o = options_;
  const bool named = !layout_.header.empty();
  const auto wanted = o.names.empty() ? o.features : o.names;
  if (!named && (!wanted.empty() || !o.target.empty()))
    throw data_error(where_ + ":1:1: found no header, want one that names " +
                     in_quotes(o.target.empty() ? wanted.front() : o.target));
  role_.assign(layout_.fields, role_unread);
  const auto has = [&](const std::string& name) {
    return std::ranges::find(layout_.header, name) != layout_.header.end();
  };
  if (!o.weight.empty() && (!o.without_label || !named || has(o.weight)))
    role_[field_of(o.weight, "weight")] = role_weight;
  std::size_t label_field = layout_.fields - 1;
  bool has_label = labelled();
  if (!o.target.empty()) {
    if (has_label || has(o.target)) label_field = field_of(o.target, "target"), has_label = true;
  } else if (!has_label && wanted.empty() && o.columns != 0) {
    const auto others = layout_.fields - static_cast<std::size_t>(std::ranges::count(role_, role_weight));
    has_label = others == o.columns + 1;
  }
  if (has_label) {
    if (role_[label_field] == role_weight)
      throw data_error(where_ +
                       ":1:1: found the weight where the label is, in the last field; want target to name the label");
    role_[label_field] = role_label;
  }
  if (!wanted.empty()) {
    for (std::size_t c = 0; c < wanted.size(); ++c) {
      auto& role = role_[field_of(wanted[c], "field")];
      if (role != role_unread)
        throw data_error(where_ + ":1:1: field " + in_quotes(wanted[c]) +
                         (role == role_label    ? " is the label, too"
                          : role == role_weight ? " is the weight, too"
                                                : " is a feature twice"));
      role = static_cast<std::int64_t>(c);
    }
    rows_.columns = wanted.size();
    rows_.names = wanted;
  } else {
    for (std::size_t f = 0; f < role_.size(); ++f) {
      if (role_[f] != role_unread) continue;
      role_[f] = static_cast<std::int64_t>(rows_.columns++);
      if (named) rows_.names.push_back(layout_.header[f]);
    }
  }
  if (!labelled()) std::ranges::replace(role_, std::int64_t{role_label}, std::int64_t{role_unread});
  if (o.columns != 0 && rows_.columns != o.columns)
    throw data_error(where_ + ":1:1: found " + std::to_string(rows_.columns) + " features, want " +
                     std::to_string(o.columns));
  rows_.categorical.assign(rows_.columns, false);
  for (const auto& name : o.categorical) {
    const auto role = role_[field_of(name, "categorical feature")];
    if (role < 0) throw data_error(where_ + ":1:1: categorical field " + in_quotes(name) + " is not a feature");
    rows_.categorical[static_cast<std::size_t>(role)] = true;
  }
}

void table_reader::label(std::string_view field, const char* at, const text_failure& fail) {
  if (!options_.words) {
    const auto v = table_number(field);
    if (!v) fail(at, "found label " + in_quotes(field) + ", want a finite number");
    rows_.label.push_back(*v);
    return;
  }
  if (field.empty()) fail(at, "found no label, want a class");
  auto found = class_at_.find(field);
  if (found == class_at_.end()) {
    const auto name = class_name(field);
    found = class_at_.find(name);
    if (found == class_at_.end()) {
      if (!options_.classes.empty()) {
        std::string known;
        for (const auto& c : options_.classes) known += (known.empty() ? "" : ", ") + c;
        fail(at, "found label " + in_quotes(field) + ", want one of " + known.substr(0, 200));
      }
      found = class_at_.emplace(name, static_cast<double>(rows_.classes.size())).first;
      rows_.classes.push_back(name);
    }
  }
  rows_.label.push_back(found->second);
}

void table_reader::csv_line(std::string_view line, const text_failure& fail) {
  const auto begin = rows_.value.size();
  rows_.value.resize(begin + rows_.columns, missing_value);
  bool header = !header_line_.empty();
  std::string_view label_field;
  const char* label_at = line.data();
  const char* wrong = nullptr;
  std::string_view wrong_field;
  double weight = 1;
  const auto count = visit_fields(
      line, layout_.separator,
      [&](std::size_t f, std::string_view field, const char* at) {
        header = header && f < header_line_.size() && field == header_line_[f];
        if (f >= role_.size() || role_[f] == role_unread) return;
        if (role_[f] == role_label) {
          label_field = field;
          label_at = at;
          return;
        }
        if (role_[f] >= 0 && is_missing(field)) return;
        const auto v = table_number(field);
        if (!v || (role_[f] == role_weight && *v < 0)) {
          if (wrong == nullptr) wrong = at, wrong_field = field;
        } else if (role_[f] == role_weight) {
          weight = *v;
        } else {
          rows_.value[begin + static_cast<std::size_t>(role_[f])] = to_float(*v);
        }
      },
      fail);
  if (header && count == header_line_.size()) {
    rows_.value.resize(begin);
    return;
  }
  if (count != layout_.fields)
    fail(line.data(), "found " + std::to_string(count) + " fields, want " + std::to_string(layout_.fields) +
                          " as in the first line");
  if (wrong != nullptr) {
    const bool of_weight = table_number(wrong_field).has_value();
    fail(wrong, "found " + in_quotes(wrong_field) + (of_weight ? ", want a weight of 0 or more" : ", want a number"));
  }
  if (labelled()) label(label_field, label_at, fail);
  if (!options_.weight.empty()) rows_.weight.push_back(weight);
  ++rows_.rows;
}

void table_reader::libsvm_line(std::string_view line, const text_failure& fail) {
  const char* at = line.data();
  const char* const last = at + line.size();
  std::uint64_t previous = 0;
  bool first = true;
  while (true) {
    while (at != last && table_blank(*at)) ++at;
    if (at == last) break;
    const char* const begin = at;
    while (at != last && !table_blank(*at)) ++at;
    const std::string_view token(begin, static_cast<std::size_t>(at - begin));
    const auto colon = token.find(':');
    if (std::exchange(first, false) && (labelled() || colon == std::string_view::npos)) {
      if (labelled()) label(token, begin, fail);
      continue;
    }
    std::uint64_t index = 0;
    const auto digits = std::from_chars(begin, begin + std::min(colon, token.size()), index);
    if (colon == std::string_view::npos || digits.ec != std::errc() || digits.ptr != begin + colon)
      fail(begin, "found " + in_quotes(token) + ", want index:value");
    if (index <= previous || index > most_columns)
      fail(begin, "found index " + std::to_string(index) + " after " + std::to_string(previous) +
                      ", want increasing indices from 1 to " + std::to_string(most_columns));
    previous = index;
    const auto v = table_number(token.substr(colon + 1));
    if (!v) fail(begin + colon + 1, "found " + in_quotes(token.substr(colon + 1)) + ", want a number");
    if (options_.columns != 0 && index > options_.columns + (options_.weight.empty() ? 0 : 1)) continue;
    column_.push_back(static_cast<std::uint32_t>(index - 1));
    entry_.push_back(to_float(*v));
  }
  row_begin_.push_back(entry_.size());
  rows_.columns = std::max<std::size_t>(rows_.columns, previous);
  ++rows_.rows;
}

void table_reader::samples(const sample_rows& from) {
  rows_.rows = from.rows();
  rows_.columns = from.columns;
  // Rows to predict may have a label.
  const auto want = options_.columns + (options_.weight.empty() ? 0 : 1);
  if (!labelled() && options_.columns != 0 && rows_.columns == want + 1) --rows_.columns;
  for (std::size_t i = 0; i < rows_.rows; ++i) {
    for (const double v : from.dense_row(i).first(rows_.columns)) rows_.value.push_back(to_float(v));
  }
  if (!options_.words) {
    rows_.label = from.label;
    return;
  }
  const text_failure bad = [&](const char*, const std::string& what) {
    throw data_error(where_ + ": row " + std::to_string(from.first_row + rows_.label.size()) + ": " + what);
  };
  std::string text;
  for (const double v : from.label) {
    text.clear();
    append_text(text, v);
    label(text, text.data(), bad);
  }
}

/// Of libsvm and .npy: weight and categories by number.
void table_reader::find_columns() {
  layout_.fields = rows_.columns;
  std::vector<std::int64_t> place(rows_.columns);
  if (!options_.weight.empty()) weight_column_ = field_of(options_.weight, "weight");
  rows_.categorical.assign(rows_.columns, false);
  for (const auto& name : options_.categorical) rows_.categorical[field_of(name, "categorical feature")] = true;
}

void table_reader::take_out_column(std::size_t column) {
  std::vector<float> narrow;
  narrow.reserve(rows_.rows * (rows_.columns - 1));
  for (std::size_t i = 0; i < rows_.rows; ++i) {
    const auto x = rows_.row(i);
    rows_.weight.push_back(static_cast<double>(x[column]));
    narrow.insert(narrow.end(), x.begin(), x.begin() + static_cast<std::ptrdiff_t>(column));
    narrow.insert(narrow.end(), x.begin() + static_cast<std::ptrdiff_t>(column) + 1, x.end());
  }
  rows_.value = std::move(narrow);
  rows_.categorical.erase(rows_.categorical.begin() + static_cast<std::ptrdiff_t>(column));
  --rows_.columns;
}

void table_reader::agree_on_classes(Comm& comm) {
  if (!options_.classes.empty()) {
    rows_.classes = options_.classes;
    return;
  }
  const auto local = std::move(rows_.classes);
  std::vector<std::string> all;
  for (auto& part : comm.allgather(local)) all.insert(all.end(), part.begin(), part.end());
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (std::ranges::all_of(all, [](const auto& c) { return table_number(c).has_value(); }))
    std::ranges::sort(all, {}, [](const auto& c) { return *table_number(c); });
  std::vector<double> place(local.size());
  for (std::size_t c = 0; c < local.size(); ++c)
    place[c] = static_cast<double>(std::ranges::find(all, local[c]) - all.begin());
  for (auto& y : rows_.label) y = place[static_cast<std::size_t>(y)];
  rows_.classes = std::move(all);
}

table_rows table_reader::take(Comm comm) {
  std::vector<std::int64_t> width{static_cast<std::int64_t>(rows_.columns)};
  comm.allreduce(width, reduce_op::max);
  if (layout_.form != table_layout::csv) {
    rows_.columns = static_cast<std::size_t>(width[0]);
    const auto want = options_.columns + (options_.weight.empty() ? 0 : 1);
    if (options_.columns != 0 && layout_.form == table_layout::libsvm) rows_.columns = want;
    find_columns();
  }
  if (layout_.form == table_layout::libsvm) {
    rows_.value.assign(rows_.rows * rows_.columns, 0.0F);
    for (std::size_t i = 0; i < rows_.rows; ++i) {
      for (std::size_t k = row_begin_[i]; k < row_begin_[i + 1]; ++k)
        rows_.value[i * rows_.columns + column_[k]] = entry_[k];
    }
  }
  if (weight_column_) take_out_column(*weight_column_);
  if (rows_.columns == 0) throw data_error(where_ + ": found rows without any feature");
  if (options_.columns != 0 && rows_.columns != options_.columns)
    throw data_error(where_ + ": found " + std::to_string(rows_.columns) + " features, want " +
                     std::to_string(options_.columns));
  if (options_.words && labelled()) agree_on_classes(comm);
  std::string problem;
  const auto counts = comm.allgather(static_cast<std::uint64_t>(rows_.rows));
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (r < comm.get_rank()) rows_.first_row += counts[r];
    rows_.rows_total += counts[r];
  }
  // What no line of text has shown to be right.
  for (std::size_t i = 0; i < rows_.rows && problem.empty(); ++i) {
    const auto row = [&] { return where_ + ": row " + std::to_string(rows_.first_row + i) + ": "; };
    if (!rows_.weight.empty() && !(rows_.weight[i] >= 0)) problem = row() + "found a negative weight, want 0 or more";
    for (std::size_t c = 0; c < rows_.columns; ++c) {
      const float x = rows_.value[i * rows_.columns + c];
      if (!rows_.categorical[c] || std::isnan(x)) continue;
      if (!(x >= 0) || x > static_cast<float>(greatest_category) || x != std::floor(x)) {
        problem = row() + "found category ";
        append_text(problem, x);
        problem += ", want an integer from 0 to " + std::to_string(greatest_category);
      }
    }
  }
  for (const auto& p : comm.allgather(problem)) {
    if (!p.empty()) throw data_error(p);
  }
  return std::move(rows_);
}

}  // namespace

void add_table_keys(config_schema& s) {
  s.key("target", key_type::string, "CSV with a header: name of the label; default: the last field");
  s.key("features", key_type::strings, "CSV with a header: names of the features; default: all others");
  s.key("separator", key_type::string, "CSV: field separator; default: comma, semicolon, tab or blank, as in the file");
  s.key("weight", key_type::string, "the field with the rows' weights: its name, or its number from 0");
  s.key("categorical", key_type::strings, "features that are categories, integers from 0: names, or numbers from 0");
}

table_options table_options_of(const config& from) {
  table_options o;
  o.target = from.get<std::string>("target");
  o.features = from.get<std::vector<std::string>>("features");
  o.weight = from.get<std::string>("weight");
  o.categorical = from.get<std::vector<std::string>>("categorical");
  const auto separator = from.get<std::string>("separator");
  if (separator.size() > 1)
    throw config_error(from.place_of("separator") + ": found \"" + separator + "\", want one character");
  if (!separator.empty()) o.separator = separator[0];
  return o;
}

table_rows load_table(Comm comm, const std::vector<std::string>& files, const table_options& options) {
  const auto layout = find_table_layout(comm, files, options);
  table_reader reader(layout, options, files.front());
  if (layout.form == table_layout::npy) {
    sample_options how;
    how.label = options.without_label ? sample_options::label_rule::none : sample_options::label_rule::real;
    reader.samples(load_samples(comm, files, how));
  } else {
    visit_text(comm, files, [&](std::string_view run, const text_failure& fail) { reader.text(run, fail); });
  }
  return reader.take(comm);
}

}  // namespace paracel::alg
