// SPDX-License-Identifier: BSD-3-Clause
#include "wc.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <paracel/samples.hpp>

#include "alg/common/output/entry_keys.hpp"
#include "alg/common/output/model_file.hpp"
#include "alg/common/output/run_log.hpp"
#include "exchange_words.hpp"

namespace paracel::alg {

namespace {

// Paracel's number of dictionaries in the servers, and the words of one above which more are used: a few megabytes.
constexpr std::size_t least_dictionaries = 100;
constexpr std::uint64_t dictionary_words = 100000;

// As Paracel's functions expect them; small numbers are encoded in the same way, whatever the width of the integer.
using dictionary = dict_type<std::string, std::int64_t>;

/// A line of the results.
struct word_line {
  counted_word entry;
};
void append_text(std::string& out, const word_line& line) {
  out += line.entry.word;
  out += '\t';
  paracel::append_text(out, line.entry.count);
}
std::vector<word_line> lines_of(const std::vector<counted_word>& words) {
  std::vector<word_line> lines;
  lines.reserve(words.size());
  for (const auto& w : words) lines.push_back({w});
  return lines;
}

}  // namespace

void wc_settings::keys(key_list& k) {
  k.files("input", input, "text").required();
  output_keys(k, output);
  k("topk", topk, "number of words to print").at_least(0);
  k("tokens", by_space, "paracel: runs of [-A-Za-z0-9_]; space: runs of bytes that are not white space",
    {{"paracel", false}, {"space", true}});
  k("dump", dump, "write every word and its count");
  format_key(k, format, "format of the dump: text, or npy");
  k.plugin("handle_file", handle.file, "plug-in that adds the counts in the servers; default: workers add them")
      .not_resumable();
  handle.function_keys(
      k, "handle_file",
      {{"update_function", "wc_updater", "function of handle_file that adds counts; default wc_updater"},
       {"filter_function", "wc_filter",
        "function of handle_file that selects dictionaries of counts; default wc_filter"}});
}

word_count::word_count(Comm comm, const std::string& server_info, const wc_settings& settings)
    : paralg(server_info, std::move(comm), settings.output), settings_(settings) {}

void word_count::solve() {
  // Without handle_file nothing is kept in the servers: the replacement of a worker redoes its part.
  (void)first_iteration();
  count();
  if (settings_.handle.given()) add_in_servers();
  else exchange_words(get_comm(), words_);
  dump_result();
}

void word_count::count() {
  const auto bytes = settings_.by_space ? word_bytes::space() : word_bytes::paracel();
  visit_text(get_comm(), settings_.input, [&](std::string_view text, const text_failure&) {
    const char* const end = text.data() + text.size();
    bytes.for_each(text, [&](std::string_view word) { words_.add(word, end); });
  });
  auto found = static_cast<std::int64_t>(words_.size());
  get_comm().allreduce(found);
  require_some(static_cast<std::uint64_t>(found), settings_.input, "word, want text");
}

/// Every worker reads all dictionaries, as in Paracel, and keeps the words that it owns.
void word_count::add_in_servers() {
  auto distinct = static_cast<std::int64_t>(words_.size());
  get_comm().allreduce(distinct);
  const auto count = std::max(least_dictionaries, static_cast<std::size_t>(distinct) / dictionary_words + 1);
  std::vector<dictionary> mine(count);
  words_.for_each([&](std::string_view word, std::uint64_t n, std::uint32_t hash) {
    mine[hash % count].emplace(word, static_cast<std::int64_t>(n));
  });
  dict_type<std::string, dictionary> deltas;
  for (std::size_t i = 0; i < count; ++i) {
    if (!mine[i].empty()) deltas.emplace("key_" + std::to_string(i), std::move(mine[i]));
  }
  words_ = word_table();
  const auto& [file, functions] = settings_.handle;
  set_consistency(consistency_model::bsp);  // combined in rank order
  paracel_update_multi(deltas, {file, functions[0]});
  iter_commit();
  paracel_sync();
  deltas.clear();
  paracel_read_special_handle<dictionary>(file, functions[1], [&](const std::string&, const dictionary& words) {
    for (const auto& [word, n] : words) {
      const auto* const end = word.data() + word.size();
      if (n > 0 && owner_of_word(word_table::hash_of(word, end), get_worker_size()) == get_worker_id())
        words_.add(word, end, static_cast<std::uint64_t>(n));
    }
  });
}

void word_count::dump_result() {
  auto comm = get_comm();
  run_log log(*this, 1, "words");
  std::vector<std::int64_t> sums{static_cast<std::int64_t>(words_.size()), static_cast<std::int64_t>(words_.total())};
  comm.allreduce(sums);

  // The first k of all are among the first k of each worker.
  byte_vector packed;
  for (const auto& w : words_.top(settings_.topk)) pack_word(packed, w.word, w.count);
  std::vector<byte_vector> to(get_worker_size());
  to[0] = std::move(packed);
  const auto got = comm.alltoall_bytes(to);
  if (get_worker_id() == 0) {
    std::vector<counted_word> top;
    for (const auto& block : got) {
      unpack_words(block, [&](std::string_view word, std::uint64_t count) { top.push_back({word, count}); });
    }
    std::sort(top.begin(), top.end(), before);
    top.resize(std::min(top.size(), settings_.topk));
    std::string text;
    for (const auto& w : top) {
      text += w.word;
      text += " : ";
      paracel::append_text(text, w.count);
      text += '\n';
    }
    std::fwrite(text.data(), 1, text.size(), stdout);  // a word may contain a zero byte
    write_lines(*this, lines_of(top), "wc_top_");
  }
  if (settings_.dump) dump_words();
  log.round(1, static_cast<double>(sums[1]), {{"distinct", static_cast<double>(sums[0])}});
  log.result("distinct", static_cast<std::uint64_t>(sums[0]));
  log.result("words", static_cast<std::uint64_t>(sums[1]));
  log.result("output", get_output());
  paracel_sync();
}

void word_count::dump_words() {
  const auto words = words_.sorted();
  if (settings_.format == result_format::text) {
    paracel_dump_vector(lines_of(words), "wc_", "\n");
    return;
  }
  std::vector<std::uint64_t> counts;
  auto ids = id_list::empty(false);
  for (const auto& w : words) {
    counts.push_back(w.count);
    ids.push_back(w.word);
  }
  model_writer writer(*this, "wc", settings_.format);
  writer.add_rows("counts", std::span<const std::uint64_t>(counts), {}, &ids);
  writer.finish();
}

}  // namespace paracel::alg
