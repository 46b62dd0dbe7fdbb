// SPDX-License-Identifier: BSD-3-Clause
//
// A worker that ends unexpectedly.
//
//   ends HOW RANK     HOW: what that rank does in its third round; before_joining: before all rounds;
//                     done_exit_0: after all; bare_HOW: in a program without paracel::run
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <unistd.h>

#include <paracel/paralg.hpp>
#include <paracel/run.hpp>

namespace {

[[gnu::noinline]] void write_to(int* volatile nowhere) { *nowhere = 1; }

[[gnu::noinline]] int without_end(int depth) {
  volatile char some[1000] = {};
  return depth < 0 ? 0 : without_end(depth + 1) + some[depth % 1000];
}

class ends : public paracel::paralg {
 public:
  explicit ends(std::string_view how, std::size_t rank)
      : paralg(paracel::Comm()), how_(how), mine_(get_worker_id() == rank) {
    set_consistency(paracel::consistency_model::bsp);
  }

  void solve() override {
    if (get_worker_id() == 0) paracel_write("n", 0.0);
    paracel_sync();
    for (int round = 0; round < 5; ++round) {
      if (round == 2 && mine_) end();
      paracel_update("n", 1.0);
      iter_commit();
    }
    paracel_sync();
    if (get_worker_id() == 0) std::printf("n is %g\n", paracel_read<double>("n"));
  }

 private:
  void end() const {
    std::printf("rank %zu: %s\n", get_worker_id(), how_.c_str());
    std::fflush(stdout);
    if (how_ == "exit_0") std::exit(0);
    if (how_ == "exit_3") std::exit(3);
    if (how_ == "_exit_0") _exit(0);
    if (how_ == "thread_exit_0") std::thread([] { std::exit(0); }).join();
    if (how_ == "runtime_error") throw std::runtime_error("out of ideas");
    if (how_ == "data_error") throw paracel::data_error("points.csv:3:1: found x");
    if (how_ == "int") throw 7;  // NOLINT(hicpp-exception-baseclass)
    if (how_ == "exit_11") std::exit(11);
    if (how_ == "bad_alloc") throw std::bad_alloc();
    if (how_ == "large") std::vector<double>(std::size_t{1} << 46U);
    if (how_ == "abort") std::abort();
    if (how_ == "segv") write_to(reinterpret_cast<int*>(0x10));
    if (how_ == "thread_segv") std::thread([] { write_to(reinterpret_cast<int*>(0x10)); }).join();
    if (how_ == "overflow") std::printf("%d\n", without_end(0));
    if (how_ == "in_a_thread") std::thread([] { throw std::runtime_error("out of threads"); }).join();
  }

  std::string how_;
  bool mine_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  const std::size_t rank = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
  const char* me = std::getenv("PARACEL_RANK");
  if (how == "before_joining" && me != nullptr && std::strtoul(me, nullptr, 10) == rank) return 0;
  if (how.starts_with("bare_")) {  // without paracel::run
    paracel::main_env environment(argc, argv);
    ends(how.substr(5), rank).solve();
    return 0;
  }
  return paracel::run(argc, argv, [&] {
    ends(how, rank).solve();
    if (how == "done_exit_0") std::exit(0);
  });
}
