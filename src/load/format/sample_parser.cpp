// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/sample_parser.hpp"

#include <algorithm>
#include <utility>

#include "core/number_parsing.hpp"
#include "load/format/csv_fields.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

constexpr std::string_view blanks = " \t";

bool only_blanks(std::string_view line) noexcept { return line.find_first_not_of(blanks) == std::string_view::npos; }

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

std::size_t count_fields(std::string_view line, char separator) {
  std::vector<std::string> names;
  const char* problem = nullptr;
  all_fields(line, separator, names, problem);
  return names.size();
}

}  // namespace

sample_parser::sample_parser(sample_layout layout, const sample_options& options)
    : layout_(std::move(layout)), options_(options), missing_(options_), classes_(labels_of(options)) {
  rows_.dense = layout_.format == sample_format::csv;
  rows_.columns = options.columns;
  if (rows_.dense) {
    auto plan = plan_fields(layout_, options_);
    role_ = std::move(plan.role);
    rows_.columns = plan.columns;
    rows_.names = std::move(plan.names);
    rows_.fields = std::move(plan.fields);
    rows_.categorical = std::move(plan.categorical);
    words_of_.resize(rows_.columns);
    words_.reserve(rows_.categorical.size());
    for (const auto c : rows_.categorical) {
      const auto known = options_.words.find(c);
      words_.emplace_back(known == options_.words.end() ? nullptr : &known->second);
      words_of_[c] = &words_.back();
      some_words_ = some_words_ || words_.back().has_words();
    }
    return;
  }
  auto plan = plan_libsvm(layout_.place, options_);
  rows_.categorical = std::move(plan.categorical);
  if (plan.weight) weight_index_ = *plan.weight + 1;
}

namespace {

/// Reports the text where a number should be, up to one of `stops`.
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
  const bool binary = options_.label == sample_options::label_rule::binary;
  if (binary || options_.label == sample_options::label_rule::classes) {
    const std::string text = quoted ? unquoted(token) : std::string(token);
    const auto problem = csv ? std::string() : class_labels::libsvm_problem(text);
    if (!problem.empty()) from.fail(token.data(), problem);
    try {
      if (binary) note_sign(rows_, text);
      const double index = classes_.index(text, !quoted);
      rows_.label.push_back(index);
      if (binary && !quoted) {
        for (const auto& [spelled, at] : {std::pair("0", 0), {"1", 1}, {"+1", 1}, {"-1", 2}})
          if (text == spelled) quick_class_[at] = index;
      }
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
  const char* at = token.data();
  rows_.label.push_back(number(from, at, at + token.size(), {}, "label "));
  if (!is_relevance(rows_.label.back())) from.fail(token.data(), no_relevance(std::string(token)));
}

double sample_parser::not_negative(const input_piece& from, std::string_view field, double v) {
  if (v < 0) from.fail(field.data(), "found " + quote_for_error(field) + ", want a weight of 0 or more");
  return v;
}

double sample_parser::feature(const input_piece& from, std::uint32_t column, std::string_view field, double v) const {
  if (!is_category(v) && std::binary_search(rows_.categorical.begin(), rows_.categorical.end(), column))
    from.fail(field.data(), no_category(std::string(field)));
  return v;
}

double sample_parser::category(const input_piece& from, std::uint32_t column, std::string_view field, bool quoted) {
  auto& words = *words_of_[column];
  const std::string text = quoted ? unquoted(field) : std::string(field);
  try {
    const auto integer = category_words::integer(text);
    if (!words.has_words()) {
      if (integer) return *integer;
      if (words.known()) return missing_values::value;
      integers_to_words(rows_, column);
      for (const auto& word : rows_.words[column]) words.index(word, false);
      words.begin_words();
      some_words_ = true;
    }
    return words.index(text, !quoted);
  } catch (const class_labels::refused& e) {
    from.fail(field.data(), e.what);
  }
}

std::uint64_t sample_parser::group(const input_piece& from, std::string_view field, bool quoted) {
  if (field.empty()) from.fail(field.data(), "found an empty group, want a number or a text");
  return quoted ? group_of(unquoted(field)) : quick_group(field);
}

std::uint64_t sample_parser::quick_group(std::string_view field) {
  if (field != group_text_) {
    group_text_ = field;
    group_number_ = group_of(field);
  }
  return group_number_;
}

void sample_parser::csv_line(const input_piece& from, std::string_view line) {
  csv_fields fields(line, layout_.separator);
  const char stops[] = {layout_.separator, ' ', '\t'};
  double weight = 0;
  std::uint64_t group_number = 0;
  std::string_view label_field{line.data(), 0};
  bool label_quoted = false;
  for (std::size_t f = 0; f < layout_.fields; ++f) {
    std::string_view field;
    bool quoted = false;
    if (!fields.next(field, quoted)) from.fail(field.data(), open_quote);
    while (!field.empty() && is_blank(field.front())) field.remove_prefix(1);
    while (!field.empty() && is_blank(field.back())) field.remove_suffix(1);
    const auto role = role_[f];
    if (is_feature(role) && missing_.is_missing(field)) {
      new_value_[role] = missing_values::value;
    } else if (is_feature(role) && words_of_[role] != nullptr) {
      new_value_[role] = category(from, role, field, quoted);
    } else if (role == is_group) {
      group_number = group(from, field, quoted);
    } else if (is_feature(role) || role == is_weight) {
      const char* at = field.data();
      const char* last = at + field.size();
      const double v = number(from, at, last, quoted ? std::string_view{} : std::string_view{stops, sizeof stops});
      // "1,2 3": a separator is missing.
      while (at != last && is_blank(*at)) ++at;
      if (at != last)
        from.fail(at,
                  "found " + quote_for_error({at, 1}) + " after a number, want " + separator_name(layout_.separator));
      if (role == is_weight) weight = not_negative(from, field, v);
      else new_value_[role] = v;
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
  new_entries_ = rows_.columns;
  flush();
  // After the width: in a row with a field too many, the label is not where it seems to be.
  if (reads_labels(options_)) label(from, label_field, label_quoted);
  if (!options_.weight.empty()) rows_.weight.push_back(weight);
  if (!options_.group.empty()) rows_.group.push_back(group_number);
}

/// Where the comment of a libsvm line begins: # at its beginning or after a blank. Without one, the line's length.
static std::size_t comment_at(std::string_view line) noexcept {
  for (auto at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1)) {
    if (at == 0 || is_blank(line[at - 1])) return at;
  }
  return line.size();
}

void sample_parser::libsvm_line(const input_piece& from, std::string_view line) {
  const char* at = line.data();
  const char* last = line.data() + comment_at(line);
  const auto skip_blanks = [&] {
    while (at != last && is_blank(*at)) ++at;
  };
  skip_blanks();
  const char* end = at;
  while (end != last && !is_blank(*end) && *end != ':') ++end;
  const bool labelled = reads_labels(options_);
  const bool missing = !labelled && end != last && *end == ':';
  if (!missing) {
    while (end != last && !is_blank(*end)) ++end;
    if (labelled) label(from, {at, static_cast<std::size_t>(end - at)});
    at = end;
  }
  std::uint64_t group_number = 0;
  if (!options_.group.empty()) {
    skip_blanks();
    end = at;
    while (end != last && !is_blank(*end)) ++end;
    const std::string_view token(at, static_cast<std::size_t>(end - at));
    if (token.starts_with(group_mark)) {
      group_number = group(from, token.substr(group_mark.size()));
      at = end;
    } else if (labelled) {
      from.fail(at, "found " + quote_for_error(token) + ", want the group, qid:7");
    }
  }
  double weight = 0;
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
      const std::string_view token(begin, static_cast<std::size_t>(stop - begin));
      from.fail(begin, "found " + quote_for_error(token) + ", want index:value" +
                           (token.starts_with(group_mark) ? "; gbdt reads groups, with \"group\": \"qid\"" : ""));
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
    const char* const begin_of_value = at;
    const double v = number(from, at, last, blanks);
    const std::string_view field(begin_of_value, static_cast<std::size_t>(at - begin_of_value));
    if (index == weight_index_) weight = not_negative(from, field, v);
    const auto column = column_of(index);
    if (index == weight_index_ || (options_.columns != 0 && column >= options_.columns)) continue;
    if (new_entries_ == new_value_.size()) flush();
    new_column_[new_entries_] = column;
    new_value_[new_entries_++] = feature(from, column, field, missing_.read(v));
  }
  flush();
  rows_.row_begin.push_back(entries());
  if (options_.columns == 0) rows_.columns = std::max(rows_.columns, width_of(previous));
  if (!options_.weight.empty()) rows_.weight.push_back(weight);
  if (!options_.group.empty()) rows_.group.push_back(group_number);
}

bool sample_parser::is_header(const input_piece& from, std::string_view line) const {
  std::vector<std::string> names;
  const char* problem = nullptr;
  const bool same = all_fields(line, layout_.separator, names, problem) && names == layout_.names;
  if (same) return true;
  // The same names in another order are a header, too.
  auto ours = layout_.names;
  std::ranges::sort(ours);
  std::ranges::sort(names);
  if (options_.header == sample_options::header_rule::yes || names == ours)
    from.fail(line.data(), "found a header that differs from the first file's, want the same fields in the same order");
  return false;
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
  const std::size_t before[] = {entries(), rows_.row_count};
  quick_lines(piece, lines);
  make_room(piece.done(), entries() - before[0], rows_.row_count - before[1]);
}

void sample_parser::line(const input_piece& from, std::string_view text) {
  if (!is_row(layout_, text)) return;
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
  if (options_.floats) reserve(rows_.floats, new_values);
  else reserve(rows_.value, new_values);
  if (!rows_.dense) {
    reserve(rows_.column, new_values);
    reserve(rows_.row_begin, new_rows);
  }
  if (reads_labels(options_)) reserve(rows_.label, new_rows);
  if (!options_.weight.empty()) reserve(rows_.weight, new_rows);
  if (!options_.group.empty()) reserve(rows_.group, new_rows);
}

sample_rows sample_parser::take() {
  if (has_classes(options_)) rows_.classes = classes_.sort(rows_.label);
  for (const auto c : rows_.categorical) {
    if (!rows_.dense || words_of_[c]->known() || !words_of_[c]->has_words()) continue;
    std::vector<double> place;
    rows_.words[c] = words_of_[c]->sort(place);
    move_words(rows_, c, place);
  }
  return std::move(rows_);
}

sample_rows parse_samples(const std::string& file, std::string_view text, const sample_options& options) {
  sample_layout layout;
  if (!find_layout(file, text, options, layout)) throw data_error(file + ":1:1: found no line, want samples");
  sample_parser parser(std::move(layout), options);
  parser.parse(input_piece(file, text));
  auto rows = parser.take();
  if (rows.rows() == 0) throw data_error(file + no_rows);
  to_signs(file, options, rows);
  return rows;
}

}  // namespace paracel
