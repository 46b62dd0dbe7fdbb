// SPDX-License-Identifier: BSD-3-Clause
//
// Quality of a binary classifier on samples that are distributed over the workers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/exchange.hpp>
#include <paracel/metrics.hpp>

#include "alg/common/output/model_file.hpp"
#include "alg/common/output/run_log.hpp"

namespace paracel::alg {

struct classification_quality {
  std::uint64_t rows = 0;
  double accuracy = 0;
  double auc = 0;
  double log_loss = 0;
};

/// Quality over all workers' margins, labels (-1 or +1) and weights (empty: ones); the result is on rank 0, other ranks
/// get zeros. A collective.
/// Cost: 16 bytes a row, with weights 24, to rank 0, in messages of at most 64 MB, because the AUC needs all margins in
/// one place.
inline classification_quality quality_over_workers(Comm comm, std::span<const double> margin,
                                                   std::span<const double> label, std::span<const double> weight = {}) {
  std::vector<byte_vector> out(comm.get_size());
  for (auto& block : out) put_bytes(block, std::uint64_t{0});
  put_bytes(out[0], std::uint64_t{weight.size()});
  put_bytes(out[0], margin.data(), margin.size());
  put_bytes(out[0], label.data(), label.size());
  put_bytes(out[0], weight.data(), weight.size());
  const auto in = exchange_blocks(comm, out);
  classification_quality q;
  if (comm.get_rank() != 0) return q;
  std::vector<double> margins;
  std::vector<double> labels;
  std::vector<double> weights;
  std::vector<double> part;
  for (const auto& block : in) {
    byte_reader from(block, exchange_room);
    const auto weighted = from.get<std::uint64_t>();
    const auto n = weighted > 0 ? weighted : from.size() / sizeof(double) / 2;
    for (auto* to : {&margins, &labels, &weights}) {
      from.get(part, to == &weights ? weighted : n);
      to->insert(to->end(), part.begin(), part.end());
    }
  }
  q.rows = margins.size();
  q.accuracy = accuracy(margins, labels, weights);
  q.auc = auc(margins, labels, weights);
  q.log_loss = log_loss(margins, labels, weights);
  return q;
}

/// Adds the field `test` to a manifest.
inline void add_quality(model_writer& model, const classification_quality& q) {
  json_object test;
  test.add("rows", q.rows).add("accuracy", q.accuracy).add("auc", q.auc).add("log_loss", q.log_loss);
  model.fields().raw("test", test.text());
}
inline void log_quality(run_log& log, const classification_quality& q) {
  log.result("accuracy", q.accuracy);
  log.result("auc", q.auc);
  log.result("log_loss", q.log_loss);
}

}  // namespace paracel::alg
