// SPDX-License-Identifier: BSD-3-Clause
//
// The optimizers compared with the formulas of their papers, implemented in another way in long double; and the
// lifetime of their state in the server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <paracel/error.hpp>

#include "server/plugin/plugin_registry.hpp"
#include "server/store/key_store.hpp"
#include "server/store/optimizer_state.hpp"
#include "test/support/paths.hpp"

namespace paracel::srv {
namespace {

using testing::HasSubstr;
using numbers = std::vector<long double>;

plugin_registry& registry() {
  static plugin_registry r({test::plugin_folder(), test::default_plugin_folder()});
  return r;
}

const loaded_update& load(const std::string& symbol, const std::string& hyper = {}) {
  return registry().load_update("libparacel_default.so", hyper.empty() ? symbol : symbol + '\0' + hyper);
}

std::string refusal(const std::string& symbol, const std::string& hyper) {
  try {
    (void)load(symbol, hyper);
    return "loaded";
  } catch (const plugin_error& e) {
    return e.what();
  }
}

/// The value of one element after all gradients: in closed form where there is one.
using closed_form = std::function<long double(long double begin, const numbers& gradients)>;

template <class T>
void agrees(const loaded_update& f, const closed_form& expected, double tolerance) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal(0, 1);
    const std::size_t n = 1 + random() % 40;
    std::vector<T> value(n);
    for (auto& v : value) v = static_cast<T>(normal(random));
    const auto begin = value;
    std::vector<T> state(n * f.optimizer->states, T{0});
    std::vector<numbers> gradients(n);
    for (std::uint64_t step = 1; step <= 12; ++step) {
      std::vector<T> g(n);
      for (std::size_t i = 0; i < n; ++i) {
        g[i] = random() % 5 == 0 ? T{0} : static_cast<T>(normal(random));
        gradients[i].push_back(g[i]);
      }
      std::string error;
      ASSERT_TRUE(apply_step(f, array_tag_of<T>(), std::as_writable_bytes(std::span(value)),
                             std::as_writable_bytes(std::span(state)), f.counts_steps() ? step : 0,
                             {array_tag_of<T>(), std::as_bytes(std::span(g))}, error))
          << error;
      for (std::size_t i = 0; i < n; ++i) {
        const auto want = static_cast<double>(expected(begin[i], gradients[i]));
        ASSERT_NEAR(static_cast<double>(value[i]), want, tolerance * (1 + std::abs(want)))
            << f.name << " element " << i << " of " << n << ", step " << step << ", seed " << seed;
      }
    }
  }
}

void agrees_in_both_types(const loaded_update& f, const closed_form& expected) {
  agrees<double>(f, expected, 1e-12);
  agrees<float>(f, expected, 2e-5);
}

TEST(Optimizer, SgdIsTheSumOfItsGradientsAndItsWeightDecayAPower) {
  agrees_in_both_types(load("paracel_sgd", "lr=0.125"), [](long double w, const numbers& gs) {
    long double sum = 0;
    for (const auto g : gs) sum += g;
    return w - 0.125L * sum;
  });
  // w_t = (1 - lr d)^t w_0 - lr sum_k (1 - lr d)^(t-1-k) g_k
  agrees_in_both_types(load("paracel_sgd", "weight_decay=0.5,lr=0.1"), [](long double w, const numbers& gs) {
    const long double keep = 1 - 0.1L * 0.5L;
    auto result = w * std::pow(keep, static_cast<long double>(gs.size()));
    for (std::size_t k = 0; k < gs.size(); ++k)
      result -= 0.1L * std::pow(keep, static_cast<long double>(gs.size() - 1 - k)) * gs[k];
    return result;
  });
}

TEST(Optimizer, MomentumWeighsAGradientByAGeometricSeries) {
  // Gradient k has moved w by lr (1 + mu + ... + mu^(t-1-k)) after t steps.
  agrees_in_both_types(load("paracel_momentum", "lr=0.05,momentum=0.8"), [](long double w, const numbers& gs) {
    for (std::size_t k = 0; k < gs.size(); ++k)
      w -= 0.05L * gs[k] * (1 - std::pow(0.8L, static_cast<long double>(gs.size() - k))) / (1 - 0.8L);
    return w;
  });
}

TEST(Optimizer, NesterovsMomentumLooksOneStepAhead) {
  // Each step moves by lr (g_t + mu m_t) with m_t = sum_k mu^(t-k) g_k.
  agrees_in_both_types(load("paracel_momentum", "lr=0.05,momentum=0.8,nesterov=1"),
                       [](long double w, const numbers& gs) {
                         for (std::size_t t = 0; t < gs.size(); ++t) {
                           long double m = 0;
                           for (std::size_t k = 0; k <= t; ++k)
                             m += std::pow(0.8L, static_cast<long double>(t - k)) * gs[k];
                           w -= 0.05L * (gs[t] + 0.8L * m);
                         }
                         return w;
                       });
}

TEST(Optimizer, AdagradDividesByTheRootOfAllSquares) {
  agrees_in_both_types(load("paracel_adagrad", "lr=0.3,eps=1e-4"), [](long double w, const numbers& gs) {
    for (std::size_t t = 0; t < gs.size(); ++t) {
      long double squares = 0;
      for (std::size_t k = 0; k <= t; ++k) squares += gs[k] * gs[k];
      w -= 0.3L * gs[t] / (std::sqrt(squares) + 1e-4L);
    }
    return w;
  });
}

TEST(Optimizer, AdamsMomentsAreWeightedMeansOfAllGradients) {
  agrees_in_both_types(
      load("paracel_adam", "lr=0.02,beta1=0.8,beta2=0.95,eps=1e-4"), [](long double w, const numbers& gs) {
        for (std::size_t t = 0; t < gs.size(); ++t) {
          long double m = 0, v = 0, m_weights = 0, v_weights = 0;  // the bias correction is the division by the weights
          for (std::size_t k = 0; k <= t; ++k) {
            const auto age = static_cast<long double>(t - k);
            m += std::pow(0.8L, age) * gs[k];
            m_weights += std::pow(0.8L, age);
            v += std::pow(0.95L, age) * gs[k] * gs[k];
            v_weights += std::pow(0.95L, age);
          }
          w -= 0.02L * (m / m_weights) / (std::sqrt(v / v_weights) + 1e-4L);
        }
        return w;
      });
}

TEST(Optimizer, FtrlIsTheMinimumOfItsProximalObjective) {
  const long double alpha = 0.4L, beta = 0.5L, l1 = 0.7L, l2 = 0.2L;
  agrees_in_both_types(load("paracel_ftrl", "alpha=0.4,beta=0.5,l1=0.7,l2=0.2"), [=](long double w, const numbers& gs) {
    // w minimizes g_{1:t} w + 1/2 sum sigma_s (w - w_s)^2 + l1 |w| + 1/2 (l2 + beta/alpha) w^2 (McMahan et al. 2013):
    // a quadratic with the linear term z and the curvature below, found by its two one-sided derivatives.
    numbers ws{w};
    for (std::size_t t = 0; t < gs.size(); ++t) {
      long double linear = 0, curvature = beta / alpha + l2, squares = 0;
      for (std::size_t s = 0; s <= t; ++s) {
        const auto before = squares;
        squares += gs[s] * gs[s];
        const auto sigma = (std::sqrt(squares) - std::sqrt(before)) / alpha;
        linear += gs[s] - sigma * ws[s];
        curvature += sigma;
      }
      const auto right = -(linear + l1) / curvature;  // the minimum if it is positive
      const auto left = -(linear - l1) / curvature;   // if it is negative
      ws.push_back(right > 0 ? right : left < 0 ? left : 0);
    }
    return ws.back();
  });
}

TEST(Optimizer, FtrlWithL1LeavesExactZeros) {
  const auto& f = load("paracel_ftrl", "l1=10");
  std::vector<double> value{1, -1}, state(4), g{0.5, -0.25};
  std::string error;
  ASSERT_TRUE(apply_step(f, value_tag::f64_array, std::as_writable_bytes(std::span(value)),
                         std::as_writable_bytes(std::span(state)), 0,
                         {value_tag::f64_array, std::as_bytes(std::span(g))}, error));
  EXPECT_EQ(value, (std::vector<double>{0, 0}));
}

// ---- hyper-parameters -----------------------------------------------------------------------------------------------

TEST(Optimizer, HyperParametersArePartOfItsIdentityAndNotTheirSpelling) {
  const auto& plain = load("paracel_adagrad");
  EXPECT_EQ(load("paracel_adagrad", "lr=0.01").id, plain.id) << "the default, said";
  EXPECT_EQ(load("paracel_adagrad", "eps=1e-5,lr=2").id, load("paracel_adagrad", "lr=2.0,eps=0.00001").id);
  EXPECT_NE(load("paracel_adagrad", "lr=2").id, plain.id);
  EXPECT_EQ(load("paracel_adagrad", "lr=2").family, plain.family);
  EXPECT_NE(load("paracel_sgd").family, plain.family);
  EXPECT_EQ(registry().find(load("paracel_adagrad", "lr=2").id)->hyper[0], 2);
  EXPECT_FALSE(plain.additive);
}

TEST(Optimizer, AnUnknownHyperParameterIsRefusedWithThoseThereAre) {
  EXPECT_THAT(refusal("paracel_adagrad", "rate=1"), HasSubstr("no hyper-parameter 'rate': it has lr, eps"));
  EXPECT_THAT(refusal("paracel_adagrad", "lr"), HasSubstr("want a finite number"));
  EXPECT_THAT(refusal("paracel_adagrad", "lr=0.1x"), HasSubstr("want a finite number"));
  EXPECT_THAT(refusal("paracel_adagrad", "lr=nan"), HasSubstr("want a finite number"));
  EXPECT_THAT(refusal("paracel_adagrad", "lr=inf"), HasSubstr("want a finite number"));
  EXPECT_THAT(refusal("paracel_add", "lr=1"), HasSubstr("has no hyper-parameters"));
}

TEST(Optimizer, WhoKnowsNoOptimizersIsToldSo) {
  const auto& f = load("paracel_sgd");
  std::vector<std::byte> out;
  std::string error;
  const double one = 1;
  const value_view v{value_tag::f64, std::as_bytes(std::span(&one, 1))};
  EXPECT_EQ(apply(f, v, v, out, error), value_tag::none);
  EXPECT_THAT(error, HasSubstr("is an optimizer"));
  EXPECT_EQ(apply_to_missing(f, v, out, error), value_tag::none);
  EXPECT_FALSE(cannot_fail(f, v, v));
}

// ---- state next to keys ------------------------------------------------------------------------------------------

class OptimizerState : public testing::Test {
 protected:
  static value_view view(const std::vector<double>& v) { return {value_tag::f64_array, std::as_bytes(std::span(v))}; }
  std::vector<double> step(const loaded_update& f, const std::string& key, const std::vector<double>& g) {
    auto outcome = abi::ok;
    error_.clear();
    const auto* e = step_key(keys_, f, hash_key(key), key, view(g), error_, outcome);
    EXPECT_EQ(e == nullptr, !error_.empty());
    if (e == nullptr) return {};
    return read(key);
  }
  std::vector<double> read(const std::string& key) {
    const auto* e = keys_.find(hash_key(key), key);
    if (e == nullptr) return {};
    std::vector<double> v(e->value().size() / sizeof(double));
    std::memcpy(v.data(), e->value().data(), e->value().size());
    return v;
  }
  void store(const std::string& key, const std::vector<double>& v) { keys_.store(hash_key(key), key, view(v)); }

  std::atomic<const ownership*> owned_{nullptr};
  key_store keys_{shard_settings{}, owned_};
  std::string error_;
};

TEST_F(OptimizerState, AMissingKeyBeginsWithZerosAndItsStateLasts) {
  const auto& f = load("paracel_adagrad", "lr=1,eps=0");
  const std::vector<double> first = step(f, "k", {2, -2, 4});
  EXPECT_EQ(first, (std::vector<double>{-1, 1, -1}));  // g / |g|
  const auto second = step(f, "k", {2, 0.5, 3});
  EXPECT_DOUBLE_EQ(second[0], -1 - 2 / std::sqrt(8.0));
  EXPECT_DOUBLE_EQ(second[1], 1 - 0.5 / std::sqrt(4.25));
  EXPECT_DOUBLE_EQ(second[2], -1 - 3.0 / 5);
  EXPECT_EQ(keys_.size(), 1U) << "the state is no key";
}

TEST_F(OptimizerState, AnotherLearningRateKeepsTheStateAndAnotherOptimizerDoesNot) {
  (void)step(load("paracel_adagrad", "lr=1,eps=0"), "k", {3});
  EXPECT_DOUBLE_EQ(step(load("paracel_adagrad", "lr=10,eps=0"), "k", {4})[0], -1 - 10 * 4.0 / 5);
  const auto before = read("k")[0];
  EXPECT_DOUBLE_EQ(step(load("paracel_momentum", "lr=1,momentum=0.5"), "k", {1})[0], before - 1);
  EXPECT_DOUBLE_EQ(step(load("paracel_momentum", "lr=1,momentum=0.5"), "k", {1})[0], before - 2.5);
}

TEST_F(OptimizerState, APushARemovalAndAnotherShapeDropIt) {
  const auto& f = load("paracel_adagrad", "lr=1,eps=0");
  (void)step(f, "k", {3});
  store("k", {0});
  EXPECT_EQ(step(f, "k", {4}), (std::vector<double>{-1})) << "pushed: the squares begin again";
  keys_.erase(hash_key("k"), "k");
  EXPECT_EQ(step(f, "k", {4}), (std::vector<double>{-1})) << "removed";
  keys_.clear();
  EXPECT_EQ(step(f, "k", {4}), (std::vector<double>{-1})) << "cleared";
  // A different size without the store's knowledge, as a general update function may create it.
  keys_.table_of(hash_key("k")).store(hash_key("k"), "k", view({0, 0}));
  EXPECT_EQ(step(f, "k", {4, 5}), (std::vector<double>{-1, -1}));
}

TEST_F(OptimizerState, ItIsCountedInTheMemoryAndGivenBack) {
  const auto& f = load("paracel_adam");
  store("k", std::vector<double>(100));
  const auto without = keys_.memory_bytes();
  (void)step(f, "k", std::vector<double>(100, 1.0));
  EXPECT_GE(keys_.memory_bytes(), without + 1600);
  keys_.clear();
  EXPECT_EQ(keys_.memory_bytes(), 0U);
}

TEST_F(OptimizerState, LargeValuesHaveLargeStates) {
  const auto& f = load("paracel_adam", "lr=1,eps=0");
  const std::vector<double> ones(20'000, 1.0);
  for (int i = 1; i <= 3; ++i) {
    const auto v = step(f, "large", ones);
    ASSERT_EQ(v.size(), ones.size());
    EXPECT_NEAR(v.front(), -i, 1e-9);  // with a constant gradient each moment equals it, so each step is lr
    EXPECT_NEAR(v.back(), -i, 1e-9);
  }
}

TEST_F(OptimizerState, AGradientThatDoesNotFitChangesNothing) {
  const auto& f = load("paracel_sgd", "lr=1");
  store("k", {1, 2});
  EXPECT_TRUE(step(f, "k", {1, 2, 3}).empty());
  EXPECT_THAT(error_, HasSubstr("the same size"));
  EXPECT_EQ(read("k"), (std::vector<double>{1, 2}));
  auto outcome = abi::ok;
  const std::int64_t whole = 1;
  EXPECT_EQ(step_key(keys_, f, hash_key("new"), "new", {value_tag::i64, std::as_bytes(std::span(&whole, 1))}, error_,
                     outcome),
            nullptr);
  EXPECT_EQ(outcome, abi::type_mismatch);
  EXPECT_EQ(keys_.find(hash_key("new"), "new"), nullptr);
}

TEST_F(OptimizerState, AnOptimizerThatThrowsLeavesValueAndStateAsTheyWere) {
  const auto& f = registry().load_update("own_optimizers", "touchy_steps");
  EXPECT_EQ(step(f, "k", {1, 1}), (std::vector<double>{1, 1}));
  EXPECT_TRUE(step(f, "k", {1, -1}).empty());
  EXPECT_THAT(error_, HasSubstr("a negative gradient"));
  EXPECT_EQ(read("k"), (std::vector<double>{1, 1}));
  EXPECT_EQ(step(f, "k", {1, 1}), (std::vector<double>{3, 3})) << "the second step and not the third";
  EXPECT_TRUE(step(f, "new", {-1}).empty());
  EXPECT_TRUE(read("new").empty()) << "a key that could not be stepped is not made";
}

TEST_F(OptimizerState, AnOptimizerOfAUserCountsItsSteps) {
  const auto& f = registry().load_update("own_optimizers", std::string("count_steps\0unit=10", 19));
  const std::vector<float> g{1, 2};
  const value_view gradient{value_tag::f32_array, std::as_bytes(std::span(g))};
  auto outcome = abi::ok;
  for (int i = 1; i <= 3; ++i) {
    const auto* e = step_key(keys_, f, hash_key("k"), "k", gradient, error_, outcome);
    ASSERT_NE(e, nullptr) << error_;
    float now = 0;
    std::memcpy(&now, e->value().data(), sizeof now);
    EXPECT_EQ(now, 10.0F * static_cast<float>(i));
  }
  store("d", {1});
  EXPECT_TRUE(step(f, "d", {1}).empty());
  EXPECT_THAT(error_, HasSubstr("does not accept this type"));
}

}  // namespace
}  // namespace paracel::srv
