// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of word2vec, in double and pair by pair: words, draws, batches and steps are those of word2vec with
// one worker. With --threads it is instead a stand-in for the original program (skip_gram, negative_sampling): floats
// that threads share without locks, a step for each pair, negatives drawn for each pair from all words, a table of
// sigma.
//
//     word2vec_serial TEXT [--method skip_gram|cbow] [--loss negative_sampling|hierarchical_softmax] [--k 100]
//                     [--window 5] [--negatives 5] [--noise_words 0] [--sample 1e-3] [--rounds 5] [--min_count 5]
//                     [--batch_size 0] [--alpha .025] [--seed 0] [--threads 0] [--output FILE] [--check 0]
//                     [--test FILE]
//
// --check 1: compares some steps of the first batches with finite differences of the loss; prints the greatest error.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <queue>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "counter_random.hpp"

namespace {

using serial::counter_random;
using serial::golden;
using serial::mix;

struct settings {
  bool cbow, hierarchical, check;
  std::size_t k, window, negatives, noise_words, batch_size, threads;
  std::uint64_t seed, min_count;
  int rounds;
  double sample, alpha;
};

/// Words by frequency, sentences of their numbers, and the nodes above each word.
struct corpus {
  std::vector<std::string> word;
  std::vector<double> count;
  double total = 0;
  std::vector<std::vector<std::uint32_t>> sentences;
  std::vector<std::vector<std::pair<std::uint32_t, int>>> path;  // node, label; from the root
};

void huffman(corpus& c) {
  // A leaf before an inner node of the same count; leaves from the last word on, inner nodes as they are made.
  using place = std::array<std::uint64_t, 4>;  // count, is inner, order, number
  std::priority_queue<place, std::vector<place>, std::greater<>> least;
  const std::size_t n = c.word.size();
  for (std::size_t w = 0; w < n; ++w) least.push({static_cast<std::uint64_t>(c.count[w]), 0, n - 1 - w, w});
  std::vector<std::pair<std::size_t, int>> above(2 * n, {0, 0});
  std::size_t made = n;
  while (least.size() > 1) {
    const auto a = least.top();
    least.pop();
    const auto b = least.top();
    least.pop();
    above[a[3]] = {made, 1};
    above[b[3]] = {made, 0};
    least.push({a[0] + b[0], 1, made, made});
    ++made;
  }
  c.path.resize(n);
  for (std::size_t w = 0; w < n; ++w) {
    for (std::size_t at = w; at + 1 < made; at = above[at].first)
      c.path[w].emplace_back(static_cast<std::uint32_t>(made - 1 - above[at].first), above[at].second);
    std::reverse(c.path[w].begin(), c.path[w].end());
  }
}

corpus load(const std::string& path, std::uint64_t min_count) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + ": cannot be read");
  std::vector<std::vector<std::uint32_t>> lines;
  std::unordered_map<std::string, std::uint32_t> number;
  std::vector<std::pair<std::uint64_t, std::string>> words;
  for (std::string line, word; std::getline(in, line);) {
    lines.emplace_back();
    line += ' ';
    for (const char letter : line) {
      if (letter != ' ' && !(letter >= '\t' && letter <= '\r')) {
        word += letter;
        continue;
      }
      if (word.empty()) continue;
      const auto [at, is_new] = number.emplace(word, static_cast<std::uint32_t>(words.size()));
      if (is_new) words.emplace_back(0, word);
      ++words[at->second].first;
      lines.back().push_back(at->second);
      word.clear();
    }
  }
  corpus c;
  auto sorted = words;
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  std::vector<std::uint32_t> place(words.size(), ~0U);
  for (const auto& [n, w] : sorted) {
    if (n < min_count) break;
    place[number[w]] = static_cast<std::uint32_t>(c.word.size());
    c.word.push_back(w);
    c.count.push_back(static_cast<double>(n));
    c.total += static_cast<double>(n);
  }
  for (const auto& line : lines) {
    std::vector<std::uint32_t> sentence;
    for (const auto w : line) {
      if (place[w] == ~0U) continue;
      if (sentence.size() == 1000) c.sentences.push_back(std::exchange(sentence, {}));
      sentence.push_back(place[w]);
    }
    if (!sentence.empty()) c.sentences.push_back(sentence);
  }
  huffman(c);
  return c;
}

template <class Real>
std::vector<Real> first_vectors(std::size_t words, std::size_t k, std::uint64_t seed) {
  std::vector<Real> v(words * k);
  for (std::size_t w = 0; w < words; ++w) {
    const auto base = mix(mix(seed + golden) ^ w);
    for (std::size_t j = 0; j < k; ++j) {
      const double unit = static_cast<double>(mix(base + (j + 1) * golden) >> 11U) * 0x1p-53;
      v[w * k + j] =
          static_cast<Real>(static_cast<float>(-0.5 / static_cast<double>(k) + unit / static_cast<double>(k)));
    }
  }
  return v;
}

float keep_of(const corpus& c, const settings& s, std::size_t w) {
  const double unit = s.sample * c.total;
  return s.sample == 0 ? 1 : static_cast<float>(std::min(1.0, (std::sqrt(c.count[w] / unit) + 1) * unit / c.count[w]));
}

// ---- as word2vec

double minus_log_sigma(double x) { return std::log1p(std::exp(-std::abs(x))) + std::max(-x, 0.0); }

class batches {
 public:
  batches(const corpus& c, const settings& s)
      : c_(c), s_(s), k_(s.k), x_(first_vectors<double>(c.word.size(), s.k, s.seed)), y_(c.word.size() * s.k) {}

  void train() {
    std::size_t tokens = 0;
    for (const auto& sentence : c_.sentences) tokens += sentence.size();
    const auto batch_size = s_.batch_size > 0 ? s_.batch_size : std::min<std::size_t>(10000, (tokens + 49) / 50);
    const std::size_t parts = (tokens + batch_size - 1) / batch_size;
    const auto steps = parts * static_cast<std::size_t>(s_.rounds);
    for (std::size_t b = 0; b < steps; ++b) {
      const auto alpha_at = [&](std::size_t at) {
        return s_.alpha * std::max(1 - static_cast<double>(at) / static_cast<double>(steps), 1e-4);
      };
      batch(b, b % parts, parts, tokens, alpha_at(b), alpha_at(b + 1));
      if ((b + 1) % parts == 0) {
        std::printf("round %zu running_loss %.9g\n", (b + 1) / parts, loss_ / predictions_);
        loss_ = predictions_ = 0;
      }
    }
    if (s_.check) std::printf("gradient_error %.3g\n", error_);
  }
  [[nodiscard]] const std::vector<double>& vectors() const { return x_; }

 private:
  void batch(std::size_t number, std::size_t part, std::size_t parts, std::size_t tokens, double first, double last) {
    counter_random random(s_.seed, 1, number);
    std::vector<std::vector<std::uint32_t>> kept;
    std::size_t at = 0;
    double count = 0;
    for (const auto& sentence : c_.sentences) {
      const bool mine = at >= tokens * part / parts && at < tokens * (part + 1) / parts;
      at += sentence.size();
      if (!mine) continue;
      kept.emplace_back();
      for (const auto w : sentence) {
        const auto keep = keep_of(c_, s_, w);
        if (keep >= 1 || random.uniform() < static_cast<double>(keep)) kept.back().push_back(w);
      }
      if (kept.back().size() < 2) kept.pop_back();
      else count += static_cast<double>(kept.back().size());
    }
    std::vector<std::uint32_t> noise;
    if (!s_.hierarchical && count > 0) {
      std::vector<double> below;
      double sum = 0;
      for (const auto n : c_.count) below.push_back(sum += std::pow(n, 0.75));
      const auto draws = s_.noise_words > 0 ? s_.noise_words : static_cast<std::size_t>(count);
      for (std::size_t i = 0; i < draws; ++i)
        noise.push_back(static_cast<std::uint32_t>(
            std::upper_bound(below.begin(), below.end() - 1, random.uniform() * sum) - below.begin()));
    }
    double done = 0;
    std::size_t t = 0;
    for (const auto& sentence : kept) {
      for (std::size_t i = 0; i < sentence.size(); ++i, ++t, ++done) {
        const auto alpha = static_cast<double>(static_cast<float>(first + (last - first) * (done / count)));
        const auto reach = random.below(s_.window) + 1;
        std::vector<std::uint32_t> around;
        for (auto j = i - std::min(reach, i); j <= i + reach && j < sentence.size(); ++j) {
          if (j != i) around.push_back(sentence[j]);
        }
        std::vector<std::pair<std::uint32_t, int>> outputs;
        if (s_.hierarchical) outputs = c_.path[sentence[i]];
        else outputs.emplace_back(sentence[i], 1);
        for (std::size_t n = 0; n < s_.negatives && !noise.empty(); ++n) {
          const auto w = noise[random.below(noise.size())];
          if (w != sentence[i]) outputs.emplace_back(w, 0);
        }
        step(around, outputs, alpha, t % 16 == 0, s_.check && number < 3 && t % 97 == 0);
      }
    }
  }

  /// The inputs of a step: the words around, or their mean.
  [[nodiscard]] std::vector<std::vector<double>> inputs_of(const std::vector<std::uint32_t>& around) const {
    std::vector<std::vector<double>> inputs;
    for (const auto w : around) inputs.emplace_back(&x_[w * k_], &x_[w * k_] + k_);
    if (!s_.cbow) return inputs;
    std::vector<double> mean(k_);
    for (const auto& v : inputs) {
      for (std::size_t j = 0; j < k_; ++j) mean[j] += v[j] / static_cast<double>(inputs.size());
    }
    return {mean};
  }
  [[nodiscard]] double loss_of(const std::vector<std::vector<double>>& inputs,
                               const std::vector<std::pair<std::uint32_t, int>>& outputs) const {
    double loss = 0;
    for (const auto& v : inputs) {
      for (const auto& [o, label] : outputs) {
        double f = 0;
        for (std::size_t j = 0; j < k_; ++j) f += v[j] * y_[o * k_ + j];
        loss += minus_log_sigma(label == 1 ? f : -f);
      }
    }
    return loss;
  }

  void step(const std::vector<std::uint32_t>& around, const std::vector<std::pair<std::uint32_t, int>>& outputs,
            double alpha, bool measure, bool check) {
    const auto inputs = inputs_of(around);
    if (measure) {
      loss_ += loss_of(inputs, outputs);
      predictions_ += static_cast<double>(inputs.size());
    }
    std::vector<std::vector<double>> input_moves(inputs.size(), std::vector<double>(k_));
    std::map<std::uint32_t, std::vector<double>> output_moves;
    for (std::size_t m = 0; m < inputs.size(); ++m) {
      for (const auto& [o, label] : outputs) {
        auto& move = output_moves.try_emplace(o, k_).first->second;
        double f = 0;
        for (std::size_t j = 0; j < k_; ++j) f += inputs[m][j] * y_[o * k_ + j];
        const double g = label - 1 / (1 + std::exp(-f));
        for (std::size_t j = 0; j < k_; ++j) {
          input_moves[m][j] += g * y_[o * k_ + j];
          move[j] += g * inputs[m][j];
        }
      }
    }
    if (check) compare(inputs, outputs, input_moves, output_moves);
    for (std::size_t i = 0; i < around.size(); ++i) {
      const auto& move = input_moves[s_.cbow ? 0 : i];
      for (std::size_t j = 0; j < k_; ++j) x_[around[i] * k_ + j] += alpha * move[j];
    }
    for (const auto& [o, move] : output_moves) {
      for (std::size_t j = 0; j < k_; ++j) y_[o * k_ + j] += alpha * move[j];
    }
  }

  /// Compares the moves with minus the gradient of the loss, by central differences.
  void compare(std::vector<std::vector<double>> inputs, const std::vector<std::pair<std::uint32_t, int>>& outputs,
               const std::vector<std::vector<double>>& input_moves,
               const std::map<std::uint32_t, std::vector<double>>& output_moves) {
    const auto difference = [&](double& at) {
      const double before = at;
      at = before + 1e-5;
      const double above = loss_of(inputs, outputs);
      at = before - 1e-5;
      const double below = loss_of(inputs, outputs);
      at = before;
      return (above - below) / 2e-5;
    };
    for (std::size_t m = 0; m < inputs.size(); ++m) {
      for (std::size_t j = 0; j < k_; ++j)
        error_ = std::max(error_, std::abs(difference(inputs[m][j]) + input_moves[m][j]));
    }
    for (const auto& [o, move] : output_moves) {
      for (std::size_t j = 0; j < k_; ++j) error_ = std::max(error_, std::abs(difference(y_[o * k_ + j]) + move[j]));
    }
  }

  const corpus& c_;
  const settings& s_;
  std::size_t k_;
  std::vector<double> x_, y_;
  double loss_ = 0, predictions_ = 0, error_ = 0;
};

// ---- as the original program

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=haswell", "default"), optimize("Ofast")))
#else
#define WIDE
#endif

WIDE float product(const float* a, const float* b, std::size_t k) {
  float sum = 0;
  for (std::size_t j = 0; j < k; ++j) sum += a[j] * b[j];
  return sum;
}
/// to += g * y, then y += g * x
WIDE void move_both(float* to, float* y, const float* x, float g, std::size_t k) {
  for (std::size_t j = 0; j < k; ++j) to[j] += g * y[j];
  for (std::size_t j = 0; j < k; ++j) y[j] += g * x[j];
}

/// Threads write to the same rows without locks; few updates are lost.
class hogwild {
 public:
  hogwild(const corpus& c, const settings& s)
      : c_(c), s_(s), x_(first_vectors<float>(c.word.size(), s.k, s.seed)), y_(c.word.size() * s.k) {
    for (std::size_t i = 0; i < sigma_.size(); ++i)
      sigma_[i] = static_cast<float>(1 / (1 + std::exp(-(static_cast<double>(i) * 12 / 1000 - 6))));
    for (std::size_t w = 0; w < c.word.size(); ++w) keep_.push_back(keep_of(c, s, w));
    double sum = 0;
    for (const auto n : c.count) sum += std::pow(n, 0.75);
    noise_.resize(std::min<std::size_t>(100000000, 1000 * c.word.size()));
    double below = std::pow(c.count[0], 0.75) / sum;
    for (std::size_t i = 0, w = 0; i < noise_.size(); ++i) {
      noise_[i] = static_cast<std::uint32_t>(w);
      if (static_cast<double>(i + 1) / static_cast<double>(noise_.size()) > below && w + 1 < c.word.size())
        below += std::pow(c.count[++w], 0.75) / sum;
    }
  }

  void train() {
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < s_.threads; ++t) threads.emplace_back([this, t] { work(t); });
    for (auto& t : threads) t.join();
  }
  [[nodiscard]] const std::vector<float>& vectors() const { return x_; }

 private:
  void work(std::size_t thread) {
    std::uint64_t random = thread;
    const auto next = [&random] { return (random = random * 25214903917U + 11) >> 16U; };
    std::vector<float> change(s_.k);
    std::vector<std::uint32_t> kept;
    const double all = c_.total * s_.rounds;
    for (int round = 0; round < s_.rounds; ++round) {
      for (auto i = c_.sentences.size() * thread / s_.threads; i < c_.sentences.size() * (thread + 1) / s_.threads;
           ++i) {
        const auto done = done_.fetch_add(c_.sentences[i].size(), std::memory_order_relaxed);
        const auto alpha = static_cast<float>(s_.alpha * std::max(1 - static_cast<double>(done) / all, 1e-4));
        kept.clear();
        for (const auto w : c_.sentences[i]) {
          if (static_cast<float>(next() & 0xffffU) / 65536 < keep_[w]) kept.push_back(w);
        }
        for (std::size_t at = 0; at < kept.size(); ++at) {
          const auto reach = next() % s_.window + 1;
          const auto begin = at - std::min(reach, at);
          const auto end = std::min(at + reach + 1, kept.size());
          const auto row = [&](std::size_t j) { return &x_[kept[j] * s_.k]; };
          for (auto j = begin; j < end; ++j) {
            if (j == at) continue;
            pairs(kept[at], row(j), change, alpha, next);
            for (std::size_t f = 0; f < s_.k; ++f) row(j)[f] += change[f];
          }
        }
      }
    }
  }
  template <class Next>
  void pairs(std::uint32_t word, const float* x, std::vector<float>& change, float alpha, Next&& next) {
    std::fill(change.begin(), change.end(), 0.0F);
    const auto one = [&](std::size_t o, float label) {
      float* y = &y_[o * s_.k];
      const float f = product(x, y, s_.k);
      const float sigma = f >= 6 ? 1 : f <= -6 ? 0 : sigma_[static_cast<std::size_t>((f + 6) * (1000.0F / 12))];
      move_both(change.data(), y, x, (label - sigma) * alpha, s_.k);
    };
    one(word, 1);
    for (std::size_t n = 0; n < s_.negatives; ++n) {
      const auto o = noise_[next() % noise_.size()];
      if (o != word) one(o, 0);
    }
  }

  const corpus& c_;
  const settings& s_;
  std::vector<float> x_, y_, keep_;
  std::vector<std::uint32_t> noise_;
  std::array<float, 1001> sigma_{};
  std::atomic<std::uint64_t> done_{0};
};

template <class Real>
void write(const std::string& path, const corpus& c, const std::vector<Real>& vectors, std::size_t k) {
  if (path.empty()) return;
  std::FILE* out = std::fopen(path.c_str(), "wb");
  if (out == nullptr) throw std::runtime_error(path + ": cannot be written");
  std::fprintf(out, "%zu %zu\n", c.word.size(), k);
  for (std::size_t w = 0; w < c.word.size(); ++w) {
    std::fprintf(out, "%s ", c.word[w].c_str());
    for (std::size_t j = 0; j < k; ++j) std::fprintf(out, "%.9g ", static_cast<double>(vectors[w * k + j]));
    std::fputc('\n', out);
  }
  if (std::fclose(out) != 0) throw std::runtime_error(path + ": cannot be written");
}

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<double> r;
  for (const auto v : values) {
    double less = 0;
    double equal = 0;
    for (const auto u : values) {
      less += u < v ? 1 : 0;
      equal += u == v ? 1 : 0;
    }
    r.push_back(less + (equal + 1) / 2);
  }
  return r;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  double sums[5] = {};
  const auto n = static_cast<double>(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    sums[0] += a[i] / n;
    sums[1] += b[i] / n;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    sums[2] += (a[i] - sums[0]) * (a[i] - sums[0]);
    sums[3] += (b[i] - sums[1]) * (b[i] - sums[1]);
    sums[4] += (a[i] - sums[0]) * (b[i] - sums[1]);
  }
  return sums[4] / std::sqrt(sums[2] * sums[3]);
}

/// Spearman's rank correlation of the cosines with the numbers of a file of pairs.
template <class Real>
void test(const std::string& path, const corpus& c, const std::vector<Real>& vectors, std::size_t k) {
  if (path.empty()) return;
  std::unordered_map<std::string, std::size_t> number;
  for (std::size_t w = 0; w < c.word.size(); ++w) number.emplace(c.word[w], w);
  std::vector<double> said, found;
  std::ifstream in(path);
  std::string a, b;
  for (double score = 0; in >> a >> b >> score;) {
    const auto x = number.find(a);
    const auto y = number.find(b);
    if (x == number.end() || y == number.end()) continue;
    double xx = 0, yy = 0, xy = 0;
    for (std::size_t j = 0; j < k; ++j) {
      const double u = vectors[x->second * k + j];
      const double v = vectors[y->second * k + j];
      xx += u * u;
      yy += v * v;
      xy += u * v;
    }
    said.push_back(score);
    found.push_back(xy / std::sqrt(xx * yy));
  }
  std::printf("pairs %zu\nspearman %.9g\n", said.size(), correlation(ranks(said), ranks(found)));
}

void work(int argc, char** argv) {
  std::map<std::string, std::string> given{{"--method", "skip_gram"},
                                           {"--loss", "negative_sampling"},
                                           {"--k", "100"},
                                           {"--window", "5"},
                                           {"--negatives", "5"},
                                           {"--noise_words", "0"},
                                           {"--rounds", "5"},
                                           {"--sample", "1e-3"},
                                           {"--min_count", "5"},
                                           {"--batch_size", "0"},
                                           {"--alpha", ".025"},
                                           {"--seed", "0"},
                                           {"--threads", "0"},
                                           {"--output", ""},
                                           {"--check", "0"},
                                           {"--test", ""}};
  if (argc < 2) throw std::runtime_error("usage: word2vec_serial TEXT [--method skip_gram|cbow] ...");
  for (int i = 2; i + 1 < argc; i += 2) {
    if (given.find(argv[i]) == given.end()) throw std::runtime_error(std::string("unknown option ") + argv[i]);
    given[argv[i]] = argv[i + 1];
  }
  const auto number = [&](const char* name) { return std::strtod(given[name].c_str(), nullptr); };
  const auto whole = [&](const char* name) { return static_cast<std::size_t>(number(name)); };
  settings s{};
  s.cbow = given["--method"] == "cbow";
  s.hierarchical = given["--loss"] == "hierarchical_softmax";
  s.check = number("--check") != 0;
  s.k = whole("--k");
  s.window = whole("--window");
  s.negatives = s.hierarchical ? 0 : whole("--negatives");
  s.noise_words = whole("--noise_words");
  s.batch_size = whole("--batch_size");
  s.threads = whole("--threads");
  s.seed = whole("--seed");
  s.min_count = whole("--min_count");
  s.rounds = static_cast<int>(number("--rounds"));
  s.sample = number("--sample");
  s.alpha = number("--alpha");
  const auto c = load(argv[1], s.min_count);
  if (c.word.empty()) throw std::runtime_error(std::string(argv[1]) + ": found no word");
  std::printf("words %zu\n", c.word.size());
  if (s.threads == 0) {
    batches model(c, s);
    model.train();
    write(given["--output"], c, model.vectors(), s.k);
    test(given["--test"], c, model.vectors(), s.k);
  } else {
    hogwild model(c, s);
    model.train();
    write(given["--output"], c, model.vectors(), s.k);
    test(given["--test"], c, model.vectors(), s.k);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    work(argc, argv);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "word2vec_serial: error: %s\n", e.what());
    return 1;
  }
}
