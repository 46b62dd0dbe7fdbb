// SPDX-License-Identifier: BSD-3-Clause
//
// nodes COUNT: worker 0 prints the job's dead nodes whenever they change, and ends the job when there are COUNT.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <paracel/paralg.hpp>

namespace {

class nodes : public paracel::paralg {
 public:
  explicit nodes(std::size_t enough) : paralg(paracel::Comm()), enough_(enough) {
    set_consistency("over", paracel::consistency::asp());
  }

  void solve() override {
    std::string before;
    if (get_worker_id() == 0) std::printf("%zu nodes\n", paracel_nodes().size());
    for (double over = 0; over == 0; paracel_read("over", over)) {
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
      paracel_update("steps", 1.0);
      iter_commit();
      if (get_worker_id() != 0) continue;
      const auto dead = paracel_dead_nodes();
      std::string now;
      for (const auto& n : dead) now += (n.is_server ? " s" : " w") + std::to_string(n.number) + " " + n.state;
      if (now != before) std::printf("dead:%s\n", now.c_str());
      std::fflush(stdout);
      before = now;
      if (dead.size() == enough_) paracel_bupdate("over", 1.0);
    }
  }

 private:
  std::size_t enough_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const paracel::main_env environment(argc, argv);
    if (argc < 2) {
      std::fprintf(stderr, "nodes: error: want nodes COUNT\n");
      return 2;
    }
    nodes(std::strtoull(argv[1], nullptr, 10)).solve();
  } catch (const paracel::error& e) {
    std::fprintf(stderr, "nodes: error: %s\n", e.what());
    return e.status();
  }
}
