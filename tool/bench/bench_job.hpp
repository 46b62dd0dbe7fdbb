// SPDX-License-Identifier: BSD-3-Clause
//
// A job for a benchmark: a real start_scheduler, real start_server processes, and what forked workers need to join it.
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/hex.hpp"
#include "net/rendezvous.hpp"
#include "net/trace_file.hpp"
#include "net/unix_transport.hpp"
#include "net/zmq_transport.hpp"
#include "worker/job/session.hpp"

namespace paracel::bench {

struct job_options {
  std::string bin_dir;  ///< folder of start_server and start_scheduler; empty: that of this program
  /// ipc or tcp, by ZeroMQ, except that servers with replicas use unix on ipc, as prun.py's; unix: without it.
  std::string transport = "ipc";
  int workers = 1;
  int servers = 1;
  int threads = 1;
  int replicas = 1;
  bool resends = true;           ///< kvclt_options::resends
  std::string server_options{};  ///< further ones, separated by spaces
};

/// The scheduler and the servers of one job; killed at the end.
class job {
 public:
  explicit job(job_options options) : options_(std::move(options)) {
    folder_ = "/tmp/prc-bench-XXXXXX";
    if (::mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("cannot create a folder in /tmp");
    std::string bin = options_.bin_dir;
    if (bin.empty()) bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const bool tcp = options_.transport == "tcp";
    const std::string any = tcp ? "tcp://127.0.0.1:*" : "ipc://" + folder_;
    std::random_device source;
    rendezvous_.job = (std::uint64_t{source()} << 32U) | source();
    const std::string id = to_hex(rendezvous_.job);
    const std::string parent = std::to_string(::getpid());
    try {
      start({bin + "/start_scheduler", "--bind", tcp ? any : any + "/s", "--job", id, "--workers",
             std::to_string(options_.workers), "--servers", std::to_string(options_.servers), "--replicas",
             std::to_string(options_.replicas), "--run-dir", folder_, "--parent", parent});
      rendezvous_.scheduler = address_of_ready(outputs_.front());
      for (int i = 0; i < options_.servers; ++i) {
        std::vector<std::string> words{
            bin + "/start_server",
            "--rendezvous",
            rendezvous_.scheduler,
            "--job",
            id,
            "--slot",
            std::to_string(i),
            "--threads",
            std::to_string(options_.threads),
            "--bind",
            any,
            "--parent",
            parent,
            "--transport",
            options_.transport == "unix" || (!tcp && options_.replicas > 1) ? "unix" : "zmq"};
        std::istringstream more(options_.server_options);
        for (std::string word; more >> word;) words.push_back(word);
        start(words);
      }
    } catch (...) {
      stop();
      throw;
    }
  }
  job(const job&) = delete;
  job& operator=(const job&) = delete;
  ~job() { stop(); }

  /// Joins the job as this worker. Blocks: until all processes have joined.
  [[nodiscard]] std::shared_ptr<session> join(int rank) const {
    net::start_tracing_if_asked();
    session_options o;
    if (options_.transport == "unix") o.over = std::make_shared<net::unix_transport>();
    else o.over = std::make_shared<net::zmq_transport>();
    o.job = rendezvous_.job;
    o.scheduler = rendezvous_.scheduler;
    o.rank = static_cast<std::uint32_t>(rank);
    o.size = static_cast<std::uint32_t>(options_.workers);
    o.resends = options_.resends;
    const bool tcp = options_.transport == "tcp";
    o.peer_address = tcp ? "tcp://127.0.0.1:*" : "ipc://" + folder_ + "/w" + std::to_string(rank);
    return session::join(std::move(o));
  }
  /// Sets the environment variables that main_env reads, as prun.py does.
  void set_environment(int rank) const {
    ::setenv("PARACEL_RENDEZVOUS", rendezvous_.to_string().c_str(), 1);
    ::setenv("PARACEL_MODE", "local", 1);
    ::setenv("PARACEL_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("PARACEL_SIZE", std::to_string(options_.workers).c_str(), 1);
  }

  [[nodiscard]] pid_t scheduler_process() const { return pids_.front(); }
  [[nodiscard]] pid_t server_process(int slot) const { return pids_[static_cast<std::size_t>(slot) + 1]; }
  [[nodiscard]] std::vector<pid_t> server_processes() const { return {pids_.begin() + 1, pids_.end()}; }
  [[nodiscard]] const net::rendezvous& rendezvous() const noexcept { return rendezvous_; }

 private:
  void start(const std::vector<std::string>& words) {
    int output = -1;
    pids_.push_back(spawn(words, &output));
    outputs_.push_back(output);
  }
  /// Starts a program of the framework as a child with a pipe to its standard output.
  static pid_t spawn(const std::vector<std::string>& words, int* output) {
    int up[2];
    if (::pipe(up) != 0) throw std::runtime_error("cannot create a pipe");
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("cannot fork");
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      ::dup2(up[1], STDOUT_FILENO);
      ::close(up[0]);
      ::close(up[1]);
      std::vector<char*> argv;
      for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      std::fprintf(stderr, "bench: error: cannot start %s: %s\n", argv[0], std::strerror(errno));
      ::_exit(127);
    }
    ::close(up[1]);
    *output = up[0];
    return pid;
  }
  static std::string address_of_ready(int output) {
    std::string line;
    char c = 0;
    while (::read(output, &c, 1) == 1) {
      if (c != '\n') {
        line += c;
        continue;
      }
      const auto event = nlohmann::json::parse(line, nullptr, false);
      if (event.is_object() && event.value("event", "") == "ready") return event.value("address", "");
      line.clear();
    }
    throw std::runtime_error("start_scheduler exited before it was ready");
  }
  void stop() {
    for (const pid_t p : pids_) ::kill(p, SIGKILL);
    for (const pid_t p : pids_) ::waitpid(p, nullptr, 0);
    for (const int o : outputs_) ::close(o);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  job_options options_;
  std::string folder_;
  net::rendezvous rendezvous_;
  std::vector<pid_t> pids_;
  std::vector<int> outputs_;
};

/// Resident bytes of a process.
inline std::size_t resident_bytes(pid_t process) {
  const std::string path = "/proc/" + std::to_string(process) + "/statm";
  std::FILE* f = std::fopen(path.c_str(), "r");
  unsigned long all = 0;
  unsigned long resident = 0;
  const bool read = f != nullptr && std::fscanf(f, "%lu %lu", &all, &resident) == 2;
  if (f != nullptr) std::fclose(f);
  if (!read) throw std::runtime_error("cannot read " + path);
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace paracel::bench
