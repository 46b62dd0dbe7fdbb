// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
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

class parasrv;

/// What a call that returns at once gives: a future of the paralg that made it. `wait` and `get` drive its client, so
/// call them on the thread that owns the paralg, and before it goes. A future that is not asked costs nothing; what its
/// request failed with is thrown by the next waiting point of the paralg.
///
/// Cost: two numbers and a reference count, no memory of its own.
class async_result {
 public:
  async_result() = default;
  /// Any future: a list of them may hold both.
  async_result(std::future<bool> other) noexcept  // NOLINT(google-explicit-constructor): as the operator below
      : other_(std::move(other)) {}
  /// False when it was asked already, moved away or never made.
  [[nodiscard]] bool valid() const noexcept { return other_.valid() || (from_ != nullptr && !requests_); }
  /// True: done. False: a read of a key that is not there. May be asked once.
  /// Blocks: until the server has answered. Throws: what went wrong there; error when the paralg has gone.
  bool get();
  /// Blocks: until the server has answered. What went wrong is left to `get`.
  void wait() const;
  /// Whether `get` would return at once. Takes in what has arrived; never blocks.
  [[nodiscard]] bool ready() const;
  /// The same as a deferred std::future, for code that names that type.
  operator std::future<bool>() &&;  // NOLINT(google-explicit-constructor): async_functor_type was a std::future

 private:
  friend class parasrv;
  async_result(std::shared_ptr<parasrv*> from, std::uint64_t number) noexcept
      : from_(std::move(from)), number_(number) {}
  /// `requests`: what `other` waits for; empty as long as it is not sent.
  async_result(std::shared_ptr<parasrv*> from, std::future<bool> other,
               std::shared_ptr<const std::vector<std::uint64_t>> requests) noexcept
      : other_(std::move(other)), from_(std::move(from)), requests_(std::move(requests)) {}
  std::future<bool> other_;
  std::shared_ptr<parasrv*> from_;  // null inside once the paralg has gone
  std::uint64_t number_ = 0;        // of the request
  std::shared_ptr<const std::vector<std::uint64_t>> requests_;
};

/// What `paracel_update` returns: true once the server has acknowledged the update.
using async_functor_type = async_result;

}  // namespace paracel
