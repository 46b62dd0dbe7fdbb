// SPDX-License-Identifier: BSD-3-Clause
#include "test/sim/server_process.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/hex.hpp"

namespace paracel::sim {

using nlohmann::json;
using std::chrono::milliseconds;

namespace {

constexpr nanos lease = 2_s;

struct note final : srv::reply_sink {
  std::vector<std::byte> frame;
  void send(const net::peer&, const net::outgoing& m) override {
    frame.assign(m.head.begin(), m.head.end());
    frame.insert(frame.end(), m.body.begin(), m.body.end());
  }
};

}  // namespace

void hasty_reader::handle(unsigned shard, const net::request_view& request, shared_buffer tail, srv::completion done) {
  if (!hasty_ || request.header.what != net::verb::pull || !reply_at_once) {
    return server_.handle(shard, request, std::move(tail), std::move(done));
  }
  note to;
  server_.handle(shard, request, std::move(tail), server_.completion_for(to, {}, request.header));
  if (to.frame.empty()) return;
  reply_at_once(shard, request.header, to.frame);
  server_.handle(shard, request, {}, std::move(done));
}

server_entry entry_of(std::uint32_t slot, std::uint64_t incarnation, std::uint32_t threads, int pid) {
  server_entry e;
  e.slot = slot;
  e.incarnation = incarnation;
  e.threads = threads;
  e.host = "here";
  e.pid = pid;
  const auto prefix = "inproc://s" + std::to_string(slot) + "_" + std::to_string(pid) + "/";
  for (std::uint32_t i = 0; i < threads; ++i) e.shards.push_back(prefix + std::to_string(i));
  e.clock = prefix + "k";
  e.control = prefix + "c";
  return e;
}

server_process::server_process(simulation& in, process& p, storage::file_system& disk, const server_entry& self,
                               server_mutations broken, std::function<void()> ended)
    : in_(in),
      self_(self),
      process_(p),
      server_(options_of(self)),
      reader_(server_, broken.reads_early),
      broken_(broken),
      ended_(std::move(ended)) {
  server_.use_disk(disk);
  for (unsigned i = 0; i < self.threads; ++i) {
    auto& a = open(std::to_string(i), self.shards[i]);
    run(a, std::make_unique<srv::shard_loop>(around(i), reader_, i));
  }
  auto& a = open("k", self.clock);
  run(a, std::make_unique<srv::clock_loop>(around(self.threads), self_, [this] { return members_; }));
  pulse_.emplace(
      in, p,
      net::heartbeat_options{.on_answer = [this](net::clock_source::time_point sent) { renew_lease(sent); },
                             .on_membership = [this](std::string_view text) { return adopt(text); }},
      [this] { return describe(); }, [this](const net::directive&) { ended_(); });
  join();
}

actor& server_process::open(const std::string& thread, const std::string& address) {
  auto& a = process_.add(thread);
  process_.own(a);
  ports_.push_back(process_.open());
  ports_.back()->bind(address);
  return a;
}

void server_process::run(actor& a, std::unique_ptr<srv::server_loop> loop) {
  a.step = [&l = *loop] { return nanos_of(l.step(milliseconds(0))); };
  loops_.push_back(std::move(loop));
  in_.wake(a, in_.now());
}

void server_process::join() {
  auto& a = process_.add("join");
  process_.own(a);
  joining_.emplace(process_);
  a.step = [this, asked = false]() mutable -> nanos {
    if (!std::exchange(asked, true)) {
      const json me = {{"role", "server"},         {"slot", self_.slot},   {"incarnation", to_hex(self_.incarnation)},
                       {"threads", self_.threads}, {"host", self_.host},   {"pid", self_.pid},
                       {"shards", self_.shards},   {"clock", self_.clock}, {"control", self_.control}};
      joining_->ask(net::verb::join, me.dump());
    }
    const auto answer = joining_->answer();
    if (!answer) return 50_ms;
    if (!broken_.ignores_lease) lease_end_ = process_.time().now().time_since_epoch().count();
    if (answer->empty()) ended_();
    else pulse_->follow(adopt(*answer));
    return never;
  };
  in_.wake(a, in_.now());
}

std::uint32_t server_process::synced() const {
  std::uint32_t least = synced_[0];
  for (unsigned i = 1; i <= self_.threads; ++i) least = std::min<std::uint32_t>(least, synced_[i]);
  return least;
}

bool server_process::may_answer() const { return process_.time().now().time_since_epoch().count() < lease_end_; }

srv::server_options server_process::options_of(const server_entry& self) {
  srv::server_options o;
  o.slot = self.slot;
  o.threads = self.threads;
  o.incarnation = self.incarnation;
  o.job = job_id;
  o.workers = 0;
  return o;
}

srv::loop_context server_process::around(unsigned thread) {
  return {server_, *ports_[thread], stop_, lease_end_, synced_[thread], process_.time()};
}

void server_process::renew_lease(net::clock_source::time_point sent) {
  if (!broken_.ignores_lease && server_.replicas_epoch() != 0) {
    lease_end_ = (sent + std::chrono::nanoseconds(lease)).time_since_epoch().count();
  }
}

std::uint32_t server_process::adopt(std::string_view text) {
  auto members = membership::from_json(text);
  if (broken_.ignores_moves) members.moving.clear();
  const auto me = std::ranges::find(members.servers, self_.slot, &server_entry::slot);
  if (me == members.servers.end() || me->incarnation != self_.incarnation || me->state == server_state::down ||
      me->state == server_state::gone) {
    ended_();
  } else {
    if (before_follow) before_follow();
    server_.set_membership(members);
    members_ = std::make_shared<const membership>(members);
  }
  return members.epoch;
}

std::string server_process::describe() {
  return json{{"role", "server"},
              {"slot", self_.slot},
              {"pid", self_.pid},
              {"incarnation", to_hex(self_.incarnation)},
              {"synced", synced()},
              {"busy", json::array()},
              {"load", server_.load(process_.time().now()).to_json()}}
      .dump();
}

}  // namespace paracel::sim
