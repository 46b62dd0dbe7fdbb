// SPDX-License-Identifier: BSD-3-Clause
//
// Forms of calls that programs written for Paracel 0.3 use: an update function as two names, a future as an argument,
// and arguments that mean nothing here. A base of `paralg`; new programs need none of them.
#pragma once

#include <concepts>

#include <paracel/bulk_access.hpp>

namespace paracel {

class paralg;

class old_calls : public bulk_access {
 public:
  using bulk_access::paracel_bupdate;
  using bulk_access::paracel_bupdate_get;
  using bulk_access::paracel_bupdate_multi;
  using bulk_access::paracel_read;
  using bulk_access::paracel_update;
  using bulk_access::paracel_update_default;
  using bulk_access::paracel_update_default_multi;
  using bulk_access::paracel_update_multi;
  using bulk_access::paracel_write;

  /// The lines, unparsed: the parser is for code that splits them.
  template <class T, class Job = paralg>
  list_type<str_type> paracel_load(const T& files, const parser_type& /*parser*/) {
    return static_cast<Job&>(*this).paracel_load(files);
  }
  /// `pattern` only affects get_decomp_info: lines stay with the worker that reads them.
  template <class T, class F, class Job = paralg>
  void paracel_load_handle(const T& files, F&& func, const str_type& pattern, bool /*mix_flag*/ = false) {
    static_cast<Job&>(*this).set_decomp_info(pattern);
    static_cast<Job&>(*this).paracel_load_handle(files, func);
  }
  /// The line of nothing.
  template <class V>
  [[nodiscard]] static str_type dump_line_as_vector() {
    return {};
  }

  template <class V>
  bool paracel_read(const str_type& key, V& value, int /*replica_id*/) {
    return paracel_read(key, value);
  }
  template <class V>
  V paracel_read(const str_type& key, int /*replica_id*/) {
    return paracel_read<V>(key);
  }
  template <class V>
  bool paracel_write(const str_type& key, const V& value, bool /*replica_flag*/) {
    return paracel_write(key, value);
  }

  template <class V>
  async_functor_type paracel_update(const str_type& key, const V& delta, const str_type& file_name,
                                    const str_type& func_name) {
    return paracel_update(key, delta, plugin_function{file_name, func_name});
  }
  template <class V>
  void paracel_update(const str_type& key, const V& delta, async_functor_type& future, bool /*replica_flag*/ = false) {
    future = paracel_update(key, delta);
  }
  template <class V>
  void paracel_update(const str_type& key, const V& delta, const str_type& file_name, const str_type& func_name,
                      async_functor_type& future) {
    future = paracel_update(key, delta, plugin_function{file_name, func_name});
  }
  template <class V, class D>
  async_functor_type paracel_update_default(const str_type& key, const V& initial, const D& delta,
                                            const str_type& file_name, const str_type& func_name) {
    return paracel_update_default(key, initial, delta, plugin_function{file_name, func_name});
  }
  template <class V>
  bool paracel_bupdate(const str_type& key, const V& delta, std::integral auto /*replica_flag*/) {
    return paracel_bupdate(key, delta);
  }
  template <class V>
  bool paracel_bupdate(const str_type& key, const V& delta, const str_type& file_name, const str_type& func_name,
                       bool /*replica_flag*/ = false) {
    return paracel_bupdate(key, delta, plugin_function{file_name, func_name});
  }
  template <class V, class W>
  void paracel_bupdate_get(const str_type& key, const V& delta, W& new_value, const str_type& file_name,
                           const str_type& func_name) {
    paracel_bupdate_get(key, delta, new_value, plugin_function{file_name, func_name});
  }

  template <class V>
  bool paracel_update_multi(const list_type<str_type>& keys, const list_type<V>& deltas, const str_type& file_name,
                            const str_type& func_name) {
    return paracel_update_multi(keys, deltas, plugin_function{file_name, func_name});
  }
  template <class V>
  bool paracel_update_multi(const dict_type<str_type, V>& deltas, const str_type& file_name,
                            const str_type& func_name) {
    return paracel_update_multi(deltas, plugin_function{file_name, func_name});
  }
  template <class V, class D>
  bool paracel_update_default_multi(const list_type<str_type>& keys, const list_type<V>& initials,
                                    const list_type<D>& deltas, const str_type& file_name, const str_type& func_name) {
    return paracel_update_default_multi(keys, initials, deltas, plugin_function{file_name, func_name});
  }
  template <class V, class D>
  bool paracel_update_default_multi(const V& initial, const dict_type<str_type, D>& deltas, const str_type& file_name,
                                    const str_type& func_name) {
    return paracel_update_default_multi(initial, deltas, plugin_function{file_name, func_name});
  }
  template <class V>
  bool paracel_bupdate_multi(const list_type<str_type>& keys, const list_type<V>& deltas, const str_type& file_name,
                             const str_type& func_name) {
    return paracel_bupdate_multi(keys, deltas, plugin_function{file_name, func_name});
  }
  template <class V>
  bool paracel_bupdate_multi(const dict_type<str_type, V>& deltas, const str_type& file_name,
                             const str_type& func_name) {
    return paracel_bupdate_multi(deltas, plugin_function{file_name, func_name});
  }

 protected:
  old_calls() = default;
  ~old_calls() = default;
};

}  // namespace paracel
