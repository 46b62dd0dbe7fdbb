// SPDX-License-Identifier: BSD-3-Clause
//
// Interview trees for new users. Users have factors p_u, items q_i, from any factorisation. A node of a tree holds a
// set of users and asks about one item; users who would like it (p_u.q_i >= 0) go left, the others right. The item
// asked is the one that minimises the variance within the two sides:
//
//     least  sum over both sides of  sum_u |p_u - mean(side)|^2  =  T - |S_like|^2 / n_like - |S_hate|^2 / n_hate
//
// with T = sum_u |p_u|^2 and S the sums of the sides' factors. T is the same for every item of a node, and S_hate is
// the node's sum minus S_like, so a worker contributes only S_like and n_like of an item.
//
// Sums are fixed-point numbers (factors in units of a power of two), so they do not depend on the order of additions,
// and equal splits are bit-identical.
//
// With `handle_file` the choice is made in the servers, as in Paracel 0.3: each worker offers the best of its part of
// the items, and a function of the plug-in keeps one.
//
// Source: Paracel's decision_tree_rec; N. Golbandi, Y. Koren, R. Lempel, "Adaptive bootstrapping of recommender systems
// using decision trees", WSDM 2011, for the idea. README.md lists the differences from Paracel's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <paracel/dense_rows.hpp>
#include <paracel/id_list.hpp>
#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>

#include "alg/common/output/entry_keys.hpp"
#include "alg/common/output/result_keys.hpp"
#include "alg/common/output/run_log.hpp"
#include "alg/common/output/server_state.hpp"

namespace paracel::alg {

/// Real numbers as multiples of 2^-bits, such that `count` of them, none larger than `largest`, can be summed in 64
/// bits.
class fixed_point {
 public:
  fixed_point() = default;
  fixed_point(double largest, std::uint64_t count);
  [[nodiscard]] std::int64_t whole(double v) const;
  [[nodiscard]] double real(std::int64_t v) const;

 private:
  int bits_ = 0;
};

/// A set of users: their number and the sum of their factors. `sum`: k numbers.
struct dtr_role {
  std::int64_t count = 0;
  std::span<const std::int64_t> sum;
};

/// This worker's users, and their contributions to the sums of items. Local; decision_tree_rec communicates.
/// Thread-safety: const-concurrent
class dtr_users {
 public:
  static constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();

  dtr_users() = default;
  /// `rows`: factors of the users, k each.
  dtr_users(std::span<const double> rows, std::size_t k, fixed_point unit, fixed_point norm_unit);

  [[nodiscard]] std::size_t size() const noexcept { return users_; }
  [[nodiscard]] std::size_t k() const noexcept { return k_; }
  /// 64-bit words of a bitmap of users.
  [[nodiscard]] std::size_t words() const noexcept { return (users_ + 63) / 64; }

  /// Bit u of `likes` becomes p_u.item >= 0, summed in the order of the coordinates. Cost: O(users k)
  void ask(std::span<const double> item, std::span<std::uint64_t> likes) const;
  /// The same for one user.
  [[nodiscard]] bool likes(std::size_t u, std::span<const double> item) const;
  /// For each user of `likes`, adds 1 and its factors to the 1 + k numbers at place[u] of `sums`; `nowhere` skips a
  /// user.
  void add(std::span<const std::uint64_t> likes, std::span<const std::uint32_t> place,
           std::span<std::int64_t> sums) const;
  /// Adds |p_u|^2 to norms[place[u]].
  void add_norms(std::span<const std::uint32_t> place, std::span<std::int64_t> norms) const;

 private:
  std::size_t users_ = 0;
  std::size_t k_ = 0;
  std::vector<double> factor_;       // in groups of 8 users, coordinate by coordinate; the last group is padded with 0
  std::vector<std::int64_t> whole_;  // row by row
  std::vector<std::int64_t> norm_;
};

/// |S_like|^2 / n_like + |S_hate|^2 / n_hate, to be maximised; not_allowed for an empty side or if one side is at least
/// three times as large as the other.
double dtr_gain(const dtr_role& all, const dtr_role& likes, const fixed_point& unit);
inline constexpr double not_allowed = -1;

struct dtr_candidate {
  std::size_t item;
  double gain;  ///< the greatest of those equal to it
};
/// Allowed items by descending gain; items within `slack` of the first one of a group are equal, and sorted by id.
/// `used`: items that may no longer be asked about.
std::vector<dtr_candidate> dtr_ranking(std::span<const double> gains, const std::vector<bool>& used, double slack);
/// The item to ask about: the `nth` of that ranking, from 0. Returns gains.size() if there is none.
std::size_t dtr_choice(std::span<const double> gains, const std::vector<bool>& used, double slack, std::size_t nth = 0);

struct dtr_settings {
  static constexpr auto program = "dtr";
  static constexpr auto summary = "decision trees that ask new users about items";
  void keys(key_list& k);
  void check(const config& from) const;

  std::vector<std::string> user_fac_input;
  std::vector<std::string> item_fac_input;
  std::vector<std::string> predict_input;
  std::string model;
  std::string handle_file;
  std::string output;
  result_format format = result_format::text;
  int level = 0;
  std::uint64_t tree_start_index = 0;
  std::uint64_t tree_end_index = 0;
  std::uint64_t cache_bytes = std::uint64_t{1} << 30U;
  std::size_t recommend = 0;
  bool debug = false;
  entry_keys entries;  ///< of predict_input
};

/// A complete tree in breadth-first order, like before hate.
struct dtr_tree {
  static constexpr std::size_t no_item = std::numeric_limits<std::size_t>::max();
  static constexpr const char* no_item_text = "18446744073709551615";  // what Paracel writes for it

  std::uint64_t number = 0;
  std::vector<std::size_t> item;  ///< of each node: an index of the items in ascending order of their ids
  std::vector<double> mean;       ///< of each node: the mean of its users' factors; zeros if it has none
  double error = 0;               ///< sum over the users of |p_u - mean of the last node that contains the user|^2

  MSGPACK_DEFINE(number, item, mean, error)
};

class decision_tree_rec : public paralg {
 public:
  using settings_type = dtr_settings;

  decision_tree_rec(Comm comm, const std::string& server_info, const dtr_settings& settings);

  /// Loads, builds every tree and writes them; or, with a model, interviews with one of its trees.
  /// Throws: data_error.
  void solve() override;

  [[nodiscard]] const std::vector<dtr_tree>& trees() const noexcept { return trees_; }

 private:
  void load();
  void load_items();
  void predict();
  void build(std::uint64_t number);
  void start_level(dtr_tree& tree, std::size_t nodes);
  void find_gains();
  [[nodiscard]] std::span<const std::uint64_t> likes_of(std::size_t item);
  [[nodiscard]] std::size_t choose(const std::vector<dtr_candidate>& ranking, double norm);
  [[nodiscard]] std::size_t choose_root(const std::vector<dtr_candidate>& ranking, double norm, std::uint64_t nth);
  [[nodiscard]] bool offers(std::size_t item) const noexcept;
  void split(std::span<const std::size_t> item);
  void dump();

  [[nodiscard]] std::size_t items() const noexcept { return items_.rows(); }
  [[nodiscard]] dtr_role node_sums(std::size_t place) const {
    return {sums_[place * (1 + users_.k())], std::span(sums_).subspan(place * (1 + users_.k()) + 1, users_.k())};
  }

  dtr_settings settings_;
  run_log log_;
  std::optional<server_fold> servers_;
  vector_rows items_;  // all items, by ascending id
  dtr_users users_;
  std::uint64_t users_total_ = 0;
  fixed_point unit_;
  fixed_point norm_unit_;
  std::vector<std::uint64_t> cached_;  // which users like each item, one bitmap an item, if they fit into cache_bytes
  std::vector<bool> is_cached_;
  std::vector<std::uint64_t> likes_;

  // The level under construction; a node without users has no place.
  std::vector<std::uint32_t> node_of_;   // by own user: the node of this level, or nowhere
  std::vector<std::uint32_t> place_of_;  // by node
  std::vector<std::uint32_t> user_place_;
  std::vector<std::int64_t> sums_;  // by place: count and factors
  std::vector<double> norm_;        // by place: sum of |p_u|^2
  std::vector<double> error_;       // by place: sum of |p_u - mean|^2
  std::vector<double> gains_;       // by place, then by item
  std::vector<double> root_gains_;  // the same for every tree
  int round_ = 0;

  std::vector<dtr_tree> trees_;
};

}  // namespace paracel::alg
