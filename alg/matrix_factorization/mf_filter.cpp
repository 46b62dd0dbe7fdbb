// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel's filters for mf: the keys of one part of the model.
#include <string_view>

#include <paracel/update.hpp>

extern "C" {
extern paracel::filter_result mf_ubias_filter;
extern paracel::filter_result mf_ibias_filter;
extern paracel::filter_result mf_W_filter;
extern paracel::filter_result mf_H_filter;
extern paracel::filter_result mf_cntx_filter;
extern paracel::filter_result mf_cnty_filter;
}

paracel::filter_result mf_ubias_filter =
    paracel::filter_proxy([](std::string_view key) { return key.starts_with("usr_bias_"); });
paracel::filter_result mf_ibias_filter =
    paracel::filter_proxy([](std::string_view key) { return key.starts_with("item_bias_"); });
paracel::filter_result mf_W_filter = paracel::filter_proxy([](std::string_view key) { return key.starts_with("W_"); });
paracel::filter_result mf_H_filter = paracel::filter_proxy([](std::string_view key) { return key.starts_with("H_"); });
paracel::filter_result mf_cntx_filter =
    paracel::filter_proxy([](std::string_view key) { return key.ends_with("_u_cnt"); });
paracel::filter_result mf_cnty_filter =
    paracel::filter_proxy([](std::string_view key) { return key.ends_with("_i_cnt"); });
