// SPDX-License-Identifier: BSD-3-Clause
//
// What is exported to Prometheus: the job, and what the last heartbeats of its processes have said (server::usage and
// server::metrics, usage::report of a worker). A family is there from the beginning, with or without samples. Counters
// of a process begin at 0 again when another one takes its place.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/hex.hpp"
#include "core/json_io.hpp"
#include "server/request/server_load.hpp"
#include "server/request/verb_times.hpp"
#include "server/scheduler/metric_family.hpp"
#include "server/scheduler/scheduler.hpp"

namespace paracel::srv {

using nlohmann::json;

namespace {

using labels = std::vector<std::pair<std::string, std::string>>;

constexpr std::size_t most_label_bytes = 128;  // of a key; the rest is cut off

/// Families by name, in the order of their declarations. Every sample has the label "run".
class metric_list {
 public:
  explicit metric_list(std::string run) : run_(std::move(run)) {}

  void declare(metric_kind kind, std::initializer_list<std::pair<const char*, const char*>> names) {
    for (const auto& [name, help] : names) {
      places_.emplace(name, all_.size());
      all_.push_back({.name = name, .help = help, .kind = kind});
    }
  }
  metric_family& of(const std::string& name) { return all_[places_.at(name)]; }
  metric_sample& add(const std::string& name, labels more, double value) {
    more.insert(more.begin(), {"run", run_});
    return of(name).samples.emplace_back(metric_sample{.labels = std::move(more), .value = value});
  }
  /// Nothing is added when the number is missing.
  void add(const std::string& name, const labels& more, const json& from, const char* key) {
    if (const auto it = from.find(key); it != from.end() && it->is_number()) add(name, more, it->get<double>());
  }
  std::vector<metric_family> take() { return std::move(all_); }

 private:
  std::string run_;
  std::vector<metric_family> all_;
  std::map<std::string, std::size_t> places_;
};

constexpr std::initializer_list<std::pair<const char*, const char*>> counters = {
    {"paracel_joins_total", "Processes that have joined the job."},
    {"paracel_losses_total", "Processes that were lost."},
    {"paracel_checkpoints_total", "Checkpoints that were written."},
    {"paracel_checkpoint_failures_total", "Checkpoints that were abandoned."},
    {"paracel_worker_seconds_total",
     "Time of the thread that runs the algorithm: computing, in system calls, without a processor, waiting."},
    {"paracel_worker_background_cpu_seconds_total", "CPU time of the worker's other threads."},
    {"paracel_worker_requests_total", "Requests that the worker has sent to servers."},
    {"paracel_worker_sent_bytes_total", "Bytes that the worker has sent to servers and to other workers."},
    {"paracel_worker_received_bytes_total", "Bytes that the worker has received from servers and from other workers."},
    {"paracel_server_cpu_seconds_total", "CPU time of the server's process."},
    {"paracel_server_requests_total", "Requests that the server's shard threads have handled."},
    {"paracel_server_received_bytes_total", "Bytes of requests to the server's shard threads."},
    {"paracel_server_sent_bytes_total", "Bytes of replies of the server's shard threads."},
    {"paracel_server_failures_total", "Requests, and items of requests, that have failed."},
    {"paracel_server_nan_updates_total", "Updates after which a value was not a number, of those that were checked."},
    {"paracel_server_dropped_connections_total", "Connections that the server has closed because of what they sent."},
    {"paracel_server_sandboxes_started_total", "Processes of user functions that were started."},
    {"paracel_server_sandboxes_lost_total", "Processes of user functions that have crashed or were killed."},
    {"paracel_shard_requests_total", "Requests that a shard thread has handled; of the first 64 threads of a server."},
};
constexpr std::initializer_list<std::pair<const char*, const char*>> gauges = {
    {"paracel_job_info", "1, with the program and the folder of the logs."},
    {"paracel_job_start_time_seconds", "When the scheduler began, in seconds since 1970."},
    {"paracel_job_phase", "1 for the phase that the job is in: joining, running, done or aborted; otherwise 0."},
    {"paracel_membership_epoch", "Number of the current list of servers."},
    {"paracel_spare_servers", "Servers that may be lost now without ending the job; only with replicas."},
    {"paracel_round", "Round of the program's last report of progress."},
    {"paracel_rounds", "Rounds that the program is to do, if it is known."},
    {"paracel_objective", "What the program has reported last of its main metric."},
    {"paracel_checkpoint_clock", "Clock of the last checkpoint that was written."},
    {"paracel_worker_up", "1 while a process takes part as this worker, otherwise 0."},
    {"paracel_worker_clock", "Iterations that the worker has finished."},
    {"paracel_worker_staleness", "Iterations by which the worker was ahead of the slowest at its last commit."},
    {"paracel_worker_peak_resident_bytes", "Largest physical memory of the worker's process until now."},
    {"paracel_server_up", "1 while a process takes part as this server, otherwise 0."},
    {"paracel_server_threads", "Shard threads of the server."},
    {"paracel_server_keys", "Keys of the server."},
    {"paracel_server_rows", "Rows of typed tables of the server."},
    {"paracel_server_staged_updates", "Updates, and batches of rows, that wait for the clock."},
    {"paracel_server_live_bytes", "Memory of the server's keys and rows."},
    {"paracel_server_memory_limit_bytes", "Limit of the server's keys and rows (--max-memory); 0: none."},
    {"paracel_server_resident_bytes", "Physical memory of the server's process."},
    {"paracel_shard_keys_per_second",
     "Keys and rows that requests of the last seconds have named, of the first 64 threads of a server, estimated from "
     "one in 32."},
    {"paracel_partition_keys_per_second", "The same of the partitions of each server that are asked for most."},
    {"paracel_partition_bytes", "Estimated size of these partitions."},
    {"paracel_hot_key_requests", "Requests for the hottest keys of each server, estimated from one in 128."},
};

/// A path need not be UTF-8; a label must.
std::string valid_text(const std::string& text) { return json::parse(json_text(json(text))).get<std::string>(); }

std::string label_text(std::string text) {
  if (text.size() <= most_label_bytes) return text;
  std::size_t end = most_label_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;  // no half characters
  text.resize(end);
  return text + "...";
}

double number_in(const json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_number() ? it->get<double>() : 0;
}

/// Of {"times":..}.
void add_times(metric_list& all, const labels& server, const json& metrics) {
  const auto times = metrics.find("times");
  if (times == metrics.end() || !times->is_object()) return;
  for (const auto& [verb, list] : times->items()) {
    if (!list.is_array() || list.empty() || !list[0].is_number()) continue;
    auto of_verb = server;
    of_verb.emplace_back("verb", verb);
    auto& sample = all.add("paracel_request_duration_seconds", of_verb, 1e-9 * list[0].get<double>());
    sample.counts.resize(verb_times::buckets);
    for (std::size_t i = 1; i < list.size(); ++i) {
      const auto& one = list[i];
      if (!one.is_array() || one.size() != 2 || !one[0].is_number_unsigned() || !one[1].is_number_unsigned()) continue;
      if (const auto bucket = one[0].get<std::size_t>(); bucket < sample.counts.size())
        sample.counts[bucket] += one[1].get<std::uint64_t>();
    }
  }
}

void add_hot_keys(metric_list& all, const labels& server, const json& metrics) {
  const auto hot = metrics.find("hot");
  if (hot == metrics.end() || !hot->is_array()) return;
  std::map<std::string, double> sums;  // keys may be equal where they are cut off, or not UTF-8
  for (const auto& one : *hot)
    if (one.is_array() && one.size() == 2 && one[0].is_string() && one[1].is_number())
      sums[label_text(one[0].get<std::string>())] += one[1].get<double>();
  for (const auto& [key, requests] : sums) {
    auto of_key = server;
    of_key.emplace_back("key", key);
    all.add("paracel_hot_key_requests", of_key, requests);
  }
}

void add_load(metric_list& all, const labels& server, const server_load& load) {
  constexpr std::size_t most_threads = 64;
  constexpr std::size_t most_partitions = 8;
  for (std::size_t i = 0; i < std::min(load.threads.size(), most_threads); ++i)
    all.add("paracel_shard_keys_per_second", {server[0], {"shard", std::to_string(i)}}, load.threads[i]);
  for (std::size_t i = 0; i < std::min(load.partitions.size(), most_partitions); ++i) {
    const auto& p = load.partitions[i];
    const labels of{server[0], {"partition", std::to_string(p.number)}};
    all.add("paracel_partition_keys_per_second", of, p.keys);
    all.add("paracel_partition_bytes", of, static_cast<double>(p.bytes));
  }
}

}  // namespace

/// What the threads of workers do, from the system's accounts. The parts are rounded by the kernel in different ways,
/// so one of them may fall by some milliseconds, which a counter must not: the largest value until now counts.
void scheduler::note_shares(std::uint32_t rank, const json& used) {
  auto& n = workers_[rank];
  const double cpu = number_in(used, "cpu");
  const double in_kernel = std::min(cpu, number_in(used, "system"));
  const double delayed = number_in(used, "delayed");
  const double waiting = number_in(used, "seconds") - cpu - delayed;
  const std::array<double, 4> now{cpu - in_kernel, in_kernel, delayed, waiting};
  for (std::size_t i = 0; i < now.size(); ++i) n.shares[i] = std::max(n.shares[i], now[i]);
}

std::vector<metric_family> scheduler::metrics(time_point now) {
  metric_list all(to_hex(options_.job));
  all.declare(metric_kind::gauge, gauges);
  all.declare(metric_kind::counter, counters);
  all.declare(metric_kind::histogram,
              {{"paracel_request_duration_seconds",
                "Time in which a server thread has handled a request of this verb, without its time in queues; of "
                "clock_wait until the slowest worker had got that far."}});
  auto& bounds = all.of("paracel_request_duration_seconds").bounds;
  for (std::size_t i = 0; i + 1 < verb_times::buckets; ++i)
    bounds.push_back(1e-9 * std::ldexp(1.0, static_cast<int>(verb_times::least_bits + i)));

  all.add("paracel_job_info", {{"program", valid_text(options_.program)}, {"folder", valid_text(options_.folder)}}, 1);
  const std::chrono::duration<double> age = now - begin_;
  const std::chrono::duration<double> wall = std::chrono::system_clock::now().time_since_epoch();
  if (start_time_ == 0) start_time_ = (wall - age).count();
  all.add("paracel_job_start_time_seconds", {}, start_time_);
  constexpr const char* phases[] = {"joining", "running", "done", "aborted"};
  for (std::size_t i = 0; i < std::size(phases); ++i)
    all.add("paracel_job_phase", {{"phase", phases[i]}}, static_cast<std::size_t>(phase_) == i ? 1 : 0);
  all.add("paracel_membership_epoch", {}, servers_in_job_.members().epoch);
  if (servers_in_job_.has_replicas())
    all.add("paracel_spare_servers", {}, phase_ == phase::running ? servers_in_job_.spare() : 0);
  const auto progress = json::parse(held_progress_.empty() ? last_passed_on_ : held_progress_, nullptr, false);
  if (progress.is_object()) {
    all.add("paracel_round", {}, progress, "round");
    all.add("paracel_rounds", {}, progress, "rounds");
    if (const auto name = progress.find("metric"); name != progress.end() && name->is_string()) {
      const auto& metric = name->get_ref<const std::string&>();
      all.add("paracel_objective", {{"metric", label_text(metric)}}, progress, metric.c_str());
    }
  }
  for (const auto r : {role::server, role::worker}) {
    const labels of{{"role", r == role::server ? "server" : "worker"}};
    all.add("paracel_joins_total", of, static_cast<double>(counts_.joins[r == role::server ? 0 : 1]));
    all.add("paracel_losses_total", of, static_cast<double>(counts_.losses[r == role::server ? 0 : 1]));
  }
  all.add("paracel_checkpoints_total", {}, static_cast<double>(checkpoints_.written()));
  all.add("paracel_checkpoint_failures_total", {}, static_cast<double>(checkpoints_.abandoned()));
  if (checkpoints_.written() != 0) all.add("paracel_checkpoint_clock", {}, checkpoints_.last_written());

  for (std::uint32_t rank = 0; rank < workers_.size(); ++rank) {
    const auto& n = workers_[rank];
    const labels of{{"worker", std::to_string(rank)}};
    all.add("paracel_worker_up", of, n.is_present() ? 1 : 0);
    all.add("paracel_worker_clock", of, n.clock);
    const auto used = json::parse(n.usage, nullptr, false);
    if (!used.is_object()) continue;
    if (used.contains("cpu")) {
      note_shares(rank, used);
      constexpr const char* states[] = {"computing", "system", "delayed", "waiting"};
      for (std::size_t i = 0; i < std::size(states); ++i)
        all.add("paracel_worker_seconds_total", {of[0], {"state", states[i]}}, n.shares[i]);
    }
    all.add("paracel_worker_background_cpu_seconds_total", of, used, "background");
    all.add("paracel_worker_requests_total", of, used, "requests");
    all.add("paracel_worker_sent_bytes_total", of, used, "sent_bytes");
    all.add("paracel_worker_received_bytes_total", of, used, "received_bytes");
    all.add("paracel_worker_staleness", of, used, "ahead");
    all.add("paracel_worker_peak_resident_bytes", of, used, "peak_bytes");
  }
  for (std::uint32_t slot = 0; slot < servers_.size(); ++slot) {
    const auto& n = servers_[slot];
    const labels of{{"server", "s" + std::to_string(slot)}};
    all.add("paracel_server_up", of, n.is_present() ? 1 : 0);
    if (n.has_joined()) all.add("paracel_server_threads", of, servers_in_job_.at(slot).threads);
    if (n.resident_bytes != 0) {
      all.add("paracel_server_live_bytes", of, static_cast<double>(n.memory_bytes));
      all.add("paracel_server_resident_bytes", of, static_cast<double>(n.resident_bytes));
    }
    if (const auto used = json::parse(n.usage, nullptr, false); used.is_object()) {
      all.add("paracel_server_cpu_seconds_total", of, used, "cpu");
      all.add("paracel_server_requests_total", of, used, "requests");
      all.add("paracel_server_received_bytes_total", of, used, "bytes_in");
      all.add("paracel_server_sent_bytes_total", of, used, "bytes_out");
      all.add("paracel_server_keys", of, used, "keys");
      const auto shards = used.find("shards");
      for (std::size_t i = 0; shards != used.end() && shards->is_array() && i < shards->size(); ++i)
        if (const auto& one = (*shards)[i]; one.is_array() && !one.empty() && one[0].is_number())
          all.add("paracel_shard_requests_total", {of[0], {"shard", std::to_string(i)}}, one[0].get<double>());
    }
    if (n.load) add_load(all, of, *n.load);
    const auto metrics = json::parse(n.metrics, nullptr, false);
    if (!metrics.is_object()) continue;
    for (const auto& [name, key] : std::initializer_list<std::pair<const char*, const char*>>{
             {"paracel_server_rows", "rows"},
             {"paracel_server_staged_updates", "staged"},
             {"paracel_server_memory_limit_bytes", "max_memory_bytes"},
             {"paracel_server_failures_total", "failures"},
             {"paracel_server_nan_updates_total", "nan"},
             {"paracel_server_dropped_connections_total", "dropped"},
             {"paracel_server_sandboxes_started_total", "sandboxes"},
             {"paracel_server_sandboxes_lost_total", "sandboxes_lost"}})
      all.add(name, of, metrics, key);
    add_times(all, of, metrics);
    add_hot_keys(all, of, metrics);
  }
  return all.take();
}

}  // namespace paracel::srv
