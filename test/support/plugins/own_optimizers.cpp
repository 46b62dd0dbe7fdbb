// SPDX-License-Identifier: BSD-3-Clause
//
// A user's optimizers: one for float only that counts its steps, and one that may throw.
#include <paracel/update.hpp>

#include <stdexcept>

namespace {

/// value = number of steps times the hyper-parameter; state 0 is the sum of the gradients.
struct counter {
  void operator()(const paracel::optimizer_step<float>& s) const noexcept {
    for (std::size_t i = 0; i < s.value.size(); ++i) {
      s.state(0)[i] += s.gradient[i];
      s.value[i] = static_cast<float>(s.hyper[0]) * static_cast<float>(s.number);
    }
  }
};

/// Adds; a negative gradient is an error, detected only after the elements before it have been changed.
struct touchy {
  template <class T>
  void operator()(const paracel::optimizer_step<T>& s) const {
    for (std::size_t i = 0; i < s.value.size(); ++i) {
      s.state(0)[i] += 1;
      s.value[i] += s.gradient[i] * s.state(0)[i];
      if (s.gradient[i] < 0) throw std::runtime_error("a negative gradient");
    }
  }
};

}  // namespace

extern "C" {
extern paracel::optimizer_result count_steps;
extern paracel::optimizer_result touchy_steps;
}
paracel::optimizer_result count_steps = paracel::counting_steps(paracel::optimizer_proxy({{"unit", 1}}, 1, counter()));
paracel::optimizer_result touchy_steps = paracel::optimizer_proxy({}, 1, touchy());
