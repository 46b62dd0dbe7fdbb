// SPDX-License-Identifier: BSD-3-Clause
//
// Bulk access to parameters: by a list of keys, or by filter, prefix and rank. A base of `paralg`, under
// compat/old_calls.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/parameter_access.hpp>

namespace paracel {

/// Statistics of the numbers stored under some keys: values that are one number, and the elements of arrays.
struct number_summary {
  std::uint64_t keys = 0;     ///< of any type
  std::uint64_t numbers = 0;  ///< without NaN
  double sum = 0;             ///< compensated: accurate to the last bits in any order
  double minimum = 0;         ///< without numbers: +infinity
  double maximum = 0;         ///< without numbers: -infinity
};
/// A histogram. Bin i is [lo + i * width, lo + (i + 1) * width), and the last one includes `hi`.
struct number_histogram {
  list_type<std::uint64_t> bins;
  std::uint64_t below = 0;  ///< less than lo
  std::uint64_t above = 0;  ///< more than hi
};
/// Thread-safety and errors: as paralg.
class bulk_access : public parameter_access {
 public:
  // ---- many keys: one request a shard, all shards at once ----------------------------------------------------------

  /// In the order of `keys`. Throws: key_error that names the first missing key.
  template <class V>
  list_type<V> paracel_read_multi(const list_type<str_type>& keys) {
    list_type<V> values;
    set_detail::values_target<V> to(keys.size(), values);
    read_multi(keys, to, true);
    return values;
  }
  /// Missing keys are not in the result.
  template <class V>
  void paracel_read_multi(const list_type<str_type>& keys, dict_type<str_type, V>& values) {
    values.clear();
    set_detail::dictionary_target<V> to(keys, values);
    read_multi(keys, to, false);
  }
  template <class V>
  bool paracel_write_multi(const dict_type<str_type, V>& values) {
    const batch<V> b(values);
    write_multi(b.keys, b.views());
    return true;
  }
  template <class V>
  bool paracel_update_multi(const list_type<str_type>& keys, const list_type<V>& deltas,
                            const plugin_function& f = registered_function) {
    return update_all(batch<V>(keys, deltas), update_function(f), true);
  }
  template <class V>
  bool paracel_update_multi(const dict_type<str_type, V>& deltas, const plugin_function& f = registered_function) {
    return update_all(batch<V>(deltas), update_function(f), true);
  }
  /// As paracel_update_default for each key; blocks until the servers have it.
  template <class V, class D>
  bool paracel_update_default_multi(const list_type<str_type>& keys, const list_type<V>& initials,
                                    const list_type<D>& deltas, const plugin_function& f = registered_function) {
    const batch<D> d(keys, deltas);
    const batch<V> i(keys, initials);
    update_default_multi(d.keys, i.views(), d.views(), update_function(f));
    return true;
  }
  /// With one initial value for all missing keys.
  template <class V, class D>
  bool paracel_update_default_multi(const V& initial, const dict_type<str_type, D>& deltas,
                                    const plugin_function& f = registered_function) {
    const batch<D> d(deltas);
    const encoded<V> e(initial);
    update_default_multi(d.keys, std::vector<value_view>(d.keys.size(), e.view()), d.views(), update_function(f));
    return true;
  }
  template <class V>
  bool paracel_bupdate_multi(const list_type<str_type>& keys, const list_type<V>& deltas,
                             const plugin_function& f = registered_function) {
    return update_all(batch<V>(keys, deltas), bupdate_function(f), false);
  }
  template <class V>
  bool paracel_bupdate_multi(const dict_type<str_type, V>& deltas, const plugin_function& f = registered_function) {
    return update_all(batch<V>(deltas), bupdate_function(f), false);
  }
  /// Updates all and returns the new values, in the order of `keys`.
  template <class V>
  list_type<V> paracel_bupdate_multi_get(const list_type<str_type>& keys, const list_type<V>& deltas) {
    const batch<V> b(keys, deltas);
    list_type<V> values;
    set_detail::values_target<V> to(keys.size(), values);
    update_multi(b.keys, b.source(), bupdate_function(), false, &to);
    return values;
  }
  /// True when every key existed.
  bool paracel_remove_multi(const list_type<str_type>& keys);
  /// Removes every key of every server.
  void paracel_clear();

  // ---- all keys, or those that match -------------------------------------------------------------------------------
  //
  // All shards of all servers work in parallel, in time slices of a few milliseconds, so that other requests are served
  // in between. Replies arrive in chunks: the worker buffers at most 8 MiB a shard. A key that exists throughout is
  // visited exactly once; of one that is created, removed or changed meanwhile either state may be seen. The clock rule
  // is that of a read. Filters are (key) -> bool or (key, value) -> bool in a plug-in (paracel::filter_proxy); they run
  // in the servers, and one that throws, or does not accept a value's type, ends the call with a plugin_error or
  // type_error.

  /// All entries. Throws: type_error when a value is not a V.
  template <class V>
  dict_type<str_type, V> paracel_readall() {
    return dict_of<V>(0);
  }
  /// Calls f(key, value) for every key, in no particular order. f may use this object; an exception thrown by f ends
  /// the scan. An f that takes a dictionary, as in Paracel 0.3, is called once per chunk.
  template <class V, class F>
  void paracel_readall_handle(F&& f) {
    handle<V>(0, f);
  }
  /// The entries that the filter accepts: the one named here, or the registered one.
  template <class V>
  dict_type<str_type, V> paracel_read_special(const str_type& file_name, const str_type& func_name) {
    return dict_of<V>(find_filter(file_name, func_name));
  }
  template <class V>
  dict_type<str_type, V> paracel_read_special() {
    return dict_of<V>(read_filter());
  }
  /// As paracel_readall_handle.
  template <class V, class F>
  void paracel_read_special_handle(const str_type& file_name, const str_type& func_name, F&& f) {
    handle<V>(find_filter(file_name, func_name), f);
  }
  template <class V, class F>
  void paracel_read_special_handle(F&& f) {
    handle<V>(read_filter(), f);
  }
  /// The k keys with the largest values, the largest first; ties in key order. Values that are not a single number are
  /// skipped. Cost: O(k) bytes a shard and time slice.
  template <class V>
  void paracel_read_topk(int k, list_type<std::pair<str_type, V>>& result) {
    result.clear();
    top_k(k, 0, appender(result));
  }
  template <class V>
  list_type<std::pair<str_type, V>> paracel_read_topk(int k) {
    list_type<std::pair<str_type, V>> result;
    paracel_read_topk(k, result);
    return result;
  }
  /// The same, considering only the keys that the filter accepts.
  template <class V>
  void paracel_read_topk_with_key_filter(int k, list_type<std::pair<str_type, V>>& result, const str_type& file_name,
                                         const str_type& func_name) {
    result.clear();
    top_k(k, find_filter(file_name, func_name), appender(result));
  }
  /// Removes, in the servers, what the filter accepts. Returns the number of keys removed. When it throws, some may
  /// already have been removed.
  std::size_t paracel_remove_special(const str_type& file_name, const str_type& func_name);
  std::size_t paracel_remove_special();
  /// The keys that begin with `prefix`, in no particular order.
  list_type<str_type> paracel_keys(const str_type& prefix = "");
  /// Calls f(key) for each of them.
  template <class F>
  void paracel_keys(const str_type& prefix, F&& f) {
    str_type name;
    scan(prefix, 0, true, [&](std::string_view key, const value_view&) {
      name.assign(key);
      f(std::as_const(name));
    });
  }
  /// Statistics of the numbers under the keys with this prefix. Cost: some 100 bytes a shard and time slice.
  number_summary paracel_summary(const str_type& prefix = "");
  double paracel_sum(const str_type& prefix = "") { return paracel_summary(prefix).sum; }
  /// The number of keys.
  std::size_t paracel_count(const str_type& prefix = "") { return paracel_summary(prefix).keys; }
  /// `bins`: 1 to 65536. Throws: config_error unless lo < hi.
  number_histogram paracel_histogram(double lo, double hi, std::size_t bins, const str_type& prefix = "");

 protected:
  bulk_access() = default;
  ~bulk_access() = default;

 private:
  void read_multi(const list_type<str_type>& keys, set_target& to, bool all);
  void write_multi(const list_type<str_type>& keys, const std::vector<value_view>& values);
  void update_multi(const list_type<str_type>& keys, const set_source& deltas, std::uint64_t function, bool clocked,
                    set_target* to);
  template <class V>
  bool update_all(const batch<V>& b, std::uint64_t function, bool clocked) {
    update_multi(b.keys, b.source(), function, clocked, nullptr);
    return true;
  }
  void update_default_multi(const list_type<str_type>& keys, const std::vector<value_view>& initials,
                            const std::vector<value_view>& deltas, std::uint64_t function);
  using item_sink = std::function<void(std::string_view key, const value_view&)>;
  template <class V>
  static item_sink appender(list_type<std::pair<str_type, V>>& result) {
    return [&result](std::string_view key, const value_view& v) {
      result.emplace_back(str_type(key), V{});
      decode_into(v, result.back().second);
    };
  }
  template <class V>
  dict_type<str_type, V> dict_of(std::uint64_t filter) {
    dict_type<str_type, V> all;
    scan({}, filter, false, [&](std::string_view key, const value_view& v) { decode_into(v, all[str_type(key)]); });
    return all;
  }
  template <class V, class F>
  void handle(std::uint64_t filter, F& f) {
    if constexpr (std::is_invocable_v<F&, const str_type&, V>) {
      str_type name;
      scan({}, filter, false, [&](std::string_view key, const value_view& v) {
        V value{};
        decode_into(v, value);
        name.assign(key);
        f(std::as_const(name), std::move(value));
      });
    } else {
      dict_type<str_type, V> chunk;
      scan(
          {}, filter, false, [&](std::string_view key, const value_view& v) { decode_into(v, chunk[str_type(key)]); },
          [&] {
            if (!chunk.empty()) f(chunk);
            chunk.clear();
          });
    }
  }

  void scan(std::string_view prefix, std::uint64_t filter, bool keys_only, const item_sink& put,
            const std::function<void()>& chunk_end = nullptr);
  void top_k(int k, std::uint64_t filter, const item_sink& put);
  [[nodiscard]] std::uint64_t read_filter() const;
};

}  // namespace paracel
