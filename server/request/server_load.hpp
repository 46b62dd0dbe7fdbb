// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace paracel::srv {

/// How much has been asked of a server in the last seconds, as its heartbeats say it:
///
///   {"epoch","seconds","threads":[keys a second of each..],"partitions":[[partition, keys a second, bytes]..],
///    "room" if there is a limit}
struct server_load {
  struct partition {
    std::uint16_t number = 0;
    double keys = 0;          ///< and rows that requests have named, a second
    std::uint64_t bytes = 0;  ///< of its keys and rows; an estimate
    friend bool operator==(const partition&, const partition&) = default;
  };

  std::uint32_t epoch = 0;            ///< of the membership in which it was measured
  double seconds = 0;                 ///< over which it was measured
  std::vector<double> threads;        ///< keys and rows a second, of each shard thread
  std::vector<partition> partitions;  ///< own ones, those with the most keys first; not all of them
  /// Bytes until the limit of memory of the thread with the least left; none: there is no limit.
  std::optional<std::uint64_t> room{};

  /// Keys and rows a second, in all.
  [[nodiscard]] double keys() const noexcept;
  [[nodiscard]] nlohmann::json to_json() const;
  /// None when it is not what `to_json` gives.
  [[nodiscard]] static std::optional<server_load> from_json(const nlohmann::json& j);

  static constexpr std::size_t most_partitions = 64;  ///< in a heartbeat
  static constexpr std::uint32_t one_of = 32;         ///< keys is counted, on average,
  static constexpr std::uint32_t coarse = 8;          ///< or so many times less, each as so many, of requests for many
};

}  // namespace paracel::srv
