// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/checkpoint_coordinator.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/hex.hpp"
#include "core/json_io.hpp"
#include "server/scheduler/clock_removals.hpp"

namespace paracel::srv {
namespace {

using nlohmann::json;

// A shard that writes or reads does not reply before it is done, so the time doubles.
constexpr std::chrono::milliseconds first_again{1000};
constexpr std::chrono::milliseconds longest_again{60'000};
// A server's description of its file and of the functions registered there, 1,024 at most.
constexpr std::size_t most_saved_bytes = std::size_t{16} << 20;

/// Returns no_clock, which is not a valid rank either, if it is missing or not a number.
std::uint32_t json_number(const json& j, const char* key) {
  if (!j.is_object()) return net::no_clock;
  const auto at = j.find(key);
  if (at == j.end() || !at->is_number_unsigned() || at->get<std::uint64_t>() > net::no_clock) return net::no_clock;
  return at->get<std::uint32_t>();
}

void answer_worker(completion& done, const std::string& why) {
  const auto body = json_text(why.empty() ? json{{"ok", true}} : json{{"ok", false}, {"why", why}});
  done.answer({}, net::bytes_of(body));
}

}  // namespace

checkpoint_coordinator::checkpoint_coordinator(checkpoint_options options, std::uint64_t job, std::uint32_t workers,
                                               event_sink events, send_request send)
    : options_(std::move(options)),
      job_(job),
      workers_(workers),
      events_(std::move(events)),
      send_(std::move(send)),
      disk_(options_.disk != nullptr ? options_.disk : &file_system_) {
  for (std::uint32_t rank = 0; rank < workers; ++rank) in_.insert(in_.end(), rank);
  if (!options_.plan.resume.empty()) last_ = options_.plan.clock;
}

std::string checkpoint_coordinator::folder_of(std::uint32_t clock) const {
  return options_.plan.folder + "/" + storage::checkpoint_folder_name(clock);
}

void checkpoint_coordinator::say(const std::string& kind, std::uint32_t clock, const std::string& why,
                                 std::uint64_t bytes) {
  json event{{"event", kind}, {"clock", clock}, {"folder", folder_of(clock)}};
  if (!why.empty()) event["why"] = why;
  else event["bytes"] = bytes;
  event["seconds"] = std::chrono::duration<double>(now_ - since_).count();
  events_(json_text(event), false);
}

// ---- stopping

void checkpoint_coordinator::handle(const net::request_view& in, completion done, const membership& members,
                                    time_point now) {
  now_ = now;
  const auto body = json_from(net::text_of(in.body));
  const auto role = body.is_object() && body.contains("role") ? body["role"] : json();
  if (options_.plan.folder.empty()) {
    return done.fail(net::status::bad_request, "the job was started without --checkpoint-dir");
  }
  if (role == "launcher") {
    ask(members);
    return done.ok();
  }
  const auto rank = json_number(body, "rank");
  const auto clock = json_number(body, "clock");
  if (role != "worker" || !in_.contains(rank) || clock == net::no_clock) {
    return done.fail(net::status::bad_request,
                     "a checkpoint must be requested by a launcher, or by a worker with rank and clock");
  }
  stopped_worker worker;
  try {
    const auto file = body.find("file");
    if (file != body.end()) worker.file = storage::entry_from_json(json_text(*file), clock, job_);
    else worker.error = body.value("error", "it has written no file");
  } catch (const std::exception& e) {
    worker.error = e.what();
  }
  worker.done = std::move(done);
  stop(rank, clock, std::move(worker), members, now);
}

void checkpoint_coordinator::stop(std::uint32_t rank, std::uint32_t clock, stopped_worker worker,
                                  const membership& members, time_point now) {
  if (phase_ != phase::idle && clock > clock_) {
    close("worker " + std::to_string(rank) + " has passed it", 0);
  } else if (clock == clock_ && (phase_ == phase::saving || phase_ == phase::finishing)) {
    close("worker " + std::to_string(rank) + " has reached it twice", 0);
  }
  if ((last_ && clock <= *last_) || (phase_ != phase::idle && clock < clock_)) {
    return answer_worker(worker.done, "the checkpoint at clock " + std::to_string(clock) + " was abandoned");
  }
  if (phase_ == phase::idle) {
    phase_ = phase::gathering;
    clock_ = clock;
    since_ = now;
    failure_.clear();
    functions_.clear();
    manifest_ = {.job = job_,
                 .clock = clock,
                 .program = options_.program,
                 .config = options_.config,
                 .settings = options_.settings};
  }
  stopped_[rank] = std::move(worker);
  check_all_stopped(members);
}

void checkpoint_coordinator::worker_left(std::uint32_t rank, const membership& members) {
  in_.erase(rank);
  if (phase_ != phase::gathering) return;
  if (const auto at = stopped_.find(rank); at != stopped_.end()) {
    answer_worker(at->second.done, "the others continue without this worker");
    stopped_.erase(at);
  }
  if (!in_.empty()) check_all_stopped(members);
  else close("no worker is left", 0);
}

void checkpoint_coordinator::worker_passed(std::uint32_t rank, std::uint32_t clock) {
  passed_[rank] = clock;
  const bool runs = clock >= clock_;  // even if the previous process had stopped there: this one does not
  if (phase_ == phase::saving || (phase_ == phase::gathering && runs)) {
    close("worker " + std::to_string(rank) + " was replaced meanwhile", 0);
  } else if (phase_ == phase::gathering) {
    stopped_.erase(rank);
  }
}

void checkpoint_coordinator::check_all_stopped(const membership& members) {
  for (const auto& [rank, clock] : passed_) {
    if (clock >= clock_ && in_.contains(rank) && !stopped_.contains(rank)) return worker_passed(rank, clock);
  }
  if (!std::ranges::includes(stopped_, in_, {}, [](const auto& s) { return s.first; })) return;
  if (!members.moving.empty()) return;  // until they have arrived: `tick`
  for (const auto& [rank, worker] : stopped_) {
    if (!worker.file) return close("worker " + std::to_string(rank) + ": " + worker.error, 0);
    manifest_.files.push_back(*worker.file);
  }
  save(members);
}

void checkpoint_coordinator::ask(const membership& members) {
  if (options_.plan.folder.empty()) {
    events_(json_text({{"event", "checkpoint_failed"}, {"why", "the job was started without --checkpoint-dir"}}),
            false);
    return;
  }
  if (members.servers.empty() || members.servers.front().clock.empty() || waits_for(purpose::clock)) return;
  net::request_header h;
  h.clock = net::no_clock;
  h.epoch = members.epoch;
  put(purpose::clock, clock_address(members), h, {});
}

// ---- requests

void checkpoint_coordinator::put(purpose what, const std::string& address, net::request_header h, std::string body) {
  h.what = net::verb::checkpoint;
  h.sequence = ++last_number_;
  const auto& q = asked_[h.sequence] = {what, address, h, std::move(body), now_ + first_again, first_again};
  send_(q.address, q.header, q.body);
}

void checkpoint_coordinator::put_again(question& q, const membership& members) {
  q.wait = std::min(std::max(q.wait * 2, first_again), longest_again);
  q.again = now_ + q.wait;
  if (q.what == purpose::clock) {
    q.address = clock_address(members);
    q.header.epoch = members.epoch;
  }
  send_(q.address, q.header, q.body);
}

bool checkpoint_coordinator::waits_for(purpose what) const noexcept {
  return std::ranges::any_of(asked_, [what](const auto& q) { return q.second.what == what; });
}

void checkpoint_coordinator::forget(purpose what) {
  std::erase_if(asked_, [what](const auto& q) { return q.second.what == what; });
}

// ---- saving

void checkpoint_coordinator::save(const membership& members) {
  phase_ = phase::saving;
  manifest_.workers = workers_;
  const auto body = json_text({{"do", "save"}, {"folder", folder_of(clock_)}, {"clock", clock_}});
  net::request_header h;
  h.epoch = members.epoch;
  for (const auto& s : members.servers) {
    if (!may_head(s.state)) continue;
    ++manifest_.servers;
    for (const auto& address : s.shards) put(purpose::save, address, h, body);
  }
}

void checkpoint_coordinator::on_saved(const net::reply_view& reply) {
  if (reply.header.result != net::status::ok) {
    if (failure_.empty()) failure_ = net::text_of(reply.body);
  } else {
    try {
      const auto body = json_from(net::text_of(reply.body), most_saved_bytes);
      manifest_.files.push_back(storage::entry_from_json(json_text(body.at("file")), clock_, job_));
      for (const auto& f : body.at("functions")) {
        functions_.insert({from_hex(f.at("id").get<std::string>()).value_or(0), f.at("plugin").get<std::string>(),
                           f.at("symbol").get<std::string>(), f.at("filter").get<bool>()});
      }
    } catch (const std::exception& e) {
      failure_ = std::string("the reply of a server is malformed: ") + e.what();
    }
  }
  if (waits_for(purpose::save)) return;  // even after a failure: until then a server may still write
  if (!failure_.empty()) return close(failure_, 0);
  finish();
}

void checkpoint_coordinator::finish() {
  phase_ = phase::finishing;
  manifest_.functions.assign(functions_.begin(), functions_.end());
  std::sort(manifest_.files.begin(), manifest_.files.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  later([this, m = manifest_, folder = folder_of(clock_)] {
    const auto text = m.to_text();
    disk_->write(folder + "/" + storage::manifest_name, net::bytes_of(text));
    outcome o;
    for (const auto& f : m.files) o.bytes += f.digest.bytes;
    return o;
  });
}

/// The workers continue.
void checkpoint_coordinator::close(const std::string& why, std::uint64_t bytes) {
  for (auto& [rank, worker] : stopped_) answer_worker(worker.done, why.empty() ? why : "the checkpoint failed: " + why);
  stopped_.clear();
  forget(purpose::save);
  phase_ = phase::idle;
  last_ = clock_;
  ++(why.empty() ? written_ : abandoned_);
  if (why.empty()) last_written_ = clock_;
  say(why.empty() ? "checkpoint" : "checkpoint_failed", clock_, why, bytes);
  const auto folder = folder_of(clock_);
  if (!why.empty()) {
    later([this, folder] {
      // A manifest of another run, at the same clock, would name files that no longer exist.
      disk_->remove(folder + "/" + storage::manifest_name);
      if (!storage::has_foreign_files(*disk_, folder)) disk_->remove_folder(folder);
      return outcome{};
    });
  } else {
    later([this, known = known_, clock = clock_] {
      (*known)[clock] = true;
      storage::prune_checkpoints(*disk_, options_.plan.folder, options_.keep, *known);
      return outcome{};
    });
  }
  pruning_ = true;
}

/// Work for the disk thread; one task at a time.
void checkpoint_coordinator::later(std::function<outcome()> work) {
  if (task_.valid()) {
    // Pruning after the previous checkpoint; a job that makes checkpoints faster than that waits for it.
    work = [before = std::make_shared<std::future<outcome>>(std::move(task_)), work = std::move(work)] {
      before->wait();
      return work();
    };
  }
  pruning_ = false;
  auto guarded = [work = std::move(work)]() -> outcome {
    try {
      return work();
    } catch (const std::exception& e) {
      return {.why = e.what()};
    }
  };
  task_ = std::async(options_.own_thread ? std::launch::async : std::launch::deferred, std::move(guarded));
  if (!options_.own_thread) task_.wait();
}

void checkpoint_coordinator::take_result() {
  if (!task_.valid() || task_.wait_for(std::chrono::seconds{0}) == std::future_status::timeout) return;
  const auto result = task_.get();
  if (!pruning_) return close(result.why, result.bytes);
  if (!result.why.empty()) {
    const auto why = "old checkpoints were not removed: " + result.why;
    events_(json_text({{"event", "checkpoint_failed"}, {"clock", clock_}, {"why", why}}), false);
  }
}

// ---- restoring

void checkpoint_coordinator::restore(const membership& members, time_point now) {
  if (options_.plan.resume.empty() || restore_ != step::none) return;
  now_ = since_ = now;
  restore_ = step::asked;
  const auto body = json_text({{"do", "restore"}, {"folder", options_.plan.resume}});
  net::request_header h;
  h.epoch = members.epoch;
  for (const auto& s : members.servers) {
    for (const auto& address : s.shards) put(purpose::restore, address, h, body);
  }
}

void checkpoint_coordinator::put_soon(question q) {
  q.wait = soon;
  q.again = now_ + soon;
  asked_[q.header.sequence] = std::move(q);
}

void checkpoint_coordinator::on_restored(question q, const net::reply_view& reply) {
  if (reply.header.result == net::status::stale_epoch) return put_soon(std::move(q));
  if (reply.header.result != net::status::ok && restore_failure_.empty()) {
    restore_failure_ = "the checkpoint cannot be restored: " + std::string(net::text_of(reply.body));
  }
  if (waits_for(purpose::restore) || !restore_failure_.empty()) return;
  restore_ = step::done;
  events_(json_text({{"event", "restored"},
                     {"clock", options_.plan.clock},
                     {"folder", options_.plan.resume},
                     {"seconds", std::chrono::duration<double>(now_ - since_).count()}}),
          false);
}

// ---- replies

bool checkpoint_coordinator::on_reply(std::uint64_t number, const net::reply_view& reply, time_point now) {
  now_ = now;
  auto node = asked_.extract(number);
  if (node.empty()) return false;  // or a second answer
  switch (node.mapped().what) {
    case purpose::save:
      on_saved(reply);
      break;
    case purpose::restore:
      on_restored(std::move(node.mapped()), reply);
      break;
    case purpose::clock:
      on_clock(std::move(node.mapped()), reply);
      break;
  }
  return true;
}

void checkpoint_coordinator::on_clock(question q, const net::reply_view& reply) {
  using enum net::status;
  if (reply.header.result == stale_epoch || reply.header.result == wrong_owner) return put_soon(std::move(q));
  if (reply.header.result == ok) {
    events_(json_text({{"event", "checkpoint_asked"}, {"clock", reply.header.clock}}), false);
  } else {
    events_(json_text({{"event", "checkpoint_failed"}, {"why", net::text_of(reply.body)}}), false);
  }
}

void checkpoint_coordinator::servers_changed(const std::string& why) {
  if (phase_ == phase::saving) close(why, 0);
}

void checkpoint_coordinator::tick(const membership& members, time_point now) {
  now_ = now;
  take_result();
  for (auto& [number, q] : asked_)
    if (q.again <= now) put_again(q, members);
  if (phase_ == phase::gathering) check_all_stopped(members);
  if (phase_ == phase::gathering && now - since_ > options_.gather_limit) {
    std::string missing;
    std::size_t left_out = 0;
    for (const auto rank : in_) {
      if (stopped_.contains(rank)) continue;
      if (missing.size() < 60) missing += (missing.empty() ? "worker " : ", ") + std::to_string(rank);
      else ++left_out;
    }
    if (left_out != 0) missing += " and " + std::to_string(left_out) + " more";
    if (missing.empty()) close("partitions were moving for too long", 0);
    else close(missing + " did not reach clock " + std::to_string(clock_), 0);
  }
}

void checkpoint_coordinator::fail_all(net::status why, std::string_view text) {
  for (auto& [rank, worker] : stopped_) worker.done.fail(why, text);
  stopped_.clear();
  asked_.clear();
  phase_ = phase::idle;
}

}  // namespace paracel::srv
