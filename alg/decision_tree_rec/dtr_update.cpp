// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel's functions for dtr: the updater keeps the offer (item, error) with the smaller error, the filter accepts the
// keys err_...
#include <cstdint>
#include <string_view>
#include <utility>

#include <paracel/update.hpp>

extern "C" {
extern paracel::update_result smallest_error_updater;
extern paracel::filter_result small_errors_filter;
}

namespace {

using offer = std::pair<std::uint64_t, double>;

offer smaller(const offer& value, const offer& other) { return other.second < value.second ? other : value; }
bool is_error(std::string_view key) { return key.starts_with("err_"); }

}  // namespace

paracel::update_result smallest_error_updater = paracel::update_proxy(smaller);
paracel::filter_result small_errors_filter = paracel::filter_proxy(is_error);
