// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "net/collective_codec.hpp"
#include "worker/comm/comm_backend.hpp"
#include "worker/comm/rank_memory.hpp"
#include "worker/job/session.hpp"

namespace paracel {

/// The communicator of local processes. Messages go from worker to worker (peer_channels). Its log: every rank sends
/// its part of a collective to the scheduler, which folds in rank order and replies to all. Cost: one round trip per
/// operation; the scheduler handles size * bytes.
class comm_scheduler final : public comm_backend, public logged_collectives {
 public:
  /// `job` is called at the first operation, so that a communicator can exist before the job is joined.
  comm_scheduler(std::size_t rank, std::size_t size, std::function<std::shared_ptr<session>()> job)
      : rank_(rank), size_(size), find_job_(std::move(job)) {}

  [[nodiscard]] std::size_t rank() const override { return rank_; }
  [[nodiscard]] std::size_t size() const override { return size_; }
  void barrier() override;
  void bcast(byte_vector& data, std::size_t root) override;
  void allreduce(value_tag element, std::span<std::byte> data, reduce_op op) override;
  std::vector<byte_vector> allgather(std::span<const std::byte> mine) override;
  std::vector<byte_vector> alltoall(const std::vector<byte_vector>& blocks) override;
  void send(const message_address& to, byte_vector bytes, bool waits, patience limit) override;
  ticket post(const message_address& from) override;
  void give_up(ticket t) noexcept override;
  std::optional<received_message> take(ticket t, patience limit) override;
  std::shared_ptr<comm_backend> split(int color) override;
  [[nodiscard]] logged_collectives* log() override { return job().survives_deaths() ? this : nullptr; }
  [[nodiscard]] bool keeps_messages() override { return job().replacement().is_on(); }
  void send_kept(std::size_t to, std::span<const std::byte> bytes) override;
  [[nodiscard]] kept_message receive_kept(std::size_t from) override;
  [[nodiscard]] bool takes_over() override { return job().replacement().takes_over(); }
  [[nodiscard]] bool is_gone(std::size_t rank) override;
  [[nodiscard]] shared_memory* memory() override;
  [[nodiscard]] std::chrono::microseconds attends_every() const override;
  void attend(std::size_t rank, bool doubts) override;
  bool in_barrier(bool begins) override;

 private:
  session& job();
  [[nodiscard]] bool runs_commands() const;
  peer_channels& channels_for(const message_address& a);
  /// Sends one contribution and returns the result; valid until the next operation.
  std::span<const std::byte> exchange(net::collective_request& r, std::span<const std::byte> mine);
  std::span<const std::byte> exchange_message(net::collective_kind kind, std::size_t other,
                                              std::span<const std::byte> mine);
  /// The same for a contribution of `bytes` that `write(to)` writes straight into the message.
  template <class Write>
  std::span<const std::byte> exchange(net::collective_request& r, std::size_t bytes, Write&& write);
  template <class Write>
  std::span<const std::byte> ask(net::collective_request& r, std::size_t bytes, Write&& write);
  std::vector<byte_vector> blocks_of(std::span<const std::byte> bytes) const;

  std::size_t rank_;
  std::size_t size_;
  std::function<std::shared_ptr<session>()> find_job_;
  std::shared_ptr<session> job_;
  byte_vector message_;
  std::uint64_t splits_ = 0;
  shared_memory memory_;
  int barriers_ = 0;  // that this worker waits in; a command may try to call another one
};

}  // namespace paracel
