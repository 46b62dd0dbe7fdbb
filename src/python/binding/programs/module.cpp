// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <paracel/error.hpp>

#include "array_files.hpp"
#include "hosted_run.hpp"
#include "storage/memory_file.hpp"

namespace nb = nanobind;
using namespace paracel::py;

namespace {

/// Lines on their way to the thread that waits for the program: it alone calls Python, since a thread that waits for
/// the interpreter's lock inside of printf could wait for one that holds it and prints.
class waiting_lines {
 public:
  using lines = std::vector<std::pair<bool, std::string>>;

  void add(bool to_stderr, std::string_view line) {
    const std::lock_guard lock(access_);
    waiting_.emplace_back(to_stderr, line);
    changed_.notify_one();
  }
  void end() {
    const std::lock_guard lock(access_);
    ended_ = true;
    changed_.notify_one();
  }
  /// False when the program has ended, and its lines have been taken.
  bool next(lines& to) {
    to.clear();
    std::unique_lock lock(access_);
    changed_.wait_for(lock, signals_every, [&] { return ended_ || !waiting_.empty(); });
    to.swap(waiting_);
    return !ended_ || !to.empty();
  }

 private:
  static constexpr std::chrono::milliseconds signals_every{100};
  std::mutex access_;
  std::condition_variable changed_;
  lines waiting_;
  bool ended_ = false;
};

/// `on_line(to_stderr, line)`, by the calling thread. What it raises, and KeyboardInterrupt, ends the program at its
/// next round or wait, and is raised when it has ended: its threads and its server cannot be left in the middle.
int run(const std::string& program, const std::vector<std::string>& arguments, const nb::callable& on_line) {
  waiting_lines lines;
  std::atomic<bool> interrupted{false};
  int status = 0;
  std::exception_ptr failed;  // the program could not begin
  std::thread running([&] {
    try {
      status = run_hosted(
          program, arguments, [&](bool to_stderr, std::string_view line) { lines.add(to_stderr, line); }, interrupted);
    } catch (...) {
      failed = std::current_exception();
    }
    lines.end();
  });
  std::exception_ptr raised;  // by Python
  const auto call = [&](const auto& some) {
    if (raised) return;
    try {
      some();
    } catch (...) {
      raised = std::current_exception();
      interrupted = true;
    }
  };
  for (waiting_lines::lines some;;) {
    {
      const nb::gil_scoped_release released;
      if (!lines.next(some)) break;
    }
    call([&] {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    });
    for (const auto& [to_stderr, line] : some)
      call([&] { on_line(to_stderr, nb::bytes(line.data(), line.size()).attr("decode")("utf-8", "replace")); });
  }
  {
    const nb::gil_scoped_release released;
    running.join();
  }
  if (raised) std::rethrow_exception(raised);
  if (failed) std::rethrow_exception(failed);
  return status;
}

}  // namespace

NB_MODULE(_programs, m) {
  m.doc() = "The programs of the toolbox, run in this process on arrays.";
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const paracel::error& e) {
      PyErr_SetString(PyExc_ValueError, e.what());
    }
  });
  m.def("names", &program_names, "The names of all programs.");
  m.def("run", &run, nb::arg("program"), nb::arg("arguments"), nb::arg("on_line"),
        "Runs a program's main function. on_line(to_stderr, line) is called for what it prints. Returns its exit "
        "status.");
  m.def("add_table", &add_table_file, nb::arg("name"), nb::arg("columns"),
        "From now on programs read `name` (memory:...) as an .npy matrix of the arrays, side by side.");
  m.def("add_sparse", &add_sparse_file, nb::arg("name"), nb::arg("columns"), nb::arg("indptr"), nb::arg("indices"),
        nb::arg("data"), nb::arg("labels"), nb::arg("groups"), "The same for a CSR matrix.");
  m.def("add_text", &add_text_file, nb::arg("name"), nb::arg("text"), "The same for the bytes of a text.");
  m.def("remove", &paracel::storage::remove_memory_file, nb::arg("name"), "Forgets such a name.");
}
