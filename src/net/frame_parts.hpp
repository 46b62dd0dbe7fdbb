// SPDX-License-Identifier: BSD-3-Clause
//
// How a large frame travels over tcp: cut into parts of one message, so that no receiver reserves memory for more than
// one of them before its bytes have arrived, and one is encrypted while the one before is sent and decrypted.
//
// A part of exactly `part_bytes` is continued by the next part of the message, if there is one; any other is the last
// of its frame. So a frame that is smaller is one part, as is a larger one over ipc, where nothing is cut; and an empty
// part ends one whose last part is full, if another frame follows it.
//
//     frame    3 C + 5   parts   C  C  C  5             the head alone, or before a tail
//              2 C               C  C                   the last frame of the message
//              2 C               C  C  0                a tail follows
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace paracel::net {

/// What ZeroMQ accepts in one part over tcp, with what encryption adds to it.
constexpr std::size_t most_part_bytes = std::size_t{1} << 20;
/// Of a full part. No power of two, so that hardly any program sends a frame of this size by itself.
constexpr std::size_t part_bytes = most_part_bytes - 64;

/// Calls `emit(offset, bytes)` for each part of a frame. `cuts`: whether it is cut at all. `followed`: another frame of
/// the message comes after it.
template <class Emit>
void for_each_part(std::size_t frame_bytes, bool cuts, bool followed, const Emit& emit, std::size_t full = part_bytes) {
  std::size_t at = 0;
  std::size_t n = 0;
  do {
    n = cuts ? std::min(frame_bytes - at, full) : frame_bytes;
    emit(at, n);
    at += n;
  } while (at < frame_bytes);
  if (n == full && followed) emit(at, 0);
}

/// To which frame of a message each of its parts belongs. Thread-safety: none. Cost: O(1).
class frame_joiner {
 public:
  static constexpr std::size_t most_frames = 2;
  /// `most_bytes`: of each frame.
  explicit frame_joiner(std::size_t most_bytes, std::size_t full = part_bytes) noexcept
      : most_bytes_(most_bytes), full_(full) {}

  /// The next part. False: it belongs to no frame, or makes its frame too large; the message is to be dropped.
  [[nodiscard]] bool take(std::size_t bytes) noexcept {
    if (next_ == most_frames || bytes > most_bytes_ - frames_[next_].bytes) return false;
    frames_[next_].bytes += bytes;
    ++frames_[next_].parts;
    if (bytes != full_) ++next_;
    return true;
  }

  struct frame {
    std::size_t bytes = 0;
    std::size_t parts = 0;  ///< 0: there is no such frame
  };
  /// Frame 0 or 1, as far as its parts have been taken.
  [[nodiscard]] const frame& operator[](std::size_t i) const noexcept { return frames_[i]; }

 private:
  std::size_t most_bytes_;
  std::size_t full_;
  std::array<frame, most_frames> frames_{};
  std::size_t next_ = 0;
};

}  // namespace paracel::net
