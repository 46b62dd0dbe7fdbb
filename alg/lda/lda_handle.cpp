// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel's functions for gLDA: counts are added, and the probabilities of words are under key_<topic>_<word>.
#include <cstdint>
#include <string_view>

#include <paracel/add.hpp>
#include <paracel/update.hpp>

extern "C" {
extern paracel::update_result gLDA_word_update;
extern paracel::update_result gLDA_sum_topic_update;
extern paracel::filter_result gLDA_dump_filter;
}

namespace {

bool is_probability(std::string_view key) { return key.starts_with("key_"); }

}  // namespace

paracel::update_result gLDA_word_update =
    paracel::additive(paracel::update_in_place<std::int32_t>(paracel::add_elements()));
paracel::update_result gLDA_sum_topic_update =
    paracel::additive(paracel::update_in_place<std::int32_t>(paracel::add_elements()));
paracel::filter_result gLDA_dump_filter = paracel::filter_proxy(is_probability);
