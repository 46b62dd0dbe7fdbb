// SPDX-License-Identifier: BSD-3-Clause
#include "server/plugin/sandbox_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>

#include <paracel/error.hpp>

#include "core/futex_wait.hpp"
#include "core/sealed_memory.hpp"

namespace paracel::srv {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int descriptor_there = 3;
// How long a thread sleeps before it checks whether the process is still alive. Short at first: most that die do so at
// once.
constexpr milliseconds first_sleep{1};
constexpr milliseconds longest_sleep{5};
// A sleep that overran by this much is not the function's fault: this process did not run either (a suspended job).
constexpr milliseconds suspended{250};

void require(bool done, const char* what, int code) {
  if (!done)
    throw plugin_error(std::string("the sandbox cannot be started: ") + what + ": " +
                       std::generic_category().message(code));
}

std::string signal_text(int number) {
  const char* name = sigabbrev_np(number);
  std::string text = name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(number);
  if (number == SIGKILL) text += ", as when the system runs out of memory";
  return text;
}

}  // namespace

sandbox_process::sandbox_process(const std::string& program, std::size_t shared_bytes, std::size_t limit_bytes) {
  // Sealed: otherwise the process could shrink it, and reading it here would raise SIGBUS.
  memory_fd_ = sealed_memory("paracel_sandbox", shared_bytes, 0);
  require(memory_fd_ >= 0, "shared memory", errno);
  try {
    void* at = mmap(nullptr, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_fd_, 0);
    require(at != MAP_FAILED, "shared memory", errno);
    memory_ = {static_cast<std::byte*>(at), shared_bytes};
    new (at) sandbox_control{};

    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    // It inherits only standard output and error: no socket, no file.
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, memory_fd_, descriptor_there);
    posix_spawn_file_actions_addclosefrom_np(&files, descriptor_there + 1);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);  // so that what it starts can be killed with it
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    // At most what a process can ever have.
    const auto limit = limit_bytes == 0 ? 0 : shared_bytes + std::min(limit_bytes, ~std::size_t{0} - shared_bytes);
    std::array<std::string, 5> words{program, std::to_string(descriptor_there), std::to_string(shared_bytes),
                                     std::to_string(getpid()), std::to_string(limit)};
    std::array<char*, words.size() + 1> arguments{};
    std::ranges::transform(words, arguments.begin(), [](std::string& w) { return w.data(); });
    const int failed = posix_spawn(&pid_, program.c_str(), &files, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    if (failed != 0) pid_ = -1;
    require(failed == 0, program.c_str(), failed);
  } catch (...) {
    end();
    throw;
  }
}

sandbox_process::~sandbox_process() { end(); }

void sandbox_process::end() noexcept {
  finish();
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
  memory_ = {};
  if (memory_fd_ >= 0) close(memory_fd_);
  memory_fd_ = -1;
}

bool sandbox_process::has_ended(std::string& how) noexcept {
  siginfo_t about{};
  const int found = waitid(P_PID, static_cast<id_t>(pid_), &about, WEXITED | WNOHANG | WNOWAIT);
  if (found == 0 && about.si_pid == 0) return false;
  if (found != 0 && errno == EINTR) return false;
  if (found != 0) how = "it is gone";  // something else has reaped it
  else if (about.si_code == CLD_EXITED) how = "exit(" + std::to_string(about.si_status) + ")";
  else how = signal_text(about.si_status);
  finish();
  return true;
}

void sandbox_process::finish() noexcept {
  if (pid_ <= 0) return;
  kill(-pid_, SIGKILL);  // with what it has started
  kill(pid_, SIGKILL);   // it may have left its group
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

sandbox_process::result sandbox_process::run(std::size_t count, std::uint64_t room_at, milliseconds limit) {
  result r;
  if (pid_ < 0) {
    r.how = "it is gone";
    return r;
  }
  auto& c = *reinterpret_cast<sandbox_control*>(memory_.data());
  c.count = static_cast<std::uint32_t>(count);
  c.room_at = room_at;
  c.begun.store(0, std::memory_order_relaxed);
  auto seen = c.reply.load(std::memory_order_relaxed);
  if (++number_ == seen) ++number_;
  c.request.store(number_, std::memory_order_seq_cst);
  if (c.process_sleeps.load(std::memory_order_seq_cst) != 0) futex::wake(c.request);

  auto sleep = first_sleep;
  auto until = steady_clock::now() + limit;
  while (true) {
    const auto before = steady_clock::now();
    const timespec nap{0, std::chrono::nanoseconds(sleep).count()};
    futex::wait_for_change(c.reply, seen, c.server_sleeps, &nap);
    seen = c.reply.load(std::memory_order_acquire);
    if (seen == number_) break;
    const auto now = steady_clock::now();
    if (now - before > sleep + suspended) until += now - before;
    sleep = std::min(sleep * 2, longest_sleep);
    // Only a larger number is progress, so that `count` times the limit is the longest wait.
    if (const auto begun = std::min<std::size_t>(c.begun.load(std::memory_order_acquire), count); begun > r.begun) {
      r.begun = begun;
      until = now + limit;
    }
    if (has_ended(r.how)) {
      // Its last reply may have come since; what it says has been done.
      if (c.reply.load(std::memory_order_acquire) == number_) break;
      r.begun = std::max(r.begun, std::min<std::size_t>(c.begun.load(std::memory_order_acquire), count));
      return r;
    }
    if (now < until) continue;
    finish();
    if (c.reply.load(std::memory_order_acquire) == number_) break;
    r.late = true;
    return r;
  }
  r.done = true;
  r.how.clear();
  r.begun = std::clamp<std::size_t>(c.begun.load(std::memory_order_acquire), 1, count);
  return r;
}

void sandbox_process::release(std::uint64_t at) noexcept {
  constexpr std::uint64_t page = 4096;
  const auto from = (at + page - 1) / page * page;
  if (from >= memory_.size()) return;
  // A hole: the next write finds zeros there.
  fallocate(memory_fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
            static_cast<off_t>(memory_.size() - from));
}

}  // namespace paracel::srv
