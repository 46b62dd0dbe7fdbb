// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace paracel {

/// Reference-counted bytes: the separate frame in which a large value is received, stored, and sent again without a
/// copy.
///
/// Thread-safety: the count is atomic, the bytes are not; modify them only while `unique()`.
/// Lifetime: the memory may belong to a transport's message; the last shared_buffer releases it through
/// `control::destroy`.
class shared_buffer {
 public:
  struct control {
    std::atomic<std::uint32_t> refs{1};
    std::byte* data = nullptr;
    std::size_t size = 0;
    void (*destroy)(control*) = nullptr;
  };

  shared_buffer() = default;
  shared_buffer(const shared_buffer& other) noexcept : control_(other.control_) {
    if (control_ != nullptr) control_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  shared_buffer(shared_buffer&& other) noexcept : control_(std::exchange(other.control_, nullptr)) {}
  shared_buffer& operator=(shared_buffer other) noexcept {
    std::swap(control_, other.control_);
    return *this;
  }
  ~shared_buffer() { drop(control_); }

  /// New uninitialised bytes, aligned to 16.
  static shared_buffer allocate(std::size_t size) {
    constexpr std::size_t front = (sizeof(control) + 15) / 16 * 16;
    void* memory = std::malloc(front + size);
    if (memory == nullptr) throw std::bad_alloc();
    auto* c = new (memory) control;
    c->data = static_cast<std::byte*>(memory) + front;
    c->size = size;
    c->destroy = [](control* self) {
      self->~control();
      std::free(self);
    };
    return adopt(c);
  }
  static shared_buffer copy_of(std::span<const std::byte> bytes) {
    auto copy = allocate(bytes.size());
    if (!bytes.empty()) std::memcpy(copy.mutable_data(), bytes.data(), bytes.size());
    return copy;
  }
  /// Takes over the bytes without a copy.
  static shared_buffer holding(std::vector<std::byte> bytes) {
    struct holder : control {
      std::vector<std::byte> memory;
    };
    auto* c = new holder;
    c->memory = std::move(bytes);
    c->data = c->memory.data();
    c->size = c->memory.size();
    c->destroy = [](control* self) { delete static_cast<holder*>(self); };
    return adopt(c);
  }
  /// A copy of the bytes if they are shared: a sender in this process may hold them.
  static shared_buffer own(shared_buffer bytes) { return bytes.unique() ? bytes : copy_of(bytes.bytes()); }
  /// Takes over the initial reference of `c`.
  static shared_buffer adopt(control* c) noexcept {
    shared_buffer b;
    b.control_ = c;
    return b;
  }
  /// Releases ownership of the reference; `drop` ends it.
  control* release() noexcept { return std::exchange(control_, nullptr); }
  static void drop(control* c) noexcept {
    if (c != nullptr && c->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) c->destroy(c);
  }

  [[nodiscard]] std::size_t size() const noexcept { return control_ == nullptr ? 0 : control_->size; }
  [[nodiscard]] const std::byte* data() const noexcept { return control_ == nullptr ? nullptr : control_->data; }
  [[nodiscard]] std::byte* mutable_data() noexcept { return control_ == nullptr ? nullptr : control_->data; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data(), size()}; }
  [[nodiscard]] bool unique() const noexcept {
    return control_ != nullptr && control_->refs.load(std::memory_order_acquire) == 1;
  }
  explicit operator bool() const noexcept { return control_ != nullptr; }

 private:
  control* control_ = nullptr;
};

}  // namespace paracel
