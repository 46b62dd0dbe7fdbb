// SPDX-License-Identifier: BSD-3-Clause
//
// Reads that need no server: the cost of a hit in the SSP cache, by reference and copied, and of an update that is
// combined locally. One worker with a server inside the process; nothing is sent during the measurement.
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <paracel/paralg.hpp>

DEFINE_uint64(doubles, 100, "numbers in the cached vector");
DEFINE_uint64(keys, 1000, "cached keys");
DEFINE_uint64(calls, 200'000, "calls of a measurement");
DEFINE_uint64(repetitions, 9, "measurements; the median is printed");

namespace {

/// Nanoseconds a call: median of the repetitions.
template <class F>
double nanoseconds(const F& call) {
  std::vector<double> all;
  for (std::uint64_t r = 0; r < std::max<std::uint64_t>(FLAGS_repetitions, 1); ++r) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < FLAGS_calls; ++i) call(i);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    all.push_back(time.count() / static_cast<double>(FLAGS_calls));
  }
  std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2));
  return all[all.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("cost of a read that hits the cache");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    paracel::main_env const env(argc, argv);
    paracel::paralg a("", paracel::Comm(), "", 1 << 30, 1, true);
    std::vector<std::string> keys;
    const std::vector<double> value(FLAGS_doubles, 1.0);
    for (std::uint64_t k = 0; k < std::max<std::uint64_t>(FLAGS_keys, 1); ++k) {
      keys.push_back("parameter_" + std::to_string(1'000'000'000 + k));
      a.paracel_write(keys.back(), value);
    }
    double sum = 0;
    std::vector<double> copy;
    const auto& one = keys.front();
    const auto key = [&](std::uint64_t i) -> const std::string& { return keys[i * 7919 % keys.size()]; };
    const auto reference = nanoseconds([&](std::uint64_t) { sum += a.paracel_read_ref<std::vector<double>>(one)[0]; });
    const auto many = nanoseconds([&](std::uint64_t i) { sum += a.paracel_read_ref<std::vector<double>>(key(i))[0]; });
    const auto copied = nanoseconds([&](std::uint64_t) {
      a.paracel_read(one, copy);
      sum += copy[0];
    });
    const auto update = nanoseconds([&](std::uint64_t) { a.paracel_update(one, value); });
    a.iter_commit();
    const nlohmann::ordered_json result = {{"doubles", FLAGS_doubles},
                                           {"keys", keys.size()},
                                           {"hit_by_reference_ns", reference},
                                           {"hit_by_reference_many_keys_ns", many},
                                           {"hit_copied_ns", copied},
                                           {"combined_update_ns", update},
                                           {"checksum", sum}};
    std::printf("%s\n", result.dump().c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_cache: %s\n", e.what());
    return 1;
  }
}
