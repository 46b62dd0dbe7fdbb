// SPDX-License-Identifier: BSD-3-Clause
//
// com_queue with compute functions, criteria and folds in Python.
#include "queue.hpp"

#include <nanobind/stl/string.h>

#include <utility>

namespace paracel::py {

nb::object call_with(const shared_object& f, com_context& c, nb::handle more) {
  auto made = nb::cast(context_object{&c});
  struct end {
    nb::object& of;
    ~end() { nb::cast<context_object&>(of).c = nullptr; }
  } const ends{made};
  return more.is_valid() ? f.get()(made, more) : f.get()(made);
}

nb::object object_in(com_context& c, const std::string& name) {
  auto& at = c.find(name);
  if (at->type() == typeid(shared_object)) return static_cast<const shared_object*>(at->readable())->get();
  if (at->type() == typeid(queue_detail::restored_object)) {
    const auto& restored = static_cast<const queue_detail::restored_object&>(*at);
    at = std::make_unique<python_object>(to_python(any_value(value_view{restored.tag, restored.bytes})), true);
  }
  return static_cast<const python_object&>(*at).get();
}

reduce_op reduce_op_of(const std::string& name) {
  if (name == "sum") return reduce_op::sum;
  if (name == "max") return reduce_op::max;
  if (name == "min") return reduce_op::min;
  throw nb::value_error(("op is \"" + name + "\", want \"sum\", \"max\", \"min\" or a function").c_str());
}

collectives::byte_fold fold_of(nb::callable f, value_tag element) {
  return [call = shared_object(std::move(f)), element](std::span<std::byte> into, std::span<const std::byte> from) {
    with_gil([&] {
      const std::size_t count = into.size() / element_bytes(element);
      const auto array = [&](std::span<const std::byte> bytes) {
        return array_of(element, any_value(value_view{element, bytes}).bytes, std::span(&count, 1));
      };
      const auto result = numbers_of(call.get()(array(into), array(from)), "what a fold returns", element);
      if (result.bytes.size() != into.size())
        throw nb::value_error(
            ("a fold of " + std::to_string(count) + " numbers returned " + std::to_string(result.count())).c_str());
      std::memcpy(into.data(), result.bytes.data(), into.size());
    });
  };
}

namespace {

void add_all_reduce(queue_object& q, const std::string& name, fold_argument op, const std::string& length,
                    dtype_argument dtype) {
  q.has_items = true;
  if (PyUnicode_Check(op.ptr())) {
    const auto how = reduce_op_of(nb::cast<std::string>(nb::borrow(op)));
    q.get().add(length.empty() ? all_reduce(name, how) : all_reduce(name, length, how));
    return;
  }
  const auto element = element_named(dtype);
  q.get().add(all_reduce_with(name, length, {element, reduce_op::sum, fold_of(nb::borrow<nb::callable>(op), element)}));
}

void add_broadcast_data(queue_object& q, const std::string& name, nb::handle value) {
  if (q.has_items) throw error("init_with_broadcast_data after add: want it before");
  q.get().add(queue_item(
      "init_with_broadcast_data(\"" + name + "\")", [name, first = value_of(value)](com_context& c, collectives& all) {
        if (c.step_no() != 1) return;
        auto copy = first;
        all.broadcast_object(copy, 0, name);
        with_gil([&] { c.put_object(name, std::make_unique<python_object>(to_python(copy), true)); });
      }));
}

any_result execute(queue_object& q) {
  auto& queue = q.get();
  if (!q.returns) {
    without_gil([&] { queue.exec(); });
    return nb::none();
  }
  return to_python(without_gil([&] { return queue.exec<any_value>(); }));
}

nb::dict report_of(const superstep_report& r) {
  nb::dict d;
  d["step"] = r.step;
  d["seconds"] = r.seconds;
  d["computing"] = r.computing;
  d["waiting"] = r.waiting;
  d["folding"] = r.folding;
  d["chunks_given"] = r.chunks_given;
  d["chunks_taken"] = r.chunks_taken;
  nb::dict metrics;
  for (const auto& [name, value] : r.metrics) metrics[name.c_str()] = value;
  d["metrics"] = metrics;
  return d;
}

void bind_context(nb::module_& m) {
  nb::class_<context_object>(m, "ComContext", "What a function of a ComQueue sees.")
      .def_prop_ro("task_id", [](context_object& c) { return c.get().task_id(); })
      .def_prop_ro("num_task", [](context_object& c) { return c.get().num_task(); })
      .def_prop_ro(
          "step_no", [](context_object& c) { return c.get().step_no(); }, "The superstep: 1, 2, ...")
      .def(
          "get_obj", [](context_object& c, const std::string& name) { return any_result(object_in(c.get(), name)); },
          nb::arg("name"), "The object of that name. An array is the stored one: changes of its elements stay.")
      .def(
          "put_obj",
          [](context_object& c, const std::string& name, nb::handle value) {
            c.get().put_object(name, std::make_unique<python_object>(value, true));
          },
          nb::arg("name"), nb::arg("value").none(), "Stores a copy of an array, a number or another value.")
      .def(
          "put_local",
          [](context_object& c, const std::string& name, nb::handle value) {
            c.get().put_object(name, std::make_unique<python_object>(value, false));
          },
          nb::arg("name"), nb::arg("value").none(), "The same for any object, which checkpoints do not include.")
      .def(
          "contains_obj", [](context_object& c, const std::string& name) { return c.get().contains_obj(name); },
          nb::arg("name"))
      .def(
          "remove_obj", [](context_object& c, const std::string& name) { c.get().remove_obj(name); }, nb::arg("name"))
      .def(
          "set_metric",
          [](context_object& c, const std::string& name, double value) { c.get().set_metric(name, value); },
          nb::arg("name"), nb::arg("value"), "A number shown as progress of this superstep.");
}

}  // namespace

void bind_queue(nb::module_& m) {
  using queue = queue_object;
  bind_context(m);
  nb::class_<queue> bound(
      m, "ComQueue",
      "The iterative communication queue (doc/com_queue.md): compute functions and collectives, repeated "
      "as supersteps. "
      "Every worker builds the same queue and calls exec.\n\n"
      R"(Examples
--------
The mean of all workers' numbers:

>>> import numpy as np
>>> import paracel
>>> queue = paracel.ComQueue(paracel.Paralg())
>>> queue.init_with_partitioned_data("mine", np.array([1.0, 2.0, 6.0]))
>>> queue.add(lambda c: c.put_obj("sums", np.array([c.get_obj("mine").sum(), len(c.get_obj("mine"))])))
>>> queue.all_reduce("sums")
>>> queue.set_max_iter(1)
>>> queue.close_with(lambda c: c.get_obj("sums")[0] / c.get_obj("sums")[1])
>>> queue.exec()
3.0
)");
  bound
      .def(
          "__init__",
          [](queue* to, paralg_object& p) {
            (void)p.get();
            check_caller();
            new (to) queue(p.of);
          },
          nb::arg("paralg"))
      .def(
          "init_with_partitioned_data",
          [](queue& q, const std::string& name, nb::object rows) {
            q.get().init_with_partitioned_data(name, shared_object(std::move(rows)));
          },
          nb::arg("name"), nb::arg("rows"), "This worker's own data, of any kind, for get_obj.")
      .def("init_with_broadcast_data", &add_broadcast_data, nb::arg("name"), nb::arg("value").none(),
           "Worker 0's value, on every worker when a run begins. Before add.")
      .def(
          "add",
          [](queue& q, compute_function f) {
            q.has_items = true;
            q.get().add(
                [call = shared_object(std::move(f))](com_context& c) { with_gil([&] { (void)call_with(call, c); }); });
          },
          nb::arg("f"), "A compute function f(context), called once per superstep on every worker.")
      .def("all_reduce", &add_all_reduce, nb::arg("name"), nb::arg("op") = "sum", nb::kw_only(), nb::arg("length") = "",
           nb::arg("dtype") = "float64",
           "Folds the workers' arrays of this name element by element: \"sum\", \"max\", \"min\", or a function "
           "fold(accumulator, contribution) -> array, called with pieces of the arrays, whose type `dtype` is. "
           "`length`: "
           "the name of an integer; only so many leading elements are folded.")
      .def(
          "reduce_scatter",
          [](queue& q, const std::string& name, const std::string& op) {
            q.has_items = true;
            q.get().add(reduce_scatter(name, reduce_op_of(op)));
          },
          nb::arg("name"), nb::arg("op") = "sum")
      .def(
          "all_gather",
          [](queue& q, const std::string& name) {
            q.has_items = true;
            q.get().add(all_gather(name));
          },
          nb::arg("name"), "Every worker's array becomes the concatenation of all.")
      .def(
          "broadcast",
          [](queue& q, const std::string& name, std::size_t root) {
            q.has_items = true;
            q.get().add(broadcast(name, root));
          },
          nb::arg("name"), nb::arg("root") = 0)
      .def(
          "set_compare_criterion_of_node0",
          [](queue& q, compute_function f) {
            q.get().set_compare_criterion_of_node0([call = shared_object(std::move(f))](com_context& c) {
              return with_gil([&] { return PyObject_IsTrue(call_with(call, c).ptr()) == 1; });
            });
          },
          nb::arg("f"), "f(context) -> bool after each superstep, on worker 0; true ends the run everywhere.")
      .def(
          "set_max_iter", [](queue& q, int n) { q.get().set_max_iter(n); }, nb::arg("n"))
      .def(
          "close_with",
          [](queue& q, compute_function f) {
            q.returns = true;
            q.get().close_with([call = shared_object(std::move(f))](com_context& c) {
              return with_gil([&] { return value_of(call_with(call, c)); });
            });
          },
          nb::arg("f"), "f(context) in the last superstep; worker 0's value is the result of exec everywhere.")
      .def(
          "close_each_with",
          [](queue& q, compute_function f) {
            q.returns = true;
            q.get().close_each_with([call = shared_object(std::move(f))](com_context& c) {
              return with_gil([&] { return value_of(call_with(call, c)); });
            });
          },
          nb::arg("f"), "The same; exec returns on each worker what its own call returned.")
      .def(
          "set_watch",
          [](queue& q, nb::typed<nb::callable, nb::object(any_dict)> f) {
            q.get().set_watch([call = shared_object(std::move(f))](const superstep_report& r) {
              with_gil([&] { call.get()(report_of(r)); });
            });
          },
          nb::arg("f"), "f(report: dict) after each superstep, on worker 0.")
      .def("exec", &execute, "Runs the queue from the beginning; returns the result of close_with.")
      .def_prop_ro(
          "steps", [](queue& q) { return q.get().steps(); }, "Supersteps of the last run.");
  bind_queue_steps(bound, m);
}

}  // namespace paracel::py
