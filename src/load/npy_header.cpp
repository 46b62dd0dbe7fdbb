// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/npy_header.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "core/number_parsing.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

/// The subset of Python in which a header is written.
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
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n"), rest_.size())); }
  std::string_view rest_;
};

/// The last of duplicate keys counts, as in Python.
bool read_header_text(std::string_view text, npy_header& out) {
  bool has_order = false;
  bool has_shape = false;
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
      const auto order = t.boolean();
      if (!order) return false;
      out.fortran_order = *order;
      has_order = true;
    } else if (*key == "shape") {
      if (!t.take('(')) return false;
      out.shape.clear();
      has_shape = true;
      while (!t.take(')')) {
        const auto n = t.integer();
        if (!n) return false;
        out.shape.push_back(*n);
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
  return t.over() && has_order && has_shape && !out.type.empty();
}

}  // namespace

npy_header read_npy_header(const std::string& file, std::string_view front) {
  const auto refuse = [&](const std::string& what) { throw data_error(file + ": " + what); };
  const auto byte = [&](std::size_t i) { return static_cast<std::uint64_t>(static_cast<unsigned char>(front[i])); };
  if (!front.starts_with(npy_magic)) refuse("found another format, want an .npy file");
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
  const auto text = front.substr(begin, length);
  if (!read_header_text(text, out)) refuse("found " + quote_for_error(text) + ", want an .npy header");
  return out;
}

}  // namespace paracel
