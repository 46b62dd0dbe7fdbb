// SPDX-License-Identifier: BSD-3-Clause
//
// A plug-in with one function of each form.
#include <paracel/update.hpp>

#include <algorithm>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

/// As in programs for Paracel 0.3.
std::vector<double> sum_of_lists(std::vector<double> a, std::vector<double> b) {
  if (a.size() != b.size()) throw std::invalid_argument("lists of different sizes");
  std::vector<double> sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + b[i]);
  return sum;
}

void append(std::vector<double>& value, const std::vector<double>& delta) {
  value.insert(value.end(), delta.begin(), delta.end());
}

std::map<std::string, int> count(std::map<std::string, int> value, const std::pair<std::string, int>& delta) {
  value[delta.first] += delta.second;
  return value;
}

struct step {
  float rate;
  void operator()(std::span<float> value, std::span<const float> gradient) const noexcept {
    for (std::size_t i = 0; i < value.size(); ++i) value[i] -= rate * gradient[i];
  }
};

}  // namespace

extern "C" {
extern paracel::update_result add_lists;
extern paracel::update_result append_list;
extern paracel::update_result count_words;
extern paracel::update_result multiply;
extern paracel::update_result add_unsigned;
extern paracel::update_result half_step;
extern paracel::update_result running_mean;
extern paracel::filter_result begins_with_x;
extern paracel::filter_result is_positive;
}
paracel::update_result add_lists = paracel::additive(paracel::update_proxy(sum_of_lists));
paracel::update_result append_list = paracel::update_proxy(append);
paracel::update_result count_words = paracel::update_proxy(count);
paracel::update_result multiply = paracel::update_proxy<double>([](auto a, auto b) { return a * b; });
paracel::update_result add_unsigned = paracel::update_proxy([](unsigned long a, unsigned long b) { return a + b; });
paracel::update_result half_step = paracel::update_in_place<float>(step{0.5F});
/// The value is {sum, count}, the delta one number.
paracel::update_result running_mean =
    paracel::initialised_by(paracel::update_proxy([](std::vector<double> value, double x) {
                              return std::vector<double>{value.at(0) + x, value.at(1) + 1};
                            }),
                            [](double) {
                              return std::vector<double>{0, 0};
                            });
paracel::filter_result begins_with_x =
    paracel::filter_proxy([](const std::string& key) { return key.starts_with('x'); });
paracel::filter_result is_positive = paracel::filter_proxy([](std::string_view, double value) { return value > 0; });
