// SPDX-License-Identifier: BSD-3-Clause
//
// The categories of one CSV column as numbers: integers, or, once there is a word, indices into the words; integers are
// then words, too.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "load/format/class_labels.hpp"
#include "load/format/sample_layout.hpp"

namespace paracel {

/// Thread-safety: none
class category_words {
 public:
  /// `known`: the words of a model (none: integers), or null.
  explicit category_words(const std::vector<std::string>* known)
      : known_(known != nullptr),
        has_words_(known_ && !known->empty()),
        words_(known_ ? *known : std::vector<std::string>(), class_labels::of_categories) {}

  /// From now on values are indices.
  void begin_words() noexcept { has_words_ = true; }
  [[nodiscard]] bool has_words() const noexcept { return has_words_; }
  /// Whether the words are those of a model: any other one is a missing value.
  [[nodiscard]] bool known() const noexcept { return known_; }
  /// The category of a text that is a number from 0; an integer below 0 is a word. Throws: class_labels::refused for
  /// another number.
  [[nodiscard]] static std::optional<double> integer(std::string_view text);
  /// The index of a word, or NaN. `as_written`: makes this spelling known to `find`. Throws: class_labels::refused.
  double index(std::string_view text, bool as_written);
  /// The index of a word that has been seen in this spelling.
  [[nodiscard]] std::optional<double> find(std::string_view text) const { return words_.find(text); }
  /// The words, ascending. `place`: by old index, the new one.
  std::vector<std::string> sort(std::vector<double>& place);

 private:
  bool known_;
  bool has_words_;
  class_labels words_;
};

/// Maps the values of a column of dense rows from old indices of words to new ones. NaN stays.
void move_words(sample_rows& rows, std::uint32_t column, const std::vector<double>& place);
/// A column of integers becomes one of words. Throws: class_labels::refused for too many.
void integers_to_words(sample_rows& rows, std::uint32_t column);

}  // namespace paracel
