// SPDX-License-Identifier: BSD-3-Clause
//
// What is exported to Prometheus, of what processes have said of themselves.
#include <algorithm>
#include <numeric>
#include <set>

#include "test/support/scheduler_test.hpp"

namespace {

using namespace paracel;
using namespace paracel::test;
using srv::metric_family;
using srv::metric_kind;
using srv::metric_sample;
using labels = std::vector<std::pair<std::string, std::string>>;

class Metrics : public scheduler_test {
 public:
  const metric_family& of(const std::string& name) {
    all_ = subject->metrics(now);
    const auto found = std::ranges::find(all_, name, &metric_family::name);
    EXPECT_NE(found, all_.end()) << name;
    return *found;
  }
  /// The value of the sample with these labels, besides "run".
  std::optional<double> value(const std::string& name, labels with = {}) {
    with.insert(with.begin(), {"run", "00c0ffee12345678"});
    for (const auto& sample : of(name).samples)
      if (sample.labels == with) return sample.value;
    return std::nullopt;
  }
  void beat(json who, const json& more) {
    who.update(more);
    EXPECT_EQ(to(ask(verb::heartbeat, who)).result, status::ok);
  }
  void expect_distinct_samples() {
    for (const auto& family : subject->metrics(now)) {
      std::set<labels> seen;
      for (const auto& sample : family.samples) EXPECT_TRUE(seen.insert(sample.labels).second) << family.name;
    }
  }

 private:
  std::vector<metric_family> all_;
};

TEST_F(Metrics, NamesAndTypesFollowTheConventionsBeforeAnybodyHasJoined) {
  std::set<std::string> names;
  for (const auto& family : subject->metrics(now)) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_TRUE(family.name.starts_with("paracel_")) << family.name;
    EXPECT_EQ(family.name.ends_with("_total"), family.kind == metric_kind::counter) << family.name;
    EXPECT_FALSE(family.help.empty()) << family.name;
    EXPECT_EQ(family.kind == metric_kind::histogram, !family.bounds.empty()) << family.name;
    EXPECT_TRUE(std::ranges::is_sorted(family.bounds));
  }
  EXPECT_EQ(value("paracel_job_phase", {{"phase", "joining"}}), 1);
  EXPECT_EQ(value("paracel_server_up", {{"server", "s1"}}), 0);
  EXPECT_EQ(value("paracel_joins_total", {{"role", "worker"}}), 0);
}

TEST_F(Metrics, HistogramsAreThoseOfTheHeartbeat) {
  start();
  beat(server(0), {{"metrics", {{"times", {{"pull", {3000, {1, 2}, {27, 1}}}}}, {"rows", 4}}}});
  const auto& family = of("paracel_request_duration_seconds");
  EXPECT_DOUBLE_EQ(family.bounds.front(), 128e-9);
  EXPECT_EQ(family.bounds.size(), 27U);
  ASSERT_EQ(family.samples.size(), 1U);
  const auto& sample = family.samples[0];
  EXPECT_EQ(sample.labels, (labels{{"run", "00c0ffee12345678"}, {"server", "s0"}, {"verb", "pull"}}));
  EXPECT_DOUBLE_EQ(sample.value, 3e-6);
  ASSERT_EQ(sample.counts.size(), 28U);
  EXPECT_EQ(std::accumulate(sample.counts.begin(), sample.counts.end(), 0U), 3U);
  EXPECT_EQ(sample.counts[1], 2U);
  EXPECT_EQ(sample.counts[27], 1U);
  EXPECT_EQ(value("paracel_server_rows", {{"server", "s0"}}), 4);
  EXPECT_EQ(value("paracel_server_rows", {{"server", "s1"}}), std::nullopt);
}

TEST_F(Metrics, WhatIsNotUnderstoodIsLeftOut) {
  start();
  const json odd_times{{"pull", 7},
                       {"push", json::array()},
                       {"update", {"x"}},
                       {"cas", {5, {99, 1}, {-1, 1}, {1}, "y"}},
                       {"\"odd\n", {1, {0, 1}}}};
  for (const json& metrics :
       {json(3), json::array(), json{{"times", 1}, {"hot", 1}, {"rows", "many"}}, json{{"hot", {1, {2}, {3, "k"}}}},
        json{{"times", odd_times}}, json{{"x", std::string(70000, 'x')}}}) {
    beat(server(1), {{"metrics", metrics}, {"usage", {{"cpu", "fast"}, {"shards", {1, {"x"}, json::array()}}}}});
    expect_distinct_samples();
    EXPECT_EQ(value("paracel_server_up", {{"server", "s1"}}), 1);
    EXPECT_EQ(value("paracel_server_cpu_seconds_total", {{"server", "s1"}}), std::nullopt);
    EXPECT_TRUE(of("paracel_hot_key_requests").samples.empty());
  }
}

TEST_F(Metrics, KeysThatAreEqualWhereTheyAreCutAreOneSample) {
  start();
  const std::string same(127, 'k');
  const auto first = same + "\u00e4 one";
  const auto second = same + "\u00e4 two";
  json hot = json::array();
  for (const auto& [key, requests] :
       std::vector<std::pair<std::string, int>>{{first, 128}, {second, 256}, {"b", 1}, {"b", 2}, {"", 5}})
    hot.push_back(json::array({key, requests}));
  beat(server(0), {{"metrics", {{"hot", hot}}}});
  expect_distinct_samples();
  EXPECT_EQ(value("paracel_hot_key_requests", {{"server", "s0"}, {"key", same + "..."}}), 384) << "no half characters";
  EXPECT_EQ(value("paracel_hot_key_requests", {{"server", "s0"}, {"key", "b"}}), 3);
  EXPECT_EQ(value("paracel_hot_key_requests", {{"server", "s0"}, {"key", ""}}), 5);
}

TEST_F(Metrics, TheLoadOfServersIsThatOfTheirLastHeartbeat) {
  start();
  const json load{{"epoch", 1},
                  {"seconds", 4.5},
                  {"threads", {30, 10.5}},
                  {"partitions", {json::array({9153, 20.5, 4096}), json::array({1, 2, 0})}}};
  beat(server(0), {{"load", load}});
  for (const json& odd : {json(7), json::array(), json{{"epoch", 1}}, json{{"x", std::string(70000, 'x')}}})
    beat(server(1), {{"load", odd}});
  expect_distinct_samples();
  EXPECT_EQ(value("paracel_shard_keys_per_second", {{"server", "s0"}, {"shard", "1"}}), 10.5);
  EXPECT_EQ(value("paracel_partition_keys_per_second", {{"server", "s0"}, {"partition", "9153"}}), 20.5);
  EXPECT_EQ(value("paracel_partition_bytes", {{"server", "s0"}, {"partition", "9153"}}), 4096);
  EXPECT_EQ(of("paracel_shard_keys_per_second").samples.size(), 2U) << "s1 has said nothing that can be understood";
  const auto report = to(ask_text(verb::stats, "")).parsed();
  EXPECT_EQ(report["servers"][0]["load"], load);
  EXPECT_FALSE(report["servers"][1].contains("load"));
}

TEST_F(Metrics, AWorkersTimeNeverFallsAndItsLastValuesStayWhenItLeaves) {
  start();
  const auto spent = [&](const char* state) {
    return value("paracel_worker_seconds_total", {{"worker", "2"}, {"state", state}});
  };
  beat(worker(2), {{"clock", 4}, {"usage", {{"seconds", 10.0}, {"cpu", 4.0}, {"system", 1.0}, {"delayed", 2.0}}}});
  EXPECT_EQ(spent("computing"), 3);
  EXPECT_EQ(spent("system"), 1);
  EXPECT_EQ(spent("delayed"), 2);
  EXPECT_EQ(spent("waiting"), 4);
  // the kernel's parts of the CPU time are rounded
  beat(worker(2), {{"clock", 5}, {"usage", {{"seconds", 10.5}, {"cpu", 4.2}, {"system", 1.4}, {"delayed", 2.0}}}});
  EXPECT_EQ(spent("computing"), 3);
  EXPECT_DOUBLE_EQ(*spent("system"), 1.4);
  auto leaves = leaving(worker(2));
  leaves["usage"] = {{"seconds", 20.0}, {"cpu", 12.0}, {"system", 2.0}, {"delayed", 3.0}, {"sent_bytes", 77}};
  ask(verb::leave, leaves);
  EXPECT_EQ(spent("computing"), 10);
  EXPECT_EQ(value("paracel_worker_sent_bytes_total", {{"worker", "2"}}), 77);
  EXPECT_EQ(value("paracel_worker_up", {{"worker", "2"}}), 0);
  EXPECT_EQ(value("paracel_worker_up", {{"worker", "1"}}), 1);
}

TEST_F(Metrics, LossesAndJoinsAreCounted) {
  make(3, 3, 2);
  for (int s = 0; s < 3; ++s) ask(verb::join, server(s));
  for (int w = 0; w < 3; ++w) ask(verb::join, worker(w));
  EXPECT_EQ(value("paracel_joins_total", {{"role", "server"}}), 3);
  EXPECT_EQ(value("paracel_spare_servers"), 1);
  auto dead = server(1);
  dead["why"] = "it was killed";
  ask(verb::report_death, dead);
  EXPECT_EQ(value("paracel_losses_total", {{"role", "server"}}), 1);
  EXPECT_EQ(value("paracel_losses_total", {{"role", "worker"}}), 0);
  EXPECT_EQ(value("paracel_server_up", {{"server", "s1"}}), 0);
  EXPECT_EQ(value("paracel_spare_servers"), 0);
}

TEST_F(Metrics, ProgressIsTheProgramsMainMetric) {
  start();
  EXPECT_EQ(value("paracel_round"), std::nullopt);
  ask(verb::progress, json{{"round", 3}, {"rounds", 9}, {"metric", "loss"}, {"loss", 0.25}});
  EXPECT_EQ(value("paracel_round"), 3);
  EXPECT_EQ(value("paracel_rounds"), 9);
  EXPECT_EQ(value("paracel_objective", {{"metric", "loss"}}), 0.25);
  ask(verb::progress, json{{"round", 4}, {"metric", "loss"}, {"loss", nullptr}});
  EXPECT_EQ(value("paracel_objective", {{"metric", "loss"}}), std::nullopt) << "not a number";
}

}  // namespace
