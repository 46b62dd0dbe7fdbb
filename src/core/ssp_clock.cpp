// SPDX-License-Identifier: BSD-3-Clause
#include "core/ssp_clock.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/check.hpp"

namespace paracel {
namespace {

constexpr std::uint32_t format = 1;
constexpr std::size_t front_bytes = 8;
constexpr std::size_t worker_bytes = 5;

}  // namespace

ssp_clock::ssp_clock(std::uint32_t workers, std::uint32_t begin) {
  if (workers > most_workers) throw error("clock: " + std::to_string(workers) + " workers are too many");
  finished_.assign(workers, begin);
  in_.assign(workers, true);
  if (workers > 0) crowd_.emplace(begin, workers);
  slowest_ = greatest_ = begin;
}

void ssp_clock::check(std::uint32_t rank) const {
  if (rank >= finished_.size()) {
    throw error("clock: there is no worker of rank " + std::to_string(rank) + " among " +
                std::to_string(finished_.size()));
  }
}

bool ssp_clock::recompute() {
  const auto now = crowd_.empty() ? greatest_ : crowd_.begin()->first;
  PARACEL_CHECK(now >= slowest_);
  return std::exchange(slowest_, now) != now;
}

bool ssp_clock::tick(std::uint32_t rank, std::uint32_t finished) {
  check(rank);
  auto& mine = finished_[rank];
  if (!in_[rank] || finished <= mine) return false;
  const auto old = crowd_.find(mine);
  PARACEL_CHECK(old != crowd_.end());
  if (old->second > 1) {
    ++crowd_[finished];  // first, so that a failed allocation changes nothing
    --old->second;
  } else if (const auto there = crowd_.find(finished); there != crowd_.end()) {
    ++there->second;
    crowd_.erase(old);
  } else {
    auto node = crowd_.extract(old);  // the usual case for the slowest: no allocation
    node.key() = finished;
    crowd_.insert(std::move(node));
  }
  mine = finished;
  greatest_ = std::max(greatest_, finished);
  return recompute();
}

bool ssp_clock::remove(std::uint32_t rank) {
  check(rank);
  if (!in_[rank]) return false;
  in_[rank] = false;
  const auto old = crowd_.find(finished_[rank]);
  PARACEL_CHECK(old != crowd_.end());
  if (--old->second == 0) crowd_.erase(old);
  return recompute();
}

std::uint32_t ssp_clock::finished(std::uint32_t rank) const {
  check(rank);
  return finished_[rank];
}

bool ssp_clock::is_in(std::uint32_t rank) const {
  check(rank);
  return in_[rank];
}

std::vector<std::byte> ssp_clock::encode() const {
  std::vector<std::byte> bytes;
  bytes.reserve(front_bytes + worker_bytes * finished_.size());
  put_fields(bytes, format, workers());
  put_bytes(bytes, finished_.data(), finished_.size());
  for (const bool in : in_) bytes.push_back(std::byte{in});
  return bytes;
}

ssp_clock ssp_clock::decode(std::span<const std::byte> bytes) {
  std::uint32_t written_format = 0;
  std::uint32_t n = 0;
  if (!take_fields(bytes, written_format, n)) throw protocol_error("clock: cut off");
  if (written_format != format) throw protocol_error("clock: unknown format " + std::to_string(written_format));
  if (n > most_workers || bytes.size() != worker_bytes * n) {
    throw protocol_error("clock: the length does not fit " + std::to_string(n) + " workers");
  }
  ssp_clock clock(n);
  clock.crowd_.clear();
  for (std::uint32_t i = 0; i < n; ++i) {
    auto& f = clock.finished_[i];
    load_fields(bytes.data() + std::size_t{4} * i, f);
    const auto in = bytes[std::size_t{4} * n + i];
    if (in > std::byte{1}) throw protocol_error("clock: worker " + std::to_string(i) + " is neither in nor out");
    clock.in_[i] = in == std::byte{1};
    clock.greatest_ = std::max(clock.greatest_, f);
    if (clock.in_[i]) ++clock.crowd_[f];
  }
  clock.recompute();
  return clock;
}

}  // namespace paracel
