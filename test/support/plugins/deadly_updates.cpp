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

/// Those of the process that runs it, without the one that this needs.
double descriptors(double, double) {
  return static_cast<double>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {})) - 1;
}

}  // namespace

extern "C" {
extern paracel::update_result deadly_segv;
extern paracel::update_result deadly_overflow;
extern paracel::update_result deadly_abort;
extern paracel::update_result deadly_exit;
extern paracel::update_result deadly_fpe;
extern paracel::update_result deadly_hang;
extern paracel::update_result deadly_loop;
extern paracel::update_result deadly_allocation;
extern paracel::update_result deadly_in_place;
extern paracel::filter_result deadly_filter;
extern paracel::filter_result deadly_filter_overflow;
extern paracel::filter_result deadly_filter_abort;
extern paracel::filter_result deadly_filter_exit;
extern paracel::filter_result deadly_filter_loop;
extern paracel::filter_result deadly_filter_allocation;
extern paracel::update_result count_descriptors;
}
paracel::update_result deadly_segv = paracel::update_proxy(add<segv>);
paracel::update_result deadly_overflow = paracel::update_proxy(add<overflows>);
paracel::update_result deadly_abort = paracel::update_proxy(add<aborts>);
paracel::update_result deadly_exit = paracel::update_proxy(add<exits>);
paracel::update_result deadly_fpe = paracel::update_proxy(add<divides>);
paracel::update_result deadly_hang = paracel::update_proxy(add<hangs>);
paracel::update_result deadly_loop = paracel::update_proxy(add<loops>);
paracel::update_result deadly_allocation = paracel::update_proxy(add<allocates>);
paracel::update_result deadly_in_place = paracel::update_in_place<double>(add_in_place<segv>);
paracel::filter_result deadly_filter = paracel::filter_proxy(passes<segv>);
paracel::filter_result deadly_filter_overflow = paracel::filter_proxy(passes<overflows>);
paracel::filter_result deadly_filter_abort = paracel::filter_proxy(passes<aborts>);
paracel::filter_result deadly_filter_exit = paracel::filter_proxy(passes<exits>);
paracel::filter_result deadly_filter_loop = paracel::filter_proxy(passes<loops>);
paracel::filter_result deadly_filter_allocation = paracel::filter_proxy(passes<allocates>);
paracel::update_result count_descriptors = paracel::update_proxy(descriptors);
