// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of similarity_sparse: every pair of rows by merging their columns, by definition.
//
//     sim_sparse_serial FILE [--topk K] [--sim_method cosine|jaccard|pearson] [--format fsv|sfv] [--rbar N] [--rubar N]
//         [--cbar N] [--cubar N] [--sim_bar S] [--sim_ubar S] [--weight_bar W] [--intersect_bar N] [--out FILE]
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using row = std::vector<std::pair<std::uint64_t, double>>;

/// NaN: undefined.
double similarity(const std::string& method, const row& a, const row& b, std::size_t& both) {
  double aa = 0, bb = 0, ab = 0;
  std::vector<std::pair<double, double>> common;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].first == b[j].first) common.emplace_back(a[i++].second, b[j++].second);
    else if (a[i].first < b[j].first) ++i;
    else ++j;
  }
  both = common.size();
  if (method == "jaccard") return static_cast<double>(both) / static_cast<double>(a.size() + b.size() - both);
  double ma = 0, mb = 0;
  if (method == "pearson") {
    for (const auto& [x, y] : common) {
      ma += x;
      mb += y;
    }
    ma /= static_cast<double>(both);
    mb /= static_cast<double>(both);
    bool constant_a = true, constant_b = true;
    for (const auto& [x, y] : common) {
      aa += (x - ma) * (x - ma);
      bb += (y - mb) * (y - mb);
      constant_a = constant_a && x == common[0].first;
      constant_b = constant_b && y == common[0].second;
    }
    if (both < 2 || constant_a || constant_b) return NAN;
  } else {
    for (const auto& [c, x] : a) aa += x * x;
    for (const auto& [c, x] : b) bb += x * x;
  }
  for (const auto& [x, y] : common) ab += (x - ma) * (y - mb);
  return ab / (std::sqrt(aa) * std::sqrt(bb));
}

bool within(double n, double least, double most) { return (least <= 0 || n >= least) && (most <= 0 || n <= most); }

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string file;
    std::map<std::string, std::string> o{{"topk", "10"}, {"sim_method", "cosine"}, {"format", "fsv"}};
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      if (name.rfind("--", 0) != 0) file = name;
      else if (++i == argc) throw std::runtime_error("no value after " + name);
      else o[name.substr(2)] = argv[i];
    }
    const auto number = [&](const char* name) { return o.count(name) ? std::atof(o[name].c_str()) : 0.0; };
    const double weight_bar = number("weight_bar");
    std::ifstream in(file);
    if (!in) throw std::runtime_error("cannot read " + file);
    std::map<std::uint64_t, std::map<std::uint64_t, double>> cells;
    for (std::string line; std::getline(in, line);) {
      char* at = line.data();
      auto r = std::strtoull(at, &at, 10);
      auto c = std::strtoull(at + 1, &at, 10);
      const double v = *at == ',' ? std::strtod(at + 1, &at) : 1;
      if (o["format"] == "sfv") std::swap(r, c);
      cells[r][c] += v;
    }
    std::map<std::uint64_t, double> column;
    const auto light = [&](double v) { return v == 0 || (weight_bar > 0 && std::abs(v) < weight_bar); };
    for (const auto& [r, entries] : cells)
      for (const auto& [c, v] : entries) column[c] += light(v) ? 0 : 1;
    std::vector<std::pair<std::uint64_t, row>> rows;
    for (const auto& [r, entries] : cells) {
      row kept;
      for (const auto& [c, v] : entries)
        if (!light(v) && within(column[c], number("cbar"), number("cubar"))) kept.emplace_back(c, v);
      if (!kept.empty() && within(static_cast<double>(kept.size()), number("rbar"), number("rubar")))
        rows.emplace_back(r, std::move(kept));
    }

    const auto off = [](double v) { return v == 0 || v == -1; };
    const double least = off(number("sim_bar")) ? -INFINITY : number("sim_bar");
    const double most = off(number("sim_ubar")) ? INFINITY : number("sim_ubar");
    const double common = std::max(1.0, number("intersect_bar"));
    std::vector<std::vector<std::pair<double, std::uint64_t>>> lists(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t j = i + 1; j < rows.size(); ++j) {
        std::size_t both = 0;
        const double s = similarity(o["sim_method"], rows[i].second, rows[j].second, both);
        if (static_cast<double>(both) < common || !(s >= least && s <= most)) continue;
        lists[i].emplace_back(-s, rows[j].first);
        lists[j].emplace_back(-s, rows[i].first);
      }
    }
    const auto k = static_cast<std::size_t>(number("topk"));
    std::size_t neighbours = 0;
    std::ofstream out;
    if (o.count("out")) out.open(o["out"]);
    out.precision(17);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      auto& list = lists[i];
      std::sort(list.begin(), list.end());
      if (list.size() > k) list.resize(k);
      neighbours += list.size();
      if (list.empty()) continue;
      out << rows[i].first << '\t';
      for (std::size_t n = 0; n < list.size(); ++n)
        out << (n == 0 ? "" : "|") << list[n].second << ':' << -list[n].first;
      out << '\n';
    }
    std::printf("rows %zu\nneighbours %zu\n", rows.size(), neighbours);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "sim_sparse_serial: error: %s\n", e.what());
    return 1;
  }
}
