// SPDX-License-Identifier: BSD-3-Clause
//
// Samples for fm_serial and lasso_serial_rigid: an independent parser, without the framework. CSV (comma, semicolon or
// tab; a header is skipped), whose last field is the label, or libsvm.
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
  /// The column of value e, which is in row i.
  [[nodiscard]] std::size_t column_of(std::size_t i, std::size_t e) const { return dense ? e - begin[i] : column[e]; }
};

inline std::string whole(const std::string& file) {
  std::FILE* in = std::fopen(file.c_str(), "rb");
  if (in == nullptr) throw std::runtime_error("cannot read " + file);
  std::string text;
  char block[1 << 16];
  for (std::size_t n = 0; (n = std::fread(block, 1, sizeof block, in)) > 0;) text.append(block, n);
  std::fclose(in);
  return text;
}

inline samples load(const std::string& file) {
  const std::string text = whole(file);
  samples s;
  std::string_view left = text;
  char separator = 0;
  bool first = true;
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
        s.columns = static_cast<std::size_t>(std::count(line.begin(), line.end(), separator));
        char* end_of_number = nullptr;
        std::strtod(line.data(), &end_of_number);
        if (end_of_number == line.data()) continue;  // a header
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
      for (std::size_t j = 0; j < s.columns; ++j, ++at) s.value.push_back(number());
      s.label.push_back(number());
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

/// All rows as dense vectors.
inline std::vector<double> dense_rows(const samples& s) {
  if (s.dense) return s.value;
  std::vector<double> x(s.rows() * s.columns);
  for (std::size_t i = 0; i < s.rows(); ++i) {
    for (std::size_t k = s.begin[i]; k < s.begin[i + 1]; ++k) x[i * s.columns + s.column[k]] = s.value[k];
  }
  return x;
}

/// The command line `FILE --name value ...`.
class arguments {
 public:
  arguments(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      std::string word = argv[i];
      if (word.rfind("--", 0) != 0) {
        file_ = word;
        continue;
      }
      if (++i == argc) throw std::runtime_error("no value after " + word);
      values_[word.substr(2)] = argv[i];
    }
    if (file_.empty()) throw std::runtime_error("want a file of samples");
  }
  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] bool has(const std::string& name) const { return values_.count(name) > 0; }
  [[nodiscard]] std::string text(const std::string& name) const { return has(name) ? values_.at(name) : ""; }
  [[nodiscard]] double number(const std::string& name, double otherwise) const {
    return has(name) ? std::stod(values_.at(name)) : otherwise;
  }

 private:
  std::string file_;
  std::map<std::string, std::string> values_;
};

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
