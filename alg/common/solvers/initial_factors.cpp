// SPDX-License-Identifier: BSD-3-Clause
#include "initial_factors.hpp"

#include <algorithm>
#include <utility>

#include "alg/common/output/model_file.hpp"

namespace paracel::alg {

void factor_rows::add(const factor_rows& more) {
  if (more.ids.size() == 0) return;
  if (ids.size() == 0) ids = id_list::empty(more.ids.numeric());
  rows.insert(rows.end(), more.rows.begin(), more.rows.end());
  if (ids.numeric() && !more.ids.numeric()) {
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < ids.size(); ++i) texts.push_back(ids.text(i));
    ids = id_list(texts);
  }
  for (std::size_t i = 0; i < more.ids.size(); ++i) {
    if (ids.numeric()) ids.push_back(more.ids.number(i));
    else ids.push_back(std::string_view(more.ids.text(i)));
  }
}

initial_factors::initial_factors(const std::string& path, const std::string& algorithm, std::size_t k,
                                 const std::string& k_place)
    : head_(open_model(path, algorithm)) {
  want_as_in_model(k_place, std::to_string(k), std::to_string(head_.k));
  const model_reader in(path, algorithm);
  for (const bool user : {true, false}) {
    auto& to = user ? users_ : items_;
    to.known = read_factors(in, head_.k, user ? "W" : "H", user ? "ubias" : "ibias");
    to.width = row_width(head_.k);
    to.number();
  }
}

rating_scale initial_factors::with(rating_scale of_ratings) const {
  return {head_.scale.mean, std::min(head_.scale.least, of_ratings.least), std::max(head_.scale.most, of_ratings.most)};
}

void initial_factors::side::number() {
  for (std::size_t i = 0; i < known.ids.size(); ++i) place.emplace(known.ids.key(i), i);
}

void initial_factors::side::take(std::uint64_t key, std::span<double> to) const {
  const auto at = place.find(key);
  if (at != place.end()) std::ranges::copy(std::span(known.rows).subspan(at->second * width, width), to.begin());
}

factor_rows initial_factors::side::others(Comm comm, std::span<const std::uint64_t> keys) const {
  std::vector<std::int64_t> used(known.ids.size());
  for (const auto key : keys)
    if (const auto at = place.find(key); at != place.end()) used[at->second] = 1;
  comm.allreduce(used, reduce_op::max);
  factor_rows out;
  out.ids = id_list::empty(known.ids.numeric());
  const auto workers = comm.get_size();
  for (std::size_t i = used.size() * comm.get_rank() / workers; i < used.size() * (comm.get_rank() + 1) / workers;
       ++i) {
    if (used[i] != 0) continue;
    if (known.ids.numeric()) out.ids.push_back(known.ids.number(i));
    else out.ids.push_back(known.ids.name(i));
    const auto row = std::span(known.rows).subspan(i * width, width);
    out.rows.insert(out.rows.end(), row.begin(), row.end());
  }
  return out;
}

}  // namespace paracel::alg
