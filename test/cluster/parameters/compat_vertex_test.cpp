// SPDX-License-Identifier: BSD-3-Clause
#include "pregel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include <unistd.h>

#include <paracel/pregel.hpp>

#include "test/support/cluster.hpp"
#include "utils.hpp"

namespace paracel {
namespace {

class greatest : public paracel::pregel::vertex<double, double> {
 public:
  using vertex<double, double>::vertex;
  void compute(const std::string& neighbor, double /*weight*/, const double& value) override {
    pt->paracel_bupdate(neighbor, value, "libparacel_default.so", "paracel_max");
  }
  double mutable_value(const double& state) override { return state; }
  [[nodiscard]] const std::unordered_map<std::string, double>& values() const { return vertex_val_map; }
};

TEST(CompatVertex, TheGreatestValueReachesEveryVertexThatAPathLeadsToAlsoThoseThatOnlyReceive) {
  const auto path = std::filesystem::temp_directory_path() / ("compat_vertex_" + std::to_string(getpid()));
  // 9 -> 3 -> 5 -> 3, 5 -> 1, 7 -> 2: 1 and 2 only receive, 9 and 7 only send.
  std::ofstream(path) << "9,3\n3,5\n5,3\n5,1\n7,2\n";
  const std::map<std::string, double> want{{"1", 9}, {"2", 7}, {"3", 9}, {"5", 9}, {"7", 7}, {"9", 9}};
  for (const std::size_t workers : {1U, 2U, 3U}) {
    test::cluster c({.workers = workers, .servers = 2});
    std::map<std::string, double> got;
    std::mutex mutex;
    c.run([&](Comm comm) {
      const auto parser = gen_parser([](const std::string& line) { return str_split(line, ','); });
      greatest run(comm, "", path, "", parser, [](const std::string& id) { return std::stod(id); });
      run.run_supersteps();
      const std::lock_guard lock(mutex);
      for (const auto& [id, value] : run.values()) {
        EXPECT_FALSE(got.contains(id)) << id << " is on two workers";
        got[id] = value;
      }
    });
    EXPECT_EQ(got, want) << workers;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace paracel
