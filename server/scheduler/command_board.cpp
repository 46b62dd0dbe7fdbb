// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/command_board.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/json_io.hpp"
#include "server/scheduler/control_body.hpp"

namespace paracel::srv {
namespace {

using nlohmann::json;

constexpr std::size_t most_name_bytes = 256;
constexpr double most_seconds = 86'400;
constexpr double default_seconds = 60;
// Most commands, or changes, in a reply, so that the receiver's answers fit a control message.
constexpr std::size_t most_delivered = 8;
// A server's control thread answers at once; a request or a reply may be lost with a connection.
constexpr std::chrono::milliseconds ask_again{1000};
// The numbers of these requests are distinct from those of checkpoint_coordinator and clock_removals. The low bits are
// the slot of the server.
constexpr std::uint64_t first_stats_number = std::uint64_t{1} << 62;
constexpr unsigned slot_bits = 16;

std::string long_text_in(const json& j, const char* key, std::size_t most) {
  const auto it = j.find(key);
  if (it == j.end()) return {};
  if (!it->is_string()) throw refusal(std::string("\"") + key + "\" is not a string");
  const auto& text = it->get_ref<const std::string&>();
  if (text.size() > most)
    throw refusal(std::string("\"") + key + "\" has " + std::to_string(text.size()) + " bytes, want at most " +
                  std::to_string(most));
  return text;
}

/// An answer that a worker cannot give is a failed one: a refusal would hit a commit of its program.
std::string answer_in(const json& of, bool& ok) {
  const auto text = of.find("text");
  const bool is_text = text != of.end() && text->is_string();
  ok = is_text && of.value("ok", json()) == true;
  if (!is_text) return "its answer is not a text";
  const auto& given = text->get_ref<const std::string&>();
  if (given.size() <= command_board::most_text_bytes) return given;
  ok = false;
  return "its answer has " + std::to_string(given.size()) + " bytes, want at most " +
         std::to_string(command_board::most_text_bytes);
}

std::string server_commands() { return "servers accept one command, stats"; }

}  // namespace

command_board::command_board(std::uint32_t workers, checkpoint_coordinator::send_request send, std::size_t answer_bytes)
    : send_(std::move(send)), most_answer_bytes_(answer_bytes), workers_(workers) {}

command_board::command command_board::command_in(const json& body, const recipients& all) {
  command c;
  const auto to = body.value("to", json());
  if (to != "workers" && to != "servers") throw refusal(R"("to" must be "workers" or "servers")");
  c.to_servers = to == "servers";
  c.end = c.to_servers ? all.servers : all.workers;
  if (body.contains("index")) {
    c.first = static_cast<std::uint32_t>(whole_number_in(body, "index", c.end - 1));
    c.end = c.first + 1;
  }
  c.name = long_text_in(body, "command", most_name_bytes);
  if (c.name.empty()) throw refusal("\"command\" is missing or empty");
  c.body = long_text_in(body, "body", most_text_bytes);
  c.seconds = default_seconds;
  if (const auto limit = body.find("seconds"); limit != body.end()) {
    c.seconds = limit->is_number() ? limit->get<double>() : -1;
    if (!(c.seconds > 0 && c.seconds <= most_seconds))
      throw refusal("\"seconds\" is " + json_text(*limit) + ", not a number above 0 and up to 86400");
  }
  if (c.to_servers && c.name != net::name_of(net::verb::stats))
    throw refusal("no command \"" + c.name + "\": " + server_commands());
  return c;
}

void command_board::tell(const json& body, completion& done, const recipients& all, time_point now) {
  auto c = command_in(body, all);
  if (open_.size() >= most_open)
    throw refusal("1024 commands are waiting for answers: try again when some have been answered");
  c.done = std::move(done);
  give(std::move(c), all, now);
}

void command_board::give(command c, const recipients& all, time_point now) {
  const auto number = ++last_;
  c.until = now + std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(c.seconds));
  c.again = now + ask_again;
  const auto& placed = open_.emplace(number, std::move(c)).first->second;
  const bool to_servers = placed.to_servers;
  const auto end = placed.end;  // the command is gone with its last answer
  for (auto index = placed.first; index < end; ++index) {
    const auto of = all.find(to_servers, index);
    if (!of.gone.empty()) {
      record(number, index, {false, of.gone});
    } else if (to_servers) {
      open_.at(number).asked[index] = of.address;
      ask_server(number, index);
    } else if (!workers_[index].listens) {
      record(number, index,
             {false, "it accepts no commands: its program registers no function for them (paracel_on_command)"});
    } else {
      workers_[index].commands.push_back(number);
      deliver(index);
    }
  }
}

void command_board::ask_server(std::uint64_t number, std::uint32_t slot) {
  if (!send_) return;
  net::request_header h;
  h.what = net::verb::stats;
  h.sequence = first_stats_number | number << slot_bits | slot;
  send_(open_.at(number).asked.at(slot), h, {});
}

void command_board::on_reply(std::uint64_t number, const net::reply_view& reply) {
  if (number / first_stats_number != 1) return;
  const auto of = (number & ~first_stats_number) >> slot_bits;
  const auto slot = static_cast<std::uint32_t>(number & ((1U << slot_bits) - 1));
  const auto at = open_.find(of);
  if (at == open_.end() || at->second.asked.erase(slot) == 0) return;
  record(of, slot, {reply.header.result == net::status::ok, std::string(net::text_of(reply.body))});
}

void command_board::take(std::uint32_t rank, const json& body, completion& done, const recipients& all,
                         time_point now) {
  auto& t = workers_.at(rank);
  if (t.parked) t.parked.fail(net::status::conflict, "it asks again");
  if (body.value("begin", json()) == true) t.listens = t.at_once = true;
  if (body.value("more", json()) == true) t.at_once = true;
  if (!t.listens) throw refusal("it has not begun to accept commands");
  const auto after = whole_number_in(body, "after", ~std::uint64_t{0});
  if (const auto answers = body.find("answers"); answers != body.end() && answers->is_array()) {
    for (const auto& a : *answers) {
      if (!a.is_object()) throw refusal("an answer is not an object");
      const auto number = whole_number_in(a, "number", ~std::uint64_t{0});
      const auto at = open_.find(number);
      // If it is unknown, the answer was late or is a repetition.
      if (at == open_.end() || at->second.to_servers || rank < at->second.first || rank >= at->second.end) continue;
      answer said;
      said.text = answer_in(a, said.ok);
      record(number, rank, std::move(said));
    }
  }
  std::erase_if(t.commands, [&](auto number) { return number <= after; });
  if (body.contains("changes")) t.changes = whole_number_in(body, "changes", ~std::uint64_t{0});
  const auto given = body.find("tell");
  if (given != body.end() && !given->is_object()) throw refusal("\"tell\" is not an object");
  if (given == body.end()) {
    t.answers.clear();
  } else if (const auto number = whole_number_in(*given, "number", ~std::uint64_t{0}); number > t.given) {
    t.given = number;
    t.answers.clear();
    try {
      auto c = command_in(*given, all);
      c.by = rank;
      c.by_number = number;
      give(std::move(c), all, now);
    } catch (const refusal& e) {
      t.answers = json_text({{"number", number}, {"refused", e.what()}});
    }
  }
  t.parked = std::move(done);
  if (body.value("end", json()) == true) {
    t.parked.ok();
    t = taker{.first_change = t.first_change};
    return fail_missing(false, rank, "it accepts no more commands: its program has ended");
  }
  deliver(rank);
}

/// Answers the parked request, if there is something for it.
void command_board::deliver(std::uint32_t rank) {
  auto& t = workers_[rank];
  std::erase_if(t.commands, [&](auto number) { return !open_.contains(number); });  // those that timed out
  const bool changes = t.changes && std::max(*t.changes, t.first_change) < changes_.size();
  if (!t.parked || (!t.at_once && t.commands.empty() && t.answers.empty() && !changes)) return;
  json all = json::object();
  t.at_once = false;
  for (const auto number : t.commands) {
    if (all["commands"].size() == most_delivered) break;
    const auto& c = open_.at(number);
    all["commands"].push_back({{"number", number}, {"command", c.name}, {"body", c.body}});
  }
  if (changes) {
    for (auto n = std::max(*t.changes, t.first_change); n < changes_.size() && all["changes"].size() < most_delivered;
         ++n) {
      auto change = json::parse(changes_[n]);
      change["number"] = n + 1;
      all["changes"].push_back(std::move(change));
    }
  }
  if (!t.answers.empty()) all["told"] = json::parse(t.answers);
  const auto text = json_text(all);
  auto done = std::move(t.parked);
  done.answer({}, net::bytes_of(text));
}

void command_board::record(std::uint64_t number, std::uint32_t index, answer a) {
  const auto at = open_.find(number);
  if (at == open_.end()) return;
  auto& c = at->second;
  if (c.answers.contains(index)) return;
  if (c.answer_bytes + a.text.size() <= most_answer_bytes_) c.answer_bytes += a.text.size();
  else
    a = {false, "its answer is left out: all answers together have more than " + std::to_string(most_answer_bytes_) +
                    " bytes"};
  c.answers.emplace(index, std::move(a));
  if (c.answers.size() < c.end - c.first) return;
  json answers = json::array();
  for (auto& [who, said] : c.answers)
    answers.push_back({{c.to_servers ? "slot" : "rank", who}, {"ok", said.ok}, {"text", std::move(said.text)}});
  auto all = json{{"answers", std::move(answers)}};
  auto done = std::move(c.done);
  const auto by = c.by;
  const auto by_number = c.by_number;
  open_.erase(at);
  if (!by) {
    const auto text = json_text(all);
    return done.answer({}, net::bytes_of(text));
  }
  auto& t = workers_[*by];
  if (!t.listens || t.given != by_number) return;  // the process that gave it is gone
  all["number"] = by_number;
  t.answers = json_text(all);
  deliver(*by);
}

void command_board::fail_missing(bool servers, std::uint32_t index, const std::string& why) {
  std::vector<std::uint64_t> missing;
  for (const auto& [number, c] : open_)
    if (c.to_servers == servers && index >= c.first && index < c.end && !c.answers.contains(index))
      missing.push_back(number);
  for (const auto number : missing) record(number, index, {false, why});
}

void command_board::note_change(json change) {
  changes_.push_back(json_text(change));
  for (std::uint32_t rank = 0; rank < workers_.size(); ++rank) deliver(rank);
}

void command_board::worker_joins(std::uint32_t rank) { workers_[rank] = {.first_change = changes_.size()}; }

void command_board::worker_gone(std::uint32_t rank, const std::string& why) {
  auto before = std::exchange(workers_[rank], taker{.first_change = changes_.size()});
  if (before.parked) before.parked.fail(net::status::conflict, why);
  fail_missing(false, rank, why + "; it is unknown whether it has run the command");
}

void command_board::server_gone(std::uint32_t slot, const std::string& why) { fail_missing(true, slot, why); }

void command_board::tick(time_point now) {
  if (open_.empty()) return;
  std::vector<std::uint64_t> late;
  for (auto& [number, c] : open_) {
    if (now >= c.until) {
      late.push_back(number);
    } else if (c.to_servers && now >= c.again) {
      c.again = now + ask_again;
      for (const auto& [slot, address] : c.asked) ask_server(number, slot);
    }
  }
  for (const auto number : late) {
    const auto& c = open_.at(number);
    char limit[32];
    std::snprintf(limit, sizeof limit, "%g s", c.seconds);
    const auto why = std::string("no answer within ") + limit +
                     (c.to_servers ? "" : "; it may still run the command, at its next commit or barrier");
    const auto end = c.end;
    for (auto index = c.first; index < end && open_.contains(number); ++index) record(number, index, {false, why});
  }
}

void command_board::was_away(time_point::duration missed) noexcept {
  for (auto& [number, c] : open_) c.until += missed;
}

void command_board::fail_all(net::status why, std::string_view text) {
  for (auto& [number, c] : open_) c.done.fail(why, text);
  open_.clear();
  for (auto& t : workers_)
    if (t.parked) t.parked.fail(why, text);
}

}  // namespace paracel::srv
