// SPDX-License-Identifier: BSD-3-Clause
#include "worker/session.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

namespace paracel {

namespace {

constexpr std::chrono::milliseconds look_up_interval{100};

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

nlohmann::json identity_of(const session_options& o) {
  return {{"role", "worker"}, {"rank", o.rank}, {"size", o.size}, {"host", host_name()}, {"pid", getpid()}};
}

}  // namespace

session::session(session_options options) : options_(std::move(options)) {}

std::shared_ptr<session> session::join(session_options options) {
  std::shared_ptr<session> s(new session(std::move(options)));
  const auto& o = s->options_;
  s->to_scheduler_ = o.over->open();
  s->channel_ = s->to_scheduler_->connect(o.scheduler);
  s->heartbeat_ = std::make_unique<net::heartbeat>(
      *o.over,
      net::heartbeat_options{o.scheduler, o.job, o.heartbeat_interval, o.heartbeat_limit},
      [body = identity_of(o).dump()] { return body; }, [raw = s.get()](const net::order& order) { raw->obey(order); });
  net::request_header h;
  h.what = net::verb::join;
  const auto& answer = s->ask(h, net::bytes_of(identity_of(o).dump()));
  s->members_ = membership::from_json(net::text_of(answer.body));
  return s;
}

std::shared_ptr<session> session::alone(std::shared_ptr<net::transport> over, membership servers,
                                        std::shared_ptr<void> keep,
                                        std::function<void(const std::string&)> allow_plugin_folder) {
  session_options o;
  o.over = std::move(over);
  o.job = servers.job;
  std::shared_ptr<session> s(new session(std::move(o)));
  s->members_ = std::move(servers);
  s->keep_ = std::move(keep);
  s->allow_plugin_folder_ = std::move(allow_plugin_folder);
  return s;
}

session::~session() {
  closing_.store(true, std::memory_order_relaxed);
  heartbeat_.reset();
}

std::unique_ptr<kvclt> session::open_client() {
  kvclt_options o;
  // The scheduler watches over the servers, and an embedded one lives as long as this process: a slow update function is
  // no reason to give up.
  o.timeout = std::chrono::milliseconds{0};
  o.max_message_bytes = options_.max_message_bytes;
  return std::make_unique<kvclt>(*options_.over, members_, rank(), o, ended_);
}

void session::send(net::request_header& h, std::span<const std::byte> body, blob tail) {
  h.job = options_.job;
  h.rank = options_.rank;
  h.sequence = ++sequence_;
  h.low_watermark = sequence_;
  h.body_bytes = static_cast<std::uint32_t>(body.size());
  h.tail_bytes = tail.size();
  net::request_bytes head;
  net::encode(h, head);
  to_scheduler_->send(channel_, {.head = head, .body = body, .tail = std::move(tail)});
}

const net::reply_view& session::ask(net::request_header& h, std::span<const std::byte> body, blob tail) {
  ended_->check();
  if (!has_scheduler()) throw error("this job has no scheduler");
  send(h, body, std::move(tail));
  for (;;) {
    if (!to_scheduler_->receive(incoming_, look_up_interval)) {
      ended_->check();
      continue;
    }
    if (const char* reason = net::decode(incoming_.frame, incoming_.tail.size(), answer_); reason != nullptr)
      throw protocol_error(std::string("the scheduler sent a malformed reply: ") + reason);
    if (answer_.header.sequence != sequence_) continue;  // the answer to something that was only told
    if (answer_.header.result == net::status::ok) return answer_;
    if (answer_.header.result == net::status::job_ended) {  // the heartbeat brings the same a little later
      end(net::order_of(answer_));
      ended_->check();
    }
    throw error("the scheduler refused " + std::string(net::name_of(h.what)) + ": " +
                std::string(net::text_of(answer_.body)));
  }
}

void session::tell(net::verb what, const std::string& json) {
  if (!has_scheduler() || ended_->raised()) return;
  while (to_scheduler_->receive(incoming_, std::chrono::milliseconds{0})) {
  }  // answers to what was told before
  net::request_header h;
  h.what = what;
  send(h, net::bytes_of(json), {});
}

void session::leave() {
  if (!has_scheduler()) return;
  if (size() > 1) {
    const auto client = open_client();
    client->wait(client->clock_request(net::verb::clock_tick, net::no_clock, nullptr));
  }
  auto body = identity_of(options_);
  body["status"] = 0;
  net::request_header h;
  h.what = net::verb::leave;
  ask(h, net::bytes_of(body.dump()));
}

void session::end(const net::order& o) { ended_->raise(o.status, "the job has ended: " + o.cause); }

void session::obey(const net::order& o) {
  if (o.what != net::instruction::abort) return;
  end(o);
  if (options_.grace.count() == 0) return;
  // The algorithm may be deep in a computation, or in an MPI call that will never return.
  const auto end = std::chrono::steady_clock::now() + options_.grace;
  while (std::chrono::steady_clock::now() < end) {
    if (closing_.load(std::memory_order_relaxed)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
  std::fprintf(stderr, "worker %u: %s\n", options_.rank, ended_->cause().c_str());
  std::fflush(nullptr);
  std::_Exit(o.status);
}

}  // namespace paracel
