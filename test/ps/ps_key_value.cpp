// SPDX-License-Identifier: BSD-3-Clause
//
// Each worker pushes random values to keys of its own, spread over all servers, and to keys that all share; what it
// pulls must be their sums. ps_key_value [KEYS] [ROUNDS].
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "ps/ps.h"

using ps::Key;

namespace {

std::vector<double> values_of(int rank, int round, std::size_t n) {
  std::minstd_rand random(static_cast<unsigned>(rank * 1000 + round + 1));
  std::vector<double> v(n);
  for (auto& x : v) x = static_cast<double>(random() % 1000);
  return v;
}

void run_worker(std::size_t n, int rounds) {
  ps::KVWorker<double> kv(0, 0);
  const int rank = ps::MyRank();
  std::vector<Key> own(n), shared(n);
  for (std::size_t i = 0; i < n; ++i) {
    own[i] = ps::kMaxKey / n * i + 2 * static_cast<Key>(rank) + 1;
    shared[i] = i + 1 == n ? ps::kMaxKey : ps::kMaxKey / n * i;
  }
  std::atomic<int> callbacks{0};
  std::vector<double> sum(n);
  std::vector<int> waiting;
  for (int r = 0; r < rounds; ++r) {
    const auto v = values_of(rank, r, n);
    for (std::size_t i = 0; i < n; ++i) sum[i] += v[i];
    waiting.push_back(kv.Push(own, v, {}, 0, [&] { ++callbacks; }));
    waiting.push_back(kv.Push(shared, v));
  }
  std::vector<double> got;
  kv.Wait(kv.Pull(own, &got));  // in order: after the pushes
  CHECK(got == sum) << "other values than were pushed";
  for (const int t : waiting) kv.Wait(t);
  CHECK_EQ(callbacks.load(), rounds);

  ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
  std::vector<double> all(n), expected(n);
  kv.Wait(kv.Pull(shared, &all));
  for (int w = 0; w < ps::NumWorkers(); ++w)
    for (int r = 0; r < rounds; ++r) {
      const auto v = values_of(w, r, n);
      for (std::size_t i = 0; i < n; ++i) expected[i] += v[i];
    }
  CHECK(all == expected) << "the shared keys have other sums";

  // Values of several lengths, in one round trip.
  std::vector<Key> keys{static_cast<Key>(rank) * 4 + 2, ps::kMaxKey / 2 + static_cast<Key>(rank) * 4 + 2};
  std::vector<int> lens{3, 1};
  std::vector<double> pushed{1, 2, 3, 4}, back;
  kv.Wait(kv.PushPull(keys, pushed, &back, &lens));
  CHECK(back == pushed && lens == std::vector<int>({3, 1}));
  ps::SArray<double> shared_memory(pushed), into;
  ps::SArray<int> into_lens;
  kv.Wait(kv.ZPush(ps::SArray<Key>(keys), shared_memory, ps::SArray<int>(lens)));
  kv.Wait(kv.ZPull(ps::SArray<Key>(keys), &into, &into_lens));
  CHECK_EQ(into.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) CHECK_EQ(into[i], 2 * pushed[i]);
  CHECK_EQ(into_lens[0], 3);
  std::printf("worker %d: the sums are right\n", rank);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 20;
  if (ps::IsServer()) {
    auto* server = new ps::KVServer<double>(0);
    server->set_request_handle(ps::KVServerDefaultHandle<double>());
    ps::RegisterExitCallback([server] { delete server; });
  }
  ps::Start(0);
  if (ps::IsWorker()) run_worker(n, rounds);
  ps::Finalize(0, true);
  return 0;
}
