// SPDX-License-Identifier: BSD-3-Clause
#include "sim_dense.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include <paracel/dense_rows.hpp>
#include <paracel/text_input.hpp>

#include "alg/common/output/model_file.hpp"

namespace paracel::alg {

namespace {

// Rows are sent in pieces of about this size, and so are the lists that are returned.
constexpr std::size_t piece_bytes = std::size_t{16} << 20U;

}  // namespace

void sim_dense_settings::common_keys(key_list& k) {
  using rule = entry_options::header_rule;
  output_keys(k, output);
  k("simbar", simbar, "minimum similarity").at_least(-1).at_most(1);
  k("topk", topk, "maximum number of neighbours of a row").at_least(1);
  k("ids", number_rows, "first: the first field is the id of the row; row: the number of the row, from 0, is its id",
    {{"first", false}, {"row", true}});
  k("header", header, "whether the first line of each file names the fields; automatic: if none of them is a number",
    {{"automatic", rule::automatic}, {"yes", rule::yes}, {"no", rule::no}});
  k("label", label, "the last field is a label, which is ignored");
  format_key(k, output_format, "format of the results: text, or npy");
}

void sim_dense_settings::keys(key_list& k) {
  k.files("input", input_a, "rows: id,feature,feature,...").required();
  common_keys(k);
}

void ab_sim_dense_settings::keys(key_list& k) {
  k.files("input_a", input_a, "rows of a: id,feature,feature,...").required();
  k.files("input_b", input_b, "rows of b").required();
  common_keys(k);
}

sim_dense::sim_dense(Comm comm, const std::string& server_info, const sim_dense_settings& settings)
    : paralg(server_info, std::move(comm), settings.output), settings_(settings) {}

void sim_dense::solve() {
  // Nothing is kept in the servers: the replacement of a worker redoes its part.
  (void)first_iteration();
  a_ = load(settings_.input_a);
  lists_ = top_k_neighbours(a_.number.size(), settings_.topk);
  if (settings_.input_b.empty()) {
    compare();
  } else {
    b_ = load(settings_.input_b);
    compare_ab();
  }
  lists_.sort();
  dump_result();
}

// ---- loading

sim_dense::matrix sim_dense::load(const std::vector<std::string>& files) {
  auto comm = get_comm();
  vector_options options;
  options.columns = width_;
  options.with_ids = !settings_.number_rows;
  options.skip_last = settings_.label;
  options.distinct_ids = options.with_ids;
  options.header = settings_.header;
  auto rows = load_vectors(comm, files, options);
  width_ = rows.columns;
  matrix m;
  m.value = std::move(rows.value);
  if (settings_.number_rows) {
    m.number = rows.ids.numbers();
    std::vector<std::uint64_t> all(rows.rows_total);
    std::iota(all.begin(), all.end(), std::uint64_t{0});
    m.ids = id_list(std::move(all));
  } else {
    number_by_ids(rows.ids, m);
  }
  for (std::size_t i = 0; i < m.number.size(); ++i) to_unit_length(std::span(m.value).subspan(i * width_, width_));
  return m;
}

/// Gathers the ids of all rows on every worker: 8 bytes each, or the bytes of names; a row's number is the rank of its
/// id.
void sim_dense::number_by_ids(const id_list& own, matrix& m) {
  std::string joined;
  for (std::size_t i = 0; i < own.size(); ++i) joined += own.text(i) + '\n';
  m.ids = id_list::empty(own.numeric());
  for (const auto& text : get_comm().allgather(joined)) {
    for (std::string_view rest = text; !rest.empty();) {
      const auto name = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(name.size() + 1);
      std::uint64_t n = 0;
      if (own.numeric() && parse_id(name, n)) m.ids.push_back(n);
      else m.ids.push_back(name);
    }
  }
  m.ids.sort_unique();
  for (std::size_t i = 0; i < own.size(); ++i)
    m.number.push_back(own.numeric() ? *m.ids.find(own.number(i)) : *m.ids.find(own.name(i)));
}

// ---- comparing

void sim_dense::compare() {
  dense_kernel kernel(width_);
  const double least = least_similarity();
  kernel.product(a_.value, a_.value, true, [&](std::size_t i, std::size_t j, std::span<const double> s) {
    for (std::size_t c = j > i ? 0 : i + 1 - j; c < s.size(); ++c) {
      // A zero row has NaN with all others, and so no neighbours.
      if (!(s[c] >= least)) continue;
      lists_.offer(i, a_.number[j + c], s[c]);
      lists_.offer(j + c, a_.number[i], s[c]);
    }
  });
  for (std::size_t step = 1; step < get_worker_size(); ++step) meet(step);
}

bool sim_dense::any_left(bool mine) {
  std::int64_t more = mine ? 1 : 0;
  get_comm().allreduce(more, reduce_op::max);
  return more != 0;
}

/// Sends this worker's rows to the worker `step` ranks before it, and compares with those of the worker `step` ranks
/// after it.
void sim_dense::meet(std::size_t step) {
  auto comm = get_comm();
  const auto size = get_worker_size();
  const auto rank = get_worker_id();
  const auto host = (rank + size - step) % size;
  const auto guest = (rank + step) % size;
  const std::size_t rows = a_.number.size();
  // The lower of two workers compares all its rows with the first half of the other's.
  const std::size_t end = host < rank ? rows / 2 : rows;
  const std::size_t begin = rank < guest ? 0 : rows / 2;
  const auto mine = std::span<const double>(a_.value).subspan(begin * width_);
  const double least = least_similarity();
  dense_kernel kernel(width_);
  std::vector<std::uint64_t> numbers;
  std::vector<double> values;
  std::size_t at = 0;
  std::size_t answered = 0;
  do {
    const std::size_t first = at;
    std::vector<byte_vector> blocks(size);
    blocks[host] = pack_rows(a_, at, end);
    unpack_rows(comm.alltoall_bytes(blocks)[guest], numbers, values);
    top_k_neighbours guests(numbers.size(), settings_.topk);
    kernel.product(mine, values, false, [&](std::size_t i, std::size_t j, std::span<const double> s) {
      for (std::size_t c = 0; c < s.size(); ++c) {
        if (!(s[c] >= least)) continue;
        lists_.offer(begin + i, numbers[j + c], s[c]);
        guests.offer(j + c, a_.number[begin + i], s[c]);
      }
    });
    //     for each guest row: 8 neighbours  neighbours * (8 row  8 similarity)
    std::vector<byte_vector> answers(size);
    for (std::size_t g = 0; g < numbers.size(); ++g) {
      const auto list = guests.of(g);
      put_bytes(answers[guest], std::uint64_t{list.size()});
      put_bytes(answers[guest], list.data(), list.size());
    }
    const auto got = comm.alltoall_bytes(answers);
    byte_reader from(got[host]);
    std::vector<neighbour> list;
    for (answered = first; !from.empty(); ++answered) {
      from.get(list, from.get<std::uint64_t>());
      for (const auto& n : list) lists_.offer(answered, n.row, n.similarity);
    }
  } while (any_left(at < end));
}

void sim_dense::compare_ab() {
  auto comm = get_comm();
  const auto size = get_worker_size();
  const double least = least_similarity();
  dense_kernel kernel(width_);
  std::vector<std::uint64_t> numbers;
  std::vector<double> values;
  const auto visit = [&] {
    kernel.product(a_.value, values, false, [&](std::size_t i, std::size_t j, std::span<const double> s) {
      for (std::size_t c = 0; c < s.size(); ++c) {
        if (s[c] >= least) lists_.offer(i, numbers[j + c], s[c]);
      }
    });
  };
  std::size_t at = 0;
  do {
    // Sends every worker's next piece to every worker.
    const auto piece = pack_rows(b_, at, b_.number.size());
    for (const auto& block : comm.alltoall_bytes(std::vector<byte_vector>(size, piece))) {
      unpack_rows(block, numbers, values);
      visit();
    }
  } while (any_left(at < b_.number.size()));
}

/// Packs rows from `at` on, up to the size of a piece: 8 rows  rows * 8 number  rows * width * 8 value
byte_vector sim_dense::pack_rows(const matrix& from, std::size_t& at, std::size_t end) const {
  const std::size_t most = std::max<std::size_t>(1, piece_bytes / (8 * width_ + 16 * settings_.topk + 8));
  const std::uint64_t rows = std::min(most, end - std::min(at, end));
  byte_vector out;
  put_bytes(out, rows);
  put_bytes(out, from.number.data() + at, rows);
  put_bytes(out, from.value.data() + at * width_, rows * width_);
  at += rows;
  return out;
}

void sim_dense::unpack_rows(const byte_vector& bytes, std::vector<std::uint64_t>& numbers,
                            std::vector<double>& values) const {
  byte_reader from(bytes);
  const auto rows = bytes.empty() ? 0 : from.get<std::uint64_t>();
  from.get(numbers, rows);
  from.get(values, rows * width_);
}

// ---- results

void sim_dense::dump_result() {
  run_log log(*this, 1, "neighbours");
  const auto& others = settings_.input_b.empty() ? a_.ids : b_.ids;
  std::vector<neighbour_line> lines;
  neighbour_summary all;
  auto& best = all.best;
  for (std::size_t i = 0; i < lists_.rows(); ++i) {
    const auto list = lists_.of(i);
    all.sums[0] += 1;
    all.sums[1] += static_cast<std::int64_t>(list.size());
    if (list.empty()) continue;
    lines.push_back({a_.ids.text(a_.number[i]), list, &others});
    const auto number = static_cast<double>(a_.number[i]);
    if (list[0].similarity > best[0] || (list[0].similarity == best[0] && number < best[1])) {
      best = {list[0].similarity, number, static_cast<double>(list[0].row)};
    }
  }
  all.sums[2] = static_cast<std::int64_t>(lines.size());
  if (settings_.output_format == result_format::text) {
    paracel_dump_vector(lines, "result_", "\n");
  } else {
    dump_arrays();
  }
  all.log(*this, log, a_.ids, others);
  paracel_sync();
}

/// `counts`: neighbours of each row; `neighbours`: their similarities, concatenated, with the neighbours' ids.
void sim_dense::dump_arrays() {
  const auto& others = settings_.input_b.empty() ? a_.ids : b_.ids;
  std::vector<std::uint64_t> counts;
  std::vector<double> similarities;
  auto rows = id_list::empty(a_.ids.numeric());
  auto found = id_list::empty(others.numeric());
  const auto add = [](id_list& to, const id_list& from, std::uint64_t i) {
    if (from.numeric()) to.push_back(from.number(i));
    else to.push_back(from.name(i));
  };
  for (std::size_t i = 0; i < lists_.rows(); ++i) {
    counts.push_back(lists_.of(i).size());
    add(rows, a_.ids, a_.number[i]);
    for (const auto& n : lists_.of(i)) {
      similarities.push_back(n.similarity);
      add(found, others, n.row);
    }
  }
  model_writer writer(*this, settings_.input_b.empty() ? "sim_dense" : "ab_sim_dense", settings_.output_format);
  writer.add_rows("counts", std::span<const std::uint64_t>(counts), {}, &rows);
  writer.add_rows("neighbours", std::span<const double>(similarities), {}, &found);
  writer.finish();
}

}  // namespace paracel::alg
