// SPDX-License-Identifier: BSD-3-Clause
//
// Serial mf: one process, one thread, its own parser. Initial values, order and steps are those of mf
// with one worker and 64-bit factors.
//
//     mf_serial TRAIN [--k 32] [--rounds 60] [--alpha .005] [--beta .24] [--seed 0]
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "counter_random.hpp"
#include "ratings.hpp"

namespace {

using serial::counter_random;
using serial::load;
using serial::rating;

/// Numbers the ids of one field in ascending order.
std::unordered_map<std::uint64_t, std::uint32_t> numbered(const std::vector<rating>& ratings,
                                                          std::uint64_t rating::*field) {
  std::unordered_map<std::uint64_t, std::uint32_t> numbers;
  for (const auto& r : ratings) numbers.emplace(r.*field, 0);
  std::vector<std::uint64_t> ids;
  ids.reserve(numbers.size());
  for (const auto& [id, number] : numbers) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (std::size_t i = 0; i < ids.size(); ++i) numbers[ids[i]] = static_cast<std::uint32_t>(i);
  return numbers;
}

/// Calls step(user, rating) in the order of a round: of each tenth of the ratings four users take turns.
template <class Step>
void in_turns(const std::vector<std::uint32_t>& order, const std::vector<std::size_t>& begin, Step&& step) {
  struct run {
    std::uint32_t user;
    std::size_t at, end;
  };
  const std::size_t pieces = 10;
  const std::size_t lanes = 4;
  std::vector<run> runs;
  std::size_t user = 0;  // the next one in `order`, of whose ratings `used` have had their turn
  std::size_t used = 0;
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    auto left = begin.back() * (piece + 1) / pieces - begin.back() * piece / pieces;
    for (runs.clear(); left > 0;) {
      const auto first = begin[order[user]] + used;
      const auto count = std::min(left, begin[order[user] + 1] - first);
      runs.push_back({order[user], first, first + count});
      left -= count;
      used += count;
      if (begin[order[user]] + used < begin[order[user] + 1]) continue;
      ++user;
      used = 0;
    }
    std::size_t next = std::min(lanes, runs.size());
    std::vector<run> taking(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(next));
    for (std::size_t turn = 0; !taking.empty();) {
      if (turn >= taking.size()) turn = 0;
      auto& now = taking[turn];
      step(now.user, now.at++);
      if (now.at == now.end && next < runs.size()) now = runs[next++];
      if (now.at < now.end) ++turn;
      else taking.erase(taking.begin() + static_cast<std::ptrdiff_t>(turn));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::size_t k = 32;
    int rounds = 60;
    double alpha = 0.005;
    double beta = 0.24;
    std::uint64_t seed = 0;
    if (argc < 2) throw std::runtime_error("usage: mf_serial TRAIN [--k N] [--rounds N] [--alpha A] ...");
    for (int i = 2; i + 1 < argc; i += 2) {
      const std::string name = argv[i];
      if (name == "--k") k = std::strtoull(argv[i + 1], nullptr, 10);
      else if (name == "--rounds") rounds = std::atoi(argv[i + 1]);
      else if (name == "--alpha") alpha = std::strtod(argv[i + 1], nullptr);
      else if (name == "--beta") beta = std::strtod(argv[i + 1], nullptr);
      else if (name == "--seed") seed = std::strtoull(argv[i + 1], nullptr, 10);
      else throw std::runtime_error("unknown option " + name);
    }
    const auto input = load(argv[1]);
    const auto users = numbered(input, &rating::user);
    const auto items = numbered(input, &rating::item);
    double mean = 0;
    double least = input.at(0).value;
    double most = least;
    std::vector<std::size_t> begin(users.size() + 1);
    std::vector<std::uint32_t> row;
    row.reserve(input.size());
    for (const auto& r : input) {
      row.push_back(users.find(r.user)->second);
      ++begin[row.back() + 1];
      mean += r.value;
      least = std::min(least, r.value);
      most = std::max(most, r.value);
    }
    mean /= static_cast<double>(input.size());
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    std::vector<std::pair<std::uint32_t, double>> entries(input.size());
    auto next = begin;
    for (std::size_t t = 0; t < input.size(); ++t) {
      entries[next[row[t]]++] = {items.find(input[t].item)->second, input[t].value};
    }
    for (std::size_t u = 0; u < users.size(); ++u) {
      std::stable_sort(entries.begin() + static_cast<std::ptrdiff_t>(begin[u]),
                       entries.begin() + static_cast<std::ptrdiff_t>(begin[u + 1]),
                       [](const auto& x, const auto& y) { return x.first < y.first; });
    }

    std::vector<double> w(users.size() * k);
    std::vector<double> h(items.size() * k);
    std::vector<std::uint64_t> user_ids(users.size());
    for (const auto& [id, u] : users) {
      user_ids[u] = id;
      counter_random random(seed, 1, id);
      for (std::size_t j = 0; j < k; ++j) w[u * k + j] = 0.1 * random.normal();
    }
    for (const auto& [id, i] : items) {
      counter_random random(seed, 2, id);
      for (std::size_t j = 0; j < k; ++j) h[i * k + j] = 0.1 * random.normal();
    }
    std::vector<double> bu(users.size());
    std::vector<double> bi(items.size());
    std::vector<std::uint32_t> order(users.size());
    for (std::size_t u = 0; u < users.size(); ++u) {
      counter_random random(seed, 4, user_ids[u]);
      for (std::size_t n = 1; n <= begin[u + 1] - begin[u]; ++n)
        std::swap(entries[begin[u] + random.below(n)], entries[begin[u] + n - 1]);
    }
    for (int round = 0; round < rounds; ++round) {
      std::iota(order.begin(), order.end(), 0U);
      counter_random of_users(seed, 3, static_cast<std::uint64_t>(round));
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[of_users.below(i)]);
      in_turns(order, begin, [&](std::uint32_t u, std::size_t t) {
        double* wu = w.data() + u * k;
        const auto i = entries[t].first;
        double* hi = h.data() + i * k;
        double p = mean + bu[u] + bi[i];
        for (std::size_t j = 0; j < k; ++j) p += wu[j] * hi[j];
        const double e = entries[t].second - p;
        for (std::size_t j = 0; j < k; ++j) {
          const double old = wu[j];
          wu[j] += alpha * (2 * e * hi[j] - beta * old);
          hi[j] += alpha * (2 * e * old - beta * hi[j]);
        }
        bu[u] += alpha * (2 * e - beta * bu[u]);
        bi[i] += alpha * (2 * e - beta * bi[i]);
      });
    }

    double squares = 0;
    for (const auto& r : input) {
      const auto u = users.find(r.user)->second;
      const auto i = items.find(r.item)->second;
      double p = mean + bu[u] + bi[i];
      for (std::size_t j = 0; j < k; ++j) p += w[u * k + j] * h[i * k + j];
      squares += std::pow(r.value - std::clamp(p, least, most), 2);
    }
    std::printf("rmse %.17g\n", std::sqrt(squares / static_cast<double>(input.size())));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "mf_serial: error: %s\n", e.what());
    return 1;
  }
}
