// SPDX-License-Identifier: BSD-3-Clause
#include "lda.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <paracel/resumable_loop.hpp>

#include "alg/common/output/divergence.hpp"
#include "alg/common/output/server_state.hpp"
#include "alg/common/output/warning.hpp"

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

void lda_settings::keys(key_list& k) {
  if (k.schema() != nullptr) {
    // Counts that arrive twice, from a worker and from its replacement, would stay wrong.
    k.schema()->not_resumable_with([](const config& c) -> std::string {
      if (read_consistency(c, consistency::bsp()).model == consistency_model::bsp) return "";
      return c.place_of(c.given("consistency") ? "consistency" : "ssp_switch");
    });
  }
  k.files("input", input, "documents, one per line: words, or libsvm index:count").required_unless({"model_input"});
  k.files("test_input", test_input, "documents to evaluate the model on");
  k.files("predict_input", predict_input, "documents whose topics are inferred");
  k("model_input", model_input, "folder or manifest of an existing model: nothing is trained");
  initial.model.key(k, model_input, "model_input");
  k.files("vocabulary", vocabulary, "names of libsvm's indices 1, 2, ..., one per line");
  output_keys(k, output);
  format_key(k, format, "format of the results: text, or npy");
  k("input_format", input_format,
    "text, libsvm, auto (one of both, detected from the first line), or table: samples whose features are counts",
    {{"auto", document_format::automatic},
     {"text", document_format::text},
     {"libsvm", document_format::libsvm},
     {"table", document_format::table}});
  k("alpha", alpha, "prior of a topic in a document").at_least(least_prior).at_most(greatest_prior);
  k("beta", beta, "prior of a word in a topic").at_least(least_prior).at_most(greatest_prior);
  k("k_topics", topics, "number of topics").at_least(1).at_most(1000000);
  k("iters", sweeps, "sweeps over the documents").at_least(0).at_most(1000000000);
  k("top_words", top_words, "number of words to write for each topic").at_least(0);
  k("seed", seed, "seed of all draws").at_least(0);
  k("method", is_online, "gibbs, or online: variational inference of a batch of documents at a time",
    {{"gibbs", false}, {"online", true}});
  k("batch_size", online.batch_size, "online: documents of all workers between two updates of the topics").at_least(1);
  k("learning_offset", online.offset, "online: offset o of the weight (o + t)^-d of batch t = 1, 2, ...").at_least(0);
  k("learning_decay", online.decay, "online: exponent d of that weight; above 0.5 the topics converge")
      .at_least(0)
      .at_most(1);
  k("document_steps", online.document_steps, "online: maximum number of steps to infer a training document's topics")
      .at_least(1)
      .at_most(1000000);
  k("document_tolerance", online.document_tolerance,
    "online: mean change of a document's expected counts below which the inference ends")
      .at_least(0);
  k("sampler", sampler, "sparse: exact; mh: Metropolis-Hastings (LightLDA)",
    {{"sparse", lda_sampler::method::sparse}, {"mh", lda_sampler::method::mh}});
  k("clocks_per_round", clocks_per_round, "exchanges of counts between workers per sweep").at_least(1).at_most(1000000);
  consistency_keys(k, consistency, "clocks", "bsp", {consistency_model::bsp, consistency_model::ssp});
  k("report_every", report_every, "sweeps between two computations of the log likelihood; 0: only at the end")
      .at_least(0);
  k("tolerance", tolerance, "stop when a report changes the log likelihood by less than this fraction; 0: never")
      .at_least(0);
  k("optimize_every", optimize_every, "sweeps between two fits of alpha and beta; 0: never").at_least(0);
  k("test_stride", test_stride,
    "hold out every n-th document of the input, those with i % n = n - 1, for testing; 0: none")
      .at_least(0);
  k("fold_in_steps", fold_in_steps, "number of steps to infer a new document's topics").at_least(1);
  k("dump_documents", dump_documents, "write the topics of the training documents");
  k("check_counts", check_counts, "check at every clock that the counts are consistent; needs bsp");
  k("debug", debug, "print each report");
  k.plugin("handle_file", handle_file,
           "plug-in that adds counts in the servers: gLDA_word_update, gLDA_sum_topic_update, gLDA_dump_filter");
  for (const char* name : {"handle_fn", "update_lib"}) {
    std::string file;
    k.plugin(name, file, "another name for handle_file");
    if (file.empty() || file == handle_file) continue;
    if (!handle_file.empty())
      throw config_error(k.from()->place_of(name) + ": found another plug-in than under its other names, want one");
    handle_file = file;
  }
}

void lda_settings::check(const config& from) {
  initial.topics_place = place_if_given(from, "k_topics");
  initial.alpha_given = from.given("alpha");
  initial.beta_given = from.given("beta");
  if (initial.model.given() && !handle_file.empty())
    refuse_keys(from, {"handle_file", "handle_fn", "update_lib"},
                "not with initial_model, whose counts are not those that a plug-in's function yields");
  if (!model_input.empty() && !handle_file.empty())
    refuse_keys(from, {"handle_file", "handle_fn", "update_lib"}, "not with model_input: nothing is trained");
  if (!input.empty() && !model_input.empty()) {
    throw config_error(from.place_of("model_input") + ": found a model and an input, want one of them");
  }
  if (!test_input.empty() && test_stride > 0)
    throw config_error(from.place_of("test_stride") + ": not with test_input; want one of them");
  if (!model_input.empty() && test_stride > 0) {
    throw config_error(from.place_of("test_stride") + ": not with model_input, which trains nothing; want test_input");
  }
  if (input_format == document_format::automatic) {
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
    if (settings_.initial.model.given()) read_initial();
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
  if (settings_.initial.model.given()) {
    place_initial_words();
    if (!settings_.initial.alpha_given) priors_.alpha = initial_.alpha;
    if (!settings_.initial.beta_given) priors_.beta = initial_.beta;
  }
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
      push_initial();
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
  model.go_on_from(initial_.steps);
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
      model.start([&](std::uint64_t word, std::span<double> row) {
        if (initial_.size() == 0 || initial_.place[word] == lda_initial::none) return false;
        std::ranges::copy(initial_.row(initial_.place[word]), row.begin());
        return true;
      });
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

void lda::push_initial() {
  if (initial_.size() == 0) return;
  const auto topics = settings_.topics;
  std::vector<std::uint64_t> ids;
  std::vector<std::int32_t> rows;
  std::vector<std::int64_t> sums(topics);
  const auto send = [&] {
    if (!ids.empty()) counts_->update(ids, rows);
    ids.clear();
    rows.clear();
  };
  for (auto word = share(get_worker_id()); word < share(get_worker_id() + 1); ++word) {
    if (initial_.place[word] == lda_initial::none) continue;
    ids.push_back(word);
    const auto row = initial_.row(initial_.place[word]);
    for (std::size_t k = 0; k < topics; ++k) {
      rows.push_back(static_cast<std::int32_t>(row[k]));
      sums[k] += rows.back();
    }
    if (rows.size() >= batch_counts) send();
  }
  send();
  counts_->update_totals(sums);
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
  const auto tokens = tokens_total_ + initial_.tokens;
  if (sums.back() == 0 && equal && all == static_cast<std::int64_t>(tokens)) return;
  throw error(std::string("counts ") + when + ": found " + std::to_string(sums.back()) +
              " negative ones and a sum of " + std::to_string(all) +
              (equal ? "" : ", and topics whose counts are not the sums over the words") + ", want none and " +
              std::to_string(tokens));
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
