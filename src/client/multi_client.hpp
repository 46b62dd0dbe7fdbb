// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/kvclt.hpp"
#include "client/multi_request.hpp"
#include "client/routing_table.hpp"
#include "client/sharded_keys.hpp"
#include "net/protocol.hpp"

namespace paracel {

class server_group;

/// Calls on many keys: one request per shard (or several, when large), all shards in parallel, and one number for all
/// of them, which is answered when all are.
///
/// Thread-safety: none; owned by the thread of its servers. Lifetime: its arguments must outlive it.
class multi_client {
 public:
  using call = kvclt::call;
  using sequence = kvclt::sequence;
  using item_handler = std::function<void(std::size_t index, const net::reply_item&)>;
  using keyed_handler = multi_request::keyed_handler;
  using part_handler = multi_request::part_handler;
  using uniform_handler = multi_request::uniform_handler;
  using end_handler = multi_request::end_handler;

  multi_client(server_group& servers, client_context& shared, const routing_table& routes) noexcept
      : servers_(servers), shared_(shared), routes_(routes) {}

  // ---- lists of keys

  /// The values of a request on many keys: none (tag none and no items), contiguous numbers in key order,
  /// or anything else as items.
  struct set_payload {
    value_tag tag = value_tag::none;  ///< of each value
    std::size_t value_bytes = 0;      ///< of each
    std::span<const std::byte> numbers;
    std::span<const value_view> items;

    set_payload() = default;
    set_payload(value_tag each, std::size_t bytes, std::span<const std::byte> all,
                std::span<const value_view> others = {})
        : tag(each), value_bytes(bytes), numbers(all), items(others) {}
    set_payload(std::span<const value_view> values) : items(values) {}
    set_payload(const std::vector<value_view>& values) : items(values) {}
    [[nodiscard]] value_view at(std::size_t i) const noexcept {
      return items.empty() ? value_view{tag, numbers.subspan(i * value_bytes, value_bytes)} : items[i];
    }
  };

  /// `values` is empty or has one for each key. `each` runs for every key, in no particular order; a request rejected
  /// as a whole runs it with that status and its text as a packed value for each of its keys. Returns after the last
  /// reply.
  void multi(const call& c, std::span<const std::string> keys, std::span<const value_view> values,
             const item_handler& each);
  /// The same, asynchronously. `each` runs as the requests are answered, then `end`; keys and values are copied. With
  /// `uniform` a shard may answer that all its keys succeeded, with their values, if any, contiguously
  /// (net::reply_uniform): it runs instead of `each` then.
  sequence multi_async(const call& c, std::span<const std::string> keys, const set_payload& values, keyed_handler each,
                       end_handler end = {}, uniform_handler uniform = {});

  // ---- prepared key sets

  /// The shards of a set's keys. Cost: two hashes a key; nothing is sent.
  [[nodiscard]] std::shared_ptr<const sharded_keys> split(std::vector<std::string> keys) const;
  /// Sends the keys to those shards that have not received them from this client. Returns at once.
  void prepare(const sharded_keys& set);
  /// One request for each part of the set, all in parallel; returns at once. A server that has forgotten the set is
  /// sent the keys and the request again, before any later request of this client to that shard. The values
  /// are copied. `each` runs for each part, then `end`.
  /// Throws: error when the set belongs to another job.
  sequence set_async(const call& c, std::shared_ptr<const sharded_keys> set, const set_payload& values,
                     part_handler each, end_handler end = {});
  /// The membership has changed: sets are partitioned again.
  void forget_places() noexcept { sets_here_.clear(); }

 private:
  using unsigned_range = std::pair<std::uint32_t, std::uint32_t>;

  void place_keys(multi_request& g, std::span<const std::string> keys) const;
  multi_request& open_group(const call& c);
  void answered_part(multi_request& g);
  void release(multi_request& g) noexcept;
  void send_items(multi_request& g, std::uint32_t channel, unsigned_range piece, std::span<const std::string> keys,
                  const set_payload& values, std::size_t bytes);
  void receive_items(multi_request& g, std::size_t chunk, const kv_result& r);
  [[nodiscard]] bool is_prepared(const sharded_keys::part& part) const;
  void send_prepare(const sharded_keys& set, const sharded_keys::part& part, kvclt::handler done);
  void send_part(multi_request& g, std::size_t chunk);
  void receive_part(multi_request& g, std::size_t chunk, const kv_result& r);
  std::shared_ptr<const sharded_keys> split_here(std::shared_ptr<const sharded_keys> set);

  server_group& servers_;
  client_context& shared_;
  const routing_table& routes_;
  std::vector<std::unique_ptr<multi_request>> groups_;
  std::vector<multi_request*> free_groups_;  // of these
  std::map<std::weak_ptr<const sharded_keys>, std::shared_ptr<const sharded_keys>, std::owner_less<>> sets_here_;
};

}  // namespace paracel
