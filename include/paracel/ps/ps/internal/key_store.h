// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ps/sarray.h"

namespace ps::internal {

/// Arrays of numbers by key, in the order in which the keys came. Requests name the same ascending keys again and
/// again, so a key is first looked for right after the one before it, and hashed only when it is not there.
/// Thread-safety: none. Cost: a comparison a key that is found so, otherwise a probe of a hash table; 12 to 24 bytes a
/// key beside its values.
template <class K, class Val>
class key_store {
 public:
  [[nodiscard]] std::size_t size() const { return keys_.size(); }

  /// Throws: dmlc::Error when a value has another length than its key's; nothing is added then.
  void add(const SArray<K>& keys, const SArray<Val>& vals, const SArray<int>& lens) {
    if (keys.empty()) return;
    const auto width = vals.size() / keys.size();
    const auto length = [&](std::size_t i) { return lens.empty() ? width : static_cast<std::size_t>(lens[i]); };
    slots_.resize(keys.size());
    const auto before = keys_.size();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto found = find(keys[i]);
      if (found < before && end_of(found) - begin_[found] != length(i)) {
        LOG(FATAL) << "key " << keys[i] << " has " << end_of(found) - begin_[found] << " values, and " << length(i)
                   << " were pushed";
      }
      slots_[i] = found;
    }
    const Val* from = vals.data();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto n = length(i);
      if (slots_[i] == none) slots_[i] = insert(keys[i], n);
      Val* to = values_.data() + begin_[slots_[i]];
      for (std::size_t j = 0; j < n; ++j) to[j] += from[j];
      from += n;
    }
  }

  /// `lens` stays empty when all values have the same length.
  void get(const SArray<K>& keys, SArray<Val>* vals, SArray<int>* lens) {
    slots_.resize(keys.size());
    std::size_t total = 0, first = 1;
    bool differ = false;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      slots_[i] = find(keys[i]);
      const auto n = slots_[i] == none ? 1 : end_of(slots_[i]) - begin_[slots_[i]];
      if (i == 0) first = n;
      differ = differ || n != first;
      total += n;
    }
    vals->resize(total);
    if (differ) lens->resize(keys.size());
    Val* to = vals->data();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto s = slots_[i];
      const auto n = s == none ? 1 : end_of(s) - begin_[s];
      if (s != none) std::copy_n(values_.data() + begin_[s], n, to);
      if (differ) (*lens)[i] = static_cast<int>(n);
      to += n;
    }
  }

  /// The first element of a key, which is inserted if it is new.
  Val& operator[](K key) {
    auto s = find(key);
    if (s == none) s = insert(key, 1);
    return values_[begin_[s]];
  }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;

  [[nodiscard]] std::size_t end_of(std::size_t slot) const {
    return slot + 1 < begin_.size() ? begin_[slot + 1] : values_.size();
  }
  static std::size_t hash(K key) {
    const auto h = static_cast<std::uint64_t>(key) * 0x9e3779b97f4a7c15U;
    return static_cast<std::size_t>(h ^ (h >> 32U));
  }
  std::uint32_t find(K key) {
    if (next_ < keys_.size() && keys_[next_] == key) return next_++;
    if (table_.empty()) return none;
    const auto mask = table_.size() - 1;
    for (auto at = hash(key) & mask; table_[at] != none; at = (at + 1) & mask) {
      if (keys_[table_[at]] != key) continue;
      next_ = table_[at] + 1;
      return table_[at];
    }
    return none;
  }
  std::uint32_t insert(K key, std::size_t length) {
    CHECK_LT(keys_.size(), std::size_t{none}) << "too many keys";
    const auto slot = static_cast<std::uint32_t>(keys_.size());
    keys_.push_back(key);
    begin_.push_back(values_.size());
    values_.resize(values_.size() + length);
    if (keys_.size() * 2 > table_.size()) {
      table_.assign(std::max<std::size_t>(table_.size() * 2, 64), none);
      for (std::uint32_t s = 0; s < keys_.size(); ++s) place(s);
    } else {
      place(slot);
    }
    next_ = slot + 1;
    return slot;
  }
  void place(std::uint32_t slot) {
    const auto mask = table_.size() - 1;
    auto at = hash(keys_[slot]) & mask;
    while (table_[at] != none) at = (at + 1) & mask;
    table_[at] = slot;
  }

  std::vector<K> keys_;
  std::vector<std::size_t> begin_;  // of the values of each
  std::vector<Val> values_;
  std::vector<std::uint32_t> table_;  // open addressing
  std::vector<std::uint32_t> slots_;  // of the keys of a request
  std::uint32_t next_ = 0;
};

}  // namespace ps::internal
