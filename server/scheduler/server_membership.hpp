// SPDX-License-Identifier: BSD-3-Clause
//
// The states of a job's servers: which are up, which losses the replicas can tolerate, when a replacement may serve. No
// socket, no time; the scheduler drives it and sends its membership to all nodes.
//
//   up --lost--> down --another process takes the slot--> joining --its replicas are complete--> up
//   entering --its replicas are complete--> up
//   leaving --others have replicas of all it has--> left --no longer asked--> gone
//
// Partitions move in the same way: `moving` to servers that get replicas of them --these are complete--> `placed`
// there.
//
// One server at a time enters or leaves, or some partitions move, and only when all replicas are complete. One that is
// lost while entering is gone, one that is lost while leaving is down. It leaves only if as many servers remain up as
// there are replicas.
//
// Every change is a new epoch. With R replicas R - 1 losses are tolerated, counted from the last epoch of which every
// server that is up has reported `synced`: all partitions then had as many replicas as possible again. One more loss
// could be that of the only complete replica, so the job ends.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/membership.hpp"

namespace paracel::srv {

/// Thread-safety: owned by the scheduler's thread.
class server_membership {
 public:
  server_membership(std::uint64_t job, std::uint32_t workers, std::uint32_t servers, std::uint32_t replicas,
                    bool elastic = false);

  [[nodiscard]] const membership& members() const noexcept { return members_; }
  /// members().to_json(), which is computed once for each change. Valid until the next one.
  [[nodiscard]] const std::string& encoded() const {
    if (encoded_.empty()) encoded_ = members_.to_json();
    return encoded_;
  }
  [[nodiscard]] const server_entry& at(std::uint32_t slot) const { return members_.servers.at(slot); }
  /// An unused slot is gone.
  [[nodiscard]] server_state state(std::uint32_t slot) const noexcept {
    return slot < members_.servers.size() ? members_.servers[slot].state : server_state::gone;
  }
  [[nodiscard]] bool has_replicas() const noexcept { return members_.replicas > 1; }
  [[nodiscard]] bool may_change() const noexcept { return members_.may_change(); }

  /// Before the job runs: the epoch stays.
  void enter(server_entry s);
  /// The next membership announces that this function is blocked. No-op when there are too many already.
  void refuse(refused_function f);
  void plan_checkpoints(checkpoint_plan plan) { changing().checkpoints = std::move(plan); }

  struct verdict {
    bool continues = true;
    std::string why_not{};
  };
  /// The server is lost. If the job can continue without it there is a new epoch, otherwise nothing has changed.
  verdict server_lost(std::uint32_t slot);
  /// Another process takes a slot that is down; there is a new epoch.
  void rejoin(server_entry s);

  /// Every server has reported `synced` of the newest epoch.
  [[nodiscard]] bool settled() const noexcept { return synced_epoch_ == members_.epoch; }
  /// Why no server can enter (`by` above 0) or leave now; empty: one can.
  [[nodiscard]] std::string why_not_resize(int by) const;
  /// The slot for a new server.
  [[nodiscard]] std::uint32_t free_slot() const noexcept;
  /// A server takes the free slot; there is a new epoch.
  void admit(server_entry s);
  /// The last server that is up begins to leave; there is a new epoch. Returns: its slot.
  std::uint32_t dismiss();

  /// Whether partitions can move now: the replicas are complete, and no server is lost, enters or leaves.
  [[nodiscard]] bool may_move() const noexcept;
  /// These partitions, in ascending order, begin to move to servers that are up; there is a new epoch.
  void move(std::vector<placement> where);

  enum class news : std::uint8_t { none, synced, serves };
  /// A server has completed every replica that `epoch` assigns to it. Returns: synced when it was the last one of this
  /// epoch; serves when those that were joining or entering are up now, or leaving have left, in a new epoch.
  /// With `synced` those that had left are gone.
  /// What was moving is placed, in a new epoch.
  news synced(std::uint32_t slot, std::uint32_t epoch);
  /// Losses that can still be tolerated.
  [[nodiscard]] std::uint32_t spare() const noexcept { return replicas_ - 1 - lost_; }

 private:
  [[nodiscard]] std::uint32_t up() const noexcept;
  void place_moved();
  /// Whatever changes the membership takes it from here.
  [[nodiscard]] membership& changing() noexcept {
    encoded_.clear();
    return members_;
  }

  membership members_;
  mutable std::string encoded_;        // empty: not computed since the last change
  std::vector<std::uint32_t> synced_;  // by slot
  std::uint32_t synced_epoch_;         // every server has reported it
  std::uint32_t replicas_;             // of every partition, in that epoch
  std::uint32_t lost_ = 0;             // since then
  std::uint32_t last_lost_ = 0;        // a slot
};

}  // namespace paracel::srv
