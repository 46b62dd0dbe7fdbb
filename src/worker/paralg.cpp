// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/paralg.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "core/file_names.hpp"
#include "worker/parasrv.hpp"
#include "worker/session.hpp"

namespace paracel {

namespace {

constexpr std::int64_t report_interval_ms = 100;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

paralg::paralg(const str_type& server_info, Comm comm, const str_type& output, int rounds, int limit_s, bool ssp_switch)
    : comm_(std::move(comm)), output_(output), session_(comm_.job() ? comm_.job() : main_env::job(server_info)) {
  if (limit_s < 0) throw config_error("limit_s is " + std::to_string(limit_s) + ", want 0 or more");
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

void paralg::dump(const str_type& text, const str_type& filename, bool append, bool merge) {
  const auto folder = std::filesystem::path(output_.empty() ? "." : output_);
  const auto name = std::filesystem::path(filename + "0").lexically_normal();
  if (name.is_absolute() || *name.begin() == "..")
    throw data_error(filename + ": results are written below the output folder");
  const auto write_to = [](const std::filesystem::path& path, const str_type& what, bool after) {
    std::ofstream out(path, after ? std::ios::binary | std::ios::app : std::ios::binary | std::ios::trunc);
    out << what;
    out.flush();
    if (!out) throw data_error(path.string() + ": cannot be written");
  };
  write_to(folder / (filename + std::to_string(get_worker_id())), text, append);
  if (!merge) return;
  const auto all = comm_.allgather(text);
  if (get_worker_id() != 0) return;
  str_type whole;
  for (const auto& part : all) whole += part;
  write_to(folder / (filename + "merge"), whole, append);
}

}  // namespace paracel
