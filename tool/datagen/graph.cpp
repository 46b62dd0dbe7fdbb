// SPDX-License-Identifier: BSD-3-Clause
//
// Graphs: pagerank, rmat, partition, steady_state.
#include <algorithm>
#include <bit>
#include <cmath>

#include "generator.hpp"

namespace datagen {

namespace {

/// Mean number of decimal digits of the numbers below n.
double mean_digits(double n) {
  double digits = 1;
  for (double power = 10; power < n; power *= 10) digits += 1 - power / n;
  return digits;
}

void end_edge(char*& to, bool weighted, const std::string& separator, counter_random& random) {
  if (weighted) {
    to = std::copy(separator.begin(), separator.end(), to);
    to = put_fixed(to, static_cast<double>(1 + random.below(1000)) / 1000, 3);
  }
  *to++ = '\n';
}

/// from<tab>to[<tab>weight], one edge a line: sources uniform, targets by Zipf's law, like links of the web.
class link_graph : public generator {
 public:
  explicit link_graph(const options& o)
      : rows_(o.rows(10000)),
        vertices_(o.integer("vertices", std::max<std::uint64_t>(1, o.rows_of_bytes(14, 10000) / 10))),
        seed_(o.seed()),
        separator_(o.separator("\t")),
        law_(vertices_, o.number("zipf", 0.8, 0, 4)),
        weighted_(o.flag("weighted")) {}
  [[nodiscard]] std::uint64_t rows() const override { return rows_; }
  [[nodiscard]] std::uint64_t rows_a_block() const override { return 16384; }
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    for (auto e = first; e < last; ++e) {
      counter_random random(seed_, rows_stream, e);
      char* to = put_integer(out.text.room(80 + 2 * separator_.size()), random.below(vertices_));
      to = std::copy(separator_.begin(), separator_.end(), to);
      to = put_integer(to, law_(random));
      end_edge(to, weighted_, separator_, random);
      out.text.commit(to);
      out.end_row();
    }
  }

 private:
  std::uint64_t rows_;
  std::uint64_t vertices_;
  std::uint64_t seed_;
  std::string separator_;
  zipf law_;
  bool weighted_;
};

/// R-MAT: each bit of an edge's ends is drawn with the probabilities .57 .19 .19 .05 of the four quadrants. Ids are
/// permuted, so that a vertex's id says nothing about its degree. Source: D. Chakrabarti et al., "R-MAT", SDM 2004,
/// with the probabilities of Graph500.
class rmat_graph : public generator {
 public:
  explicit rmat_graph(const options& o)
      : rows_(o.rows(16384)), seed_(o.seed()), separator_(o.separator("\t")), weighted_(o.flag("weighted")) {
    const auto vertices =
        o.integer("vertices", std::max<std::uint64_t>(2, o.rows_of_bytes(16, 16384) / 16), 2, std::uint64_t{1} << 40U);
    scale_ = std::bit_width(vertices - 1);
  }
  [[nodiscard]] std::uint64_t rows() const override { return rows_; }
  [[nodiscard]] std::uint64_t rows_a_block() const override { return 16384; }
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    for (auto e = first; e < last; ++e) {
      counter_random random(seed_, rows_stream, e);
      std::uint64_t from = 0;
      std::uint64_t into = 0;
      std::uint64_t bits = 0;
      for (int level = 0; level < scale_; ++level) {
        // One draw for four levels, 16 bits each.
        bits = level % 4 == 0 ? random.bits() : bits >> 16U;
        const auto u = static_cast<std::uint32_t>(bits & 0xffffU);
        const std::uint32_t down = u >= upper ? 1 : 0;
        const std::uint32_t right = down != 0 ? (u >= lower_left ? 1 : 0) : (u >= upper_left ? 1 : 0);
        from = from << 1U | down;
        into = into << 1U | right;
      }
      char* to = put_integer(out.text.room(80 + 2 * separator_.size()), permuted(from));
      to = std::copy(separator_.begin(), separator_.end(), to);
      to = put_integer(to, permuted(into));
      end_edge(to, weighted_, separator_, random);
      out.text.commit(to);
      out.end_row();
    }
  }

 private:
  // In units of 1/65536: .57, .57 + .19, .57 + .19 + .19.
  static constexpr std::uint32_t upper_left = 37356;
  static constexpr std::uint32_t upper = 49807;
  static constexpr std::uint32_t lower_left = 62259;

  /// A bijection of [0, 2^scale): multiplication by odd factors and xor with right shifts are invertible.
  [[nodiscard]] std::uint64_t permuted(std::uint64_t v) const {
    const std::uint64_t mask = (std::uint64_t{1} << static_cast<unsigned>(scale_)) - 1;
    const auto half = static_cast<unsigned>((scale_ + 1) / 2);
    v = (v * 0x9e3779b97f4a7c15U + 0x632be59bd9b4e019U) & mask;
    v ^= v >> half;
    v = (v * 0xd1342543de82ef95U + 0x2545f4914f6cdd1dU) & mask;
    return v ^ (v >> half);
  }

  std::uint64_t rows_;
  std::uint64_t seed_;
  std::string separator_;
  bool weighted_;
  int scale_ = 1;
};

/// i<tab>j with i < j: a planted partition. Vertex v is in part v mod `parts`; a pair within a part is an edge with
/// probability p_in, any other with p_out. A row is a vertex with its edges to greater ones.
class partition_graph : public generator {
 public:
  explicit partition_graph(const options& o)
      : parts_(o.integer("parts", 4, 1, 1U << 20U)),
        p_in_(o.number("p_in", 0.05, 0, 1)),
        p_out_(o.number("p_out", 0.005, 0, 1)),
        seed_(o.seed()),
        separator_(o.separator("\t")) {
    // The number of edges grows with the square of the vertices.
    const double p = (p_in_ + p_out_ * static_cast<double>(parts_ - 1)) / static_cast<double>(parts_);
    if (o.has("size") && p == 0) throw option_error("size: no edge is likely with p_in and p_out 0");
    rows_ = o.integer("rows", 2000, 1, 1U << 31U);
    if (o.has("size")) {
      const auto size = static_cast<double>(o.integer("size", 0));
      for (int turn = 0; turn < 5; ++turn) {
        const double edge = 2 * mean_digits(static_cast<double>(rows_)) + 2;
        rows_ = static_cast<std::uint64_t>(std::ceil(std::sqrt(2 * size / (edge * p)))) + 1;
      }
    }
    row_edges_ = 1 + p * static_cast<double>(rows_) / 2;
  }
  [[nodiscard]] bool can_be_cut() const override { return false; }
  [[nodiscard]] std::uint64_t rows() const override { return rows_; }
  [[nodiscard]] std::uint64_t rows_a_block() const override {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(20000 / row_edges_));
  }
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    std::vector<std::uint64_t> targets;
    for (auto i = first; i < last; ++i) {
      counter_random random(seed_, rows_stream, i);
      targets.clear();
      const auto part = i % parts_;
      // The other vertices of this part are i + parts, i + 2 parts, ...; the remaining ones are numbered without them.
      skip(random, p_in_, (rows_ - 1 - i) / parts_, [&](std::uint64_t k) { targets.push_back(i + (k + 1) * parts_); });
      const auto rest = rows_ - 1 - i - (rows_ - 1 - i) / parts_;
      if (parts_ > 1) {
        skip(random, p_out_, rest, [&](std::uint64_t k) { targets.push_back(i + 1 + k + k / (parts_ - 1)); });
      }
      std::sort(targets.begin(), targets.end());
      char* to = out.text.room(targets.size() * (50 + separator_.size()));
      for (const auto j : targets) {
        to = put_integer(to, i);
        to = std::copy(separator_.begin(), separator_.end(), to);
        to = put_integer(to, j);
        *to++ = '\n';
      }
      out.text.commit(to);
      char* truth = put_integer(out.truth.room(48), i);
      *truth++ = '\t';
      truth = put_integer(truth, part);
      *truth++ = '\n';
      out.truth.commit(truth);
      out.end_row();
    }
  }

 private:
  /// Selects each of 0 ... n - 1 with probability p: gaps between selected numbers are geometric.
  template <class F>
  static void skip(counter_random& random, double p, std::uint64_t n, F&& take) {
    if (p <= 0) return;
    const double scale = p < 1 ? 1 / std::log1p(-p) : 0;
    for (double k = 0;; k += 1) {
      k += std::floor(scale * std::log(random.uniform_above_zero()));
      if (!(k < static_cast<double>(n))) return;
      take(static_cast<std::uint64_t>(k));
    }
  }

  std::uint64_t rows_ = 0;
  std::uint64_t parts_;
  double p_in_;
  double p_out_;
  std::uint64_t seed_;
  std::string separator_;
  double row_edges_ = 1;
};

/// <i>L,<j>R,weight: a bipartite graph, and <out>.dis with `id,p` for both sides, each summing to 1. There are scores
/// s_j > 0, the truth, for which every right vertex receives exactly its p.
class steady_graph : public generator {
 public:
  explicit steady_graph(const options& o)
      : nnz_(o.number("nnz", 10, 1, 1e9)),
        rows_(rows_for(o, nnz_)),
        items_(o.integer("items", std::max<std::uint64_t>(1, std::min<std::uint64_t>(rows_ / 5, 1U << 31U)), 1,
                         1U << 31U)),
        seed_(o.seed()),
        separator_(o.separator(",")),
        law_(items_, o.number("zipf", 0.5, 0, 4)),
        score_(items_),
        received_(items_) {
    if (items_ > rows_)
      throw option_error("items: found " + std::to_string(items_) + ", want at most the number of rows");
    for (std::uint64_t j = 0; j < items_; ++j) {
      counter_random random(seed_, items_stream, j);
      score_[j] = std::exp(random.normal() / 2);
    }
    for (std::uint64_t i = 0; i < rows_; ++i) mass_ += raw_mass(i);
  }
  [[nodiscard]] bool can_be_cut() const override { return false; }
  [[nodiscard]] std::uint64_t rows() const override { return rows_; }
  [[nodiscard]] std::uint64_t rows_a_block() const override {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(15000 / nnz_));
  }
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    std::vector<std::uint64_t> targets;
    std::vector<double> flow;
    for (auto i = first; i < last; ++i) {
      counter_random random(seed_, rows_stream, i);
      targets.clear();
      targets.push_back(i % items_);  // so that each right vertex has an edge
      for (auto k = count_around(random, nnz_); k > 1; --k) targets.push_back(law_(random));
      std::sort(targets.begin(), targets.end());
      targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
      flow.clear();
      double sum = 0;
      char* to = out.text.room(targets.size() * (70 + 2 * separator_.size()));
      for (const auto j : targets) {
        const double w = static_cast<double>(1 + random.below(1000)) / 1000;
        flow.push_back(w * score_[j]);
        sum += flow.back();
        to = put_integer(to, i);
        *to++ = 'L';
        to = std::copy(separator_.begin(), separator_.end(), to);
        to = put_integer(to, j);
        *to++ = 'R';
        to = std::copy(separator_.begin(), separator_.end(), to);
        to = put_fixed(to, w, 3);
        *to++ = '\n';
      }
      out.text.commit(to);
      const double mass = raw_mass(i) / mass_;
      for (std::size_t k = 0; k < targets.size(); ++k) {
        out.parts.emplace_back(static_cast<std::uint32_t>(targets[k]), mass * flow[k] / sum);
      }
      out.end_row();
    }
  }
  void fold(const block& written) override {
    for (const auto& [j, q] : written.parts) received_[j] += q;
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> beside(std::uint64_t) const override {
    std::string distribution;
    std::string truth;
    char line[64];
    const auto add = [&](std::string& text, std::uint64_t id, char side, double v) {
      char* to = put_integer(line, id);
      *to++ = side;
      text.append(line, to);
      text += separator_;
      to = put_exact(line, v);
      *to++ = '\n';
      text.append(line, to);
    };
    for (std::uint64_t i = 0; i < rows_; ++i) add(distribution, i, 'L', raw_mass(i) / mass_);
    for (std::uint64_t j = 0; j < items_; ++j) {
      add(distribution, j, 'R', received_[j]);
      add(truth, j, 'R', score_[j]);
    }
    return {{".dis", distribution}, {".truth", truth}};
  }

 private:
  static std::uint64_t rows_for(const options& o, double nnz) {
    auto rows = o.integer("rows", 1000);
    for (int turn = 0; turn < 5 && o.has("size"); ++turn) {
      const double edge = 2 * mean_digits(static_cast<double>(rows)) + 9.5;
      rows = o.rows_of_bytes(edge * std::max(1.0, nnz - 0.5));
    }
    return rows;
  }
  [[nodiscard]] double raw_mass(std::uint64_t i) const {
    return 0.5 + counter_random(seed_, users_stream, i).uniform();
  }

  double nnz_;
  std::uint64_t rows_;
  std::uint64_t items_;
  std::uint64_t seed_;
  std::string separator_;
  zipf law_;
  std::vector<double> score_;
  std::vector<double> received_;
  double mass_ = 0;
};

}  // namespace

std::unique_ptr<generator> make_graph(const std::string& kind, const options& o) {
  if (kind == "pagerank") return std::make_unique<link_graph>(o);
  if (kind == "rmat") return std::make_unique<rmat_graph>(o);
  if (kind == "partition") return std::make_unique<partition_graph>(o);
  if (kind == "steady_state") return std::make_unique<steady_graph>(o);
  return nullptr;
}

}  // namespace datagen
