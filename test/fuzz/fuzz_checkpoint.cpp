// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes as a checkpoint file, as a manifest and as a worker's saved state: accepted or rejected with a
// reason, never using more memory than there are bytes. Accepted input is written back identically. An odd first byte
// repairs the checksums first, so that the parsers behind them are reached.
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <paracel/detail/saved_state.hpp>
#include <paracel/error.hpp>

#include "core/hash.hpp"
#include "core/hex.hpp"
#include "property.hpp"
#include "storage/checkpoint_file.hpp"
#include "storage/checkpoint_store.hpp"
#include "test/support/crash_disk.hpp"

namespace {

using namespace paracel;
using bytes = std::vector<std::byte>;

template <class T>
T load(const bytes& b, std::size_t at) {
  T v;
  std::memcpy(&v, b.data() + at, sizeof v);
  return v;
}
template <class T>
void store(bytes& b, std::size_t at, T v) {
  std::memcpy(b.data() + at, &v, sizeof v);
}

void repair(bytes& b) {
  if (b.size() < storage::checkpoint_header_bytes + storage::checkpoint_footer_bytes) return;
  std::memcpy(b.data(), "PRCLCKPT", 8);
  store(b, 8, storage::checkpoint_version);
  std::vector<std::uint64_t> sums{hash_block(std::span(b).first(56), 0)};
  store(b, 56, sums[0]);
  const auto end = b.size() - storage::checkpoint_footer_bytes;
  std::size_t at = storage::checkpoint_header_bytes;
  while (end - at >= storage::checkpoint_block_front_bytes) {
    const auto n = load<std::uint32_t>(b, at);
    if (n > end - at - 16) break;
    sums.push_back(hash_block(std::span(b).subspan(at + 16, n), load<std::uint64_t>(b, at)));
    store(b, at + 8, sums.back());
    at += 16 + n;
  }
  store<std::uint64_t>(b, end, sums.size() - 1);
  store<std::uint64_t>(b, end + 8, b.size());
  running_hash h;
  h.add(std::as_bytes(std::span(sums)));
  h.add(std::span(b).subspan(end, 16));
  store(b, end + 16, h.value());
  std::memcpy(b.data() + end + 24, "PRCLDONE", 8);
}

void try_file(const bytes& content) {
  test::crash_disk disk;
  const auto file = disk.create("in");
  file->append(content);
  file->commit();
  try {
    storage::checkpoint_reader r(disk, "in");
    std::vector<std::pair<std::uint32_t, bytes>> all;
    std::uint32_t section = 0;
    bytes payload;
    while (r.next(section, payload)) all.emplace_back(section, payload);
    require(r.digest() == storage::checkpoint_digest{content.size(), hash_block(content, 0)},
            "the digest is the file's");
    storage::checkpoint_writer w(disk, "out", r.header());
    for (const auto& [s, p] : all) w.add(s, p);
    w.finish();
    require(disk.bytes_of("out").size() <= content.size(), "sections are written in as few blocks as possible");
  } catch (const data_error& e) {
    require(std::strncmp(e.what(), "in: byte ", 9) == 0, "the reason names file and offset");
  }
}

void try_manifest(const bytes& content) {
  const std::string text(reinterpret_cast<const char*>(content.data()), content.size());
  for (const bool framed : {false, true}) {
    auto t = text;
    if (framed) t = R"({"checkpoint":)" + text + R"(,"xxh3":")" + to_hex(hash_block(content, 0)) + "\"}\n";
    try {
      require(storage::checkpoint_manifest::from_text(t, "m").to_text() == t, "what is accepted is what is written");
    } catch (const data_error&) {
    }
  }
}

void try_saved_state(const bytes& content) {
  try {
    const auto s = saved_state::from_bytes(content);
    // Names may be in another order at first, and are then stable.
    const auto again = s.to_bytes();
    require(again.size() == content.size(), "nothing is lost");
    require(saved_state::from_bytes(again).to_bytes() == again, "what is written is read");
  } catch (const protocol_error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const auto* from = reinterpret_cast<const std::byte*>(data);
  bytes content(from + 1, from + size);
  if (data[0] % 4 == 3) {
    if (data[0] % 8 == 3) try_manifest(content);
    else try_saved_state(content);
    return 0;
  }
  if (data[0] % 2 == 1) repair(content);
  try_file(content);
  return 0;
}
