// SPDX-License-Identifier: BSD-3-Clause
#include "adjust_ktop_sparse.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include <paracel/text_input.hpp>

#include "alg/common/output/model_file.hpp"
#include "alg/common/output/run_log.hpp"

namespace paracel::alg {

namespace {

// Rows that a worker requests at a time: about ten megabytes, with a few hundred entries each.
constexpr std::size_t batch_rows = 4096;

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t v = 0;
  return parse_id(text, v) ? std::optional(v) : std::nullopt;
}

/// A line of the results.
struct ktop_line {
  std::string id;
  std::size_t k;
};
void append_text(std::string& out, const ktop_line& line) {
  out += line.id;
  out += '\t';
  paracel::append_text(out, line.k);
}

}  // namespace

void adjust_ktop_settings::keys(key_list& k) {
  k.files("rating_input", rating_input, "ratings: user,item,rating").required();
  entries.keys(k, "user, item and rating (smap, sfv: item, user and rating)");
  k.files("sim_input", sim_input, "lists of similar users, the most similar first: what sim_sparse writes").required();
  output_keys(k, output);
  k("fmt", transpose, "fmap, fsmap, fsv: user,item,rating; smap, sfv: item,user,rating",
    {{"fmap", false}, {"fsmap", false}, {"fsv", false}, {"smap", true}, {"sfv", true}});
  k("lower bound", lower_bound, "minimum number of neighbours").at_least(1);
  format_key(k, format, "format of the results: text, or npy");
}

bool parse_similarities(std::string_view line, similarity_list& out, const text_failure& fail) {
  if (line.find_first_not_of(" \t") == std::string_view::npos) return false;
  const auto tab = line.find('\t');
  if (tab == std::string_view::npos) fail(line.data() + line.size(), "found no tab, want id<tab>id:similarity|...");
  if (tab == 0) fail(line.data(), "found no id before the tab");
  out.id = line.substr(0, tab);
  out.neighbours.clear();
  for (auto rest = line.substr(tab + 1); !rest.empty();) {
    const auto bar = std::min(rest.find('|'), rest.size());
    const auto item = rest.substr(0, bar);
    const auto colon = item.rfind(':');
    if (colon == std::string_view::npos || colon == 0)
      fail(item.data(), "found \"" + std::string(item) + "\", want id:similarity");
    const auto text = item.substr(colon + 1);
    double similarity = 0;
    if (!parse_number(text, similarity)) fail(text.data(), "found " + quoted_text(text) + ", want a finite number");
    out.neighbours.emplace_back(item.substr(0, colon), similarity);
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return true;
}

adjust_ktop::adjust_ktop(Comm comm, const std::string& server_info, const adjust_ktop_settings& settings)
    : paralg(server_info, std::move(comm), settings.output), settings_(settings) {}

void adjust_ktop::solve() {
  // Nothing is kept in the servers: the replacement of a dead worker repeats its part.
  (void)first_iteration();
  load();
  choose();
  dump_result();
}

void adjust_ktop::load() {
  visit_text(get_comm(), settings_.sim_input, [&](std::string_view text, const text_failure& fail) {
    while (!text.empty()) {
      const auto end = std::min(text.find('\n'), text.size());
      auto line = text.substr(0, end);
      if (line.ends_with('\r')) line.remove_suffix(1);
      similarity_list list;
      if (parse_similarities(line, list, fail)) lists_.push_back(std::move(list));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  });
  entry_options options;
  settings_.entries.apply(options);
  options.transpose = settings_.transpose;
  options.duplicates = duplicate_rule::last;
  auto comm = get_comm();
  ratings_ = load_some(comm, settings_.rating_input, options, "rating, want user,item,rating");
  auto lists = static_cast<std::int64_t>(lists_.size());
  comm.allreduce(lists);
  require_some(static_cast<std::uint64_t>(lists), settings_.sim_input, "list, want id<tab>id:similarity|...");
  std::string first;
  if (ratings_.rows() > 0) first = ratings_.row_ids.text(0);
  const auto all = comm.allgather(first);
  for (std::size_t w = 0; w < all.size(); ++w) {
    if (ratings_.row_first[w + 1] > ratings_.row_first[w]) first_ids_.emplace_back(w, all[w]);
  }
}

/// The worker whose range of ids contains this user.
std::size_t adjust_ktop::owner_of(const std::string& id) const {
  const auto after = [&](const std::string& text, const std::pair<std::size_t, std::string>& first) {
    return ratings_.row_ids.numeric() ? number_of(text) < number_of(first.second) : text < first.second;
  };
  const auto it = std::upper_bound(first_ids_.begin(), first_ids_.end(), id, after);
  return it == first_ids_.begin() ? 0 : std::prev(it)->first;
}

/// The ratings of these users, in their order; empty for unknown users. A collective.
///     request   4 bytes of id  id, one after the other        reply   8 entries  entries * 8 column  entries * 8 value
std::vector<adjust_ktop::rating_row> adjust_ktop::fetch(const std::vector<std::string>& ids) {
  auto comm = get_comm();
  const auto workers = get_worker_size();
  std::vector<byte_vector> asked(workers);
  std::vector<std::size_t> owner;
  for (const auto& id : ids) {
    owner.push_back(owner_of(id));
    put_bytes(asked[owner.back()], static_cast<std::uint32_t>(id.size()));
    put_bytes(asked[owner.back()], id.data(), id.size());
  }
  const auto questions = comm.alltoall_bytes(asked);
  std::vector<byte_vector> answers(workers);
  const auto& row_ids = ratings_.row_ids;
  for (std::size_t w = 0; w < workers; ++w) {
    for (byte_reader from(questions[w]); !from.empty();) {
      const auto length = from.get<std::uint32_t>();
      const std::string_view id(reinterpret_cast<const char*>(from.take(length)), length);
      std::optional<std::size_t> row;
      if (!row_ids.numeric()) {
        row = row_ids.find(id);
      } else if (const auto number = number_of(id)) {
        row = row_ids.find(*number);
      }
      const std::uint64_t entries = row ? ratings_.begin[*row + 1] - ratings_.begin[*row] : 0;
      put_bytes(answers[w], entries);
      if (entries == 0) continue;
      for (const auto c : ratings_.columns_of(*row)) put_bytes(answers[w], ratings_.column_number[c]);
      put_bytes(answers[w], ratings_.values_of(*row).data(), entries);
    }
  }
  const auto got = comm.alltoall_bytes(answers);
  std::vector<byte_reader> from(got.begin(), got.end());
  std::vector<rating_row> rows;
  rows.reserve(ids.size());
  for (const auto w : owner) {
    const auto entries = from[w].get<std::uint64_t>();
    auto& [columns, values] = rows.emplace_back();
    from[w].get(columns, entries);
    from[w].get(values, entries);
  }
  return rows;
}

void adjust_ktop::choose() {
  auto comm = get_comm();
  ktop_search search;
  sums_.assign(5, 0);
  std::size_t next = 0;
  for (std::int64_t more = 1; more != 0;) {
    // Takes lists until they need a batch of rows; each row is requested once per batch.
    std::unordered_map<std::string_view, std::size_t> place;
    std::vector<std::string> ids;
    const auto need = [&](const std::string& id) {
      if (place.emplace(id, ids.size()).second) ids.push_back(id);
    };
    const std::size_t begin = next;
    for (; next < lists_.size() && ids.size() < batch_rows; ++next) {
      need(lists_[next].id);
      for (const auto& [id, similarity] : lists_[next].neighbours) need(id);
    }
    const auto rows = fetch(ids);
    std::vector<rated_neighbour> neighbours;
    for (std::size_t l = begin; l < next; ++l) {
      neighbours.clear();
      for (const auto& [id, similarity] : lists_[l].neighbours) {
        const auto& [columns, values] = rows[place.at(id)];
        neighbours.push_back({similarity, columns, values});
      }
      const auto& [columns, values] = rows[place.at(lists_[l].id)];
      const auto& choice = choices_.emplace_back(search(columns, values, neighbours, settings_.lower_bound));
      sums_[0] += static_cast<double>(values.size());
      sums_[1] += choice.error;
      sums_[2] += choice.base_error;
      sums_[3] += static_cast<double>(choice.k);
      sums_[4] += 1;
    }
    more = next < lists_.size() ? 1 : 0;
    comm.allreduce(more, reduce_op::max);
  }
  comm.allreduce(sums_);
}

void adjust_ktop::dump_result() {
  run_log log(*this, 1, "rmse");
  const auto rmse = [&](double squares) { return sums_[0] > 0 ? std::sqrt(squares / sums_[0]) : 0; };
  if (settings_.format == result_format::text) {
    std::vector<ktop_line> lines;
    for (std::size_t l = 0; l < lists_.size(); ++l) lines.push_back({lists_[l].id, choices_[l].k});
    paracel_dump_vector(lines, "ktop_result_", "\n");
  } else {
    // User ids as they are written in the lists.
    std::vector<std::uint64_t> k;
    auto ids = id_list::empty(false);
    for (std::size_t l = 0; l < lists_.size(); ++l) {
      k.push_back(choices_[l].k);
      ids.push_back(std::string_view(lists_[l].id));
    }
    model_writer writer(*this, "adjust_ktop_sparse", settings_.format);
    writer.add_rows("ktop", std::span<const std::uint64_t>(k), {}, &ids);
    writer.finish();
  }
  log.round(1, rmse(sums_[1]), {{"base_rmse", rmse(sums_[2])}, {"sum_k", sums_[3]}});
  log.result("users", static_cast<std::uint64_t>(sums_[4]));
  log.result("ratings", static_cast<std::uint64_t>(sums_[0]));
  log.result("base_rmse", rmse(sums_[2]));
  log.result("rmse", rmse(sums_[1]));
  log.result("sum_k", static_cast<std::uint64_t>(sums_[3]));
  log.result("output", get_output());
  paracel_sync();
}

}  // namespace paracel::alg
