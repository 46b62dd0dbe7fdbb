// SPDX-License-Identifier: BSD-3-Clause
//
// Reads documents whose words become numbers, and models written earlier.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <paracel/samples.hpp>

#include "alg/common/output/entry_keys.hpp"
#include "alg/common/output/json_object.hpp"
#include "alg/common/solvers/class_base.hpp"
#include "lda.hpp"
#include "lda_text.hpp"

namespace paracel::alg {

namespace {

/// Thrown to end a pass over a text.
struct found_format {
  bool text;
};

constexpr double count_limit = 1U << 31U;  // of a word in a document

}  // namespace

/// The format is text or index:count, as the first line looks on the first worker that has one.
void lda::agree_on_format(const std::vector<std::string>& files) {
  std::int64_t mine = -1;
  if (settings_.input_format == document_format::automatic) {
    try {
      visit_text(files, get_worker_id(), get_worker_size(), [](std::string_view text) {
        for_each_document(text, [](std::string_view line) { throw found_format{!looks_like_libsvm(line)}; });
      });
    } catch (const found_format& found) {
      mine = found.text ? 1 : 0;
    }
  } else {
    mine = settings_.input_format == document_format::text ? 1 : 0;
  }
  for (const auto other : get_comm().allgather(mine)) {
    if (other < 0) continue;
    text_ = other == 1;
    return;
  }
  throw data_error(files.front() + ":1:1: found no document, want one per line");
}

/// A row is a document, a column a word, a number how often it has it.
lda::raw_documents lda::read_table(const std::vector<std::string>& files) {
  sample_options options;
  options.label = sample_options::label_rule::none;
  options.index_limit = index_limit;
  const auto rows = load_samples(get_comm(), files, options);
  raw_documents raw;
  auto& to = raw.documents;
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    visit_entries(rows, i, [&](std::size_t j, double count) {
      if (!(count >= 0) || count > count_limit || count != std::floor(count))
        throw data_error(files.front() + ": row " + std::to_string(rows.first_row + i + 1) + ": found " +
                         json_number(count) + ", want a whole count of at least 0");
      to.word.insert(to.word.end(), static_cast<std::size_t>(count), raw.indices.intern(j + 1));
    });
    to.begin.push_back(to.word.size());
    to.number.push_back(rows.first_row + i);
  }
  return raw;
}

lda::raw_documents lda::read(const std::vector<std::string>& files) {
  if (settings_.input_format == document_format::table) return read_table(files);
  raw_documents raw;
  auto& to = raw.documents;
  const auto add_line = [&](std::string_view line, const text_failure& fail) {
    bool first = true;
    for_each_field(line, [&](std::string_view field) {
      if (text_) {
        to.word.push_back(raw.names.intern(field));
        return;
      }
      // The label is ignored and may be missing.
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
  if (text_)
    throw data_error(settings_.vocabulary.front() + ": not with text input, which has words instead of indices");
  visit_whole_text(get_comm(), settings_.vocabulary, [&](std::string_view text, const text_failure&) {
    while (!text.empty()) {
      auto line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      names_.push_back(line);
    }
  });
  vocabulary_size_ = names_.size();
  require_some(vocabulary_size_, settings_.vocabulary, "name, want one per line");
}

/// Indices keep the names that they have in the initial model.
void lda::read_initial_names() {
  if (text_ || initial_.size() == 0) return;
  const auto& known = initial_.names;
  const auto given = names_.size();
  if (given == 0) names_ = known;
  bool same = given == 0 || given >= initial_.size();
  for (std::size_t i = 0; same && i < known.size(); ++i) same = names_.name(i) == known.name(i);
  if (!same)
    throw data_error(settings_.vocabulary.front() + ": found other names than those of the initial model, want its " +
                     std::to_string(initial_.size()) + " names first, or no key");
  vocabulary_size_ = std::max<std::uint64_t>(given, initial_.size());
}

/// Replaces the words of `raw` by global numbers: for names their rank, for indices one less.
void lda::number_words(raw_documents& raw) {
  auto comm = get_comm();
  std::vector<std::uint32_t> number;
  if (text_) {
    auto mine = raw.names.ids();
    std::sort(mine.begin(), mine.end());
    std::string joined;
    for (const auto& name : mine) joined += name + '\n';
    // Every worker needs all words to number its own, and rank 0 needs them for the results.
    std::vector<std::string> all;
    for (const auto& text : comm.allgather(joined)) {
      for (std::size_t at = 0; at < text.size();) {
        const auto end = text.find('\n', at);
        all.push_back(text.substr(at, end - at));
        at = end + 1;
      }
    }
    for (std::size_t i = 0; i < initial_.names.size(); ++i) all.push_back(initial_.names.text(i));
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
      const auto& where = settings_.vocabulary.empty() ? initial_.path : settings_.vocabulary.front();
      throw data_error(where + ": found " + std::to_string(names_.size()) +
                       " names, want at least the greatest index, " + std::to_string(greatest));
    }
    vocabulary_size_ = std::max<std::uint64_t>(vocabulary_size_, static_cast<std::uint64_t>(greatest));
  }
  for (auto& w : raw.documents.word) w = number[w];
}

/// Returns the words of some documents, ascending, and replaces the documents' words by indices into them.
std::vector<std::uint64_t> lda::own_words(lda_documents& documents) {
  std::vector<std::uint32_t> sorted(documents.word);
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  for (auto& w : documents.word)
    w = static_cast<std::uint32_t>(std::lower_bound(sorted.begin(), sorted.end(), w) - sorted.begin());
  return {sorted.begin(), sorted.end()};
}

void lda::read_initial() {
  const auto& path = settings_.initial.model.path;
  initial_ = lda_initial(model_reader(path, "lda"));
  want_as_in_model(settings_.initial.topics_place, std::to_string(settings_.topics), std::to_string(initial_.topics()));
  settings_.topics = initial_.topics();
  if (initial_.online && !settings_.is_online)
    throw data_error(path + ": found a model of method online, whose counts are fractions, want method online");
  const bool fitted = std::ranges::any_of(initial_.alpha, [&](double a) { return a != initial_.alpha.front(); });
  if (fitted && settings_.is_online && !settings_.initial.alpha_given)
    throw data_error(path + ": found an alpha for each topic, want method gibbs, or the key alpha");
}

void lda::place_initial_words() {
  initial_.place.assign(vocabulary_size_, lda_initial::none);
  for (std::size_t i = 0; i < initial_.size(); ++i)
    initial_.place[text_ ? *names_.find(initial_.names.name(i)) : i] = i;
}

void lda::load() {
  agree_on_format(settings_.input);
  if (settings_.initial.model.given() && text_ != initial_.text)
    throw data_error(settings_.input.front() + ": found documents of " + (text_ ? "words" : "indices") + ", want " +
                     (text_ ? "indices" : "words") + " as in the initial model");
  read_names();
  read_initial_names();
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
  if (!settings_.is_online) training_words_ = own_words(training_);
  std::vector<std::int64_t> sums{static_cast<std::int64_t>(training_.size()),
                                 static_cast<std::int64_t>(training_.word.size())};
  get_comm().allreduce(sums);
  documents_total_ = static_cast<std::uint64_t>(sums[0]);
  tokens_total_ = static_cast<std::uint64_t>(sums[1]);
  if (tokens_total_ == 0) throw data_error(settings_.input.front() + ": found no word to train on");

  if (!settings_.test_input.empty()) test_ = known_words(settings_.test_input);
  if (!settings_.predict_input.empty()) predict_ = known_words(settings_.predict_input);
}

/// Reads documents, keeping only the words of the model.
lda_documents lda::known_words(const std::vector<std::string>& files) {
  const auto raw = read(files);
  auto words = static_cast<std::int64_t>(raw.documents.word.size());
  get_comm().allreduce(words);
  require_some(static_cast<std::uint64_t>(words), files, "document with a word, want one per line");
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
  model_counts_ = model.read<double>("word_topic");
  model_totals_ = model.read<double>("topic_counts");
  if (!settings_.test_input.empty()) test_ = known_words(settings_.test_input);
  if (!settings_.predict_input.empty()) predict_ = known_words(settings_.predict_input);
}

}  // namespace paracel::alg
