// SPDX-License-Identifier: BSD-3-Clause
#include "sim_sparse.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <paracel/free_memory.hpp>
#include "alg/common/output/load_cache_keys.hpp"
#include "alg/common/output/model_file.hpp"
#include "alg/common/output/run_log.hpp"

namespace paracel::alg {

namespace {

// Rows are sent in pieces of about this size, and so are the lists that are returned.
constexpr std::size_t piece_bytes = std::size_t{16} << 20U;
// Columns whose counts are summed over the workers at a time: 8 MB.
constexpr std::size_t count_columns = std::size_t{1} << 20U;

bool within(double n, double least, double most) { return (least <= 0 || n >= least) && (most <= 0 || n <= most); }

}  // namespace

void sim_sparse_settings::keys(key_list& k) {
  using by = similarity_method;
  k.files("input", input, "entries: row,column,value").required();
  entries.keys(k, "row, column and value");
  duplicates_key(k, duplicates);
  cache_keys(k, cache);
  output_keys(k, output);
  k("format", transpose, "fsv: row,column,value; sfv: column,row,value", {{"fsv", false}, {"sfv", true}});
  k("topk", topk, "maximum number of neighbours of a row").at_least(1);
  k("rbar", rbar, "minimum number of entries of a row; 0 or -1: no limit").at_least(-1);
  k("rubar", rubar, "maximum number of entries of a row; 0 or -1: no limit").at_least(-1);
  k("cbar", cbar, "minimum number of entries of a column; 0 or -1: no limit").at_least(-1);
  k("cubar", cubar, "maximum number of entries of a column; 0 or -1: no limit").at_least(-1);
  double least = 0, most = 0, common = 0;
  k("sim_bar", least, "minimum similarity; 0 or -1: no limit").at_least(-1).at_most(1);
  k("sim_ubar", most, "maximum similarity; 0 or -1: no limit").at_least(-1);
  k("weight_bar", weight_bar, "entries with a smaller |value| are ignored; 0 or -1: none").at_least(-1);
  k("intersect_bar", common, "minimum number of columns that two rows share; 0 or -1: one").at_least(-1);
  format_key(k, output_format, "format of the results: text, or npy", "output_format");
  k("sim_method", limits.method, "cosine, jaccard or pearson",
    {{"cosine", by::cosine}, {"jaccard", by::jaccard}, {"pearson", by::pearson}});
  const auto is_limit = [](double v) { return v != 0 && v != -1; };
  if (is_limit(least)) limits.least = least;
  if (is_limit(most)) limits.most = most;
  if (common > 0) limits.common = static_cast<std::uint32_t>(std::min(std::ceil(common), 4e9));
}

sim_sparse::sim_sparse(Comm comm, const std::string& server_info, const sim_sparse_settings& settings)
    : paralg(server_info, std::move(comm), settings.output), settings_(settings) {}

void sim_sparse::solve() {
  // Nothing is kept in the servers: the replacement of a worker redoes its part.
  (void)first_iteration();
  load();
  compare();
  dump_result();
}

// ---- loading

void sim_sparse::load() {
  entry_options options;
  settings_.entries.apply(options);
  options.transpose = settings_.transpose;
  options.duplicates = settings_.duplicates;
  options.cache = settings_.cache;
  input_ = load_some(get_comm(), settings_.input, options, "entry, want row,column,value");
  first_row_ = input_.row_first[get_worker_id()];
  const auto& s = settings_;
  const auto light = [&](double v) { return v == 0 || (s.weight_bar > 0 && std::abs(v) < s.weight_bar); };
  for (auto& v : input_.value) v = light(v) ? 0 : v;

  std::vector<std::uint8_t> used(input_.column_number.size(), 1);
  if (s.cbar > 0 || s.cubar > 0) {
    const auto counts = column_counts();
    for (std::size_t c = 0; c < used.size(); ++c) {
      used[c] = within(static_cast<double>(counts[c]), s.cbar, s.cubar) ? 1 : 0;
    }
  }
  for (std::size_t i = 0; i < input_.rows(); ++i) {
    const auto begin = own_.column.size();
    for (auto k = input_.begin[i]; k < input_.begin[i + 1]; ++k) {
      if (input_.value[k] == 0 || used[input_.column[k]] == 0) continue;
      own_.column.push_back(input_.column[k]);
      own_.value.push_back(input_.value[k]);
    }
    if (!within(static_cast<double>(own_.column.size() - begin), s.rbar, s.rubar)) {
      own_.column.resize(begin);
      own_.value.resize(begin);
    }
    prepare_row(s.limits.method, std::span(own_.value).subspan(begin));
    own_.begin.push_back(own_.column.size());
  }
  free_memory(input_.column);
  free_memory(input_.value);
}

/// For this worker's columns, the number of their entries in the rows of all workers.
std::vector<std::int64_t> sim_sparse::column_counts() {
  auto comm = get_comm();
  std::vector<std::int64_t> counts(input_.column_number.size());
  for (std::size_t k = 0; k < input_.column.size(); ++k) counts[input_.column[k]] += input_.value[k] != 0 ? 1 : 0;
  std::size_t begin = 0;
  for (std::uint64_t first = 0; first < input_.columns_total; first += count_columns) {
    std::vector<std::int64_t> sums(std::min<std::uint64_t>(count_columns, input_.columns_total - first));
    std::size_t end = begin;
    while (end < counts.size() && input_.column_number[end] < first + sums.size()) ++end;
    for (auto c = begin; c < end; ++c) sums[input_.column_number[c] - first] = counts[c];
    comm.allreduce(sums);
    for (auto c = begin; c < end; ++c) counts[c] = sums[input_.column_number[c] - first];
    begin = end;
  }
  return counts;
}

// ---- comparing

void sim_sparse::compare() {
  lists_ = top_k_neighbours(own_.rows(), settings_.topk);
  kernel_.emplace_back(std::move(own_), input_.column_number.size(), settings_.limits);
  kernel_.front().own_pairs([&](std::size_t i, std::size_t j, double similarity) {
    lists_.offer(i, first_row_ + j, similarity);
    lists_.offer(j, first_row_ + i, similarity);
  });
  for (std::size_t step = 1; step < get_worker_size(); ++step) meet(step);
  lists_.sort();
}

/// The first row after about half of the entries.
std::size_t sim_sparse::half(const csr_rows& rows) const {
  const auto at = std::lower_bound(rows.begin.begin(), rows.begin.end() - 1, rows.begin.back() / 2);
  return static_cast<std::size_t>(at - rows.begin.begin());
}

/// Sends this worker's rows to the worker `step` ranks before it, and compares with those of the worker `step` ranks
/// after it.
void sim_sparse::meet(std::size_t step) {
  auto comm = get_comm();
  const auto size = get_worker_size();
  const auto rank = get_worker_id();
  const auto host = (rank + size - step) % size;
  const auto guest = (rank + step) % size;
  const auto& rows = kernel_.front().rows();
  // The lower of two workers compares all its rows with the first half of the other's.
  const std::size_t end = host < rank ? half(rows) : rows.rows();
  kernel_.front().start_at(rank < guest ? 0 : half(rows));

  std::size_t at = 0;
  for (std::int64_t more = 1; more != 0;) {
    std::vector<byte_vector> blocks(size);
    blocks[host] = pack_rows(at, end);
    auto got = comm.alltoall_bytes(blocks);
    std::vector<byte_vector> answers(size);
    answers[guest] = visit(got[guest]);
    got.clear();
    const auto back = comm.alltoall_bytes(answers);
    take_back(back[host]);
    more = at < end ? 1 : 0;
    comm.allreduce(more, reduce_op::max);
  }
}

/// Packs rows from `at` on, up to the size of a piece:
///     8 row  4 entries  entries * (8 column  8 value)
byte_vector sim_sparse::pack_rows(std::size_t& at, std::size_t end) const {
  const auto& rows = kernel_.front().rows();
  const std::size_t most_rows = std::max<std::size_t>(1, piece_bytes / (16 * settings_.topk + 16));
  byte_vector out;
  for (std::size_t count = 0; at < end && count < most_rows && out.size() < piece_bytes; ++at) {
    if (rows.entries(at) == 0) continue;
    ++count;
    put_bytes(out, first_row_ + at);
    put_bytes(out, static_cast<std::uint32_t>(rows.entries(at)));
    const auto columns = rows.columns_of(at);
    const auto values = rows.values_of(at);
    for (std::size_t k = 0; k < columns.size(); ++k) {
      put_bytes(out, input_.column_number[columns[k]]);
      put_bytes(out, values[k]);
    }
  }
  return out;
}

/// Compares rows of another worker with this worker's. Returns their neighbours:
///     8 row  4 neighbours  neighbours * (8 row  8 similarity)
byte_vector sim_sparse::visit(const byte_vector& rows) {
  byte_vector out;
  std::vector<std::uint32_t> columns;
  std::vector<double> values;
  const auto& numbers = input_.column_number;
  for (byte_reader in(rows); !in.empty();) {
    const auto row = in.get<std::uint64_t>();
    const auto entries = in.get<std::uint32_t>();
    columns.clear();
    values.clear();
    row_facts facts{entries, 0};
    auto from = numbers.begin();
    for (std::uint32_t k = 0; k < entries; ++k) {
      const auto number = in.get<std::uint64_t>();
      const auto value = in.get<double>();
      facts.square += value * value;
      from = std::lower_bound(from, numbers.end(), number);
      if (from == numbers.end() || *from != number) continue;
      columns.push_back(static_cast<std::uint32_t>(from - numbers.begin()));
      values.push_back(value);
    }
    top_k_neighbours best(1, settings_.topk);
    kernel_.front().visit(columns, values, facts, [&](std::uint32_t i, double similarity) {
      lists_.offer(i, row, similarity);
      best.offer(0, first_row_ + i, similarity);
    });
    const auto list = best.of(0);
    if (list.empty()) continue;
    put_bytes(out, row);
    put_bytes(out, static_cast<std::uint32_t>(list.size()));
    put_bytes(out, list.data(), list.size());
  }
  return out;
}

void sim_sparse::take_back(const byte_vector& lists) {
  std::vector<neighbour> list;
  for (byte_reader in(lists); !in.empty();) {
    const auto row = in.get<std::uint64_t>() - first_row_;
    in.get(list, in.get<std::uint32_t>());
    for (const auto& n : list) lists_.offer(row, n.row, n.similarity);
  }
}

// ---- results

void sim_sparse::dump_result() {
  run_log log(*this, 1, "neighbours");
  const auto ids = all_row_ids(get_comm(), input_);
  std::vector<neighbour_line> lines;
  neighbour_summary all;
  auto& best = all.best;
  for (std::size_t i = 0; i < lists_.rows(); ++i) {
    const auto list = lists_.of(i);
    all.sums[0] += kernel_.front().rows().entries(i) > 0 ? 1 : 0;
    all.sums[1] += static_cast<std::int64_t>(list.size());
    if (list.empty()) continue;
    lines.push_back({ids.text(first_row_ + i), list, &ids});
    if (list[0].similarity > best[0]) {
      best = {list[0].similarity, static_cast<double>(first_row_ + i), static_cast<double>(list[0].row)};
    }
  }
  all.sums[2] = static_cast<std::int64_t>(lines.size());
  if (settings_.output_format == result_format::text) {
    paracel_dump_vector(lines, "similarities_", "\n");
  } else {
    dump_arrays(ids);
  }
  all.log(*this, log, ids, ids);
  paracel_sync();
}

/// `counts`: neighbours of each row; `neighbours`: their similarities, concatenated, with the neighbours' ids.
void sim_sparse::dump_arrays(const id_list& ids) {
  std::vector<std::uint64_t> counts;
  std::vector<double> similarities;
  auto others = id_list::empty(ids.numeric());
  for (std::size_t i = 0; i < lists_.rows(); ++i) {
    counts.push_back(lists_.of(i).size());
    for (const auto& n : lists_.of(i)) {
      similarities.push_back(n.similarity);
      if (ids.numeric()) {
        others.push_back(ids.number(n.row));
      } else {
        others.push_back(ids.name(n.row));
      }
    }
  }
  model_writer writer(*this, "sim_sparse", settings_.output_format);
  writer.add_rows("counts", std::span<const std::uint64_t>(counts), {}, &input_.row_ids);
  writer.add_rows("neighbours", std::span<const double>(similarities), {}, &others);
  writer.finish();
}

}  // namespace paracel::alg
