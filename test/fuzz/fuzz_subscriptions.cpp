// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes as a subscription at a shard that holds a few keys: it gets one reply, immediately or when the clock
// advances, and an accepted one has an item for each of its keys.
#include <atomic>
#include <cstdint>
#include <vector>

#include "property.hpp"
#include "server/shard/subscriptions.hpp"

namespace {

using namespace paracel;
using namespace paracel::srv;

class counting final : public reply_sink {
 public:
  void send(const net::peer&, const net::outgoing& message) override {
    std::vector<std::byte> frame(message.head.begin(), message.head.end());
    frame.insert(frame.end(), message.body.begin(), message.body.end());
    net::reply_view reply;
    require(net::decode(frame, message.tail.size(), reply) == nullptr, "the answer is a reply");
    ++answers;
    ok = reply.header.result == net::status::ok;
    net::reply_items items(reply.body, reply.header.count);
    for (net::reply_item i; items.next(i);) {
    }
    require(!ok || items.ok(), "an answer holds as many items as it says");
    count = reply.header.count;
  }
  int answers = 0;
  bool ok = false;
  std::uint32_t count = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static const std::atomic<const ownership*> owned{nullptr};
  static key_store keys(shard_settings{}, owned);  // 16,384 tables: created once
  if (keys.size() == 0) {
    for (const char* key : {"a", "b", ""}) {
      const double d = 1;
      keys.store(hash_key(key), key, {value_tag::f64, std::as_bytes(std::span(&d, 1))});
    }
  }
  const auto* from = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> body(from + 2, from + size);  // exact size, so that reads beyond it are detected
  net::request_view r;
  r.header.what = net::verb::subscribe;
  r.header.clock = data[0];
  r.header.count = data[1];
  r.body = body;
  counting sink;
  subscriptions s(keys);
  s.clock_moved(100);
  s.subscribe(r, completion(sink, {}, r.header.what, 1, 0, 0));
  const bool accepted = is_subscription(body, r.header.count);
  require(sink.answers == (!accepted || data[0] < 100 ? 1 : 0), "answered at once when the clock is beyond it");
  s.clock_moved(1000);
  require(sink.answers == 1 && s.parked() == 0, "answered once");
  require(sink.ok == accepted && (!accepted || sink.count == r.header.count), "an item for each key");
  return 0;
}
