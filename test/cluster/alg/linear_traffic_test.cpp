// SPDX-License-Identifier: BSD-3-Clause
//
// The messages of kmeans, ridge, lasso, lr_l1 and spectral_clustering between workers and to the servers, as stated in
// their READMEs. The sizes are chosen so that no two steps of an algorithm send the same number of bytes.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include <paracel/distributed_graph.hpp>
#include <paracel/random.hpp>

#include "alg/kmeans/kmeans.hpp"
#include "alg/lasso/lasso.hpp"
#include "alg/lr_l1/lr_l1.hpp"
#include "alg/ridge_regression/ridge.hpp"
#include "alg/spectral_clustering/spectral_clustering.hpp"
#include "test/support/cluster.hpp"
#include "test/support/counting_backend.hpp"
#include "test/support/paths.hpp"
#include "test/support/traffic.hpp"

namespace paracel::alg {
namespace {

namespace fs = std::filesystem;
using test::collective;
using test::collective_log;
using enum test::collective_kind;

constexpr std::size_t tag = 1;  // the byte before the data of a bcast or a gather

struct spoken : test::traffic {
  std::vector<collective_log> by;  // rank
  std::uint64_t served = 0;
};

/// The operations in `many` that are not in `few`, by kind and size.
collective_log more(collective_log many, collective_log few) {
  const auto before = [](const collective& a, const collective& b) {
    return std::tie(a.kind, a.sent) < std::tie(b.kind, b.sent);
  };
  std::ranges::stable_sort(many, before);
  std::ranges::stable_sort(few, before);
  collective_log rest;
  std::ranges::set_difference(many, few, std::back_inserter(rest), before);
  return rest;
}
collective_log reductions(std::size_t times, std::size_t bytes) {
  return collective_log(times, collective{reduce, bytes});
}

std::size_t at_of(const collective_log& log, std::size_t from, test::collective_kind kind, std::size_t bytes) {
  while (from < log.size() && !(log[from].kind == kind && log[from].sent == bytes)) ++from;
  return from;
}

class LinearTraffic : public testing::TestWithParam<std::size_t> {
 protected:
  LinearTraffic() {
    std::string pattern = (fs::temp_directory_path() / "linear_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~LinearTraffic() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::size_t workers() const { return GetParam(); }

  /// CSV of normal numbers.
  void write_points(const std::string& name, std::size_t n, std::size_t d) const {
    std::ofstream file(path(name));
    for (std::size_t i = 0; i < n; ++i) {
      counter_random random(7, 0, i);
      for (std::size_t j = 0; j < d; ++j) file << (j > 0 ? "," : "") << random.normal();
      file << '\n';
    }
  }
  /// libsvm, `entries` of p features a row; the first features explain the target or the class.
  void write_sparse(const std::string& name, std::size_t n, std::size_t p, std::size_t entries, bool classes) const {
    std::ofstream file(path(name));
    for (std::size_t i = 0; i < n; ++i) {
      counter_random random(9, 0, i);
      std::map<std::size_t, double> row{{p, 0.5}};  // every row states the number of features
      for (std::size_t k = 0; k < entries; ++k) row[1 + random.below(p)] = random.normal();
      double y = random.normal() / 4;
      for (const auto& [j, x] : row) y += x / static_cast<double>(1 + j / 8);
      if (classes) file << (y > 0 ? "+1" : "-1");
      else file << y;
      for (const auto& [j, x] : row) file << ' ' << j << ':' << x;
      file << '\n';
    }
  }

  template <class Algorithm>
  spoken of(const std::string& keys) const {
    test::cluster c({.workers = workers(), .plugin_folders = {test::default_plugin_folder()}});
    const auto settings = parse_settings<typename Algorithm::settings_type>(
        "cfg.json", R"({"output": ")" + path("out") + "\", " + keys + "}");
    spoken s;
    s.by.resize(workers());
    c.run([&](Comm comm) { Algorithm(test::counted(comm, s.by[comm.get_rank()]), "", settings).solve(); });
    static_cast<test::traffic&>(s) = test::traffic_of(c, 1);
    s.served = c.requests_served();
    return s;
  }
  spoken kmeans_of(const std::string& input, const std::string& keys) const {
    return of<kmeans>(R"("input": ")" + path(input) + "\", " + keys);
  }
  spoken ridge_of(const std::string& input, const std::string& keys) const {
    return of<ridge_regression>(R"("training_input": ")" + path(input) + "\", " + keys);
  }
  spoken lasso_of(const std::string& input, const std::string& keys) const {
    return of<lasso>(R"("training_input": ")" + path(input) + "\", " + keys);
  }
  /// The lines of the last job's metrics.jsonl.
  std::vector<nlohmann::json> metrics() const {
    std::ifstream file(folder_ / "out" / "metrics.jsonl");
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  fs::path folder_;
};

INSTANTIATE_TEST_SUITE_P(Workers, LinearTraffic, testing::Values(2, 3));

TEST_P(LinearTraffic, ARoundOfKmeansIsOneSum) {
  const std::size_t k = 7, d = 5;
  write_points("points", 300, d);
  for (const std::string batch : {"", R"(, "batch_size": 75)"}) {
    const auto run = [&](int rounds) {
      return kmeans_of("points", R"("kclusters": 7, "rounds": )" + std::to_string(rounds) + batch);
    };
    const auto few = run(1), many = run(4);
    for (std::size_t w = 0; w < workers(); ++w) {
      EXPECT_EQ(more(many.by[w], few.by[w]), reductions(batch.empty() ? 3 : 3 * 4, 8 * (k * d + k + 2)));
      EXPECT_EQ(more(few.by[w], many.by[w]), collective_log());
    }
    EXPECT_LT(many.served, 60U);
  }
}

TEST_P(LinearTraffic, TheSeedsOfKmeansAreThirteenCollectives) {
  const std::size_t k = 7, d = 5;
  write_points("points", 300, d);
  const auto run = [&](int runs) {
    return kmeans_of("points", R"("kclusters": 7, "rounds": 1, "n_init": )" + std::to_string(runs));
  };
  const auto few = run(1), many = run(3);
  std::size_t taken = 0;
  for (std::size_t w = 0; w < workers(); ++w) {
    auto rest = more(many.by[w], few.by[w]);
    // A round, and the assignment at the end of the run.
    const auto sums = reductions(2 * 2, 8 * (k * d + k + 2));
    EXPECT_EQ(rest.size(), 2 * 13 + sums.size()) << testing::PrintToString(rest);
    rest = more(rest, sums);
    EXPECT_EQ(rest.size(), 2U * 13) << testing::PrintToString(rest);
    taken += rest.sent(gather);
    EXPECT_LE(rest.sent(reduce), 2 * 8 * (5 + 15 * k));
    EXPECT_EQ(rest.sent(bcast), w == 0 ? 2 * (8 * k * d + tag) : 0);
  }
  EXPECT_GE(taken, 2 * 8 * 5 * k * d);
  EXPECT_LE(taken, 2 * 8 * 15 * k * d);
}

TEST_P(LinearTraffic, AnEmptyCentreOfKmeansIsAGatherMoreWithTheFarthestPoints) {
  const std::size_t k = 15, d = 2;
  {
    // Each round of seeding chooses the point that is by far the farthest from the others, which are at or near the
    // origin: after all rounds there are fewer seeds than centres.
    std::ofstream file(path("points"));
    for (int i = 0; i < 180; ++i) file << "0,0\n";
    double x = 1;
    for (int i = 0; i < 20; ++i, x *= 1000) file << x << ",0\n";
  }
  const auto found = kmeans_of("points", R"("kclusters": 15, "rounds": 1)");
  std::size_t sent = 0;
  for (const auto& log : found.by) {
    SCOPED_TRACE(testing::PrintToString(log));
    const collective sums{reduce, 8 * (k * d + k + 2)};
    const auto at = at_of(log, 0, reduce, sums.sent);
    ASSERT_LT(at + 2, log.size());
    EXPECT_EQ(log[at + 1].kind, gather);
    EXPECT_LE(log[at + 1].sent, k * (8 * (d + 3) + 8) + 16);  // headers of the lists
    EXPECT_EQ(log[at + 2], sums);
    sent += log[at + 1].sent;
  }
  EXPECT_GE(sent, 8 * (d + 3));
}

TEST_P(LinearTraffic, ExactRidgeIsSevenSumsAndTwoSolutionsFromTheFirstWorker) {
  const std::size_t p = 12;
  write_points("rows", 100, p + 1);
  const auto found = ridge_of("rows", R"("penalty": 1)");
  for (std::size_t w = 0; w < workers(); ++w) {
    const auto& log = found.by[w];
    const auto solution = collective{bcast, w == 0 ? 8 * p + tag : 0};
    const auto correlation = collective{reduce, 8 * (p + 2)};
    const collective_log want{
        correlation, {reduce, 8 * (3 * p + 2)}, correlation, {reduce, 4 * p * (p + 1)}, solution, correlation, solution,
        {reduce, 8}};
    const auto at = at_of(log, 0, reduce, 8 * (p + 2));
    ASSERT_LE(at + want.size(), log.size()) << testing::PrintToString(log);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), log.begin() + static_cast<std::ptrdiff_t>(at)))
        << testing::PrintToString(log);
    EXPECT_EQ(log.count(bcast),
              collective_log(log.begin(), log.begin() + static_cast<std::ptrdiff_t>(at)).count(bcast) + 2);
  }
  EXPECT_LT(found.served, 60U);
}

TEST_P(LinearTraffic, AGramMatrixGoesInMessagesOfEightMegabytes) {
  const std::size_t p = 1500;
  std::vector<collective_log> said(workers());
  test::cluster c({.workers = workers()});
  c.run([&](Comm comm) {
    sample_rows rows;
    rows.dense = true;
    rows.columns = p;
    rows.row_count = 1;
    rows.value.assign(p, 1.0);
    rows.value[comm.get_rank()] = 2;
    rows.label = {1.0};
    const centred_samples samples(comm, rows, false);
    const centred_samples counted(test::counted(comm, said[comm.get_rank()]), rows, false);
    std::vector<std::uint32_t> all(p);
    for (std::uint32_t j = 0; j < p; ++j) all[j] = j;
    (void)counted.gram(all);
  });
  for (const auto& log : said) {
    ASSERT_EQ(log.size(), 5U) << testing::PrintToString(log);
    EXPECT_EQ(log[2].kind, gather);  // whether all have the same length
    EXPECT_EQ(log[3], (collective{reduce, 8U << 20U}));
    EXPECT_EQ(log[3].sent + log[4].sent, 4 * p * (p + 1));
  }
}

TEST_P(LinearTraffic, AStepOfConjugateGradientsIsOneSum) {
  const std::size_t p = 2100;
  write_sparse("rows", 120, p, 12, false);
  const auto found = ridge_of("rows", R"("penalty": 10)");
  const auto steps = metrics().size();
  EXPECT_GE(steps, 3U);
  for (const auto& log : found.by) {
    collective_log want{{reduce, 8 * (p + 2)}, {reduce, 8 * (3 * p + 2)}, {reduce, 8 * (p + 2)}, {reduce, 8 * p}};
    want.insert(want.end(), steps, collective{reduce, 8 * (p + 1)});
    want.push_back({reduce, 8});
    const auto at = at_of(log, 0, reduce, 8 * (p + 2));
    ASSERT_LE(at + want.size(), log.size()) << testing::PrintToString(log);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), log.begin() + static_cast<std::ptrdiff_t>(at)))
        << testing::PrintToString(log);
  }
}

TEST_P(LinearTraffic, ARoundOfRidgeBySgdIsASumAReadAndAnUpdate) {
  const std::size_t p = 300;
  write_points("rows", 60, p + 1);
  const auto run = [&](int rounds) {
    return ridge_of("rows", R"("method": "sgd", "alpha": 1e-6, "penalty": 1, "rounds": )" + std::to_string(rounds));
  };
  auto few = run(2), many = run(7);
  for (std::size_t w = 0; w < workers(); ++w) {
    EXPECT_EQ(more(many.by[w], few.by[w]), reductions(5, 8));
    EXPECT_EQ(more(few.by[w], many.by[w]), collective_log());
  }
  const auto times = 5 * static_cast<std::int64_t>(workers());
  std::int64_t requests = 0;
  for (const auto& [verb, n] : many.requests) requests += verb == "clock_moved" ? 0 : n - few.requests[verb];
  EXPECT_LE(many.requests["clock_moved"] - few.requests["clock_moved"], 7) << "at most one a round";
  EXPECT_EQ(many.requests["update"] - few.requests["update"], times) << testing::PrintToString(many.requests);
  EXPECT_EQ(many.requests["pull"] - few.requests["pull"], times) << testing::PrintToString(many.requests);
  EXPECT_EQ(requests, 2 * times) << testing::PrintToString(many.requests);
  const std::int64_t theta = 8 * (p + 1);
  EXPECT_GE(many.bytes_in - few.bytes_in, times * theta);
  EXPECT_LE(many.bytes_in - few.bytes_in, times * (theta + 300));
  EXPECT_GE(many.bytes_out - few.bytes_out, times * theta);
  EXPECT_LE(many.bytes_out - few.bytes_out, times * (theta + 300));
}

TEST_P(LinearTraffic, ABlockOfLassoIsASolutionAndAGradientAndItsGramMatrixWhenItHasGrown) {
  struct job {
    std::size_t p;
    std::string keys;
    std::size_t grown, most_blocks;
  };
  // Up to 512 features are one block: the first penalty and each further one of a path take a block or two.
  const std::vector<job> jobs{{50, R"("penalty": 0.03)", 1, 3},
                              {50, R"("path": 8)", 1, 3 + 7 * 2},
                              {700, R"("penalty": 0.002, "tolerance": 1e-6)", 2, 20}};
  for (const auto& [p, keys, grown, most_blocks] : jobs) {
    write_sparse("rows", 400, p, p / 4, false);
    const auto found = lasso_of("rows", keys);
    // For each penalty.
    std::vector<std::size_t> rounds;
    std::size_t blocks = 0;
    for (const auto& line : metrics()) blocks += rounds.emplace_back(line["rounds"].get<std::size_t>());
    EXPECT_GE(blocks, 1U);
    EXPECT_LE(blocks, most_blocks);
    for (std::size_t w = 0; w < workers(); ++w) {
      const auto& log = found.by[w];
      SCOPED_TRACE(testing::PrintToString(log));
      const collective_log start{{reduce, 8 * (p + 2)}, {reduce, 8 * (3 * p + 2)}, {reduce, 8 * (p + 2)}};
      auto at = at_of(log, 0, reduce, 8 * (p + 2));
      ASSERT_LE(at + start.size(), log.size());
      EXPECT_TRUE(std::equal(start.begin(), start.end(), log.begin() + static_cast<std::ptrdiff_t>(at)));
      at += start.size();
      std::size_t grams = 0;
      for (const auto n : rounds) {
        if (n == 0) {  // nothing to solve: its objective
          ASSERT_LT(at, log.size());
          EXPECT_EQ(log[at++], (collective{reduce, 8 * (p + 2)}));
        }
        for (std::size_t b = 0; b < n; ++b, at += 2) {
          ASSERT_LT(at + 1, log.size());
          const bool gram = log[at].kind == reduce;
          // The size of the first worker's message shows the number of features in the block.
          const auto m = (found.by[0][at + (gram ? 1 : 0)].sent - tag) / 8;
          if (gram) {
            EXPECT_EQ(log[at++], (collective{reduce, 4 * m * (m + 1)}));
            ++grams;
            ASSERT_LT(at + 1, log.size());
          }
          EXPECT_EQ(log[at], (collective{bcast, w == 0 ? 8 * m + tag : 0}));
          EXPECT_EQ(log[at + 1], (collective{reduce, 8 * (p + 2)}));
        }
      }
      EXPECT_GE(grams, grown);
      EXPECT_LE(grams, p <= 512 ? 1U : blocks);
      EXPECT_EQ(at_of(log, at, reduce, 8 * (p + 2)), log.size());
    }
    EXPECT_LT(found.served, 60U);
  }
}

TEST_P(LinearTraffic, AStepOfLrL1IsAGramMatrixASolutionAndAGradientForEachLength) {
  const std::size_t p = 100;
  write_sparse("rows", 300, p, 20, true);
  for (const std::size_t block : {1024UL, 10UL}) {
    const auto found = of<lr_l1>(R"("training_input": ")" + path("rows") +
                                 R"(", "C": 0.5, "tolerance": 1e-3, "block_size": )" + std::to_string(block));
    const auto steps = metrics().size();
    EXPECT_GE(steps, 3U);
    for (std::size_t w = 0; w < workers(); ++w) {
      const auto& log = found.by[w];
      SCOPED_TRACE(testing::PrintToString(log));
      const collective gradient{reduce, 8 * (p + 1)};
      auto at = at_of(log, 0, reduce, gradient.sent);
      ASSERT_LT(at, log.size());
      ++at;
      std::size_t gradients = 0, blocks = 0, orthants = 0;
      const collective product{reduce, 8 * p};
      while (blocks + orthants < steps || (at < log.size() && log[at] == product)) {
        ASSERT_LT(at + 2, log.size());
        if (log[at] == product) {  // the diagonal, then a product a step of conjugate gradients
          ++orthants;
          EXPECT_EQ(log[at + 1], product);
          while (at < log.size() && log[at] == product) ++at;
        } else {
          ++blocks;
          const auto m = (found.by[0][at + 1].sent - tag) / 8;
          EXPECT_LE(m, block);
          EXPECT_EQ(log[at], (collective{reduce, 4 * m * (m + 1)}));
          EXPECT_EQ(log[at + 1], (collective{bcast, w == 0 ? 8 * m + tag : 0}));
          at += 2;
        }
        ASSERT_LT(at, log.size());
        EXPECT_EQ(log[at], gradient);
        for (; at < log.size() && log[at] == gradient; ++at) ++gradients;
      }
      // All weights fit a block of 1,024; more than ten are in the model.
      EXPECT_EQ(orthants > 0, block == 10);
      // The evaluations at the start and the end are two more; a step length is rarely halved.
      EXPECT_GE(gradients, blocks + orthants + 1);
      EXPECT_LE(gradients, 2 * (blocks + orthants) + 1);
      EXPECT_EQ(at_of(log, at, reduce, gradient.sent), log.size());
    }
    EXPECT_LT(found.served, 60U);
  }
}

class SpectralTraffic : public LinearTraffic {
 protected:
  SpectralTraffic() {
    std::ofstream file(path("edges"));
    counter_random random(3);
    for (int e = 0; e < 2500; ++e) file << random.below(300) << ' ' << random.below(300) << '\n';
  }
  spoken clusters(const std::string& keys) const {
    return of<spectral_clustering>(R"("input": ")" + path("edges") + R"(", "kclusters": 6, )" + keys);
  }
  [[nodiscard]] distributed_graph load(const Comm& comm) const {
    graph_options o;
    o.weighted = true;
    o.undirected = true;
    o.self_loops = false;
    return load_graph(comm, {path("edges")}, o);
  }
  static constexpr std::size_t k = 6, b = k + 2, basis = 5 * b;
};

INSTANTIATE_TEST_SUITE_P(Workers, SpectralTraffic, testing::Values(1, 2, 3));

TEST_P(SpectralTraffic, AStepOfTheEigenvectorsIsTwoProductsAndSixSums) {
  std::vector<std::size_t> shared(workers());
  std::vector<collective_log> start(workers());
  test::cluster({.workers = workers()}).run([&](Comm comm) {
    const auto graph = load(comm);
    const halo borders(comm, graph);
    const auto rank = comm.get_rank();
    for (std::size_t w = 0; w < workers(); ++w) shared[rank] += borders.shared_with(w).size();
    const laplacian_operator op(test::counted(comm, start[rank]), graph);
    if (workers() == 1) return;
    // Each block of ghost numbers starts with its length.
    const auto lengths = 8 * (workers() - 1);
    const collective_log want{{exchange, 8 * graph.ghosts.size() + lengths}, {exchange, 8 * shared[rank]}};
    EXPECT_EQ(start[rank], want);
  });
  const auto run = [&](int steps) {
    return clusters(R"("tolerance": 1e-300, "n_init": 1, "kmeans_rounds": 1, "rounds": )" + std::to_string(steps));
  };
  const auto few = run(3), many = run(9);  // a restart is between them
  for (std::size_t w = 0; w < workers(); ++w) {
    const auto& f = few.by[w];
    const auto& m = many.by[w];
    SCOPED_TRACE(testing::PrintToString(m));
    EXPECT_EQ(m.count(exchange) - f.count(exchange), workers() == 1 ? 0U : 6U * 2);
    EXPECT_EQ(m.sent(exchange) - f.sent(exchange), 6 * 2 * 8 * b * shared[w]);
    EXPECT_EQ(m.count(reduce) - f.count(reduce), workers() == 1 ? 0U : 6U * 6);
    EXPECT_EQ(m.size() - f.size(), workers() == 1 ? 0U : 6U * 8);
    EXPECT_LE(m.sent(reduce) - f.sent(reduce), 6 * 6 * 8 * b * (basis + b));
    EXPECT_LE(m.greatest(reduce), 8 * basis * basis);  // at the end, of all products with the basis
  }
  EXPECT_LT(many.served, 60U);
}

TEST_P(SpectralTraffic, ARoundOfKmeansIsOneSumAndTheLabelsOneMinimum) {
  const auto run = [&](int rounds, int runs) {
    return clusters(R"("tolerance": 1e-6, "n_init": )" + std::to_string(runs) + R"(, "kmeans_rounds": )" +
                    std::to_string(rounds));
  };
  const auto few = run(1, 1), many = run(4, 1), again = run(1, 2);
  for (std::size_t w = 0; w < workers(); ++w) {
    SCOPED_TRACE(testing::PrintToString(few.by[w]));
    EXPECT_EQ(more(many.by[w], few.by[w]), reductions(workers() == 1 ? 0 : 3, 8 * (k * k + k + 2)));
    EXPECT_EQ(more(few.by[w], many.by[w]), collective_log());
    if (workers() == 1) {  // it needs no collective
      EXPECT_EQ(again.by[w], collective_log());
      continue;
    }
    EXPECT_EQ(again.by[w].size() - few.by[w].size(), 15U);
    EXPECT_LT(at_of(few.by[w], 0, reduce, 8 * k), few.by[w].size());
  }
}

}  // namespace
}  // namespace paracel::alg
