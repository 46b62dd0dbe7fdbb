// SPDX-License-Identifier: BSD-3-Clause
#include "net/scan_codec.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/hash.hpp"

namespace paracel::net {
namespace {

constexpr const char* wrong_size = "the payload does not have the size that its verb requires";

const char* problem_of(const scan_cursor& c) noexcept {
  // One past the last partition is where a scan has ended.
  if (c.partition > partition_count) return "the cursor names a partition that does not exist";
  if (c.position >= scan_positions) return "the cursor names a place that does not exist";
  return nullptr;
}

}  // namespace

void append(std::vector<std::byte>& payload, const scan_cursor& next) {
  put_fields(payload, next.partition, next.position);
}
void append(std::vector<std::byte>& payload, const scan_request& r) { append(payload, r.from); }
void append(std::vector<std::byte>& payload, const top_k_request& r) {
  append(payload, r.from);
  put_fields(payload, r.k);
}
void append(std::vector<std::byte>& payload, const reduce_request& r) {
  append(payload, r.from);
  put_fields(payload, r.bins, std::uint32_t{0}, r.low, r.high);
}

const char* decode(std::span<const std::byte> payload, scan_request& out) noexcept {
  if (!take_fields(payload, out.from.partition, out.from.position) || !payload.empty()) return wrong_size;
  return problem_of(out.from);
}
const char* decode(std::span<const std::byte> payload, top_k_request& out) noexcept {
  if (!take_fields(payload, out.from.partition, out.from.position, out.k) || !payload.empty()) return wrong_size;
  return problem_of(out.from);
}
const char* decode(std::span<const std::byte> payload, reduce_request& out) noexcept {
  std::uint32_t zero = 0;
  if (!take_fields(payload, out.from.partition, out.from.position, out.bins, zero, out.low, out.high) ||
      !payload.empty()) {
    return wrong_size;
  }
  if (zero != 0) return "a reserved field is not zero";
  if (out.bins > most_histogram_bins) return "a histogram can have at most 65536 bins";
  if (out.bins != 0 && !(std::isfinite(out.high - out.low) && out.low < out.high)) {
    return "the edges of a histogram must be finite, the lower one first";
  }
  return problem_of(out.from);
}

summary::summary()
    : minimum(std::numeric_limits<double>::infinity()), maximum(-std::numeric_limits<double>::infinity()) {}

void summary::add(double x) noexcept {
  const double next = sum + x;
  // For an infinity there is no error to accumulate.
  if (std::isfinite(next)) correction += std::abs(sum) >= std::abs(x) ? (sum - next) + x : (x - next) + sum;
  sum = next;
}

void summary::merge(const summary& other) {
  if (bins.empty()) bins.resize(other.bins.size());
  if (other.bins.size() != bins.size()) throw protocol_error("histograms of different sizes do not merge");
  keys += other.keys;
  numbers += other.numbers;
  skipped += other.skipped;
  add(other.sum);
  add(other.correction);
  minimum = std::fmin(minimum, other.minimum);
  maximum = std::fmax(maximum, other.maximum);
  below += other.below;
  above += other.above;
  for (std::size_t i = 0; i < bins.size(); ++i) bins[i] += other.bins[i];
}

void put_cursor(std::span<std::byte> body, const scan_cursor& next) noexcept {
  store_fields(body.data(), next.partition, next.position);
}
void append(std::vector<std::byte>& body, std::uint64_t number) { put_fields(body, number); }
void append(std::vector<std::byte>& body, const summary& s) {
  put_fields(body, s.keys, s.numbers, s.skipped, s.sum, s.correction, s.minimum, s.maximum, s.below, s.above);
  for (const auto n : s.bins) put_fields(body, n);
}

const char* decode(std::span<const std::byte> body, scan_reply& out) noexcept {
  if (!take_fields(body, out.next.partition, out.next.position)) return "the reply is too short for its cursor";
  out.rest = body;
  return problem_of(out.next);
}
const char* decode(std::span<const std::byte> body, top_k_reply& out) noexcept {
  if (!take_fields(body, out.next.partition, out.next.position, out.skipped))
    return "the reply is too short for its cursor";
  out.items = body;
  return problem_of(out.next);
}
const char* decode(std::span<const std::byte> rest, summary& out) {
  if (!take_fields(rest, out.keys, out.numbers, out.skipped, out.sum, out.correction, out.minimum, out.maximum,
                   out.below, out.above)) {
    return "the reply is too short for a summary";
  }
  if (rest.size() % sizeof(std::uint64_t) != 0 || rest.size() / sizeof(std::uint64_t) > most_histogram_bins) {
    return "the reply ends with something that is not a histogram";
  }
  out.bins.resize(rest.size() / sizeof(std::uint64_t));
  if (!rest.empty()) std::memcpy(out.bins.data(), rest.data(), rest.size());
  return nullptr;
}

}  // namespace paracel::net
