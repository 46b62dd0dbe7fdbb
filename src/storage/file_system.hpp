// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace paracel::storage {

/// A file being written. It gets its name only by `commit`; without it the file is discarded.
///
/// Throws: error with the path and the reason of the system; the file can then no longer be committed.
/// Thread-safety: none.
class file_writer {
 public:
  file_writer() = default;
  file_writer(const file_writer&) = delete;
  file_writer& operator=(const file_writer&) = delete;
  virtual ~file_writer() = default;
  virtual void append(std::span<const std::byte> bytes) = 0;
  /// Atomic: after a crash at any moment the file has the old contents (or does not exist) or the complete new ones;
  /// after return the new ones. Blocks: for two fsync. Call it once.
  virtual void commit() = 0;
};

/// A file being read. Throws: error with the path and the reason of the system. Thread-safety:
/// const-concurrent.
class file_reader {
 public:
  file_reader() = default;
  file_reader(const file_reader&) = delete;
  file_reader& operator=(const file_reader&) = delete;
  virtual ~file_reader() = default;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  /// Fills `into` from `offset` on. Returns: the number of bytes read; fewer than requested only at the end.
  [[nodiscard]] virtual std::size_t read_at(std::uint64_t offset, std::span<std::byte> into) const = 0;
};

/// Where nodes keep files: an interface, so that a test can inject errors, torn writes and losses.
///
/// Throws: every function throws error with the path and the reason of the system.
/// Thread-safety: const-concurrent; with two writers of one path one of them wins, with a complete file.
class file_system {
 public:
  file_system() = default;
  file_system(const file_system&) = delete;
  file_system& operator=(const file_system&) = delete;
  virtual ~file_system() = default;

  /// Begins a file, whose folder must exist.
  virtual std::unique_ptr<file_writer> create(const std::string& path) = 0;
  [[nodiscard]] virtual std::unique_ptr<file_reader> open(const std::string& path) const = 0;
  /// Atomically makes `path` a file of exactly `bytes`, as a committed file_writer. On failure `path` is unchanged.
  /// Blocks: for two fsync, milliseconds on a disk.
  void write(const std::string& path, std::span<const std::byte> bytes) {
    const auto file = create(path);
    file->append(bytes);
    file->commit();
  }
  /// The whole file. Also throws above `most_bytes`, before allocating.
  [[nodiscard]] virtual std::vector<std::byte> read(const std::string& path, std::size_t most_bytes) const = 0;
  /// The names in a folder, sorted, without "." and ".." and without the unfinished files of `write`.
  [[nodiscard]] virtual std::vector<std::string> list(const std::string& folder) const = 0;
  /// Durably creates a folder and its parents; an existing one is left as it is.
  virtual void make_folder(const std::string& folder) = 0;
  /// Removes a folder with the files in it, unfinished ones too. Returns: false when it did not exist. Also throws when
  /// it contains a folder.
  virtual bool remove_folder(const std::string& folder) = 0;
  /// Renames a file or folder. Also throws when the new name is a non-empty folder.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// Removes a file. Returns: false when it did not exist.
  virtual bool remove(const std::string& path) = 0;
};

/// Makes the names in a folder durable. Throws: error with the path. Blocks: for an fsync.
void sync_folder(const std::string& folder);

/// The real file system.
///
/// A file_writer creates `<folder>/.paracel.<pid>.<number>.tmp`, writes it, fsync, renames it to `path`, fsync of the
/// folder. A process that dies in between leaves the temporary file; it is never read.
class posix_file_system final : public file_system {
 public:
  std::unique_ptr<file_writer> create(const std::string& path) override;
  [[nodiscard]] std::unique_ptr<file_reader> open(const std::string& path) const override;
  [[nodiscard]] std::vector<std::byte> read(const std::string& path, std::size_t most_bytes) const override;
  [[nodiscard]] std::vector<std::string> list(const std::string& folder) const override;
  /// Also throws when the folder belongs to another user, who could replace its contents.
  void make_folder(const std::string& folder) override;
  /// Throws when the folder belongs to another user; a missing one belongs to none.
  void require_own(const std::string& folder) const;
  bool remove_folder(const std::string& folder) override;
  void rename(const std::string& from, const std::string& to) override;
  bool remove(const std::string& path) override;
  /// Removes the temporary files of dead processes from a folder in which no process may be writing.
  void remove_unfinished(const std::string& folder);
};

}  // namespace paracel::storage
