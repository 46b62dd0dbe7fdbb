// SPDX-License-Identifier: BSD-3-Clause
#include "recommend.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <Eigen/Dense>

#include <paracel/exchange.hpp>
#include <paracel/text_input.hpp>
#include <paracel/text_output.hpp>

#include "alg/common/output/model_file.hpp"
#include "alg/common/output/run_log.hpp"

namespace paracel::alg {

namespace {

// Entries between two pulls of predict_pairs, and rows in a pull of recommend_items: a few MB of factors.
constexpr std::size_t pairs_at_once = 65536;
constexpr std::size_t items_at_once = 4096;
constexpr std::size_t users_at_once = 256;

std::vector<std::uint64_t> keys_between(const id_list& ids, std::size_t first, std::size_t count) {
  std::vector<std::uint64_t> keys(count);
  for (std::size_t i = 0; i < count; ++i) keys[i] = ids.key(first + i);
  return keys;
}

}  // namespace

std::vector<std::uint64_t> keys_of(const id_list& ids) { return keys_between(ids, 0, ids.size()); }

void push_rows(table<double>& to, std::span<const std::uint64_t> keys, std::span<const double> rows) {
  const std::size_t width = to.width();
  for (std::size_t first = 0; first < keys.size(); first += items_at_once) {
    const std::size_t count = std::min(items_at_once, keys.size() - first);
    to.push(keys.subspan(first, count), rows.subspan(first * width, count * width));
  }
}

rating_scale scale_of(Comm comm, std::span<const double> ratings) {
  std::vector<double> sums{0, static_cast<double>(ratings.size())};
  rating_scale s{0, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const double r : ratings) {
    sums[0] += r;
    s.least = std::min(s.least, r);
    s.most = std::max(s.most, r);
  }
  comm.allreduce(sums);
  comm.allreduce(s.least, reduce_op::min);
  comm.allreduce(s.most, reduce_op::max);
  if (sums[1] == 0) return {};
  s.mean = sums[0] / sums[1];
  return s;
}

void best_items::insert(entry e) {
  if (heap_.size() == size_) {
    std::pop_heap(heap_.begin(), heap_.end(), before);
    heap_.back() = e;
  } else {
    heap_.push_back(e);
  }
  std::push_heap(heap_.begin(), heap_.end(), before);
}

std::vector<std::pair<double, std::uint32_t>> best_items::take() {
  std::sort(heap_.begin(), heap_.end(), before);
  return std::exchange(heap_, {});
}

list_quality quality_of(std::span<const std::uint32_t> list, std::span<const std::uint32_t> relevant,
                        std::size_t unknown, std::size_t at) {
  const std::size_t wanted = relevant.size() + unknown;
  if (wanted == 0) return {};
  double gain = 0;
  double hits = 0;
  for (std::size_t p = 0; p < std::min(at, list.size()); ++p) {
    if (!std::binary_search(relevant.begin(), relevant.end(), list[p])) continue;
    gain += 1 / std::log2(2.0 + static_cast<double>(p));
    hits += 1;
  }
  double ideal = 0;
  for (std::size_t p = 0; p < std::min(at, wanted); ++p) ideal += 1 / std::log2(2.0 + static_cast<double>(p));
  return {ideal > 0 ? gain / ideal : 0, hits / static_cast<double>(wanted)};
}

pair_errors predict_pairs(factor_tables& model, const sparse_rows& pairs, const rating_scale& scale,
                          std::vector<double>* out) {
  const std::size_t width = row_width(model.k());
  if (out != nullptr) out->resize(pairs.column.size());
  pair_errors errors;
  std::vector<std::uint32_t> slot(pairs.column_ids.size(), 0xffffffffU);
  std::vector<std::uint32_t> touched;
  std::vector<double> users;
  std::vector<double> items;
  for (std::size_t first = 0; first < pairs.rows();) {
    std::size_t last = first + 1;
    while (last < pairs.rows() && pairs.begin[last + 1] - pairs.begin[first] <= pairs_at_once) ++last;
    touched.clear();
    std::vector<std::uint64_t> keys;
    for (std::size_t e = pairs.begin[first]; e < pairs.begin[last]; ++e) {
      auto& s = slot[pairs.column[e]];
      if (s != 0xffffffffU) continue;
      s = static_cast<std::uint32_t>(touched.size());
      touched.push_back(pairs.column[e]);
      keys.push_back(pairs.column_ids.key(pairs.column[e]));
    }
    users.resize((last - first) * width);
    items.resize(keys.size() * width);
    const auto user_keys = keys_between(pairs.row_ids, first, last - first);
    model.users().pull(user_keys, users);
    model.items().pull(keys, items);
    for (std::size_t i = first; i < last; ++i) {
      const double* u = users.data() + (i - first) * width;
      for (std::size_t e = pairs.begin[i]; e < pairs.begin[i + 1]; ++e) {
        const double* h = items.data() + slot[pairs.column[e]] * width;
        const double p =
            scale.clamp(scale.mean + u[bias_at] + h[bias_at] + dot(u + factors_at, h + factors_at, model.k()));
        if (out != nullptr) (*out)[e] = p;
        const double error = pairs.value[e] - p;
        ++errors.pairs;
        errors.squares += error * error;
        if (u[known_at] != 0 && h[known_at] != 0) {
          errors.squares_of_known += error * error;
        } else {
          ++errors.unknown;
        }
      }
    }
    for (const auto c : touched) slot[c] = 0xffffffffU;
    first = last;
  }
  return errors;
}

// ---- owners of users

namespace {

constexpr std::uint64_t cold_bit = std::uint64_t{1} << 63U;

void put_id(byte_vector& to, std::uint64_t id) { put_bytes(to, id); }
void put_id(byte_vector& to, const std::string& id) {
  put_bytes(to, std::uint64_t{id.size()});
  put_bytes(to, id.data(), id.size());
}
void get_id(byte_reader& from, std::uint64_t& id) { id = from.get<std::uint64_t>(); }
void get_id(byte_reader& from, std::string& id) {
  const auto n = from.get<std::uint64_t>();
  id.assign(reinterpret_cast<const char*>(from.take(n)), n);
}

/// Sends rows to the workers whose ranges contain their ids. Id: a number or a name. Rows marked `cold` are not looked
/// up.
///     a row:  8 number | 8 length  name    8 entries (highest bit: cold)    entries * (8 key of the item  8 rating)
template <class Id>
held_out_rows route(Comm comm, const std::vector<Id>& own, const std::vector<Id>& test_ids, const sparse_rows& test,
                    const std::vector<char>& cold = {}) {
  const std::size_t size = comm.get_size();
  const auto firsts = comm.allgather(own.empty() ? std::vector<Id>{} : std::vector<Id>{own.front()});
  std::vector<byte_vector> blocks(size, byte_vector(exchange_room));
  for (std::size_t i = 0; i < test.rows(); ++i) {
    std::size_t owner = 0;
    for (std::size_t w = 0; w < size; ++w) {
      if (!firsts[w].empty() && !(test_ids[i] < firsts[w].front())) owner = w;
    }
    const auto columns = test.columns_of(i);
    const auto values = test.values_of(i);
    put_id(blocks[owner], test_ids[i]);
    put_bytes(blocks[owner], columns.size() | (!cold.empty() && cold[i] != 0 ? cold_bit : 0));
    for (std::size_t e = 0; e < columns.size(); ++e) {
      put_bytes(blocks[owner], test.column_ids.key(columns[e]));
      put_bytes(blocks[owner], values[e]);
    }
  }
  held_out_rows out;
  Id id{};
  for (const auto& block : exchange_blocks(comm, blocks)) {
    for (byte_reader from(block, exchange_room); !from.empty();) {
      get_id(from, id);
      const auto found = std::lower_bound(own.begin(), own.end(), id);
      const auto head = from.get<std::uint64_t>();
      const bool known = (head & cold_bit) == 0 && found != own.end() && *found == id;
      out.row.push_back(known ? static_cast<std::uint32_t>(found - own.begin()) : held_out_rows::cold);
      for (auto left = head & ~cold_bit; left > 0; --left) {
        out.item.push_back(from.get<std::uint64_t>());
        out.value.push_back(from.get<double>());
      }
      out.begin.push_back(out.item.size());
    }
  }
  return out;
}

std::vector<std::string> names_of(const id_list& ids) {
  std::vector<std::string> names(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) names[i] = ids.text(i);
  return names;
}

}  // namespace

held_out_rows to_owners(Comm comm, const sparse_rows& training, const sparse_rows& test) {
  if (training.entries_total == 0 || test.entries_total == 0) return route<std::uint64_t>(comm, {}, {}, sparse_rows{});
  // A worker without rows cannot tell whether the ids are numbers.
  std::vector<std::int64_t> named{training.rows() > 0 && !training.row_ids.numeric() ? 1 : 0,
                                  test.rows() > 0 && !test.row_ids.numeric() ? 1 : 0};
  comm.allreduce(named, reduce_op::max);
  if (named[0] == 0 && named[1] == 0) return route(comm, training.row_ids.numbers(), test.row_ids.numbers(), test);
  if (named[0] == 0) {
    // If training has numeric ids, a name is unknown; other ids are looked up as numbers.
    std::vector<std::uint64_t> numbers(test.rows());
    std::vector<char> cold(test.rows());
    for (std::size_t i = 0; i < test.rows(); ++i) {
      const auto text = test.row_ids.text(i);
      cold[i] = !parse_id(text, numbers[i]) || std::to_string(numbers[i]) != text ? 1 : 0;
      if (cold[i] != 0) numbers[i] = 0;
    }
    return route(comm, training.row_ids.numbers(), numbers, test, cold);
  }
  return route(comm, names_of(training.row_ids), names_of(test.row_ids), test);
}

// ---- lists

recommendation recommend_items(factor_tables& model, const sparse_rows& training, const id_list& items,
                               std::span<const double> users, double mean, std::size_t top) {
  using rows_map =
      Eigen::Map<const Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0, Eigen::OuterStride<>>;
  const std::size_t width = row_width(model.k());
  const auto k = static_cast<Eigen::Index>(model.k());
  const std::size_t rows = training.rows();
  std::vector<best_items> best(rows, best_items(top));
  best_items unknown(top);
  std::vector<std::uint64_t> seen(training.begin.begin(), training.begin.end());  // next rated item of each row
  std::vector<double> block;
  Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> scores;
  for (std::size_t first = 0; first < items.size(); first += items_at_once) {
    const std::size_t count = std::min(items_at_once, items.size() - first);
    block.resize(count * width);
    model.items().pull(keys_between(items, first, count), block);
    for (std::size_t j = 0; j < count; ++j) {
      unknown.add(mean + block[j * width + bias_at], static_cast<std::uint32_t>(first + j));
    }
    const rows_map h(block.data() + factors_at, static_cast<Eigen::Index>(count), k,
                     Eigen::OuterStride<>(static_cast<Eigen::Index>(width)));
    for (std::size_t from = 0; from < rows; from += users_at_once) {
      const std::size_t some = std::min(users_at_once, rows - from);
      const rows_map w(users.data() + from * width + factors_at, static_cast<Eigen::Index>(some), k,
                       Eigen::OuterStride<>(static_cast<Eigen::Index>(width)));
      scores.noalias() = w * h.transpose();
      for (std::size_t u = from; u < from + some; ++u) {
        const double base = mean + users[u * width + bias_at];
        const double* row = scores.data() + (u - from) * count;
        auto& next = seen[u];
        const std::uint64_t end = training.begin[u + 1];
        for (std::size_t j = 0; j < count; ++j) {
          bool rated = false;
          while (next < end && training.column_number[training.column[next]] <= first + j) {
            rated = rated || training.column_number[training.column[next]] == first + j;
            ++next;
          }
          if (!rated) best[u].add(base + block[j * width + bias_at] + row[j], static_cast<std::uint32_t>(first + j));
        }
      }
    }
  }
  recommendation result;
  for (auto& b : best) result.lists.push_back(b.take());
  result.unknown_user = unknown.take();
  return result;
}

ranking_quality rank_quality(Comm comm, const recommendation& lists, const held_out_rows& test, const id_list& items,
                             std::size_t at, double relevant) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> numbers(items.size());  // key -> number
  for (std::size_t j = 0; j < items.size(); ++j) numbers[j] = {items.key(j), static_cast<std::uint32_t>(j)};
  std::sort(numbers.begin(), numbers.end());
  std::vector<double> sums(4);
  std::vector<std::uint32_t> list;
  std::vector<std::uint32_t> wanted;
  for (std::size_t i = 0; i < test.row.size(); ++i) {
    wanted.clear();
    std::size_t unknown = 0;
    for (std::size_t e = test.begin[i]; e < test.begin[i + 1]; ++e) {
      if (!(test.value[e] >= relevant)) continue;
      const auto found = std::lower_bound(numbers.begin(), numbers.end(), std::pair{test.item[e], std::uint32_t{0}});
      if (found != numbers.end() && found->first == test.item[e]) {
        wanted.push_back(found->second);
      } else {
        ++unknown;
      }
    }
    std::sort(wanted.begin(), wanted.end());
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    if (wanted.empty() && unknown == 0) continue;
    const bool cold = test.row[i] == held_out_rows::cold;
    list.clear();
    for (const auto& [score, item] : cold ? lists.unknown_user : lists.lists[test.row[i]]) list.push_back(item);
    const auto q = quality_of(list, wanted, unknown, at);
    sums[0] += 1;
    sums[1] += cold ? 1 : 0;
    sums[2] += q.ndcg;
    sums[3] += q.recall;
  }
  comm.allreduce(sums);
  const double n = std::max(sums[0], 1.0);
  return {static_cast<std::uint64_t>(sums[0]), static_cast<std::uint64_t>(sums[1]), sums[2] / n, sums[3] / n};
}

// ---- keys

void rating_limits::keys(key_list& k) {
  k("min_rating", least, "lower limit of predictions; default: the least rating of the input");
  k("max_rating", most, "upper limit of predictions; default: the greatest rating of the input");
  if (least && most && *least > *most)
    throw config_error(k.from()->place_of("min_rating") +
                       ": found a number above max_rating, want min_rating <= max_rating");
}

void recommend_settings::keys(key_list& k) {
  entries.keys(k, "user, item and rating", true);
  k.files("test_input", test_input, "held-out ratings to measure the model on");
  k.files("predict_input", predict_input, "pairs user,item to predict; further fields are ignored");
  k("model_input", model_input, "folder of an existing model, which is used instead of training");
  initial.key(k, model_input, "model_input");
  k("recommend", recommend, "items to recommend to each user; 0: none").at_least(0).at_most(1e6);
  k("ranking", ranking, "print NDCG and recall of the recommended lists on test_input");
  k("ranking_at", ranking_at, "length of the lists for NDCG and recall").at_least(1).at_most(1e6);
  std::optional<double> least_relevant;
  k("relevant", least_relevant, "the least held-out rating that counts as relevant; default: all count");
  relevant = least_relevant.value_or(relevant);
  if (ranking && test_input.empty())
    throw config_error(k.from()->place_of("ranking") +
                       ": found true without test_input, want held-out ratings to rank");
  if (!model_input.empty() && (recommend > 0 || ranking))
    throw config_error(
        k.from()->place_of(recommend > 0 ? "recommend" : "ranking") +
        ": not with model_input: lists exclude what a user rated in training, which a saved model does not record");
}

entry_options rating_options(const entry_keys& keys) {
  entry_options o;
  keys.apply(o);
  o.duplicates = duplicate_rule::keep;
  return o;
}

// ---- after training

void use_model(paralg& job, run_log& log, factor_tables& model, const recommend_settings& settings,
               const rating_scale& scale, const sparse_rows* training, std::span<const double> users) {
  auto comm = job.get_comm();
  auto options = rating_options(settings.entries);
  sparse_rows test;
  if (!settings.test_input.empty()) {
    options.values = entry_options::value_rule::need;
    test = load_some(comm, settings.test_input, options, "rating, want user,item,rating");
    const auto errors = predict_pairs(model, test, scale);
    std::vector<double> sums{static_cast<double>(errors.pairs), static_cast<double>(errors.unknown), errors.squares};
    comm.allreduce(sums);
    log.result("test_pairs", static_cast<std::uint64_t>(sums[0]));
    log.result("test_unknown", static_cast<std::uint64_t>(sums[1]));
    log.result("test_rmse", std::sqrt(sums[2] / std::max(sums[0], 1.0)));
  }
  if (!settings.predict_input.empty()) {
    options.values = entry_options::value_rule::ignore;
    const auto pairs = load_some(comm, settings.predict_input, options, "pair, want user,item");
    std::vector<double> predictions;
    predict_pairs(model, pairs, scale, &predictions);
    std::vector<std::string> lines;
    lines.reserve(predictions.size());
    for (std::size_t i = 0; i < pairs.rows(); ++i) {
      for (std::size_t e = pairs.begin[i]; e < pairs.begin[i + 1]; ++e) {
        auto& line = lines.emplace_back(pairs.row_ids.text(i) + "," + pairs.column_ids.text(pairs.column[e]) + ",");
        append_text(line, predictions[e]);
      }
    }
    job.paracel_dump_vector(lines, "pred_v_", "\n");
  }
  if (training == nullptr || (settings.recommend == 0 && !settings.ranking)) return;
  const auto items = all_column_ids(comm, *training);
  const auto top = std::max(settings.recommend, settings.ranking ? settings.ranking_at : 0);
  const auto lists = recommend_items(model, *training, items, users, scale.mean, top);
  if (settings.ranking) {
    const auto q =
        rank_quality(comm, lists, to_owners(comm, *training, test), items, settings.ranking_at, settings.relevant);
    log.result("ranked_users", q.users);
    log.result("ranked_cold_users", q.cold_users);
    log.result(("ndcg@" + std::to_string(settings.ranking_at)).c_str(), q.ndcg);
    log.result(("recall@" + std::to_string(settings.ranking_at)).c_str(), q.recall);
  }
  if (settings.recommend == 0) return;
  const auto line_of = [&](const std::string& who, const std::vector<std::pair<double, std::uint32_t>>& list) {
    std::string line = who + '\t';
    for (std::size_t p = 0; p < std::min(list.size(), settings.recommend); ++p) {
      if (p > 0) line += '|';
      line += items.text(list[p].second) + ':';
      append_text(line, list[p].first);
    }
    return line;
  };
  std::vector<std::string> lines;
  for (std::size_t u = 0; u < training->rows(); ++u)
    lines.push_back(line_of(training->row_ids.text(u), lists.lists[u]));
  job.paracel_dump_vector(lines, "recommend_", "\n");
  if (job.get_worker_id() == 0) {
    write_lines(job, std::vector<std::string>{line_of("", lists.unknown_user)}, "recommend_unknown_");
  }
}

// ---- files

void write_model(paralg& job, const std::string& algorithm, result_format format, std::size_t k,
                 const rating_scale& scale, std::uint64_t ratings, const model_parts& parts, std::uint64_t rounds) {
  const std::size_t width = row_width(k);
  model_writer out(job, algorithm, format);
  out.fields().add("k", static_cast<std::uint64_t>(k)).add("mean", scale.mean).add("ratings", ratings);
  if (rounds > 0) out.fields().add("rounds", rounds);
  if (std::isfinite(scale.least)) out.fields().add("min_rating", scale.least);
  if (std::isfinite(scale.most)) out.fields().add("max_rating", scale.most);
  // Writes columns [from, to) of the selected rows.
  const auto array = [&](const char* name, std::span<const double> rows, const id_list& ids, std::size_t from,
                         std::size_t to, std::vector<std::uint64_t> shape, const std::vector<std::uint8_t>* only) {
    std::vector<double> numbers;
    auto selected = id_list::empty(ids.numeric());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (only != nullptr && (*only)[i] == 0) continue;
      const auto row = rows.subspan(i * width + from, to - from);
      numbers.insert(numbers.end(), row.begin(), row.end());
      if (ids.numeric()) selected.push_back(ids.number(i));
      else selected.push_back(ids.name(i));
    }
    out.add_rows<double>(name, numbers, std::move(shape), &selected);
  };
  const auto* only = parts.only;
  array("ubias", parts.users, *parts.user_ids, bias_at, bias_at + 1, {}, only ? &only->user_bias : nullptr);
  if (k > 0) array("W", parts.users, *parts.user_ids, factors_at, width, {k}, only ? &only->user_factors : nullptr);
  array("ibias", parts.items, *parts.item_ids, bias_at, bias_at + 1, {}, only ? &only->item_bias : nullptr);
  if (k > 0) array("H", parts.items, *parts.item_ids, factors_at, width, {k}, only ? &only->item_factors : nullptr);
  out.finish();
  if (job.get_worker_id() == 0) {
    std::vector<std::string> lines(2);
    append_row(lines[0], std::string("miu"), "\t", scale.mean);
    append_row(lines[1], std::string("rating_sz"), "\t", static_cast<double>(ratings));
    write_lines(job, lines, "miu_");
  }
}

saved_model open_model(const std::string& folder, const std::string& algorithm) {
  const model_reader in(folder, algorithm);
  saved_model m;
  m.k = in.field<std::uint64_t>("k");
  if (m.k > 1000000) throw data_error(folder + ": found k " + std::to_string(m.k) + ", want at most 1000000");
  m.rounds = in.field<std::uint64_t>("rounds", 0);
  m.scale.mean = in.field<double>("mean");
  m.scale.least = in.field<double>("min_rating", m.scale.least);
  m.scale.most = in.field<double>("max_rating", m.scale.most);
  return m;
}

factor_rows read_factors(const model_reader& from, std::size_t k, const char* factors, const char* bias) {
  const std::size_t width = row_width(k);
  factor_rows out;
  out.ids = from.ids(bias);
  const auto n = out.ids.size();
  const auto b = from.read<double>(bias);
  const auto w = k > 0 ? from.read<double>(factors) : std::vector<double>{};
  if (b.size() != n || w.size() != n * k || (k > 0 && !(from.ids(factors) == out.ids))) {
    throw data_error(from.path() + ": found " + std::to_string(w.size()) + " numbers in " + factors + " and " +
                     std::to_string(b.size()) + " in " + bias + " for " + std::to_string(n) +
                     " ids, want the same rows in both");
  }
  out.rows.resize(n * width);
  for (std::size_t i = 0; i < n; ++i) {
    double* row = out.rows.data() + i * width;
    row[bias_at] = b[i];
    row[known_at] = 1;
    std::copy_n(w.begin() + static_cast<std::ptrdiff_t>(i * k), k, row + factors_at);
  }
  return out;
}

void serve_model(paralg& job, const std::string& folder, const std::string& algorithm, factor_tables& model) {
  if (job.get_worker_id() == 0) {
    const model_reader in(folder, algorithm);
    const auto users = read_factors(in, model.k(), "W", "ubias");
    push_rows(model.users(), keys_of(users.ids), users.rows);
    const auto items = read_factors(in, model.k(), "H", "ibias");
    push_rows(model.items(), keys_of(items.ids), items.rows);
  }
  job.paracel_sync();
}

}  // namespace paracel::alg
