// SPDX-License-Identifier: BSD-3-Clause
#include "word_vectors.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>

#include <paracel/error.hpp>
#include <paracel/samples.hpp>
#include <paracel/text_input.hpp>
#include <paracel/text_output.hpp>

#include "alg/common/output/model_file.hpp"

namespace paracel::alg {

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/// Reads one file from its beginning to its end.
class vectors_parser {
 public:
  vectors_parser(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  word_vectors read(bool binary) {
    const auto words = header("the number of words");
    to_.width = header("the length of a vector");
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ == text_.size() || text_[at_] != '\n') fail(at_, "want the end of the line after two numbers");
    ++at_;
    // Every number has at least two bytes, so a wrong header cannot ask for more memory than twice the file.
    const auto most = text_.size() / 2;
    if (words == 0 || to_.width == 0 || to_.width > most || words > most / to_.width)
      fail(0, "found " + std::to_string(words) + " words of " + std::to_string(to_.width) + " numbers in a file of " +
                  std::to_string(text_.size()) + " bytes");
    to_.value.reserve(words * to_.width);
    for (std::size_t w = 0; w < words; ++w) {
      if (binary) binary_row(w);
      else text_row(w);
    }
    while (at_ < text_.size() && (is_blank(text_[at_]) || text_[at_] == '\n')) ++at_;
    if (at_ != text_.size()) fail(at_, "want the end of the file after " + std::to_string(words) + " words");
    return std::move(to_);
  }

 private:
  [[noreturn]] void fail(std::size_t at, const std::string& what) const {
    const auto before = text_.substr(0, std::min(at, text_.size()));
    const auto line = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
    const auto start = before.rfind('\n');
    const auto column = before.size() - (start == std::string_view::npos ? 0 : start + 1) + 1;
    throw data_error(file_ + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + what);
  }
  void skip_blanks() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  }
  std::size_t header(const char* what) {
    skip_blanks();
    std::size_t v = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (error != std::errc()) fail(at_, std::string("want ") + what);
    at_ = static_cast<std::size_t>(end - text_.data());
    return v;
  }
  void word(std::size_t w, std::size_t end) {
    const auto text = text_.substr(at_, end - at_);
    if (text.empty()) fail(at_, "want a word");
    if (to_.words.intern(text) != w) fail(at_, "found \"" + std::string(text) + "\" again, want every word once");
    at_ = end;
  }
  void text_row(std::size_t w) {
    skip_blanks();
    auto end = at_;
    while (end < text_.size() && !is_blank(text_[end]) && text_[end] != '\n') ++end;
    word(w, end);
    for (std::size_t j = 0; j < to_.width; ++j) {
      const auto before = at_;
      skip_blanks();
      float v = 0;
      const auto field = text_.substr(at_, text_.find_first_of(" \t\r\n", at_) - at_);
      if (before == at_ || !parse_number(field, v))
        fail(at_, "want number " + std::to_string(j + 1) + " of " + std::to_string(to_.width));
      at_ += field.size();
      to_.value.push_back(v);
    }
    skip_blanks();
    if (at_ < text_.size() && text_[at_] != '\n')
      fail(at_, "want the end of the line after " + std::to_string(to_.width) + " numbers");
    at_ += at_ < text_.size() ? 1 : 0;
  }
  void binary_row(std::size_t w) {
    while (at_ < text_.size() && text_[at_] == '\n') ++at_;
    const auto end = text_.find(' ', at_);
    if (end == std::string_view::npos)
      throw data_error(file_ + ": word " + std::to_string(w + 1) + ": found no blank after byte " +
                       std::to_string(at_) + ", want a word and a blank");
    if (text_.substr(at_, end - at_).find_first_of("\t\r\n") != std::string_view::npos)
      throw data_error(file_ + ": word " + std::to_string(w + 1) + ": found white space in it, want none");
    word(w, end);
    ++at_;
    const auto bytes = to_.width * sizeof(float);
    if (text_.size() - at_ < bytes)
      throw data_error(file_ + ": word " + std::to_string(w + 1) + ": found " + std::to_string(text_.size() - at_) +
                       " bytes of numbers, want " + std::to_string(bytes));
    const auto from = to_.value.size();
    to_.value.resize(from + to_.width);
    std::memcpy(to_.value.data() + from, text_.data() + at_, bytes);
    at_ += bytes;
    for (std::size_t j = from; j < to_.value.size(); ++j) {
      if (!std::isfinite(to_.value[j]))
        throw data_error(file_ + ": word " + std::to_string(w + 1) + ": number " + std::to_string(j - from + 1) +
                         " is not finite");
    }
  }

  const std::string& file_;
  std::string_view text_;
  std::size_t at_ = 0;
  word_vectors to_;
};

/// Ranks from 1, the mean of them where values are equal.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto i, auto j) { return values[i] < values[j]; });
  std::vector<double> rank(values.size());
  for (std::size_t first = 0; first < order.size();) {
    auto last = first + 1;
    while (last < order.size() && values[order[last]] == values[order[first]]) ++last;
    for (auto i = first; i < last; ++i) rank[order[i]] = static_cast<double>(first + last + 1) / 2;
    first = last;
  }
  return rank;
}

}  // namespace

word_vectors parse_word_vectors(const std::string& file, std::string_view text, bool binary) {
  return vectors_parser(file, text).read(binary);
}

word_vectors read_word_vectors(const std::string& path) {
  if (std::filesystem::is_directory(path) || path.ends_with(".json")) {
    const model_reader model(path, "word2vec");
    const auto shape = model.shape("vectors");
    if (shape.size() != 2) throw data_error(path + ": vectors: want two dimensions");
    word_vectors v;
    v.width = static_cast<std::size_t>(shape[1]);
    v.value = model.read<float>("vectors");
    const auto ids = model.ids("vectors");
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (v.words.intern(ids.text(i)) != i) throw data_error(path + ": found \"" + ids.text(i) + "\" again");
    }
    if (v.size() != shape[0]) throw data_error(path + ": vectors and words differ in number");
    return v;
  }
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in) throw data_error(path + ": cannot be read");
  return parse_word_vectors(path, text, path.ends_with(".bin"));
}

std::string word_vectors_header(std::size_t words, std::size_t width) {
  return std::to_string(words) + " " + std::to_string(width) + "\n";
}

void append_word_vector(std::string& to, std::string_view word, std::span<const float> row, bool binary) {
  to += word;
  to += ' ';
  if (binary) {
    to.append(reinterpret_cast<const char*>(row.data()), row.size_bytes());
  } else {
    for (const float v : row) {
      paracel::append_text(to, v);
      to += ' ';
    }
  }
  to += '\n';
}

word_neighbours::word_neighbours(const word_vectors& vectors) : width_(vectors.width), unit_(vectors.value) {
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    float* row = unit_.data() + i * width_;
    const double square = std::inner_product(row, row + width_, row, 0.0);
    if (!(square > 0)) continue;
    const auto factor = static_cast<float>(1 / std::sqrt(square));
    for (std::size_t j = 0; j < width_; ++j) row[j] *= factor;
  }
}

double word_neighbours::similarity(std::uint32_t a, std::uint32_t b) const {
  const auto x = row(a);
  return std::inner_product(x.begin(), x.end(), row(b).begin(), 0.0);
}

std::vector<neighbour> word_neighbours::nearest(std::span<const std::uint32_t> question, std::size_t k) const {
  std::vector<float> wanted(row(question.back()).begin(), row(question.back()).end());
  if (question.size() == 3) {
    for (std::size_t j = 0; j < width_; ++j) wanted[j] += row(question[1])[j] - row(question[0])[j];
  }
  const double length = std::sqrt(std::inner_product(wanted.begin(), wanted.end(), wanted.begin(), 0.0));
  top_k_neighbours best(1, k);
  for (std::size_t i = 0; i * width_ < unit_.size(); ++i) {
    if (std::find(question.begin(), question.end(), i) != question.end()) continue;
    const auto x = row(i);
    float lane[8] = {};
    std::size_t j = 0;
    for (; j + 8 <= width_; j += 8) {
      for (std::size_t l = 0; l < 8; ++l) lane[l] += x[j + l] * wanted[j + l];
    }
    for (; j < width_; ++j) lane[j % 8] += x[j] * wanted[j];
    const double product = std::accumulate(lane, lane + 8, 0.0);
    best.offer(0, i, length > 0 ? product / length : 0);
  }
  best.sort();
  return {best.of(0).begin(), best.of(0).end()};
}

double spearman(std::span<const double> a, std::span<const double> b) {
  constexpr double undefined = std::numeric_limits<double>::quiet_NaN();
  if (a.size() < 2) return undefined;
  const auto x = ranks_of(a);
  const auto y = ranks_of(b);
  const double mean = static_cast<double>(a.size() + 1) / 2;
  double xx = 0;
  double yy = 0;
  double xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
    xy += (x[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : undefined;
}

}  // namespace paracel::alg
