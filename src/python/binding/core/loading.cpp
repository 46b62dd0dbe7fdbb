// SPDX-License-Identifier: BSD-3-Clause
//
// Input: lines, samples, sparse matrices and graphs; their memory becomes that of NumPy's arrays.
#include <paracel/distributed_graph.hpp>
#include <paracel/samples.hpp>
#include <paracel/sparse.hpp>

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "job.hpp"

namespace paracel::py {

namespace {

using self = paralg_object&;

/// Keyword arguments that become options; what is left over is refused.
class option_reader {
 public:
  explicit option_reader(const nb::kwargs& from) { left_.update(from); }

  template <class T>
  void take(const char* name, T& into) {
    if (!left_.contains(name)) return;
    const nb::object value = left_[name];
    nb::del(left_[name]);
    if (!value.is_none()) into = nb::cast<T>(value);
  }
  template <class E>
  void take_word(const char* name, E& into, const std::map<std::string, E>& words) {
    std::string word;
    take(name, word);
    if (word.empty()) return;
    const auto found = words.find(word);
    if (found == words.end()) {
      std::string all;
      for (const auto& [known, _] : words) all += (all.empty() ? "\"" : ", \"") + known + "\"";
      throw nb::value_error((std::string(name) + " is \"" + word + "\", want one of " + all).c_str());
    }
    into = found->second;
  }
  void refuse_others() const {
    if (nb::len(left_) == 0) return;
    const auto name = nb::cast<std::string>(nb::str(nb::list(left_.keys())[0]));
    throw nb::type_error(("unknown option " + name).c_str());
  }

 private:
  nb::dict left_;
};

std::vector<std::string> files_of(files_argument from) {
  if (PyUnicode_Check(from.ptr())) return {nb::cast<std::string>(nb::borrow(from))};
  std::vector<std::string> all;
  for (const auto f : from) all.push_back(nb::cast<std::string>(nb::str(f)));
  return all;
}

nb::object text(const std::string& line) {
  auto* made = PyUnicode_DecodeUTF8(line.data(), static_cast<Py_ssize_t>(line.size()), "surrogateescape");
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

texts_result texts(const std::vector<std::string>& lines) {
  texts_result all;
  for (const auto& line : lines) all.append(text(line));
  return all;
}

any_result ids_of(const id_list& ids) {
  if (ids.numeric()) return array_of(std::vector<std::uint64_t>(ids.numbers()));
  nb::list all;
  for (std::size_t i = 0; i < ids.size(); ++i) all.append(text(std::string(ids.name(i))));
  return all;
}

// ---- samples

sample_options sample_options_of(const nb::kwargs& from) {
  sample_options o;
  option_reader r(from);
  std::string separator;
  r.take("columns", o.columns);
  r.take("without_label", o.without_label);
  r.take_word("label", o.label,
              {{"binary", sample_options::label_rule::binary},
               {"real", sample_options::label_rule::real},
               {"none", sample_options::label_rule::none},
               {"classes", sample_options::label_rule::classes},
               {"relevance", sample_options::label_rule::relevance}});
  r.take_word("header", o.header,
              {{"automatic", sample_options::header_rule::automatic},
               {"yes", sample_options::header_rule::yes},
               {"no", sample_options::header_rule::no}});
  r.take("classes", o.classes);
  r.take("separator", separator);
  if (separator.size() > 1) throw nb::value_error("separator: want one character");
  if (!separator.empty()) o.separator = separator[0];
  r.take("target", o.target);
  r.take("features", o.features);
  r.take("missing", o.missing);
  r.take("missing_as", o.missing_as);
  r.take("weight", o.weight);
  r.take("group", o.group);
  r.take("categorical", o.categorical);
  r.take("float32", o.floats);
  r.refuse_others();
  return o;
}

any_dict load_samples_of(self s, files_argument files, nb::kwargs options) {
  const auto names = files_of(files);
  const auto o = sample_options_of(options);
  auto rows = without_gil([&, &a = s.get()] { return load_samples(a.get_comm(), names, o); });
  any_dict d;
  d["dense"] = rows.dense;
  d["rows"] = rows.rows();
  d["columns"] = rows.columns;
  d["row_begin"] = array_of(std::vector<std::uint64_t>(rows.row_begin.begin(), rows.row_begin.end()));
  d["column"] = array_of(std::move(rows.column));
  d["value"] = rows.floats.empty() ? array_of(std::move(rows.value)) : array_of(std::move(rows.floats));
  d["label"] = array_of(std::move(rows.label));
  d["weight"] = array_of(std::move(rows.weight));
  d["group"] = array_of(std::move(rows.group));
  d["classes"] = texts(rows.classes);
  d["names"] = texts(rows.names);
  d["first_row"] = rows.first_row;
  d["rows_total"] = rows.rows_total;
  return d;
}

// ---- entries

entry_options entry_options_of(option_reader& r) {
  entry_options o;
  using ids = entry_options::id_kind;
  using values = entry_options::value_rule;
  using headers = entry_options::header_rule;
  r.take_word("format", o.format,
              {{"automatic", entry_format::automatic},
               {"matrix_market", entry_format::matrix_market},
               {"fields", entry_format::fields},
               {"libsvm", entry_format::libsvm}});
  r.take_word("ids", o.ids, {{"automatic", ids::automatic}, {"number", ids::number}, {"name", ids::name}});
  r.take_word("duplicates", o.duplicates,
              {{"sum", duplicate_rule::sum},
               {"keep", duplicate_rule::keep},
               {"last", duplicate_rule::last},
               {"refuse", duplicate_rule::refuse},
               {"min", duplicate_rule::min},
               {"max", duplicate_rule::max}});
  r.take_word("values", o.values, {{"need", values::need}, {"take", values::take}, {"ignore", values::ignore}});
  r.take_word("header", o.header, {{"automatic", headers::automatic}, {"yes", headers::yes}, {"no", headers::no}});
  r.take("transpose", o.transpose);
  r.take("non_negative", o.non_negative);
  r.take("rows_also", o.rows_also);
  r.take("comments", o.comments);
  r.take("columns", o.columns);
  return o;
}

/// Entries in arrays of Python: the option `own`, (rows, columns, values or None, what messages call them). Ids are
/// int64, or (names, int32 index of each entry).
class own_arrays {
 public:
  explicit own_arrays(option_reader& r) {
    nb::object from;
    r.take("own", from);
    if (!from.is_valid()) return;
    const nb::tuple parts = nb::cast<nb::tuple>(from);
    entries_.emplace();
    side_of(parts[0], entries_->rows, names_[0]);
    side_of(parts[1], entries_->columns, names_[1]);
    if (!parts[2].is_none()) entries_->values = keep(parts[2], "values", value_tag::f64).as<const double>();
    entries_->source = nb::cast<std::string>(parts[3]);
  }
  [[nodiscard]] const own_entries* entries() const { return entries_ ? &*entries_ : nullptr; }

 private:
  const number_view& keep(nb::handle from, const char* what, value_tag element) {
    return arrays_.emplace_back(numbers_of(from, what, element));
  }
  void side_of(nb::handle from, own_entries::side& to, std::vector<std::string>& names) {
    to.numeric = !nb::isinstance<nb::tuple>(from);
    if (to.numeric) {
      to.numbers = keep(from, "ids", value_tag::i64).as<const std::uint64_t>();
      return;
    }
    const auto both = nb::cast<nb::tuple>(from);
    names = nb::cast<std::vector<std::string>>(both[0]);
    to.names = names;
    to.name = keep(both[1], "ids", value_tag::i32).as<const std::uint32_t>();
    for (const auto i : to.name)
      if (i >= names.size()) throw nb::value_error("ids: found an index beyond the names");
  }

  std::deque<number_view> arrays_;
  std::vector<std::string> names_[2];
  std::optional<own_entries> entries_;
};

any_dict load_sparse_of(self s, files_argument files, nb::kwargs options) {
  const auto names = files_of(files);
  option_reader r(options);
  auto o = entry_options_of(r);
  const own_arrays own(r);
  o.own = own.entries();
  r.refuse_others();
  auto rows = without_gil([&, &a = s.get()] { return load_sparse(a.get_comm(), names, o); });
  any_dict d;
  d["first_row"] = rows.row_first[s.get().get_worker_id()];
  d["rows_total"] = rows.rows_total();
  d["columns_total"] = rows.columns_total;
  d["entries_total"] = rows.entries_total;
  d["row_ids"] = ids_of(rows.row_ids);
  d["column_ids"] = ids_of(rows.column_ids);
  d["column_number"] = array_of(std::move(rows.column_number));
  d["begin"] = array_of(std::move(rows.begin));
  d["column"] = array_of(std::move(rows.column));
  d["value"] = array_of(std::move(rows.value));
  return d;
}

// ---- graphs

/// A graph, and the exchange of values of its shared vertices.
struct graph_object {
  std::shared_ptr<job> of;
  std::shared_ptr<const distributed_graph> graph;
  std::unique_ptr<halo> border;

  [[nodiscard]] halo& exchange() {
    auto& owner = of->get();
    if (border == nullptr) border = std::make_unique<halo>(owner.get_comm(), *graph);
    return *border;
  }
  /// Read only; it keeps the graph.
  template <class T>
  [[nodiscard]] array_result view(const std::vector<T>& v) const {
    auto* kept = new std::shared_ptr<const distributed_graph>(graph);
    const nb::capsule owner(kept,
                            [](void* p) noexcept { delete static_cast<std::shared_ptr<const distributed_graph>*>(p); });
    auto array = nb::cast(nb::ndarray<nb::numpy, const T, nb::ndim<1>>(v.data(), {v.size()}, owner));
    if constexpr (std::is_same_v<T, std::uint64_t>) return with_numpys_type(std::move(array), "uint64");
    return array;
  }
};

void require_rows(const number_view& v, std::size_t rows, const char* what) {
  const auto found = v.shape.empty() ? 0 : v.shape[0];
  if (found != rows || v.shape.size() > 2)
    throw error(std::string(what) + ": found " + std::to_string(found) + " rows, want " + std::to_string(rows));
}

array_result pull(graph_object& g, array_argument values) {
  const auto v = numbers_of(values, "the values");
  require_rows(v, g.graph->own(), "pull");
  const auto width = v.shape.size() == 2 ? v.shape[1] : 1;
  auto shape = v.shape;
  shape[0] = g.graph->ghosts.size();
  const auto bytes = new_bytes(shape[0] * width * element_bytes(v.element));
  with_type(v.element, [&](auto zero) {
    using number = decltype(zero);
    const std::span<number> ghosts(reinterpret_cast<number*>(bytes.get()), shape[0] * width);
    without_gil([&] { g.exchange().template pull_rows<number>(v.as<const number>(), ghosts, width); });
  });
  return array_of(v.element, bytes, shape);
}

array_result push(graph_object& g, array_argument ghost_values, array_argument own_values, const std::string& op) {
  const auto own = numbers_of(own_values, "own");
  const auto ghosts = numbers_of(ghost_values, "ghosts", own.element);
  require_rows(own, g.graph->own(), "push: own");
  require_rows(ghosts, g.graph->ghosts.size(), "push: ghosts");
  if (own.shape.size() != 1 || ghosts.shape.size() != 1) throw error("push: want one number a vertex");
  if (op != "sum" && op != "min" && op != "max")
    throw nb::value_error(("op is \"" + op + "\", want \"sum\", \"max\" or \"min\"").c_str());
  const any_value copy(value_view{own.element, own.bytes});
  with_type(own.element, [&](auto zero) {
    using number = decltype(zero);
    const std::span<number> into(reinterpret_cast<number*>(copy.bytes.get()), own.shape[0]);
    without_gil([&] {
      g.exchange().template push<number>(ghosts.as<const number>(), into, [&](number& mine, const number& theirs) {
        if (op == "sum") mine += theirs;
        else mine = op == "min" ? std::min(mine, theirs) : std::max(mine, theirs);
      });
    });
  });
  return array_of(own.element, copy.bytes, own.shape);
}

graph_object load_graph_of(self s, files_argument files, nb::kwargs options) {
  const auto names = files_of(files);
  graph_options o;
  option_reader r(options);
  r.take("weighted", o.weighted);
  r.take("undirected", o.undirected);
  r.take("self_loops", o.self_loops);
  r.take("incoming", o.incoming);
  o.entries = entry_options_of(r);
  const own_arrays own(r);
  o.entries.own = own.entries();
  r.refuse_others();
  auto graph = without_gil([&, &a = s.get()] { return load_graph(a.get_comm(), names, o); });
  return {s.of, std::make_shared<const distributed_graph>(std::move(graph)), nullptr};
}

void bind_graph(nb::module_& m) {
  using graph = graph_object;
  nb::class_<graph>(
      m, "Graph",
      "This worker's part of a graph; made by Paralg.load_graph. Own vertices have the indices 0, 1, ..., and vertices "
      "of other workers that edges lead to (ghosts) those after them; the edges are compressed rows.")
      .def_prop_ro(
          "own", [](graph& g) { return g.graph->own(); }, "The number of own vertices.")
      .def_prop_ro(
          "first", [](graph& g) { return g.graph->first[g.graph->rank]; },
          "The number, among those of all workers, of own vertex 0.")
      .def_prop_ro("vertices_total", [](graph& g) { return g.graph->vertices_total(); })
      .def_prop_ro("edges_total", [](graph& g) { return g.graph->edges_total; })
      .def_prop_ro(
          "ids", [](graph& g) { return ids_of(g.graph->ids); },
          "Of own vertices: an array of numbers, or a list of names.")
      .def_prop_ro(
          "ghosts", [](graph& g) { return g.view(g.graph->ghosts); },
          "The numbers of the ghosts, among those of all workers.")
      .def_prop_ro("indptr", [](graph& g) { return g.view(g.graph->out.begin); })
      .def_prop_ro(
          "indices", [](graph& g) { return g.view(g.graph->out.target); },
          "The vertices that edges lead to: own ones, and own + i for ghost i.")
      .def_prop_ro(
          "weights", [](graph& g) { return g.view(g.graph->out.weight); }, "Empty: every weight is 1.")
      .def_prop_ro("in_indptr", [](graph& g) { return g.view(g.graph->in.begin); })
      .def_prop_ro("in_indices", [](graph& g) { return g.view(g.graph->in.target); })
      .def_prop_ro("in_weights", [](graph& g) { return g.view(g.graph->in.weight); })
      .def("pull", &pull, nb::arg("values"),
           "The ghosts' values, from their owners: an array of (own,) or (own, n) becomes one of (ghosts,) or (ghosts, "
           "n). A collective.")
      .def("push", &push, nb::arg("ghosts"), nb::arg("own"), nb::arg("op") = "sum",
           "The reverse: own values (own,), into which the values that other workers have for them are folded in rank "
           "order (\"sum\", \"min\" or \"max\"). A collective.");
}

}  // namespace

void bind_loading(nb::class_<paralg_object>& c, nb::module_& m) {
  c.def(
      "load",
      [](self s, files_argument files) {
        const auto names = files_of(files);
        return texts(without_gil([&, &a = s.get()] { return a.paracel_load(names); }));
      },
      nb::arg("files"),
      "The lines of this worker's part of the input: a file, a list of files, a folder, a glob pattern or \"-\". Bytes "
      "that are not UTF-8 are surrogate escapes. A collective.");
  c.def(
      "loadall",
      [](self s, files_argument files) {
        const auto names = files_of(files);
        return texts(without_gil([&, &a = s.get()] { return a.paracel_loadall(names); }));
      },
      nb::arg("files"), "All lines of the input.");
  c.def("_load_samples", &load_samples_of, nb::arg("files"), nb::arg("options"));
  c.def("_load_sparse", &load_sparse_of, nb::arg("files"), nb::arg("options"));
  c.def("_load_graph", &load_graph_of, nb::arg("files"), nb::arg("options"));
  bind_graph(m);
}

}  // namespace paracel::py
