// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "worker/comm/comm_backend.hpp"
#include "worker/comm/rank_memory.hpp"

namespace paracel {

/// Some of the ranks of another communicator, renumbered: what `split` creates without MPI.
class comm_group final : public comm_backend {
 public:
  /// `members`: ranks of `all`; `own`: the index of this process among them. `id`: the same at all members, and of no
  /// other communicator.
  comm_group(std::shared_ptr<comm_backend> all, std::vector<std::size_t> members, std::size_t own, std::uint64_t id)
      : all_(std::move(all)), members_(std::move(members)), own_(own), id_(id) {}
  /// The group of the ranks of `from` with this color, for which `from` has made `splits` splits before.
  static std::shared_ptr<comm_backend> of_color(const std::shared_ptr<comm_backend>& all, comm_backend& from,
                                                std::uint64_t id, std::uint64_t splits, int color,
                                                const std::vector<std::size_t>& members);

  [[nodiscard]] std::size_t rank() const override { return own_; }
  [[nodiscard]] std::size_t size() const override { return members_.size(); }
  void send(const message_address& to, byte_vector bytes, bool waits, patience limit) override;
  ticket post(const message_address& from) override;
  void give_up(ticket t) noexcept override { all_->give_up(t); }
  std::optional<received_message> take(ticket t, patience limit) override;
  std::shared_ptr<comm_backend> split(int color) override;
  [[nodiscard]] shared_memory* memory() override;
  [[nodiscard]] std::chrono::microseconds attends_every() const override { return all_->attends_every(); }
  void attend(std::size_t rank, bool doubts) override { all_->attend(members_[rank], doubts); }
  bool in_barrier(bool begins) override { return all_->in_barrier(begins); }
  [[nodiscard]] ompi_communicator_t* communicator() const override {
    throw error("get_comm: without mpirun a group of workers has no MPI communicator");
  }

 private:
  std::shared_ptr<comm_backend> all_;
  std::vector<std::size_t> members_;
  std::size_t own_;
  std::uint64_t id_;
  std::uint64_t splits_ = 0;
  shared_memory memory_;
};

}  // namespace paracel
