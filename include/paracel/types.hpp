// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
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

/// Splits a line of input into fields.
using parser_type = std::function<list_type<str_type>(str_type)>;

/// How `Comm::allreduce` combines. The numbers are part of the wire format.
enum class reduce_op : std::uint8_t { sum = 0, max = 1, min = 2 };

/// How reads and updates of different workers are ordered.
enum class consistency_model {
  asp,  ///< s = infinity: reads never wait
  ssp,  ///< the rule of paralg.hpp with s = limit_s; reads are served from a cache while it is fresh enough
  bsp,  ///< s = 0, and updates take effect when the clock ticks, in rank order: runs are bit-identical
};

/// Hyper-parameters of an optimizer by name: {{"lr", 0.1}, {"eps", 1e-8}}. Omitted ones have their defaults.
using hyper_parameters = std::map<std::string, double>;

/// A function in a plug-in of the servers: an update function, or an optimizer with its hyper-parameters (its state is
/// stored beside the value). Calls that take one mean the registered one when it is omitted.
struct plugin_function {
  str_type file_name{};  ///< only its base name matters; its folder must be allowed, as for paracel_register_update
  str_type func_name{};
  hyper_parameters hyper{};

  [[nodiscard]] bool given() const noexcept { return !file_name.empty() || !func_name.empty() || !hyper.empty(); }
};
inline const plugin_function registered_function{};

class parasrv;

/// The future of an asynchronous call of a paralg. `wait` and `get` drive its client, so call them on the thread that
/// owns the paralg, and before it is destroyed. A future may be ignored at no cost: an error of its request is then
/// thrown by the paralg's next waiting point.
///
/// Cost: two numbers and a reference count, no allocation of its own.
class async_result {
 public:
  async_result() = default;
  /// From any future, so that one list may hold both.
  async_result(std::future<bool> other) noexcept  // NOLINT(google-explicit-constructor): as the operator below
      : other_(std::move(other)) {}
  /// False after `get`, when moved from, or when never set.
  [[nodiscard]] bool valid() const noexcept { return other_.valid() || (from_ != nullptr && !requests_); }
  /// True: done. False: a read of a missing key. May be called once.
  /// Blocks: until the server has answered. Throws: the error of the request; error when the paralg is destroyed.
  bool get();
  /// Blocks: until the server has answered. Errors are left to `get`.
  void wait() const;
  /// Whether `get` would return at once. Processes replies that have arrived; never blocks.
  [[nodiscard]] bool ready() const;
  /// The same as a deferred std::future, for code that names that type.
  operator std::future<bool>() &&;  // NOLINT(google-explicit-constructor): async_functor_type was a std::future

 private:
  friend class parasrv;
  friend class after;
  async_result(std::shared_ptr<parasrv*> from, std::uint64_t number) noexcept
      : from_(std::move(from)), number_(number) {}
  /// `requests`: what `other` waits for; empty until it is sent.
  async_result(std::shared_ptr<parasrv*> from, std::future<bool> other,
               std::shared_ptr<const std::vector<std::uint64_t>> requests) noexcept
      : other_(std::move(other)), from_(std::move(from)), requests_(std::move(requests)) {}
  std::future<bool> other_;
  std::shared_ptr<parasrv*> from_;  // null inside once the paralg is destroyed
  std::uint64_t number_ = 0;        // of the request
  std::shared_ptr<const std::vector<std::uint64_t>> requests_;
};

/// What `paracel_update` returns: true once the server has acknowledged the update.
using async_functor_type = async_result;

/// Requests that must be answered before another one is sent; given by their futures, which are not consumed:
///
///     auto a = paracel_update("part/1", x), b = paracel_update("part/2", y);
///     paracel_update("version", 1.0, after(a, b));
///
/// The other one is sent once they are answered, whichever servers they went to; the caller does not block. Throws:
/// error for a future whose `get` was called, or that is not of a request.
class after {
 public:
  explicit after(const std::vector<async_result>& all) {
    for (const auto& f : all) add(f);
  }
  template <std::same_as<async_result>... More>
  explicit after(const async_result& first, const More&... more) {
    add(first);
    (add(more), ...);
  }
  void add(const async_result& f);

 private:
  friend class parasrv;
  struct request {
    std::uint64_t number = 0;
    std::shared_ptr<const std::vector<std::uint64_t>> several{};  // instead of a number
  };
  std::vector<request> requests_;
  std::shared_ptr<parasrv*> from_;
};

}  // namespace paracel
