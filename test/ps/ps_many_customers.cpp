// SPDX-License-Identifier: BSD-3-Clause
//
// A worker process whose threads are customers of their own: each pushes to its keys, and pulls their sums.
// ps_many_customers [CUSTOMERS]; DMLC_NUM_WORKER counts all of them.
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "ps/ps.h"

using ps::Key;

namespace {

void run_customer(int customer) {
  ps::Start(customer);
  ps::KVWorker<float> kv(0, customer);
  constexpr std::size_t n = 10'000;
  constexpr int rounds = 20;
  const auto worker = static_cast<Key>(ps::MyRank() * 16 + customer);
  std::vector<Key> keys(n);
  std::vector<float> vals(n);
  for (std::size_t i = 0; i < n; ++i) {
    keys[i] = ps::kMaxKey / n * i + worker;
    vals[i] = static_cast<float>((i * 7 + worker) % 1000);
  }
  std::vector<int> waiting;
  for (int r = 0; r < rounds; ++r) {
    waiting.push_back(kv.Push(keys, vals));
    if (r > 10) kv.Wait(waiting[waiting.size() - 10]);
  }
  for (const int t : waiting) kv.Wait(t);
  std::vector<float> got;
  kv.Wait(kv.Pull(keys, &got));
  for (std::size_t i = 0; i < n; ++i) CHECK_EQ(got[i], vals[i] * rounds) << "key " << keys[i];
  std::printf("customer %d of worker %d: the sums are right\n", customer, ps::MyRank());
  ps::Finalize(customer, true);
}

}  // namespace

int main(int argc, char** argv) {
  const int customers = argc > 1 ? std::atoi(argv[1]) : 2;
  if (ps::IsServer()) {
    auto* server = new ps::KVServer<float>(0);
    server->set_request_handle(ps::KVServerDefaultHandle<float>());
    ps::RegisterExitCallback([server] { delete server; });
  }
  if (!ps::IsWorker()) {
    ps::Start(0);
    ps::Finalize(0, true);
    return 0;
  }
  std::vector<std::thread> threads;
  for (int c = 0; c < customers; ++c) threads.emplace_back(run_customer, c);
  for (auto& t : threads) t.join();
  return 0;
}
