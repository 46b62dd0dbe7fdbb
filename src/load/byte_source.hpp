// SPDX-License-Identifier: BSD-3-Clause
//
// The bytes of one input file from front to back, whatever it is: a file from some offset on, a .gz or .zst file
// decompressed on the way, standard input (decompressed too, when it begins like one of these).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace paracel {

enum class file_kind { plain, gzip, zstd, standard_input };

/// One file of an input.
struct input_file {
  std::string name;  ///< "-" is standard input
  file_kind kind = file_kind::plain;
  std::uint64_t bytes = 0;  ///< as they lie on the disk; of standard input 0

  /// What messages call it.
  [[nodiscard]] std::string shown() const { return kind == file_kind::standard_input ? "stdin" : name; }
  /// Whether it can be read from the middle.
  [[nodiscard]] bool divisible() const noexcept { return kind == file_kind::plain; }
};

/// What a name is. Its first bytes say whether it is compressed; a name that ends in .gz or .zst must be.
/// Throws: data_error when it cannot be read, is no regular file, or is not what its name says.
input_file look_at(const std::string& name);

/// Thread-safety: none
class byte_source {
 public:
  byte_source() = default;
  byte_source(const byte_source&) = delete;
  byte_source& operator=(const byte_source&) = delete;
  virtual ~byte_source() = default;

  /// The next bytes, at most `size`; 0 at the end.
  /// Throws: data_error that names the file, and the byte of the file where compressed data is damaged or cut off.
  virtual std::size_t read(char* to, std::size_t size) = 0;
  /// Bytes of the file, as it lies on the disk, that were needed so far.
  [[nodiscard]] virtual std::uint64_t consumed() const = 0;
};

/// `from`: of a plain file, the byte to begin with.
/// Cost: memory of a megabyte or less; of .zst the window its writer chose, at most 128 MB.
std::unique_ptr<byte_source> open_source(const input_file& file, std::uint64_t from = 0);

}  // namespace paracel
