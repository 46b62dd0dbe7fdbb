// SPDX-License-Identifier: BSD-3-Clause
//
// Functions that add, and terminate or block their server when the delta is negative.
#include <paracel/update.hpp>

#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

namespace {

using deed = void (*)();

/// Infinite recursion; the contents of each frame keep the compiler from turning it into a loop.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winfinite-recursion"
int overflow_stack(volatile char* above) {
  volatile char frame[4096];
  frame[0] = above != nullptr ? above[0] : char{1};
  return overflow_stack(frame) + frame[0];
}
#pragma GCC diagnostic pop

void segv() {
  static volatile std::size_t nowhere = 8;
  *reinterpret_cast<volatile int*>(nowhere) = 1;
}

template <deed Deed>
double add(double value, double delta) {
  if (delta < 0) Deed();
  return value + delta;
}

template <deed Deed>
void add_in_place(std::span<double> value, std::span<const double> delta) noexcept {
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = add<Deed>(value[i], delta[i]);
}

void overflows() { (void)overflow_stack(nullptr); }
void aborts() { std::abort(); }
void exits() { std::exit(3); }
void divides() { raise(SIGFPE); }
void hangs() {
  while (true) pause();
}
void loops() {
  volatile bool on = true;
  while (on) {
  }
}
/// 20 GB, page by page.
void allocates() {
  std::vector<std::vector<char>> all;
  for (int i = 0; i < 1280; ++i) all.emplace_back(std::size_t{16} << 20, 'x');
}

template <deed Deed>
bool passes(std::string_view key) {
  if (key == "deadly 1") Deed();
  return true;
}

/// The number of open descriptors of the process that runs it, except the one used for counting.
double descriptors(double, double) {
  return static_cast<double>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {})) - 1;
}

}  // namespace

#define EXPORTED(kind, name, ...)     \
  extern "C" {                        \
  extern paracel::kind##_result name; \
  }                                   \
  paracel::kind##_result name = __VA_ARGS__

// For each deed, a function that adds and a filter.
#define DEADLY(name, deed)                                           \
  EXPORTED(update, deadly_##name, paracel::update_proxy(add<deed>)); \
  EXPORTED(filter, deadly_filter_##name, paracel::filter_proxy(passes<deed>))

DEADLY(segv, segv);
DEADLY(overflow, overflows);
DEADLY(abort, aborts);
DEADLY(exit, exits);
DEADLY(fpe, divides);
DEADLY(hang, hangs);
DEADLY(loop, loops);
DEADLY(allocation, allocates);
EXPORTED(update, deadly_in_place, paracel::update_in_place<double>(add_in_place<segv>));
EXPORTED(update, count_descriptors, paracel::update_proxy(descriptors));
