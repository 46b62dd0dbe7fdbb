// SPDX-License-Identifier: BSD-3-Clause
#include "hosted_run.hpp"

#include <malloc.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include <paracel/error.hpp>

#include "core/interruption.hpp"
#include "core/progress_hook.hpp"
#include "program_table.hpp"

namespace paracel::py {

namespace {

/// One of C's streams, whose lines go to a sink while this object exists. A FILE is replaced, not the descriptor: what
/// Python and child processes write stays where it is.
class stream_to_lines {
 public:
  stream_to_lines(FILE*& stream, bool is_stderr, const line_sink& to)
      : stream_(stream), to_(to), is_stderr_(is_stderr) {
    cookie_io_functions_t functions{};
    functions.write = [](void* self, const char* bytes, std::size_t size) -> ssize_t {
      static_cast<stream_to_lines*>(self)->take({bytes, size});
      return static_cast<ssize_t>(size);
    };
    own_ = fopencookie(this, "w", functions);
    if (own_ == nullptr) throw error("no memory for a stream");
    std::setvbuf(own_, nullptr, _IOLBF, BUFSIZ);
    before_ = std::exchange(stream_, own_);
  }
  ~stream_to_lines() {
    stream_ = before_;
    std::fclose(own_);
    if (!line_.empty()) to_(is_stderr_, line_);
  }
  stream_to_lines(const stream_to_lines&) = delete;
  stream_to_lines& operator=(const stream_to_lines&) = delete;

 private:
  void take(std::string_view bytes) {
    for (;;) {
      const auto end = bytes.find('\n');
      line_ += bytes.substr(0, end);
      if (end == std::string_view::npos) return;
      to_(is_stderr_, line_);
      line_.clear();
      bytes.remove_prefix(end + 1);
    }
  }

  FILE*& stream_;
  const line_sink& to_;
  FILE* own_ = nullptr;
  FILE* before_ = nullptr;
  bool is_stderr_;
  std::string line_;
};

std::atomic<const std::atomic<bool>*> interruption_of_run{nullptr};

void check_interruption_of_run() {
  const auto* interrupted = interruption_of_run.load();
  if (interrupted != nullptr && *interrupted) throw error("interrupted");
}

/// While it exists the program's waits and rounds look whether the run was interrupted.
class interruptible {
 public:
  explicit interruptible(const std::atomic<bool>& interrupted) {
    interruption_of_run = &interrupted;
    interruption_hook = &check_interruption_of_run;
  }
  ~interruptible() {
    interruption_hook = nullptr;
    interruption_of_run = nullptr;
  }
  interruptible(const interruptible&) = delete;
  interruptible& operator=(const interruptible&) = delete;
};

const run_host* host_of_run = nullptr;

void report_progress_of_run(int round, int rounds, double objective, const std::string& metric) {
  host_of_run->progress(round, rounds, objective, metric);
}

/// While it exists the program's progress and gbdt's own functions go to the host.
class hosted {
 public:
  explicit hosted(const run_host& by) {
    host_of_run = &by;
    if (by.progress) progress_hook = &report_progress_of_run;
    alg::host_functions::current() = by.functions;
  }
  ~hosted() {
    alg::host_functions::current() = {};
    progress_hook = nullptr;
    host_of_run = nullptr;
  }
  hosted(const hosted&) = delete;
  hosted& operator=(const hosted&) = delete;
};

/// What main_env (src/worker/main_env.cpp) does to a process is undone.
class process_settings {
 public:
  process_settings() { limited_ = ::getrlimit(RLIMIT_NOFILE, &descriptors_) == 0; }
  ~process_settings() {
    std::set_terminate(terminate_);
    if (limited_) ::setrlimit(RLIMIT_NOFILE, &descriptors_);
    ::malloc_trim(0);  // its thresholds for keeping free memory stay
  }
  process_settings(const process_settings&) = delete;
  process_settings& operator=(const process_settings&) = delete;

 private:
  std::terminate_handler terminate_ = std::get_terminate();
  rlimit descriptors_{};
  bool limited_ = false;
};

}  // namespace

int run_hosted(const std::string& program, const std::vector<std::string>& arguments, const run_host& host,
               const std::atomic<bool>& interrupted) {
  const auto found = program_table().find(program);
  if (found == program_table().end()) throw config_error("found no program " + program + "; names() lists them");
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);

  std::mutex both;
  const line_sink in_turn = [&](bool to_stderr, std::string_view line) {
    const std::lock_guard turn(both);
    host.lines(to_stderr, line);
  };
  const process_settings restored_later;
  const interruptible from_now_on(interrupted);
  const hosted now(host);
  check_interruption_of_run();
  std::fflush(stdout);
  const stream_to_lines out(stdout, false, in_turn);
  const stream_to_lines err(stderr, true, in_turn);
  return found->second(static_cast<int>(words.size()), argv.data());
}

std::vector<std::string> program_names() {
  std::vector<std::string> names;
  for (const auto& [name, main] : program_table()) names.push_back(name);
  return names;
}

}  // namespace paracel::py
