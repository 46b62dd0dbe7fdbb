// SPDX-License-Identifier: BSD-3-Clause
//
// The scheduler sends numbered texts to all nodes, itself included; each answers with what it has received so far.
#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include "ps/ps.h"

int main() {
  constexpr int requests = 200;
  const int everybody = ps::kScheduler + ps::kServerGroup + ps::kWorkerGroup;
  std::atomic<int> received{0}, answers{0};
  ps::SimpleApp app(3);
  app.set_request_handle([&](const ps::SimpleData& request, ps::SimpleApp* self) {
    CHECK_EQ(request.head, received.load()) << "requests out of order";
    CHECK_EQ(request.body, "request " + std::to_string(request.head));
    CHECK_EQ(request.sender, ps::kScheduler);
    self->Response(request, std::to_string(++received));
  });
  app.set_response_handle([&](const ps::SimpleData& response, ps::SimpleApp*) {
    CHECK_EQ(response.body, std::to_string(response.head + 1));
    ++answers;
  });
  ps::Start(0);
  if (ps::IsScheduler()) {
    std::vector<int> waiting;
    for (int i = 0; i < requests; ++i) waiting.push_back(app.Request(i, "request " + std::to_string(i), everybody));
    for (const int t : waiting) app.Wait(t);
    CHECK_EQ(answers.load(), requests * (1 + ps::NumServers() + ps::NumWorkers()));
    CHECK_EQ(app.get_customer()->NumResponse(waiting.back()), 1 + ps::NumServers() + ps::NumWorkers());
  }
  ps::Finalize(0, true);
  CHECK_EQ(received.load(), requests);
  std::printf("%d requests\n", received.load());
  return 0;
}
