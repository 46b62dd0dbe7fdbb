// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <paracel/error.hpp>

#include "array_files.hpp"
#include "hosted_run.hpp"
#include "storage/memory_file.hpp"

namespace nb = nanobind;
using namespace paracel::py;

namespace {

/// What a program says and asks on its way to the thread that waits for it: that one alone calls Python, where Ctrl-C
/// arrives, and since a thread that waits for the interpreter's lock inside of printf could wait for one that holds it
/// and prints.
class conversation {
 public:
  struct progress {
    int round = 0;
    int rounds = 0;
    double value = 0;
    std::string metric;
  };
  struct news {
    std::vector<std::pair<bool, std::string>> lines;
    std::optional<progress> last;  ///< the last report of progress
    const std::function<void()>* call = nullptr;
  };

  void add(bool to_stderr, std::string_view line) {
    const std::lock_guard lock(access_);
    waiting_.lines.emplace_back(to_stderr, line);
    changed_.notify_one();
  }
  void add(progress p) {
    const std::lock_guard lock(access_);
    waiting_.last = std::move(p);
    changed_.notify_one();
  }
  void end() {
    const std::lock_guard lock(access_);
    ended_ = true;
    changed_.notify_one();
  }
  /// Has `f` called by the other thread. Throws: error with the words of what it has raised.
  void ask(const std::function<void()>& f) {
    std::unique_lock lock(access_);
    waiting_.call = &f;
    answered_ = false;
    changed_.notify_one();
    answer_.wait(lock, [&] { return answered_; });
    if (!failure_.empty()) throw paracel::error(failure_);
  }
  /// The call has been made. `failure`: what it has raised, or empty.
  void answer(std::string failure) {
    const std::lock_guard lock(access_);
    failure_ = std::move(failure);
    answered_ = true;
    answer_.notify_one();
  }
  /// False when the program has ended, and all it said has been taken.
  bool next(news& to) {
    std::unique_lock lock(access_);
    const auto any = [&] { return !waiting_.lines.empty() || waiting_.last || waiting_.call != nullptr; };
    changed_.wait_for(lock, signals_every, [&] { return ended_ || any(); });
    const bool more = !ended_ || any();
    to = std::exchange(waiting_, {});
    return more;
  }

 private:
  static constexpr std::chrono::milliseconds signals_every{100};
  std::mutex access_;
  std::condition_variable changed_;
  std::condition_variable answer_;
  news waiting_;
  bool ended_ = false;
  bool answered_ = false;
  std::string failure_;
};

nb::object array_of(std::span<const double> numbers) {
  auto* kept = new std::vector<double>(numbers.begin(), numbers.end());
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, double, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

void copy_numbers(nb::handle from, std::span<double> to) {
  const auto a = nb::cast<nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(from);
  if (a.size() != to.size())
    throw paracel::error("found " + std::to_string(a.size()) + " derivatives, want " + std::to_string(to.size()));
  std::copy_n(a.data(), a.size(), to.begin());
}

/// The words of an exception of Python: "ZeroDivisionError: division by zero".
std::string words_of(const std::exception_ptr& raised) {
  try {
    std::rethrow_exception(raised);
  } catch (const nb::python_error& e) {
    const auto words = nb::cast<std::string>(nb::str(e.value()));
    return nb::cast<std::string>(e.type().attr("__name__")) + (words.empty() ? "" : ": " + words);
  } catch (const std::exception& e) {
    return e.what();
  }
}

/// What Python is called with, and what it raises. What it raises, and KeyboardInterrupt, ends the program at its next
/// round or wait, and is raised when it has ended: its threads and its server cannot be left in the middle.
int run(const std::string& program, const std::vector<std::string>& arguments, const nb::callable& on_line,
        const nb::object& on_progress, const nb::object& objective, const nb::object& metric) {
  static thread_local bool calls_python = false;
  if (calls_python)
    throw paracel::error(program + ": another program is running, which called the function that runs this one");
  conversation talk;
  std::atomic<bool> interrupted{false};
  run_host host;
  host.lines = [&](bool to_stderr, std::string_view line) { talk.add(to_stderr, line); };
  if (!on_progress.is_none())
    host.progress = [&](int round, int rounds, double value, const std::string& name) {
      talk.add(conversation::progress{round, rounds, value, name});
    };
  if (!objective.is_none())
    host.functions.objective = [&](std::span<const double> label, std::span<const double> raw, std::size_t outputs,
                                   std::span<double> first, std::span<double> second) {
      talk.ask([&] {
        const nb::tuple found(objective(array_of(label), array_of(raw), outputs));
        copy_numbers(found[0], first);
        copy_numbers(found[1], second);
      });
    };
  if (!metric.is_none())
    host.functions.metric = [&](std::span<const double> label, std::span<const double> prediction,
                                std::size_t outputs) {
      double value = 0;
      talk.ask([&] { value = nb::cast<double>(metric(array_of(label), array_of(prediction), outputs)); });
      return value;
    };
  int status = 0;
  std::exception_ptr failed;  // the program could not begin
  std::thread running([&] {
    try {
      status = run_hosted(program, arguments, host, interrupted);
    } catch (...) {
      failed = std::current_exception();
    }
    talk.end();
  });
  std::exception_ptr raised;  // by Python
  const auto call = [&](const auto& some) {
    if (raised) return;
    calls_python = true;
    try {
      some();
    } catch (...) {
      raised = std::current_exception();
      interrupted = true;
    }
    calls_python = false;
  };
  for (conversation::news some;;) {
    {
      const nb::gil_scoped_release released;
      if (!talk.next(some)) break;
    }
    call([&] {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    });
    for (const auto& [to_stderr, line] : some.lines)
      call([&] { on_line(to_stderr, nb::bytes(line.data(), line.size()).attr("decode")("utf-8", "replace")); });
    if (const auto& p = some.last) call([&] { on_progress(p->round, p->rounds, p->value, p->metric); });
    if (some.call != nullptr) {
      call([&] { (*some.call)(); });
      talk.answer(raised ? words_of(raised) : "");
    }
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
  // The framework's exceptions become those of Python by the translator of _core, which serves all extensions of a
  // process.
  m.doc() = "The programs of the toolbox, run in this process on arrays.";
  m.def("names", &program_names, "The names of all programs.");
  m.def("run", &run, nb::arg("program"), nb::arg("arguments"), nb::arg("on_line"), nb::kw_only(),
        nb::arg("on_progress") = nb::none(), nb::arg("objective") = nb::none(), nb::arg("metric") = nb::none(),
        "Runs a program's main function. on_line(to_stderr, line) is called for what it prints, on_progress(round, "
        "rounds, value, metric) for its progress (rounds 0: unknown). Of gbdt: objective(label, raw, outputs) -> "
        "(first, second derivatives), metric(label, prediction, outputs) -> number; arrays are flat. Returns its exit "
        "status.");
  m.def("add_table", &add_table_file, nb::arg("name"), nb::arg("parts"),
        "From now on programs read `name` (memory:...) as an .npy matrix: one part after the other, of each the arrays "
        "side by side.");
  m.def("add_sparse", &add_sparse_file, nb::arg("name"), nb::arg("columns"), nb::arg("indptr"), nb::arg("indices"),
        nb::arg("data"), nb::arg("labels"), nb::arg("groups"), "The same for a CSR matrix.");
  m.def("add_text", &add_text_file, nb::arg("name"), nb::arg("text"), "The same for the bytes of a text.");
  m.def("remove", &paracel::storage::remove_memory_file, nb::arg("name"), "Forgets such a name.");
}
