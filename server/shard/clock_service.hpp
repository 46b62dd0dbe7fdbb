// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/ssp_clock.hpp"
#include "net/clock_source.hpp"
#include "net/protocol.hpp"
#include "server/request/byte_budget.hpp"
#include "server/request/completion.hpp"
#include "server/request/verb_times.hpp"
#include "server/store/replicated_store.hpp"

namespace paracel::srv {

/// The clock of the job as a service: ticks are applied, waits are parked until the slowest worker has caught up. No
/// polling.
///
///   clock_tick  rank, clock = iterations finished       answered at once; clock = no_clock: the worker leaves.
///               flag_staged: the shards have staged updates that are due when the clock ticks. Then a leaving worker
///               is answered when they have dropped what it staged for an iteration that it did not finish: count, and
///               a key
///   subscribe   a worker has subscribed at the shards    answered at once
///   clock_wait  clock = what the slowest must have       answered when it has, or at the deadline
///   checkpoint  clock = one to stop at, or no_clock: the first one no worker has finished; answered at once with it
///
/// Every reply carries the slowest worker's clock. The reply to a tick at a checkpoint's clock requests one: so every
/// worker stops there, and none can have passed it. The state is the one value of the reserved partition
/// (clock_partition), which has replicas like any other. A repeated tick has no effect. A replica adopts its head's
/// state even if its own is newer, as that of a former head with unacknowledged changes may be. Thread-safety: owned by
/// the clock thread.
class clock_service final : public replicated_store {
 public:
  using time_point = net::clock_source::time_point;

  /// 0 workers: their number is not known yet; requests are held until `begin`.
  explicit clock_service(std::uint32_t workers) : clock_(workers), begun_(workers != 0) {}

  [[nodiscard]] bool begun() const noexcept { return begun_; }
  /// The number of workers is known. Handles the held requests. Throws: error when there are too many.
  /// `clock`: what all have finished already.
  void begin(std::uint32_t workers, time_point now, std::uint32_t clock = 0);
  /// Workers stop for a checkpoint at every multiple of this clock; 0: only on request.
  void checkpoint_every(std::uint32_t clocks) noexcept { every_ = clocks; }

  /// From now on requests are timed. Call it before the first one.
  void keep_times() { times_ = std::make_unique<verb_times>(); }
  /// How long ticks took, and waits for the clock until they were answered; null: not timed. Thread-safety: any thread.
  [[nodiscard]] const verb_times* times() const noexcept { return times_.get(); }

  /// Answers `done` now or later, exactly once. Cost: O(log parked) for a wait, O(log workers) for a tick, O(1) more
  /// for each wait that it ends.
  void handle(const net::request_view& request, completion done, time_point now);
  /// Answers what is past its deadline. Cost: O(1) unless a deadline has passed, then O(parked).
  void expire(time_point now);
  /// Answers everything that is parked, and all later requests, with this.
  void fail_all(net::status why, std::string_view text);

  // ---- the state of the clock, and its replicas on other servers

  /// The state as bytes: u8 (1 there are subscriptions, 2 there are staged updates) | u32 n, n * u32 clocks of
  /// requested checkpoints | as ssp_clock::encode.
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Adopts another state. Returns: null, or what is wrong with the bytes; then nothing has changed.
  const char* replace(std::span<const std::byte> state);

  void keep_replicas() noexcept override {}  // changes are counted anyway
  void begin_epoch(std::uint32_t /*epoch*/) override {}
  void watch(const std::bitset<partition_count>* incomplete) noexcept override { incomplete_ = incomplete; }
  [[nodiscard]] bool has_changes() const noexcept override { return changes_ != taken_; }
  void take_changes(const std::function<void(std::uint16_t, std::span<const std::byte>)>& f) override;
  void encode_partition(std::uint16_t partition, std::vector<std::byte>& out) override;
  bool check_replica(std::uint16_t partition, std::span<const std::byte> records, std::string& why) const override;
  net::status apply_replica(std::uint16_t partition, std::span<const std::byte> records, std::string& why) override;
  /// Afterwards the clock has not begun: `begin` sets what the job starts from.
  void drop_partitions(const std::bitset<partition_count>& which) override;
  /// Waits and early requests; the clock itself continues.
  void refuse_waiting(reply_sink& through, net::status why, std::string_view text) override;
  void refuse_client(reply_sink& /*through*/, std::uint64_t /*client*/, net::status /*why*/) override {}

  /// Size of what is parked. Thread-safety: any thread.
  [[nodiscard]] const byte_budget& budget() const noexcept { return budget_; }
  /// Workers that want to leave, and what they have finished: first the shards must drop what these have staged for
  /// later iterations.
  struct leaver {
    std::uint32_t finished = 0;
    std::vector<completion> done{};
  };
  [[nodiscard]] const std::map<std::uint32_t, leaver>& leaving() const noexcept { return leaving_; }
  /// The shards have dropped so many updates; `example` names one.
  void left(std::uint32_t rank, std::uint32_t dropped, std::string_view example);

  [[nodiscard]] std::size_t parked() const noexcept { return waits_.size() + held_.size(); }
  [[nodiscard]] std::uint32_t slowest() const noexcept { return clock_.slowest(); }
  /// Whether a worker has announced subscriptions or staged updates: then the shards are to be notified when the
  /// clock ticks.
  [[nodiscard]] bool is_watched() const noexcept { return watched_ || stages_; }

 private:
  struct wait {
    completion done;
    time_point deadline;
    held_bytes held;
    std::uint64_t begin;  // ticks
  };
  struct early {
    net::request_header header;
    completion done;
    held_bytes held;
  };
  /// A state as it was decoded.
  struct decoded {
    bool watched = false;
    bool stages = false;
    std::vector<std::uint32_t> asked{};
    ssp_clock clock;
  };
  std::optional<decoded> decode(std::span<const std::byte> state, const char*& wrong) const;
  void answer(completion& done, net::instruction order = net::instruction::proceed) const;
  void ask_for_checkpoint(std::uint32_t clock, completion& done);
  [[nodiscard]] bool is_checkpoint(std::uint32_t clock) const;
  void wake();
  void count(net::verb what, std::uint64_t begin) noexcept {
    if (times_ != nullptr) times_->add(what, begin);
  }
  void leave(std::uint32_t rank, completion done);
  void refuse_all(net::status why, std::string_view text, reply_sink* through);

  ssp_clock clock_;
  bool begun_;
  bool watched_ = false;
  bool stages_ = false;                      // there are staged updates
  std::map<std::uint32_t, leaver> leaving_;  // by rank
  std::uint32_t every_ = 0;
  std::set<std::uint32_t> asked_;  // clocks of requested checkpoints that some worker has not finished
  std::uint64_t changes_ = 0;
  std::uint64_t taken_ = 0;  // the newest, at the last take_changes
  const std::bitset<partition_count>* incomplete_ = nullptr;
  time_point now_{};  // as of the last call that passed it
  byte_budget budget_{std::size_t{64} << 20};
  std::vector<early> held_;
  std::multimap<std::uint32_t, wait> waits_;  // by the minimum they need
  time_point next_deadline_ = time_point::max();
  std::unique_ptr<verb_times> times_;
  net::status ended_ = net::status::ok;
  std::string why_ended_;
};

}  // namespace paracel::srv
