// SPDX-License-Identifier: BSD-3-Clause
//
// Regression tests of the worker's side: one for each defect found by review.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <paracel/paralg.hpp>

#include "client/server_group.hpp"
#include "net/heartbeat.hpp"
#include "net/inproc_transport.hpp"
#include "test/support/cluster.hpp"
#include "test/support/paths.hpp"
#include "worker/comm/single_comm.hpp"

namespace paracel {
namespace {

using std::chrono::milliseconds;
using test::cluster;

// ---- the client --------------------------------------------------------------------------------------------------

TEST(Kvclt, WaitingForAllGivesUpWhenTheFirstIsAnsweredAndALaterOneNever) {
  cluster c({.workers = 1, .servers = 1, .threads = 2});
  auto m = c.members();
  m.servers[0].shards[1] = "inproc://nobody";
  kvclt_options o;
  o.timeout = milliseconds{300};
  server_group client(c.transport(), m, 0, o);
  std::string answered, silent;
  for (int i = 0; answered.empty() || silent.empty(); ++i) {
    const auto key = std::to_string(i);
    (client.locate(key).shard == 0 ? answered : silent) = key;
  }
  client.request({.what = net::verb::pull}, answered, {}, nullptr);
  client.request({.what = net::verb::pull}, silent, {}, nullptr);
  EXPECT_THROW(client.wait_all(), network_error);
}

TEST(Kvclt, AMultiCallThatFailsWhileItSendsLeavesNoHandlerBehind) {
  cluster c({.workers = 1, .servers = 1});
  kvclt_options o;
  o.max_outstanding_bytes = 4000;
  o.multi_chunk_bytes = 1000;
  const auto client = c.client(o);
  std::vector<std::string> keys;
  for (int i = 0; i < 500; ++i) keys.push_back("key_" + std::to_string(i));
  const auto refuse = std::make_shared<int>(0);
  const auto ask = [&] {
    client->many().multi({.what = net::verb::pull_multi}, keys, {},
                         [refuse](std::size_t, const net::reply_item&) { throw type_error("not what was asked for"); });
  };
  EXPECT_THROW(ask(), type_error);
  EXPECT_GT(client->in_flight(), 0U);
  EXPECT_NO_THROW(client->wait_all());  // replies to the failed call find no handler
}

TEST(Kvclt, AnAnswerOutlivesTheRequestsThatItsHandlerMakes) {
  cluster c({.workers = 1, .servers = 1});
  kvclt_options o;
  o.max_outstanding_bytes = 2000;
  const auto client = c.client(o);
  const std::string text(1500, 'x');
  const encoded<std::string> value(text);
  const std::string other_text(1400, 'y');  // fits into the buffer of a reply
  const encoded<std::string> another(other_text);
  client->wait(client->request({.what = net::verb::push}, "k", value.view(), nullptr));
  int right = 0;
  for (int i = 0; i < 3; ++i)
    client->request({.what = net::verb::pull}, "k", {}, [&](const kv_result& r) {
      for (int n = 0; n < 3; ++n) client->request({.what = net::verb::push}, "other", another.view(), nullptr);
      if (r.ok() && decode<std::string>(r.value()) == text) ++right;
    });
  client->wait_all();
  EXPECT_EQ(right, 3);
}

// ---- futures and errors of updates -------------------------------------------------------------------------------

TEST(Paralg, EachKindOfReadNamesTheKeyWhoseValueHasAnotherType) {
  using read = std::function<void(paralg&)>;
  const std::vector<std::pair<std::string, read>> reads{
      {"read", [](paralg& a) { (void)a.paracel_read<double>("word"); }},
      {"read_ref of a number", [](paralg& a) { (void)a.paracel_read_ref<double>("word"); }},
      {"read_ref of a list", [](paralg& a) { (void)a.paracel_read_ref<std::vector<double>>("word"); }},
      {"read_ref of a map", [](paralg& a) { (void)a.paracel_read_ref<std::map<std::string, int>>("word"); }},
      {"get_cache",
       [](paralg& a) {
         (void)a.paracel_read<std::string>("word");
         (void)a.get_cache<double>("word");
       }},
      {"read_async",
       [](paralg& a) {
         double v = 0;
         a.paracel_read_async("word", v).get();
       }},
      {"read_async with a callback",
       [](paralg& a) {
         a.paracel_read_async<double>("word", [](const double&) {});
         a.paracel_wait();
       }},
  };
  for (const auto model : {"ssp", "asp"}) {
    cluster c({.workers = 1});
    c.run([&](const Comm& comm) {
      paralg a("", comm, "", 1, 0, model == std::string("ssp"));
      a.paracel_write("word", std::string("letters"));
      for (const auto& [name, f] : reads) {
        if (name == "get_cache" && model == std::string("asp")) continue;
        try {
          f(a);
          ADD_FAILURE() << name << " returned";
        } catch (const type_error& e) {
          EXPECT_TRUE(std::string_view(e.what()).starts_with("key \"word\": "))
              << name << ", " << model << ": " << e.what();
        }
      }
    });
  }
}

TEST(Paralg, TheErrorOfAnUnaskedUpdateIsToldAtTheBarrierAndNamesTheKey) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm);
    a.paracel_write("the_key", std::vector<double>{1, 2});
    (void)a.paracel_update("the_key", std::vector<double>{1, 2, 3});
    try {
      a.paracel_sync();
      ADD_FAILURE() << "no error";
    } catch (const error& e) {
      EXPECT_NE(std::string(e.what()).find("the_key"), std::string::npos) << e.what();
    }
  });
}

TEST(Paralg, AskingOneFailedUpdateDoesNotHideAnother) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm);
    a.paracel_write("v", std::vector<double>{1, 2});
    auto asked = a.paracel_update("v", std::vector<double>{1, 2, 3});
    (void)a.paracel_update("v", std::vector<double>{1, 2, 3});
    a.paracel_read<std::vector<double>>("v");  // both replies have arrived
    EXPECT_THROW((void)asked.get(), error);
    EXPECT_THROW(a.iter_commit(), error);
    a.iter_commit();
  });
}

TEST(Paralg, AFutureThatOutlivesItsParalgIsAnError) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    async_functor_type future;
    {
      paralg a("", comm);
      a.paracel_update("v", 1.0, future);
    }
    EXPECT_THROW((void)future.get(), error);
  });
}

// ---- clock and cache -----------------------------------------------------------------------------------------------

TEST(Ssp, NobodyWaitsForAWorkerThatHasLeft) {
  cluster c({.workers = 2, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm, "", 20, 0, true);
    const int iterations = a.get_worker_id() == 0 ? 3 : 20;
    for (int i = 0; i < iterations; ++i) {
      (void)a.paracel_contains("x");
      a.iter_commit();
    }
  });
}

TEST(Ssp, ASecondAlgorithmOfAJobGoesOnWithTheClockOfTheFirst) {
  constexpr int iterations = 30;
  cluster c({.workers = 2, .servers = 1});
  c.run([&](Comm comm) {
    for (int round = 0; round < 2; ++round) {
      paralg a("", comm, "", iterations, 0, true);
      const auto key = "round_" + std::to_string(round);
      for (int i = 0; i < iterations; ++i) {
        if (i > 0) {
          ASSERT_GE(a.paracel_read<std::int64_t>(key), 2 * i) << "round " << round;
        }
        if (a.get_worker_id() == 0) std::this_thread::sleep_for(std::chrono::microseconds{300});
        a.paracel_update(key, std::int64_t{1});
        a.iter_commit();
      }
      a.paracel_sync();
    }
  });
}

TEST(Bsp, ASecondAlgorithmOfAJobIsStagedToo) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    for (int round = 0; round < 2; ++round) {
      paralg a("", comm, "", 10, 0, true);
      a.set_consistency(consistency_model::bsp);
      a.paracel_write("v", std::int64_t{0});
      for (std::int64_t i = 0; i < 10; ++i) {
        a.paracel_update("v", std::int64_t{1});
        ASSERT_EQ(a.paracel_read<std::int64_t>("v"), i) << "round " << round;
        a.iter_commit();
      }
    }
  });
}

TEST(Bsp, ABlockingUpdateDoesNotHideWhatIsStaged) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm, "", 10, 0, true);
    a.set_consistency(consistency_model::bsp);
    a.paracel_write("v", std::int64_t{0});
    ASSERT_EQ(a.paracel_read<std::int64_t>("v"), 0);
    a.paracel_update("v", std::int64_t{1});
    a.iter_commit();
    a.paracel_bupdate("v", std::int64_t{10});
    EXPECT_EQ(a.paracel_read<std::int64_t>("v"), 11);
  });
}

TEST(Bsp, AWriteReplacesWhatWasFinishedBeforeItForEveryWorker) {
  cluster c({.workers = 2, .servers = 1});
  std::array<std::int64_t, 2> seen{};
  c.run([&](Comm comm) {
    paralg a("", comm, "", 10, 0, true);
    a.set_consistency(consistency_model::bsp);
    a.paracel_update("v", std::int64_t{1});
    a.iter_commit();
    a.paracel_sync();
    if (a.get_worker_id() == 0) a.paracel_write("v", std::int64_t{100});
    a.paracel_sync();
    seen[a.get_worker_id()] = a.paracel_read<std::int64_t>("v");
  });
  EXPECT_EQ(seen, (std::array<std::int64_t, 2>{100, 100}));
}

TEST(Ssp, AFailedUpdateIsNotInTheCache) {
  cluster c({.workers = 1, .servers = 1, .plugin_folders = {test::plugin_folder()}});
  c.run([](Comm comm) {
    paralg a("", comm, "", 10, 5, true);
    a.paracel_write("v", std::vector<float>{1, 2});
    a.paracel_write_multi(dict_type<std::string, std::vector<double>>{{"w", {1, 2}}});
    // Another client changes the type, so that the server rejects what fits this worker's cached copy.
    paralg other("", comm);
    other.paracel_write("v", std::string("text"));
    other.paracel_write("w", std::string("text"));
    auto future = a.paracel_update("v", std::vector<float>{1, 1});
    EXPECT_THROW((void)future.get(), error);
    EXPECT_EQ(a.paracel_read<std::string>("v"), "text");
    EXPECT_THROW((void)a.paracel_update_multi({"w"}, list_type<std::vector<double>>{{1, 1}}), error);
    EXPECT_EQ(a.paracel_read<std::string>("w"), "text");
  });
}

TEST(Ssp, AMultiUpdateWhoseAnswerCannotBeReadIsStillSeen) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm, "", 10, 5, true);
    a.paracel_write("v", 0.5);
    ASSERT_EQ(a.paracel_read<double>("v"), 0.5);
    EXPECT_THROW((void)a.paracel_bupdate_multi_get<float>({"v"}, {1.0F}), type_error);
    double in_server = 0;
    paralg other("", comm);
    other.paracel_read("v", in_server);
    EXPECT_EQ(a.paracel_read<double>("v"), in_server);
  });
}

TEST(Ssp, AMultiReadFromTheCacheTellsItsStaleness) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm, "", 10, 5, true);
    a.paracel_write("v", 1.0);
    for (std::uint32_t i = 0; i < 4; ++i) {
      (void)a.paracel_read_multi<double>({"v"});
      EXPECT_EQ(a.last_staleness(), i);
      a.iter_commit();
    }
  });
}

// ---- refusals ------------------------------------------------------------------------------------------------------

TEST(Paralg, RefusesWhatItCannotMeanAndSaysWhatWouldBeRight) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    const auto folder = ::testing::TempDir() + "paracel_worker_test/results";
    EXPECT_THROW(paralg("", comm, "", 1, -1), config_error);
    EXPECT_THROW(paralg("", comm, "/proc/no_such_folder"), config_error);
    paralg a("", comm, folder);
    EXPECT_THROW(a.set_total_iters(-1), config_error);
    EXPECT_THROW(a.paracel_dump_vector(std::vector<int>{1}, "../outside_"), data_error);
    EXPECT_THROW(a.paracel_dump_vector(std::vector<int>{1}, "/tmp/outside_"), data_error);
    EXPECT_NO_THROW(a.paracel_dump_vector(std::vector<int>{1}, "inside_"));
  });
}

TEST(Comm, ARootThatIsNoWorkerIsRefused) {
  Comm comm(std::make_shared<single_comm>());
  int number = 1;
  for (const auto& call : std::vector<std::function<void()>>{[&] { comm.bcast(number, 1); },
                                                             [&] {
                                                               (void)comm.treereduce(
                                                                   number, [](int from, int& to) { to += from; }, 7);
                                                             }}) {
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const error& e) {
      EXPECT_NE(std::string(e.what()).find("root"), std::string::npos) << e.what();
    }
  }
}

// ---- the heartbeat -------------------------------------------------------------------------------------------------

TEST(Heartbeat, ASchedulerThatWasNotAskedIsNotSilent) {
  // The pauses between heartbeats exceed the limit, as they do for a suspended process.
  cluster c({.workers = 1, .servers = 1});
  std::atomic<int> beats{0};
  std::atomic<bool> ended{false};
  {
    net::heartbeat h(
        c.transport(), {c.scheduler_address(), cluster::job, milliseconds{200}, milliseconds{100}},
        [&] {
          ++beats;
          return std::string(R"({"role":"server","slot":0,"pid":1,"busy":[]})");
        },
        [&](const net::directive&) { ended = true; });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{5};
    while (beats < 4 && !ended && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(milliseconds{5});
  }
  EXPECT_FALSE(ended);
  EXPECT_GE(beats, 4);
}

TEST(Heartbeat, AnOrderToEndIsNoSignThatItMayGoOn) {
  net::inproc_transport over;
  const auto scheduler = over.open();
  scheduler->bind("inproc://s");
  std::atomic<int> signs{0}, orders{0};
  net::heartbeat_options o{"inproc://s", 1, milliseconds{10}, milliseconds{5000}};
  o.on_answer = [&](net::clock_source::time_point) { ++signs; };
  net::heartbeat h(
      over, std::move(o), [] { return std::string("{}"); }, [&](const net::directive&) { ++orders; });
  const auto answer = [&](net::instruction order, std::uint32_t count = net::known_sender) {
    net::incoming in;
    net::request_view asked;
    ASSERT_TRUE(scheduler->receive(in, std::chrono::seconds{5}));
    ASSERT_EQ(net::decode(in.frame, 0, asked), nullptr);
    net::reply_header reply;
    reply.what = asked.header.what;
    reply.sequence = asked.header.sequence;
    reply.order = order;
    reply.count = count;
    net::reply_bytes head;
    net::encode(reply, head);
    scheduler->reply(in.from, {.head = head});
  };
  answer(net::instruction::proceed);
  answer(net::instruction::proceed, 0);  // to a process that it does not know
  answer(net::instruction::abort);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{5};
  while (orders == 0 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(milliseconds{1});
  EXPECT_EQ(orders, 1);
  EXPECT_EQ(signs, 1) << "only the first";
}

TEST(Heartbeat, ASilentSchedulerIsLostWithinTheLimit) {
  net::inproc_transport nobody;
  std::atomic<bool> ended{false};
  std::string cause;
  const auto begin = std::chrono::steady_clock::now();
  {
    net::heartbeat h(
        nobody, {"inproc://nobody", 1, milliseconds{20}, milliseconds{300}}, [] { return std::string("{}"); },
        [&](const net::directive& o) {
          cause = o.cause;
          EXPECT_EQ(o.status, exit_status::scheduler_lost);
          ended = true;
        });
    while (!ended && std::chrono::steady_clock::now() - begin < std::chrono::seconds{5})
      std::this_thread::sleep_for(milliseconds{5});
  }
  EXPECT_TRUE(ended);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds{1500});
  EXPECT_NE(cause.find("300 ms"), std::string::npos) << cause;
}

}  // namespace
}  // namespace paracel
