// SPDX-License-Identifier: BSD-3-Clause
//
// The framework's optimizers; default/README.md has their formulas and sources. Each works element by element in the
// type of the value, in loops that the compiler vectorises.
#include <paracel/update.hpp>

#include <cmath>
#include <cstddef>

namespace {

using paracel::optimizer_step;

/// w -= lr * (g + weight_decay * w)
struct sgd {
  template <class T>
  void operator()(const optimizer_step<T>& s) const noexcept {
    const auto lr = static_cast<T>(s.hyper[0]);
    const auto decay = static_cast<T>(s.hyper[1]);
    T* __restrict w = s.value.data();
    const T* __restrict g = s.gradient.data();
    for (std::size_t i = 0; i < s.value.size(); ++i) w[i] -= lr * (g[i] + decay * w[i]);
  }
};

/// m = momentum * m + g; w -= lr * m, with Nesterov w -= lr * (g + momentum * m)
struct momentum {
  template <class T>
  void operator()(const optimizer_step<T>& s) const noexcept {
    const auto lr = static_cast<T>(s.hyper[0]);
    const auto mu = static_cast<T>(s.hyper[1]);
    const bool nesterov = s.hyper[2] != 0;
    T* __restrict w = s.value.data();
    T* __restrict m = s.state(0).data();
    const T* __restrict g = s.gradient.data();
    if (nesterov) {
      for (std::size_t i = 0; i < s.value.size(); ++i) {
        m[i] = mu * m[i] + g[i];
        w[i] -= lr * (g[i] + mu * m[i]);
      }
    } else {
      for (std::size_t i = 0; i < s.value.size(); ++i) {
        m[i] = mu * m[i] + g[i];
        w[i] -= lr * m[i];
      }
    }
  }
};

/// n += g^2; w -= lr * g / (sqrt(n) + eps)
struct adagrad {
  template <class T>
  void operator()(const optimizer_step<T>& s) const noexcept {
    const auto lr = static_cast<T>(s.hyper[0]);
    const auto eps = static_cast<T>(s.hyper[1]);
    T* __restrict w = s.value.data();
    T* __restrict n = s.state(0).data();
    const T* __restrict g = s.gradient.data();
    for (std::size_t i = 0; i < s.value.size(); ++i) {
      n[i] += g[i] * g[i];
      w[i] -= lr * g[i] / (std::sqrt(n[i]) + eps);
    }
  }
};

/// m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2;
/// w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
struct adam {
  template <class T>
  void operator()(const optimizer_step<T>& s) const noexcept {
    const auto t = static_cast<double>(s.number);
    const auto b1 = static_cast<T>(s.hyper[1]);
    const auto b2 = static_cast<T>(s.hyper[2]);
    const auto c1 = static_cast<T>(1 - s.hyper[1]);
    const auto c2 = static_cast<T>(1 - s.hyper[2]);
    const auto rate = static_cast<T>(s.hyper[0] / (1 - std::pow(s.hyper[1], t)));
    const auto scale = static_cast<T>(1 / (1 - std::pow(s.hyper[2], t)));
    const auto eps = static_cast<T>(s.hyper[3]);
    T* __restrict w = s.value.data();
    T* __restrict m = s.state(0).data();
    T* __restrict v = s.state(1).data();
    const T* __restrict g = s.gradient.data();
    for (std::size_t i = 0; i < s.value.size(); ++i) {
      m[i] = b1 * m[i] + c1 * g[i];
      v[i] = b2 * v[i] + c2 * g[i] * g[i];
      w[i] -= rate * m[i] / (std::sqrt(v[i] * scale) + eps);
    }
  }
};

/// z += g - (sqrt(n + g^2) - sqrt(n)) / alpha * w; n += g^2;
/// w = 0 where |z| <= l1, otherwise -(z - sign(z) * l1) / ((beta + sqrt(n)) / alpha + l2)
struct ftrl {
  template <class T>
  void operator()(const optimizer_step<T>& s) const noexcept {
    const auto per_alpha = static_cast<T>(1 / s.hyper[0]);
    const auto beta = static_cast<T>(s.hyper[1]);
    const auto l1 = static_cast<T>(s.hyper[2]);
    const auto l2 = static_cast<T>(s.hyper[3]);
    T* __restrict w = s.value.data();
    T* __restrict z = s.state(0).data();
    T* __restrict n = s.state(1).data();
    const T* __restrict g = s.gradient.data();
    for (std::size_t i = 0; i < s.value.size(); ++i) {
      const T grown = n[i] + g[i] * g[i];
      const T root = std::sqrt(grown);
      const T sum = z[i] + g[i] - (root - std::sqrt(n[i])) * per_alpha * w[i];
      z[i] = sum;
      n[i] = grown;
      const T beyond = std::abs(sum) - l1;
      w[i] = beyond > 0 ? -std::copysign(beyond, sum) / ((beta + root) * per_alpha + l2) : T{0};
    }
  }
};

}  // namespace

extern "C" {
extern paracel::optimizer_result paracel_sgd;
extern paracel::optimizer_result paracel_momentum;
extern paracel::optimizer_result paracel_adagrad;
extern paracel::optimizer_result paracel_adam;
extern paracel::optimizer_result paracel_ftrl;
}

paracel::optimizer_result paracel_sgd = paracel::optimizer_proxy({{"lr", 0.01}, {"weight_decay", 0}}, 0, sgd());
paracel::optimizer_result paracel_momentum =
    paracel::optimizer_proxy({{"lr", 0.01}, {"momentum", 0.9}, {"nesterov", 0}}, 1, momentum());
paracel::optimizer_result paracel_adagrad = paracel::optimizer_proxy({{"lr", 0.01}, {"eps", 1e-8}}, 1, adagrad());
paracel::optimizer_result paracel_adam = paracel::counting_steps(
    paracel::optimizer_proxy({{"lr", 0.001}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}}, 2, adam()));
paracel::optimizer_result paracel_ftrl =
    paracel::optimizer_proxy({{"alpha", 0.1}, {"beta", 1}, {"l1", 0}, {"l2", 0}}, 2, ftrl());
