// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel 0.3's client of one server. Servers are no longer addressed by host and ports: this one reaches all servers
// of the job, for each key its own.
#pragma once

#include <memory>

#include <paracel/comm.hpp>
#include <paracel/main_env.hpp>
#include <paracel/paralg.hpp>

#include "paracel_types.hpp"
#include "utils.hpp"

namespace paracel {
inline namespace compat {

/// Thread-safety: none. Throws: as paralg. Lifetime: the main_env must outlive it.
struct kvclt {
  /// The arguments are those of 0.3 and are ignored.
  kvclt(const str_type& /*hostname*/, const str_type& /*ports*/) : job_(std::make_shared<paralg>(Comm())) {}

  template <class K>
  bool contains(const K& key) {
    return job_->paracel_contains(key);
  }
  /// Throws: key_error when the key does not exist.
  template <class V, class K>
  V pull(const K& key) {
    return job_->template paracel_read<V>(key);
  }
  template <class V, class K>
  bool pull(const K& key, V& value) {
    return job_->paracel_read(key, value);
  }
  template <class V, class K>
  list_type<V> pull_multi(const K& keys) {
    return job_->template paracel_read_multi<V>(keys);
  }
  template <class V>
  dict_type<str_type, V> pullall() {
    return job_->template paracel_readall<V>();
  }
  template <class V>
  dict_type<str_type, V> pullall_special(const str_type& file, const str_type& function) {
    return job_->template paracel_read_special<V>(file, function);
  }
  template <class K, class V>
  bool push(const K& key, const V& value) {
    return job_->paracel_write(key, value);
  }
  template <class K, class V>
  bool push_multi(const list_type<K>& keys, const list_type<V>& values) {
    dict_type<K, V> all;
    for (std::size_t i = 0; i < keys.size(); ++i) all[keys[i]] = values.at(i);
    return push_multi(all);
  }
  template <class K, class V>
  bool push_multi(const dict_type<K, V>& values) {
    return job_->paracel_write_multi(values);
  }
  bool register_update(const str_type& file, const str_type& function) {
    job_->paracel_register_update(file, function);
    return true;
  }
  bool register_bupdate(const str_type& file, const str_type& function) {
    job_->paracel_register_bupdate(file, function);
    return true;
  }
  template <class K, class V>
  void update(const K& key, const V& delta, async_functor_type& done) {
    done = job_->paracel_update(key, delta);
  }
  template <class K, class V>
  void update(const K& key, const V& delta, const str_type& file, const str_type& function, async_functor_type& done) {
    done = job_->paracel_update(key, delta, file, function);
  }
  template <class K, class V>
  V bupdate(const K& key, const V& delta, bool& done) {
    V value{};
    job_->paracel_bupdate_get(key, delta, value);
    done = true;
    return value;
  }
  template <class K, class V>
  V bupdate(const K& key, const V& delta, const str_type& file, const str_type& function, bool& done) {
    job_->paracel_bupdate(key, delta, file, function);
    done = true;
    return pull<V>(key);
  }
  template <class K>
  bool remove(const K& key) {
    return job_->paracel_remove(key);
  }
  bool remove_special(const str_type& file, const str_type& function) {
    job_->paracel_remove_special(file, function);
    return true;
  }
  bool clear() {
    job_->paracel_clear();
    return true;
  }
  // 0.3 kept the clock of SSP in these; here they are ordinary keys.
  bool push_int(const str_type& key, int value) { return push(key, value); }
  bool incr_int(const str_type& key, int delta) {
    bool done = false;
    (void)bupdate(key, delta, done);
    return done;
  }
  int pull_int(const str_type& key) { return pull<int>(key); }
  bool pull_int(const str_type& key, int& value) { return pull(key, value); }

 private:
  std::shared_ptr<paralg> job_;
};

}  // namespace compat
}  // namespace paracel
