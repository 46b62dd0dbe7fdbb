// SPDX-License-Identifier: BSD-3-Clause
//
// The results of word2vec: the vectors, answers to questions about them, and their agreement with given similarities.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include <paracel/collectives.hpp>
#include <paracel/samples.hpp>
#include <paracel/text_input.hpp>

#include "alg/common/output/entry_keys.hpp"
#include "alg/common/output/model_file.hpp"
#include "alg/common/output/npy.hpp"
#include "word2vec.hpp"

namespace paracel::alg {

namespace {

// Rows that are pulled at once: some megabytes.
constexpr std::uint64_t pulled_rows = 16384;

/// The rows [begin, end) of the vectors, `pulled_rows` or fewer at a time. At the end `next` returns none.
class rows_in_order {
 public:
  rows_in_order(table<float>& vectors, std::uint64_t begin, std::uint64_t end)
      : vectors_(vectors), at_(begin), end_(end) {}
  /// The ids of the next rows; their numbers are in `values`.
  std::span<const std::uint64_t> next() {
    ids_.resize(std::min(pulled_rows, end_ - at_));
    std::iota(ids_.begin(), ids_.end(), at_);
    at_ += ids_.size();
    values.resize(ids_.size() * vectors_.width());
    if (!ids_.empty()) vectors_.pull(ids_, values);
    return ids_;
  }
  std::vector<float> values;

 private:
  table<float>& vectors_;
  std::uint64_t at_;
  std::uint64_t end_;
  std::vector<std::uint64_t> ids_;
};

/// Calls use(fields, fail) for each line that is not blank.
template <class F>
auto each_line(F use) {
  return [use](std::string_view text, const text_failure& fail) {
    std::vector<std::string_view> fields;
    while (!text.empty()) {
      const auto line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      fields.clear();
      word_bytes::space().for_each(line, [&](std::string_view field) { fields.push_back(field); });
      if (!fields.empty()) use(fields, fail);
    }
  };
}

}  // namespace

void word2vec::write(table<float>& vectors, table<float>& outputs) {
  log_.result("rounds", static_cast<std::uint64_t>(settings_.rounds));
  log_.result("words", static_cast<std::uint64_t>(words_.size()));
  log_.result("tokens", words_.tokens());
  if (settings_.format == vector_format::npy) write_npy(vectors, outputs);
  else write_file(vectors);
  if (settings_.test_input.empty() && settings_.predict_input.empty()) log_.result("output", get_output());
  else use(all_vectors(vectors));
}

/// One file for all workers, whatever output_files says: its header counts the words of all.
void word2vec::write_file(table<float>& vectors) {
  const bool binary = settings_.format == vector_format::binary;
  const auto own = owned_range_of(words_.size(), get_worker_size(), get_worker_id());
  rows_in_order rows(vectors, own.begin, own.end);
  bool header = get_worker_id() == 0;
  const bool before = one_output_file();
  set_one_output_file(true);
  paracel_dump_pieces(
      "vectors_",
      [&](std::string& text) {
        const bool first = std::exchange(header, false);
        if (first) text += word_vectors_header(words_.size(), vectors.width());
        const auto ids = rows.next();
        for (std::size_t i = 0; i < ids.size(); ++i)
          append_word_vector(text, words_.word[ids[i]],
                             std::span<const float>(rows.values).subspan(i * vectors.width(), vectors.width()), binary);
        return first || !ids.empty();
      },
      binary ? ".bin" : ".txt");
  set_one_output_file(before);
}

void word2vec::write_npy(table<float>& vectors, table<float>& outputs) {
  const auto own = owned_range_of(words_.size(), get_worker_size(), get_worker_id());
  const auto rows_of = [&](table<float>& from) {
    rows_in_order rows(from, own.begin, own.end);
    std::vector<float> values;
    while (!rows.next().empty()) values.insert(values.end(), rows.values.begin(), rows.values.end());
    return values;
  };
  auto names = id_list::empty(false);
  for (auto w = own.begin; w < own.end; ++w) names.push_back(words_.word[w]);
  model_writer model(*this, "word2vec", result_format::npy);
  model.add_rows<float>("vectors", rows_of(vectors), {vectors.width()}, &names);
  if (!settings_.model.hierarchical) {
    model.add_rows<float>("outputs", rows_of(outputs), {outputs.width()}, &names);
    model.add("counts", words_.count);
  }
  model.finish();
}

/// Cost: every worker receives all vectors.
word_vectors word2vec::all_vectors(table<float>& vectors) {
  word_vectors all;
  all.width = vectors.width();
  for (const auto& word : words_.word) all.words.intern(word);
  rows_in_order rows(vectors, 0, words_.size());
  while (!rows.next().empty()) all.value.insert(all.value.end(), rows.values.begin(), rows.values.end());
  return all;
}

void word2vec::use(const word_vectors& vectors) {
  const word_neighbours near(vectors);
  if (!settings_.test_input.empty()) test(vectors, near);
  if (!settings_.predict_input.empty()) predict(vectors, near);
  log_.result("output", get_output());
}

void word2vec::test(const word_vectors& vectors, const word_neighbours& near) {
  std::vector<double> said;
  std::vector<double> found;
  std::uint64_t unknown = 0;
  visit_whole_text(get_comm(), settings_.test_input, each_line([&](const auto& fields, const text_failure& fail) {
                     if (fields.size() != 3) fail(fields[0].data(), "want two words and a number");
                     double score = 0;
                     if (!parse_number(fields[2], score))
                       fail(fields[2].data(), "found " + quoted_text(fields[2]) + ", want a number");
                     const auto a = vectors.words.find(fields[0]);
                     const auto b = vectors.words.find(fields[1]);
                     if (a == vectors.words.none || b == vectors.words.none) {
                       ++unknown;
                       return;
                     }
                     said.push_back(score);
                     found.push_back(near.similarity(a, b));
                   }));
  require_some(said.size() + unknown, settings_.test_input, "pair, want lines of two words and a number");
  log_.result("pairs", static_cast<std::uint64_t>(said.size()));
  log_.result("unknown_pairs", unknown);
  log_.result("spearman", spearman(said, found));
}

/// Each worker answers the questions on its lines. One with a word that has no vector gets no answer.
void word2vec::predict(const word_vectors& vectors, const word_neighbours& near) {
  const id_list words(vectors.words.ids());
  std::vector<std::string> questions;
  std::vector<std::vector<neighbour>> answers;
  std::vector<std::uint32_t> question;
  visit_text(get_comm(), settings_.predict_input, each_line([&](const auto& fields, const text_failure& fail) {
               if (fields.size() != 1 && fields.size() != 3)
                 fail(fields[0].data(), "found " + std::to_string(fields.size()) + " words, want one or three");
               question.clear();
               std::string text;
               for (const auto field : fields) {
                 text += text.empty() ? "" : " ";
                 text += field;
                 question.push_back(vectors.words.find(field));
               }
               questions.push_back(std::move(text));
               const bool known = std::ranges::find(question, vectors.words.none) == question.end();
               answers.push_back(known ? near.nearest(question, settings_.topk) : std::vector<neighbour>());
             }));
  auto asked = static_cast<std::int64_t>(questions.size());
  get_comm().allreduce(asked);
  require_some(static_cast<std::uint64_t>(asked), settings_.predict_input, "question, want lines of one word or three");
  std::vector<neighbour_line> lines;
  for (std::size_t i = 0; i < questions.size(); ++i) lines.push_back({questions[i], answers[i], &words});
  paracel_dump_vector(lines, "pred_v_", "\n");
}

}  // namespace paracel::alg
