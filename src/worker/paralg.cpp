// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/paralg.hpp>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <span>

#include <nlohmann/json.hpp>

#include "core/file_names.hpp"
#include "load/input.hpp"
#include "load/watch_load.hpp"
#include "net/disk.hpp"
#include "worker/parasrv.hpp"
#include "worker/result_files.hpp"
#include "worker/scan_client.hpp"
#include "worker/session.hpp"

namespace paracel {

namespace {

constexpr std::int64_t report_interval_ms = 100;
// Text of a result that is gathered before it is written.
constexpr std::size_t written_at_once = std::size_t{64} << 10;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::uint64_t registered(const std::optional<std::uint64_t>& filter, const char* by) {
  if (!filter) throw plugin_error(std::string("no filter was named and none is registered: call ") + by + " first");
  return *filter;
}

}  // namespace

paralg::paralg(const str_type& server_info, Comm comm, const str_type& output, int rounds, int limit_s, bool ssp_switch)
    : graph_loading(std::move(comm)), output_(output), session_(comm_.job() ? comm_.job() : main_env::job(server_info)) {
  if (limit_s < 0) throw config_error("limit_s is " + std::to_string(limit_s) + ", want 0 or more");
  if (!comm_.job()) comm_ = comm_.within(session_);
  servers_ = std::make_unique<parasrv>(session_, static_cast<std::uint32_t>(limit_s),
                                       ssp_switch ? consistency_model::ssp : consistency_model::asp);
  if (rounds > 0) set_total_iters(rounds);
  if (!output_.empty()) {  // on every rank: another host may have no part in rank 0's file system
    std::error_code failure;
    std::filesystem::create_directories(output_, failure);
    if (failure) throw config_error("output folder " + output_ + " cannot be made: " + failure.message());
    if (const auto why = why_not_writable(output_); !why.empty())
      throw config_error("output folder " + output_ + " cannot be written: " + why);
  }
}

paralg::~paralg() = default;

void paralg::missing(const str_type& key) { throw key_error("key \"" + key + "\" is not there"); }

bool paralg::read(const str_type& key, value_sink to) {
  return servers_->read(key, [&](const value_view& v) { to.put(to.target, v); });
}
paralg::kept_value paralg::read_kept(const str_type& key) {
  const auto* e = servers_->read_kept(key);
  if (e == nullptr) missing(key);
  return {e->view(), &e->object, &e->object_type};
}
value_view paralg::find_cached(const str_type& key) const {
  const auto* e = servers_->find_cached(key);
  if (e == nullptr) throw key_error("key \"" + key + "\" is not in the cache");
  return e->view();
}
bool paralg::is_cached(const str_type& key) const { return servers_->find_cached(key) != nullptr; }
void paralg::write(const str_type& key, const value_view& value) { servers_->write(key, value); }
async_functor_type paralg::update(const str_type& key, const value_view& delta, std::uint64_t function) {
  return servers_->update(key, delta, function);
}
void paralg::bupdate(const str_type& key, const value_view& delta, std::uint64_t function, value_sink to) {
  if (to.put == nullptr) servers_->bupdate(key, delta, function, nullptr);
  else servers_->bupdate(key, delta, function, [&](const value_view& v) { to.put(to.target, v); });
}
bool paralg::paracel_contains(const str_type& key) { return servers_->contains(key); }
bool paralg::paracel_remove(const str_type& key) { return servers_->remove(key); }
void paralg::read_multi(const list_type<str_type>& keys, const multi_sink& put, bool all) {
  servers_->read_multi(keys, put, all);
}
void paralg::write_multi(const list_type<str_type>& keys, const std::vector<value_view>& values) {
  servers_->write_multi(keys, values);
}
void paralg::update_multi(const list_type<str_type>& keys, const std::vector<value_view>& deltas, std::uint64_t function,
                          bool clocked, const multi_sink* put) {
  servers_->update_multi(keys, deltas, function, clocked, put);
}
bool paralg::paracel_remove_multi(const list_type<str_type>& keys) { return servers_->remove_multi(keys); }
void paralg::paracel_clear() { servers_->clear(); }

async_functor_type paralg::update_default(const str_type& key, const value_view& initial, const value_view& delta,
                                          std::uint64_t function) {
  return servers_->update_default(key, initial, delta, function);
}
void paralg::update_default_multi(const list_type<str_type>& keys, const std::vector<value_view>& initials,
                                  const std::vector<value_view>& deltas, std::uint64_t function) {
  servers_->update_default_multi(keys, initials, deltas, function);
}
bool paralg::cas(const str_type& key, std::uint64_t& version, const value_view& value) {
  return servers_->cas(key, version, value);
}
std::uint64_t paralg::read_version(const str_type& key, value_sink to) {
  return servers_->read_version(key, [&](const value_view& v) { to.put(to.target, v); });
}

async_functor_type paralg::read_async(const str_type& key, value_sink to) {
  return servers_->result_of(servers_->start_read(key, to));
}
void paralg::read_async(const str_type& key, value_sink to, std::function<void()> then) {
  servers_->start_read(key, to, std::move(then));
}
async_functor_type paralg::write_async(const str_type& key, const value_view& value) {
  return servers_->result_of(servers_->start_write(key, value));
}
async_functor_type paralg::read_multi_async(const list_type<str_type>& keys, multi_sink put) {
  return servers_->result_of(servers_->start_read_multi(keys, std::move(put), true));
}
async_functor_type paralg::update_multi_async(const list_type<str_type>& keys, const std::vector<value_view>& deltas,
                                              std::uint64_t function) {
  return servers_->result_of(servers_->start_update_multi(keys, deltas, function, true, {}));
}
void paralg::paracel_wait() { servers_->settle(); }
std::size_t paralg::paracel_poll() { return servers_->poll(); }

key_set paralg::paracel_prepare(list_type<str_type> keys) { return key_set(servers_->prepare(std::move(keys))); }
async_functor_type paralg::read_set(const key_set& keys, std::shared_ptr<set_target> to) {
  return servers_->result_of(servers_->start_set_read(keys.parts_, std::move(to)));
}
async_functor_type paralg::write_set(const key_set& keys, const set_source& values) {
  return servers_->result_of(servers_->start_set_write(keys.parts_, values));
}
async_functor_type paralg::update_set(const key_set& keys, const set_source& deltas, std::uint64_t function, bool clocked,
                                      std::shared_ptr<set_target> to) {
  return servers_->result_of(servers_->start_set_update(keys.parts_, deltas, function, clocked, std::move(to)));
}

std::uint64_t paralg::find_function(const str_type& file_name, const str_type& func_name, const hyper_parameters& hyper) {
  return servers_->find_function(file_name, func_name, hyper);
}
std::uint64_t paralg::update_function() const { return servers_->update_function; }
std::uint64_t paralg::bupdate_function() const { return servers_->bupdate_function; }
bool paralg::paracel_register_update(const str_type& file_name, const str_type& func_name) {
  return paracel_register_update(file_name, func_name, {});
}
bool paralg::paracel_register_bupdate(const str_type& file_name, const str_type& func_name) {
  return paracel_register_bupdate(file_name, func_name, {});
}
bool paralg::paracel_register_update(const str_type& file_name, const str_type& func_name, const hyper_parameters& hyper) {
  servers_->update_function = find_function(file_name, func_name, hyper);
  return true;
}
bool paralg::paracel_register_bupdate(const str_type& file_name, const str_type& func_name,
                                      const hyper_parameters& hyper) {
  servers_->bupdate_function = find_function(file_name, func_name, hyper);
  return true;
}

void paralg::set_combining(bool on) { servers_->set_combining(on); }
void paralg::set_push(bool on) { servers_->set_push(on); }
void paralg::paracel_subscribe(const list_type<str_type>& keys) { servers_->subscribe(keys); }
std::uint64_t paralg::find_filter(const str_type& file_name, const str_type& func_name) {
  return servers_->find_filter(file_name, func_name);
}
std::uint64_t paralg::read_filter() const { return registered(servers_->read_filter, "paracel_register_read_special"); }
bool paralg::paracel_register_read_special(const str_type& file_name, const str_type& func_name) {
  servers_->read_filter = find_filter(file_name, func_name);
  return true;
}
bool paralg::paracel_register_remove_special(const str_type& file_name, const str_type& func_name) {
  servers_->remove_filter = find_filter(file_name, func_name);
  return true;
}

void paralg::scan(std::string_view prefix, std::uint64_t filter, bool keys_only, const item_sink& put,
                  const std::function<void()>& chunk_end) {
  scan_client(*servers_).scan({prefix, filter}, keys_only, put, chunk_end);
}
void paralg::top_k(int k, std::uint64_t filter, const item_sink& put) {
  if (k < 0) throw config_error("the k of a top-k is " + std::to_string(k) + ", want 0 or more");
  scan_client(*servers_).top_k({{}, filter}, static_cast<std::uint32_t>(k), put);
}
std::size_t paralg::paracel_remove_special(const str_type& file_name, const str_type& func_name) {
  return scan_client(*servers_).remove_if({{}, find_filter(file_name, func_name)});
}
std::size_t paralg::paracel_remove_special() {
  return scan_client(*servers_).remove_if({{}, registered(servers_->remove_filter, "paracel_register_remove_special")});
}
list_type<str_type> paralg::paracel_keys(const str_type& prefix) {
  list_type<str_type> keys;
  scan(prefix, 0, true, [&](std::string_view key, const value_view&) { keys.emplace_back(key); });
  return keys;
}
number_summary paralg::paracel_summary(const str_type& prefix) {
  const auto s = scan_client(*servers_).reduce({prefix});
  return {s.keys, s.numbers, s.total(), s.minimum, s.maximum};
}
number_histogram paralg::paracel_histogram(double lo, double hi, std::size_t bins, const str_type& prefix) {
  if (bins == 0 || bins > net::most_histogram_bins)
    throw config_error("a histogram of " + std::to_string(bins) + " bins, want 1 to 65536");
  if (!(std::isfinite(hi - lo) && lo < hi))
    throw config_error("a histogram from " + std::to_string(lo) + " to " + std::to_string(hi) + ", want lo < hi");
  auto s = scan_client(*servers_).reduce({prefix}, lo, hi, static_cast<std::uint32_t>(bins));
  return {std::move(s.bins), s.below, s.above};
}

void paralg::iter_commit() { servers_->commit(); }
void paralg::set_total_iters(int n) {
  if (n < 0) throw config_error("total_iters is " + std::to_string(n) + ", want 0 or more");
  servers_->set_total_iters(static_cast<std::uint32_t>(n));
}
void paralg::set_consistency(consistency_model model) { servers_->set_model(model); }
consistency_model paralg::get_consistency() const { return servers_->model(); }
std::uint32_t paralg::last_staleness() const { return servers_->last_staleness(); }

void paralg::paracel_sync() {
  servers_->settle();
  comm_.synchronize();
}

std::size_t paralg::get_server_size() const { return session_->servers().servers.size(); }

void paralg::report_progress(const progress_report& report) {
  if (get_worker_id() != 0 || !session_->has_scheduler()) return;
  const auto now = now_ms();
  if (last_report_ms_ >= 0 && now - last_report_ms_ < report_interval_ms && report.round != report.rounds) return;
  last_report_ms_ = now;
  const nlohmann::json body = {
      {"round", report.round}, {"rounds", report.rounds}, {"objective", report.objective}};
  session_->tell(net::verb::progress, body.dump());
}

void Comm::report(const std::string& json) const {
  if (session_ && session_->has_scheduler()) session_->tell(net::verb::progress, json);
}

// ---- input

void paralg::visit_part(const list_type<str_type>& files, std::size_t part, std::size_t parts,
                        const std::function<void(str_type&&)>& visit) {
  input_set input(files);
  const auto lines = [&](const input_piece& piece) {
    for_each_line(piece.text(), [&](std::string_view line, std::size_t) { visit(str_type(line)); });
  };
  input.visit(part, parts, lines, watch_load(comm_, input));
}

list_type<str_type> paralg::load_all(const list_type<str_type>& files) {
  list_type<str_type> lines;
  const auto keep = [&](str_type&& line) { lines.push_back(std::move(line)); };
  if (!input_set(files).standard_input()) {
    visit_part(files, 0, 1, keep);
    return lines;
  }
  // Only rank 0 has it: the text goes to the others in pieces, and an empty one is the end.
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
    text = piece.text();
    pass_on();
  });
  text.clear();
  pass_on();
  return lines;
}

void paralg::dump(const str_type& filename, bool append, bool merge, const std::function<bool(str_type&)>& next) {
  const auto merged = result_path(output_, filename + "merge");
  result_file out(result_path(output_, filename + std::to_string(get_worker_id())), append);
  str_type text;
  while (next(text)) {
    if (text.size() < written_at_once) continue;
    out.write(text);
    text.clear();
  }
  out.write(text);
  out.close();
  if (merge) join_results(comm_, out.path(), out.begin(), merged, append);
}

void paralg::merge_files(const list_type<str_type>& files, const str_type& prefix, bool append) {
  copy_results(files, result_path(output_, prefix + "merge"), append);
}

// A tag, then the bytes of the value: what packer and pkl_dat_sequential of compat/ write.
str_type paralg::write_object(const str_type& prefix, const value_view& value) {
  auto path = result_path(output_, prefix + std::to_string(get_worker_id()) + ".pkl");
  std::vector<std::byte> bytes{static_cast<std::byte>(value.tag)};
  bytes.insert(bytes.end(), value.bytes.begin(), value.bytes.end());
  net::posix_disk().write(path, bytes);
  return path;
}

void paralg::read_object(const str_type& path, value_sink to) {
  const auto bytes = net::posix_disk().read(path, SIZE_MAX);
  if (bytes.empty()) throw protocol_error(path + ": is empty, want an object of pkl_dat");
  to.put(to.target, {static_cast<value_tag>(bytes.front()), std::span(bytes).subspan(1)});
}

}  // namespace paracel
