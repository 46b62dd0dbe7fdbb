// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/session.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/hex.hpp"
#include "core/identity.hpp"
#include "core/interruption.hpp"
#include "core/json_io.hpp"
#include "net/collective_codec.hpp"
#include "net/job_key.hpp"
#include "net/own_address.hpp"
#include "worker/job/command_channel.hpp"
#include "worker/job/folds.hpp"
#include "worker/job/peer_channels.hpp"

namespace paracel {

namespace {

constexpr std::chrono::milliseconds signal_interval{100};
// When a worker leaves, its messages reach the other processes long before this, unless those are stopped.
constexpr std::chrono::milliseconds farewell{2000};

// Length of a control message; the scheduler refuses longer ones (server/scheduler/control_body.cpp).
constexpr std::size_t most_control_bytes = std::size_t{1} << 20;

nlohmann::json identity_of(const session_options& o) {
  const auto pid = o.pid != 0 ? o.pid : std::int64_t{getpid()};
  return {{"role", "worker"},    {"rank", o.rank}, {"size", o.size},
          {"host", host_name()}, {"pid", pid},     {"incarnation", to_hex(o.incarnation)}};
}

}  // namespace

session::session(session_options options)
    : options_(std::move(options)), traced_("worker", options_.rank, "algorithm") {}

std::shared_ptr<session> session::join(session_options options) {
  if (options.incarnation == 0) options.incarnation = random_id();
  std::shared_ptr<session> s(new session(std::move(options)));
  const auto& o = s->options_;
  auto mine = identity_of(o);
  auto last = s->replacement_.open({.folder = o.state_folder,
                                    .outlives_host = o.state_outlives_host,
                                    .job = o.job,
                                    .rank = o.rank,
                                    .warn = [raw = s.get()](const std::string& text) { raw->warn(text); },
                                    .abort = [raw = s.get()](const std::string& cause) { raw->abort(cause); }});
  if (last) mine["clock"] = last->clock;
  if (last && !last->cannot.empty()) mine["cannot"] = last->cannot;
  s->to_scheduler_ = std::make_unique<net::scheduler_channel>(*o.over, o.scheduler, random_id(), o.resend_after);
  s->heartbeat_ = std::make_unique<net::heartbeat>(
      *o.over,
      net::heartbeat_options{.scheduler = o.scheduler,
                             .job = o.job,
                             .interval = o.heartbeat_interval,
                             .limit = o.heartbeat_limit * net::patience_with_scheduler,
                             .on_membership =
                                 [board = s->board_](std::string_view json) {
                                   auto m = membership::from_json(json);
                                   const auto epoch = m.epoch;
                                   board->put(std::move(m));
                                   return epoch;
                                 }},
      [body = identity_of(o), raw = s.get()] { return raw->beat(body); },
      [raw = s.get()](const net::directive& order) { raw->obey(order); });
  if (!o.peer_address.empty()) {
    auto bound = o.over->open();
    const auto address = bound->bind(o.peer_address);
    mine["address"] = address;
    s->open_peers(std::move(bound), address);
  }
  net::request_header h;
  h.what = net::verb::join;
  const auto& answer = s->ask(h, net::bytes_of(json_text(mine)));
  const auto turn = answer.header.count;
  if (s->peers_) s->peers_->set_turn(turn);
  const auto passed = answer.header.value_version;
  s->members_ = membership::from_json(net::text_of(answer.body));
  s->board_->put(s->members_);
  // The scheduler answers this request at once when the job ends: a worker that waits for another one's messages, or in
  // shared memory, must not learn of that one's death only from its next heartbeat.
  const bool awaits_peers = s->peers_ != nullptr && !s->survives_deaths();
  if (s->members_.may_change() || awaits_peers) s->heartbeat_->follow(s->members_.epoch);
  if (const auto& plan = s->members_.checkpoints; !plan.resume.empty()) {
    s->set_finished(plan.clock);
    if (!last) s->parts_.read(storage::posix_file_system(), plan, s->rank(), s->size());
  }
  if (turn == 0) return s;
  if (last) s->set_finished(last->clock);
  s->replacement_.begin_again(std::move(last), passed);
  s->replacement_.take_over([&] { return s->open_client(); });
  return s;
}

std::shared_ptr<session> session::alone(std::shared_ptr<net::transport> over, membership servers,
                                        std::shared_ptr<void> keep,
                                        std::function<void(const std::string&)> allow_plugin_folder) {
  session_options o;
  o.over = std::move(over);
  o.job = servers.job;
  o.resends = false;  // within a process no connection breaks
  std::shared_ptr<session> s(new session(std::move(o)));
  s->members_ = std::move(servers);
  s->keep_ = std::move(keep);
  s->allow_plugin_folder_ = std::move(allow_plugin_folder);
  return s;
}

/// Throws: what ends a wait. An interrupted conversation cannot be continued: its answers would be taken for others.
void session::check_waiting() {
  ended_->check();
  try {
    check_interruption();
  } catch (...) {
    ended_->raise(exit_status::failure, "a call of this worker was interrupted while it waited");
    throw;
  }
}

void session::open_peers(std::unique_ptr<net::port> bound, const std::string& address) {
  peer_channels::options o;
  o.job = options_.job;
  o.rank = rank();
  o.size = size();
  o.client = random_id();
  o.patience = std::min(signal_interval, options_.resend_after);
  o.doubt = options_.resend_after;
  o.used = &used_;
  if (options_.links_directly && address.starts_with("tcp://")) o.link_host = net::host_in(address);
  o.encrypts = net::job_curve_secret().has_value();
  o.max_message_bytes = options_.max_message_bytes;
  o.check = [this] { check_waiting(); };
  o.find = [this](std::uint32_t of) {
    net::request_header h;
    h.what = net::verb::find_worker;
    const auto body = json_text(nlohmann::json::object({{"rank", of}}));
    const auto j = json_from(net::text_of(ask(h, net::bytes_of(body)).body));
    return worker_place{.address = j.value("address", ""),
                        .turn = j.value("turn", std::uint32_t{0}),
                        .gone = j.value("gone", ""),
                        .awaited = j.value("awaited", false)};
  };
  peers_ = std::make_unique<peer_channels>(std::move(o), std::move(bound));
}

peer_channels& session::channels() {
  if (!peers_) throw error("the workers of this job cannot exchange messages");
  return *peers_;
}

peer_channels& session::peers() {
  auto& all = channels();
  if (!std::exchange(talks_, true))
    replacement_.forbid("it has exchanged messages with other workers, which are not saved");
  return all;
}

output_folder& session::output(const std::string& folder) {
  // An embedded job has no id: its process is its only one.
  static const auto alone = random_id();
  return outputs_.at(folder, options_.job != 0 ? options_.job : alone, options_.rank);
}

command_channel& session::commands() {
  if (commands_) return *commands_;
  command_channel::options o;
  if (has_scheduler())
    o.open = [this] {
      return std::make_unique<net::scheduler_channel>(*options_.over, options_.scheduler, random_id());
    };
  o.identity = identity_of(options_);
  o.marked = [this](net::request_header h) { return marked(h); };
  o.check = [this] { check_waiting(); };
  o.on_ended = [this](const net::reply_view& reply) { end(net::directive_of(reply)); };
  o.warn = [this](const std::string& text) { warn(text); };
  commands_ = std::make_unique<command_channel>(std::move(o));
  return *commands_;
}

std::size_t session::take_commands() { return commands_ == nullptr ? 0 : commands_->take(std::chrono::nanoseconds{0}); }

void session::forget_commands(const void* owner) {
  if (commands_ != nullptr) commands_->forget(owner);
}

session::~session() {
  closing_.store(true, std::memory_order_relaxed);
  heartbeat_.reset();
}

std::unique_ptr<server_group> session::open_client() {
  kvclt_options o;
  // The scheduler monitors the servers, and an embedded one lives as long as this process: a slow update function
  // is no reason to give up.
  o.timeout = std::chrono::milliseconds{0};
  o.max_message_bytes = options_.max_message_bytes;
  o.resends = options_.resends;
  o.resend_after = options_.resend_after;
  const auto newest = board_->newest();
  auto client = std::make_unique<server_group>(*options_.over, newest != nullptr ? *newest : members_, rank(), o,
                                               has_scheduler() ? ended_ : nullptr, board_);
  replacement_.add_client(client->incarnation());
  if (peers_ && std::this_thread::get_id() == owner_) client->set_waiting_hook([this] { peers_->check_links(); });
  return client;
}

net::request_header session::marked(net::request_header h) const noexcept {
  h.job = options_.job;
  h.rank = options_.rank;
  return h;
}

class session::asking {
 public:
  explicit asking(bool& now) : now_(now), before_(std::exchange(now, true)) {}
  asking(const asking&) = delete;
  asking& operator=(const asking&) = delete;
  ~asking() { now_ = before_; }

 private:
  bool& now_;
  const bool before_;
};

/// A command's function may run inside the wait for a barrier.
void session::refuse_in_barrier(const std::string& what) const {
  if (asks_)
    throw error("a command's function " + what +
                " while its worker waits in a barrier: want it at a commit or in paracel_take_commands");
}

void session::refuse_collective_of_command() const { refuse_in_barrier("calls a collective"); }

void session::take_commands_in_barrier(const std::function<bool()>& waits) {
  const asking now(asks_);
  if (commands_ != nullptr) commands_->take(std::chrono::nanoseconds{0}, waits);
}

const net::reply_view& session::ask(net::request_header& h, std::span<const std::byte> body, shared_buffer tail) {
  ended_->check();
  if (!has_scheduler()) throw error("this job has no scheduler");
  refuse_in_barrier(std::string("asks the scheduler (") + net::name_of(h.what) + ")");
  const asking now(asks_);
  const bool in_barrier = commands_ != nullptr && h.what == net::verb::collective &&
                          h.count == static_cast<std::uint32_t>(net::collective_kind::barrier);
  to_scheduler_->ask(marked(h), body, std::move(tail));
  for (;;) {
    if (!to_scheduler_->receive(std::min(in_barrier ? command_interval : signal_interval, options_.resend_after),
                                answer_)) {
      check_waiting();
      if (peers_) peers_->check_links();
      if (h.what == net::verb::leave && done_.load(std::memory_order_relaxed)) return answer_;
      // A worker that has passed the barrier may send a command that relies on it.
      bool passed = false;
      if (in_barrier)
        commands_->take(std::chrono::nanoseconds{0}, [&] {
          passed = passed || to_scheduler_->receive(std::chrono::milliseconds{0}, answer_);
          return !passed;
        });
      if (!passed) continue;
    }
    if (answer_.header.result == net::status::ok) return answer_;
    if (answer_.header.result == net::status::job_ended) {  // the heartbeat reports the same a little later
      end(net::directive_of(answer_));
      ended_->check();
    }
    throw error("the scheduler refused " + std::string(net::name_of(h.what)) + ": " +
                std::string(net::text_of(answer_.body)));
  }
}

/// Under a launcher stderr is a log, so the scheduler forwards it as well.
void session::warn(const std::string& text) {
  const auto line = "worker " + std::to_string(rank()) + ": warning: " + text;
  std::fprintf(stderr, "%s\n", line.c_str());
  auto body = nlohmann::json::object();
  body["warning"] = line;
  tell(net::verb::progress, json_text(body));
}

/// Ends the job because of this worker.
void session::abort(const std::string& cause) {
  const nlohmann::json body{{"status", exit_status::worker_lost}, {"cause", cause}};
  net::request_header h;
  h.what = net::verb::abort;
  ask(h, net::bytes_of(json_text(body)));
  throw job_error(cause, exit_status::worker_lost);
}

void session::tell(net::verb what, const std::string& json) {
  if (!has_scheduler() || ended_->raised()) return;
  if (json.size() > most_control_bytes) return;  // it would be refused
  net::request_header h;
  h.what = what;
  to_scheduler_->tell(marked(h), net::bytes_of(json));
}

void session::trace_iteration() noexcept {
  if (!trace::is_on()) return;
  const auto now = trace::now();
  trace::add({.begin = iteration_began_,
              .end = now,
              .sequence = finished(),
              .kind = trace::kind::phase,
              .what = static_cast<std::uint8_t>(trace::phase::iteration)});
  iteration_began_ = now;
}

void session::checkpoint() {
  const trace::phase_scope traced(trace::phase::checkpoint, finished());
  const auto clock = finished();
  const auto folder = members_.checkpoints.folder + "/" + storage::checkpoint_folder_name(clock);
  storage::posix_file_system disk;
  auto body = identity_of(options_);
  body["clock"] = clock;
  std::string path;
  try {
    const auto file = parts_.write(disk, folder,
                                   {.kind = storage::checkpoint_kind::worker,
                                    .clock = clock,
                                    .index = rank(),
                                    .job = options_.job,
                                    .count = size()});
    path = folder + "/" + file.name;
    body["file"] = nlohmann::json::parse(storage::to_json(file));
  } catch (const std::exception& e) {  // of the disk, or what the algorithm could not save
    body["error"] = short_text(e.what());
  }
  net::request_header h;
  h.what = net::verb::checkpoint;
  const auto text = json_text(body);
  const auto answer = json_from(net::text_of(ask(h, net::bytes_of(text)).body));
  if (path.empty() || (answer.is_object() && answer.value("ok", false))) return;
  try {
    disk.remove(path);
  } catch (const error&) {  // without a manifest it is not used
  }
}

/// The body of a heartbeat.
std::string session::beat(nlohmann::json body) {
  body["clock"] = finished();
  body["usage"] = used_.report();
  if (board_->newest() != nullptr) body["joined"] = true;
  replacement_.report(body);
  return json_text(body);
}

void session::leave() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  replacement_.check_repeatable();
  if (stages_ || (has_scheduler() && size() > 1)) {
    const auto client = open_client();
    auto slowest = finished();
    client->wait(client->clock_request(
        net::verb::clock_tick, net::no_clock,
        [&](const kv_result& r) {
          if (!r.ok()) return;
          slowest = r.header.clock;
          if (r.header.count != 0)
            warn("updates since the last iter_commit are lost (" + std::to_string(r.header.count) +
                 "; one of them of " + std::string(r.text()) +
                 "): under bsp they would have taken effect at the next one");
        },
        stages_ ? net::flag_staged : std::uint16_t{0}));
    if (stages_) fold_everywhere(*client, slowest);
  }
  if (!has_scheduler()) return;
  if (talks_) (void)peers_->flush(farewell);
  heartbeat_->follow(0);  // the scheduler answers the parked request now
  if (commands_) commands_->close(farewell);
  auto body = identity_of(options_);
  body["status"] = 0;
  body["clock"] = finished();
  body["usage"] = used_.report();
  net::request_header h;
  h.what = net::verb::leave;
  try {
    ask(h, net::bytes_of(json_text(body)));
  } catch (const job_error& e) {
    // The scheduler exits when the last worker has left, and its reply may be lost with a connection. Whether it has
    // crashed instead is for its parent to report.
    if (e.status() != exit_status::scheduler_lost) throw;
  }
}

void session::end(const net::directive& o) { ended_->raise(o.status, "the job has ended: " + o.cause); }

void session::obey(const net::directive& o) {
  if (o.what == net::instruction::shutdown) done_.store(true, std::memory_order_relaxed);
  if (o.what != net::instruction::abort) return;
  end(o);
  if (options_.grace.count() == 0) return;
  // The algorithm may be deep in a computation, or in an MPI call that will never return.
  const auto end = std::chrono::steady_clock::now() + options_.grace;
  while (!closing_.load(std::memory_order_relaxed)) {
    if (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
      continue;
    }
    std::fprintf(stderr, "worker %u: %s\n", options_.rank, ended_->cause().c_str());
    std::fflush(nullptr);
    std::_Exit(o.status);
  }
}

}  // namespace paracel
