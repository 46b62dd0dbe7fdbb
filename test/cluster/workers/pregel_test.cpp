// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/pregel.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>

#include "test/support/cluster.hpp"
#include "test/support/graphs.hpp"

namespace paracel {
namespace {

using test::cluster;
using test::part_of;
using test::part_options;
using test::random_graph;
using test::test_graph;

const std::size_t pregel_worker_counts[] = {1, 2, 3, 5};

/// Runs `work(comm, put)` on this number of workers; returns what they `put` for their vertices as one list.
template <class T, class F>
std::vector<T> on_workers(std::size_t workers, std::uint64_t vertices, F&& work) {
  cluster c({.workers = workers, .servers = 1});
  std::vector<T> all(vertices);
  std::mutex mutex;
  c.run([&](Comm comm) {
    work(comm, [&](std::uint64_t number, const T& value) {
      const std::lock_guard lock(mutex);
      all.at(number) = value;
    });
  });
  return all;
}

// ---- a program with a combiner

/// From vertex 0; `Reversed`: to it.
template <bool Reversed>
struct distance_along {
  using value_type = double;
  using message_type = double;
  static void combine(double& into, double more) { into = std::min(into, more); }
  template <class Vertex>
  void compute(Vertex& v, std::span<const double> messages) {
    EXPECT_LE(messages.size(), 1U);
    bool news = v.superstep() == 0 && v.number() == 0;
    if (v.superstep() == 0) v.value() = v.number() == 0 ? 0 : std::numeric_limits<double>::infinity();
    for (const auto m : messages)
      if (m < v.value()) {
        v.value() = m;
        news = true;
      }
    const auto next = Reversed ? v.sources() : v.targets();
    if (news)
      for (std::size_t e = 0; e < next.size(); ++e)
        v.send(next[e], v.value() + (Reversed ? v.source_weight(e) : v.weight(e)));
    v.vote_to_halt();
  }
};
using distance = distance_along<false>;

TEST(Pregel, ShortestPathsAreThoseOfBellmanAndFordForAnyNumberOfWorkers) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    const auto g = random_graph(seed, 300, 1500, seed == 3 ? 3 : 1);
    const auto want = distances_of(g);
    for (const auto workers : pregel_worker_counts) {
      const auto got = on_workers<double>(workers, g.vertices, [&](Comm comm, auto put) {
        const auto part = part_of(g, comm.get_rank(), workers, {.weighted = true});
        pregel_run<distance> p(comm, part);
        EXPECT_TRUE(p.run().finished);
        for (std::size_t v = 0; v < part.own(); ++v) put(part.number(v), p.value(v));
      });
      EXPECT_EQ(got, want) << seed << " " << workers;
    }
  }
}

TEST(Pregel, MessagesAlongIncomingEdgesComputeTheDistancesOfTheReversedGraph) {
  const auto g = random_graph(4, 300, 1500);
  auto reversed = g;
  for (auto& e : reversed.edges) std::swap(e.from, e.to);
  const auto want = distances_of(reversed);
  for (const auto workers : pregel_worker_counts) {
    const auto got = on_workers<double>(workers, g.vertices, [&](Comm comm, auto put) {
      const auto part = part_of(g, comm.get_rank(), workers, {.incoming = true, .weighted = true});
      pregel_run<distance_along<true>> p(comm, part);
      EXPECT_TRUE(p.run().finished);
      for (std::size_t v = 0; v < part.own(); ++v) put(part.number(v), p.value(v));
    });
    EXPECT_EQ(got, want) << workers;
  }
}

TEST(Pregel, AGraphWithoutVerticesOrWithFewerThanWorkersEnds) {
  for (const std::uint64_t vertices : {0U, 1U, 2U}) {
    test_graph g;
    g.vertices = vertices;
    if (vertices == 2) g.edges.push_back({0, 1, 2.5});
    const auto got = on_workers<double>(5, vertices, [&](Comm comm, auto put) {
      const auto part = part_of(g, comm.get_rank(), 5, {.weighted = true});
      pregel_run<distance> p(comm, part);
      EXPECT_TRUE(p.run().finished);
      for (std::size_t v = 0; v < part.own(); ++v) put(part.number(v), p.value(v));
    });
    EXPECT_EQ(got, distances_of(g));
  }
}

// ---- messages as a list, to neighbours, numbers and ids

struct note {
  std::uint64_t from = 0;
  float text = 0;
};

/// Every vertex greets its targets, the vertex opposite by number and vertex (number * 5 + 1) mod n by id.
struct greeting {
  using value_type = std::vector<std::uint64_t>;
  using message_type = note;
  bool names = false;
  bool by_id = true;
  template <class Vertex>
  void compute(Vertex& v, std::span<const note> messages) {
    for (const auto& m : messages) {
      EXPECT_EQ(m.text, static_cast<float>(m.from) / 2);
      v.value().push_back(m.from);
    }
    if (v.superstep() == 0) {
      const auto n = v.vertices_total();
      const note m{v.number(), static_cast<float>(v.number()) / 2};
      v.send_to_targets(m);
      v.send_to_number(n - 1 - v.number(), m);
      const auto id = test_graph::id((v.number() * 5 + 1) % n);
      if (by_id && names) {
        const auto digits = std::to_string(id);
        v.send_to_id("n" + std::string(6 - digits.size(), '0') + digits, m);
      } else if (by_id) {
        v.send_to_id(id, m);
      }
    }
    v.vote_to_halt();
  }
};

TEST(Pregel, WithoutACombinerEveryMessageArrivesInTheOrderOfItsSender) {
  const auto g = random_graph(7, 200, 900, 2, true);
  std::vector<std::vector<std::uint64_t>> want(g.vertices);
  for (std::uint64_t v = 0; v < g.vertices; ++v) want[g.vertices - 1 - v].push_back(v);
  for (const auto& e : g.edges) want[e.to].push_back(e.from);
  for (auto& list : want) std::sort(list.begin(), list.end());
  for (const auto workers : pregel_worker_counts) {
    const auto got = on_workers<std::vector<std::uint64_t>>(workers, g.vertices, [&](Comm comm, auto put) {
      const auto part = part_of(g, comm.get_rank(), workers);
      pregel_run<greeting> p(comm, part, {.by_id = false});
      EXPECT_EQ(p.run().messages, g.vertices + g.edges.size());
      for (std::size_t v = 0; v < part.own(); ++v) put(part.number(v), p.value(v));
    });
    EXPECT_EQ(got, want) << workers;
  }
}

TEST(Pregel, MessagesReachVerticesByTheirIdsNumbersAndNames) {
  const auto g = random_graph(8, 150, 300);
  std::vector<std::vector<std::uint64_t>> want(g.vertices);
  for (std::uint64_t v = 0; v < g.vertices; ++v) {
    want[g.vertices - 1 - v].push_back(v);
    want[(v * 5 + 1) % g.vertices].push_back(v);
  }
  for (const auto& e : g.edges) want[e.to].push_back(e.from);
  for (auto& list : want) std::sort(list.begin(), list.end());
  for (const bool names : {false, true}) {
    for (const auto workers : pregel_worker_counts) {
      auto got = on_workers<std::vector<std::uint64_t>>(workers, g.vertices, [&](Comm comm, auto put) {
        const auto part = part_of(g, comm.get_rank(), workers, {.names = names});
        pregel_run<greeting> p(comm, part, {.names = names});
        p.run();
        for (std::size_t v = 0; v < part.own(); ++v) put(part.number(v), p.value(v));
      });
      for (auto& list : got) std::sort(list.begin(), list.end());
      EXPECT_EQ(got, want) << workers << names;
    }
  }
}

struct stray {
  using value_type = int;
  using message_type = int;
  bool by_id = false;
  template <class Vertex>
  void compute(Vertex& v, std::span<const int>) {
    if (by_id) {
      v.send_to_id(6, 1);
    } else {
      v.send_to_number(v.vertices_total(), 1);
    }
  }
};

TEST(Pregel, AMessageToAVertexThatIsNotThereIsAnErrorThatNamesIt) {
  const auto g = random_graph(1, 10, 20);
  const auto comm_of_one = [&](bool by_id) {
    cluster c({.workers = 1, .servers = 1});
    c.run([&](Comm comm) {
      const auto part = part_of(g, 0, 1);
      pregel_run<stray>(comm, part, {.by_id = by_id}).run();
    });
  };
  for (const bool by_id : {false, true}) {
    try {
      comm_of_one(by_id);
      FAIL() << "no error";
    } catch (const error& e) {
      EXPECT_NE(std::string(e.what()).find(by_id ? "id 6" : "number 10"), std::string::npos) << e.what();
    }
  }
}

// ---- vertices that do not halt, aggregates, proceed

struct sums {
  std::uint64_t vertices = 0;
  double least = std::numeric_limits<double>::infinity();
};

struct counter {
  using value_type = std::uint64_t;
  using message_type = std::uint64_t;
  using aggregate_type = sums;
  std::uint64_t last = 6;
  static void combine(std::uint64_t& into, std::uint64_t more) { into += more; }
  static void fold(sums& into, const sums& more) {
    into.vertices += more.vertices;
    into.least = std::min(into.least, more.least);
  }
  bool proceed(std::uint64_t superstep, const sums& all) const {
    EXPECT_EQ(all.least, static_cast<double>(superstep));
    return superstep < last;
  }
  template <class Vertex>
  void compute(Vertex& v, std::span<const std::uint64_t> messages) {
    if (v.superstep() > 0) {
      EXPECT_EQ(v.aggregated().least, static_cast<double>(v.superstep() - 1));
    }
    ++v.aggregate().vertices;
    v.aggregate().least = std::min(v.aggregate().least, static_cast<double>(v.number() + v.superstep()));
    for (const auto m : messages) v.value() += m;
    v.send_to_targets(1);
    if (v.number() % 3 == 1) v.vote_to_halt();
  }
};

TEST(Pregel, AggregatesAreTheSameOnEveryWorkerAndProceedEndsTheRun) {
  const auto g = random_graph(3, 100, 400);
  std::vector<std::uint64_t> in(g.vertices);
  for (const auto& e : g.edges) ++in[e.to];
  std::vector<std::uint64_t> reference;
  for (const auto workers : pregel_worker_counts) {
    const auto got = on_workers<std::uint64_t>(workers, g.vertices, [&](Comm comm, auto put) {
      const auto part = part_of(g, comm.get_rank(), workers);
      pregel_run<counter> p(comm, part);
      const auto said = p.run();
      EXPECT_EQ(said.supersteps, 7U);
      EXPECT_TRUE(said.finished);
      for (std::size_t v = 0; v < part.own(); ++v) put(part.number(v), p.value(v));
    });
    if (workers == 1) reference = got;
    EXPECT_EQ(got, reference);
    for (std::uint64_t v = 0; v < g.vertices; ++v) EXPECT_LE(got[v], 6 * in[v]);
  }
}

TEST(Pregel, StopsAfterAsManySuperstepsAsAllowed) {
  const auto g = random_graph(3, 50, 200);
  cluster c({.workers = 2, .servers = 1});
  c.run([&](Comm comm) {
    const auto part = part_of(g, comm.get_rank(), 2);
    pregel_run<counter> p(comm, part, {.last = 100});
    const auto said = p.run({.max_supersteps = 3});
    EXPECT_EQ(said.supersteps, 3U);
    EXPECT_FALSE(said.finished);
  });
}

struct rank_sum {  // floating-point sums, so that a changed order would be visible
  using value_type = double;
  using message_type = double;
  static void combine(double& into, double more) { into += more; }
  template <class Vertex>
  void compute(Vertex& v, std::span<const double> messages) {
    if (v.superstep() == 0) v.value() = 1.0 / static_cast<double>(v.number() + 1);
    for (const auto m : messages) v.value() = 0.15 + 0.85 * m;
    if (!v.targets().empty()) v.send_to_targets(v.value() / static_cast<double>(v.targets().size()));
    if (v.superstep() >= 12) v.vote_to_halt();
  }
};

TEST(Pregel, ARunIsBitIdenticalAndSoIsOneThatGoesOnFromACheckpoint) {
  const auto g = random_graph(11, 400, 3000, 2);
  const auto folder = std::filesystem::temp_directory_path() / ("pregel_test_" + std::to_string(getpid()));
  for (const std::size_t workers : {1U, 3U}) {
    std::filesystem::remove_all(folder);
    const auto once = [&](pregel_options options, bool resume) {
      return on_workers<double>(workers, g.vertices, [&](Comm comm, auto put) {
        const auto part = part_of(g, comm.get_rank(), workers);
        pregel_run<rank_sum> p(comm, part);
        if (resume) {
          EXPECT_TRUE(p.restore(folder));
          EXPECT_EQ(p.superstep(), 8U);
        }
        p.run(options);
        for (std::size_t v = 0; v < part.own(); ++v) put(part.number(v), p.value(v));
      });
    };
    const auto want = once({.max_supersteps = 20}, false);
    EXPECT_EQ(once({.max_supersteps = 20}, false), want);
    // Interrupted after 10 supersteps, with checkpoints at 4 and 8.
    EXPECT_NE(once({.max_supersteps = 10, .checkpoint_folder = folder, .checkpoint_every = 4}, false), want);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), static_cast<std::ptrdiff_t>(workers));
    EXPECT_EQ(once({.max_supersteps = 20}, true), want);
  }
  std::filesystem::remove_all(folder);
}

TEST(Pregel, ACheckpointThatIsCutOffIsNotTakenAndOneOfOtherWorkersIsRefused) {
  const auto g = random_graph(11, 60, 300);
  const auto folder = std::filesystem::temp_directory_path() / ("pregel_test_cut_" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  const auto with = [&](std::size_t workers, const std::function<void(pregel_run<rank_sum>&)>& f) {
    cluster c({.workers = workers, .servers = 1});
    c.run([&](Comm comm) {
      const auto part = part_of(g, comm.get_rank(), workers);
      pregel_run<rank_sum> p(comm, part);
      f(p);
    });
  };
  with(2, [&](auto& p) { EXPECT_FALSE(p.restore(folder)); });
  with(2, [&](auto& p) {
    p.run({.max_supersteps = 5});
    p.save(folder);
  });
  with(2, [&](auto& p) {
    EXPECT_TRUE(p.restore(folder));
    EXPECT_EQ(p.superstep(), 5U);
  });
  EXPECT_THROW(with(1, [&](auto& p) { p.restore(folder); }), error);
  EXPECT_THROW(with(3, [&](auto& p) { p.restore(folder); }), error);
  // One worker's file loses its last byte, or one bit is flipped.
  const auto path = folder / "pregel_5_1";
  const auto bytes = std::filesystem::file_size(path);
  std::string text(bytes, 0);
  std::ifstream(path, std::ios::binary).read(text.data(), static_cast<std::streamsize>(bytes));
  for (const std::size_t at : {std::size_t{200}, text.size() - 9}) {
    auto damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    std::ofstream(path, std::ios::binary) << damaged;
    with(2, [&](auto& p) { EXPECT_FALSE(p.restore(folder)); });
  }
  std::ofstream(path, std::ios::binary) << text.substr(0, text.size() - 1);
  with(2, [&](auto& p) { EXPECT_FALSE(p.restore(folder)); });
  std::ofstream(path, std::ios::binary) << text;
  with(2, [&](auto& p) { EXPECT_TRUE(p.restore(folder)); });
  std::filesystem::remove_all(folder);
}

/// The error of the run on 2 workers, if any.
std::string message_of(const test_graph& g, const std::function<void(pregel_run<rank_sum>&)>& f,
                       part_options options = {}) {
  try {
    cluster c({.workers = 2, .servers = 1});
    c.run([&](Comm comm) {
      const auto part = part_of(g, comm.get_rank(), 2, options);
      pregel_run<rank_sum> p(comm, part);
      f(p);
    });
  } catch (const error& e) {
    return e.what();
  }
  return {};
}

TEST(Pregel, ACheckpointOfAnotherGraphOfTheSameSizeOrOfOtherArgumentsIsRefused) {
  const auto g = random_graph(11, 60, 300, 2);
  const auto folder = std::filesystem::temp_directory_path() / ("pregel_test_other_" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  const part_options weighted{.weighted = true};
  const auto mine = pregel_identity("ranks", {3, 4});
  const auto saves = [&](auto& p) {
    p.identify(mine);
    p.run({.max_supersteps = 5});
    p.save(folder);
  };
  EXPECT_EQ(message_of(g, saves, weighted), "");
  const auto resume_as = [&](std::uint64_t as) {
    return [&folder, as](pregel_run<rank_sum>& p) {
      p.identify(as);
      EXPECT_TRUE(p.restore(folder));
      EXPECT_EQ(p.superstep(), 5U);
    };
  };
  EXPECT_EQ(message_of(g, resume_as(mine), weighted), "");
  const auto refused = [&](const test_graph& of, std::uint64_t as, part_options options) {
    const auto said = message_of(of, resume_as(as), options);
    EXPECT_NE(said.find((folder / "pregel_5_").string()), std::string::npos) << said;
    EXPECT_NE(said.find("of another graph"), std::string::npos) << said;
    EXPECT_NE(said.find("other arguments"), std::string::npos) << said;
  };
  refused(g, 0, weighted);
  refused(g, pregel_identity("ranks", {4, 3}), weighted);
  refused(g, pregel_identity("ranks", {3}), weighted);
  refused(g, pregel_identity("rank", {3, 4}), weighted);
  auto other = g;
  other.edges.back().weight += 0.5;
  refused(other, mine, weighted);
  refused(g, mine, {.weighted = true, .names = true});
  // Two edges have different targets: the numbers of vertices and edges are unchanged on every worker.
  other = g;
  const auto far = std::find_if(other.edges.begin(), other.edges.end(), [&](const auto& e) {
    const auto there = [&](std::uint64_t a, std::uint64_t b) {
      return std::any_of(g.edges.begin(), g.edges.end(), [&](const auto& o) { return o.from == a && o.to == b; });
    };
    return !there(e.from, g.edges[0].to) && !there(g.edges[0].from, e.to);
  });
  ASSERT_NE(far, other.edges.end());
  std::swap(other.edges[0].to, far->to);
  refused(other, mine, weighted);
  EXPECT_EQ(message_of(g, resume_as(mine), weighted), "");
  std::filesystem::remove_all(folder);
}

TEST(Pregel, TheIdentityOfAGraphDoesNotDependOnTheNumberOfWorkers) {
  const auto g = random_graph(5, 90, 500, 2);
  std::map<std::uint64_t, int> seen;
  std::mutex mutex;
  for (const auto workers : pregel_worker_counts) {
    cluster c({.workers = workers, .servers = 1});
    c.run([&](Comm comm) {
      const auto identity = graph_identity(comm, part_of(g, comm.get_rank(), workers, {.weighted = true}));
      const std::lock_guard lock(mutex);
      ++seen[identity];
    });
  }
  EXPECT_EQ(seen.size(), 1U);
}

TEST(Pregel, ARunThatHasFinishedRemovesItsCheckpointsAndOneThatWasStoppedLeavesThem) {
  const auto g = random_graph(12, 200, 600, 1);
  const auto want = distances_of(g);
  const auto folder = std::filesystem::temp_directory_path() / ("pregel_test_end_" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  const auto files = [&] { return std::distance(std::filesystem::directory_iterator(folder), {}); };
  const auto once = [&](pregel_options options, bool resume, bool finishes) {
    return on_workers<double>(3, g.vertices, [&](Comm comm, auto put) {
      const auto part = part_of(g, comm.get_rank(), 3, {.weighted = true});
      pregel_run<distance> p(comm, part);
      if (resume) {
        EXPECT_TRUE(p.restore(folder));
      }
      EXPECT_EQ(p.run(options).finished, finishes);
      for (std::size_t v = 0; v < part.own(); ++v) put(part.number(v), p.value(v));
    });
  };
  once({.max_supersteps = 3, .checkpoint_folder = folder, .checkpoint_every = 1}, false, false);
  EXPECT_EQ(files(), 3);
  // Its files are removed even if it writes none after the checkpoint that it resumed from, including one left
  // unfinished by a kill; other files are kept.
  std::ofstream(folder / "pregel_notes") << "kept";
  std::ofstream(folder / ".paracel.12.0.tmp") << "begun";
  EXPECT_EQ(once({}, true, true), want);
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(once({.checkpoint_folder = folder, .checkpoint_every = 1}, false, true), want);
  EXPECT_EQ(files(), 1);
  std::filesystem::remove_all(folder);
}

// ---- exchange

TEST(Exchange, BlocksOfAnySizeArriveWholeInRoundsOfFewBytes) {
  cluster c({.workers = 3, .servers = 1});
  c.run([](Comm comm) {
    const auto rank = comm.get_rank();
    for (const std::size_t round_bytes : {16U, 100U, 1U << 20U}) {
      std::vector<byte_vector> blocks(3);
      for (std::size_t w = 0; w < 3; ++w) {
        blocks[w].resize(exchange_room);
        for (std::size_t k = 0; k < rank * 90 + w * 17; ++k) put_bytes(blocks[w], static_cast<std::uint8_t>(k + rank));
      }
      const auto got = exchange_blocks(comm, blocks, round_bytes);
      for (std::size_t w = 0; w < 3; ++w) {
        byte_reader in(got[w], exchange_room);
        for (std::size_t k = 0; k < w * 90 + rank * 17; ++k)
          EXPECT_EQ(in.get<std::uint8_t>(), static_cast<std::uint8_t>(k + w));
        EXPECT_TRUE(in.empty());
        EXPECT_THROW((void)in.take(1), protocol_error);
      }
    }
  });
}

}  // namespace
}  // namespace paracel
