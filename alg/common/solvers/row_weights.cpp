// SPDX-License-Identifier: BSD-3-Clause
#include "row_weights.hpp"

#include <algorithm>
#include <cstdint>

#include <paracel/error.hpp>
#include <paracel/exchange.hpp>

namespace paracel::alg {

std::vector<double> load_row_weights(Comm comm, const std::vector<std::string>& names, const sample_rows& rows) {
  if (names.empty()) return {};
  sample_options options;
  options.label = sample_options::label_rule::none;
  const auto read = load_samples(comm, names, options);
  if (!read.dense || read.columns != 1)
    throw data_error(names.front() + ": found " + std::to_string(read.columns) + " numbers per line, want one weight");
  if (read.rows_total != rows.rows_total)
    throw data_error(names.front() + ": found " + std::to_string(read.rows_total) + " weights, want one for each of " +
                     std::to_string(rows.rows_total) + " rows");
  double least = 0;
  double greatest = 0;
  for (const double v : read.value) {
    least = std::min(least, v);
    greatest = std::max(greatest, v);
  }
  comm.allreduce(least, reduce_op::min);
  comm.allreduce(greatest, reduce_op::max);
  if (least < 0 || greatest == 0)
    throw data_error(names.front() + ": found " + (least < 0 ? "a weight below 0" : "only weights that are 0") +
                     ", want weights of at least 0, and one above 0");
  // Both inputs are split at byte offsets of their own files, so a worker's weights are not those of its rows.
  const auto begins = comm.allgather(rows.first_row);
  std::vector<byte_vector> out(comm.get_size());
  for (std::size_t r = 0; r < out.size(); ++r) {
    const std::uint64_t first = begins[r];
    const std::uint64_t last = r + 1 < begins.size() ? begins[r + 1] : rows.rows_total;
    const auto from = std::max(first, read.first_row);
    const auto to = std::min<std::uint64_t>(last, read.first_row + read.rows());
    put_bytes(out[r], std::uint64_t{0});
    if (from < to) put_bytes(out[r], read.value.data() + (from - read.first_row), static_cast<std::size_t>(to - from));
  }
  std::vector<double> weights;
  weights.reserve(rows.rows());
  std::vector<double> part;
  for (const auto& block : exchange_blocks(comm, out)) {
    byte_reader in(block, exchange_room);
    in.get(part, in.size() / sizeof(double));
    weights.insert(weights.end(), part.begin(), part.end());
  }
  return weights;
}

}  // namespace paracel::alg
