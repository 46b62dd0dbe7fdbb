// SPDX-License-Identifier: BSD-3-Clause
//
// Starts, prints the nodes of the job, and finalises; from several threads of a worker if it has several customers:
// ps_connection [CUSTOMERS].
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "ps/ps.h"

int main(int argc, char** argv) {
  const int customers = argc > 1 && ps::IsWorker() ? std::atoi(argv[1]) : 1;
  std::vector<std::thread> others;
  for (int c = 1; c < customers; ++c)
    others.emplace_back([c] {
      ps::Start(c);
      ps::Postoffice::Get()->Barrier(c, ps::kWorkerGroup);
      ps::Finalize(c);
    });
  ps::Start(0, argv[0]);
  if (ps::IsWorker()) ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
  const auto& node = ps::Postoffice::Get()->van()->my_node();
  std::printf("%s %d of %d workers and %d servers\n", node.DebugString().c_str(), ps::MyRank(), ps::NumWorkers(),
              ps::NumServers());
  ps::Finalize(0);
  for (auto& t : others) t.join();
  return 0;
}
