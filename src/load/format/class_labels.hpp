// SPDX-License-Identifier: BSD-3-Clause
//
// Labels that name classes, and categories: numbers (of any spelling) or text, as indices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "load/format/sample_layout.hpp"
#include "paracel/samples.hpp"

namespace paracel {

/// Thread-safety: none
class class_labels {
 public:
  /// What is wrong with a label.
  struct refused {
    std::string what;
  };
  static constexpr std::size_t most_classes = 65536;
  static constexpr std::size_t most_bytes = 1000;  ///< of one name

  /// What is numbered, for messages.
  enum subject { of_classes, of_categories };
  /// `known`: the only classes allowed; empty: any, but no more than `most`.
  explicit class_labels(const std::vector<std::string>& known, subject what = of_classes,
                        std::size_t most = most_classes);

  /// From now on `label` is another name of a known class.
  void add_name(const std::string& label, double index);

  /// The index of a label that has been seen in this spelling.
  [[nodiscard]] std::optional<double> find(std::string_view label) const {
    const auto at = spellings_.find(label);
    return at == spellings_.end() ? std::nullopt : std::optional<double>(at->second);
  }
  /// The index of any label. `as_written`: makes this spelling known to `find`. Throws: refused.
  double index(const std::string& label, bool as_written);
  /// The same; nothing for one that is not known. Throws: refused for what cannot be a label.
  std::optional<double> known_index(const std::string& label, bool as_written);
  [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }

  /// The classes: those known, in their order, else those found, ascending; `labels` get their indices in it.
  std::vector<std::string> sort(std::vector<double>& labels);

  /// The classes of all workers, ascending; `labels` change from indices into `own` to indices into these.
  static std::vector<std::string> unite(const std::vector<std::vector<std::string>>& of_workers,
                                        const std::vector<std::string>& own, std::vector<double>& labels);
  /// The canonical spelling of a label. Throws: refused for what cannot be one.
  [[nodiscard]] std::string name_of(const std::string& label) const;
  /// Why a text is no label of a libsvm line; "" if it is one.
  static std::string libsvm_problem(std::string_view label);

 private:
  struct text_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const noexcept { return std::hash<std::string_view>()(s); }
  };
  using index_of = std::unordered_map<std::string, double, text_hash, std::equal_to<>>;

  std::optional<double> find_name(const std::string& name, const std::string& label, bool as_written);
  void remember(const std::string& label, double index);

  bool closed_;  // the classes are known
  std::size_t most_;
  const char* noun_;
  std::vector<std::string> names_;  // one spelling of each
  index_of indices_;                // of the names
  index_of spellings_;
};

/// Whether samples have labels that are classes, binary ones included.
inline bool has_classes(const sample_options& options) noexcept {
  using rule = sample_options::label_rule;
  return reads_labels(options) && (options.label == rule::classes || options.label == rule::binary);
}
/// The classes that the options allow.
class_labels labels_of(const sample_options& options);
/// Binary labels: notes that a label is 0 or -1. Throws: class_labels::refused if both occur.
void note_sign(sample_rows& rows, const std::string& label);
/// Binary labels: changes indices into rows.classes to -1 and +1. Throws: data_error `where: ...` unless there are two
/// classes, or one that is 1, 0 or -1.
void to_signs(const std::string& where, const sample_options& options, sample_rows& rows);

}  // namespace paracel
