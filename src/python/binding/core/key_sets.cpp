// SPDX-License-Identifier: BSD-3-Clause
//
// Many keys: lists of them, prepared sets, scans.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <utility>

#include "job.hpp"
#include "worker/parameters/parasrv.hpp"

namespace paracel::py {

namespace {

using self = paralg_object&;

/// Values of many keys, of a type that is known when they arrive: numbers of one type, equally many for each key, are
/// one array; anything else is a list.
class any_target final : public set_target {
 public:
  /// `separate`: values of their own, of which some may be missing.
  any_target(std::size_t keys, bool separate) : set_target(keys) {
    if (separate) separate_values();
  }
  void put_all(std::span<const std::uint32_t> order, const value_view& values, std::size_t numbers,
               bool arrays) override {
    const auto bytes = numbers * element_bytes(values.tag);
    if (!fits(element_of(values.tag), numbers, arrays)) return set_target::put_all(order, values, numbers, arrays);
    for (std::size_t k = 0; k < order.size() && bytes != 0; ++k)
      std::memcpy(bytes_.get() + order[k] * bytes, values.bytes.data() + k * bytes, bytes);
  }
  void put_one(std::size_t index, const value_view& v) override {
    if (is_numeric(v.tag)) {
      const auto width = element_bytes(v.tag);
      const auto numbers = v.bytes.size() / width;
      if (fits(element_of(v.tag), numbers, is_array(v.tag))) {
        if (!v.bytes.empty()) std::memcpy(bytes_.get() + index * v.bytes.size(), v.bytes.data(), v.bytes.size());
        return;
      }
    } else {
      separate_values();
    }
    values_[index] = any_value(v);
  }

  /// An array of (keys,) or (keys, numbers), or a list.
  [[nodiscard]] nb::object result() const {
    if (separate_) {
      nb::list all;
      for (const auto& v : values_) all.append(to_python(v));
      return all;
    }
    if (element_ == value_tag::none) return array_of(value_tag::f64, new_bytes(0), std::vector<std::size_t>{0});
    std::vector<std::size_t> shape{keys_};
    if (arrays_) shape.push_back(numbers_);
    return array_of(element_, bytes_, shape);
  }
  [[nodiscard]] nb::dict found(const std::vector<std::string>& keys) const {
    nb::dict all;
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (values_[i].tag != value_tag::none) all[keys[i].c_str()] = to_python(values_[i]);
    return all;
  }

 private:
  bool fits(value_tag element, std::size_t numbers, bool arrays) {
    if (separate_) return false;
    if (element_ == value_tag::none) {
      element_ = element;
      numbers_ = numbers;
      arrays_ = arrays;
      bytes_ = new_bytes(keys_ * numbers * element_bytes(element));
      return true;
    }
    if (element_ == element && numbers_ == numbers && arrays_ == arrays) return true;
    separate_values();
    return false;
  }
  /// From now on each value is stored for itself. Those that have not arrived get their contents later.
  void separate_values() {
    if (separate_) return;
    separate_ = true;
    values_.resize(keys_);
    if (element_ == value_tag::none) return;
    const auto bytes = numbers_ * element_bytes(element_);
    const auto tag = arrays_ ? static_cast<value_tag>(static_cast<unsigned>(element_) | 0x10U) : element_;
    for (std::size_t k = 0; k < keys_; ++k) values_[k] = any_value(value_view{tag, {bytes_.get() + k * bytes, bytes}});
    bytes_.reset();
  }

  value_tag element_ = value_tag::none;
  std::size_t numbers_ = 0;
  bool arrays_ = false;
  shared_bytes bytes_;
  bool separate_ = false;
  std::vector<any_value> values_;
};

/// Values for n keys: rows of an array, or a list of anything.
class given_values {
 public:
  given_values(std::size_t keys, nb::handle from) {
    const bool numbers = nb::ndarray_check(from) && !PyBytes_Check(from.ptr());
    if (numbers) {
      rows_ = numbers_of(from, "the values");
      const auto n = rows_.count();
      if (rows_.shape.empty() || (keys == 0 ? n != 0 : n % keys != 0 || n == 0) ||
          (rows_.shape.size() > 1 && rows_.shape[0] != keys))
        throw error("a call on " + std::to_string(keys) + " keys got " + std::to_string(n) + " numbers");
      const auto each = keys == 0 ? 1 : n / keys;
      source_.tag = each == 1 && rows_.shape.size() == 1
                        ? rows_.element
                        : static_cast<value_tag>(static_cast<unsigned>(rows_.element) | 0x10U);
      source_.value_bytes = each * element_bytes(rows_.element);
      source_.numbers = rows_.bytes;
      return;
    }
    for (const auto h : from) items_.push_back(value_of(h));
    if (items_.size() != keys)
      throw error("a call on " + std::to_string(keys) + " keys got " + std::to_string(items_.size()) + " values");
    for (const auto& v : items_) views_.push_back(v.view());
    source_.items = views_;
  }
  given_values(const given_values&) = delete;
  given_values& operator=(const given_values&) = delete;

  [[nodiscard]] const set_source& source() const noexcept { return source_; }
  /// One by one, for lists of keys.
  [[nodiscard]] const std::vector<value_view>& views() {
    if (views_.empty() && source_.value_bytes != 0)
      for (std::size_t at = 0; at < source_.numbers.size(); at += source_.value_bytes)
        views_.push_back({source_.tag, source_.numbers.subspan(at, source_.value_bytes)});
    return views_;
  }

 private:
  number_view rows_;
  std::vector<any_value> items_;
  std::vector<value_view> views_;
  set_source source_;
};

struct key_set_object {
  std::shared_ptr<const sharded_keys> keys;
  std::shared_ptr<const std::vector<std::string>> names;
};

/// The keys of a call that takes (keys, values) or a dict of both.
struct given_pairs {
  std::vector<std::string> keys;
  std::unique_ptr<given_values> values;

  given_pairs(nb::handle first, nb::handle second) {
    if (PyDict_Check(first.ptr()) && second.is_none()) {
      const auto d = nb::borrow<nb::dict>(first);
      keys = nb::cast<std::vector<std::string>>(nb::list(d.keys()));
      values = std::make_unique<given_values>(keys.size(), nb::list(d.values()));
    } else {
      keys = nb::cast<std::vector<std::string>>(nb::borrow(first));
      values = std::make_unique<given_values>(keys.size(), second);
    }
  }
};

std::shared_ptr<any_target> target_for(std::size_t keys, bool separate = false) {
  return std::make_shared<any_target>(keys, separate);
}

any_result read_set(self s, const key_set_object& set, out_argument out) {
  if (!out.is_none()) {
    const auto to = writable_numbers_of(out, "out");
    with_type(to.element, [&](auto zero) {
      using number = decltype(zero);
      without_gil([&, &a = s.get()] {
        auto& servers = a.servers();
        (void)servers.finish(
            servers.many().start_set_read(set.keys, set_detail::target(set.names->size(), to.template as<number>())));
      });
    });
    return nb::borrow(out);
  }
  const auto to = target_for(set.names->size());
  without_gil([&, &a = s.get()] { (void)a.servers().finish(a.servers().many().start_set_read(set.keys, to)); });
  return to->result();
}

future_object read_set_async(self s, const key_set_object& set) {
  const auto to = target_for(set.names->size());
  auto request =
      without_gil([&, &a = s.get()] { return a.servers().result_of(a.servers().many().start_set_read(set.keys, to)); });
  return {s.of, std::move(request), to, [to](bool) { return to->result(); }};
}

future_object write_set_async(self s, const key_set_object& set, nb::handle values) {
  const given_values given(set.names->size(), values);
  return {s.of, without_gil([&, &a = s.get()] {
            return a.servers().result_of(a.servers().many().start_set_write(set.keys, given.source()));
          })};
}

void write_set(self s, const key_set_object& set, nb::handle values) {
  auto f = write_set_async(s, set, values);
  (void)f.get();
}

future_object update_set(self s, const key_set_object& set, nb::handle deltas, function_argument function) {
  const given_values given(set.names->size(), deltas);
  const auto f = function_of(function);
  return {s.of, without_gil([&, &a = s.get()] {
            const auto id = a.update_function(f);
            return a.servers().result_of(a.servers().many().start_set_update(set.keys, given.source(), id, true, {}));
          })};
}

any_result bupdate_set(self s, const key_set_object& set, nb::handle deltas, function_argument function, bool get) {
  const given_values given(set.names->size(), deltas);
  const auto f = function_of(function);
  const auto to = get ? target_for(set.names->size()) : nullptr;
  without_gil([&, &a = s.get()] {
    const auto id = a.bupdate_function(f);
    (void)a.servers().finish(a.servers().many().start_set_update(set.keys, given.source(), id, false, to));
  });
  return get ? to->result() : nb::none();
}

any_result read_multi(self s, const std::vector<std::string>& keys, bool skip_missing) {
  const auto to = target_for(keys.size(), skip_missing);
  without_gil([&, &a = s.get()] { a.servers().many().read_multi(keys, *to, !skip_missing); });
  if (skip_missing) return to->found(keys);
  return to->result();
}

future_object read_multi_async(self s, const std::vector<std::string>& keys) {
  const auto to = target_for(keys.size());
  auto request = without_gil(
      [&, &a = s.get()] { return a.servers().result_of(a.servers().many().start_read_multi(keys, to, true)); });
  return {s.of, std::move(request), to, [to](bool) { return to->result(); }};
}

any_result update_multi(self s, pairs_argument keys, nb::handle deltas, function_argument function, bool clocked,
                        bool get) {
  given_pairs given(keys, deltas);
  const auto f = function_of(function);
  const auto to = get ? target_for(given.keys.size()) : nullptr;
  const auto& views = given.values->views();
  without_gil([&, &a = s.get()] {
    const auto id = clocked ? a.update_function(f) : a.bupdate_function(f);
    a.servers().many().update_multi(given.keys, {value_tag::none, 0, {}, views}, id, clocked, to.get());
  });
  return get ? to->result() : nb::none();
}

future_object update_multi_async(self s, pairs_argument keys, nb::handle deltas, function_argument function) {
  given_pairs given(keys, deltas);
  const auto f = function_of(function);
  const auto& views = given.values->views();
  return {s.of, without_gil([&, &a = s.get()] {
            const auto id = a.update_function(f);
            return a.servers().result_of(
                a.servers().many().start_update_multi(given.keys, {value_tag::none, 0, {}, views}, id, true, {}));
          })};
}

void bind_scans(nb::class_<paralg_object>& c) {
  c.def(
      "keys",
      [](self s, const std::string& prefix) {
        return without_gil([&, &a = s.get()] { return a.paracel_keys(prefix); });
      },
      nb::arg("prefix") = "", "The keys that begin with `prefix`, in no particular order.");
  c.def(
      "readall",
      [](self s) {
        const auto all = without_gil([&a = s.get()] { return a.paracel_readall<any_value>(); });
        any_dict d;
        for (const auto& [key, value] : all) d[key.c_str()] = to_python(value);
        return d;
      },
      "All keys and values.");
  c.def(
      "count",
      [](self s, const std::string& prefix) {
        return without_gil([&, &a = s.get()] { return a.paracel_count(prefix); });
      },
      nb::arg("prefix") = "");
  c.def(
      "sum",
      [](self s, const std::string& prefix) {
        return without_gil([&, &a = s.get()] { return a.paracel_sum(prefix); });
      },
      nb::arg("prefix") = "", "The sum of the numbers under the keys with this prefix.");
  c.def(
      "summary",
      [](self s, const std::string& prefix) {
        const auto n = without_gil([&, &a = s.get()] { return a.paracel_summary(prefix); });
        any_dict d;
        d["keys"] = n.keys;
        d["numbers"] = n.numbers;
        d["sum"] = n.sum;
        d["minimum"] = n.minimum;
        d["maximum"] = n.maximum;
        return d;
      },
      nb::arg("prefix") = "");
  c.def(
      "read_topk",
      [](self s, int k) { return without_gil([&, &a = s.get()] { return a.paracel_read_topk<double>(k); }); },
      nb::arg("k"), "The k keys with the largest numbers (float64), the largest first: a list of (key, number).");
  c.def(
      "histogram",
      [](self s, double low, double high, std::size_t bins, const std::string& prefix) {
        auto h = without_gil([&, &a = s.get()] { return a.paracel_histogram(low, high, bins, prefix); });
        return nb::typed<nb::tuple, array_result, std::uint64_t, std::uint64_t>(
            nb::make_tuple(array_of(std::move(h.bins)), h.below, h.above));
      },
      nb::arg("low"), nb::arg("high"), nb::arg("bins"), nb::arg("prefix") = "",
      "Of the numbers under the keys with this prefix: (counts, how many are below, how many above).");
  c.def(
      "read_special",
      [](self s, const std::string& file, const std::string& function) {
        const auto all = without_gil([&, &a = s.get()] { return a.paracel_read_special<any_value>(file, function); });
        any_dict d;
        for (const auto& [key, value] : all) d[key.c_str()] = to_python(value);
        return d;
      },
      nb::arg("file"), nb::arg("function"), "The keys and values that a filter in a plug-in accepts.");
  c.def(
      "remove_special",
      [](self s, const std::string& file, const std::string& function) {
        return without_gil([&, &a = s.get()] { return a.paracel_remove_special(file, function); });
      },
      nb::arg("file"), nb::arg("function"), "Removes what a filter accepts; returns how many keys.");
  c.def(
      "clear", [](self s) { without_gil([&a = s.get()] { a.paracel_clear(); }); },
      "Removes every key of every server.");
}

}  // namespace

void bind_key_sets(nb::class_<paralg_object>& c, nb::module_& m) {
  const auto none = nb::none();
  nb::class_<key_set_object>(m, "KeySet", "A list of keys that the servers know; made by Paralg.prepare.")
      .def("__len__", [](const key_set_object& k) { return k.names->size(); })
      .def_prop_ro("keys", [](const key_set_object& k) { return *k.names; });
  c.def(
      "prepare",
      [](self s, std::vector<std::string> keys) {
        auto names = std::make_shared<const std::vector<std::string>>(keys);
        return key_set_object{without_gil([&, &a = s.get()] { return a.servers().many().prepare(std::move(keys)); }),
                              names};
      },
      nb::arg("keys"), "Sends a list of keys to their servers once; calls on it then send only values.");
  c.def("read", &read_set, nb::arg("keys"), nb::kw_only(), nb::arg("out").none() = none,
        "Of a key set: an array of (keys,) or, of arrays of n numbers, (keys, n); a list if they differ. `out`: an "
        "array that receives the numbers, widened if need be.");
  c.def("read_async", &read_set_async, nb::arg("keys"));
  c.def("write", &write_set, nb::arg("keys"), nb::arg("values"));
  c.def("write_async", &write_set_async, nb::arg("keys"), nb::arg("values"));
  c.def("update", &update_set, nb::arg("keys"), nb::arg("deltas"), nb::kw_only(), nb::arg("function").none() = none);
  c.def(
      "bupdate",
      [](self s, const key_set_object& k, nb::handle d, function_argument f) { (void)bupdate_set(s, k, d, f, false); },
      nb::arg("keys"), nb::arg("deltas"), nb::kw_only(), nb::arg("function").none() = none);
  c.def(
      "bupdate_get",
      [](self s, const key_set_object& k, nb::handle d, function_argument f) { return bupdate_set(s, k, d, f, true); },
      nb::arg("keys"), nb::arg("deltas"), nb::kw_only(), nb::arg("function").none() = none);

  c.def("read_multi", &read_multi, nb::arg("keys"), nb::kw_only(), nb::arg("skip_missing") = false,
        "The values in the order of the keys, as read() of a key set. `skip_missing`: a dict of those that exist.");
  c.def("read_multi_async", &read_multi_async, nb::arg("keys"));
  c.def(
      "write_multi",
      [](self s, pairs_argument keys, nb::handle values) {
        given_pairs given(keys, values);
        const auto& views = given.values->views();
        without_gil([&, &a = s.get()] { a.servers().many().write_multi(given.keys, views); });
      },
      nb::arg("keys"), nb::arg("values").none() = none, "Keys and values, or a dict; one request a shard.");
  c.def(
      "update_multi",
      [](self s, pairs_argument k, nb::handle d, function_argument f) { (void)update_multi(s, k, d, f, true, false); },
      nb::arg("keys"), nb::arg("deltas").none() = none, nb::kw_only(), nb::arg("function").none() = none);
  c.def("update_multi_async", &update_multi_async, nb::arg("keys"), nb::arg("deltas").none() = none, nb::kw_only(),
        nb::arg("function").none() = none);
  c.def(
      "bupdate_multi",
      [](self s, pairs_argument k, nb::handle d, function_argument f) { (void)update_multi(s, k, d, f, false, false); },
      nb::arg("keys"), nb::arg("deltas").none() = none, nb::kw_only(), nb::arg("function").none() = none);
  c.def(
      "bupdate_multi_get",
      [](self s, pairs_argument k, nb::handle d, function_argument f) { return update_multi(s, k, d, f, false, true); },
      nb::arg("keys"), nb::arg("deltas").none() = none, nb::kw_only(), nb::arg("function").none() = none);
  c.def(
      "remove_multi",
      [](self s, const std::vector<std::string>& keys) {
        return without_gil([&, &a = s.get()] { return a.paracel_remove_multi(keys); });
      },
      nb::arg("keys"), "Whether every key existed.");
  bind_scans(c);
}

}  // namespace paracel::py
