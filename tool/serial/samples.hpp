// SPDX-License-Identifier: BSD-3-Clause
//
// Samples for the serial oracles of regression, classification and clustering: an independent parser, without the
// framework. CSV (comma, semicolon or tab; a header is skipped, or names the columns to use) or libsvm; the label is
// the last field or the first.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace serial {

/// Sparse rows; dense input has all columns.
struct samples {
  bool dense = false;
  std::size_t columns = 0;
  std::vector<std::size_t> begin{0};
  std::vector<unsigned> column;
  std::vector<double> value;
  std::vector<double> label;

  [[nodiscard]] std::size_t rows() const { return begin.size() - 1; }
};

inline std::vector<std::string> split(std::string_view line, char separator) {
  std::vector<std::string> fields;
  while (true) {
    const auto at = line.find(separator);
    auto field = line.substr(0, at);
    if (field.size() > 1 && field.front() == '"') field = field.substr(1, field.size() - 2);
    fields.emplace_back(field);
    if (at == std::string_view::npos) return fields;
    line.remove_prefix(at + 1);
  }
}

inline std::string whole(const std::string& file) {
  std::FILE* in = std::fopen(file.c_str(), "rb");
  if (in == nullptr) throw std::runtime_error("cannot read " + file);
  std::string text;
  char block[1 << 16];
  for (std::size_t n = 0; (n = std::fread(block, 1, sizeof block, in)) > 0;) text.append(block, n);
  std::fclose(in);
  return text;
}

/// `labelled`: the last field of a CSV line is the label. `names`, `target`: header names, empty for all columns and
/// the last.
inline samples load(const std::string& file, bool labelled = true, const std::vector<std::string>& names = {},
                    const std::string& target = "") {
  const std::string text = whole(file);
  samples s;
  std::string_view left = text;
  char separator = 0;
  bool first = true;
  std::vector<int> place;  // CSV: the column of each field; -1 is the label, -2 unused
  while (!left.empty()) {
    const auto end = left.find('\n');
    auto line = left.substr(0, end);
    left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (first) {
      first = false;
      for (const char c : {',', ';', '\t'}) {
        if (separator == 0 && line.find(c) != std::string_view::npos) separator = c;
      }
      s.dense = separator != 0 && line.find(':') == std::string_view::npos;
      if (s.dense) {
        const auto fields = split(line, separator);
        char* stop = nullptr;
        std::strtod(fields[0].c_str(), &stop);
        const bool header = stop == fields[0].c_str();
        for (std::size_t f = 0; f < fields.size(); ++f) {
          int to = static_cast<int>(f);
          if (header && !names.empty()) {
            const auto at = std::find(names.begin(), names.end(), fields[f]);
            to = at == names.end() ? -2 : static_cast<int>(at - names.begin());
          }
          if (labelled && (target.empty() ? f + 1 == fields.size() : fields[f] == target)) to = -1;
          place.push_back(to);
          if (to >= 0) s.columns = std::max(s.columns, static_cast<std::size_t>(to) + 1);
        }
        if (header) continue;
      }
    }
    const char* at = line.data();
    const char* const stop = line.data() + line.size();
    const auto number = [&] {
      double v = 0;
      if (at < stop && *at == '+') ++at;
      const auto [next, wrong] = std::from_chars(at, stop, v);
      if (wrong != std::errc{}) throw std::runtime_error(file + ": not a number: " + std::string(at, stop));
      at = next;
      return v;
    };
    if (s.dense) {
      const std::size_t row = s.value.size();
      s.value.resize(row + s.columns);
      for (const int to : place) {
        if (to == -2) {
          while (at < stop && *at != separator) ++at;
        } else {
          const double v = number();
          if (to == -1) s.label.push_back(v);
          else s.value[row + static_cast<std::size_t>(to)] = v;
        }
        if (at < stop) ++at;
      }
    } else {
      s.label.push_back(number());
      while (true) {
        while (at < stop && (*at == ' ' || *at == '\t')) ++at;
        if (at == stop) break;
        unsigned index = 0;
        at = std::from_chars(at, stop, index).ptr + 1;
        s.column.push_back(index - 1);
        s.value.push_back(number());
        s.columns = std::max(s.columns, std::size_t{index});
      }
    }
    s.begin.push_back(s.value.size());
  }
  if (s.rows() == 0) throw std::runtime_error("no samples in " + file);
  return s;
}

/// x_i . w; features beyond w are ignored.
inline double product(const samples& s, std::size_t i, const std::vector<double>& w) {
  double sum = 0;
  if (s.dense) {
    const double* x = s.value.data() + s.begin[i];
    for (std::size_t j = 0; j < s.columns; ++j) sum += x[j] * w[j];
  } else {
    for (std::size_t k = s.begin[i]; k < s.begin[i + 1]; ++k) {
      if (s.column[k] < w.size()) sum += s.value[k] * w[s.column[k]];
    }
  }
  return sum;
}

/// All rows as dense vectors.
inline std::vector<double> dense_rows(const samples& s) {
  if (s.dense) return s.value;
  std::vector<double> x(s.rows() * s.columns);
  for (std::size_t i = 0; i < s.rows(); ++i) {
    for (std::size_t k = s.begin[i]; k < s.begin[i + 1]; ++k) x[i * s.columns + s.column[k]] = s.value[k];
  }
  return x;
}

/// Subtracts the means from the columns of X (row-major, n rows) and from y; with `standardize` also divides X by their
/// population sd.
inline void centre(std::vector<double>& x, std::vector<double>& y, std::size_t columns, bool standardize,
                   std::vector<double>& mean, std::vector<double>& sd, double& y_mean) {
  const std::size_t n = y.size();
  mean.assign(columns, 0.0);
  sd.assign(columns, 0.0);
  y_mean = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < columns; ++j) mean[j] += x[i * columns + j];
    y_mean += y[i];
  }
  for (auto& m : mean) m /= static_cast<double>(n);
  y_mean /= static_cast<double>(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      double& v = x[i * columns + j];
      v -= mean[j];
      sd[j] += v * v;
    }
    y[i] -= y_mean;
  }
  for (auto& v : sd) v = standardize && v > 0 ? std::sqrt(v / static_cast<double>(n)) : 1.0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < columns; ++j) x[i * columns + j] /= sd[j];
  }
}

/// The command line `FILE --name value ... --flag`.
class arguments {
 public:
  arguments(int argc, char** argv, const std::vector<std::string>& flags) {
    for (int i = 1; i < argc; ++i) {
      std::string word = argv[i];
      if (word.rfind("--", 0) != 0) {
        file_ = word;
        continue;
      }
      word = word.substr(2);
      if (std::find(flags.begin(), flags.end(), word) != flags.end()) values_[word] = "1";
      else if (++i < argc) values_[word] = argv[i];
      else throw std::runtime_error("no value after --" + word);
    }
    if (file_.empty()) throw std::runtime_error("want a file of samples");
  }
  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] bool has(const std::string& name) const { return values_.count(name) > 0; }
  [[nodiscard]] std::string text(const std::string& name) const { return has(name) ? values_.at(name) : ""; }
  [[nodiscard]] double number(const std::string& name, double otherwise) const {
    return has(name) ? std::stod(values_.at(name)) : otherwise;
  }
  /// --features a,b,c
  [[nodiscard]] std::vector<std::string> list(const std::string& name) const {
    return has(name) ? split(values_.at(name), ',') : std::vector<std::string>{};
  }

 private:
  std::string file_;
  std::map<std::string, std::string> values_;
};

/// theta: the intercept, then the weights. Prints `rmse`.
inline void print_rmse(const samples& test, const std::vector<double>& theta) {
  const std::vector<double> w(theta.begin() + 1, theta.end());
  double sum = 0;
  for (std::size_t i = 0; i < test.rows(); ++i) {
    const double e = test.label[i] - theta[0] - product(test, i, w);
    sum += e * e;
  }
  std::printf("rmse %.17g\n", std::sqrt(sum / static_cast<double>(test.rows())));
}

/// Numbers joined by |, as the programs write them.
inline void write_vector(const std::string& file, const std::vector<double>& values) {
  std::FILE* out = std::fopen(file.c_str(), "w");
  if (out == nullptr) throw std::runtime_error("cannot write " + file);
  for (std::size_t j = 0; j < values.size(); ++j) std::fprintf(out, "%s%.17g", j > 0 ? "|" : "", values[j]);
  std::fputc('\n', out);
  std::fclose(out);
}

/// A main function: runs `work(argc, argv)`, and prints an exception as one line.
template <class F>
int run(const char* name, int argc, char** argv, F work) {
  try {
    work(argc, argv);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: error: %s\n", name, e.what());
    return 1;
  }
}

}  // namespace serial
