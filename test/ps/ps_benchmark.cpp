// SPDX-License-Identifier: BSD-3-Clause
//
// Calls per second of pushes and pulls of sorted keys with one float each, and the median time of a call:
// ps_benchmark [KEYS] [CALLS] [IN_FLIGHT].
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <vector>

#include "ps/ps.h"

using ps::Key;

int main(int argc, char** argv) {
  const std::size_t n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10'000;
  const int calls = argc > 2 ? std::atoi(argv[2]) : 2'000;
  const int in_flight = argc > 3 ? std::atoi(argv[3]) : 1;
  ps::Start(0);
  if (ps::IsServer()) {
    auto* server = new ps::KVServer<float>(0);
    server->set_request_handle(ps::KVServerDefaultHandle<float>());
    ps::RegisterExitCallback([server] { delete server; });
  }
  if (ps::IsWorker()) {
    ps::KVWorker<float> kv(0, 0);
    ps::SArray<Key> keys(n);
    ps::SArray<float> vals(n, 1), got(n);
    for (std::size_t i = 0; i < n; ++i) keys[i] = ps::kMaxKey / n * i;
    using clock = std::chrono::steady_clock;
    struct figures {
      double per_s = 0;
      double median_us = 0;
    };
    const auto measure = [&](const std::function<int()>& call) {
      struct sent {
        int timestamp;
        clock::time_point at;
      };
      std::deque<sent> waiting;
      std::vector<double> us;
      const auto finish = [&] {
        kv.Wait(waiting.front().timestamp);
        us.push_back(std::chrono::duration<double, std::micro>(clock::now() - waiting.front().at).count());
        waiting.pop_front();
      };
      const auto run = [&](int times) {
        us.clear();
        for (int i = 0; i < times; ++i) {
          if (static_cast<int>(waiting.size()) == in_flight) finish();
          const auto at = clock::now();
          waiting.push_back({call(), at});
        }
        while (!waiting.empty()) finish();
      };
      run(calls / 10 + 1);
      const auto begin = clock::now();
      run(calls);
      const double seconds = std::chrono::duration<double>(clock::now() - begin).count();
      std::nth_element(us.begin(), us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2), us.end());
      return figures{calls / seconds, us[us.size() / 2]};
    };
    const auto push = measure([&] { return kv.ZPush(keys, vals); });
    const auto pull = measure([&] { return kv.ZPull(keys, &got); });
    CHECK_GE(got[n - 1], static_cast<float>(calls));
    std::printf(
        "{\"rank\": %d, \"keys\": %zu, \"in_flight\": %d, \"push_per_s\": %.0f, \"push_us\": %.1f, "
        "\"pull_per_s\": %.0f, \"pull_us\": %.1f}\n",
        ps::MyRank(), n, in_flight, push.per_s, push.median_us, pull.per_s, pull.median_us);
  }
  ps::Finalize(0, true);
  return 0;
}
