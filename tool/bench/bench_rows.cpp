// SPDX-License-Identifier: BSD-3-Clause
//
// Rows of a typed table per second: pulls, additions and AdaGrad steps of random rows out of many, in the server object
// alone (one thread, no socket) or through ipc from one worker to one server process with one shard thread. Prints one
// line of JSON. Without --op it measures all three in the server object, which shows the throughput of one core.
// --op wire compares the formats in which rows travel, in turn: bytes and time of a pull and of an update (ipc).
#include <gflags/gflags.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <paracel/comm.hpp>
#include <paracel/paralg.hpp>
#include <paracel/table.hpp>

#include "bench_support.hpp"
#include "id_lists.hpp"
#include "net/row_codec.hpp"
#include "net/row_values.hpp"
#include "net/zmq_transport.hpp"
#include "server/node/server.hpp"
#include "server/node/server_node.hpp"
#include "worker/comm/single_comm.hpp"
#include "worker/job/session.hpp"
#include "worker/parameters/parasrv.hpp"

DEFINE_string(op, "all", "pull, add or adagrad; wire: formats of rows, ipc; all: each in turn, in the server object");
DEFINE_string(where, "server", "server: the object alone; ipc: a worker and a server process");
DEFINE_uint64(rows, 1'000'000, "rows of the table");
DEFINE_uint64(rows_per_call, 10'000, "rows of a call, drawn at random");
DEFINE_string(ids, "random", "random; unique: each once; or ascending: those, sorted");
DEFINE_uint64(lists, 64, "lists of rows that the calls use in turn; 0: each call has a new one (ipc)");
DEFINE_uint64(width, 16, "floats of a row");
DEFINE_uint64(window, 1, "ipc: calls in flight (pulls by future, updates unwatched)");
DEFINE_double(seconds, 1, "measured time");
DEFINE_double(warm_up, 0.3, "time before it");

namespace {

using namespace paracel;
using namespace paracel::bench;
using net::verb;

constexpr std::size_t load_rows = 50'000;

id_lists calls_of_flags() { return {FLAGS_rows, FLAGS_rows_per_call, FLAGS_lists, FLAGS_ids}; }

class no_sink final : public srv::reply_sink {
 public:
  void send(const net::peer&, const net::outgoing& message) override {
    constexpr std::size_t status_at = 6;
    auto result = net::status::ok;
    std::memcpy(&result, message.head.data() + status_at, sizeof result);
    if (result != net::status::ok)
      throw std::runtime_error(std::string("the server refused: ") + std::string(net::text_of(message.body)));
  }
};

/// The table in a server object of this thread.
class bare_server {
 public:
  bare_server() : server_(options()) {
    net::table_definition d;
    d.element = value_tag::f32;
    d.width = static_cast<std::uint32_t>(FLAGS_width);
    d.init = row_init::uniform(-0.1, 0.1, 1);
    if (FLAGS_op == "adagrad") {
      d.plugin = "libparacel_default.so";
      d.symbol = "paracel_adagrad";
    }
    std::vector<std::byte> body(net::bytes_of("t").begin(), net::bytes_of("t").end());
    const auto definition = net::encode(d);
    body.insert(body.end(), definition.begin(), definition.end());
    handle(verb::table_open, 1, 0, body, {});
    for (std::uint64_t first = 0; first < FLAGS_rows; first += load_rows) {
      std::vector<std::uint64_t> ids(std::min<std::uint64_t>(load_rows, FLAGS_rows - first));
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = first + i;
      handle(verb::rows_pull, 0, ids.size(), std::as_bytes(std::span(ids)), {});
    }
  }
  void handle(verb what, std::size_t key_bytes, std::size_t rows, std::span<const std::byte> body, shared_buffer tail) {
    net::request_view r;
    r.header.what = what;
    r.header.table = what == verb::table_open ? 0 : net::table_id("t");
    r.header.tag = what == verb::table_open ? value_tag::none : value_tag::f32;
    r.header.count = static_cast<std::uint32_t>(rows);
    r.header.key_bytes = static_cast<std::uint32_t>(key_bytes);
    r.header.body_bytes = static_cast<std::uint32_t>(body.size());
    r.header.tail_bytes = tail.size();
    r.body = body;
    server_.handle(0, r, std::move(tail), server_.completion_for(sink_, {}, r.header));
  }
  [[nodiscard]] double memory() const {
    return nlohmann::json::parse(server_.stats_json()).at("memory_bytes").get<double>();
  }

 private:
  static srv::server_options options() {
    srv::server_options o;
    o.incarnation = 1;
    return o;
  }
  srv::server server_;
  no_sink sink_;
};

/// One operation in the server object.
struct alone {
  tally counted;
  double rows_per_second = 0;
  double bytes_per_row = 0;
};

alone measure_alone() {
  bare_server s;
  const bool pulls = FLAGS_op == "pull";
  std::vector<shared_buffer> requests;
  auto calls = calls_of_flags();
  for (std::size_t k = 0; k < std::max<std::size_t>(FLAGS_lists, 1); ++k) {
    const auto ids = calls.next();
    const auto ids_bytes = ids.size() * sizeof(std::uint64_t);
    auto b = shared_buffer::allocate(ids_bytes + (pulls ? 0 : ids.size() * FLAGS_width * sizeof(float)));
    std::memcpy(b.mutable_data(), ids.data(), ids_bytes);
    std::fill_n(reinterpret_cast<float*>(b.mutable_data() + ids_bytes), (b.size() - ids_bytes) / sizeof(float), 0.001F);
    requests.push_back(std::move(b));
  }
  alone a;
  tally& t = a.counted;
  stopwatch watch(t, FLAGS_warm_up, FLAGS_seconds);
  for (std::size_t i = 0;; ++i) {
    const auto sent = clock::now();
    s.handle(pulls ? verb::rows_pull : verb::rows_update, 0, FLAGS_rows_per_call, {}, requests[i % requests.size()]);
    if (!watch.answered(sent, clock::now())) break;
  }
  a.rows_per_second = static_cast<double>(t.calls * FLAGS_rows_per_call) / t.seconds;
  a.bytes_per_row = s.memory() / static_cast<double>(FLAGS_rows);
  return a;
}

void one_alone() {
  const auto a = measure_alone();
  char extra[256];
  std::snprintf(extra, sizeof extra,
                ", \"op\": \"%s\", \"where\": \"server\", \"rows_per_second\": %.0f, \"bytes_per_row\": %.1f",
                FLAGS_op.c_str(), a.rows_per_second, a.bytes_per_row);
  print(a.counted, static_cast<double>(FLAGS_rows_per_call * FLAGS_width * sizeof(float)),
        static_cast<double>(FLAGS_rows_per_call), extra);
}

void all_alone() {
  nlohmann::json line;
  for (const auto* op : {"pull", "add", "adagrad"}) {
    FLAGS_op = op;
    const auto a = measure_alone();
    line[FLAGS_op + "_rows_per_second"] = a.rows_per_second;
    line[FLAGS_op + "_p50_us"] = a.counted.latency.quantile(0.5);
    if (FLAGS_op == "add") line["bytes_per_row"] = a.bytes_per_row;
    if (FLAGS_op == "adagrad") line["adagrad_bytes_per_row"] = a.bytes_per_row;
  }
  std::printf("%s\n", line.dump().c_str());
}

/// A server process with one shard thread, and this process as its only worker.
class ipc_job {
 public:
  ipc_job()
      : server_([this](int in, int out) {
          keep_large_blocks();
          net::zmq_transport transport;
          srv::node_options o;
          o.bind = "ipc://" + folder_;
          srv::server_node node(transport, std::move(o));
          membership m;
          m.servers.push_back(node.addresses());
          node.set_membership(m);
          auto text = m.to_json();
          text.resize(4096, ' ');
          write_all(out, text.data(), text.size());
          char end = 0;
          read_all(in, &end, 1);
        }) {
    std::string text(4096, ' ');
    read_all(server_.in(), text.data(), text.size());
    keep_large_blocks();
    worker_ = session::alone(std::make_shared<net::zmq_transport>(), membership::from_json(text), nullptr, nullptr);
  }
  ~ipc_job() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  ipc_job(const ipc_job&) = delete;
  ipc_job& operator=(const ipc_job&) = delete;

  [[nodiscard]] Comm comm() const { return Comm(std::make_shared<single_comm>(), worker_); }
  [[nodiscard]] pid_t server() const { return server_.process(); }

 private:
  static std::string new_folder() {
    std::string folder = "/tmp/prc-bench-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot create a folder in /tmp");
    return folder;
  }
  std::string folder_ = new_folder();
  child server_;
  std::shared_ptr<session> worker_;
};

void through_ipc() {
  const ipc_job job;
  tally t;
  {
    paralg a("", job.comm());
    row_optimizer optimizer;
    if (FLAGS_op == "adagrad") optimizer = {"libparacel_default.so", "paracel_adagrad", {}};
    table<float> rows(a, "t", FLAGS_width, row_init::uniform(-0.1, 0.1, 1), optimizer);
    auto calls = calls_of_flags();
    std::vector<std::vector<float>> values(FLAGS_window, std::vector<float>(load_rows * FLAGS_width, 0.001F));
    for (std::uint64_t first = 0; first < FLAGS_rows; first += load_rows) {
      std::vector<std::uint64_t> ids(std::min<std::uint64_t>(load_rows, FLAGS_rows - first));
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = first + i;
      rows.pull(ids, std::span(values[0]).first(ids.size() * FLAGS_width));
    }
    const auto numbers = [&](std::size_t k) { return std::span(values[k]).first(FLAGS_rows_per_call * FLAGS_width); };
    std::vector<async_functor_type> flying(FLAGS_window);
    stopwatch watch(t, FLAGS_warm_up, FLAGS_seconds, {job.server()});
    for (std::size_t i = 0;; ++i) {
      const auto sent = clock::now();
      const auto ids = calls.next();
      const auto k = i % FLAGS_window;
      if (FLAGS_op == "pull" && FLAGS_window > 1) {
        if (flying[k].valid()) flying[k].get();
        flying[k] = rows.pull_async(ids, numbers(k));
      } else if (FLAGS_op == "pull") {
        rows.pull(ids, numbers(0));
      } else if (FLAGS_window == 1) {
        rows.bupdate(ids, numbers(0));
      } else {
        rows.update(ids, numbers(0));
        if (k + 1 == FLAGS_window) a.paracel_sync();
      }
      if (!watch.answered(sent, clock::now())) break;
    }
    for (auto& f : flying)
      if (f.valid()) f.get();
    a.paracel_sync();
  }
  const auto n = static_cast<double>(FLAGS_rows_per_call);
  char extra[256];
  std::snprintf(extra, sizeof extra,
                ", \"op\": \"%s\", \"where\": \"ipc\", \"window\": %llu, \"rows_per_second\": %.0f", FLAGS_op.c_str(),
                static_cast<unsigned long long>(FLAGS_window), static_cast<double>(t.calls) * n / t.seconds);
  print(t, n * static_cast<double>(FLAGS_width) * sizeof(float), n, extra);
}

/// A pull and an update in each format, one after the other, until the time is over: bytes and median time of each, and
/// the median of the ratios of full precision to the format in the same turn.
void compare_formats() {
  struct measured {
    std::vector<double> us, gain;
    double bytes = 0;
    double worker_seconds = 0, server_seconds = 0;
  };
  constexpr std::array formats{wire_format::full, wire_format::f16, wire_format::i8};
  constexpr std::array operations{"pull", "update"};
  std::array<std::array<measured, formats.size()>, operations.size()> all;
  const auto median = [](std::vector<double> v) {
    std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
  };
  const ipc_job job;
  {
    paralg a("", job.comm());
    std::vector<table<float>> tables;
    for (const auto f : formats)
      tables.emplace_back(a, "t", FLAGS_width, row_init::uniform(-0.1, 0.1, 1), row_optimizer(),
                          table_options{.wire = f, .most_residual_bytes = std::size_t{4} << 30U});
    auto calls = calls_of_flags();
    const auto deltas = [&] {
      std::mt19937 random(1);
      std::normal_distribution<float> normal(0, 0.001F);
      std::vector<float> v(FLAGS_rows_per_call * FLAGS_width);
      for (auto& x : v) x = normal(random);
      return v;
    }();
    std::vector<float> out(deltas.size());
    auto& client = a.servers().client();
    const auto begin = clock::now();
    const auto since = [&](clock::time_point t) { return std::chrono::duration<double>(clock::now() - t).count(); };
    for (std::size_t turn = 0; since(begin) < FLAGS_warm_up + FLAGS_seconds; ++turn) {
      const bool counts = since(begin) > FLAGS_warm_up;
      const auto ids = calls.next();
      for (std::size_t o = 0; o < operations.size(); ++o) {
        std::array<double, formats.size()> us{};
        for (std::size_t k = 0; k < formats.size(); ++k) {
          const auto f = (k + turn) % formats.size();
          auto& m = all[o][f];
          (void)client.take_traffic();
          const auto worker = processor_seconds(::getpid());
          const auto server = processor_seconds(job.server());
          const auto sent = clock::now();
          if (o == 0) tables[f].pull(ids, out);
          else tables[f].bupdate(ids, deltas);
          us[f] = since(sent) * 1e6;
          if (!counts) continue;
          m.worker_seconds += processor_seconds(::getpid()) - worker;
          m.server_seconds += processor_seconds(job.server()) - server;
          const auto used = client.take_traffic();
          m.bytes += static_cast<double>(used.sent_bytes + used.received_bytes);
          m.us.push_back(us[f]);
        }
        for (std::size_t f = 0; counts && f < formats.size(); ++f) all[o][f].gain.push_back(us[0] / us[f]);
      }
    }
  }
  nlohmann::json line{{"rows_per_call", FLAGS_rows_per_call}, {"width", FLAGS_width}};
  for (std::size_t o = 0; o < operations.size(); ++o) {
    for (std::size_t f = 0; f < formats.size(); ++f) {
      const auto& m = all[o][f];
      if (m.us.empty()) throw std::runtime_error("--seconds is too short for one turn");
      const auto n = static_cast<double>(m.us.size());
      line[operations[o]][net::name_of(formats[f])] = {{"turns", m.us.size()},
                                                       {"bytes", m.bytes / n},
                                                       {"us", median(m.us)},
                                                       {"bytes_of_full", m.bytes / all[o][0].bytes},
                                                       {"speed_of_full", median(m.gain)},
                                                       {"worker_us", m.worker_seconds / n * 1e6},
                                                       {"server_us", m.server_seconds / n * 1e6}};
    }
  }
  std::printf("%s\n", line.dump().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("rows of a typed table per second; prints one line of JSON");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    if (FLAGS_op != "all" && FLAGS_op != "pull" && FLAGS_op != "add" && FLAGS_op != "adagrad" && FLAGS_op != "wire")
      throw std::runtime_error("--op must be pull, add, adagrad, wire or all");
    if (FLAGS_where != "server" && FLAGS_where != "ipc") throw std::runtime_error("--where must be server or ipc");
    if (FLAGS_where == "ipc" && FLAGS_op == "all") throw std::runtime_error("--where ipc measures one --op");
    if (FLAGS_ids != "random" && FLAGS_ids != "unique" && FLAGS_ids != "ascending")
      throw std::runtime_error("--ids " + FLAGS_ids + ": want random, unique or ascending");
    if (FLAGS_rows < FLAGS_rows_per_call * 2)
      throw std::runtime_error("the table has fewer than two rows for each of a call");
    if (FLAGS_window == 0 || FLAGS_rows == 0 || FLAGS_rows_per_call == 0 || FLAGS_rows_per_call > load_rows)
      throw std::runtime_error("window and rows begin at 1, rows_per_call ends at " + std::to_string(load_rows));
    keep_large_blocks();
    if (FLAGS_op == "wire") compare_formats();
    else if (FLAGS_where == "ipc") through_ipc();
    else if (FLAGS_op == "all") all_alone();
    else one_alone();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_rows: error: %s\n", e.what());
    return 1;
  }
  return 0;
}
