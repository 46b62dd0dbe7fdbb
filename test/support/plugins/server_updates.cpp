// SPDX-License-Identifier: BSD-3-Clause
//
// Update functions that a server must survive, and one whose result shows the order in which it was called.
#include <paracel/update.hpp>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

double times_ten_plus(double value, double delta) { return value * 10 + delta; }

double refuse_negative(double value, double delta) {
  if (delta < 0) throw std::runtime_error("a negative delta");
  return value + delta;
}

std::vector<double> append(std::vector<double> value, const std::vector<double>& delta) {
  value.insert(value.end(), delta.begin(), delta.end());
  return value;
}

std::string join(std::string value, const std::string& delta) { return value + delta; }

double sleep_ms(double value, double delta) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(delta));
  return value + 1;
}

}  // namespace

extern "C" {
extern paracel::update_result times_ten_plus_update;
extern paracel::update_result refuse_negative_update;
extern paracel::update_result append_update;
extern paracel::update_result join_update;
extern paracel::update_result sleep_update;
extern paracel::update_result count_update;
}

paracel::update_result times_ten_plus_update = paracel::update_proxy(times_ten_plus);
paracel::update_result refuse_negative_update = paracel::update_proxy(refuse_negative);
paracel::update_result append_update = paracel::update_proxy(append);
paracel::update_result join_update = paracel::update_proxy(join);
paracel::update_result sleep_update = paracel::update_proxy(sleep_ms);
// Counts its calls, whatever the delta; a missing key starts at 0.
paracel::update_result count_update = paracel::initialised_by(
    paracel::update_proxy([](double value, double) { return value + 1; }), [](double) { return 0.0; });
