// SPDX-License-Identifier: BSD-3-Clause
//
// How good a binary classifier is on samples that are spread over the workers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/metrics.hpp>

namespace paracel::alg {

struct classification_quality {
  std::uint64_t rows = 0;
  double accuracy = 0;
  double auc = 0;
  double log_loss = 0;
};

/// Of all workers' margins and labels (-1 or +1); on rank 0, zeros elsewhere. A collective.
/// Cost: 16 bytes a row to rank 0, because an AUC needs all margins in one place.
inline classification_quality quality_over_workers(Comm comm, std::span<const double> margin, std::span<const double> label) {
  std::vector<std::vector<double>> out(comm.get_size());
  out[0].assign(margin.begin(), margin.end());
  out[0].insert(out[0].end(), label.begin(), label.end());
  std::vector<std::vector<double>> in;
  comm.alltoall(out, in);
  classification_quality q;
  if (comm.get_rank() != 0) return q;
  std::vector<double> margins;
  std::vector<double> labels;
  for (const auto& part : in) {
    const auto half = part.begin() + static_cast<std::ptrdiff_t>(part.size() / 2);
    margins.insert(margins.end(), part.begin(), half);
    labels.insert(labels.end(), half, part.end());
  }
  q.rows = margins.size();
  q.accuracy = accuracy(margins, labels);
  q.auc = auc(margins, labels);
  q.log_loss = log_loss(margins, labels);
  return q;
}

}  // namespace paracel::alg
