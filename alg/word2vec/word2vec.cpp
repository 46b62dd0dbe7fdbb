// SPDX-License-Identifier: BSD-3-Clause
#include "word2vec.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <paracel/resumable_loop.hpp>
#include <paracel/table.hpp>

#include "alg/common/divergence.hpp"
#include "alg/common/npy.hpp"
#include "alg/common/run_log.hpp"
#include "alg/common/server_state.hpp"
#include "alg/common/sum_over_workers.hpp"

namespace paracel::alg {

namespace {

// The step size never falls below this fraction of the first one, as in the original program.
constexpr double least_alpha = 1e-4;
// The fraction of the way to a gradient of 0 that a step of size 1 with one other row goes (word2vec_batcher).
constexpr double pace_of_alpha = 0.1;

// Words of a batch by default, if the text has enough for this many batches: the quality of the vectors depends on how
// often workers exchange what they have learned.
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

config_schema word2vec_schema() {
  config_schema s("word2vec", "vectors of words: skip-gram or CBOW, negative sampling or hierarchical softmax");
  s.key("input", key_type::files, "text, one sentence per line").required_unless({"model"});
  s.key("output", key_type::output_folder, "folder of the results").fallback("./word2vec_result/");
  s.add_output_files();
  s.key("format", key_type::string, "format of the vectors: text or binary, as word2vec.c writes them, or npy")
      .fallback("text")
      .one_of({"text", "binary", "npy"});
  s.key("tokens", key_type::string, "space: runs of bytes that are not white space; paracel: runs of [-A-Za-z0-9_]")
      .fallback("space")
      .one_of({"space", "paracel"});
  s.key("min_count", key_type::integer, "words that occur less often are left out").fallback(5).at_least(1);
  s.key("method", key_type::string, "skip_gram: predict a word from each word around it; cbow: from their mean")
      .fallback("skip_gram")
      .one_of({"skip_gram", "cbow"});
  s.key("loss", key_type::string, "negative_sampling or hierarchical_softmax")
      .fallback("negative_sampling")
      .one_of({"negative_sampling", "hierarchical_softmax"});
  s.key("k", key_type::integer, "length of a vector").fallback(100).at_least(1).at_most(65536);
  s.key("window", key_type::integer, "maximum number of words on either side; the actual number is drawn for each word")
      .fallback(5)
      .at_least(1)
      .at_most(1000);
  s.key("negatives", key_type::integer, "negative_sampling: words drawn for each word")
      .fallback(5)
      .at_least(1)
      .at_most(1000);
  s.key("noise_words", key_type::integer,
        "negative_sampling: draws from which a worker takes the negatives of a batch; 0: as many as it has words")
      .fallback(0)
      .at_least(0)
      .at_most(1000000000);
  s.key("sample", key_type::number, "thin out the occurrences of words more frequent than this fraction; 0: keep all")
      .fallback(1e-3)
      .at_least(0);
  s.key("rounds", key_type::integer, "passes over the text").fallback(5).at_least(1).at_most(1000000);
  s.key("batch_size", key_type::integer,
        "words of all workers between two exchanges of rows; 0: 10000, fewer for short texts")
      .fallback(0)
      .at_least(0)
      .at_most(1000000000);
  s.key("alpha", key_type::number, "initial step size, which falls linearly; default 0.025, cbow 0.05").above(0);
  s.key("seed", key_type::integer, "seed of the initial vectors and of all draws").fallback(0).at_least(0);
  add_consistency_keys(s, "batches", "bsp", {consistency_model::bsp, consistency_model::ssp});
  s.key("test_input", key_type::files, "lines of two words and a number: its rank correlation with their cosine");
  s.key("predict_input", key_type::files, "lines of one word: its nearest words; of three, a b c: of b - a + c");
  s.key("topk", key_type::integer, "number of words of a prediction").fallback(10).at_least(1).at_most(1000000);
  s.key("model", key_type::files, "vectors as text, binary or npy: no training, only test_input and predict_input");
  s.key("debug", key_type::boolean, "print the loss of each round").fallback(false);
  return s;
}

word2vec_settings::word2vec_settings(const config& from)
    : input(from.get<std::vector<std::string>>("input")),
      output(from.get<std::string>("output")),
      format(from.get<std::string>("format")),
      tokens(from.get<std::string>("tokens")),
      min_count(from.get<std::uint64_t>("min_count")),
      rounds(from.get<int>("rounds")),
      batch_size(from.get<std::uint64_t>("batch_size")),
      consistency(read_consistency(from, consistency::bsp())),
      model_input(model_of(from)),
      test_input(from.get<std::vector<std::string>>("test_input")),
      predict_input(from.get<std::vector<std::string>>("predict_input")),
      topk(from.get<std::size_t>("topk")),
      debug(from.get<bool>("debug")) {
  model.cbow = from.get<std::string>("method") == "cbow";
  model.hierarchical = from.get<std::string>("loss") == "hierarchical_softmax";
  model.k = from.get<std::size_t>("k");
  model.window = from.get<std::size_t>("window");
  model.negatives = from.get<std::size_t>("negatives");
  model.noise_words = from.get<std::size_t>("noise_words");
  model.sample = from.get<double>("sample");
  model.alpha = from.given("alpha") ? from.get<double>("alpha") : model.cbow ? 0.05 : 0.025;
  model.seed = from.get<std::uint64_t>("seed");
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
  load();
  train();
}

void word2vec::load() {
  const auto bytes = settings_.tokens == "space" ? word_bytes::space() : word_bytes::paracel();
  text_ = load_tokens(get_comm(), settings_.input, bytes, settings_.min_count, words_);
  const auto some = (words_.total + least_batches - 1) / least_batches;
  const auto batch = settings_.batch_size > 0 ? settings_.batch_size : std::clamp<std::uint64_t>(some, 1, usual_batch);
  plan_.batches = (words_.total + batch - 1) / batch;
  // One worker always sees all changes.
  plan_.first = get_worker_size() == 1 ? 1 : first_round_batches;
  const auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max());
  if (plan_.batches > most / (static_cast<std::uint64_t>(settings_.rounds) + plan_.first))
    throw error("word2vec: " + std::to_string(settings_.rounds) + " rounds of " + std::to_string(plan_.batches) +
                " batches are more than 2^31; raise batch_size or lower rounds");
}

/// A clock is a batch of each worker. In it all workers process the same fraction of their text, so that the step size,
/// which is a function of the clock, falls with the words that all have read.
void word2vec::train() {
  const auto& model = settings_.model;
  word2vec_batcher batcher(text_, words_, model, get_worker_id(), get_worker_size(), plan_);
  batch_side input(*this, "word2vec", model.k, first_vectors(model));
  batch_side output(*this, "word2vec_output", model.k, row_init::zeros());
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
  write(input.rows);
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
