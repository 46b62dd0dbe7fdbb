// SPDX-License-Identifier: BSD-3-Clause
//
// Paralg: its life, clock, checkpoints, commands and results.
#include "job.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include <paracel/resumable_loop.hpp>
#include <paracel/run.hpp>

namespace paracel::py {

namespace {

std::vector<job*>& open_jobs() {
  static auto* all = new std::vector<job*>();
  return *all;
}

/// Destroys `what` as an exception that leaves its scope does: a failing worker waits for nothing.
template <class T>
void destroy_failed(std::unique_ptr<T> what) {
  try {
    const std::unique_ptr<T> inside = std::move(what);
    throw error("the program failed");
  } catch (const error&) {
  }
}

nb::dict state_of(const saved_state& s) {
  nb::dict all;
  s.visit("", [&](const std::string& name, const value_view& v) {
    if (!name.starts_with("loop.")) all[name.c_str()] = to_python(any_value(v));
  });
  return all;
}

nb::dict node_of(const job_node& n) {
  nb::dict d;
  d["role"] = n.is_server ? "server" : "worker";
  d["number"] = n.number;
  d["state"] = n.state;
  d["host"] = n.host;
  d["silent_seconds"] = n.silent_seconds;
  d["is_dead"] = n.is_dead;
  d["cause"] = n.cause;
  d["clock"] = n.clock;
  return d;
}

std::string text_of(nb::handle h) {
  if (h.is_none()) return {};
  return nb::cast<std::string>(nb::str(h));
}

template <class V>
void dump_as(algorithm& a, const nb::dict& values, const std::string& name, bool append, bool merge) {
  dict_type<std::string, V> all;
  for (const auto item : values) all[text_of(item.first)] = nb::cast<V>(nb::borrow(item.second));
  without_gil([&] { a.paracel_dump_dict(all, name, append, merge); });
}

void dump_dict(paralg_object& s, const nb::dict& values, const std::string& name, bool append, bool merge) {
  auto& a = s.get();
  const nb::object first =
      nb::len(values) == 0 ? nb::object(nb::float_(0.0)) : nb::object(nb::list(values.values())[0]);
  if (PyUnicode_Check(first.ptr())) dump_as<std::string>(a, values, name, append, merge);
  else if (PyLong_Check(first.ptr())) dump_as<std::int64_t>(a, values, name, append, merge);
  else if (PyFloat_Check(first.ptr())) dump_as<double>(a, values, name, append, merge);
  else dump_as<std::vector<double>>(a, values, name, append, merge);
}

/// A resumable loop; its variables are a dict of Python.
class loop_object : public job::part {
 public:
  loop_object(std::shared_ptr<job> of, nb::dict state, bool same) : of_(std::move(of)), state_(std::move(state)) {
    loop_ = std::make_unique<resumable_loop>(of_->get());
    if (same) loop_->same_on_every_worker();
    loop_->keep_with(
        [this](saved_state& to, const std::string& prefix) {
          with_gil([&] {
            for (const auto item : nb::borrow<nb::dict>(state_.get()))
              to.put(prefix + text_of(item.first), value_of(item.second));
          });
        },
        [this](const saved_state& from, const std::string& prefix) {
          with_gil([&] {
            from.visit(prefix, [&](const std::string& name, const value_view& v) {
              state_.get()[name.substr(prefix.size()).c_str()] = to_python(any_value(v));
            });
          });
        });
    of_->enter(this);
  }
  loop_object(const loop_object&) = delete;
  loop_object& operator=(const loop_object&) = delete;
  ~loop_object() override {
    of_->remove(this);
    drop();
  }
  void drop() override { loop_.reset(); }
  [[nodiscard]] resumable_loop& get() const {
    (void)of_->get();
    return *loop_;
  }

 private:
  std::shared_ptr<job> of_;
  shared_object state_;
  std::unique_ptr<resumable_loop> loop_;
};

}  // namespace

job::job(std::unique_ptr<algorithm> of) : algorithm_(std::move(of)) { open_jobs().push_back(this); }

job::~job() {
  std::erase(open_jobs(), this);
  close(false);
}

void job::close(bool failed) {
  if (algorithm_ == nullptr) return;
  if (!environment::entered()) {  // in a forked child its threads are missing
    (void)algorithm_.release();
    return;
  }
  try {
    check_caller();
  } catch (const error&) {  // the collector runs on another thread
    (void)algorithm_.release();
    return;
  }
  for (auto* p : std::exchange(parts_, {})) p->drop();
  auto gone = std::move(algorithm_);
  without_gil([&] {
    if (failed) destroy_failed(std::move(gone));
    else gone.reset();
  });
  targets_.clear();
}

void close_all_jobs(bool failed) {
  for (auto* j : std::vector<job*>(open_jobs())) j->close(failed);
}

plugin_function function_of(nb::handle from) {
  if (from.is_none()) return {};
  if (!PyTuple_Check(from.ptr()) || nb::len(from) < 2 || nb::len(from) > 3)
    throw nb::type_error("a function is a tuple (file, function) or (file, function, {hyper-parameter: number})");
  plugin_function f{nb::cast<std::string>(from[0]), nb::cast<std::string>(from[1]), {}};
  if (nb::len(from) == 3) f.hyper = nb::cast<hyper_parameters>(from[2]);
  return f;
}

consistency consistency_of(const std::string& model, int staleness) {
  if (staleness < 0) throw config_error("staleness is " + std::to_string(staleness) + ", want 0 or more");
  if (model == "asp") return {consistency_model::asp, static_cast<std::uint32_t>(staleness)};
  if (model == "bsp") return consistency::bsp();
  if (model == "ssp") return consistency::ssp(static_cast<std::uint32_t>(staleness));
  throw config_error("consistency is \"" + model + "\", want \"asp\", \"ssp\" or \"bsp\"");
}

const char* name_of_model(consistency_model model) { return name_of(model); }

any_result future_object::get() {
  if (!done_) {
    const bool found = without_gil([&] { return from_.get(); });
    done_ = true;
    value_ = shared_object(convert_ ? convert_(found) : nb::cast(found));
  }
  return value_.get();
}

void future_object::wait() {
  if (!done_) without_gil([&] { from_.wait(); });
}

bool future_object::ready() {
  return done_ || without_gil([&] { return from_.ready(); });
}

void bind_job(nb::class_<paralg_object>& c, nb::module_& m) {
  using self = paralg_object&;
  nb::class_<future_object>(m, "Future", "The result of an asynchronous call.")
      .def("get", &future_object::get,
           "Waits, and returns the value of a read (of a key that does not exist: MissingKeyError), True for others. "
           "Raises the error of the request.")
      .def("wait", &future_object::wait, "Waits; leaves errors to get().")
      .def("ready", &future_object::ready, "Whether get() would return at once; never blocks.");

  c.def(
      "_open",
      [](nb::handle_t<paralg_object> object, const std::string& output, int rounds, const std::string& model,
         int staleness) {
        environment::enter();
        auto* to = nb::inst_ptr<paralg_object>(object);
        const auto how = consistency_of(model, staleness);
        auto made = without_gil([&] { return std::make_unique<algorithm>(output, rounds, how); });
        // Borrowed: the object owns the algorithm, and says when it is gone.
        const nb::handle owner = object;
        made->on_save = [owner](saved_state& state) {
          with_gil([&] {
            const auto saved = owner.attr("checkpoint_state")();
            if (saved.is_none()) return;
            for (const auto item : nb::cast<nb::dict>(saved)) state.put(text_of(item.first), value_of(item.second));
          });
        };
        made->on_restore = [owner](const saved_states& from) {
          with_gil([&] {
            nb::list all;
            for (const auto& s : from.all()) all.append(state_of(s));
            owner.attr("restore_state")(state_of(from.own()), from.same_workers() ? nb::none() : nb::object(all));
          });
        };
        to->of = std::make_shared<job>(std::move(made));
      },
      nb::arg("output"), nb::arg("rounds"), nb::arg("consistency"), nb::arg("staleness"));
  c.def(
      "close",
      [](self s) {
        if (callback_scope::inside())
          throw error("a callback closes a Paralg: want it after the call that runs the callback");
        if (s.of != nullptr) s.of->close(false);
      },
      "Ends this algorithm's part of the job: waits for its updates. Its arrays and tables cannot be used afterwards.");

  // ---- clock
  c.def(
      "iter_commit",
      [](self s) {
        without_gil([&, &a = s.get()] { a.iter_commit(); });
        s.of->all_answered();
      },
      "Ends an iteration: waits for its updates and ticks the clock. One round trip.");
  c.def(
      "sync", [](self s) { without_gil([&a = s.get()] { a.paracel_sync(); }); },
      "A barrier: when it returns, all updates made before it are visible to all workers.");
  c.def(
      "set_consistency",
      [](self s, const std::string& model, int staleness, const std::string& prefix) {
        const auto how = consistency_of(model, staleness);
        without_gil([&, &a = s.get()] {
          if (prefix.empty()) a.set_consistency(how.model);
          else a.set_consistency(prefix, how);
        });
      },
      nb::arg("model"), nb::arg("staleness") = 0, nb::arg("prefix") = "",
      "\"asp\", \"ssp\" or \"bsp\" for all keys (ssp with the staleness of the constructor), or for those that begin "
      "with `prefix` (with this staleness). Before the first read or update of such a key.");
  c.def(
      "get_consistency",
      [](self s, const std::string& key) {
        const auto how = s.get().get_consistency(key);
        return nb::typed<nb::tuple, nb::str, int>(nb::make_tuple(name_of_model(how.model), how.staleness));
      },
      nb::arg("key") = "", "(model, staleness) of a key.");
  c.def(
      "set_total_iters", [](self s, int n) { s.get().set_total_iters(n); }, nb::arg("n"));
  c.def(
      "set_combining", [](self s, bool on) { without_gil([&, &a = s.get()] { a.set_combining(on); }); }, nb::arg("on"));
  c.def(
      "set_push", [](self s, bool on) { without_gil([&, &a = s.get()] { a.set_push(on); }); }, nb::arg("on"));
  c.def(
      "subscribe",
      [](self s, const std::vector<std::string>& keys) {
        without_gil([&, &a = s.get()] { a.paracel_subscribe(keys); });
      },
      nb::arg("keys"));
  c.def("last_staleness", [](self s) { return s.get().last_staleness(); });

  // ---- checkpoints
  c.def_prop_ro(
      "resumed", [](self s) { return s.get().resumed(); },
      "True after resuming from a checkpoint, or as the replacement of a dead worker.");
  c.def(
      "first_iteration", [](self s) { return without_gil([&a = s.get()] { return a.first_iteration(); }); },
      "How many iterations had been committed then, or 0. The first call calls restore_state.");
  nb::class_<loop_object>(m, "Loop", "A loop that can resume from a checkpoint; made by Paralg.loop.")
      .def(
          "next",
          [](loop_object& l, std::optional<std::int64_t> limit) {
            return without_gil([&] { return l.get().next(limit.value_or(resumable_loop::no_limit)); });
          },
          nb::arg("limit") = nb::none(), "Commits the iteration; whether there is another one.")
      .def(
          "stop", [](loop_object& l) { l.get().stop(); }, "Makes the current iteration the last one.")
      .def_prop_ro("iteration", [](loop_object& l) { return l.get().iteration(); });
  c.def(
      "_loop",
      [](self s, any_dict state, bool same) {
        (void)s.get();
        return new loop_object(s.of, std::move(state), same);
      },
      nb::arg("state"), nb::arg("same_on_every_worker"));

  // ---- the job
  c.def_prop_ro(
      "worker_id", [](self s) { return s.get().get_worker_id(); }, "This worker's rank: 0, 1, ...");
  c.def_prop_ro(
      "worker_size", [](self s) { return s.get().get_worker_size(); }, "The number of workers.");
  c.def_prop_ro(
      "server_size", [](self s) { return s.get().get_server_size(); }, "The number of servers.");
  c.def_prop_ro(
      "output", [](self s) { return s.get().get_output(); }, "The folder of the results.");
  c.def(
      "nodes",
      [](self s) {
        const auto all = without_gil([&a = s.get()] { return a.paracel_nodes(); });
        nb::typed<nb::list, any_dict> l;
        for (const auto& n : all) l.append(node_of(n));
        return l;
      },
      "Servers and workers of the job as the scheduler sees them, a dict each; empty in a job of one process.");
  c.def(
      "on_command",
      [](self s, const std::string& name, nb::typed<nb::callable, nb::object(nb::str)> f) {
        auto call = shared_object(std::move(f));
        without_gil([&, &a = s.get()] {
          a.paracel_on_command(
              name, [call](const std::string& body) { return with_gil([&] { return text_of(call.get()(body)); }); });
        });
      },
      nb::arg("name"), nb::arg("f"),
      "Runs f(body) -> answer for each command of this name, from `prun tell` or another worker's tell().");
  c.def(
      "on_change",
      [](self s, nb::typed<nb::callable, nb::object(any_dict)> f) {
        auto call = shared_object(std::move(f));
        without_gil([&, &a = s.get()] {
          a.paracel_on_change([call](const job_node& n) { with_gil([&] { call.get()(node_of(n)); }); });
        });
      },
      nb::arg("f"), "Runs f(node) when a server or a worker has died or is replaced.");
  c.def(
      "tell",
      [](self s, const std::string& role, std::optional<std::size_t> number, const std::string& name,
         const std::string& body, double seconds) {
        if (role != "worker" && role != "server")
          throw nb::value_error(("to a \"" + role + "\": want \"worker\" or \"server\"").c_str());
        const auto answers = without_gil([&, &a = s.get()] {
          return a.paracel_tell(command_target{role == "server", number}, name, body, seconds);
        });
        nb::typed<nb::list, nb::typed<nb::tuple, std::size_t, bool, nb::str>> all;
        for (const auto& a : answers) all.append(nb::make_tuple(a.number, a.ok, a.text));
        return all;
      },
      nb::arg("role"), nb::arg("number").none(), nb::arg("name"), nb::arg("body") = "", nb::arg("seconds") = 60.0,
      "Sends a command to a worker or server, or to all (None): a list of (number, ok, text).");
  c.def(
      "take_commands",
      [](self s, double seconds) {
        return without_gil([&, &a = s.get()] { return a.paracel_take_commands(seconds); });
      },
      nb::arg("seconds") = 0.0, "Runs the commands that have arrived; returns how many.");
  c.def(
      "report_progress",
      [](self s, int round, int rounds, double objective, const std::string& metric) {
        without_gil([&, &a = s.get()] { a.report_progress({round, rounds, objective, metric}); });
      },
      nb::arg("round"), nb::arg("rounds"), nb::arg("objective"), nb::arg("metric") = "objective",
      "Rank 0's progress, shown by prun; does nothing on other ranks.");
  c.def(
      "report_metric",
      [](self s, const std::string& name, double value, int round) {
        without_gil([&, &a = s.get()] { a.report_metric(name, value, round); });
      },
      nb::arg("name"), nb::arg("value"), nb::arg("round") = 0,
      "Records a number of this run: a line of <output>/metrics.jsonl, and rank 0's progress; does nothing on other "
      "ranks. "
      "round: 0 means the iterations that this worker has committed.");

  // ---- results
  c.def(
      "result", [](self s, const std::string& name) { return s.get().paracel_result(name); }, nb::arg("name"),
      "<output>/<name>: the path of a result that the caller writes; this program's next run removes it.");
  c.def(
      "result_name",
      [](self s, const std::string& name, const std::string& ending) { return s.get().result_name(name, ending); },
      nb::arg("name"), nb::arg("ending") = "");
  c.def(
      "dump_vector",
      [](self s, array_argument values, const std::string& name, const std::string& separator, bool append,
         bool merge) {
        const auto v = numbers_of(values, "the vector");
        with_type(v.element, [&](auto zero) {
          const auto all = v.as<decltype(zero)>();
          const std::vector<decltype(zero)> copy(all.begin(), all.end());
          without_gil([&, &a = s.get()] { a.paracel_dump_vector(copy, name, separator, append, merge); });
        });
      },
      nb::arg("values"), nb::arg("name") = "result_", nb::arg("separator") = ",", nb::arg("append") = false,
      nb::arg("merge") = false, "Writes a line to <output>/<name><rank>.");
  c.def("dump_dict", &dump_dict, nb::arg("values"), nb::arg("name") = "result_", nb::arg("append") = false,
        nb::arg("merge") = false,
        "Writes a line for each key, in key order, to <output>/<name><rank>: the key, a tab, and a number, a text, or "
        "numbers separated by |.");
  c.def(
      "set_one_output_file", [](self s, bool on) { s.get().set_one_output_file(on); }, nb::arg("on"));
}

}  // namespace paracel::py
