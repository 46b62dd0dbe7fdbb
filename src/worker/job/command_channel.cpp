// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/command_channel.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <paracel/error.hpp>

#include "core/json_io.hpp"

namespace paracel {

namespace {

using nlohmann::json;
using std::chrono::milliseconds;

// How often a blocked call checks whether the job has ended.
constexpr milliseconds check_interval{100};
// Between two non-blocking calls the process may have been computing: at most this much of the time counts as silence.
constexpr milliseconds most_silence{200};
constexpr std::size_t most_name_bytes = 256;
// Bytes of the answers in a request, as JSON. A control message has at most 1 MiB (server/scheduler/control_body.cpp),
// and a request may carry a command as well. JSON writes a byte as up to six, so one answer always fits: 384 KiB and
// its front.
constexpr std::size_t most_answer_bytes = std::size_t{512} << 10;
constexpr std::size_t answer_front_bytes = 64;  // {"number":18446744073709551615,"ok":false,"text":},

/// The length of `text` as a JSON string; nothing if it is not UTF-8.
std::optional<std::size_t> json_bytes(const std::string& text) {
  try {
    return json(text).dump().size();
  } catch (const json::type_error&) {
    return std::nullopt;
  }
}

/// A text that can be sent: what is not UTF-8 is replaced, and the rest cut off.
std::string sendable(std::string text) {
  constexpr auto most = command_channel::most_text_bytes;
  if (text.size() > most) text.resize(most);
  if (!json_bytes(text)) text = json::parse(json_text(text)).get<std::string>();
  if (text.size() <= most) return text;
  auto end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;  // inside a character
  text.resize(end);
  return text;
}

/// True while a function of the user runs.
class raised_flag {
 public:
  explicit raised_flag(bool& flag) : flag_(flag) { flag_ = true; }
  raised_flag(const raised_flag&) = delete;
  raised_flag& operator=(const raised_flag&) = delete;
  ~raised_flag() { flag_ = false; }

 private:
  bool& flag_;
};

}  // namespace

job_node job_node_of(bool is_server, std::size_t number, const json& j) {
  const auto state = j.at("state").get<std::string>();
  return {.is_server = is_server,
          .number = number,
          .state = state,
          .host = j.value("host", ""),
          .silent_seconds = j.value("silent", 0.0),
          .is_dead = state == "gone" || state == "down" || state == "awaited" || state == "ejected",
          .cause = j.value("cause", ""),
          .clock = j.value("clock", std::uint32_t{0})};
}

void command_channel::check_name(const std::string& name) {
  if (name.empty() || name.size() > most_name_bytes)
    throw config_error("a command's name must have 1 to 256 bytes, this one has " + std::to_string(name.size()));
  if (!json_bytes(name)) throw config_error("a command's name is not UTF-8");
}

command_channel::command_channel(options o) : options_(std::move(o)) {}

void command_channel::on_command(const void* owner, const std::string& name, command_function f) {
  check_name(name);
  if (std::ranges::find(commands_, name, &known_command::name) != commands_.end())
    throw config_error("there is already a function for the command \"" + name + "\"");
  commands_.push_back({owner, name, std::move(f)});
  begin();
}

void command_channel::on_change(const void* owner, change_function f) {
  changes_.emplace_back(owner, std::move(f));
  const bool knows = scheduler_ == nullptr || std::exchange(wants_changes_, true);
  wants_changes_ = true;
  begin();
  if (!knows) ask();
}

void command_channel::forget(const void* owner) {
  std::erase_if(commands_, [&](const known_command& c) { return c.owner == owner; });
  std::erase_if(changes_, [&](const auto& c) { return c.first == owner; });
}

// ---- the channel

/// When this returns, the scheduler knows that this worker accepts commands.
void command_channel::begin() {
  if (scheduler_ || !options_.open) return;
  scheduler_ = options_.open();
  ask(true);
  await_reply();
  ask();
}

void command_channel::ask(bool begins, bool ends) {
  auto body = options_.identity;
  body["after"] = after_;
  if (begins) body["begin"] = true;
  carried_ = 0;
  for (std::size_t bytes = 0; carried_ < answers_.size(); ++carried_) {
    const auto& a = answers_[carried_];
    bytes += a.encoded_bytes + answer_front_bytes;
    if (carried_ != 0 && bytes > most_answer_bytes) break;
    body["answers"].push_back({{"number", a.number}, {"ok", a.ok}, {"text", a.text}});
  }
  if (carries_all()) {
    if (ends) body["end"] = true;
  } else {
    body["more"] = true;
  }
  if (!gives_.is_null()) body["tell"] = gives_;
  if (wants_changes_) body["changes"] = change_;
  net::request_header h;
  h.what = net::verb::take_commands;
  scheduler_->ask(options_.marked(h), net::bytes_of(json_text(body)));
  waits_ = true;
}

/// Returns: whether the reply to the parked request has arrived; if so, it has been read.
bool command_channel::receive(milliseconds timeout) {
  net::reply_view reply;
  if (!scheduler_->receive(timeout, reply)) {
    if (timeout.count() != 0) return false;
    const auto now = steady_clock::now();
    scheduler_->record_silence(std::min<std::chrono::nanoseconds>(now - looked_, most_silence));
    looked_ = now;
    return false;
  }
  waits_ = false;
  read(reply);
  return true;
}

/// The same on behalf of a call of the user, which a refusal ends.
bool command_channel::receive_asked(milliseconds timeout) {
  const raised_flag now(asks_);
  return receive(timeout);
}

void command_channel::await_reply() {
  while (!receive_asked(check_interval)) options_.check();
}

void command_channel::read(const net::reply_view& reply) {
  if (reply.header.result == net::status::job_ended) {  // the heartbeat reports the same a little later
    options_.on_ended(reply);
    options_.check();
  }
  if (reply.header.result != net::status::ok) return on_refusal(std::string(net::text_of(reply.body)));
  answers_.erase(answers_.begin(), answers_.begin() + static_cast<std::ptrdiff_t>(carried_));
  carried_ = 0;
  if (reply.body.empty()) return;
  const auto all = json_or_throw(net::text_of(reply.body));
  for (const auto& c : all.value("commands", json::array())) {
    const auto number = c.at("number").get<std::uint64_t>();
    if (number <= after_) continue;
    after_ = number;
    arrived_.push_back({number, c.at("command").get<std::string>(), c.at("body").get<std::string>()});
  }
  for (const auto& c : all.value("changes", json::array())) {
    const auto number = c.at("number").get<std::uint64_t>();
    if (number <= change_) continue;
    change_ = number;
    changed_.push_back(job_node_of(c.at("server").get<bool>(), c.at("index").get<std::size_t>(), c));
  }
  const auto told = all.find("told");
  if (told == all.end() || gives_.is_null() || told->at("number") != gives_.at("number")) return;
  told_ = *told;
  gives_ = nullptr;
}

/// A request is sent on behalf of a call of the user only by `begin` and `tell`; a commit has not asked for anything.
void command_channel::on_refusal(const std::string& why) {
  const auto text = "the scheduler refused take_commands: " + why;
  if (asks_) throw error(text);
  refused_ = text;
  if (options_.warn) options_.warn(text + "; this worker accepts no more commands");
}

// ---- running them

command_answer command_channel::run(const std::string& name, const std::string& body) {
  const auto known = std::ranges::find(commands_, name, &known_command::name);
  if (known == commands_.end()) {
    std::string names;
    for (const auto& c : commands_) names += (names.empty() ? "" : ", ") + c.name;
    return {0, false,
            sendable("no command \"" + name + "\": this program has " + (names.empty() ? "none any more" : names))};
  }
  const auto f = known->run;  // it may destroy its own paralg
  const raised_flag now(runs_);
  try {
    auto text = f(body);
    if (text.size() > most_text_bytes)
      return {0, false, "its answer has " + std::to_string(text.size()) + " bytes, want at most 65536"};
    if (!json_bytes(text)) return {0, false, "its answer is not UTF-8"};
    return {0, true, std::move(text)};
  } catch (const job_error&) {
    throw;
  } catch (const std::exception& e) {
    return {0, false, sendable(e.what())};
  }
}

/// Then parks a request. If a function throws, the rest is run the next time.
std::size_t command_channel::run_arrived(const condition& runs) {
  std::size_t n = 0;
  bool answered = false;
  const auto may_run = [&] { return !runs || runs(); };
  for (; !changed_.empty() && may_run(); ++n) {
    const auto node = std::move(changed_.front());
    changed_.pop_front();
    const auto functions = changes_;
    const raised_flag now(runs_);
    for (const auto& [owner, f] : functions) f(node);
  }
  for (; !arrived_.empty() && may_run(); ++n) {
    const auto c = std::move(arrived_.front());
    arrived_.pop_front();
    auto a = run(c.name, c.body);
    const auto bytes = json_bytes(a.text).value_or(0);
    answers_.push_back({c.number, a.ok, std::move(a.text), bytes});
    answered = true;
  }
  // A parked request that has not carried these answers is replaced.
  if (refused_.empty() && (!waits_ || answered)) ask();
  return n;
}

std::size_t command_channel::take(std::chrono::nanoseconds limit, const condition& runs) {
  if (runs_ || !scheduler_ || !refused_.empty()) return 0;
  const auto end = steady_clock::now() + limit;
  std::size_t n = 0;
  for (;;) {
    n += run_arrived(runs);
    if (!refused_.empty()) return n;
    milliseconds patience{0};
    if (n == 0 && limit.count() > 0)
      patience = std::clamp(std::chrono::ceil<milliseconds>(end - steady_clock::now()), patience, check_interval);
    if (receive(patience)) continue;
    if (patience.count() == 0) return n;
    options_.check();
  }
}

std::vector<command_answer> command_channel::tell(const command_target& to, const std::string& name,
                                                  const std::string& body, double seconds) {
  if (runs_) throw error("paracel_tell in a function of paracel_on_command or paracel_on_change: want it outside");
  if (!options_.open) {
    if (to.is_server || to.number.value_or(0) != 0)
      throw error("a job without a scheduler has one process, which takes commands as worker 0");
    return {run(name, body)};
  }
  check_name(name);
  if (body.size() > most_text_bytes)
    throw config_error("the body of a command has " + std::to_string(body.size()) + " bytes, want at most 65536");
  if (!json_bytes(body)) throw config_error("the body of a command is not UTF-8");
  if (!refused_.empty()) throw error(refused_);
  begin();
  gives_ = json{{"number", ++given_},
                {"to", to.is_server ? "servers" : "workers"},
                {"command", name},
                {"body", body},
                {"seconds", seconds}};
  if (to.number) gives_["index"] = *to.number;
  told_.reset();
  const struct given_up {  // after an exception nobody waits for its answers
    ~given_up() { command = nullptr; }
    json& command;
  } at_end{gives_};
  ask();
  while (!told_) {
    if (!receive_asked(check_interval)) options_.check();
    (void)run_arrived();
  }
  if (const auto why = told_->value("refused", ""); !why.empty()) throw error("the command was refused: " + why);
  std::vector<command_answer> answers;
  for (const auto& a : told_->at("answers"))
    answers.push_back({a.at(to.is_server ? "slot" : "rank").get<std::size_t>(), a.at("ok").get<bool>(),
                       a.at("text").get<std::string>()});
  return answers;
}

void command_channel::close(milliseconds limit) {
  if (!scheduler_) return;
  for (const auto end = steady_clock::now() + limit; refused_.empty();) {
    ask(false, true);
    const bool was_last = carries_all();
    bool has_come = false;
    while (steady_clock::now() < end && !(has_come = receive(check_interval))) options_.check();
    if (was_last || !has_come) break;
  }
  scheduler_.reset();
  options_.open = nullptr;
}

}  // namespace paracel
