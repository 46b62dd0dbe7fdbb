// SPDX-License-Identifier: BSD-3-Clause
#include "lda.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <paracel/load.hpp>

#include "lda_text.hpp"

namespace paracel::alg {

namespace {

// Counts that a worker pulls or sends in one call, when it need not have them all at once: 16 MB.
constexpr std::size_t batch_counts = std::size_t{1} << 22U;
constexpr std::uint64_t index_limit = std::uint64_t{1} << 31U;
// Steps of the fixed point at a time, and the relative change that ends them.
constexpr int most_prior_steps = 50;
constexpr double prior_tolerance = 1e-4;

/// Ends a pass over a text.
struct found_format {
  bool text;
};

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

config_schema lda_schema() {
  config_schema s("gLDA", "latent Dirichlet allocation by Gibbs sampling");
  s.key("input", key_type::files, "documents, a line each: words, or libsvm index:count; needed without model_input");
  s.key("test_input", key_type::files, "documents to measure the model on");
  s.key("predict_input", key_type::files, "documents whose topics are wanted");
  s.key("model_input", key_type::string, "folder or manifest of a model: nothing is trained").fallback("");
  s.key("vocabulary", key_type::files, "names of libsvm's indices 1, 2, ..., a line each");
  s.key("output", key_type::output_folder, "folder of the results").required();
  s.key("format", key_type::string, "of the results: text, or npy").fallback("text").one_of({"text", "npy"});
  s.key("input_format", key_type::string, "text, libsvm, or auto: as the first line looks")
      .fallback("auto").one_of({"auto", "text", "libsvm"});
  s.key("alpha", key_type::number, "prior of a topic in a document").fallback(0.1).above(0);
  s.key("beta", key_type::number, "prior of a word in a topic").fallback(0.1).above(0);
  s.key("k_topics", key_type::integer, "topics").fallback(10).at_least(1).at_most(1000000);
  s.key("iters", key_type::integer, "sweeps over the tokens").fallback(100).at_least(0).at_most(1000000000);
  s.key("top_words", key_type::integer, "words of each topic that are written").fallback(50).at_least(0);
  s.key("seed", key_type::integer, "of all draws").fallback(0).at_least(0);
  s.key("sampler", key_type::string, "sparse: exact; mh: Metropolis-Hastings (LightLDA)")
      .fallback("sparse").one_of({"sparse", "mh"});
  s.key("clocks_per_round", key_type::integer, "times a sweep that workers exchange counts").fallback(1).at_least(1)
      .at_most(1000000);
  s.key("ssp_switch", key_type::boolean, "let workers be limit_s clocks apart").fallback(false);
  s.key("limit_s", key_type::integer, "clocks that a worker may be ahead of the slowest")
      .fallback(0).at_least(0).at_most(1000000000);
  s.key("report_every", key_type::integer, "sweeps from one log likelihood to the next; 0: only the last")
      .fallback(10).at_least(0);
  s.key("tolerance", key_type::number, "stop when a report changes the log likelihood by less than this part; 0: never")
      .fallback(0.0).at_least(0);
  s.key("optimize_every", key_type::integer, "sweeps from one fit of alpha and beta to the next; 0: never")
      .fallback(0).at_least(0);
  s.key("test_stride", key_type::integer, "document i of the input is for testing if i % n = n - 1; 0: none")
      .fallback(0).at_least(0);
  s.key("fold_in_steps", key_type::integer, "steps that find the topics of a new document").fallback(100).at_least(1);
  s.key("dump_documents", key_type::boolean, "write the topics of the training documents").fallback(false);
  s.key("check_counts", key_type::boolean, "look at every clock whether the counts add up; needs ssp_switch off")
      .fallback(false);
  s.key("debug", key_type::boolean, "print each report").fallback(false);
  for (const char* name : {"handle_file", "handle_fn", "update_lib"})
    s.key(name, key_type::string, "Paracel's plug-in that added counts; not needed: tables add").fallback("");
  return s;
}

lda_settings::lda_settings(const config& from)
    : input(from.get<std::vector<std::string>>("input")),
      test_input(from.get<std::vector<std::string>>("test_input")),
      predict_input(from.get<std::vector<std::string>>("predict_input")),
      vocabulary(from.get<std::vector<std::string>>("vocabulary")),
      model_input(from.get<std::string>("model_input")),
      output(from.get<std::string>("output")),
      format(from.get<std::string>("format")),
      input_format(from.get<std::string>("input_format")),
      alpha(from.get<double>("alpha")),
      beta(from.get<double>("beta")),
      topics(from.get<std::size_t>("k_topics")),
      sweeps(from.get<int>("iters")),
      top_words(from.get<std::size_t>("top_words")),
      seed(from.get<std::uint64_t>("seed")),
      sampler(from.get<std::string>("sampler") == "mh" ? lda_sampler::method::mh : lda_sampler::method::sparse),
      clocks_per_round(from.get<int>("clocks_per_round")),
      ssp(from.get<bool>("ssp_switch")),
      limit_s(from.get<int>("limit_s")),
      report_every(from.get<int>("report_every")),
      tolerance(from.get<double>("tolerance")),
      optimize_every(from.get<int>("optimize_every")),
      test_stride(from.get<std::uint64_t>("test_stride")),
      fold_in_steps(from.get<int>("fold_in_steps")),
      dump_documents(from.get<bool>("dump_documents")),
      check_counts(from.get<bool>("check_counts")),
      debug(from.get<bool>("debug")) {
  if (input.empty() && model_input.empty()) {
    throw config_error(from.place_of("input") + " is missing; want documents, or a model_input");
  }
  if (!input.empty() && !model_input.empty()) {
    throw config_error(from.place_of("model_input") + ": found a model and an input, want one of them");
  }
  if (!model_input.empty() && test_stride > 0) {
    throw config_error(from.place_of("test_stride") + ": found it with model_input, want test_input: nothing is trained");
  }
  if (input_format == "auto") {
    for (const auto* files : {&input, &test_input, &predict_input}) {
      if (std::find(files->begin(), files->end(), "-") == files->end()) continue;
      throw config_error(from.place_of("input_format") + ": found auto, want text or libsvm with standard input, which is "
                         "read once");
    }
  }
  if (check_counts && ssp) {
    throw config_error(from.place_of("check_counts") + ": found true with ssp_switch, want one of them: only with s = 0 do "
                       "all workers' clocks end together");
  }
}

lda::lda(Comm comm, const std::string& server_info, const lda_settings& settings)
    : paralg(server_info, std::move(comm), settings.output, settings.sweeps, settings.ssp ? settings.limit_s : 0, true),
      settings_(settings) {
  set_consistency(settings_.ssp ? consistency_model::ssp : consistency_model::bsp);
}

void lda::solve() {
  log_ = std::make_unique<run_log>(*this, settings_.sweeps, "log_likelihood", settings_.debug);
  if (settings_.model_input.empty()) {
    load();
    start();
    train();
  } else {
    load_model();
  }
  test();
  dump_result();
}

// ---- loading

/// Names, or index:count: what the first line of the first worker that has one looks like.
void lda::agree_on_format(const std::vector<std::string>& files) {
  std::int64_t mine = -1;
  if (settings_.input_format == "auto") {
    try {
      visit_text(files, get_worker_id(), get_worker_size(), [](std::string_view text) {
        for_each_document(text, [](std::string_view line) { throw found_format{!looks_like_libsvm(line)}; });
      });
    } catch (const found_format& found) {
      mine = found.text ? 1 : 0;
    }
  } else {
    mine = settings_.input_format == "text" ? 1 : 0;
  }
  for (const auto other : get_comm().allgather(mine)) {
    if (other < 0) continue;
    text_ = other == 1;
    return;
  }
  throw data_error(files.front() + ": found no document");
}

lda::raw_documents lda::read(const std::vector<std::string>& files) {
  raw_documents raw;
  auto& to = raw.documents;
  const auto add_line = [&](std::string_view line, const text_failure& fail) {
    bool first = true;
    for_each_field(line, [&](std::string_view field) {
      if (text_) {
        to.word.push_back(raw.names.intern(field));
        return;
      }
      // The label is not read; a line may do without.
      const bool label = std::exchange(first, false) && field.find(':') == std::string_view::npos;
      if (label) return;
      const auto entry = parse_word_count(field, index_limit);
      if (entry.wrong != nullptr) fail(field.data(), "found \"" + std::string(field) + "\", " + entry.wrong);
      if (entry.count > 0) to.word.insert(to.word.end(), entry.count, raw.indices.intern(entry.index));
    });
    to.begin.push_back(to.word.size());
  };
  visit_text(get_comm(), files, [&](std::string_view text, const text_failure& fail) {
    for_each_document(text, [&](std::string_view line) { add_line(line, fail); });
  });
  std::uint64_t number = 0;
  const auto counts = get_comm().allgather(static_cast<std::int64_t>(to.begin.size() - 1));
  for (std::size_t w = 0; w < get_worker_id(); ++w) number += static_cast<std::uint64_t>(counts[w]);
  for (std::size_t d = 0; d + 1 < to.begin.size(); ++d) to.number.push_back(number + d);
  return raw;
}

void lda::read_names() {
  if (settings_.vocabulary.empty()) return;
  if (text_) throw data_error(settings_.vocabulary.front() + ": found names of indices, want none: the input has words");
  visit_lines(settings_.vocabulary, 0, 1, [&](std::string&& line) { names_.push_back(std::string_view(line)); });
  vocabulary_size_ = names_.size();
}

/// From here on the words of `raw` are numbers among all words: of names their rank, of an index one less.
void lda::number_words(raw_documents& raw) {
  auto comm = get_comm();
  std::vector<std::uint32_t> number;
  if (text_) {
    auto mine = raw.names.ids();
    std::sort(mine.begin(), mine.end());
    std::string joined;
    for (const auto& name : mine) joined += name + '\n';
    // Every worker's words, on every worker: what rank 0 needs for the results is what all need to number theirs.
    std::vector<std::string> all;
    for (const auto& text : comm.allgather(joined)) {
      for (std::size_t at = 0; at < text.size();) {
        const auto end = text.find('\n', at);
        all.push_back(text.substr(at, end - at));
        at = end + 1;
      }
    }
    names_ = id_list(all);
    names_.sort_unique();
    vocabulary_size_ = names_.size();
    for (const auto& name : raw.names.ids()) number.push_back(static_cast<std::uint32_t>(*names_.find(name)));
  } else {
    std::int64_t greatest = 0;
    for (const auto index : raw.indices.ids()) {
      greatest = std::max(greatest, static_cast<std::int64_t>(index));
      number.push_back(static_cast<std::uint32_t>(index - 1));
    }
    comm.allreduce(greatest, reduce_op::max);
    if (names_.size() > 0 && static_cast<std::uint64_t>(greatest) > names_.size()) {
      throw data_error(settings_.vocabulary.front() + ": found " + std::to_string(names_.size()) +
                       " names, want at least the greatest index, " + std::to_string(greatest));
    }
    vocabulary_size_ = std::max<std::uint64_t>(vocabulary_size_, static_cast<std::uint64_t>(greatest));
  }
  for (auto& w : raw.documents.word) w = number[w];
}

void lda::load() {
  agree_on_format(settings_.input);
  read_names();
  auto raw = read(settings_.input);
  number_words(raw);
  const auto stride = settings_.test_stride;
  for (std::size_t d = 0; d < raw.documents.size(); ++d) {
    const auto number = raw.documents.number[d];
    auto& to = stride > 0 && number % stride == stride - 1 ? test_ : training_;
    const auto words = raw.documents.of(d);
    to.word.insert(to.word.end(), words.begin(), words.end());
    to.begin.push_back(to.word.size());
    to.number.push_back(number);
  }
  // The training words get indices of their own, in the order of their numbers.
  std::vector<std::uint32_t> sorted(training_.word);
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  training_words_.assign(sorted.begin(), sorted.end());
  for (auto& w : training_.word) {
    w = static_cast<std::uint32_t>(std::lower_bound(sorted.begin(), sorted.end(), w) - sorted.begin());
  }
  std::vector<std::int64_t> sums{static_cast<std::int64_t>(training_.size()), static_cast<std::int64_t>(training_.word.size())};
  get_comm().allreduce(sums);
  documents_total_ = static_cast<std::uint64_t>(sums[0]);
  tokens_total_ = static_cast<std::uint64_t>(sums[1]);
  if (tokens_total_ == 0) throw data_error(settings_.input.front() + ": found no word to train on");

  if (!settings_.test_input.empty()) {
    if (stride > 0) throw data_error(settings_.test_input.front() + ": found test_input and test_stride, want one of them");
    test_ = known_words(settings_.test_input);
  }
  if (!settings_.predict_input.empty()) predict_ = known_words(settings_.predict_input);
}

/// Documents of which only the words are kept that the model has.
lda_documents lda::known_words(const std::vector<std::string>& files) {
  const auto raw = read(files);
  lda_documents known;
  known.number = raw.documents.number;
  for (std::size_t d = 0; d < raw.documents.size(); ++d) {
    for (const auto w : raw.documents.of(d)) {
      if (text_) {
        if (const auto number = names_.find(std::string_view(raw.names[w]))) {
          known.word.push_back(static_cast<std::uint32_t>(*number));
          continue;
        }
      } else if (raw.indices[w] <= vocabulary_size_) {
        known.word.push_back(static_cast<std::uint32_t>(raw.indices[w] - 1));
        continue;
      }
      ++unknown_words_;
    }
    known.begin.push_back(known.word.size());
  }
  return known;
}

void lda::load_model() {
  const model_reader model(settings_.model_input, "lda");
  const auto shape = model.shape("word_topic");
  priors_.alpha = model.read<double>("alpha");
  priors_.beta = model.field<double>("beta");
  priors_.words = static_cast<double>(shape.at(0));
  settings_.topics = priors_.alpha.size();
  vocabulary_size_ = shape.at(0);
  text_ = model.field<bool>("text");
  const auto ids = model.ids("word_topic");
  if (!ids.numeric()) names_ = ids;
  model_counts_ = model.read<std::int64_t>("word_topic");
  model_totals_ = model.read<std::int64_t>("topic_counts");
  if (!settings_.test_input.empty()) test_ = known_words(settings_.test_input);
  if (!settings_.predict_input.empty()) predict_ = known_words(settings_.predict_input);
}

std::string lda::word_name(std::uint64_t word) const {
  return names_.size() > 0 ? std::string(names_.name(word)) : std::to_string(word + 1);
}

// ---- training

/// The tables, and the first topics of all tokens in them.
void lda::start() {
  priors_.alpha.assign(settings_.topics, settings_.alpha);
  priors_.beta = settings_.beta;
  priors_.words = static_cast<double>(vocabulary_size_);
  words_ = std::make_unique<word_table>(*this, "lda_words", settings_.topics);
  totals_ = std::make_unique<topic_table>(*this, "lda_topics", settings_.topics);
  sampler_ = std::make_unique<lda_sampler>(std::move(training_), training_words_.size(), priors_, settings_.sampler,
                                           settings_.seed);
  push(*sampler_);
  iter_commit();
  paracel_sync();
}

void lda::train() {
  auto& sampler = *sampler_;
  const auto documents = sampler.documents().size();
  const auto clocks = static_cast<std::size_t>(settings_.clocks_per_round);
  // Tokens and not documents are what makes a clock's share.
  const auto tokens = sampler.documents().begin.back();
  std::vector<std::size_t> cut{0};
  for (std::size_t c = 1; c < clocks; ++c) {
    const auto& begin = sampler.documents().begin;
    cut.push_back(static_cast<std::size_t>(
        std::lower_bound(begin.begin(), begin.end() - 1, tokens / clocks * c + tokens % clocks * c / clocks) - begin.begin()));
  }
  cut.push_back(documents);
  double last = 0;
  if (settings_.check_counts) check("at the beginning");
  for (int sweep = 1; sweep <= settings_.sweeps; ++sweep) {
    for (std::size_t c = 0; c < clocks; ++c) {
      pull(sampler);
      sampler.sweep(cut[c], cut[c + 1], static_cast<std::uint64_t>(sweep));
      push(sampler);
      iter_commit();
      if (settings_.check_counts) check("in training");
    }
    sweeps_done_ = sweep;
    if (settings_.optimize_every > 0 && sweep % settings_.optimize_every == 0) optimize(sampler);
    const bool report = settings_.report_every > 0 && sweep % settings_.report_every == 0;
    if (!report && sweep != settings_.sweeps) continue;
    const double value = log_likelihood(sampler);
    log_->round(sweep, value, {{"beta", priors_.beta}});
    if (report && sweep > settings_.report_every && std::abs(value - last) < settings_.tolerance * std::abs(last)) break;
    last = value;
  }
  paracel_sync();
  check("at the end");
}

void lda::pull(lda_sampler& sampler) {
  words_->pull(training_words_, sampler.counts());
  const std::uint64_t only[] = {0};
  totals_->pull(only, sampler.totals());
  sampler.begin();
}

void lda::push(lda_sampler& sampler) {
  std::vector<std::uint64_t> ids;
  std::vector<std::int32_t> deltas;
  const auto send = [&] {
    if (!ids.empty()) words_->update(ids, deltas);
    ids.clear();
    deltas.clear();
  };
  sampler.for_each_change([&](std::size_t w, std::span<const std::int32_t> change) {
    ids.push_back(training_words_[w]);
    deltas.insert(deltas.end(), change.begin(), change.end());
    if (deltas.size() >= batch_counts) send();
  });
  send();
  const std::uint64_t only[] = {0};
  totals_->update(only, sampler.total_changes());
}

std::vector<std::int64_t> lda::pull_totals() {
  std::vector<std::int64_t> totals(settings_.topics);
  const std::uint64_t only[] = {0};
  totals_->pull(only, totals);
  return totals;
}

template <class F>
void lda::for_each_own_word(F&& f) {
  const auto topics = settings_.topics;
  const auto end = share(get_worker_id() + 1);
  const auto step = std::max<std::uint64_t>(1, batch_counts / topics);
  std::vector<std::uint64_t> ids;
  std::vector<std::int32_t> rows;
  for (auto first = share(get_worker_id()); first < end; first += step) {
    ids.resize(std::min(step, end - first));
    std::iota(ids.begin(), ids.end(), first);
    rows.resize(ids.size() * topics);
    words_->pull(ids, rows);
    for (std::size_t i = 0; i < ids.size(); ++i) f(ids[i], std::span<const std::int32_t>(rows).subspan(i * topics, topics));
  }
}

/// The counts in the servers: none negative, all tokens there, the totals the sums of the words.
void lda::check(const char* when) {
  std::vector<std::int64_t> sums(settings_.topics + 1);  // the last: negative counts
  for_each_own_word([&](std::uint64_t, std::span<const std::int32_t> counts) {
    for (std::size_t k = 0; k < counts.size(); ++k) {
      sums[k] += counts[k];
      sums.back() += counts[k] < 0 ? 1 : 0;
    }
  });
  const auto totals = pull_totals();
  get_comm().allreduce(sums);
  const auto all = std::accumulate(totals.begin(), totals.end(), std::int64_t{0});
  const bool equal = std::equal(totals.begin(), totals.end(), sums.begin());
  if (sums.back() == 0 && equal && all == static_cast<std::int64_t>(tokens_total_)) return;
  throw error(std::string("counts ") + when + ": found " + std::to_string(sums.back()) + " negative ones and a sum of " +
              std::to_string(all) + (equal ? "" : ", topic by topic not those of the words") + ", want none and " +
              std::to_string(tokens_total_));
}

/// Minka's fixed point for alpha (a number a topic) and beta (one number) from the counts as they are.
void lda::optimize(lda_sampler& sampler) {
  auto comm = get_comm();
  document_counts documents(settings_.topics);
  std::vector<std::uint64_t> work;
  for (std::size_t d = 0; d < sampler.documents().size(); ++d) documents.add(sampler.topics_of(d), work);
  for (int step = 0; step < most_prior_steps; ++step) {
    auto sums = documents.minka_sums(priors_.alpha);
    comm.allreduce(sums);
    if (minka_step(priors_.alpha, sums) < prior_tolerance) break;
  }

  count_histogram counts;
  for_each_own_word([&](std::uint64_t, std::span<const std::int32_t> row) {
    for (const auto n : row) {
      if (n > 0) counts.add(static_cast<std::uint64_t>(n));
    }
  });
  auto totals = pull_totals();
  comm.bcast(totals);  // with ssp they may differ, and all must take the same steps
  for (int step = 0; step < most_prior_steps; ++step) {
    double above = counts.digamma_sum(priors_.beta);
    comm.allreduce(above);
    double below = 0;
    for (const auto n : totals) {
      below += priors_.words * digamma_difference(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 0)),
                                                  priors_.words * priors_.beta);
    }
    const std::vector<double> sums{above, below};
    if (minka_step(std::span(&priors_.beta, 1), sums) < prior_tolerance) break;
  }
  sampler.set_priors(priors_);
}

/// log p(words, topics given alpha, beta) a token.
double lda::log_likelihood(const lda_sampler& sampler) {
  auto comm = get_comm();
  document_counts documents(settings_.topics);
  std::vector<std::uint64_t> work;
  for (std::size_t d = 0; d < sampler.documents().size(); ++d) documents.add(sampler.topics_of(d), work);
  count_histogram counts;
  for_each_own_word([&](std::uint64_t, std::span<const std::int32_t> row) {
    for (const auto n : row) {
      if (n > 0) counts.add(static_cast<std::uint64_t>(n));
    }
  });
  double value = documents.log_probability(priors_.alpha) + counts.lgamma_sum(priors_.beta);
  comm.allreduce(value);
  const double prior = priors_.words * priors_.beta;
  for (const auto n : pull_totals()) value += log_gamma(prior) - log_gamma(static_cast<double>(n) + prior);
  // With ssp others may push between two workers' pulls; all must stop at one sweep.
  comm.bcast(value);
  return value / static_cast<double>(tokens_total_);
}

// ---- testing and predicting

std::vector<double> lda::phi_of(const std::vector<std::uint64_t>& words) {
  const auto topics = settings_.topics;
  std::vector<double> phi(words.size() * topics);
  const auto totals = words_ ? pull_totals() : model_totals_;
  std::vector<std::int32_t> rows;
  if (words_) {
    rows.resize(phi.size());
    words_->pull(words, rows);
  }
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (std::size_t k = 0; k < topics; ++k) {
      const auto n = static_cast<double>(words_ ? rows[i * topics + k] : model_counts_[words[i] * topics + k]);
      phi[i * topics + k] = (n + priors_.beta) / (static_cast<double>(totals[k]) + priors_.words * priors_.beta);
    }
  }
  return phi;
}

namespace {

/// The words of some documents, ascending, and the documents with indices into them.
std::vector<std::uint64_t> own_words(lda_documents& documents) {
  std::vector<std::uint64_t> words(documents.word.begin(), documents.word.end());
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  for (auto& w : documents.word) {
    w = static_cast<std::uint32_t>(std::lower_bound(words.begin(), words.end(), w) - words.begin());
  }
  return words;
}

}  // namespace

/// Every other word of a document finds its topics, the words between them are scored.
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

// ---- results

void lda::dump_result() {
  auto comm = get_comm();
  const bool trained = sampler_ != nullptr;
  auto& log = *log_;
  model_writer writer(*this, trained ? "lda" : "lda_predictions", settings_.format);
  writer.settings().add("alpha", settings_.alpha).add("beta", settings_.beta);
  writer.settings().add("iters", settings_.sweeps).add("seed", settings_.seed);
  writer.settings().add("sampler", settings_.sampler == lda_sampler::method::mh ? "mh" : "sparse");
  if (trained) {
    double value = log_likelihood(*sampler_);
    writer.fields().add("text", text_).add("beta", priors_.beta).add("sweeps", sweeps_done_);
    writer.fields().add("documents", documents_total_).add("tokens", tokens_total_).add("log_likelihood", value);
    std::vector<std::int64_t> rows;
    auto names = id_list::empty(names_.size() == 0);
    for_each_own_word([&](std::uint64_t word, std::span<const std::int32_t> counts) {
      rows.insert(rows.end(), counts.begin(), counts.end());
      if (names_.size() > 0) names.push_back(names_.name(word));
      else names.push_back(word + 1);
    });
    writer.add_rows("word_topic", std::span<const std::int64_t>(rows), {settings_.topics}, &names);
    writer.add("topic_counts", pull_totals());
    writer.add("alpha", priors_.alpha);
    dump_topics();
    if (settings_.dump_documents) {
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
    log.result("documents", documents_total_);
    log.result("tokens", tokens_total_);
    log.result("words", vocabulary_size_);
    log.result("sweeps", static_cast<std::uint64_t>(sweeps_done_));
    log.result("log_likelihood", value);
  }
  if (!settings_.predict_input.empty()) predict(writer);
  writer.finish();
  auto unknown = static_cast<std::int64_t>(unknown_words_);
  comm.allreduce(unknown);
  if (unknown > 0) log.result("unknown_words", static_cast<std::uint64_t>(unknown));
  log.result("output", get_output());
  paracel_sync();
}

/// The best words of each topic: every worker sends rank 0 those of its share of the words.
void lda::dump_topics() {
  struct candidate {
    std::int32_t count;
    std::uint64_t word;
  };
  const auto better_word = [](const candidate& a, const candidate& b) {
    return a.count != b.count ? a.count > b.count : a.word < b.word;
  };
  const auto topics = settings_.topics;
  const auto k_best = settings_.top_words;
  std::vector<std::vector<candidate>> best(topics);
  const auto cut = [&](std::vector<candidate>& list) {
    std::sort(list.begin(), list.end(), better_word);
    list.resize(std::min(list.size(), k_best));
  };
  for_each_own_word([&](std::uint64_t word, std::span<const std::int32_t> counts) {
    for (std::size_t k = 0; k < topics; ++k) {
      if (counts[k] <= 0) continue;
      best[k].push_back({counts[k], word});
      if (best[k].size() >= 2 * k_best + 1024) cut(best[k]);
    }
  });
  std::vector<std::int64_t> flat;
  for (std::size_t k = 0; k < topics; ++k) {
    cut(best[k]);
    for (const auto& c : best[k]) {
      flat.insert(flat.end(), {static_cast<std::int64_t>(k), c.count, static_cast<std::int64_t>(c.word)});
    }
  }
  const auto totals = pull_totals();
  std::vector<std::vector<std::int64_t>> to(get_worker_size());
  std::vector<std::vector<std::int64_t>> got;
  to[0] = std::move(flat);
  get_comm().alltoall(to, got);
  if (get_worker_id() != 0) return;
  for (auto& list : best) list.clear();
  for (const auto& block : got) {
    for (std::size_t i = 0; i + 2 < block.size(); i += 3) {
      best[static_cast<std::size_t>(block[i])].push_back(
          {static_cast<std::int32_t>(block[i + 1]), static_cast<std::uint64_t>(block[i + 2])});
    }
  }
  std::vector<topic_line> lines(topics);
  for (std::size_t k = 0; k < topics; ++k) {
    cut(best[k]);
    lines[k].topic = k;
    for (const auto& c : best[k]) {
      const double p = (c.count + priors_.beta) / (static_cast<double>(totals[k]) + priors_.words * priors_.beta);
      lines[k].words.emplace_back(word_name(c.word), p);
    }
  }
  paracel_dump_vector(lines, "lda_topics_", "\n");
}

}  // namespace paracel::alg
