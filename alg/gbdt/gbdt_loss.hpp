// SPDX-License-Identifier: BSD-3-Clause
//
// The losses of gbdt: values, derivatives with respect to the margins, and what a margin predicts.
//
//     squared    (y - m)^2 / 2                             m predicts m
//     log        log(1 + exp(m)) - y m        y 0 or 1     p = 1 / (1 + exp(-m))
//     softmax    log sum_k exp(m_k) - m_y     y a class    p_k = exp(m_k) / sum_j exp(m_j)
//     lambdamart over pairs of rows of a group: ranking.hpp
//
// Second derivatives are XGBoost's: of softmax 2 p (1 - p), twice the diagonal of the Hessian, so that each class can
// step independently of the others (LightGBM's factor is K / (K - 1) for K classes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/collectives.hpp>
#include <paracel/settings.hpp>

namespace paracel::alg {

enum class boosting_loss { squared, log, softmax, lambdamart };

inline constexpr choices<boosting_loss> boosting_losses = {{"squared", boosting_loss::squared},
                                                           {"log", boosting_loss::log},
                                                           {"softmax", boosting_loss::softmax},
                                                           {"lambdamart", boosting_loss::lambdamart}};

/// The lower bound of second derivatives.
inline constexpr double least_curvature_of_loss = 1e-16;

/// Labels and weights of rows; without weights each is 1. Margins of rows: `outputs` numbers each.
struct labelled_rows {
  std::span<const double> label;
  std::span<const double> weight;
  std::uint64_t rows_total = 0;  ///< of all workers

  [[nodiscard]] double weight_of(std::size_t i) const { return weight.empty() ? 1.0 : weight[i]; }
};

/// Throws: data_error when a target or weight is beyond what leaves and sums of squares can hold. A collective.
void check_sizes(collectives& all, std::span<const double> values, const std::string& what, const std::string& file);

/// The margin of every row before the first tree: for squared the mean label, for log the margin
/// whose probability is the share of class 1, otherwise 0. A collective.
double first_margin(collectives& all, boosting_loss loss, const labelled_rows& rows);

/// Turns margins into probabilities, in place; those of squared and lambdamart are unchanged. With log, the one number
/// of a row is the probability of class 1.
void to_predictions(boosting_loss loss, std::span<double> margins, std::size_t outputs);

/// Derivatives of weight * loss with respect to output k, except for lambdamart. `predictions`: from to_predictions.
void derivatives(boosting_loss loss, const labelled_rows& rows, std::span<const double> predictions,
                 std::size_t outputs, std::size_t k, std::span<double> first, std::span<double> second);

struct boosting_quality {
  double loss = 0;      ///< weighted mean; for squared without the factor 1/2
  double accuracy = 0;  ///< weighted share of rows whose most probable class (ties: the first) is right
};
/// Over all workers' rows, except for lambdamart; bit-identical for any number of workers. A collective.
boosting_quality quality_of(collectives& all, boosting_loss loss, const labelled_rows& rows,
                            std::span<const double> predictions, std::size_t outputs);

}  // namespace paracel::alg
