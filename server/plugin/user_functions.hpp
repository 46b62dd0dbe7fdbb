// SPDX-License-Identifier: BSD-3-Clause
//
// Loaded user functions, and how one is called.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/detail/value.hpp>
#include <paracel/update.hpp>

#include "server/plugin/sandbox_runner.hpp"

namespace paracel::srv {

/// Why a function is blocked: it has killed a server (last_words.hpp). Thread-safety: any thread.
class refusal_of_function {
 public:
  /// Null: it is not blocked. Cost: a load.
  [[nodiscard]] const std::string* why() const noexcept { return why_.load(std::memory_order_acquire); }
  /// Lifetime: `why` must outlive the function.
  void set(const std::string& why) const noexcept { why_.store(&why, std::memory_order_release); }

 private:
  mutable std::atomic<const std::string*> why_{nullptr};
};

struct loaded_update {
  std::uint64_t id = 0;  ///< XXH3-64 of plug-in content, symbol and kind: the same on every server
  std::string name;      ///< "libx.so:f", for logs and error texts
  /// For an optimizer: a stub that rejects every call with a text, so that only code aware of optimizers steps them.
  const update_result* function = nullptr;
  bool additive = false;
  const optimizer_result* optimizer = nullptr;  ///< null: an update function
  std::uint64_t family = 0;                     ///< of an optimizer: its id without the hyper-parameters
  std::array<double, abi::most_hyper_parameters> hyper{};
  bool sandboxed = false;  ///< `function` and `optimizer` are stand-ins, which call another process
  refusal_of_function refused{};

  [[nodiscard]] bool counts_steps() const noexcept {
    return optimizer != nullptr && (optimizer->flags & abi::counts_steps) != 0;
  }
};
struct loaded_filter {
  std::uint64_t id = 0;
  std::string name;
  const filter_result* function = nullptr;
  bool sandboxed = false;
  refusal_of_function refused{};
};

/// How to run an update of `current` by `delta`.
enum class apply_path : std::uint8_t {
  in_place,  ///< make the value's memory writable and use apply_in_place
  general,   ///< use apply, then store the result
};
[[nodiscard]] apply_path path_of(const loaded_update& u, const value_view& current, const value_view& delta) noexcept;

// Each of these returns a failure as text in `error`, and in `outcome` (if requested) whether it is due to types
// or to the function. None rethrows what a plug-in threw. A blocked function fails with the reason, and is not
// called.

/// Whether `apply_in_place` cannot fail: the function is declared noexcept, its types and sizes match, and the
/// delta needs no conversion. The reply may then be sent before it runs.
[[nodiscard]] bool cannot_fail(const loaded_update& u, const value_view& current, const value_view& delta) noexcept;

/// Whether an update of `current` by `delta` may succeed, judging by types and sizes. False: `error` says why not.
[[nodiscard]] bool fits(const loaded_update& u, const value_view& current, const value_view& delta, std::string& error);

/// Runs the in-place form on `value`, which must be aligned to its element and keeps its size. A delta that is not
/// aligned or of a narrower type is first converted into a thread-local buffer.
///
/// Returns true when done. False: `error` says why, and the value is as before (for a function that may throw
/// a backup copy is kept; one declared noexcept needs none).
[[nodiscard]] bool apply_in_place(const loaded_update& u, value_tag tag, std::span<std::byte> value,
                                  const value_view& delta, std::string& error, abi::outcome* outcome = nullptr);

/// Whether the optimizer of `u` accepts elements of this type.
[[nodiscard]] bool steps(const loaded_update& u, value_tag element) noexcept;

/// One step of an optimizer on a value of type `tag`, which keeps its size; `state` is as in `optimizer_result::step`.
/// The gradient is converted like the delta of `apply_in_place`.
///
/// Returns true when done. False: `error` says why, and value and state are as before.
[[nodiscard]] bool apply_step(const loaded_update& u, value_tag tag, std::span<std::byte> value,
                              std::span<std::byte> state, std::uint64_t number, const value_view& gradient,
                              std::string& error, abi::outcome* outcome = nullptr);

/// Computes the new value into `out` (its capacity is reused) and returns its tag. Works with every function.
/// value_tag::none: failed, `error` says why. `out` must not hold `current` or `delta`.
[[nodiscard]] value_tag apply(const loaded_update& u, const value_view& current, const value_view& delta,
                              std::vector<std::byte>& out, std::string& error, abi::outcome* outcome = nullptr);

/// The value of a missing key after its first update: the delta, widened to the function's type; or the result of
/// the function's initialiser, updated. As `apply` otherwise.
[[nodiscard]] value_tag apply_to_missing(const loaded_update& u, const value_view& delta, std::vector<std::byte>& out,
                                         std::string& error, abi::outcome* outcome = nullptr);

/// Whether the filter accepts this key. `value` is read only if the filter needs it.
/// Returns nothing when it failed: `error` says why. Never rethrows what a plug-in threw.
[[nodiscard]] std::optional<bool> test(const loaded_filter& f, std::string_view key, const value_view& value,
                                       std::string& error, abi::outcome* outcome = nullptr);

/// Calls of one function that are about to be made: a sandboxed one runs them in one hand-over, and each call then
/// finds its result. A call with other arguments is made as usual. Without a sandbox nothing happens.
///
/// Only for calls on distinct keys: a second call on a key needs the result of the first. The function runs for every
/// announced call, even if that call is never made.
class expected_calls {
 public:
  explicit expected_calls(const loaded_update* u) noexcept : update_(u != nullptr && u->sandboxed ? u : nullptr) {}
  explicit expected_calls(const loaded_filter* f) noexcept : filter_(f != nullptr && f->sandboxed ? f : nullptr) {}
  /// Drops results that were not used.
  ~expected_calls();
  expected_calls(const expected_calls&) = delete;
  expected_calls& operator=(const expected_calls&) = delete;

  /// Whether announcing calls is of any use.
  [[nodiscard]] bool wanted() const noexcept { return update_ != nullptr || filter_ != nullptr; }
  /// A call of `apply` or `apply_in_place`. The bytes must stay valid until `run`.
  void add(const value_view& current, const value_view& delta);
  /// A call of `test`.
  void add(std::string_view key, const value_view& value);
  /// Runs the announced calls. Failures are reported when the calls are made.
  void run() noexcept;

 private:
  [[nodiscard]] const void* context() const noexcept;

  const loaded_update* update_ = nullptr;
  const loaded_filter* filter_ = nullptr;
  std::vector<sandboxed_call> calls_;
};

}  // namespace paracel::srv
