// SPDX-License-Identifier: BSD-3-Clause
#include "worker/parameters/row_residuals.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <paracel/detail/bytes.hpp>

namespace paracel {

void row_residuals::settle(std::byte* kept, std::byte* row, std::byte* to) noexcept {
  add(kept, row);
  net::quantise(format_, element_, row, width_, to);
  auto* sent = reinterpret_cast<std::byte*>(sent_.data());
  net::dequantise(format_, element_, to, 1, width_, sent);
  net::with_real(element_, [&]<class T>(T) {
    auto* k = reinterpret_cast<T*>(kept);
    const auto* wanted = reinterpret_cast<const T*>(row);
    const auto* is = reinterpret_cast<const T*>(sent);
    for (std::size_t j = 0; j < width_; ++j) {
      const auto rest = wanted[j] - is[j];
      k[j] = std::abs(rest) <= std::numeric_limits<T>::max() ? rest : T{0};
    }
  });
}

void row_residuals::add(const std::byte* kept, std::byte* row) const noexcept {
  net::with_real(element_, [&]<class T>(T) {
    const auto* k = reinterpret_cast<const T*>(kept);
    auto* numbers = reinterpret_cast<T*>(row);
    for (std::size_t j = 0; j < width_; ++j) numbers[j] += k[j];
  });
}

bool row_residuals::is_zero(const std::byte* kept) const noexcept {
  bool zero = true;
  net::with_real(element_, [&]<class T>(T) {
    const auto* k = reinterpret_cast<const T*>(kept);
    zero = std::all_of(k, k + width_, [](T x) { return x == 0; });
  });
  return zero;
}

std::vector<std::uint64_t> row_residuals::ids() const {
  std::vector<std::uint64_t> out;
  by_id_.for_each([&](std::uint64_t id, const std::byte* kept) {
    if (!is_zero(kept)) out.push_back(id);
  });
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> row_residuals::names() const {
  std::vector<std::string> out;
  by_name_.for_each([&](std::string_view name, const std::byte* kept) {
    if (!is_zero(kept)) out.emplace_back(name);
  });
  std::sort(out.begin(), out.end());
  return out;
}

//     u8 element tag | 3 zeros | u32 width | u64 ids | u64 names | ids and their rows | names, as u32 length and text,
//     and their rows
std::string row_residuals::encode() const {
  const auto by_ids = ids();
  const auto by_names = names();
  byte_vector out;
  put_fields(out, static_cast<std::uint32_t>(element_), static_cast<std::uint32_t>(width_),
             std::uint64_t{by_ids.size()}, std::uint64_t{by_names.size()});
  for (const auto id : by_ids) {
    put_fields(out, id);
    put_bytes(out, by_id_.find(net::hash_row(id), id), row_bytes());
  }
  for (const auto& name : by_names) {
    put_fields(out, static_cast<std::uint32_t>(name.size()));
    put_bytes(out, name.data(), name.size());
    put_bytes(out, by_name_.find(net::hash_row(name), name), row_bytes());
  }
  return std::string(net::text_of(out));
}

const char* row_residuals::decode(std::string_view from) {
  constexpr const char* cut_off = "it is cut off";
  auto rest = net::bytes_of(from);
  std::uint32_t element = 0;
  std::uint32_t width = 0;
  std::uint64_t ids = 0;
  std::uint64_t names = 0;
  if (!take_fields(rest, element, width, ids, names)) return cut_off;
  if (element != static_cast<std::uint32_t>(element_) || width != width_) return "its rows have another type or width";
  const auto take = [&](std::size_t bytes) {
    const auto taken = rest.first(std::min(bytes, rest.size()));
    rest = rest.subspan(taken.size());
    return taken;
  };
  residual_rows<std::uint64_t> by_id(row_bytes());
  residual_rows<std::string> by_name(row_bytes());
  for (; ids != 0; --ids) {
    std::uint64_t id = 0;
    if (!take_fields(rest, id)) return cut_off;
    const auto row = take(row_bytes());
    if (row.size() != row_bytes()) return cut_off;
    std::copy(row.begin(), row.end(), by_id.make(net::hash_row(id), id));
  }
  for (; names != 0; --names) {
    std::uint32_t length = 0;
    if (!take_fields(rest, length)) return cut_off;
    const auto name = net::text_of(take(length));
    const auto row = take(row_bytes());
    if (name.size() != length || row.size() != row_bytes()) return cut_off;
    std::copy(row.begin(), row.end(), by_name.make(net::hash_row(name), name));
  }
  if (!rest.empty()) return "there is more than its rows";
  by_id_ = std::move(by_id);
  by_name_ = std::move(by_name);
  return nullptr;
}

}  // namespace paracel
