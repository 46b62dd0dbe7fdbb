// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/main_env.hpp>

#include <dlfcn.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <paracel/comm.hpp>
#include <paracel/error.hpp>

#include "core/interruption.hpp"
#include "core/number_parsing.hpp"
#include "net/bind_policy.hpp"
#include "net/fd_limit.hpp"
#include "net/job_key.hpp"
#include "net/lossy_transport.hpp"
#include "net/own_address.hpp"
#include "net/rendezvous.hpp"
#include "net/trace_file.hpp"
#include "net/unix_transport.hpp"
#include "net/zmq_transport.hpp"
#include "worker/comm/comm_scheduler.hpp"
#include "worker/comm/mpi_library.hpp"
#include "worker/comm/single_comm.hpp"
#include "worker/embedded.hpp"
#include "worker/job/crash_report.hpp"
#include "worker/job/failure_line.hpp"
#include "worker/job/session.hpp"
#include "worker/live_algorithms.hpp"
#include "worker/results/output_folder.hpp"

namespace paracel {

namespace {

// After an abort: longer than a blocked framework call needs to notice, shorter than prun.py's timeout.
constexpr std::chrono::milliseconds grace{1000};

const char* variable(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? text : nullptr;
}

std::optional<std::uint32_t> number_in(const char* name) {
  const char* text = variable(name);
  if (text == nullptr) return std::nullopt;
  std::uint32_t n = 0;
  const char* end = text + std::strlen(text);
  if (const auto r = std::from_chars(text, end, n); r.ec != std::errc{} || r.ptr != end)
    throw usage_error(std::string("environment variable ") + name + "=" + text + ": want a whole number");
  return n;
}

std::size_t byte_count(const char* text) {
  std::uint64_t count = 0;
  constexpr std::uint64_t most = std::uint64_t{1} << 47;  // as --max-message-bytes
  if (!read_byte_count(text, count) || count > most)
    throw usage_error(std::string("environment variable PARACEL_MAX_MESSAGE_BYTES=") + text +
                      ": want a number of bytes, at most 128T");
  return count;
}

bool uses_unix_transport() {
  const char* text = variable("PARACEL_TRANSPORT");
  if (text == nullptr || std::strcmp(text, "zmq") == 0) return false;
  if (std::strcmp(text, "unix") == 0) return true;
  throw usage_error(std::string("environment variable PARACEL_TRANSPORT=") + text + ": want unix or zmq");
}

/// The value of --server_info, with one dash or two; empty without it.
std::string server_info_in(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::string_view word = argv[i];
    if (!word.starts_with('-')) continue;
    word.remove_prefix(word.starts_with("--") ? 2 : 1);
    if (word == "server_info" && i + 1 < argc) return argv[i + 1];
    if (word.starts_with("server_info=")) return std::string(word.substr(word.find('=') + 1));
  }
  return {};
}

/// Whether a process runs. A zombie does not, although it still has its pid.
bool is_alive(std::uint32_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto name_end = text.rfind(')');  // "17 (name) S ..."
  if (name_end == text.npos || name_end + 2 >= text.size()) return kill(static_cast<pid_t>(process), 0) == 0;
  return text[name_end + 2] != 'Z' && text[name_end + 2] != 'X';
}

/// Exits with the launcher: requests that from the kernel, then checks whether the launcher had died before.
void die_with(std::uint32_t launcher) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A wrapper script may stand between the launcher and this process; then it is enough that it is alive.
  if (static_cast<std::uint32_t>(getppid()) != launcher && !is_alive(launcher)) std::_Exit(exit_status::failure);
}

/// Where the worker listens for others. With the pid, since one may replace another. `spread`: over several hosts.
std::string peer_address(const std::string& scheduler, std::uint32_t rank, bool spread) {
  if (spread) {
    const auto address = "tcp://" + net::own_host_towards(scheduler) + ":*";
    net::check_bind(address, variable("PARACEL_INSECURE") != nullptr);
    return address;
  }
  if (!scheduler.starts_with("ipc://")) return "tcp://127.0.0.1:*";
  return scheduler.substr(0, scheduler.rfind('/')) + "/w" + std::to_string(rank) + "." + std::to_string(getpid());
}

/// The functions of libparacel_mpi.so, which is in the same folder as this library.
struct mpi_library {
  decltype(&paracel_mpi_init) init;
  decltype(&paracel_mpi_finalize) finalize;
  decltype(&paracel_mpi_comm) comm;

  static mpi_library load() {
    Dl_info self{};
    std::string path = "libparacel_mpi.so";
    if (dladdr(reinterpret_cast<void*>(&main_env::job), &self) != 0 && self.dli_fname != nullptr) {
      const std::string here = self.dli_fname;
      if (const auto slash = here.rfind('/'); slash != std::string::npos) path = here.substr(0, slash + 1) + path;
    }
    // Global: Open MPI's own components look up its symbols in the process.
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) throw error(std::string("under mpirun, but MPI cannot be loaded: ") + dlerror());
    mpi_library m{};
    m.init = reinterpret_cast<decltype(m.init)>(dlsym(library, "paracel_mpi_init"));
    m.finalize = reinterpret_cast<decltype(m.finalize)>(dlsym(library, "paracel_mpi_finalize"));
    m.comm = reinterpret_cast<decltype(m.comm)>(dlsym(library, "paracel_mpi_comm"));
    if (m.init == nullptr || m.finalize == nullptr || m.comm == nullptr)
      throw error(path + " is of another version of the framework");
    return m;
  }
};

}  // namespace

struct main_env::impl {
  std::optional<mpi_library> mpi;
  bool finalize_mpi = false;
  bool spread = false;  // over several hosts, and workers exchange messages of ours
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::string program;
  std::string rendezvous;
  std::string given_info;                     // --server_info of the command line, for joining without the environment
  std::vector<std::string> plugin_folders{};  // of host_process
  std::thread::id owner = std::this_thread::get_id();
  std::shared_ptr<session> job;
  std::shared_ptr<net::lossy_transport> lossy;  // of the job, with --drop-messages
  std::shared_ptr<comm_backend> world;

  std::shared_ptr<session> join(const std::string& server_info) {
    if (job) return job;
    const std::string& info = !rendezvous.empty() ? rendezvous : !server_info.empty() ? server_info : given_info;
    // Programs written for Paracel 0.3 give --server_info a dummy default, which outside a job means nothing.
    if (info.empty() || (rendezvous.empty() && !info.starts_with("paracel"))) {
      if (size > 1) throw usage_error("several workers but no servers: start the program with prun.py");
      job = start_embedded_job();
      for (const auto& folder : plugin_folders) job->allow_plugin_folder(folder);
      return job;
    }
    net::start_tracing_if_asked();
    const auto where = net::rendezvous::parse(info);
    net::take_job_key();
    session_options o;
    if (const char* limit = variable("PARACEL_MAX_MESSAGE_BYTES")) o.max_message_bytes = byte_count(limit);
    const auto dropped = [once = std::make_shared<std::once_flag>()](std::string_view why) {
      std::call_once(*once, [&] {
        std::fprintf(stderr, "warning: this worker drops a connection: %.*s\n", static_cast<int>(why.size()),
                     why.data());
      });
    };
    const net::transport_limits limits{.max_message_bytes = o.max_message_bytes};
    if (uses_unix_transport()) o.over = std::make_shared<net::unix_transport>(limits, dropped);
    else o.over = std::make_shared<net::zmq_transport>(limits, dropped);
    if (const char* percent = variable("PARACEL_DROP_MESSAGES")) {
      const char* seed = variable("PARACEL_DROP_SEED");
      o.over = lossy = std::make_shared<net::lossy_transport>(
          o.over,
          net::lossy_transport::options_from(percent, seed != nullptr ? seed : "1", "w" + std::to_string(rank)));
    }
    o.job = where.job;
    o.scheduler = where.scheduler;
    o.rank = rank;
    o.size = size;
    o.grace = grace;
    if (!mpi && size > 1) o.peer_address = peer_address(where.scheduler, rank, spread);
    if (const char* folder = variable("PARACEL_STATE_DIR")) {
      o.state_folder = folder;
      o.state_outlives_host = !net::is_loopback(where.scheduler);
    }
    o.shares_memory = number_in("PARACEL_SHARED_MEMORY").value_or(1) != 0;
    o.links_directly = number_in("PARACEL_DIRECT_LINKS").value_or(1) != 0;
    o.ejects = variable("PARACEL_EJECT") != nullptr;
    if (const auto limit = number_in("PARACEL_HEARTBEAT_LIMIT_MS"))
      o.heartbeat_limit = std::chrono::milliseconds{*limit};
    if (const auto interval = number_in("PARACEL_HEARTBEAT_INTERVAL_MS"))
      o.heartbeat_interval = std::chrono::milliseconds{*interval};
    if (const auto after = number_in("PARACEL_RESEND_AFTER_MS")) o.resend_after = std::chrono::milliseconds{*after};
    if (const char* delivery = variable("PARACEL_DELIVERY")) o.resends = std::strcmp(delivery, "fail") != 0;
    job = session::join(std::move(o));
    return job;
  }

  /// Ends this process's part of the job; a failing one does not deregister. Returns: why it has failed now.
  std::exception_ptr end(bool failing) {
    std::exception_ptr failure;
    if (!failing && job) {
      try {
        job->leave();
      } catch (const job_error&) {  // the job has already ended; the launcher knows why
        failing = true;
      } catch (...) {
        failure = std::current_exception();
        failing = true;
      }
    }
    job.reset();
    world.reset();
    if (const auto disturbed = std::exchange(lossy, nullptr))
      std::fprintf(stderr, "worker %u: %s\n", rank, disturbed->report().c_str());
    // MPI_Finalize waits for every rank; a failing one exits without it, which is how mpirun detects the failure.
    if (!failing && finalize_mpi) mpi->finalize();
    return failure;
  }

  /// The same where throwing is impossible.
  void tell_end(bool failing) {
    if (const auto failure = end(failing)) end_with(tell_failure(program, failure));
  }

  /// The program has called exit, so the main_env is not destroyed. A failing program reports that by its
  /// status.
  static void at_exit(int status, void*) {
    auto* env = current();
    if (env == nullptr || status != 0) return;
    current() = nullptr;
    const auto& job = env->job;
    if (!job || !job->has_scheduler() || job->ended()->raised()) return;
    if (std::this_thread::get_id() == env->owner && live_algorithms == 0) return env->tell_end(false);
    std::fflush(nullptr);
    std::fprintf(stderr, "%s: error: worker %u called exit(0) before its algorithm had ended\n", env->program.c_str(),
                 env->rank);
    std::_Exit(exit_status::failure);
  }

  /// One process has one main_env; the signatures inherited from Paracel leave no other way to find it.
  static impl*& current() {
    static impl* it = nullptr;
    return it;
  }
};

namespace {

/// Large values are allocated and freed every iteration: keep their memory instead of returning it to the kernel.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that glibc accepts
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

}  // namespace

main_env::main_env(int& argc, char**& argv) : impl_(std::make_unique<impl>()) {
  if (impl::current() != nullptr) throw error("main_env was created twice, want one per process");
  impl_->program = program_name(argc > 0 ? argv[0] : nullptr);
  impl_->given_info = server_info_in(argc, argv);
  end_on_uncaught(impl_->program);
  report_crashes(impl_->program);
  static const int registered = on_exit(&impl::at_exit, nullptr);
  if (registered != 0) throw error("no memory for an exit handler");
  keep_freed_memory();
  enter(argc, argv);
}

main_env::main_env(const host_process& host) : impl_(std::make_unique<impl>()) {
  if (impl::current() != nullptr) throw error("main_env was created twice, want one per process");
  impl_->program = host.program;
  impl_->plugin_folders = host.plugin_folders;
  interruption_hook = host.while_waiting;
  if (variable("PARACEL_RENDEZVOUS") != nullptr) keep_freed_memory();
  int argc = 0;
  char* none[] = {nullptr};
  char** argv = none;
  enter(argc, argv);
}

void main_env::enter(int& argc, char**& argv) {
  net::raise_descriptor_limit();
  if (const char* info = variable("PARACEL_RENDEZVOUS")) impl_->rendezvous = info;
  const char* mode = variable("PARACEL_MODE");
  const bool local = mode != nullptr && std::strcmp(mode, "local") == 0;
  // mpirun only starts the processes, because what MPI sends to other hosts is not encrypted.
  impl_->spread = mode != nullptr && std::strcmp(mode, "spread") == 0;
  const bool under_mpirun = !local && variable("OMPI_COMM_WORLD_SIZE") != nullptr;
  if (under_mpirun && !impl_->spread) {
    // An mpirun that prun.py started may die without its ranks. Until MPI has begun they would not notice.
    if (mode != nullptr) prctl(PR_SET_PDEATHSIG, SIGKILL);
    impl_->mpi = mpi_library::load();
    impl_->finalize_mpi = impl_->mpi->init(&argc, &argv) != 0;
    impl_->world.reset(impl_->mpi->comm(nullptr));
    impl_->rank = static_cast<std::uint32_t>(impl_->world->rank());
    impl_->size = static_cast<std::uint32_t>(impl_->world->size());
  } else {
    if (const auto launcher = number_in("PARACEL_PARENT")) die_with(*launcher);
    if (impl_->spread && under_mpirun) prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char* const rank_name = impl_->spread && under_mpirun ? "OMPI_COMM_WORLD_RANK" : "PARACEL_RANK";
    const char* const size_name = impl_->spread && under_mpirun ? "OMPI_COMM_WORLD_SIZE" : "PARACEL_SIZE";
    impl_->rank = number_in(rank_name).value_or(0);
    impl_->size = number_in(size_name).value_or(1);
    if (impl_->size == 0 || impl_->rank >= impl_->size)
      throw usage_error(std::string(rank_name) + " must be below " + size_name + ", as prun.py sets them");
    if (impl_->size == 1) impl_->world = std::make_shared<single_comm>();
    else
      impl_->world =
          std::make_shared<comm_scheduler>(impl_->rank, impl_->size, [raw = impl_.get()] { return raw->join(""); });
  }
  impl::current() = impl_.get();
}

main_env::~main_env() {
  if (impl::current() != impl_.get()) return;
  impl::current() = nullptr;
  impl_->tell_end(std::uncaught_exceptions() > 0);
}

void main_env::leave(bool failed) {
  if (impl::current() != impl_.get()) return;
  impl::current() = nullptr;
  const auto failure = impl_->end(failed);
  interruption_hook = nullptr;
  if (failure) std::rethrow_exception(failure);
}

std::shared_ptr<session> main_env::job(const std::string& server_info) {
  auto* env = impl::current();
  if (env == nullptr) throw error("create a paracel::main_env at the start of main");
  return env->join(server_info);
}

void main_env::keep_inputs(const std::vector<std::string>& paths) { output_folder::keep(paths); }

std::shared_ptr<comm_backend> main_env::communicator(ompi_communicator_t* of) {
  auto* env = impl::current();
  if (env == nullptr) throw error("create a paracel::main_env at the start of main");
  if (of != nullptr && env->mpi) return std::shared_ptr<comm_backend>(env->mpi->comm(of));
  return env->world;
}

Comm::Comm() : backend_(main_env::communicator(nullptr)) {}
Comm::Comm(ompi_communicator_t* communicator) : backend_(main_env::communicator(communicator)) {}

}  // namespace paracel
