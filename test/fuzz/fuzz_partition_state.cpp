// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes as the state of a partition. Besides not crashing: whatever was applied, the resulting state is
// written as records that another shard accepts and writes back identically.
#include <bitset>
#include <string>
#include <vector>

#include "core/hash.hpp"
#include "property.hpp"
#include "server/node/server.hpp"

namespace {

using namespace paracel;
using namespace paracel::srv;

server make() {
  server_options o;
  o.incarnation = 1;
  o.max_memory_bytes = 64 << 20;
  return server(o);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static server first = make();
  static server second = make();
  const std::vector<std::byte> input(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  // The partition of the key in the first record, so that some keys belong to it.
  records cursor(input);
  record r;
  const auto partition = cursor.next(r) ? partition_of(hash_key(net::text_of(r.key))) : std::uint16_t{0};
  std::string why;
  (void)first.at(0).apply_records(partition, input, why);
  std::vector<std::byte> state;
  first.at(0).encode_partition(partition, state);
  const auto taken = second.at(0).apply_records(partition, state, why);
  require(taken == net::status::ok, "what a shard writes is taken by another", why);
  std::vector<std::byte> again;
  second.at(0).encode_partition(partition, again);
  require(state == again, "and written again as it was");
  const auto one = std::bitset<partition_count>().set(partition);
  first.at(0).drop_partitions(one);
  second.at(0).drop_partitions(one);
  state.clear();
  first.at(0).encode_partition(partition, state);
  require(state.empty(), "a partition that was dropped is empty");
  return 0;
}
