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
    check(m.slot, m.weight);
    weights_.emplace(m.slot, m.weight);
  }
  rebuild();
}

void ring::check(std::uint32_t slot, double weight) const {
  if (weights_.contains(slot)) throw error("ring: server s" + std::to_string(slot) + " is there already");
  if (!(weight >= least_weight && weight <= greatest_weight)) {
    throw error("ring: weight " + std::to_string(weight) + " of server s" + std::to_string(slot) +
                " is outside [1/64, 64]");
  }
  if (weights_.size() == most_members) throw error("ring: more than " + std::to_string(most_members) + " servers");
  if (total_weight() + weight > most_weight_in_all) {
    throw error("ring: the weights of the servers are above " + std::to_string(most_weight_in_all) + " together");
  }
}

double ring::total_weight() const noexcept {
  double total = 0;
  for (const auto& [slot, weight] : weights_) total += weight;  // in slot order: the same for the same set
  return total;
}

void ring::add(std::uint32_t slot, double weight) {
  check(slot, weight);
  weights_.emplace(slot, weight);
  rebuild();
}

void ring::remove(std::uint32_t slot) {
  if (weights_.erase(slot) == 0) throw error("ring: there is no server s" + std::to_string(slot));
  rebuild();
}

void ring::rebuild() {
  points_.clear();
  owners_.clear();
  if (weights_.empty()) return;

  const double total = total_weight();
  for (const auto& [slot, weight] : weights_) {
    for (std::uint32_t i = 0; i < points_of(weight); ++i) points_.push_back({position_of(slot, i), slot});
  }
  std::sort(points_.begin(), points_.end());

  // room left, by index of the member in ascending slot order
  std::vector<std::uint32_t> members;
  std::vector<std::uint32_t> room;
  for (const auto& [slot, weight] : weights_) {
    members.push_back(slot);
    room.push_back(static_cast<std::uint32_t>(std::ceil(load_bound * (partition_count * weight / total))));
  }
  std::vector<std::uint32_t> place(points_.size());
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const auto member = std::lower_bound(members.begin(), members.end(), points_[i].slot);
    place[i] = static_cast<std::uint32_t>(member - members.begin());
  }

  PARACEL_CHECK(std::accumulate(room.begin(), room.end(), std::uint64_t{0}) >= partition_count);
  owners_.resize(partition_count);
  std::size_t first = 0;  // point at or after p
  for (std::uint32_t p = 0; p < partition_count; ++p) {
    while (first < points_.size() && points_[first].position < static_cast<std::uint64_t>(p) << 50) ++first;
    std::size_t candidate = first == points_.size() ? 0 : first;
    // terminates: some server is not full, as was checked
    while (room[place[candidate]] == 0) candidate = candidate + 1 == points_.size() ? 0 : candidate + 1;
    --room[place[candidate]];
    owners_[p] = points_[candidate].slot;
  }
}

std::uint32_t ring::owner(std::uint16_t partition) const {
  if (owners_.empty()) throw error("ring: there is no server");
  if (partition >= partition_count) throw error("ring: there is no partition " + std::to_string(partition));
  return owners_[partition];
}

std::vector<std::uint32_t> ring::slots() const {
  std::vector<std::uint32_t> all;
  all.reserve(weights_.size());
  for (const auto& [slot, weight] : weights_) all.push_back(slot);
  return all;
}

std::size_t ring::first_point(std::uint32_t partition) const noexcept {
  const auto found = std::lower_bound(points_.begin(), points_.end(), static_cast<std::uint64_t>(partition) << 50,
                                      [](const point& a, std::uint64_t position) { return a.position < position; });
  return found == points_.end() ? 0 : static_cast<std::size_t>(found - points_.begin());
}

std::vector<std::uint32_t> ring::replicas(std::uint16_t partition, std::size_t n) const {
  const auto head = owner(partition);
  n = std::min(n, weights_.size());
  std::vector<std::uint32_t> chain;
  chain.reserve(n);
  if (n > 0) chain.push_back(head);
  for (std::size_t at = first_point(partition); chain.size() < n; at = at + 1 == points_.size() ? 0 : at + 1) {
    if (std::find(chain.begin(), chain.end(), points_[at].slot) == chain.end()) chain.push_back(points_[at].slot);
  }
  return chain;
}

}  // namespace paracel
