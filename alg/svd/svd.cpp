// SPDX-License-Identifier: BSD-3-Clause
#include "svd.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "alg/common/output/divergence.hpp"
#include "alg/common/output/load_cache_keys.hpp"
#include "alg/common/output/model_file.hpp"
#include "alg/common/output/warning.hpp"
#include "alg/common/solvers/sum_over_workers.hpp"
#include "gram_kernel.hpp"

namespace paracel::alg {

sparse_operator::sparse_operator(Comm comm, const sparse_rows& a)
    : comm_(std::move(comm)), a_(a), rank_(comm_.get_rank()), give_(comm_.get_size()) {
  const std::size_t size = comm_.get_size();
  for (std::size_t w = 0; w <= size; ++w) column_first_.push_back(a.columns_total * w / size);
  // Local columns ascend by number, so the columns of each owner are contiguous.
  std::vector<std::vector<std::uint64_t>> wanted(size);
  need_first_.assign(size + 1, a.column_number.size());
  for (std::size_t w = 0; w < size; ++w) {
    const auto begin = std::lower_bound(a.column_number.begin(), a.column_number.end(), column_first_[w]);
    const auto end = std::lower_bound(a.column_number.begin(), a.column_number.end(), column_first_[w + 1]);
    need_first_[w] = static_cast<std::size_t>(begin - a.column_number.begin());
    wanted[w].assign(begin, end);
  }
  std::vector<std::vector<std::uint64_t>> asked;
  comm_.alltoall(wanted, asked);
  for (std::size_t w = 0; w < size; ++w) {
    for (const auto number : asked[w]) give_[w].push_back(static_cast<std::uint32_t>(number - column_first_[rank_]));
  }
}

/// The rows of v for the local columns, `stride` numbers apart.
void sparse_operator::fetch_columns(const tall_block& v, double* to, std::size_t stride) {
  const auto width = static_cast<std::size_t>(v.cols());
  const std::size_t bytes = width * sizeof(double);
  std::vector<byte_vector> blocks(give_.size());
  for (std::size_t w = 0; w < give_.size(); ++w) {
    if (w == rank_) continue;
    blocks[w].resize(give_[w].size() * bytes);
    for (std::size_t i = 0; i < give_[w].size(); ++i)
      std::memcpy(blocks[w].data() + i * bytes, v.data() + give_[w][i] * width, bytes);
  }
  if (give_.size() > 1) blocks = comm_.alltoall_bytes(blocks);
  for (std::size_t w = 0; w < give_.size(); ++w) {
    double* out = to + need_first_[w] * stride;
    for (std::size_t i = 0; i < need_first_[w + 1] - need_first_[w]; ++i, out += stride) {
      if (w == rank_) std::memcpy(out, v.data() + give_[w][i] * width, bytes);
      else std::memcpy(out, blocks[w].data() + i * bytes, bytes);
    }
  }
}

void sparse_operator::times(const tall_block& v, tall_block& u) {
  const auto width = v.cols();
  local_.resize(static_cast<Eigen::Index>(a_.column_ids.size()), width);
  fetch_columns(v, local_.data(), static_cast<std::size_t>(width));
  u.setZero(static_cast<Eigen::Index>(a_.rows()), width);
  for (std::size_t i = 0; i < a_.rows(); ++i) {
    double* __restrict row = u.data() + i * static_cast<std::size_t>(width);
    for (std::uint64_t e = a_.begin[i]; e < a_.begin[i + 1]; ++e) {
      const double* __restrict from = local_.data() + a_.column[e] * static_cast<std::size_t>(width);
      const double x = a_.value[e];
      for (Eigen::Index j = 0; j < width; ++j) row[j] += x * from[j];
    }
  }
}

void sparse_operator::transposed_times(const tall_block& u, tall_block& v) {
  const auto width = u.cols();
  local_.setZero(static_cast<Eigen::Index>(a_.column_ids.size()), width);
  for (std::size_t i = 0; i < a_.rows(); ++i) {
    const double* __restrict row = u.data() + i * static_cast<std::size_t>(width);
    for (std::uint64_t e = a_.begin[i]; e < a_.begin[i + 1]; ++e) {
      double* __restrict to = local_.data() + a_.column[e] * static_cast<std::size_t>(width);
      const double x = a_.value[e];
      for (Eigen::Index j = 0; j < width; ++j) to[j] += x * row[j];
    }
  }
  return_columns(local_.data(), static_cast<std::size_t>(width), static_cast<std::size_t>(width), v);
}

void sparse_operator::gram_times(const tall_block& v, tall_block& w) {
  constexpr std::size_t line = 64 / sizeof(double);
  const auto width = static_cast<std::size_t>(v.cols());
  const std::size_t stride = gram_stride(width);
  both_.assign(2 * stride * a_.column_ids.size() + line, 0.0);
  const auto past = reinterpret_cast<std::uintptr_t>(both_.data()) / sizeof(double) % line;
  double* const both = both_.data() + (line - past) % line;
  fetch_columns(v, both, 2 * stride);
  add_gram_product(a_.begin, a_.column, a_.value, both, stride);
  return_columns(both + stride, 2 * stride, width, w);
}

/// v: the sums over the workers of their rows `from`, `stride` numbers apart, of the local columns.
void sparse_operator::return_columns(const double* from, std::size_t stride, std::size_t width, tall_block& v) {
  if (servers_ != nullptr) return sum_own_columns(from, stride, width, v);
  const std::size_t bytes = width * sizeof(double);
  std::vector<byte_vector> blocks(give_.size());
  for (std::size_t w = 0; w < give_.size(); ++w) {
    if (w == rank_) continue;
    const std::size_t count = need_first_[w + 1] - need_first_[w];
    blocks[w].resize(count * bytes);
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(blocks[w].data() + i * bytes, from + (need_first_[w] + i) * stride, bytes);
  }
  if (give_.size() > 1) blocks = comm_.alltoall_bytes(blocks);
  v.setZero(static_cast<Eigen::Index>(columns()), static_cast<Eigen::Index>(width));
  std::vector<double> row(width);
  // In rank order, so that results are bit-identical in every run.
  for (std::size_t w = 0; w < give_.size(); ++w) {
    const auto* own = from + need_first_[w] * stride;
    for (std::size_t i = 0; i < give_[w].size(); ++i) {
      if (w == rank_) std::memcpy(row.data(), own + i * stride, bytes);
      else std::memcpy(row.data(), blocks[w].data() + i * bytes, bytes);
      double* to = v.data() + give_[w][i] * width;
      for (std::size_t j = 0; j < width; ++j) to[j] += row[j];
    }
  }
}

/// The same for the own columns, in the servers: a worker adds a list of numbers for each owner,
/// with zeros for columns that it does not have.
void sparse_operator::sum_own_columns(const double* from, std::size_t stride, std::size_t width, tall_block& v) {
  std::vector<std::vector<double>> parts(give_.size());
  for (std::size_t w = 0; w < give_.size(); ++w) {
    parts[w].resize((column_first_[w + 1] - column_first_[w]) * width);
    for (std::size_t c = need_first_[w]; c < need_first_[w + 1]; ++c) {
      const auto* row = from + c * stride;
      std::copy(row, row + width, parts[w].data() + (a_.column_number[c] - column_first_[w]) * width);
    }
  }
  const auto own = servers_->combine_own("AtU_", parts, function_);
  if (own.size() != columns() * width) throw plugin_error(function_ + ": returned a different number of elements");
  v.resize(static_cast<Eigen::Index>(columns()), static_cast<Eigen::Index>(width));
  std::copy(own.begin(), own.end(), v.data());
}

void sparse_operator::sum(std::span<double> values) {
  if (servers_ == nullptr) return sum_over_workers(comm_, values);
  const auto all = servers_->combine("sum_", std::vector<double>(values.begin(), values.end()), function_);
  if (all.size() != values.size()) throw plugin_error(function_ + ": returned a different number of elements");
  std::copy(all.begin(), all.end(), values.begin());
}

void sparse_operator::largest(std::span<double> values) {
  std::vector<double> all(values.begin(), values.end());
  comm_.allreduce(all, reduce_op::max);
  std::copy(all.begin(), all.end(), values.begin());
}

void svd_settings::keys(key_list& k) {
  k.files("input", input, "entries: row,column,value, or MatrixMarket").required();
  entries.keys(k, "row, column and value");
  duplicates_key(k, duplicates);
  cache_keys(k, cache);
  output_keys(k, output);
  format_key(k, format, "format of the vectors");
  k("k", krylov.k, "number of singular triplets").at_least(1).at_most(4096);
  k("rounds", krylov.steps, "maximum number of steps, each a product of A'A with k + 2 columns")
      .at_least(1)
      .at_most(1000000);
  k("tolerance", krylov.tolerance, "largest permitted residual, relative to the greatest singular value").above(0);
  k("basis", krylov.basis,
    "columns kept before a restart, at least three times k + 2; 0: ten times k + 2, up to 40 times if rounds would "
    "not suffice")
      .at_least(0)
      .at_most(100000);
  k("seed", krylov.seed, "seed of the initial vectors").at_least(0);
  k("debug", debug, "print the residual of each step");
  k.plugin("update_file", update.file, "plug-in that adds the workers' sums in the servers; default: a collective")
      .not_resumable();
  update.function_keys(k, "update_file",
                       {{"update_function", "svd_updater", "function of update_file; default svd_updater"}});
}

svd::svd(Comm comm, const std::string& server_info, const svd_settings& settings)
    : paralg(server_info, std::move(comm), settings.output, settings.krylov.steps),
      settings_(settings),
      log_(*this, settings.krylov.steps, "residual", settings.debug) {}

namespace {

/// Divides values by the greatest power of two that is at most their greatest size, which is exact: otherwise their
/// squares could overflow, or become 0. Returns: that power. A collective.
double scale_by_power_of_two(Comm comm, std::vector<double>& values) {
  double most = 0;
  for (const double v : values) most = std::max(most, std::abs(v));
  comm.allreduce(most, reduce_op::max);
  if (most == 0) return 1;
  const int shift = std::ilogb(most);
  for (auto& v : values) v = std::scalbn(v, -shift);
  return std::scalbn(1.0, shift);
}

}  // namespace

void svd::solve() {
  entry_options options;
  settings_.entries.apply(options);
  options.duplicates = settings_.duplicates;
  options.cache = settings_.cache;
  auto a = load_some(get_comm(), settings_.input, options, "entry, want row,column,value");
  const double unit = scale_by_power_of_two(get_comm(), a.value);
  sparse_operator op(get_comm(), a);
  std::optional<server_fold> servers;
  if (settings_.update.given()) op.sum_in(servers.emplace(*this, settings_.update.file), settings_.update.functions[0]);
  else settings_.krylov.job = this;  // sums in the servers make commits
  settings_.krylov.progress = [&](int step, std::size_t good, double residual) {
    log_.round(step, residual, {{"converged", static_cast<double>(good)}});
  };
  auto t = block_krylov(op, settings_.krylov);
  for (auto& s : t.sigma) s *= unit;
  for (auto& r : t.residual) r *= unit;

  const auto columns = all_column_ids(get_comm(), a);
  auto own = id_list::empty(columns.numeric());
  for (std::size_t c = op.first_column(); c < op.first_column() + op.columns(); ++c) {
    if (columns.numeric()) own.push_back(columns.number(c));
    else own.push_back(columns.name(c));
  }
  const std::size_t k = t.sigma.size();
  model_writer out(*this, "svd", settings_.format);
  out.fields().add("k", static_cast<std::uint64_t>(k)).add("rows", a.rows_total()).add("columns", a.columns_total);
  out.fields().add("converged", t.converged).add("rounds", static_cast<std::uint64_t>(t.steps));
  out.add("sigma", t.sigma);
  if (k > 0) {
    const tall_block u = t.u;
    const tall_block v = t.v;
    out.add_rows<double>("U", std::span(u.data(), static_cast<std::size_t>(u.size())), {k}, &a.row_ids);
    out.add_rows<double>("V", std::span(v.data(), static_cast<std::size_t>(v.size())), {k}, &own);
  }
  out.finish();
  log_.result("rounds", static_cast<std::uint64_t>(t.steps));
  log_.result("converged", std::string(t.converged ? "yes" : "no"));
  log_.result("rank", static_cast<std::uint64_t>(k));
  for (std::size_t j = 0; j < k; ++j) log_.result(("sigma_" + std::to_string(j + 1)).c_str(), t.sigma[j]);
  const double residual = k == 0 ? 0.0 : *std::max_element(t.residual.begin(), t.residual.end());
  log_.result("residual", residual);
  if (k > 0) check_divergence({"the greatest value", "want smaller entries"}, t.steps, t.sigma[0], 0);
  if (!t.converged)
    warn_not_converged(get_comm(), t.steps, "the residual", residual / t.sigma[0], settings_.krylov.tolerance,
                       "raise rounds, basis or tolerance");
  log_.result("output", get_output());
}

}  // namespace paracel::alg
