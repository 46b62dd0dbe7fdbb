// SPDX-License-Identifier: BSD-3-Clause
//
// One server of a job: joins at the scheduler, and serves until the scheduler, a signal or a `stop` request ends it.
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <gflags/gflags.h>
#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/failure_text.hpp"
#include "core/heeded_signals.hpp"
#include "core/hex.hpp"
#include "core/json_io.hpp"
#include "core/membership.hpp"
#include "core/number_parsing.hpp"
#include "net/bind_policy.hpp"
#include "net/fd_limit.hpp"
#include "net/heartbeat.hpp"
#include "net/job_key.hpp"
#include "net/lossy_transport.hpp"
#include "net/own_address.hpp"
#include "net/protocol.hpp"
#include "net/rendezvous.hpp"
#include "net/scheduler_channel.hpp"
#include "net/trace_file.hpp"
#include "net/unix_transport.hpp"
#include "net/zmq_transport.hpp"
#include "server/node/resident_memory.hpp"
#include "server/node/server_node.hpp"
#include "server/node/usable_cores.hpp"
#include "server/plugin/last_words.hpp"

DEFINE_string(rendezvous, "", "address of the scheduler");
DEFINE_string(job, "", "id of the job, 16 hex digits");
DEFINE_string(slot, "0", "slot on the hash ring, 0, 1, ...; auto: the value of OMPI_COMM_WORLD_RANK");
DEFINE_string(
    threads, "auto",
    "number of shard threads; auto/K: the cores that this process may use, divided by the K servers on this host; "
    "auto: K is the number of processes that mpirun has started here, or 1");
DEFINE_bool(shared_connections, false, "the shard threads share one connection to each client");
DEFINE_uint32(share_connections_above, 1024,
              "more shard threads than this share connections even without --shared-connections");
DEFINE_double(weight, 1.0, "share of the keys, relative to the other servers");
DEFINE_string(bind, "tcp://127.0.0.1:*",
              "address to listen on: ipc:///folder or tcp://host:*; tcp://*:*: the interface towards the scheduler");
DEFINE_string(
    advertise, "",
    "host name or address by which others reach this server, if not that of --bind (behind NAT, for example)");
DEFINE_string(plugin_dirs, "", "folders to search for plug-ins, separated by colons");
DEFINE_string(
    function_timeout, "30",
    "seconds after which a user function that is still running is reported in the log, or killed if --plugin-sandbox "
    "is set; libx.so:f=SECONDS, separated by commas, for individual functions");
DEFINE_bool(plugin_sandbox, false, "run user functions in separate processes");
DEFINE_string(sandbox_memory, "4G", "largest address space of a --plugin-sandbox process; 0: no limit");
DEFINE_double(heartbeat_limit, 3,
              "seconds of silence after which a node is considered lost; for the scheduler, three times as long");
DEFINE_double(heartbeat_interval, 0.5, "seconds from one heartbeat to the next");
DEFINE_double(
    resend_after, 1,
    "seconds without a reply after which the receiver is queried, and what a broken connection has lost is resent");
DEFINE_string(drop_messages, "", "percentage of messages to drop, duplicate or delay on purpose");
DEFINE_string(seed, "1", "random seed for the choice of messages by --drop-messages");
DEFINE_int64(parent, 0, "exit when the process with this id, the parent, ends; 0: none");
// Byte counts may end in K, M, G or T.
DEFINE_string(max_value_bytes, "256M", "largest value that is accepted");
DEFINE_string(max_message_bytes, "1G", "largest frame that is accepted or sent");
DEFINE_string(max_memory, "0", "most bytes that all keys and values together may occupy; 0: no limit");
DEFINE_string(transport, "zmq", "zmq, or unix: Unix sockets without ZeroMQ's thread; all addresses must be ipc://");
DEFINE_string(max_unread_bytes, "1G",
              "bytes of replies that a client may leave unread at one thread before its requests are refused");
DEFINE_bool(metrics, false, "time requests, and report counters with each heartbeat, for the scheduler's metrics");
DEFINE_bool(insecure, false, "bind beyond loopback although connections are neither encrypted nor authenticated");

// gflags calls this when it cannot parse the command line; it prints the reason on stderr itself.
namespace GFLAGS_NAMESPACE {
extern void (*gflags_exitfunc)(int);
}

namespace {

using std::chrono::milliseconds;
using namespace paracel;

milliseconds milliseconds_of(double seconds, const char* flag) {
  if (!(seconds > 0 && seconds < 1e9)) throw usage_error(std::string(flag) + " must be a positive number of seconds");
  return milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

milliseconds milliseconds_of(const std::string& text, const char* flag) {
  double seconds = 0;
  return milliseconds_of(read_whole_number(text, seconds) ? seconds : 0, flag);
}

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto at = text.find(by);
    if (at != 0) parts.emplace_back(text.substr(0, at));
    text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  }
  return parts;
}

/// Parses --function-timeout.
srv::function_timeouts timeouts_from(const std::string& text) {
  constexpr const char* flag = "--function-timeout";
  srv::function_timeouts limits;
  for (const auto& part : split(text, ',')) {
    const auto equals = part.rfind('=');
    if (equals == std::string::npos) limits.otherwise = milliseconds_of(part, flag);
    else limits.of_function[part.substr(0, equals)] = milliseconds_of(part.substr(equals + 1), flag);
  }
  return limits;
}

std::uint64_t bytes_of(const std::string& text, const char* flag) {
  std::uint64_t count = 0;
  if (!read_byte_count(text, count)) {
    throw usage_error(std::string(flag) + " must be a number of bytes such as 1000000, 64K, 256M or 4G, not " +
                      quote_for_error(text));
  }
  constexpr std::uint64_t most = std::uint64_t{1} << 47;  // what a process can address; small multiples do not overflow
  if (count > most) throw usage_error(std::string(flag) + "=" + text + ": want at most 128T");
  return count;
}

std::optional<std::uint32_t> number_in(std::string_view text) {
  std::uint32_t number = 0;
  const auto* end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data(), end, number);
  return failed == std::errc{} && stop == end ? std::optional(number) : std::nullopt;
}

std::uint32_t slot_from(std::string text) {
  if (text == "auto") {
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (rank == nullptr) throw usage_error("--slot auto needs OMPI_COMM_WORLD_RANK, which mpirun sets");
    text = rank;
  }
  const auto slot = number_in(text);
  if (!slot) throw usage_error("--slot must be a number or auto, not '" + text + "'");
  return *slot;
}

std::uint32_t threads_from(const std::string& text) {
  if (const auto threads = number_in(text)) return *threads;
  std::optional<std::uint32_t> servers = 1;
  if (text == "auto") {
    if (const char* here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE")) servers = number_in(here);
  } else {
    servers = text.starts_with("auto/") ? number_in(std::string_view(text).substr(5)) : std::nullopt;
  }
  if (!servers || *servers == 0) throw usage_error("--threads must be a number, auto or auto/K, not '" + text + "'");
  return std::clamp(srv::usable_cores() / *servers, 1U, membership::most_threads);
}

/// `wish` with a wildcard host resolved, since others have to connect to it.
std::string bind_address(const std::string& wish, const std::string& scheduler) {
  if (!wish.starts_with("tcp://")) return wish;
  std::string address = wish;
  const auto host = net::host_in(wish);
  if (host == "*" || host == "0.0.0.0" || host == "::") {
    address = "tcp://" + net::own_host_towards(scheduler) + wish.substr(wish.rfind(':'));
  }
  net::check_bind(address, FLAGS_insecure);
  return address;
}

/// Why the process ends, set by any thread; the first one wins.
class ending {
 public:
  ending() : waiter_(pthread_self()) {}
  void come(int status, std::string why) {
    {
      const std::lock_guard lock(mutex_);
      if (come_) return;
      come_ = true;
      status_ = status;
      why_ = std::move(why);
    }
    pthread_kill(waiter_, SIGUSR1);
  }
  [[nodiscard]] bool has_come() const {
    const std::lock_guard lock(mutex_);
    return come_;
  }
  [[nodiscard]] int status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  [[nodiscard]] std::string why() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  mutable std::mutex mutex_;
  pthread_t waiter_;
  bool come_ = false;
  int status_ = 0;
  std::string why_;
};

/// One request to the scheduler. Returns false when `end` has come, or the limit has passed, before the reply.
class scheduler_line {
 public:
  scheduler_line(net::transport& over, const std::string& address, const srv::server_options& self)
      : line_(over, address, self.incarnation, self.resend_after), job_(self.job) {}

  bool ask(net::verb what, const std::string& body, const ending& end, milliseconds limit, net::reply_view& answer) {
    net::request_header h;
    h.what = what;
    h.job = job_;
    line_.ask(h, net::bytes_of(body));
    const auto until = std::chrono::steady_clock::now() + limit;
    while (!end.has_come() && std::chrono::steady_clock::now() < until) {
      if (line_.receive(milliseconds(20), answer)) return true;
    }
    return false;
  }

 private:
  net::scheduler_channel line_;
  std::uint64_t job_;
};

/// The tcp://host:port by which the others reach it.
std::string advertised(const std::string& address) {
  if (FLAGS_advertise.empty() || !address.starts_with("tcp://")) return address;
  return "tcp://" + FLAGS_advertise + address.substr(address.rfind(':'));
}

std::string join_body(const server_entry& self) {
  auto shards = self.shards;
  std::ranges::transform(shards, shards.begin(), advertised);
  return json_text({{"role", "server"},
                    {"slot", self.slot},
                    {"weight", self.weight},
                    {"incarnation", self.incarnation},
                    {"threads", self.threads},
                    {"host", self.host},
                    {"pid", self.pid},
                    {"shards", shards},
                    {"clock", advertised(self.clock)},
                    {"control", advertised(self.control)}});
}

std::string heartbeat_body(srv::server_node& node, bool joined) {
  nlohmann::json body{{"role", "server"},
                      {"slot", node.addresses().slot},
                      {"pid", node.addresses().pid},
                      {"incarnation", to_hex(node.addresses().incarnation)},
                      {"joined", joined},
                      {"synced", node.synced()},
                      {"memory_bytes", node.object().memory_bytes()},
                      {"resident_bytes", srv::resident_bytes()},
                      {"usage", node.object().usage()},
                      {"load", node.object().load(net::boot_clock::now()).to_json()}};
  if (FLAGS_metrics) body["metrics"] = node.object().metrics();
  // Limited, whatever the names of a plug-in: a heartbeat that is too long would be refused, and this server be lost.
  constexpr std::size_t most_runs = 64;  // as in server/scheduler/scheduler.cpp
  constexpr std::size_t most_name_bytes = 512;
  auto& busy = body["busy"] = nlohmann::json::array();
  for (const auto& run : node.long_runs()) {
    if (busy.size() == most_runs) break;
    busy.push_back({{"shard", run.shard},
                    {"function", run.function.substr(0, most_name_bytes)},
                    {"seconds", static_cast<double>(run.time.count()) / 1000}});
  }
  return json_text(body);
}

/// The folder of this program.
std::string own_folder() {
  std::error_code failed;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) throw usage_error("--plugin-sandbox: cannot read /proc/self/exe: " + failed.message());
  return self.parent_path().string();
}

srv::node_options options_from_flags() {
  srv::node_options o;
  o.server.slot = slot_from(FLAGS_slot);
  o.server.threads = threads_from(FLAGS_threads);
  o.server.weight = FLAGS_weight;
  o.server.job = net::parse_job_id(FLAGS_job);
  o.server.workers = 0;
  o.server.plugin_folders = split(FLAGS_plugin_dirs, ':');
  o.server.max_value_bytes = bytes_of(FLAGS_max_value_bytes, "--max-value-bytes");
  // Lengths in a header have 32 bits.
  o.server.max_message_bytes =
      std::min<std::uint64_t>(bytes_of(FLAGS_max_message_bytes, "--max-message-bytes"), ~std::uint32_t{0});
  o.server.max_memory_bytes = bytes_of(FLAGS_max_memory, "--max-memory");
  o.server.max_unread_bytes = bytes_of(FLAGS_max_unread_bytes, "--max-unread-bytes");
  o.server.times = FLAGS_metrics;
  o.owns_process = true;
  o.function_timeout = timeouts_from(FLAGS_function_timeout);
  if (FLAGS_plugin_sandbox) {
    o.server.sandbox.program = own_folder() + "/start_sandbox";
    o.server.sandbox.memory_bytes = bytes_of(FLAGS_sandbox_memory, "--sandbox-memory");
    o.server.sandbox.timeouts = o.function_timeout;
  }
  const auto interval = milliseconds_of(FLAGS_heartbeat_interval, "--heartbeat-interval");
  if (milliseconds_of(FLAGS_heartbeat_limit, "--heartbeat-limit") < net::least_heartbeat_limit(interval))
    throw usage_error("--heartbeat-limit must be at least " + number_text(2 * FLAGS_heartbeat_interval) +
                      " s: nodes beat every " + number_text(FLAGS_heartbeat_interval) +
                      " s (--heartbeat-interval), and one beat may be late");
  o.server.resend_after = milliseconds_of(FLAGS_resend_after, "--resend-after");
  o.shares_connections = FLAGS_shared_connections || o.server.threads > FLAGS_share_connections_above;
  o.bind = bind_address(FLAGS_bind, FLAGS_rendezvous);
  return o;
}

/// The scheduler has answered a heartbeat: for two seconds after it was sent, or less if the limit is lower, no other
/// process replaces this server. A tenth is for clock drift.
void renew_lease(srv::server_node& node, net::clock_source::time_point sent) {
  const auto limit = milliseconds_of(FLAGS_heartbeat_limit, "--heartbeat-limit");
  node.set_lease_end(sent + std::min(milliseconds{2000}, limit * 10 / 11));
}

/// The servers have changed. Returns: the new epoch.
std::uint32_t adopt(srv::server_node& node, std::string_view json, ending& end) {
  const auto members = membership::from_json(json);
  const auto& self = node.addresses();
  const auto me = std::ranges::find(members.servers, self.slot, &server_entry::slot);
  if (me != members.servers.end() && me->incarnation == self.incarnation && me->state == server_state::gone) {
    end.come(exit_status::ok, {});
  } else if (me == members.servers.end() || me->incarnation != self.incarnation || me->state == server_state::down) {
    end.come(exit_status::server_lost, "it was considered lost; the job continues without it");
    node.end_lease();
  } else {
    node.set_membership(members);
  }
  return members.epoch;
}

/// A user function is killing this server: reports it, so that it is blocked.
void tell_last_words(srv::server_node& node, const srv::last_words::words& words) {
  const ending never;
  net::reply_view answer;
  const auto& self = node.addresses();
  // Over a new connection: the function may have closed the others. Under a number of its own, so that it is not taken
  // for a repetition. Neither is released: the process is about to end.
  auto sender = node.object().options();
  sender.incarnation = ~sender.incarnation;
  auto* const over = new net::zmq_transport(net::transport_limits{.max_message_bytes = sender.max_message_bytes});
  auto* const line = new scheduler_line(*over, FLAGS_rendezvous, sender);
  line->ask(
      net::verb::leave,
      json_text({{"role", "server"},
                 {"slot", self.slot},
                 {"pid", self.pid},
                 {"incarnation", to_hex(self.incarnation)},
                 {"status", exit_status::server_lost},
                 {"last_words", {{"function", to_hex(words.function)}, {"how", words.how}, {"where", words.where}}}}),
      never, milliseconds(1000), answer);
}

/// SIGALRM is the one that mpirun forwards (tool/launcher/job/job.py). One without a sender is from an alarm or a timer
/// that a user function has set.
bool asks_to_exit(const siginfo_t& signal) {
  const bool sent = signal.si_code <= 0 && signal.si_code != SI_TIMER;
  return signal.si_signo == SIGTERM || signal.si_signo == SIGINT || (signal.si_signo == SIGALRM && sent);
}

/// Serves until `end` is set. Returns the exit status.
int serve(srv::server_node& node, net::transport& over, ending& end, const sigset_t& signals) {
  std::atomic<bool> joined{false};
  net::heartbeat beats(
      over,
      {.scheduler = FLAGS_rendezvous,
       .job = node.object().options().job,
       .interval = milliseconds_of(FLAGS_heartbeat_interval, "--heartbeat-interval"),
       .limit = milliseconds_of(FLAGS_heartbeat_limit, "--heartbeat-limit") * net::patience_with_scheduler,
       .on_answer =
           [&](net::clock_source::time_point sent) {
             if (!end.has_come()) renew_lease(node, sent);
           },
       .on_membership = [&](std::string_view json) { return adopt(node, json, end); }},
      [&] { return heartbeat_body(node, joined); },
      [&end](const net::directive& o) {
        if (o.what == net::instruction::shutdown) end.come(exit_status::ok, {});
        else end.come(o.status == 0 ? exit_status::failure : o.status, o.cause);
      });

  const auto& own = node.object().options();
  scheduler_line line(over, FLAGS_rendezvous, own);
  net::reply_view answer;
  // The heartbeat monitors the scheduler, and the scheduler limits the time for joining, so the wait needs no limit of
  // its own. Meanwhile this thread waits for signals.
  std::thread joining([&] {
    try {
      if (!line.ask(net::verb::join, join_body(node.addresses()), end, std::chrono::hours(24 * 365), answer)) return;
      if (answer.header.result != net::status::ok) {
        const auto body = json_from(net::text_of(answer.body));
        const bool told = body.is_object() && body.contains("cause") && body["cause"].is_string();
        end.come(told ? body.value("status", exit_status::failure) : exit_status::failure,
                 told ? body["cause"].get<std::string>() : std::string(net::text_of(answer.body)));
        return;
      }
      const auto members = membership::from_json(net::text_of(answer.body));
      // Its lease begins with the first heartbeat answered from now on; following the membership sends one at once.
      if (members.may_change()) node.set_lease_end(net::boot_clock::now());
      node.set_membership(members);
      if (members.may_change()) beats.follow(members.epoch);
      joined = true;
    } catch (const error& e) {
      end.come(e.status(), e.what());
    } catch (const std::exception& e) {
      end.come(exit_status::failure, failure_text(e));
    }
  });
  siginfo_t signal{};
  while (!end.has_come() && !srv::last_words::heard()) {
    if (sigwaitinfo(&signals, &signal) < 0) continue;  // interrupted by a handler
    if (asks_to_exit(signal)) end.come(exit_status::ok, strsignal(signal.si_signo));
  }
  // A server told to exit because a function hangs asks which one.
  if (end.status() == exit_status::server_lost && node.ask_longest_run()) {
    for (int i = 0; i < 200 && !srv::last_words::heard(); ++i) {
      std::this_thread::sleep_for(milliseconds(1));
      if (i % 10 == 9) node.ask_longest_run();
    }
  }
  const bool cut_off = !srv::last_words::heard() && srv::last_words::notice_closed_descriptors();
  if (const auto words = srv::last_words::heard()) {
    node.end_lease();
    if (joined) tell_last_words(node, *words);
    srv::last_words::passed_on();
    if (cut_off) std::_Exit(exit_status::server_lost);
    if (!words->how.empty()) {
      while (true) pause();  // the thread in that function ends the process
    }
  }
  joining.join();
  const bool by_signal = asks_to_exit(signal);
  if (by_signal) {
    node.end_lease();
    // So that nothing waits for a heartbeat that will not be sent.
    const ending never;
    line.ask(net::verb::leave,
             json_text({{"role", "server"},
                        {"slot", node.addresses().slot},
                        {"pid", node.addresses().pid},
                        {"incarnation", to_hex(node.addresses().incarnation)},
                        {"memory_bytes", node.object().memory_bytes()},
                        {"resident_bytes", srv::resident_bytes()},
                        {"usage", node.object().usage()},
                        {"status", 0}}),
             never, milliseconds(50), answer);
  } else if (!end.why().empty()) {
    std::fprintf(stderr, "start_server: error: s%u: %s\n", node.addresses().slot, end.why().c_str());
  }
  return end.status();
}

[[noreturn]] void run() {
  if (FLAGS_rendezvous.empty()) throw usage_error("--rendezvous is missing; prun.py starts this program");

  net::raise_descriptor_limit();
  net::take_job_key();
  // Memory of a large value is reused for the next one instead of being returned to the system page by page. Measured,
  // 250 pushes of 4 MB to one key: 2,316 page faults instead of 4,274. 32 MiB is the largest threshold that glibc
  // accepts.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);

  // Blocked before the first thread starts, so that only sigwaitinfo below sees them.
  sigset_t signals;
  sigemptyset(&signals);
  add_heeded(signals, SIGTERM);
  for (const int s : {SIGINT, SIGUSR1, SIGALRM}) sigaddset(&signals, s);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  ending end;
  auto options = options_from_flags();
  net::start_tracing_if_asked();
  std::atomic<srv::server_node*> running{nullptr};
  const auto dropped = [&running](std::string_view why) {
    auto* node = running.load();
    if (node == nullptr) return;
    node->object().count_dropped_connection();
    if (node->object().connections_dropped() != 1) return;
    std::fprintf(stderr, "start_server: s%u drops a connection: %.*s\n", node->addresses().slot,
                 static_cast<int>(why.size()), why.data());
  };
  const net::transport_limits limits{.max_message_bytes = options.server.max_message_bytes};
  if (FLAGS_transport != "unix" && FLAGS_transport != "zmq")
    throw usage_error("--transport: found " + FLAGS_transport + ", want unix or zmq");
  std::shared_ptr<net::transport> over;
  if (FLAGS_transport == "unix") over = std::make_shared<net::unix_transport>(limits, dropped);
  else over = std::make_shared<net::zmq_transport>(limits, dropped);
  std::shared_ptr<net::lossy_transport> lossy;
  if (!FLAGS_drop_messages.empty())
    over = lossy = std::make_shared<net::lossy_transport>(
        over,
        net::lossy_transport::options_from(FLAGS_drop_messages, FLAGS_seed, "s" + std::to_string(options.server.slot)));
  options.on_stop = [&] {
    const auto* failed = running.load();
    const auto why = failed == nullptr ? std::string() : failed->failure();
    end.come(why.empty() ? exit_status::ok : exit_status::failure, why);
  };
  srv::last_words::install(options.server.slot, pthread_self(), SIGUSR1, !FLAGS_plugin_sandbox);
  auto node = std::make_unique<srv::server_node>(*over, options);
  running = node.get();
  const int status = serve(*node, *over, end, signals);
  if (lossy != nullptr) std::fprintf(stderr, "start_server: s%u: %s\n", options.server.slot, lossy->report().c_str());
  if (!node->stop()) {
    std::fprintf(stderr, "start_server: s%u exits although a user function is still running\n", node->addresses().slot);
  }
  // Without destructors: a thread in a user function that does not return cannot be joined, and the transport would
  // wait until its last messages are received by processes that have exited.
  std::fflush(stderr);
  std::_Exit(status);
}

}  // namespace

int main(int argc, char** argv) {
  // First of all, so that the launcher, or the mpirun of this rank, cannot die unnoticed at any moment; undone if there
  // is neither.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  GFLAGS_NAMESPACE::gflags_exitfunc = [](int status) { std::_Exit(status == 0 ? 0 : exit_status::usage); };
  gflags::SetUsageMessage("one server of a job; started by prun.py");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  const bool under_mpirun = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;  // which is then the parent
  if (FLAGS_parent == 0 && !under_mpirun) prctl(PR_SET_PDEATHSIG, 0);
  if (FLAGS_parent != 0 && getppid() != FLAGS_parent) return exit_status::failure;
  try {
    if (argc > 1) throw usage_error("unexpected argument \"" + std::string(argv[1]) + "\"");
    run();
  } catch (const error& e) {
    std::fprintf(stderr, "start_server: error: %s\n", e.what());
    return e.status();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "start_server: error: %s\n", failure_text(e));
    return exit_status::failure;
  }
}
