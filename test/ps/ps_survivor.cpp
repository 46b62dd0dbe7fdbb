// SPDX-License-Identifier: BSD-3-Clause
//
// Pushes again and again until a push fails, and prints why. With `replace` it then continues until a push succeeds
// again, and exits with status 0; otherwise with status 7. The scheduler and the servers print lost and new nodes.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include "ps/ps.h"

int main(int argc, char** argv) {
  const bool replace = argc > 1 && std::string(argv[1]) == "replace";
  ps::Postoffice::Get()->SetNodeCallback([](const ps::Node& node, bool joined, const std::string& why) {
    std::printf("%s %s %s\n", node.DebugString().c_str(), joined ? "has joined" : "is gone:", why.c_str());
    std::fflush(stdout);
  });
  if (ps::IsServer()) {
    auto* server = new ps::KVServer<float>(0);
    server->set_request_handle(ps::KVServerDefaultHandle<float>());
    ps::RegisterExitCallback([server] { delete server; });
  }
  const bool asks_scheduler = argc > 1 && std::string(argv[1]) == "scheduler";
  ps::SimpleApp app(1, ps::IsWorker() ? 0 : 1);
  ps::Start(0);
  if (ps::IsWorker()) {
    ps::KVWorker<float> kv(0, 0);
    bool failed = false;
    for (int pushes = 0;; ++pushes) {
      try {
        if (asks_scheduler) app.Wait(app.Request(pushes, "", ps::kScheduler));
        else kv.Wait(kv.Push({1, ps::kMaxKey}, {1, 1}));
        if (pushes == 0) std::puts("pushed");
        if (failed) break;
      } catch (const std::exception& e) {
        if (!failed) std::printf("failed: %s\n", e.what());
        failed = true;
        if (!replace) {
          std::fflush(stdout);
          std::_Exit(7);
        }
      }
      std::fflush(stdout);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::puts("pushed again");
    std::fflush(stdout);
  }
  ps::Finalize(0, true);
  return 0;
}
