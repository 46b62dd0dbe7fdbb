// SPDX-License-Identifier: BSD-3-Clause
//
// How attractive the pages of a site must be to explain where its visitors end up. A bipartite graph has edges i -> j
// of weights w_ij; a share p_i of all visitors is at the left vertex i, and moves to j with probability
//
//     P_ij = w_ij s_j / sum_k w_ik s_k
//
// The job finds scores s > 0 for which each right vertex j receives its known share, up to a fraction epsilon:
//
//     q_j = sum_i p_i P_ij >= p_j (1 - epsilon)
//
// In a round the score of every j that receives too little becomes the root x of sum_i p_i w_ij x / (w_ij x + c_i) =
// p_j (1 - epsilon/2), where c_i is the rest of row i at the scores of the start of the round; all of them
// simultaneously.
//
// Source: R. Kumar, A. Tomkins, S. Vassilvitskii, E. Vee, "Inverting a steady-state", WSDM 2015.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <paracel/com_context.hpp>
#include <paracel/id_list.hpp>
#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>
#include <paracel/sparse.hpp>

#include "alg/common/output/entry_keys.hpp"
#include "alg/common/output/result_keys.hpp"
#include "alg/common/output/run_log.hpp"
#include "max_flow.hpp"

namespace paracel::alg {

/// The edges into a right vertex: the share of each one's left vertex, its weight, and the rest of its row.
struct steady_edges {
  std::vector<double> mass;
  std::vector<double> weight;
  std::vector<double> rest;

  void resize(std::size_t n) {
    mass.resize(n);
    weight.resize(n);
    rest.resize(n);
  }
};

/// The root x > 0 of sum mass w x / (w x + rest) = target, at least `from`, where the sum must be below the target;
/// infinity if there is none, which is when the sum of all masses does not exceed the target.
/// Accurate to about 1e-14 of x: it ends after the first step of less than 1e-7 of 1/x, because the rest is at most
/// about the square of that. Cost: two or three passes over the edges: Newton's method on 1/sum as a function of 1/x,
/// which is linear for a single edge.
double steady_root(const steady_edges& edges, double target, double from);

/// When to search for a proof that no scores exist.
enum class feasibility_check { after, before, never };

struct steady_settings {
  static constexpr auto program = "steady_state_inversion";
  static constexpr auto summary = "scores that explain where the visitors of a graph are";
  void keys(key_list& k);

  std::vector<std::string> bigraph_input;
  std::vector<std::string> distribution_input;
  std::string output;
  result_format format = result_format::text;
  feasibility_check feasibility = feasibility_check::after;
  double epsilon = 1e-4;
  int rounds = 1000;
  std::uint64_t ktop = 100;
  bool debug = false;
  entry_keys entries;
  duplicate_rule duplicates = duplicate_rule::sum;
};

class steady_state_inversion : public paralg {
 public:
  using settings_type = steady_settings;

  steady_state_inversion(Comm comm, const std::string& server_info, const steady_settings& settings);

  /// Loads, inverts and writes scores and transfer probabilities.
  /// Throws: data_error; also when no scores exist, with the vertices that prove it.
  void solve() override;

 private:
  // This worker's left vertices with their outgoing edges, or right vertices with their incoming ones.
  struct side {
    id_list ids;
    std::uint64_t first = 0;  // number of the first one
    std::uint64_t total = 0;  // vertices of all workers
    std::vector<std::uint64_t> begin{0};
    std::vector<std::uint64_t> other;  // vertices on the other side, ascending for each vertex
    std::vector<double> weight;
    std::vector<double> p;

    [[nodiscard]] std::size_t own() const noexcept { return begin.size() - 1; }
    [[nodiscard]] std::vector<std::string> names() const {
      std::vector<std::string> all;
      for (std::size_t i = 0; i < own(); ++i) all.push_back(ids.text(i));
      return all;
    }
  };

  void load();
  void find_lonely(const std::unordered_map<std::string, double>& p) const;
  void iterate();
  void measure(com_context& c, bool improve);
  void check_feasibility();
  void dump();

  steady_settings settings_;
  run_log log_;
  side left_;
  side right_;
  std::vector<double> all_p_;     // of the left vertices of all workers
  std::vector<double> all_sums_;  // of their rows: sum_k w_ik s_k
  std::vector<double> all_scores_;
  std::vector<double> received_;  // by own right vertices
  bool converged_ = false;        // no vertex receives too little
};

}  // namespace paracel::alg
