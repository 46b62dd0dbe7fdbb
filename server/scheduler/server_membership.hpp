// SPDX-License-Identifier: BSD-3-Clause
//
// The servers of a job and what has become of them: who is up, which losses the copies can bear, when a replacement
// serves. No socket, no time; the scheduler asks it and sends its membership to everybody.
//
//   up --lost--> down --another process takes the slot--> joining --every copy of it is made--> up
//   entering --every copy of it is made--> up
//   leaving --others have copies of all it has--> left --nobody asks it any more--> gone
//
// One server at a time enters or leaves, and only when all copies are made. One that is lost while it enters is gone,
// one that is lost while it leaves is down. It leaves only when as many are up without it as there are copies.
//
// Every change is a new epoch. With R copies R - 1 losses are borne, counted from the last epoch of which every server
// that is up has said `synced`: then all partitions had as many copies again as there can be. One loss more could be of
// the only copy that is whole, so the job ends.
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
  [[nodiscard]] const server_entry& at(std::uint32_t slot) const { return members_.servers.at(slot); }
  /// Of a slot that nobody has had yet: gone.
  [[nodiscard]] server_state state(std::uint32_t slot) const noexcept {
    return slot < members_.servers.size() ? members_.servers[slot].state : server_state::gone;
  }
  [[nodiscard]] bool has_copies() const noexcept { return members_.replicas > 1; }
  [[nodiscard]] bool may_change() const noexcept { return members_.may_change(); }

  /// Before the job runs: the epoch stays.
  void enter(server_entry s);
  /// The membership that follows says that this function is called no more. Nothing when there are too many already.
  void refuse(refused_function f);
  void plan_checkpoints(checkpoint_plan plan) { members_.checkpoints = std::move(plan); }

  struct verdict {
    bool goes_on = true;
    std::string why_not{};
  };
  /// The server is lost. When the job can go on without it there is a new epoch, otherwise nothing has changed.
  verdict server_lost(std::uint32_t slot);
  /// Another process in a slot that is down; there is a new epoch.
  void rejoin(server_entry s);

  /// Everybody has said `synced` of the newest epoch.
  [[nodiscard]] bool settled() const noexcept { return synced_epoch_ == members_.epoch; }
  /// Why no server can enter (`by` above 0) or leave now; empty: one can.
  [[nodiscard]] std::string why_not_resize(int by) const;
  /// The slot for one that enters.
  [[nodiscard]] std::uint32_t free_slot() const noexcept;
  /// A server in the free slot; there is a new epoch.
  void admit(server_entry s);
  /// The last server that is up begins to leave; there is a new epoch. Returns: its slot.
  std::uint32_t dismiss();

  enum class news : std::uint8_t { none, synced, serves };
  /// A server has made every copy that `epoch` asks it to make. Returns: synced when it was the last one of this epoch;
  /// serves when those that were joining or entering are up now, or leaving have left, in a new epoch.
  /// With `synced` those that had left are gone.
  news synced(std::uint32_t slot, std::uint32_t epoch);
  /// Losses that can still be borne.
  [[nodiscard]] std::uint32_t spare() const noexcept { return copies_ - 1 - lost_; }

 private:
  [[nodiscard]] std::uint32_t up() const noexcept;

  membership members_;
  std::vector<std::uint32_t> synced_;  // by slot
  std::uint32_t synced_epoch_;         // everybody has said so
  std::uint32_t copies_;               // of every partition, in that epoch
  std::uint32_t lost_ = 0;             // since then
  std::uint32_t last_lost_ = 0;        // a slot
};

}  // namespace paracel::srv
