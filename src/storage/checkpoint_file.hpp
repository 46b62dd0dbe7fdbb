// SPDX-License-Identifier: BSD-3-Clause
//
// One file of a checkpoint: a header, blocks with a checksum each, a footer. The format is documented in
// src/storage/README.md. Little-endian; nothing is trusted before its checksum is verified.
//
//   0   u8[8] "PRCLCKPT" | u32 version 1 | u16 kind | u16 0 | u32 clock | u32 slot or rank
//   24  u64 job | u32 thread | u32 of how many | u64 0 | u64 0 | u64 XXH3-64 of the 56 bytes before
//   64  blocks: u32 bytes | u32 section | u64 XXH3-64 of the payload, seeded with the 8 bytes before | payload
//   end u64 blocks | u64 bytes of the file | u64 XXH3-64 of (checksum of the header, of each block, blocks, bytes) |
//   "PRCLDONE"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/hash.hpp"
#include "storage/file_system.hpp"

namespace paracel::storage {

inline constexpr std::uint32_t checkpoint_version = 1;
inline constexpr std::size_t checkpoint_header_bytes = 64;
inline constexpr std::size_t checkpoint_block_front_bytes = 16;
inline constexpr std::size_t checkpoint_footer_bytes = 32;
/// Longer sections are split into several blocks: the most memory that a reader needs at once for a checksum.
inline constexpr std::size_t checkpoint_block_bytes = std::size_t{64} << 20;

enum class checkpoint_kind : std::uint16_t { server = 1, worker = 2 };

/// The owner of the state, and its clock.
struct checkpoint_header {
  checkpoint_kind kind = checkpoint_kind::server;
  std::uint32_t clock = 0;
  std::uint32_t index = 0;  ///< slot of the server, rank of the worker
  std::uint64_t job = 0;
  std::uint32_t thread = 0;  ///< of a server
  std::uint32_t count = 0;   ///< threads of the server, workers of the job
  friend bool operator==(const checkpoint_header&, const checkpoint_header&) = default;
};

/// A manifest's entry for a file.
struct checkpoint_digest {
  std::uint64_t bytes = 0;
  std::uint64_t hash = 0;  ///< XXH3-64 of the whole file, as `xxhsum -H3` prints it
  friend bool operator==(const checkpoint_digest&, const checkpoint_digest&) = default;
};

/// Writes one file. Without `finish` it is discarded.
///
/// Throws: error with the path and the system's reason (no space, no permission).
/// Thread-safety: none. Cost: 1 MiB of memory besides the caller's block.
class checkpoint_writer {
 public:
  checkpoint_writer(file_system& on, const std::string& path, const checkpoint_header& header);
  /// The next section; consecutive calls with the same number form one section. An empty payload writes nothing.
  void add(std::uint32_t section, std::span<const std::byte> payload);
  /// Blocks: until the file and its name are on disk. Call it once.
  checkpoint_digest finish();

 private:
  void put(std::span<const std::byte> bytes);
  void flush();

  std::unique_ptr<file_writer> file_;
  std::vector<std::byte> waiting_;
  std::vector<std::uint64_t> checksums_;  // of the header and of each block
  running_hash whole_;
  std::uint64_t bytes_ = 0;
};

/// Reads one file and checks every byte of it.
///
/// Throws: data_error "<path>: byte <offset>: what is wrong", error when the system cannot read it.
/// Thread-safety: none. Cost: memory for the longest section.
class checkpoint_reader {
 public:
  /// Checks length, header and the footer's magic.
  checkpoint_reader(const file_system& on, std::string path);
  [[nodiscard]] const checkpoint_header& header() const noexcept { return header_; }
  /// The next whole section, its checksums verified. False at the end: then the footer was valid as well.
  bool next(std::uint32_t& section, std::vector<std::byte>& payload) {
    return next(section, payload, [](std::uint32_t) { return true; });
  }
  /// The next wanted section. Of the others only the lengths are read, not the payloads; then `digest` is meaningless.
  bool next(std::uint32_t& section, std::vector<std::byte>& payload, const std::function<bool(std::uint32_t)>& wanted);
  /// Offset in the file of the section last returned by `next`.
  [[nodiscard]] std::uint64_t offset() const noexcept { return section_at_; }
  /// The digest of all that was read; of the whole file once `next` has returned false.
  [[nodiscard]] checkpoint_digest digest() const { return {size_, whole_.value()}; }

 private:
  struct front {
    std::array<std::byte, checkpoint_block_front_bytes> raw{};
    std::uint32_t bytes = 0;
    std::uint32_t section = 0;
    std::uint64_t seed = 0;
    std::uint64_t checksum = 0;
  };
  [[noreturn]] void refuse(std::uint64_t offset, const std::string& what) const;
  void read_exactly(std::uint64_t offset, std::span<std::byte> into) const;
  bool read_front();
  void read_block(std::vector<std::byte>& payload);
  void check_footer();

  std::string path_;
  std::unique_ptr<file_reader> file_;
  std::uint64_t size_ = 0;
  std::uint64_t at_ = 0;  // of the block whose header is next_
  checkpoint_header header_;
  std::uint64_t section_at_ = 0;
  front next_;
  bool has_next_ = false;
  std::vector<std::uint64_t> checksums_;
  running_hash whole_;
};

/// Reads the whole file. Throws: as checkpoint_reader.
checkpoint_digest verify_checkpoint_file(const file_system& on, const std::string& path,
                                         checkpoint_header* header = nullptr);

}  // namespace paracel::storage
