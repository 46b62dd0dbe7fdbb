// SPDX-License-Identifier: BSD-3-Clause
//
// Workers as threads that communicate by shared memory, counting collectives and bytes.
#pragma once

#include <barrier>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include <paracel/comm.hpp>

#include "worker/comm/comm_backend.hpp"

namespace paracel::test {

/// Of one worker.
struct traffic {
  std::size_t alltoalls = 0;
  std::size_t reductions = 0;
  std::size_t gathers = 0;
  std::size_t bytes = 0;  ///< sent to others in all-to-alls
};

class counting_workers {
 public:
  explicit counting_workers(std::size_t workers)
      : said_(workers), to_(workers), barrier_(static_cast<std::ptrdiff_t>(workers)) {}

  /// Runs `work` on a thread for each worker; rethrows the first exception (the others must not wait for that worker).
  void run(const std::function<void(Comm, const traffic&)>& work) {
    std::vector<std::thread> threads;
    std::exception_ptr first;
    std::mutex mutex;
    for (std::size_t rank = 0; rank < said_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto mine = std::make_shared<backend>(*this, rank);
        try {
          work(Comm(mine), mine->count);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
      });
    }
    for (auto& t : threads) t.join();
    if (first) std::rethrow_exception(first);
  }

 private:
  class backend final : public comm_backend, public logged_collectives {
   public:
    backend(counting_workers& of, std::size_t rank) : of_(of), rank_(rank) {}
    [[nodiscard]] std::size_t rank() const override { return rank_; }
    [[nodiscard]] std::size_t size() const override { return of_.said_.size(); }
    [[nodiscard]] logged_collectives* log() override { return this; }
    void barrier() override { of_.barrier_.arrive_and_wait(); }
    void bcast(byte_vector& data, std::size_t root) override { data = gather(data)[root]; }
    void allreduce(value_tag element, std::span<std::byte> data, reduce_op op) override {
      ++count.reductions;
      const auto all = gather(data);
      if (element == tag_of<double>()) return fold<double>(all, data, op);
      if (element == tag_of<std::int64_t>()) return fold<std::int64_t>(all, data, op);
      throw error("the test's communicator folds doubles and 64-bit integers");
    }
    std::vector<byte_vector> allgather(std::span<const std::byte> mine) override {
      ++count.gathers;
      return gather(mine);
    }
    std::vector<byte_vector> alltoall(const std::vector<byte_vector>& blocks) override {
      ++count.alltoalls;
      for (std::size_t w = 0; w < blocks.size(); ++w) count.bytes += w == rank_ ? 0 : blocks[w].size();
      of_.to_[rank_] = &blocks;
      barrier();
      std::vector<byte_vector> got;
      for (const auto* b : of_.to_) got.push_back((*b)[rank_]);
      barrier();
      return got;
    }
    traffic count;

   private:
    std::vector<byte_vector> gather(std::span<const std::byte> mine) {
      of_.said_[rank_].assign(mine.begin(), mine.end());
      barrier();
      auto all = of_.said_;
      barrier();
      return all;
    }
    template <class T>
    static void fold(const std::vector<byte_vector>& all, std::span<std::byte> data, reduce_op op) {
      for (std::size_t i = 0; i * sizeof(T) < data.size(); ++i) {
        T into{}, more{};
        for (std::size_t w = 0; w < all.size(); ++w) {
          std::memcpy(&more, all[w].data() + i * sizeof(T), sizeof more);
          if (w == 0) into = more;
          else if (op == reduce_op::sum) into += more;
          else if (op == reduce_op::max) into = more > into ? more : into;
          else into = more < into ? more : into;
        }
        std::memcpy(data.data() + i * sizeof(T), &into, sizeof into);
      }
    }
    counting_workers& of_;
    std::size_t rank_;
  };

  std::vector<byte_vector> said_;                    // by rank
  std::vector<const std::vector<byte_vector>*> to_;  // by rank
  std::barrier<> barrier_;
};

}  // namespace paracel::test
