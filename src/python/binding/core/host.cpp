// SPDX-License-Identifier: BSD-3-Clause
#include "host.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <paracel/main_env.hpp>

#include "config/config_sources.hpp"
#include "job.hpp"

namespace paracel::py {

namespace {

// How often a wait looks for signals: taking the GIL may cost a switch interval of the interpreter, 5 ms.
constexpr std::chrono::milliseconds signal_interval{50};

std::atomic<bool> forked{false};
std::thread::id owner;          // of the job
std::unique_ptr<main_env> env;  // never destroyed in a child: its threads do not exist there
int entries = 0;
std::string program_name = "python";
std::vector<std::string> plugin_folders;

/// The first exception of a callback in the running call: the cause, if the framework makes another error of it.
nb::object& pending() {
  static auto* it = new nb::object();
  return *it;
}
bool pending_ends_all = false;  // it is no Exception: KeyboardInterrupt, SystemExit

nb::object class_of(const char* name) { return nb::module_::import_("paracel.errors").attr(name); }

nb::object made(const error& e) {
  const auto* name = "Error";
  if (dynamic_cast<const usage_error*>(&e) != nullptr) name = "UsageError";
  else if (dynamic_cast<const config_error*>(&e) != nullptr) name = "ConfigError";
  else if (dynamic_cast<const data_error*>(&e) != nullptr) name = "DataError";
  else if (dynamic_cast<const plugin_error*>(&e) != nullptr) name = "PluginError";
  else if (dynamic_cast<const protocol_error*>(&e) != nullptr) name = "ProtocolError";
  else if (dynamic_cast<const key_error*>(&e) != nullptr) name = "MissingKeyError";
  else if (dynamic_cast<const type_error*>(&e) != nullptr) name = "ValueTypeError";
  else if (dynamic_cast<const network_error*>(&e) != nullptr) name = "NetworkError";
  else if (dynamic_cast<const job_error*>(&e) != nullptr) name = "JobError";
  auto o = class_of(name)(nb::str(e.what()));
  o.attr("status") = e.status();
  if (const auto* n = dynamic_cast<const network_error*>(&e))
    o.attr("may_have_been_applied") = n->may_have_been_applied();
  return o;
}

void set_error(const nb::object& o) { PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(o.ptr())), o.ptr()); }

/// With the GIL: the exceptions of the framework as those of Python.
void translate(const std::exception_ptr& p, void*) {
  auto cause = std::exchange(pending(), nb::object());
  const bool ends_all = std::exchange(pending_ends_all, false);
  try {
    std::rethrow_exception(p);
  } catch (const python_failure& e) {
    set_error(e.value());
  } catch (const error& e) {
    if (cause.is_valid() && ends_all) return set_error(cause);
    auto o = made(e);
    if (cause.is_valid()) PyException_SetCause(o.ptr(), cause.release().ptr());
    set_error(o);
  } catch (const argument_error& e) {
    auto o = class_of("DataError")(nb::str(e.what()));
    o.attr("status") = e.status();
    set_error(o);
  }
}

void look_for_signals() {
  static thread_local std::chrono::steady_clock::time_point last{};
  if (std::this_thread::get_id() != owner) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last < signal_interval) return;
  last = now;
  const nb::gil_scoped_acquire held;
  if (PyErr_CheckSignals() == 0) return;
  nb::python_error e;
  rethrow_python(e);
}

}  // namespace

void check_caller() {
  if (forked)
    throw error(
        "this process was forked after its parent had joined a job, whose threads do not exist here: start "
        "worker processes with prun, or fork before the first call of paracel");
  if (env != nullptr && std::this_thread::get_id() != owner)
    throw error("a call on another thread than the one that joined the job: a job belongs to one thread");
}

void begin_call() {
  if (!callback_scope::inside()) pending().reset();
}

void rethrow_python(nb::python_error& e) {
  nb::object value = nb::borrow(e.value());
  int status = exit_status::failure;
  std::string text;
  try {
    if (nb::hasattr(value, "status")) status = nb::cast<int>(value.attr("status"));
    const auto name = nb::cast<std::string>(value.type().attr("__name__"));
    const auto words = nb::cast<std::string>(nb::str(value));
    text = nb::isinstance(value, class_of("Error")) ? words : name + (words.empty() ? "" : ": " + words);
  } catch (nb::python_error&) {
    text = "an exception of Python";
  }
  if (!pending().is_valid()) {
    pending() = value;
    pending_ends_all = PyObject_IsInstance(value.ptr(), PyExc_Exception) == 0;
  }
  throw python_failure(text, status, std::move(value));
}

void environment::enter() {
  check_caller();
  if (env != nullptr) return;
  static const bool watched = [] {
    pthread_atfork(nullptr, nullptr, [] { forked = forked || env != nullptr; });
    return true;
  }();
  (void)watched;
  owner = std::this_thread::get_id();
  ++entries;
  env = without_gil([] {
    return std::make_unique<main_env>(host_process{program_name, plugin_folders, &look_for_signals});
  });
}

int environment::number() noexcept { return entries; }

bool environment::entered() noexcept { return env != nullptr && !forked; }

void environment::leave(bool failed) {
  if (!entered()) return;
  check_caller();
  if (callback_scope::inside()) throw error("a callback leaves the job: want it after the call that runs the callback");
  close_all_jobs(failed);
  auto left = std::move(env);
  const nb::gil_scoped_release released;
  left->leave(failed);
}

void bind_host(nb::module_& m) {
  nb::register_exception_translator(&translate);
  m.def("_enter", &environment::enter);
  m.def("_entered", &environment::entered);
  m.def("_check_caller", &check_caller);
  m.def("_leave", &environment::leave, nb::arg("failed") = false);
  m.def(
      "_host",
      [](std::string program, std::vector<std::string> folders) {
        program_name = std::move(program);
        plugin_folders = std::move(folders);
      },
      nb::arg("program"), nb::arg("plugin_folders"));
  m.def(
      "_read_config",
      [](const std::string& file, const std::vector<std::string>& overrides) {
        const auto root = read_config(file, overrides);
        if (root.type == config_node::kind::object) return config_json(root);
        throw config_error(file + ":1:1: found " + root.described() + ", want an object {\"key\": value, ...}");
      },
      nb::arg("file"), nb::arg("overrides"));
}

}  // namespace paracel::py
