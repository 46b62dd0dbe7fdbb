// SPDX-License-Identifier: BSD-3-Clause
//
// Jobs of programs written for ps-lite: scheduler, servers and workers as threads of this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "net/inproc_transport.hpp"
#include "ps/ps.h"

namespace ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct ps_job_options {
  int workers = 1;
  int servers = 1;
  int drop_percent = 0;
};

/// A node for each role; each runs its function between Start and Finalize, in a thread of its own.
class ps_job {
 public:
  using role_function = std::function<void()>;
  struct roles {
    role_function server_before_start;
    role_function server;
    role_function worker;
    role_function scheduler;
  };
  explicit ps_job(const ps_job_options& o) : options_(o) {}

  [[nodiscard]] Postoffice::Settings settings(Node::Role role, int rank) const {
    Postoffice::Settings s;
    s.role = role;
    s.workers = options_.workers;
    s.servers = options_.servers;
    s.root_uri = "test";
    s.root_port = 1;
    s.preferred_rank = rank;
    s.drop_percent = options_.drop_percent;
    s.resend_milliseconds = options_.drop_percent > 0 ? 20 : 1000;
    return s;
  }
  void run(const roles& r) {
    std::vector<std::thread> threads;
    const auto node = [&](Node::Role role, int rank, const role_function& before, const role_function& work) {
      threads.emplace_back([=, this] {
        Postoffice office(settings(role, rank), &transport_);
        Postoffice::Use(&office);
        if (before) before();
        Start(0);
        if (work) work();
        Finalize(0, true);
        Postoffice::Use(nullptr);
      });
    };
    node(Node::SCHEDULER, -1, {}, r.scheduler);
    for (int i = 0; i < options_.servers; ++i) node(Node::SERVER, i, r.server_before_start, r.server);
    for (int i = 0; i < options_.workers; ++i) node(Node::WORKER, i, {}, r.worker);
    for (auto& t : threads) t.join();
  }

 private:
  const ps_job_options options_;
  paracel::net::inproc_transport transport_;
};

template <class Val>
void default_server() {
  auto* server = new KVServer<Val>(0);
  server->set_request_handle(KVServerDefaultHandle<Val>());
  RegisterExitCallback([server] { delete server; });
}

/// Random requests of one worker to keys of its own, against a map.
void random_requests(int rounds, std::uint64_t seed) {
  KVWorker<std::int64_t> kv(0, 0);
  std::mt19937_64 random(seed * 100 + static_cast<std::uint64_t>(MyRank()));
  std::map<Key, std::vector<std::int64_t>> expected;
  const auto parity = static_cast<Key>(MyRank());
  for (int round = 0; round < rounds; ++round) {
    std::map<Key, int> chosen;  // length
    const auto n = random() % 40;
    for (std::size_t i = 0; i < n; ++i) {
      Key key = random() % 3 == 0 ? random() : kMaxKey / 50 * (random() % 50);
      key = key / 8 * 8 + parity;
      if (MyRank() == 7 && random() % 9 == 0) key = kMaxKey;  // 8 * m + 7
      const auto known = expected.find(key);
      chosen[key] =
          known != expected.end() ? static_cast<int>(known->second.size()) : static_cast<int>(random() % 4 + 1);
    }
    std::vector<Key> keys;
    std::vector<std::int64_t> vals;
    std::vector<int> lens;
    for (const auto& [key, length] : chosen) {
      keys.push_back(key);
      lens.push_back(length);
      auto& sum = expected[key];
      sum.resize(static_cast<std::size_t>(length));
      for (auto& s : sum) {
        vals.push_back(static_cast<std::int64_t>(random() % 1000));
        s += vals.back();
      }
    }
    std::vector<std::int64_t> got;
    std::vector<int> got_lens;
    if (random() % 2 == 0) {
      (void)kv.Push(keys, vals, lens);
      kv.Wait(kv.Pull(keys, &got, &got_lens));
    } else {
      got_lens = lens;
      kv.Wait(kv.PushPull(keys, vals, &got, &got_lens));
    }
    std::vector<std::int64_t> sums;
    for (const auto key : keys) sums.insert(sums.end(), expected[key].begin(), expected[key].end());
    ASSERT_EQ(got, sums);
    ASSERT_EQ(got_lens, lens);
  }
}

TEST(PsCluster, AServerThatRespondsTwiceDoesNotFinishARequestToAnother) {
  std::atomic<bool> second_answers{false};
  ps_job({.workers = 1, .servers = 2})
      .run({.server_before_start =
                [&] {
                  auto* server = new KVServer<double>(0);
                  server->set_request_handle([&](const KVMeta& meta, const KVPairs<double>& data, KVServer<double>* s) {
                    KVPairs<double> response;
                    response.keys = data.keys;
                    response.vals.resize(data.keys.size(), 7);
                    if (MyRank() == 0) {
                      s->Response(meta, response);
                    } else {
                      while (!second_answers) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    }
                    s->Response(meta, response);
                  });
                  RegisterExitCallback([server] { delete server; });
                },
            .server = {},
            .worker =
                [&] {
                  KVWorker<double> kv(0, 0);
                  std::vector<double> vals;
                  const int request = kv.Pull({1, kMaxKey - 1}, &vals);
                  // The order of one sender: both responses of the first server are here when this one is.
                  std::vector<double> first;
                  kv.Wait(kv.Pull({2}, &first));
                  std::thread later([&] {
                    std::this_thread::sleep_for(std::chrono::milliseconds(100));
                    second_answers = true;
                  });
                  kv.Wait(request);
                  EXPECT_TRUE(second_answers) << "Wait returned before the second server had answered";
                  EXPECT_THAT(vals, ElementsAre(7, 7));
                  later.join();
                },
            .scheduler = {}});
}

TEST(PsCluster, PulledValuesAreTheSumsForAnyNumberOfNodes) {
  for (const int workers : {1, 2, 4, 8})
    for (const int servers : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << workers << " workers, " << servers << " servers");
      ps_job({.workers = workers, .servers = servers})
          .run({.server_before_start = default_server<std::int64_t>,
                .worker = [&] { random_requests(20, static_cast<std::uint64_t>(workers * 10 + servers)); }});
    }
}

TEST(PsCluster, LostMessagesAreSentAgain) {
  for (const int percent : {5, 30})
    ps_job({.workers = 2, .servers = 2, .drop_percent = percent})
        .run({.server_before_start = default_server<std::int64_t>, .worker = [] { random_requests(25, 9); }});
}

TEST(PsCluster, RequestsOfAWorkerArriveInOrderAndLargeOnesToo) {
  std::mutex mutex;
  std::map<std::pair<int, int>, int> last;  // by server and worker
  const auto server = [&] {
    auto* app = new KVServer<float>(0);
    const auto* me = Postoffice::Get();
    app->set_request_handle([&, me](const KVMeta& meta, const KVPairs<float>& data, KVServer<float>* self) {
      {
        const std::lock_guard lock(mutex);
        auto& before = last[{me->my_rank(), meta.sender}];
        EXPECT_EQ(meta.cmd, before + 1);
        before = meta.cmd;
      }
      EXPECT_FALSE(data.keys.empty());
      self->Response(meta);
    });
    RegisterExitCallback([app] { delete app; });
  };
  const auto worker = [] {
    KVWorker<float> kv(0, 0);
    const std::vector<Key> keys{1, kMaxKey};
    std::vector<int> waiting;
    for (int i = 1; i <= 60; ++i) {
      const int length = i % 7 == 0 ? 50'000 : 1;
      waiting.push_back(kv.Push(keys, std::vector<float>(2 * static_cast<std::size_t>(length)), {length, length}, i));
    }
    for (const int t : waiting) kv.Wait(t);
  };
  ps_job({.workers = 3, .servers = 2}).run({.server_before_start = server, .worker = worker});
  for (const auto& [who, n] : last) EXPECT_EQ(n, 60);
  EXPECT_EQ(last.size(), 6U);
}

/// The memory of a single response becomes the caller's array if that is empty.
TEST(PsCluster, PulledArraysBelongToTheCaller) {
  const auto worker = [] {
    KVWorker<float> kv(0, 0);
    for (const std::size_t length : {std::size_t{10}, std::size_t{300'000}}) {
      const SArray<Key> keys{static_cast<Key>(length), static_cast<Key>(length + 1), kMaxKey - length};
      SArray<float> sent(3 * length);
      for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<float>(i % 1013);
      kv.Wait(kv.ZPush(keys, sent));
      const auto expect_sent = [&](const auto& got) {
        ASSERT_EQ(got.size(), sent.size());
        EXPECT_TRUE(std::equal(got.begin(), got.end(), sent.begin()));
      };
      SArray<float> fresh;
      SArray<float> own(3 * length, -1.0F);
      std::vector<float> vector;
      const auto* memory = own.data();
      kv.Wait(kv.ZPull(keys, &fresh));
      expect_sent(fresh);
      std::fill(fresh.begin(), fresh.end(), 7.0F);  // changes no server's copy
      kv.Wait(kv.ZPull(keys, &own));
      kv.Wait(kv.Pull({keys[0], keys[1], keys[2]}, &vector));
      expect_sent(own);
      expect_sent(vector);
      EXPECT_EQ(own.data(), memory);
      kv.Wait(kv.ZPull(keys, &fresh));
      expect_sent(fresh);
    }
  };
  for (const int servers : {1, 3})
    ps_job({.workers = 1, .servers = servers}).run({.server_before_start = default_server<float>, .worker = worker});
}

TEST(PsCluster, RequestsWaitForTheServerAndItsHandle) {
  std::atomic<bool> pushed{false};
  ps_job({.workers = 1, .servers = 1})
      .run({.server =
                [&] {
                  while (!pushed) std::this_thread::yield();
                  auto* server = new KVServer<float>(0);
                  std::this_thread::sleep_for(std::chrono::milliseconds(20));
                  server->set_request_handle(KVServerDefaultHandle<float>());
                  RegisterExitCallback([server] { delete server; });
                },
            .worker =
                [&] {
                  KVWorker<float> kv(0, 0);
                  const int t = kv.Push({3}, {1.5F});
                  pushed = true;
                  kv.Wait(t);
                  std::vector<float> got;
                  kv.Wait(kv.Pull({3, 4}, &got));
                  EXPECT_THAT(got, ElementsAre(1.5F, 0.0F));
                }});
}

std::string text_thrown_by(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(PsCluster, WrongRequestsFailWithTheirReasonAndTheJobGoesOn) {
  ps_job({.workers = 1, .servers = 2})
      .run({.server_before_start = default_server<float>, .worker = [] {
              KVWorker<float> kv(0, 0);
              EXPECT_THAT(text_thrown_by([&] {
                            kv.Push({1, 5, 3}, {1, 1, 1});
                          }),
                          HasSubstr("KVWorker::Push: keys[2] is 3 after 5: want unique keys in ascending order"));
              EXPECT_THAT(text_thrown_by([&] { kv.Push({1, 1}, {1, 1}); }), HasSubstr("keys[1] is 1 after 1"));
              EXPECT_THAT(text_thrown_by([&] {
                            kv.Push({1, 2}, {1, 1, 1});
                          }),
                          HasSubstr("3 values for 2 keys, and no lengths"));
              EXPECT_THAT(text_thrown_by([&] {
                            kv.Push({1, 2}, {1, 1, 1}, {1, 1});
                          }),
                          HasSubstr("do not add up to the number of values"));
              EXPECT_THAT(text_thrown_by([&] { kv.Push({1, 2}, {1, 1, 1}, {4, -1}); }), HasSubstr("lens[1]"));
              EXPECT_THAT(text_thrown_by([&] { kv.Wait(77); }), HasSubstr("timestamp 77: no such request"));
              kv.Wait(kv.Push({7}, {1, 2}));
              EXPECT_THAT(text_thrown_by([&] { kv.Wait(kv.Push({7}, {1})); }),
                          HasSubstr("key 7 has 2 values, and 1 were pushed"));
              std::vector<float> wrong(5);
              EXPECT_THAT(text_thrown_by([&] { kv.Wait(kv.Pull({7}, &wrong)); }), HasSubstr("has the wrong size"));
              EXPECT_THAT(text_thrown_by([&] { kv.Wait(kv.Push({1, kMaxKey}, {1, 1})); }), "nothing was thrown");
              std::vector<float> got;
              kv.Wait(kv.Pull({1, 7, kMaxKey}, &got));
              EXPECT_THAT(got, ElementsAre(1, 1, 2, 1));
            }});
}

TEST(PsCluster, AHandleThatThrowsFailsItsRequestOnly) {
  const auto server = [] {
    auto* app = new KVServer<float>(0);
    app->set_request_handle([](const KVMeta& meta, const KVPairs<float>& data, KVServer<float>* self) {
      CHECK_NE(meta.cmd, 13) << "an unlucky number";
      self->Response(meta, meta.pull ? data : KVPairs<float>());
    });
    RegisterExitCallback([app] { delete app; });
  };
  ps_job({.workers = 2, .servers = 2}).run({.server_before_start = server, .worker = [] {
                                              KVWorker<float> kv(0, 0);
                                              EXPECT_THAT(text_thrown_by([&] { kv.Wait(kv.Push({1}, {1}, {}, 13)); }),
                                                          HasSubstr("an unlucky number"));
                                              std::vector<float> back;
                                              kv.Wait(kv.PushPull({1, kMaxKey}, {4, 5}, &back));
                                              EXPECT_THAT(back, ElementsAre(4, 5));
                                            }});
}

TEST(PsCluster, AFailureIsToldHoweverLateItIsAskedFor) {
  const auto server = [] {
    auto* app = new KVServer<float>(0);
    app->set_request_handle([](const KVMeta& meta, const KVPairs<float>&, KVServer<float>* self) {
      CHECK_NE(meta.cmd, 13) << "an unlucky number";
      self->Response(meta);
    });
    RegisterExitCallback([app] { delete app; });
  };
  ps_job({.workers = 1, .servers = 2}).run({.server_before_start = server, .worker = [] {
                                              KVWorker<float> kv(0, 0);
                                              const int failed = kv.Push({1}, {1}, {}, 13);
                                              int last = 0;
                                              for (int i = 0; i < 3000; ++i) last = kv.Push({1}, {1});
                                              kv.Wait(last);
                                              kv.Wait(last - 2500);
                                              EXPECT_THAT(text_thrown_by([&] { kv.Wait(failed); }),
                                                          HasSubstr("an unlucky number"));
                                            }});
}

TEST(PsCluster, RequestsToAnAppThatANodeDoesNotHaveAreRefusedWhenItFinishes) {
  ps_job({.workers = 1, .servers = 2}).run({.server_before_start = default_server<float>, .scheduler = [] {
                                              SimpleApp app(5);
                                              EXPECT_THAT(
                                                  text_thrown_by([&] { app.Wait(app.Request(1, "", kServerGroup)); }),
                                                  HasSubstr("has no app 5, and has finished"));
                                            }});
}

TEST(PsCluster, CallbacksRunOnAnotherThreadThanTheCall) {
  ps_job({.workers = 1, .servers = 3}).run({.server_before_start = default_server<float>, .worker = [] {
                                              KVWorker<float> kv(0, 0);
                                              std::mutex mutex;
                                              int called = 0, last = 0;
                                              for (int i = 0; i < 300; ++i) {
                                                const std::lock_guard lock(mutex);
                                                last = kv.Push({static_cast<Key>(i)}, {1}, {}, 0, [&] {
                                                  const std::lock_guard inner(mutex);
                                                  ++called;
                                                });
                                              }
                                              kv.Wait(last);
                                              const std::lock_guard lock(mutex);
                                              EXPECT_EQ(called, 300);
                                            }});
}

/// A handle may answer later, and for several requests at once: a synchronous sum over the workers.
TEST(PsCluster, ServersAnswerLater) {
  constexpr int workers = 3;
  const auto server = [] {
    struct state {
      std::vector<KVMeta> waiting;
      std::vector<SArray<Key>> keys;
      float sum = 0;
    };
    auto* app = new KVServer<float>(0);
    auto s = std::make_shared<state>();
    app->set_request_handle([s](const KVMeta& meta, const KVPairs<float>& data, KVServer<float>* self) {
      s->sum += data.vals[0];
      s->waiting.push_back(meta);
      s->keys.push_back(data.keys);
      if (s->waiting.size() < workers) return;
      for (std::size_t i = 0; i < s->waiting.size(); ++i) {
        KVPairs<float> response;
        response.keys = s->keys[i];
        response.vals = SArray<float>(1, s->sum);
        self->Response(s->waiting[i], response);
      }
      *s = {};
    });
    RegisterExitCallback([app] { delete app; });
  };
  ps_job({.workers = workers, .servers = 1}).run({.server_before_start = server, .worker = [] {
                                                    KVWorker<float> kv(0, 0);
                                                    for (int round = 1; round <= 20; ++round) {
                                                      std::vector<float> sum;
                                                      const auto key = static_cast<Key>(MyRank());
                                                      kv.Wait(kv.PushPull({key}, {static_cast<float>(round)}, &sum));
                                                      ASSERT_THAT(sum, ElementsAre(static_cast<float>(3 * round)));
                                                    }
                                                  }});
}

TEST(PsCluster, SimpleAppsReachEveryNodeInOrder) {
  std::atomic<int> received{0};
  std::mutex mutex;
  const auto app_of_node = [&] {
    auto app = std::make_shared<SimpleApp>(4);
    auto next = std::make_shared<int>(0);
    app->set_request_handle([&, next](const SimpleData& d, SimpleApp* self) {
      EXPECT_EQ(d.head, (*next)++);
      ++received;
      self->Response(d, d.body + "!");
    });
    RegisterExitCallback([app]() mutable { app.reset(); });
  };
  const auto scheduler = [&] {
    SimpleApp app(4);
    int answers = 0;
    app.set_response_handle([&](const SimpleData& d, SimpleApp*) {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(d.body, "text!");
      ++answers;
    });
    int last = 0;
    for (int i = 0; i < 50; ++i) last = app.Request(i, "text", kServerGroup + kWorkerGroup);
    app.Wait(last);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(answers, 250);
  };
  ps_job({.workers = 3, .servers = 2})
      .run({.server_before_start = app_of_node, .worker = app_of_node, .scheduler = scheduler});
  EXPECT_EQ(received, 250);
}

TEST(PsCluster, AUsersSlicerDecidesWhereKeysGo) {
  ps_job({.workers = 1, .servers = 3}).run({.server_before_start = default_server<double>, .worker = [] {
                                              KVWorker<double> kv(0, 0);
                                              kv.set_slicer([](const KVPairs<double>& send,
                                                               const std::vector<Range>& ranges,
                                                               KVWorker<double>::SlicedKVs* sliced) {
                                                sliced->resize(ranges.size());
                                                for (std::size_t i = 0; i < send.keys.size();
                                                     ++i) {  // the first server gets nothing
                                                  auto& [used, kvs] = (*sliced)[1 + send.keys[i] % 2];
                                                  used = true;
                                                  kvs.keys.push_back(send.keys[i]);
                                                  if (!send.vals.empty()) kvs.vals.push_back(send.vals[i]);
                                                }
                                              });
                                              kv.Wait(kv.Push({1, 3, 5}, {1, 3, 5}));
                                              std::vector<double> got;
                                              kv.Wait(kv.Pull({1, 3, 5}, &got));
                                              EXPECT_THAT(got, ElementsAre(1, 3, 5));
                                              // Alternating keys come back in two overlapping lists, which no order
                                              // of lists makes ascending.
                                              kv.Wait(kv.Push({2}, {2}));
                                              kv.Wait(kv.Pull({1, 2, 3}, &(got = {})));
                                              EXPECT_THAT(got, ElementsAre(1, 2, 3));
                                            }});
}

}  // namespace
}  // namespace ps
