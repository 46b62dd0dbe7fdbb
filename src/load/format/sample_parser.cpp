// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/sample_parser.hpp"

#include <algorithm>
#include <utility>

#include "core/number_parsing.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

constexpr std::string_view blanks = " \t";

bool only_blanks(std::string_view line) noexcept { return line.find_first_not_of(blanks) == std::string_view::npos; }

std::string fields_text(std::size_t n) { return std::to_string(n) + (n == 1 ? " field" : " fields"); }

const char* separator_name(char c) noexcept {
  switch (c) {
    case ',':
      return "a comma";
    case ';':
      return "a semicolon";
    case '\t':
      return "a tab";
    case ' ':
      return "a blank";
    default:
      return "a separator";
  }
}

/// Iterates over the fields of a CSV line.
class csv_fields {
 public:
  csv_fields(std::string_view line, char separator)
      : at_(line.data()), last_(at_ + line.size()), separator_(separator) {}

  /// The next field, without blanks around it and without quotes. False when its quotes are unterminated.
  bool next(std::string_view& field, bool& quoted) {
    skip_blanks();
    quoted = at_ != last_ && *at_ == '"';
    if (!quoted) {
      const char* begin = at_;
      while (at_ != last_ && *at_ != separator_ && !(separator_ == ' ' && is_blank(*at_))) ++at_;
      const char* end = at_;
      while (end != begin && is_blank(end[-1])) --end;
      field = {begin, static_cast<std::size_t>(end - begin)};
      return true;
    }
    const char* begin = ++at_;
    for (;; ++at_) {
      if (at_ == last_) {
        field = {begin - 1, 1};
        return false;
      }
      if (*at_ != '"') continue;
      if (at_ + 1 == last_ || at_[1] != '"') break;
      ++at_;  // "" is a quote that belongs to the field
    }
    field = {begin, static_cast<std::size_t>(at_ - begin)};
    ++at_;
    skip_blanks();
    return true;
  }
  /// Whether another field follows; it is then at its front.
  bool more() {
    if (separator_ == ' ') {
      skip_blanks();
      return at_ != last_;
    }
    if (at_ == last_ || *at_ != separator_) return false;
    ++at_;
    return true;
  }
  /// Its position, for messages.
  [[nodiscard]] const char* at() const noexcept { return at_; }
  [[nodiscard]] bool over() const noexcept { return at_ == last_; }

 private:
  void skip_blanks() {
    while (at_ != last_ && is_blank(*at_) && *at_ != separator_) ++at_;
    if (separator_ == ' ') {
      while (at_ != last_ && is_blank(*at_)) ++at_;
    }
  }

  const char* at_;
  const char* last_;
  char separator_;
};

constexpr const char* open_quote =
    "found a quote that does not end in its line, want fields without line ends: a part of a "
    "file begins at a line";

/// A field with its doubled quotes unescaped.
std::string unquoted(std::string_view field) {
  std::string s;
  for (std::size_t i = 0; i < field.size(); ++i) {
    s += field[i];
    if (field[i] == '"' && i + 1 < field.size() && field[i + 1] == '"') ++i;
  }
  return s;
}

/// All fields of a line; false for unterminated quotes, with their position.
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

std::size_t count_fields(std::string_view line, char separator) {
  std::vector<std::string> names;
  const char* problem = nullptr;
  all_fields(line, separator, names, problem);
  return names.size();
}

/// Whether no field is a number, and none is missing: so a line of data with an invalid field is not a header.
bool names_only(const std::vector<std::string>& fields) {
  return std::none_of(fields.begin(), fields.end(), [](const std::string& f) {
    return f.empty() || read_number(f.data(), f.data() + f.size()).outcome != number_outcome::not_a_number;
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

}  // namespace

bool find_layout(const std::string& file, std::string_view text, const sample_options& options, sample_layout& out) {
  const input_piece piece(file, text);
  text = piece.text();
  std::string_view first;
  const bool named = !options.target.empty() || !options.features.empty();
  const bool said = options.separator != 0 || named || options.header == sample_options::header_rule::yes;
  using rule = sample_options::label_rule;
  const bool of_classes = options.label == rule::binary || options.label == rule::classes;
  for_each_line(text, [&](std::string_view line, std::size_t) {
    if (only_blanks(line)) return;
    if (first.empty()) first = line;
  });
  if (first.empty()) return false;
  out = {};
  out.place = piece.place(first.data());
  bool csv = said;
  out.separator = options.separator;
  if (out.separator == 0) {
    const bool pairs = first.find(':') != std::string_view::npos && !said;
    out.separator = pairs ? '\0' : separator_of(first, !of_classes);
    // For labels of classes only unambiguous CSV is CSV: a line of one field is a libsvm sample without
    // features, since a CSV sample has a feature.
    csv = csv || out.separator != 0;
    if (!csv && !pairs && options.label == sample_options::label_rule::none && !options.without_label) {
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
  out.header = options.header == header::yes || (options.header == header::automatic && names_only(names));
  if (out.header) out.names = std::move(names);
  return true;
}

sample_parser::sample_parser(sample_layout layout, const sample_options& options)
    : layout_(std::move(layout)), options_(options), classes_(options.classes) {
  rows_.dense = layout_.format == sample_format::csv;
  rows_.columns = options.columns;
  if (rows_.dense) plan_fields();
}

/// The roles of a line's fields.
void sample_parser::plan_fields() {
  const auto refuse = [&](const std::string& what) { throw data_error(layout_.place + ": " + what); };
  const auto all = layout_.fields;
  const auto& names = layout_.names;
  const auto find = [&](const std::string& name) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) {
      std::string has;
      for (const auto& n : names) has += (has.empty() ? "" : ", ") + n;
      refuse("found no field " + quote_for_error(name) + " in the header, which has " + has);
    }
    if (std::find(at + 1, names.end(), name) != names.end())
      refuse("found two fields " + quote_for_error(name) + " in the header");
    return static_cast<std::size_t>(at - names.begin());
  };
  if (!layout_.header && (!options_.target.empty() || !options_.features.empty()))
    refuse("found no header, want one that names " +
           quote_for_error(options_.target.empty() ? options_.features.front() : options_.target));

  role_.assign(all, not_read);
  const bool labelled = !options_.without_label && options_.label != sample_options::label_rule::none;
  bool last_is_label = labelled;
  if (!options_.target.empty()) {
    last_is_label = false;
    const bool there = std::find(names.begin(), names.end(), options_.target) != names.end();
    if (labelled || there) role_[find(options_.target)] = is_label;
  }
  if (!options_.features.empty()) {
    if (last_is_label) role_[all - 1] = is_label;
    std::uint32_t column = 0;
    for (const auto& name : options_.features) {
      const auto field = find(name);
      if (role_[field] != not_read)
        refuse("field " + quote_for_error(name) +
               (role_[field] == is_label ? " is the label, too" : " is a feature twice"));
      role_[field] = column++;
    }
    if (options_.columns != 0 && column != options_.columns)
      refuse("want " + std::to_string(options_.columns) + " features, " + std::to_string(column) + " are named");
  } else {
    auto features = all - static_cast<std::size_t>(std::count(role_.begin(), role_.end(), is_label));
    if (last_is_label) {
      features = all - 1;
      if (options_.columns != 0 && features != options_.columns)
        refuse("found " + fields_text(all) + " in the first line, want " +
               std::to_string(options_.columns + std::size_t{1}) + ": " + std::to_string(options_.columns) +
               " features and a label");
    } else if (options_.without_label && options_.label != sample_options::label_rule::none) {
      if (features != options_.columns && (features != options_.columns + std::size_t{1} || !options_.target.empty()))
        refuse("found " + fields_text(all) + " in the first line, want " + std::to_string(options_.columns) +
               " features, with or without a label");
      last_is_label = features != options_.columns;
      features = options_.columns;
    } else if (options_.columns != 0 && features != options_.columns) {
      refuse("found " + fields_text(all) + " in the first line, want " + std::to_string(options_.columns) +
             " features");
    }
    if (last_is_label) role_[all - 1] = is_label;
    std::uint32_t column = 0;
    for (auto& r : role_) {
      if (r == not_read) r = column++;
    }
  }
  if (!labelled) std::replace(role_.begin(), role_.end(), std::uint32_t{is_label}, std::uint32_t{not_read});
  rows_.columns = 0;
  for (const auto r : role_) rows_.columns += r < is_label ? 1 : 0;
  if (layout_.header) {
    rows_.names.resize(rows_.columns);
    for (std::size_t f = 0; f < all; ++f) {
      if (role_[f] < is_label) rows_.names[role_[f]] = names[f];
    }
  }
}

namespace {

/// The text where a number should be, up to one of `stops`.
[[noreturn]] void no_number(const input_piece& from, const char* at, const char* last, std::string_view stops,
                            const number_reading& reading, const char* what) {
  const char* end = at;
  while (end != last && stops.find(*end) == std::string_view::npos) ++end;
  const bool whole =
      reading.end == last || (reading.end != nullptr && stops.find(*reading.end) != std::string_view::npos);
  from.fail(at, std::string("found ") + what + quote_for_error({at, static_cast<std::size_t>(end - at)}) + ", want a " +
                    (reading.outcome == number_outcome::not_finite && whole ? "finite number" : "number"));
}

/// Parses the number at `at`, which ends at one of `stops` or at `last`, and advances `at` past it.
double number(const input_piece& from, const char*& at, const char* last, std::string_view stops,
              const char* what = "") {
  const auto reading = read_number(at, last);
  const bool whole = reading.end == last || stops.find(*reading.end) != std::string_view::npos;
  if (reading.outcome != number_outcome::ok || !whole) no_number(from, at, last, stops, reading, what);
  at = reading.end;
  return reading.value;
}

}  // namespace

void sample_parser::label(const input_piece& from, std::string_view token, bool quoted) {
  const bool csv = layout_.format == sample_format::csv;
  if (options_.label == sample_options::label_rule::classes) {
    const std::string text = quoted ? unquoted(token) : std::string(token);
    const auto problem = csv ? std::string() : class_labels::libsvm_problem(text);
    if (!problem.empty()) from.fail(token.data(), problem);
    try {
      rows_.label.push_back(classes_.index(text, !quoted));
    } catch (const class_labels::refused& e) {
      from.fail(token.data(), e.what);
    }
    return;
  }
  if (options_.label == sample_options::label_rule::real) {
    const char* at = token.data();
    rows_.label.push_back(number(from, at, at + token.size(), {}, "label "));
    return;
  }
  double v = 0;
  const bool read = read_whole_number(token, v);
  if (read && v == 1) {
    rows_.label.push_back(1);
    return;
  }
  if (read && (v == 0 || (v == -1 && !csv))) {
    (v == 0 ? rows_.has_label_zero : rows_.has_label_minus_one) = true;
    if (rows_.has_label_zero && rows_.has_label_minus_one) {
      from.fail(token.data(), "found label " + quote_for_error(token) + " in an input that has label " +
                                  (v == 0 ? "-1" : "0") + " too; want 0 and 1, or -1 and +1");
    }
    rows_.label.push_back(-1);
    return;
  }
  from.fail(token.data(), "found label " + quote_for_error(token) + ", want " + (csv ? "0 or 1" : "-1, 0 or +1"));
}

void sample_parser::csv_line(const input_piece& from, std::string_view line) {
  csv_fields fields(line, layout_.separator);
  const char stops[] = {layout_.separator, ' ', '\t'};
  const auto row = rows_.value.size();
  rows_.value.resize(row + rows_.columns);
  std::string_view label_field{line.data(), 0};
  bool label_quoted = false;
  for (std::size_t f = 0; f < layout_.fields; ++f) {
    std::string_view field;
    bool quoted = false;
    if (!fields.next(field, quoted)) from.fail(field.data(), open_quote);
    while (!field.empty() && is_blank(field.front())) field.remove_prefix(1);
    while (!field.empty() && is_blank(field.back())) field.remove_suffix(1);
    const auto role = role_[f];
    if (role < is_label) {
      const char* at = field.data();
      const char* last = at + field.size();
      rows_.value[row + role] =
          number(from, at, last, quoted ? std::string_view{} : std::string_view{stops, sizeof stops});
      // "1,2 3": a separator is missing.
      while (at != last && is_blank(*at)) ++at;
      if (at != last)
        from.fail(at,
                  "found " + quote_for_error({at, 1}) + " after a number, want " + separator_name(layout_.separator));
    } else if (role == is_label) {
      label_field = field;
      label_quoted = quoted;
    }
    const bool more = fields.more();
    if (!more && !fields.over())
      from.fail(fields.at(), "found " + quote_for_error({fields.at(), 1}) + " after a quoted field, want " +
                                 separator_name(layout_.separator));
    if (more != (f + 1 < layout_.fields)) {
      const char* at = more && layout_.separator != ' ' ? fields.at() - 1 : fields.at();
      from.fail(at, "found " + fields_text(count_fields(line, layout_.separator)) + ", want " +
                        std::to_string(layout_.fields) + " as in the first line");
    }
  }
  // After the width: in a row with a field too many, the label is not where it seems to be.
  if (!options_.without_label && options_.label != sample_options::label_rule::none)
    label(from, label_field, label_quoted);
}

void sample_parser::libsvm_line(const input_piece& from, std::string_view line) {
  const char* at = line.data();
  const char* last = at + line.size();
  const auto skip_blanks = [&] {
    while (at != last && is_blank(*at)) ++at;
  };
  skip_blanks();
  const char* end = at;
  while (end != last && !is_blank(*end) && *end != ':') ++end;
  const bool unlabelled = options_.without_label || options_.label == sample_options::label_rule::none;
  const bool missing = unlabelled && end != last && *end == ':';
  if (!missing) {
    while (end != last && !is_blank(*end)) ++end;
    if (!unlabelled) label(from, {at, static_cast<std::size_t>(end - at)});
    at = end;
  }
  std::uint64_t previous = 0;
  for (skip_blanks(); at != last; skip_blanks()) {
    const char* begin = at;
    std::uint64_t index = 0;
    // 20 digits would overflow; 18 are beyond every limit.
    while (at != last && *at >= '0' && *at <= '9' && at - begin < 18) {
      index = index * 10 + static_cast<std::uint64_t>(*at++ - '0');
    }
    if (at == begin || at == last || *at != ':') {
      const char* stop = begin;
      while (stop != last && !is_blank(*stop)) ++stop;
      from.fail(begin,
                "found " + quote_for_error({begin, static_cast<std::size_t>(stop - begin)}) + ", want index:value");
    }
    if (index == 0) from.fail(begin, "found index 0, want 1 or more");
    if (index > options_.index_limit) {
      from.fail(begin,
                "found index " + std::to_string(index) + ", want at most " + std::to_string(options_.index_limit));
    }
    if (index <= previous) {
      from.fail(begin, "found index " + std::to_string(index) + " after " + std::to_string(previous) +
                           ", want increasing indices");
    }
    previous = index;
    ++at;
    const double v = number(from, at, last, blanks);
    if (options_.columns != 0 && index > options_.columns) continue;
    rows_.column.push_back(static_cast<std::uint32_t>(index - 1));
    rows_.value.push_back(v);
  }
  rows_.row_begin.push_back(rows_.value.size());
  if (options_.columns == 0) rows_.columns = std::max(rows_.columns, static_cast<std::uint32_t>(previous));
}

/// Whether the first line of a file is its header.
bool sample_parser::is_header(const input_piece& from, std::string_view line) const {
  std::vector<std::string> names;
  const char* problem = nullptr;
  const bool same = all_fields(line, layout_.separator, names, problem) && names == layout_.names;
  if (!same && options_.header == sample_options::header_rule::yes)
    from.fail(line.data(), "found another header than in the first file, want the same fields");
  return same;
}

void sample_parser::parse(const input_piece& piece) {
  auto lines = piece.text();
  if (piece.begins_file()) expect_header();
  while (header_ahead_ && !lines.empty()) {
    const auto newline = lines.find('\n');
    auto line = lines.substr(0, newline);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool blank = only_blanks(line);
    if (!blank) {
      header_ahead_ = false;
      if (!is_header(piece, line)) break;
    }
    lines.remove_prefix(newline == std::string_view::npos ? lines.size() : newline + 1);
  }
  const std::size_t before[] = {rows_.value.size(), rows_.row_count};
  quick_lines(piece, lines);
  make_room(piece.done(), rows_.value.size() - before[0], rows_.row_count - before[1]);
}

void sample_parser::line(const input_piece& from, std::string_view text) {
  if (only_blanks(text)) return;
  if (layout_.format == sample_format::csv) {
    csv_line(from, text);
  } else {
    libsvm_line(from, text);
  }
  ++rows_.row_count;
}

/// Reserves what the rest of the input will need, estimated from the lines so far. Excess reservations are
/// never touched, and so use no memory.
void sample_parser::make_room(double done, std::size_t new_values, std::size_t new_rows) {
  if (done <= 0 || done >= 1) return;
  const auto reserve = [done](auto& v, std::size_t fresh) {
    if (v.capacity() - v.size() < 2 * fresh)
      v.reserve(static_cast<std::size_t>(1.02 * static_cast<double>(v.size()) / done) + 4 * fresh);
  };
  reserve(rows_.value, new_values);
  if (!rows_.dense) {
    reserve(rows_.column, new_values);
    reserve(rows_.row_begin, new_rows);
  }
  reserve(rows_.label, new_rows);
}

sample_rows sample_parser::take() {
  if (options_.label == sample_options::label_rule::classes) rows_.classes = classes_.sort(rows_.label);
  return std::move(rows_);
}

sample_rows parse_samples(const std::string& file, std::string_view text, const sample_options& options) {
  sample_layout layout;
  if (!find_layout(file, text, options, layout)) throw data_error(file + ":1:1: found no line, want samples");
  sample_parser parser(std::move(layout), options);
  parser.parse(input_piece(file, text));
  return parser.take();
}

}  // namespace paracel
