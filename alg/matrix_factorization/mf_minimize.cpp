// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include <paracel/optim.hpp>

#include "alg/common/output/warning.hpp"
#include "alg/common/solvers/sum_over_workers.hpp"
#include "mf.hpp"
#include "mf_objective.hpp"

namespace paracel::alg {

/// Training by cg or bfgs. The model is then in users_ and in the table of items.
void matrix_factorization::minimize() {
  const std::size_t width = row_width(settings_.k);
  // The number of ratings of each item, and the sum of squared deviations from the mean.
  std::vector<double> sums(ratings_.columns_total + 1);
  for (const auto c : ratings_.column) sums[ratings_.column_number[c]] += 1;
  for (const double r : ratings_.value) sums.back() += (r - scale_.mean) * (r - scale_.mean);
  sum_over_workers(get_comm(), sums);
  const double deviation = std::sqrt(sums.back() / static_cast<double>(ratings_.entries_total));
  sums.pop_back();
  mf_objective objective(ratings_, settings_.k, scale_.mean, deviation, settings_.penalties, sums);

  // The same start as sgd's.
  const auto keys = keys_of(all_column_ids(get_comm(), ratings_));
  optim::settings how;
  std::vector<double> row(width);
  how.start.resize(objective.dimension());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    start_item(keys[i], row);
    objective.put_item(i, row, how.start);
  }
  for (std::size_t u = 0; u < ratings_.rows(); ++u) {
    start_user(u, row);
    objective.put_user(u, row, how.start);
  }
  how.how = settings_.method == mf_method::cg ? optim::method::cg : optim::method::lbfgs;
  how.scale = 1;
  how.max_steps = settings_.rounds;
  how.objective_tolerance = settings_.tolerance;
  how.gradient_tolerance = 0;
  how.watch = [&](const optim::progress& now) {
    log_.round(now.step, now.value, {{"gradient_norm", now.gradient_norm}, {"evaluations", now.evaluations}});
  };
  const auto found = optim::minimize(*this, objective, how);
  objective_ = found.value;
  rounds_done_ = found.steps;
  log_.result("ended", found.text());
  // Without a step that lowers the objective any more, gradients are small at a minimum.
  constexpr double small = 1e-3;
  if (found.why == optim::ending::steps ||
      (found.why == optim::ending::line_search && found.gradient_norm > small * found.first_gradient_norm)) {
    warn(get_comm(), "not converged: " + found.text() + "; raise rounds or tolerance");
    warn_of_spread(get_comm(), "the ratings", spread_, "start and the penalties");
  }

  users_.resize(ratings_.rows() * width);
  for (std::size_t u = 0; u < ratings_.rows(); ++u)
    objective.get_user(u, found.w, std::span(users_).subspan(u * width, width));
  // Each worker pushes a range of the items.
  const std::size_t first = keys.size() * get_worker_id() / get_worker_size();
  const std::size_t last = keys.size() * (get_worker_id() + 1) / get_worker_size();
  std::vector<double> rows((last - first) * width);
  for (std::size_t i = first; i < last; ++i)
    objective.get_item(i, found.w, std::span(rows).subspan((i - first) * width, width));
  push_rows(model_->items(), std::span(keys).subspan(first, last - first), rows);
  paracel_sync();
}

}  // namespace paracel::alg
