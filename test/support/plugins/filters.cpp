// SPDX-License-Identifier: BSD-3-Clause
//
// Filters of each form, and some that fail.
#include <paracel/update.hpp>

#include <chrono>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

extern "C" {
extern paracel::filter_result ends_with_seven;
extern paracel::filter_result at_least_half;
extern paracel::filter_result longer_than_two;
extern paracel::filter_result throws_at_bad;
extern paracel::filter_result throws_number;
extern paracel::filter_result takes_its_time;
extern paracel::update_result not_a_filter;
extern paracel::filter_result has_no_function;
extern paracel::filter_result of_another_abi;
}

paracel::filter_result ends_with_seven =
    paracel::filter_proxy([](const std::string& key) { return key.ends_with('7'); });
paracel::filter_result at_least_half =
    paracel::filter_proxy([](std::string_view, double value) { return value >= 0.5; });
paracel::filter_result longer_than_two =
    paracel::filter_proxy([](const std::string&, const std::vector<double>& value) { return value.size() > 2; });
paracel::filter_result throws_at_bad = paracel::filter_proxy([](std::string_view key) {
  if (key.starts_with("bad")) throw std::runtime_error("does not like this key");
  return true;
});
paracel::filter_result throws_number = paracel::filter_proxy([](std::string_view) -> bool { throw 7; });
paracel::filter_result takes_its_time = paracel::filter_proxy([](std::string_view) {
  std::this_thread::sleep_for(std::chrono::microseconds(20));
  return true;
});
paracel::update_result not_a_filter = paracel::update_proxy([](double a, double b) { return a + b; });
paracel::filter_result has_no_function = [] {
  auto f = paracel::filter_proxy([](std::string_view) { return true; });
  f.test = nullptr;
  return f;
}();
paracel::filter_result of_another_abi = [] {
  auto f = paracel::filter_proxy([](std::string_view) { return true; });
  ++f.abi_version;
  return f;
}();
