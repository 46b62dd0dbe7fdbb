// SPDX-License-Identifier: BSD-3-Clause
#include "load/entry_reader.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <memory>
#include <utility>

#include "core/text_number.hpp"
#include "load/byte_range.hpp"
#include "load/together.hpp"
#include "paracel/error.hpp"
#include "paracel/load.hpp"

namespace paracel {

namespace {

constexpr std::string_view banner = "%%MatrixMarket";
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

constexpr bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }

std::string_view trimmed(std::string_view s) noexcept {
  while (!s.empty() && is_blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_blank(s.back())) s.remove_suffix(1);
  return s;
}

/// The first run of non-blanks of `rest`, which loses it.
std::string_view next_word(std::string_view& rest) noexcept {
  while (!rest.empty() && is_blank(rest.front())) rest.remove_prefix(1);
  std::size_t n = 0;
  while (n < rest.size() && !is_blank(rest[n])) ++n;
  const auto word = rest.substr(0, n);
  rest.remove_prefix(n);
  return word;
}

bool is_index_and_value(std::string_view word) noexcept {
  const auto colon = word.find(':');
  if (colon == std::string_view::npos) return false;
  std::uint64_t index = 0;
  double value = 0;
  return canonical_number(word.substr(0, colon), index) && read_whole_number(word.substr(colon + 1), value);
}

}  // namespace

bool without_entry(std::string_view line) noexcept {
  line = trimmed(line);
  return line.empty() || (line[0] == '#' && (line.size() == 1 || is_blank(line[1])));
}

entry_layout layout_of(std::string_view line, entry_format wanted) {
  entry_layout out;
  if (wanted == entry_format::matrix_market || (wanted == entry_format::automatic && line.starts_with(banner))) {
    out.format = entry_format::matrix_market;
    return out;
  }
  out.format = wanted == entry_format::libsvm ? wanted : entry_format::fields;
  line = trimmed(line);
  out.separator = ' ';
  for (const char c : {'\t', ',', ';', ' ', '|'}) {
    if (line.find(c) == std::string_view::npos) continue;
    out.separator = c;
    break;
  }
  if (wanted == entry_format::automatic && (out.separator == ' ' || out.separator == '\t')) {
    // row index:value index:value: one pair alone is a:b:w to both formats, and means the same.
    auto rest = line;
    next_word(rest);
    std::size_t pairs = 0;
    bool all = true;
    for (auto word = next_word(rest); !word.empty(); word = next_word(rest)) {
      all = all && is_index_and_value(word);
      ++pairs;
    }
    if (all && pairs >= 2) out.format = entry_format::libsvm;
  }
  return out;
}

bool read_matrix_header(std::string_view head, entry_layout::matrix& out, const entry_failure& fail) {
  const auto lower = [](std::string_view s) {
    std::string t(s);
    for (char& c : t) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return t;
  };
  std::uint64_t number = 0;
  bool done = false;
  if (!head.starts_with(banner)) fail(head.data(), "found no %%MatrixMarket line, want one in each file of this input");
  for_each_line(head, [&](std::string_view line, std::size_t at) {
    ++number;
    if (done) return;
    if (number == 1) {
      auto rest = line.substr(banner.size());
      const std::array<std::pair<const char*, std::vector<std::string>>, 4> wants{{
          {"matrix", {"matrix"}},
          {"coordinate", {"coordinate"}},
          {"real, integer or pattern", {"real", "integer", "pattern"}},
          {"general or symmetric", {"general", "symmetric"}},
      }};
      std::array<std::string, 4> words;
      for (std::size_t i = 0; i < 4; ++i) {
        const auto word = next_word(rest);
        words[i] = lower(word);
        if (std::ranges::find(wants[i].second, words[i]) == wants[i].second.end())
          fail(word.data(), "found " + shown(word) + ", want " + wants[i].first);
      }
      out.pattern = words[2] == "pattern";
      out.symmetric = words[3] == "symmetric";
      return;
    }
    if (trimmed(line).empty() || line[0] == '%') return;
    auto rest = line;
    for (auto* to : {&out.rows, &out.columns, &out.entries}) {
      const auto word = next_word(rest);
      if (!canonical_number(word, *to)) fail(word.data(), "found " + shown(word) + ", want rows, columns and entries");
    }
    if (const auto more = trimmed(rest); !more.empty()) fail(more.data(), "found " + shown(more) + " after the sizes");
    if (out.symmetric && out.rows != out.columns) fail(line.data(), "found a symmetric matrix that is not square");
    out.size_line = number;
    const auto end = head.find('\n', at);
    out.header_bytes = end == std::string_view::npos ? head.size() : end + 1;
    done = true;
  });
  return done;
}

// ---- lines

namespace {

/// A whole number in digits, leading zeros allowed.
bool read_digits(std::string_view text, std::uint64_t& out) noexcept {
  while (text.size() > 1 && text[0] == '0') text.remove_prefix(1);
  return canonical_number(text, out);
}

double read_value(std::string_view text, const entry_failure& fail) {
  const auto* const end = text.data() + text.size();
  const auto reading = read_number(text.data(), end);
  const bool whole = !text.empty() && reading.end == end;
  if (reading.outcome == number_outcome::ok && whole) return reading.value;
  fail(text.data(), "found " + shown(text) + ", want a " +
                        (reading.outcome == number_outcome::not_finite && whole ? "finite number" : "number"));
  return 0;
}

/// The field at the front of `rest`, which begins after its separator then; without blanks around it. `more`: whether there
/// was a separator. A field in quotes, where a separator is no blank, may have separators and doubled quotes: it is
/// put together in `unquoted`.
std::string_view next_field(std::string_view& rest, char separator, bool& more, std::string& unquoted,
                            const entry_failure& fail) {
  while (!rest.empty() && is_blank(rest.front()) && rest.front() != separator) rest.remove_prefix(1);
  if (separator == ' ') {
    const auto word = next_word(rest);
    while (!rest.empty() && is_blank(rest.front())) rest.remove_prefix(1);
    more = !rest.empty();
    return word;
  }
  if (!rest.empty() && rest.front() == '"' && separator != '|') {
    const char* const opened = rest.data();
    unquoted.clear();
    std::size_t at = 1;
    for (;; ++at) {
      if (at >= rest.size()) fail(opened, "found a quote that is not closed in its line");
      if (rest[at] == '"' && (at + 1 >= rest.size() || rest[at + 1] != '"')) break;
      if (rest[at] == '"') ++at;
      unquoted += rest[at];
    }
    rest.remove_prefix(at + 1);
    while (!rest.empty() && is_blank(rest.front()) && rest.front() != separator) rest.remove_prefix(1);
    more = !rest.empty();
    if (more && rest.front() != separator) fail(rest.data(), "found " + shown(rest) + " after a closing quote");
    if (more) rest.remove_prefix(1);
    return unquoted;
  }
  const auto end = rest.find(separator);
  more = end != std::string_view::npos;
  const auto field = trimmed(rest.substr(0, end));
  rest.remove_prefix(more ? end + 1 : rest.size());
  return field;
}

}  // namespace

entry_parser::entry_parser(const entry_layout& layout, const entry_options& options, bool keep_values, bool one_dictionary,
                           bool mirror_symmetric)
    : layout_(layout), options_(options), keep_values_(keep_values), one_dictionary_(one_dictionary),
      mirror_symmetric_(mirror_symmetric),
      second_stays_number_(layout.format == entry_format::libsvm && !one_dictionary),
      entries_of_file_(layout.matrices.size()) {
  if (options.ids == entry_options::id_kind::name) make_names();
}

void entry_parser::make_names() {
  numeric_ = false;
  ids_[0].make_names();
  if (!second_stays_number_) ids_[1].make_names();
}

std::uint32_t entry_parser::index(int field, std::string_view id, const entry_failure& fail) {
  auto& of = side(field);
  if (of.size() >= std::numeric_limits<std::uint32_t>::max())
    fail(id.data(), "found more than 2^32 - 1 ids in the part of one worker");
  if (of.numeric()) {
    std::uint64_t number = 0;
    if (canonical_number(id, number)) return of.index(number);
    const bool must_be_number = options_.ids == entry_options::id_kind::number || (field == 1 && second_stays_number_);
    if (must_be_number) {
      if (read_digits(id, number)) return of.index(number);
      fail(id.data(), "found " + shown(id) + ", want an id: a whole number from 0 to 2^64 - 1");
    }
    make_names();
  }
  return of.index(id);
}

void entry_parser::add(std::string_view first, std::string_view second, double value, const entry_failure& fail) {
  index_[0].push_back(index(0, first, fail));
  index_[1].push_back(index(1, second, fail));
  if (keep_values_) value_.push_back(value);
}

void entry_parser::fields_line(std::string_view line, const entry_failure& fail) {
  auto rest = line;
  bool more = false;
  const char* const begin = trimmed(line).data();
  const auto first = next_field(rest, layout_.separator, more, unquoted_[0], fail);
  if (first.empty()) fail(begin, "found an empty field, want an id");
  if (!more) fail(begin, "found one field, want two or three");
  const char* const at_second = rest.data();
  auto second = next_field(rest, layout_.separator, more, unquoted_[1], fail);
  if (second.empty()) fail(at_second, "found an empty field, want an id");

  double value = 1;
  bool has_value = more;
  const bool quoted = second.data() == unquoted_[1].data();
  if (more) {
    std::string unquoted;
    if (options_.values != entry_options::value_rule::ignore) {
      auto after = rest;
      value = read_value(next_field(after, layout_.separator, more, unquoted, fail), fail);
    }
  } else if (const auto mark = second.find_last_of(":|"); mark != std::string_view::npos && mark > 0 && !quoted) {
    // b:w. A name may have a colon too: what follows it is then no number.
    const auto id = second.substr(0, mark);
    const auto text = second.substr(mark + 1);
    std::uint64_t number = 0;
    double read = 0;
    has_value = read_whole_number(text, read);
    if (has_value) value = read;
    else if (canonical_number(id, number) && options_.values != entry_options::value_rule::ignore) read_value(text, fail);
    if (has_value || canonical_number(id, number)) second = id;
  }
  if (!has_value && options_.values == entry_options::value_rule::need)
    fail(line.data() + line.size(), "found two fields, want a value after them");
  add(first, second, value, fail);
}

void entry_parser::libsvm_line(std::string_view line, const entry_failure& fail) {
  auto rest = line;
  const auto row = next_word(rest);
  const auto r = index(0, row, fail);
  for (auto word = next_word(rest); !word.empty(); word = next_word(rest)) {
    const auto colon = word.find(':');
    if (colon == std::string_view::npos) fail(word.data(), "found " + shown(word) + ", want index:value");
    double value = 1;
    if (options_.values != entry_options::value_rule::ignore) value = read_value(word.substr(colon + 1), fail);
    if (colon == 0) fail(word.data(), "found " + shown(word) + ", want index:value");
    index_[0].push_back(r);
    index_[1].push_back(index(1, word.substr(0, colon), fail));
    if (keep_values_) value_.push_back(value);
  }
}

void entry_parser::matrix_line(std::string_view line, const entry_layout::matrix& of, const entry_failure& fail) {
  auto rest = line;
  std::uint64_t number = 0;
  const auto first = next_word(rest);
  if (!canonical_number(first, number) || number == 0 || number > of.rows)
    fail(first.data(), "found " + shown(first) + ", want a row from 1 to " + std::to_string(of.rows));
  const auto second = next_word(rest);
  if (!canonical_number(second, number) || number == 0 || number > of.columns)
    fail(second.data(), "found " + shown(second) + ", want a column from 1 to " + std::to_string(of.columns));
  double value = 1;
  const auto third = next_word(rest);
  if (!of.pattern && options_.values != entry_options::value_rule::ignore) value = read_value(third, fail);
  if (of.pattern && options_.values == entry_options::value_rule::need)
    fail(line.data(), "found a pattern, want a matrix with values");
  if (const auto extra = of.pattern ? third : trimmed(rest); !extra.empty())
    fail(extra.data(), "found " + shown(extra) + " after the entry");
  add(first, second, value, fail);
  if (of.symmetric && mirror_symmetric_ && first != second) add(second, first, value, fail);
}

void entry_parser::parse(std::string_view lines, std::size_t file, std::uint64_t offset, const entry_failure& fail) {
  if (layout_.format == entry_format::matrix_market) {
    const auto& of = layout_.matrices[file];
    if (offset < of.header_bytes) lines.remove_prefix(std::min<std::uint64_t>(lines.size(), of.header_bytes - offset));
    for_each_line(lines, [&](std::string_view line, std::size_t) {
      if (trimmed(line).empty() || line[0] == '%') return;
      matrix_line(line, of, fail);
      ++entries_of_file_[file];
    });
    return;
  }
  bool header = offset == 0 && options_.header == entry_options::header_rule::yes;
  for_each_line(lines, [&](std::string_view line, std::size_t) {
    if (without_entry(line)) return;
    if (header) {
      header = false;
      return;
    }
    if (layout_.format == entry_format::libsvm) libsvm_line(line, fail);
    else fields_line(line, fail);
  });
}

void entry_parser::parse_rows(std::string_view lines, char separator, const entry_failure& fail) {
  for_each_line(lines, [&](std::string_view line, std::size_t) {
    if (without_entry(line)) return;
    bool more = false;
    auto rest = line;
    const auto id = next_field(rest, separator, more, unquoted_[0], fail);
    if (id.empty()) fail(line.data(), "found an empty field, want an id");
    index(options_.transpose ? 1 : 0, id, fail);
  });
}

void entry_parser::take_range(std::uint64_t begin, std::uint64_t end, bool rows) {
  auto& to = side(rows == options_.transpose ? 1 : 0);
  for (auto n = begin; n < end; ++n) {
    if (to.numeric()) to.index(n);
    else to.index(std::string_view(std::to_string(n)));
  }
}

local_entries entry_parser::take() {
  local_entries out;
  const int row = options_.transpose ? 1 : 0;
  out.one_dictionary = one_dictionary_;
  out.rows = std::move(side(row));
  if (!one_dictionary_) out.columns = std::move(side(1 - row));
  out.row = std::move(index_[row]);
  out.column = std::move(index_[1 - row]);
  out.value = std::move(value_);
  return out;
}

// ---- files

namespace {

/// The text of a few files, as parts of which a failure can name the place.
struct input_files {
  std::vector<mapped_file> files;
  std::vector<std::uint64_t> bytes;

  explicit input_files(const std::vector<std::string>& names) {
    for (const auto& path : expand(names)) {
      files.emplace_back(path);
      bytes.push_back(files.back().text().size());
    }
  }
  [[noreturn]] void fail(std::size_t file, const char* at, const std::string& what) const {
    const auto whole = files[file].text();
    const auto before = whole.substr(0, at == nullptr ? 0 : static_cast<std::size_t>(at - whole.data()));
    const auto newline = before.rfind('\n');
    throw data_error(files[file].path() + ":" + std::to_string(1 + std::count(before.begin(), before.end(), '\n')) + ":" +
                     std::to_string(before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1) + ": " + what);
  }
  template <class F>
  void visit(std::size_t rank, std::size_t size, F&& f) const {
    for (const auto& piece : byte_range(bytes, rank, size)) {
      const auto whole = files[piece.file].text();
      auto lines = whole_lines(whole, piece.begin, piece.end);
      auto offset = static_cast<std::uint64_t>(lines.data() - whole.data());
      if (lines.empty()) continue;
      if (offset == 0 && lines.starts_with(byte_order_mark)) lines.remove_prefix(byte_order_mark.size());
      f(lines, piece.file, offset, [&](const char* at, const std::string& what) { fail(piece.file, at, what); });
    }
  }
};

std::string_view first_line(std::string_view text) {
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  std::string_view found;
  for_each_line(text, [&](std::string_view line, std::size_t) {
    if (found.empty() && !without_entry(line)) found = line;
  });
  return found;
}

entry_layout find_layout(const input_files& input, entry_format wanted) {
  entry_layout out;
  std::string_view line;
  for (std::size_t f = 0; f < input.files.size() && line.empty(); ++f) line = first_line(input.files[f].text());
  if (line.empty()) return out;
  out = layout_of(line, wanted);
  if (out.format != entry_format::matrix_market) return out;
  for (std::size_t f = 0; f < input.files.size(); ++f) {
    const entry_failure fail = [&](const char* at, const std::string& what) { input.fail(f, at, what); };
    out.matrices.emplace_back();
    const auto head = input.files[f].text();
    if (!read_matrix_header(head, out.matrices.back(), fail))
      fail(head.data() + head.size(), "found the end of the file, want rows, columns and entries");
  }
  return out;
}

}  // namespace

local_entries read_entries(Comm comm, const std::vector<std::string>& names, const entry_options& options, bool keep_values,
                           bool one_dictionary, bool mirror_symmetric) {
  const auto rank = comm.get_rank();
  const auto size = comm.get_size();
  std::unique_ptr<entry_parser> parser;
  std::unique_ptr<input_files> input;
  entry_layout layout;
  together(comm, [&] {
    input = std::make_unique<input_files>(names);
    layout = find_layout(*input, options.format);
    parser = std::make_unique<entry_parser>(layout, options, keep_values, one_dictionary, mirror_symmetric);
    input->visit(rank, size, [&](std::string_view lines, std::size_t file, std::uint64_t offset, const entry_failure& fail) {
      parser->parse(lines, file, offset, fail);
    });
    if (!options.rows_also.empty()) {
      const input_files also(options.rows_also);
      const auto separator = [&] {
        for (const auto& f : also.files) {
          if (const auto line = first_line(f.text()); !line.empty()) return layout_of(line, entry_format::fields).separator;
        }
        return ' ';
      }();
      also.visit(rank, size, [&](std::string_view lines, std::size_t, std::uint64_t, const entry_failure& fail) {
        parser->parse_rows(lines, separator, fail);
      });
    }
  });
  const auto counts = [&] {
    auto all = parser->entries_of_file();
    if (!all.empty()) comm.allreduce(all);
    return all;
  }();
  for (std::size_t f = 0; f < layout.matrices.size(); ++f) {
    const auto& m = layout.matrices[f];
    if (m.entries != static_cast<std::uint64_t>(counts[f]))
      throw data_error(input->files[f].path() + ":" + std::to_string(m.size_line) + ":1: found " +
                       std::to_string(counts[f]) + " entries, want " + std::to_string(m.entries) + " as this line says");
    // Rows and columns without an entry exist too: each worker brings its share of them.
    const auto range = [&](std::uint64_t n, bool rows) {
      parser->take_range(1 + n / size * rank + std::min<std::uint64_t>(n % size, rank),
                         1 + n / size * (rank + 1) + std::min<std::uint64_t>(n % size, rank + 1), rows);
    };
    range(options.transpose ? m.columns : m.rows, true);
    range(options.transpose ? m.rows : m.columns, false);
  }
  std::int64_t numeric = parser->numeric() ? 1 : 0;
  comm.allreduce(numeric, reduce_op::min);
  if (numeric == 0) parser->make_names();
  return parser->take();
}

}  // namespace paracel
