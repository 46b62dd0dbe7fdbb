// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/entry_layout.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "load/ids/id_interner.hpp"
#include "load/input/byte_range.hpp"
#include "paracel/error.hpp"
#include "paracel/text_input.hpp"

namespace paracel {

using entry_detail::next_word;
using entry_detail::without_blanks;

namespace {

constexpr std::string_view banner = "%%MatrixMarket";
/// All rows and columns of a matrix exist, and a worker's id has an index of 32 bits.
constexpr std::uint64_t most_of_a_matrix = std::numeric_limits<std::uint32_t>::max();
/// Enough of a file to find its first entries.
constexpr std::size_t head_bytes = std::size_t{64} << 10U;
/// Lines after the first one that are looked at.
constexpr std::size_t most_lines = 1000;

bool is_index_and_value(std::string_view word) noexcept {
  const auto colon = word.find(':');
  if (colon == std::string_view::npos) return false;
  std::uint64_t index = 0;
  double value = 0;
  return canonical_number(word.substr(0, colon), index) && read_whole_number(word.substr(colon + 1), value);
}

std::string in_lower_case(std::string_view s) {
  std::string t(s);
  for (char& c : t) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return t;
}

std::vector<std::string> fields_of(std::string_view line, char separator) {
  std::vector<std::string> fields;
  std::string unquoted;
  bool more = true;
  for (auto rest = line; more;)
    fields.emplace_back(entry_detail::next_field(rest, separator, more, unquoted, [](auto&&...) {}).text);
  return fields;
}

/// The first lines of a file that are neither blank nor comments.
std::vector<std::string_view> first_lines(std::string_view text, bool comments, bool may_be_matrix) {
  std::vector<std::string_view> found;
  bool first = true;
  for_each_line(text, [&](std::string_view line, std::size_t) {
    const bool begins_matrix = std::exchange(first, false) && may_be_matrix && line.starts_with(banner);
    if (found.size() <= most_lines && (begins_matrix || !without_entry(line, comments))) found.push_back(line);
  });
  return found;
}

/// Whether a field is an id or a value in digits. `id:value` is one, too.
bool is_numeric_field(std::string_view field) noexcept {
  if (const auto mark = field.find_last_of(":|"); mark != std::string_view::npos && mark > 0) {
    double value = 0;
    if (read_whole_number(field.substr(mark + 1), value)) field = field.substr(0, mark);
  }
  double value = 0;
  return read_whole_number(field, value);
}

/// Whether a field is `id:value`, which no header has.
bool has_mark(std::string_view field) noexcept {
  const auto mark = field.find_last_of(":|");
  double value = 0;
  return mark != std::string_view::npos && mark > 0 && read_whole_number(field.substr(mark + 1), value);
}

/// Names that the fields of edges, ratings and vertices usually have, without blanks and underscores.
bool is_usual_name(std::string_view field) {
  static const std::set<std::string, std::less<>> names{
      "source",   "target",   "src",      "dst",      "dest",       "destination", "from",
      "to",       "fromid",   "toid",     "fromnode", "tonode",     "fromnodeid",  "tonodeid",
      "sourceid", "targetid", "srcid",    "dstid",    "sourcenode", "targetnode",  "node1",
      "node2",    "nodea",    "nodeb",    "id1",      "id2",        "node",        "nodeid",
      "vertex",   "vertexid", "vertex1",  "vertex2",  "user",       "userid",      "item",
      "itemid",   "movie",    "movieid",  "product",  "productid",  "row",         "column",
      "col",      "follower", "followee", "head",     "tail",       "id",          "name"};
  std::string plain;
  for (const char c : in_lower_case(field)) {
    if (c != '_' && c != ' ' && c != '-') plain += c;
  }
  return names.contains(plain);
}

/// Finds the header and the fields of the file.
class file_examiner {
 public:
  file_examiner(const input_piece& head, char separator, const entry_options& options, entry_role role)
      : head_(head), separator_(separator), options_(options), role_(role) {}

  /// `lines`: the first ones of the file; not empty.
  entry_layout::fields_file examine(const std::vector<std::string_view>& lines, bool plain_fields) const {
    using file = entry_layout::fields_file;
    file out;
    const auto first = fields_of(lines.front(), separator_);
    const bool named = has_names();
    bool header = options_.header == entry_options::header_rule::yes || named;
    if (options_.header == entry_options::header_rule::automatic && !named && plain_fields) {
      if (role_ != entry_role::rows) set_columns(first, lines.front(), out);
      header = looks_like_header(first, lines, out);
    }
    if (header) {
      const auto begin = static_cast<std::uint64_t>(lines.front().data() - head_.text().data());
      out.header = head_.offset() + begin;
    }
    if (role_ != entry_role::rows) set_columns(first, lines.front(), out);
    return out;
  }

 private:
  [[nodiscard]] bool has_names() const {
    return role_ != entry_role::rows && std::ranges::any_of(options_.columns, [](const auto& c) {
             std::uint64_t n = 0;
             return !canonical_number(c, n);
           });
  }

  void set_columns(const std::vector<std::string>& header, std::string_view line,
                   entry_layout::fields_file& out) const {
    if (options_.columns.empty()) return;
    out.column = {0, 1, entry_layout::fields_file::no_field};
    for (std::size_t i = 0; i < options_.columns.size(); ++i) {
      const auto& wanted = options_.columns[i];
      if (canonical_number(wanted, out.column[i])) continue;
      const auto at = std::ranges::find(header, wanted);
      out.column[i] = static_cast<std::uint64_t>(at - header.begin());
      if (at != header.end()) {
        if (std::find(at + 1, header.end(), wanted) != header.end())
          head_.fail(line.data(), "found two fields " + quote_for_error(wanted) + " in the header, want one");
        continue;
      }
      if (i == 2 && options_.values == entry_options::value_rule::ignore) {
        out.column[i] = entry_layout::fields_file::no_field;
        continue;
      }
      std::string all;
      for (const auto& name : header) all += (all.empty() ? "" : ", ") + name;
      head_.fail(line.data(), "found no field " + quote_for_error(wanted) + " in the header, which has " + all);
    }
    for (std::size_t i = 1; i < options_.columns.size(); ++i) {
      const auto same = std::find(out.column.begin(), out.column.begin() + i, out.column[i]);
      if (same != out.column.begin() + i)
        head_.fail(line.data(),
                   "the columns " +
                       quote_for_error(options_.columns[static_cast<std::size_t>(same - out.column.begin())]) +
                       " and " + quote_for_error(options_.columns[i]) + " are both field " +
                       std::to_string(out.column[i]) + ", want different fields");
    }
  }

  [[nodiscard]] bool looks_like_header(const std::vector<std::string>& first,
                                       const std::vector<std::string_view>& lines,
                                       entry_layout::fields_file& out) const {
    if (std::ranges::any_of(first, [](const auto& f) { return f.empty() || is_numeric_field(f) || has_mark(f); }))
      return false;
    const auto& column = out.column;
    if (role_ != entry_role::rows && std::max(column[0], column[1]) >= first.size()) return false;
    bool numbers[3] = {true, true, true};
    bool canonical = true;
    std::size_t values = 0;
    bool names_occur = false;
    for (const auto line : std::span(lines).subspan(1)) {
      const auto fields = fields_of(line, separator_);
      for (std::size_t i = 0; i < (role_ == entry_role::rows ? 1U : 3U); ++i) {
        if (column[i] >= fields.size()) {
          if (i < 2) numbers[i] = false;
          continue;
        }
        const auto& field = fields[column[i]];
        numbers[i] = numbers[i] && is_numeric_field(field);
        values += i == 2 ? 1 : 0;
        if (i == 2) continue;
        std::uint64_t n = 0;
        canonical = canonical && canonical_number(std::string_view(field).substr(0, field.find_first_of(":|")), n);
        names_occur =
            names_occur || field == first[column[0]] || (role_ != entry_role::rows && field == first[column[1]]);
      }
    }
    const bool more = lines.size() > 1;
    if (role_ == entry_role::rows) {
      if (more && numbers[0]) return true;
      if (is_usual_name(first[0]) && !names_occur) refuse(first, lines.front());
      return false;
    }
    const bool has_value = column[2] < first.size();
    if (has_value && values > 0 && numbers[2]) return true;
    if (more && numbers[0] && numbers[1]) {
      out.only_numbers = role_ == entry_role::edges && canonical ? 1 : 0;
      return true;
    }
    if (more && role_ == entry_role::entries && (numbers[0] || numbers[1])) return true;
    if (!more && has_value && options_.values != entry_options::value_rule::ignore) return true;
    if (is_usual_name(first[column[0]]) && is_usual_name(first[column[1]]) && !names_occur)
      refuse(first, lines.front());
    return false;
  }

  [[noreturn]] void refuse(const std::vector<std::string>& first, std::string_view line) const {
    std::string all;
    for (const auto& f : first) all += (all.empty() ? "" : ",") + f;
    head_.fail(line.data(), "found " + quote_for_error(all) + ", which may be a header or " +
                                (role_ == entry_role::rows ? "an id" : "an entry") +
                                R"(; want "header": "yes" or "header": "no")");
  }

  const input_piece& head_;
  char separator_;
  const entry_options& options_;
  entry_role role_;
};

/// The number of values that the first entry has: its format, or its fields.
bool has_value(std::string_view line, const entry_layout& layout, const entry_layout::fields_file& file) {
  if (layout.format == entry_format::libsvm) return true;
  const auto fields = fields_of(line, layout.separator);
  if (file.column[2] < fields.size()) return true;
  if (!file.usual() || fields.size() < 2) return false;
  const auto mark = fields[1].find_last_of(":|");
  double value = 0;
  return mark != std::string::npos && mark > 0 &&
         read_whole_number(std::string_view(fields[1]).substr(mark + 1), value);
}

}  // namespace

bool without_entry(std::string_view line, bool comments) noexcept {
  line = without_blanks(line);
  return line.empty() || (comments && is_comment(line));
}

entry_layout layout_of(std::string_view line, entry_format wanted) {
  entry_layout out;
  if (wanted == entry_format::matrix_market || (wanted == entry_format::automatic && line.starts_with(banner))) {
    out.format = entry_format::matrix_market;
    return out;
  }
  out.format = wanted == entry_format::libsvm ? wanted : entry_format::fields;
  line = without_blanks(line);
  out.separator = ' ';
  bool found = false;
  for (const char c : {'\t', ',', ';', ' ', '|'}) {
    if (found || line.find(c) == std::string_view::npos) continue;
    out.separator = c;
    found = true;
  }
  if (const auto colons = line.find("::"); !found && colons != std::string_view::npos && colons > 0)
    out.separator = ':';
  if (wanted == entry_format::automatic && (out.separator == ' ' || out.separator == '\t')) {
    // row index:value index:value: a single pair is a:b:w in both formats, with the same meaning.
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

entry_layout find_entry_layout(const std::vector<std::string>& names, const head_of_file& head,
                               const entry_options& options, entry_role role) {
  const bool may_be_matrix = role != entry_role::rows && (options.format == entry_format::automatic ||
                                                          options.format == entry_format::matrix_market);
  const auto wanted =
      role == entry_role::rows || (!options.columns.empty() && options.format == entry_format::automatic)
          ? entry_format::fields
          : options.format;
  // Calls f(piece, lines) with the beginning of a file. Lines: two at least, if the file has them.
  const auto look = [&](std::size_t file, auto&& f) {
    for (std::size_t bytes = head_bytes;; bytes *= 2) {
      std::uint64_t offset = 0;
      const auto text = head(file, bytes, offset);
      const auto lines = first_lines(text, options.comments, may_be_matrix);
      if (lines.size() < 2 && text.size() + offset >= bytes) continue;
      return f(input_piece(names[file], text), lines, offset);
    }
  };
  entry_layout out;
  bool known = false;
  for (std::size_t file = 0; file < names.size(); ++file) {
    look(file, [&](const input_piece& piece, const std::vector<std::string_view>& lines, std::uint64_t offset) {
      if (lines.empty()) return;
      if (!std::exchange(known, true)) {
        // The line after a header tells more.
        const bool header = options.header == entry_options::header_rule::yes && lines.size() > 1;
        out = layout_of(lines[may_be_matrix && lines[0].starts_with(banner) ? 0 : header ? 1 : 0], wanted);
        if (out.format == entry_format::matrix_market) return;
      }
      if (out.format == entry_format::matrix_market) return;
      if (!options.columns.empty() && out.format != entry_format::fields)
        piece.fail(lines[0].data(),
                   "found lines of another format, want fields with separators where columns are given");
      if (out.files.empty()) out.files.resize(names.size());
      auto& found = out.files[file];
      found = file_examiner(piece, out.separator, options, role).examine(lines, out.format == entry_format::fields);
      const bool header = found.header != entry_layout::fields_file::no_header;
      if (header) {
        found.header += offset;
        if (out.header_place.empty()) {
          const auto place = piece.place(lines[0].data());
          out.header_place = place.substr(0, place.rfind(':'));
          out.header_line = std::string(lines[0]);
        }
      }
      if (!out.has_values && lines.size() > (header ? 1U : 0U))
        out.has_values = has_value(lines[header ? 1 : 0], out, found);
    });
    if (known && out.format == entry_format::matrix_market) break;
    // Without these, what a file is does not depend on its own beginning.
    if (known && options.header == entry_options::header_rule::no && options.columns.empty()) break;
  }
  if (out.format != entry_format::matrix_market) return out;
  out.has_values = true;
  for (std::size_t file = 0; file < names.size(); ++file) {
    out.matrices.emplace_back();
    for (std::size_t bytes = head_bytes;; bytes *= 2) {
      std::uint64_t offset = 0;
      const auto text = head(file, bytes, offset);
      const input_piece piece(names[file], text);
      if (read_matrix_header(piece, out.matrices.back())) {
        out.matrices.back().header_bytes += offset;
        break;
      }
      if (text.size() + offset < bytes)
        piece.fail(piece.text().data() + piece.text().size(),
                   "found the end of the file, want rows, columns and entries");
    }
    out.has_values = out.has_values && !out.matrices.back().pattern;
  }
  return out;
}

bool read_matrix_header(const input_piece& piece, entry_layout::matrix& out) {
  const auto head = piece.text();
  std::uint64_t number = 0;
  bool done = false;
  if (!head.starts_with(banner))
    piece.fail(head.data(), "found no %%MatrixMarket line, want one in each file of this input");
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
        words[i] = in_lower_case(word);
        if (std::ranges::find(wants[i].second, words[i]) == wants[i].second.end())
          piece.fail(word.data(), "found " + quote_for_error(word) + ", want " + wants[i].first);
      }
      out.pattern = words[2] == "pattern";
      out.symmetric = words[3] == "symmetric";
      return;
    }
    if (without_blanks(line).empty() || line[0] == '%') return;
    auto rest = line;
    for (auto* to : {&out.rows, &out.columns, &out.entries}) {
      const auto word = next_word(rest);
      if (!canonical_number(word, *to))
        piece.fail(word.data(), "found " + quote_for_error(word) + ", want rows, columns and entries");
      if (to != &out.entries && *to >= most_of_a_matrix)
        piece.fail(word.data(), "found " + quote_for_error(word) + ", want at most " +
                                    std::to_string(most_of_a_matrix - 1) + (to == &out.rows ? " rows" : " columns"));
    }
    const auto more = without_blanks(rest);
    if (!more.empty()) piece.fail(more.data(), "found " + quote_for_error(more) + " after the sizes");
    if (out.symmetric && out.rows != out.columns)
      piece.fail(line.data(), "found a symmetric matrix that is not square");
    out.size_line = number;
    const auto end = head.find('\n', at);
    out.header_bytes = piece.offset() + (end == std::string_view::npos ? head.size() : end + 1);
    done = true;
  });
  return done;
}

}  // namespace paracel
