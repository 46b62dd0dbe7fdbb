// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of strongly connected components: two depth-first searches without recursion, the second one on the
// reverse graph in reverse finishing order (Kosaraju, Sharir).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph.hpp"

using namespace serial;

namespace {

csr reversed(const csr& a) {
  csr b;
  b.begin.assign(a.begin.size(), 0);
  for (const auto t : a.target) ++b.begin[t + 1];
  for (std::uint32_t v = 0; v < a.size(); ++v) b.begin[v + 1] += b.begin[v];
  b.target.resize(a.target.size());
  auto next = b.begin;
  for (std::uint32_t v = 0; v < a.size(); ++v)
    for (auto e = a.begin[v]; e < a.begin[v + 1]; ++e) b.target[next[a.target[e]]++] = v;
  return b;
}

std::vector<std::uint32_t> strong(const csr& out) {
  const auto n = out.size();
  std::vector<std::uint32_t> left, path;
  std::vector<std::uint64_t> at(out.begin.begin(), out.begin.end() - 1);
  std::vector<char> seen(n);
  for (std::uint32_t s = 0; s < n; ++s) {
    if (seen[s] != 0) continue;
    seen[s] = 1;
    path.push_back(s);
    while (!path.empty()) {
      const auto v = path.back();
      if (at[v] == out.begin[v + 1]) {
        left.push_back(v);
        path.pop_back();
        continue;
      }
      const auto t = out.target[at[v]++];
      if (seen[t] != 0) continue;
      seen[t] = 1;
      path.push_back(t);
    }
  }
  const auto in = reversed(out);
  std::vector<std::uint32_t> label(n), members;
  for (auto s = left.rbegin(); s != left.rend(); ++s) {
    if (seen[*s] == 2) continue;
    members.assign(1, *s);
    seen[*s] = 2;
    auto least = *s;
    for (std::size_t k = 0; k < members.size(); ++k) {
      const auto v = members[k];
      least = std::min(least, v);
      for (auto e = in.begin[v]; e < in.begin[v + 1]; ++e) {
        const auto t = in.target[e];
        if (seen[t] == 2) continue;
        seen[t] = 2;
        members.push_back(t);
      }
    }
    for (const auto v : members) label[v] = least;
  }
  return label;
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "", [](arguments& from) {
    const auto g = load(from.input, from.option["vertices"]);
    const auto label = strong(compress(g, false));
    report(label);
    write(from.option["out"], g, [&](std::uint32_t v) { return g.ids[label[v]]; });
  });
}
