// SPDX-License-Identifier: BSD-3-Clause
//
// Functions for the algorithms' state on the servers, with rules that differ from the shipped ones, so that a test can
// tell that they were run: half the centres, twice the counts, only even points, links, items and words. Each starts a
// missing key from zero or empty, so that the first contribution is treated like all others.
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <paracel/update.hpp>

extern "C" {
extern paracel::update_result half_centres;
extern paracel::update_result even_groups;
extern paracel::update_result twice_words;
extern paracel::update_result even_links;
extern paracel::update_result four_times;
extern paracel::update_result smallest_error_updater;
extern paracel::update_result gLDA_word_update;
extern paracel::update_result gLDA_sum_topic_update;
extern paracel::update_result twice_number;
extern paracel::update_result unmoved;
extern paracel::update_result throws;
extern paracel::filter_result even_keys;
extern paracel::filter_result odd_keys;
extern paracel::filter_result odd_users_bias;
extern paracel::filter_result even_items_bias;
extern paracel::filter_result even_users;
extern paracel::filter_result odd_items;
extern paracel::filter_result even_item_counts;
extern paracel::filter_result small_errors_filter;
extern paracel::filter_result gLDA_dump_filter;
extern paracel::filter_result throwing_filter;
}

namespace {

using centres = std::vector<std::vector<double>>;
using groups = std::unordered_map<int, std::vector<std::string>>;
using words = std::unordered_map<std::string, int>;
using links = std::vector<std::pair<std::uint64_t, double>>;
using offer = std::pair<std::uint64_t, double>;

bool is_even(std::string_view text) {
  std::size_t last = text.size();
  while (last > 0 && (text[last - 1] < '0' || text[last - 1] > '9')) --last;
  return last > 0 && (text[last - 1] - '0') % 2 == 0;
}

centres add_half(centres value, const centres& part) {
  for (std::size_t c = 0; c < value.size(); ++c)
    for (std::size_t j = 0; j < value[c].size(); ++j) value[c][j] += part[c][j] / 2;
  return value;
}
centres zeros(const centres& part) {
  auto none = part;
  for (auto& c : none) c.assign(c.size(), 0);
  return none;
}
groups join_even(groups value, const groups& part) {
  for (const auto& [cluster, points] : part)
    for (const auto& p : points)
      if (is_even(p)) value[cluster].push_back(p);
  return value;
}
words add_twice(words value, const words& part) {
  for (const auto& [word, n] : part) value[word] += 2 * n;
  return value;
}
links join_even_sources(links value, const links& part) {
  for (const auto& link : part)
    if (link.first % 2 == 0) value.push_back(link);
  return value;
}
offer larger(const offer& value, const offer& other) { return other.second > value.second ? other : value; }
std::vector<double> add_four_times(std::vector<double> value, const std::vector<double>& part) {
  for (std::size_t i = 0; i < value.size(); ++i) value[i] += 4 * part[i];
  return value;
}
std::vector<int> add_counts(std::vector<int> value, const std::vector<int>& part) {
  for (std::size_t i = 0; i < value.size(); ++i) value[i] += part[i];
  return value;
}
void fail(std::span<double> /*value*/, std::span<const double> /*part*/) { throw std::runtime_error("no more today"); }

}  // namespace

paracel::update_result half_centres = paracel::initialised_by(paracel::update_proxy(add_half), zeros);
paracel::update_result even_groups =
    paracel::initialised_by(paracel::update_proxy(join_even), [](const groups&) { return groups(); });
paracel::update_result twice_words =
    paracel::initialised_by(paracel::update_proxy(add_twice), [](const words&) { return words(); });
paracel::update_result even_links =
    paracel::initialised_by(paracel::update_proxy(join_even_sources), [](const links&) { return links(); });
paracel::update_result four_times =
    paracel::initialised_by(paracel::update_proxy(add_four_times),
                            [](const std::vector<double>& part) { return std::vector<double>(part.size()); });
paracel::update_result smallest_error_updater = paracel::update_proxy(larger);
// Counts one token too many in each topic.
paracel::update_result gLDA_word_update = paracel::initialised_by(
    paracel::update_proxy(add_counts), [](const std::vector<int>& part) { return std::vector<int>(part.size(), 1); });
paracel::update_result gLDA_sum_topic_update = paracel::update_proxy([](int value, int part) { return value + part; });
paracel::update_result twice_number = paracel::initialised_by(
    paracel::update_proxy([](int value, int part) { return value + 2 * part; }), [](int) { return 0; });
paracel::update_result unmoved =
    paracel::update_in_place<double>([](std::span<double>, std::span<const double>) noexcept {});
paracel::update_result throws = paracel::update_in_place<double>(fail);
paracel::filter_result even_keys = paracel::filter_proxy(is_even);
paracel::filter_result odd_keys = paracel::filter_proxy([](std::string_view key) { return !is_even(key); });
paracel::filter_result odd_users_bias =
    paracel::filter_proxy([](std::string_view key) { return key.starts_with("usr_bias_") && !is_even(key); });
paracel::filter_result even_items_bias =
    paracel::filter_proxy([](std::string_view key) { return key.starts_with("item_bias_") && is_even(key); });
paracel::filter_result even_users =
    paracel::filter_proxy([](std::string_view key) { return key.starts_with("W_") && is_even(key); });
paracel::filter_result odd_items =
    paracel::filter_proxy([](std::string_view key) { return key.starts_with("H_") && !is_even(key); });
paracel::filter_result even_item_counts =
    paracel::filter_proxy([](std::string_view key) { return key.ends_with("_i_cnt") && is_even(key); });
paracel::filter_result small_errors_filter =
    paracel::filter_proxy([](std::string_view key) { return key.starts_with("err_") && is_even(key); });
paracel::filter_result gLDA_dump_filter =
    paracel::filter_proxy([](std::string_view key) { return key.starts_with("key_") && is_even(key); });
paracel::filter_result throwing_filter =
    paracel::filter_proxy([](std::string_view) -> bool { throw std::runtime_error("not this key"); });
