// SPDX-License-Identifier: BSD-3-Clause
#include "class_weights.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include <paracel/error.hpp>
#include <paracel/samples.hpp>

namespace paracel::alg {

void class_weights::keys(key_list& k) {
  std::vector<std::string> given;
  k("class_weight", given,
    "balanced, or weights of classes, such as [\"yes=3\", \"no=0.5\"]; other classes have weight 1");
  if (k.from() != nullptr) place_ = k.from()->place_of("class_weight");
  if (given.size() == 1 && given[0] == "balanced") {
    balanced_ = true;
    return;
  }
  for (const auto& text : given) {
    const auto at = text.rfind('=');
    double weight = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, problem] = at == std::string::npos ? std::from_chars_result{end, std::errc::invalid_argument}
                                                         : std::from_chars(text.data() + at + 1, end, weight);
    if (problem != std::errc{} || stop != end || !std::isfinite(weight) || weight < 0)
      throw config_error(place_ + ": found \"" + text +
                         "\", want balanced, or class=weight with a weight of at least 0");
    named_.emplace_back(class_name(text.substr(0, at)), weight);
  }
}

std::vector<double> class_weights::of(const std::vector<std::string>& classes, std::span<const double> rows) const {
  std::vector<double> found(classes.size(), 1);
  const double total = std::accumulate(rows.begin(), rows.end(), 0.0);
  for (std::size_t c = 0; balanced_ && c < found.size(); ++c)
    found[c] = total / (static_cast<double>(classes.size()) * rows[c]);
  for (const auto& [name, weight] : named_) {
    const auto at = std::find(classes.begin(), classes.end(), name);
    if (at == classes.end()) {
      std::string all;
      for (std::size_t c = 0; c < classes.size() && c < 10; ++c) all += (c == 0 ? "" : ", ") + classes[c];
      throw config_error(place_ + ": found class " + name + ", want one of the training data: " + all +
                         (classes.size() > 10 ? ", ..." : ""));
    }
    found[static_cast<std::size_t>(at - classes.begin())] = weight;
  }
  return found;
}

void weigh_classes(Comm comm, const class_weights& weights, const std::vector<std::string>& classes,
                   std::span<const double> rows, std::span<const double> label, std::vector<double>& weight) {
  const auto of_class = weights.of(classes, rows);
  if (std::ranges::all_of(of_class, [](double w) { return w == 1; })) return;
  if (weight.empty()) weight.assign(label.size(), 1);
  double heaviest = 0;
  for (std::size_t i = 0; i < label.size(); ++i) {
    weight[i] *= of_class[static_cast<std::size_t>(label[i])];
    heaviest = std::max(heaviest, weight[i]);
  }
  comm.allreduce(heaviest, reduce_op::max);
  if (heaviest == 0)
    throw config_error(weights.place() + ": leaves no row of the training data a weight above 0, want at least one");
}

}  // namespace paracel::alg
