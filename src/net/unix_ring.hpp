// SPDX-License-Identifier: BSD-3-Clause
//
// Memory of two processes for the large frames of one direction of a connection: they are copied into it and out of it,
// instead of into the kernel and out of it, piece by piece as the socket has room. It has no name (a memfd), so nothing
// is left behind however the processes end.
//
//     front    how many blocks the receiver has taken
//     blocks   each a frame, at multiples of 64 bytes; where one is, and its length, is said over the socket
//
// The receiver makes the file and seals its size: neither end can make the other's memory vanish. The sender alone
// knows which room is free. It never waits for any: what has none is sent over the socket.
//
// Neither end trusts the other. Each reads a number of the other's once and checks it before it is used; what lies in
// the memory is copied before anybody looks at it, unless the receiver asks for it as it is (port::accept_lent_tails).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/shared_buffer.hpp"
#include "net/owned_fd.hpp"

namespace paracel::net {

/// Smaller frames are sent over the socket.
inline constexpr std::size_t least_ring_frame = std::size_t{64} * 1024;
/// Of all blocks of a ring. Its memory is used only as far as frames have filled it.
inline constexpr std::size_t ring_capacity = std::size_t{8} << 20U;
/// That one process makes at a time: 512 MB.
inline constexpr std::size_t most_rings = 64;

/// Both ends' view of the file.
class ring_memory {
 public:
  /// Whole file: the front's page and the blocks.
  static constexpr std::size_t front_bytes = 4096;
  static constexpr std::size_t file_bytes = front_bytes + ring_capacity;

  /// Returns: one without memory where it cannot be mapped.
  explicit ring_memory(int file) noexcept;
  ring_memory(const ring_memory&) = delete;
  ring_memory& operator=(const ring_memory&) = delete;
  ~ring_memory();
  explicit operator bool() const noexcept { return at_ != nullptr; }
  [[nodiscard]] std::atomic<std::uint64_t>& taken() const noexcept {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(at_);
  }
  [[nodiscard]] std::byte* blocks() const noexcept { return at_ + front_bytes; }

 private:
  std::byte* at_;
};

/// The receiver's end. Thread-safety: none, but any thread may drop what it has lent, also later than the ring.
class ring_reader {
 public:
  /// Returns: null where the system has no memory for it, or this process has enough of them.
  static std::unique_ptr<ring_reader> make() noexcept;
  /// The file, to be passed to the sender; then it need not stay open.
  [[nodiscard]] int file() const noexcept { return file_.get(); }
  void close_file() noexcept { file_ = owned_fd(); }
  /// Copies the next block and gives its room back. Returns: whether it is one.
  bool take(std::uint64_t offset, std::uint64_t bytes, shared_buffer& out);
  /// The next block where it lies; its room is given back when the last copy of `out` is dropped and the ones before
  /// have been given back. Returns: whether it is one.
  bool lend(std::uint64_t offset, std::uint64_t bytes, shared_buffer& out);

 private:
  class shared;
  struct loan;
  ring_reader(owned_fd file, std::shared_ptr<shared> state) noexcept
      : file_(std::move(file)), shared_(std::move(state)) {}

  owned_fd file_;
  std::shared_ptr<shared> shared_;
};

/// The sender's end. Thread-safety: none.
class ring_writer {
 public:
  /// Returns: null: it is no file that `ring_reader` has made, or it cannot be mapped.
  static std::unique_ptr<ring_writer> open(owned_fd file) noexcept;
  explicit ring_writer(owned_fd file) noexcept : file_(std::move(file)), memory_(file_.get()) {}

  /// Copies a frame, which consists of two parts, into a block. Returns: where it is; nothing: there is no room.
  std::optional<std::uint64_t> put(std::span<const std::byte> first, std::span<const std::byte> second = {}) noexcept;
  /// Bytes that the receiver has not taken yet.
  [[nodiscard]] std::size_t unread() noexcept {
    reclaim();
    return unread_;
  }

 private:
  struct block {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  static constexpr std::size_t most_blocks = ring_capacity / least_ring_frame;
  void reclaim() noexcept;
  [[nodiscard]] std::optional<std::size_t> room_for(std::size_t bytes) const noexcept;
  [[nodiscard]] bool reserve(std::size_t end) noexcept;
  [[nodiscard]] const block& oldest() const noexcept { return blocks_[freed_ % most_blocks]; }
  [[nodiscard]] const block& newest() const noexcept { return blocks_[(put_ - 1) % most_blocks]; }

  owned_fd file_;
  ring_memory memory_;
  std::array<block, most_blocks> blocks_{};  // by their numbers
  std::uint64_t put_ = 0;                    // blocks
  std::uint64_t freed_ = 0;
  std::size_t unread_ = 0;
  std::size_t reserved_ = 0;  // the system has given memory up to here
  bool is_usable_ = true;
};

}  // namespace paracel::net
