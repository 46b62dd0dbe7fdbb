// SPDX-License-Identifier: BSD-3-Clause
//
// The base class of every algorithm. A subclass reads, updates and writes parameters by key as if they were its own
// variables; they live in the servers, sharded by key. `iter_commit` marks the end of an iteration.
//
// What a read may miss is one rule, with the staleness s (limit_s): a worker that has finished c iterations may read while
// c - slowest <= s; what it then reads contains at least every update of every worker's first c - s iterations, and all of
// its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/comm.hpp>
#include <paracel/dump.hpp>
#include <paracel/error.hpp>
#include <paracel/graph_loading.hpp>
#include <paracel/key_set.hpp>
#include <paracel/load.hpp>
#include <paracel/main_env.hpp>
#include <paracel/types.hpp>

namespace paracel {

class parasrv;

/// One line of a run's progress.
struct progress_report {
  int round = 0;
  int rounds = 0;
  double objective = 0;
};

/// The numbers under some keys: values that are one number, and the elements of arrays.
struct number_summary {
  std::uint64_t keys = 0;     ///< whatever their type
  std::uint64_t numbers = 0;  ///< without NaN
  double sum = 0;             ///< compensated: right to the last bits whatever the order was
  double minimum = 0;         ///< of no number: +infinity
  double maximum = 0;         ///< of no number: -infinity
};
/// How many numbers fell where. Bin i is [lo + i * width, lo + (i + 1) * width), and the last one has `hi` too.
struct number_histogram {
  list_type<std::uint64_t> bins;
  std::uint64_t below = 0;  ///< less than lo
  std::uint64_t above = 0;  ///< more than hi
};

/// Base class of algorithms: Paracel's `paralg`.
///
/// Thread-safety: none; use it on the thread that made it.
/// Throws: every call that talks to a server may throw job_error (the job ended: the first cause), network_error (says
/// whether the request may have been applied), plugin_error (an update function failed; the value is unchanged) and
/// type_error.
class paralg : public graph_loading {
 public:
  /// Joins the job. `server_info` is what prun.py passes as --server_info; empty: what main_env found.
  /// `output`: folder of results, made if it is not there. `limit_s`: staleness s. `ssp_switch`: false is ASP.
  /// Blocks: until every server and worker has joined.
  paralg(const str_type& server_info, Comm comm, const str_type& output = "", int rounds = 1, int limit_s = 0,
         bool ssp_switch = false);
  /// The same with the server info of main_env.
  explicit paralg(Comm comm, const str_type& output = "", int rounds = 1) : paralg("", std::move(comm), output, rounds) {}
  virtual ~paralg();
  paralg(const paralg&) = delete;
  paralg& operator=(const paralg&) = delete;

  /// The algorithm. Empty here, so that a program may also use a paralg directly.
  virtual void solve() {}

  /// Lines of this worker's part of the input: a file, a list of files, a folder, a glob pattern, or "-", standard input,
  /// all of which is worker 0's. What is compressed by gzip or zstd goes whole to one worker.
  template <class T>
  list_type<str_type> paracel_load(const T& files) {
    list_type<str_type> lines;
    visit_part(list_of(files), get_worker_id(), get_worker_size(), [&](str_type&& line) { lines.push_back(std::move(line)); });
    return lines;
  }
  /// 0.3's form: the lines come as they are; the parser is for whoever takes them apart.
  template <class T>
  list_type<str_type> paracel_load(const T& files, const parser_type& /*parser*/) {
    return paracel_load(files);
  }
  /// All lines of the input, on every worker. Blocks: of standard input, a collective.
  template <class T>
  list_type<str_type> paracel_loadall(const T& files) {
    return load_all(list_of(files));
  }
  /// `func(lines)` with every worker's part of the input, one part after the other: as paracel_loadall for whom all lines
  /// at once are too many.
  template <class T, class F>
  void paracel_sequential_loadall(const T& files, F&& func) {
    for (std::size_t part = 0; part < get_worker_size(); ++part) {
      list_type<str_type> lines;
      visit_part(list_of(files), part, get_worker_size(), [&](str_type&& line) { lines.push_back(std::move(line)); });
      func(lines);
    }
  }
  /// `func(line)` with each line of this worker's part of the input; no more than a piece of it is kept.
  /// `pattern` only becomes that of get_decomp_info: lines stay with the worker that reads them.
  template <class T, class F>
  void paracel_load_handle(const T& files, F&& func, const str_type& pattern = "linesplit", bool /*mix_flag*/ = false) {
    set_decomp_info(pattern);
    visit_part(list_of(files), get_worker_id(), get_worker_size(), [&](str_type&& line) { func(line); });
  }

  // ---- one key ----------------------------------------------------------------------------------------------------

  /// False when the key is not there; `value` is then unchanged. Cost: none when cached, otherwise one round trip, and one
  /// more when the clock must be waited for. Blocks: until the rule above allows the read.
  template <class V>
  bool paracel_read(const str_type& key, V& value, int /*replica_id*/ = -1) {
    return read(key, sink(value));
  }
  /// Throws: key_error when the key is not there.
  template <class V>
  V paracel_read(const str_type& key, int /*replica_id*/ = -1) {
    V value{};
    if (!read(key, sink(value))) missing(key);
    return value;
  }

  /// The value where it lies in this worker's cache, without a copy: for a list of numbers a span of them, for every
  /// other type a reference. Freshness is that of paracel_read, and own updates are in it.
  /// Throws: key_error when the key is not there.
  /// Lifetime: until the next call of this object that is not a paracel_read_ref or paracel_read of a cached key.
  /// Cost: when cached, below 0.1 us whatever the size (tool/bench/bench_cache); a type that is not stored as it is (maps,
  /// strings; another width of number) is decoded once after each change. Otherwise as paracel_read. Under ASP, and after
  /// set_total_iters, each call asks the server.
  template <class V>
  decltype(auto) paracel_read_ref(const str_type& key) {
    const auto kept = read_kept(key);
    const auto& v = kept.value;
    if constexpr (codec_detail::raw_list<V>) {
      using element = typename codec_detail::list_traits<V>::element;
      if (v.tag == array_tag_of<element>()) {
        return std::span<const element>(reinterpret_cast<const element*>(v.bytes.data()), v.bytes.size() / sizeof(element));
      }
      return std::span<const element>(kept.template as<std::vector<element>>());
    } else if constexpr (raw_number<V>) {
      if (v.tag == tag_of<V>()) return *reinterpret_cast<const V*>(v.bytes.data());
      return kept.template as<V>();
    } else {
      return kept.template as<V>();
    }
  }
  /// Whether this worker's cache has the key, fresh or not.
  [[nodiscard]] bool is_cached(const str_type& key) const;
  /// What the cache has, fresh or not; asks no server. Throws: key_error when it has nothing.
  template <class V>
  [[nodiscard]] V get_cache(const str_type& key) const {
    return decode<V>(find_cached(key));
  }

  /// Sets the value, whatever was there. Cost: one round trip. Under BSP it waits for the clock as a read does, replaces
  /// what all have finished, and is there at once. Blocks: until the server has it.
  template <class V>
  bool paracel_write(const str_type& key, const V& value, bool /*replica_flag*/ = false) {
    const encoded<V> e(value);
    write(key, e.view());
    return true;
  }
  bool paracel_write(const str_type& key, const char* value, bool replica_flag = false) {
    return paracel_write(key, str_type(value), replica_flag);
  }

  /// Applies the registered update function (the default adds) in the server. A missing key takes the delta as its value.
  /// Returns at once; the future's get() is true when the server has acknowledged, and throws what went wrong. An error of
  /// an update whose future was not asked is thrown by the next iter_commit or paracel_sync (the first, of several).
  template <class V>
  async_functor_type paracel_update(const str_type& key, const V& delta) {
    const encoded<V> e(delta);
    return update(key, e.view(), update_function());
  }
  async_functor_type paracel_update(const str_type& key, const char* delta) {
    return paracel_update(key, str_type(delta));
  }
  template <class V>
  void paracel_update(const str_type& key, const V& delta, async_functor_type& future, bool /*replica_flag*/ = false) {
    future = paracel_update(key, delta);
  }
  void paracel_update(const str_type& key, const char* delta, async_functor_type& future, bool /*replica_flag*/ = false) {
    future = paracel_update(key, str_type(delta));
  }
  /// With a function of its own: plug-in file (its base name counts) and symbol.
  template <class V>
  async_functor_type paracel_update(const str_type& key, const V& delta, const str_type& file_name,
                                    const str_type& func_name) {
    const encoded<V> e(delta);
    return update(key, e.view(), find_function(file_name, func_name));
  }
  template <class V>
  void paracel_update(const str_type& key, const V& delta, const str_type& file_name, const str_type& func_name,
                      async_functor_type& future) {
    future = paracel_update(key, delta, file_name, func_name);
  }
  async_functor_type paracel_update(const str_type& key, const char* delta, const str_type& file_name,
                                    const str_type& func_name) {
    return paracel_update(key, str_type(delta), file_name, func_name);
  }
  void paracel_update(const str_type& key, const char* delta, const str_type& file_name, const str_type& func_name,
                      async_functor_type& future) {
    future = paracel_update(key, str_type(delta), file_name, func_name);
  }

  /// Writes `initial` if the key is not there, as it is; otherwise updates the value by `delta`. With the function of
  /// `paracel_update`, or one of its own, and its future. Under BSP the servers look whether the key is there when the
  /// update is folded: of several in one iteration the first in rank order writes, the others update.
  template <class V, class D>
  async_functor_type paracel_update_default(const str_type& key, const V& initial, const D& delta) {
    const encoded<V> i(initial);
    const encoded<D> d(delta);
    return update_default(key, i.view(), d.view(), update_function());
  }
  template <class V, class D>
  async_functor_type paracel_update_default(const str_type& key, const V& initial, const D& delta,
                                            const str_type& file_name, const str_type& func_name) {
    const encoded<V> i(initial);
    const encoded<D> d(delta);
    return update_default(key, i.view(), d.view(), find_function(file_name, func_name));
  }

  /// With an optimizer (its state lies beside the value in the server) and its hyper-parameters.
  template <class V>
  async_functor_type paracel_update(const str_type& key, const V& gradient, const str_type& file_name,
                                    const str_type& func_name, const hyper_parameters& hyper) {
    const encoded<V> e(gradient);
    return update(key, e.view(), find_function(file_name, func_name, hyper));
  }

  /// The same, and waits for the server. Immediate also under BSP.
  template <class V>
  bool paracel_bupdate(const str_type& key, const V& delta, bool /*replica_flag*/ = false) {
    const encoded<V> e(delta);
    bupdate(key, e.view(), bupdate_function(), {});
    return true;
  }
  bool paracel_bupdate(const str_type& key, const char* delta, bool replica_flag = false) {
    return paracel_bupdate(key, str_type(delta), replica_flag);
  }
  template <class V>
  bool paracel_bupdate(const str_type& key, const V& delta, const str_type& file_name, const str_type& func_name,
                       bool /*replica_flag*/ = false) {
    const encoded<V> e(delta);
    bupdate(key, e.view(), find_function(file_name, func_name), {});
    return true;
  }
  bool paracel_bupdate(const str_type& key, const char* delta, const str_type& file_name, const str_type& func_name,
                       bool replica_flag = false) {
    return paracel_bupdate(key, str_type(delta), file_name, func_name, replica_flag);
  }
  /// Updates and gets the new value in the same round trip.
  template <class V, class W>
  void paracel_bupdate_get(const str_type& key, const V& delta, W& new_value) {
    const encoded<V> e(delta);
    bupdate(key, e.view(), bupdate_function(), sink(new_value));
  }

  /// Adds `delta` and gets the new value, which must be of the delta's type. A missing key becomes `delta`. Immediate also
  /// under BSP. Cost: one round trip.
  template <class V>
  V paracel_incr(const str_type& key, const V& delta) {
    const encoded<V> e(delta);
    V value{};
    bupdate(key, e.view(), 0, sink(value));
    return value;
  }

  /// The value and its version, from the server whatever is cached; 0: the key is not there, and `value` is unchanged.
  /// Versions of a key rise with every change and are never used again, not even when it was removed in between.
  /// Cost: one round trip, and one more when the clock must be waited for. Blocks: as paracel_read.
  template <class V>
  std::uint64_t paracel_read_version(const str_type& key, V& value) {
    return read_version(key, sink(value));
  }
  /// Sets the value if it still has this version (0: if the key is not there), and says whether it did. `version` is then the
  /// new one, otherwise the one that is there. Immediate also under BSP, where it sees what a read would.
  ///
  ///     double best = 0;
  ///     for (auto v = paracel_read_version("best", best); mine > best && !paracel_cas("best", v, mine);)
  ///       v = paracel_read_version("best", best);
  template <class V>
  bool paracel_cas(const str_type& key, std::uint64_t& version, const V& value) {
    const encoded<V> e(value);
    return cas(key, version, e.view());
  }
  bool paracel_cas(const str_type& key, std::uint64_t& version, const char* value) {
    return paracel_cas(key, version, str_type(value));
  }

  // ---- without waiting ----------------------------------------------------------------------------------------------
  //
  // These return at once, unless the rule above makes a read wait for the clock, and many requests may be in flight.
  // Requests of one worker for one key are executed in the order in which they were made, whatever calls made them.
  // `paracel_wait` is the one point to wait at; a future is needed only by who wants to know of one request. What a request
  // failed with is thrown by its future's get(), or, if that is not asked, by the next paracel_wait, iter_commit or
  // paracel_sync (the first of several failures).

  /// `value` is set when the future is ready and must be there until then. The future's get() is false when the key is not
  /// there, if it is asked before the next iter_commit; `value` is then unchanged.
  template <class V>
  async_functor_type paracel_read_async(const str_type& key, V& value) {
    return read_async(key, sink(value));
  }
  /// `callback(const V&)` runs inside paracel_wait, paracel_poll, iter_commit or paracel_sync. It may make any call of this
  /// object. A key that is not there is a key_error of the next waiting point.
  template <class V, class F>
    requires std::is_invocable_v<F&, const V&>
  void paracel_read_async(const str_type& key, F callback) {
    struct state {
      F callback;
      V value{};
    };
    auto s = std::make_shared<state>(state{std::move(callback)});
    const auto to = sink(s->value);
    read_async(key, to, [s = std::move(s)] { s->callback(std::as_const(s->value)); });
  }
  template <class V>
  async_functor_type paracel_write_async(const str_type& key, const V& value) {
    const encoded<V> e(value);
    return write_async(key, e.view());
  }
  async_functor_type paracel_write_async(const str_type& key, const char* value) {
    return paracel_write_async(key, str_type(value));
  }
  /// `values`, which is resized to the number of keys at once, must be there until the future is ready. A key that is not
  /// there is a key_error.
  template <class V>
  async_functor_type paracel_read_multi_async(const list_type<str_type>& keys, list_type<V>& values) {
    values.resize(keys.size());
    return read_multi_async(keys, [to = values.data()](std::size_t i, const value_view& v) { decode_into(v, to[i]); });
  }
  template <class V>
  async_functor_type paracel_update_multi_async(const list_type<str_type>& keys, const list_type<V>& deltas) {
    const batch<V> b(keys, deltas);
    return update_multi_async(b.keys, b.views, update_function());
  }
  template <class V>
  async_functor_type paracel_update_multi_async(const dict_type<str_type, V>& deltas) {
    const batch<V> b(deltas);
    return update_multi_async(b.keys, b.views, update_function());
  }
  /// Blocks: until everything that was asked for, also by callbacks, is answered and they have run.
  /// Throws: what a request whose future was not asked failed with; what a callback throws.
  void paracel_wait();
  /// Takes in what has arrived and runs its callbacks; never blocks. Returns: the number of answers.
  std::size_t paracel_poll();

  // ---- prepared key sets (key_set.hpp) --------------------------------------------------------------------------------
  //
  // Clock, staging and failures as for the forms with keys; the reads are not answered from the cache. Values are numbers
  // (as many for each key, one after the other) or, in a list, anything else.

  /// Cost: the keys travel to their shards once; nothing is waited for.
  key_set paracel_prepare(list_type<str_type> keys);
  /// `values` is resized: values[i * n], ... are the n numbers of key i. Throws: key_error when a key is not there.
  /// Cost: one request a shard, 16 bytes there and the values back.
  template <class V>
  void paracel_read(const key_set& keys, list_type<V>& values) {
    (void)read_set(keys, set_detail::target(keys.size(), values)).get();
  }
  template <raw_number V>
  void paracel_read(const key_set& keys, std::span<V> values) {
    (void)read_set(keys, set_detail::target(keys.size(), values)).get();
  }
  /// `values` must be there until the future is ready.
  template <class V>
  async_functor_type paracel_read_async(const key_set& keys, list_type<V>& values) {
    return read_set(keys, set_detail::target(keys.size(), values));
  }
  template <raw_number V>
  async_functor_type paracel_read_async(const key_set& keys, std::span<V> values) {
    return read_set(keys, set_detail::target(keys.size(), values));
  }
  template <class V>
  bool paracel_write(const key_set& keys, const V& values) {
    return with_source(keys, values, [&](const set_source& s) { return write_set(keys, s); }).get();
  }
  template <class V>
  async_functor_type paracel_write_async(const key_set& keys, const V& values) {
    return with_source(keys, values, [&](const set_source& s) { return write_set(keys, s); });
  }
  /// `deltas`: a list or a span, as above; it is copied. Returns at once, as paracel_update of a key.
  template <class V>
  async_functor_type paracel_update(const key_set& keys, const V& deltas) {
    return with_source(keys, deltas, [&](const set_source& s) { return update_set(keys, s, update_function(), true, {}); });
  }
  template <class V>
  async_functor_type paracel_update(const key_set& keys, const V& deltas, const str_type& file_name,
                                    const str_type& func_name) {
    const auto f = find_function(file_name, func_name);
    return with_source(keys, deltas, [&](const set_source& s) { return update_set(keys, s, f, true, {}); });
  }
  template <class V>
  bool paracel_bupdate(const key_set& keys, const V& deltas) {
    return with_source(keys, deltas, [&](const set_source& s) {
      return update_set(keys, s, bupdate_function(), false, {});
    }).get();
  }
  template <class V>
  bool paracel_bupdate(const key_set& keys, const V& deltas, const str_type& file_name, const str_type& func_name) {
    const auto f = find_function(file_name, func_name);
    return with_source(keys, deltas, [&](const set_source& s) { return update_set(keys, s, f, false, {}); }).get();
  }
  /// Updates and gets the new values in the same round trip.
  template <class V, class W>
  void paracel_bupdate_get(const key_set& keys, const V& deltas, list_type<W>& new_values) {
    (void)with_source(keys, deltas, [&](const set_source& s) {
      return update_set(keys, s, bupdate_function(), false, set_detail::target(keys.size(), new_values));
    }).get();
  }

  bool paracel_contains(const str_type& key);
  /// True when the key was there.
  bool paracel_remove(const str_type& key);

  // ---- many keys: one request a shard, all shards at once --------------------------------------------------------------

  /// In the order of `keys`. Throws: key_error that names the first key that is not there.
  template <class V>
  list_type<V> paracel_read_multi(const list_type<str_type>& keys) {
    list_type<V> values(keys.size());
    read_multi(keys, [&](std::size_t i, const value_view& v) { decode_into(v, values[i]); }, true);
    return values;
  }
  /// Keys that are not there are not in the result.
  template <class V>
  void paracel_read_multi(const list_type<str_type>& keys, dict_type<str_type, V>& values) {
    values.clear();
    read_multi(keys, [&](std::size_t i, const value_view& v) { decode_into(v, values[keys[i]]); }, false);
  }
  template <class V>
  bool paracel_write_multi(const dict_type<str_type, V>& values) {
    const batch<V> b(values);
    write_multi(b.keys, b.views);
    return true;
  }
  template <class V>
  bool paracel_update_multi(const list_type<str_type>& keys, const list_type<V>& deltas) {
    const batch<V> b(keys, deltas);
    update_multi(b.keys, b.views, update_function(), true, nullptr);
    return true;
  }
  template <class V>
  bool paracel_update_multi(const dict_type<str_type, V>& deltas) {
    const batch<V> b(deltas);
    update_multi(b.keys, b.views, update_function(), true, nullptr);
    return true;
  }
  template <class V>
  bool paracel_update_multi(const list_type<str_type>& keys, const list_type<V>& deltas, const str_type& file_name,
                            const str_type& func_name) {
    const batch<V> b(keys, deltas);
    update_multi(b.keys, b.views, find_function(file_name, func_name), true, nullptr);
    return true;
  }
  template <class V>
  bool paracel_update_multi(const dict_type<str_type, V>& deltas, const str_type& file_name, const str_type& func_name) {
    const batch<V> b(deltas);
    update_multi(b.keys, b.views, find_function(file_name, func_name), true, nullptr);
    return true;
  }
  /// As paracel_update_default for each key, and waits for the servers.
  template <class V, class D>
  bool paracel_update_default_multi(const list_type<str_type>& keys, const list_type<V>& initials,
                                    const list_type<D>& deltas) {
    update_default_multi(batch<V>(keys, initials), batch<D>(keys, deltas), update_function());
    return true;
  }
  template <class V, class D>
  bool paracel_update_default_multi(const list_type<str_type>& keys, const list_type<V>& initials,
                                    const list_type<D>& deltas, const str_type& file_name, const str_type& func_name) {
    update_default_multi(batch<V>(keys, initials), batch<D>(keys, deltas), find_function(file_name, func_name));
    return true;
  }
  /// With one initial value for all keys that are not there.
  template <class V, class D>
  bool paracel_update_default_multi(const V& initial, const dict_type<str_type, D>& deltas) {
    update_default_multi(initial, batch<D>(deltas), update_function());
    return true;
  }
  template <class V, class D>
  bool paracel_update_default_multi(const V& initial, const dict_type<str_type, D>& deltas, const str_type& file_name,
                                    const str_type& func_name) {
    update_default_multi(initial, batch<D>(deltas), find_function(file_name, func_name));
    return true;
  }
  template <class V>
  bool paracel_bupdate_multi(const list_type<str_type>& keys, const list_type<V>& deltas) {
    const batch<V> b(keys, deltas);
    update_multi(b.keys, b.views, bupdate_function(), false, nullptr);
    return true;
  }
  template <class V>
  bool paracel_bupdate_multi(const dict_type<str_type, V>& deltas) {
    const batch<V> b(deltas);
    update_multi(b.keys, b.views, bupdate_function(), false, nullptr);
    return true;
  }
  template <class V>
  bool paracel_bupdate_multi(const list_type<str_type>& keys, const list_type<V>& deltas, const str_type& file_name,
                             const str_type& func_name) {
    const batch<V> b(keys, deltas);
    update_multi(b.keys, b.views, find_function(file_name, func_name), false, nullptr);
    return true;
  }
  template <class V>
  bool paracel_bupdate_multi(const dict_type<str_type, V>& deltas, const str_type& file_name,
                             const str_type& func_name) {
    const batch<V> b(deltas);
    update_multi(b.keys, b.views, find_function(file_name, func_name), false, nullptr);
    return true;
  }
  /// Updates all and gets the new values, in the order of `keys`.
  template <class V>
  list_type<V> paracel_bupdate_multi_get(const list_type<str_type>& keys, const list_type<V>& deltas) {
    const batch<V> b(keys, deltas);
    list_type<V> values(keys.size());
    const multi_sink put = [&](std::size_t i, const value_view& v) { decode_into(v, values[i]); };
    update_multi(b.keys, b.views, bupdate_function(), false, &put);
    return values;
  }
  /// True when every key was there.
  bool paracel_remove_multi(const list_type<str_type>& keys);
  /// Removes every key of every server.
  void paracel_clear();

  // ---- keys that nobody names -----------------------------------------------------------------------------------------
  //
  // All shards of all servers work at once, each a few milliseconds at a time, so that others are served in between. What
  // they answer comes in chunks: the worker holds 8 MiB a shard at most. A key that is there all the time is met exactly
  // once; of one that comes, goes or changes meanwhile either state may be seen. The clock's rule is that of a read.
  // Filters are (key) -> bool or (key, value) -> bool in a plug-in (paracel::filter_proxy); they run in the servers, and
  // one that throws, or whose type a value does not have, ends the call with a plugin_error or type_error.

  /// Everything. Throws: type_error when a value is no V.
  template <class V>
  dict_type<str_type, V> paracel_readall() {
    return dict_of<V>(0);
  }
  /// Calls f(key, value) for every key, in no particular order. f may use this object; what it throws ends the walk. An f
  /// that takes a dictionary, as in Paracel 0.3, is called with one for each chunk.
  template <class V, class F>
  void paracel_readall_handle(F&& f) {
    handle<V>(0, f);
  }
  /// What the filter takes: the one named here, or the registered one.
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
  /// The k keys with the largest values, the largest first; equal ones in the order of their keys. Values that are not one
  /// number do not take part. Cost: O(k) bytes a shard and time slice.
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
  /// Of the keys that the filter takes.
  template <class V>
  void paracel_read_topk_with_key_filter(int k, list_type<std::pair<str_type, V>>& result, const str_type& file_name,
                                         const str_type& func_name) {
    result.clear();
    top_k(k, find_filter(file_name, func_name), appender(result));
  }
  /// Removes what the filter takes, in the servers. Returns how many keys that were. When it throws, some may have gone.
  std::size_t paracel_remove_special(const str_type& file_name, const str_type& func_name);
  std::size_t paracel_remove_special();
  /// The keys that begin with `prefix`, in no particular order.
  list_type<str_type> paracel_keys(const str_type& prefix = "");
  /// Calls f(key) for each.
  template <class F>
  void paracel_keys(const str_type& prefix, F&& f) {
    str_type name;
    scan(prefix, 0, true, [&](std::string_view key, const value_view&) {
      name.assign(key);
      f(std::as_const(name));
    });
  }
  /// Of the numbers under the keys that begin with `prefix`. Cost: some 100 bytes a shard and time slice.
  number_summary paracel_summary(const str_type& prefix = "");
  double paracel_sum(const str_type& prefix = "") { return paracel_summary(prefix).sum; }
  /// Of keys.
  std::size_t paracel_count(const str_type& prefix = "") { return paracel_summary(prefix).keys; }
  /// `bins`: 1 to 65536. Throws: config_error when lo < hi does not hold.
  number_histogram paracel_histogram(double lo, double hi, std::size_t bins, const str_type& prefix = "");

  // ---- functions, clock, workers ---------------------------------------------------------------------------------------

  /// The function of `paracel_update` from now on. Its plug-in must lie in a folder the servers were started with; prun.py
  /// allows the folder of the config's update_file. Throws: plugin_error.
  bool paracel_register_update(const str_type& file_name, const str_type& func_name);
  /// The function of `paracel_bupdate` from now on.
  bool paracel_register_bupdate(const str_type& file_name, const str_type& func_name);
  /// The filter of `paracel_read_special` and `paracel_remove_special` when they name none.
  bool paracel_register_read_special(const str_type& file_name, const str_type& func_name);
  bool paracel_register_remove_special(const str_type& file_name, const str_type& func_name);
  /// An optimizer with its hyper-parameters: `paracel_register_update("libparacel_default.so", "paracel_adagrad",
  /// {{"lr", 0.1}})`; default/README.md lists those that come with the framework. Those that are not named have their
  /// defaults. Registering it again with others keeps the state, so a learning rate may fall from iteration to iteration.
  /// Throws: plugin_error that names the hyper-parameters there are, for one there is not or that is not finite.
  bool paracel_register_update(const str_type& file_name, const str_type& func_name, const hyper_parameters& hyper);
  bool paracel_register_bupdate(const str_type& file_name, const str_type& func_name, const hyper_parameters& hyper);

  /// On: what paracel_update adds (functions declared additive, numbers) is added up in this worker, key by key, and sent
  /// at the end of the iteration, many keys a request; before that only when its future is asked, or when a read or another
  /// call of the key goes to the server. Off: every update is sent at once. Under SSP it is on, because nobody may count on
  /// seeing an update before its iteration ends; under ASP it is off unless switched on; under BSP always off.
  void set_combining(bool on);

  /// On: under SSP, when the slowest worker finishes an iteration, the servers send this worker what has changed of the
  /// keys that it reads through its cache, so that a later read finds them there. Costs the traffic of each change that is
  /// then not read. Off unless switched on; see tool/bench/README.md.
  void set_push(bool on);
  /// Switches that on, and reads these keys into the cache. Keys that are read later are added by themselves; one that is
  /// not read for 8 iterations is dropped again. Throws: key_error when one is not there.
  void paracel_subscribe(const list_type<str_type>& keys);

  /// The end of an iteration: waits until its updates are acknowledged and ticks the clock, under every consistency.
  /// Cost: one round trip. Throws: what an unwatched update went wrong with.
  void iter_commit();
  /// After so many commits reads come from the servers, not from the cache. Default: `rounds`.
  void set_total_iters(int n);
  /// asp, ssp or bsp. Call it on every worker before the first read or update.
  void set_consistency(consistency_model model);
  [[nodiscard]] consistency_model get_consistency() const;
  /// Iterations that this worker was ahead of the slowest it knew of at its last read.
  [[nodiscard]] std::uint32_t last_staleness() const;

  /// A barrier of all workers: what each has updated before is in the servers when it returns.
  /// Throws: what an unwatched update went wrong with.
  void paracel_sync();

  [[nodiscard]] std::size_t get_worker_id() const { return comm_.get_rank(); }
  [[nodiscard]] std::size_t get_worker_size() const { return comm_.get_size(); }
  [[nodiscard]] std::size_t get_server_size() const;
  [[nodiscard]] Comm get_comm() const { return comm_; }
  [[nodiscard]] const str_type& get_output() const { return output_; }
  /// For what the framework builds on it (array.hpp, table.hpp); its header is not installed.
  [[nodiscard]] parasrv& servers() { return *servers_; }

  /// Rank 0's progress, shown by prun.py; other ranks' calls do nothing. At most ten a second are sent, and the last.
  void report_progress(const progress_report& report);

  // ---- results: files below the output folder --------------------------------------------------------------------------
  // Numbers are written with every bit. Throws: data_error that names the file, also when it would not be below the output
  // folder. Cost: memory for about a megabyte of text, whatever is written or merged.

  /// Writes `data` to <output>/<filename><rank>, elements joined by `sep`.
  /// `append_flag`: after what is there. `merge` (every worker must call): rank 0 then joins what all ranks have written
  /// now, in rank order, into <output>/<filename>merge, which is there when its own call returns.
  template <class V>
  void paracel_dump_vector(const list_type<V>& data, const str_type& filename = "result_", const str_type& sep = ",",
                           bool append_flag = false, bool merge = false) {
    std::size_t i = 0;
    dump(filename, append_flag, merge, [&](str_type& text) {
      if (i == data.size()) return false;
      if (i > 0) text += sep;
      append_text(text, data[i]);
      if (++i == data.size()) text += '\n';
      return true;
    });
  }
  /// Those elements whose index has a name in `id_map`, as name:element.
  template <class V>
  void paracel_dump_vector(const list_type<V>& data, const dict_type<std::size_t, str_type>& id_map,
                           const str_type& filename = "result_", const str_type& sep = ",", bool append_flag = false,
                           bool merge = false) {
    list_type<std::pair<str_type, V>> named;
    for (std::size_t i = 0; i < data.size(); ++i)
      if (const auto name = id_map.find(i); name != id_map.end()) named.emplace_back(name->second, data[i]);
    paracel_dump_vector(named, filename, sep, append_flag, merge);
  }

  /// Writes a line for each key, in their order: key, a tab (or `sep`), value. The elements of a list have | between them,
  /// pairs : and triples a comma. The rest as paracel_dump_vector.
  template <class K, class V>
  void paracel_dump_dict(const dict_type<K, V>& data, const str_type& filename = "result_", bool append_flag = false,
                         bool merge = false) {
    paracel_dump_dict(data, filename, str_type("\t"), append_flag, merge);
  }
  template <class K, class V>
  void paracel_dump_dict(const dict_type<K, V>& data, const str_type& filename, const str_type& sep,
                         bool append_flag = false, bool merge = false) {
    std::vector<const std::pair<const K, V>*> rows;
    rows.reserve(data.size());
    for (const auto& row : data) rows.push_back(&row);
    std::sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
    auto row = rows.begin();
    dump(filename, append_flag, merge, [&](str_type& text) {
      if (row == rows.end()) return false;
      append_row(text, (*row)->first, sep, (*row)->second);
      text += '\n';
      ++row;
      return true;
    });
  }
  template <class K, class V>  // otherwise a literal would be a bool
  void paracel_dump_dict(const dict_type<K, V>& data, const str_type& filename, const char* sep, bool append_flag = false,
                         bool merge = false) {
    paracel_dump_dict(data, filename, str_type(sep), append_flag, merge);
  }
  /// The same without the rows that have no element.
  void paracel_dump_prob_mtx(const dict_type<str_type, list_type<std::pair<str_type, double>>>& data,
                             const str_type& filename = "result_", bool append_flag = false, bool merge = false) {
    auto rows = data;
    std::erase_if(rows, [](const auto& row) { return row.second.empty(); });
    paracel_dump_dict(rows, filename, append_flag, merge);
  }

  /// Joins files (a file, a list, a folder or a glob pattern; sorted) into <output>/<prefix>merge, which is left out if it
  /// is one of them. Only the worker that calls does anything.
  template <class T>
  void files_merge(const T& files, const str_type& prefix = "result_", bool append_flag = false) {
    merge_files(expand(files), prefix, append_flag);
  }
  /// Folds every worker's `data` with func(received, accumulator) in rank order; rank `root` gets the result, the others a T
  /// of their own. Every worker must call it.
  template <class T, class F>
  T data_merge(T& data, F&& func, Comm& comm, int root = 0) {
    return comm.treereduce(data, std::forward<F>(func), static_cast<std::size_t>(root));
  }
  template <class T, class F>
  T data_merge(T& data, F&& func, int root = 0) {
    return data_merge(data, std::forward<F>(func), comm_, root);
  }

  /// Writes anything that can be a value to <output>/<prefix><rank>.pkl and returns that path. The file is whole or not there.
  template <class T>
  str_type pkl_dat(const T& data, const str_type& prefix = "tmp") {
    const encoded<T> e(data);
    return write_object(prefix, e.view());
  }
  /// Reads what pkl_dat has written. Throws: error when the file cannot be read, type_error or protocol_error when it holds
  /// something else.
  template <class T>
  void unpkl_dat(const str_type& path, T& data) {
    read_object(path, sink(data));
  }

 private:
  template <class V>
  static value_sink sink(V& target) {
    return {&target, [](void* to, const value_view& v) { decode_into(v, *static_cast<V*>(to)); }};
  }
  using multi_sink = std::function<void(std::size_t index, const value_view&)>;

  /// Keys and encoded values of a multi call.
  template <class V>
  struct batch {
    explicit batch(const dict_type<str_type, V>& values) {
      keys.reserve(values.size());
      encodings.reserve(values.size());
      for (const auto& [key, value] : values) add(key, value);
    }
    batch(const list_type<str_type>& names, const list_type<V>& values) {
      if (names.size() != values.size())
        throw error("a multi call got " + std::to_string(names.size()) + " keys and " + std::to_string(values.size()) +
                    " values");
      keys.reserve(names.size());
      encodings.reserve(names.size());
      for (std::size_t i = 0; i < names.size(); ++i) add(names[i], values[i]);
    }
    void add(const str_type& key, const V& value) {
      keys.push_back(key);
      encodings.emplace_back(value);
      views.push_back(encodings.back().view());
    }
    list_type<str_type> keys;
    std::vector<encoded<V>> encodings;
    std::vector<value_view> views;
  };

  /// Calls f with `values` (a list or a span) as the values of a set.
  template <class V, class F>
  async_functor_type with_source(const key_set& keys, const V& values, const F& f) {
    using element = std::remove_cv_t<typename V::value_type>;
    if constexpr (raw_number<element>) {
      return f(set_detail::source(keys.size(), std::span<const element>(values.data(), values.size())));
    } else {
      if (keys.size() != values.size())
        throw error("a key set of " + std::to_string(keys.size()) + " keys got " + std::to_string(values.size()) + " values");
      std::vector<encoded<element>> encodings;
      std::vector<value_view> views;
      encodings.reserve(keys.size());
      for (const auto& v : values) views.push_back(encodings.emplace_back(v).view());
      set_source source;
      source.items = views;
      return f(source);
    }
  }
  /// A value in the cache, and what has been made of it.
  struct kept_value {
    value_view value;
    std::shared_ptr<void>* object;
    const void** object_type;

    template <class V>
    const V& as() const {
      static const char type = 0;  // its address names the type
      if (*object_type != &type) {
        *object_type = nullptr;
        *object = std::make_shared<V>(decode<V>(value));
        *object_type = &type;
      }
      return *static_cast<const V*>(object->get());
    }
  };
  void visit_part(const list_type<str_type>& files, std::size_t part, std::size_t parts,
                  const std::function<void(str_type&&)>& visit);
  list_type<str_type> load_all(const list_type<str_type>& files);
  kept_value read_kept(const str_type& key);
  [[nodiscard]] value_view find_cached(const str_type& key) const;

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
      scan({}, filter, false, [&](std::string_view key, const value_view& v) { decode_into(v, chunk[str_type(key)]); },
           [&] {
             if (!chunk.empty()) f(chunk);
             chunk.clear();
           });
    }
  }

  void scan(std::string_view prefix, std::uint64_t filter, bool keys_only, const item_sink& put,
            const std::function<void()>& chunk_end = nullptr);
  void top_k(int k, std::uint64_t filter, const item_sink& put);
  std::uint64_t find_filter(const str_type& file_name, const str_type& func_name);
  [[nodiscard]] std::uint64_t read_filter() const;
  [[noreturn]] static void missing(const str_type& key);
  bool read(const str_type& key, value_sink to);
  void write(const str_type& key, const value_view& value);
  async_functor_type update(const str_type& key, const value_view& delta, std::uint64_t function);
  void bupdate(const str_type& key, const value_view& delta, std::uint64_t function, value_sink to);
  void read_multi(const list_type<str_type>& keys, const multi_sink& put, bool all);
  void write_multi(const list_type<str_type>& keys, const std::vector<value_view>& values);
  void update_multi(const list_type<str_type>& keys, const std::vector<value_view>& deltas, std::uint64_t function,
                    bool clocked, const multi_sink* put);
  async_functor_type update_default(const str_type& key, const value_view& initial, const value_view& delta,
                                    std::uint64_t function);
  template <class V, class D>
  void update_default_multi(const batch<V>& initials, const batch<D>& deltas, std::uint64_t function) {
    update_default_multi(deltas.keys, initials.views, deltas.views, function);
  }
  template <class V, class D>
  void update_default_multi(const V& initial, const batch<D>& deltas, std::uint64_t function) {
    const encoded<V> e(initial);
    update_default_multi(deltas.keys, std::vector<value_view>(deltas.keys.size(), e.view()), deltas.views, function);
  }
  void update_default_multi(const list_type<str_type>& keys, const std::vector<value_view>& initials,
                            const std::vector<value_view>& deltas, std::uint64_t function);
  bool cas(const str_type& key, std::uint64_t& version, const value_view& value);
  std::uint64_t read_version(const str_type& key, value_sink to);
  async_functor_type read_async(const str_type& key, value_sink to);
  void read_async(const str_type& key, value_sink to, std::function<void()> then);
  async_functor_type write_async(const str_type& key, const value_view& value);
  async_functor_type read_multi_async(const list_type<str_type>& keys, multi_sink put);
  async_functor_type update_multi_async(const list_type<str_type>& keys, const std::vector<value_view>& deltas,
                                        std::uint64_t function);
  async_functor_type read_set(const key_set& keys, std::shared_ptr<set_target> to);
  async_functor_type write_set(const key_set& keys, const set_source& values);
  async_functor_type update_set(const key_set& keys, const set_source& deltas, std::uint64_t function, bool clocked,
                                std::shared_ptr<set_target> to);
  std::uint64_t find_function(const str_type& file_name, const str_type& func_name, const hyper_parameters& hyper = {});
  [[nodiscard]] std::uint64_t update_function() const;
  [[nodiscard]] std::uint64_t bupdate_function() const;
  /// `next` appends the next piece of the result to its argument; false: there is none.
  void dump(const str_type& filename, bool append, bool merge, const std::function<bool(str_type&)>& next);
  void merge_files(const list_type<str_type>& files, const str_type& prefix, bool append);
  str_type write_object(const str_type& prefix, const value_view& value);
  static void read_object(const str_type& path, value_sink to);

  str_type output_;
  std::shared_ptr<session> session_;
  std::unique_ptr<parasrv> servers_;
  std::int64_t last_report_ms_ = -1;
};

}  // namespace paracel
