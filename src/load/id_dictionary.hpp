// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tsl/robin_map.h>

#include "core/hash.hpp"
#include "paracel/ids.hpp"

namespace paracel {

/// Whether `text` is what std::to_string would write for an unsigned 64-bit number, and which one.
inline bool canonical_number(std::string_view text, std::uint64_t& out) noexcept {
  if (text.empty() || text.size() > 20 || (text[0] == '0' && text.size() > 1)) return false;
  std::uint64_t value = 0;
  for (const char c : text) {
    const auto digit = static_cast<std::uint64_t>(static_cast<unsigned char>(c)) - '0';
    if (digit > 9) return false;
    if (value > (~std::uint64_t{0} - digit) / 10) return false;
    value = value * 10 + digit;
  }
  out = value;
  return true;
}

/// Ids that one worker met, each under the number of those met before it.
/// Thread-safety: none
class id_dictionary {
 public:
  [[nodiscard]] bool numeric() const noexcept { return ids_.numeric(); }
  [[nodiscard]] std::size_t size() const noexcept { return ids_.size(); }
  [[nodiscard]] const id_list& ids() const noexcept { return ids_; }

  std::uint32_t index(std::uint64_t number) {
    const auto [at, added] = numbers_.try_emplace(number, static_cast<std::uint32_t>(ids_.size()));
    if (added) ids_.push_back(number);
    return at->second;
  }
  std::uint32_t index(std::string_view name) {
    const auto [at, added] = names_.try_emplace(std::string(name), static_cast<std::uint32_t>(ids_.size()));
    if (added) ids_.push_back(name);
    return at->second;
  }

  /// Every number becomes the name that was read as it.
  void make_names() {
    if (!numeric()) return;
    id_list names = id_list::empty(false);
    names_.clear();
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      names.push_back(std::string_view(ids_.text(i)));
      names_.emplace(ids_.text(i), static_cast<std::uint32_t>(i));
    }
    ids_ = std::move(names);
    numbers_.clear();
  }

 private:
  id_list ids_;
  tsl::robin_map<std::uint64_t, std::uint32_t> numbers_;
  tsl::robin_map<std::string, std::uint32_t> names_;
};

}  // namespace paracel
