// SPDX-License-Identifier: BSD-3-Clause
//
// How long a call of the servers takes and how many there are in a second: one verb, one value size, one window, so many
// workers (processes) against so many real start_server processes. The line it prints also says what travelled, so that
// bench_zmq_floor can be run with the same frames.
#include <gflags/gflags.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench_job.hpp"
#include "bench_support.hpp"

DEFINE_string(verb, "pull", "pull, push, update, bupdate, contains, or their multi forms: pull_multi, ...");
DEFINE_uint64(value_bytes, 8, "size of a value, an array of doubles; a multiple of 8");
DEFINE_uint64(key_bytes, 8, "size of a key, at least 8");
DEFINE_uint64(keys_per_call, 100, "keys in one call of a multi form");
DEFINE_uint64(keys, 0, "distinct keys of a worker; 0: one for each request in flight");
DEFINE_uint64(window, 1, "requests in flight; 1: each is waited for");
DEFINE_int32(workers, 1, "worker processes");
DEFINE_int32(servers, 1, "server processes");
DEFINE_int32(threads, 1, "shard threads of a server");
DEFINE_double(seconds, 1, "measured time");
DEFINE_double(warm_up, 0.2, "time before it");
DEFINE_string(transport, "ipc", "ipc or tcp");
DEFINE_string(bin_dir, "", "where start_server and start_scheduler are; empty: beside this program");

namespace {

using namespace paracel;
using namespace paracel::bench;
using net::verb;

const std::map<std::string, verb> verbs{
    {"pull", verb::pull},           {"push", verb::push},
    {"update", verb::update},       {"bupdate", verb::bupdate},
    {"contains", verb::contains},   {"pull_multi", verb::pull_multi},
    {"push_multi", verb::push_multi}, {"update_multi", verb::update_multi},
    {"bupdate_multi", verb::bupdate_multi}, {"contains_multi", verb::contains_multi},
};
bool is_multi(verb v) { return v >= verb::pull_multi; }
bool carries_value(verb v) {
  return v == verb::push || v == verb::update || v == verb::bupdate || v == verb::push_multi || v == verb::update_multi ||
         v == verb::bupdate_multi;
}

/// What one call puts on the wire, as bench_zmq_floor names it.
struct frames {
  std::size_t request = 0;
  std::size_t reply = 0;
  std::size_t tail_request = 0;
  std::size_t tail_reply = 0;
};
struct report {
  tally counted;
  frames seen;
};
void add(report& sum, const report& r) {
  paracel::bench::add(sum.counted, r.counted);
  sum.seen = r.seen;
}

/// One worker: its client, its keys, the value it sends.
class worker {
 public:
  worker(const job& j, int rank)
      : job_(j.join(rank)), client_(job_->open_client()), value_(blob::allocate(FLAGS_value_bytes)) {
    call_.what = verbs.at(FLAGS_verb);
    auto* numbers = reinterpret_cast<double*>(value_.mutable_data());
    // Zero, so that a million additions stay what they were; and a real addition takes as long with it as with any number.
    std::fill(numbers, numbers + FLAGS_value_bytes / sizeof(double), 0.0);
    make_keys(rank, wanted_keys());
    for (const std::string& k : keys_) client_->request({.what = verb::push}, k, sent_value(), check, large());
    client_->wait_all();
  }

  report measure() {
    report r;
    stopwatch watch(r.counted, FLAGS_warm_up, FLAGS_seconds);
    if (is_multi(call_.what)) {
      many_keys(r, watch);
    } else if (FLAGS_window == 1) {
      one_at_a_time(r, watch);
    } else {
      many_in_flight(r, watch);
    }
    job_->leave();
    return r;
  }

 private:
  [[nodiscard]] std::size_t wanted_keys() const {
    if (is_multi(call_.what)) return FLAGS_keys_per_call;
    if (FLAGS_keys != 0) return FLAGS_keys;
    return std::max<std::size_t>(FLAGS_window, static_cast<std::size_t>(FLAGS_servers));
  }
  /// Key i lives on server (rank + i) modulo servers, so that the calls go round the servers as the floor's do.
  void make_keys(int rank, std::size_t wanted) {
    const auto servers = static_cast<std::size_t>(FLAGS_servers);
    for (std::uint32_t n = 0; keys_.size() < wanted; ++n) {
      char digits[16];
      std::snprintf(digits, sizeof digits, "%02x%06x", static_cast<unsigned>(rank) & 0xffU, n & 0xffffffU);
      std::string k = digits;
      k.resize(std::max<std::size_t>(k.size(), FLAGS_key_bytes), '.');
      if (is_multi(call_.what) || client_->locate(k).server == (static_cast<std::size_t>(rank) + keys_.size()) % servers) {
        keys_.push_back(std::move(k));
      }
    }
  }
  [[nodiscard]] value_view sent_value() const { return {value_tag::f64_array, value_.bytes()}; }
  [[nodiscard]] blob large() const { return value_.size() > net::tail_threshold_bytes ? value_ : blob{}; }
  static void check(const kv_result& r) {
    if (!r.ok()) throw std::runtime_error(std::string(net::name_of(r.header.result)) + ": " + std::string(r.text()));
  }
  [[nodiscard]] const std::string& key(std::size_t i) const { return keys_[i % keys_.size()]; }

  kvclt::sequence send(std::size_t i, kvclt::handler done) {
    if (!carries_value(call_.what)) return client_->request(call_, key(i), {}, std::move(done));
    return client_->request(call_, key(i), sent_value(), std::move(done), large());
  }
  void note(frames& f, const kv_result& r) const {
    const std::size_t value_bytes = carries_value(call_.what) ? value_.size() : 0;
    const bool apart = value_bytes > net::tail_threshold_bytes;
    f.request = net::request_header_bytes + keys_.front().size() + (apart ? 0 : value_bytes);
    f.tail_request = apart ? value_bytes : 0;
    f.reply = net::reply_header_bytes + r.body.size();
    f.tail_reply = r.tail.size();
  }

  void one_at_a_time(report& r, stopwatch& watch) {
    for (std::size_t i = 0;; ++i) {
      const clock::time_point sent = clock::now();
      client_->wait(send(i, [this, &r](const kv_result& answer) {
        check(answer);
        note(r.seen, answer);
      }));
      if (!watch.answered(sent, clock::now())) return;
    }
  }

  /// So many chains, each of which sends its next request when the last one is answered.
  void many_in_flight(report& r, stopwatch& watch) {
    struct chain {
      worker* self;
      report* out;
      stopwatch* watch;
      std::size_t next;
      clock::time_point sent;
      void go() {
        self->send(next, [this](const kv_result& answer) { answered(answer); });
      }
      void answered(const kv_result& answer) {
        check(answer);
        self->note(out->seen, answer);
        const clock::time_point now = clock::now();
        if (!watch->answered(sent, now)) return;
        next += FLAGS_window;
        sent = now;
        go();
      }
    };
    std::vector<chain> chains;
    for (std::size_t i = 0; i < FLAGS_window; ++i) chains.push_back({this, &r, &watch, i, clock::now()});
    for (chain& c : chains) c.go();
    client_->wait_all();
  }

  void many_keys(report& r, stopwatch& watch) {
    const std::vector<value_view> values(carries_value(call_.what) ? keys_.size() : 0, sent_value());
    for (;;) {
      const clock::time_point sent = clock::now();
      std::size_t value_bytes = 0;
      client_->multi(call_, keys_, values, [&value_bytes](std::size_t, const net::reply_item& item) {
        if (item.result != net::status::ok) throw std::runtime_error(net::name_of(item.result));
        value_bytes += item.value.bytes.size();
      });
      if (!watch.answered(sent, clock::now())) {
        // The items' headers are 12 bytes in a request and 16 in a reply.
        r.seen.request = net::request_header_bytes + keys_.size() * (12 + keys_.front().size());
        if (!values.empty()) r.seen.request += keys_.size() * value_.size();
        r.seen.reply = net::reply_header_bytes + keys_.size() * 16 + value_bytes;
        return;
      }
    }
  }

  std::shared_ptr<session> job_;
  std::unique_ptr<kvclt> client_;
  kvclt::call call_;
  blob value_;
  std::vector<std::string> keys_;
};

void run() {
  const job j({.bin_dir = FLAGS_bin_dir, .transport = FLAGS_transport, .workers = FLAGS_workers, .servers = FLAGS_servers,
               .threads = FLAGS_threads});
  const report sum = run_clients<report>(FLAGS_workers, [&j](int rank) {
    keep_large_blocks();
    auto w = std::make_shared<worker>(j, rank);
    return [w] { return w->measure(); };
  });
  const double calls_of = is_multi(verbs.at(FLAGS_verb)) ? static_cast<double>(FLAGS_keys_per_call) : 1;
  const frames& f = sum.seen;
  char extra[256];
  std::snprintf(extra, sizeof extra,
                ", \"verb\": \"%s\", \"request_bytes\": %zu, \"reply_bytes\": %zu, \"tail_request_bytes\": %zu, "
                "\"tail_reply_bytes\": %zu",
                FLAGS_verb.c_str(), f.request, f.reply, f.tail_request, f.tail_reply);
  print(sum.counted, calls_of * static_cast<double>(FLAGS_value_bytes), extra);
}

void check_flags() {
  if (!verbs.contains(FLAGS_verb)) {
    throw std::runtime_error("--verb " + FLAGS_verb +
                             " is not one of pull, push, update, bupdate, contains and their _multi forms");
  }
  if (FLAGS_value_bytes == 0 || FLAGS_value_bytes % 8 != 0) throw std::runtime_error("--value_bytes is a multiple of 8");
  if (FLAGS_window == 0 || FLAGS_workers < 1 || FLAGS_servers < 1 || FLAGS_keys_per_call == 0) {
    throw std::runtime_error("window, workers, servers and keys_per_call begin at 1");
  }
  if (is_multi(verbs.at(FLAGS_verb)) && FLAGS_window != 1) throw std::runtime_error("a multi call is waited for: --window 1");
  if (FLAGS_transport != "ipc" && FLAGS_transport != "tcp") throw std::runtime_error("--transport is ipc or tcp");
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("latency and throughput of one verb; prints one line of JSON");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    check_flags();
    run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_kv: error: %s\n", e.what());
    return 1;
  }
  return 0;
}
