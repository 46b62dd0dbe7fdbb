// SPDX-License-Identifier: BSD-3-Clause
//
// The choice of an item in the servers, as in Paracel 0.3. Each worker offers items from its own part of them, in id
// order.
//
//     smallest_error_<n> | item, error   a node: the function keeps one of the workers' offers
//     err_<item>         | error         the root: those that the filter accepts are ranked, to find the n-th best
//
// An item is identified by its id if that is a number, otherwise by its place in the order of the names.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "dtr.hpp"

namespace paracel::alg {

namespace {

constexpr const char* updater = "smallest_error_updater";
constexpr const char* filter = "small_errors_filter";
constexpr std::string_view error_prefix = "err_";
constexpr auto nothing = std::numeric_limits<std::uint64_t>::max();  // Paracel's id for no item

}  // namespace

bool decision_tree_rec::offers(std::size_t item) const noexcept {
  return item * get_worker_size() / items() == get_worker_id();
}

std::size_t decision_tree_rec::choose(const std::vector<dtr_candidate>& ranking, double norm) {
  const auto& ids = items_.ids;
  std::pair<std::uint64_t, double> best{nothing, std::numeric_limits<double>::max()};
  const auto own = std::ranges::find_if(ranking, [&](const auto& c) { return offers(c.item); });
  if (own != ranking.end()) best = {ids.numeric() ? ids.number(own->item) : own->item, norm - own->gain};
  best = servers_->combine("smallest_error_", best, updater);
  if (best.first == nothing) return items();
  const auto found = ids.numeric() ? ids.find(best.first) : std::optional<std::size_t>(best.first);
  if (!found || *found >= items())
    throw plugin_error(std::string(updater) + ": returned the item " + std::to_string(best.first) +
                       ", which does not exist");
  return *found;
}

std::size_t decision_tree_rec::choose_root(const std::vector<dtr_candidate>& ranking, double norm, std::uint64_t nth) {
  const auto& ids = items_.ids;
  dict_type<std::string, double> own;
  for (const auto& c : ranking) {
    if (own.size() > nth) break;
    if (offers(c.item)) own.emplace(std::string(error_prefix) + ids.text(c.item), norm - c.gain);
  }
  paracel_write_multi(own);
  paracel_sync();
  std::vector<std::pair<double, std::size_t>> offered;
  for (const auto& [key, error] : paracel_read_special<double>(settings_.handle_file, filter)) {
    if (!key.starts_with(error_prefix)) continue;
    const auto text = std::string_view(key).substr(error_prefix.size());
    const auto at = ids.numeric() ? ids.find(std::stoull(std::string(text))) : ids.find(text);
    if (at) offered.emplace_back(error, *at);
  }
  paracel_sync();  // all have read
  for (const auto& [key, error] : own) paracel_remove(key);
  std::ranges::sort(offered);
  return nth < offered.size() ? offered[nth].second : items();
}

}  // namespace paracel::alg
