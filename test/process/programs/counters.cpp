// SPDX-License-Identifier: BSD-3-Clause
//
// Counts with every verb that changes state, while servers are killed. At each step a worker checks its own counters:
// an update that was lost or applied twice is detected at the next step, and a value that was read never decreases. At
// the end worker 0 checks the shared counters.
//
//   counters ROUNDS|FILE KEYS [MICROSECONDS [PLUGIN [MEGABYTES [LENGTH]]]]
//
// FILE: a path containing a slash; the job runs until it exists, so that a fault is never too late. MICROSECONDS: a
// pause after each round. PLUGIN: its function `hang_once` counts, too; empty: none. MEGABYTES: other parameters that
// exist from the first round on. LENGTH: of a vector of each worker that counts, too.
//
// Exit status: 0 when every count is exact, 1 otherwise.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <paracel/array.hpp>
#include <paracel/paralg.hpp>
#include <paracel/table.hpp>

namespace {

using steady = std::chrono::steady_clock;

constexpr std::size_t row_width = 4;
const std::string plugin = "libparacel_default.so";
constexpr double rate = 0.01;
constexpr double friction = 0.9;
constexpr int rounds_between_looks = 8;

class counters : public paracel::paralg {
 public:
  /// `until`: the number of rounds, or the file.
  counters(const std::string& until, int keys, int pause_us, std::string slow, std::size_t megabytes,
           std::size_t length)
      : paralg(paracel::Comm()),
        file_(until.find('/') == std::string::npos ? "" : until),
        rounds_(file_.empty() ? std::atoi(until.c_str()) : std::numeric_limits<int>::max()),
        pause_(pause_us),
        slow_(std::move(slow)),
        ballast_(megabytes * ((1 << 20) / ballast_bytes)),
        vector_ones_(length, 1) {
    const auto own = "own" + std::to_string(get_worker_id()) + "_";
    for (int k = 0; k < keys; ++k) {
      shared_.push_back("shared" + std::to_string(k));
      in_set_.push_back("set" + std::to_string(k));
      mine_.push_back(own + std::to_string(k));
      ids_.push_back(static_cast<std::uint64_t>(k) * 1'000'003);
    }
    seen_.resize(shared_.size());
    counted_.resize(shared_.size());
    set_ = paracel_prepare(in_set_);
  }

  void solve() override {
    paracel::table<double> rows(*this, "rows", row_width);
    paracel::array<double> places(*this, "places", 4096);
    const std::vector<std::int64_t> ones(shared_.size(), 1);
    const std::vector<double> row_ones(ids_.size() * row_width, 1);
    write_ballast();
    paracel_sync();
    for (int round = 1; round <= rounds_; ++round) {
      const auto begin = steady::now();
      const auto which = static_cast<std::size_t>(round) % mine_.size();
      // own counters are exact at every step
      expect("an own counter", paracel_incr(mine_[which], std::int64_t{1}), ++counted_[which]);
      step_momentum();
      swap();
      if (!vector_ones_.empty()) count_with_a_vector(round);
      if (!slow_.empty()) count_slowly();
      // shared counters
      for (std::size_t k = 0; k < shared_.size(); ++k) paracel_update(shared_[k], std::int64_t{1});
      paracel_bupdate_multi(shared_, ones);
      paracel_update(set_, ones);
      rows.update(ids_, row_ones);
      places.update_at(std::vector<std::uint64_t>{7, 2000, 4095}, std::vector<double>{1, 1, 1});
      // values never decrease
      const auto now = paracel_read<std::int64_t>(shared_[which]);
      if (now < seen_[which]) wrong("a counter went back", now, seen_[which]);
      seen_[which] = now;
      iter_commit();
      longest_ = std::max(longest_, std::chrono::duration<double>(steady::now() - begin).count());
      if (get_worker_id() == 0) report_progress({round, rounds_, 0});
      if (pause_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(pause_));
      if (!file_.empty() && round % rounds_between_looks == 0 && all_are_told()) rounds_ = round;
    }
    paracel_sync();
    check_ballast();
    get_comm().allreduce(counted_slowly_);
    if (get_worker_id() == 0) check_all(rows, places);
    paracel_sync();
    auto errors = static_cast<double>(errors_), longest = longest_;
    get_comm().allreduce(errors);
    get_comm().allreduce(longest, paracel::reduce_op::max);
    if (get_worker_id() == 0) std::printf("%s, longest round %.3f s\n", errors == 0 ? "exact" : "WRONG", longest);
    errors_ = static_cast<std::int64_t>(errors);
  }

  [[nodiscard]] bool exact() const { return errors_ == 0; }

 private:
  static constexpr std::size_t ballast_bytes = 4096;
  using block = std::vector<double>;
  static block ballast_of(std::size_t i) { return block(ballast_bytes / sizeof(double), static_cast<double>(i)); }

  void write_ballast() {
    constexpr std::size_t at_once = 256;
    paracel::dict_type<std::string, block> values;
    for (auto i = get_worker_id(); i < ballast_; i += get_worker_size()) {
      values.emplace("ballast" + std::to_string(i), ballast_of(i));
      if (values.size() < at_once && i + get_worker_size() < ballast_) continue;
      paracel_write_multi(values);
      values.clear();
    }
  }
  void check_ballast() {
    for (auto i = get_worker_id(); i < ballast_; i += get_worker_size()) {
      const auto has = paracel_read<block>("ballast" + std::to_string(i));
      if (has != ballast_of(i)) wrong("what lay there", has.empty() ? -1 : has[0], static_cast<double>(i));
    }
  }

  bool all_are_told() {
    auto told = std::filesystem::exists(file_) ? 1.0 : 0.0;
    get_comm().allreduce(told, paracel::reduce_op::max);
    return told > 0;
  }

  void wrong(const char* what, double got, double wanted) {
    if (++errors_ <= 20) std::printf("worker %zu: %s: %.17g, want %.17g\n", get_worker_id(), what, got, wanted);
    std::fflush(stdout);
  }
  void expect(const char* what, std::int64_t got, std::int64_t wanted) {
    if (got != wanted) wrong(what, static_cast<double>(got), static_cast<double>(wanted));
  }

  /// An optimizer with state: a step that is lost or repeated, or state that is not replicated, changes every later
  /// value.
  void step_momentum() {
    const auto key = "momentum" + std::to_string(get_worker_id());
    paracel_update(key, 1.0, {plugin, "paracel_momentum", {{"lr", rate}, {"momentum", friction}}});
    speed_ = friction * speed_ + 1.0;
    place_ -= rate * speed_;
    const auto got = paracel_read<double>(key);
    if (std::abs(got - place_) > 1e-9 * std::abs(place_)) wrong("an optimizer's value", got, place_);
  }

  void count_with_a_vector(int round) {
    const auto key = "vector" + std::to_string(get_worker_id());
    paracel_update(key, vector_ones_);
    const auto got = paracel_read<block>(key);
    const auto right = got.size() == vector_ones_.size() ? std::count(got.begin(), got.end(), round) : 0;
    expect("elements of an own vector", right, static_cast<std::int64_t>(vector_ones_.size()));
  }

  /// Compare and swap, with the version of the last success.
  void swap() {
    const auto key = "swapped" + std::to_string(get_worker_id());
    if (!paracel_cas(key, version_, ++swapped_))
      wrong("a swap of an own key was refused", double(swapped_), double(swapped_));
  }

  /// A function that has hung is not called any more; its previous counts remain.
  void count_slowly() try {
    paracel_bupdate("slow", std::int64_t{1}, slow_, "hang_once");
    ++counted_slowly_;
  } catch (const paracel::plugin_error&) {
    slow_.clear();
  }

  void check_all(paracel::table<double>& rows, paracel::array<double>& places) {
    const auto all = static_cast<std::int64_t>(get_worker_size()) * rounds_;
    for (const auto& key : shared_) expect("a shared counter", paracel_read<std::int64_t>(key), 2 * all);
    std::vector<std::int64_t> values(in_set_.size());
    paracel_read(set_, values);
    for (const auto v : values) expect("a counter of a set", v, all);
    std::vector<double> numbers(ids_.size() * row_width);
    rows.pull(ids_, numbers);
    for (const auto v : numbers) expect("a row", static_cast<std::int64_t>(v), all);
    for (const auto v : places.read_at(std::vector<std::uint64_t>{7, 2000, 4095}))
      expect("an element of an array", static_cast<std::int64_t>(v), all);
    if (counted_slowly_ != 0)
      expect("a counter of a slow function", paracel_read<std::int64_t>("slow"),
             static_cast<std::int64_t>(counted_slowly_));
    for (std::size_t r = 0; r < get_worker_size(); ++r)
      expect("a swapped value", paracel_read<std::int64_t>("swapped" + std::to_string(r)), rounds_);
  }

  std::string file_;
  int rounds_, pause_;
  std::string slow_;
  std::size_t ballast_;
  block vector_ones_;
  std::vector<std::string> shared_, in_set_, mine_;
  std::vector<std::uint64_t> ids_;
  paracel::key_set set_;
  std::vector<std::int64_t> seen_, counted_;
  double speed_ = 0, place_ = 0, longest_ = 0, counted_slowly_ = 0;
  std::uint64_t version_ = 0;
  std::int64_t swapped_ = 0, errors_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    paracel::main_env environment(argc, argv);
    std::vector<std::string> given(argv + 1, argv + argc);
    given.erase(std::find(given.begin(), given.end(), "--server_info"), given.end());  // from prun.py
    if (given.size() < 2) {
      std::fprintf(stderr,
                   "counters: error: want counters ROUNDS|FILE KEYS [MICROSECONDS [PLUGIN [MEGABYTES [LENGTH]]]]\n");
      return 2;
    }
    given.resize(6);
    counters job(given[0], std::atoi(given[1].c_str()), std::atoi(given[2].c_str()), given[3],
                 static_cast<std::size_t>(std::atoi(given[4].c_str())),
                 static_cast<std::size_t>(std::atoi(given[5].c_str())));
    job.solve();
    return job.exact() ? 0 : 1;
  } catch (const paracel::error& e) {
    std::fprintf(stderr, "counters: error: %s\n", e.what());
    return e.status();
  }
}
