// SPDX-License-Identifier: BSD-3-Clause
#include "fm_initial.hpp"

#include <algorithm>
#include <cmath>

#include "alg/common/solvers/class_base.hpp"

namespace paracel::alg {

namespace {

constexpr double adagrad_eps = 1e-8;  // paracel_adagrad's default

}  // namespace

fm_squares::fm_squares(const sample_rows& samples, bool bias, std::size_t width)
    : width_(width), slot_(samples.columns + std::size_t{1}, none) {
  if (bias) slot_[0] = 0;
  for (std::size_t i = 0; i < samples.rows(); ++i)
    visit_entries(samples, i, [&](std::size_t j, double) { slot_[j + 1] = 0; });
  std::uint32_t slots = 0;
  for (auto& s : slot_)
    if (s != none) s = slots++;
  values_.resize(slots * width);
}

void fm_squares::add(const fm_batch& batch, std::span<const double> gradients) {
  for (std::size_t s = 0; s < batch.ids.size(); ++s) {
    double* to = values_.data() + slot_[batch.ids[s]] * width_;
    for (std::size_t f = 0; f < width_; ++f) to[f] += gradients[s * width_ + f] * gradients[s * width_ + f];
  }
}

std::vector<double> fm_squares::sum(Comm comm, std::uint64_t first, std::uint64_t last) const {
  std::vector<double> all((last - first) * width_);
  for (auto id = first; id < last; ++id) {
    if (slot_[id] == none) continue;
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(slot_[id] * width_), width_,
                all.begin() + static_cast<std::ptrdiff_t>((id - first) * width_));
  }
  comm.allreduce(all);
  return all;
}

void fm_initial::read(const model_reader& from) {
  const auto shape = from.shape("fm_row");
  if (shape.size() != 2 || shape[0] < 2 || shape[0] > UINT32_MAX || shape[1] < 1)
    throw data_error(from.path() + ": found no rows of features");
  width = shape[1];
  rounds = rounds_of(from);
  rows = from.read<double>("fm_row");
  if (from.has("fm_squares")) squares = from.read<double>("fm_squares");
  if (!squares.empty() && squares.size() != rows.size())
    throw data_error(from.path() + ": found " + std::to_string(squares.size()) + " numbers in fm_squares, want " +
                     std::to_string(rows.size()) + " as in fm_row");
}

bool fm_initial::knows(std::uint64_t id) const noexcept {
  return id < end() && std::ranges::any_of(row(id), [](double v) { return v != 0; });
}

void fm_initial::push(table<double>& to, std::span<const std::uint64_t> ids) const {
  std::vector<std::uint64_t> known;
  std::vector<double> values;
  for (const auto id : ids) {
    if (!knows(id)) continue;
    known.push_back(id);
    values.insert(values.end(), row(id).begin(), row(id).end());
  }
  if (!known.empty()) to.push(known, values);
}

void fm_initial::push_with_squares(table<double>& to, std::span<const std::uint64_t> ids, double alpha) const {
  if (squares.empty()) return push(to, ids);
  // A gradient of the root, as the first one, makes the state; its step is taken back before.
  std::vector<std::uint64_t> known;
  std::vector<double> values;
  std::vector<double> roots;
  for (const auto id : ids) {
    if (!knows(id)) continue;
    known.push_back(id);
    for (std::size_t f = 0; f < width; ++f) {
      const double root = std::sqrt(squares[id * width + f]);
      roots.push_back(root);
      values.push_back(row(id)[f] + alpha * root / (root + adagrad_eps));
    }
  }
  if (known.empty()) return;
  to.push(known, values);
  to.bupdate(known, roots);
}

void fm_initial::add_squares(std::uint64_t first, std::span<double> to) const {
  const auto begin = first * width;
  for (std::size_t i = 0; i < to.size() && begin + i < squares.size(); ++i) to[i] += squares[begin + i];
}

}  // namespace paracel::alg
