// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes as the definition of a table, as the rows of a request or a scan, and as numbers in fewer bits.
// Besides not crashing: accepted rows cover exactly their payload, a definition encodes to the same bytes again, and
// numbers that were rounded once are not rounded further.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "net/row_codec.hpp"
#include "net/row_values.hpp"
#include "property.hpp"

namespace {

using namespace paracel;
using namespace paracel::net;

void as_definition(std::span<const std::byte> payload) {
  table_definition d;
  if (decode(payload, d) != nullptr) return;
  require(d.width >= 1 && d.width <= most_width, "a row has elements");
  table_definition again;
  const auto bytes = encode(d);
  require(decode(bytes, again) == nullptr, "what was accepted is accepted again");
  require(again.element == d.element && again.width == d.width && again.init == d.init && again.plugin == d.plugin &&
              again.symbol == d.symbol,
          "a definition encodes to itself");
  std::vector<double> row(std::min<std::size_t>(d.width, 64));
  d.init.fill(7, std::span(row));
}

void as_rows(std::span<const std::byte> payload, std::uint32_t count, bool named, std::size_t row_bytes) {
  rows_view r;
  if (decode(payload, count, named, row_bytes, r) != nullptr) return;
  require(r.count == count, "as many rows as announced");
  require(r.values.size() == count * row_bytes, "each row has its values");
  require(row_bytes == 0 || count == 0 || r.values.data() + r.values.size() == payload.data() + payload.size(),
          "the values end the payload");
  std::uint64_t sum = 0;
  std::size_t texts = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (named) texts += r.length(i);
    else sum += r.id(i);
  }
  require(texts == r.texts.size(), "each name has its text");
  const auto front = named ? names_bytes(count, texts) : count * sizeof(std::uint64_t);
  require(front + count * row_bytes == payload.size(), "names and values are the whole payload");
  for (const char c : r.texts) sum += static_cast<unsigned char>(c);
  asm volatile("" ::"g"(sum));  // so that every byte is read
}

/// Ids as gaps: accepted ids never decrease, and encoding them again takes no more bytes and yields the same ids.
void as_gaps(std::span<const std::byte> payload, std::uint32_t count, std::size_t row_bytes) {
  rows_view r;
  std::vector<std::uint64_t> ids;
  if (decode_gaps(payload, count, row_bytes, ids, r) != nullptr) return;
  require(r.count == count && ids.size() == count && std::is_sorted(ids.begin(), ids.end()), "ids that never fall");
  require(r.values.size() == count * row_bytes, "each row has its values");
  const auto id = [&](std::size_t k) { return r.id(k); };
  const auto width = width_of_gaps(count, id);
  if (width == 0) return;
  std::vector<std::byte> again(gaps_bytes(count, width));
  write_gaps(again.data(), count, width, id);
  again.insert(again.end(), r.values.begin(), r.values.end());
  require(again.size() <= payload.size(), "the least width is chosen");
  std::vector<std::uint64_t> ids_again;
  require(decode_gaps(again, count, row_bytes, ids_again, r) == nullptr && ids_again == ids, "the ids come back");
}

/// Values of rows that are named by a list.
void as_values(std::span<const std::byte> payload, std::uint32_t count, std::size_t row_bytes) {
  rows_view r;
  if (decode_values(payload, count, row_bytes, r) != nullptr) return;
  require(r.count == count && r.values.size() == count * row_bytes, "each row has its values");
  require(r.values.size() == payload.size(), "and there is nothing else");
}

/// Rows that arrive as f16 or i8 are rows of numbers, whatever their bytes are. Sent again as f16 they are the same
/// ones; as i8, which may choose a smaller scale, they differ by half of a step of it. Rounding never leaves the
/// format.
template <class T>
void as_numbers(wire_format f, std::span<const std::byte> payload, std::size_t width) {
  const auto row_bytes = wire_bytes(f, tag_of<T>(), width);
  const auto count = payload.size() / row_bytes;
  std::vector<T> rows(count * width);
  std::vector<T> again(width);
  std::vector<std::byte> bytes(row_bytes);
  dequantise(f, tag_of<T>(), payload.data(), count, width, reinterpret_cast<std::byte*>(rows.data()));
  for (std::size_t i = 0; i < count; ++i) {
    const auto* row = rows.data() + i * width;
    const auto* raw = reinterpret_cast<const std::byte*>(row);
    quantise(f, tag_of<T>(), raw, width, bytes.data());
    dequantise(f, tag_of<T>(), bytes.data(), 1, width, reinterpret_cast<std::byte*>(again.data()));
    double greatest = 0;
    bool finite = true;
    for (std::size_t j = 0; j < width; ++j) {
      finite = finite && std::isfinite(row[j]);
      greatest = std::max(greatest, std::abs(static_cast<double>(row[j])));
    }
    if (finite) require(!beyond(f, tag_of<T>(), raw, width) || f == wire_format::i8, "f16 holds what came as f16");
    for (std::size_t j = 0; j < width; ++j) {
      if (f == wire_format::f16) {
        require(std::isnan(row[j]) ? std::isnan(again[j]) : row[j] == again[j], "a half comes back");
      } else if (!finite) {
        require(std::isnan(again[j]), "a row without a norm is one of NaN");
      } else {
        const auto off = std::abs(static_cast<double>(row[j]) - static_cast<double>(again[j]));
        require(off <= greatest / 254 * (1 + 1e-4) + 1.5e-36, "at most half a step away");
        require(std::isfinite(again[j]), "rounding makes no infinity");
      }
    }
  }
}

/// The bytes as numbers of a worker, which it rounds: no input may make what is finite infinite.
template <class T>
void as_row(wire_format f, std::span<const std::byte> payload) {
  std::vector<T> row(std::min<std::size_t>(payload.size() / sizeof(T), 1000));
  if (row.empty()) return;
  std::memcpy(row.data(), payload.data(), row.size() * sizeof(T));
  std::vector<std::byte> bytes(wire_bytes(f, tag_of<T>(), row.size()));
  std::vector<T> got(row.size());
  quantise(f, tag_of<T>(), reinterpret_cast<const std::byte*>(row.data()), row.size(), bytes.data());
  dequantise(f, tag_of<T>(), bytes.data(), 1, row.size(), reinterpret_cast<std::byte*>(got.data()));
  const bool finite = std::all_of(row.begin(), row.end(), [](T x) { return std::isfinite(x); });
  for (std::size_t j = 0; j < row.size(); ++j) {
    if (f == wire_format::f16) require(std::isfinite(row[j]) == std::isfinite(got[j]), "f16 goes number by number");
    else require(std::isfinite(got[j]) == finite, "i8 goes row by row");
    if (finite)
      require(std::abs(got[j]) <= std::abs(row[j]) * 1.001 || f == wire_format::i8 || row[j] * row[j] < 1e-8,
              "no number grows by more than a rounding");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span input(reinterpret_cast<const std::byte*>(data), size);
  const std::vector<std::byte> whole(input.begin(), input.end());  // exact size, so that reads beyond it are detected
  as_definition(whole);
  if (size < 4) return 0;
  const auto count = std::to_integer<std::uint32_t>(input[0]);
  const auto row_bytes = std::to_integer<std::size_t>(input[1]) * 4;
  const std::vector<std::byte> payload(input.begin() + 4, input.end());
  as_gaps(payload, count, row_bytes);
  as_gaps(payload, count, 0);
  for (const bool named : {false, true}) {
    as_rows(payload, count, named, row_bytes);
    as_rows(payload, count, named, 0);
    std::uint32_t wild = 0;
    std::memcpy(&wild, data, sizeof wild);
    as_rows(payload, wild, named, row_bytes);
  }
  as_values(payload, count, row_bytes);
  for (const auto f : {wire_format::f16, wire_format::i8}) {
    const auto width = std::to_integer<std::size_t>(input[1]) + 1;
    as_numbers<float>(f, payload, width);
    as_numbers<double>(f, payload, width);
    as_row<float>(f, payload);
    as_row<double>(f, payload);
  }
  return 0;
}
