// SPDX-License-Identifier: BSD-3-Clause
#include "server/plugin/last_words.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace paracel::srv::last_words {
namespace {

constexpr int question = SIGUSR2;
constexpr std::array deadly{SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
constexpr std::size_t longest_key = 128;
constexpr int patience_ms = 1500;

/// Text of a fixed size, which can be written in a signal handler. What does not fit is truncated.
class line {
 public:
  void add(std::string_view text) noexcept {
    const auto n = std::min(text.size(), text_.size() - size_);
    std::memcpy(text_.data() + size_, text.data(), n);
    size_ += n;
  }
  void add(std::uint64_t number) noexcept {
    char digits[20];
    add({digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, number).ptr - digits)});
  }
  /// In quotes; unprintable characters become dots, long text is truncated.
  void add_quoted(std::string_view text) noexcept {
    add("\"");
    for (const char c : text.substr(0, longest_key)) {
      const auto u = static_cast<unsigned char>(c);
      const char shown = u < 0x20 || u == 0x7f || c == '"' || c == '\\' ? '.' : c;
      add({&shown, 1});
    }
    add(text.size() > longest_key ? "...\"" : "\"");
  }
  [[nodiscard]] std::string_view text() const noexcept { return {text_.data(), size_}; }

 private:
  std::array<char, 1024> text_{};
  std::size_t size_ = 0;
};

struct said {
  std::uint64_t function = 0;
  line how;
  line where;
};

// The report is written by the one thread that has set `taken`, and read once `complete` is seen.
said words_said;
std::atomic<bool> taken{false};
std::atomic<bool> complete{false};
std::atomic<bool> reported{false};
std::atomic<bool> installed{false};
pthread_t listener;
int listener_signal = 0;
std::uint32_t own_slot = 0;

std::string_view signal_name(int signal) noexcept {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV";
    case SIGBUS:
      return "SIGBUS";
    case SIGILL:
      return "SIGILL";
    case SIGFPE:
      return "SIGFPE";
    case SIGABRT:
      return "SIGABRT";
    case SIGTRAP:
      return "SIGTRAP";
    default:
      return "SIGSYS";
  }
}

/// False: the thread is in no user function, or another one has reported.
bool speak(const line& how) noexcept {
  const auto& call = current_call;
  if (call.name == nullptr || taken.exchange(true)) return false;
  words_said.function = call.function;
  words_said.how = how;
  auto& where = words_said.where;
  where.add(*call.name);
  if (call.row != user_call::no_row) {
    where.add(" at row ");
    where.add(call.row);
    where.add(" of table ");
    where.add_quoted(call.key);
  } else if (!call.key.empty()) {
    where.add(" at ");
    where.add_quoted(call.key);
  }
  complete.store(true, std::memory_order_release);
  pthread_kill(listener, listener_signal);
  return true;
}

/// Returns at once if the thread is in no user function and none has reported.
void say_and_wait(const line& how) noexcept {
  if (speak(how)) {
    line all;
    all.add("start_server: error: s");
    all.add(own_slot);
    all.add(" ends: ");
    all.add(how.text());
    all.add(" in ");
    all.add(words_said.where.text());
    all.add("\n");
    [[maybe_unused]] const auto written = write(STDERR_FILENO, all.text().data(), all.text().size());
  } else if (!taken) {
    return;
  }
  for (int i = 0; i < patience_ms && !reported.load(std::memory_order_acquire); ++i) {
    const timespec moment{0, 1'000'000};
    nanosleep(&moment, nullptr);
  }
}

void on_deadly(int signal, siginfo_t*, void*) {
  const int before = errno;
  line how;
  how.add(signal_name(signal));
  say_and_wait(how);
  errno = before;
  // It is raised again, with its default action.
  ::signal(signal, SIG_DFL);
  raise(signal);
}

void on_question(int) {
  const int before = errno;
  speak({});
  errno = before;
}

void on_exit_status(int status, void*) {
  line how;
  how.add("exit(");
  how.add(static_cast<std::uint64_t>(status & 0xff));
  how.add(")");
  say_and_wait(how);
}

void on_quick_exit() {
  line how;
  how.add("quick_exit");
  say_and_wait(how);
}

/// A thread's signal stack.
class signal_stack {
 public:
  signal_stack() : memory_(std::make_unique<std::byte[]>(bytes)) {
    stack_t stack{};
    stack.ss_sp = memory_.get();
    stack.ss_size = bytes;
    sigaltstack(&stack, nullptr);
  }
  ~signal_stack() {
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }
  signal_stack(const signal_stack&) = delete;
  signal_stack& operator=(const signal_stack&) = delete;

 private:
  static constexpr std::size_t bytes = std::size_t{64} << 10;
  const std::unique_ptr<std::byte[]> memory_;
};

}  // namespace

void install(std::uint32_t slot, pthread_t main, int wake) {
  own_slot = slot;
  listener = main;
  listener_signal = wake;
  struct sigaction act {};
  act.sa_flags = SA_ONSTACK | SA_SIGINFO;
  act.sa_sigaction = &on_deadly;
  sigemptyset(&act.sa_mask);
  for (const int s : deadly) sigaction(s, &act, nullptr);
  act.sa_flags = SA_ONSTACK | SA_RESTART;
  act.sa_handler = &on_question;
  sigaction(question, &act, nullptr);
  on_exit(&on_exit_status, nullptr);
  at_quick_exit(&on_quick_exit);
  installed.store(true, std::memory_order_release);
}

void prepare_thread() {
  if (installed.load(std::memory_order_acquire)) thread_local const signal_stack of_this_thread;
}

std::optional<words> heard() {
  if (!complete.load(std::memory_order_acquire)) return std::nullopt;
  return words{words_said.function, std::string(words_said.how.text()), std::string(words_said.where.text())};
}

void passed_on() noexcept { reported.store(true, std::memory_order_release); }

void ask(pthread_t thread) noexcept { pthread_kill(thread, question); }

}  // namespace paracel::srv::last_words
