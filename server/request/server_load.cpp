// SPDX-License-Identifier: BSD-3-Clause
#include "server/request/server_load.hpp"

#include <cmath>
#include <numeric>

#include <nlohmann/json.hpp>

#include "core/hash.hpp"
#include "core/membership.hpp"

namespace paracel::srv {

using nlohmann::json;

double server_load::keys() const noexcept { return std::accumulate(threads.begin(), threads.end(), 0.0); }

json server_load::to_json() const {
  const auto rounded = [](double v) { return std::round(v * 10) / 10; };  // shorter
  json of_threads = json::array();
  for (const double t : threads) of_threads.push_back(rounded(t));
  json of_partitions = json::array();
  for (const auto& p : partitions) of_partitions.push_back(json::array({p.number, rounded(p.keys), p.bytes}));
  json all{{"epoch", epoch},
           {"seconds", std::round(seconds * 1000) / 1000},
           {"threads", std::move(of_threads)},
           {"partitions", std::move(of_partitions)}};
  if (room) all["room"] = *room;
  return all;
}

std::optional<server_load> server_load::from_json(const json& j) {
  const auto is_rate = [](const json& v) { return v.is_number() && v.get<double>() >= 0 && v.get<double>() < 1e18; };
  if (!j.is_object()) return std::nullopt;
  const auto epoch = j.find("epoch");
  const auto seconds = j.find("seconds");
  const auto of_threads = j.find("threads");
  const auto of_partitions = j.find("partitions");
  if (epoch == j.end() || seconds == j.end() || of_threads == j.end() || of_partitions == j.end()) return std::nullopt;
  if (!epoch->is_number_unsigned() || epoch->get<std::uint64_t>() > ~std::uint32_t{0} || !is_rate(*seconds) ||
      !of_threads->is_array() || of_threads->size() > membership::most_threads || !of_partitions->is_array() ||
      of_partitions->size() > most_partitions)
    return std::nullopt;
  server_load load;
  load.epoch = epoch->get<std::uint32_t>();
  load.seconds = seconds->get<double>();
  if (const auto room = j.find("room"); room != j.end()) {
    if (!room->is_number_unsigned()) return std::nullopt;
    load.room = room->get<std::uint64_t>();
  }
  for (const auto& t : *of_threads) {
    if (!is_rate(t)) return std::nullopt;
    load.threads.push_back(t.get<double>());
  }
  for (const auto& p : *of_partitions) {
    if (!p.is_array() || p.size() != 3 || !p[0].is_number_unsigned() || p[0].get<std::uint64_t>() >= partition_count ||
        !is_rate(p[1]) || !p[2].is_number_unsigned())
      return std::nullopt;
    load.partitions.push_back({p[0].get<std::uint16_t>(), p[1].get<double>(), p[2].get<std::uint64_t>()});
  }
  return load;
}

}  // namespace paracel::srv
