// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of similarity_dense: one process, no framework, pair by pair.
//
//     sim_dense_serial A [B] [--topk K] [--simbar S] [--ids first|row] [--label] [--out FILE]
//
// Lines id,feature,feature,... or, with --ids row, feature,feature,...; --label: the last field is ignored. Ids are
// numbers.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

struct matrix {
  std::vector<std::pair<std::uint64_t, std::vector<double>>> rows;  // by id
};

matrix load(const std::string& file, bool row_ids, bool label) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error("cannot read " + file);
  matrix m;
  for (std::string line; std::getline(in, line);) {
    if (line.find_first_not_of(" \r") == std::string::npos) continue;
    char* at = line.data();
    std::uint64_t id = m.rows.size();
    if (!row_ids) {
      id = std::strtoull(at, &at, 10);
      ++at;
    }
    std::vector<double> values;
    for (;;) {
      values.push_back(std::strtod(at, &at));
      if (*at == '\0' || *at == '\r') break;
      ++at;
    }
    if (label) values.pop_back();
    double sum = 0;
    for (const auto v : values) sum += v * v;
    for (auto& v : values) v /= std::sqrt(sum);  // a zero row becomes NaN
    m.rows.emplace_back(id, std::move(values));
  }
  std::sort(m.rows.begin(), m.rows.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return m;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> files;
    std::size_t k = 20;
    double simbar = 0;
    bool row_ids = false, label = false;
    std::string out_file;
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      if (name.rfind("--", 0) != 0) {
        files.push_back(name);
        continue;
      }
      if (name == "--label") {
        label = true;
        continue;
      }
      if (++i == argc) throw std::runtime_error("no value after " + name);
      if (name == "--topk") k = std::strtoul(argv[i], nullptr, 10);
      else if (name == "--simbar") simbar = std::atof(argv[i]);
      else if (name == "--ids") row_ids = std::string(argv[i]) == "row";
      else if (name == "--out") out_file = argv[i];
      else throw std::runtime_error("unknown option " + name);
    }
    if (files.empty()) throw std::runtime_error("usage: sim_dense_serial A [B] [--topk K] [--simbar S] [--out FILE]");
    const auto a = load(files[0], row_ids, label);
    const bool one = files.size() == 1;
    const auto b = one ? a : load(files[1], row_ids, label);
    std::ofstream out;
    if (!out_file.empty()) out.open(out_file);
    out.precision(17);
    std::size_t neighbours = 0;
    double sum = 0;
    std::vector<std::pair<double, std::uint64_t>> list;
    for (std::size_t i = 0; i < a.rows.size(); ++i) {
      list.clear();
      for (std::size_t j = 0; j < b.rows.size(); ++j) {
        if (one && i == j) continue;
        double s = 0;
        for (std::size_t f = 0; f < a.rows[i].second.size(); ++f) s += a.rows[i].second[f] * b.rows[j].second[f];
        if (i < j && s == s) sum += s;
        if (s >= simbar) list.emplace_back(-s, b.rows[j].first);
      }
      const auto n = std::min(k, list.size());
      std::partial_sort(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(n), list.end());
      list.resize(n);
      neighbours += n;
      if (list.empty()) continue;
      out << a.rows[i].first << '\t';
      for (std::size_t c = 0; c < n; ++c) out << (c == 0 ? "" : "|") << list[c].second << ':' << -list[c].first;
      out << '\n';
    }
    std::printf("rows %zu\nneighbours %zu\n", a.rows.size(), neighbours);
    if (one) std::printf("similarity_sum %.17g\n", sum);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "sim_dense_serial: error: %s\n", e.what());
    return 1;
  }
}
