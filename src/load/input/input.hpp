// SPDX-License-Identifier: BSD-3-Clause
//
// All input files of one load as runs of whole lines. Every loader reads through this: it knows nothing of formats, and
// the formats know nothing of files, compression and ranges.
//
//     input_set input(comm, names);
//     input.visit(rank, size, [&](const input_piece& piece) {
//       for_each_line(piece.text(), [&](std::string_view line, std::size_t) {
//         if (...) piece.fail(line.data() + 3, "found ..., want ...");       // data_error file:line:column: found ...
//       });
//     });
//
// The pieces of rank 0, those of rank 1 and so on are all lines of all files, in file order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/comm.hpp>

#include "load/input/byte_range.hpp"
#include "load/input/input_stream.hpp"

namespace paracel {

/// Whole lines of one file, with their line ends; the last line of a file may have none. A byte order mark is skipped.
/// Lifetime: the call that received it.
class input_piece {
 public:
  /// All of a text that came from `file`: for tests.
  input_piece(const std::string& file, std::string_view text) : input_piece(file, text, text) {}
  /// The same restricted to `lines`, a part of the text.
  input_piece(const std::string& file, std::string_view text, std::string_view lines);

  [[nodiscard]] const std::string& file() const noexcept { return *name_; }
  /// The index in input_set::files.
  [[nodiscard]] std::size_t file_index() const noexcept { return file_index_; }
  [[nodiscard]] std::string_view text() const noexcept { return text_; }
  /// Byte of the file, decompressed, at which the text begins.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  /// Whether this is the first piece of its file.
  [[nodiscard]] bool begins_file() const noexcept { return begins_file_; }
  /// The fraction of this rank's bytes that has been read, this piece included: in (0, 1]; 0 when unknown.
  [[nodiscard]] double done() const noexcept { return done_; }

  /// file:line:column of a byte of text(), or of its end; lines and columns begin with 1.
  /// Cost: reads the file up to it again.
  [[nodiscard]] std::string place(const char* at) const;
  /// Throws: data_error `place(at): what`.
  [[noreturn]] void fail(const char* at, const std::string& what) const;

 private:
  friend class input_set;
  input_piece() = default;

  const std::string* name_ = nullptr;
  std::size_t file_index_ = 0;
  std::string_view text_;
  std::uint64_t offset_ = 0;
  double done_ = 0;
  bool begins_file_ = false;
  std::uint64_t lines_before_ = 0;
  const input_file* recount_ = nullptr;  // the file in which to count the lines before the text
};

/// Called after each piece with the number of bytes of this part that have been read, and the total (0: unknown).
using load_progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Thread-safety: none
class input_set {
 public:
  /// `names`: files, folders, patterns, "-". Stats every file; reads none.
  /// Throws: data_error when there is none, or one cannot be read.
  explicit input_set(const std::vector<std::string>& names);
  /// The same for all workers of a job, which must agree on the files while these grow, appear and disappear: rank 0
  /// inspects them, and the others use its list. What is read later must be what rank 0 saw. Throws: as above, on every
  /// worker.
  /// Blocks: a collective. Cost: one round trip, some 150 bytes per file.
  input_set(Comm& comm, const std::vector<std::string>& names);
  ~input_set();
  input_set(const input_set&) = delete;
  input_set& operator=(const input_set&) = delete;

  [[nodiscard]] const std::vector<input_file>& files() const noexcept { return files_; }
  /// Whether standard input is among them: then rank 0 reads everything, and the other ranks have nothing.
  [[nodiscard]] bool standard_input() const noexcept { return standard_input_; }
  /// The pieces of files that `rank` of `size` reads. A file that cannot be split goes whole to the rank whose part
  /// contains its first byte, as a line does.
  [[nodiscard]] std::vector<file_piece> parts(std::size_t rank, std::size_t size) const;

  /// Calls `visit` with this rank's lines in pieces of about `piece_bytes` or one line, whichever is more.
  /// Throws: what `visit` throws; data_error when a file cannot be read, became shorter, was replaced, or its
  ///         compressed data is corrupt.
  /// Cost: memory of one piece.
  void visit(std::size_t rank, std::size_t size, const std::function<void(const input_piece&)>& visit,
             const load_progress& progress = {}, std::size_t piece_bytes = default_piece_bytes);

  /// Whether only blanks and line ends precede this byte of a seekable file.
  [[nodiscard]] bool blank_before(std::size_t file, std::uint64_t offset) const;

  /// The beginning of a file, whole lines of at least `bytes` in total, or all of it. Works repeatedly for standard
  /// input, which can still be visited afterwards. Without a byte order mark; `offset`: the byte at which it begins.
  std::string head(std::size_t file, std::size_t bytes = 1, std::uint64_t* offset = nullptr);

  // Text and its parsed form stay in the second-level cache.
  static constexpr std::size_t default_piece_bytes = std::size_t{256} << 10;

 private:
  class line_reader;

  void take(input_file file);

  std::vector<input_file> files_;
  std::vector<std::string> names_;            // for messages
  std::map<std::size_t, std::string> heads_;  // of files that can be read only once
  std::map<std::size_t, std::unique_ptr<input_stream>> opened_;
  bool standard_input_ = false;
};

}  // namespace paracel
