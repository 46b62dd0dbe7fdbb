// SPDX-License-Identifier: BSD-3-Clause
//
// Loads that are cached in binary form: equal to those of the text, and used only while nothing has changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/distributed_graph.hpp>
#include <paracel/error.hpp>
#include <paracel/sparse.hpp>

#include "test/support/cluster.hpp"
#include "test/support/same_texts.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// All parts of a load as text.
struct flattener {
  std::string text;
  template <class T>
  void operator()(const T& part) {
    if constexpr (std::is_integral_v<T>) {
      text += std::to_string(part) + ";";
    } else {
      text += std::to_string(part.size()) + ":";
      text.append(reinterpret_cast<const char*>(part.data()), part.size() * sizeof(part[0]));
    }
  }
};
template <class T>
std::string flat(const T& loaded) {
  flattener f;
  T::visit_parts(f, loaded);
  return f.text;
}

class LoadCache : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  [[nodiscard]] std::string cache_folder() const { return path(".paracel_cache"); }
  /// Writes a file whose modification time is `seconds` ago.
  void write(const std::string& name, const std::string& text, int seconds = 10) const {
    std::ofstream(path(name)) << text;
    fs::last_write_time(path(name), fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
  }
  /// More than what is hashed at both ends, so that a change in the middle can be hidden.
  static std::string edges(bool names, int seed = 1) {
    std::mt19937 random(static_cast<unsigned>(seed));
    std::string text;
    for (int i = 0; i < 3000; ++i) {
      const auto id = [&] { return (names ? "n" : "") + std::to_string(random() % 900); };
      const auto a = id();
      text += a + "," + id() + "," + std::to_string(1 + random() % 5) + "\n";
    }
    return text;
  }
  /// Changes the weight of the middle edge to 7, undetectably.
  void change_secretly(const std::string& name) const {
    const auto before = fs::last_write_time(path(name));
    std::string text;
    {
      std::ifstream file(path(name));
      text.assign(std::istreambuf_iterator<char>(file), {});
    }
    text[text.find('\n', text.size() / 2) - 1] = '7';
    std::ofstream(path(name)) << text;
    fs::last_write_time(path(name), before);
  }
  [[nodiscard]] std::vector<std::string> cached() const {
    std::vector<std::string> names;
    if (!fs::exists(cache_folder())) return names;
    for (const auto& e : fs::directory_iterator(cache_folder())) names.push_back(e.path().string());
    return names;
  }
  /// What `load(comm)` returns on each worker.
  static std::vector<std::string> on(std::size_t workers, const std::function<std::string(Comm)>& load) {
    std::vector<std::string> parts(workers);
    test::cluster({.workers = workers}).run([&](Comm comm) { parts[comm.get_rank()] = load(comm); });
    return parts;
  }
  [[nodiscard]] std::vector<std::string> graph(std::size_t workers, bool cache, graph_options o = {}) const {
    o.weighted = true;
    o.entries.cache.on = cache;
    return on(workers, [&](Comm comm) { return flat(load_graph(std::move(comm), {path("edges.csv")}, o)); });
  }
  test::temporary_folder folder_;
};

TEST_F(LoadCache, IsEqualToTheTextForEveryKindOfLoadAndNumberOfWorkers) {
  for (const bool names : {false, true}) {
    write("edges.csv", edges(names));
    for (const std::size_t workers : {1U, 2U, 3U}) {
      const auto all = [&](bool cache, std::vector<std::string>& parts) {
        parts = on(workers, [&](Comm comm) {
          entry_options o;
          o.cache.on = cache;
          graph_options g{.entries = o, .weighted = true, .incoming = true};
          graph_options both{.entries = o, .undirected = true, .self_loops = false};
          const std::vector<std::string> file{path("edges.csv")};
          auto text = flat(load_graph(comm, file, g)) + flat(load_graph(comm, file, both));
          text += flat(load_sparse(comm, file, o));
          o.transpose = true;
          text += flat(load_sparse(comm, file, o));
          const auto m = load_sparse_both_ways(comm, file, o);
          return text + flat(m.rows) + flat(m.columns);
        });
      };
      std::vector<std::string> text, first, second;
      all(false, text);
      EXPECT_TRUE(cached().empty());
      all(true, first);
      EXPECT_EQ(cached().size(), 5 * workers) << "of each load a file a worker";
      change_secretly("edges.csv");
      all(true, second);
      EXPECT_EQ(first, text);
      EXPECT_EQ(second, text) << "the text was read again";
      all(false, second);
      EXPECT_NE(second, text) << "the secret change changes nothing";
      fs::remove_all(cache_folder());
      write("edges.csv", edges(names));
    }
  }
}

TEST_F(LoadCache, FollowsWhateverTheResultDependsOn) {
  write("edges.csv", edges(false));
  const auto old = graph(2, true);
  const auto files = cached();
  EXPECT_EQ(files.size(), 2U);
  write("edges.csv", edges(false, 2), 9);
  const auto changed = graph(2, true);
  EXPECT_NE(changed, old);
  EXPECT_EQ(changed, graph(2, false));
  EXPECT_EQ(cached(), files) << "the parts of the old text are replaced";
  // Only the time has visibly changed, so the text is read again.
  change_secretly("edges.csv");
  fs::last_write_time(path("edges.csv"), fs::file_time_type::clock::now() - std::chrono::seconds(5));
  EXPECT_NE(graph(2, true), changed);
  EXPECT_EQ(graph(2, true), graph(2, false));
  EXPECT_EQ(graph(3, true), graph(3, false));
  graph_options undirected;
  undirected.undirected = true;
  EXPECT_EQ(graph(2, true, undirected), graph(2, false, undirected));
  EXPECT_EQ(cached().size(), 2U + 3U + 2U);
  write("also.txt", "100000\n");
  graph_options more;
  more.entries.rows_also = {path("also.txt")};
  EXPECT_EQ(graph(2, true, more), graph(2, false, more));
  write("also.txt", "100000\n100001\n");
  EXPECT_EQ(graph(2, true, more), graph(2, false, more));
}

TEST_F(LoadCache, OfADamagedFileIsReadAgainFromTheText) {
  write("edges.csv", edges(true));
  const auto text = graph(2, true);
  const auto file = cached().at(0);
  std::string whole;
  {
    std::ifstream in(file, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    auto damaged = whole;
    const auto at = random() % whole.size();
    if (i % 3 == 0) damaged.resize(at);
    else if (i % 3 == 1) damaged[at] = static_cast<char>(damaged[at] ^ (1U << (random() % 8)));
    else damaged.insert(at, "x");
    std::ofstream(file, std::ios::binary) << damaged;
    EXPECT_EQ(graph(2, true), text) << "damaged at " << at;
    std::ifstream in(file, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(in), {});
    EXPECT_EQ(whole.size(), fs::file_size(file));
  }
}

TEST_F(LoadCache, WithPartsOfTwoLoadsIsNotUsed) {
  write("edges.csv", edges(false));
  const auto text = graph(2, true);
  std::string mine;
  for (const auto& f : cached())
    if (f.ends_with("-0")) mine = f;
  fs::copy_file(mine, path("kept"));
  fs::remove_all(cache_folder());
  (void)graph(2, true);
  fs::copy_file(path("kept"), mine, fs::copy_options::overwrite_existing);
  change_secretly("edges.csv");
  EXPECT_NE(graph(2, true), text) << "the text is read: worker 0 has the parts of another load";
}

TEST_F(LoadCache, OfAFileThatMayStillChangeIsNotKept) {
  write("edges.csv", edges(false), -600);  // in the future: counts as just modified, however slow the machine is
  EXPECT_EQ(graph(2, true), graph(2, false));
  EXPECT_TRUE(cached().empty());
}

TEST_F(LoadCache, IsWrittenAndReadByWorkersThatAreReplaced) {
  constexpr std::size_t workers = 2;
  write("edges.csv", edges(true));
  const auto text = graph(workers, false);
  const auto load = [&](std::vector<std::vector<test::fate>> fates) {
    const test::temporary_folder state;
    std::vector<std::string> parts(workers);
    fates.resize(workers);
    test::cluster c({.workers = workers, .state_folder = state.path()});
    const auto steps = c.run_with_deaths(
        [&](Comm comm) {
          graph_options o;
          o.weighted = true;
          o.entries.cache.on = true;
          const auto rank = comm.get_rank();
          parts[rank] = flat(load_graph(std::move(comm), {path("edges.csv")}, o));
        },
        fates);
    EXPECT_EQ(parts, text);
    return steps;
  };
  const auto writing = load({});
  const auto reading = load({});
  EXPECT_LT(reading[0], writing[0]);
  for (std::size_t rank = 0; rank < workers; ++rank) {
    std::vector<std::vector<test::fate>> fates(workers);
    for (std::uint64_t step = 0; step < writing[rank]; ++step) {
      fates[rank] = {{.step = step, .before = step % 2 == 0}};
      fs::remove_all(cache_folder());
      (void)load(fates);
      EXPECT_EQ(load({})[rank], reading[rank]) << "worker " << rank << " died after " << step << " messages";
      if (step < reading[rank]) (void)load(fates);
    }
  }
}

TEST_F(LoadCache, RefusesStandardInputAndAFolderThatCannotBeMade) {
  write("edges.csv", edges(false));
  write("no_folder", "");
  const auto texts = [&](const std::string& input, const std::string& folder) {
    std::multiset<std::string> texts;
    std::mutex mutex;
    test::cluster({.workers = 2}).run([&](Comm comm) {
      entry_options o;
      o.cache = {.on = true, .folder = folder};
      std::string text = "nothing was thrown";
      try {
        (void)load_sparse(comm, {input}, o);
      } catch (const config_error& e) {
        text = e.what();
      }
      const std::lock_guard lock(mutex);
      texts.insert(text);
    });
    return texts;
  };
  test::expect_one_text(texts("-", path("cache")), HasSubstr("cache: found standard input, want files"));
  test::expect_one_text(texts(path("edges.csv"), path("no_folder/cache")),
                        AllOf(HasSubstr("cache: "), HasSubstr("no_folder"), HasSubstr("cache_folder")));
}

}  // namespace
}  // namespace paracel
