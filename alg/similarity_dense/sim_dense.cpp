// SPDX-License-Identifier: BSD-3-Clause
#include "sim_dense.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <unordered_set>
#include <utility>

#include "alg/common/npy.hpp"

namespace paracel::alg {

namespace {

// Rows are sent in pieces of about this size, and so are the lists that are returned.
constexpr std::size_t piece_bytes = std::size_t{16} << 20U;

template <class T>
void put(byte_vector& to, const T* values, std::size_t n) {
  const std::size_t at = to.size();
  to.resize(at + n * sizeof(T));
  if (n > 0) std::memcpy(to.data() + at, values, n * sizeof(T));
}
template <class T>
void take(const std::byte*& at, T* values, std::size_t n) {
  if (n > 0) std::memcpy(values, at, n * sizeof(T));
  at += n * sizeof(T);
}

void common_keys(config_schema& s) {
  s.key("output", key_type::output_folder, "folder of the results").required();
  s.add_output_files();
  s.key("simbar", key_type::number, "minimum similarity").fallback(0.0).at_least(-1).at_most(1);
  s.key("topk", key_type::integer, "maximum number of neighbours of a row").fallback(20).at_least(1);
  s.key("ids", key_type::string,
        "first: the first field is the id of the row; row: the number of the row, from 0, is its id")
      .fallback("first")
      .one_of({"first", "row"});
  s.key("label", key_type::boolean, "the last field is a label, which is ignored").fallback(false);
  s.key("format", key_type::string, "format of the results: text, or npy").fallback("text").one_of({"text", "npy"});
}

/// An id is a number if the whole text is; then it is written without leading zeros.
bool is_number(std::string_view text, std::uint64_t& value) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size() && (text.size() == 1 || text[0] != '0');
}

}  // namespace

config_schema sim_dense_schema() {
  config_schema s("sim_dense", "the most similar rows for each row of a dense matrix");
  s.key("input", key_type::files, "rows: id,feature,feature,...").required();
  common_keys(s);
  return s;
}

config_schema ab_sim_dense_schema() {
  config_schema s("ab_sim_dense", "the most similar rows of a dense matrix b for each row of a dense matrix a");
  s.key("input_a", key_type::files, "rows of a: id,feature,feature,...").required();
  s.key("input_b", key_type::files, "rows of b").required();
  common_keys(s);
  return s;
}

sim_dense_settings::sim_dense_settings(const config& from, bool ab)
    : input_a(from.get<std::vector<std::string>>(ab ? "input_a" : "input")),
      output(from.get<std::string>("output")),
      output_format(from.get<std::string>("format")),
      number_rows(from.get<std::string>("ids") == "row"),
      label(from.get<bool>("label")),
      simbar(from.get<double>("simbar")),
      topk(from.get<std::size_t>("topk")) {
  if (ab) input_b = from.get<std::vector<std::string>>("input_b");
}

bool parse_features(std::string_view line, bool with_id, bool label, std::string_view& id, std::vector<double>& to,
                    const text_failure& fail) {
  constexpr std::string_view blanks = " \r";
  constexpr std::string_view separators = ",;\t ";
  const auto first = line.find_first_not_of(blanks);
  if (first == std::string_view::npos) return false;
  line = line.substr(first, line.find_last_not_of(blanks) + 1 - first);
  if (with_id) {
    const auto end = std::min(line.find_first_of(separators), line.size());
    if (end == 0) fail(line.data(), "found no id, want id,feature,...");
    id = line.substr(0, end);
    if (end == line.size()) fail(line.data() + end, "found no feature after the id");
    line.remove_prefix(end + 1);
  }
  const std::size_t begin = to.size();
  for (;;) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const auto end = std::min(line.find_first_of(separators), line.size());
    const bool last = end == line.size();
    if (last && label) break;
    const auto field = line.substr(0, end);
    double v = 0;
    const auto [stop, problem] = std::from_chars(field.data(), field.data() + field.size(), v);
    if (problem != std::errc() || stop != field.data() + field.size() || !std::isfinite(v))
      fail(field.data(), "found \"" + std::string(field) + "\", want a finite number");
    to.push_back(v);
    if (last) break;
    line.remove_prefix(end + 1);
  }
  if (to.size() == begin) fail(line.data(), "found no feature");
  return true;
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

namespace {

/// Calls f(line) for each line of a block of lines, without line ends.
template <class F>
void each_line(std::string_view text, F&& f) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    f(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

struct enough {};

}  // namespace

/// Features of the first row; 0 when there is none, or it is malformed, which the worker that loads it reports.
std::size_t sim_dense::first_width(const std::vector<std::string>& files) {
  std::vector<double> values;
  if (get_worker_id() == 0) {
    try {
      visit_text(files, 0, 1, [&](std::string_view text, const text_failure& fail) {
        each_line(text, [&](std::string_view line) {
          std::string_view id;
          if (parse_features(line, !settings_.number_rows, settings_.label, id, values, fail)) throw enough();
        });
      });
    } catch (const enough&) {
    } catch (const data_error&) {
      values.clear();
    }
  }
  auto width = static_cast<std::int64_t>(values.size());
  get_comm().bcast(width);
  return static_cast<std::size_t>(width);
}

/// Fails the load because of the `row`th row (from 0) of a worker's part; reads it again to report its position.
void sim_dense::refuse_row(const std::vector<std::string>& files, std::size_t worker, std::size_t row,
                           const std::string& what) {
  visit_text(get_comm(), files, [&](std::string_view text, const text_failure& fail) {
    if (get_worker_id() != worker) return;
    each_line(text, [&](std::string_view line) {
      if (line.find_first_not_of(" \r") != std::string_view::npos && row-- == 0) fail(line.data(), what);
    });
  });
  throw data_error(files.front() + ": " + what);  // standard input cannot be read again
}

sim_dense::matrix sim_dense::load(const std::vector<std::string>& files) {
  auto comm = get_comm();
  matrix m;
  std::vector<std::string> names;
  std::uint64_t rows = 0;
  // All workers know the number of features before they read their parts, so that the first row that differs is found
  // by its reader. A single worker, or the one that reads standard input, reads the first row anyway.
  const bool alone = get_worker_size() == 1 || std::find(files.begin(), files.end(), "-") != files.end();
  if (width_ == 0 && !alone) width_ = first_width(files);
  visit_text(comm, files, [&](std::string_view text, const text_failure& fail) {
    each_line(text, [&](std::string_view line) {
      const auto before = m.value.size();
      std::string_view id;
      if (!parse_features(line, !settings_.number_rows, settings_.label, id, m.value, fail)) return;
      const auto found = m.value.size() - before;
      if (width_ == 0) width_ = found;
      if (found != width_)
        fail(line.data(),
             "found " + std::to_string(found) + " features, want " + std::to_string(width_) + " as before");
      ++rows;
      if (!settings_.number_rows) names.emplace_back(id);
    });
  });
  if (alone) {
    auto width = static_cast<std::int64_t>(width_);
    comm.bcast(width);
    width_ = static_cast<std::size_t>(width);
  }
  const auto counts = comm.allgather(static_cast<std::int64_t>(rows));
  const auto total = static_cast<std::uint64_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  if (total == 0) throw data_error(files.front() + ": found no row");
  if (settings_.number_rows) {
    std::uint64_t first = 0;
    for (std::size_t w = 0; w < get_worker_id(); ++w) first += static_cast<std::uint64_t>(counts[w]);
    m.number.resize(rows);
    std::iota(m.number.begin(), m.number.end(), first);
    std::vector<std::uint64_t> all(total);
    std::iota(all.begin(), all.end(), std::uint64_t{0});
    m.ids = id_list(std::move(all));
  } else {
    number_by_ids(files, names, total, m);
  }
  for (std::size_t i = 0; i < rows; ++i) to_unit_length(std::span(m.value).subspan(i * width_, width_));
  return m;
}

/// Gathers the ids of all rows on every worker: 8 bytes each, or the bytes of names; a row's number is the rank of its
/// id.
void sim_dense::number_by_ids(const std::vector<std::string>& files, const std::vector<std::string>& names,
                              std::uint64_t total, matrix& m) {
  auto comm = get_comm();
  std::string joined;
  std::vector<std::uint64_t> numbers(names.size());
  std::int64_t numeric = 1;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!is_number(names[i], numbers[i])) numeric = 0;
    joined += names[i] + '\n';
  }
  comm.allreduce(numeric, reduce_op::min);
  m.ids = id_list::empty(numeric == 1);
  const auto texts = comm.allgather(joined);
  for (const auto& text : texts) {
    each_line(text, [&](std::string_view name) {
      std::uint64_t v = 0;
      if (numeric == 1 && is_number(name, v)) m.ids.push_back(v);
      else m.ids.push_back(name);
    });
  }
  m.ids.sort_unique();
  if (m.ids.size() != total) {
    std::unordered_set<std::string_view> before;
    for (std::size_t w = 0; w < texts.size(); ++w) {
      std::size_t row = 0;
      each_line(texts[w], [&](std::string_view name) {
        if (!before.insert(name).second)
          refuse_row(files, w, row,
                     "found the id \"" + std::string(name) + "\" of an earlier row, want a different id for each row");
        ++row;
      });
    }
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    m.number.push_back(numeric == 1 ? *m.ids.find(numbers[i]) : *m.ids.find(std::string_view(names[i])));
  }
}

// ---- comparing

void sim_dense::compare() {
  dense_kernel kernel(width_);
  const double least = settings_.simbar;
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
        if (!(s[c] >= settings_.simbar)) continue;
        lists_.offer(begin + i, numbers[j + c], s[c]);
        guests.offer(j + c, a_.number[begin + i], s[c]);
      }
    });
    //     for each guest row: 8 neighbours  neighbours * (8 row  8 similarity)
    std::vector<byte_vector> answers(size);
    for (std::size_t g = 0; g < numbers.size(); ++g) {
      const auto list = guests.of(g);
      const std::uint64_t count = list.size();
      put(answers[guest], &count, 1);
      put(answers[guest], list.data(), list.size());
    }
    const auto got = comm.alltoall_bytes(answers);
    const auto* from = got[host].data();
    const auto* const stop = from + got[host].size();
    for (answered = first; from != stop; ++answered) {
      std::uint64_t count = 0;
      take(from, &count, 1);
      for (; count > 0; --count) {
        neighbour n;
        take(from, &n, 1);
        lists_.offer(answered, n.row, n.similarity);
      }
    }
  } while (any_left(at < end));
}

void sim_dense::compare_ab() {
  auto comm = get_comm();
  const auto size = get_worker_size();
  dense_kernel kernel(width_);
  std::vector<std::uint64_t> numbers;
  std::vector<double> values;
  const auto visit = [&] {
    kernel.product(a_.value, values, false, [&](std::size_t i, std::size_t j, std::span<const double> s) {
      for (std::size_t c = 0; c < s.size(); ++c) {
        if (s[c] >= settings_.simbar) lists_.offer(i, numbers[j + c], s[c]);
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
  put(out, &rows, 1);
  put(out, from.number.data() + at, rows);
  put(out, from.value.data() + at * width_, rows * width_);
  at += rows;
  return out;
}

void sim_dense::unpack_rows(const byte_vector& bytes, std::vector<std::uint64_t>& numbers,
                            std::vector<double>& values) const {
  const auto* at = bytes.data();
  std::uint64_t rows = 0;
  if (!bytes.empty()) take(at, &rows, 1);
  numbers.resize(rows);
  values.resize(rows * width_);
  take(at, numbers.data(), rows);
  take(at, values.data(), rows * width_);
}

// ---- results

void sim_dense::dump_result() {
  auto comm = get_comm();
  run_log log(*this, 1, "neighbours");
  const auto& others = settings_.input_b.empty() ? a_.ids : b_.ids;
  std::vector<neighbour_line> lines;
  std::vector<std::int64_t> sums(3);
  std::vector<double> best{-2, 0, 0};
  for (std::size_t i = 0; i < lists_.rows(); ++i) {
    const auto list = lists_.of(i);
    sums[0] += 1;
    sums[1] += static_cast<std::int64_t>(list.size());
    if (list.empty()) continue;
    lines.push_back({a_.ids.text(a_.number[i]), list, &others});
    const auto number = static_cast<double>(a_.number[i]);
    if (list[0].similarity > best[0] || (list[0].similarity == best[0] && number < best[1])) {
      best = {list[0].similarity, number, static_cast<double>(list[0].row)};
    }
  }
  sums[2] = static_cast<std::int64_t>(lines.size());
  comm.allreduce(sums);
  for (const auto& other : comm.allgather(best)) {
    if (other[0] > best[0] || (other[0] == best[0] && other[1] < best[1])) best = other;
  }
  if (settings_.output_format == "text") {
    paracel_dump_vector(lines, "result_", "\n");
  } else {
    dump_arrays();
  }
  log.round(1, static_cast<double>(sums[1]));
  log.result("rows", static_cast<std::uint64_t>(sums[0]));
  log.result("rows_with_neighbours", static_cast<std::uint64_t>(sums[2]));
  log.result("neighbours", static_cast<std::uint64_t>(sums[1]));
  if (sums[1] > 0) {
    log.result("best_pair",
               a_.ids.text(static_cast<std::size_t>(best[1])) + " " + others.text(static_cast<std::size_t>(best[2])));
    log.result("best_similarity", best[0]);
  }
  log.result("output", get_output());
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
  writer.settings().add("topk", static_cast<std::uint64_t>(settings_.topk)).add("simbar", settings_.simbar);
  writer.add_rows("counts", std::span<const std::uint64_t>(counts), {}, &rows);
  writer.add_rows("neighbours", std::span<const double>(similarities), {}, &found);
  writer.finish();
}

}  // namespace paracel::alg
