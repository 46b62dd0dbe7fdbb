// SPDX-License-Identifier: BSD-3-Clause
//
// Parameters, key by key.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>

#include "job.hpp"
#include "worker/parameters/key_errors.hpp"
#include "worker/parameters/parasrv.hpp"

namespace paracel::py {

namespace {

[[noreturn]] void missing(const std::string& key) { throw key_error("key \"" + key + "\" does not exist"); }

/// Decodes into a given array, or keeps the bytes.
struct read_target {
  any_value value;
  std::optional<number_view> out;
  nb::object array;

  explicit read_target(nb::handle given) {
    if (given.is_none()) return;
    out = writable_numbers_of(given, "out");
    array = nb::borrow(given);
  }
  void put(const value_view& v) {
    if (!out) return decode_into(v, value);
    const bool fits = is_array(v.tag) && v.bytes.size() / element_bytes(v.tag) == out->count() &&
                      with_type(out->element, [&](auto zero) {
                        return codec_detail::widen(v, out->template as<decltype(zero)>().data());
                      });
    if (!fits)
      throw type_error("value is " + codec_detail::describe(v) + " of " + std::to_string(v.bytes.size()) +
                       " bytes, asked for " + std::to_string(out->count()) + " numbers of " + dtype_name(out->element));
  }
  [[nodiscard]] nb::object result() const { return out ? array : to_python(value); }
};

value_sink sink_of(any_value& v) {
  return {&v, [](void* to, const value_view& from) { decode_into(from, *static_cast<any_value*>(to)); }};
}

/// The requests that must be answered first: a future, or a list of them.
std::optional<after> after_of(nb::handle from) {
  if (from.is_none()) return std::nullopt;
  after all{std::vector<async_result>()};
  const auto add = [&](nb::handle h) { all.add(nb::cast<future_object&>(h).request()); };
  if (nb::isinstance<future_object>(from)) add(from);
  else
    for (const auto h : from) add(h);
  return all;
}

using self = paralg_object&;

any_result read(self s, const std::string& key, out_argument out) {
  read_target to(out);
  const bool found = without_gil([&, &a = s.get()] {
    return a.servers().read(key, [&](const value_view& v) { naming_key(key, [&] { to.put(v); }); });
  });
  if (!found) missing(key);
  return to.result();
}

any_result get(self s, const std::string& key, nb::handle otherwise) {
  any_value value;
  const bool found = without_gil([&, &a = s.get()] { return a.paracel_read(key, value); });
  return found ? to_python(value) : nb::borrow(otherwise);
}

future_object read_async(self s, const std::string& key, after_argument follows) {
  auto value = std::make_shared<any_value>();
  const auto first = after_of(follows);
  auto request = without_gil([&, &a = s.get()] {
    auto& servers = a.servers();
    return first ? servers.read_after(*first, key, sink_of(*value))
                 : servers.result_of(servers.start_read(key, sink_of(*value)));
  });
  return {s.of, std::move(request), value, [value, key](bool found) {
            if (!found) missing(key);
            return to_python(*value);
          }};
}

void read_then(self s, const std::string& key, nb::typed<nb::callable, nb::object(any_result)> f) {
  auto call = shared_object(std::move(f));
  without_gil([&, &a = s.get()] {
    a.paracel_read_async<any_value>(
        key, [call = std::move(call)](const any_value& v) { with_gil([&] { call.get()(to_python(v)); }); });
  });
}

void write(self s, const std::string& key, nb::handle value) {
  const auto v = value_of(value);
  without_gil([&, &a = s.get()] { a.paracel_write(key, v); });
}

future_object write_async(self s, const std::string& key, nb::handle value, after_argument follows) {
  const auto v = value_of(value);
  const auto first = after_of(follows);
  return {s.of, without_gil([&, &a = s.get()] {
            return first ? a.paracel_write_async(key, v, *first) : a.paracel_write_async(key, v);
          })};
}

future_object update(self s, const std::string& key, nb::handle delta, function_argument function,
                     after_argument follows) {
  const auto v = value_of(delta);
  const auto f = function_of(function);
  const auto first = after_of(follows);
  if (first && f.given()) throw nb::value_error("update: either a function, or after: after uses the registered one");
  return {s.of, without_gil([&, &a = s.get()] {
            return first ? a.paracel_update(key, v, *first) : a.paracel_update(key, v, f);
          })};
}

future_object update_default(self s, const std::string& key, nb::handle initial, nb::handle delta,
                             function_argument function) {
  const auto i = value_of(initial);
  const auto d = value_of(delta);
  const auto f = function_of(function);
  return {s.of, without_gil([&, &a = s.get()] { return a.paracel_update_default(key, i, d, f); })};
}

void bupdate(self s, const std::string& key, nb::handle delta, function_argument function) {
  const auto v = value_of(delta);
  const auto f = function_of(function);
  without_gil([&, &a = s.get()] { a.paracel_bupdate(key, v, f); });
}

any_result bupdate_get(self s, const std::string& key, nb::handle delta, function_argument function) {
  const auto v = value_of(delta);
  const auto f = function_of(function);
  any_value value;
  without_gil([&, &a = s.get()] { a.paracel_bupdate_get(key, v, value, f); });
  return to_python(value);
}

any_result increase(self s, const std::string& key, nb::handle delta) {
  const auto v = value_of(delta);
  return to_python(without_gil([&, &a = s.get()] { return a.paracel_incr(key, v); }));
}

nb::typed<nb::tuple, any_result, std::uint64_t> read_version(self s, const std::string& key) {
  any_value value;
  const auto version = without_gil([&, &a = s.get()] { return a.paracel_read_version(key, value); });
  return nb::make_tuple(version == 0 ? nb::none() : to_python(value), version);
}

nb::typed<nb::tuple, bool, std::uint64_t> compare_and_set(self s, const std::string& key, std::uint64_t version,
                                                          nb::handle value) {
  const auto v = value_of(value);
  const bool done = without_gil([&, &a = s.get()] { return a.paracel_cas(key, version, v); });
  return nb::make_tuple(done, version);
}

plugin_function named(const std::string& file, const std::string& function, nb::kwargs hyper) {
  return {file, function, nb::cast<hyper_parameters>(nb::borrow(hyper))};
}

void bind_functions(nb::class_<paralg_object>& c) {
  c.def(
      "register_update",
      [](self s, const std::string& file, const std::string& function, nb::kwargs hyper) {
        const auto f = named(file, function, hyper);
        without_gil([&, &a = s.get()] { a.paracel_register_update(f.file_name, f.func_name, f.hyper); });
      },
      nb::arg("file"), nb::arg("function"), nb::arg("hyper"),
      "The function of update() from now on, with its hyper-parameters: register_update(\"libparacel_default.so\", "
      "\"paracel_adagrad\", lr=0.1).");
  c.def(
      "register_bupdate",
      [](self s, const std::string& file, const std::string& function, nb::kwargs hyper) {
        const auto f = named(file, function, hyper);
        without_gil([&, &a = s.get()] { a.paracel_register_bupdate(f.file_name, f.func_name, f.hyper); });
      },
      nb::arg("file"), nb::arg("function"), nb::arg("hyper"), "The same for bupdate().");
}

}  // namespace

void bind_parameters(nb::class_<paralg_object>& c, nb::module_&) {
  const auto none = nb::none();
  c.def("read", &read, nb::arg("key"), nb::kw_only(), nb::arg("out").none() = none,
        "The value: a number, an array of its own, or an object. `out`: an array that receives the numbers instead; "
        "none is allocated. Raises MissingKeyError. A round trip, unless cached.");
  c.def("get", &get, nb::arg("key"), nb::arg("default").none() = none, "The value, or `default`.");
  c.def("read_async", &read_async, nb::arg("key"), nb::kw_only(), nb::arg("after").none() = none,
        "A future of the value. `after`: futures of requests that must be answered first.");
  c.def("read_then", &read_then, nb::arg("key"), nb::arg("f"),
        "Calls f(value) inside wait(), poll(), iter_commit() or sync().");
  c.def("write", &write, nb::arg("key"), nb::arg("value").none(), "Sets the value; waits until the server has it.");
  c.def("write_async", &write_async, nb::arg("key"), nb::arg("value").none(), nb::kw_only(),
        nb::arg("after").none() = none);
  c.def("update", &update, nb::arg("key"), nb::arg("delta").none(), nb::kw_only(), nb::arg("function").none() = none,
        nb::arg("after").none() = none,
        "Applies the update function (addition, unless one is registered or given) in the server; a missing key takes "
        "the delta. Returns at once; the future may be ignored: a failure is then raised by iter_commit or sync.");
  c.def("update_default", &update_default, nb::arg("key"), nb::arg("initial").none(), nb::arg("delta").none(),
        nb::kw_only(), nb::arg("function").none() = none,
        "Writes `initial` if the key does not exist, and updates by `delta` otherwise.");
  c.def("bupdate", &bupdate, nb::arg("key"), nb::arg("delta").none(), nb::kw_only(), nb::arg("function").none() = none,
        "An update that waits until the server has it.");
  c.def("bupdate_get", &bupdate_get, nb::arg("key"), nb::arg("delta").none(), nb::kw_only(),
        nb::arg("function").none() = none, "Updates and returns the new value, in one round trip.");
  c.def("incr", &increase, nb::arg("key"), nb::arg("delta"), "Adds, and returns the new value, of the delta's type.");
  c.def("read_version", &read_version, nb::arg("key"),
        "(value, version), from the server; (None, 0) if the key does not exist.");
  c.def("cas", &compare_and_set, nb::arg("key"), nb::arg("version"), nb::arg("value").none(),
        "Sets the value if it has this version (0: if the key does not exist): (whether it did, the version now).");
  c.def(
      "contains",
      [](self s, const std::string& key) { return without_gil([&, &a = s.get()] { return a.paracel_contains(key); }); },
      nb::arg("key"));
  c.def(
      "remove",
      [](self s, const std::string& key) { return without_gil([&, &a = s.get()] { return a.paracel_remove(key); }); },
      nb::arg("key"), "Whether the key existed.");
  c.def(
      "is_cached", [](self s, const std::string& key) { return s.get().is_cached(key); }, nb::arg("key"));
  c.def(
      "wait",
      [](self s) {
        without_gil([&a = s.get()] { a.paracel_wait(); });
        s.of->all_answered();
      },
      "Waits until all requests are answered and the functions of read_then have run.");
  c.def(
      "poll", [](self s) { return without_gil([&a = s.get()] { return a.paracel_poll(); }); },
      "Processes replies that have arrived; never blocks.");
  bind_functions(c);
}

}  // namespace paracel::py
