// SPDX-License-Identifier: BSD-3-Clause
//
// One process per job: rendezvous, heartbeats, barriers, progress. Events are JSON lines on stdout, for prun.py;
// messages for users go to stderr.
//
// Exit status: 0 when all workers have left with 0 (at once on SIGTERM, otherwise as soon as every server knows), the
// status of the first cause when the job was aborted, 143 or 130 when a signal ended a running job.
#include <errno.h>
#include <fcntl.h>
#include <gflags/gflags.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "config/config_sources.hpp"
#include "config/launch_facts.hpp"
#include "core/failure_text.hpp"
#include "core/hash.hpp"
#include "core/heeded_signals.hpp"
#include "core/json_io.hpp"
#include "core/membership.hpp"
#include "core/number_parsing.hpp"
#include "net/bind_policy.hpp"
#include "net/fd_limit.hpp"
#include "net/heartbeat.hpp"
#include "net/job_key.hpp"
#include "net/rendezvous.hpp"
#include "net/zmq_transport.hpp"
#include "server/metrics_exporter.hpp"
#include "server/scheduler/scheduler_node.hpp"
#include "storage/checkpoint_store.hpp"

DEFINE_string(bind, "tcp://127.0.0.1:*",
              "address to listen on: ipc:///path, or tcp://host:port with * for a free port");
DEFINE_string(job, "", "id of the job, 16 hex digits");
DEFINE_int32(workers, 1, "number of workers");
DEFINE_int32(servers, 1, "number of servers");
DEFINE_int32(replicas, 1, "replicas of every parameter, each on a different server");
DEFINE_bool(elastic, false, "servers may join and leave while the job runs, even without replicas");
DEFINE_bool(rebalance, false, "hot partitions move to servers with less to do; requires --elastic or replicas");
DEFINE_string(
    on_worker_death, "abort",
    "abort: the job ends; eject: the others continue, unless worker 0 died; wait:T: they wait T seconds for a "
    "replacement");
DEFINE_double(heartbeat_limit, 3, "seconds without a heartbeat after which a node is considered lost");
DEFINE_double(heartbeat_interval, 0.5, "seconds from one heartbeat of a node to the next");
DEFINE_double(hang_limit, 0, "seconds that a user function may run before its server is considered lost; 0: no limit");
DEFINE_double(join_timeout, 60, "seconds that the nodes may take to join");
DEFINE_string(external, "",
              "file with JSON for processes that ask for a place, because prun.py does not start them; empty: it does");
DEFINE_string(run_dir, "", "working folder (core dumps are written there); empty: the current one");
DEFINE_int32(parent, 0, "process id of the launcher, whose death ends this process; 0: none");
DEFINE_string(checkpoint_dir, "", "folder of the job's checkpoints; empty: none are written");
DEFINE_int32(checkpoint_every, 0, "clocks from one checkpoint to the next; 0: only on SIGUSR1");
DEFINE_int32(checkpoint_keep, 3, "number of checkpoints to keep");
DEFINE_double(checkpoint_wait, 300,
              "seconds that the other workers may take to reach a checkpoint after the first; then it is abandoned");
DEFINE_string(resume, "", "folder of the checkpoint from which the job resumes");
DEFINE_string(program, "", "name of the workers' program, for the manifest of a checkpoint");
DEFINE_int32(metrics_port, -1,
             "port of an HTTP server with the job's metrics, for Prometheus; 0: a free one, -1: none");
DEFINE_string(metrics_bind, "127.0.0.1", "address of this host at which --metrics-port listens");
DEFINE_string(metrics_file, "", "file with the job's metrics, for node_exporter's textfile collector; empty: none");
DEFINE_string(config, "", "config file of the workers' program, for the manifest of a checkpoint");
DEFINE_string(print_config, "",
              "print what prun.py must know about this config of a program without a schema, and exit");
DEFINE_string(overrides, "[]", "JSON list of KEY=VALUE, which replace keys of --config, or of --print_config");
DEFINE_bool(insecure, false, "allow an address that other hosts can reach");

// gflags calls this when it cannot parse the command line; it prints the reason on stderr itself.
namespace GFLAGS_NAMESPACE {
extern void (*gflags_exitfunc)(int);
}

namespace {

std::vector<std::string> overrides_from_flags() {
  return nlohmann::json::parse(FLAGS_overrides).get<std::vector<std::string>>();
}

/// What prun.py asks for in the case of a program without a schema.
std::string facts_line(const std::string& config) try {
  return paracel::facts_json(paracel::facts_of_file(config, overrides_from_flags()), nullptr);
} catch (const paracel::error& e) {
  return paracel::failure_json(e);
}

using paracel::usage_error;

/// Lines on stdout, written without waiting for their reader: a scheduler that blocks answers no heartbeats. What the
/// reader has not read is queued here, except what may be dropped: a launcher that was stopped must still be told how
/// the job ended. Thread-safety: any thread.
class event_lines {
 public:
  /// `stuck`: an eventfd, written when lines begin to queue.
  explicit event_lines(int stuck) : stuck_(stuck) {
    struct stat about {};
    const int flags = fcntl(STDOUT_FILENO, F_GETFL);
    // A pipe is ours alone; a terminal is shared, and there O_NONBLOCK would affect others.
    if (fstat(STDOUT_FILENO, &about) == 0 && S_ISFIFO(about.st_mode) && flags >= 0)
      fcntl(STDOUT_FILENO, F_SETFL, flags | O_NONBLOCK);
  }

  void add(std::string_view json, bool droppable) {
    const std::lock_guard held(mutex_);
    write_some();
    if (droppable && !backlog_.empty()) return;
    backlog_.append(json).push_back('\n');
    if (!write_some()) {
      [[maybe_unused]] const int same = eventfd_write(stuck_, 1);
    }
  }

  /// Writes what the reader accepts now. Returns whether the queue is empty.
  bool flush() {
    const std::lock_guard held(mutex_);
    return write_some();
  }

  /// Blocks: until all is written or the reader is gone; at most `patience` once a signal has arrived.
  void finish(int signals, bool signalled, std::chrono::milliseconds patience) {
    auto end = std::chrono::steady_clock::now() + patience;
    while (!flush()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      if (signalled && left.count() <= 0) return;
      pollfd waits[2] = {{STDOUT_FILENO, POLLOUT, 0}, {signalled ? -1 : signals, POLLIN, 0}};
      if (poll(waits, 2, signalled ? static_cast<int>(left.count()) : -1) < 0 && errno != EINTR) return;
      if (waits[1].revents != 0) {
        signalled = true;
        end = std::chrono::steady_clock::now() + patience;
      }
    }
  }

 private:
  bool write_some() {
    while (!backlog_.empty()) {
      const auto n = write(STDOUT_FILENO, backlog_.data(), backlog_.size());
      if (n > 0) {
        backlog_.erase(0, static_cast<std::size_t>(n));
      } else if (n < 0 && errno == EINTR) {
        continue;
      } else {
        if (errno != EAGAIN) backlog_.clear();  // the reader is gone
        break;
      }
    }
    return backlog_.empty();
  }

  const int stuck_;
  std::mutex mutex_;
  std::string backlog_;
};

/// How long a scheduler that was told to exit waits for the reader of its events. The launcher reads them until the
/// scheduler exits.
constexpr std::chrono::milliseconds reader_patience{2000};

std::uint32_t count_of(const char* flag, int value, int most) {
  if (value < 1 || value > most)
    throw usage_error(std::string("--") + flag + "=" + std::to_string(value) + ": want 1 to " + std::to_string(most));
  return static_cast<std::uint32_t>(value);
}

std::chrono::milliseconds time_of(const char* flag, double seconds) {
  if (!(seconds >= 0.1 && seconds <= 1e6))
    throw usage_error(std::string("--") + flag + "=" + std::to_string(seconds) + ": want 0.1 to 1000000 seconds");
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

paracel::srv::checkpoint_options checkpoints_from_flags() {
  paracel::srv::checkpoint_options o;
  paracel::storage::posix_file_system disk;
  o.plan.folder = FLAGS_checkpoint_dir;
  o.plan.every = FLAGS_checkpoint_every == 0 ? 0 : count_of("checkpoint_every", FLAGS_checkpoint_every, 1 << 30);
  o.keep = count_of("checkpoint_keep", FLAGS_checkpoint_keep, 1 << 20);
  o.gather_limit = time_of("checkpoint_wait", FLAGS_checkpoint_wait);
  o.program = FLAGS_program;
  if (!FLAGS_config.empty()) {
    const auto text = disk.read(FLAGS_config, std::size_t{1} << 30);
    o.config = paracel::hash_key(paracel::net::text_of(text));
    o.settings = paracel::config_json(paracel::read_config(FLAGS_config, overrides_from_flags()));
  }
  if (!FLAGS_checkpoint_dir.empty()) disk.require_own(FLAGS_checkpoint_dir);
  if (!FLAGS_resume.empty()) {
    disk.require_own(FLAGS_resume);
    const auto from = paracel::storage::read_manifest(disk, FLAGS_resume);
    o.plan.resume = FLAGS_resume;
    o.plan.clock = from.clock;
    o.plan.workers = from.workers;
    // Later checkpoints in that folder failed verification, or were not wanted: they would be confused with those of
    // this run.
    if (!o.plan.folder.empty()) paracel::storage::set_aside_after(disk, o.plan.folder, from.clock);
  }
  return o;
}

/// Null without --metrics_port and --metrics_file. `node`: set when it runs.
std::unique_ptr<paracel::srv::metrics_exporter> exporter_from_flags(
    const std::atomic<paracel::srv::scheduler_node*>& node) {
  if (FLAGS_metrics_port < 0 && FLAGS_metrics_file.empty()) return nullptr;
  if (FLAGS_metrics_port > 65535)
    throw usage_error("--metrics_port=" + std::to_string(FLAGS_metrics_port) + ": want at most 65535");
  return paracel::srv::export_metrics({.collect =
                                           [&node] {
                                             auto* const running = node.load();
                                             return running != nullptr ? running->metrics()
                                                                       : std::vector<paracel::srv::metric_family>();
                                           },
                                       .host = FLAGS_metrics_bind,
                                       .port = FLAGS_metrics_port,
                                       .file = FLAGS_metrics_file});
}

/// Runs the job until it is over or a signal ends it. Returns the status; `by_signal` says whether it was a signal.
int serve(paracel::srv::scheduler_node_options options, event_lines& lines, int over, int stuck, int signals,
          bool& by_signal) {
  options.events = [&lines](std::string_view json, bool droppable) { lines.add(json, droppable); };
  options.on_over = [over] { [[maybe_unused]] const int same = eventfd_write(over, 1); };
  paracel::net::zmq_transport transport;
  std::unique_ptr<paracel::srv::scheduler_node> holder;
  std::atomic<paracel::srv::scheduler_node*> running{nullptr};
  // Before the others are told where the scheduler is: a port that is taken ends the job before it begins.
  const auto exporter = exporter_from_flags(running);
  if (exporter != nullptr && !exporter->address().empty())
    lines.add(paracel::json_text({{"event", "metrics"}, {"address", exporter->address()}}), false);
  holder = std::make_unique<paracel::srv::scheduler_node>(transport, std::move(options));
  auto& node = *holder;
  running = holder.get();
  int status = 0;  // that of a signal
  for (;;) {
    eventfd_t count = 0;
    eventfd_read(stuck, &count);  // before checking the queue
    pollfd waits[4] = {{over, POLLIN, 0}, {signals, POLLIN, 0}, {stuck, POLLIN, 0}, {STDOUT_FILENO, POLLOUT, 0}};
    if (poll(waits, lines.flush() ? 3 : 4, -1) < 0 && errno != EINTR) break;
    if (waits[0].revents != 0) break;
    if (waits[1].revents == 0) continue;
    signalfd_siginfo which{};
    if (read(signals, &which, sizeof which) != sizeof which) continue;
    const int signal = static_cast<int>(which.ssi_signo);
    if (signal == SIGUSR1) {
      node.ask_for_checkpoint();
      continue;
    }
    by_signal = true;
    if (node.state() == paracel::srv::scheduler::phase::done) {  // the launcher waits
      if (exporter != nullptr) exporter->remove_file();
      lines.finish(signals, true, reader_patience);
      std::_Exit(paracel::exit_status::ok);
    }
    if (status != 0 || node.state() == paracel::srv::scheduler::phase::aborted) break;
    status = 128 + signal;
    node.abort(status, signal == SIGINT ? "the scheduler was interrupted" : "the scheduler was told to stop");
  }
  return status != 0 ? status : node.status();
}

int run(int over, int stuck, int signals) {
  paracel::net::take_job_key();
  paracel::srv::scheduler_node_options options;
  options.job.job = paracel::net::parse_job_id(FLAGS_job);
  options.job.workers = count_of("workers", FLAGS_workers, 1 << 16);
  options.job.servers = count_of("servers", FLAGS_servers, 4096);
  options.job.replicas = count_of("replicas", FLAGS_replicas, static_cast<int>(paracel::membership::most_replicas));
  options.job.elastic = FLAGS_elastic;
  options.job.rebalance = FLAGS_rebalance;
  if (FLAGS_rebalance && !FLAGS_elastic && FLAGS_replicas < 2)
    throw usage_error("--rebalance: want --elastic or --replicas of 2 or more with it");
  if (options.job.replicas > options.job.servers)
    throw usage_error("--replicas=" + std::to_string(FLAGS_replicas) + " needs as many servers, and there are " +
                      std::to_string(FLAGS_servers));
  options.job.eject_workers = FLAGS_on_worker_death == "eject";
  double wait = 0;
  if (FLAGS_on_worker_death.starts_with("wait:") &&
      paracel::read_whole_number(std::string_view(FLAGS_on_worker_death).substr(5), wait))
    options.job.worker_wait = time_of("on_worker_death", wait);
  else if (FLAGS_on_worker_death != "abort" && !options.job.eject_workers)
    throw usage_error("--on_worker_death=" + FLAGS_on_worker_death + ": want abort, eject or wait:T");
  options.job.heartbeat_limit = time_of("heartbeat_limit", FLAGS_heartbeat_limit);
  const auto interval = time_of("heartbeat_interval", FLAGS_heartbeat_interval);
  if (options.job.heartbeat_limit < paracel::net::least_heartbeat_limit(interval))
    throw usage_error("--heartbeat_limit=" + std::to_string(FLAGS_heartbeat_limit) + ": nodes beat every " +
                      paracel::number_text(FLAGS_heartbeat_interval) +
                      " s (--heartbeat_interval), and one beat may be late: want at least twice as long");
  if (FLAGS_hang_limit != 0) options.job.hang_limit = time_of("hang_limit", FLAGS_hang_limit);
  options.job.join_limit = time_of("join_timeout", FLAGS_join_timeout);
  options.job.checkpoints = checkpoints_from_flags();
  options.job.program = FLAGS_program;
  options.job.folder = FLAGS_run_dir;
  if (!FLAGS_external.empty()) {
    options.job.external = true;
    const auto settings = paracel::storage::posix_file_system().read(FLAGS_external, std::size_t{1} << 19);
    options.job.settings = paracel::net::text_of(settings);
  }
  options.bind = FLAGS_bind;
  paracel::net::check_bind(options.bind, FLAGS_insecure);
  if (!FLAGS_run_dir.empty() && chdir(FLAGS_run_dir.c_str()) != 0)
    throw usage_error("--run_dir=" + FLAGS_run_dir + ": not a folder, or not accessible");
  event_lines lines(stuck);
  bool by_signal = false;
  const int status = serve(std::move(options), lines, over, stuck, signals, by_signal);
  lines.finish(signals, by_signal, reader_patience);
  return status;
}

}  // namespace

int main(int argc, char** argv) try {
  // First of all, so that the launcher cannot die unnoticed at any moment; undone if it was not requested.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  GFLAGS_NAMESPACE::gflags_exitfunc = [](int status) { std::_Exit(status == 0 ? 0 : paracel::exit_status::usage); };
  gflags::SetUsageMessage("the scheduler of a job; started by prun.py");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (FLAGS_parent == 0) prctl(PR_SET_PDEATHSIG, 0);
  else if (getppid() != FLAGS_parent) return paracel::exit_status::failure;
  if (argc > 1) throw usage_error(std::string("unexpected argument \"") + argv[1] + "\"");
  if (!FLAGS_print_config.empty()) {
    std::printf("%s\n", facts_line(FLAGS_print_config).c_str());
    return std::fflush(stdout) == 0 ? paracel::exit_status::ok : paracel::exit_status::failure;
  }
  paracel::net::raise_descriptor_limit();
  signal(SIGPIPE, SIG_IGN);
  sigset_t asked;
  sigemptyset(&asked);
  paracel::add_heeded(asked, SIGTERM);
  sigaddset(&asked, SIGINT);
  sigaddset(&asked, SIGUSR1);
  sigprocmask(SIG_BLOCK, &asked, nullptr);  // inherited by every thread; read here
  const int over = eventfd(0, EFD_CLOEXEC);
  const int stuck = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int signals = signalfd(-1, &asked, SFD_CLOEXEC);
  if (over < 0 || stuck < 0 || signals < 0) throw paracel::error("cannot open a descriptor for signals");
  return run(over, stuck, signals);
} catch (const paracel::error& e) {
  std::fprintf(stderr, "start_scheduler: error: %s\n", e.what());
  return e.status();
} catch (const std::exception& e) {
  std::fprintf(stderr, "start_scheduler: error: %s\n", paracel::failure_text(e));
  return paracel::exit_status::failure;
}
