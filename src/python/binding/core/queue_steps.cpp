// SPDX-License-Identifier: BSD-3-Clause
//
// Steps of a com_queue that Python defines: communicate, and over_rows with work stealing.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <variant>

#include <paracel/over_rows.hpp>

#include "queue.hpp"

namespace paracel::py {

namespace {

/// The other tasks, as a step of communicate sees them; usable inside it only.
struct tasks_object {
  collectives* all = nullptr;
  [[nodiscard]] collectives& get() const {
    if (all == nullptr) throw error("the tasks of a step are used outside of its function");
    return *all;
  }
};

array_result all_reduce_of(tasks_object& t, array_argument data, const std::string& op) {
  const auto how = reduce_op_of(op);
  auto v = numbers_of(data, "data");
  auto bytes = new_bytes(v.bytes.size());
  if (!v.bytes.empty()) std::memcpy(bytes.get(), v.bytes.data(), v.bytes.size());
  v.bytes = {bytes.get(), v.bytes.size()};
  with_type(v.element, [&](auto zero) {
    const auto numbers = v.as<decltype(zero)>();
    without_gil([&, &all = t.get()] { all.all_reduce(numbers, how); });
  });
  return array_of(v.element, bytes, v.shape);
}

void add_communicate(queue_object& q, nb::typed<nb::callable, nb::object(context_object&, tasks_object&)> f) {
  q.has_items = true;
  q.get().add(communicate([call = shared_object(std::move(f))](com_context& c, collectives& all) {
    with_gil([&] {
      auto tasks = nb::cast(tasks_object{&all});
      struct end {
        nb::object& of;
        ~end() { nb::cast<tasks_object&>(of).all = nullptr; }
      } const ends{tasks};
      (void)call_with(call, c, tasks);
    });
  }));
}

// ---- over_rows

/// What a compute function sees of a chunk; usable inside it only.
struct chunk_object {
  com_context* context = nullptr;
  const std::vector<std::string>* reads = nullptr;
  nb::object rows;
  std::size_t owner = 0;
  std::size_t first_row = 0;

  [[nodiscard]] nb::object get_obj(const std::string& name) const {
    if (context == nullptr) throw error("a chunk of rows is used outside of its function");
    if (std::find(reads->begin(), reads->end(), name) == reads->end())
      throw key_error("\"" + name + "\" is not one of the objects that the step reads");
    return object_in(*context, name);
  }
};

struct rows_work {
  std::string rows;
  std::string result;
  std::vector<std::string> reads;
  shared_object length;  // a number, or a function
  shared_object compute;
  collectives::fold_rule how;
  std::size_t chunks = 64;
  double empty = 0;
};

/// With the GIL: rows [begin, end) of an array, without a copy.
nb::object sliced(const nb::object& rows, owned_range r) {
  return rows[nb::slice(nb::cast(r.begin), nb::cast(r.end), nb::none())];
}

value_tag array_of_tag(value_tag element) {
  return with_type(element, [](auto zero) { return array_tag_of<decltype(zero)>(); });
}

/// Rows for another task: the number of dimensions, their lengths, and the numbers as a value.
byte_vector packed_rows(const nb::object& rows) {
  const auto v = numbers_of(rows, "rows");
  const auto count = static_cast<std::uint64_t>(v.shape.size());
  byte_vector out((1 + v.shape.size()) * sizeof count);
  std::memcpy(out.data(), &count, sizeof count);
  for (std::size_t i = 0; i < v.shape.size(); ++i) {
    const auto n = static_cast<std::uint64_t>(v.shape[i]);
    std::memcpy(out.data() + (1 + i) * sizeof n, &n, sizeof n);
  }
  const auto numbers = collectives::value_bytes(value_view{array_of_tag(v.element), v.bytes});
  out.insert(out.end(), numbers.begin(), numbers.end());
  return out;
}

nb::object unpacked_rows(std::span<const std::byte> packed) {
  std::uint64_t count = 0;
  std::memcpy(&count, packed.data(), sizeof count);
  std::vector<std::size_t> shape(count);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::uint64_t n = 0;
    std::memcpy(&n, packed.data() + (1 + i) * sizeof n, sizeof n);
    shape[i] = n;
  }
  const any_value v(collectives::view_of(packed.subspan((1 + count) * sizeof count)));
  return array_of(element_of(v.tag), v.bytes, shape);
}

/// Calls compute(chunk, result) with an array of its own, whose numbers are the result's.
void compute_chunk(com_context& c, const rows_work& work, nb::object rows, std::size_t owner, std::size_t first,
                   std::span<std::byte> to) {
  const std::size_t count = to.size() / element_bytes(work.how.element);
  const auto numbers = any_value(value_view{work.how.element, to}).bytes;
  auto chunk = nb::cast(chunk_object{&c, &work.reads, std::move(rows), owner, first});
  struct end {
    nb::object& of;
    ~end() { nb::cast<chunk_object&>(of) = chunk_object{}; }
  } const ends{chunk};
  (void)work.compute.get()(chunk, array_of(work.how.element, numbers, std::span(&count, 1)));
  std::memcpy(to.data(), numbers.get(), to.size());
}

void run_over_rows(com_context& c, const rows_work& work, const std::string& what) {
  shared_object rows;
  shared_bytes result;
  std::size_t length = 0;
  chunk_work untyped;
  with_gil([&] {
    rows = shared_object(object_in(c, work.rows));
    untyped.rows = nb::len(rows.get());
    if (untyped.rows != 0) (void)numbers_of(sliced(rows.get(), {0, 1}), "rows");  // refuses what is no array
    const bool is_function = PyCallable_Check(work.length.get().ptr()) != 0;
    length = nb::cast<std::size_t>(is_function ? call_with(work.length, c) : work.length.get());
    result = new_bytes(length * element_bytes(work.how.element));
    with_type(work.how.element, [&](auto zero) {
      std::fill_n(reinterpret_cast<decltype(zero)*>(result.get()), length, static_cast<decltype(zero)>(work.empty));
    });
  });
  untyped.name = what;
  untyped.chunks = work.chunks;
  untyped.how = work.how;
  untyped.inputs = [&] {
    std::vector<chunk_work::input> all;
    for (const auto& name : work.reads) all.push_back({name, digest_of_input(c, name)});
    return all;
  };
  untyped.compute = [&](owned_range r, std::span<std::byte> to) {
    with_gil([&] { compute_chunk(c, work, sliced(rows.get(), r), c.task_id(), r.begin, to); });
  };
  untyped.pack = [&](owned_range r) { return with_gil([&] { return packed_rows(sliced(rows.get(), r)); }); };
  untyped.unpack = [](std::span<const std::byte> packed) -> std::shared_ptr<const void> {
    return with_gil([&] { return std::make_shared<const shared_object>(unpacked_rows(packed)); });
  };
  untyped.compute_of = [&](const void* part, std::size_t owner, owned_range r, std::span<std::byte> to) {
    with_gil([&] { compute_chunk(c, work, static_cast<const shared_object*>(part)->get(), owner, r.begin, to); });
  };
  const std::size_t bytes = length * element_bytes(work.how.element);
  compute_chunks(c, untyped, {result.get(), bytes});
  with_gil([&] {
    c.put_object(work.result, std::make_unique<python_object>(
                                  array_of(work.how.element, result, std::span<const std::size_t>(&length, 1)), true));
  });
}

void add_over_rows(queue_object& q, const std::string& rows, const std::string& result,
                   nb::typed<nb::callable, nb::object(chunk_object&, array_result)> compute, length_argument length,
                   std::vector<std::string> reads, fold_argument op, std::size_t chunks, dtype_argument dtype,
                   double empty) {
  if (chunks == 0) throw config_error("over_rows: found 0 chunks, want 1 or more");
  q.has_items = true;
  rows_work work{
      rows,   result, std::move(reads), shared_object(nb::borrow(length)), shared_object(std::move(compute)), {},
      chunks, empty};
  work.how.element = element_named(dtype);
  if (PyUnicode_Check(op.ptr())) work.how.op = reduce_op_of(nb::cast<std::string>(nb::borrow(op)));
  else work.how.fold = fold_of(nb::borrow<nb::callable>(op), work.how.element);
  const auto what = "over_rows(\"" + rows + "\", \"" + result + "\")";
  q.get().add(
      queue_item(what, [work = std::move(work), what](com_context& c, collectives&) { run_over_rows(c, work, what); }));
}

}  // namespace

void bind_queue_steps(nb::class_<queue_object>& q, nb::module_& m) {
  nb::class_<tasks_object>(m, "ComTasks", "The other workers, as a step of ComQueue.communicate sees them.")
      .def(
          "send",
          [](tasks_object& t, std::size_t to, nb::handle value) {
            const auto v = value_of(value);
            without_gil([&, &all = t.get()] { all.send(to, v); });
          },
          nb::arg("to"), nb::arg("value").none(), "Sends to one worker; does not block.")
      .def(
          "receive",
          [](tasks_object& t, std::size_t from) {
            return any_result(to_python(without_gil([&, &all = t.get()] { return all.receive<any_value>(from); })));
          },
          nb::arg("from_"), "What that worker has sent in this step. Raises Error if it has failed, or does otherwise.")
      .def("all_reduce", &all_reduce_of, nb::arg("data"), nb::arg("op") = "sum",
           "The fold of all workers' arrays in rank order, a new array.")
      .def(
          "all_gather",
          [](tasks_object& t, nb::handle value) {
            const auto mine = value_of(value);
            nb::typed<nb::list, any_result> all;
            for (const auto& v : without_gil([&, &a = t.get()] { return a.all_gather_objects(mine); }))
              all.append(to_python(v));
            return all;
          },
          nb::arg("value").none(), "Every worker's value, by rank.")
      .def(
          "broadcast",
          [](tasks_object& t, nb::handle value, std::size_t root) {
            auto v = value_of(value);
            without_gil([&, &all = t.get()] { all.broadcast_object(v, root); });
            return any_result(to_python(v));
          },
          nb::arg("value").none(), nb::arg("root") = 0, "Root's value; the others' is ignored.");
  nb::class_<chunk_object>(m, "RowChunk", "A part of a worker's rows, as the function of ComQueue.over_rows sees it.")
      .def_prop_ro(
          "rows", [](chunk_object& c) { return array_result(c.rows); }, "These rows, an array.")
      .def_prop_ro(
          "owner", [](chunk_object& c) { return c.owner; }, "The worker whose rows they are.")
      .def_prop_ro(
          "first_row", [](chunk_object& c) { return c.first_row; }, "The number of the first one among its rows.")
      .def(
          "get_obj", [](chunk_object& c, const std::string& name) { return any_result(c.get_obj(name)); },
          nb::arg("name"), "An object that the step reads.");
  q.def("communicate", &add_communicate, nb::arg("f"),
        "A step f(context, tasks) of messages between workers. What one sends, another must receive in the same step. "
        "With --on-worker-death wait:T such a queue cannot continue after a worker's death.");
  q.def("over_rows", &add_over_rows, nb::arg("rows"), nb::arg("result"), nb::arg("compute"), nb::arg("length"),
        nb::kw_only(), nb::arg("reads") = std::vector<std::string>{}, nb::arg("op") = "sum", nb::arg("chunks") = 64,
        nb::arg("dtype") = "float64", nb::arg("empty") = 0.0,
        "A step over this worker's rows in chunks: compute(chunk, result) changes result, an array of `length` numbers "
        "(or what the function `length`(context) returns), which are `empty` before. The chunks' results are folded in "
        "the order of the rows by \"sum\", \"max\", \"min\" or a function, and become the object `result`. With "
        "set_work_stealing other workers may compute chunks of a late one: so compute uses only the chunk, which has "
        "copies of the objects named in `reads`, and these are the same on every worker.\n\n"
        "rows: the name of an array given to init_with_partitioned_data, a row for each element of its first axis.");
  q.def(
      "set_work_stealing", [](queue_object& o, bool on) { o.get().set_work_stealing(on); }, nb::arg("on"),
      "Workers that have finished their part of an over_rows step take chunks of others. Results stay the same. Must "
      "be "
      "the same on every worker.");
}

}  // namespace paracel::py
