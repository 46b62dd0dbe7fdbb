// SPDX-License-Identifier: BSD-3-Clause
//
// Measures the constants from which doc/scale.md computes the cost of a job with a thousand workers: the throughput of
// the clock thread and of the scheduler, and the cost of a connection at both ends.
#include <gflags/gflags.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench_job.hpp"
#include "bench_support.hpp"
#include "core/hash.hpp"
#include "core/membership.hpp"
#include "net/row_codec.hpp"
#include "server/scheduler/scheduler.hpp"
#include "server/shard/clock_service.hpp"
#include "server/store/key_store.hpp"
#include "server/store/row_table.hpp"

DEFINE_int32(connections, 1000, "connections to one shard thread whose memory is measured");
DEFINE_int32(workers, 1000, "workers of the clock that is measured without sockets");
DEFINE_int32(servers, 100, "servers of the ring");
DEFINE_int32(threads, 8, "shard threads of each of them");
DEFINE_double(keys, 1e10, "keys of the job");
DEFINE_int32(window, 64, "requests in flight at the clock thread and at the scheduler");
DEFINE_double(seconds, 1, "measured time of each");
DEFINE_bool(
    shared_connections, false,
    "connections are those to all shard threads of a server, which share one: `connections` / `threads` servers");
DEFINE_string(transport, "ipc", "ipc or tcp");
DEFINE_string(bin_dir, "", "where start_server and start_scheduler are; empty: the folder of this program");

namespace {

using namespace paracel;
using namespace paracel::bench;

double seconds_since(clock::time_point begin) { return std::chrono::duration<double>(clock::now() - begin).count(); }

/// Processor seconds of the process's threads of this name; of all threads if it is empty.
double processor_seconds(pid_t process, const std::string& thread) {
  double sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (!thread.empty() && name != thread) continue;
    double on_processor_ns = 0;
    std::ifstream(task.path() / "schedstat") >> on_processor_ns;
    sum += on_processor_ns / 1e9;
  }
  return sum;
}

std::size_t descriptors(const std::string& process) {
  std::size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + process + "/fd"))
    n += entry.path().empty() ? 0 : 1;
  return n;
}

struct rate {
  double per_second = 0;
  double core_us = 0;  ///< processor time of the answering thread for a request
};

/// Keeps a window of requests of one verb in flight on its own port; `fill` completes each.
rate in_flight(const job& j, net::transport& over, const std::string& address, const std::string& body,
               const std::function<void(net::request_header&, std::uint64_t)>& fill,
               const std::function<double()>& used) {
  const auto port = over.open();
  const int channel = port->connect(address);
  std::uint64_t sent = 0;
  const auto send = [&] {
    net::request_header h;
    h.job = j.rendezvous().job;
    h.client = 1;
    h.sequence = h.low_watermark = ++sent;
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    fill(h, sent);
    net::request_bytes head;
    net::encode(h, head);
    port->send(channel, {.head = head, .body = net::bytes_of(body)});
  };
  const double before = used();
  const auto begin = clock::now();
  for (int i = 0; i < FLAGS_window; ++i) send();
  std::uint64_t answered = 0;
  net::incoming in;
  while (seconds_since(begin) < FLAGS_seconds) {
    if (!port->receive(in, std::chrono::milliseconds(1000))) throw std::runtime_error("no answer from " + address);
    net::reply_view reply;
    if (net::decode(in.frame, in.tail.size(), reply) != nullptr || reply.header.result != net::status::ok) {
      throw std::runtime_error("a request was refused at " + address + ": " + std::string(net::text_of(reply.body)));
    }
    ++answered;
    send();
  }
  const double seconds = seconds_since(begin);
  const auto count = static_cast<double>(answered);
  return {count / seconds, (used() - before) / count * 1e6};
}

/// A tick and a wait of each of many workers in turn, without a socket: the cost of the clock itself. Units: ns for
/// each worker and iteration.
double clock_ns() {
  class nowhere final : public srv::reply_sink {
   public:
    void send(const net::peer&, const net::outgoing&) override {}
  } sink;
  const auto workers = static_cast<std::uint32_t>(FLAGS_workers);
  srv::clock_service service(workers);
  constexpr std::uint32_t rounds = 200;
  const auto now = net::boot_clock::now();
  const auto begin = clock::now();
  for (std::uint32_t c = 1; c <= rounds; ++c) {
    for (std::uint32_t w = 0; w < workers; ++w) {
      for (const auto what : {net::verb::clock_tick, net::verb::clock_wait}) {
        net::request_view r;
        r.header.what = what;
        r.header.rank = w;
        r.header.clock = c;
        service.handle(r, srv::completion(sink, {}, what, 1, 1, 1), now);
      }
    }
  }
  return seconds_since(begin) * 1e9 / rounds / workers;
}

/// Maximum load of a server and of a shard thread relative to the mean, as the ring places the partitions.
struct fullness {
  double server = 0, shard = 0;
};
fullness of_the_ring() {
  membership m;
  for (int i = 0; i < FLAGS_servers; ++i) {
    server_entry e;
    e.slot = static_cast<std::uint32_t>(i);
    e.threads = static_cast<std::uint32_t>(FLAGS_threads);
    e.shards.resize(e.threads);
    m.servers.push_back(e);
  }
  const key_router router(m);
  std::vector<double> servers(m.servers.size());
  std::vector<double> shards(m.servers.size() * static_cast<std::size_t>(FLAGS_threads));
  for (std::uint32_t p = 0; p < partition_count; ++p) {
    const auto at = router.locate_partition(static_cast<std::uint16_t>(p));
    ++servers[at.server];
    ++shards[at.server * static_cast<std::size_t>(FLAGS_threads) + at.shard];
  }
  const auto most = [](const std::vector<double>& v) {
    return *std::max_element(v.begin(), v.end()) * static_cast<double>(v.size()) / partition_count;
  };
  return {most(servers), most(shards)};
}

/// How long the insertions of one key or row take while a partition grows to its share of the keys. Units: us.
struct insertions {
  double median = 0, of_1000 = 0, of_10000 = 0;  ///< all but one of so many take no longer
  double longest = 0;
};
template <class Insert>
insertions timed_insertions(const Insert& insert) {
  const auto count = std::max<std::uint64_t>(static_cast<std::uint64_t>(FLAGS_keys / partition_count), 1);
  std::vector<double> took;
  took.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto begin = insert(i);
    took.push_back(seconds_since(begin) * 1e6);
  }
  std::sort(took.begin(), took.end());
  const auto beyond = [&](std::uint64_t one_of) { return took[count - 1 - count / one_of]; };
  return {beyond(2), beyond(1000), beyond(10'000), took.back()};
}
insertions of_keys() {
  const std::atomic<const srv::ownership*> nobody{nullptr};
  srv::key_store store({}, nobody);
  const double number = 1.5;
  const value_view value{value_tag::f64_array, std::as_bytes(std::span(&number, 1))};
  return timed_insertions([&](std::uint64_t i) {
    char key[32];
    std::snprintf(key, sizeof key, "key:%016llu", static_cast<unsigned long long>(i));
    const auto hash = hash_key(key) & (~std::uint64_t{0} >> 14U);  // all of them in partition 0
    const auto begin = clock::now();
    store.store(hash, key, value);
    return begin;
  });
}
insertions of_rows() {
  srv::row_table rows({value_tag::f64, 1, 0, false}, 1, false);
  return timed_insertions([&](std::uint64_t i) {
    const auto hash = net::hash_row(i);
    const auto begin = clock::now();
    rows.make(0, hash, i);
    return begin;
  });
}
std::string to_json(const insertions& t) {
  char text[128];
  std::snprintf(text, sizeof text, "{\"median\": %.2f, \"1 of 1,000\": %.1f, \"1 of 10,000\": %.1f, \"longest\": %.0f}",
                t.median, t.of_1000, t.of_10000, t.longest);
  return text;
}

/// All processes of the job join a scheduler without a socket, the servers first. Units: ms, for all of them.
double joins_ms() {
  class nowhere final : public srv::reply_sink {
   public:
    void send(const net::peer&, const net::outgoing& message) override { bytes += message.body.size(); }
    std::size_t bytes = 0;
  } sink;
  constexpr std::uint64_t id = 1;
  const auto workers = static_cast<std::uint32_t>(FLAGS_workers);
  const auto servers = static_cast<std::uint32_t>(FLAGS_servers);
  const auto now = net::boot_clock::now();
  srv::scheduler_options options;
  options.job = id;
  options.workers = workers;
  options.servers = servers;
  srv::scheduler subject(
      options, [](std::string_view, bool) {}, now);
  std::vector<std::string> bodies;
  for (std::uint32_t s = 0; s < servers; ++s) {
    const auto at = "tcp://node" + std::to_string(s) + ".cluster.example:";
    std::vector<std::string> shards;
    for (int t = 0; t < FLAGS_threads; ++t) shards.push_back(at + std::to_string(40000 + t));
    bodies.push_back(nlohmann::json{
        {"role", "server"},
        {"slot", s},
        {"incarnation", s + 1},
        {"threads", FLAGS_threads},
        {"host", "node" + std::to_string(s)},
        {"pid", 500},
        {"shards", shards},
        {"clock", at + "41000"},
        {"control",
         at + "41001"}}.dump());
  }
  for (std::uint32_t w = 0; w < workers; ++w)
    bodies.push_back(
        nlohmann::json{{"role", "worker"}, {"rank", w}, {"size", workers}, {"host", "node"}, {"pid", 700}}.dump());
  const auto begin = clock::now();
  std::uint64_t sequence = 0;
  for (const auto& body : bodies) {
    net::request_view r;
    r.header.what = net::verb::join;
    r.header.job = id;
    r.header.sequence = ++sequence;
    r.header.body_bytes = static_cast<std::uint32_t>(body.size());
    r.body = net::bytes_of(body);
    subject.handle(r, {}, srv::completion(sink, {}, r.header.what, sequence, id, 1), now);
  }
  const double took = seconds_since(begin) * 1e3;
  if (subject.state() != srv::scheduler::phase::running) throw std::runtime_error("the job has not begun");
  return took;
}

struct connection_cost {
  double server_bytes = 0, client_bytes = 0, server_descriptors = 0, client_descriptors = 0;
  double fan_out_us = 0;  ///< one reply, when requests are sent on every connection at once and all are answered
};
/// Channels of one port to threads of a server in turn. Where threads share a connection, a second channel to a thread
/// opens the next one, as the first one to another server would.
connection_cost of_a_connection(const job& j, net::transport& over, const std::vector<std::string>& addresses) {
  const auto port = over.open();
  const auto send = [&](int channel) {
    net::request_header h;
    h.what = net::verb::ping;
    h.job = j.rendezvous().job;
    h.sequence = 1;
    net::request_bytes head;
    net::encode(h, head);
    port->send(channel, {.head = head});
  };
  const auto receive = [&] {
    net::incoming in;
    if (!port->receive(in, std::chrono::seconds(10))) throw std::runtime_error("no answer from " + addresses.front());
  };
  const auto ask = [&](int channel) {
    send(channel);
    receive();
  };
  const pid_t server = j.server_process(0);
  ask(port->connect(addresses.front()));
  const auto server_before = static_cast<double>(resident_bytes(server));
  const auto client_before = static_cast<double>(resident_bytes(::getpid()));
  const auto server_fds = descriptors(std::to_string(server));
  const auto client_fds = descriptors("self");
  for (int i = 1; i <= FLAGS_connections; ++i) {
    ask(port->connect(addresses[static_cast<std::size_t>(i) % addresses.size()]));
  }
  const auto n = static_cast<double>(FLAGS_connections);
  double fan_out_us = 1e30;
  for (int turn = 0; turn < 10; ++turn) {
    const auto begin = clock::now();
    for (int i = 1; i <= FLAGS_connections; ++i) send(i);
    for (int i = 1; i <= FLAGS_connections; ++i) receive();
    fan_out_us = std::min(fan_out_us, seconds_since(begin) / n * 1e6);
  }
  return {(static_cast<double>(resident_bytes(server)) - server_before) / n,
          (static_cast<double>(resident_bytes(::getpid())) - client_before) / n,
          static_cast<double>(descriptors(std::to_string(server)) - server_fds) / n,
          static_cast<double>(descriptors("self") - client_fds) / n, fan_out_us};
}

void run() {
  const job j({.bin_dir = FLAGS_bin_dir,
               .transport = FLAGS_transport,
               .threads = FLAGS_shared_connections ? FLAGS_threads : 1,
               .server_options = FLAGS_shared_connections ? "--shared_connections" : ""});
  const auto worker = j.join(0);
  const auto& server = worker->servers().servers.front();
  net::zmq_transport over;

  const pid_t server_process = j.server_process(0);
  const rate ticks = in_flight(
      j, over, server.clock, "",
      [](net::request_header& h, std::uint64_t i) {
        h.what = net::verb::clock_tick;
        h.clock = static_cast<std::uint32_t>(i);
      },
      [=] { return processor_seconds(server_process, "server k"); });
  std::array<char, 256> host{};  // as in its request to join
  ::gethostname(host.data(), host.size() - 1);
  const nlohmann::json who{{"role", "worker"}, {"rank", 0}, {"size", 1}, {"host", host.data()}, {"pid", ::getpid()}};
  const pid_t scheduler = j.scheduler_process();
  const rate beats = in_flight(
      j, over, j.rendezvous().scheduler, who.dump(),
      [](net::request_header& h, std::uint64_t) { h.what = net::verb::heartbeat; },
      [=] { return processor_seconds(scheduler, ""); });
  const connection_cost c = of_a_connection(j, over, server.shards);
  worker->leave();
  const fullness full = of_the_ring();
  std::printf(
      "{\"ticks_per_second\": %.0f, \"tick_core_us\": %.3f, \"clock_worker_ns\": %.1f, \"heartbeats_per_second\": "
      "%.0f, "
      "\"heartbeat_core_us\": %.3f, \"server_bytes_per_connection\": %.0f, \"client_bytes_per_connection\": %.0f, "
      "\"server_descriptors_per_connection\": %.2f, \"client_descriptors_per_connection\": %.2f, \"fan_out_us\": %.2f, "
      "\"fullest_server\": %.3f, \"fullest_shard\": %.3f, \"insert_us\": %s, \"row_insert_us\": %s, \"joins_ms\": "
      "%.2f}\n",
      ticks.per_second, ticks.core_us, clock_ns(), beats.per_second, beats.core_us, c.server_bytes, c.client_bytes,
      c.server_descriptors, c.client_descriptors, c.fan_out_us, full.server, full.shard, to_json(of_keys()).c_str(),
      to_json(of_rows()).c_str(), joins_ms());
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("what the clock, the scheduler and a connection cost; prints one line of JSON");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    if (FLAGS_connections < 1 || FLAGS_workers < 1 || FLAGS_window < 1) {
      throw std::runtime_error("connections, workers and window must be at least 1");
    }
    run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_scale: error: %s\n", e.what());
    return 1;
  }
  return 0;
}
