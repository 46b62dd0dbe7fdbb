// SPDX-License-Identifier: BSD-3-Clause
//
// What is known about a job from its workers' requests and replies, and the invariants that follow.
//
// Workers increment and read counters, several times in each iteration, and then commit. In half of the jobs with
// staleness 0 they also add to sums, staged (BSP): numbers of such different magnitude that the bits show the order of
// additions.
//   * A request observes at least what any request answered before its start has observed: nothing visible disappears.
//   * No two additions have the same result, and at the end there are as many as were acknowledged: each counts once.
//   * A worker that has finished c iterations sends no requests while another has finished fewer than c - s, and the
//     clock never goes back; s is the staleness.
//   * A sum that is read after c iterations has exactly the bits of all that was staged before, in order of clock and
//     rank.
//   * A resumed job starts from what had been counted when all workers had stopped for that checkpoint.
//   * In each epoch the replies of a partition come from one server, and never from an older epoch than before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/protocol.hpp"
#include "test/sim/simulation.hpp"

namespace paracel::sim {

/// Throws: violation.
[[noreturn]] void wrong(const std::string& what);

/// A counter, and what is known about it.
struct counter {
  std::string key;
  std::int64_t begun = 0;
  std::int64_t acknowledged = 0;
  std::int64_t seen = 0;  ///< the greatest value that an answered request has observed
  std::set<std::int64_t> results;
};

/// A key to which numbers are added when the clock advances.
struct sum {
  struct part {
    std::uint32_t clock = 0;
    std::uint32_t rank = 0;
    double number = 0;
  };
  std::string key;
  std::vector<part> parts;  ///< those of one clock and rank in staging order
};

/// Throws: violation, from every function whose information breaks an invariant.
class history {
 public:
  /// The counts when all workers had stopped at a clock.
  struct snapshot {
    std::vector<std::int64_t> counters;
    std::vector<sum> sums;  ///< empty if nothing was staged
  };
  history(simulation& in, std::uint32_t workers, std::uint32_t staleness, bool staged);
  /// The job resumes from a checkpoint at `clock`.
  void resume_from(const snapshot& s, std::uint32_t clock);

  [[nodiscard]] std::vector<counter>& counters() { return counters_; }
  [[nodiscard]] std::vector<sum>& sums() { return sums_; }  ///< empty if nothing is staged
  [[nodiscard]] std::uint32_t staleness() const { return staleness_; }
  [[nodiscard]] std::uint64_t answers() const { return answers_; }
  /// The partitions of counters and sums.
  [[nodiscard]] std::set<std::uint16_t> partitions() const;

  // ---- reports of workers. `seen_before`: counter::seen at the time of the request.

  void knows_client(std::uint64_t incarnation) { clients_.insert(incarnation); }
  void answered_add(counter& c, std::int64_t found, std::int64_t seen_before);
  void answered_read(counter& c, std::int64_t found, std::int64_t seen_before);
  void begins_add(sum& s, std::uint32_t clock, std::uint32_t rank, double number) {
    s.parts.push_back({clock, rank, number});
  }
  /// By a worker that has finished `clock` iterations.
  void answered_read(const sum& s, double found, std::uint32_t clock);

  /// A worker is about to send a request.
  void asks(std::uint32_t rank) const;
  /// A worker commits this number of iterations, or leaves.
  void finishes(std::uint32_t rank, std::uint32_t iterations) { finished_.at(rank) = iterations; }
  void leaves(std::uint32_t rank);
  /// A worker is dead, and the others continue without it: what it had begun may have been done or not.
  void dies(std::uint32_t rank);
  /// Something happens to a worker for which it may be ejected.
  void endangers(std::uint32_t rank) { endangered_.insert(rank); }
  [[nodiscard]] bool may_be_ejected(std::uint32_t rank) const { return endangered_.contains(rank); }
  /// The clock replied `slowest` to a worker that waited for at least `needed`.
  void answered_clock(std::uint32_t rank, std::uint32_t slowest, std::uint32_t needed);
  /// A worker stops for a checkpoint at this clock.
  void stops(std::uint32_t rank, std::uint32_t clock);
  /// By clock: all checkpoints for which every worker has stopped.
  [[nodiscard]] const std::map<std::uint32_t, snapshot>& snapshots() const { return snapshots_; }
  /// One more than the most iterations that any worker has finished.
  [[nodiscard]] std::uint32_t end_clock() const { return end_clock_; }

  // ---- observed in the network

  void observe_request(const connection& c, std::span<const std::byte> frame);
  void observe_reply(const process& by, const connection& c, std::span<const std::byte> frame);
  /// The connection on which a client's request was last sent; 0: none.
  [[nodiscard]] std::uint64_t connection_of(std::uint64_t client, std::uint64_t sequence) const;

  /// All requests have been answered and all counters read.
  void check_end() const;

 private:
  void saw(counter& c, std::int64_t found);
  [[nodiscard]] std::uint64_t index_of(const counter& c) const {
    return static_cast<std::uint64_t>(&c - counters_.data());
  }

  simulation& in_;
  const std::uint32_t staleness_;
  std::vector<counter> counters_;
  std::vector<sum> sums_;
  std::uint64_t answers_ = 0;
  bool has_died_ = false;               // a worker
  std::set<std::uint32_t> endangered_;  // ranks of workers
  static constexpr std::uint32_t gone = UINT32_MAX;
  std::vector<std::uint32_t> finished_;    // by rank: iterations
  std::vector<std::uint32_t> clock_seen_;  // by rank: the slowest worker's, as last reported by the clock
  std::uint32_t end_clock_ = 1;
  std::map<std::uint32_t, std::set<std::uint32_t>> stopped_;  // clock: ranks
  std::map<std::uint32_t, snapshot> snapshots_;
  std::set<std::uint64_t> clients_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::pair<std::uint16_t, net::verb>>
      asked_;                                                                 // connection, sequence
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> sent_on_;  // client, sequence
  std::map<std::uint16_t, std::pair<std::uint32_t, std::uint64_t>> primary_;  // partition: epoch and server
};

}  // namespace paracel::sim
