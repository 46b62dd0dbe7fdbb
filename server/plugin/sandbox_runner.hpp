// SPDX-License-Identifier: BSD-3-Clause
//
// A thread's part of the sandbox: its process, and the hand-overs to it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/detail/value.hpp>
#include <paracel/update.hpp>

#include "server/plugin/plugin_sandbox.hpp"
#include "server/plugin/sandbox_process.hpp"

namespace paracel::srv {

/// A function as the sandbox knows it.
struct sandboxed_function {
  plugin_sandbox* owner;
  std::uint32_t number;
  plugin_file file;  ///< of the library, as registered
  std::string symbol;
  std::string name;  ///< "libx.so:f"
};

/// A call with its arguments, which are copied before it runs.
struct sandboxed_call {
  sandbox_work work = sandbox_work::apply;
  std::uint8_t tag = 0;
  std::uint8_t delta_tag = 0;
  std::uint64_t number = 0;
  std::span<const std::byte> value{}, delta{}, state{}, extra{};
};

/// What it returned. The spans are valid until the next call.
struct sandboxed_result {
  abi::outcome outcome = abi::failed;
  value_tag tag = value_tag::none;
  bool keep = false;
  std::span<const std::byte> result;  ///< the new value
  std::span<const std::byte> state;   ///< of an optimizer: the new state
  std::string text;                   ///< of a failure
  bool ended_process = false;
  bool late = false;  ///< it was killed for taking too long
};

/// Thread-safety: owned by one thread.
class sandbox_runner {
 public:
  explicit sandbox_runner(plugin_sandbox& of) : of_(of) {}

  /// The result of an announced call with these arguments, or else of a call made now. Throws: plugin_error when the
  /// function cannot be called at all, std::bad_alloc.
  const sandboxed_result& call(const sandboxed_function& f, const sandboxed_call& c);

  /// Runs these calls of one function, as many at a time as fit, and keeps the results for `call`. Large ones are
  /// skipped, and so is the rest once the calls prove slow. Blocks: about 20 ms and one call for each hand-over.
  /// Throws: as `call`.
  void announce(const sandboxed_function& f, std::span<const sandboxed_call> calls);
  /// Drops what was announced and not called.
  void forget() noexcept { announced_ = next_ = 0; }

  /// Hand-overs so far.
  [[nodiscard]] std::uint64_t handed_over() const noexcept { return handed_over_; }

  /// Loads the library of `f` and, if it has one, its symbol, into the process. Returns: the symbol, its type and size,
  /// and its bytes as far as they matter; nothing when there is none. Throws: plugin_error, also when the file is not
  /// the one that was registered.
  struct loaded_symbol {
    sandbox_symbol about;
    std::vector<std::byte> bytes;
  };
  std::optional<loaded_symbol> load(const sandboxed_function& f);
  /// The names of the objects with this magic. Throws: plugin_error.
  std::vector<std::string> exports(const plugin_file& file, std::uint32_t magic);

 private:
  /// An announced call: its arguments, concatenated in `bytes`, and what it returned.
  struct memo {
    const sandboxed_function* f = nullptr;
    sandboxed_call call;  ///< of its spans only the sizes are valid
    std::vector<std::byte> bytes;
    std::vector<std::byte> result;
    sandboxed_result out;
  };

  [[nodiscard]] bool matches(const memo& m, const sandboxed_function& f, const sandboxed_call& c) const noexcept;
  void remember(const sandboxed_function& f, const sandboxed_call& c, const sandboxed_result& r);
  sandbox_process& process();
  void lose_process() noexcept;
  template <class Done>
  std::size_t hand_over(const sandboxed_function& f, std::span<const sandboxed_call> calls, const Done& done);
  std::size_t write(std::span<const sandboxed_call> calls, std::uint32_t function);
  bool place(std::span<const std::byte> bytes, sandbox_place& out) noexcept;
  [[nodiscard]] bool read(std::size_t i, sandboxed_result& out);
  static void fail(sandboxed_result& out, const sandbox_process::result& r, std::chrono::milliseconds limit);
  void run_alone(const sandboxed_call& c, std::uint32_t function, sandboxed_result& out);
  void explain_memory(std::string& text) const;

  plugin_sandbox& of_;
  std::unique_ptr<sandbox_process> process_;
  std::vector<bool> loaded_;           // by number, in this process
  std::vector<sandbox_call> written_;  // of the current hand-over: the process may have changed the shared copy
  std::uint64_t room_at_ = 0;          // of the current hand-over
  std::uint64_t touched_ = 0;          // extent of the shared memory used since it was last released
  sandboxed_result result_;
  std::vector<memo> memos_;  // the first `announced_` are valid; capacities are reused
  std::size_t announced_ = 0;
  std::size_t next_ = 0;
  std::uint64_t handed_over_ = 0;
};

}  // namespace paracel::srv
