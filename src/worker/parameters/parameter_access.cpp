// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/parameter_access.hpp>

#include "worker/parameters/key_errors.hpp"
#include "worker/parameters/parasrv.hpp"

namespace paracel {

parameter_access::parameter_access() = default;
parameter_access::~parameter_access() = default;

void parameter_access::missing(const str_type& key) { throw key_error("key \"" + key + "\" does not exist"); }

void parameter_access::rethrow_named(const str_type& key, const type_error& e) { rethrow_naming(key, e); }

bool parameter_access::read(const str_type& key, value_sink to) {
  return servers_->read(key, [&](const value_view& v) { naming_key(key, [&] { to.put(to.target, v); }); });
}
parameter_access::kept_value parameter_access::read_kept(const str_type& key) {
  const auto* e = servers_->read_kept(key);
  if (e == nullptr) missing(key);
  return {e->view(), &e->object, &e->object_type};
}
value_view parameter_access::find_cached(const str_type& key) const {
  const auto* e = servers_->cache().find(key);
  if (e == nullptr) throw key_error("key \"" + key + "\" is not in the cache");
  return e->view();
}
bool parameter_access::is_cached(const str_type& key) const { return servers_->cache().find(key) != nullptr; }
dict_type<str_type, cached_value> parameter_access::get_cache() const {
  dict_type<str_type, cached_value> all;
  servers_->cache().visit([&](const std::string& key, const read_cache::entry& e) { all[key] = {e.tag, e.bytes}; });
  return all;
}
void parameter_access::write(const str_type& key, const value_view& value) { servers_->write(key, value); }
async_functor_type parameter_access::update(const str_type& key, const value_view& delta, std::uint64_t function) {
  return servers_->update(key, delta, function);
}
async_functor_type parameter_access::update(const str_type& key, const value_view& delta, std::uint64_t function,
                                            const after& others) {
  return servers_->update_after(others, key, delta, function);
}
void parameter_access::bupdate(const str_type& key, const value_view& delta, std::uint64_t function, value_sink to) {
  if (to.put == nullptr) servers_->bupdate(key, delta, function, nullptr);
  else
    servers_->bupdate(key, delta, function,
                      [&](const value_view& v) { naming_key(key, [&] { to.put(to.target, v); }); });
}
bool parameter_access::paracel_contains(const str_type& key) { return servers_->contains(key); }
bool parameter_access::paracel_remove(const str_type& key) { return servers_->remove(key); }

async_functor_type parameter_access::update_default(const str_type& key, const value_view& initial,
                                                    const value_view& delta, std::uint64_t function) {
  return servers_->update_default(key, initial, delta, function);
}
bool parameter_access::cas(const str_type& key, std::uint64_t& version, const value_view& value) {
  return servers_->cas(key, version, value);
}
std::uint64_t parameter_access::read_version(const str_type& key, value_sink to) {
  return servers_->read_version(key, [&](const value_view& v) { naming_key(key, [&] { to.put(to.target, v); }); });
}

async_functor_type parameter_access::read_async(const str_type& key, value_sink to) {
  return servers_->result_of(servers_->start_read(key, to));
}
async_functor_type parameter_access::read_async(const str_type& key, value_sink to, const after& others) {
  return servers_->read_after(others, key, to);
}
async_functor_type parameter_access::write_async(const str_type& key, const value_view& value, const after& others) {
  return servers_->write_after(others, key, value);
}
void parameter_access::read_async(const str_type& key, value_sink to, std::function<void()> then) {
  servers_->start_read(key, to, std::move(then));
}
async_functor_type parameter_access::write_async(const str_type& key, const value_view& value) {
  return servers_->result_of(servers_->start_write(key, value));
}
async_functor_type parameter_access::read_multi_async(const list_type<str_type>& keys, std::shared_ptr<set_target> to) {
  return servers_->result_of(servers_->many().start_read_multi(keys, std::move(to), true));
}
async_functor_type parameter_access::update_multi_async(const list_type<str_type>& keys, const set_source& deltas,
                                                        std::uint64_t function) {
  return servers_->result_of(servers_->many().start_update_multi(keys, deltas, function, true, {}));
}
void parameter_access::paracel_wait() { servers_->flush(); }
std::size_t parameter_access::paracel_poll() { return servers_->poll(); }

key_set parameter_access::paracel_prepare(list_type<str_type> keys) {
  return key_set(servers_->many().prepare(std::move(keys)));
}
async_functor_type parameter_access::read_set(const key_set& keys, std::shared_ptr<set_target> to) {
  return servers_->result_of(servers_->many().start_set_read(keys.parts_, std::move(to)));
}
async_functor_type parameter_access::write_set(const key_set& keys, const set_source& values) {
  return servers_->result_of(servers_->many().start_set_write(keys.parts_, values));
}
async_functor_type parameter_access::update_set(const key_set& keys, const set_source& deltas, std::uint64_t function,
                                                bool clocked, std::shared_ptr<set_target> to) {
  return servers_->result_of(servers_->many().start_set_update(keys.parts_, deltas, function, clocked, std::move(to)));
}

std::uint64_t parameter_access::update_function(const plugin_function& f) {
  return servers_->functions().update_function_of(f);
}
std::uint64_t parameter_access::bupdate_function(const plugin_function& f) {
  return servers_->functions().bupdate_function_of(f);
}
bool parameter_access::paracel_register_update(const str_type& file_name, const str_type& func_name,
                                               const hyper_parameters& hyper) {
  servers_->functions().update_function = servers_->functions().find_function({file_name, func_name, hyper});
  return true;
}
bool parameter_access::paracel_register_bupdate(const str_type& file_name, const str_type& func_name,
                                                const hyper_parameters& hyper) {
  servers_->functions().bupdate_function = servers_->functions().find_function({file_name, func_name, hyper});
  return true;
}
std::uint64_t parameter_access::find_filter(const str_type& file_name, const str_type& func_name) {
  return servers_->functions().find_filter(file_name, func_name);
}
bool parameter_access::paracel_register_read_special(const str_type& file_name, const str_type& func_name) {
  servers_->functions().read_filter = find_filter(file_name, func_name);
  return true;
}
bool parameter_access::paracel_register_remove_special(const str_type& file_name, const str_type& func_name) {
  servers_->functions().remove_filter = find_filter(file_name, func_name);
  return true;
}

}  // namespace paracel
