// SPDX-License-Identifier: BSD-3-Clause
//
// The bytes of one input file from front to back: a file from an offset on, a .gz or .zst file
// decompressed on the fly, standard input (also decompressed, if it begins like one of these).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace paracel {

enum class file_kind { plain, gzip, zstd, standard_input };

/// One file of an input as it was when it was inspected. Exactly these bytes are read later: what was appended
/// since is ignored (except for the end of a started line), and a file that has changed otherwise is rejected.
struct input_file {
  std::string name;  ///< "-" is standard input
  file_kind kind = file_kind::plain;
  std::uint64_t bytes = 0;  ///< as stored on disk; 0 for standard input

  std::uint64_t content = 0;     ///< a hash of the first and the last of these bytes, the same on every host
  std::string seen_from;         ///< the host and its mounts: the following fields are meaningless elsewhere
  std::uint64_t device = 0;      ///< its device there,
  std::uint64_t number = 0;      ///< its inode,
  std::int64_t modified_ns = 0;  ///< and its modification time, since 1970

  /// Its name in messages.
  [[nodiscard]] std::string shown() const { return kind == file_kind::standard_input ? "stdin" : name; }
  /// Whether it is seekable.
  [[nodiscard]] bool divisible() const noexcept { return kind == file_kind::plain; }
};

/// Inspects a file. Its first bytes tell whether it is compressed; one named .gz or .zst must be.
/// Throws: data_error when it cannot be read, is not a regular file, or does not match its name.
/// Cost: two reads of 4 KiB.
input_file look_at(const std::string& name);

/// Thread-safety: none
class input_stream {
 public:
  input_stream() = default;
  input_stream(const input_stream&) = delete;
  input_stream& operator=(const input_stream&) = delete;
  virtual ~input_stream() = default;

  /// The next bytes, at most `size`; 0 at the end.
  /// Throws: data_error that names the file, and the byte of the file where compressed data is corrupt or truncated;
  ///         when the file ends before its recorded size.
  virtual std::size_t read(char* to, std::size_t size) = 0;
  /// Call it after the last read. Throws: data_error when the file was changed meanwhile other
  /// than by appending to it. Blocks: up to a second while an append is in progress.
  virtual void verify() {}
  /// Bytes of the file, as stored on disk, consumed so far.
  [[nodiscard]] virtual std::uint64_t consumed() const = 0;
};

/// `from`: of a plain file, the first byte to read. A plain file is read beyond `file.bytes` if it has grown; a
/// compressed one ends there. Throws: data_error that names the file, when it is gone, shorter than it was, or another
/// one. Cost: a megabyte of memory or less; for .zst the window chosen by its writer, at most 128 MB.
std::unique_ptr<input_stream> open_source(const input_file& file, std::uint64_t from = 0);

}  // namespace paracel
