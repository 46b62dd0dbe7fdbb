// SPDX-License-Identifier: BSD-3-Clause
//
// The bytes of one input file from front to back, whatever it is: a file from some offset on, a .gz or .zst file
// decompressed on the way, standard input (decompressed too, when it begins like one of these).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace paracel {

enum class file_kind { plain, gzip, zstd, standard_input };

/// One file of an input as it was when somebody looked at it. What is read later is these bytes: what was appended
/// since is left alone (but for the end of a line that had begun), and a file that is no longer the same is refused.
struct input_file {
  std::string name;  ///< "-" is standard input
  file_kind kind = file_kind::plain;
  std::uint64_t bytes = 0;  ///< as they lie on the disk; of standard input 0

  std::uint64_t content = 0;  ///< a hash of the first and the last of these bytes, wherever the file is looked at from
  std::string seen_from;      ///< the host and its mounts: what follows says nothing elsewhere
  std::uint64_t device = 0;   ///< where it lies there,
  std::uint64_t number = 0;   ///< its inode
  std::int64_t modified_ns = 0;  ///< and when it was changed, since 1970

  /// What messages call it.
  [[nodiscard]] std::string shown() const { return kind == file_kind::standard_input ? "stdin" : name; }
  /// Whether it can be read from the middle.
  [[nodiscard]] bool divisible() const noexcept { return kind == file_kind::plain; }
};

/// What a name is. Its first bytes say whether it is compressed; a name that ends in .gz or .zst must be.
/// Throws: data_error when it cannot be read, is no regular file, or is not what its name says.
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
  /// Throws: data_error that names the file, and the byte of the file where compressed data is damaged or cut off; when
  /// the
  ///         file ends before the bytes it had.
  virtual std::size_t read(char* to, std::size_t size) = 0;
  /// To be called when all was read that is wanted. Throws: data_error when the file was changed meanwhile otherwise
  /// than by appending to it. Blocks: up to a second while an append is being made.
  virtual void verify() {}
  /// Bytes of the file, as it lies on the disk, that were needed so far.
  [[nodiscard]] virtual std::uint64_t consumed() const = 0;
};

/// `from`: of a plain file, the byte to begin with. A plain file is read beyond `file.bytes` if it has grown; a
/// compressed one ends there. Throws: data_error that names the file, when it is gone, shorter than it was, or another
/// one. Cost: memory of a megabyte or less; of .zst the window its writer chose, at most 128 MB.
std::unique_ptr<input_stream> open_source(const input_file& file, std::uint64_t from = 0);

}  // namespace paracel
