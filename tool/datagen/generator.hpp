// SPDX-License-Identifier: BSD-3-Clause
//
// The interface of all kinds of data: rows, each a function of the seed and its number, so that any thread can generate
// any of them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <paracel/random.hpp>

#include "text.hpp"

namespace datagen {

/// An invalid option: exit status 2.
struct option_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The options of a run.
class options {
 public:
  explicit options(std::map<std::string, std::string> values) : values_(std::move(values)) {}

  [[nodiscard]] bool has(const std::string& name) const { return values_.count(name) != 0; }
  [[nodiscard]] std::string text(const std::string& name, const std::string& fallback) const;
  /// Throws: option_error when it is not an integer in [least, most].
  [[nodiscard]] std::uint64_t integer(const std::string& name, std::uint64_t fallback, std::uint64_t least = 1,
                                      std::uint64_t most = std::uint64_t{1} << 53U) const;
  [[nodiscard]] double number(const std::string& name, double fallback, double least, double most) const;
  [[nodiscard]] bool flag(const std::string& name) const { return text(name, "0") == "1"; }
  /// `fallback` rows unless given, or as many as `--size` requires.
  [[nodiscard]] std::uint64_t rows(std::uint64_t fallback = 2500) const {
    return has("size") && !has("rows") ? std::uint64_t{1} << 62U : integer("rows", fallback);
  }
  /// The same if the number of rows must be known in advance: --size divided by the bytes of a row.
  [[nodiscard]] std::uint64_t rows_of_bytes(double bytes, std::uint64_t fallback = 2500) const;
  [[nodiscard]] std::uint64_t seed() const { return integer("seed", 0, 0, ~std::uint64_t{0}); }
  [[nodiscard]] std::string separator(const std::string& fallback) const { return text("sep", fallback); }

 private:
  std::map<std::string, std::string> values_;
};

/// A block of rows as text.
struct block {
  text_buffer text;
  text_buffer truth;                                      ///< their ground truth
  std::vector<std::pair<std::size_t, std::size_t>> ends;  ///< of each row, in text and truth
  std::vector<std::pair<std::uint32_t, double>> parts;    ///< input of `fold`

  void end_row() { ends.emplace_back(text.size(), truth.size()); }
  void clear() {
    text.clear();
    truth.clear();
    ends.clear();
    parts.clear();
  }
};

class generator {
 public:
  generator() = default;
  generator(const generator&) = delete;
  generator& operator=(const generator&) = delete;
  virtual ~generator() = default;

  [[nodiscard]] virtual std::uint64_t rows() const = 0;
  /// Whether any prefix of the rows is valid, so that --size may stop anywhere.
  [[nodiscard]] virtual bool can_be_cut() const { return true; }
  /// The number of rows in about 256 kB.
  [[nodiscard]] virtual std::uint64_t rows_a_block() const = 0;
  /// Appends the rows [first, last). Thread-safety: const-concurrent
  virtual void render(std::uint64_t first, std::uint64_t last, block& out) const = 0;
  /// Called with each block written, in order.
  virtual void fold(const block& /*written*/) {}
  /// Additional files, by the suffix added to the output's name. `written`: rows. A file named .truth is appended to
  /// the rows' truth.
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> beside(std::uint64_t /*written*/) const {
    return {};
  }
};

/// The generator of this kind, or null. Throws: option_error.
std::unique_ptr<generator> make_dense(const std::string& kind, const options& o);
std::unique_ptr<generator> make_sparse(const std::string& kind, const options& o);
std::unique_ptr<generator> make_graph(const std::string& kind, const options& o);
std::unique_ptr<generator> make_text(const std::string& kind, const options& o);

// ---- random numbers beyond paracel/random.hpp

using paracel::counter_random;

/// Streams of random numbers.
enum stream : std::uint64_t {
  rows_stream = 1,
  weights_stream,
  centers_stream,
  users_stream,
  items_stream,
  words_stream
};

/// Standard normal numbers, two for each pair of draws.
class normals {
 public:
  explicit normals(counter_random& r) : random_(r) {}
  double operator()() {
    if (kept_) {
      kept_ = false;
      return next_;
    }
    const double radius = std::sqrt(-2 * std::log(random_.uniform_above_zero()));
    const double turn = 2 * std::numbers::pi * random_.uniform();
    next_ = radius * std::sin(turn);
    kept_ = true;
    return radius * std::cos(turn);
  }

 private:
  counter_random& random_;
  double next_ = 0;
  bool kept_ = false;
};

/// Numbers 0 ... n - 1, number k with a probability proportional to the integral of x^-s over [k + 1, k + 2]: Zipf's
/// law except for the first few, with one draw and without a table.
class zipf {
 public:
  zipf(std::uint64_t n, double s) : n_(n), power_(1 - s) {
    const auto end = static_cast<double>(n) + 1;
    range_ = std::abs(power_) < 1e-9 ? std::log(end) : std::pow(end, power_) - 1;
  }
  std::uint64_t operator()(counter_random& r) const {
    const double u = r.uniform();
    const double x = std::abs(power_) < 1e-9 ? std::exp(u * range_) : std::pow(1 + u * range_, 1 / power_);
    const auto k = static_cast<std::uint64_t>(x) - 1;
    return k < n_ ? k : n_ - 1;
  }

 private:
  std::uint64_t n_;
  double power_;
  double range_;
};

/// Gamma(shape, 1). Source: G. Marsaglia, W. Tsang, "A simple method for generating gamma variables", ACM TOMS 2000.
inline double gamma_variate(counter_random& r, double shape) {
  const double lift = shape < 1 ? std::pow(r.uniform_above_zero(), 1 / shape) : 1.0;
  const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = r.normal();
    const double v = (1 + c * x) * (1 + c * x) * (1 + c * x);
    if (v > 0 && std::log(r.uniform_above_zero()) < x * x / 2 + d - d * v + d * std::log(v)) return lift * d * v;
  }
}

/// A count around `mean`, at least 1, with a long tail (log-normal, sigma 1/2).
inline std::uint64_t count_around(counter_random& r, double mean) {
  const double v = mean * std::exp(r.normal() / 2 - 0.125);
  return v < 1 ? 1 : static_cast<std::uint64_t>(v);
}

/// Draws from a given distribution in constant time. Source: M. Vose, "A linear algorithm for generating random numbers
/// with a given distribution", IEEE TSE 1991.
class alias_table {
 public:
  explicit alias_table(const std::vector<double>& weights) : keep_(weights.size()), other_(weights.size()) {
    double total = 0;
    for (const double w : weights) total += w;
    std::vector<std::uint32_t> small;
    std::vector<std::uint32_t> large;
    const auto n = static_cast<double>(weights.size());
    for (std::uint32_t i = 0; i < weights.size(); ++i) {
      keep_[i] = weights[i] * n / total;
      (keep_[i] < 1 ? small : large).push_back(i);
    }
    while (!small.empty() && !large.empty()) {
      const auto s = small.back();
      const auto l = large.back();
      small.pop_back();
      other_[s] = l;
      keep_[l] -= 1 - keep_[s];
      if (keep_[l] < 1) {
        large.pop_back();
        small.push_back(l);
      }
    }
    for (const auto i : small) keep_[i] = 1;
    for (const auto i : large) keep_[i] = 1;
  }
  std::uint32_t operator()(counter_random& r) const {
    const auto i = static_cast<std::uint32_t>(r.below(keep_.size()));
    return r.uniform() < keep_[i] ? i : other_[i];
  }

 private:
  std::vector<double> keep_;
  std::vector<std::uint32_t> other_;
};

/// `id\tv|v|...\n`, Paracel's format of a row.
inline void put_factor_row(text_buffer& out, std::uint64_t id, const double* v, std::size_t n) {
  char* to = put_integer(out.room(24 + 26 * n), id);
  *to++ = '\t';
  for (std::size_t j = 0; j < n; ++j) {
    if (j > 0) *to++ = '|';
    to = put_fixed(to, v[j], 6);
  }
  *to++ = '\n';
  out.commit(to);
}

}  // namespace datagen
