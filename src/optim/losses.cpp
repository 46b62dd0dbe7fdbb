// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <string>

#include <paracel/error.hpp>
#include <paracel/optim_losses.hpp>

namespace paracel::optim {

namespace {

/// Value, derivative and second derivative of a loss at one margin.
struct point_derivatives {
  double value;
  double slope;
  double curvature;
};

/// A loss from a function (margin, label) of one row.
template <class F>
class loss_of_rows final : public loss {
 public:
  loss_of_rows(F f, bool has_curvature, double greatest) : f_(f), has_curvature_(has_curvature), greatest_(greatest) {}
  double derivatives(std::span<const double> margin, std::span<const double> label, std::span<const double> weight,
                     std::span<double> slope, std::span<double> curvature) const override {
    double sum = 0;
    for (std::size_t i = 0; i < margin.size(); ++i) {
      const point_derivatives d = f_(margin[i], label[i]);
      const double times = weight.empty() ? 1 : weight[i];
      sum += times * d.value;
      slope[i] = times * d.slope;
      curvature[i] = times * d.curvature;
    }
    return sum;
  }
  [[nodiscard]] bool has_curvature() const override { return has_curvature_; }
  [[nodiscard]] double greatest_curvature() const override { return greatest_; }

 private:
  F f_;
  bool has_curvature_;
  double greatest_;
};

template <class F>
loss_ptr make_loss(F f, bool has_curvature = true, double greatest = 1) {
  return std::make_shared<loss_of_rows<F>>(f, has_curvature, greatest);
}

void require_number(const char* name, double found, bool zero) {
  if (std::isfinite(found) && (found > 0 || (zero && found == 0))) return;
  throw config_error(std::string(name) + " is " + std::to_string(found) + ", want a finite number " +
                     (zero ? "from 0" : "above 0"));
}

}  // namespace

loss_ptr log_loss() {
  return make_loss(
      [](double m, double y) {
        const double z = y * m;
        // One exponential for all three, and none that overflows.
        const double e = std::exp(-std::abs(z));
        const double wrong = z < 0 ? 1 / (1 + e) : e / (1 + e);  // 1 / (1 + exp(z))
        return point_derivatives{std::log1p(e) + (z < 0 ? -z : 0.0), -y * wrong, e / ((1 + e) * (1 + e))};
      },
      true, 0.25);
}

loss_ptr smooth_hinge_loss() {
  return make_loss([](double m, double y) {
    const double z = y * m;
    if (z >= 1) return point_derivatives{0, 0, 0};
    if (z <= 0) return point_derivatives{0.5 - z, -y, 0};
    return point_derivatives{0.5 * (1 - z) * (1 - z), -y * (1 - z), 1};
  });
}

loss_ptr hinge_loss() {
  return make_loss(
      [](double m, double y) {
        const double short_of = 1 - y * m;
        return short_of <= 0 ? point_derivatives{0, 0, 0} : point_derivatives{short_of, -y, 0};
      },
      false);
}

loss_ptr squared_hinge_loss() {
  return make_loss(
      [](double m, double y) {
        const double short_of = 1 - y * m;
        if (short_of <= 0) return point_derivatives{0, 0, 0};
        return point_derivatives{short_of * short_of, -2 * y * short_of, 2};
      },
      true, 2);
}

loss_ptr perceptron_loss() {
  return make_loss(
      [](double m, double y) {
        const double z = y * m;
        // At 0, as at a start from zeros, the row counts as misclassified.
        return z > 0 ? point_derivatives{0, 0, 0} : point_derivatives{-z, -y, 0};
      },
      false);
}

loss_ptr squared_loss() {
  return make_loss([](double m, double y) { return point_derivatives{0.5 * (m - y) * (m - y), m - y, 1}; });
}

loss_ptr epsilon_insensitive_loss(double epsilon) {
  require_number("epsilon", epsilon, true);
  return make_loss(
      [epsilon](double m, double y) {
        const double r = m - y;
        if (std::abs(r) <= epsilon) return point_derivatives{0, 0, 0};
        return point_derivatives{std::abs(r) - epsilon, r > 0 ? 1.0 : -1.0, 0};
      },
      false);
}

loss_ptr squared_epsilon_insensitive_loss(double epsilon) {
  require_number("epsilon", epsilon, true);
  return make_loss(
      [epsilon](double m, double y) {
        const double r = m - y;
        const double beyond = std::abs(r) - epsilon;
        if (beyond <= 0) return point_derivatives{0, 0, 0};
        return point_derivatives{beyond * beyond, r > 0 ? 2 * beyond : -2 * beyond, 2};
      },
      true, 2);
}

loss_ptr huber_loss(double delta) {
  require_number("delta", delta, false);
  return make_loss([delta](double m, double y) {
    const double r = m - y;
    if (std::abs(r) <= delta) return point_derivatives{0.5 * r * r, r, 1};
    return point_derivatives{delta * (std::abs(r) - 0.5 * delta), r > 0 ? delta : -delta, 0};
  });
}

}  // namespace paracel::optim
