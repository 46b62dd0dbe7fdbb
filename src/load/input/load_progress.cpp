// SPDX-License-Identifier: BSD-3-Clause
#include "load/input/load_progress.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/json_io.hpp"

namespace paracel {

namespace {

using load_clock = std::chrono::steady_clock;

// A load that ends within this time is not reported.
constexpr std::chrono::milliseconds silence{2000};
constexpr std::chrono::milliseconds interval{200};

}  // namespace

load_progress report_load_progress(const Comm& comm, const input_set& input) {
  if (comm.get_rank() != 0 || !comm.job()) return {};
  std::uint64_t all = 0;
  for (const auto& f : input.files()) all += f.bytes;
  return [comm, all, next = load_clock::now() + silence](std::uint64_t done, std::uint64_t total) mutable {
    const auto now = load_clock::now();
    if (now < next) return;
    next = now + interval;
    if (total == 0) {
      comm.report(R"({"loading": )" + std::to_string(done) + "}");
      return;
    }
    const auto share = static_cast<double>(done) / static_cast<double>(total);
    comm.report(R"({"loading": )" + std::to_string(static_cast<std::uint64_t>(share * static_cast<double>(all))) +
                R"(, "of": )" + std::to_string(all) + "}");
  };
}

void report_loaded(const Comm& comm, const std::vector<std::string>& names, const input_set& input, std::uint64_t rows,
                   std::uint64_t features) {
  if (!comm.job()) return;
  constexpr std::size_t most_named = 8;
  std::uint64_t bytes = 0;
  for (const auto& f : input.files()) bytes += f.bytes;
  const std::vector<std::string> named(names.begin(),
                                       names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), most_named)));
  const nlohmann::json what{
      {"names", named}, {"files", input.files().size()}, {"bytes", bytes}, {"rows", rows}, {"features", features}};
  comm.report(json_text({{"loaded", what}}));
}

}  // namespace paracel
