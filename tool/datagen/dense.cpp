// SPDX-License-Identifier: BSD-3-Clause
//
// Kinds of data with a value in every column: classification, classes, regression, friedman, friedman_classes, mixed,
// ranking, similarity, kmeans, factors.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "generator.hpp"
#include "python_random.hpp"

namespace datagen {

namespace {

/// Rows of `k_` columns, in text of about `column_bytes` for each.
class column_rows : public generator {
 public:
  column_rows(const options& o, std::uint64_t columns, std::uint64_t least, std::uint64_t most,
              std::uint64_t column_bytes)
      : rows_(o.rows()),
        k_(o.integer("columns", columns, least, most)),
        seed_(o.seed()),
        separator_(o.separator(",")),
        column_bytes_(column_bytes) {}
  [[nodiscard]] std::uint64_t rows() const override { return rows_; }
  [[nodiscard]] std::uint64_t rows_a_block() const override {
    return std::max<std::uint64_t>(1, 262144 / (column_bytes_ * k_));
  }

 protected:
  /// Room for a row of `fields`.
  [[nodiscard]] char* room(block& out, std::uint64_t fields) const {
    return out.text.room(fields * (24 + separator_.size()) + 1);
  }
  [[nodiscard]] char* put_separator(char* to) const { return std::copy(separator_.begin(), separator_.end(), to); }
  static void end_row(block& out, char* to) {
    *to++ = '\n';
    out.text.commit(to);
    out.end_row();
  }

  std::uint64_t rows_;
  std::uint64_t k_;
  std::uint64_t seed_;
  std::string separator_;

 private:
  std::uint64_t column_bytes_;
};

/// f1,...,fk,label: standard normal features; the label is the side of a hyperplane on which the sample lies after
/// noise of a fifth of the spread, flipped for one in a hundred. With `regression` f1,...,fk,target: a linear function
/// and noise of a tenth of the spread. The bytes are those of datagen.py, which draws from Python's sequential
/// generator, so each thread skips the random numbers of other threads' rows.
class linear_samples : public column_rows {
 public:
  linear_samples(const options& o, bool regression)
      : column_rows(o, 100, 1, 1U << 24U, 12), regression_(regression), start_(seed_) {
    weights_.resize(std::min<std::uint64_t>(k_, std::max<std::uint64_t>(10, k_ / 10)));
    for (auto& w : weights_) w = start_.gauss(0, 1);
    double square = 0;
    for (const double w : weights_) square += w * w;
    const double length = std::sqrt(square);
    for (auto& w : weights_) w = regression ? 100 * (w / length) : w / length;
  }
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    thread_local const linear_samples* owner = nullptr;
    thread_local std::uint64_t row = 0;
    thread_local python_random random(0);
    if (owner != this || row > first) {
      owner = this;
      row = 0;
      random = start_;
    }
    for (; row < first; ++row) {
      for (std::uint64_t j = 0; j <= k_; ++j) random.skip_gauss();
      if (!regression_) random.random();
    }
    for (; row < last; ++row) {
      char* to = room(out, k_ + 1);
      double side = 0;
      for (std::uint64_t j = 0; j < k_; ++j) {
        const double x = random.gauss(0, 1);
        if (j < weights_.size()) side += weights_[j] * x;
        to = put_g9(to, x);
        to = put_separator(to);
      }
      if (regression_) {
        to = put_g9(to, side + random.gauss(0, 10));
      } else {
        const bool positive = side + random.gauss(0, 0.2) > 0;
        *to++ = positive != (random.random() < 0.01) ? '1' : '0';
      }
      end_row(out, to);
    }
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> beside(std::uint64_t) const override {
    std::string text = "weights\t";
    char digits[32];
    for (std::size_t j = 0; j < weights_.size(); ++j) {
      text += j > 0 ? "|" : "";
      std::snprintf(digits, sizeof digits, "%.17g", weights_[j]);
      text += digits;
    }
    return {{".truth", text + "\n"}};
  }

 private:
  bool regression_;
  python_random start_;  // after the weights
  std::vector<double> weights_;
};

/// f1,...,fk,target: uniform features and 10 sin(pi f1 f2) + 20 (f3 - 1/2)^2 + 10 f4 + 5 f5 with normal noise of
/// spread 1. `labelled`: f1,...,fk,label, whether the target is above 14.4, its mean rounded to one decimal.
/// Source: J. Friedman, "Multivariate adaptive regression splines", Annals of Statistics 19, 1991, section 4.3.
class friedman_samples : public column_rows {
 public:
  friedman_samples(const options& o, bool labelled) : column_rows(o, 10, 1, 1U << 20U, 9), labelled_(labelled) {}
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    constexpr double mean = 14.4;
    for (auto i = first; i < last; ++i) {
      counter_random random(seed_, rows_stream, i);
      char* to = room(out, k_ + 1);
      double f[5] = {0.5, 0.5, 0.5, 0.5, 0.5};  // the values of missing columns
      for (std::uint64_t j = 0; j < k_; ++j) {
        const double x = random.uniform();
        if (j < 5) f[j] = x;
        to = put_fixed(to, x, 6);
        to = put_separator(to);
      }
      const double target = 10 * std::sin(std::numbers::pi * f[0] * f[1]) + 20 * (f[2] - 0.5) * (f[2] - 0.5) +
                            10 * f[3] + 5 * f[4] + random.normal();
      if (labelled_) *to++ = target > mean ? '1' : '0';
      else to = put_fixed(to, target, 6);
      end_row(out, to);
    }
  }

 private:
  bool labelled_;
};

/// id,v1,...,vk: uniform in [0, 1), as in Paracel.
class similarity_rows : public column_rows {
 public:
  explicit similarity_rows(const options& o) : column_rows(o, 100, 1, 1U << 24U, 9), ids_(!o.flag("no_ids")) {}
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    for (auto i = first; i < last; ++i) {
      counter_random random(seed_, rows_stream, i);
      char* to = room(out, k_ + 1);
      if (ids_) to = put_integer(to, i);
      for (std::uint64_t j = 0; j < k_; ++j) {
        if (ids_ || j > 0) to = put_separator(to);
        to = put_fixed(to, random.uniform(), 6);
      }
      end_row(out, to);
    }
  }

 private:
  bool ids_;
};

/// id<tab>v1,...,vk: normal clusters of spread 1 around `parts` centres that are uniform in [-10, 10]^k. `labelled`:
/// v1,...,vk,class_<part> around centres so near that the clusters overlap: their distances are about 3.
class clouds : public column_rows {
 public:
  clouds(const options& o, bool labelled)
      : column_rows(o, 10, 1, 1U << 20U, 10),
        parts_(o.integer("parts", 10, 1, 1U << 20U)),
        ids_(!labelled && !o.flag("no_ids")),
        labelled_(labelled),
        centers_(k_ * parts_) {
    const double most = labelled ? 4 / std::sqrt(static_cast<double>(k_)) : 10;
    for (std::uint64_t c = 0; c < parts_; ++c) {
      counter_random random(seed_, centers_stream, c);
      for (std::uint64_t j = 0; j < k_; ++j) centers_[c * k_ + j] = 2 * most * random.uniform() - most;
    }
  }
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    for (auto i = first; i < last; ++i) {
      counter_random random(seed_, rows_stream, i);
      normals normal(random);
      const auto part = random.below(parts_);
      const double* center = centers_.data() + part * k_;
      char* to = out.text.room((k_ + 2) * (24 + separator_.size()) + 2);
      if (ids_) {
        to = put_integer(to, i);
        *to++ = '\t';
      }
      for (std::uint64_t j = 0; j < k_; ++j) {
        if (j > 0) to = put_separator(to);
        to = put_fixed(to, center[j] + normal(), 6);
      }
      if (labelled_) {
        constexpr std::string_view name = "class_";
        to = put_separator(to);
        to = put_integer(std::copy(name.begin(), name.end(), to), part);
      }
      *to++ = '\n';
      out.text.commit(to);
      char* label = put_integer(out.truth.room(48), i);
      *label++ = '\t';
      label = put_integer(label, part);
      *label++ = '\n';
      out.truth.commit(label);
      out.end_row();
    }
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> beside(std::uint64_t) const override {
    text_buffer text;
    for (std::uint64_t c = 0; c < parts_; ++c) put_factor_row(text, c, centers_.data() + c * k_, k_);
    return {{".centers", std::string(text.data(), text.size())}};
  }

 private:
  std::uint64_t parts_;
  bool ids_;
  bool labelled_;
  std::vector<double> centers_;
};

/// kind_1,...,x_1,...,label with a header: a third of the features are words, of 4, 16, 64, then 256 kinds, the others
/// standard normal; one value in twenty is missing. The label is yes or no: the sign of the sum of an effect of each
/// word and a linear function of the numbers, with noise of a third of the spread.
class mixed_rows : public column_rows {
 public:
  explicit mixed_rows(const options& o)
      : column_rows(o, 12, 2, 1U << 20U, 8), kinds_(std::max<std::uint64_t>(1, k_ / 3)) {
    counter_random random(seed_, weights_stream);
    normals normal(random);
    for (std::uint64_t j = kinds_; j < k_; ++j) weights_.push_back(normal());
  }
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    if (first == 0) put_header(out.text);
    const double spread = std::sqrt(static_cast<double>(k_));
    for (auto i = first; i < last; ++i) {
      counter_random random(seed_, rows_stream, i);
      normals normal(random);
      char* to = out.text.room(k_ * (24 + separator_.size()) + 8);
      double sum = 0;
      for (std::uint64_t j = 0; j < k_; ++j) {
        const bool missing = random.below(20) == 0;
        if (j < kinds_) {
          const auto kind = random.below(std::uint64_t{4} << (2 * std::min<std::uint64_t>(j, 3)));
          if (!missing) {
            *to++ = 'w';
            to = put_integer(to, kind);
            sum += counter_random(seed_, centers_stream, (j << 8U) | kind).normal();
          }
        } else {
          const double x = normal();
          if (!missing) {
            to = put_fixed(to, x, 4);
            sum += weights_[j - kinds_] * x;
          }
        }
        to = put_separator(to);
      }
      const std::string_view label = sum + spread / 3 * normal() > 0 ? "yes\n" : "no\n";
      out.text.commit(std::copy(label.begin(), label.end(), to));
      out.end_row();
    }
  }

 private:
  void put_header(text_buffer& out) const {
    for (std::uint64_t j = 0; j < k_; ++j)
      out.put((j < kinds_ ? "kind_" + std::to_string(j + 1) : "x_" + std::to_string(j - kinds_ + 1)) + separator_);
    out.put("label\n");
  }

  std::uint64_t kinds_;
  std::vector<double> weights_;  // of the numbers
};

/// <relevance> qid:<query> 1:v ... k:v: documents of queries. Features are standard normal, the first two constant
/// within a query. The relevance, 0 to 4, grows with a linear function of some of the others, plus the product of the
/// first feature and the last of these, and noise.
class queries : public generator {
 public:
  explicit queries(const options& o)
      : rows_(o.rows(500)),
        k_(o.integer("columns", 20, 4, 1U << 20U)),
        documents_(o.number("documents", 20, 1, 1e6)),
        seed_(o.seed()),
        weights_(std::min<std::uint64_t>(k_ - 2, 10)) {
    counter_random random(seed_, weights_stream);
    normals normal(random);
    double square = 0;
    for (auto& w : weights_) {
      w = normal();
      square += w * w;
    }
    for (auto& w : weights_) w /= std::sqrt(square);
  }
  [[nodiscard]] std::uint64_t rows() const override { return rows_; }
  [[nodiscard]] std::uint64_t rows_a_block() const override {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(262144 / (9 * static_cast<double>(k_) * documents_)));
  }
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    std::vector<double> x(k_);
    for (auto q = first; q < last; ++q) {
      counter_random random(seed_, rows_stream, q);
      normals normal(random);
      x[0] = normal();
      x[1] = normal();
      for (auto left = count_around(random, documents_); left > 0; --left) {
        for (std::uint64_t j = 2; j < k_; ++j) x[j] = normal();
        char* to = put_integer(out.text.room((k_ + 1) * 48 + 48), relevance(x, normal()));
        constexpr std::string_view mark = " qid:";
        to = put_integer(std::copy(mark.begin(), mark.end(), to), q + 1);
        for (std::uint64_t j = 0; j < k_; ++j) {
          *to++ = ' ';
          to = put_integer(to, j + 1);
          *to++ = ':';
          to = put_fixed(to, x[j], 4);
        }
        *to++ = '\n';
        out.text.commit(to);
      }
      out.end_row();
    }
  }

 private:
  [[nodiscard]] std::uint64_t relevance(const std::vector<double>& x, double noise) const {
    double score = 0.7 * x[0] * x[weights_.size() + 1] + 0.5 * noise;
    for (std::size_t j = 0; j < weights_.size(); ++j) score += weights_[j] * x[j + 2];
    score /= std::sqrt(1 + 0.49 + 0.25);
    std::uint64_t found = 0;
    for (const double least : {0.15, 0.7, 1.2, 1.75}) found += score > least ? 1 : 0;
    return found;
  }

  std::uint64_t rows_;
  std::uint64_t k_;
  double documents_;
  std::uint64_t seed_;
  std::vector<double> weights_;
};

/// id<tab>v|v|...: normal numbers of spread 1/sqrt(k), like the result of a factorisation.
class factor_rows : public generator {
 public:
  explicit factor_rows(const options& o)
      : rows_(o.rows()), k_(o.integer("columns", 10, 1, 1U << 20U)), seed_(o.seed()) {}
  [[nodiscard]] std::uint64_t rows() const override { return rows_; }
  [[nodiscard]] std::uint64_t rows_a_block() const override { return std::max<std::uint64_t>(1, 262144 / (10 * k_)); }
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    std::vector<double> v(k_);
    const double spread = 1 / std::sqrt(static_cast<double>(k_));
    for (auto i = first; i < last; ++i) {
      counter_random random(seed_, users_stream, i);
      normals normal(random);
      for (auto& x : v) x = spread * normal();
      put_factor_row(out.text, i, v.data(), k_);
      out.end_row();
    }
  }

 private:
  std::uint64_t rows_;
  std::uint64_t k_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<generator> make_dense(const std::string& kind, const options& o) {
  if (kind == "classification" || kind == "regression")
    return std::make_unique<linear_samples>(o, kind == "regression");
  if (kind == "mixed") return std::make_unique<mixed_rows>(o);
  if (kind == "ranking") return std::make_unique<queries>(o);
  if (kind == "friedman" || kind == "friedman_classes")
    return std::make_unique<friedman_samples>(o, kind == "friedman_classes");
  if (kind == "similarity") return std::make_unique<similarity_rows>(o);
  if (kind == "kmeans" || kind == "classes") return std::make_unique<clouds>(o, kind == "classes");
  if (kind == "factors") return std::make_unique<factor_rows>(o);
  return nullptr;
}

}  // namespace datagen
