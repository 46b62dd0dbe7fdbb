// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/detail/value.hpp>
#include <paracel/key_set.hpp>
#include <paracel/types.hpp>

#include "client/repeated_lists.hpp"
#include "client/sharded_keys.hpp"
#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "worker/job/request_failures.hpp"
#include "worker/parameters/worker_cache.hpp"
#include "worker/parameters/worker_clock.hpp"

namespace paracel {

/// Calls on many keys: lists of them, prepared sets, and values split over several keys. They follow the same rules for
/// reads and updates as calls on one key.
///
/// A list of keys that is passed a second time is prepared as a set, within `most_repeated_bytes`: for updates, and for
/// reads that are not cached. A call then costs what one on a set does, plus a comparison of the keys.
///
/// Thread-safety: owned by the thread that runs the algorithm. Lifetime: what it is made with must outlive every
/// call.
class parasrv_multi {
 public:
  using put_item = std::function<void(std::size_t index, const value_view&)>;
  static constexpr std::size_t least_repeated = 32;  ///< keys: shorter lists are not worth it
  static constexpr std::size_t most_repeated_bytes = std::size_t{64} << 20;

  parasrv_multi(server_group& client, worker_clock& clock, request_failures& failures, worker_cache& cache) noexcept
      : client_(client), clock_(clock), failures_(failures), cache_(cache) {}

  // ---- lists of keys

  /// `all`: a missing key is a key_error.
  void read_multi(const std::vector<std::string>& keys, set_target& to, bool all);
  void write_multi(const std::vector<std::string>& keys, const std::vector<value_view>& values);
  /// `clocked`: part of this iteration, so that BSP stages them. `to`: for the new values, or null.
  void update_multi(const std::vector<std::string>& keys, const set_source& deltas, std::uint64_t function,
                    bool clocked, set_target* to);
  void update_default_multi(const std::vector<std::string>& keys, const std::vector<value_view>& initials,
                            const std::vector<value_view>& deltas, std::uint64_t function);
  bool remove_multi(const std::vector<std::string>& keys);
  /// Removes every key from every server.
  void clear();
  /// How often this worker has done that.
  [[nodiscard]] std::uint64_t clears() const noexcept { return clears_; }

  // Asynchronous, as parasrv's.
  kvclt::sequence start_read_multi(std::span<const std::string> keys, std::shared_ptr<set_target> to, bool all);
  kvclt::sequence start_update_multi(std::span<const std::string> keys, const set_source& deltas,
                                     std::uint64_t function, bool clocked, std::shared_ptr<set_target> to);

  // ---- prepared sets

  /// Throws: config_error when the keys have different consistencies.
  [[nodiscard]] std::shared_ptr<const sharded_keys> prepare(std::vector<std::string> keys);
  [[nodiscard]] bool has_prepared() const noexcept { return prepared_; }
  kvclt::sequence start_set_read(std::shared_ptr<const sharded_keys> set, std::shared_ptr<set_target> to);
  kvclt::sequence start_set_write(std::shared_ptr<const sharded_keys> set, const set_source& values);
  /// `to` may be null; if set, the update is immediate and the new values are returned.
  kvclt::sequence start_set_update(std::shared_ptr<const sharded_keys> set, const set_source& deltas,
                                   std::uint64_t function, bool clocked, std::shared_ptr<set_target> to);

  // ---- one value split over several keys (paracel/array.hpp)

  /// One request of such a call. Lifetime: key and value until the call has returned.
  struct part {
    std::string_view key;
    net::verb what = net::verb::none;
    value_view value;     ///< the payload
    shared_buffer large;  ///< instead of value: sent without a copy
    std::uint16_t flags = 0;
  };
  /// All parts in parallel, as a read of one key. Throws: key_error when a part does not exist; the others may already
  /// have been put.
  void read_parts(const std::string& name, std::span<const part> parts, const put_item& put);
  /// The same for small parts (pull_at) of which a shard may hold many: one request per shard.
  void read_parts(const std::string& name, const std::vector<std::string>& keys,
                  const std::vector<value_view>& elements, const put_item& put);
  /// All parts in parallel, as `update` of one key; failures().finish waits for them. `clocked`: part of this
  /// iteration, so that BSP stages them.
  std::shared_ptr<shared_update> update_parts(const std::string& name, std::span<part> parts, std::uint64_t function,
                                              bool clocked);
  /// As `write` of one key. Parts may be pushes, or updates that assign.
  void write_parts(const std::string& name, std::span<part> parts, std::uint64_t assign);

  /// Under BSP the updates of completed iterations are folded into the values, so that a write replaces them. Does not
  /// block: the write follows on the same channel.
  void fold_before_write(std::span<const std::string> keys);
  /// Callers' memory may be gone: stop delivering values.
  void close() noexcept { closing_ = true; }

 private:
  struct multi_call;
  struct set_call;

  kvclt::sequence send_updates(const kvclt::call& c, std::span<const std::string> keys, const set_source& values,
                               const set_source& deltas, bool clocked, std::shared_ptr<set_target> to);
  /// How a call on a set differs from one on a list of keys: in its errors' text, and in keys that do not exist.
  enum class asked_for { set, list, those_that_exist };
  kvclt::sequence start_set(const kvclt::call& c, std::shared_ptr<const sharded_keys> set, const set_source& values,
                            std::shared_ptr<set_target> to, const char* doing, asked_for what);
  kvclt::sequence start_set_update(std::shared_ptr<const sharded_keys> set, const set_source& deltas,
                                   std::uint64_t function, bool clocked, std::shared_ptr<set_target> to,
                                   asked_for what);
  /// Puts the cached values of all keys but those at these indices. Returns: the lowest `minimum` of their entries.
  std::uint32_t put_fresh(std::span<const std::string> keys, std::span<const std::uint32_t> others, set_target& to);
  /// The set of these keys if the list is a repeated one; null: the keys must be sent.
  std::shared_ptr<const sharded_keys> find_repeated(std::span<const std::string> keys);

  server_group& client_;
  worker_clock& clock_;
  request_failures& failures_;
  worker_cache& cache_;
  bool closing_ = false;
  bool prepared_ = false;  // a set
  std::uint64_t clears_ = 0;
  repeated_lists<const sharded_keys> repeated_{most_repeated_bytes};
  std::vector<std::byte> numbers_;  // of a list, contiguously
};

/// The payload of update_default: two request items without keys.
[[nodiscard]] std::vector<std::byte> default_and_delta(const value_view& initial, const value_view& delta);

}  // namespace paracel
