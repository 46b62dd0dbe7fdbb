// SPDX-License-Identifier: BSD-3-Clause
#include "mf_in_servers.hpp"

#include <algorithm>
#include <utility>

#include "alg/common/solvers/factor_kernels.hpp"

namespace paracel::alg {

namespace {

constexpr const char* user_count = "_u_cnt";
constexpr const char* item_count = "_i_cnt";

std::vector<std::string> keys_of(const char* prefix, const std::vector<std::string>& ids, const char* suffix = "") {
  std::vector<std::string> keys;
  keys.reserve(ids.size());
  for (const auto& id : ids) keys.push_back(prefix + id + suffix);
  return keys;
}

std::vector<std::string> texts_of(const id_list& ids) {
  std::vector<std::string> texts;
  texts.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) texts.push_back(ids.text(i));
  return texts;
}

/// The bias and the factors of each row.
struct split_rows {
  split_rows(std::span<const double> rows, std::size_t k) {
    for (std::size_t at = 0; at < rows.size(); at += row_width(k)) {
      const auto row = rows.subspan(at, row_width(k));
      bias.push_back(row[bias_at]);
      factors.emplace_back(row.begin() + factors_at, row.end());
    }
  }
  std::vector<double> bias;
  std::vector<std::vector<double>> factors;
};

/// Calls use(index in `keys`, value) for each key that the filter accepts.
template <class V, class F>
void for_accepted(paralg& job, const std::string& file, const std::string& function,
                  const std::vector<std::string>& keys, F use) {
  dict_type<std::string, std::size_t> place;
  for (std::size_t i = 0; i < keys.size(); ++i) place.emplace(keys[i], i);
  job.paracel_read_special_handle<V>(file, function, [&](const std::string& key, const V& value) {
    if (const auto found = place.find(key); found != place.end()) use(found->second, value);
  });
}

template <class V>
std::vector<std::uint8_t> accepted(paralg& job, const std::string& file, const std::string& function,
                                   const std::vector<std::string>& keys) {
  std::vector<std::uint8_t> flags(keys.size());
  for_accepted<V>(job, file, function, keys, [&](std::size_t i, const V&) { flags[i] = 1; });
  return flags;
}

}  // namespace

std::uint64_t mf_in_servers::count_ratings(std::uint64_t own) {
  if (!std::in_range<int>(own))
    throw data_error("found " + std::to_string(own) + " ratings of a worker, want at most 2^31 - 1");
  if (!job_.resumed()) job_.paracel_bupdate("rating_cnt", static_cast<int>(own), {update_.file, update_.functions[0]});
  job_.paracel_sync();
  return static_cast<std::uint64_t>(job_.paracel_read<int>("rating_cnt"));
}

void mf_in_servers::count_worker(const id_list& users, const id_list& items) {
  const auto count = [&](const char* suffix, const id_list& ids) {
    const std::vector<int> one(ids.size(), 1);
    job_.paracel_bupdate_multi(keys_of("", texts_of(ids), suffix), one, {update_.file, update_.functions[0]});
  };
  count(user_count, users);
  count(item_count, items);
}

void mf_in_servers::pull(const std::vector<std::string>& ids, std::span<double> rows) {
  const auto bias = job_.paracel_read_multi<double>(keys_of("item_bias_", ids));
  std::vector<std::vector<double>> factors(ids.size());
  if (k_ > 0) factors = job_.paracel_read_multi<std::vector<double>>(keys_of("H_", ids));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (factors[i].size() != k_)
      throw plugin_error(update_.functions[1] + ": found " + std::to_string(factors[i].size()) + " factors of item " +
                         ids[i] + ", want " + std::to_string(k_));
    const auto row = rows.subspan(i * row_width(k_), row_width(k_));
    row[bias_at] = bias[i];
    row[known_at] = 1;
    std::ranges::copy(factors[i], row.begin() + factors_at);
  }
}

void mf_in_servers::update(const std::vector<std::string>& ids, std::span<const double> deltas) {
  const split_rows parts(deltas, k_);
  if (k_ > 0) job_.paracel_update_multi(keys_of("H_", ids), parts.factors, {update_.file, update_.functions[1]});
  job_.paracel_update_multi(keys_of("item_bias_", ids), parts.bias, {update_.file, update_.functions[2]});
}

void mf_in_servers::write(const char* factors, const char* bias, const std::vector<std::string>& ids,
                          std::span<const double> rows) {
  split_rows parts(rows, k_);
  dict_type<std::string, double> biases;
  dict_type<std::string, std::vector<double>> lists;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    biases.emplace(bias + ids[i], parts.bias[i]);
    if (k_ > 0) lists.emplace(factors + ids[i], std::move(parts.factors[i]));
  }
  job_.paracel_write_multi(biases);
  job_.paracel_write_multi(lists);
}

model_selection mf_in_servers::select(const state_plugin& filter, const id_list& users, std::span<const double> rows,
                                      const id_list& items) {
  const auto user_ids = texts_of(users);
  const auto item_ids = texts_of(items);
  write("W_", "usr_bias_", user_ids, rows);
  job_.paracel_sync();
  model_selection s;
  const auto& f = filter.functions;
  s.user_bias = accepted<double>(job_, filter.file, f[0], keys_of("usr_bias_", user_ids));
  s.item_bias = accepted<double>(job_, filter.file, f[1], keys_of("item_bias_", item_ids));
  s.user_factors = accepted<std::vector<double>>(job_, filter.file, f[2], keys_of("W_", user_ids));
  s.item_factors = accepted<std::vector<double>>(job_, filter.file, f[3], keys_of("H_", item_ids));
  return s;
}

std::vector<std::string> mf_in_servers::user_counts(const std::string& file, const std::string& function,
                                                    const id_list& ids) {
  return counts(file, function, user_count, ids);
}

std::vector<std::string> mf_in_servers::item_counts(const std::string& file, const std::string& function,
                                                    const id_list& ids) {
  return counts(file, function, item_count, ids);
}

std::vector<std::string> mf_in_servers::counts(const std::string& file, const std::string& function, const char* suffix,
                                               const id_list& ids) {
  const auto texts = texts_of(ids);
  std::vector<int> found(ids.size());
  for_accepted<int>(job_, file, function, keys_of("", texts, suffix), [&](std::size_t i, int n) { found[i] = n; });
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] != 0) lines.push_back(texts[i] + '\t' + std::to_string(found[i]));
  }
  return lines;
}

}  // namespace paracel::alg
