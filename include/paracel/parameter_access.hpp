// SPDX-License-Identifier: BSD-3-Clause
//
// The parameters of a job, key by key: read, write, update; also asynchronously and for prepared sets of keys.
// A base of `paralg`, which says what a read may miss.
#pragma once

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
#include <paracel/detail/value.hpp>
#include <paracel/error.hpp>
#include <paracel/key_set.hpp>
#include <paracel/types.hpp>

namespace paracel {

class parasrv;

/// A value of this worker's cache.
struct cached_value {
  value_tag tag = value_tag::none;
  std::vector<std::byte> bytes;

  /// Throws: type_error when it is not a V.
  template <class V>
  [[nodiscard]] V as() const {
    return decode<V>(value_view{tag, bytes});
  }
};

/// Thread-safety and errors: as paralg.
class parameter_access {
 public:
  // ---- one key ----------------------------------------------------------------------------------------------------

  /// False when the key does not exist; `value` is then unchanged. Cost: none when cached, otherwise one round trip,
  /// and one more when the clock must be waited for. Blocks: until the rule of paralg.hpp allows the read.
  template <class V>
  bool paracel_read(const str_type& key, V& value) {
    return read(key, sink(value));
  }
  /// Throws: key_error when the key does not exist.
  template <class V>
  V paracel_read(const str_type& key) {
    V value{};
    if (!read(key, sink(value))) missing(key);
    return value;
  }

  /// A zero-copy view of the value in this worker's cache: for a list of numbers a span of them, for every
  /// other type a reference. Freshness is that of paracel_read, and own updates are included.
  /// Throws: key_error when the key does not exist.
  /// Lifetime: until the next call of this object that is not a paracel_read_ref or paracel_read of a cached key.
  /// Cost: when cached, below 0.1 us whatever the size (tool/bench/bench_cache); a type that is not stored as it is
  /// (maps, strings; another width of number) is decoded once after each change. Otherwise as paracel_read. Under ASP,
  /// and after set_total_iters, each call asks the server.
  template <class V>
  decltype(auto) paracel_read_ref(const str_type& key) {
    const auto kept = read_kept(key);
    const auto& v = kept.value;
    if constexpr (codec_detail::raw_list<V>) {
      using element = typename codec_detail::list_traits<V>::element;
      if (v.tag == array_tag_of<element>()) {
        return std::span<const element>(reinterpret_cast<const element*>(v.bytes.data()),
                                        v.bytes.size() / sizeof(element));
      }
      return std::span<const element>(named(key, kept_as<std::vector<element>>(kept)));
    } else if constexpr (raw_number<V>) {
      if (v.tag == tag_of<V>()) return *reinterpret_cast<const V*>(v.bytes.data());
      return named(key, kept_as<V>(kept));
    } else {
      return named(key, kept_as<V>(kept));
    }
  }
  /// Whether the key is in this worker's cache, fresh or not.
  [[nodiscard]] bool is_cached(const str_type& key) const;
  /// The cached value, fresh or not; asks no server. Throws: key_error when it is not cached.
  template <class V>
  [[nodiscard]] V get_cache(const str_type& key) const {
    return named(key, [&] { return decode<V>(find_cached(key)); });
  }
  /// A copy of the whole cache, fresh or not. Cost: O(its bytes).
  [[nodiscard]] dict_type<str_type, cached_value> get_cache() const;

  /// Sets the value unconditionally. Cost: one round trip. Under BSP it waits for the clock as a read does,
  /// replaces the value as of the last completed iteration, and is immediate. Blocks: until the server has it.
  template <class V>
  bool paracel_write(const str_type& key, const V& value) {
    const encoded_value<V> e(value);
    write(key, e.view());
    return true;
  }

  /// Applies the update function (the servers' default adds) in the server. A missing key takes the delta as its value.
  /// Returns at once; the future's get() is true when the server has acknowledged, and throws on failure. If that get()
  /// is not called, the next iter_commit or paracel_sync throws the error (the first of several).
  template <class V>
  async_functor_type paracel_update(const str_type& key, const V& delta,
                                    const plugin_function& f = registered_function) {
    const encoded_value<V> e(delta);
    return update(key, e.view(), update_function(f));
  }
  /// The same, sent once the requests of `others` are answered (types.hpp); until then it has no place in its key's
  /// order. If one of them fails, it is not sent and fails too. Waiting points wait for it as well. Cost: a round trip
  /// of delay; a copy of the delta, and a comparison per reply while it waits.
  template <class V>
  async_functor_type paracel_update(const str_type& key, const V& delta, const after& others) {
    const encoded_value<V> e(delta);
    return update(key, e.view(), update_function(), others);
  }

  /// Writes `initial` unmodified if the key does not exist; otherwise updates the value by `delta`. Uses the function
  /// of `paracel_update` and returns a future like it. Under BSP the servers check whether the key exists when the
  /// update is folded: of several in one iteration the first in rank order writes, the others update.
  template <class V, class D>
  async_functor_type paracel_update_default(const str_type& key, const V& initial, const D& delta,
                                            const plugin_function& f = registered_function) {
    const encoded_value<V> i(initial);
    const encoded_value<D> d(delta);
    return update_default(key, i.view(), d.view(), update_function(f));
  }

  /// paracel_update that blocks until the server has it. Immediate under BSP too, where it waits for the clock as a
  /// read does.
  template <class V>
  bool paracel_bupdate(const str_type& key, const V& delta, const plugin_function& f = registered_function) {
    const encoded_value<V> e(delta);
    bupdate(key, e.view(), bupdate_function(f), {});
    return true;
  }
  /// Updates and returns the new value in the same round trip.
  template <class V, class W>
  void paracel_bupdate_get(const str_type& key, const V& delta, W& new_value,
                           const plugin_function& f = registered_function) {
    const encoded_value<V> e(delta);
    bupdate(key, e.view(), bupdate_function(f), sink(new_value));
  }

  /// Adds `delta` and returns the new value, which must be of the delta's type. A missing key becomes `delta`.
  /// Immediate under BSP too. Cost: one round trip.
  template <class V>
  V paracel_incr(const str_type& key, const V& delta) {
    const encoded<V> e(delta);
    V value{};
    bupdate(key, e.view(), 0, sink(value));
    return value;
  }

  /// The value and its version, from the server even if cached; 0: the key does not exist, and `value` is unchanged.
  /// Versions of a key increase with every change and are never reused, not even after the key was removed.
  /// Cost: one round trip, and one more when the clock must be waited for. Blocks: as paracel_read.
  template <class V>
  std::uint64_t paracel_read_version(const str_type& key, V& value) {
    return read_version(key, sink(value));
  }
  /// Compare-and-set: sets the value if it still has this version (0: if the key does not exist); returns whether it
  /// did. `version` becomes the new or the actual one. Immediate under BSP too, where it sees what a read would.
  ///
  ///     double best = 0;
  ///     for (auto v = paracel_read_version("best", best); mine > best && !paracel_cas("best", v, mine);)
  ///       v = paracel_read_version("best", best);
  template <class V>
  bool paracel_cas(const str_type& key, std::uint64_t& version, const V& value) {
    const encoded_value<V> e(value);
    return cas(key, version, e.view());
  }

  // ---- asynchronous -------------------------------------------------------------------------------------------------
  //
  // These return at once, unless the rule of paralg.hpp makes a read wait for the clock, and many requests may be in
  // flight. Requests of one worker for one key are executed in the order in which they were issued, whichever calls
  // issued them. `paracel_wait` is the one point to wait at; futures are only for tracking single requests. A failed
  // request throws from its future's get(), or, if that is not called, from the next paracel_wait, iter_commit or
  // paracel_sync (the first of several failures).

  /// `value` is set when the future is ready and must live until then. The future's get() is false when the key does
  /// not exist, if it is called before the next iter_commit; `value` is then unchanged.
  template <class V>
  async_functor_type paracel_read_async(const str_type& key, V& value) {
    return read_async(key, sink(value));
  }
  /// The same after others, as paracel_update; from the server even if cached.
  template <class V>
  async_functor_type paracel_read_async(const str_type& key, V& value, const after& others) {
    return read_async(key, sink(value), others);
  }
  /// `callback(const V&)` runs inside paracel_wait, paracel_poll, iter_commit or paracel_sync. It may make any call of
  /// this object. A missing key is a key_error thrown at the next waiting point.
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
    const encoded_value<V> e(value);
    return write_async(key, e.view());
  }
  /// The same after others, as paracel_update.
  template <class V>
  async_functor_type paracel_write_async(const str_type& key, const V& value, const after& others) {
    const encoded_value<V> e(value);
    return write_async(key, e.view(), others);
  }
  /// `values` is resized to the number of keys immediately, and must live until the future is ready. A missing key is a
  /// key_error.
  template <class V>
  async_functor_type paracel_read_multi_async(const list_type<str_type>& keys, list_type<V>& values) {
    return read_multi_async(keys, std::make_shared<set_detail::values_target<V>>(keys.size(), values));
  }
  template <class V>
  async_functor_type paracel_update_multi_async(const list_type<str_type>& keys, const list_type<V>& deltas) {
    const batch<V> b(keys, deltas);
    return update_multi_async(b.keys, b.source(), update_function());
  }
  template <class V>
  async_functor_type paracel_update_multi_async(const dict_type<str_type, V>& deltas) {
    const batch<V> b(deltas);
    return update_multi_async(b.keys, b.source(), update_function());
  }
  /// Blocks: until all requests, those of callbacks included, are answered and the callbacks have run.
  /// Throws: the error of a request whose future's get() was not called; what a callback throws.
  void paracel_wait();
  /// Processes replies that have arrived and runs their callbacks; never blocks. Returns: the number of replies.
  std::size_t paracel_poll();

  // ---- prepared key sets (key_set.hpp) -----------------------------------------------------------------------------
  //
  // Clock, staging and failures as for the forms with keys; the reads bypass the cache. Values are contiguous numbers,
  // equally many for each key, or a list of anything else.

  /// Cost: the keys are sent to their shards once; does not wait.
  key_set paracel_prepare(list_type<str_type> keys);
  /// `values` is resized: values[i * n], ... are the n numbers of key i. Throws: key_error when a key does not exist.
  /// Cost: one request per shard, 16 bytes out and the values back.
  template <class V>
  void paracel_read(const key_set& keys, list_type<V>& values) {
    (void)read_set(keys, set_detail::target(keys.size(), values)).get();
  }
  template <raw_number V>
  void paracel_read(const key_set& keys, std::span<V> values) {
    (void)read_set(keys, set_detail::target(keys.size(), values)).get();
  }
  /// `values` must live until the future is ready.
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
  async_functor_type paracel_update(const key_set& keys, const V& deltas,
                                    const plugin_function& f = registered_function) {
    const auto id = update_function(f);
    return with_source(keys, deltas, [&](const set_source& s) { return update_set(keys, s, id, true, {}); });
  }
  template <class V>
  bool paracel_bupdate(const key_set& keys, const V& deltas, const plugin_function& f = registered_function) {
    const auto id = bupdate_function(f);
    return with_source(keys, deltas, [&](const set_source& s) { return update_set(keys, s, id, false, {}); }).get();
  }
  /// Updates and returns the new values in the same round trip.
  template <class V, class W>
  void paracel_bupdate_get(const key_set& keys, const V& deltas, list_type<W>& new_values,
                           const plugin_function& f = registered_function) {
    const auto id = bupdate_function(f);
    (void)with_source(keys, deltas, [&](const set_source& s) {
      return update_set(keys, s, id, false, set_detail::target(keys.size(), new_values));
    }).get();
  }

  bool paracel_contains(const str_type& key);
  /// True when the key existed.
  bool paracel_remove(const str_type& key);

  // ---- functions ----------------------------------------------------------------------------------------------------

  /// Sets the function of `paracel_update`. Its plug-in must be in a folder the servers were started with;
  /// prun.py allows the folder of the config's update_file. Throws: plugin_error.
  /// With hyper-parameters for an optimizer: `paracel_register_update("libparacel_default.so", "paracel_adagrad",
  /// {{"lr", 0.1}})`; default/README.md lists those that come with the framework. Omitted ones have their defaults.
  /// Registering it again with others keeps the state, so a learning rate may decay from iteration to iteration.
  /// Throws: plugin_error that lists the known hyper-parameters, for one that is unknown or not finite.
  bool paracel_register_update(const str_type& file_name, const str_type& func_name,
                               const hyper_parameters& hyper = {});
  /// Sets the function of `paracel_bupdate`.
  bool paracel_register_bupdate(const str_type& file_name, const str_type& func_name,
                                const hyper_parameters& hyper = {});
  /// The filter of `paracel_read_special` and `paracel_remove_special` when they name none.
  bool paracel_register_read_special(const str_type& file_name, const str_type& func_name);
  bool paracel_register_remove_special(const str_type& file_name, const str_type& func_name);

  parameter_access(const parameter_access&) = delete;
  parameter_access& operator=(const parameter_access&) = delete;

 protected:
  parameter_access();
  ~parameter_access();

  /// Text literals are values, too.
  template <class V>
  using encoded_value =
      encoded<std::conditional_t<std::is_same_v<std::decay_t<V>, char*> || std::is_same_v<std::decay_t<V>, const char*>,
                                 std::string_view, V>>;

  template <class V>
  static value_sink sink(V& target) {
    return {&target, [](void* to, const value_view& v) { decode_into(v, *static_cast<V*>(to)); }};
  }
  /// Keys and values of a multi call: numbers, or encoded ones. Lifetime: the arguments must outlive it.
  template <class V>
  struct batch {
    explicit batch(const dict_type<str_type, V>& values) : keys(names_) {
      names_.reserve(values.size());
      reserve(values.size());
      for (const auto& [key, value] : values) {
        names_.push_back(key);
        if constexpr (raw_number<V>) encodings_.push_back(value);
        else add(value);
      }
      if constexpr (raw_number<V>) source_ = numbers(encodings_);
    }
    batch(const list_type<str_type>& names, const list_type<V>& values) : keys(names) {
      if (names.size() != values.size())
        throw error("a multi call got " + std::to_string(names.size()) + " keys and " + std::to_string(values.size()) +
                    " values");
      if constexpr (raw_number<V>) {
        source_ = numbers(values);
      } else {
        reserve(names.size());
        for (const auto& value : values) add(value);
      }
    }
    batch(const batch&) = delete;
    batch& operator=(const batch&) = delete;

    const list_type<str_type>& keys;
    [[nodiscard]] set_source source() const {
      if constexpr (raw_number<V>) return source_;
      else return {value_tag::none, 0, {}, views_};
    }
    /// One for each value.
    [[nodiscard]] std::vector<value_view> views() const {
      if constexpr (!raw_number<V>) return views_;
      std::vector<value_view> all(keys.size());
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = source_.at(i);
      return all;
    }

   private:
    static set_source numbers(std::span<const V> values) { return {tag_of<V>(), sizeof(V), std::as_bytes(values), {}}; }
    void reserve(std::size_t n) {
      encodings_.reserve(n);
      if constexpr (!raw_number<V>) views_.reserve(n);
    }
    void add(const V& value) { views_.push_back(encodings_.emplace_back(value).view()); }
    list_type<str_type> names_;
    std::vector<std::conditional_t<raw_number<V>, V, encoded<V>>> encodings_;
    std::vector<value_view> views_;
    set_source source_;
  };

  [[noreturn]] static void missing(const str_type& key);
  bool read(const str_type& key, value_sink to);
  void write(const str_type& key, const value_view& value);
  async_functor_type update(const str_type& key, const value_view& delta, std::uint64_t function);
  async_functor_type update(const str_type& key, const value_view& delta, std::uint64_t function, const after& others);
  void bupdate(const str_type& key, const value_view& delta, std::uint64_t function, value_sink to);
  async_functor_type update_default(const str_type& key, const value_view& initial, const value_view& delta,
                                    std::uint64_t function);
  [[nodiscard]] std::uint64_t update_function(const plugin_function& f = registered_function);
  [[nodiscard]] std::uint64_t bupdate_function(const plugin_function& f = registered_function);
  std::uint64_t find_filter(const str_type& file_name, const str_type& func_name);

  std::unique_ptr<parasrv> servers_;

 private:
  /// Calls f with `values` (a list or a span) as the values of a set.
  template <class V, class F>
  async_functor_type with_source(const key_set& keys, const V& values, const F& f) {
    using element = std::remove_cv_t<typename V::value_type>;
    if constexpr (raw_number<element>) {
      return f(set_detail::source(keys.size(), std::span<const element>(values.data(), values.size())));
    } else {
      if (keys.size() != values.size())
        throw error("a key set of " + std::to_string(keys.size()) + " keys got " + std::to_string(values.size()) +
                    " values");
      std::vector<encoded<element>> encodings;
      std::vector<value_view> views;
      encodings.reserve(keys.size());
      for (const auto& v : values) views.push_back(encodings.emplace_back(v).view());
      set_source source;
      source.items = views;
      return f(source);
    }
  }
  /// A cached value, and its decoded form.
  struct kept_value {
    value_view value;
    std::shared_ptr<void>* object;
    const void** object_type;

    template <class V>
    const V& as() const {
      static const char type = 0;  // its address identifies the type
      if (*object_type != &type) {
        *object_type = nullptr;
        *object = std::make_shared<V>(decode<V>(value));
        *object_type = &type;
      }
      return *static_cast<const V*>(object->get());
    }
  };
  kept_value read_kept(const str_type& key);
  template <class V>
  static auto kept_as(const kept_value& kept) {
    return [&kept]() -> const V& { return kept.template as<V>(); };
  }
  /// The result of `f`, which decodes the value of this key; a type_error then begins with the key.
  template <class F>
  static decltype(auto) named(const str_type& key, F&& f) {
    try {
      return std::forward<F>(f)();
    } catch (const type_error& e) {
      rethrow_named(key, e);
    }
  }
  [[noreturn]] static void rethrow_named(const str_type& key, const type_error& e);
  [[nodiscard]] value_view find_cached(const str_type& key) const;
  bool cas(const str_type& key, std::uint64_t& version, const value_view& value);
  std::uint64_t read_version(const str_type& key, value_sink to);
  async_functor_type read_async(const str_type& key, value_sink to);
  async_functor_type read_async(const str_type& key, value_sink to, const after& others);
  void read_async(const str_type& key, value_sink to, std::function<void()> then);
  async_functor_type write_async(const str_type& key, const value_view& value);
  async_functor_type write_async(const str_type& key, const value_view& value, const after& others);
  async_functor_type read_multi_async(const list_type<str_type>& keys, std::shared_ptr<set_target> to);
  async_functor_type update_multi_async(const list_type<str_type>& keys, const set_source& deltas,
                                        std::uint64_t function);
  async_functor_type read_set(const key_set& keys, std::shared_ptr<set_target> to);
  async_functor_type write_set(const key_set& keys, const set_source& values);
  async_functor_type update_set(const key_set& keys, const set_source& deltas, std::uint64_t function, bool clocked,
                                std::shared_ptr<set_target> to);
};

}  // namespace paracel
