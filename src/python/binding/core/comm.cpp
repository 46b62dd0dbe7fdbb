// SPDX-License-Identifier: BSD-3-Clause
//
// Comm: collectives and messages between workers.
#include <paracel/comm.hpp>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <utility>

#include "job.hpp"

namespace paracel::py {

namespace {

struct comm_object {
  std::shared_ptr<job> of;  // null: all workers, without a Paralg
  Comm comm;
  int environment_number = environment::number();

  [[nodiscard]] Comm& get() {
    if (of != nullptr) (void)of->get();
    else if (!environment::entered() || environment_number != environment::number())
      throw error("this process has left the job");
    return comm;
  }
};

using any_list = nb::typed<nb::list, any_result>;

reduce_op op_of(const std::string& name) {
  if (name == "sum") return reduce_op::sum;
  if (name == "max") return reduce_op::max;
  if (name == "min") return reduce_op::min;
  throw nb::value_error(("op is \"" + name + "\", want \"sum\", \"max\" or \"min\"").c_str());
}

any_result allreduce(comm_object& c, array_argument data, const std::string& op, bool in_place) {
  const auto how = op_of(op);
  shared_bytes bytes;
  auto v = in_place ? writable_numbers_of(data, "data") : numbers_of(data, "data");
  if (!in_place) {
    bytes = new_bytes(v.bytes.size());
    if (!v.bytes.empty()) std::memcpy(bytes.get(), v.bytes.data(), v.bytes.size());
    v.bytes = {bytes.get(), v.bytes.size()};
  }
  with_type(v.element, [&](auto zero) {
    auto numbers = v.as<decltype(zero)>();
    without_gil([&, &comm = c.get()] { comm.allreduce(numbers, how); });
  });
  if (in_place) return nb::borrow(data);
  if (!v.shape.empty()) return array_of(v.element, bytes, v.shape);
  return to_python(any_value(value_view{v.element, v.bytes}));
}

any_result bcast(comm_object& c, nb::handle data, std::size_t root) {
  any_value v;
  const bool is_root = c.get().get_rank() == root;
  if (is_root) v = value_of(data);
  without_gil([&, &comm = c.get()] { comm.bcast(v, root); });
  return is_root ? nb::borrow(data) : to_python(v);
}

any_list list_of(const std::vector<any_value>& all) {
  any_list l;
  for (const auto& v : all) l.append(to_python(v));
  return l;
}

any_list allgather(comm_object& c, nb::handle data) {
  const auto mine = value_of(data);
  return list_of(without_gil([&, &comm = c.get()] { return comm.allgather(mine); }));
}

any_list alltoall(comm_object& c, argument<"collections.abc.Iterable[object]"> blocks) {
  std::vector<any_value> out, in;
  for (const auto b : blocks) out.push_back(value_of(b));
  if (out.size() != c.get().get_size())
    throw error("alltoall got " + std::to_string(out.size()) + " blocks, want one for each of " +
                std::to_string(c.get().get_size()) + " workers");
  without_gil([&, &comm = c.get()] { comm.alltoall(out, in); });
  return list_of(in);
}

nb::typed<nb::tuple, any_result, int, int> recv(comm_object& c, int source, int tag) {
  any_value v;
  const auto status = without_gil([&, &comm = c.get()] { return comm.recv(v, source, tag); });
  return nb::make_tuple(to_python(v), status.MPI_SOURCE, status.MPI_TAG);
}

}  // namespace

void bind_comm(nb::class_<paralg_object>& c, nb::module_& m) {
  const auto none = nb::none();
  m.attr("any_source") = any_source;
  m.attr("any_tag") = any_tag;
  nb::class_<comm_object>(m, "Comm",
                          "The workers of the job. Every worker calls the same collectives in the same order; data: "
                          "numbers, arrays, str, bytes, lists, tuples and dicts of them.")
      .def("__init__",
           [](comm_object* to) {
             environment::enter();
             auto comm = without_gil([] { return Comm(); });
             new (to) comm_object{nullptr, std::move(comm)};
           })
      .def_prop_ro("rank", [](comm_object& o) { return o.get().get_rank(); })
      .def_prop_ro("size", [](comm_object& o) { return o.get().get_size(); })
      .def(
          "synchronize", [](comm_object& o) { without_gil([&a = o.get()] { a.synchronize(); }); }, "A barrier.")
      .def("allreduce", &allreduce, nb::arg("data"), nb::arg("op") = "sum", nb::kw_only(), nb::arg("in_place") = false,
           "A number or an array, folded element by element in rank order: \"sum\", \"max\" or \"min\". A new array, "
           "unless `in_place`.")
      .def("bcast", &bcast, nb::arg("data").none() = none, nb::arg("root") = 0, "Root's value; the others' is ignored.")
      .def("allgather", &allgather, nb::arg("data").none(), "Every worker's value, by rank.")
      .def("alltoall", &alltoall, nb::arg("blocks"),
           "blocks[r] goes to rank r; returns what rank r sent here, by rank.")
      .def(
          "send",
          [](comm_object& o, nb::handle data, int dest, int tag) {
            const auto v = value_of(data);
            without_gil([&, &a = o.get()] { a.send(v, dest, tag); });
          },
          nb::arg("data").none(), nb::arg("dest"), nb::arg("tag") = 0,
          "Blocks only when 256 MiB are in flight to that rank.")
      .def("recv", &recv, nb::arg("source") = any_source, nb::arg("tag") = any_tag,
           "Waits for a message: (value, source, tag).")
      .def(
          "split",
          [](comm_object& o, int color) {
            return comm_object{o.of, without_gil([&, &a = o.get()] { return a.split(color); })};
          },
          nb::arg("color"), "A communicator of the workers that pass the same color; a collective.");
  c.def_prop_ro(
      "comm",
      [](paralg_object& p) {
        return comm_object{p.of, p.get().get_comm()};
      },
      "The workers of the job.");
}

}  // namespace paracel::py
