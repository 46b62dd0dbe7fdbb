// SPDX-License-Identifier: BSD-3-Clause
//
// operator new of all programs that link the framework: that of the standard library, but its exception says how much
// was asked for. Sanitizers have their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PARACEL_SANITIZER_ALLOCATES
#endif
#endif
#else
#define PARACEL_SANITIZER_ALLOCATES
#endif

#ifndef PARACEL_SANITIZER_ALLOCATES
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace paracel {

namespace {

class refused_allocation : public std::bad_alloc {
 public:
  explicit refused_allocation(std::size_t bytes) noexcept {
    std::snprintf(text_.data(), text_.size(), "std::bad_alloc: %zu bytes were asked for", bytes);
  }
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  std::array<char, 64> text_{};
};

template <class F>
void* allocate(std::size_t bytes, const F& from_system) {
  for (;;) {
    if (void* memory = from_system()) [[likely]]
      return memory;
    const auto make_room = std::get_new_handler();
    if (make_room == nullptr) throw refused_allocation(bytes);
    make_room();
  }
}

}  // namespace

}  // namespace paracel

void* operator new(std::size_t bytes) {
  return paracel::allocate(bytes, [&] { return std::malloc(bytes == 0 ? 1 : bytes); });
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return paracel::allocate(bytes, [&]() -> void* {
    void* memory = nullptr;
    const auto least = unit < sizeof(void*) ? sizeof(void*) : unit;
    return posix_memalign(&memory, least, bytes == 0 ? 1 : bytes) == 0 ? memory : nullptr;
  });
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif
