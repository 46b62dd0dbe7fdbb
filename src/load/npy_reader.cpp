// SPDX-License-Identifier: BSD-3-Clause
#include "load/npy_reader.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "core/text_number.hpp"
#include "paracel/error.hpp"

namespace paracel {

static_assert(std::endian::native == std::endian::little, "numbers of an .npy file are copied as they are");

namespace {

constexpr std::string_view npy_magic("\x93NUMPY", 6);
constexpr std::size_t npy_front_bytes = std::size_t{64} << 10;
// Numbers that are converted at once.
constexpr std::size_t block_bytes = std::size_t{256} << 10;
// Beyond it the neighbour of an integer is the same double.
constexpr std::int64_t exact_limit = std::int64_t{1} << 53;

__extension__ using wide = unsigned __int128;

std::string front_of(const input_file& file, std::size_t bytes) {
  const auto from = open_source(file);
  std::string front(bytes, '\0');
  std::size_t have = 0;
  while (have < bytes) {
    const auto n = from->read(front.data() + have, bytes - have);
    if (n == 0) break;
    have += n;
  }
  front.resize(have);
  return front;
}

/// The little Python that a header is written in.
class header_text {
 public:
  explicit header_text(std::string_view text) : rest_(text) {}

  bool take(char c) {
    skip_blanks();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::optional<std::string_view> quoted() {
    skip_blanks();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return {};
    const auto end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return {};
    const auto text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }
  std::optional<bool> boolean() {
    skip_blanks();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return value;
    }
    return {};
  }
  std::optional<std::uint64_t> integer() {
    skip_blanks();
    std::uint64_t n = 0;
    const auto [end, problem] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), n);
    if (problem != std::errc()) return {};
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return n;
  }
  bool over() {
    skip_blanks();
    return rest_.empty();
  }

 private:
  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n"), rest_.size()));
  }
  std::string_view rest_;
};

struct array_header {
  std::string_view type;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::uint64_t>> shape;
};

bool read_header_text(std::string_view text, array_header& out) {
  header_text t(text);
  if (!t.take('{')) return false;
  while (!t.take('}')) {
    const auto key = t.quoted();
    if (!key || !t.take(':')) return false;
    if (*key == "descr") {
      const auto type = t.quoted();
      if (!type) return false;
      out.type = *type;
    } else if (*key == "fortran_order") {
      out.fortran_order = t.boolean();
      if (!out.fortran_order) return false;
    } else if (*key == "shape") {
      if (!t.take('(')) return false;
      out.shape.emplace();
      while (!t.take(')')) {
        const auto n = t.integer();
        if (!n) return false;
        out.shape->push_back(*n);
        if (!t.take(',')) {
          if (!t.take(')')) return false;
          break;
        }
      }
    } else {
      return false;
    }
    if (!t.take(',')) {
      if (!t.take('}')) return false;
      break;
    }
  }
  return t.over();
}

/// What becomes of the numbers of one row after the other.
class npy_rows {
 public:
  npy_rows(const std::string& file, const npy_header& header, const sample_options& options, sample_rows& to)
      : file_(file), header_(header), options_(options), to_(to) {
    labelled_ = !options.without_label && options.label != sample_options::label_rule::none;
    const auto refuse = [&](const std::string& what) { throw data_error(file + ": " + what); };
    if (!options.target.empty() || !options.features.empty())
      refuse("found an .npy file, want a file whose header names " +
             shown(options.target.empty() ? options.features.front() : options.target));
    const std::uint64_t features = header.columns - (labelled_ ? 1 : 0);
    const auto extra = options.without_label && options.label != sample_options::label_rule::none ? 1U : 0U;
    std::uint64_t want = to.columns != 0 ? to.columns : options.columns;
    if (want == 0) want = features;
    if (features == 0) refuse("found one column, want features and a label");
    if (features != want && features != want + extra)
      refuse("found " + std::to_string(header.columns) + " columns, want " + std::to_string(want + (labelled_ ? 1 : 0)));
    if (want > UINT32_MAX) refuse("found " + std::to_string(want) + " columns, want at most " + std::to_string(UINT32_MAX));
    to.columns = static_cast<std::uint32_t>(want);
  }

  void take(const char* row_bytes, std::uint64_t row) {
    for (std::uint64_t c = 0; c < header_.columns; ++c) {
      const bool is_label = labelled_ && c + 1 == header_.columns;
      if (c >= to_.columns && !is_label) break;
      const double v = number(row_bytes + c * header_.width, row, c);
      if (is_label) label(v, row, c);
      else to_.value.push_back(v);
    }
    ++to_.row_count;
  }

 private:
  [[noreturn]] void fail(std::uint64_t row, std::uint64_t column, const std::string& what) const {
    throw data_error(file_ + ":" + std::to_string(row + 1) + ":" + std::to_string(column + 1) + ": " + what);
  }
  template <class T>
  static T read(const char* from) {
    T v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }
  double number(const char* from, std::uint64_t row, std::uint64_t column) const {
    if (header_.kind == 'i') {
      const std::int64_t v = header_.width == 4 ? read<std::int32_t>(from) : read<std::int64_t>(from);
      if (v > exact_limit || v < -exact_limit)
        fail(row, column, "found " + std::to_string(v) + ", want an integer of at most 2^53, so that it is a double, too");
      return static_cast<double>(v);
    }
    const double v = header_.width == 4 ? static_cast<double>(read<float>(from)) : read<double>(from);
    if (!std::isfinite(v)) fail(row, column, "found " + number_text(v) + ", want a finite number");
    return v;
  }
  void label(double v, std::uint64_t row, std::uint64_t column) {
    if (options_.label == sample_options::label_rule::binary) {
      if (v != 0 && v != 1) fail(row, column, "found label " + number_text(v) + ", want 0 or 1");
      to_.has_label_zero = to_.has_label_zero || v == 0;
      v = v == 0 ? -1 : 1;
    }
    to_.label.push_back(v);
  }

  const std::string& file_;
  npy_header header_;
  const sample_options& options_;
  sample_rows& to_;
  bool labelled_;
};

}  // namespace

npy_header read_npy_header(const std::string& file, std::string_view front, std::uint64_t bytes) {
  const auto refuse = [&](const std::string& what) { throw data_error(file + ": " + what); };
  const auto byte = [&](std::size_t i) { return static_cast<std::uint64_t>(static_cast<unsigned char>(front[i])); };
  if (!front.starts_with(npy_magic)) refuse("found no .npy header, want one: the first file is an .npy file");
  if (front.size() < 12) refuse("the .npy header is cut off");
  const auto major = byte(6);
  if (major < 1 || major > 3) refuse("found .npy version " + std::to_string(major) + ", want 1, 2 or 3");
  std::uint64_t length = byte(8) | byte(9) << 8U;
  std::uint64_t begin = 10;
  if (major > 1) {
    length |= byte(10) << 16U | byte(11) << 24U;
    begin = 12;
  }
  npy_header out;
  out.data_begin = begin + length;
  if (out.data_begin > front.size()) refuse("the .npy header is cut off");
  array_header found;
  if (!read_header_text(front.substr(begin, length), found) || !found.shape || !found.fortran_order)
    refuse("found " + shown(front.substr(begin, length)) + ", want an .npy header");
  if (found.type != "<f8" && found.type != "<f4" && found.type != "<i8" && found.type != "<i4")
    refuse("found numbers of type " + shown(found.type) + ", want <f8, <f4, <i8 or <i4");
  out.kind = found.type[1];
  out.width = static_cast<std::uint64_t>(found.type[2] - '0');
  const auto& shape = *found.shape;
  if (shape.empty() || shape.size() > 2)
    refuse("found an array of " + std::to_string(shape.size()) + " dimensions, want 1 or 2");
  out.rows = shape[0];
  out.columns = shape.size() == 2 ? shape[1] : 1;
  if (*found.fortran_order && shape.size() == 2 && out.rows > 1 && out.columns > 1)
    refuse("found columns one after the other (fortran_order), want rows");
  if (out.columns == 0) refuse("found rows without columns");
  const auto have = bytes - out.data_begin;
  const auto row_bytes = static_cast<wide>(out.columns) * out.width;
  if (row_bytes * out.rows != have)
    refuse("found " + std::to_string(have) + " bytes of numbers, want " + std::to_string(out.rows) + " rows of " +
           std::to_string(out.columns) + " numbers of " + std::to_string(out.width) + " bytes");
  return out;
}

bool is_npy(const input_file& file) { return file.divisible() && front_of(file, npy_magic.size()) == npy_magic; }

sample_rows read_npy(const input_set& input, std::size_t rank, std::size_t size, const sample_options& options,
                     const load_progress& progress) {
  // Every rank looks at every header, so that all find the same widths and the same errors.
  sample_rows rows;
  rows.dense = true;
  std::vector<npy_header> headers;
  std::uint64_t all_rows = 0;
  for (const auto& file : input.files()) {
    headers.push_back(read_npy_header(file.shown(), file.divisible() ? front_of(file, npy_front_bytes) : "", file.bytes));
    npy_rows(file.name, headers.back(), options, rows);
    all_rows += headers.back().rows;
  }
  if (all_rows == 0) throw data_error(input.files().front().name + ": found no row, want samples");

  const auto parts = input.parts(rank, size);
  const auto first_row_at = [&](const npy_header& h, std::uint64_t offset) {
    const auto stride = h.columns * h.width;
    const auto into = offset <= h.data_begin ? 0 : offset - h.data_begin;
    return std::min(h.rows, into / stride + (into % stride != 0 ? 1 : 0));
  };
  std::uint64_t mine = 0;
  for (const auto& p : parts) mine += first_row_at(headers[p.file], p.end) - first_row_at(headers[p.file], p.begin);
  rows.value.reserve(static_cast<std::size_t>(mine) * rows.columns);

  std::uint64_t total = 0;
  for (const auto& p : parts) total += p.end - p.begin;
  std::uint64_t done = 0;
  for (const auto& p : parts) {
    const auto& h = headers[p.file];
    const auto stride = static_cast<std::size_t>(h.columns * h.width);
    const auto last = first_row_at(h, p.end);
    auto row = first_row_at(h, p.begin);
    if (row == last) continue;
    npy_rows to(input.files()[p.file].name, h, options, rows);
    const auto from = open_source(input.files()[p.file], h.data_begin + row * stride);
    std::vector<char> block(std::max<std::size_t>(1, block_bytes / stride) * stride);
    while (row < last) {
      const auto want = std::min<std::uint64_t>(block.size() / stride, last - row) * stride;
      std::size_t have = 0;
      while (have < want) {
        const auto n = from->read(block.data() + have, static_cast<std::size_t>(want) - have);
        have += n;
      }
      for (std::size_t at = 0; at < have; at += stride) to.take(block.data() + at, row++);
      if (progress) progress(done + h.data_begin + row * stride - p.begin, total);
    }
    from->verify();
    done += p.end - p.begin;
  }
  return rows;
}

}  // namespace paracel
