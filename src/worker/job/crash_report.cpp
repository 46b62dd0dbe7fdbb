// SPDX-License-Identifier: BSD-3-Clause
//
// A handler may only call what is async-signal-safe, because the thread may have been in malloc or hold a lock:
// backtrace() is, once it has loaded its library; so are _dl_find_object and _Fork (glibc 2.35, 2.34), but not dladdr
// and fork.
#include "worker/job/crash_report.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace paracel {

namespace {

constexpr std::array crashes{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr const char* symbolizer = "/usr/bin/addr2line";
constexpr int most_frames = 64;
constexpr int patience_ms = 10000;  // for addr2line, in all
constexpr std::size_t stack_bytes = 128 << 10U;

char program_said[128] = "program";
std::atomic<pid_t> crashing{0};  // the thread that reports

void put(std::string_view text) noexcept {
  while (!text.empty()) {
    const auto n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// A number as text, ended by a zero.
struct digits {
  char text[24]{};
  digits(std::uint64_t number, int base) noexcept {
    char* at = text;
    if (base == 16) at = std::copy_n("0x", 2, at);
    std::to_chars(at, text + sizeof text - 1, number, base);
  }
};

/// An address inside a file, as addr2line takes it.
struct code_place {
  const char* file = nullptr;  // the path of a library or of the program
  std::uint64_t offset = 0;
};

char own_path[1024];

code_place code_place_of(std::uint64_t address) noexcept {
  dl_find_object found{};
  if (_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) return {};
  const link_map* map = found.dlfo_link_map;
  const char* name = map->l_name != nullptr && *map->l_name != '\0' ? map->l_name : own_path;
  return {name, address - map->l_addr};
}

/// Where the thread was; 0 where that is not known.
std::uint64_t interrupted_at(const ucontext_t& context) noexcept {
#if defined(__x86_64__)
  return static_cast<std::uint64_t>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return context.uc_mcontext.pc;
#else
  (void)context;
  return 0;
#endif
}

/// Lets addr2line write the lines of places in one file. False: it cannot be run, or is late.
bool symbolize(std::span<const code_place> places, int& left_ms) noexcept {
  std::array<digits, most_frames> offsets = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<digits, most_frames>{digits(I < places.size() ? places[I].offset : 0, 16)...};
  }
  (std::make_index_sequence<most_frames>{});
  std::array<const char*, most_frames + 5> words{"addr2line", "-Cfpi", "-e", places[0].file};
  for (std::size_t i = 0; i < places.size(); ++i) words[4 + i] = offsets[i].text;
  const pid_t child = _Fork();
  if (child == 0) {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nowhere, STDERR_FILENO);
    dup2(nowhere, STDIN_FILENO);
    execve(symbolizer, const_cast<char* const*>(words.data()), environ);
    _exit(127);
  }
  if (child < 0) return false;
  for (; left_ms > 0; left_ms -= 10) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    const timespec moment{0, 10'000'000};
    nanosleep(&moment, nullptr);
  }
  ::kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return false;
}

void put_calls(const ucontext_t& context) noexcept {
  std::array<void*, most_frames> frames{};
  const int count = backtrace(frames.data(), most_frames);
  const auto here = interrupted_at(context);
  // Before `here` are this handler and what has called it.
  const auto end = frames.begin() + count;
  auto at = std::find_if(frames.begin(), end, [&](void* f) { return reinterpret_cast<std::uint64_t>(f) == here; });
  if (at == end) at = frames.begin();
  std::array<code_place, most_frames> places;
  std::size_t known = 0;
  for (; at != end; ++at) {
    const auto address = reinterpret_cast<std::uint64_t>(*at);
    // A return address is behind its call, perhaps already in another line.
    const auto found = code_place_of(address == here ? address : address - 1);
    if (found.file != nullptr) places[known++] = found;
  }
  const bool has_symbolizer = access(symbolizer, X_OK) == 0;
  int left_ms = patience_ms;
  for (std::size_t i = 0, next = 0; i < known; i = next) {
    for (next = i + 1; next < known && std::strcmp(places[next].file, places[i].file) == 0;) ++next;
    if (has_symbolizer && symbolize(std::span(places).subspan(i, next - i), left_ms)) continue;
    for (auto n = i; n < next; ++n) {
      put(places[n].file);
      put("+");
      put(digits(places[n].offset, 16).text);
      put("\n");
    }
  }
  if (!has_symbolizer) put("(functions and lines: addr2line, of the package binutils, is not installed)\n");
}

void on_crash(int number, siginfo_t* info, void* context) noexcept {
  pid_t nobody = 0;
  if (!crashing.compare_exchange_strong(nobody, gettid())) {
    const timespec limit{patience_ms / 1000 + 2, 0};
    // Another thread reports, and then ends the process; or this one has crashed while it reports.
    if (nobody != gettid()) nanosleep(&limit, nullptr);
  } else {
    put(program_said);
    put(": error: SIG");
    const char* name = sigabbrev_np(number);
    put(name != nullptr ? name : "?");
    if (info->si_code > 0 && number != SIGABRT) {
      put(" at address ");
      put(digits(reinterpret_cast<std::uint64_t>(info->si_addr), 16).text);
    }
    put(" (process ");
    put(digits(static_cast<std::uint64_t>(getpid()), 10).text);
    put("), in these calls:\n");
    put_calls(*static_cast<const ucontext_t*>(context));
  }
  // As without this handler: the fault repeats itself, a signal that was sent is sent again.
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(number, &usual, nullptr);
  if (info->si_code <= 0 || number == SIGABRT) raise(number);
}

}  // namespace

void report_crashes(const std::string& program) {
  program_said[program.copy(program_said, sizeof program_said - 1)] = '\0';
  if (const auto n = readlink("/proc/self/exe", own_path, sizeof own_path - 1); n > 0) own_path[n] = '\0';
  std::array<void*, 2> some{};
  backtrace(some.data(), 2);  // loads libgcc_s
  // A thread that has overflowed its stack needs another one. Only this thread has it: the others would need it each.
  static std::array<char, stack_bytes> stack;
  const stack_t other{stack.data(), 0, stack.size()};
  sigaltstack(&other, nullptr);
  struct sigaction ours {};
  ours.sa_sigaction = on_crash;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  for (const int number : crashes) {
    struct sigaction before {};
    if (sigaction(number, nullptr, &before) == 0 && (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_DFL)
      sigaction(number, &ours, nullptr);
  }
}

}  // namespace paracel
