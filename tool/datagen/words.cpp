// SPDX-License-Identifier: BSD-3-Clause
//
// Texts: wc, lda.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "generator.hpp"

namespace datagen {

namespace {

/// Lines of words whose frequencies follow Zipf's law, with a comma or a full stop here and there. A word is made of
/// syllables, short ones for the frequent words, and no two are the same.
class zipf_text : public generator {
 public:
  explicit zipf_text(const options& o)
      : rows_(o.rows()),
        seed_(o.seed()),
        law_(o.integer("vocabulary", 50000, 1, 1U << 24U), o.number("zipf", 1, 0, 4)),
        words_(o.integer("vocabulary", 50000)) {
    static constexpr char first[] = "bcdfghjklmnprstvwz";  // 18
    static constexpr char second[] = "aeiou";
    for (std::size_t w = 0; w < words_.size(); ++w) {
      // In base 90; the number 0 has a syllable, too.
      auto& word = words_[w];
      std::size_t n = w;
      do {
        word.letters[word.length++] = first[n % 90 / 5];
        word.letters[word.length++] = second[n % 5];
        n = n / 90;
      } while (n-- > 0);
    }
  }
  [[nodiscard]] std::uint64_t rows() const override { return rows_; }
  [[nodiscard]] std::uint64_t rows_a_block() const override { return 4096; }
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    for (auto i = first; i < last; ++i) {
      counter_random random(seed_, rows_stream, i);
      const auto shape = random.bits();
      const auto count = 4 + shape % 12;
      const auto comma = shape >> 8U & 31U;  // after this word, if there are so many
      char* to = out.text.room(count * 20);
      for (std::uint64_t k = 0; k < count; ++k) {
        const auto& word = words_[law_(random)];
        std::memcpy(to, word.letters, sizeof word.letters);
        to += word.length;
        if (k == comma) *to++ = ',';
        *to++ = ' ';
      }
      to[-1] = '.';
      *to++ = '\n';
      out.text.commit(to);
      out.end_row();
    }
  }

 private:
  struct spelling {
    char letters[12] = {};
    std::uint32_t length = 0;
  };
  std::uint64_t rows_;
  std::uint64_t seed_;
  zipf law_;
  std::vector<spelling> words_;
};

/// Documents of latent Dirichlet allocation: topics are Dirichlet(beta) over the vocabulary, a document mixes them by
/// Dirichlet(alpha). A line is `0 word:count ...` with word ids from 1, or with `as_text` the words `w12 w7 ...`.
/// Truth: alpha, and a line with the word probabilities of each topic.
class topics : public generator {
 public:
  explicit topics(const options& o)
      : rows_(o.rows()),
        seed_(o.seed()),
        words_(o.integer("vocabulary", 5000, 1, 1U << 24U)),
        length_(o.number("length", 100, 1, 1e9)),
        text_(o.flag("as_text")) {
    const auto k = o.integer("columns", 10, 1, 4096);
    const auto said = o.text("alpha", "0.1");
    for (std::size_t at = 0; at <= said.size();) {
      const auto end = std::min(said.find(',', at), said.size());
      alpha_.push_back(options({{"alpha", said.substr(at, end - at)}}).number("alpha", 0, 1e-6, 1e6));
      at = end + 1;
    }
    if (alpha_.size() == 1) alpha_.resize(k, alpha_[0]);
    if (alpha_.size() != k) throw option_error("alpha: found " + said + ", want one number or one for each topic");
    const double beta = o.number("beta", 0.05, 1e-6, 1e6);
    for (std::uint64_t t = 0; t < k; ++t) {
      counter_random random(seed_, words_stream, t);
      std::vector<double> phi(words_);
      double total = 0;
      for (auto& p : phi) total += p = gamma_variate(random, beta);
      for (auto& p : phi) p /= total;
      word_of_.emplace_back(phi);
      phi_.push_back(std::move(phi));
    }
  }
  [[nodiscard]] std::uint64_t rows() const override { return rows_; }
  [[nodiscard]] std::uint64_t rows_a_block() const override {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(40000 / length_));
  }
  void render(std::uint64_t first, std::uint64_t last, block& out) const override {
    std::vector<std::uint32_t> count(words_);
    std::vector<std::uint64_t> used((words_ + 63) / 64);
    std::vector<double> theta(alpha_.size());
    for (auto d = first; d < last; ++d) {
      counter_random random(seed_, rows_stream, d);
      double total = 0;
      for (std::size_t t = 0; t < theta.size(); ++t) total += theta[t] = gamma_variate(random, alpha_[t]);
      double below = 0;
      for (auto& x : theta) x = below += total > 0 ? x / total : 1 / static_cast<double>(theta.size());
      const auto length = count_around(random, length_);
      char* to = out.text.room(text_ ? length * 12 + 1 : std::min<std::uint64_t>(length, words_) * 32 + 4);
      if (!text_) *to++ = '0';
      for (std::uint64_t n = 0; n < length; ++n) {
        const auto above = std::upper_bound(theta.begin(), theta.end() - 1, random.uniform());
        const auto w = word_of_[static_cast<std::size_t>(above - theta.begin())](random);
        if (text_) {
          *to++ = 'w';
          to = put_integer(to, w);
          *to++ = ' ';
        } else {
          ++count[w];
          used[w / 64] |= std::uint64_t{1} << (w % 64);
        }
      }
      if (text_) {
        --to;
      } else {
        // The set bits are the words in ascending order: no sorting.
        for (std::size_t i = 0; i < used.size(); ++i) {
          for (; used[i] != 0; used[i] &= used[i] - 1) {
            const auto w = 64 * i + static_cast<std::size_t>(std::countr_zero(used[i]));
            *to++ = ' ';
            to = put_integer(to, w + 1);
            *to++ = ':';
            to = put_integer(to, count[w]);
            count[w] = 0;
          }
        }
      }
      *to++ = '\n';
      out.text.commit(to);
      out.end_row();
    }
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> beside(std::uint64_t) const override {
    std::string text = "alpha\t";
    char digits[32];
    const auto row = [&](const std::vector<double>& values) {
      for (std::size_t j = 0; j < values.size(); ++j) {
        text += j > 0 ? "|" : "";
        text.append(digits,
                    std::to_chars(digits, digits + sizeof digits, values[j], std::chars_format::general, 6).ptr);
      }
      text += "\n";
    };
    row(alpha_);
    for (std::size_t t = 0; t < phi_.size(); ++t) {
      text += std::to_string(t) + "\t";
      row(phi_[t]);
    }
    return {{".truth", text}};
  }

 private:
  std::uint64_t rows_;
  std::uint64_t seed_;
  std::uint64_t words_;
  double length_;
  bool text_;
  std::vector<double> alpha_;
  std::vector<std::vector<double>> phi_;
  std::vector<alias_table> word_of_;
};

}  // namespace

std::unique_ptr<generator> make_text(const std::string& kind, const options& o) {
  if (kind == "wc") return std::make_unique<zipf_text>(o);
  if (kind == "lda") return std::make_unique<topics>(o);
  return nullptr;
}

}  // namespace datagen
