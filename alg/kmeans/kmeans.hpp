// SPDX-License-Identifier: BSD-3-Clause
//
// k-means: k centres c that minimise the inertia, the sum over all points of the squared distance to the nearest
// centre, times the point's weight (default: 1),
//
//     I(c) = sum_i w_i min_c |x_i - c|^2
//
// by Lloyd's algorithm (each centre becomes the mean of its points, until no point changes its centre) or mini-batches,
// seeded by k-means||. `cosine`: points and centres are normalised to length 1.
//
// Points stay on their workers. A round is one reduction of the centres' sums; random numbers are a function of seed
// and global row, so the number of workers affects only the last digits. With `update_file` the new centres are
// computed in the servers, as in Paracel 0.3: a plug-in function combines the contributions of the workers' points.
//
// Source: S. Lloyd, "Least squares quantization in PCM", IEEE Trans. Inf. Theory 28, 1982; B. Bahmani et al., "Scalable
// k-means++", PVLDB 5(7), 2012; D. Sculley, "Web-scale k-means clustering", WWW 2010 (mini-batches). I. Dhillon, D.
// Modha, "Concept decompositions for large sparse text data using clustering", Machine Learning 42, 2001 (cosine).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <paracel/id_list.hpp>
#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>

#include "alg/common/output/result_keys.hpp"
#include "alg/common/output/run_log.hpp"
#include "alg/common/output/server_state.hpp"
#include "alg/common/solvers/table.hpp"
#include "kmeans_points.hpp"
#include "kmeans_solver.hpp"

namespace paracel::alg {

enum class point_format { automatic, fvec, rows };
enum class point_metric { euclidean, cosine, haversine };

struct kmeans_settings {
  static constexpr auto program = "kmeans";
  static constexpr auto summary = "k-means clustering";
  void keys(key_list& k);
  void check(const config& from);

  std::vector<std::string> input;
  std::string output;
  std::string model;
  initial_model initial;
  result_format format = result_format::text;
  point_format type = point_format::automatic;
  std::string kclusters_place;
  std::string metric_place;  ///< if it is given
  std::string weight_place;
  std::size_t kclusters = 0;
  int rounds = 300;
  int n_init = 1;
  std::size_t batch_size = 0;
  double tolerance = 0;
  point_metric metric = point_metric::euclidean;
  bool debug = false;
  std::uint64_t seed = 0;
  table_settings table;
  state_plugin update;  // its functions: of the centres, of the groups

  [[nodiscard]] bool haversine() const { return metric == point_metric::haversine; }
  [[nodiscard]] bool weighted() const { return !table.samples.weight.empty() || !table.row_weights.empty(); }
  [[nodiscard]] bool unit_length() const { return metric != point_metric::euclidean; }
};

class kmeans : public paralg {
 public:
  using settings_type = kmeans_settings;

  kmeans(Comm comm, const std::string& server_info, const kmeans_settings& settings);

  /// Loads, clusters (or, with a model, only assigns) and writes the results. Throws: data_error; config_error.
  void solve() override;

 private:
  /// Reads centres, metric and fields of a model; kclusters, if given, must be theirs.
  void read_model(const std::string& path);
  void widen_centers();
  void load();
  void scale_weights(sample_rows& rows);
  [[nodiscard]] kmeans_options options(run_log& log);
  void dump_groups(const std::vector<std::uint64_t>& labels);
  void dump(kmeans_outcome best, run_log& log);

  kmeans_settings settings_;
  kmeans_points points_;
  std::vector<double> centers_;  // of a model
  std::vector<double> seen_;
  std::uint64_t steps_ = 0;
  id_list names_;  // of this worker's points, if they have any
  std::optional<server_fold> servers_;
  bool named_ = false;
  std::uint64_t total_ = 0;    // points of all workers,
  std::uint64_t counted_ = 0;  // and of those the ones with a weight above 0
  double weight_unit_ = 1;     // a power of two by which the weights of points_ are divided
};

}  // namespace paracel::alg
