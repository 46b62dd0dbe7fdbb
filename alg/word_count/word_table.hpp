// SPDX-License-Identifier: BSD-3-Clause
//
// Counting words: a byte-class table that finds them and an open-addressing hash table that counts them.
//
// A slot of 16 bytes holds the first eight bytes of its word and its count, so words of up to eight bytes, most of any
// text, are compared as one number and need no other memory. The bytes of each longer distinct word are copied once,
// because the text is discarded after reading. The table consists of 16 parts by hash, each of which grows separately:
// while one does, a sixteenth of the table exists twice.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace paracel::alg {

/// Which bytes belong to a word.
/// Thread-safety: const-concurrent
class word_bytes {
 public:
  /// Maximal runs of [-A-Za-z0-9_].
  static word_bytes paracel() {
    word_bytes b;
    for (int c = 0; c < 256; ++c) {
      b.in_[static_cast<std::size_t>(c)] =
          (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    }
    return b;
  }
  /// Maximal runs of bytes other than \t \n \v \f \r and space.
  static word_bytes space() {
    word_bytes b;
    b.in_.fill(1);
    for (const char c : {'\t', '\n', '\v', '\f', '\r', ' '}) b.in_[static_cast<unsigned char>(c)] = 0;
    return b;
  }

  [[nodiscard]] bool contains(char c) const noexcept { return in_[static_cast<unsigned char>(c)] != 0; }

  /// Calls f(word) for each word of `text`, in order.
  template <class F>
  void for_each(std::string_view text, F&& f) const {
    const char* at = text.data();
    const char* const end = at + text.size();
    for (;;) {
      while (at != end && !contains(*at)) ++at;
      if (at == end) return;
      const char* const begin = at;
      do ++at;
      while (at != end && contains(*at));
      f(std::string_view(begin, static_cast<std::size_t>(at - begin)));
    }
  }

 private:
  std::array<std::uint8_t, 256> in_{};
};

/// A word and its count.
struct counted_word {
  std::string_view word;
  std::uint64_t count = 0;
};

/// Greater counts first, ties by bytes.
inline bool before(const counted_word& a, const counted_word& b) {
  return a.count != b.count ? a.count > b.count : a.word < b.word;
}

/// The key by which a table compares and places a word. Thread-safety: const-concurrent
struct word_key {
  /// `readable_end`: end of the readable bytes after it.
  word_key(std::string_view word, const char* readable_end) : word_key(word, head_of(word, readable_end)) {}
  /// `first`: its head. Words of up to 8 bytes are not read.
  word_key(std::string_view word, std::uint64_t first) : head(first), hash(hash_of(first, word)) {}
  /// The part of a word_table.
  [[nodiscard]] std::size_t part() const noexcept { return hash >> 60U; }
  /// The hash that for_each passes, a function of the word alone.
  [[nodiscard]] std::uint32_t upper() const noexcept { return static_cast<std::uint32_t>(hash >> 32U); }

  std::uint64_t head;  // the first 8 bytes; shorter words are padded with 0
  std::uint64_t hash;

 private:
  static std::uint64_t load(const char* from, std::size_t n) noexcept {
    std::uint64_t v = 0;
    std::memcpy(&v, from, n);
    return v;
  }
  static std::uint64_t head_of(std::string_view word, const char* readable_end) noexcept {
    if (word.size() >= 8) return load(word.data(), 8);
    // One load and a mask if 8 bytes are readable: a copy of unknown length is a function call.
    if (readable_end - word.data() >= 8) return load(word.data(), 8) & ((std::uint64_t{1} << (word.size() * 8)) - 1);
    return load(word.data(), word.size());
  }
  static std::uint64_t fold(std::uint64_t a, std::uint64_t b) noexcept {
    __extension__ using wide = unsigned __int128;
    const auto p = static_cast<wide>(a) * b;
    return static_cast<std::uint64_t>(p) ^ static_cast<std::uint64_t>(p >> 64U);
  }
  /// Source: the multiply-and-fold of wyhash (Wang Yi). The same on all little-endian machines.
  static std::uint64_t hash_of(std::uint64_t head, std::string_view word) noexcept {
    auto h = fold(head ^ 0xa0761d6478bd642fU, word.size() ^ 0xe7037ed1a0b428dbU);
    if (word.size() > 8) {
      std::size_t at = 8;
      for (; at + 8 <= word.size(); at += 8) h = fold(h ^ load(word.data() + at, 8), 0x8ebc6af09c88c6e3U);
      // The last eight bytes, which may overlap those already hashed.
      h = fold(h ^ load(word.data() + word.size() - 8, 8), 0x589965cc75374cc3U);
    }
    return h;
  }
};

/// A part of a word_table: counts of words by open addressing.
/// Thread-safety: none
/// Cost: 16 bytes a slot, at most 3/4 of them in use; for a word of more than 8 bytes 16 more, and the word.
class word_part {
 public:
  void add(std::string_view word, const word_key& key, std::uint64_t count) {
    const bool is_long = word.size() > most_inside;
    const auto tag = static_cast<std::uint32_t>(is_long ? word.size() + most_inside : word.size());
    for (std::size_t i = key.hash & mask();; i = (i + 1) & mask()) {
      auto& s = slots_[i];
      if (s.tag == 0) {
        s = {key.head, tag, 0};
        if (is_long) set_apart(s, store(word), count);
        else add_to(s, count);
        if (++used_ * 4 > slots_.size() * 3) grow();
        return;
      }
      if (s.head != key.head) continue;
      if (is_long) {
        if (s.tag != tag || std::memcmp(apart_[s.value].bytes + 8, word.data() + 8, word.size() - 8) != 0) continue;
        apart_[s.value].count += count;
        return;
      }
      if (s.tag == tag) return add_to(s, count);
      if (s.tag == tag + most_inside) {
        apart_[s.value].count += count;
        return;
      }
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return used_; }

  /// Calls f(word, count, hash) for the words from position `at` on, which it advances, while f returns true.
  /// Lifetime: words are valid until the next `add`.
  template <class F>
  void visit(std::size_t& at, F&& f) const {
    while (at < slots_.size()) {
      const auto& s = slots_[at++];
      if (s.tag == 0) continue;
      const auto word = word_of(s);
      if (!f(word, s.tag > most_inside ? apart_[s.value].count : s.value, word_key(word, s.head).upper())) return;
    }
  }

 private:
  static constexpr std::uint32_t most_inside = 8;  // bytes of a word that is in its slot
  struct slot {
    std::uint64_t head = 0;
    // 0: the slot is free. 1 to 8: bytes of the word, `value` is its count. Otherwise 8 more than the bytes of the
    // word, and `value` is its index in apart_: of longer words, and of shorter ones whose count needs more than 32
    // bits.
    std::uint32_t tag = 0;
    std::uint32_t value = 0;
  };
  struct word_apart {
    const char* bytes = nullptr;  // of a word that is not in its slot
    std::uint64_t count = 0;
  };

  [[nodiscard]] std::size_t mask() const noexcept { return slots_.size() - 1; }
  [[nodiscard]] std::string_view word_of(const slot& s) const noexcept {
    if (s.tag > 2 * most_inside) return {apart_[s.value].bytes, s.tag - most_inside};
    return {reinterpret_cast<const char*>(&s.head), s.tag > most_inside ? s.tag - most_inside : s.tag};
  }
  void add_to(slot& s, std::uint64_t count) {
    const auto sum = s.value + count;
    if (sum <= ~std::uint32_t{0}) {
      s.value = static_cast<std::uint32_t>(sum);
      return;
    }
    s.tag += most_inside;
    set_apart(s, nullptr, sum);
  }
  void set_apart(slot& s, const char* bytes, std::uint64_t count) {
    s.value = static_cast<std::uint32_t>(apart_.size());
    apart_.push_back({bytes, count});
  }
  const char* store(std::string_view word) {
    if (word.size() > free_) {
      // A word larger than a chunk gets its own.
      const std::size_t bytes = std::max(chunk_bytes, word.size());
      chunks_.push_back(std::make_unique_for_overwrite<char[]>(bytes));
      next_ = chunks_.back().get();
      free_ = bytes;
    }
    std::memcpy(next_, word.data(), word.size());
    const char* const at = next_;
    next_ += word.size();
    free_ -= word.size();
    return at;
  }
  void grow() {
    std::vector<slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const auto& s : old) {
      if (s.tag == 0) continue;
      std::size_t i = word_key(word_of(s), s.head).hash & mask();
      while (slots_[i].tag != 0) i = (i + 1) & mask();
      slots_[i] = s;
    }
  }

  static constexpr std::size_t chunk_bytes = std::size_t{1} << 14U;

  std::vector<slot> slots_{std::size_t{1} << 8U};
  std::size_t used_ = 0;
  std::vector<word_apart> apart_;
  std::vector<std::unique_ptr<char[]>> chunks_;
  char* next_ = nullptr;
  std::size_t free_ = 0;
};

/// Counts by word.
/// Thread-safety: none
/// Cost: that of its parts.
class word_table {
 public:
  static constexpr std::size_t parts = 16;

  /// Adds `count`, at least 1, to that of `word`. `readable_end`: end of the readable bytes after it.
  void add(std::string_view word, const char* readable_end, std::uint64_t count = 1) {
    const word_key key(word, readable_end);
    parts_[key.part()].add(word, key, count);
  }
  void add(std::string_view word) { add(word, word.data() + word.size()); }

  /// The hash that for_each passes.
  [[nodiscard]] static std::uint32_t hash_of(std::string_view word, const char* readable_end) noexcept {
    return word_key(word, readable_end).upper();
  }
  [[nodiscard]] std::size_t size() const noexcept {
    std::size_t sum = 0;
    for (const auto& p : parts_) sum += p.size();
    return sum;
  }
  /// The sum of all counts.
  [[nodiscard]] std::uint64_t total() const {
    std::uint64_t sum = 0;
    for_each([&](std::string_view, std::uint64_t count, std::uint32_t) { sum += count; });
    return sum;
  }

  /// Calls f(word, count, hash) for each word, in no particular order. The 32-bit hash is a function of the word alone.
  /// Lifetime: words are valid until the next `add` or `take_part`.
  template <class F>
  void for_each(F&& f) const {
    for (const auto& p : parts_) {
      std::size_t at = 0;
      p.visit(at, [&](std::string_view word, std::uint64_t count, std::uint32_t hash) {
        f(word, count, hash);
        return true;
      });
    }
  }

  /// Removes the words whose hashes are in [hashes_of(part).first, hashes_of(part).second], and returns them.
  word_part take_part(std::size_t part) { return std::exchange(parts_[part], word_part()); }
  [[nodiscard]] static std::pair<std::uint32_t, std::uint32_t> hashes_of(std::size_t part) noexcept {
    const auto least = static_cast<std::uint32_t>(part << 28U);
    return {least, least | ((std::uint32_t{1} << 28U) - 1)};
  }

  /// The first `k` by `before`, in that order. Cost: O(words + k log k).
  [[nodiscard]] std::vector<counted_word> top(std::size_t k) const {
    std::vector<counted_word> all;
    if (k == 0) return all;
    for_each([&](std::string_view word, std::uint64_t count, std::uint32_t) {
      all.push_back({word, count});
      // At most about twice as many as wanted are kept.
      if (all.size() >= 2 * k + 1024) keep_first(all, k);
    });
    keep_first(all, k);
    std::sort(all.begin(), all.end(), before);
    return all;
  }
  /// All words, sorted by bytes.
  [[nodiscard]] std::vector<counted_word> sorted() const {
    std::vector<counted_word> all;
    all.reserve(size());
    for_each([&](std::string_view word, std::uint64_t count, std::uint32_t) { all.push_back({word, count}); });
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.word < b.word; });
    return all;
  }

 private:
  static void keep_first(std::vector<counted_word>& all, std::size_t k) {
    if (all.size() <= k) return;
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(k), all.end(), before);
    all.resize(k);
  }

  std::array<word_part, parts> parts_;
};

/// Words and counts as bytes: 4 bytes length, 8 bytes count, and the word.
inline void pack_word(std::vector<std::byte>& to, std::string_view word, std::uint64_t count) {
  const auto length = static_cast<std::uint32_t>(word.size());
  const std::size_t at = to.size();
  to.resize(at + 12 + word.size());
  std::memcpy(to.data() + at, &length, 4);
  std::memcpy(to.data() + at + 4, &count, 8);
  std::memcpy(to.data() + at + 12, word.data(), word.size());
}

/// Calls f(word, count) for each packed word; the word is valid during the call.
template <class F>
void unpack_words(const std::vector<std::byte>& from, F&& f) {
  for (std::size_t at = 0; at + 12 <= from.size();) {
    std::uint32_t length = 0;
    std::uint64_t count = 0;
    std::memcpy(&length, from.data() + at, 4);
    std::memcpy(&count, from.data() + at + 4, 8);
    f(std::string_view(reinterpret_cast<const char*>(from.data()) + at + 12, length), count);
    at += 12 + length;
  }
}

}  // namespace paracel::alg
