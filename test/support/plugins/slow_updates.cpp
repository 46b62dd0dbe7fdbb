// SPDX-License-Identifier: BSD-3-Clause
//
// Slow functions: `sleep_for` sleeps for the number of seconds in the delta, then adds it. `hang_once` adds; the call
// that removes the file named by TEST_HANG never returns.
#include <paracel/update.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>

extern "C" {
extern paracel::update_result sleep_for;
extern paracel::update_result hang_once;
}
paracel::update_result sleep_for = paracel::update_proxy([](double value, double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return value + seconds;
});
paracel::update_result hang_once = paracel::update_proxy([](std::int64_t value, std::int64_t delta) {
  const char* file = std::getenv("TEST_HANG");
  while (file != nullptr && unlink(file) == 0) pause();
  return value + delta;
});
