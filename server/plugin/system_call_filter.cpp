// SPDX-License-Identifier: BSD-3-Clause
#include "server/plugin/system_call_filter.hpp"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <span>

namespace paracel::srv::system_call_filter {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t own_architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t own_architecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t own_architecture = 0;
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PARACEL_WITHOUT_FILTER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PARACEL_WITHOUT_FILTER 1
#endif
#endif

#ifdef PARACEL_WITHOUT_FILTER
constexpr bool is_wanted = false;
#else
constexpr bool is_wanted = own_architecture != 0;
#endif

// The runtimes of other languages use SIGUSR1, SIGUSR2, SIGVTALRM, SIGPROF, SIGXCPU, SIGPWR and real-time signals
// between their threads. The signals of faults reach a handler (last_words.cpp).
constexpr std::array trapped_signals{SIGHUP,  SIGINT,  SIGQUIT, SIGKILL, SIGPIPE,   SIGALRM, SIGTERM,
                                     SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGSTKFLT, SIGXFSZ, SIGIO};

// Arguments have 64 bits, of which the lower half comes first; those of these calls are shorter.
constexpr std::uint32_t argument_at(std::size_t i) noexcept {
  return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + i * sizeof(std::uint64_t));
}

class filter_program {
 public:
  void load(std::size_t at) noexcept { add(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(at), 0, 0); }
  void result(std::uint32_t action) noexcept { add(BPF_RET | BPF_K, action, 0, 0); }
  /// Runs the next `n` instructions only if the loaded number is this one.
  void only_if(std::uint32_t number, std::uint8_t n) noexcept { add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, n); }
  /// The same if it has any of these bits, or is at least this.
  void only_if_any(std::uint32_t bits, std::uint8_t n) noexcept { add(BPF_JMP | BPF_JSET | BPF_K, bits, 0, n); }
  void only_from(std::uint32_t number, std::uint8_t n) noexcept { add(BPF_JMP | BPF_JGE | BPF_K, number, 0, n); }
  void trap_signals(std::size_t argument) noexcept {
    load(argument_at(argument));
    for (const int s : trapped_signals) {
      only_if(static_cast<std::uint32_t>(s), 1);
      result(SECCOMP_RET_TRAP);
    }
    result(SECCOMP_RET_ALLOW);
  }
  static constexpr std::uint8_t trap_length = 2 + 2 * trapped_signals.size();
  [[nodiscard]] std::span<sock_filter> instructions() noexcept { return std::span(code_).first(size_); }

 private:
  void add(int code, std::uint32_t k, std::uint8_t when_true, std::uint8_t otherwise) noexcept {
    code_[size_++] = {static_cast<std::uint16_t>(code), when_true, otherwise, k};
  }
  std::array<sock_filter, 256> code_{};
  std::size_t size_ = 0;
};

/// The call that sends a signal, and which of its arguments is the signal.
struct sender {
  long number;
  std::size_t signal_at;
};
constexpr std::array senders{sender{SYS_kill, 1},
                             sender{SYS_tkill, 1},
                             sender{SYS_tgkill, 2},
                             sender{SYS_rt_sigqueueinfo, 1},
                             sender{SYS_rt_tgsigqueueinfo, 2},
                             sender{SYS_pidfd_send_signal, 1}};

constexpr std::uint32_t error_of(int number) noexcept {
  return SECCOMP_RET_ERRNO | (static_cast<std::uint32_t>(number) & SECCOMP_RET_DATA);
}

void write(filter_program& p, endings e) noexcept {
  p.load(offsetof(seccomp_data, arch));
  p.only_if(own_architecture, 1);
  p.load(offsetof(seccomp_data, nr));
  p.only_from(0x40000000U, 1);  // calls of x32, and the number of another architecture, which is still loaded
  p.result(error_of(EPERM));
  // Its flags are in memory, which a filter cannot read. The library then uses clone.
  p.only_if(SYS_clone3, 1);
  p.result(error_of(ENOSYS));
  p.only_if(SYS_clone, 4);
  p.load(argument_at(0));
  p.only_if_any(CLONE_THREAD, 1);
  p.result(SECCOMP_RET_ALLOW);
  p.result(error_of(EPERM));
#ifdef SYS_fork
  p.only_if(SYS_fork, 1);
  p.result(error_of(EPERM));
  p.only_if(SYS_vfork, 1);
  p.result(error_of(EPERM));
#endif
  if (e == endings::trapped) {
    p.only_if(SYS_exit_group, 1);
    p.result(SECCOMP_RET_TRAP);
    for (const auto& s : senders) {
      p.only_if(static_cast<std::uint32_t>(s.number), filter_program::trap_length);
      p.trap_signals(s.signal_at);
    }
  }
  p.result(SECCOMP_RET_ALLOW);
}

long argument(const ucontext_t& at, std::size_t i) noexcept {
#if defined(__x86_64__)
  constexpr std::array registers{REG_RDI, REG_RSI, REG_RDX};
  return static_cast<long>(at.uc_mcontext.gregs[registers[i]]);
#elif defined(__aarch64__)
  return static_cast<long>(at.uc_mcontext.regs[i]);
#else
  static_cast<void>(at);
  static_cast<void>(i);
  return 0;
#endif
}

}  // namespace

bool forbid_processes(endings e) noexcept {
  if (!is_wanted) return false;
  filter_program program;
  write(program, e);
  auto code = program.instructions();
  const sock_fprog whole{static_cast<unsigned short>(code.size()), code.data()};
  // Without it only root may have filters.
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  // Functions are trusted not to attack by speculation: without the flag older kernels slow down the whole thread.
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &whole) == 0 ||
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &whole) == 0;
}

trapped_call trapped(const siginfo_t& info, const void* context) noexcept {
  constexpr int by_filter = 1;  // SYS_SECCOMP
  if (info.si_signo != SIGSYS || info.si_code != by_filter || context == nullptr) return {};
  const auto& at = *static_cast<const ucontext_t*>(context);
  if (info.si_syscall == SYS_exit_group) return {"_exit", static_cast<int>(argument(at, 0))};
  const auto* s = std::ranges::find(senders, static_cast<long>(info.si_syscall), &sender::number);
  return s == senders.end() ? trapped_call{} : trapped_call{"kill", static_cast<int>(argument(at, s->signal_at))};
}

}  // namespace paracel::srv::system_call_filter
