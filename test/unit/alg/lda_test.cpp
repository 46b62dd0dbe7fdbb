// SPDX-License-Identifier: BSD-3-Clause
#include "alg/lda/lda_sampler.hpp"

#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "alg/lda/lda_model.hpp"
#include "alg/lda/lda_online.hpp"
#include "alg/lda/lda_text.hpp"
#include "alg/lda/lda_variational.hpp"

namespace paracel::alg {
namespace {

using method = lda_sampler::method;

lda_documents documents_of(const std::vector<std::vector<std::uint32_t>>& texts) {
  lda_documents d;
  for (const auto& t : texts) {
    d.number.push_back(d.number.size());
    d.word.insert(d.word.end(), t.begin(), t.end());
    d.begin.push_back(d.word.size());
  }
  return d;
}

/// log p(words, topics) up to a constant.
double log_joint(const lda_documents& docs, const std::vector<std::uint32_t>& z, const lda_priors& priors,
                 std::size_t words) {
  const std::size_t topics = priors.alpha.size();
  std::vector<double> nw(words * topics);
  std::vector<double> n(topics);
  double value = 0;
  for (std::size_t d = 0; d < docs.size(); ++d) {
    std::vector<double> nd(topics);
    for (auto i = docs.begin[d]; i < docs.begin[d + 1]; ++i) {
      ++nd[z[i]];
      ++n[z[i]];
      ++nw[docs.word[i] * topics + z[i]];
    }
    for (std::size_t k = 0; k < topics; ++k) value += std::lgamma(nd[k] + priors.alpha[k]);
  }
  for (const auto c : nw) value += std::lgamma(c + priors.beta);
  for (const auto c : n) value -= std::lgamma(c + priors.words * priors.beta);
  return value;
}

/// Both samplers are Markov chains with the posterior as stationary distribution, which for a tiny corpus can be summed
/// over all assignments.
TEST(LdaSampler, VisitsEveryAssignmentAsOftenAsThePosteriorSays) {
  const auto docs = documents_of({{0, 1, 0}, {1, 2}});
  const lda_priors priors{{0.3, 0.9}, 0.2, 3};
  std::vector<double> wanted(32);
  double sum = 0;
  for (std::size_t code = 0; code < wanted.size(); ++code) {
    std::vector<std::uint32_t> z;
    for (std::size_t i = 0; i < 5; ++i) z.push_back(static_cast<std::uint32_t>((code >> i) & 1U));
    wanted[code] = std::exp(log_joint(docs, z, priors, 3));
    sum += wanted[code];
  }
  for (const auto how : {method::sparse, method::mh}) {
    lda_sampler sampler(docs, 3, priors, how, 11);
    std::vector<double> found(32);
    constexpr int sweeps = 60000;
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      sampler.begin();
      sampler.sweep(0, 2, static_cast<std::uint64_t>(sweep));
      std::size_t code = 0;
      std::size_t i = 0;
      for (std::size_t d = 0; d < 2; ++d) {
        for (const auto k : sampler.topics_of(d)) code |= std::size_t{k} << i++;
      }
      found[code] += 1.0 / sweeps;
    }
    // Half the sum of the differences; a wrong conditional (for example with alpha and beta exchanged) gives at least
    // 0.05.
    double distance = 0;
    for (std::size_t code = 0; code < wanted.size(); ++code) distance += std::abs(found[code] - wanted[code] / sum) / 2;
    EXPECT_LT(distance, 0.015) << (how == method::mh ? "mh" : "sparse");
  }
}

TEST(LdaSampler, CountsAreThoseOfTheTokensAndChangesAreTheirDifferences) {
  for (const auto how : {method::sparse, method::mh}) {
    for (const std::size_t topics : {1U, 3U, 70U}) {
      counter_random random(topics);
      std::vector<std::vector<std::uint32_t>> texts(20);
      for (auto& t : texts) {
        for (auto n = random.below(60); n > 0; --n) t.push_back(static_cast<std::uint32_t>(random.below(15)));
      }
      const auto docs = documents_of(texts);
      lda_sampler sampler(docs, 15, {std::vector<double>(topics, 0.1), 0.01, 15}, how, 5);
      std::vector<std::int32_t> sums(15 * topics);
      for (int sweep = 0; sweep < 5; ++sweep) {
        sampler.for_each_change([&](std::size_t w, std::span<const std::int32_t> change) {
          for (std::size_t k = 0; k < topics; ++k) sums[w * topics + k] += change[k];
        });
        std::vector<std::int32_t> counted(15 * topics);
        for (std::size_t d = 0; d < docs.size(); ++d) {
          const auto z = sampler.topics_of(d);
          for (std::size_t i = 0; i < z.size(); ++i) ++counted[docs.of(d)[i] * topics + z[i]];
        }
        EXPECT_EQ(sums, counted);
        EXPECT_TRUE(std::equal(counted.begin(), counted.end(), sampler.counts().begin()));
        EXPECT_EQ(std::accumulate(sampler.totals().begin(), sampler.totals().end(), std::int64_t{0}),
                  static_cast<std::int64_t>(docs.word.size()));
        sampler.begin();
        sampler.sweep(0, docs.size(), static_cast<std::uint64_t>(sweep));
      }
    }
  }
}

TEST(WeightTree, FindsEachLeafByItsShare) {
  counter_random random(3);
  for (const std::size_t n : {1U, 2U, 5U, 16U, 33U}) {
    weight_tree tree;
    tree.resize(n);
    std::vector<double> weight(n);
    for (std::size_t k = 0; k < n; ++k) {
      weight[k] = k % 3 == 1 ? 0 : random.uniform();
      tree.set(k, weight[k]);
    }
    EXPECT_NEAR(tree.total(), std::accumulate(weight.begin(), weight.end(), 0.0), 1e-12);
    double at = 0;
    for (std::size_t k = 0; k < n; ++k) {
      if (weight[k] > 0) {
        EXPECT_EQ(tree.find(at + weight[k] / 2), k);
      }
      at += weight[k];
    }
    EXPECT_GT(weight[tree.find(tree.total())], 0);  // which rounding may request
  }
}

TEST(AliasTable, DrawsByTheWeights) {
  const std::vector<double> weight{0.5, 3, 0.25, 1.25, 2};
  const std::vector<std::uint32_t> item{7, 1, 9, 4, 2};
  std::vector<alias_table::cell> cells(5);
  std::vector<std::uint32_t> work;
  alias_table::build(weight, item, 7, cells, work);
  std::map<std::uint32_t, double> share;
  constexpr int draws = 70000;
  for (int i = 0; i < draws; ++i) share[alias_table::draw(cells, (i + 0.5) / draws)] += 7.0 / draws;
  for (std::size_t i = 0; i < weight.size(); ++i) EXPECT_NEAR(share[item[i]], weight[i], 1e-3);
}

TEST(LdaModel, DigammaDifferencesAreSumsOfReciprocals) {
  for (const double a : {1e-8, 0.01, 0.7, 3.0, 100.0, 1e6}) {
    double sum = 0;
    for (std::uint64_t n = 0; n < 3000; ++n) {
      if (n % 37 == 0 || n < 40) {
        EXPECT_NEAR(digamma_difference(n, a), sum, 1e-12 * (1 + sum)) << n << ' ' << a;
      }
      sum += 1 / (a + static_cast<double>(n));
    }
  }
}

/// Topics of documents drawn from a planted prior.
document_counts planted(const std::vector<double>& alpha, std::size_t documents, std::uint64_t seed) {
  document_counts counts(alpha.size());
  std::vector<std::uint64_t> work;
  for (std::size_t d = 0; d < documents; ++d) {
    counter_random random(seed, 0, d);
    // Polya's urn: the next token takes topic k with probability proportional to alpha_k + n_k.
    std::vector<double> urn(alpha);
    std::vector<std::uint32_t> z;
    for (int i = 0; i < 150; ++i) {
      double at = random.uniform() * std::accumulate(urn.begin(), urn.end(), 0.0);
      std::uint32_t k = 0;
      while (k + 1 < urn.size() && at >= urn[k]) at -= urn[k++];
      ++urn[k];
      z.push_back(k);
    }
    counts.add(z, work);
  }
  return counts;
}

TEST(LdaModel, EveryMinkaStepRaisesTheLikelihoodAndTheyFindAPlantedPrior) {
  const std::vector<double> alpha{0.05, 0.1, 0.2, 0.5, 1.2};
  for (const std::uint64_t seed : {1, 2, 3}) {
    const auto counts = planted(alpha, 10000, seed);
    std::vector<double> fit(alpha.size(), 0.1);
    double last = counts.log_probability(fit);
    for (int step = 0; step < 3000; ++step) {
      const double change = minka_step(fit, counts.minka_sums(fit));
      const double now = counts.log_probability(fit);
      EXPECT_GE(now, last - 1e-9 * std::abs(last)) << step;
      last = now;
      if (change < 1e-7) break;
    }
    for (std::size_t k = 0; k < alpha.size(); ++k) EXPECT_NEAR(fit[k] / alpha[k], 1, 0.1) << seed << ' ' << k;
  }
}

TEST(LdaModel, FoldInOfNothingIsThePriorAndOfATopicsWordsThatTopic) {
  const std::vector<double> phi{0.9, 0.1, 0.05, 0.95};  // word 0, word 1
  const auto of = [&](std::uint32_t w) { return &phi[2 * w]; };
  const std::vector<double> alpha{0.1, 0.3};
  const auto empty = fold_in({}, alpha, of, 100);
  EXPECT_NEAR(empty[0], 0.25, 1e-15);
  const std::vector<std::uint32_t> words(50, 1);
  EXPECT_GT(fold_in(words, alpha, of, 100)[1], 0.98);
}

TEST(LdaVariational, DigammaHasItsKnownValuesAndSatisfiesTheRecurrence) {
  EXPECT_NEAR(digamma(1), -0.57721566490153286, 1e-15);
  EXPECT_NEAR(digamma(0.5), -1.96351002602142348, 1e-15);
  EXPECT_NEAR(digamma(10), 2.25175258906672111, 1e-15);
  EXPECT_NEAR(digamma(1e12), std::log(1e12) - 0.5e-12, 1e-14);
  for (double x = 1e-6; x < 1e6; x *= 1.3) {
    EXPECT_NEAR(digamma(x + 1), digamma(x) + 1 / x, 1e-14 * (1 + 1 / x)) << x;
    EXPECT_NEAR(digamma(x + 7) - digamma(x), digamma_difference(7, x), 1e-14 * (1 + 1 / x)) << x;
  }
}

TEST(LdaVariational, ASingleTopicExplainsAllTokensAndTheBoundIsTheirLogProbability) {
  const std::vector<double> lambda{3, 1e-4, 2.5};
  const std::vector<double> totals{5.5001};
  lda_bags bags;
  bags.word = {0, 1, 2};
  bags.count = {4, 1, 2};
  bags.begin = {0, 3};
  bags.number = {0};
  topic_inference inference(1, 0.3, 100, 1e-9);
  inference.set_topics(lambda, totals);
  inference.infer(bags, 0);
  EXPECT_NEAR(inference.gamma()[0], 7.3, 1e-12);
  double expected = 0;
  for (std::size_t i = 0; i < 3; ++i) expected += bags.count[i] * (digamma(lambda[i]) - digamma(totals[0]));
  EXPECT_NEAR(inference.bound() / expected, 1, 1e-12);
  std::vector<double> sums(3);
  inference.add_counts(sums);
  inference.finish(sums);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(sums[i], bags.count[i], 1e-12);
}

TEST(LdaVariational, AScaleThatBecomesTooSmallBeginsAGeneration) {
  generation_scale s;
  EXPECT_FALSE(s.decay(0.25));
  EXPECT_EQ(s.scale, 0.25);
  EXPECT_FALSE(s.decay(1e-249));
  EXPECT_TRUE(s.decay(0.1));
  EXPECT_EQ(s.generation, 1U);
  EXPECT_EQ(s.scale, 1);
  EXPECT_NEAR(s.before / 2.5e-251, 1, 1e-12);
  EXPECT_FALSE(s.decay(0.5));
  EXPECT_NEAR(s.before / 1.25e-251, 1, 1e-12);
  EXPECT_TRUE(s.decay(0));
  EXPECT_EQ(s.generation, 2U);
  EXPECT_EQ(s.before, 0);
  EXPECT_EQ(s.scale, 1);
}

TEST(LdaText, FieldsAndFormats) {
  std::vector<std::string> fields;
  for_each_field(" a\tbb  c\r", [&](std::string_view f) { fields.emplace_back(f); });
  EXPECT_EQ(fields, (std::vector<std::string>{"a", "bb", "c"}));
  EXPECT_TRUE(looks_like_libsvm("0 45:2 134:3"));
  EXPECT_TRUE(looks_like_libsvm("45:2 134:3"));
  EXPECT_FALSE(looks_like_libsvm("in the beginning"));
  EXPECT_FALSE(looks_like_libsvm("Ge1:1 In the beginning"));
  EXPECT_FALSE(looks_like_libsvm("7"));
  EXPECT_EQ(parse_word_count("7:3", 10).index, 7U);
  EXPECT_EQ(parse_word_count("7:3", 10).count, 3U);
  for (const char* bad : {"7", "0:1", "11:1", "a:1", "7:", "7:1.5", "7:-1", ":3"}) {
    EXPECT_NE(parse_word_count(bad, 10).wrong, nullptr) << bad;
  }
}

}  // namespace
}  // namespace paracel::alg
