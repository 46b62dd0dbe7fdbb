// SPDX-License-Identifier: BSD-3-Clause
#include "core/ring.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>

#include <paracel/error.hpp>

#include "core/check.hpp"
#include "core/hash.hpp"

namespace paracel {
namespace {

// Points examined for a server with a thread that is not full. Usually the first has one.
constexpr std::size_t most_passed = 4096;

std::uint64_t position_of(std::uint32_t slot, std::uint32_t index) noexcept {
  static_assert(std::endian::native == std::endian::little);
  std::array<std::uint32_t, 2> name{slot, index};
  return XXH3_64bits(name.data(), sizeof name);
}

std::uint32_t points_of(double weight) noexcept {
  return static_cast<std::uint32_t>(std::lround(weight * ring::virtual_nodes));
}

}  // namespace

ring::ring(std::span<const ring_member> members) {
  for (const auto& m : members) {
    check(m);
    members_.emplace(m.slot, m);
  }
  rebuild();
}

void ring::check(const ring_member& m) const {
  if (members_.contains(m.slot)) throw error("ring: server s" + std::to_string(m.slot) + " is already on the ring");
  if (!(m.weight >= least_weight && m.weight <= greatest_weight)) {
    throw error("ring: weight " + std::to_string(m.weight) + " of server s" + std::to_string(m.slot) +
                " is outside [1/64, 64]");
  }
  if (m.threads == 0) throw error("ring: server s" + std::to_string(m.slot) + " has no threads");
  if (members_.size() == most_members) throw error("ring: more than " + std::to_string(most_members) + " servers");
  if (total_weight() + m.weight > most_weight_in_all) {
    throw error("ring: the weights of the servers are above " + std::to_string(most_weight_in_all) + " together");
  }
}

double ring::total_weight() const noexcept {
  double total = 0;
  for (const auto& [slot, m] : members_) total += m.weight;  // in slot order: the same for the same set
  return total;
}

void ring::add(std::uint32_t slot, double weight, std::uint32_t threads) {
  const ring_member m{slot, weight, threads};
  check(m);
  members_.emplace(slot, m);
  rebuild();
}

void ring::remove(std::uint32_t slot) {
  if (members_.erase(slot) == 0) throw error("ring: there is no server s" + std::to_string(slot));
  rebuild();
}

/// The partitions that a member may still be given.
struct ring::room {
  explicit room(const ring_member& m, double share)
      : all(static_cast<std::uint32_t>(std::ceil(load_bound * share))),
        of_thread(m.threads, static_cast<std::uint32_t>(std::ceil(load_bound * share / m.threads))) {}

  [[nodiscard]] std::uint32_t& at(std::uint32_t partition) noexcept {
    return of_thread[partition % static_cast<std::uint32_t>(of_thread.size())];
  }

  std::uint32_t all;
  std::vector<std::uint32_t> of_thread;
};

void ring::rebuild() {
  slots_.clear();
  points_.clear();
  first_points_.clear();
  owners_.clear();
  if (members_.empty()) return;

  const double total = total_weight();
  std::vector<room> rooms;  // by rank
  for (const auto& [slot, m] : members_) {
    const auto rank = static_cast<std::uint32_t>(slots_.size());
    for (std::uint32_t i = 0; i < points_of(m.weight); ++i) points_.push_back({position_of(slot, i), rank});
    slots_.push_back(slot);
    rooms.emplace_back(m, partition_count * m.weight / total);
  }
  std::sort(points_.begin(), points_.end());

  const auto add_room = [](std::uint64_t n, const room& r) { return n + r.all; };
  PARACEL_CHECK(std::accumulate(rooms.begin(), rooms.end(), std::uint64_t{0}, add_room) >= partition_count);
  first_points_.resize(partition_count);
  owners_.resize(partition_count);
  // The rank of the first of `most` points clockwise from `first` whose member satisfies the condition; the number of
  // members if none does.
  const auto find_from = [&](std::size_t first, std::size_t most, const auto& has_room) {
    most = std::min(most, points_.size());
    for (std::size_t n = 0, at = first; n < most; ++n, at = at + 1 == points_.size() ? 0 : at + 1)
      if (has_room(rooms[points_[at].rank])) return static_cast<std::size_t>(points_[at].rank);
    return rooms.size();
  };
  std::size_t first = 0;  // point at or after p
  for (std::uint32_t p = 0; p < partition_count; ++p) {
    while (first < points_.size() && points_[first].position < static_cast<std::uint64_t>(p) << 50) ++first;
    const auto from = first == points_.size() ? 0 : first;
    auto rank = find_from(from, most_passed, [&](room& r) { return r.all != 0 && r.at(p) != 0; });
    if (rank == rooms.size()) rank = find_from(from, points_.size(), [](const room& r) { return r.all != 0; });
    auto& owner = rooms[rank];
    --owner.all;
    if (auto& left = owner.at(p); left != 0) --left;
    first_points_[p] = static_cast<std::uint32_t>(from);
    owners_[p] = static_cast<std::uint32_t>(rank);
  }
}

std::uint32_t ring::owner_rank(std::uint16_t partition) const {
  if (owners_.empty()) throw error("ring: there is no server");
  if (partition >= partition_count) throw error("ring: there is no partition " + std::to_string(partition));
  return owners_[partition];
}

std::vector<std::uint32_t> ring::replicas(std::uint16_t partition, std::size_t n) const {
  std::vector<std::uint32_t> chain;
  replica_ranks(partition, n, chain);
  for (auto& member : chain) member = slots_[member];
  return chain;
}

void ring::replica_ranks(std::uint16_t partition, std::size_t n, std::vector<std::uint32_t>& chain) const {
  const auto head = owner_rank(partition);
  n = std::min(n, members_.size());
  chain.clear();
  if (n > 0) chain.push_back(head);
  for (std::size_t at = first_points_[partition]; chain.size() < n; at = at + 1 == points_.size() ? 0 : at + 1) {
    if (const auto rank = points_[at].rank; std::ranges::find(chain, rank) == chain.end()) chain.push_back(rank);
  }
}

}  // namespace paracel
