// SPDX-License-Identifier: BSD-3-Clause
//
// Collectives of doubles among the workers of a job under mpirun, ours and Open MPI's own, alternately in the same
// processes: all-reduce, all-gather, broadcast from each rank in turn, all-to-all. `between_hosts.py` runs it. Rank 0
// prints a line of JSON for each operation and length: the microseconds of both, and the median of the ratios of their
// rows, MPI's time to ours. A row is many calls between two barriers.
//
// The length is that of the vector which is reduced or sent, of what all ranks together have after an all-gather, and
// of what one sends in an all-to-all; at least a double for each rank there.
#define OMPI_SKIP_MPICXX 1
#include <gflags/gflags.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <paracel/collectives.hpp>
#include <paracel/main_env.hpp>

#include "tool/bench/bench_support.hpp"

DEFINE_string(server_info, "", "added by prun.py");
DEFINE_string(bytes, "8,8192,1048576,16777216", "lengths of the vectors");
DEFINE_string(operations, "all_reduce,all_gather,broadcast,all_to_all", "which ones");
DEFINE_int32(rows, 7, "pairs of which the median is taken");
DEFINE_bool(pin, true, "each worker's thread on a processor of its own, in turn: all of them are this machine's");
DEFINE_double(row_ms, 60, "about as long takes a row");

namespace {

using namespace paracel;
using numbers = std::vector<double>;

/// The operations of one implementation.
class side {
 public:
  side() = default;
  side(const side&) = delete;
  side& operator=(const side&) = delete;
  virtual ~side() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  virtual void all_reduce(numbers& v) = 0;
  /// `all`: what all ranks have sent, in rank order.
  virtual void all_gather(const numbers& mine, numbers& all) = 0;
  virtual void broadcast(numbers& v, int root) = 0;
  virtual void all_to_all(const std::vector<numbers>& out, std::vector<numbers>& in) = 0;
  virtual void barrier() = 0;
};

class ours final : public side {
 public:
  ours(int& argc, char**& argv) : environment_(std::make_unique<main_env>(argc, argv)) {
    const Comm comm;
    (void)main_env::job();
    all_ = std::make_unique<collectives>(comm);
  }
  [[nodiscard]] int rank() const override { return static_cast<int>(all_->rank()); }
  [[nodiscard]] int size() const override { return static_cast<int>(all_->size()); }
  void all_reduce(numbers& v) override { all_->all_reduce(std::span(v)); }
  void all_gather(const numbers& mine, numbers& all) override { all = all_->all_gather(std::span(mine)); }
  void broadcast(numbers& v, int root) override { all_->broadcast(v, static_cast<std::size_t>(root)); }
  void all_to_all(const std::vector<numbers>& out, std::vector<numbers>& in) override { in = all_->all_to_all(out); }
  void barrier() override { all_->barrier(); }

 private:
  std::unique_ptr<main_env> environment_;
  std::unique_ptr<collectives> all_;
};

class theirs final : public side {
 public:
  /// Jobs whose workers exchange our messages leave MPI to the program.
  theirs(int& argc, char**& argv) {
    int is_on = 0;
    MPI_Initialized(&is_on);
    starts_ = is_on == 0;
    if (starts_) MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~theirs() override {
    if (starts_) MPI_Finalize();
  }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void all_reduce(numbers& v) override {
    MPI_Allreduce(MPI_IN_PLACE, v.data(), count(v), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  void all_gather(const numbers& mine, numbers& all) override {
    all.resize(mine.size() * static_cast<std::size_t>(size_));
    MPI_Allgather(mine.data(), count(mine), MPI_DOUBLE, all.data(), count(mine), MPI_DOUBLE, MPI_COMM_WORLD);
  }
  void broadcast(numbers& v, int root) override { MPI_Bcast(v.data(), count(v), MPI_DOUBLE, root, MPI_COMM_WORLD); }
  /// Between contiguous buffers, as MPI wants them: the copies from and to the blocks are not measured.
  void all_to_all(const std::vector<numbers>& out, std::vector<numbers>& in) override {
    const auto each = out.front().size();
    if (sent_.empty()) {
      for (const auto& block : out) sent_.insert(sent_.end(), block.begin(), block.end());
      received_.resize(sent_.size());
    }
    MPI_Alltoall(sent_.data(), static_cast<int>(each), MPI_DOUBLE, received_.data(), static_cast<int>(each), MPI_DOUBLE,
                 MPI_COMM_WORLD);
    in.resize(out.size());
    for (std::size_t r = 0; r < in.size(); ++r) in[r].assign(1, received_[r * each]);
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  /// The buffers of `all_to_all`, before others are sent.
  void forget() { sent_.clear(); }

 private:
  static int count(const numbers& v) { return static_cast<int>(v.size()); }
  bool starts_ = false;
  int rank_ = 0;
  int size_ = 1;
  numbers sent_, received_;
};

void require(bool condition, const std::string& operation) {
  if (!condition) throw std::runtime_error("a wrong result of " + operation);
}

/// Microseconds of a call, in rows of alternating sides.
struct times {
  std::vector<double> ours, theirs;

  static double median(std::vector<double> of) {
    std::ranges::nth_element(of, of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2));
    return of[of.size() / 2];
  }
  [[nodiscard]] double ratio() const {
    std::vector<double> all;
    for (std::size_t i = 0; i < ours.size(); ++i) all.push_back(theirs[i] / ours[i]);
    return median(all);
  }
};

/// `make(side)` returns a function whose i-th call is one operation.
template <class Make>
times alternate(side& one, side& other, const Make& make) {
  using clock = std::chrono::steady_clock;
  using microseconds = std::chrono::duration<double, std::micro>;
  const auto row = [](side& of, const auto& call, int calls) {
    of.barrier();
    const auto begin = clock::now();
    for (int i = 0; i < calls; ++i) call(i);
    of.barrier();
    return microseconds(clock::now() - begin).count() / calls;
  };
  const auto call_one = make(one);
  const auto call_other = make(other);
  other.barrier();  // MPI may still have to send what its last call returned without, and does that in its calls only
  (void)row(one, call_one, one.size());
  (void)row(other, call_other, one.size());
  // As rank 0 decides for all, in whole rounds of roots.
  numbers about{row(other, call_other, 2 * one.size())};
  other.broadcast(about, 0);
  const auto rounds = std::clamp(FLAGS_row_ms * 1e3 / about.front() / one.size(), 1.0, 500.0);
  const int calls = static_cast<int>(rounds) * one.size();
  times found;
  for (int r = 0; r < FLAGS_rows; ++r) {
    found.ours.push_back(row(one, call_one, calls));
    found.theirs.push_back(row(other, call_other, calls));
  }
  return found;
}

/// Calls an operation once with known data. Returns: a function that calls it.
std::function<void(int)> made(side& all, const std::string& operation, std::size_t length) {
  const auto p = static_cast<std::size_t>(all.size());
  const auto n = std::max<std::size_t>(length / sizeof(double), 1);
  const auto part = std::max<std::size_t>(n / p, 1);
  const double me = all.rank();
  const double last = all.size() - 1;
  if (operation == "all_reduce") {
    auto v = std::make_shared<numbers>(n, 1);
    all.all_reduce(*v);
    require(v->front() == all.size() && v->back() == all.size(), operation);
    std::ranges::fill(*v, 0.0);
    return [&all, v](int) { all.all_reduce(*v); };
  }
  if (operation == "all_gather") {
    auto together = std::make_shared<numbers>();
    const auto mine = std::make_shared<numbers>(part, me);
    all.all_gather(*mine, *together);
    require(together->size() == p * part && together->front() == 0 && together->back() == last, operation);
    return [&all, mine, together](int) { all.all_gather(*mine, *together); };
  }
  if (operation == "broadcast") {
    auto v = std::make_shared<numbers>(n, me);
    all.broadcast(*v, all.size() - 1);
    require(v->size() == n && v->front() == last && v->back() == last, operation);
    return [&all, v](int i) { all.broadcast(*v, i % all.size()); };
  }
  if (operation != "all_to_all") throw std::runtime_error("--operations: " + operation + " is none of them");
  const auto out = std::make_shared<std::vector<numbers>>(p, numbers(part, me));
  auto in = std::make_shared<std::vector<numbers>>();
  all.all_to_all(*out, *in);
  for (std::size_t r = 0; r < p; ++r) require((*in)[r].front() == static_cast<double>(r), operation);
  return [&all, out, in](int) { all.all_to_all(*out, *in); };
}

void pin_to_processor(int number) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  number %= CPU_COUNT(&all);
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &all) || number-- != 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(i, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("collectives among the workers of a job and MPI's own, under mpirun");
  gflags::ParseCommandLineFlags(&argc, &argv, false);
  try {
    bench::keep_large_blocks();
    ours one(argc, argv);
    theirs other(argc, argv);
    if (FLAGS_pin) pin_to_processor(one.rank());
    for (const auto& operation : words_of(FLAGS_operations)) {
      for (const auto& length : words_of(FLAGS_bytes)) {
        other.forget();
        const auto found = alternate(one, other, [&](side& all) { return made(all, operation, std::stoull(length)); });
        if (one.rank() != 0) continue;
        std::printf("{\"operation\": \"%s\", \"bytes\": %s, \"us\": %.1f, \"mpi_us\": %.1f, \"ratio\": %.3f}\n",
                    operation.c_str(), length.c_str(), times::median(found.ours), times::median(found.theirs),
                    found.ratio());
        std::fflush(stdout);
      }
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_collectives: %s\n", e.what());
    return 1;
  }
}
