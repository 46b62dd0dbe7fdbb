// SPDX-License-Identifier: BSD-3-Clause
#include "als_validate.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <paracel/resumable_loop.hpp>

#include "als.hpp"

namespace paracel::alg {

void als_validate_settings::keys(key_list& k) {
  k.files("rating_input", rating_input, "ratings: user,item,rating; further fields are ignored").required();
  k.files("factor_input", factor_input, "given factors id<tab>f|f|...").required();
  k.files("validate_input", validate_input, "held-out ratings").required();
  entries.keys(k, "user, item and rating", true);
  k.output_folder("output", output, "folder of the results").required();
  k("pattern", transpose, "fmap solves users, smap items", {{"fmap", false}, {"smap", true}});
  k("lambdas", lambdas, "weights of the penalty to try").required().at_least(0);
}

als_validate::als_validate(Comm comm, const std::string& server_info, const als_validate_settings& settings)
    : paralg(server_info, std::move(comm), settings.output, static_cast<int>(settings.lambdas.size())),
      settings_(settings),
      log_(*this, static_cast<int>(settings.lambdas.size()), "validate_rmse") {}

void als_validate::solve() {
  als_one_step problem(*this, settings_.entries, settings_.rating_input, settings_.factor_input, settings_.transpose);
  auto options = rating_options(settings_.entries);
  options.values = entry_options::value_rule::need;
  options.transpose = settings_.transpose;
  const auto held_out = load_some(get_comm(), settings_.validate_input, options, "rating, want user,item,rating");
  als_one_step::errors found;
  std::vector<double> train;
  std::vector<double> validate;
  resumable_loop loop(*this);
  loop.keep("train", train).keep("validate", validate);
  loop.keep("pairs", found.validated).keep("skipped", found.skipped);
  while (loop.next(static_cast<std::int64_t>(settings_.lambdas.size()))) {
    const auto lambda = settings_.lambdas[static_cast<std::size_t>(loop.iteration())];
    found = problem.solve(lambda, &held_out);
    train.push_back(found.train_rmse);
    validate.push_back(found.validate_rmse);
    log_.round(static_cast<int>(train.size()), found.validate_rmse,
               {{"lambda", lambda}, {"train_rmse", found.train_rmse}});
  }
  double best = std::numeric_limits<double>::infinity();
  double best_lambda = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 0; i < settings_.lambdas.size(); ++i) {
    const double lambda = settings_.lambdas[i];
    log_.result("lambda", json_number(lambda) + " train_rmse " + json_number(train[i]) + " validate_rmse " +
                              json_number(validate[i]));
    if (!(validate[i] < best)) continue;
    best = validate[i];
    best_lambda = lambda;
  }
  log_.result("validate_pairs", found.validated);
  log_.result("validate_skipped", found.skipped);
  log_.result("best_lambda", best_lambda);
  log_.result("output", get_output());
}

}  // namespace paracel::alg
