// SPDX-License-Identifier: BSD-3-Clause
//
// paracel::array and paracel::table.
#include <paracel/array.hpp>
#include <paracel/table.hpp>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>
#include <variant>

#include "job.hpp"

namespace paracel::py {

namespace {

/// One of the four element types of a template, which lives at most as long as its job.
template <template <class> class Of>
class typed_part : public job::part {
 public:
  using any = std::variant<std::monostate, Of<double>, Of<float>, Of<std::int64_t>, Of<std::int32_t>>;

  typed_part(std::shared_ptr<job> of, value_tag element) : of_(std::move(of)), element_(element) {}
  typed_part(typed_part&& other) noexcept
      : of_(other.of_), element_(other.element_), object_(std::exchange(other.object_, std::monostate())) {
    of_->enter(this);
  }
  typed_part& operator=(typed_part&&) = delete;
  ~typed_part() override {
    of_->remove(this);
    drop();
  }
  void drop() override { object_ = std::monostate(); }

  template <class... A>
  void open(A&&... arguments) {
    with_type(element_,
              [&](auto zero) { object_.template emplace<Of<decltype(zero)>>(std::forward<A>(arguments)...); });
    of_->enter(this);
  }
  /// f(object) without the GIL.
  template <class F>
  decltype(auto) use(F&& f) {
    (void)of_->get();
    return with_type(element_, [&](auto zero) -> decltype(auto) {
      auto& object = std::get<Of<decltype(zero)>>(object_);
      return without_gil([&]() -> decltype(auto) { return f(object, zero); });
    });
  }
  [[nodiscard]] value_tag element() const noexcept { return element_; }
  [[nodiscard]] const std::shared_ptr<job>& of() const noexcept { return of_; }

 private:
  std::shared_ptr<job> of_;
  value_tag element_;
  any object_;
};

using array_object = typed_part<array>;
using table_object = typed_part<table>;

number_view new_numbers(value_tag element, std::vector<std::size_t> shape, shared_bytes& bytes) {
  number_view v;
  v.element = element;
  std::size_t n = 1;
  for (const auto s : shape) n *= s;
  bytes = new_bytes(n * element_bytes(element));
  v.bytes = {bytes.get(), n * element_bytes(element)};
  v.shape = std::move(shape);
  return v;
}

number_view given_out(nb::handle out, value_tag element, std::size_t count) {
  auto v = writable_numbers_of(out, "out");
  if (v.element != element) throw nb::type_error((std::string("out: want ") + dtype_name(element)).c_str());
  if (v.count() != count)
    throw error("out has " + std::to_string(v.count()) + " elements, want " + std::to_string(count));
  return v;
}

// ---- arrays

array_result read_array(array_object& a, std::size_t first, argument<"int"> count, out_argument out) {
  const auto size = a.use([](auto& x, auto) { return x.size(); });
  const auto n = count.is_none() ? size - std::min(first, size) : nb::cast<std::size_t>(count);
  shared_bytes bytes;
  const auto to = out.is_none() ? new_numbers(a.element(), {n}, bytes) : given_out(out, a.element(), n);
  a.use([&](auto& x, auto zero) { x.read(first, to.template as<decltype(zero)>()); });
  return out.is_none() ? array_of(to.element, bytes, to.shape) : nb::borrow(out);
}

array_result read_array_at(array_object& a, array_argument at) {
  const auto indices = indices_of(at, "indices");
  shared_bytes bytes;
  const auto to = new_numbers(a.element(), {indices.size()}, bytes);
  a.use([&](auto& x, auto zero) {
    x.read_at(std::span<const std::uint64_t>(indices), to.template as<decltype(zero)>());
  });
  return array_of(to.element, bytes, to.shape);
}

template <class T>
std::span<const T> const_numbers(const number_view& v) {
  return v.as<const T>();
}

future_object update_array(array_object& a, array_argument deltas, std::size_t first, function_argument function) {
  const auto d = numbers_of(deltas, "the deltas", a.element());
  const auto f = function_of(function);
  return {a.of(), a.use([&](auto& x, auto zero) {
            const auto numbers = const_numbers<decltype(zero)>(d);
            return first == 0 && numbers.size() == x.size() ? x.update(numbers, f) : x.update(first, numbers, f);
          })};
}

void bind_array(nb::module_& m) {
  const auto none = nb::none();
  nb::class_<array_object>(m, "Array",
                           "A vector of numbers over all servers: Array(paralg, name, size, dtype=\"float64\", "
                           "first=0). Every worker passes "
                           "the same arguments; the first one creates it.\n\n"
                           R"(Examples
--------
>>> import paracel
>>> job = paracel.Paralg()
>>> array = paracel.Array(job, "theta", 5, first=1.0)
>>> array.bupdate([0.5, 0.5], first=3)
>>> array.read()
array([1. , 1. , 1. , 1.5, 1.5])
>>> array.read_at([4, 0])
array([1.5, 1. ])
)")
      .def(
          "__init__",
          [](array_object* to, paralg_object& p, const std::string& name, std::size_t size, dtype_argument dtype,
             double first) {
            (void)p.get();
            auto made = std::make_unique<array_object>(p.of, element_named(dtype));
            with_type(made->element(), [&](auto zero) {
              without_gil([&] { made->open(p.get(), name, size, static_cast<decltype(zero)>(first)); });
            });
            new (to) array_object(std::move(*made));
          },
          nb::arg("paralg"), nb::arg("name"), nb::arg("size"), nb::arg("dtype") = "float64", nb::arg("first") = 0.0)
      .def("__len__", [](array_object& a) { return a.use([](auto& x, auto) { return x.size(); }); })
      .def_prop_ro("name", [](array_object& a) { return a.use([](auto& x, auto) { return std::string(x.name()); }); })
      .def_prop_ro("dtype", [](array_object& a) { return dtype_name(a.element()); })
      .def("read", &read_array, nb::arg("first") = 0, nb::arg("count").none() = none, nb::kw_only(),
           nb::arg("out").none() = none, "The elements from `first` on, as an array of its own or in `out`.")
      .def("read_at", &read_array_at, nb::arg("indices"), "The elements at these indices.")
      .def(
          "write",
          [](array_object& a, array_argument values, std::size_t first) {
            const auto v = numbers_of(values, "the values", a.element());
            a.use([&](auto& x, auto zero) { x.write(first, const_numbers<decltype(zero)>(v)); });
          },
          nb::arg("values"), nb::arg("first") = 0)
      .def(
          "fill",
          [](array_object& a, double value) {
            a.use([&](auto& x, auto zero) { x.fill(static_cast<decltype(zero)>(value)); });
          },
          nb::arg("value"))
      .def("update", &update_array, nb::arg("deltas"), nb::arg("first") = 0, nb::kw_only(),
           nb::arg("function").none() = none, "As Paralg.update, from element `first` on.")
      .def(
          "update_at",
          [](array_object& a, array_argument at, array_argument deltas, function_argument function) {
            const auto indices = indices_of(at, "indices");
            const auto d = numbers_of(deltas, "the deltas", a.element());
            const auto f = function_of(function);
            return future_object(a.of(), a.use([&](auto& x, auto zero) {
              return x.update_at(std::span<const std::uint64_t>(indices), const_numbers<decltype(zero)>(d), f);
            }));
          },
          nb::arg("indices"), nb::arg("deltas"), nb::kw_only(), nb::arg("function").none() = none,
          "A repeated index is applied repeatedly.")
      .def(
          "bupdate",
          [](array_object& a, array_argument deltas, std::size_t first, function_argument function) {
            const auto d = numbers_of(deltas, "the deltas", a.element());
            const auto f = function_of(function);
            a.use([&](auto& x, auto zero) { x.bupdate(first, const_numbers<decltype(zero)>(d), f); });
          },
          nb::arg("deltas"), nb::arg("first") = 0, nb::kw_only(), nb::arg("function").none() = none)
      .def(
          "bupdate_at",
          [](array_object& a, array_argument at, array_argument deltas, function_argument function) {
            const auto indices = indices_of(at, "indices");
            const auto d = numbers_of(deltas, "the deltas", a.element());
            const auto f = function_of(function);
            a.use([&](auto& x, auto zero) {
              x.bupdate_at(std::span<const std::uint64_t>(indices), const_numbers<decltype(zero)>(d), f);
            });
          },
          nb::arg("indices"), nb::arg("deltas"), nb::kw_only(), nb::arg("function").none() = none)
      .def(
          "remove", [](array_object& a) { a.use([](auto& x, auto) { x.remove(); }); },
          "Removes it from the servers; no worker may use it afterwards.");
}

// ---- tables

/// Rows of a call: numbers, or names.
struct row_list {
  std::vector<std::uint64_t> ids;
  std::vector<std::string> names;
  bool named = false;

  explicit row_list(nb::handle from) {
    named = PyList_Check(from.ptr()) && nb::len(from) != 0 && PyUnicode_Check(nb::object(from[0]).ptr());
    if (named) names = nb::cast<std::vector<std::string>>(nb::borrow(from));
    else ids = indices_of(from, "rows");
  }
  [[nodiscard]] std::size_t size() const noexcept { return named ? names.size() : ids.size(); }
  template <class F>
  decltype(auto) with(F&& f) const {
    return named ? f(std::span<const std::string>(names)) : f(std::span<const std::uint64_t>(ids));
  }
};

row_init init_of(nb::handle from) {
  if (from.is_none()) return row_init::zeros();
  if (PyFloat_Check(from.ptr()) || PyLong_Check(from.ptr())) return row_init::constant(nb::cast<double>(from));
  const auto t = nb::cast<nb::tuple>(nb::borrow(from));
  const auto kind = nb::len(t) == 4 ? nb::cast<std::string>(nb::borrow(t[0])) : std::string();
  if (kind != "uniform" && kind != "normal")
    throw nb::value_error("init: want a number, (\"uniform\", low, high, seed) or (\"normal\", mean, sd, seed)");
  const auto a = nb::cast<double>(t[1]);
  const auto b = nb::cast<double>(t[2]);
  const auto seed = nb::cast<std::uint64_t>(t[3]);
  return kind == "uniform" ? row_init::uniform(a, b, seed) : row_init::normal(a, b, seed);
}

wire_format format_named(const std::string& name) {
  if (name == "full") return wire_format::full;
  if (name == "f16") return wire_format::f16;
  if (name == "i8") return wire_format::i8;
  throw nb::value_error(("wire: found \"" + name + "\", want \"full\", \"f16\" or \"i8\"").c_str());
}

std::size_t width_of(table_object& t) {
  return t.use([](auto& x, auto) { return x.width(); });
}

array_result pull(table_object& t, array_argument rows, out_argument out) {
  const row_list r(rows);
  shared_bytes bytes;
  const auto width = width_of(t);
  const auto to = out.is_none() ? new_numbers(t.element(), {r.size(), width}, bytes)
                                : given_out(out, t.element(), r.size() * width);
  t.use([&](auto& x, auto zero) { r.with([&](auto names) { x.pull(names, to.template as<decltype(zero)>()); }); });
  return out.is_none() ? array_of(to.element, bytes, to.shape) : nb::borrow(out);
}

future_object pull_async(table_object& t, array_argument rows) {
  struct target {
    shared_bytes bytes;
    number_view to;
  };
  const row_list r(rows);
  auto kept = std::make_shared<target>();
  kept->to = new_numbers(t.element(), {r.size(), width_of(t)}, kept->bytes);
  auto request = t.use([&](auto& x, auto zero) {
    return r.with([&](auto names) { return x.pull_async(names, kept->to.template as<decltype(zero)>()); });
  });
  return {t.of(), std::move(request), kept,
          [kept](bool) { return array_of(kept->to.element, kept->bytes, kept->to.shape); }};
}

enum class change { push, update, bupdate };

template <change How>
void change_rows(table_object& t, array_argument rows, array_argument values) {
  const row_list r(rows);
  const auto v = numbers_of(values, "the rows", t.element());
  t.use([&](auto& x, auto zero) {
    const auto numbers = const_numbers<decltype(zero)>(v);
    r.with([&](auto names) {
      if constexpr (How == change::push) x.push(names, numbers);
      else if constexpr (How == change::update) x.update(names, numbers);
      else x.bupdate(names, numbers);
    });
  });
}

nb::typed<nb::tuple, array_result, array_result> rows_by_id(table_object& t) {
  std::vector<std::uint64_t> ids;
  std::vector<std::byte> bytes;
  const auto width = width_of(t);
  t.use([&](auto& x, auto zero) {
    x.for_each([&](std::uint64_t id, std::span<const decltype(zero)> row) {
      ids.push_back(id);
      const auto raw = std::as_bytes(row);
      bytes.insert(bytes.end(), raw.begin(), raw.end());
    });
  });
  const std::vector<std::size_t> shape{ids.size(), width};
  const any_value copy(value_view{t.element(), bytes});
  return nb::make_tuple(array_of(std::move(ids)), array_of(t.element(), copy.bytes, shape));
}

void bind_table(nb::module_& m) {
  const auto none = nb::none();
  nb::class_<table_object>(
      m, "Table",
      "Rows of `width` numbers by number or name, made on first touch: Table(paralg, name, width, dtype=\"float32\", "
      "init=(\"uniform\", -0.1, 0.1, seed), optimizer=(file, function, {hyper-parameter: number}), wire=\"full\"). "
      "`wire`: how pulls and updates of floats travel, as \"f16\" or \"i8\" in fewer bytes (doc/parameters.md).\n\n"
      R"(Examples
--------
>>> import numpy as np
>>> import paracel
>>> job = paracel.Paralg()
>>> sgd = paracel.function("libparacel_default.so", "paracel_sgd", lr=0.5)
>>> table = paracel.Table(job, "items", 2, optimizer=sgd)
>>> table.bupdate([7, 9], np.ones((2, 2)))
>>> table.pull([9, 1])
array([[-0.5, -0.5],
       [ 0. ,  0. ]], dtype=float32)
)")
      .def(
          "__init__",
          [](table_object* to, paralg_object& p, const std::string& name, std::size_t width, dtype_argument dtype,
             init_argument init, function_argument optimizer, const std::string& wire) {
            const auto first = init_of(init);
            const table_options options{.wire = format_named(wire)};
            const auto f = function_of(optimizer);
            (void)p.get();
            auto made = std::make_unique<table_object>(p.of, element_named(dtype));
            without_gil([&] { made->open(p.get(), name, width, first, f, options); });
            new (to) table_object(std::move(*made));
          },
          nb::arg("paralg"), nb::arg("name"), nb::arg("width"), nb::arg("dtype") = "float32",
          nb::arg("init").none() = none, nb::arg("optimizer").none() = none, nb::kw_only(), nb::arg("wire") = "full")
      .def("__len__", [](table_object& t) { return t.use([](auto& x, auto) { return x.size(); }); })
      .def_prop_ro("width", &width_of)
      .def_prop_ro("dtype", [](table_object& t) { return dtype_name(t.element()); })
      .def("pull", &pull, nb::arg("rows"), nb::kw_only(), nb::arg("out").none() = none,
           "The rows, an array of (rows, width). `rows`: numbers, or a list of names.")
      .def("pull_async", &pull_async, nb::arg("rows"))
      .def("push", &change_rows<change::push>, nb::arg("rows"), nb::arg("values"),
           "Sets rows; their optimizer's state is reset.")
      .def("update", &change_rows<change::update>, nb::arg("rows"), nb::arg("deltas"),
           "Adds, or steps the optimizer; returns once it is sent. Repeated rows are summed first.")
      .def("bupdate", &change_rows<change::bupdate>, nb::arg("rows"), nb::arg("deltas"))
      .def(
          "flush", [](table_object& t) { t.use([](auto& x, auto) { x.flush(); }); },
          "Sends what updates as f16 or i8 have kept back, in full precision, as one more update.")
      .def(
          "residuals",
          [](table_object& t) {
            const auto text = t.use([](auto& x, auto) { return x.residuals(); });
            return nb::bytes(text.data(), text.size());
          },
          "What updates as f16 or i8 have kept back, for a worker's checkpoint; empty for wire=\"full\".")
      .def(
          "restore_residuals",
          [](table_object& t, const nb::bytes& from) {
            const std::string_view text(from.c_str(), from.size());
            t.use([&](auto& x, auto) { x.restore_residuals(text); });
          },
          nb::arg("residuals"), "What `residuals` has returned, before the first update.")
      .def(
          "remove",
          [](table_object& t, array_argument rows) {
            const row_list r(rows);
            return t.use([&](auto& x, auto) { return r.with([&](auto names) { return x.remove(names); }); });
          },
          nb::arg("rows"), "How many existed.")
      .def("rows", &rows_by_id, "(ids, rows): all rows by number, in no particular order.");
}

}  // namespace

void bind_arrays(nb::module_& m) {
  bind_array(m);
  bind_table(m);
}

}  // namespace paracel::py
