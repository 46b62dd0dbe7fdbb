// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel's functions for gLDA: counts are added, and the probabilities of words are under key_<topic>_<word>.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <paracel/update.hpp>

extern "C" {
extern paracel::update_result gLDA_word_update;
extern paracel::update_result gLDA_sum_topic_update;
extern paracel::filter_result gLDA_dump_filter;
}

namespace {

void add(std::span<std::int32_t> value, std::span<const std::int32_t> delta) noexcept {
  for (std::size_t i = 0; i < value.size(); ++i)
    value[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(value[i]) + static_cast<std::uint32_t>(delta[i]));
}
bool is_probability(std::string_view key) { return key.starts_with("key_"); }

}  // namespace

paracel::update_result gLDA_word_update = paracel::additive(paracel::update_in_place<std::int32_t>(add));
paracel::update_result gLDA_sum_topic_update = paracel::additive(paracel::update_in_place<std::int32_t>(add));
paracel::filter_result gLDA_dump_filter = paracel::filter_proxy(is_probability);
