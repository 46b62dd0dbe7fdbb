// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace paracel {

using str_type = std::string;
using default_id_type = std::uint64_t;
template <class T>
using list_type = std::vector<T>;
template <class K, class V>
using dict_type = std::unordered_map<K, V>;

/// Takes a line of input apart.
using parser_type = std::function<list_type<str_type>(str_type)>;

/// How `Comm::allreduce` combines. The numbers are part of the wire format.
enum class reduce_op : std::uint8_t { sum = 0, max = 1, min = 2 };

/// How reads and updates of different workers are ordered.
enum class consistency_model {
  asp,  ///< s = infinity: reads never wait
  ssp,  ///< the rule of paralg.hpp with s = limit_s; reads are answered from a cache while it is fresh enough
  bsp,  ///< s = 0, and updates take effect when the clock moves, in rank order: runs are bit-identical
};

/// Hyper-parameters of an optimizer by name: {{"lr", 0.1}, {"eps", 1e-8}}. One that is not named has its default.
using hyper_parameters = std::map<std::string, double>;

/// What `paracel_update` returns: true once the server has acknowledged the update. It is deferred: `wait()` or `get()`
/// drives the client that made it, so call them on the thread that owns the `paralg`.
using async_functor_type = std::future<bool>;

}  // namespace paracel
