// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/rebalancer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace paracel::srv {
namespace {

/// A shard thread. Its load is divided by its share of what all servers can do.
struct thread_load {
  std::size_t server = 0;
  double keys = 0;
  double capacity = 1;
  [[nodiscard]] double relative() const noexcept { return keys / capacity; }
};

/// The threads of all servers; those of server i begin at first[i].
struct thread_loads {
  explicit thread_loads(std::span<const measured_server> servers) {
    for (std::size_t i = 0; i < servers.size(); ++i) {
      const auto& s = servers[i];
      first.push_back(bins.size());
      weight += s.weight;
      for (std::uint32_t t = 0; t < s.threads; ++t) {
        const double keys = t < s.load.threads.size() ? s.load.threads[t] : 0;
        bins.push_back({i, keys, s.weight / s.threads});
        all += keys;
      }
    }
  }
  [[nodiscard]] std::size_t at(std::span<const measured_server> servers, std::size_t server,
                               std::uint16_t partition) const noexcept {
    return first[server] + shard_of(partition, servers[server].threads);
  }
  [[nodiscard]] std::size_t busiest() const noexcept {
    return static_cast<std::size_t>(std::ranges::max_element(bins, {}, &thread_load::relative) - bins.begin());
  }
  /// The relative load of each thread if all had their fair share.
  [[nodiscard]] double fair() const noexcept { return all / weight; }

  std::vector<thread_load> bins;
  std::vector<std::size_t> first;
  double all = 0;
  double weight = 0;
};

/// The variance of keys that were counted. In the worst case, that of requests for many, a count stands for 256 keys,
/// and by itself a partition's has the variance of a Poisson distribution; the sum of a thread has a third of it,
/// because the distances between counts are uniform. Half of it: up to half of a thread's load moves.
double variance_of(double keys) noexcept { return keys * server_load::one_of * server_load::coarse / 2; }

/// Whether a server can be given this partition, after so many bytes.
bool has_room(const server_load& of, std::uint64_t given, const server_load::partition& p) noexcept {
  return !of.room || (p.bytes != 0 && given + p.bytes <= *of.room / 2);
}

struct known_partition {
  server_load::partition what;
  std::size_t from = 0;  // server
  bool moves = false;
};

}  // namespace

double rebalancer::imbalance(std::span<const measured_server> servers) {
  const thread_loads now(servers);
  return now.all > 0 ? now.bins[now.busiest()].relative() / now.fair() : 1;
}

std::vector<placement> rebalancer::consider(std::span<const measured_server> servers, time_point now) {
  std::erase_if(moved_, [&](const auto& m) { return now - m.second >= limits_.stays; });
  if (servers.size() < 2 || now < not_before_) return {};
  thread_loads is(servers);
  if (!(is.all > 0)) return {};
  const double fair = is.fair();
  const auto top = is.bins[is.busiest()];
  const double before = top.relative();
  if (promised_) {
    const bool kept = before / fair <= (promised_->before + promised_->after) / 2;
    pause_ = kept ? limits_.pause : std::min(2 * pause_, limits_.most_pause);
    promised_.reset();
    if (!kept) {
      not_before_ = now + pause_;
      return {};
    }
  }
  // How wrong the sampled load of that thread may be.
  const double seconds = servers[top.server].load.seconds;
  const double noise = limits_.deviations * std::sqrt(variance_of(top.keys) / std::max(seconds, 1e-3)) / top.capacity;
  if (before <= fair * (1 + limits_.excess) + noise) return {};

  std::vector<known_partition> known;
  for (std::size_t i = 0; i < servers.size(); ++i)
    for (const auto& p : servers[i].load.partitions)
      if (p.keys * servers[i].load.seconds >= limits_.least_counted * server_load::one_of && !moved_.contains(p.number))
        known.push_back({p, i});

  struct chosen {
    std::uint16_t partition;
    std::size_t to;
  };
  std::vector<chosen> moves;
  std::size_t best_count = 0;  // of moves: the first so many save most
  double best_saved = 0;
  double best_after = before;
  double cost = limits_.keys_a_change;
  std::vector<std::uint64_t> given(servers.size());  // bytes
  while (moves.size() < limits_.most_moves) {
    const auto from = is.busiest();
    const double most = is.bins[from].relative();
    if (most <= fair * (1 + limits_.settled)) break;
    known_partition* best = nullptr;
    std::size_t best_to = 0;
    double best_most = most;
    for (auto& k : known) {
      if (k.moves || is.at(servers, k.from, k.what.number) != from || k.what.keys <= 0) continue;
      const double left = (is.bins[from].keys - k.what.keys) / is.bins[from].capacity;
      for (std::size_t to = 0; to < servers.size(); ++to) {
        if (to == k.from || !has_room(servers[to].load, given[to], k.what)) continue;
        const auto& b = is.bins[is.at(servers, to, k.what.number)];
        const double then = std::max(left, (b.keys + k.what.keys) / b.capacity);
        const bool lower = then < best_most;
        if (lower || (best != nullptr && then == best_most && k.what.bytes < best->what.bytes)) {
          best = &k;
          best_to = to;
          best_most = then;
        }
      }
    }
    if (best == nullptr) break;  // whatever the busiest thread gives away would only make another one as busy
    auto& source = is.bins[from];
    auto& target = is.bins[is.at(servers, best_to, best->what.number)];
    source.keys -= best->what.keys;
    target.keys += best->what.keys;
    best->moves = true;
    given[best_to] += best->what.bytes;
    moves.push_back({best->what.number, best_to});
    cost += static_cast<double>(best->what.bytes) / limits_.bytes_a_key;
    const double after = is.bins[is.busiest()].relative();
    const double saved = (before - after) * top.capacity * limits_.horizon - cost;
    if (saved > best_saved) {
      best_saved = saved;
      best_count = moves.size();
      best_after = after;
    }
  }
  if (best_count == 0 || before - best_after < std::max(limits_.least_gain * before, noise)) return {};
  moves.resize(best_count);
  std::vector<placement> all;
  for (const auto& m : moves) {
    all.push_back({m.partition, servers[m.to].slot});
    moved_[m.partition] = now;
  }
  std::ranges::sort(all, {}, &placement::partition);
  promised_ = promise{before / fair, best_after / fair};
  not_before_ = now + pause_;
  return all;
}

}  // namespace paracel::srv
