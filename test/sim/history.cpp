// SPDX-License-Identifier: BSD-3-Clause
#include "test/sim/history.hpp"

#include <algorithm>
#include <bit>
#include <tuple>

#include "core/hash.hpp"
#include "core/ring.hpp"
#include "core/ssp_clock.hpp"

namespace paracel::sim {

using net::status;
using net::verb;

void wrong(const std::string& what) { throw violation(what); }

history::history(simulation& in, std::uint32_t workers, std::uint32_t staleness, bool staged)
    : in_(in), staleness_(staleness), finished_(workers), clock_seen_(workers) {
  constexpr int how_many_counters = 16;
  constexpr int how_many_sums = 8;
  for (int i = 0; i < how_many_counters; ++i) counters_.push_back({"counter" + std::to_string(i), 0, 0, 0, {}});
  for (int i = 0; staged && i < how_many_sums; ++i) sums_.push_back({"sum" + std::to_string(i), {}});
}

void history::resume_from(const snapshot& s, std::uint32_t clock) {
  for (std::size_t i = 0; i < counters_.size(); ++i) {
    auto& c = counters_[i];
    c.begun = c.acknowledged = c.seen = s.counters.at(i);
  }
  if (!s.sums.empty()) sums_ = s.sums;
  std::ranges::fill(finished_, clock);
  std::ranges::fill(clock_seen_, clock);
}

std::set<std::uint16_t> history::partitions() const {
  std::set<std::uint16_t> all;
  for (const auto& c : counters_) all.insert(partition_of(hash_key(c.key)));
  for (const auto& s : sums_) all.insert(partition_of(hash_key(s.key)));
  return all;
}

void history::answered_add(counter& c, std::int64_t found, std::int64_t seen_before) {
  ++answers_;
  ++c.acknowledged;
  in_.log("added", index_of(c), static_cast<std::uint64_t>(found));
  if (!c.results.insert(found).second) wrong("two additions to " + c.key + " have made it " + std::to_string(found));
  if (found <= seen_before) {
    wrong("an addition made " + c.key + " " + std::to_string(found) + ", it was " + std::to_string(seen_before) +
          " before it began");
  }
  saw(c, found);
}

void history::answered_read(counter& c, std::int64_t found, std::int64_t seen_before) {
  ++answers_;
  in_.log("read", index_of(c), static_cast<std::uint64_t>(found));
  if (found < seen_before) {
    wrong(c.key + " is read as " + std::to_string(found) + ", it was " + std::to_string(seen_before) + " before");
  }
  saw(c, found);
}

void history::saw(counter& c, std::int64_t found) {
  if (found > c.begun)
    wrong(c.key + " is " + std::to_string(found) + " after " + std::to_string(c.begun) + " additions");
  c.seen = std::max(c.seen, found);
}

void history::answered_read(const sum& s, double found, std::uint32_t clock) {
  ++answers_;
  in_.log("sum", clock, std::bit_cast<std::uint64_t>(found));
  auto parts = s.parts;
  std::erase_if(parts, [&](const sum::part& p) { return p.clock >= clock; });
  std::ranges::stable_sort(parts, {}, [](const sum::part& p) { return std::tie(p.clock, p.rank); });
  double want = 0;
  for (const auto& p : parts) want += p.number;
  if (std::bit_cast<std::uint64_t>(found) != std::bit_cast<std::uint64_t>(want)) {
    wrong(s.key + " is " + std::to_string(found) + " at clock " + std::to_string(clock) + ", the " +
          std::to_string(parts.size()) + " numbers that were staged make " + std::to_string(want));
  }
}

void history::asks(std::uint32_t rank) const {
  const auto mine = finished_[rank];
  const auto least = *std::ranges::min_element(finished_);
  if (mine != gone && least < needed_minimum(mine, staleness_)) {
    wrong("worker " + std::to_string(rank) + " continues after " + std::to_string(mine) +
          " iterations, the slowest has " + "finished " + std::to_string(least) + ", the staleness is " +
          std::to_string(staleness_));
  }
}

void history::leaves(std::uint32_t rank) {
  end_clock_ = std::max(end_clock_, finished_.at(rank) + 1);
  finished_[rank] = gone;
}

void history::dies(std::uint32_t rank) {
  leaves(rank);
  has_died_ = true;
}

void history::stops(std::uint32_t rank, std::uint32_t clock) {
  in_.log("stop at", rank, clock);
  if (has_died_) return;  // no job resumes from there
  auto& there = stopped_[clock];
  there.insert(rank);
  if (there.size() != finished_.size()) return;
  snapshot s;
  for (const auto& c : counters_) {
    if (c.acknowledged != c.begun) wrong("all workers have stopped, and an addition to " + c.key + " is not answered");
    s.counters.push_back(c.acknowledged);
  }
  s.sums = sums_;
  snapshots_[clock] = std::move(s);
}

void history::answered_clock(std::uint32_t rank, std::uint32_t slowest, std::uint32_t needed) {
  in_.log("clock", rank, slowest);
  const auto who = "worker " + std::to_string(rank);
  const auto least = *std::ranges::min_element(finished_);
  if (slowest > least) {
    wrong(who + " hears of clock " + std::to_string(slowest) + ", the slowest has finished " + std::to_string(least));
  }
  if (slowest < needed)
    wrong(who + " may continue at clock " + std::to_string(slowest) + " and needs " + std::to_string(needed));
  const auto last = clock_seen_[rank];
  if (slowest < last) {
    wrong("the clock went back from " + std::to_string(last) + " to " + std::to_string(slowest) + " for " + who);
  }
  clock_seen_[rank] = slowest;
}

void history::observe_request(const connection& c, std::span<const std::byte> frame) {
  net::request_view r;
  if (net::decode(frame, 0, r) != nullptr || !clients_.contains(r.header.client)) return;
  if (r.header.what < verb::pull || r.header.what > verb::update_at) return;
  sent_on_[{r.header.client, r.header.sequence}] = c.number;
  asked_[{c.number, r.header.sequence}] = {r.header.partition, r.header.what};
}

void history::observe_reply(const process& by, const connection& c, std::span<const std::byte> frame) {
  net::reply_view r;
  if (net::decode(frame, 0, r) != nullptr || (r.header.result != status::ok && r.header.result != status::not_found))
    return;
  const auto at = asked_.find({c.number, r.header.sequence});
  if (at == asked_.end() || at->second.second != r.header.what) return;
  const auto partition = at->second.first;
  auto& last = primary_[partition];
  if (r.header.epoch < last.first || (r.header.epoch == last.first && r.header.server != last.second)) {
    wrong("partition " + std::to_string(partition) + " has two primaries: " + by.name() + " answers in epoch " +
          std::to_string(r.header.epoch) + " after another one in epoch " + std::to_string(last.first));
  }
  last = {r.header.epoch, r.header.server};
}

std::uint64_t history::connection_of(std::uint64_t client, std::uint64_t sequence) const {
  const auto at = sent_on_.find({client, sequence});
  return at == sent_on_.end() ? 0 : at->second;
}

void history::check_end() const {
  for (const auto& c : counters_) {
    if (has_died_ && c.seen >= c.acknowledged && c.seen <= c.begun) continue;
    if (c.acknowledged != c.begun) wrong(c.key + " has additions without an answer");
    if (c.seen != c.acknowledged) {
      wrong(c.key + " is " + std::to_string(c.seen) + " at the end, " + std::to_string(c.acknowledged) +
            " additions were acknowledged");
    }
  }
}

}  // namespace paracel::sim
