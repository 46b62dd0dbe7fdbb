// SPDX-License-Identifier: BSD-3-Clause
//
// Kinds of data with values in a few columns, frequent columns first (Zipf's law): sparse_classification,
// sparse_regression, mf, als, svd, fm.
#include <algorithm>
#include <cmath>

#include "generator.hpp"

namespace datagen {

namespace {

/// Distinct columns of a row in ascending order. A duplicate draw is dropped, so there may be fewer than `count`.
void draw_columns(counter_random& random, const zipf& law, std::uint64_t count, std::vector<std::uint64_t>& columns) {
  columns.clear();
  for (std::uint64_t k = 0; k < count; ++k) columns.push_back(law(random));
  std::sort(columns.begin(), columns.end());
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
}

/// label index:value ...: the label (-1 or +1, flipped for one in a hundred; with `regression` a number) is a linear
/// function with normal weights on `informative` features, the most frequent ones, and 0 on the others, plus noise.
class sparse_samples : public generator {
 public:
  sparse_samples(const options& o, bool regression)
      : rows_(o.rows()),
        k_(o.integer("columns", 100000, 1, 1U << 31U)),
        nnz_(o.number("nnz", 20, 1, 1e9)),
        seed_(o.seed()),
        law_(k_, o.number("zipf", 1, 0, 4)),
        binary_(o.flag("binary_values")),
        regression_(regression) {
    counter_random random(seed_, weights_stream);
    weights_.resize(std::min(k_, o.integer("informative", std::min<std::uint64_t>(k_, 1000), 1, k_)));
    for (auto& w : weights_) w = random.normal();
  }
  [[nodiscard]] std::uint64_t rows() const override { return rows_; }
  [[nodiscard]] std::uint64_t rows_a_block() const override {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(20000 / nnz_));
  }
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    std::vector<std::uint64_t> columns;
    std::vector<double> values;
    for (auto i = first; i < last; ++i) {
      counter_random random(seed_, rows_stream, i);
      draw_columns(random, law_, count_around(random, nnz_), columns);
      normals normal(random);
      values.clear();
      double sum = 0;
      for (const auto c : columns) {
        // Rounded as it is written, so that the label is a function of the written values.
        values.push_back(binary_ ? 1.0 : std::nearbyint(1e4 * normal()) / 1e4);
        if (c < weights_.size()) sum += weights_[c] * values.back();
      }
      sum += 0.1 * normal();
      char* to = out.text.room(32 + columns.size() * 48);
      if (regression_) {
        to = put_fixed(to, sum, 6);
      } else {
        const bool positive = (sum > 0) != (random.uniform() < 0.01);
        *to++ = positive ? '+' : '-';
        *to++ = '1';
      }
      for (std::size_t j = 0; j < columns.size(); ++j) {
        *to++ = ' ';
        to = put_integer(to, columns[j] + 1);
        *to++ = ':';
        if (binary_) {
          *to++ = '1';
        } else {
          to = put_fixed(to, values[j], 4);
        }
      }
      *to++ = '\n';
      out.text.commit(to);
      out.end_row();
    }
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> beside(std::uint64_t) const override {
    std::string text;
    char digits[32];
    for (std::size_t j = 0; j < weights_.size(); ++j) {
      text += std::to_string(j + 1) + "\t";
      text.append(digits, put_exact(digits, weights_[j]));
      text += "\n";
    }
    return {{".truth", text}};
  }

 private:
  std::uint64_t rows_;
  std::uint64_t k_;
  double nnz_;
  std::uint64_t seed_;
  zipf law_;
  bool binary_;
  bool regression_;
  std::vector<double> weights_;
};

/// user,item,value for the items of a user, where the value is a function of planted factors:
///     mf   mu + b_u + b_i + w_u.h_i + noise, in steps of a half between 0.5 and 5
///     als  w_u.h_i + noise; <out>.H has the h, Paracel's factor_input
///     svd  the same, as a general sparse matrix
///     fm   the value of mf, in libsvm form: value item + 1:1 items + user + 1:1
class ratings : public generator {
 public:
  enum class kind { mf, als, svd, fm };
  ratings(const options& o, kind what)
      : kind_(what),
        stars_(what == kind::mf || what == kind::fm),
        rows_(o.rows()),
        items_(o.integer("items", 1000, 1, 1U << 31U)),
        rank_(o.integer("columns", stars_ ? 8 : 10, 1, 4096)),
        nnz_(o.number("nnz", 50, 1, 1e9)),
        noise_(o.number("noise", stars_ ? 0.5 : 0.1, 0, 1e6)),
        seed_(o.seed()),
        separator_(o.separator(",")),
        law_(items_, o.number("zipf", 0.8, 0, 4)),
        item_(items_ * (rank_ + 1)) {
    for (std::uint64_t i = 0; i < items_; ++i) {
      counter_random random(seed_, items_stream, i);
      draw_factors(random, item_.data() + i * (rank_ + 1));
    }
  }
  [[nodiscard]] std::uint64_t rows() const override { return rows_; }
  [[nodiscard]] std::uint64_t rows_a_block() const override {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(15000 / nnz_));
  }
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    std::vector<std::uint64_t> met;
    std::vector<double> user(rank_ + 1);
    for (auto u = first; u < last; ++u) {
      counter_random factors(seed_, users_stream, u);
      draw_factors(factors, user.data());
      counter_random random(seed_, rows_stream, u);
      draw_columns(random, law_, count_around(random, nnz_), met);
      normals normal(random);
      char* to = out.text.room(met.size() * (80 + 2 * separator_.size()));
      char name[24];
      const char* name_end = put_integer(name, u);
      for (const auto i : met) {
        const double* item = item_.data() + i * (rank_ + 1);
        double r = 0;
        for (std::uint64_t f = 1; f <= rank_; ++f) r += user[f] * item[f];
        r += noise_ * normal();
        if (stars_) r = std::clamp(std::nearbyint(2 * (mean + user[0] + item[0] + r)) / 2, 0.5, 5.0);
        if (kind_ == kind::fm) {
          to = put_one(put_one(put_fixed(to, r, 1), i + 1), items_ + u + 1);
          *to++ = '\n';
          continue;
        }
        to = std::copy(name, const_cast<char*>(name_end), to);
        to = std::copy(separator_.begin(), separator_.end(), to);
        to = put_integer(to, i);
        to = std::copy(separator_.begin(), separator_.end(), to);
        to = put_fixed(to, r, stars_ ? 1 : 4);
        *to++ = '\n';
      }
      out.text.commit(to);
      put_row(out.truth, "user_", u, user.data());
      out.end_row();
    }
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> beside(std::uint64_t) const override {
    text_buffer truth;
    for (std::uint64_t i = 0; i < items_; ++i) put_row(truth, "item_", i, item_.data() + i * (rank_ + 1));
    std::string text(truth.data(), truth.size());
    char line[80];
    std::snprintf(line, sizeof line, "mean\t%g\nnoise\t%g\n", stars_ ? mean : 0.0, noise_);
    std::vector<std::pair<std::string, std::string>> files{{".truth", text + line}};
    if (kind_ == kind::als) {
      text_buffer h;
      for (std::uint64_t i = 0; i < items_; ++i) put_factor_row(h, i, item_.data() + i * (rank_ + 1) + 1, rank_);
      files.emplace_back(".H", std::string(h.data(), h.size()));
    }
    return files;
  }

 private:
  static constexpr double mean = 3.5;

  /// A libsvm entry with the value 1.
  static char* put_one(char* to, std::uint64_t index) {
    *to++ = ' ';
    to = put_integer(to, index);
    *to++ = ':';
    *to++ = '1';
    return to;
  }

  /// A bias and `rank` factors; w.h has spread 1/2 with mf and fm, otherwise 1. Rounded to six digits, as they are
  /// written.
  void draw_factors(counter_random& random, double* to) const {
    normals normal(random);
    const double spread = (stars_ ? std::sqrt(0.5) : 1.0) / std::pow(static_cast<double>(rank_), 0.25);
    to[0] = stars_ ? std::nearbyint(0.35 * normal() * 1e6) / 1e6 : 0;
    for (std::uint64_t f = 1; f <= rank_; ++f) to[f] = std::nearbyint(spread * normal() * 1e6) / 1e6;
  }
  /// user_7<tab>bias|factor|...
  void put_row(text_buffer& out, const char* what, std::uint64_t id, const double* v) const {
    out.put(what);
    put_factor_row(out, id, stars_ ? v : v + 1, stars_ ? rank_ + 1 : rank_);
  }

  kind kind_;
  bool stars_;  // mf and fm: biases and a mean, in steps of a half
  std::uint64_t rows_;
  std::uint64_t items_;
  std::uint64_t rank_;
  double nnz_;
  double noise_;
  std::uint64_t seed_;
  std::string separator_;
  zipf law_;
  std::vector<double> item_;  // bias and factors of each item
};

}  // namespace

std::unique_ptr<generator> make_sparse(const std::string& kind, const options& o) {
  if (kind == "sparse_classification" || kind == "sparse_regression") {
    return std::make_unique<sparse_samples>(o, kind == "sparse_regression");
  }
  if (kind == "mf") return std::make_unique<ratings>(o, ratings::kind::mf);
  if (kind == "fm") return std::make_unique<ratings>(o, ratings::kind::fm);
  if (kind == "als") return std::make_unique<ratings>(o, ratings::kind::als);
  if (kind == "svd") return std::make_unique<ratings>(o, ratings::kind::svd);
  return nullptr;
}

}  // namespace datagen
