// SPDX-License-Identifier: BSD-3-Clause
//
// The iterative communication queue: each of its rules, wrong use, checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <paracel/bigraph.hpp>
#include <paracel/com_queue.hpp>
#include <paracel/digraph.hpp>
#include <paracel/samples.hpp>
#include <paracel/sparse.hpp>

#include "test/support/cluster.hpp"
#include "test/support/document_samples.hpp"
#include "test/support/same_texts.hpp"
#include "test/support/temporary_folder.hpp"
#include "worker/comm/single_comm.hpp"

namespace paracel {
namespace {

using test::cluster;
using test::expect_one_text;
using test::texts_of_job;
using test::with_job;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ResultOf;
using numbers = std::vector<double>;

TEST(ComQueue, CloseEachWithReturnsEachTasksOwnResult) {
  for (const std::size_t p : {1U, 3U}) {
    with_job(p, [](paralg& job) {
      com_queue q(job);
      q.add([](com_context& c) { c.put_obj("own", numbers(c.task_id(), 7.0)); });
      q.set_max_iter(2);
      q.close_each_with([](com_context& c) { return c.get_obj<numbers>("own"); });
      EXPECT_EQ(q.exec<numbers>(), numbers(job.get_worker_id(), 7.0));
    });
  }
}

TEST(ComQueue, RunsItsItemsInOrderAndReturnsTheResultOfTask0) {
  for (const std::size_t p : {1U, 2U, 3U}) {
    with_job(p, [p](paralg& job) {
      com_queue q(job);
      std::vector<int> seen;
      q.init_with_partitioned_data("rows", numbers(job.get_worker_id(), 1.0));  // task 0 has none
      q.init_with_broadcast_data("start", static_cast<std::int64_t>(10 + job.get_worker_id()));
      q.add([&](com_context& c) {
        EXPECT_EQ(c.task_id(), job.get_worker_id());
        EXPECT_EQ(c.num_task(), p);
        EXPECT_EQ(c.get_obj<const numbers>("rows").size(), c.task_id());
        EXPECT_EQ(c.get_obj<std::int64_t>("start"), 10);
        seen.push_back(c.step_no());
        c.put_obj("sum", numbers{1, static_cast<double>(c.step_no())});
      });
      q.add([&](com_context& c) { c.get_obj<numbers>("sum")[0] += static_cast<double>(c.task_id()); });
      q.add(all_reduce("sum"));
      q.add([&](com_context& c) {
        const auto n = static_cast<double>(p);
        EXPECT_THAT(c.get_obj<const numbers>("sum"), ElementsAre(n + n * (n - 1) / 2, n * c.step_no()));
      });
      q.set_max_iter(4);
      int closed = 0;
      q.close_with([&](com_context& c) {
        ++closed;
        EXPECT_EQ(c.step_no(), 4);
        return "of task " + std::to_string(c.task_id());
      });
      EXPECT_EQ(q.exec<std::string>(), "of task 0");
      EXPECT_EQ(closed, 1);
      EXPECT_EQ(q.steps(), 4);
      EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4));
    });
  }
}

TEST(ComQueue, TheCriterionIsAskedAtTask0AloneAndEndsAllInTheSameSuperstep) {
  with_job(3, [](paralg& job) {
    com_queue q(job);
    int steps = 0, asked = 0;
    q.add([&](com_context&) { ++steps; });
    q.set_compare_criterion_of_node0([&](com_context& c) {
      EXPECT_EQ(c.task_id(), 0U);
      ++asked;
      return c.step_no() == 7;
    });
    q.exec();
    EXPECT_EQ(steps, 7);
    EXPECT_EQ(q.steps(), 7);
    EXPECT_EQ(asked, job.get_worker_id() == 0 ? 7 : 0);
    q.set_max_iter(3);
    q.exec();
    EXPECT_EQ(steps, 10);
  });
}

TEST(ComQueue, ASecondRunHasNothingOfTheFirst) {
  with_job(2, [](paralg& job) {
    com_queue q(job);
    q.init_with_broadcast_data("w", numbers{1, 2});
    q.init_with_partitioned_data("rows", numbers{5});
    q.add([](com_context& c) {
      EXPECT_EQ(c.contains_obj("left"), c.step_no() > 1);
      c.put_obj("left", 1);
      for (auto& x : c.get_obj<numbers>("w")) x *= 2;
    });
    q.set_max_iter(3);
    q.close_with([](com_context& c) { return c.get_obj<numbers>("w"); });
    EXPECT_THAT(q.exec<numbers>(), ElementsAre(8, 16));
    EXPECT_THAT(q.exec<numbers>(), ElementsAre(8, 16));
  });
}

TEST(ComQueue, AllReduceCountsOnlyTheLengthThatIsNamed) {
  with_job(2, [](paralg& job) {
    com_queue q(job);
    q.add([](com_context& c) {
      c.put_obj("v", std::vector<float>{1, 2, 3, static_cast<float>(c.task_id())});
      c.put_obj("n", 3);
      c.put_obj("most", std::vector<std::int32_t>{static_cast<int>(c.task_id()), -static_cast<int>(c.task_id())});
      c.put_obj("least", std::vector<std::int64_t>{static_cast<std::int64_t>(c.task_id())});
      c.put_obj("one", 1.5);
      c.put_obj("own", numbers{2, 3});
    });
    q.add(all_reduce("v", "n"));
    q.add(all_reduce("most", reduce_op::max));
    q.add(all_reduce("least", reduce_op::min));
    q.add(all_reduce("one"));
    q.add(all_reduce<double>("own", [](std::span<double> a, std::span<const double> b) {
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = a[i] * 10 + b[i];
    }));
    q.add([](com_context& c) {
      EXPECT_THAT(c.get_obj<std::vector<float>>("v"), ElementsAre(2, 4, 6, static_cast<float>(c.task_id())));
      EXPECT_THAT(c.get_obj<std::vector<std::int32_t>>("most"), ElementsAre(1, 0));
      EXPECT_THAT(c.get_obj<std::vector<std::int64_t>>("least"), ElementsAre(0));
      EXPECT_EQ(c.get_obj<double>("one"), 3);
      EXPECT_THAT(c.get_obj<numbers>("own"), ElementsAre(22, 33));
    });
    q.set_max_iter(2);
    q.exec();
  });
}

TEST(ComQueue, WholeObjectsAreFoldedInRankOrder) {
  with_job(3, [](paralg& job) {
    com_queue q(job);
    using words = std::map<std::string, int>;
    q.add([](com_context& c) {
      c.put_obj("words", words{{"all", 1}, {"of " + std::to_string(c.task_id()), 2}});
      c.put_obj("text", std::to_string(c.task_id()));
    });
    q.add(all_reduce_object<words>("words", [](words& into, const words& from) {
      for (const auto& [w, n] : from) into[w] += n;
    }));
    q.add(all_reduce_object<std::string>("text", [](std::string& into, const std::string& from) { into += from; }));
    q.add([](com_context& c) {
      EXPECT_EQ(c.get_obj<words>("words").at("all"), 3);
      EXPECT_EQ(c.get_obj<words>("words").size(), 4U);
      EXPECT_EQ(c.get_obj<std::string>("text"), "012");
    });
    q.set_max_iter(1);
    q.exec();
  });
}

TEST(ComQueue, ScatteredVectorsAreGatheredAgainAndBroadcastsReplaceObjects) {
  with_job(3, [](paralg& job) {
    com_queue q(job);
    q.add([](com_context& c) {
      numbers v(8);
      std::iota(v.begin(), v.end(), static_cast<double>(c.task_id()));
      c.put_obj("v", v);
      if (c.task_id() == 2) c.put_obj("from 2", std::map<std::string, int>{{"a", c.step_no()}});
      if (c.task_id() == 1) c.put_obj("from 2", 3.5);
    });
    q.add(reduce_scatter("v"));
    q.add([](com_context& c) {
      const auto own = owned_range_of(8, 3, c.task_id());
      ASSERT_EQ(c.get_obj<numbers>("v").size(), own.size());
      EXPECT_EQ(c.get_obj<numbers>("v")[0], 3.0 * static_cast<double>(own.begin) + 3);
    });
    q.add(all_gather("v"));
    q.add(broadcast("from 2", 2));
    q.add([](com_context& c) {
      EXPECT_THAT(c.get_obj<numbers>("v"), ElementsAre(3, 6, 9, 12, 15, 18, 21, 24));
      EXPECT_EQ((c.get_obj<std::map<std::string, int>>("from 2").at("a")), c.step_no());
    });
    q.set_max_iter(2);
    q.exec();
  });
}

TEST(ComQueue, CommunicateStepsSendByRank) {
  with_job(3, [](paralg& job) {
    com_queue q(job);
    q.add(communicate([](com_context& c, collectives& all) {
      all.send((c.task_id() + 1) % 3, numbers{static_cast<double>(c.task_id())});
      c.put_obj("left neighbour", all.receive<numbers>((c.task_id() + 2) % 3)[0]);
    }));
    q.add([](com_context& c) {
      EXPECT_EQ(c.get_obj<double>("left neighbour"), static_cast<double>((c.task_id() + 2) % 3));
    });
    q.set_max_iter(3);
    q.exec();
  });
}

TEST(ComQueue, ItsResultMayBeOptionalAtTheOtherTasksOrNothing) {
  with_job(2, [](paralg& job) {
    com_queue q(job);
    q.add([](com_context&) {});
    q.set_max_iter(1);
    q.close_with([](com_context& c) -> std::optional<numbers> {
      if (c.task_id() != 0) return std::nullopt;
      return numbers{4};
    });
    EXPECT_THAT(q.exec<numbers>(), ElementsAre(4));
    EXPECT_THAT([&] { (void)q.exec<double>(); }, testing::Throws<error>());
    int closed = 0;
    q.close_with([&](com_context&) { ++closed; });
    q.exec();
    EXPECT_EQ(closed, 1);
  });
}

TEST(ComQueue, ParametersInTheServersAndTheQueueAreOneJob) {
  with_job(2, [](paralg& job) {
    com_queue q(job);
    job.set_consistency(consistency_model::bsp);
    if (job.get_worker_id() == 0) job.paracel_write("count", std::int64_t{0});
    job.paracel_sync();
    q.add([](com_context& c) {
      EXPECT_EQ(c.job().paracel_read<std::int64_t>("count"), 2 * (c.step_no() - 1));
      c.job().paracel_update("count", std::int64_t{1});
    });
    q.set_max_iter(5);
    q.exec();
  });
}

/// Whether a queue gives its functions the rows that it was given, and to read only.
template <class T>
void expect_rows_of(paralg& job, T moved, const T& referred) {
  com_queue q(job);
  q.init_with_partitioned_data("moved", std::move(moved));
  q.init_with_partitioned_data("referred", std::cref(referred));
  q.add([&](com_context& c) {
    (void)c.get_obj<const T>("moved");
    EXPECT_EQ(&c.get_obj<const T>("referred"), &referred);
    EXPECT_THROW((void)c.get_obj<T>("referred"), type_error);
    EXPECT_THROW((void)c.get_obj<const numbers>("referred"), type_error);
  });
  q.set_max_iter(2);
  q.exec();
}

TEST(ComQueue, RowsMayBeOfTypesWithoutAnEncoding) {
  with_job(2, [](paralg& job) {
    sample_rows samples;
    samples.row_count = 3;
    expect_rows_of(job, samples, samples);
    expect_rows_of(job, sparse_rows(), sparse_rows());
    expect_rows_of(job, sparse_both_ways(), sparse_both_ways());
    expect_rows_of(job, bigraph<>(), bigraph<>());
    expect_rows_of(job, digraph<>(), digraph<>());
    const numbers v{1, 2};
    expect_rows_of(job, std::span(v), std::span(v));
    using unique_numbers = std::vector<std::unique_ptr<int>>;
    expect_rows_of(job, unique_numbers(2), unique_numbers(2));
  });
}

TEST(ComQueue, LocalObjectsMayBeOfTypesWithoutAnEncoding) {
  with_job(1, [](paralg& job) {
    com_queue q(job);
    q.add([](com_context& c) {
      if (c.step_no() == 1) c.put_local("own", std::make_unique<int>(7));
      ++*c.get_obj<std::unique_ptr<int>>("own");
      c.put_obj("count", *c.get_obj<const std::unique_ptr<int>>("own"));
    });
    q.set_max_iter(3);
    q.close_with([](com_context& c) { return c.get_obj<int>("count"); });
    EXPECT_EQ(q.exec<int>(), 10);
  });
}

// ---- wrong use

TEST(ComQueue, NamesThatAreNotThereAndOtherTypesAreErrorsThatListTheNames) {
  with_job(1, [](paralg& job) {
    com_queue q(job);
    q.init_with_partitioned_data("rows", std::vector<int>{1});
    q.set_max_iter(1);
    q.add([](com_context& c) {
      c.put_obj("v", numbers{1});
      c.put_obj("text", "a literal");
      EXPECT_EQ(c.get_obj<std::string>("text"), "a literal");
      c.remove_obj("text");
      EXPECT_FALSE(c.contains_obj("text"));
      const auto text_of = [](auto&& f) -> std::string {
        try {
          f();
        } catch (const error& e) {
          return e.what();
        }
        return "nothing was thrown";
      };
      const std::string names = "there are \"rows\" (const i32 array), \"v\" (f64 array)";
      EXPECT_EQ(text_of([&] { (void)c.get_obj<numbers>("w"); }), "no object is called \"w\"; " + names);
      EXPECT_EQ(text_of([&] { c.remove_obj("w"); }), "no object is called \"w\"; " + names);
      EXPECT_EQ(text_of([&] { (void)c.get_obj<double>("v"); }), "\"v\" is f64 array, asked for f64; " + names);
      EXPECT_THAT(text_of([&] { (void)c.get_obj<std::vector<int>>("rows"); }), HasSubstr("ask for the const type"));
    });
    q.exec();
  });
}

/// Matches a text with that sample of the document, apart from numbers.
auto is_sample_of_document(std::size_t i) {
  return ResultOf(test::without_numbers, HasSubstr(test::document_samples("doc/com_queue.md", "com_queue_test").at(i)));
}

TEST(ComQueue, WrongUseIsTheSameErrorAtEveryTask) {
  const auto run = [](const std::function<void(com_queue&)>& fill) {
    return texts_of_job(3, [&](paralg& job) {
      com_queue q(job);
      q.set_max_iter(5);
      fill(q);
      q.exec();
    });
  };
  expect_one_text(run([](com_queue& q) {
                    q.add([](com_context& c) { c.put_obj("v", numbers(c.step_no() == 2 ? c.task_id() + 1 : 4)); });
                    q.add(all_reduce("v"));
                  }),
                  AllOf(HasSubstr("task 0 calls all_reduce(\"v\") of 1 f64, sum"), is_sample_of_document(0)));
  expect_one_text(run([](com_queue& q) {
                    q.add([](com_context& c) {
                      if (c.task_id() != 1 || c.step_no() != 3) c.put_obj("v", numbers(4));
                      else c.remove_obj("v");
                    });
                    q.add(all_reduce("v"));
                  }),
                  AllOf(HasSubstr("superstep 3, all_reduce(\"v\"), task 1"), HasSubstr("no object is called \"v\"")));
  expect_one_text(run([](com_queue& q) {
                    q.add([](com_context& c) {
                      if (c.task_id() == 2 && c.step_no() == 2) throw data_error("rows.csv:7:1: no label");
                    });
                    q.add([](com_context& c) { c.put_obj("v", numbers(4)); });
                    q.add(all_reduce("v"));
                  }),
                  AllOf(HasSubstr("superstep 2, item 1, task 2: rows.csv:7:1: no label"), is_sample_of_document(1)));
  expect_one_text(run([](com_queue& q) {  // without any collective
                    q.add([](com_context& c) {
                      if (c.task_id() == 2 && c.step_no() == 2) throw std::runtime_error("no luck");
                    });
                  }),
                  HasSubstr("superstep 2, item 1, task 2: no luck"));
  expect_one_text(run([](com_queue& q) {
                    q.add([](com_context&) {});
                    q.set_compare_criterion_of_node0([](com_context&) -> bool { throw error("nothing to compare"); });
                  }),
                  HasSubstr("superstep 1, the criterion, task 0: nothing to compare"));
  expect_one_text(run([](com_queue& q) {
                    q.add([](com_context&) {});
                    q.close_with([](com_context& c) {
                      if (c.task_id() == 1) throw error("cannot close");
                    });
                  }),
                  HasSubstr("superstep 5, close_with, task 1: cannot close"));
  expect_one_text(run([](com_queue& q) {
                    q.add([](com_context& c) { c.put_obj("t", "text"); });
                    q.add(all_reduce("t"));
                  }),
                  HasSubstr("want a vector of double, float, int32 or int64"));
  expect_one_text(run([](com_queue& q) {
                    q.add([](com_context& c) { c.put_obj("v", numbers(3)).at(0) = 1, c.put_obj("n", 4); });
                    q.add(all_reduce("v", "n"));
                  }),
                  HasSubstr("\"n\" is 4, but \"v\" has 3 elements"));
  expect_one_text(run([](com_queue& q) {
                    q.add(communicate([](com_context& c, collectives& all) {
                      if (c.task_id() == 1) throw error("no message today");
                      (void)all.receive<int>(1);
                    }));
                  }),
                  HasSubstr("communicate, task 1: no message today"));
}

TEST(ComQueue, OperationsAndNamesThatDifferAreTheSameErrorAtEveryTask) {
  const auto run = [](const std::function<queue_item()>& odd) {
    return texts_of_job(3, [&](paralg& job) {
      com_queue q(job);
      q.set_max_iter(5);
      q.add([](com_context& c) { c.put_obj("v", numbers(4)), c.put_obj("w", numbers(4)); });
      q.add(job.get_worker_id() == 1 ? odd() : all_reduce("v"));
      q.exec();
    });
  };
  const auto both = [](const std::string& text) {
    return AllOf(HasSubstr("all_reduce(\"v\") of 4 f64, sum"), HasSubstr("task 1 calls " + text));
  };
  expect_one_text(run([] { return all_reduce("v", reduce_op::max); }), both("all_reduce(\"v\") of 4 f64, max"));
  expect_one_text(run([] { return all_reduce("w"); }), both("all_reduce(\"w\") of 4 f64, sum"));
  expect_one_text(run([] { return reduce_scatter("v"); }), both("reduce_scatter(\"v\")"));
}

TEST(ComQueue, AQueueThatWouldNeverEndOrDoesNothingIsRefused) {
  with_job(1, [](paralg& job) {
    com_queue q(job);
    EXPECT_THROW(q.exec(), config_error);
    q.add([](com_context&) {});
    EXPECT_THROW(q.exec(), config_error);
    EXPECT_THROW(q.set_max_iter(0), config_error);
  });
}

// ---- what can be seen

TEST(ComQueue, EachSuperstepHasALineOfMetricsWithItsTimes) {
  test::temporary_folder folder;
  std::atomic<int> computed{0};  // supersteps, by task 0
  cluster c({.workers = 2, .servers = 1});
  c.run([&](Comm comm) {
    paralg job("", comm, folder.path() + "/out");
    com_queue q(job);
    q.add([&](com_context& x) {
      x.put_obj("v", numbers(10));
      x.set_metric("inertia", 5.5 / x.step_no());
      if (x.task_id() == 0) computed = x.step_no();
      while (computed < x.step_no()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
      if (x.task_id() == 1) std::this_thread::sleep_for(std::chrono::milliseconds{100});
    });
    q.add(all_reduce("v"));
    q.set_max_iter(2);
    q.exec();
    if (comm.get_rank() == 0) {
      std::ifstream file(folder.path() + "/out/metrics.jsonl");
      std::string line;
      int n = 0;
      while (std::getline(file, line)) {
        const auto j = nlohmann::json::parse(line);
        EXPECT_EQ(j["round"], ++n);
        EXPECT_EQ(j["inertia"], 5.5 / n);
        EXPECT_GE(j["wait_seconds"].get<double>(), 0.02) << line;  // for the slow task
        EXPECT_LT(j["compute_seconds"].get<double>(), j["seconds"].get<double>());
      }
      EXPECT_EQ(n, 2);
    }
    std::vector<int> seen;
    q.set_watch([&](const superstep_report& r) { seen.push_back(r.step); });
    q.exec();
    EXPECT_EQ(seen.size(), comm.get_rank() == 0 ? 2U : 0U);
  });
}

// ---- checkpoints

/// A program with two queues, one of which runs twice: floats whose bits depend on the order of all operations.
numbers wandering(paralg& job, int stop_after, std::vector<int>& computed) {
  std::mt19937 random(static_cast<unsigned>(job.get_worker_id()) + 1);
  numbers rows(50);
  for (auto& x : rows) x = std::ldexp(static_cast<double>(random()), -40);
  com_queue first(job);
  first.init_with_partitioned_data("rows", rows);
  first.init_with_broadcast_data("w", numbers{0.1, 0.2, 0.3});
  first.add([&](com_context& c) {
    computed.push_back(c.step_no());
    auto g = c.get_obj<numbers>("w");
    for (const double x : c.get_obj<const numbers>("rows"))
      for (std::size_t i = 0; i < g.size(); ++i) g[i] = g[i] * 0.999 + x / 3;
    c.put_obj("g", g);
    auto& own = c.contains_obj("own") ? c.get_obj<numbers>("own") : c.put_obj("own", numbers{0});
    own[0] += g[0];
    if (static_cast<int>(computed.size()) == stop_after) throw error("stopped");
  });
  first.add(all_reduce("g"));
  first.add([](com_context& c) {
    auto& w = c.get_obj<numbers>("w");
    for (std::size_t i = 0; i < w.size(); ++i) w[i] += c.get_obj<numbers>("g")[i] * 1e-3;
    w[0] += c.get_obj<numbers>("own")[0] * 1e-6 * static_cast<double>(c.task_id() == 0);
  });
  first.add(broadcast("w"));
  first.set_max_iter(4);
  first.close_with([](com_context& c) { return c.get_obj<numbers>("w"); });
  auto w = first.exec<numbers>();
  com_queue second(job);
  second.init_with_broadcast_data("w", w);
  second.add([&](com_context& c) {
    computed.push_back(c.step_no());
    for (auto& x : c.get_obj<numbers>("w")) x = std::sin(x + 1);
    if (static_cast<int>(computed.size()) == stop_after) throw error("stopped");
  });
  second.add(all_reduce("w"));
  second.set_max_iter(3);
  second.close_with([](com_context& c) { return c.get_obj<numbers>("w"); });
  w = second.exec<numbers>();
  const auto again = first.exec<numbers>();
  for (std::size_t i = 0; i < w.size(); ++i) w[i] += again[i];
  return w;
}

TEST(ComQueue, AResumedRunEndsWithTheBitsOfOneThatWasNeverStopped) {
  constexpr int steps = 11;
  for (const std::size_t p : {1U, 3U}) {
    numbers undisturbed;
    with_job(p, [&](paralg& job) {
      std::vector<int> computed;
      const auto w = wandering(job, -1, computed);
      EXPECT_EQ(computed.size(), static_cast<std::size_t>(steps));
      if (job.get_worker_id() == 0) undisturbed = w;
    });
    for (const int stop : {3, 4, 5, 7, 8, 10}) {
      test::temporary_folder folder;
      test::cluster_options o{.workers = p, .servers = 1};
      o.checkpoints.plan.folder = folder.path();
      o.checkpoints.plan.every = 2;
      {
        cluster c(o);
        c.run([&](Comm comm) {
          paralg job("", comm);
          std::vector<int> computed;
          EXPECT_THROW((void)wandering(job, stop, computed), error);
          c.silence(comm);
        });
      }
      const auto clocks = storage::checkpoint_clocks(storage::posix_file_system(), folder.path());
      ASSERT_FALSE(clocks.empty()) << "stopped in superstep " << stop;
      const auto clock = *std::ranges::max_element(clocks);
      ASSERT_EQ(clock, static_cast<std::uint32_t>((stop - 1) / 2 * 2));
      o.checkpoints.plan.resume = folder.path() + "/" + storage::checkpoint_folder_name(clock);
      o.checkpoints.plan.clock = clock;
      o.checkpoints.plan.workers = static_cast<std::uint32_t>(p);
      cluster c(o);
      c.run([&](Comm comm) {
        paralg job("", comm);
        std::vector<int> computed;
        EXPECT_EQ(wandering(job, -1, computed), undisturbed) << "stopped in superstep " << stop;
        EXPECT_EQ(computed.size(), static_cast<std::size_t>(steps) - clock);
      });
    }
  }
}

TEST(ComQueue, ACheckpointOfAnotherNumberOfTasksIsRefused) {
  test::temporary_folder folder;
  test::cluster_options o{.workers = 2, .servers = 1};
  o.checkpoints.plan.folder = folder.path();
  o.checkpoints.plan.every = 2;
  const auto run = [](Comm comm) {
    paralg job("", comm);
    com_queue q(job);
    q.add([](com_context&) {});
    q.set_max_iter(4);
    q.exec();
  };
  cluster(o).run(run);
  o.workers = 3;
  o.checkpoints.plan.resume = folder.path() + "/" + storage::checkpoint_folder_name(2);
  o.checkpoints.plan.clock = 2;
  o.checkpoints.plan.workers = 2;
  cluster c(o);
  c.run([&](Comm comm) { EXPECT_THROW(run(comm), config_error); });
}

}  // namespace
}  // namespace paracel
