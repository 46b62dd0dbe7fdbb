// SPDX-License-Identifier: BSD-3-Clause
//
// Latent Dirichlet allocation: each token of a document has a topic; documents favour few topics, and topics few words.
// Fitted by collapsed Gibbs sampling (lda_sampler.hpp has the formula) or online variational inference
// (lda_online.hpp).
//
// Sampling: documents and the topics of their tokens stay on the worker that read them. The counts of words in topics
// are rows of a table in the servers: at the start of a clock a worker pulls the rows of its own words, samples its
// tokens as if it were alone, and pushes the differences. So a worker sees other workers' changes one clock late, its
// own immediately. With `handle_file` they are values under Paracel 0.3's keys instead (lda_counts.hpp).
//
// Source: T. Griffiths, M. Steyvers, "Finding scientific topics", PNAS 2004; D. Newman et al., "Distributed algorithms
// for topic models", JMLR 2009 (the effect of stale counts is small).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <paracel/id_list.hpp>
#include <paracel/interner.hpp>
#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>

#include "alg/common/output/model_file.hpp"
#include "alg/common/output/result_keys.hpp"
#include "alg/common/output/run_log.hpp"
#include "lda_counts.hpp"
#include "lda_initial.hpp"
#include "lda_model.hpp"
#include "lda_online.hpp"
#include "lda_sampler.hpp"

namespace paracel::alg {

enum class document_format { automatic, text, libsvm, table };

struct lda_initial_settings {
  initial_model model;
  std::string topics_place;  ///< of the key k_topics, if it is given
  bool alpha_given = false;  ///< the keys; otherwise they are the model's
  bool beta_given = false;
};

struct lda_settings {
  static constexpr auto program = "gLDA";
  static constexpr auto summary = "latent Dirichlet allocation by Gibbs sampling or variational inference";
  void keys(key_list& k);
  void check(const config& from);

  std::vector<std::string> input;
  std::vector<std::string> test_input;
  std::vector<std::string> predict_input;
  std::vector<std::string> vocabulary;
  std::string model_input;
  lda_initial_settings initial;
  std::string output;
  result_format format = result_format::text;
  document_format input_format = document_format::automatic;
  double alpha = 0.1;
  double beta = 0.1;
  std::size_t topics = 10;
  int sweeps = 100;
  std::size_t top_words = 50;
  std::uint64_t seed = 0;
  bool is_online = false;
  lda_online_settings online;
  lda_sampler::method sampler = lda_sampler::method::sparse;
  int clocks_per_round = 1;
  paracel::consistency consistency = paracel::consistency::bsp();
  int report_every = 10;
  double tolerance = 0;
  int optimize_every = 0;
  std::uint64_t test_stride = 0;
  int fold_in_steps = 100;
  bool dump_documents = false;
  bool check_counts = false;
  bool debug = false;
  std::string handle_file;
};

class lda : public paralg {
 public:
  using settings_type = lda_settings;

  lda(Comm comm, const std::string& server_info, const lda_settings& settings);

  /// Loads, trains (or reads a model), tests, predicts and writes.
  /// Throws: data_error; error when counts in the servers are inconsistent.
  void solve() override;

 private:
  /// Documents as read; words are indices into `names` or `indices`.
  struct raw_documents {
    lda_documents documents;
    interner<std::string> names;
    interner<std::uint64_t> indices;  // 1-based, as in the file
  };
  // Counts that a worker pulls or pushes in one call when it does not need all of them at once: 16 MB.
  static constexpr std::size_t batch_counts = std::size_t{1} << 22U;

  void read_initial();
  /// The places of the initial model's rows among the words, which have their numbers now.
  void place_initial_words();
  void read_initial_names();
  void load();
  void load_model();
  void agree_on_format(const std::vector<std::string>& files);
  raw_documents read(const std::vector<std::string>& files);
  raw_documents read_table(const std::vector<std::string>& files);
  void read_names();
  void number_words(raw_documents& raw);
  static std::vector<std::uint64_t> own_words(lda_documents& documents);
  lda_documents known_words(const std::vector<std::string>& files);
  void start();
  void train();
  void train_online();
  /// Warns if the rounds ended before the tolerance was reached.
  void warn_of_end();
  void pull(lda_sampler& sampler);
  void push(lda_sampler& sampler);
  /// Adds this worker's share of the initial model's counts.
  void push_initial();
  void optimize(lda_sampler& sampler);
  [[nodiscard]] double log_likelihood(const lda_sampler& sampler);
  void check(const char* when);
  std::vector<std::int64_t> pull_totals();
  /// The totals of a model that was trained or read.
  std::vector<double> model_totals();
  /// Calls f(word, counts) for each word of this worker's share of the vocabulary. T: int32, or double for the expected
  /// counts of the online method.
  template <class T, class F>
  void for_each_own_word(F&& f) {
    const auto topics = settings_.topics;
    const auto end = share(get_worker_id() + 1);
    const auto step = std::max<std::uint64_t>(1, batch_counts / topics);
    std::vector<std::uint64_t> ids;
    std::vector<T> rows;
    for (auto first = share(get_worker_id()); first < end; first += step) {
      ids.resize(std::min(step, end - first));
      std::iota(ids.begin(), ids.end(), first);
      rows.resize(ids.size() * topics);
      if constexpr (std::same_as<T, double>) online_->pull(ids, rows);
      else counts_->pull(ids, rows);
      for (std::size_t i = 0; i < ids.size(); ++i) f(ids[i], std::span<const T>(rows).subspan(i * topics, topics));
    }
  }
  /// phi of these words, K numbers each.
  std::vector<double> phi_of(const std::vector<std::uint64_t>& words);
  void test();
  void predict(model_writer& writer);
  void dump_result();
  struct candidate {
    double probability;
    std::uint64_t word;
  };
  /// The best words of each topic, of all workers, on rank 0; not yet cut to `top_words`.
  template <class T>
  [[nodiscard]] std::vector<std::vector<candidate>> best_words(const std::vector<double>& totals);
  [[nodiscard]] std::vector<std::vector<candidate>> best_words_in_servers(const std::vector<double>& totals);
  void keep_best(std::vector<candidate>& list) const;
  [[nodiscard]] double probability(double count, double total) const {
    return (count + priors_.beta) / (total + priors_.words * priors_.beta);
  }
  /// Adds this worker's share of the counts to the results. T as for for_each_own_word, Stored: in files.
  template <class T, class Stored>
  void write_counts(model_writer& writer);
  void write_documents(model_writer& writer);
  void dump_topics();
  [[nodiscard]] std::uint64_t share(std::size_t rank) const {
    return vocabulary_size_ / get_worker_size() * rank +
           vocabulary_size_ % get_worker_size() * rank / get_worker_size();
  }
  [[nodiscard]] std::string word_name(std::uint64_t word) const;

  lda_settings settings_;
  lda_priors priors_;
  bool text_ = false;  // words are names and not indices
  id_list names_;      // of words, by number; empty: words are identified by index
  std::uint64_t vocabulary_size_ = 0;
  std::uint64_t documents_total_ = 0;
  std::uint64_t tokens_total_ = 0;
  std::uint64_t unknown_words_ = 0;
  lda_documents training_;
  std::vector<std::uint64_t> training_words_;  // numbers of the words of training_
  lda_documents test_;                         // words are numbers, here and in predict_
  lda_documents predict_;
  std::optional<lda_counts> counts_;
  std::vector<double> model_counts_;  // of a model read from files: V x K, and K
  std::vector<double> model_totals_;
  std::unique_ptr<lda_sampler> sampler_;
  std::unique_ptr<lda_online> online_;
  lda_initial initial_;
  double bound_ = 0;            // of the trained model, per token; online
  std::vector<double> shares_;  // of topics in documents; online, with dump_documents
  std::unique_ptr<run_log> log_;
  int sweeps_done_ = 0;
};

}  // namespace paracel::alg
