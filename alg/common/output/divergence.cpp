// SPDX-License-Identifier: BSD-3-Clause
#include "divergence.hpp"

#include <algorithm>
#include <cmath>

#include <paracel/error.hpp>
#include <paracel/text_output.hpp>

namespace paracel::alg {

namespace {

constexpr double divergence_factor = 1e3;

std::string short_text(double v) {
  if (std::isnan(v)) return "not a number";
  if (std::isinf(v)) return "infinite";
  std::string text;
  append_text(text, v);
  return text;
}

[[noreturn]] void refuse(const divergence_rule& rule, int round, const std::string& found) {
  throw error("diverged " + (round == 0 ? std::string("at the start") : "at round " + std::to_string(round)) + ": " +
              rule.quantity + " is " + found + "; " + rule.remedy);
}

}  // namespace

bool has_diverged(double value, double start, double scale) noexcept {
  if (!std::isfinite(value)) return true;
  const double most = std::max(std::abs(start), scale);
  return most > 0 && std::abs(value) / divergence_factor > most;
}

void check_divergence(const divergence_rule& rule, int round, double value, double start) {
  if (!has_diverged(value, start, rule.scale)) return;
  refuse(
      rule, round,
      short_text(value) + (round > 0 && start > 0 && std::isfinite(start) ? " and began at " + short_text(start) : ""));
}

void check_finite(const divergence_rule& rule, int round, std::span<const double> numbers) {
  for (const double v : numbers) {
    if (!std::isfinite(v)) refuse(rule, round, short_text(v));
  }
}

double scale_of_squares(double sum_of_squares, double weight) noexcept {
  const double scale = weight > 0 ? sum_of_squares / weight / 2 : 0;
  return scale > 0 ? scale : 1;
}

}  // namespace paracel::alg
