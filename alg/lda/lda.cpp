// SPDX-License-Identifier: BSD-3-Clause
#include "lda.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <paracel/resumable_loop.hpp>

#include "alg/common/divergence.hpp"
#include "alg/common/server_state.hpp"
#include "alg/common/warning.hpp"

namespace paracel::alg {

namespace {

// Most fixed-point steps at a time, and the relative change at which they stop.
constexpr int most_prior_steps = 50;
constexpr double prior_tolerance = 1e-4;
// Topics are uniform long before; the log-likelihood is a sum of differences of log-gammas of priors and counts, which
// lose all digits at 1e15.
constexpr double greatest_prior = 1e6;
// It has no step that could be too long, but priors of extreme size may overflow.
const divergence_rule watched{"the objective", "want alpha and beta nearer to 1"};

}  // namespace

config_schema lda_schema() {
  config_schema s("gLDA", "latent Dirichlet allocation by Gibbs sampling or variational inference");
  // Counts that arrive twice, from a worker and from its replacement, would stay wrong.
  s.not_resumable_with([](const config& c) -> std::string {
    if (read_consistency(c, consistency::bsp()).model == consistency_model::bsp) return "";
    return c.place_of(c.given("consistency") ? "consistency" : "ssp_switch");
  });
  s.key("input", key_type::files, "documents, one per line: words, or libsvm index:count")
      .required_unless({"model_input"});
  s.key("test_input", key_type::files, "documents to evaluate the model on");
  s.key("predict_input", key_type::files, "documents whose topics are inferred");
  s.key("model_input", key_type::string, "folder or manifest of an existing model: nothing is trained").fallback("");
  s.key("vocabulary", key_type::files, "names of libsvm's indices 1, 2, ..., one per line");
  s.key("output", key_type::output_folder, "folder of the results").required();
  s.add_output_files();
  s.key("format", key_type::string, "format of the results: text, or npy").fallback("text").one_of({"text", "npy"});
  s.key("input_format", key_type::string, "text, libsvm, or auto: detected from the first line")
      .fallback("auto")
      .one_of({"auto", "text", "libsvm"});
  s.key("alpha", key_type::number, "prior of a topic in a document")
      .fallback(0.1)
      .at_least(least_prior)
      .at_most(greatest_prior);
  s.key("beta", key_type::number, "prior of a word in a topic")
      .fallback(0.1)
      .at_least(least_prior)
      .at_most(greatest_prior);
  s.key("k_topics", key_type::integer, "number of topics").fallback(10).at_least(1).at_most(1000000);
  s.key("iters", key_type::integer, "sweeps over the documents").fallback(100).at_least(0).at_most(1000000000);
  s.key("top_words", key_type::integer, "number of words to write for each topic").fallback(50).at_least(0);
  s.key("seed", key_type::integer, "seed of all draws").fallback(0).at_least(0);
  s.key("method", key_type::string, "gibbs, or online: variational inference of a batch of documents at a time")
      .fallback("gibbs")
      .one_of({"gibbs", "online"});
  s.key("batch_size", key_type::integer, "online: documents of all workers between two updates of the topics")
      .fallback(128)
      .at_least(1);
  s.key("learning_offset", key_type::number, "online: offset o of the weight (o + t)^-d of batch t = 1, 2, ...")
      .fallback(10.0)
      .at_least(0);
  s.key("learning_decay", key_type::number, "online: exponent d of that weight; above 0.5 the topics converge")
      .fallback(0.7)
      .at_least(0)
      .at_most(1);
  s.key("document_steps", key_type::integer, "online: maximum number of steps to infer a training document's topics")
      .fallback(100)
      .at_least(1)
      .at_most(1000000);
  s.key("document_tolerance", key_type::number,
        "online: mean change of a document's expected counts below which the inference ends")
      .fallback(1e-3)
      .at_least(0);
  s.key("sampler", key_type::string, "sparse: exact; mh: Metropolis-Hastings (LightLDA)")
      .fallback("sparse")
      .one_of({"sparse", "mh"});
  s.key("clocks_per_round", key_type::integer, "exchanges of counts between workers per sweep")
      .fallback(1)
      .at_least(1)
      .at_most(1000000);
  add_consistency_keys(s, "clocks", "bsp", {consistency_model::bsp, consistency_model::ssp});
  s.key("report_every", key_type::integer, "sweeps between two computations of the log likelihood; 0: only at the end")
      .fallback(10)
      .at_least(0);
  s.key("tolerance", key_type::number,
        "stop when a report changes the log likelihood by less than this fraction; 0: never")
      .fallback(0.0)
      .at_least(0);
  s.key("optimize_every", key_type::integer, "sweeps between two fits of alpha and beta; 0: never")
      .fallback(0)
      .at_least(0);
  s.key("test_stride", key_type::integer,
        "hold out every n-th document of the input, those with i % n = n - 1, for testing; 0: none")
      .fallback(0)
      .at_least(0);
  s.key("fold_in_steps", key_type::integer, "number of steps to infer a new document's topics")
      .fallback(100)
      .at_least(1);
  s.key("dump_documents", key_type::boolean, "write the topics of the training documents").fallback(false);
  s.key("check_counts", key_type::boolean, "check at every clock that the counts are consistent; needs bsp")
      .fallback(false);
  s.key("debug", key_type::boolean, "print each report").fallback(false);
  s.key("handle_file", key_type::plugin,
        "plug-in that adds counts in the servers: gLDA_word_update, gLDA_sum_topic_update, gLDA_dump_filter");
  s.key("handle_fn", key_type::plugin, "another name for handle_file");
  s.key("update_lib", key_type::plugin, "another name for handle_file");
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
      is_online(from.get<std::string>("method") == "online"),
      online{from.get<std::uint64_t>("batch_size"), from.get<double>("learning_offset"),
             from.get<double>("learning_decay"), from.get<int>("document_steps"),
             from.get<double>("document_tolerance")},
      sampler(from.get<std::string>("sampler") == "mh" ? lda_sampler::method::mh : lda_sampler::method::sparse),
      clocks_per_round(from.get<int>("clocks_per_round")),
      consistency(read_consistency(from, consistency::bsp())),
      report_every(from.get<int>("report_every")),
      tolerance(from.get<double>("tolerance")),
      optimize_every(from.get<int>("optimize_every")),
      test_stride(from.get<std::uint64_t>("test_stride")),
      fold_in_steps(from.get<int>("fold_in_steps")),
      dump_documents(from.get<bool>("dump_documents")),
      check_counts(from.get<bool>("check_counts")),
      debug(from.get<bool>("debug")) {
  for (const char* name : {"handle_file", "handle_fn", "update_lib"}) {
    const auto file = from.get<std::string>(name);
    if (file.empty() || file == handle_file) continue;
    if (!handle_file.empty())
      throw config_error(from.place_of(name) + ": found another plug-in than under its other names, want one");
    if (!model_input.empty()) refuse_keys(from, {name}, "not with model_input: nothing is trained");
    handle_file = file;
  }
  if (!input.empty() && !model_input.empty()) {
    throw config_error(from.place_of("model_input") + ": found a model and an input, want one of them");
  }
  if (!test_input.empty() && test_stride > 0)
    throw config_error(from.place_of("test_stride") + ": not with test_input; want one of them");
  if (!model_input.empty() && test_stride > 0) {
    throw config_error(from.place_of("test_stride") + ": not with model_input, which trains nothing; want test_input");
  }
  if (input_format == "auto") {
    for (const auto* files : {&input, &test_input, &predict_input}) {
      if (std::find(files->begin(), files->end(), "-") == files->end()) continue;
      throw config_error(from.place_of("input_format") +
                         ": found auto, want text or libsvm with standard input, which is "
                         "read once");
    }
  }
  if (check_counts && consistency.model != consistency_model::bsp) {
    throw config_error(from.place_of("check_counts") +
                       ": found true with ssp, want bsp: only then do all workers' clocks end together");
  }
  if (is_online) {
    refuse_keys(
        from,
        {"sampler", "clocks_per_round", "optimize_every", "check_counts", "handle_file", "handle_fn", "update_lib"},
        "not with method online, which samples nothing and has no counts in the servers");
    if (consistency.model != consistency_model::bsp)
      throw config_error(from.place_of(from.given("consistency") ? "consistency" : "ssp_switch") +
                         ": found ssp with method online, want bsp: a batch ends on all workers together");
  } else {
    refuse_keys(from, {"batch_size", "learning_offset", "learning_decay", "document_steps", "document_tolerance"},
                "only with method online");
  }
}

lda::lda(Comm comm, const std::string& server_info, const lda_settings& settings)
    : paralg(server_info, std::move(comm), settings.output, settings.sweeps, settings.consistency),
      settings_(settings) {}

void lda::solve() {
  log_ = std::make_unique<run_log>(*this, settings_.sweeps, settings_.is_online ? "bound" : "log_likelihood",
                                   settings_.debug);
  if (settings_.model_input.empty()) {
    load();
    start();
    if (online_) train_online();
    else train();
  } else {
    load_model();
  }
  test();
  dump_result();
}

// ---- training

/// Creates the tables; for sampling also the initial topics of all tokens.
void lda::start() {
  priors_.alpha.assign(settings_.topics, settings_.alpha);
  priors_.beta = settings_.beta;
  priors_.words = static_cast<double>(vocabulary_size_);
  if (settings_.is_online) {
    online_ = std::make_unique<lda_online>(*this, settings_.online, std::exchange(training_, {}), vocabulary_size_,
                                           priors_, settings_.seed);
    return;
  }
  counts_.emplace(*this, settings_.topics, settings_.handle_file);
  sampler_ = std::make_unique<lda_sampler>(std::move(training_), training_words_.size(), priors_, settings_.sampler,
                                           settings_.seed);
}

void lda::train() {
  auto& sampler = *sampler_;
  const auto documents = sampler.documents().size();
  const auto clocks = static_cast<std::size_t>(settings_.clocks_per_round);
  // A clock's share is a number of tokens, not of documents.
  const auto tokens = sampler.documents().begin.back();
  std::vector<std::size_t> cut{0};
  for (std::size_t c = 1; c < clocks; ++c) {
    const auto& begin = sampler.documents().begin;
    cut.push_back(static_cast<std::size_t>(
        std::lower_bound(begin.begin(), begin.end() - 1, tokens / clocks * c + tokens % clocks * c / clocks) -
        begin.begin()));
  }
  cut.push_back(documents);
  double last = 0;
  // After all clocks of a sweep. Returns: whether there is another one.
  const auto finish_sweep = [&](int sweep) {
    sweeps_done_ = sweep;
    if (settings_.optimize_every > 0 && sweep % settings_.optimize_every == 0) optimize(sampler);
    const bool report = settings_.report_every > 0 && sweep % settings_.report_every == 0;
    if (!report && sweep != settings_.sweeps) return true;
    const double value = log_likelihood(sampler);
    log_->round(sweep, value, {{"beta", priors_.beta}});
    check_divergence(watched, sweep, value, 0);
    const bool settled =
        report && sweep > settings_.report_every && std::abs(value - last) < settings_.tolerance * std::abs(last);
    last = value;
    return !settled;
  };
  // The first iteration counts the initial topics; then there are `clocks` to a sweep.
  bool goes_on = true;
  resumable_loop loop(*this);
  sampler.keep(loop);
  loop.keep("alpha", priors_.alpha).keep("beta", priors_.beta).keep("last", last).keep("sweeps", sweeps_done_);
  loop.keep("goes_on", goes_on).always_commits();
  while (loop.next(1 + settings_.sweeps * static_cast<std::int64_t>(clocks))) {
    if (loop.iteration() == 0) {
      push(sampler);
      continue;
    }
    const auto step = static_cast<std::size_t>(loop.iteration() - 1);
    const auto sweep = static_cast<int>(step / clocks) + 1;
    const auto c = step % clocks;
    if (step == 0) paracel_sync();
    if (settings_.check_counts) check(step == 0 ? "at the beginning" : "in training");
    if (loop.resumed()) sampler.set_priors(priors_);
    if (c == 0 && sweep > 1) goes_on = finish_sweep(sweep - 1);
    if (!goes_on) {
      loop.stop();
      continue;
    }
    pull(sampler);
    sampler.sweep(cut[c], cut[c + 1], static_cast<std::uint64_t>(sweep));
    push(sampler);
  }
  sampler.set_priors(priors_);
  if (goes_on && finish_sweep(settings_.sweeps)) warn_of_end();
  paracel_sync();
  // A plug-in's function other than the sum yields other counts.
  if (settings_.handle_file.empty() || settings_.check_counts) check("at the end");
}

void lda::warn_of_end() {
  if (settings_.tolerance > 0 && settings_.report_every > 0)
    warn(get_comm(), "not converged after " + std::to_string(sweeps_done_) +
                         " sweeps: the objective still changes by " + "more than " + json_number(settings_.tolerance) +
                         " of it; raise iters or tolerance");
}

/// The first iteration writes the initial lambda; then there is one for each batch.
void lda::train_online() {
  auto& model = *online_;
  const auto batches = model.batches();
  const auto per_token = [&](std::vector<double>* shares) {
    return model.bound(shares) / static_cast<double>(tokens_total_);
  };
  double last = 0;
  bool goes_on = true;
  const auto finish_sweep = [&](int sweep) {
    sweeps_done_ = sweep;
    if (settings_.report_every == 0 || sweep % settings_.report_every != 0) return true;
    const double value = per_token(nullptr);
    check_divergence(watched, sweep, value, 0);
    log_->round(sweep, value);
    const bool settled =
        sweep > settings_.report_every && std::abs(value - last) < settings_.tolerance * std::abs(last);
    last = value;
    return !settled;
  };
  resumable_loop loop(*this);
  model.keep(loop);
  loop.keep("last", last).keep("sweeps", sweeps_done_).keep("goes_on", goes_on);
  loop.always_commits().same_on_every_worker();
  while (loop.next(1 + settings_.sweeps * static_cast<std::int64_t>(batches))) {
    if (loop.iteration() == 0) {
      model.start();
      continue;
    }
    const auto step = static_cast<std::size_t>(loop.iteration() - 1);
    const auto batch = step % batches;
    if (batch == 0 && step > 0) goes_on = finish_sweep(static_cast<int>(step / batches));
    if (goes_on) model.train(batch);
    else loop.stop();
  }
  if (goes_on) sweeps_done_ = settings_.sweeps;
  if (goes_on) warn_of_end();
  bound_ = per_token(settings_.dump_documents ? &shares_ : nullptr);
  check_divergence(watched, sweeps_done_, bound_, 0);
  if (goes_on) log_->round(sweeps_done_, bound_);
  paracel_sync();
}

void lda::pull(lda_sampler& sampler) {
  counts_->pull(training_words_, sampler.counts());
  counts_->pull_totals(sampler.totals());
  sampler.begin();
}

void lda::push(lda_sampler& sampler) {
  std::vector<std::uint64_t> ids;
  std::vector<std::int32_t> deltas;
  const auto send = [&] {
    if (!ids.empty()) counts_->update(ids, deltas);
    ids.clear();
    deltas.clear();
  };
  sampler.for_each_change([&](std::size_t w, std::span<const std::int32_t> change) {
    ids.push_back(training_words_[w]);
    deltas.insert(deltas.end(), change.begin(), change.end());
    if (deltas.size() >= batch_counts) send();
  });
  send();
  counts_->update_totals(sampler.total_changes());
}

std::vector<std::int64_t> lda::pull_totals() {
  std::vector<std::int64_t> totals(settings_.topics);
  counts_->pull_totals(totals);
  return totals;
}

/// Checks the counts in the servers: none negative, the sum is the number of tokens, and the totals are the sums over
/// the words.
void lda::check(const char* when) {
  std::vector<std::int64_t> sums(settings_.topics + 1);  // the last element: number of negative counts
  for_each_own_word<std::int32_t>([&](std::uint64_t, std::span<const std::int32_t> counts) {
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
  throw error(std::string("counts ") + when + ": found " + std::to_string(sums.back()) +
              " negative ones and a sum of " + std::to_string(all) +
              (equal ? "" : ", and topics whose counts are not the sums over the words") + ", want none and " +
              std::to_string(tokens_total_));
}

/// Minka's fixed point for alpha (one number a topic) and beta (a single number) from the current counts.
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
  for_each_own_word<std::int32_t>([&](std::uint64_t, std::span<const std::int32_t> row) {
    for (const auto n : row) {
      if (n > 0) counts.add(static_cast<std::uint64_t>(n));
    }
  });
  auto totals = pull_totals();
  comm.bcast(totals);  // under ssp they may differ between workers, but all must take the same steps
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

/// log p(words, topics | alpha, beta) per token.
double lda::log_likelihood(const lda_sampler& sampler) {
  auto comm = get_comm();
  document_counts documents(settings_.topics);
  std::vector<std::uint64_t> work;
  for (std::size_t d = 0; d < sampler.documents().size(); ++d) documents.add(sampler.topics_of(d), work);
  count_histogram counts;
  for_each_own_word<std::int32_t>([&](std::uint64_t, std::span<const std::int32_t> row) {
    for (const auto n : row) {
      if (n > 0) counts.add(static_cast<std::uint64_t>(n));
    }
  });
  double value = documents.log_probability(priors_.alpha) + counts.lgamma_sum(priors_.beta);
  comm.allreduce(value);
  const double prior = priors_.words * priors_.beta;
  for (const auto n : pull_totals()) value += log_gamma(prior) - log_gamma(static_cast<double>(n) + prior);
  // Under ssp other workers may push between two workers' pulls; all must stop at the same sweep.
  comm.bcast(value);
  return value / static_cast<double>(tokens_total_);
}

}  // namespace paracel::alg
