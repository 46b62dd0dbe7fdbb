// SPDX-License-Identifier: BSD-3-Clause
//
// A process of a server's sandbox: runs user functions for one of its threads (server/plugin/plugin_sandbox.hpp).
//
//   start_sandbox MEMORY_FD BYTES SERVER_PID LIMIT_BYTES
//
// It has nothing of the server's but the memory they share, standard output and standard error, and ends with it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/futex_wait.hpp"
#include "server/plugin/plugin_library.hpp"
#include "server/plugin/sandbox_memory.hpp"
#include "server/plugin/system_call_filter.hpp"

namespace {

using namespace paracel;
using namespace paracel::srv;
namespace layout = paracel::srv::sandbox_layout;

using std::chrono::steady_clock;

// After this the rest of a hand-over is returned undone: calls that are slow gain nothing from being handed over
// together.
constexpr std::chrono::milliseconds most_time{20};

#ifdef PARACEL_SANITIZED
constexpr bool limits_memory = false;  // a sanitizer reserves terabytes of addresses
constexpr bool is_restrictable = false;
#else
constexpr bool limits_memory = true;
constexpr bool is_restrictable = true;
#endif

/// Restricts this process from now on.
void give_up_rights(std::uint64_t most_bytes) {
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (limits_memory && most_bytes != 0) {
    const rlimit memory{most_bytes, most_bytes};
    setrlimit(RLIMIT_AS, &memory);
  }
  if (!system_call_filter::forbid_processes(system_call_filter::endings::allowed) && is_restrictable)
    std::fprintf(stderr,
                 "start_sandbox: cannot keep user functions from starting processes, which may outlive the job: "
                 "no seccomp filters here\n");
  // When the system has no memory left, this process ends before any server does.
  if (const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); fd >= 0) {
    [[maybe_unused]] const auto written = write(fd, "1000", 4);
    close(fd);
  }
}

class sandbox {
 public:
  explicit sandbox(std::span<std::byte> memory)
      : memory_(memory), control_(*reinterpret_cast<sandbox_control*>(memory.data())) {}

  [[noreturn]] void serve() {
    std::uint32_t done = 0;
    while (true) {
      futex::wait_for_change(control_.request, done, control_.process_sleeps);
      const auto number = control_.request.load(std::memory_order_acquire);
      if (number == done) continue;
      room_at_ = control_.room_at;
      const auto count = std::min<std::size_t>(control_.count, layout::most_calls);
      const auto until = steady_clock::now() + most_time;
      for (std::size_t i = 0; i < count && (i == 0 || steady_clock::now() < until); ++i) {
        control_.begun.store(static_cast<std::uint32_t>(i + 1), std::memory_order_release);
        sandbox_call c;
        std::memcpy(&c, memory_.data() + layout::calls_at + i * sizeof c, sizeof c);
        const auto a = run(c);
        std::memcpy(memory_.data() + layout::answers_at + i * sizeof a, &a, sizeof a);
      }
      std::fflush(stdout);  // it may be killed at any time
      done = number;
      control_.reply.store(number, std::memory_order_seq_cst);
      if (control_.server_sleeps.load(std::memory_order_seq_cst) != 0) futex::wake(control_.reply);
    }
  }

 private:
  std::byte* at(const sandbox_place& p) const noexcept { return memory_.data() + p.at; }
  std::string_view text(const sandbox_place& p) const noexcept {
    return {reinterpret_cast<const char*>(at(p)), static_cast<std::size_t>(p.bytes)};
  }
  abi::value value(const sandbox_place& p, std::uint8_t tag) const noexcept { return {at(p), p.bytes, tag, {}}; }

  /// Null: it does not fit.
  std::byte* place(std::uint64_t bytes, sandbox_place& out) noexcept {
    const auto begin = layout::aligned(room_at_);
    if (begin > memory_.size() || bytes > memory_.size() - begin) return nullptr;
    out = {begin, bytes};
    room_at_ = begin + bytes;
    return at(out);
  }
  void put_text(std::string_view says, sandbox_answer& a) noexcept {
    says = says.substr(0, layout::most_text_bytes);
    if (auto* to = place(says.size(), a.text); to != nullptr) std::memcpy(to, says.data(), says.size());
  }
  sandbox_answer failure(std::string_view why) noexcept {
    sandbox_answer a;
    a.outcome = abi::failed;
    put_text(why, a);
    return a;
  }

  struct destination {
    sandbox& of;
    sandbox_answer& answer;
    static std::byte* place(void* context, std::uint8_t tag, std::uint64_t bytes) noexcept {
      auto& self = *static_cast<destination*>(context);
      self.answer.tag = tag;
      return self.of.place(bytes, self.answer.result);
    }
  };

  sandbox_answer run(const sandbox_call& c) {
    if (c.work == sandbox_work::load) return load(c);
    if (c.work == sandbox_work::exports) return exports(c);
    sandbox_answer a;
    std::array<char, layout::most_text_bytes + 1> buffer;
    buffer[0] = '\0';
    abi::error_text error{buffer.data(), buffer.size()};
    destination to{*this, a};
    const abi::sink out{&to, &destination::place};
    const auto* address = functions_[c.function];
    const auto v = value(c.value, c.tag);
    const auto d = value(c.delta, c.delta_tag);
    const auto* u = reinterpret_cast<const update_result*>(address);
    switch (c.work) {
      case sandbox_work::apply:
        a.outcome = u->apply(u, &v, &d, &out, &error);
        break;
      case sandbox_work::in_place:
        a.outcome = u->in_place(u, c.tag, at(c.value), at(c.delta), count_of(c), &error);
        break;
      case sandbox_work::initialise:
        a.outcome = u->initialise(u, &d, &out, &error);
        break;
      case sandbox_work::step: {
        const auto* o = reinterpret_cast<const optimizer_result*>(address);
        a.outcome = o->step(o, reinterpret_cast<const double*>(at(c.extra)), c.tag, at(c.value), at(c.state),
                            at(c.delta), count_of(c), c.number, &error);
        break;
      }
      default: {
        const auto* f = reinterpret_cast<const filter_result*>(address);
        a.outcome = f->test(f, text(c.extra).data(), c.extra.bytes, c.tag != 0 ? &v : nullptr, &a.keep, &error);
      }
    }
    if (a.outcome != abi::ok) put_text(buffer.data(), a);
    return a;
  }
  static std::uint64_t count_of(const sandbox_call& c) noexcept {
    return c.value.bytes / element_bytes(static_cast<value_tag>(c.tag));
  }

  mapped_library* library(std::string_view path, std::string& why) {
    if (const auto known = libraries_.find(path); known != libraries_.end()) return known->second.get();
    auto fresh = std::make_unique<mapped_library>();
    if (!fresh->open(std::string(path), why)) {
      // It may rely on the framework's library, which every server has loaded, without being linked to it.
      if (!mapped_library::share("libparacel.so") || !fresh->open(std::string(path), why)) return nullptr;
    }
    return libraries_.emplace(path, std::move(fresh)).first->second.get();
  }

  sandbox_answer load(const sandbox_call& c) {
    std::string why;
    auto* from = library(text(c.value), why);
    if (from == nullptr) return failure(why);
    sandbox_answer a;
    if (c.delta.bytes == 0) return a;
    const auto found = from->find(text(c.delta));
    if (!found) return a;
    if (functions_.size() <= c.function) functions_.resize(c.function + 1);
    functions_[c.function] = found->address;
    const auto bytes = found->bytes(found->is_object() ? sizeof(optimizer_result) : 0);
    const sandbox_symbol head{found->size, found->type, 0};
    auto* to = place(sizeof head + bytes.size(), a.result);
    if (to == nullptr) return failure("no room for a symbol");
    std::memcpy(to, &head, sizeof head);
    if (!bytes.empty()) std::memcpy(to + sizeof head, bytes.data(), bytes.size());
    return a;
  }
  sandbox_answer exports(const sandbox_call& c) {
    std::string why;
    auto* from = library(text(c.value), why);
    if (from == nullptr) return failure(why);
    std::string all;
    for (const auto& name : from->exports(static_cast<std::uint32_t>(c.number))) all += name + '\0';
    sandbox_answer a;
    auto* to = place(all.size(), a.result);
    if (to == nullptr) return failure("too many names");
    if (!all.empty()) std::memcpy(to, all.data(), all.size());
    return a;
  }

  const std::span<std::byte> memory_;
  sandbox_control& control_;
  std::uint64_t room_at_ = 0;
  std::map<std::string, std::unique_ptr<mapped_library>, std::less<>> libraries_;
  std::vector<const std::byte*> functions_;
};

bool read_number(const char* text, std::uint64_t& out) {
  const auto* end = text + std::strlen(text);
  const auto [stop, failed] = std::from_chars(text, end, out);
  return failed == std::errc() && stop == end;
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // before anything else: it must not outlive the server
  std::uint64_t fd = 0, bytes = 0, server = 0, limit = 0;
  if (argc != 5 || !read_number(argv[1], fd) || !read_number(argv[2], bytes) || !read_number(argv[3], server) ||
      !read_number(argv[4], limit) || bytes < layout::data_at) {
    std::fprintf(stderr, "start_sandbox: error: only a server started with --plugin-sandbox runs this program\n");
    return 2;
  }
  if (static_cast<std::uint64_t>(getppid()) != server) return 1;
  auto* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, static_cast<int>(fd), 0);
  if (memory == MAP_FAILED) {
    std::perror("start_sandbox: error: cannot map the shared memory");
    return 1;
  }
  close(static_cast<int>(fd));
  give_up_rights(limit);
  sandbox({static_cast<std::byte*>(memory), static_cast<std::size_t>(bytes)}).serve();
}
