// SPDX-License-Identifier: BSD-3-Clause
//
// What follows training: perplexity, topics of new documents, writing the model.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "lda.hpp"

namespace paracel::alg {

namespace {

/// A line of lda_topics_0.
struct topic_line {
  std::size_t topic = 0;
  std::vector<std::pair<std::string, double>> words;
};
void append_text(std::string& out, const topic_line& line) {
  paracel::append_text(out, line.topic);
  out += "topic\t";
  for (std::size_t i = 0; i < line.words.size(); ++i) {
    if (i > 0) out += '|';
    paracel::append_text(out, line.words[i]);
  }
}

}  // namespace

std::string lda::word_name(std::uint64_t word) const {
  return names_.size() > 0 ? std::string(names_.name(word)) : std::to_string(word + 1);
}

std::vector<double> lda::phi_of(const std::vector<std::uint64_t>& words) {
  const auto topics = settings_.topics;
  std::vector<double> phi(words.size() * topics);
  const auto totals = model_totals();
  std::vector<std::int32_t> rows;
  if (counts_) {
    rows.resize(phi.size());
    counts_->pull(words, rows);
    std::ranges::copy(rows, phi.begin());
  } else if (online_) {
    online_->pull(words, phi);
  } else {
    for (std::size_t i = 0; i < words.size(); ++i)
      std::copy_n(&model_counts_[words[i] * topics], topics, &phi[i * topics]);
  }
  for (std::size_t i = 0; i < phi.size(); ++i) phi[i] = probability(phi[i], totals[i % topics]);
  return phi;
}

std::vector<double> lda::model_totals() {
  if (online_) return online_->totals();
  if (!counts_) return model_totals_;
  const auto counts = pull_totals();
  return {counts.begin(), counts.end()};
}

/// Document completion: topics are inferred from every other word, the words between them are scored.
void lda::test() {
  if (settings_.test_input.empty() && settings_.test_stride == 0) return;
  const auto words = own_words(test_);
  const auto phi = phi_of(words);
  const auto of = [&](std::uint32_t w) { return &phi[w * settings_.topics]; };
  std::vector<double> sums(2);
  for (std::size_t d = 0; d < test_.size(); ++d) {
    std::vector<std::uint32_t> observed;
    std::vector<std::uint32_t> scored;
    const auto all = test_.of(d);
    for (std::size_t i = 0; i < all.size(); ++i) (i % 2 == 0 ? observed : scored).push_back(all[i]);
    const auto theta = fold_in(observed, priors_.alpha, of, settings_.fold_in_steps);
    for (const auto w : scored) {
      double p = 0;
      for (std::size_t k = 0; k < theta.size(); ++k) p += theta[k] * of(w)[k];
      sums[0] += std::log(p);
    }
    sums[1] += static_cast<double>(scored.size());
  }
  get_comm().allreduce(sums);
  log_->result("test_tokens", static_cast<std::uint64_t>(sums[1]));
  log_->result("perplexity", sums[1] > 0 ? std::exp(-sums[0] / sums[1]) : std::nan(""));
}

void lda::predict(model_writer& writer) {
  const auto words = own_words(predict_);
  const auto phi = phi_of(words);
  const auto of = [&](std::uint32_t w) { return &phi[w * settings_.topics]; };
  std::vector<double> rows;
  for (std::size_t d = 0; d < predict_.size(); ++d) {
    const auto theta = fold_in(predict_.of(d), priors_.alpha, of, settings_.fold_in_steps);
    rows.insert(rows.end(), theta.begin(), theta.end());
  }
  const id_list numbers(predict_.number);
  writer.add_rows("predictions", std::span<const double>(rows), {settings_.topics}, &numbers);
}

template <class T, class Stored>
void lda::write_counts(model_writer& writer) {
  std::vector<Stored> rows;
  auto names = id_list::empty(names_.size() == 0);
  for_each_own_word<T>([&](std::uint64_t word, std::span<const T> counts) {
    rows.insert(rows.end(), counts.begin(), counts.end());
    if (names_.size() > 0) names.push_back(names_.name(word));
    else names.push_back(word + 1);
  });
  writer.add_rows("word_topic", std::span<const Stored>(rows), {settings_.topics}, &names);
}

void lda::write_documents(model_writer& writer) {
  if (online_) {
    const id_list numbers(online_->numbers());
    return writer.add_rows("documents", std::span<const double>(shares_), {settings_.topics}, &numbers);
  }
  const auto& documents = sampler_->documents();
  std::vector<double> thetas;
  const double prior = std::accumulate(priors_.alpha.begin(), priors_.alpha.end(), 0.0);
  for (std::size_t d = 0; d < documents.size(); ++d) {
    auto theta = priors_.alpha;
    const auto topics = sampler_->topics_of(d);
    for (const auto k : topics) theta[k] += 1;
    for (const auto t : theta) thetas.push_back(t / (static_cast<double>(topics.size()) + prior));
  }
  const id_list numbers(documents.number);
  writer.add_rows("documents", std::span<const double>(thetas), {settings_.topics}, &numbers);
}

void lda::dump_result() {
  auto comm = get_comm();
  const bool trained = settings_.model_input.empty();
  auto& log = *log_;
  model_writer writer(*this, trained ? "lda" : "lda_predictions", settings_.format);
  if (settings_.initial.model.given()) writer.settings().add("k_topics", std::uint64_t{settings_.topics});
  if (trained) {
    const double value = online_ ? bound_ : log_likelihood(*sampler_);
    const char* const metric = online_ ? "bound" : "log_likelihood";
    writer.fields().add("text", text_).add("beta", priors_.beta).add("sweeps", sweeps_done_);
    writer.fields().add("documents", documents_total_).add("tokens", tokens_total_).add(metric, value);
    if (online_) {
      write_counts<double, double>(writer);
      writer.add("topic_counts", online_->totals());
      writer.fields().add("steps", online_->steps());
    } else {
      write_counts<std::int32_t, std::int64_t>(writer);
      writer.add("topic_counts", pull_totals());
    }
    writer.add("alpha", priors_.alpha);
    dump_topics();
    if (settings_.dump_documents) write_documents(writer);
    log.result("documents", documents_total_);
    log.result("tokens", tokens_total_);
    log.result("words", vocabulary_size_);
    log.result("sweeps", static_cast<std::uint64_t>(sweeps_done_));
    log.result(metric, value);
  }
  if (!settings_.predict_input.empty()) predict(writer);
  writer.finish();
  auto unknown = static_cast<std::int64_t>(unknown_words_);
  comm.allreduce(unknown);
  if (unknown > 0) log.result("unknown_words", static_cast<std::uint64_t>(unknown));
  log.result("output", get_output());
  paracel_sync();
}

void lda::keep_best(std::vector<candidate>& list) const {
  std::ranges::sort(list, [](const auto& a, const auto& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.word < b.word;
  });
  list.resize(std::min(list.size(), settings_.top_words));
}

/// Every worker sends rank 0 the best of its share of the vocabulary.
template <class T>
std::vector<std::vector<lda::candidate>> lda::best_words(const std::vector<double>& totals) {
  const auto topics = settings_.topics;
  std::vector<std::vector<candidate>> best(topics);
  for_each_own_word<T>([&](std::uint64_t word, std::span<const T> counts) {
    for (std::size_t k = 0; k < topics; ++k) {
      if (counts[k] <= 0) continue;
      best[k].push_back({probability(counts[k], totals[k]), word});
      if (best[k].size() >= 2 * settings_.top_words + 1024) keep_best(best[k]);
    }
  });
  std::vector<double> flat;  // words and topics are exact below 2^53
  for (std::size_t k = 0; k < topics; ++k) {
    keep_best(best[k]);
    for (const auto& c : best[k])
      flat.insert(flat.end(), {static_cast<double>(k), c.probability, static_cast<double>(c.word)});
    best[k].clear();
  }
  std::vector<std::vector<double>> to(get_worker_size());
  std::vector<std::vector<double>> got;
  to[0] = std::move(flat);
  get_comm().alltoall(to, got);
  for (const auto& block : got) {
    for (std::size_t i = 0; i + 2 < block.size(); i += 3) {
      best[static_cast<std::size_t>(block[i])].push_back({block[i + 1], static_cast<std::uint64_t>(block[i + 2])});
    }
  }
  return best;
}

/// As Paracel did: each worker writes the probabilities of its share under key_<topic>_<word>, and rank 0 reads those
/// that the plug-in's filter accepts.
std::vector<std::vector<lda::candidate>> lda::best_words_in_servers(const std::vector<double>& totals) {
  std::vector<std::vector<candidate>> best(settings_.topics);
  dict_type<std::string, double> phi;
  const auto send = [&] {
    paracel_write_multi(phi);
    phi.clear();
  };
  for_each_own_word<std::int32_t>([&](std::uint64_t word, std::span<const std::int32_t> counts) {
    for (std::size_t k = 0; k < counts.size(); ++k) {
      if (counts[k] <= 0) continue;
      phi["key_" + std::to_string(k) + '_' + std::to_string(word)] = probability(counts[k], totals[k]);
    }
    if (phi.size() >= batch_counts / 16) send();
  });
  send();
  paracel_sync();
  if (get_worker_id() != 0) return best;
  const auto keep = [&](const std::string& key, const double& p) {
    const auto topic = key.find('_') + 1;
    const auto word = key.find('_', topic) + 1;
    auto& list = best.at(std::stoull(key.substr(topic)));
    list.push_back({p, std::stoull(key.substr(word))});
    if (list.size() >= 2 * settings_.top_words + 1024) keep_best(list);
  };
  paracel_read_special_handle<double>(settings_.handle_file, "gLDA_dump_filter", keep);
  return best;
}

void lda::dump_topics() {
  const auto totals = model_totals();
  auto best = online_                         ? best_words<double>(totals)
              : settings_.handle_file.empty() ? best_words<std::int32_t>(totals)
                                              : best_words_in_servers(totals);
  if (get_worker_id() != 0) return;
  std::vector<topic_line> lines(settings_.topics);
  for (std::size_t k = 0; k < lines.size(); ++k) {
    keep_best(best[k]);
    lines[k].topic = k;
    for (const auto& c : best[k]) lines[k].words.emplace_back(word_name(c.word), c.probability);
  }
  write_lines(*this, lines, "lda_topics_");
}

}  // namespace paracel::alg
