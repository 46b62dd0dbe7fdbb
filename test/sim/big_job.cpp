// SPDX-License-Identifier: BSD-3-Clause
#include "test/sim/big_job.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <paracel/codec.hpp>

#include "client/server_group.hpp"
#include "core/hash.hpp"
#include "core/membership.hpp"
#include "core/ssp_clock.hpp"
#include "test/sim/history.hpp"
#include "test/sim/scheduler_line.hpp"
#include "test/sim/scheduler_process.hpp"
#include "test/sim/server_process.hpp"
#include "test/support/crash_disk.hpp"

namespace paracel::sim {
namespace {

using net::verb;
using nlohmann::json;

constexpr double ms = 1e6;
constexpr nanos pause_time = 40_ms;
constexpr double power_exponent = 3;

/// Queues of links and threads, and how long each has been in use.
class measured_prices final : public price_list {
 public:
  enum class role : std::uint8_t { scheduler, server, worker };
  struct place {
    role is = role::scheduler;
    nanos sent = 0, received = 0, io = 0;  // when the queue is empty
    nanos io_used = 0;
    std::uint64_t bytes_in = 0, bytes_out = 0, messages = 0;  // between workers and servers
  };
  struct thread {
    nanos free = 0;
    nanos used = 0;
  };

  measured_prices(const big_options& o, const simulation& in) : o_(o), in_(in) {}
  void add(const process& p, role is) { places_[&p].is = is; }
  [[nodiscard]] const place& of(const process& p) const { return places_.at(&p); }
  [[nodiscard]] nanos used(const actor& a) const {
    const auto at = threads_.find(&a);
    return at == threads_.end() ? 0 : at->second.used;
  }
  /// From now on: what was used before is of no interest.
  void restart() {
    for (auto& [unused, p] : places_) p.io_used = 0, p.bytes_in = 0, p.bytes_out = 0, p.messages = 0;
    for (auto& [unused, t] : threads_) t.used = 0;
  }
  /// Calls f(thread, used) for each of a process.
  template <class F>
  void each_thread(const process& p, const F& f) const {
    for (const auto& [a, t] : threads_)
      if (a->of == &p) f(*a, t.used);
  }

  nanos arrival(const process& from, const process& to, std::size_t bytes) override {
    auto& p = places_[&from];
    auto& q = places_[&to];
    if (p.is != role::scheduler && q.is != role::scheduler) {
      p.bytes_out += bytes;
      q.bytes_in += bytes;
      ++p.messages;
      ++q.messages;
    }
    p.io = std::max(in_.now(), p.io) + o_.message;
    p.io_used += o_.message;
    p.sent = std::max(p.io, p.sent) + on_link(bytes);
    return p.sent + o_.latency;
  }
  nanos done(const actor& by, std::span<const std::byte> frame) override {
    auto& p = places_[by.of];
    // It arrives as fast as it was sent unless others arrive at the same time.
    p.received = std::max(in_.now(), p.received + on_link(frame.size()));
    p.io = std::max(p.received, p.io) + o_.message;
    p.io_used += o_.message;
    auto& t = threads_[&by];
    const auto cost = cost_of(p.is, frame);
    t.used += cost;
    return t.free = std::max(p.io, t.free) + cost;
  }

 private:
  [[nodiscard]] nanos on_link(std::size_t bytes) const {
    return static_cast<nanos>(static_cast<double>(bytes) / o_.link);
  }
  [[nodiscard]] nanos cost_of(role is, std::span<const std::byte> frame) const {
    net::request_view request;
    if (is == role::scheduler) return 0;
    if (is == role::worker) return o_.reply;
    if (net::decode(frame, 0, request) != nullptr) return 0;
    const auto& h = request.header;
    if (h.what == verb::clock_tick || h.what == verb::clock_wait) return o_.tick;
    return o_.request + static_cast<nanos>(h.count) * o_.key;
  }

  const big_options& o_;
  const simulation& in_;
  std::unordered_map<const process*, place> places_;
  std::unordered_map<const actor*, thread> threads_;
};

/// What all workers know of each other, to check them.
struct big_progress {
  std::vector<std::uint32_t> finished;  // iterations of each
  std::vector<std::uint32_t> updates;   // of each key, acknowledged
  std::vector<nanos> ends;              // of each iteration: when the last worker has finished it
  std::uint32_t filled = 0;             // workers that have pushed their keys
  nanos begin = 0;                      // of the first iteration
};

std::string big_key(std::uint64_t i) {
  char text[32];
  std::snprintf(text, sizeof text, "feature_%012llu", static_cast<unsigned long long>(i));
  return text;
}

/// Pushes its share of the keys, then reads and updates some of all in every iteration.
class big_worker {
 public:
  big_worker(simulation& in, process& p, const big_options& o, big_progress& all, std::uint32_t rank,
             std::function<void()> begins)
      : in_(in),
        process_(p),
        o_(o),
        all_(all),
        rank_(rank),
        begins_(std::move(begins)),
        dice_(o.seed * 1'000'003 + rank),
        thread_(p.add("client")) {
    pulse_.emplace(
        in, p,
        net::heartbeat_options{
            .on_membership = [](std::string_view text) { return membership::from_json(text).epoch; }},
        [rank] {
          return json{{"role", "worker"}, {"rank", rank}, {"pid", 1000 + rank}}.dump();
        },
        [rank](const net::directive& d) { wrong("worker " + std::to_string(rank) + " is told to end: " + d.cause); });
    p.own(thread_);
    to_scheduler_.emplace(p);
    thread_.step = [this] { return client_ != nullptr ? step() : join(); };
    in.wake(thread_, in.now());
  }
  [[nodiscard]] const actor& thread() const { return thread_; }
  [[nodiscard]] bool finished() const { return phase_ == phase::left; }

  /// After the end: reads all keys of its share, each of which must have as many updates as were acknowledged.
  void check_share() {
    process_.own(thread_);
    std::vector<std::string> keys;
    for (auto i = rank_; i < o_.keys; i += o_.workers) keys.push_back(big_key(i));
    client_->many().multi_async(
        {.what = verb::pull_multi}, keys, {}, [this](std::size_t i, std::string_view key, const net::reply_item& item) {
          const auto number = rank_ + i * o_.workers;
          if (item.result != net::status::ok || decode<double>(item.value) != all_.updates[number])
            wrong(std::string(key) + " does not have the number of its updates");
        });
  }
  [[nodiscard]] bool idle() const { return client_->in_flight() == 0; }

 private:
  enum class phase : std::uint8_t { fills, reads, computes, updates, asks_clock, left };

  nanos join() {
    if (!std::exchange(asked_, true)) {
      const json me = {
          {"role", "worker"}, {"rank", rank_}, {"size", o_.workers}, {"host", "here"}, {"pid", 1000 + rank_}};
      to_scheduler_->ask(verb::join, me.dump());
    }
    const auto answer = to_scheduler_->answer();
    if (!answer) return 50_ms;
    const auto m = membership::from_json(*answer);
    kvclt_options k;
    k.timeout = std::chrono::milliseconds(0);
    k.incarnation = dice_.next() | 1U;
    k.time = &process_.time();
    client_ = std::make_unique<server_group>(process_, m, rank_, k, nullptr, nullptr);
    pulse_->follow(m.epoch);
    std::vector<std::uint64_t> mine;
    while (mine.size() < std::min<std::uint64_t>(o_.keys_each, o_.keys)) {
      const auto k2 = dice_.below(o_.keys);
      if (taken_.emplace(k2, mine.size()).second) mine.push_back(k2);
    }
    mine_ = std::move(mine);
    for (const auto i : mine_) keys_.push_back(big_key(i));
    if (o_.sets) set_ = client_->many().split(keys_);
    fill();
    return never;
  }

  void fill() {
    std::vector<std::string> keys;
    for (auto i = std::uint64_t{rank_}; i < o_.keys; i += o_.workers) keys.push_back(big_key(i));
    const std::vector<double> zeros(keys.size());
    client_->many().multi_async({.what = verb::push_multi}, keys,
                                {value_tag::f64, sizeof(double), std::as_bytes(std::span(zeros))}, check_item(),
                                [this](auto) { commit(); });
    if (o_.sets) client_->many().prepare(*set_);
  }

  nanos step() {
    client_->poll();
    if (phase_ != phase::computes) return never;
    if (in_.now() < until_) return until_ - in_.now();
    update();
    return never;
  }

  static multi_client::keyed_handler check_item() {
    return [](std::size_t, std::string_view key, const net::reply_item& item) {
      if (item.result != net::status::ok) wrong("a request for " + std::string(key) + " was refused");
    };
  }
  multi_client::part_handler check_part() {
    return [](std::span<const std::uint32_t>, const kv_result& r) {
      if (!r.ok()) wrong("a key set was refused: " + std::string(r.text()));
    };
  }

  void read() {
    phase_ = phase::reads;
    if (o_.sets)
      client_->many().set_async({.what = verb::set_pull}, set_, {}, check_part(), [this](auto) { compute(); });
    else client_->many().multi_async({.what = verb::pull_multi}, keys_, {}, check_item(), [this](auto) { compute(); });
  }

  void compute() {
    phase_ = phase::computes;
    auto time = static_cast<double>(o_.compute);
    // Both numbers are drawn whatever the pattern.
    const bool pauses = dice_.in(10);
    const auto u = (static_cast<double>(dice_.below(1U << 30U)) + 1) / (1U << 30U);
    if (o_.slow == stragglers::one && rank_ == 0) time *= 3;
    if (o_.slow == stragglers::pauses && pauses) time += static_cast<double>(pause_time);
    if (o_.slow == stragglers::power) time *= std::pow(u, -1 / power_exponent);
    until_ = in_.now() + static_cast<nanos>(time);
    in_.wake(thread_, until_);
  }

  void update() {
    phase_ = phase::updates;
    const std::vector<double> ones(keys_.size(), 1.0);
    const multi_client::set_payload values{value_tag::f64, sizeof(double), std::as_bytes(std::span(ones))};
    const auto end = [this](auto) {
      for (const auto i : mine_) ++all_.updates[i];
      commit();
    };
    if (o_.sets) client_->many().set_async({.what = verb::set_update}, set_, values, check_part(), end);
    else client_->many().multi_async({.what = verb::update_multi}, keys_, values, check_item(), end);
  }

  void commit() {
    const auto finished = ++all_.finished[rank_];
    if (finished > 1) all_.ends[finished - 2] = in_.now();  // the last one to write has finished last
    phase_ = phase::asks_clock;
    client_->clock_request(verb::clock_tick, finished, [this, finished](const kv_result& r) {
      if (!r.ok()) wrong("the clock refuses: " + std::string(r.text()));
      if (finished == o_.iterations + 1) {
        phase_ = phase::left;
        return;
      }
      // Iterations begin together.
      const auto needed = finished == 1 ? 1 : std::max(needed_minimum(finished, o_.staleness), 1U);
      client_->clock_request(verb::clock_wait, needed, [this, needed](const kv_result& w) {
        if (!w.ok()) wrong("the clock refuses: " + std::string(w.text()));
        if (*std::ranges::min_element(all_.finished) < needed) wrong("a worker goes on too early");
        if (all_.begin == 0) begins_();
        read();
      });
    });
  }

  simulation& in_;
  process& process_;
  const big_options& o_;
  big_progress& all_;
  const std::uint32_t rank_;
  const std::function<void()> begins_;
  chance dice_;
  actor& thread_;
  std::optional<pulse> pulse_;
  std::optional<question> to_scheduler_;
  bool asked_ = false;
  std::unique_ptr<server_group> client_;
  std::unordered_map<std::uint64_t, std::size_t> taken_;
  std::vector<std::uint64_t> mine_;
  std::vector<std::string> keys_;
  std::shared_ptr<const sharded_keys> set_;
  phase phase_ = phase::fills;
  nanos until_ = 0;
};

/// A busy moment is `fullest` times the mean: the ring does not place keys evenly.
double fullest(const big_options& o, bool shard) {
  membership m;
  for (std::uint32_t i = 0; i < o.servers; ++i) m.servers.push_back(entry_of(i, i + 1, o.threads, 1));
  const key_router router(m);
  std::vector<double> load(shard ? std::size_t{o.servers} * o.threads : o.servers);
  for (std::uint32_t p = 0; p < partition_count; ++p) {
    const auto at = router.locate_partition(static_cast<std::uint16_t>(p));
    ++load[shard ? at.server * o.threads + at.shard : at.server];
  }
  return *std::ranges::max_element(load) * static_cast<double>(load.size()) / partition_count;
}

double mean_compute(const big_options& o) {
  const auto c = static_cast<double>(o.compute);
  const double n = o.workers;
  switch (o.slow) {
    case stragglers::one:
      return 3 * c;  // all wait for it, whatever the staleness
    case stragglers::pauses: {
      const auto all = c + static_cast<double>(pause_time) * (1 - std::pow(0.9, n));  // one of them pauses
      return o.staleness == 0 ? all : c + static_cast<double>(pause_time) / 10;
    }
    case stragglers::power: {
      // The expected maximum of n times is c n B(n, 1 - 1/a).
      const auto most =
          std::exp(std::lgamma(n + 1) + std::lgamma(1 - 1 / power_exponent) - std::lgamma(n + 1 - 1 / power_exponent));
      return c * (o.staleness == 0 ? most : power_exponent / (power_exponent - 1));
    }
    default:
      return c;
  }
}

}  // namespace

big_figures computed_for(const big_options& o) {
  // Of requests and replies; items have 12 and 16 bytes besides key and value (src/net/README.md).
  constexpr double header = 96, reply_header = 64, set_name = 16, value = 8;
  constexpr double key = 20 + 12, item = 16;
  const double shards = double{1} * o.servers * o.threads, n = o.workers, keys = o.keys_each;
  const double touched = shards * (1 - std::pow(1 - 1 / shards, keys));
  struct phase {
    double in, out;
  };  // bytes of a worker
  const phase read = o.sets ? phase{touched * (header + set_name), touched * reply_header + keys * value}
                            : phase{touched * header + keys * key, touched * reply_header + keys * (item + value)};
  const phase update = o.sets ? phase{touched * (header + set_name) + keys * value, touched * reply_header}
                              : phase{touched * header + keys * (key + value), touched * reply_header + keys * item};
  const phase clock{2 * header, 2 * reply_header};
  big_figures f;
  f.messages = 4 * touched + 4;
  f.bytes = read.in + read.out + update.in + update.out + clock.in + clock.out;
  const double share = n / o.servers;
  f.server_in = (read.in + update.in + clock.in) * share;
  f.server_out = (read.out + update.out + clock.out) * share;
  const double full = fullest(o, false), full_shard = fullest(o, true);
  // An iteration reads, then updates, each limited by what is busiest.
  const auto shard =
      n * (touched / shards * static_cast<double>(o.request) + keys / shards * full_shard * static_cast<double>(o.key));
  const auto io = 2 * touched * share * static_cast<double>(o.message);
  const auto port = touched * static_cast<double>(o.reply);
  const auto wire = [&](const phase& p) { return std::max(p.in, p.out) * share * full / o.link; };
  const auto slowest = [&](const phase& p) { return std::max({shard, io, port, wire(p)}); };
  const auto clocks = 2 * n * static_cast<double>(o.tick);
  f.shard_ms = 2 * shard / ms;
  f.clock_ms = clocks / ms;
  f.io_ms = (2 * io + 4 * n * static_cast<double>(o.message)) / ms;  // one server has the clock, too
  f.wire_ms = std::max(read.in + update.in, read.out + update.out) * share * full / o.link / ms;
  f.worker_ms = 2 * port / ms;
  f.ms = (slowest(read) + slowest(update) + clocks + 8 * static_cast<double>(o.latency) + mean_compute(o)) / ms;
  return f;
}

big_result run_big_job(const big_options& o) {
  using role = measured_prices::role;
  simulation in(o.seed);
  test::crash_disk disk;
  measured_prices prices(o, in);
  in.prices = &prices;
  std::vector<std::unique_ptr<process>> processes;
  const auto make = [&](const std::string& name, role is) -> process& {
    processes.push_back(std::make_unique<process>(in, name, 1.0, 1_s));
    prices.add(*processes.back(), is);
    return *processes.back();
  };
  srv::scheduler_options s;
  s.job = job_id;
  s.workers = o.workers;
  s.servers = o.servers;
  s.checkpoints.disk = &disk;
  s.checkpoints.own_thread = false;
  scheduler_process scheduler(
      in, make("scheduler", role::scheduler), std::move(s),
      [](std::string_view text) {
        const auto e = json::parse(text);
        if (const auto what = e.at("event").get<std::string>(); what == "abort" || what == "lost")
          wrong(std::string(text));
      },
      false);
  std::vector<std::unique_ptr<server_process>> servers;
  for (std::uint32_t slot = 0; slot < o.servers; ++slot) {
    const auto entry = entry_of(slot, slot + 1, o.threads, static_cast<int>(slot) + 1);
    auto& p = make("s" + std::to_string(slot), role::server);
    servers.push_back(std::make_unique<server_process>(in, p, disk, entry, server_mutations{},
                                                       [slot] { wrong("s" + std::to_string(slot) + " has ended"); }));
  }
  big_progress all;
  all.finished.resize(o.workers);
  all.updates.resize(o.keys);
  all.ends.resize(o.iterations);
  const auto begins = [&] {
    all.begin = in.now();
    prices.restart();
  };
  std::vector<std::unique_ptr<big_worker>> workers;
  for (std::uint32_t rank = 0; rank < o.workers; ++rank) {
    auto& p = make("w" + std::to_string(rank), role::worker);
    workers.push_back(std::make_unique<big_worker>(in, p, o, all, rank, begins));
  }
  const auto run_until = [&](const auto& done) {
    // The state of a thousand workers is not looked at after every event.
    for (std::uint64_t i = 1; i % 1024 != 0 || !done(); ++i) {
      if (!in.step()) wrong("nothing happens any more");
      if (in.now() > 1'000_s) wrong("the job does not end");
    }
  };
  run_until([&] { return std::ranges::all_of(workers, [](const auto& w) { return w->finished(); }); });

  big_result r{.computed = computed_for(o)};
  const double iterations = o.iterations;
  for (const auto& w : workers)
    r.run.worker_ms += static_cast<double>(prices.used(w->thread())) / ms / iterations / o.workers;
  for (const auto& p : processes) {
    const auto& place = prices.of(*p);
    const auto in_bytes = static_cast<double>(place.bytes_in) / iterations;
    const auto out_bytes = static_cast<double>(place.bytes_out) / iterations;
    if (place.is == role::worker) {
      r.run.messages += static_cast<double>(place.messages) / iterations / o.workers;
      r.run.bytes += (in_bytes + out_bytes) / o.workers;
    } else if (place.is == role::server) {
      r.run.server_in += in_bytes / o.servers;
      r.run.server_out += out_bytes / o.servers;
      r.run.io_ms = std::max(r.run.io_ms, static_cast<double>(place.io_used) / ms / iterations);
      r.run.wire_ms = std::max(r.run.wire_ms, std::max(in_bytes, out_bytes) / o.link / ms);
      prices.each_thread(*p, [&](const actor& a, nanos used) {
        auto& most = a.name.ends_with("/k") ? r.run.clock_ms : r.run.shard_ms;
        most = std::max(most, static_cast<double>(used) / ms / iterations);
      });
    }
  }
  r.run.ms = static_cast<double>(all.ends.back() - all.begin) / ms / iterations;
  auto before = all.begin;
  for (const auto end : all.ends)
    r.longest_ms = std::max(r.longest_ms, static_cast<double>(end - std::exchange(before, end)) / ms);
  r.joined_ms = static_cast<double>(all.begin) / ms;

  for (auto& w : workers) w->check_share();
  run_until([&] { return std::ranges::all_of(workers, [](const auto& w) { return w->idle(); }); });
  r.simulated_s = static_cast<double>(in.now()) / 1e9;
  r.events = in.events();
  r.hash = in.hash();
  return r;
}

std::string to_json(const big_options& o, const big_result& r) {
  const auto of = [](const big_figures& f) {
    return json{{"messages_of_a_worker", f.messages},
                {"bytes_of_a_worker", f.bytes},
                {"bytes_into_a_server", f.server_in},
                {"bytes_out_of_a_server", f.server_out},
                {"shard_ms", f.shard_ms},
                {"clock_ms", f.clock_ms},
                {"io_ms", f.io_ms},
                {"wire_ms", f.wire_ms},
                {"worker_ms", f.worker_ms},
                {"iteration_ms", f.ms}};
  };
  constexpr const char* patterns[] = {"none", "one", "pauses", "power"};
  const json j = {{"servers", o.servers},
                  {"threads", o.threads},
                  {"workers", o.workers},
                  {"iterations", o.iterations},
                  {"staleness", o.staleness},
                  {"keys", o.keys},
                  {"keys_each", o.keys_each},
                  {"sets", o.sets},
                  {"compute_ms", static_cast<double>(o.compute) / ms},
                  {"stragglers", patterns[static_cast<std::size_t>(o.slow)]},
                  {"computed", of(r.computed)},
                  {"run", of(r.run)},
                  {"longest_iteration_ms", r.longest_ms},
                  {"first_iteration_after_ms", r.joined_ms},
                  {"simulated_s", r.simulated_s},
                  {"events", r.events}};
  return j.dump();
}

}  // namespace paracel::sim
