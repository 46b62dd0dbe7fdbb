// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace paracel::net {

/// A file that is being written. It has its name only after `commit`; without one nothing of it stays.
///
/// Throws: error with the path and the reason of the system; the file then cannot be committed any more.
/// Thread-safety: none.
class file_writer {
 public:
  file_writer() = default;
  file_writer(const file_writer&) = delete;
  file_writer& operator=(const file_writer&) = delete;
  virtual ~file_writer() = default;
  virtual void append(std::span<const std::byte> bytes) = 0;
  /// After a crash at any moment there is the old file of that name, or none, or the whole new one; after the call
  /// returned there is the new one. Blocks: for two fsync. Call it once.
  virtual void commit() = 0;
};

/// A file that is being read. Throws: error with the path and the reason of the system. Thread-safety:
/// const-concurrent.
class file_reader {
 public:
  file_reader() = default;
  file_reader(const file_reader&) = delete;
  file_reader& operator=(const file_reader&) = delete;
  virtual ~file_reader() = default;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  /// Fills `into` from `offset` on. Returns: how many bytes there were; fewer than asked for only at the end.
  [[nodiscard]] virtual std::size_t read_at(std::uint64_t offset, std::span<std::byte> into) const = 0;
};

/// Where nodes keep files: an interface, so that a test can fail, tear or lose them.
///
/// Throws: every function throws error with the path and the reason of the system.
/// Thread-safety: const-concurrent; two writers of one path leave the whole file of one of them.
class file_system {
 public:
  file_system() = default;
  file_system(const file_system&) = delete;
  file_system& operator=(const file_system&) = delete;
  virtual ~file_system() = default;

  /// Begins a file, whose folder must exist.
  virtual std::unique_ptr<file_writer> create(const std::string& path) = 0;
  [[nodiscard]] virtual std::unique_ptr<file_reader> open(const std::string& path) const = 0;
  /// Makes `path` a file of exactly `bytes`, as a file_writer that is committed. On failure `path` is as it was.
  /// Blocks: for two fsync, milliseconds on a disk.
  void write(const std::string& path, std::span<const std::byte> bytes) {
    const auto file = create(path);
    file->append(bytes);
    file->commit();
  }
  /// The whole file. Throws also above `most_bytes`, before memory is taken.
  [[nodiscard]] virtual std::vector<std::byte> read(const std::string& path, std::size_t most_bytes) const = 0;
  /// The names in a folder, sorted, without "." and ".." and without the unfinished files of `write`.
  [[nodiscard]] virtual std::vector<std::string> list(const std::string& folder) const = 0;
  /// Makes a folder and those above it, so that they are there after a crash; one that is there is left as it is.
  virtual void make_folder(const std::string& folder) = 0;
  /// Removes a folder with the files in it, unfinished ones too. Returns: false when there was none. Throws also when
  /// there is a folder in it.
  virtual bool remove_folder(const std::string& folder) = 0;
  /// Gives a file or folder another name. Throws also when that is taken by a folder that is not empty.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// Removes a file. Returns: false when there was none.
  virtual bool remove(const std::string& path) = 0;
};

/// The file system.
///
/// A file_writer makes `<folder>/.paracel.<pid>.<number>.tmp`, writes it, fsync, renames it over `path`, fsync of the
/// folder. A process that dies in between leaves the temporary file; nobody reads those.
class posix_file_system final : public file_system {
 public:
  std::unique_ptr<file_writer> create(const std::string& path) override;
  [[nodiscard]] std::unique_ptr<file_reader> open(const std::string& path) const override;
  [[nodiscard]] std::vector<std::byte> read(const std::string& path, std::size_t most_bytes) const override;
  [[nodiscard]] std::vector<std::string> list(const std::string& folder) const override;
  /// Throws also when the folder that is there belongs to another user, who could exchange what is written.
  void make_folder(const std::string& folder) override;
  /// Throws when the folder belongs to another user; one that is not there is nobody's.
  void require_own(const std::string& folder) const;
  bool remove_folder(const std::string& folder) override;
  void rename(const std::string& from, const std::string& to) override;
  bool remove(const std::string& path) override;
  /// Removes what processes that died in between have left in a folder, in which nobody may be writing.
  void remove_unfinished(const std::string& folder);
};

}  // namespace paracel::net
