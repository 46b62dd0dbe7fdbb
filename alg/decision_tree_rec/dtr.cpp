// SPDX-License-Identifier: BSD-3-Clause
#include "dtr.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <paracel/resumable_loop.hpp>
#include <paracel/text_output.hpp>

#include "alg/common/output/model_file.hpp"
#include "alg/common/output/npy.hpp"
#include "alg/common/solvers/column_shift.hpp"

namespace paracel::alg {

namespace {

// Users in a group: their products with an item are independent, so the compiler vectorises over the group.
constexpr std::size_t group = 8;

// Numbers in one message of a reduction: 8 MB are far below any message limit and enough to hide its latency.
constexpr std::size_t message_numbers = std::size_t{1} << 20U;

// Gains that differ by less than this fraction of T count as equal: a hundred thousand times the rounding error of the
// sums, and far below the differences between distinct splits.
constexpr double equal_part = 1e-10;

}  // namespace

// ---- fixed-point numbers

fixed_point::fixed_point(double largest, std::uint64_t count) {
  if (largest > 0) {
    // largest < 2^exponent, count < 2^width: the sum stays below 2^62.
    int exponent = 0;
    std::frexp(largest, &exponent);
    bits_ = 62 - static_cast<int>(std::bit_width(count)) - exponent;
  }
}
std::int64_t fixed_point::whole(double v) const { return std::llrint(std::ldexp(v, bits_)); }
double fixed_point::real(std::int64_t v) const { return std::ldexp(static_cast<double>(v), -bits_); }

// ---- users

dtr_users::dtr_users(std::span<const double> rows, std::size_t k, fixed_point unit, fixed_point norm_unit)
    : users_(rows.size() / k),
      k_(k),
      factor_((users_ + group - 1) / group * group * k),
      whole_(rows.size()),
      norm_(users_) {
  for (std::size_t u = 0; u < users_; ++u) {
    double square = 0;
    for (std::size_t f = 0; f < k; ++f) {
      const double v = rows[u * k + f];
      factor_[(u / group * k + f) * group + u % group] = v;
      whole_[u * k + f] = unit.whole(v);
      square += v * v;
    }
    norm_[u] = norm_unit.whole(square);
  }
}

void dtr_users::ask(std::span<const double> item, std::span<std::uint64_t> likes) const {
  std::fill(likes.begin(), likes.end(), 0);
  const double* p = factor_.data();
  for (std::size_t first = 0; first < users_; first += group) {
    double product[group] = {};
    for (std::size_t f = 0; f < k_; ++f, p += group) {
      const double q = item[f];
      for (std::size_t l = 0; l < group; ++l) product[l] += q * p[l];
    }
    std::uint64_t bits = 0;
    for (std::size_t l = 0; l < group; ++l) bits |= std::uint64_t{product[l] >= 0 ? 1U : 0U} << l;
    likes[first / 64] |= bits << (first % 64);
  }
  // Clears the padding of the last group.
  if (users_ % 64 != 0) likes.back() &= (std::uint64_t{1} << (users_ % 64)) - 1;
}

bool dtr_users::likes(std::size_t u, std::span<const double> item) const {
  double product = 0;
  for (std::size_t f = 0; f < k_; ++f) product += item[f] * factor_[(u / group * k_ + f) * group + u % group];
  return product >= 0;
}

void dtr_users::add(std::span<const std::uint64_t> likes, std::span<const std::uint32_t> place,
                    std::span<std::int64_t> sums) const {
  for (std::size_t word = 0; word < likes.size(); ++word) {
    for (auto bits = likes[word]; bits != 0; bits &= bits - 1) {
      const auto u = 64 * word + static_cast<std::size_t>(std::countr_zero(bits));
      if (place[u] == nowhere) continue;
      std::int64_t* to = sums.data() + place[u] * (1 + k_);
      const std::int64_t* from = whole_.data() + u * k_;
      ++*to++;
      for (std::size_t f = 0; f < k_; ++f) to[f] += from[f];
    }
  }
}

void dtr_users::add_norms(std::span<const std::uint32_t> place, std::span<std::int64_t> norms) const {
  for (std::size_t u = 0; u < users_; ++u) {
    if (place[u] != nowhere) norms[place[u]] += norm_[u];
  }
}

// ---- choosing

double dtr_gain(const dtr_role& all, const dtr_role& likes, const fixed_point& unit) {
  const auto hate_count = all.count - likes.count;
  if (likes.count == 0 || hate_count == 0) return not_allowed;
  if (likes.count >= 3 * hate_count || hate_count >= 3 * likes.count) return not_allowed;
  double like = 0;
  double hate = 0;
  for (std::size_t f = 0; f < all.sum.size(); ++f) {
    const double l = unit.real(likes.sum[f]);
    const double h = unit.real(all.sum[f] - likes.sum[f]);
    like += l * l;
    hate += h * h;
  }
  return like / static_cast<double>(likes.count) + hate / static_cast<double>(hate_count);
}

std::vector<dtr_candidate> dtr_ranking(std::span<const double> gains, const std::vector<bool>& used, double slack) {
  std::vector<dtr_candidate> ranking;
  for (std::size_t i = 0; i < gains.size(); ++i) {
    if (!used[i] && gains[i] != not_allowed) ranking.push_back({i, gains[i]});
  }
  std::ranges::sort(ranking, [](const auto& a, const auto& b) { return a.gain > b.gain; });
  for (auto first = ranking.begin(); first != ranking.end();) {
    const auto gain = first->gain;
    const auto last = std::find_if(first, ranking.end(), [&](const auto& c) { return c.gain < gain - slack; });
    std::sort(first, last, [](const auto& a, const auto& b) { return a.item < b.item; });
    for (; first != last; ++first) first->gain = gain;
  }
  return ranking;
}

std::size_t dtr_choice(std::span<const double> gains, const std::vector<bool>& used, double slack, std::size_t nth) {
  const auto ranking = dtr_ranking(gains, used, slack);
  return nth < ranking.size() ? ranking[nth].item : gains.size();
}

// ---- config

void dtr_settings::keys(key_list& k) {
  k.files("user_fac_input", user_fac_input, "factors of the users: id<tab>v|v|..., or .npy with one row per user")
      .required_unless({"model"});
  k.files("item_fac_input", item_fac_input,
          "factors of the items, in the same form; with model: of the items to recommend")
      .required_unless({"model"});
  model_key(k, model, "folder of existing trees: interview users with tree tree_start_index");
  k.files("predict_input", predict_input,
          "with model: user,item,answer; a number of at least 0 means that the user likes the item");
  entries.keys(k, "user, item and answer of predict_input", true);
  k("recommend", recommend, "with model: items to recommend to each user; 0: none").at_least(0).at_most(1e6);
  output_keys(k, output);
  k("level", level, "levels of a tree").required_unless({"model"}).at_least(1).at_most(20);
  k("tree_start_index", tree_start_index,
    "first tree to build; tree n asks about the n-th best item at its root, counted from 0")
      .at_least(0)
      .at_most(1000000);
  k("tree_end_index", tree_end_index, "last tree to build").at_least(0).at_most(1000000);
  k.plugin("handle_file", handle_file,
           "plug-in that chooses items in the servers, by smallest_error_updater and small_errors_filter")
      .not_resumable();
  k("cache_bytes", cache_bytes, "a worker's memory for likes, one bit for each user and item; 0: recompute them")
      .at_least(0)
      .at_most(1e15);
  format_key(k, format, "format of the results: text; npy: text and npy");
  k("debug", debug, "print each level");
}

void dtr_settings::check(const config& from) const {
  if (model.empty() != predict_input.empty())
    throw config_error(from.place_of(model.empty() ? "predict_input" : "model") +
                       ": want model and predict_input together");
  if (recommend > 0 && (model.empty() || item_fac_input.empty()))
    throw config_error(from.place_of("recommend") + ": only with model and item_fac_input");
  if (!model.empty()) {
    refuse_keys(from, {"handle_file"}, "not with a model: no tree is built");
    return;
  }
  if (tree_end_index < tree_start_index) {
    throw config_error(from.place_of("tree_end_index") + ": found " + std::to_string(tree_end_index) +
                       ", want at least tree_start_index, " + std::to_string(tree_start_index));
  }
}

// ---- loading

namespace {

/// A matrix whose row numbers are the ids: every worker reads all of it, and keeps its share of the rows, or all with
/// `everywhere`.
vector_rows load_npy_rows(const Comm& comm, const std::string& path, bool everywhere) {
  const auto array = read_npy(path);
  if (array.shape.size() != 2 || array.size() == 0) {
    throw data_error(path + ": found " + std::to_string(array.shape.size()) + " dimensions and " +
                     std::to_string(array.size()) + " numbers, want a matrix with one row per user or item");
  }
  const auto all = array.as<double>();
  vector_rows rows;
  rows.columns = array.shape[1];
  rows.rows_total = array.shape[0];
  std::uint64_t last = rows.rows_total;
  if (!everywhere) {
    rows.first_row = rows.rows_total * comm.get_rank() / comm.get_size();
    last = rows.rows_total * (comm.get_rank() + 1) / comm.get_size();
  }
  for (auto i = rows.first_row; i < last; ++i) rows.ids.push_back(i);
  rows.value.assign(all.begin() + static_cast<std::ptrdiff_t>(rows.first_row * rows.columns),
                    all.begin() + static_cast<std::ptrdiff_t>(last * rows.columns));
  for (const double v : rows.value) {
    if (!std::isfinite(v)) throw data_error(path + ": found a number that is not finite");
  }
  return rows;
}

vector_rows load_factors(const Comm& comm, const std::vector<std::string>& files, bool everywhere) {
  if (files.size() == 1 && files[0].ends_with(".npy")) return load_npy_rows(comm, files[0], everywhere);
  vector_options options;
  options.everywhere = everywhere;
  return load_vectors(comm, files, options);
}

/// Sorts by ascending id. Throws: data_error when an id occurs twice.
vector_rows sorted_by_id(vector_rows rows, const std::string& file) {
  const auto& ids = rows.ids;
  const auto less = [&](std::size_t a, std::size_t b) {
    return ids.numeric() ? ids.number(a) < ids.number(b) : ids.name(a) < ids.name(b);
  };
  std::vector<std::size_t> order(rows.rows());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), less);
  vector_rows out;
  out.ids = id_list::empty(ids.numeric());
  out.columns = rows.columns;
  out.rows_total = rows.rows_total;
  out.value.reserve(rows.value.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && !less(order[i - 1], order[i])) {
      throw data_error(file + ": found item " + ids.text(order[i]) + " twice, want each item once");
    }
    if (ids.numeric()) out.ids.push_back(ids.number(order[i]));
    else out.ids.push_back(ids.name(order[i]));
    const auto row = rows.row(order[i]);
    out.value.insert(out.value.end(), row.begin(), row.end());
  }
  return out;
}

}  // namespace

decision_tree_rec::decision_tree_rec(Comm comm, const std::string& server_info, const dtr_settings& settings)
    : paralg(server_info, std::move(comm), settings.output),
      settings_(settings),
      log_(*this, static_cast<int>(settings.tree_end_index - settings.tree_start_index + 1) * settings.level, "error",
           settings.debug) {
  if (!settings_.handle_file.empty()) servers_.emplace(*this, settings_.handle_file);
}

void decision_tree_rec::load_items() {
  items_ = sorted_by_id(load_factors(get_comm(), settings_.item_fac_input, true), settings_.item_fac_input.front());
}

void decision_tree_rec::load() {
  auto comm = get_comm();
  load_items();
  const auto rows = load_factors(comm, settings_.user_fac_input, false);
  if (rows.columns != items_.columns) {
    throw data_error(settings_.user_fac_input.front() + ": found " + std::to_string(rows.columns) +
                     " factors per user, want " + std::to_string(items_.columns) + " as the items have");
  }
  users_total_ = rows.rows_total;
  std::vector<double> largest(2);
  for (std::size_t u = 0; u < rows.rows(); ++u) {
    double square = 0;
    for (const double v : rows.row(u)) {
      largest[0] = std::max(largest[0], std::abs(v));
      square += v * v;
    }
    largest[1] = std::max(largest[1], square);
  }
  comm.allreduce(largest, reduce_op::max);
  if (!std::isfinite(largest[1]))
    throw data_error(settings_.user_fac_input.front() + ": found factors of a user whose sum of squares is not finite");
  check_sum_of_squares(largest[0], 1, settings_.user_fac_input.front(), "factors");
  double of_items = 0;
  for (const double v : items_.value) of_items = std::max(of_items, std::abs(v));
  constexpr double least_product = std::numeric_limits<double>::min() / std::numeric_limits<double>::epsilon();
  const double product = largest[0] * of_items;
  if (!std::isfinite(product * static_cast<double>(items_.columns)))
    throw data_error(settings_.item_fac_input.front() +
                     ": found factors whose products with those of users overflow, want smaller ones");
  if (largest[0] > 0 && of_items > 0 && product < least_product)
    throw data_error(settings_.item_fac_input.front() +
                     ": found only factors whose products with those of users underflow, want larger ones");
  unit_ = fixed_point(largest[0], users_total_);
  norm_unit_ = fixed_point(largest[1], users_total_);
  users_ = dtr_users(rows.value, rows.columns, unit_, norm_unit_);
  likes_.resize(users_.words());
  if (items() * users_.words() * 8 <= settings_.cache_bytes) {
    cached_.resize(items() * users_.words());
    is_cached_.resize(items());
  }
}

std::span<const std::uint64_t> decision_tree_rec::likes_of(std::size_t item) {
  const auto q = items_.row(item);
  if (is_cached_.empty()) {
    users_.ask(q, likes_);
    return likes_;
  }
  const auto likes = std::span(cached_).subspan(item * users_.words(), users_.words());
  if (!is_cached_[item]) users_.ask(q, likes);
  is_cached_[item] = true;
  return likes;
}

// ---- building

void decision_tree_rec::solve() {
  if (!settings_.model.empty()) {
    predict();
    return;
  }
  load();
  resumable_loop trees(*this);
  trees.keep("trees", trees_).keep("root_gains", root_gains_).keep("round", round_);
  while (trees.next(static_cast<std::int64_t>(settings_.tree_end_index - settings_.tree_start_index + 1)))
    build(settings_.tree_start_index + static_cast<std::uint64_t>(trees.iteration()));
  dump();
  log_.result("users", users_total_);
  log_.result("items", std::uint64_t{items()});
  for (const auto& t : trees_) log_.result(("error_" + std::to_string(t.number)).c_str(), t.error);
  log_.result("output", get_output());
}

/// Sums over the nodes' users of all workers: a reduction of 2 + k numbers a node.
void decision_tree_rec::start_level(dtr_tree& tree, std::size_t nodes) {
  const auto k = users_.k();
  std::vector<std::int64_t> sums(nodes * (1 + k));
  std::vector<std::int64_t> norms(nodes);
  std::vector<std::uint64_t> all_users(users_.words(), ~std::uint64_t{0});
  if (users_.size() % 64 != 0) all_users.back() = (std::uint64_t{1} << (users_.size() % 64)) - 1;
  users_.add(all_users, node_of_, sums);
  users_.add_norms(node_of_, norms);
  sums.insert(sums.end(), norms.begin(), norms.end());
  get_comm().allreduce(sums);

  place_of_.assign(nodes, dtr_users::nowhere);
  sums_.clear();
  norm_.clear();
  error_.clear();
  for (std::size_t j = 0; j < nodes; ++j) {
    const auto begin = sums.begin() + static_cast<std::ptrdiff_t>(j * (1 + k));
    const auto count = static_cast<double>(*begin);
    double square = 0;
    for (std::size_t f = 0; f < k; ++f) {
      const double s = unit_.real(begin[static_cast<std::ptrdiff_t>(1 + f)]);
      tree.mean.push_back(*begin == 0 ? 0 : s / count);
      if (*begin != 0) square += s * s / count;
    }
    const double norm = norm_unit_.real(sums[nodes * (1 + k) + j]);
    if (*begin == 0) continue;
    place_of_[j] = static_cast<std::uint32_t>(norm_.size());
    norm_.push_back(norm);
    error_.push_back(norm - square);
    sums_.insert(sums_.end(), begin, begin + static_cast<std::ptrdiff_t>(1 + k));
  }
  user_place_.resize(users_.size());
  for (std::size_t u = 0; u < users_.size(); ++u) {
    user_place_[u] = node_of_[u] == dtr_users::nowhere ? dtr_users::nowhere : place_of_[node_of_[u]];
  }
}

/// The gain of every item at every node that has users; items are processed in blocks of one message.
void decision_tree_rec::find_gains() {
  const auto places = norm_.size();
  const auto numbers = places * (1 + users_.k());
  gains_.resize(places * items());
  const auto block = std::max<std::size_t>(1, message_numbers / std::max<std::size_t>(1, numbers));
  std::vector<std::int64_t> sums;
  for (std::size_t first = 0; first < items() && places > 0; first += block) {
    const auto last = std::min(items(), first + block);
    sums.assign((last - first) * numbers, 0);
    for (auto i = first; i < last; ++i) {
      users_.add(likes_of(i), user_place_, std::span(sums).subspan((i - first) * numbers, numbers));
    }
    get_comm().allreduce(sums);
    for (auto i = first; i < last; ++i) {
      for (std::size_t p = 0; p < places; ++p) {
        const auto* at = sums.data() + (i - first) * numbers + p * (1 + users_.k());
        gains_[p * items() + i] = dtr_gain(node_sums(p), {at[0], {at + 1, users_.k()}}, unit_);
      }
    }
  }
}

void decision_tree_rec::build(std::uint64_t number) {
  dtr_tree tree;
  tree.number = number;
  std::vector<bool> used(items());
  node_of_.assign(users_.size(), 0);
  resumable_loop levels(*this);
  levels.keep("tree", tree).keep("used", used).keep("node_of", node_of_);
  while (levels.next(settings_.level)) {
    const auto depth = static_cast<int>(levels.iteration());
    const auto nodes = std::size_t{1} << static_cast<unsigned>(depth);
    start_level(tree, nodes);
    log_.round(++round_, std::accumulate(error_.begin(), error_.end(), tree.error),
               {{"tree", static_cast<double>(number)}, {"level", depth + 1.0}});
    if (depth == 0 && !root_gains_.empty()) {
      gains_ = root_gains_;
    } else {
      find_gains();
    }
    if (depth == 0) root_gains_ = gains_;
    // Nodes in order: no two nodes ask about the same item.
    for (std::size_t j = 0; j < nodes; ++j) {
      const auto place = place_of_[j];
      auto item = items();
      if (place != dtr_users::nowhere) {
        const auto gains = std::span(gains_).subspan(place * items(), items());
        const auto slack = equal_part * norm_[place];
        if (!servers_) item = dtr_choice(gains, used, slack, depth == 0 ? number : 0);
        else if (depth == 0) item = choose_root(dtr_ranking(gains, used, slack), norm_[place], number);
        else item = choose(dtr_ranking(gains, used, slack), norm_[place]);
        // Leaf nodes contribute their users' error.
        if (item == items() || depth + 1 == settings_.level) tree.error += error_[place];
      }
      tree.item.push_back(item == items() ? dtr_tree::no_item : item);
      if (item != items()) used[item] = true;
    }
    split(std::span(tree.item).last(nodes));
  }
  trees_.push_back(std::move(tree));
}

/// Moves the own users to the children of their nodes, or to `nowhere` if those are leaves.
void decision_tree_rec::split(std::span<const std::size_t> item) {
  for (std::size_t u = 0; u < users_.size(); ++u) {
    const auto node = node_of_[u];
    if (node == dtr_users::nowhere) continue;
    node_of_[u] = item[node] == dtr_tree::no_item ? dtr_users::nowhere
                                                  : 2 * node + (users_.likes(u, items_.row(item[node])) ? 0 : 1);
  }
}

// ---- results

void decision_tree_rec::dump() {
  if (get_worker_id() == 0) {
    std::vector<std::string> lines;
    for (const auto& t : trees_) {
      auto line = "tree_" + std::to_string(t.number) + "\t";
      for (std::size_t j = 0; j < t.item.size(); ++j) {
        if (j > 0) line += '|';
        line += t.item[j] == dtr_tree::no_item ? dtr_tree::no_item_text : items_.ids.text(t.item[j]);
      }
      lines.push_back(std::move(line));
    }
    write_lines(*this, lines, "tree_");
    for (const auto& t : trees_) {
      std::string text;
      for (std::size_t at = 0; at < t.mean.size(); at += users_.k()) {
        for (std::size_t f = 0; f < users_.k(); ++f) {
          if (f > 0) text += '|';
          append_text(text, t.mean[at + f]);
        }
        text += '\n';
      }
      write_text_file(paracel_result("average_user_factor_" + std::to_string(t.number)), text);
    }
  }
  if (settings_.format != result_format::npy) return;
  const std::uint64_t nodes = (std::uint64_t{1} << static_cast<unsigned>(settings_.level)) - 1;
  std::vector<std::uint64_t> items;
  std::vector<double> means;
  for (const auto& t : trees_) {
    for (const auto i : t.item) items.push_back(i == dtr_tree::no_item ? ~std::uint64_t{0} : items_.ids.key(i));
    means.insert(means.end(), t.mean.begin(), t.mean.end());
  }
  model_writer model(*this, "dtr", result_format::npy);
  model.add("trees", std::span<const std::uint64_t>(items), {trees_.size(), nodes});
  model.add("average_user_factors", std::span<const double>(means), {trees_.size(), nodes, users_.k()});
  model.finish();
}

}  // namespace paracel::alg
