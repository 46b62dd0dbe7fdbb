// SPDX-License-Identifier: BSD-3-Clause
#include "core/trace.hpp"

#include <ctime>

#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace paracel::trace {

namespace {

bool has_constant_counter() noexcept {
#if defined(__x86_64__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1U << 8U)) != 0;
#else
  return false;
#endif
}

const bool cycles = has_constant_counter();
opener open_log;
std::uint32_t one_in = 1;

}  // namespace

constinit thread_local buffer* mine = nullptr;

bool counts_cycles() noexcept { return cycles; }

std::uint64_t now() noexcept {
#if defined(__x86_64__)
  if (cycles) [[likely]]
    return __rdtsc();
#endif
  timespec t{};
  clock_gettime(CLOCK_BOOTTIME, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(t.tv_nsec);
}

void start(opener open, std::uint32_t every) {
  open_log = std::move(open);
  one_in = every == 0 ? 1 : every;
  on.store(static_cast<bool>(open_log), std::memory_order_release);
}

std::uint32_t every() noexcept { return one_in; }

thread_scope::thread_scope(const std::string& role, std::uint32_t index, const std::string& thread) {
  if (!is_on() || mine != nullptr) return;
  auto log = open_log(role, index, thread);
  if (log == nullptr) return;
  own_ = std::make_unique<buffer>(std::move(log));
  mine = own_.get();
}

thread_scope::~thread_scope() {
  if (own_ != nullptr && mine == own_.get()) mine = nullptr;
  else static_cast<void>(own_.release());  // on another thread: its own one may still add to it
}

}  // namespace paracel::trace
