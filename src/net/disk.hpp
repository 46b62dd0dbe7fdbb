// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace paracel::net {

/// Where nodes keep files: an interface, so that a test can fail, tear or lose them.
///
/// Throws: every function throws error with the path and the reason of the system.
/// Thread-safety: const-concurrent; two writers of one path leave the whole file of one of them.
class disk {
 public:
  disk() = default;
  disk(const disk&) = delete;
  disk& operator=(const disk&) = delete;
  virtual ~disk() = default;

  /// Makes `path` a file of exactly `bytes`: after a crash at any moment there is the old file, or none, or the whole
  /// new one; after the call returned there is the new one. Its folder must exist. On failure `path` is as it was.
  /// Blocks: for two fsync, milliseconds on a disk.
  virtual void write(const std::string& path, std::span<const std::byte> bytes) = 0;
  /// The whole file. Throws also above `most_bytes`, before memory is taken.
  [[nodiscard]] virtual std::vector<std::byte> read(const std::string& path, std::size_t most_bytes) const = 0;
  /// The names in a folder, sorted, without "." and ".." and without the unfinished files of `write`.
  [[nodiscard]] virtual std::vector<std::string> list(const std::string& folder) const = 0;
  /// Makes a folder and those above it; one that is there is left as it is.
  virtual void make_folder(const std::string& folder) = 0;
  /// Removes a file. Returns: false when there was none.
  virtual bool remove(const std::string& path) = 0;
};

/// The file system.
///
/// `write` makes `<folder>/.paracel.<pid>.<number>.tmp`, writes it, fsync, renames it over `path`, fsync of the folder.
/// A process that dies in between leaves the temporary file; nobody reads those.
class posix_disk final : public disk {
 public:
  void write(const std::string& path, std::span<const std::byte> bytes) override;
  [[nodiscard]] std::vector<std::byte> read(const std::string& path, std::size_t most_bytes) const override;
  [[nodiscard]] std::vector<std::string> list(const std::string& folder) const override;
  void make_folder(const std::string& folder) override;
  bool remove(const std::string& path) override;
};

}  // namespace paracel::net
