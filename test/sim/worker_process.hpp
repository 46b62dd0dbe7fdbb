// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/server_group.hpp"
#include "storage/file_system.hpp"
#include "test/sim/history.hpp"
#include "test/sim/scheduler_line.hpp"
#include "test/sim/simulation.hpp"
#include "worker/job/worker_checkpoint.hpp"

namespace paracel::sim {

/// The equivalent of a worker's program: iterations of additions and reads, of one key, of many at once, of prepared
/// sets. When those of an iteration are answered it commits, and waits for the clock as the staleness requires; where
/// the clock requests it, the worker stops for a checkpoint.
class worker_process {
 public:
  worker_process(simulation& in, process& p, storage::file_system& disk, history& known, std::uint32_t rank,
                 std::uint32_t size);

  [[nodiscard]] std::uint32_t iterations() const { return iterations_; }
  /// After this number of iterations it leaves the clock and stops.
  void finish(std::uint32_t iterations) { last_ = iterations; }
  [[nodiscard]] bool finished() const { return phase_ == phase::left && idle(); }
  [[nodiscard]] bool idle() const { return client_ != nullptr && client_->in_flight() == 0; }
  /// After it has finished: reads everything.
  void read_all();
  [[nodiscard]] std::size_t unanswered() const { return client_ == nullptr ? 0 : client_->in_flight(); }

 private:
  nanos start();
  nanos step();
  void begin_one();
  void end_iteration();
  void take_clock(const kv_result& r, std::uint32_t needed);
  void wait_for_clock(std::uint32_t known);
  void resume_from(const checkpoint_plan& plan);
  void stop();
  void on_checkpoint(const std::string& answer);
  void add(counter& c);
  void read(counter& c);
  void add_many();
  void read_many();
  /// A prepared set of counters, some of them possibly repeated.
  struct counter_set {
    std::vector<counter*> counters;
    std::shared_ptr<const sharded_keys> parts;
  };
  counter_set make_set();
  void add(const counter_set& s);
  void read(const counter_set& s);
  void ask(const counter_set& s, kvclt::call what, const multi_client::set_payload& values, bool adds);
  void stage(sum& s);
  void read(const sum& s, std::uint32_t clock);

  simulation& in_;
  process& process_;
  storage::file_system& disk_;
  history& known_;
  const std::uint32_t rank_;
  const std::uint32_t size_;
  const std::uint64_t incarnation_;
  std::shared_ptr<latest_membership> board_ = std::make_shared<latest_membership>();
  std::optional<pulse> pulse_;
  std::optional<question> to_scheduler_;
  bool asked_ = false;
  worker_checkpoint parts_;
  checkpoint_plan plan_;
  std::string file_;  // of the checkpoint for which it has stopped
  actor& thread_;
  std::unique_ptr<server_group> client_;
  std::vector<counter_set> sets_;
  nanos next_ = 0;
  std::uint32_t iterations_ = 0;     // finished
  std::uint64_t requests_left_ = 0;  // of this iteration
  std::uint32_t last_ = UINT32_MAX;
  enum class phase : std::uint8_t { working, asks_clock, to_stop, stopped, left } phase_ = phase::working;
};

}  // namespace paracel::sim
