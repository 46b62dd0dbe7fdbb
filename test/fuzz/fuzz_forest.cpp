// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary nodes are a forest or a data_error; an accepted forest leads every row to a leaf, and can be exported.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "alg/gbdt/forest.hpp"
#include "paracel/error.hpp"

namespace {

class bytes_of_input {
 public:
  bytes_of_input(const std::uint8_t* at, std::size_t size) : at_(at), left_(size) {}
  [[nodiscard]] bool over() const { return left_ == 0; }
  /// A number that is mostly small.
  std::int32_t number() {
    if (left_ == 0) return 0;
    --left_;
    const std::uint8_t first = *at_++;
    if (first < 200) return first % 40 - 2;
    std::int32_t v = 0;
    const auto n = left_ < sizeof v ? left_ : sizeof v;
    std::memcpy(&v, at_, n);
    at_ += n;
    left_ -= n;
    return v;
  }

 private:
  const std::uint8_t* at_;
  std::size_t left_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  bytes_of_input in(data, size);
  const auto some = [&] { return static_cast<std::uint32_t>(in.number()); };
  paracel::alg::forest f;
  f.features = some() % 8;
  f.width = some() % 4;
  f.outputs = some() % 3;
  for (auto n = some() % 8; n > 0; --n) f.value.push_back(static_cast<float>(in.number()));
  for (auto n = some() % 8; n > 0; --n) f.category.push_back(some());
  for (auto n = some() % 4; n > 0; --n) f.tree_begin.push_back(some());
  while (!in.over() && f.node.size() < 64) {
    paracel::alg::tree_node n;
    n.feature = in.number();
    n.threshold = static_cast<float>(in.number());
    n.left = in.number();
    n.right = in.number();
    n.leaf = some();
    n.category_begin = some();
    n.category_count = some() % 8 == 0 ? some() : 0;
    n.missing_left = some() % 2 != 0;
    f.node.push_back(n);
  }
  try {
    f.verify("forest");
  } catch (const paracel::data_error&) {
    return 0;
  }
  std::vector<float> x(f.features);
  std::vector<double> out(f.width > 1 ? f.width : f.outputs);
  for (const float v : {0.0F, -3.0F, 17.0F, 1e30F, std::numeric_limits<float>::quiet_NaN()}) {
    x.assign(f.features, v);
    for (std::size_t t = 0; t < f.trees(); ++t) {
      if (!f.node[f.tree_begin[t] + f.leaf_of(t, x)].is_leaf()) std::abort();
    }
    f.add_to(x, out);
  }
  if (f.width == 1) (void)paracel::alg::xgboost_json(f, {"reg:squarederror", 0, 0, {}, {}});
  std::vector<double> gain;
  std::vector<double> splits;
  f.importance(gain, splits);
  f.keep_trees(f.trees() / 2);
  return 0;
}
