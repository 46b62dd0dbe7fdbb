// SPDX-License-Identifier: BSD-3-Clause
#include "server/plugin/last_words.hpp"

#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "server/plugin/system_call_filter.hpp"

namespace paracel::srv::last_words {
namespace {

constexpr int question = SIGUSR2;
// Raised by what a thread does itself: a fault, a trapped call, a write to a pipe that nobody reads or beyond the limit
// of a file's size.
constexpr std::array deadly{SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS, SIGPIPE, SIGXFSZ};
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
  void add_signal(int number) noexcept {
    const char* name = sigabbrev_np(number);
    add(name != nullptr ? "SIG" : "a signal");
    if (name != nullptr) add(std::string_view(name));
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
  bool is_cut_off = false;
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
bool restricts_threads = false;
std::atomic<bool> is_unrestricted_said{false};
// exit() is reported before its handlers run, and what it ends with is trapped.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool has_waited = false;
// A descriptor that nothing uses: when it is closed, so are those of the connections.
int canary = -1;
// The framework's own functions start no threads and close nothing.
constexpr std::string_view own_functions = "libparacel_default.so:";
// More than a server has shard threads (membership::most_threads).
std::array<std::atomic<const published_call*>, 1088> calls_of_threads{};

/// Copies from memory that may not exist. Returns: how much.
std::size_t copy_if_there(const void* from, std::span<std::byte> to) noexcept {
  const iovec local{to.data(), to.size()};
  const iovec remote{const_cast<void*>(from), to.size()};
  const auto copied = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
  return copied < 0 ? 0 : static_cast<std::size_t>(copied);
}

/// False: another thread has reported.
bool speak(const line& how, const user_call& call, bool is_cut_off = false) noexcept {
  if (taken.exchange(true)) return false;
  words_said.function = call.function;
  words_said.how = how;
  words_said.is_cut_off = is_cut_off;
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

bool is_cut_off() noexcept { return canary >= 0 && fcntl(canary, F_GETFD) < 0 && errno == EBADF; }

/// The file name of the library that has code at this address; empty: none.
std::string_view library_of(const void* address) noexcept {
  dl_find_object found{};
  if (_dl_find_object(const_cast<void*>(address), &found) != 0 || found.dlfo_link_map == nullptr) return {};
  const std::string_view path = found.dlfo_link_map->l_name;
  return path.substr(path.rfind('/') + 1);
}

/// The one function that is running in any thread, or else the one that ran last, of a library, or of any but ours.
/// Without a name: there is none, or there are several, which cannot be told apart.
published_call::seen only_call(std::string_view library) noexcept {
  published_call::seen running, ended;
  bool several_running = false, several_ended = false;
  for (const auto& of_thread : calls_of_threads) {
    const auto* published = of_thread.load(std::memory_order_acquire);
    if (published == nullptr) continue;
    const auto seen = published->read();
    if (seen.call.name == nullptr || seen.call.function == 0) continue;
    const std::string_view name = *seen.call.name;
    if (name.starts_with(own_functions)) continue;
    if (!library.empty() && !(name.starts_with(library) && name.substr(library.size()).starts_with(":"))) continue;
    auto& one = seen.is_running ? running : ended;
    auto& several = seen.is_running ? several_running : several_ended;
    several = several || (one.call.name != nullptr && one.call.function != seen.call.function);
    one = seen;
  }
  if (running.call.name != nullptr) return several_running ? published_call::seen{} : running;
  return several_ended ? published_call::seen{} : ended;
}

/// The same for a thread that a plug-in has started: the library is that of a caller on its stack.
published_call::seen starter_of_thread(const void* context) noexcept {
  constexpr std::size_t searched = 4096;
  if (context == nullptr) return {};
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  const auto at = static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
  const auto stack = static_cast<std::uintptr_t>(machine.gregs[REG_RSP]);
#elif defined(__aarch64__)
  const std::uintptr_t at = machine.pc, stack = machine.sp;
#else
  const std::uintptr_t at = 0, stack = 0;
#endif
  const auto starter = [](std::uintptr_t address) {
    const auto library = library_of(reinterpret_cast<const void*>(address));
    return library.empty() ? published_call::seen{} : only_call(library);
  };
  if (const auto found = starter(at); found.call.name != nullptr) return found;
  std::array<std::uintptr_t, 512> words{};
  for (std::size_t n = 0; n < searched; n += words.size()) {
    const auto* from = reinterpret_cast<const void*>(stack + n * sizeof words[0]);
    const auto bytes = copy_if_there(from, std::as_writable_bytes(std::span(words)));
    for (std::size_t i = 0; i < bytes / sizeof words[0]; ++i) {
      if (const auto found = starter(words[i]); found.call.name != nullptr) return found;
    }
    if (bytes < sizeof words) break;
  }
  return {};
}

using key_copy = std::array<char, longest_key + 1>;

/// The call to blame for what is happening to this thread, which may not be in one. The key of another thread's call is
/// copied to `key`.
published_call::seen culprit(line& how, const void* context, bool cut_off, key_copy& key) noexcept {
  const auto own = current_call.read();
  if (own.is_running) return own;
  // A thread of ours between two calls: the fault is ours, whatever remains of the last call on its stack.
  if (!cut_off && own.call.name != nullptr) return {};
  published_call::seen found;
  if (cut_off) {
    found = only_call({});
    how.add(" after all descriptors were closed");
  } else {
    found = starter_of_thread(context);
    how.add(" of a thread that was started");
  }
  if (found.call.name == nullptr) return {};
  // The key may be gone.
  const auto wanted = found.is_running ? std::min(found.call.key.size(), key.size()) : 0;
  const auto bytes = copy_if_there(found.call.key.data(), std::as_writable_bytes(std::span(key).first(wanted)));
  found.call.key = {key.data(), bytes};
  if (!found.is_running) found.call.row = user_call::no_row;
  return found;
}

/// Returns at once if no user function is to blame and none has reported.
void say_and_wait(line how, const void* context = nullptr) noexcept {
  if (has_waited) return;
  const bool cut_off = is_cut_off();
  key_copy key;
  const auto blamed = culprit(how, context, cut_off, key);
  if (blamed.call.name != nullptr && speak(how, blamed.call, cut_off)) {
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
  has_waited = true;
  for (int i = 0; i < patience_ms && !reported.load(std::memory_order_acquire); ++i) {
    const timespec moment{0, 1'000'000};
    nanosleep(&moment, nullptr);
  }
}

void on_deadly(int signal, siginfo_t* info, void* context) {
  const int before = errno;
  line how;
  const auto call = system_call_filter::trapped(*info, context);
  if (call.name.empty()) {
    how.add_signal(signal);
  } else {
    const bool exits = call.name == "_exit";
    how.add(call.name);
    how.add("(");
    if (exits) how.add(static_cast<std::uint64_t>(call.argument & 0xff));
    else how.add_signal(call.argument);
    how.add(")");
  }
  say_and_wait(how, context);
  // The program is not at fault where the filter has trapped a call, and there is nothing to be found in a core dump.
  if (!call.name.empty()) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  errno = before;
  // It is raised again, with its default action.
  ::signal(signal, SIG_DFL);
  raise(signal);
}

void on_question(int) {
  const int before = errno;
  // Nothing while it is being written: the thread is asked again.
  if (const auto own = current_call.read(); own.is_running) speak({}, own.call);
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

/// Makes the calls of the calling thread visible to others.
class listed_thread {
 public:
  listed_thread() noexcept {
    for (auto& place : calls_of_threads) {
      const published_call* none = nullptr;
      if (!place.compare_exchange_strong(none, &current_call)) continue;
      place_ = &place;
      return;
    }
  }
  ~listed_thread() {
    if (place_ != nullptr) place_->store(nullptr, std::memory_order_release);
  }
  listed_thread(const listed_thread&) = delete;
  listed_thread& operator=(const listed_thread&) = delete;

 private:
  std::atomic<const published_call*>* place_ = nullptr;
};

}  // namespace

void install(std::uint32_t slot, pthread_t main, int wake, bool restricts) {
  own_slot = slot;
  listener = main;
  listener_signal = wake;
  restricts_threads = restricts;
  canary = open("/dev/null", O_RDONLY | O_CLOEXEC);
  struct sigaction act {};
  act.sa_flags = SA_ONSTACK | SA_SIGINFO;
  act.sa_sigaction = &on_deadly;
  sigemptyset(&act.sa_mask);
  for (const int s : deadly) {
    struct sigaction earlier {};
    sigaction(s, nullptr, &earlier);
    if (earlier.sa_handler != SIG_IGN) sigaction(s, &act, nullptr);
  }
  act.sa_flags = SA_ONSTACK | SA_RESTART;
  act.sa_handler = &on_question;
  sigaction(question, &act, nullptr);
  on_exit(&on_exit_status, nullptr);
  at_quick_exit(&on_quick_exit);
  installed.store(true, std::memory_order_release);
}

void prepare_thread() {
  if (!installed.load(std::memory_order_acquire)) return;
  thread_local const signal_stack of_this_thread;
  thread_local const listed_thread listed;
}

void admit_user_code() noexcept {
  if (!installed.load(std::memory_order_acquire) || !restricts_threads) return;
  has_user_code.store(true, std::memory_order_relaxed);
  if (!is_thread_restricted) restrict_thread();
}

void restrict_thread() noexcept {
  is_thread_restricted = true;
  if (system_call_filter::forbid_processes(system_call_filter::endings::trapped)) return;
  if (is_unrestricted_said.exchange(true)) return;
  std::fprintf(stderr,
               "start_server: s%u: cannot keep user functions from starting processes, which may outlive the job: "
               "no seccomp filters here\n",
               own_slot);
}

std::optional<words> heard() {
  if (!complete.load(std::memory_order_acquire)) return std::nullopt;
  return words{words_said.function, std::string(words_said.how.text()), std::string(words_said.where.text()),
               words_said.is_cut_off};
}

bool notice_closed_descriptors() noexcept {
  if (!is_cut_off()) return false;
  line how;
  how.add("it failed");
  key_copy key;
  const auto blamed = culprit(how, nullptr, true, key);
  return blamed.call.name != nullptr && speak(how, blamed.call, true);
}

void passed_on() noexcept { reported.store(true, std::memory_order_release); }

void ask(pthread_t thread) noexcept { pthread_kill(thread, question); }

}  // namespace paracel::srv::last_words
