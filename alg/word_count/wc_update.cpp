// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel's functions for wc: dictionaries of counts are added word by word, and those under key_... are read.
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include <paracel/update.hpp>

extern "C" {
extern paracel::update_result wc_updater;
extern paracel::update_result wc_updater_slow;
extern paracel::filter_result wc_filter;
}

namespace {

using counts = std::unordered_map<std::string, std::int64_t>;

void add(counts& value, const counts& delta) {
  for (const auto& [word, n] : delta) value[word] += n;
}
int add_one(int value, int delta) { return value + delta; }
bool is_dictionary(std::string_view key) { return key.starts_with("key_"); }

}  // namespace

paracel::update_result wc_updater = paracel::update_proxy(add);
paracel::update_result wc_updater_slow = paracel::update_proxy(add_one);
paracel::filter_result wc_filter = paracel::filter_proxy(is_dictionary);
