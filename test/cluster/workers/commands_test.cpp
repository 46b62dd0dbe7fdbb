// SPDX-License-Identifier: BSD-3-Clause
//
// Commands from worker to worker, where they run, and how programs are notified of changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <paracel/error.hpp>
#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;
using test::cluster;
using testing::ElementsAre;
using testing::HasSubstr;
using texts = std::vector<std::string>;

const auto workers = command_target::workers();

texts texts_of(const list_type<command_answer>& answers) {
  texts all;
  for (const auto& a : answers) {
    EXPECT_EQ(a.number, all.size());
    all.push_back((a.ok ? "" : "failed: ") + a.text);
  }
  return all;
}

/// A worker that runs commands until it is told to stop.
struct obedient : paralg {
  explicit obedient(Comm comm) : paralg("", comm, "", 1, consistency::asp()) {
    paracel_on_command("stop", [this](const str_type&) {
      over = true;
      return str_type("bye");
    });
  }
  void serve() {
    while (!over) paracel_take_commands(20);
  }
  void stop_all() { paracel_tell(workers, "stop"); }
  bool over = false;
};

TEST(Commands, EveryWorkerRunsEachOfThemOnceInTheOrderOfTheSender) {
  for (const std::size_t size : {1U, 2U, 4U}) {
    cluster c({.workers = size});
    c.run([&](Comm comm) {
      obedient job(comm);
      const auto thread = std::this_thread::get_id();
      texts seen;
      job.paracel_on_command("note", [&](const str_type& body) {
        EXPECT_EQ(std::this_thread::get_id(), thread);
        seen.push_back(body);
        return body + "/" + std::to_string(comm.get_rank());
      });
      comm.synchronize();
      texts given;
      if (comm.get_rank() == 0) {
        for (int i = 0; i < 50; ++i) {
          given.push_back(std::to_string(i));
          const auto answers = texts_of(job.paracel_tell(workers, "note", given.back()));
          ASSERT_EQ(answers.size(), size);
          for (std::size_t r = 0; r < size; ++r) EXPECT_EQ(answers[r], given.back() + "/" + std::to_string(r));
        }
        EXPECT_EQ(seen, given);
        job.stop_all();
      } else {
        job.serve();
        EXPECT_EQ(seen.size(), 50U);
        EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end(), [](auto& a, auto& b) { return stoi(a) < stoi(b); }));
      }
    });
  }
}

TEST(Commands, TheyRunAtCommitsAndInBarriersAndMayUseTheParametersThere) {
  cluster c({.workers = 3, .servers = 2});
  std::atomic<bool> commits{false};
  c.run([&](Comm comm) {
    obedient job(comm);
    std::string where = "a barrier";
    job.paracel_on_command("add", [&](const str_type& body) {
      job.paracel_bupdate("sum", std::stod(body));
      return where;
    });
    if (comm.get_rank() == 0) job.paracel_write("sum", 0.0);
    comm.synchronize();
    if (comm.get_rank() == 0) {
      where = "tell";
      while (!commits) std::this_thread::sleep_for(1ms);
      EXPECT_THAT(texts_of(job.paracel_tell(workers, "add", "2.5")), ElementsAre("tell", "a commit", "a barrier"));
      EXPECT_EQ(job.paracel_read<double>("sum"), 7.5);
      job.paracel_tell(command_target::worker(1), "stop");
    }
    if (comm.get_rank() == 1) {
      where = "a commit";
      commits = true;
      while (!job.over) job.iter_commit();
    }
    job.paracel_sync();
  });
}

/// Of all workers or of a group, in shared memory and over messages.
TEST(Commands, TheyRunWhileAWorkerWaitsInTheBarrierOfAnyCommunicator) {
  for (const bool shares : {true, false}) {
    for (const bool of_group : {true, false}) {
      cluster c({.workers = 3, .servers = 1, .shares_memory = shares});
      c.run([&](Comm comm) {
        obedient job(comm);
        const auto me = comm.get_rank();
        Comm group = comm.split(0);
        auto& where = of_group ? group : comm;
        job.paracel_on_command("collective", [&](const str_type&) {
          double x = 1;
          where.allreduce(x);
          return str_type("done");
        });
        job.paracel_on_command("add", [&](const str_type& body) {
          job.paracel_bupdate("sum", std::stod(body));
          int got = 0;  // a message between two workers is no collective
          if (me == 2) comm.send(7, 1, 0);
          else if (me == 1) comm.recv(got, 2, 0);
          return std::to_string(got);
        });
        if (me == 0) job.paracel_write("sum", 0.0);
        where.synchronize();
        if (me == 0) {
          std::this_thread::sleep_for(30ms);  // the others wait
          const auto begin = std::chrono::steady_clock::now();
          const auto answers = texts_of(job.paracel_tell(workers, "add", "2.5"));
          EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
          EXPECT_THAT(answers, ElementsAre("0", "7", "0"));
          EXPECT_EQ(job.paracel_read<double>("sum"), 7.5);
          const auto refused = job.paracel_tell(command_target::worker(1), "collective").at(0);
          EXPECT_FALSE(refused.ok);
          EXPECT_THAT(refused.text, HasSubstr("calls a collective while its worker waits in a barrier"));
        }
        where.synchronize();
      });
    }
  }
}

/// Worker 1 runs a command while it waits for the others; one passes the barrier meanwhile, and then sends another one.
/// With four, worker 3 still waits for a message of worker 1 then.
TEST(Commands, ThatOfAWorkerThatHasPassedABarrierRunsAfterIt) {
  for (const auto& [size, shares] : {std::pair{3U, true}, {3U, false}, {4U, true}, {4U, false}}) {
    cluster c({.workers = size, .servers = 1, .shares_memory = shares});
    c.run([&](Comm comm) {
      obedient job(comm);
      job.paracel_on_command("slow", [](const str_type&) {
        std::this_thread::sleep_for(500ms);
        return str_type("slept");
      });
      job.paracel_on_command("collective", [&](const str_type&) {
        double x = 1;
        comm.allreduce(x);
        return std::to_string(static_cast<int>(x));
      });
      comm.synchronize();
      const auto me = comm.get_rank();
      if (me == 2) {
        std::this_thread::sleep_for(50ms);  // worker 1 waits
        EXPECT_FALSE(job.paracel_tell(command_target::worker(1), "slow", "", 0.1).at(0).ok) << "it is late";
      }
      if (me == 0) std::this_thread::sleep_for(200ms);
      job.paracel_sync();
      if (me == 0) {
        EXPECT_EQ(texts_of(job.paracel_tell(workers, "collective", "", 10)),
                  texts(comm.get_size(), std::to_string(comm.get_size())));
        job.stop_all();
      } else {
        job.serve();
      }
    });
  }
}

TEST(Commands, WorkersThatTellEachOtherAtTheSameTimeDoNotWaitForever) {
  cluster c({.workers = 4});
  c.run([](Comm comm) {
    obedient job(comm);
    int ran = 0;
    job.paracel_on_command("ping", [&](const str_type& body) {
      ++ran;
      return body;
    });
    comm.synchronize();
    for (int i = 0; i < 20; ++i) {
      const auto body = std::to_string(comm.get_rank()) + "." + std::to_string(i);
      EXPECT_EQ(texts_of(job.paracel_tell(workers, "ping", body)), texts(4, body));
    }
    comm.synchronize();
    EXPECT_EQ(ran, 80);
  });
}

TEST(Commands, WhatGoesWrongInOneIsItsAnswerAndTheProgramContinues) {
  cluster c({.workers = 2});
  c.run([](Comm comm) {
    obedient job(comm);
    job.paracel_on_command("throw", [](const str_type&) -> str_type { throw data_error("x.csv:7: no number"); });
    job.paracel_on_command("long", [](const str_type&) { return str_type(65537, 'x'); });
    job.paracel_on_command("nested", [&](const str_type&) {
      job.paracel_tell(workers, "stop");
      return str_type();
    });
    job.paracel_on_command("collective", [&](const str_type&) {
      comm.synchronize();
      return str_type("done");
    });
    EXPECT_THROW(job.paracel_on_command("stop", nullptr), config_error);
    EXPECT_THROW(job.paracel_on_command("", nullptr), config_error);
    comm.synchronize();
    if (comm.get_rank() == 0) {
      const auto other = [&](const str_type& name) {
        const auto a = job.paracel_tell(command_target::worker(1), name);
        EXPECT_EQ(a.at(0).number, 1U);
        EXPECT_FALSE(a[0].ok);
        return a[0].text;
      };
      EXPECT_EQ(other("throw"), "x.csv:7: no number");
      EXPECT_EQ(other("long"), "its answer has 65537 bytes, want at most 65536");
      EXPECT_THAT(other("nested"), HasSubstr("paracel_tell in a function of paracel_on_command"));
      EXPECT_THAT(other("collective"), HasSubstr("calls a collective while its worker waits in a barrier"));
      EXPECT_EQ(other("sing"), "no command \"sing\": this program has stop, throw, long, nested, collective");
      EXPECT_THROW(job.paracel_tell(command_target::worker(2), "stop"), error);
      EXPECT_THROW(job.paracel_tell(workers, "stop", str_type(65537, 'x')), config_error);
      EXPECT_THROW(job.paracel_tell(workers, "stop", "", 0), error);
      EXPECT_THROW(job.paracel_tell(command_target::servers(), "stop"), error);
    }
    job.paracel_sync();
    if (comm.get_rank() == 0) {
      EXPECT_THAT(texts_of(job.paracel_tell(workers, "collective", "", 10)), ElementsAre("done", "done"))
          << "outside a barrier all workers may";
      job.stop_all();
    } else {
      job.serve();
    }
  });
}

/// JSON writes a control character as six bytes: the answers of a turn are longer than a control message.
TEST(Commands, AnswersOfAnyBytesEndNoJob) {
  constexpr std::size_t size = 6;
  cluster c({.workers = size});
  std::atomic<std::size_t> given{0};
  std::atomic<std::size_t> finished{0};
  c.run([&](Comm comm) {
    obedient job(comm);
    job.paracel_on_command("control", [](const str_type&) { return str_type(65536, '\x01'); });
    job.paracel_on_command("binary", [](const str_type&) { return str_type(30000, '\xff'); });
    job.paracel_on_command("throw", [](const str_type&) -> str_type { throw data_error(str_type(2 << 20, '\xfe')); });
    comm.synchronize();
    if (comm.get_rank() == 1) {
      while (given < size - 1) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(200ms);  // so that the commands are at the scheduler
      job.serve();
      return;
    }
    const auto one = command_target::worker(1);
    ++given;
    const auto answer = job.paracel_tell(one, "control").at(0);
    EXPECT_TRUE(answer.ok) << answer.text.substr(0, 100);
    EXPECT_EQ(answer.text, str_type(65536, '\x01'));
    EXPECT_EQ(job.paracel_tell(one, "binary").at(0).text, "its answer is not UTF-8");
    const auto thrown = job.paracel_tell(one, "throw").at(0);
    EXPECT_FALSE(thrown.ok);
    EXPECT_EQ(thrown.text.substr(0, 6), "\xef\xbf\xbd\xef\xbf\xbd") << "replacement characters";
    EXPECT_LE(thrown.text.size(), 65536U);
    EXPECT_THROW(job.paracel_tell(one, str_type(2 << 20, 'x')), config_error);
    EXPECT_THROW(job.paracel_tell(one, "\xff"), config_error);
    EXPECT_THROW(job.paracel_tell(one, "stop", "\xff"), config_error);
    EXPECT_THROW(job.paracel_on_command("\xff", nullptr), config_error);
    comm.report(str_type(3 << 20, ' '));  // a progress text
    ++finished;
    if (comm.get_rank() != 0) return job.serve();
    while (finished < size - 1) std::this_thread::sleep_for(1ms);
    for (std::size_t rank = 1; rank < size; ++rank) job.paracel_tell(command_target::worker(rank), "stop");
  });
}

TEST(Commands, AWorkerThatComputesIsLateAndOneWithoutFunctionsIsNamed) {
  cluster c({.workers = 3});
  std::atomic<bool> computes{false};
  std::atomic<bool> told{false};
  c.run([&](Comm comm) {
    paralg job("", comm);
    int ran = 0;
    if (comm.get_rank() != 2) job.paracel_on_command("a", [&](const str_type&) { return std::to_string(++ran); });
    comm.synchronize();
    if (comm.get_rank() == 1) computes = true;
    if (comm.get_rank() == 0) {
      while (!computes) std::this_thread::sleep_for(1ms);
      EXPECT_THAT(
          texts_of(job.paracel_tell(workers, "a", "", 0.2)),
          ElementsAre("1", HasSubstr("failed: no answer within 0.2 s"), HasSubstr("failed: it accepts no commands")));
      told = true;
    } else {
      while (!told) std::this_thread::sleep_for(5ms);
    }
    job.paracel_sync();
  });
}

TEST(Commands, ServersAnswerStats) {
  cluster c({.workers = 1, .servers = 2});
  c.run([](Comm comm) {
    paralg job("", comm);
    job.paracel_write("k", 1.0);
    const auto answers = job.paracel_tell(command_target::servers(), "stats");
    ASSERT_EQ(answers.size(), 2U);
    for (const auto& a : answers) EXPECT_THAT(a.text, HasSubstr("\"slot\":" + std::to_string(a.number)));
    const auto one = job.paracel_tell(command_target::server(1), "stats");
    EXPECT_EQ(one.at(0).number, 1U);
    EXPECT_TRUE(one[0].ok);
  });
}

TEST(Commands, FunctionsEndWithTheirAlgorithm) {
  cluster c({.workers = 1});
  c.run([](Comm comm) {
    obedient stays(comm);
    {
      paralg goes("", comm);
      goes.paracel_on_command("a", [](const str_type&) { return str_type("A"); });
      EXPECT_EQ(texts_of(stays.paracel_tell(workers, "a")), texts{"A"});
    }
    EXPECT_EQ(texts_of(stays.paracel_tell(workers, "a")), texts{"failed: no command \"a\": this program has stop"});
  });
}

TEST(Commands, AProgramIsToldOfServersThatDieAndComeBack) {
  cluster c({.workers = 2, .servers = 3, .replicas = 2});
  std::atomic<int> dead{0};
  std::thread killer([&] {
    while (dead != 1) std::this_thread::sleep_for(1ms);
    EXPECT_NE(c.lose(1), 0U);
    while (dead != 2) std::this_thread::sleep_for(1ms);
    c.replace(1);
  });
  c.run([&](Comm comm) {
    paralg job("", comm);
    texts seen;
    job.paracel_on_change([&](const job_node& n) {
      EXPECT_TRUE(n.is_server);
      EXPECT_EQ(n.number, 1U);
      EXPECT_EQ(n.is_dead, n.state == "down");
      EXPECT_EQ(n.cause.empty(), n.state != "down") << n.cause;
      seen.push_back(n.state);
    });
    const auto await = [&](const std::string& state) {
      const auto end = std::chrono::steady_clock::now() + 60s;
      while ((seen.empty() || seen.back() != state) && std::chrono::steady_clock::now() < end)
        job.paracel_take_commands(1);
    };
    comm.synchronize();
    if (comm.get_rank() == 0) dead = 1;
    await("down");
    comm.synchronize();
    if (comm.get_rank() == 0) dead = 2;
    await("up");
    EXPECT_THAT(seen, ElementsAre("down", "joining", "up"));
    comm.synchronize();
  });
  killer.join();
}

/// Worker 1 dies at any of its messages: every call of worker 0 returns, and a command runs at most once in a process.
TEST(Commands, AWorkerThatDiesIsReportedAndItsReplacementTakesTheNextOnes) {
  for (std::uint64_t step = 0; step < 24; ++step) {
    const test::temporary_folder folder;
    cluster c({.workers = 2, .state_folder = folder.path()});
    std::atomic<bool> done{false};
    c.run_with_deaths(
        [&](Comm comm) {
          obedient job(comm);
          std::vector<int> seen;
          job.paracel_on_command("note", [&](const str_type& body) {
            seen.push_back(std::stoi(body));
            return body;
          });
          EXPECT_EQ(job.first_iteration(), 0);
          if (comm.get_rank() == 1) {
            while (!job.over && !done) job.paracel_take_commands(0.05);
            EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
            EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
            return;
          }
          for (int i = 0; i < 6; ++i) {
            const auto answers = job.paracel_tell(workers, "note", std::to_string(i));
            ASSERT_EQ(answers.size(), 2U);
            EXPECT_TRUE(answers[0].ok);
            if (answers[1].ok) {
              EXPECT_EQ(answers[1].text, std::to_string(i));
            } else {
              EXPECT_THAT(answers[1].text, testing::AnyOf(HasSubstr("killed"), HasSubstr("it accepts no commands")));
              std::this_thread::sleep_for(5ms);
            }
          }
          EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4, 5));
          while (!job.paracel_tell(command_target::worker(1), "stop").at(0).ok) std::this_thread::sleep_for(5ms);
          done = true;
        },
        {{}, {{.step = step, .before = step % 2 == 0}}});
  }
}

}  // namespace
}  // namespace paracel
