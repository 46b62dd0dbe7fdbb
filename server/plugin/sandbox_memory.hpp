// SPDX-License-Identifier: BSD-3-Clause
//
// The memory that a server shares with one process of its sandbox (plugin_sandbox.hpp), and the layout of a hand-over
// in it:
//
//     0          sandbox_control
//     4096       most_calls x sandbox_call       the server writes, the process reads
//     ...        most_calls x sandbox_answer     the process writes, the server reads
//     32768      inputs | room for results       `room_at` is the border; places are offsets from the start
//
// In-place functions and optimizers change their value and state where the server has put them. The process may write
// anything anywhere at any time: the server keeps its own copy of what it wrote, and copies what it reads before
// inspecting it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include <paracel/detail/bytes.hpp>
#include <paracel/detail/value.hpp>
#include <paracel/update.hpp>

namespace paracel::srv {

struct sandbox_control {
  // Written by the server.
  std::atomic<std::uint32_t> request;  ///< number of the newest hand-over
  std::uint32_t count;                 ///< number of its calls
  std::uint64_t room_at;               ///< where results may be placed
  std::atomic<std::uint32_t> server_sleeps;
  // Written by the process.
  alignas(64) std::atomic<std::uint32_t> reply;  ///< number of the newest hand-over that has finished
  std::atomic<std::uint32_t> begun;  ///< how many calls have begun; 0: the hand-over has not been seen yet. All of them
                                     ///< are done when it has finished
  std::atomic<std::uint32_t> process_sleeps;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(sandbox_control) <= 4096);

/// Bytes in the shared memory.
struct sandbox_place {
  std::uint64_t at = 0;
  std::uint64_t bytes = 0;
};

enum class sandbox_work : std::uint32_t {
  load,        ///< loads library `value` and, if `delta` is not empty, that symbol of it as function number `function`
  exports,     ///< returns the names of library `value`'s objects whose magic is `number`, each terminated by a zero
  apply,       ///< update_result::apply
  in_place,    ///< update_result::in_place; `value` is changed
  initialise,  ///< update_result::initialise
  step,        ///< optimizer_result::step; `value` and `state` are changed, `extra` has the hyper-parameters
  test,        ///< filter_result::test; `extra` is the key, `tag` is none if it takes no value
};

struct sandbox_call {
  sandbox_work work = sandbox_work::load;
  std::uint32_t function = 0;
  std::uint8_t tag = 0;
  std::uint8_t delta_tag = 0;
  std::uint8_t zero[6] = {};
  std::uint64_t number = 0;  ///< of the step
  sandbox_place value, delta, state, extra;
};

struct sandbox_answer {
  std::int32_t outcome = 0;  ///< abi::outcome
  std::uint8_t tag = 0;      ///< of the result
  std::uint8_t keep = 0;     ///< of a filter
  std::uint8_t zero[2] = {};
  sandbox_place result;
  sandbox_place text;  ///< of a failure
};
static_assert(std::is_trivially_copyable_v<sandbox_call> && std::is_trivially_copyable_v<sandbox_answer>);

/// The answer to `load` if the symbol exists: this, followed by at most sizeof(optimizer_result) of its bytes.
struct sandbox_symbol {
  std::uint64_t size = 0;
  std::uint32_t type = 0;
  std::uint32_t zero = 0;
};

namespace sandbox_layout {

inline constexpr std::size_t most_calls = 64;
inline constexpr std::size_t calls_at = 4096;
inline constexpr std::size_t answers_at = calls_at + most_calls * sizeof(sandbox_call);
inline constexpr std::size_t data_at = 32768;
static_assert(answers_at + most_calls * sizeof(sandbox_answer) <= data_at);
inline constexpr std::size_t most_text_bytes = 1023;
inline constexpr std::size_t alignment = 16;

constexpr std::uint64_t aligned(std::uint64_t at) noexcept { return (at + alignment - 1) / alignment * alignment; }

}  // namespace sandbox_layout

/// An answer that the server has checked. `result` still points into the shared memory: only its size and type are
/// reliable, and its bytes must be copied once.
struct checked_answer {
  abi::outcome outcome = abi::failed;
  value_tag tag = value_tag::none;
  bool keep = false;
  std::span<const std::byte> result;
  std::string text;
};

/// Reads answer number `i`. `room_at` is the server's own copy. Returns: null, or what is wrong with it.
inline const char* parse_answer(std::span<const std::byte> memory, std::uint64_t room_at, std::size_t i,
                                checked_answer& out) {
  namespace layout = sandbox_layout;
  if (memory.size() < layout::data_at || i >= layout::most_calls) return "there is no such answer";
  sandbox_answer a;
  load_fields(memory.data() + layout::answers_at + i * sizeof a, a);
  // From here on `a` is a copy that the process cannot change.
  const auto inside = [&](const sandbox_place& p) {
    return p.bytes == 0 || (p.at >= room_at && p.at <= memory.size() && p.bytes <= memory.size() - p.at);
  };
  if (a.outcome != abi::ok && a.outcome != abi::type_mismatch && a.outcome != abi::failed) return "no such outcome";
  if (a.tag != 0 && !is_known(static_cast<value_tag>(a.tag))) return "a type that does not exist";
  if (!inside(a.result) || !inside(a.text) || a.text.bytes > layout::most_text_bytes) return "a place outside";
  out.outcome = static_cast<abi::outcome>(a.outcome);
  out.tag = static_cast<value_tag>(a.tag);
  out.keep = a.keep != 0;
  out.result = a.result.bytes == 0 ? std::span<const std::byte>() : memory.subspan(a.result.at, a.result.bytes);
  out.text.clear();
  if (a.text.bytes != 0) out.text.assign(reinterpret_cast<const char*>(memory.data() + a.text.at), a.text.bytes);
  // It goes into logs and error texts.
  std::ranges::replace_if(
      out.text, [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t'; }, '.');
  return nullptr;
}

}  // namespace paracel::srv
