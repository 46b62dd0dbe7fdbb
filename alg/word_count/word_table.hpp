// SPDX-License-Identifier: BSD-3-Clause
//
// Counting words: a byte-class table that finds them and an open-addressing hash table that counts them.
//
// A slot holds the first eight bytes of its word, so words of up to eight bytes, most of any text, are compared as one
// number; the bytes of each distinct word are copied once, because the text is discarded after reading.
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

/// Counts by word.
/// Thread-safety: none
/// Cost: 32 bytes a slot, at most 2/3 of them in use, and the bytes of each distinct word.
class word_table {
 public:
  word_table() : slots_(1U << 12U) {}

  /// Adds `count` to that of `word`. `readable_end`: end of the readable bytes after it.
  void add(std::string_view word, const char* readable_end, std::uint64_t count = 1) {
    const auto head = head_of(word, readable_end);
    const auto h = hash(head, word);
    const auto length = static_cast<std::uint32_t>(word.size());
    for (std::size_t i = h & mask();; i = (i + 1) & mask()) {
      auto& s = slots_[i];
      if (s.count == 0) {
        s = {head, store(word), count, length, static_cast<std::uint32_t>(h >> 32U)};
        if (++used_ * 3 > slots_.size() * 2) grow();
        return;
      }
      if (s.head == head && s.length == length && (length <= 8 || same_tail(s, word))) {
        s.count += count;
        return;
      }
    }
  }
  void add(std::string_view word) { add(word, word.data() + word.size()); }

  /// The hash that for_each says.
  [[nodiscard]] static std::uint32_t hash_of(std::string_view word, const char* readable_end) noexcept {
    return static_cast<std::uint32_t>(hash(head_of(word, readable_end), word) >> 32U);
  }
  [[nodiscard]] std::size_t size() const noexcept { return used_; }
  /// The sum of all counts.
  [[nodiscard]] std::uint64_t total() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& s : slots_) sum += s.count;
    return sum;
  }

  /// Calls f(word, count, hash) for each word, in no particular order. The 32-bit hash is a function of the word alone.
  /// Lifetime: words are valid as long as the table.
  template <class F>
  void for_each(F&& f) const {
    for (const auto& s : slots_) {
      if (s.count != 0) f(std::string_view(s.bytes, s.length), s.count, s.hash);
    }
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
    all.reserve(used_);
    for_each([&](std::string_view word, std::uint64_t count, std::uint32_t) { all.push_back({word, count}); });
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.word < b.word; });
    return all;
  }

 private:
  struct slot {
    std::uint64_t head = 0;       // the first 8 bytes; shorter words are padded with 0
    const char* bytes = nullptr;  // the word
    std::uint64_t count = 0;      // 0: the slot is free
    std::uint32_t length = 0;
    std::uint32_t hash = 0;
  };

  [[nodiscard]] std::size_t mask() const noexcept { return slots_.size() - 1; }

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
  static std::uint64_t hash(std::uint64_t head, std::string_view word) noexcept {
    auto h = fold(head ^ 0xa0761d6478bd642fU, word.size() ^ 0xe7037ed1a0b428dbU);
    if (word.size() > 8) {
      std::size_t at = 8;
      for (; at + 8 <= word.size(); at += 8) h = fold(h ^ load(word.data() + at, 8), 0x8ebc6af09c88c6e3U);
      // The last eight bytes, which may overlap those already hashed.
      h = fold(h ^ load(word.data() + word.size() - 8, 8), 0x589965cc75374cc3U);
    }
    return h;
  }
  static bool same_tail(const slot& s, std::string_view word) noexcept {
    return std::memcmp(s.bytes + 8, word.data() + 8, word.size() - 8) == 0;
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
      if (s.count == 0) continue;
      std::size_t i = hash(s.head, {s.bytes, s.length}) & mask();
      while (slots_[i].count != 0) i = (i + 1) & mask();
      slots_[i] = s;
    }
  }
  static void keep_first(std::vector<counted_word>& all, std::size_t k) {
    if (all.size() <= k) return;
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(k), all.end(), before);
    all.resize(k);
  }

  static constexpr std::size_t chunk_bytes = std::size_t{1} << 18U;

  std::vector<slot> slots_;
  std::size_t used_ = 0;
  std::vector<std::unique_ptr<char[]>> chunks_;
  char* next_ = nullptr;
  std::size_t free_ = 0;
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
