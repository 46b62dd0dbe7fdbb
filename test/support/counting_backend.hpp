// SPDX-License-Identifier: BSD-3-Clause
//
// Records a worker's collectives between an algorithm and the backend that carries them out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <ostream>
#include <span>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>

#include "worker/comm/comm_scheduler.hpp"
#include "worker/job/session.hpp"

namespace paracel::test {

enum class collective_kind { bcast, reduce, gather, exchange };

/// One operation of one worker; barriers are not recorded.
struct collective {
  collective_kind kind = collective_kind::reduce;
  std::size_t sent = 0;  ///< bytes to others: for a bcast the root's, for an exchange without the worker's own block
  std::size_t received = 0;  ///< bytes received in a gather, from all workers
  friend bool operator==(const collective&, const collective&) = default;
};

/// A worker's operations, in order.
struct collective_log : std::vector<collective> {
  using std::vector<collective>::vector;

  [[nodiscard]] std::size_t count(collective_kind kind) const {
    return static_cast<std::size_t>(std::ranges::count(*this, kind, &collective::kind));
  }
  [[nodiscard]] std::size_t sent(collective_kind kind) const {
    std::size_t bytes = 0;
    for (const auto& c : *this) bytes += c.kind == kind ? c.sent : 0;
    return bytes;
  }
  [[nodiscard]] std::size_t received(collective_kind kind) const {
    std::size_t bytes = 0;
    for (const auto& c : *this) bytes += c.kind == kind ? c.received : 0;
    return bytes;
  }
  [[nodiscard]] std::size_t greatest(collective_kind kind) const {
    std::size_t bytes = 0;
    for (const auto& c : *this) bytes = c.kind == kind ? std::max(bytes, c.sent) : bytes;
    return bytes;
  }
};

inline void PrintTo(const collective& c, std::ostream* to) {
  constexpr const char* names[] = {"bcast", "reduce", "gather", "exchange"};
  *to << names[static_cast<std::size_t>(c.kind)] << ' ' << c.sent;
}

class counting_backend final : public comm_backend, public logged_collectives {
 public:
  counting_backend(std::unique_ptr<comm_scheduler> of, collective_log& to) : of_(std::move(of)), to_(to) {}
  [[nodiscard]] std::size_t rank() const override { return of_->rank(); }
  [[nodiscard]] std::size_t size() const override { return of_->size(); }
  [[nodiscard]] logged_collectives* log() override { return this; }
  void barrier() override { of_->barrier(); }
  void bcast(byte_vector& data, std::size_t root) override {
    to_.push_back({collective_kind::bcast, rank() == root ? data.size() : 0});
    of_->bcast(data, root);
  }
  void allreduce(value_tag element, std::span<std::byte> data, reduce_op op) override {
    to_.push_back({collective_kind::reduce, data.size()});
    of_->allreduce(element, data, op);
  }
  std::vector<byte_vector> allgather(std::span<const std::byte> mine) override {
    auto all = of_->allgather(mine);
    collective c{collective_kind::gather, mine.size()};
    for (const auto& part : all) c.received += part.size();
    to_.push_back(c);
    return all;
  }
  std::vector<byte_vector> alltoall(const std::vector<byte_vector>& blocks) override {
    collective c{collective_kind::exchange};
    for (std::size_t w = 0; w < blocks.size(); ++w) c.sent += w == rank() ? 0 : blocks[w].size();
    to_.push_back(c);
    return of_->alltoall(blocks);
  }

 private:
  std::unique_ptr<comm_scheduler> of_;
  collective_log& to_;
};

/// A worker's communicator of a test::cluster that records everything in `to`; its collectives are the scheduler's.
/// Lifetime: `to` must outlive it.
inline Comm counted(const Comm& comm, collective_log& to) {
  auto plain = std::make_unique<comm_scheduler>(comm.get_rank(), comm.get_size(), [s = comm.job()] { return s; });
  return Comm(std::make_shared<counting_backend>(std::move(plain), to), comm.job());
}

}  // namespace paracel::test
