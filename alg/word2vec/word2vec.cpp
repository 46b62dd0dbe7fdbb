// SPDX-License-Identifier: BSD-3-Clause
#include "word2vec.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include <paracel/collectives.hpp>
#include <paracel/interner.hpp>
#include <paracel/resumable_loop.hpp>
#include <paracel/table.hpp>

#include "alg/common/output/divergence.hpp"
#include "alg/common/output/model_file.hpp"
#include "alg/common/output/run_log.hpp"
#include "alg/common/output/server_state.hpp"
#include "alg/common/solvers/sum_over_workers.hpp"

namespace paracel::alg {

namespace {

// The step size never falls below this fraction of the first one, as in the original program.
constexpr double least_alpha = 1e-4;
// The fraction of the way to a gradient of 0 that a step of size 1 with one other row goes (word2vec_batcher).
constexpr double pace_of_alpha = 0.1;

// Words of a batch by default, if the text has enough for this many batches: the quality of the vectors depends on how
// often workers exchange what they have learned.
constexpr std::size_t pushed_words = 16384;  // of an initial model, at a time
constexpr std::uint64_t usual_batch = 10000;
constexpr std::uint64_t least_batches = 50;

// Batches of the first round for each one of any other. With 4 workers on 331,000 generated words, batches of 10,000,
// rank correlations were .708 with 1, .758 with 4 and .788 with 16, and .799 with one worker.
constexpr std::uint64_t first_round_batches = 8;

row_init first_vectors(const word2vec_model& m) {
  const double most = 0.5 / static_cast<double>(m.k);
  return row_init::uniform(-most, most, m.seed);
}

/// One side of a batch: the table, and in `now` its rows as pulled and, after training, their changes.
struct batch_side {
  batch_side(paralg& job, const std::string& name, std::size_t k, const row_init& init)
      : rows(job, name, k, init), local(k), k(k) {}

  void pull(std::span<const std::uint64_t> ids) {
    now.resize(ids.size() * k);
    rows.pull(ids, now);
    local.set(now);
  }
  async_functor_type pull_next(std::span<const std::uint64_t> ids) {
    next.resize(ids.size() * k);
    return rows.pull_async(ids, next);
  }
  /// Sends the changes since `pull`; `share` of an id.
  template <class F>
  void send(std::span<const std::uint64_t> ids, F&& share) {
    local.take_differences(now, [&](std::size_t i) { return share(ids[i]); });
    rows.update(ids, now);
  }
  /// Adds the changes to the next rows, which have been pulled without them.
  void advance(std::span<const std::uint64_t> ids, std::span<const std::uint64_t> next_ids) {
    std::size_t i = 0;
    for (std::size_t n = 0; n < next_ids.size(); ++n) {
      while (i < ids.size() && ids[i] < next_ids[n]) ++i;
      if (i == ids.size() || ids[i] != next_ids[n]) continue;
      for (std::size_t j = 0; j < k; ++j) next[n * k + j] += now[i * k + j];
    }
    now.swap(next);
    local.set(now);
  }

  table<float> rows;
  padded_rows local;
  std::size_t k;
  std::vector<float> now;
  std::vector<float> next;
};

}  // namespace

// ---- config

void word2vec_settings::keys(key_list& k) {
  k.files("input", input, "text, one sentence per line").required_unless({"model"});
  output_keys(k, output);
  k("format", format, "format of the vectors: text or binary, as word2vec.c writes them, or npy",
    {{"text", vector_format::text}, {"binary", vector_format::binary}, {"npy", vector_format::npy}});
  k("tokens", by_space, "space: runs of bytes that are not white space; paracel: runs of [-A-Za-z0-9_]",
    {{"space", true}, {"paracel", false}});
  k("min_count", min_count, "words that occur less often are left out").at_least(1);
  k("method", model.cbow, "skip_gram: predict a word from each word around it; cbow: from their mean",
    {{"skip_gram", false}, {"cbow", true}});
  k("loss", model.hierarchical, "negative_sampling or hierarchical_softmax",
    {{"negative_sampling", false}, {"hierarchical_softmax", true}});
  k("k", model.k, "length of a vector").at_least(1).at_most(65536);
  k("window", model.window, "maximum number of words on either side; the actual number is drawn for each word")
      .at_least(1)
      .at_most(1000);
  k("negatives", model.negatives, "negative_sampling: words drawn for each word").at_least(1).at_most(1000);
  k("noise_words", model.noise_words,
    "negative_sampling: draws from which a worker takes the negatives of a batch; 0: as many as it has words")
      .at_least(0)
      .at_most(1000000000);
  k("sample", model.sample, "thin out the occurrences of words more frequent than this fraction; 0: keep all")
      .at_least(0);
  k("rounds", rounds, "passes over the text").at_least(1).at_most(1000000);
  k("batch_size", batch_size, "words of all workers between two exchanges of rows; 0: 10000, fewer for short texts")
      .at_least(0)
      .at_most(1000000000);
  std::optional<double> alpha;
  k("alpha", alpha, "initial step size, which falls linearly; default 0.025, cbow 0.05").above(0);
  model.alpha = alpha.value_or(model.cbow ? 0.05 : 0.025);
  k("seed", model.seed, "seed of the initial vectors and of all draws").at_least(0);
  consistency_keys(k, consistency, "batches", "bsp", {consistency_model::bsp, consistency_model::ssp});
  k.files("test_input", test_input, "lines of two words and a number: its rank correlation with their cosine");
  k.files("predict_input", predict_input, "lines of one word: its nearest words; of three, a b c: of b - a + c");
  k("topk", topk, "number of words of a prediction").at_least(1).at_most(1000000);
  model_key(k, model_input, "vectors as text, binary or npy: no training, only test_input and predict_input");
  initial.key(k, model_input);
  k("debug", debug, "print the loss of each round");
}

void word2vec_settings::check(const config& from) {
  k_place = place_if_given(from, "k");
  method_place = from.place_of("method");
  if (initial.given() && model.hierarchical)
    throw config_error(from.place_of("loss") +
                       ": hierarchical_softmax with initial_model: its tree is that of one text's counts; want "
                       "negative_sampling");
  if (model.hierarchical)
    refuse_keys(from, {"negatives", "noise_words"}, "not with hierarchical_softmax, which draws no negatives");
  if (!model_input.empty() && test_input.empty() && predict_input.empty())
    throw config_error(from.place_of("model") +
                       ": found neither test_input nor predict_input, want at least one of them");
}

// ---- the job

word2vec::word2vec(Comm comm, const std::string& server_info, const word2vec_settings& settings)
    : paralg(server_info, std::move(comm), settings.output, settings.rounds, settings.consistency),
      settings_(settings),
      log_(*this, settings.rounds, "running_loss", settings.debug) {}

void word2vec::solve() {
  if (!settings_.model_input.empty()) {
    use(read_word_vectors(settings_.model_input));
    return;
  }
  if (settings_.initial.given()) read_initial();
  load();
  train();
}

void word2vec::read_initial() {
  const auto& path = settings_.initial.path;
  const model_reader from(path, "word2vec");
  if (!from.has("outputs") || !from.has("counts"))
    throw data_error(path +
                     ": found no outputs and counts, want a model that was trained by negative_sampling and "
                     "written with format npy");
  const auto shape = from.shape("vectors");
  if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0)
    throw data_error(path + ": found vectors of the wrong shape, want one row of numbers per word");
  const auto method = from.field<std::string>("settings.method");
  want_as_in_model(settings_.method_place, settings_.model.cbow ? "cbow" : "skip_gram", method);
  want_as_in_model(settings_.k_place, std::to_string(settings_.model.k), std::to_string(shape[1]));
  settings_.model.k = shape[1];
  auto& to = initial_;
  to.vectors = from.read<float>("vectors");
  to.outputs = from.read<float>("outputs");
  to.words.count = from.read<std::uint64_t>("counts");
  const auto ids = from.ids("vectors");
  for (std::size_t w = 0; w < ids.size(); ++w) to.words.word.push_back(ids.text(w));
  if (to.outputs.size() != to.vectors.size() || to.words.count.size() != to.words.size() ||
      to.vectors.size() != to.words.size() * shape[1])
    throw data_error(path + ": found vectors, outputs and counts of different numbers of words");
  to.words.total = std::accumulate(to.words.count.begin(), to.words.count.end(), std::uint64_t{0});
}

void word2vec::load() {
  const auto bytes = settings_.by_space ? word_bytes::space() : word_bytes::paracel();
  text_ = load_tokens(get_comm(), settings_.input, bytes, settings_.min_count, words_,
                      settings_.initial.given() ? &initial_.words : nullptr);
  const auto some = (words_.tokens() + least_batches - 1) / least_batches;
  const auto batch = settings_.batch_size > 0 ? settings_.batch_size : std::clamp<std::uint64_t>(some, 1, usual_batch);
  plan_.batches = (words_.tokens() + batch - 1) / batch;
  // One worker always sees all changes; the vectors of a model are not near 0.
  plan_.first = get_worker_size() == 1 || settings_.initial.given() ? 1 : first_round_batches;
  const auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max());
  if (plan_.batches > most / (static_cast<std::uint64_t>(settings_.rounds) + plan_.first))
    throw error("word2vec: " + std::to_string(settings_.rounds) + " rounds of " + std::to_string(plan_.batches) +
                " batches are more than 2^31; raise batch_size or lower rounds");
}

/// The rows of the words that the initial model has; each worker pushes a part of them.
void word2vec::push_initial(table<float>& input, table<float>& output) {
  const auto k = settings_.model.k;
  const auto& known = initial_.words;
  interner<std::string> number;
  for (const auto& w : words_.word) number.intern(w);
  const auto own = owned_range_of(known.size(), get_worker_size(), get_worker_id());
  for (auto first = own.begin; first < own.end; first += pushed_words) {
    const auto count = std::min<std::size_t>(pushed_words, own.end - first);
    std::vector<std::uint64_t> ids;
    for (auto w = first; w < first + count; ++w) ids.push_back(number.find(known.word[w]));
    input.push(ids, std::span(initial_.vectors).subspan(first * k, count * k));
    output.push(ids, std::span(initial_.outputs).subspan(first * k, count * k));
  }
}

/// A clock is a batch of each worker. In it all workers process the same fraction of their text, so that the step size,
/// which is a function of the clock, falls with the words that all have read.
void word2vec::train() {
  const auto& model = settings_.model;
  word2vec_batcher batcher(text_, words_, model, get_worker_id(), get_worker_size(), plan_);
  batch_side input(*this, "word2vec", model.k, first_vectors(model));
  batch_side output(*this, "word2vec_output", model.k, row_init::zeros());
  if (settings_.initial.given()) {
    if (!resumed()) push_initial(input.rows, output.rows);
    paracel_sync();
  }
  word2vec_kernel kernel(input.local.stride());
  word2vec_batch now;
  word2vec_batch next;
  const auto clocks = static_cast<std::int64_t>(plan_.before(static_cast<std::uint64_t>(settings_.rounds)));
  const auto alpha_at = [&](std::int64_t clock) {
    const auto done = plan_.rounds_before(static_cast<std::uint64_t>(clock)) / static_cast<double>(settings_.rounds);
    return model.alpha * std::max(1 - done, least_alpha);
  };
  std::int64_t rows_of = -1;  // the batch whose rows are in `input` and `output`,
  std::int64_t cut = -1;      // and the one that is `now`
  word2vec_loss loss;
  resumable_loop loop(*this);
  loop.keep("input", input.now).keep("output", output.now).keep("rows_of", rows_of);
  loop.keep("loss", loss.sum).keep("predictions", loss.predictions).always_commits();
  while (loop.next(clocks)) {
    const auto clock = loop.iteration();
    if (cut != clock) {
      batcher.cut(static_cast<std::uint64_t>(clock), now);
      if (rows_of != clock) {
        input.pull(now.input);
        output.pull(now.output);
      } else {
        input.local.set(input.now);
        output.local.set(output.now);
      }
    }
    const bool more = clock + 1 < clocks;
    std::optional<std::pair<async_functor_type, async_functor_type>> pulls;
    if (more) {
      batcher.cut(static_cast<std::uint64_t>(clock) + 1, next);
      pulls.emplace(input.pull_next(next.input), output.pull_next(next.output));
    }
    train_batch(model, now, input.local, output.local, alpha_at(clock), alpha_at(clock + 1), kernel, loss);
    const auto round = plan_.round_of(static_cast<std::uint64_t>(clock));
    const double size = static_cast<double>(plan_.batches) / static_cast<double>(plan_.of_round(round));
    const double pace = pace_of_alpha * alpha_at(clock) * size;
    input.send(now.input, [&](std::uint64_t id) { return batcher.input_share(id, pace); });
    output.send(now.output, [&](std::uint64_t id) { return batcher.output_share(id, pace); });
    if (more) {
      pulls->first.get();
      pulls->second.get();
      input.advance(now.input, next.input);
      output.advance(now.output, next.output);
      std::swap(now, next);
      rows_of = cut = clock + 1;
    }
    if (static_cast<std::uint64_t>(clock) + 1 == plan_.before(round + 1))
      finish_round(static_cast<int>(round) + 1, loss);
  }
  set_total_iters(static_cast<int>(loop.iteration()));
  paracel_sync();
  write(input.rows, output.rows);
}

void word2vec::finish_round(int round, word2vec_loss& loss) {
  std::vector<double> sums{loss.sum, loss.predictions};
  sum_over_workers(get_comm(), sums);
  loss = {};
  const double mean = sums[1] > 0 ? sums[0] / sums[1] : 0;
  // log(2) for each output at the start, when the vectors of outputs are 0; a word's path has at most 64.
  const auto& model = settings_.model;
  const double outputs = model.hierarchical ? 64 : 1 + static_cast<double>(model.negatives);
  const divergence_rule rule{"the mean loss", "lower alpha (now " + json_number(model.alpha) + ")",
                             outputs * std::log(2)};
  check_divergence(rule, round, mean, 0);
  log_.round(round, mean, {{"staleness", last_staleness()}});
}

}  // namespace paracel::alg
