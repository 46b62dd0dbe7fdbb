// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel 0.3's names of types. Needs neither MPI nor the framework's library, so that plug-ins may include it.
#pragma once

#include <paracel/detail/bag.hpp>
#include <paracel/detail/messages.hpp>
#include <paracel/types.hpp>
#include <paracel/update.hpp>

#include "standard_headers.hpp"
#include "utils/hash.hpp"

namespace paracel {

// 0.3's constants. Those below threads_num are only kept for programs that use them: messages now have lengths instead
// of separators, and the default functions are in libparacel_default.so.
inline constexpr int BLK_SZ = 32;      ///< input ranges per worker
inline constexpr int threads_num = 5;  ///< how many ports get_ports returns
inline const std::string seperator = "_PARACEL_";
inline const std::string seperator_inner = "_ps_";
inline const std::string default_so_file = "libparacel_default.so";
inline const std::string default_update_func_name = "paracel_add";

template <class T>
using deque_type = std::deque<T>;
template <class T = std::string>
using set_type = std::set<T>;

/// An edge or a rating: two ids and a weight.
using triple_type = std::tuple<std::string, std::string, double>;
using compact_triple_type = std::tuple<std::uint64_t, std::uint64_t, double>;

using hash_return_type = std::size_t;
template <class T>
using hash_type = utils::hash<T>;
using filter_with_key_result = filter_result;

template <bool Condition, class T = void>
using Enable_if = std::enable_if_t<Condition, T>;
template <bool Condition, class T = void>
using Disable_if = std::enable_if_t<!Condition, T>;
template <class T>
using kernel_type = std::remove_cvref_t<T>;

}  // namespace paracel
