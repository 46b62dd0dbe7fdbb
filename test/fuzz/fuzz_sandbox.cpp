// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes as what a sandbox process has written: accepted results lie in the room for results.
#include <cstdint>
#include <cstring>
#include <vector>

#include "property.hpp"
#include "server/plugin/sandbox_memory.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paracel::srv;
  namespace layout = paracel::srv::sandbox_layout;
  if (size < 3) return 0;
  const std::size_t index = data[0] % (layout::most_calls + 1);
  const std::uint64_t inputs = data[1] + 256U * data[2];
  data += 3;
  size -= 3;
  // Exactly this size, so that a sanitizer detects reads beyond it.
  std::vector<std::byte> memory(layout::data_at + size);
  const auto answers = memory.size() - layout::answers_at;
  std::memcpy(memory.data() + layout::answers_at, data, std::min(size, answers));
  std::memcpy(memory.data() + layout::data_at, data, size);
  const auto room_at = std::min<std::uint64_t>(layout::data_at + inputs, memory.size());
  checked_answer out;
  if (parse_answer(memory, room_at, index, out) != nullptr) return 0;
  require(index < layout::most_calls, "an answer that there is");
  require(out.outcome >= paracel::abi::ok && out.outcome <= paracel::abi::failed, "an outcome that there is");
  require(paracel::is_known(out.tag), "a type that there is");
  require(out.text.size() <= layout::most_text_bytes, "a text of limited size");
  if (!out.result.empty()) {
    require(out.result.data() >= memory.data() + room_at, "the result is behind the inputs");
    require(out.result.data() + out.result.size() <= memory.data() + memory.size(), "the result is in the memory");
    unsigned sum = 0;
    for (const auto b : out.result) sum += std::to_integer<unsigned>(b);
    require(sum != ~0U, "it can be read");
  }
  return 0;
}
