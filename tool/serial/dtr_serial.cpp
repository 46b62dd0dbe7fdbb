// SPDX-License-Identifier: BSD-3-Clause
//
// Serial decision_tree_rec: one process, no framework. For each node and item it computes both sides'
// means and sums the distances, as in the definition.
//
//     dtr_serial USERS ITEMS LEVEL
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

struct factors {
  std::vector<std::uint64_t> id;
  std::vector<double> value;
  std::size_t k = 0;
};

/// id<tab>v|v|...
factors load(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  factors f;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    std::uint64_t id = 0;
    auto read = std::from_chars(at, end, id);
    if (read.ec != std::errc()) throw std::runtime_error(file + ": not an id");
    at = read.ptr;
    f.id.push_back(id);
    std::size_t count = 0;
    while (at != end && *at != '\n') {
      double v = 0;
      const auto number = std::from_chars(at + 1, end, v);
      if (number.ec != std::errc()) throw std::runtime_error(file + ": not a number");
      at = number.ptr;
      f.value.push_back(v);
      ++count;
    }
    if (at != end) ++at;
    if (f.k == 0) f.k = count;
    if (count != f.k) throw std::runtime_error(file + ": rows of different widths");
  }
  return f;
}

constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

class builder {
 public:
  builder(factors users, factors items) : users_(std::move(users)), items_(std::move(items)), k_(users_.k) {
    order_.resize(items_.id.size());
    for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = i;
    std::sort(order_.begin(), order_.end(), [&](auto a, auto b) { return items_.id[a] < items_.id[b]; });
    // Which users like each item, computed once.
    const std::size_t n = users_.id.size();
    likes_.resize(order_.size() * n);
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const double* q = items_.value.data() + order_[i] * k_;
      for (std::size_t u = 0; u < n; ++u) {
        const double* p = users_.value.data() + u * k_;
        double product = 0;
        for (std::size_t f = 0; f < k_; ++f) product += q[f] * p[f];
        likes_[i * n + u] = product >= 0;
      }
    }
  }

  /// The error of the tree whose root asks the best item.
  [[nodiscard]] double error_of_tree(int level) const {
    std::vector<std::vector<std::uint32_t>> nodes(1);
    for (std::uint32_t u = 0; u < users_.id.size(); ++u) nodes[0].push_back(u);
    std::vector<bool> used(order_.size());
    double error = 0;
    const std::size_t total = (std::size_t{1} << static_cast<unsigned>(level)) - 1;
    for (std::size_t at = 0; at < total; ++at) {
      const auto node = nodes[at];
      const auto item = node.empty() ? none : choose(node, used);
      if (item == none || at >= total / 2) error += spread(node);
      std::vector<std::uint32_t> like;
      std::vector<std::uint32_t> hate;
      if (item != none) {
        used[item] = true;
        for (const auto u : node) (likes_[item * users_.id.size() + u] ? like : hate).push_back(u);
      }
      nodes.push_back(std::move(like));
      nodes.push_back(std::move(hate));
    }
    return error;
  }

  [[nodiscard]] const factors& items() const { return items_; }
  [[nodiscard]] std::size_t k() const { return k_; }

 private:
  /// sum |p_u - mean|^2
  [[nodiscard]] double spread(const std::vector<std::uint32_t>& set) const {
    std::vector<double> mean(k_);
    for (const auto u : set) {
      for (std::size_t f = 0; f < k_; ++f) mean[f] += users_.value[u * k_ + f];
    }
    if (!set.empty()) {
      for (auto& m : mean) m /= static_cast<double>(set.size());
    }
    double sum = 0;
    for (const auto u : set) {
      for (std::size_t f = 0; f < k_; ++f) {
        const double d = users_.value[u * k_ + f] - mean[f];
        sum += d * d;
      }
    }
    return sum;
  }

  [[nodiscard]] std::size_t choose(const std::vector<std::uint32_t>& node, const std::vector<bool>& used) const {
    const std::size_t n = users_.id.size();
    const double never = std::numeric_limits<double>::infinity();
    std::vector<double> error(order_.size(), never);
    double norm = 0;
    for (const auto u : node) {
      for (std::size_t f = 0; f < k_; ++f) norm += users_.value[u * k_ + f] * users_.value[u * k_ + f];
    }
    std::vector<double> mean[2];
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (used[i]) continue;
      mean[0].assign(k_, 0);
      mean[1].assign(k_, 0);
      std::size_t count[2] = {};
      const auto* likes = likes_.data() + i * n;
      for (const auto u : node) {
        ++count[likes[u]];
        auto& m = mean[likes[u]];
        for (std::size_t f = 0; f < k_; ++f) m[f] += users_.value[u * k_ + f];
      }
      if (count[0] == 0 || count[1] == 0 || count[0] / count[1] >= 3 || count[1] / count[0] >= 3) continue;
      for (int side = 0; side < 2; ++side) {
        for (auto& m : mean[side]) m /= static_cast<double>(count[side]);
      }
      double sum = 0;
      for (const auto u : node) {
        const auto& m = mean[likes[u]];
        for (std::size_t f = 0; f < k_; ++f) {
          const double d = users_.value[u * k_ + f] - m[f];
          sum += d * d;
        }
      }
      error[i] = sum;
    }
    // Errors that differ by less than 1e-10 of the node's sum of |p|^2 are equal; then the smaller id is chosen.
    const double least = *std::min_element(error.begin(), error.end());
    if (least == never) return none;
    const auto first = std::find_if(error.begin(), error.end(), [&](double e) { return e <= least + 1e-10 * norm; });
    return static_cast<std::size_t>(first - error.begin());
  }

  factors users_;
  factors items_;
  std::size_t k_;
  std::vector<std::size_t> order_;
  std::vector<std::uint8_t> likes_;
};

void run(int argc, char** argv) {
  if (argc != 4) throw std::runtime_error("usage: dtr_serial USERS ITEMS LEVEL");
  const builder b(load(argv[1]), load(argv[2]));
  if (b.items().k != b.k()) throw std::runtime_error("users and items have factors of different widths");
  std::printf("error_0 %.17g\n", b.error_of_tree(std::stoi(argv[3])));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "dtr_serial: error: %s\n", e.what());
    return 1;
  }
}
