// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes as a message of a ps app, with and without a tail, and as the texts of control messages. What is
// accepted encodes to a message that is accepted again, with the same text.
#include <cstdint>
#include <string>

#include <paracel/error.hpp>

#include "property.hpp"
#include "ps/node_table.hpp"
#include "ps/wire.hpp"

namespace {

using namespace paracel;
using namespace paracel::ps_compat;

template <class Parse>
void refuse_or(Parse parse) {
  try {
    parse();
  } catch (const protocol_error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  for (const std::size_t tail : {std::size_t{0}, std::size_t{64}, std::size_t{100'000}}) {
    refuse_or([&] {
      const auto m = decode(bytes, tail == 0 ? shared_buffer() : shared_buffer::allocate(tail));
      std::size_t sum = 0;
      for (const auto& a : m.data) sum += a.size();
      require(sum <= size + tail, "arrays are no longer than the message");
      const auto again = encode(m);
      require(decode(again.body, again.tail).DebugString() == m.DebugString(), "a message is the same again");
    });
  }
  const std::string text(reinterpret_cast<const char*>(data), size);
  refuse_or([&] {
    require(join_request::in(join_request::in(text).text()).text() == join_request::in(text).text(), "join");
  });
  refuse_or([&] { require(job_table::in(job_table::in(text).text()).text() == job_table::in(text).text(), "table"); });
  refuse_or([&] { (void)barrier_end::in(text).text(); });
  refuse_or([&] { (void)loss::in(text).text(); });
  return 0;
}
