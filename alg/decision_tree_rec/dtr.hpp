// SPDX-License-Identifier: BSD-3-Clause
//
// Interview trees for users of whom nothing is known yet. Users have factors p_u, items q_i, from any factorisation. A
// node of a tree holds a set of users and asks about one item; who would like it (p_u.q_i >= 0) goes left, who would
// not goes right. Asked is the item whose two sides are closest to their means:
//
//     least  sum over both sides of  sum_u |p_u - mean(side)|^2  =  T - |S_like|^2 / n_like - |S_hate|^2 / n_hate
//
// with T = sum_u |p_u|^2 and S the sums of the sides' factors. T is the same for every item of a node, and S_hate is
// what S_like leaves of the node, so all an item needs of a worker is its S_like and n_like.
//
// Sums are whole numbers (factors in units of a power of two), so that they are the same whoever adds what, and equal
// splits are equal to the last bit.
//
// Source: Paracel's decision_tree_rec; N. Golbandi, Y. Koren, R. Lempel, "Adaptive bootstrapping of recommender systems
// using decision trees", WSDM 2011, for the idea. What differs from Paracel's is in README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <paracel/dense_rows.hpp>
#include <paracel/id_list.hpp>
#include <paracel/paralg.hpp>
#include <paracel/schema.hpp>

#include "alg/common/run_log.hpp"

namespace paracel::alg {

/// Real numbers as multiples of 2^-bits, so small that `count` of them, none larger than `largest`, add up in 64 bits.
class fixed_point {
 public:
  fixed_point() = default;
  fixed_point(double largest, std::uint64_t count);
  [[nodiscard]] std::int64_t whole(double v) const;
  [[nodiscard]] double real(std::int64_t v) const;

 private:
  int bits_ = 0;
};

/// Of a set of users: how many they are and the sum of their factors. `sum`: k numbers.
struct dtr_role {
  std::int64_t count = 0;
  std::span<const std::int64_t> sum;
};

/// This worker's users, and what they add to the sums of items. No other worker: see decision_tree_rec for those.
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
  /// For each user of `likes`, adds 1 and its factors to the 1 + k numbers at place[u] of `sums`; `nowhere`: to none.
  void add(std::span<const std::uint64_t> likes, std::span<const std::uint32_t> place,
           std::span<std::int64_t> sums) const;
  /// Adds |p_u|^2 to norms[place[u]].
  void add_norms(std::span<const std::uint32_t> place, std::span<std::int64_t> norms) const;

 private:
  std::size_t users_ = 0;
  std::size_t k_ = 0;
  std::vector<double> factor_;       // in groups of 8 users, coordinate by coordinate; the last group filled up with 0
  std::vector<std::int64_t> whole_;  // row by row
  std::vector<std::int64_t> norm_;
};

/// |S_like|^2 / n_like + |S_hate|^2 / n_hate, which is to be great; not_allowed for an empty side or sides whose
/// numbers have a ratio of 3 or more.
double dtr_gain(const dtr_role& all, const dtr_role& likes, const fixed_point& unit);
inline constexpr double not_allowed = -1;

/// The item to ask about: the `nth` in the order of falling gain; those within `slack` of the first one of a group are
/// equal, and the smaller comes first. `used`: items that may not be asked any more. None: gains.size().
std::size_t dtr_choice(std::span<const double> gains, const std::vector<bool>& used, double slack, std::size_t nth = 0);

/// The keys of dtr's config; README.md explains them.
config_schema dtr_schema();

/// A config as a struct.
struct dtr_settings {
  explicit dtr_settings(const config& from);

  std::vector<std::string> user_fac_input;
  std::vector<std::string> item_fac_input;
  std::vector<std::string> predict_input;
  std::string model;
  std::string output;
  std::string format;
  int level;
  std::uint64_t tree_start_index;
  std::uint64_t tree_end_index;
  std::uint64_t cache_bytes;
  std::size_t recommend;
  bool debug;
};

/// A complete tree in breadth-first order, like before hate.
struct dtr_tree {
  static constexpr std::size_t no_item = std::numeric_limits<std::size_t>::max();
  static constexpr const char* no_item_text = "18446744073709551615";  // what Paracel writes for it

  std::uint64_t number = 0;
  std::vector<std::size_t> item;  ///< of each node: an index of the items in ascending order of their ids
  std::vector<double> mean;       ///< of each node: the mean of its users' factors; zeros where it has none
  double error = 0;               ///< sum over the users of |p_u - mean of the last node that has it|^2
};

class decision_tree_rec : public paralg {
 public:
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
  void split(std::span<const std::size_t> item);
  void dump();

  [[nodiscard]] std::size_t items() const noexcept { return items_.rows(); }
  [[nodiscard]] dtr_role node_sums(std::size_t place) const {
    return {sums_[place * (1 + users_.k())], std::span(sums_).subspan(place * (1 + users_.k()) + 1, users_.k())};
  }

  dtr_settings settings_;
  run_log log_;
  vector_rows items_;  // all of them, by ascending id
  dtr_users users_;
  std::uint64_t users_total_ = 0;
  fixed_point unit_;
  fixed_point norm_unit_;
  std::vector<std::uint64_t> cached_;  // who likes what, a bitmap an item, if they fit into cache_bytes
  std::vector<bool> is_cached_;
  std::vector<std::uint64_t> likes_;

  // Of the level that is being built; a node without users has no place.
  std::vector<std::uint32_t> node_of_;   // by own user: the node of this level, or nowhere
  std::vector<std::uint32_t> place_of_;  // by node
  std::vector<std::uint32_t> user_place_;
  std::vector<std::int64_t> sums_;  // by place: count and factors
  std::vector<double> slack_;       // by place
  std::vector<double> error_;       // by place: sum of |p_u - mean|^2
  std::vector<double> gains_;       // by place, then by item
  std::vector<double> root_gains_;  // the same for every tree
  int round_ = 0;

  std::vector<dtr_tree> trees_;
};

}  // namespace paracel::alg
