// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/paralg.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/resumable_loop.hpp>
#include <paracel/run.hpp>

#include "core/interruption.hpp"
#include "core/json_io.hpp"
#include "core/progress_hook.hpp"
#include "core/trace.hpp"
#include "load/collective_errors.hpp"
#include "load/input/input.hpp"
#include "load/input/load_progress.hpp"
#include "storage/file_glob.hpp"
#include "storage/file_system.hpp"
#include "worker/job/command_channel.hpp"
#include "worker/job/session.hpp"
#include "worker/live_algorithms.hpp"
#include "worker/parameters/parasrv.hpp"
#include "worker/results/result_files.hpp"

namespace paracel {

namespace {

constexpr std::int64_t report_interval_ms = 100;
// Size of the buffer of a result's text.
constexpr std::size_t written_at_once = std::size_t{64} << 10;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

consistency checked_consistency(int limit_s, bool ssp_switch) {
  if (limit_s < 0) throw config_error("limit_s is " + std::to_string(limit_s) + ", want 0 or more");
  return {ssp_switch ? consistency_model::ssp : consistency_model::asp, static_cast<std::uint32_t>(limit_s)};
}

}  // namespace

paralg::paralg(const str_type& server_info, Comm comm, const str_type& output, int rounds, int limit_s, bool ssp_switch)
    : paralg(server_info, std::move(comm), output, rounds, checked_consistency(limit_s, ssp_switch)) {}

paralg::paralg(const str_type& server_info, Comm comm, const str_type& output, int rounds, const consistency& c)
    : graph_loading(std::move(comm)),
      output_(output),
      session_(comm_.job() ? comm_.job() : main_env::job(server_info)) {
  if (!comm_.job()) comm_ = comm_.within(session_);
  servers_ = std::make_unique<parasrv>(session_, c, session_->parts().begin_of_next(session_->finished()));
  if (rounds > 0) set_total_iters(rounds);
  if (!output_.empty()) {  // on every rank: another host may not share rank 0's file system
    std::error_code failure;
    std::filesystem::create_directories(output_, failure);
    if (failure) throw config_error("output folder " + output_ + " cannot be created: " + failure.message());
    if (const auto why = storage::why_not_writable(output_); !why.empty())
      throw config_error("output folder " + output_ + " cannot be written: " + why);
    session_->output(output_);
    if (get_worker_id() == 0) session_->tell(net::verb::progress, json_text({{"output", output_}}));
  }
  if (const auto* settings = running_config()) one_output_file_ = settings->one_output_file();
  part_ = session_->parts().enter(session_->finished(), [this](saved_state& to) {
    checkpoint_state(to);
    loop_state_.visit(loop_prefix, [&](const std::string& name, const value_view& v) { to.put_value(name, v); });
    for (const auto* loop : open_loops_) loop->save(to);
  });
  ++live_algorithms;
}

paralg::~paralg() {
  --live_algorithms;
  session_->forget_commands(this);
  session_->replacement().loop_ends(part_);
  session_->parts().leave(part_);
}

void paralg::set_combining(bool on) { servers_->set_combining(on); }
void paralg::set_push(bool on) { servers_->set_push(on); }
void paralg::paracel_subscribe(const list_type<str_type>& keys) { servers_->subscribe(keys); }

const std::string paralg::loop_prefix = "loop.";

void paralg::iter_commit() { commit_loop(~std::size_t{0}); }

void paralg::commit_loop(std::size_t level) {
  if (session_->replacement().is_on()) {
    servers_->flush();
    session_->replacement().save(part_, level);
  }
  const bool stops = [&] {
    const trace::phase_scope traced(trace::phase::commit, session_->finished() + 1);
    return servers_->commit();
  }();
  session_->parts().committed(part_);
  if (stops) {
    // A checkpoint of updates that cannot be folded would fail in every run resumed from it.
    servers_->clock().fold_committed();
    session_->checkpoint();
  }
  session_->trace_iteration();
  session_->take_commands();
}

bool paralg::resumed() const { return session_->parts().is_resumed(part_) || session_->replacement().repeats(); }

int paralg::first_iteration() {
  session_->replacement().loop_begins(part_);
  if (!session_->parts().is_resumed(part_)) return 0;
  if (!std::exchange(restored_, true)) {
    first_iteration_ = static_cast<int>(session_->parts().at(part_).commits);
    const auto states = session_->parts().states(part_);
    restore_state(states);
    loop_state_is_own_ = states.same_workers();
    states.own().visit(loop_prefix,
                       [&](const std::string& name, const value_view& v) { loop_state_.put_value(name, v); });
  }
  return first_iteration_;
}

std::size_t paralg::begin_loop() {
  if (session_->parts().at(part_).asked) return session_->replacement().loop_begins_of(part_);
  const auto level = session_->replacement().loop_begins_of(part_);
  (void)first_iteration();
  return level;
}

bool paralg::commits_matter() const {
  return session_->replacement().is_on() || !session_->servers().checkpoints.folder.empty() ||
         servers_->clock().uses(consistency_model::ssp) || servers_->clock().uses(consistency_model::bsp);
}
void paralg::set_total_iters(int n) {
  if (n < 0) throw config_error("total_iters is " + std::to_string(n) + ", want 0 or more");
  servers_->clock().set_total_iters(static_cast<std::uint32_t>(n));
}
void paralg::set_consistency(consistency_model model) { servers_->set_model(model); }
void paralg::set_consistency(const str_type& prefix, const consistency& c) { servers_->set_consistency(prefix, c); }
consistency_model paralg::get_consistency() const { return servers_->clock().usual().model; }
consistency paralg::get_consistency(const str_type& key) const { return servers_->clock().of(key); }
std::uint32_t paralg::last_staleness() const { return servers_->clock().last_staleness(); }

void paralg::paracel_sync() {
  session_->take_commands();
  servers_->flush();
  comm_.synchronize();
  servers_->clock().fold_finished();
  session_->take_commands();
}

std::size_t paralg::get_server_size() const { return session_->servers().servers.size(); }

list_type<job_node> paralg::paracel_nodes() {
  list_type<job_node> nodes;
  if (!session_->has_scheduler()) return nodes;
  net::request_header h;
  h.what = net::verb::stats;
  const auto report = json_or_throw(net::text_of(session_->ask(h, {}).body));
  for (const bool is_server : {true, false}) {
    for (const auto& n : report.at(is_server ? "servers" : "workers")) {
      nodes.push_back(job_node_of(is_server, n.at(is_server ? "slot" : "rank").get<std::size_t>(), n));
    }
  }
  return nodes;
}

list_type<job_node> paralg::paracel_dead_nodes(double silent) {
  auto nodes = paracel_nodes();
  std::erase_if(nodes, [&](const job_node& n) { return !n.is_dead && n.silent_seconds <= silent; });
  return nodes;
}

void paralg::paracel_on_command(const str_type& name, std::function<str_type(const str_type&)> f) {
  session_->commands().on_command(this, name, std::move(f));
}
void paralg::paracel_on_change(std::function<void(const job_node&)> f) {
  session_->commands().on_change(this, std::move(f));
}
list_type<command_answer> paralg::paracel_tell(const command_target& to, const str_type& name, const str_type& body,
                                               double seconds) {
  return session_->commands().tell(to, name, body, seconds);
}
std::size_t paralg::paracel_take_commands(double seconds) {
  constexpr double longest = 1e9;
  if (!(seconds >= 0)) throw config_error("paracel_take_commands: want 0 seconds or more");
  return session_->commands().take(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(std::min(seconds, longest))));
}

void paralg::report_progress(const progress_report& report) {
  check_interruption();  // a round that waits for nothing would not notice
  if (get_worker_id() != 0) return;
  if (const auto hook = progress_hook.load(std::memory_order_relaxed); hook != nullptr)
    hook(report.round, report.rounds, report.objective, report.metric);
  if (!session_->has_scheduler()) return;
  const auto now = now_ms();
  if (last_report_ms_ >= 0 && now - last_report_ms_ < report_interval_ms && report.round != report.rounds) return;
  last_report_ms_ = now;
  nlohmann::json body = {{"round", report.round}, {"metric", report.metric}, {report.metric, report.objective}};
  if (report.rounds > 0) body["rounds"] = report.rounds;  // otherwise their number is unknown
  session_->tell(net::verb::progress, json_text(body));
}

void paralg::report_metric(const str_type& name, double value, int round) {
  constexpr std::array<std::string_view, 6> taken{"", "round", "rounds", "seconds", "metric", "event"};
  if (std::ranges::find(taken, name) != taken.end())
    throw config_error("report_metric: the name is \"" + name +
                       "\", want one that is not empty, round, rounds, seconds, metric or event");
  if (round < 0) throw config_error("report_metric: the round is " + std::to_string(round) + ", want 0 or more");
  if (get_worker_id() != 0) return;
  const int at = round > 0 ? round : static_cast<int>(session_->finished());
  if (!output_.empty()) {
    auto& file = session_->metrics(output_);
    if (!file.is_open()) file.open(paracel_result("metrics.jsonl"), session_->replacement().repeats());
    nlohmann::ordered_json line{{"round", at}};
    line[name] = std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
    line["seconds"] = session_->used().seconds();
    file.write(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
  report_progress({.round = at, .objective = value, .metric = name});
}

void Comm::report(const std::string& json) const {
  if (session_ && session_->has_scheduler()) session_->tell(net::verb::progress, json);
}

// ---- input

namespace {

void visit_lines_of(input_set& input, std::size_t part, std::size_t parts, const load_progress& progress,
                    const std::function<void(str_type&&)>& visit) {
  const auto lines = [&](const input_piece& piece) {
    for_each_line(piece.text(), [&](std::string_view line, std::size_t) { visit(str_type(line)); });
  };
  input.visit(part, parts, lines, progress);
}

}  // namespace

void paralg::visit_part(const list_type<str_type>& files, std::size_t part, std::size_t parts,
                        const std::function<void(str_type&&)>& visit) {
  input_set input(comm_, files);
  all_or_throw(comm_, [&] { visit_lines_of(input, part, parts, report_load_progress(comm_, input), visit); });
}

list_type<str_type> paralg::load_all(const list_type<str_type>& files) {
  input_set input(files);
  if (input.standard_input()) return standard_input(files);
  list_type<str_type> lines;
  visit_lines_of(input, 0, 1, {}, [&](str_type&& line) { lines.push_back(std::move(line)); });
  return lines;
}

/// Returns all of it on every worker. Only worker 0 can read it: the text is broadcast in pieces; an empty one ends it.
list_type<str_type> paralg::standard_input(const list_type<str_type>& files) {
  list_type<str_type> lines;
  str_type text;
  const auto pass_on = [&] {
    comm_.bcast(text);
    for_each_line(text, [&](std::string_view line, std::size_t) { lines.emplace_back(line); });
  };
  if (get_worker_id() != 0) {
    do pass_on();
    while (!text.empty());
    return lines;
  }
  input_set(files).visit(0, 1, [&](const input_piece& piece) {
    if (piece.text().empty()) return;  // a file with only a byte order mark
    text = piece.text();
    pass_on();
  });
  text.clear();
  pass_on();
  return lines;
}

void paralg::load_parts(const list_type<str_type>& files, const std::function<void(list_type<str_type>&)>& visit) {
  input_set input(files);
  for (std::size_t part = 0; part < get_worker_size(); ++part) {
    list_type<str_type> lines;
    if (!input.standard_input()) {
      visit_lines_of(input, part, get_worker_size(), {}, [&](str_type&& line) { lines.push_back(std::move(line)); });
    } else if (part == 0) {
      lines = standard_input(files);
    }
    visit(lines);
  }
}

str_type paralg::paracel_result(const str_type& name) {
  auto path = result_path(output_, name);
  session_->output(output_).record(name);
  return path;
}

str_type paralg::result_name(const str_type& filename, const str_type& ending) const {
  if (!one_output_file_) return filename + std::to_string(get_worker_id()) + ending;
  auto name = filename;
  if (name.ends_with('_')) name.pop_back();
  if (name.empty() || name.ends_with('/')) name += "result";
  return name + (ending.empty() ? ".txt" : ending);
}

void paralg::dump(const str_type& filename, const str_type& ending, bool append, bool merge,
                  const std::function<bool(str_type&)>& next) {
  const auto result = [&](const str_type& name) {
    if (!append) return paracel_result(name);
    session_->output(output_);
    return result_path(output_, name);
  };
  if (one_output_file_) {
    const auto name = merge ? filename + "merge" : result_name(filename, ending);
    write_together(
        comm_, [&] { return std::make_unique<result_file>(result(name), append); }, next);
    return;
  }
  result_file out(result(result_name(filename, ending)), append);
  str_type text;
  while (next(text)) {
    if (text.size() < written_at_once) continue;
    out.write(text);
    text.clear();
  }
  out.write(text);
  out.close();
  if (!merge) return;
  const auto merged = get_worker_id() == 0 ? result(filename + "merge") : str_type();
  join_results(comm_, out.path(), out.begin(), merged, append);
}

void paralg::merge_files(const list_type<str_type>& files, const str_type& prefix, bool append) {
  copy_results(files, append ? result_path(output_, prefix + "merge") : paracel_result(prefix + "merge"), append);
}

// A tag, then the bytes of the value: the format of packer and pkl_dat_sequential of compat/.
str_type paralg::write_object(const str_type& prefix, const value_view& value) {
  auto path = result_path(output_, prefix + std::to_string(get_worker_id()) + ".pkl");
  std::vector<std::byte> bytes{static_cast<std::byte>(value.tag)};
  bytes.insert(bytes.end(), value.bytes.begin(), value.bytes.end());
  storage::posix_file_system().write(path, bytes);
  return path;
}

void paralg::read_object(const str_type& path, value_sink to) {
  const auto bytes = storage::posix_file_system().read(path, SIZE_MAX);
  if (bytes.empty()) throw protocol_error(path + ": is empty, want an object of pkl_dat");
  to.put(to.target, {static_cast<value_tag>(bytes.front()), std::span(bytes).subspan(1)});
}

}  // namespace paracel
