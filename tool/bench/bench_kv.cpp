// SPDX-License-Identifier: BSD-3-Clause
//
// Latency and rate of calls to the servers: one verb, one value size, one window, a number of workers (processes) and
// of real start_server processes. The line it prints includes the frame sizes, so that bench_zmq_floor can be run with
// the same frames.
#include <gflags/gflags.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/paralg.hpp>

#include "bench_job.hpp"
#include "bench_support.hpp"
#include "core/gather.hpp"
#include "worker/comm/comm_scheduler.hpp"

DEFINE_string(verb, "pull",
              "pull, push, update, bupdate, contains, their multi forms: pull_multi, ..., or on a prepared "
              "key set: set_pull, set_push, set_update, set_bupdate");
DEFINE_string(api, "kvclt", "kvclt: the client of the servers; paralg: the calls of an algorithm, with futures");
DEFINE_string(value_type, "", "f64 or f32; empty: f64 unless value_bytes is no multiple of 8");
DEFINE_uint64(value_bytes, 8, "size of a value: one number, or an array of them");
DEFINE_uint64(key_bytes, 8, "size of a key, at least 8");
DEFINE_uint64(keys_per_call, 100, "keys in one call of a multi form or of a set");
DEFINE_uint64(keys, 0, "distinct keys of a worker; 0: one for each request in flight");
DEFINE_uint64(window, 1, "requests in flight; 1: each is waited for");
DEFINE_int32(workers, 1, "worker processes");
DEFINE_int32(servers, 1, "server processes");
DEFINE_int32(threads, 1, "shard threads of a server");
DEFINE_int32(replicas, 1, "replicas of every key, each on a different server");
DEFINE_bool(resends, true, "resend what a broken connection loses: requests are retained, answers remembered");
DEFINE_string(server_options, "", "further options of start_server, separated by spaces");
DEFINE_double(seconds, 1, "measured time");
DEFINE_double(warm_up, 0.2, "warm-up time before it");
DEFINE_string(transport, "ipc", "ipc, tcp or unix");
DEFINE_string(bin_dir, "", "where start_server and start_scheduler are; empty: the folder of this program");

namespace {

using namespace paracel;
using namespace paracel::bench;
using net::verb;

const std::map<std::string, verb> verbs{
    {"pull", verb::pull},
    {"push", verb::push},
    {"update", verb::update},
    {"bupdate", verb::bupdate},
    {"contains", verb::contains},
    {"pull_multi", verb::pull_multi},
    {"push_multi", verb::push_multi},
    {"update_multi", verb::update_multi},
    {"bupdate_multi", verb::bupdate_multi},
    {"contains_multi", verb::contains_multi},
    {"set_pull", verb::set_pull},
    {"set_push", verb::set_push},
    {"set_update", verb::set_update},
    {"set_bupdate", verb::set_bupdate},
};
bool is_set(verb v) { return v >= verb::set_pull && v <= verb::set_bupdate; }
bool is_multi(verb v) { return v >= verb::pull_multi && !is_set(v); }
bool has_many_keys(verb v) { return is_multi(v) || is_set(v); }
bool is_one_of(verb v, std::initializer_list<verb> all) { return std::find(all.begin(), all.end(), v) != all.end(); }
bool carries_value(verb v) {
  return is_one_of(v, {verb::push, verb::update, verb::bupdate, verb::push_multi, verb::update_multi,
                       verb::bupdate_multi, verb::set_push, verb::set_update, verb::set_bupdate});
}
bool returns_value(verb v) {
  return is_one_of(
      v, {verb::pull, verb::bupdate, verb::pull_multi, verb::bupdate_multi, verb::set_pull, verb::set_bupdate});
}
bool is_f32() { return FLAGS_value_type.empty() ? FLAGS_value_bytes % sizeof(double) != 0 : FLAGS_value_type == "f32"; }
std::size_t number_bytes() { return is_f32() ? sizeof(float) : sizeof(double); }

/// The frames of one call, as options of bench_zmq_floor.
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

/// One worker: its client, its keys, the value that it sends.
class worker {
 public:
  worker(const job& j, int rank)
      : job_(j.join(rank)),
        servers_(j.server_processes()),
        client_(job_->open_client()),
        value_(shared_buffer::allocate(FLAGS_value_bytes)) {
    call_.what = verbs.at(FLAGS_verb);
    // Zero, so that a million additions do not change it; a real addition takes as long for any number.
    std::fill_n(value_.mutable_data(), FLAGS_value_bytes, std::byte{0});
    make_keys(rank, wanted_keys());
    if (FLAGS_api == "paralg") {
      const auto workers = static_cast<std::size_t>(FLAGS_workers);
      const auto mine =
          std::make_shared<comm_scheduler>(static_cast<std::size_t>(rank), workers, [j = job_] { return j; });
      api_ = std::make_unique<paralg>("", Comm(mine, job_));
    }
    for (const std::string& k : keys_) client_->request({.what = verb::push}, k, sent_value(), check, large());
    client_->wait_all();
  }

  report measure() {
    report r;
    stopwatch watch(r.counted, FLAGS_warm_up, FLAGS_seconds, servers_);
    r.seen = travelling();
    if (api_ != nullptr) {
      if (is_f32()) through_paralg<float>(watch);
      else through_paralg<double>(watch);
    } else if (has_many_keys(call_.what)) {
      many_keys(watch);
    } else if (FLAGS_window == 1) {
      one_at_a_time(watch);
    } else {
      many_in_flight(watch);
    }
    job_->leave();
    return r;
  }

 private:
  [[nodiscard]] std::size_t wanted_keys() const {
    if (has_many_keys(call_.what)) return FLAGS_keys_per_call;
    if (FLAGS_keys != 0) return FLAGS_keys;
    return std::max<std::size_t>(FLAGS_window, static_cast<std::size_t>(FLAGS_servers));
  }
  /// Key i is on server (rank + i) modulo servers, so that the calls alternate between servers as the floor's do.
  void make_keys(int rank, std::size_t wanted) {
    const auto servers = static_cast<std::size_t>(FLAGS_servers);
    for (std::uint32_t n = 0; keys_.size() < wanted; ++n) {
      char digits[16];
      std::snprintf(digits, sizeof digits, "%02x%06x", static_cast<unsigned>(rank) & 0xffU, n & 0xffffffU);
      std::string k = digits;
      k.resize(std::max<std::size_t>(k.size(), FLAGS_key_bytes), '.');
      if (has_many_keys(call_.what) ||
          client_->locate(k).server == (static_cast<std::size_t>(rank) + keys_.size()) % servers) {
        keys_.push_back(std::move(k));
      }
    }
  }
  [[nodiscard]] value_view sent_value() const {
    const bool one = value_.size() == number_bytes();
    if (is_f32()) return {one ? value_tag::f32 : value_tag::f32_array, value_.bytes()};
    return {one ? value_tag::f64 : value_tag::f64_array, value_.bytes()};
  }
  [[nodiscard]] shared_buffer large() const {
    return value_.size() > net::tail_threshold_bytes ? value_ : shared_buffer{};
  }
  static void check(const kv_result& r) {
    if (!r.ok()) throw std::runtime_error(std::string(net::name_of(r.header.result)) + ": " + std::string(r.text()));
  }
  [[nodiscard]] const std::string& key(std::size_t i) const { return keys_[i % keys_.size()]; }

  kvclt::sequence send(std::size_t i, kvclt::handler done) {
    if (!carries_value(call_.what)) return client_->request(call_, key(i), {}, std::move(done));
    return client_->request(call_, key(i), sent_value(), std::move(done), large());
  }
  /// The frames of one call; with many keys, of one shard.
  [[nodiscard]] frames travelling() const {
    frames f;
    const std::size_t there = carries_value(call_.what) ? value_.size() : 0;
    const std::size_t back = returns_value(call_.what) ? value_.size() : 0;
    const std::size_t n = keys_.size();
    f.request = net::request_header_bytes;
    f.reply = net::reply_header_bytes;
    if (is_set(call_.what)) {
      f.request += 16 + n * there;
      f.reply += n * back;
    } else if (is_multi(call_.what)) {  // the items' headers are 12 bytes in a request and 16 in a reply
      const bool uniform = FLAGS_replicas == 1 && call_.what <= verb::bupdate_multi;  // the values alone
      f.request += n * (12 + keys_.front().size() + there);
      f.reply += n * ((uniform ? 0 : 16) + back);
    } else {
      f.request += keys_.front().size();
      (there > net::tail_threshold_bytes ? f.tail_request : f.request) += there;
      (back > net::tail_threshold_bytes ? f.tail_reply : f.reply) += back;
    }
    return f;
  }

  void one_at_a_time(stopwatch& watch) {
    for (std::size_t i = 0;; ++i) {
      const clock::time_point sent = clock::now();
      client_->wait(send(i, check));
      if (!watch.answered(sent, clock::now())) return;
    }
  }

  /// Runs FLAGS_window chains, each of which sends its next request when the previous one is answered.
  void many_in_flight(stopwatch& watch) {
    struct chain {
      worker* self;
      stopwatch* watch;
      std::size_t next;
      clock::time_point sent;
      void go() {
        self->send(next, [this](const kv_result& answer) { answered(answer); });
      }
      void answered(const kv_result& answer) {
        check(answer);
        const clock::time_point now = clock::now();
        if (!watch->answered(sent, now)) return;
        next += FLAGS_window;
        sent = now;
        go();
      }
    };
    std::vector<chain> chains;
    for (std::size_t i = 0; i < FLAGS_window; ++i) chains.push_back({this, &watch, i, clock::now()});
    for (chain& c : chains) c.go();
    client_->wait_all();
  }

  /// Chains as above, of calls with many keys.
  void many_keys(stopwatch& watch) {
    const std::vector<value_view> values(carries_value(call_.what) ? keys_.size() : 0, sent_value());
    std::vector<std::byte> numbers(values.size() * value_.size(), std::byte{0});
    const auto set = is_set(call_.what) ? client_->many().split(keys_) : nullptr;
    struct chain {
      clock::time_point sent;
      std::vector<std::byte> out;
    };
    std::vector<chain> chains(FLAGS_window);
    bool over = false;
    std::function<void(chain&)> go = [&](chain& c) {
      c.sent = clock::now();
      const auto end = [&](kvclt::sequence) {
        if (over) return;
        over = !watch.answered(c.sent, clock::now());
        if (!over) go(c);
      };
      if (set != nullptr) {
        multi_client::set_payload payload;
        if (!values.empty()) payload = {sent_value().tag, value_.size(), numbers, {}};
        client_->many().set_async(
            call_, set, payload,
            [&c](std::span<const std::uint32_t>, const kv_result& r) {
              check(r);
              c.out.assign(r.body.begin(), r.body.end());  // a caller's copy of the value
            },
            end);
        return;
      }
      c.out.resize(keys_.size() * value_.size());
      client_->many().multi_async(
          call_, keys_, values,
          [&c](std::size_t i, std::string_view, const net::reply_item& item) {
            if (item.result != net::status::ok) throw std::runtime_error(net::name_of(item.result));
            const auto bytes = item.value.bytes;
            if (!bytes.empty()) std::memcpy(c.out.data() + i * bytes.size(), bytes.data(), bytes.size());
          },
          end,
          [&c, bytes = value_.size()](std::span<const std::uint32_t> order, std::string_view, const kv_result& r) {
            if (r.body.size() == order.size() * bytes) scatter_values(c.out.data(), r.body.data(), order, bytes);
          });
    };
    for (chain& c : chains) go(c);
    client_->wait_all();
  }

  /// A ring of futures: waits for the oldest and replaces it with the next call.
  template <class T>
  void through_paralg(stopwatch& watch) {
    if (value_.size() == sizeof(T) && !has_many_keys(call_.what)) return with_values<T, T>(watch, T{});
    if (!has_many_keys(call_.what))
      return with_values<T, std::vector<T>>(watch, std::vector<T>(value_.size() / sizeof(T)));
    with_values<T, T>(watch, T{});
  }
  template <class T, class V>
  void with_values(stopwatch& watch, const V& value) {
    struct place {
      V value{};
      std::vector<T> values;
      async_functor_type done;
      clock::time_point sent;
    };
    paralg& a = *api_;
    std::vector<place> ring(FLAGS_window);
    const auto set = is_set(call_.what) ? a.paracel_prepare(keys_) : key_set();
    const std::vector<T> deltas(has_many_keys(call_.what) ? keys_.size() * value_.size() / sizeof(T) : 0);
    const auto ask = [&](place& p, std::size_t i) {
      p.sent = clock::now();
      switch (call_.what) {
        case verb::pull:
          p.done = a.paracel_read_async(key(i), p.value);
          break;
        case verb::push:
          p.done = a.paracel_write_async(key(i), value);
          break;
        case verb::update:
          p.done = a.paracel_update(key(i), value);
          break;
        case verb::pull_multi:
          p.done = a.paracel_read_multi_async(keys_, p.values);
          break;
        case verb::update_multi:
          p.done = a.paracel_update_multi_async(keys_, deltas);
          break;
        case verb::set_pull:
          p.done = a.paracel_read_async(set, p.values);
          break;
        case verb::set_push:
          p.done = a.paracel_write_async(set, deltas);
          break;
        default:
          p.done = a.paracel_update(set, deltas);
      }
    };
    std::size_t i = 0;
    for (place& p : ring) ask(p, i++);
    for (;; ++i) {
      place& p = ring[i % ring.size()];
      p.done.get();
      if (!watch.answered(p.sent, clock::now())) break;
      ask(p, i);
    }
    a.paracel_wait();
  }

  std::shared_ptr<session> job_;
  std::vector<pid_t> servers_;
  std::unique_ptr<server_group> client_;
  kvclt::call call_;
  shared_buffer value_;
  std::vector<std::string> keys_;
  std::unique_ptr<paralg> api_;
};

void run() {
  const job j({.bin_dir = FLAGS_bin_dir,
               .transport = FLAGS_transport,
               .workers = FLAGS_workers,
               .servers = FLAGS_servers,
               .threads = FLAGS_threads,
               .replicas = FLAGS_replicas,
               .resends = FLAGS_resends,
               .server_options = FLAGS_server_options});
  const report sum = run_clients<report>(FLAGS_workers, [&j](int rank) {
    keep_large_blocks();
    auto w = std::make_shared<worker>(j, rank);
    return [w] { return w->measure(); };
  });
  const double calls_of = has_many_keys(verbs.at(FLAGS_verb)) ? static_cast<double>(FLAGS_keys_per_call) : 1;
  const frames& f = sum.seen;
  char extra[256];
  std::snprintf(extra, sizeof extra,
                ", \"verb\": \"%s\", \"request_bytes\": %zu, \"reply_bytes\": %zu, \"tail_request_bytes\": %zu, "
                "\"tail_reply_bytes\": %zu",
                FLAGS_verb.c_str(), f.request, f.reply, f.tail_request, f.tail_reply);
  print(sum.counted, calls_of * static_cast<double>(FLAGS_value_bytes), calls_of, extra);
}

void check_flags() {
  if (!verbs.contains(FLAGS_verb)) throw std::runtime_error("--verb " + FLAGS_verb + " is none of: see --help");
  if (!FLAGS_value_type.empty() && FLAGS_value_type != "f64" && FLAGS_value_type != "f32") {
    throw std::runtime_error("--value_type must be f64 or f32");
  }
  if (FLAGS_value_bytes == 0 || FLAGS_value_bytes % number_bytes() != 0) {
    throw std::runtime_error("--value_bytes must be a multiple of the number's size");
  }
  if (FLAGS_window == 0 || FLAGS_workers < 1 || FLAGS_servers < 1 || FLAGS_keys_per_call == 0) {
    throw std::runtime_error("window, workers, servers and keys_per_call must be at least 1");
  }
  if (FLAGS_replicas < 1 || FLAGS_replicas > FLAGS_servers)
    throw std::runtime_error("--replicas must be from 1 to the number of servers");
  const auto v = verbs.at(FLAGS_verb);
  if (FLAGS_api != "kvclt" && FLAGS_api != "paralg") throw std::runtime_error("--api must be kvclt or paralg");
  if (FLAGS_api == "paralg" && !is_one_of(v, {verb::pull, verb::push, verb::update, verb::pull_multi,
                                              verb::update_multi, verb::set_pull, verb::set_push, verb::set_update})) {
    throw std::runtime_error(
        "--api paralg: pull, push, update, pull_multi, update_multi, set_pull, set_push, set_update");
  }
  if (FLAGS_api == "paralg" && is_multi(v) && FLAGS_value_bytes != number_bytes()) {
    throw std::runtime_error("--api paralg: a multi form takes one number a key");
  }
  if (FLAGS_transport != "ipc" && FLAGS_transport != "tcp" && FLAGS_transport != "unix")
    throw std::runtime_error("--transport must be ipc, tcp or unix");
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
