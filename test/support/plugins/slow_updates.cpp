// SPDX-License-Identifier: BSD-3-Clause
//
// Functions that take long: `sleep_for` sleeps as many seconds as the delta says, then adds it.
#include <paracel/update.hpp>

#include <chrono>
#include <thread>

extern "C" {
extern paracel::update_result sleep_for;
}
paracel::update_result sleep_for = paracel::update_proxy([](double value, double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return value + seconds;
});
