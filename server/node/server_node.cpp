// SPDX-License-Identifier: BSD-3-Clause
#include "server/node/server_node.hpp"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <future>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <paracel/error.hpp>

#include "core/failure_text.hpp"
#include "core/identity.hpp"
#include "core/trace.hpp"
#include "net/attention.hpp"
#include "server/node/resident_memory.hpp"
#include "server/plugin/last_words.hpp"
#include "server/request/channels.hpp"
#include "server/request/port_sink.hpp"

namespace paracel::srv {

using net::status;
using net::verb;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds idle_sleep = server_loop::idle;
// For a proxied request without its own deadline: long enough for a slow user function, short enough that its caller is
// still there.
constexpr milliseconds proxy_deadline{30'000};
constexpr std::size_t most_proxied = 4096;
// This much must have been queued and freed before memory cached by the allocator is returned to the system: that stops
// every thread for milliseconds.
constexpr std::size_t worth_trimming = std::size_t{64} << 20;
constexpr std::chrono::seconds trim_interval{5};
// The control thread sleeps for less than half of it; if a turn takes longer, the process was suspended.
constexpr milliseconds long_control_turn{250};

std::string seconds_text(milliseconds t) {
  return std::to_string(t.count() / 1000) + "." + std::to_string(t.count() % 1000 / 100) + " s";
}

}  // namespace

/// The work of the control thread: answers ping, stats, proxy and stop; pings the shards; monitors their functions.
class server_node::control {
 public:
  control(server_node& node, net::port& mine)
      : node_(node), port_(mine), sink_(mine), channels_(mine), watched_(node.server_.threads()) {}

  void run() {
    net::incoming in;
    auto next_beat = steady::now() + node_.options_.heartbeat_interval;
    net::attention own(steady::now(), steady::duration(long_control_turn));
    while (!node_.stopping()) {
      const auto now = steady::now();
      if (const auto missed = own.absence(now); missed.count() != 0) was_away(missed);
      if (now >= next_beat) {
        beat(now);
        next_beat = now + node_.options_.heartbeat_interval;
      }
      const auto until_beat = std::chrono::ceil<milliseconds>(next_beat - now);
      if (!port_.receive(in, std::min(idle_sleep, until_beat))) continue;
      net::request_view request;
      if (in.channel >= 0) {
        take_reply(in);
      } else if (decode_for(node_.server_, place::control, sink_, in, request)) {
        handle(request, std::move(in.tail), node_.server_.completion_for(sink_, in.from, request.header));
      }
    }
    for (auto& [sequence, p] : proxied_) p.done.fail(status::job_ended, "the server is stopping");
    wake_the_others();
  }

 private:
  struct proxied {
    completion done;
    steady::time_point deadline;
    held_bytes held;
  };
  struct watched {
    std::uint64_t ping = 0;  ///< sequence of the unanswered ping, 0: none
    std::uint64_t serial = 0;
    bool in_function = false;
    steady::time_point since{};
    bool named = false;  ///< in the log
    bool silence_named = false;
  };

  void handle(const net::request_view& request, shared_buffer tail, completion done) {
    switch (request.header.what) {
      case verb::ping:
        return done.ok();
      case verb::stats:
        return done.answer({}, net::bytes_of(node_.server_.stats_json()));
      case verb::proxy:
        return proxy(request, std::move(tail), std::move(done));
      case verb::stop:
        done.ok();
        node_.stop_.store(true, std::memory_order_release);
        if (node_.options_.on_stop) node_.options_.on_stop();
        return;
      default:
        return;  // refused before
    }
  }

  /// The body is a whole request of one key; its reply comes back under the number of the outer request.
  void proxy(const net::request_view& outer, shared_buffer tail, completion done) {
    net::request_view inner;
    if (const char* reason = net::decode(outer.body, tail.size(), inner)) {
      return done.fail(status::bad_request, std::string("in the proxied request: ") + reason);
    }
    auto h = inner.header;
    if (net::kind_of(h.what) != net::verb_kind::key) {
      return done.fail(status::bad_request, std::string(net::name_of(h.what)) + " cannot be proxied: one key only");
    }
    // Requests forwarded to a slow receiver queue up in this process.
    held_bytes held;
    if (proxied_.size() >= most_proxied ||
        !held.take(node_.server_.budgets().proxied, inner.body.size() + tail.size() + sizeof(proxied))) {
      return done.fail(status::internal, "too many proxied requests wait here");
    }
    const auto deadline = h.deadline_ms != 0              ? milliseconds(h.deadline_ms)
                          : outer.header.deadline_ms != 0 ? milliseconds(outer.header.deadline_ms)
                                                          : proxy_deadline;
    h.job = node_.options_.server.job != 0 ? node_.options_.server.job : h.job;
    h.client = node_.options_.server.incarnation;
    h.sequence = ++sequence_;
    h.partition = net::any_partition;
    h.low_watermark = 0;  // it refers to the sender's own numbers
    h.flags = static_cast<std::uint16_t>(h.flags & ~(net::flag_stream | net::flag_first));
    const auto& home = home_of(inner.key());
    h.epoch = members_ != nullptr ? members_->epoch : 0;
    net::request_bytes head;
    net::encode(h, head);
    try {
      channels_.send(home, {head, inner.body, std::move(tail)}, time_now());
    } catch (const error& e) {
      return done.fail(status::internal, e.what());
    }
    proxied_.emplace(h.sequence, proxied{std::move(done), steady::now() + deadline, std::move(held)});
  }

  const std::string& home_of(std::string_view key) {
    follow_membership();
    if (router_.has_value()) {
      const auto at = router_->locate(key);
      return members_->servers[at.server].shards[at.shard];
    }
    return node_.self_.shards[shard_of(partition_of(hash_key(key)), node_.self_.threads)];
  }

  void follow_membership() {
    std::shared_ptr<const membership> newest;
    {
      const std::lock_guard lock(node_.mutex_);
      newest = node_.members_;
    }
    if (newest == members_) return;
    members_ = std::move(newest);
    router_.emplace(*members_);
    channels_.follow(*members_);
  }

  void take_reply(net::incoming& in) {
    channels_.heard(in.channel);
    net::reply_view reply;
    if (net::decode(in.frame, in.tail.size(), reply) != nullptr) return;
    const auto sequence = reply.header.sequence;
    if (const auto p = proxied_.find(sequence); p != proxied_.end()) {
      p->second.done.answer(reply.header, reply.body, std::move(in.tail));
      proxied_.erase(p);
      return;
    }
    for (std::size_t i = 0; i < watched_.size(); ++i) {
      if (watched_[i].ping != sequence || sequence == 0) continue;
      watched_[i].ping = 0;
      watched_[i].silence_named = false;
      node_.seen_[i].store(steady::now().time_since_epoch().count(), std::memory_order_relaxed);
    }
  }

  std::uint64_t tell(const std::string& address, verb what) {
    net::request_header h;
    h.what = what;
    h.job = node_.options_.server.job;
    h.client = node_.options_.server.incarnation;
    h.sequence = ++sequence_;
    if (what == verb::ping) h.count = net::ping_alive;
    net::request_bytes head;
    net::encode(h, head);
    channels_.send(address, {.head = head}, time_now());
    return h.sequence;
  }

  static std::chrono::nanoseconds time_now() { return steady::now().time_since_epoch(); }

  void beat(steady::time_point now) {
    channels_.renew_silent(now.time_since_epoch(), [&](const std::string& address) {
      const auto& shards = node_.self_.shards;
      const auto at = std::ranges::find(shards, address);
      if (at != shards.end()) watched_[static_cast<std::size_t>(at - shards.begin())].ping = 0;
    });
    std::vector<long_run> running;
    for (unsigned i = 0; i < watched_.size(); ++i) {
      auto& w = watched_[i];
      // One ping at a time over a connection: a busy shard must not find a queue of them later.
      if (w.ping == 0) w.ping = tell(node_.self_.shards[i], verb::ping);
      watch(i, w, now, running);
    }
    for (auto p = proxied_.begin(); p != proxied_.end();) {
      if (p->second.deadline > now) {
        ++p;
        continue;
      }
      p->second.done.fail(status::deadline_exceeded,
                          "the owner of the key has not answered; it is unknown whether it will");
      p = proxied_.erase(p);
    }
    give_memory_back();
    name_nans();
    const std::lock_guard lock(node_.mutex_);
    node_.long_runs_ = std::move(running);
  }

  /// In the log, each function once.
  void name_nans() {
    for (const auto& [function, f] : node_.server_.stored_nans()) {
      if (named_nans_.insert(function).second)
        say(function + " has stored NaN: " + f.first +
            "; it stays there whatever is added (stats counts such updates)");
    }
  }

  /// What the allocator keeps. Keys and rows are given back by the threads of the shards.
  void give_memory_back() {
    const auto& budgets = node_.server_.budgets();
    const auto held = budgets.parked.held() + budgets.pieces.held();
    most_held_ = std::max(most_held_, held);
    const auto dropped = node_.server_.connections_dropped();
    const auto now = steady::now();
    const auto memory = [&] {
      return allocator_watch::state{resident_bytes(),
                                    node_.server_.memory_bytes() + budgets.parked.held() + budgets.pieces.held(),
                                    node_.server_.requests_served()};
    };
    const bool unused = node_.options_.owns_process && allocator_.is_due(memory(), now);
    if ((most_held_ - held < worth_trimming && dropped == dropped_ && !unused) || now < next_trim_) return;
    most_held_ = held;
    dropped_ = dropped;
    next_trim_ = now + trim_interval;
    malloc_trim(0);
    if (node_.options_.owns_process) allocator_.done(memory());
  }

  /// The process was suspended for this long: neither user functions nor proxied requests had that time.
  void was_away(steady::duration missed) {
    for (auto& w : watched_) w.since += missed;
    for (unsigned i = 0; i < watched_.size(); ++i) node_.seen_[i].fetch_add(missed.count(), std::memory_order_relaxed);
    for (auto& [sequence, p] : proxied_) p.deadline += missed;
  }

  void watch(unsigned i, watched& w, steady::time_point now, std::vector<long_run>& running) {
    const auto b = node_.server_.busy(i);
    const auto& limits = node_.options_.function_timeout;
    if (b.name == nullptr) {
      w.in_function = false;
      const auto silent = std::chrono::duration_cast<milliseconds>(now - node_.shard_seen(i));
      if (silent > limits.otherwise && !w.silence_named) {
        w.silence_named = true;
        say("thread " + std::to_string(i) + " has not answered for " + seconds_text(silent));
      }
      return;
    }
    if (!w.in_function || w.serial != b.serial) {
      w.in_function = true;
      w.serial = b.serial;
      w.since = now;
      w.named = false;
      return;
    }
    const auto time = std::chrono::duration_cast<milliseconds>(now - w.since);
    if (time < limits.of(*b.name)) return;
    running.push_back({i, *b.name, time});
    if (w.named) return;
    w.named = true;
    say("thread " + std::to_string(i) + ": " + *b.name + " has been running for " + seconds_text(time));
  }

  void say(const std::string& text) const { node_.say(text); }

  void wake_the_others() {
    net::incoming in;
    for (const auto& address : node_.self_.shards) tell(address, verb::stop);
    tell(node_.self_.clock, verb::stop);
    // The port must live until the messages have been sent.
    const auto end = steady::now() + idle_sleep;
    while (node_.alive_.load(std::memory_order_acquire) > 1 && steady::now() < end) port_.receive(in, milliseconds(1));
  }

  server_node& node_;
  net::port& port_;
  port_sink sink_;
  channels channels_;
  std::uint64_t sequence_ = 0;
  std::unordered_map<std::uint64_t, proxied> proxied_;
  std::size_t most_held_ = 0;  // since memory was last returned
  std::uint64_t dropped_ = 0;  // connections dropped until then
  steady::time_point next_trim_{};
  allocator_watch allocator_;
  std::set<std::string> named_nans_;  // functions
  std::vector<watched> watched_;      // by shard
  std::shared_ptr<const membership> members_;
  std::optional<key_router> router_;
};

server_node::server_node(net::transport& transport, node_options options)
    : transport_(transport), options_(std::move(options)), server_(options_.server) {
  options_.server = server_.options();
  const auto& o = options_.server;
  self_.slot = o.slot;
  self_.weight = o.weight;
  self_.incarnation = o.incarnation;
  self_.threads = o.threads;
  self_.host = host_name();
  self_.pid = getpid();
  seen_ = std::make_unique<std::atomic<std::int64_t>[]>(o.threads);
  synced_ = std::make_unique<std::atomic<std::uint32_t>[]>(o.threads + 1);
  for (unsigned i = 0; i < o.threads; ++i) seen_[i].store(steady::now().time_since_epoch().count());
  server_.unread().log_to([this](const std::string& text) { say(text); });
  if (auto* sandbox = server_.plugins().sandbox()) sandbox->log_to([this](const std::string& text) { say(text); });
  try {
    if (options_.shares_connections && o.threads > 1) {
      auto group = transport_.open_group(address_for("shards"), o.threads);
      for (unsigned i = 0; i < o.threads; ++i) {
        self_.shards.push_back(
            start(std::to_string(i), &server_node::run_shard, i, std::move(group.ports[i]), group.addresses[i]));
      }
    } else {
      for (unsigned i = 0; i < o.threads; ++i) {
        self_.shards.push_back(start(std::to_string(i), &server_node::run_shard, i));
      }
    }
    self_.clock = start("k", &server_node::run_clock, 0);
    self_.control = start("c", &server_node::run_control, 0);
  } catch (...) {
    stop_.store(true);
    join();
    throw;
  }
}

server_node::~server_node() {
  stop();
  join();
}

std::string server_node::address_for(const std::string& thread_name) const {
  const std::string_view bind = options_.bind;
  if (bind.starts_with("tcp://")) {
    if (!bind.ends_with(":*")) {
      throw usage_error("a server needs several free ports: want tcp://host:*, found " + options_.bind);
    }
    return options_.bind;
  }
  if (!bind.starts_with("ipc://") && !bind.starts_with("inproc://")) {
    throw usage_error("cannot bind to " + options_.bind + ": use ipc:///folder or tcp://host:*");
  }
  return options_.bind + "/" + std::to_string(options_.server.slot) + "_" + thread_name;
}

std::string server_node::start(const std::string& name, void (server_node::*loop)(net::port&, unsigned), unsigned index,
                               std::unique_ptr<net::port> bound, std::string address) {
  std::promise<std::string> ready;
  auto is_at = ready.get_future();
  alive_.fetch_add(1);
  if (bound == nullptr) address = address_for(name);
  // The lambda keeps no reference to the promise once it is set: start() has returned by then.
  threads_.emplace_back([this, name, loop, index, mine = std::move(bound), address = std::move(address),
                         ready = std::move(ready)]() mutable {
    pthread_setname_np(pthread_self(), ("server " + name).c_str());
    bool is_ready = false;
    try {
      if (mine == nullptr) {
        mine = transport_.open();
        address = mine->bind(address);
      }
      is_ready = true;
      ready.set_value(std::move(address));
      (this->*loop)(*mine, index);
    } catch (const std::exception& e) {
      if (!is_ready) ready.set_exception(std::current_exception());
      else fail(name, failure_text(e));
    }
    mine.reset();
    alive_.fetch_sub(1, std::memory_order_release);
  });
  return is_at.get();
}

/// The control thread's `stop` is waited for even when the flag is seen first: a message that is never received would
/// keep the transport from closing for as long as it lingers.
void server_node::run(server_loop& loop) {
  auto leave_at = steady::time_point::max();
  auto sleep = idle_sleep;
  while (!loop.told_to_stop() && (leave_at == steady::time_point::max() || steady::now() < leave_at)) {
    sleep = loop.step(sleep);
    if (stopping() && leave_at == steady::time_point::max()) leave_at = steady::now() + idle_sleep;
  }
}

void server_node::run_shard(net::port& mine, unsigned index) {
  request_handler& handler = options_.handler != nullptr ? *options_.handler : server_;
  last_words::prepare_thread();
  const trace::thread_scope traced("server", self_.slot, "shard " + std::to_string(index));
  const auto log = [this](const std::string& text) { say(text); };
  shard_loop loop({server_, mine, stop_, lease_end_, synced_[index], time_, log}, handler, index);
  run(loop);
}

void server_node::run_clock(net::port& mine, unsigned) {
  const trace::thread_scope traced("server", self_.slot, "clock");
  const auto log = [this](const std::string& text) { say(text); };
  clock_loop loop({server_, mine, stop_, lease_end_, synced_[options_.server.threads], time_, log}, self_, [this] {
    const std::lock_guard lock(mutex_);
    return members_;
  });
  run(loop);
}

void server_node::run_control(net::port& mine, unsigned) { control(*this, mine).run(); }

void server_node::say(const std::string& text) const {
  const auto line = "s" + std::to_string(self_.slot) + " " + text;
  if (options_.log) options_.log(line);
  else std::fprintf(stderr, "start_server: %s\n", line.c_str());
}

void server_node::fail(const std::string& thread, const std::string& why) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (failure_.empty()) failure_ = "thread " + thread + ": " + why;
    }
    stop_.store(true, std::memory_order_release);
    if (options_.on_stop) options_.on_stop();
  } catch (...) {
    std::terminate();  // no memory for a line: there is no way left to report it
  }
}

std::string server_node::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool server_node::stop(milliseconds limit) noexcept {
  const auto end = steady::now() + limit;
  stop_.store(true, std::memory_order_release);
  try {
    // A message to threads that have already exited would only keep the transport waiting for a receiver.
    if (alive_.load(std::memory_order_acquire) == 0) {
      join();
      return true;
    }
    // The control thread is woken by a message, and wakes the others.
    const auto mine = transport_.open();
    net::incoming in;
    if (!self_.control.empty()) {
      net::request_header h;
      h.what = verb::ping;
      h.job = options_.server.job;
      net::request_bytes head;
      net::encode(h, head);
      mine->send(mine->connect(self_.control), {.head = head});
    }
    while (alive_.load(std::memory_order_acquire) != 0 && steady::now() < end) mine->receive(in, milliseconds(1));
  } catch (const std::exception&) {  // without a wake-up they check the flag within 100 ms
    while (alive_.load(std::memory_order_acquire) != 0 && steady::now() < end)
      std::this_thread::sleep_for(milliseconds(1));
  }
  const bool ended = alive_.load(std::memory_order_acquire) == 0;
  if (ended) join();
  return ended;
}

void server_node::join() noexcept {
  const std::lock_guard lock(join_mutex_);
  for (auto& t : threads_) {
    if (t.joinable()) t.join();
  }
}

void server_node::set_membership(const membership& members) {
  server_.set_membership(members);
  const std::lock_guard lock(mutex_);
  members_ = std::make_shared<const membership>(members);
}

std::uint32_t server_node::synced() const noexcept {
  std::uint32_t least = synced_[0].load(std::memory_order_acquire);
  for (unsigned i = 1; i <= options_.server.threads; ++i) {
    least = std::min(least, synced_[i].load(std::memory_order_acquire));
  }
  return least;
}

bool server_node::ask_longest_run() {
  const auto runs = long_runs();
  const auto longest = std::ranges::max_element(runs, {}, &long_run::time);
  const std::lock_guard lock(join_mutex_);
  if (longest == runs.end() || !threads_[longest->shard].joinable()) return false;
  last_words::ask(threads_[longest->shard].native_handle());
  return true;
}

std::vector<server_node::long_run> server_node::long_runs() const {
  const std::lock_guard lock(mutex_);
  return long_runs_;
}

std::chrono::steady_clock::time_point server_node::shard_seen(unsigned shard) const noexcept {
  return steady::time_point(steady::duration(seen_[shard].load(std::memory_order_relaxed)));
}

}  // namespace paracel::srv
