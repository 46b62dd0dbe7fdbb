// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "client/request_window.hpp"
#include "client/sharded_keys.hpp"
#include "core/inplace_function.hpp"
#include "net/protocol.hpp"

namespace paracel {

// The capacity that a buffer may keep between requests.
inline constexpr std::size_t kept_buffer_bytes = std::size_t{1} << 20;

/// A reusable buffer that is not cleared in between.
struct byte_buffer {
  std::unique_ptr<std::byte[]> memory;
  std::size_t capacity = 0;
  std::size_t size = 0;

  std::byte* reserve(std::size_t bytes) {
    if (capacity < bytes) {
      memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
      capacity = bytes;
    }
    size = bytes;
    return memory.get();
  }
  void trim() noexcept {
    if (capacity > kept_buffer_bytes) *this = {};
  }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {memory.get(), size}; }
};

/// Several requests that look like one to the caller.
struct multi_request {
  using sequence = request_window::sequence;
  /// The key is valid inside the handler.
  using keyed_handler = inplace_function<void(std::size_t index, std::string_view key, const net::reply_item&)>;
  /// The reply to one part of a key set: `order` are the indices of its keys.
  using part_handler = inplace_function<void(std::span<const std::uint32_t> order, const kv_result&)>;
  using uniform_handler =
      inplace_function<void(std::span<const std::uint32_t> order, std::string_view first_key, const kv_result&)>;
  /// With the number of the call. Must not throw.
  using end_handler = inplace_function<void(sequence)>;

  /// One of the requests.
  struct chunk {
    std::uint32_t channel = 0;
    std::uint32_t begin = 0;  // of its keys in the order
    std::uint32_t end = 0;
    unsigned attempts = 0;    // of a request on a set
    std::uint64_t place = 0;  // sequence number of its first attempt
    bool unprepared = false;  // its set_prepare was rejected
    byte_buffer body;         // the sent bytes
  };
  sequence number = 0;
  std::size_t unanswered = 0;
  net::request_header header;
  keyed_handler each;
  part_handler each_part;
  uniform_handler each_uniform;
  end_handler end;
  std::shared_ptr<const sharded_keys> set;
  std::vector<std::uint32_t> order;       // of a multi request: indices of keys, shard by shard; longer than needed
  std::size_t in_order = 0;               // this many at its front are 0, 1, ...
  std::vector<std::uint32_t> channel_of;  // of each key
  std::vector<std::uint32_t> begin;       // of each channel, in the order
  std::vector<chunk> chunks;
  std::size_t used = 0;  // of the chunks

  chunk& add(std::uint32_t channel, std::uint32_t from, std::uint32_t to) {
    if (used == chunks.size()) chunks.emplace_back();
    auto& c = chunks[used++];
    c.channel = channel;
    c.begin = from;
    c.end = to;
    c.attempts = 0;
    c.place = 0;
    c.unprepared = false;
    return c;
  }
  /// Disables its handlers: they may refer to destroyed objects.
  void silence() noexcept {
    each = nullptr;
    each_part = nullptr;
    each_uniform = nullptr;
    end = nullptr;
  }
};

}  // namespace paracel
