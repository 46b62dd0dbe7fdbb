// SPDX-License-Identifier: BSD-3-Clause
//
// Dynamic shares of an epoch's data for programs with their parameters in the servers (SSP, ASP): each worker takes the
// next chunk when it has finished one, so a slow worker takes fewer of them, and nobody waits for its share.
//
//   chunk_leases leases(*this, "leases", chunks, first_iteration());    // on every worker
//   for (int epoch = first_iteration(); epoch < epochs; ++epoch) {
//     while (const auto chunk = leases.next(epoch)) train_on(load(*chunk));
//     iter_commit();
//   }
//
// One counter in the servers numbers the leases of all epochs: lease n is chunk n % chunks of epoch n / chunks. A
// worker that gets one of a later epoch keeps it until it is there. Every worker must be able to read every chunk, as
// from files that all of them see. For rows that stay with their workers, and results that keep their bits: over_rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <paracel/error.hpp>
#include <paracel/paralg.hpp>

namespace paracel {

/// Guarantees: each chunk of an epoch is taken by exactly one worker, whichever asks first, and the end of an epoch is
/// late by one chunk of the slowest worker at most, beside what SSP allows. The same chunk goes to other workers in the
/// next epoch and in the next run, so results differ from run to run, as they do under SSP. A lease does not expire:
/// what a worker has taken and not computed when the job ends is lost, which is why every worker must go on until
/// `next` has returned nothing.
/// Thread-safety: none; on the thread of its job. Lifetime: the paralg must outlive it.
class chunk_leases {
 public:
  /// A collective. `key`: of the counter, used by nothing else. `first_epoch`: after a resume, the one that begins
  /// again. Throws: config_error for 0 chunks, and where workers that die are replaced or ejected: their leases would
  /// be lost.
  chunk_leases(paralg& job, std::string key, std::size_t chunks, std::int64_t first_epoch = 0)
      : job_(&job), key_(std::move(key)), chunks_(static_cast<std::int64_t>(chunks)) {
    if (chunks == 0) throw config_error("chunk_leases: an epoch has at least one chunk");
    if (job.get_comm().backend()->survives_deaths())
      throw config_error(
          "chunk_leases: not with --on-worker-death wait:T or eject, where a worker's leases may be lost");
    if (job.get_worker_id() == 0) job.paracel_write(key_, first_epoch * chunks_);
    job.paracel_sync();
  }

  /// The next chunk of this epoch, from 0, for this worker; nothing: all are taken. Epochs do not decrease.
  /// Throws: error for an epoch before one whose chunk was taken. Cost: one round trip.
  [[nodiscard]] std::optional<std::size_t> next(std::int64_t epoch) {
    if (!lease_) lease_ = job_->paracel_incr(key_, std::int64_t{1}) - 1;
    const auto of = *lease_ / chunks_;
    if (of < epoch) throw error("chunk_leases: a chunk of epoch " + std::to_string(of) + " was left over");
    if (of > epoch) return std::nullopt;
    return static_cast<std::size_t>(*std::exchange(lease_, std::nullopt) % chunks_);
  }

 private:
  paralg* job_;
  std::string key_;
  std::int64_t chunks_;
  std::optional<std::int64_t> lease_;  // taken, and not given out yet
};

}  // namespace paracel
