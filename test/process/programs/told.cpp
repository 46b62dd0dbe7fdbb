// SPDX-License-Identifier: BSD-3-Clause
//
// Accepts commands: told MODE. MODE commit: a loop of commits; barrier: worker 0 commits, and the others wait for it in
// a barrier; deaf: registers no functions; self: sends a command to itself, and then to another worker. Worker 0 prints
// changes of the job's processes.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <paracel/paralg.hpp>

namespace {

class told : public paracel::paralg {
 public:
  explicit told(std::string mode) : paralg(paracel::Comm()), mode_(std::move(mode)) {}

  void solve() override {
    if (mode_ != "deaf") listen();
    if (mode_ == "self") {
      for (const auto& a : paracel_tell(paracel::command_target::workers(), "echo", "x"))
        std::printf("%zu %s\n", a.number, a.text.c_str());
      paracel_tell(paracel::command_target::worker(1), "echo");
    }
    first_iteration();
    if (get_worker_id() == 0) {
      std::printf("ready\n");
      std::fflush(stdout);
    }
    while (!over_ && (mode_ != "barrier" || get_worker_id() == 0)) {
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
      iter_commit();
    }
    if (mode_ == "barrier") paracel_sync();
  }

 private:
  void listen() {
    paracel_on_command("echo", [this](const std::string& body) { return std::to_string(++ran_) + ":" + body; });
    paracel_on_command("fail", [](const std::string&) -> std::string { throw paracel::data_error("a.csv:1: bad"); });
    paracel_on_command("die", [](const std::string&) {
      ::kill(::getpid(), SIGKILL);
      return std::string();
    });
    paracel_on_command("sleep", [](const std::string& seconds) {
      std::this_thread::sleep_for(std::chrono::duration<double>(std::stod(seconds)));
      return std::string("slept");
    });
    paracel_on_command("bytes", [](const std::string& body) {  // "65536 1": so many of that value
      char* end = nullptr;
      const auto count = std::strtoul(body.c_str(), &end, 10);
      return std::string(count, static_cast<char>(std::strtoul(end, nullptr, 10)));
    });
    paracel_on_command("stop", [this](const std::string&) {
      over_ = true;
      return std::string("bye");
    });
    if (get_worker_id() != 0) return;
    paracel_on_change([](const paracel::job_node& n) {
      std::printf("%s%zu %s%s\n", n.is_server ? "s" : "w", n.number, n.state.c_str(), n.is_dead ? " (dead)" : "");
      std::fflush(stdout);
    });
  }

  std::string mode_;
  bool over_ = false;
  int ran_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const paracel::main_env environment(argc, argv);
    if (argc < 2) {
      std::fprintf(stderr, "told: error: want told commit|barrier|deaf\n");
      return 2;
    }
    told(argv[1]).solve();
  } catch (const paracel::error& e) {
    std::fprintf(stderr, "told: error: %s\n", e.what());
    return e.status();
  }
}
