// SPDX-License-Identifier: BSD-3-Clause
//
// An addition that takes 5 ms each time, until the file named by TEST_ENOUGH exists: a job with a fixed number of
// rounds does not end before the intended fault, however fast the machine is.
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <thread>

#include <paracel/update.hpp>

extern "C" {
extern paracel::update_result paced_add;
}

namespace {

void add(std::span<double> value, std::span<const double> delta) noexcept {
  static const char* const file = std::getenv("TEST_ENOUGH");
  if (file != nullptr && access(file, F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (std::size_t i = 0; i < value.size(); ++i) value[i] += delta[i];
}

}  // namespace

paracel::update_result paced_add = paracel::additive(paracel::update_in_place<double>(add));
