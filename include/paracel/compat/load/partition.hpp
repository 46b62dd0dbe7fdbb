// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel 0.3's partitioning of the input into byte ranges. Plain files only; paracel_load also reads compressed ones,
// and checks that every worker sees the same files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include <paracel/error.hpp>

#include "../paracel_types.hpp"

namespace paracel {
inline namespace compat {

/// Lines belong to the range in which they begin, so every line is in one range. Offsets count the bytes of all files
/// as if they were one. Throws: data_error when a file cannot be read.
class partition {
 public:
  /// `np` workers.
  partition(list_type<str_type> names, int np, str_type pattern)
      : names_(std::move(names)), np_(std::max(np, 1)), pattern_(std::move(pattern)) {}

  /// Appends the ranges of one file.
  void file_partition(const str_type& name, list_type<long>& begins, list_type<long>& ends) const {
    cut(size_of(name), np_, begins, ends);
  }
  /// Computes the ranges: `blocks` per worker, or one for linesplit and fvec.
  void files_partition(int blocks = BLK_SZ) {
    if (pattern_ == "linesplit" || pattern_ == "fvec") blocks = 1;
    offsets_.assign(1, 0);
    for (const auto& name : names_) offsets_.push_back(offsets_.back() + size_of(name));
    begins_.clear();
    ends_.clear();
    cut(offsets_.back(), np_ * blocks, begins_, ends_);
  }
  [[nodiscard]] list_type<long> get_start_list() const { return begins_; }
  [[nodiscard]] list_type<long> get_end_list() const { return ends_; }

  /// The lines of a range of one file.
  [[nodiscard]] list_type<str_type> file_load_lines_impl(const str_type& name, long begin, long end) const {
    list_type<str_type> lines;
    visit(name, begin, end, [&](str_type& line) { lines.push_back(std::move(line)); });
    return lines;
  }
  /// The lines of a range of all files, after files_partition.
  [[nodiscard]] list_type<str_type> files_load_lines_impl(long begin, long end) const {
    list_type<str_type> lines;
    files_load_lines_impl(begin, end, [&](str_type& line) { lines.push_back(std::move(line)); });
    return lines;
  }
  template <class F>
  void files_load_lines_impl(long begin, long end, F&& func) const {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const long at = offsets_.at(i);
      if (begin < offsets_[i + 1] && end > at)
        visit(names_[i], std::max(begin - at, 0L), std::min(end, offsets_[i + 1]) - at, func);
    }
  }

 private:
  static long size_of(const str_type& name) {
    std::error_code failure;
    const auto bytes = std::filesystem::file_size(name, failure);
    if (failure) throw data_error(name + ": " + failure.message());
    return static_cast<long>(bytes);
  }
  static void cut(long bytes, int parts, list_type<long>& begins, list_type<long>& ends) {
    for (int i = 0; i < parts; ++i) {
      begins.push_back(bytes / parts * i + std::min<long>(i, bytes % parts));
      ends.push_back(bytes / parts * (i + 1) + std::min<long>(i + 1, bytes % parts));
    }
  }
  template <class F>
  static void visit(const str_type& name, long begin, long end, F&& func) {
    std::ifstream file(name, std::ios::binary);
    if (!file) throw data_error(name + ": cannot be opened");
    str_type line;
    long at = begin;
    if (begin > 0) {  // the line that ends or is cut here began in an earlier range
      file.seekg(begin - 1);
      std::getline(file, line);
      at += static_cast<long>(line.size());
    }
    while (at < end && std::getline(file, line)) {
      at += static_cast<long>(line.size()) + 1;
      func(line);
    }
  }

  list_type<str_type> names_;
  int np_;
  str_type pattern_;
  list_type<long> begins_, ends_, offsets_;
};

}  // namespace compat
}  // namespace paracel
