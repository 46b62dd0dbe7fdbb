// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/class_labels.hpp"

#include <algorithm>
#include <utility>

#include "core/number_parsing.hpp"
#include "paracel/error.hpp"

namespace paracel {

namespace {

/// Ascending: by value if all are numbers, else by bytes.
void sort_names(std::vector<std::string>& names) {
  std::vector<std::pair<double, std::string>> numbers;
  for (const auto& n : names) {
    double v = 0;
    if (!read_whole_number(n, v)) break;
    numbers.emplace_back(v, n);
  }
  if (numbers.size() < names.size()) {
    std::sort(names.begin(), names.end());
    return;
  }
  std::sort(numbers.begin(), numbers.end());
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = std::move(numbers[i].second);
}

/// A name in an error: with the wrong separator it may be a whole line.
std::string cut_name(const std::string& name) {
  const auto quoted = quote_for_error(name);
  return quoted.substr(1, quoted.size() - 2);
}

/// The first ten.
std::string first_names(const std::vector<std::string>& names) {
  std::string all;
  for (std::size_t i = 0; i < names.size() && i < 10; ++i) all += (i == 0 ? "" : ", ") + cut_name(names[i]);
  return all + (names.size() > 10 ? ", ..." : "");
}

/// Whether the bytes are UTF-8 without control characters: names are written to JSON and to lines of text.
bool is_text(std::string_view s) {
  for (std::size_t i = 0; i < s.size();) {
    const auto c = static_cast<unsigned char>(s[i]);
    if (c < 0x20 || c == 0x7f) return false;
    const std::size_t more = c < 0x80                ? 0
                             : c >= 0xc2 && c < 0xe0 ? 1
                             : c >= 0xe0 && c < 0xf0 ? 2
                             : c >= 0xf0 && c < 0xf5 ? 3
                                                     : 4;
    if (more == 4 || more >= s.size() - i) return false;
    for (std::size_t k = 1; k <= more; ++k) {
      if ((static_cast<unsigned char>(s[i + k]) & 0xc0U) != 0x80) return false;
    }
    // Overlong forms, surrogates, beyond U+10FFFF.
    const auto second = more > 0 ? static_cast<unsigned char>(s[i + 1]) : 0;
    if ((c == 0xe0 && second < 0xa0) || (c == 0xed && second >= 0xa0) || (c == 0xf0 && second < 0x90) ||
        (c == 0xf4 && second >= 0x90))
      return false;
    i += more + 1;
  }
  return true;
}

void move_labels(const std::vector<std::string>& from, const std::vector<std::string>& to,
                 std::vector<double>& labels) {
  std::unordered_map<std::string_view, double> place;
  for (std::size_t i = 0; i < to.size(); ++i) place.emplace(to[i], static_cast<double>(i));
  std::vector<double> moved(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) moved[i] = place.at(from[i]);
  for (auto& l : labels) l = moved[static_cast<std::size_t>(l)];
}

}  // namespace

class_labels::class_labels(const std::vector<std::string>& known, subject what, std::size_t most)
    : closed_(!known.empty()), most_(most), noun_(what == of_classes ? "label" : "category"), names_(known) {
  for (std::size_t i = 0; i < known.size(); ++i) {
    indices_.emplace(known[i], static_cast<double>(i));
    spellings_.emplace(known[i], static_cast<double>(i));
  }
}

void class_labels::add_name(const std::string& label, double index) { indices_.emplace(label, index); }

std::string class_labels::name_of(const std::string& label) const {
  const std::string noun = noun_;
  if (label.empty()) throw refused{"found an empty " + noun + (noun == "label" ? ", want a class" : ", want one")};
  std::string name = label;
  const auto number = read_number(label.data(), label.data() + label.size());
  if (number.end == label.data() + label.size()) {
    if (number.outcome == number_outcome::not_finite)
      throw refused{"found " + noun + " " + quote_for_error(label) + ", want a finite number or a text"};
    // -0 is 0.
    if (number.outcome == number_outcome::ok) name = number_text(number.value == 0 ? 0.0 : number.value);
  }
  if (name.size() > most_bytes)
    throw refused{"found a " + noun + " of " + std::to_string(name.size()) + " bytes, want at most " +
                  std::to_string(most_bytes)};
  if (!is_text(name))
    throw refused{"found " + noun + " " + quote_for_error(label) + ", want UTF-8 without control characters"};
  return name;
}

std::optional<double> class_labels::find_name(const std::string& name, const std::string& label, bool as_written) {
  const auto at = indices_.find(name);
  if (at == indices_.end()) return std::nullopt;
  if (as_written) remember(label, at->second);
  return at->second;
}

void class_labels::remember(const std::string& label, double index) {
  // Bounded: a file may have any number of spellings.
  if (spellings_.size() < 2 * most_classes) spellings_.emplace(label, index);
}

std::optional<double> class_labels::known_index(const std::string& label, bool as_written) {
  return find_name(name_of(label), label, as_written);
}

double class_labels::index(const std::string& label, bool as_written) {
  const auto name = name_of(label);
  if (const auto known = find_name(name, label, as_written)) return *known;
  if (closed_)
    throw refused{"found label " + quote_for_error(label) + ", want a class of the model: " + first_names(names_)};
  if (names_.size() == most_ && most_ == 2)
    throw refused{"found label " + quote_for_error(label) + " after " + cut_name(names_[0]) + " and " +
                  cut_name(names_[1]) + ", want two classes"};
  if (names_.size() == most_)
    throw refused{
        "found more than " + std::to_string(most_classes) +
        (std::string(noun_) == "label" ? " classes, want labels of classes" : " words in a categorical feature")};
  const auto index = static_cast<double>(names_.size());
  indices_.emplace(name, index);
  names_.push_back(name);
  if (as_written) remember(label, index);
  return index;
}

std::vector<std::string> class_labels::sort(std::vector<double>& labels) {
  if (closed_) return names_;
  auto sorted = names_;
  sort_names(sorted);
  move_labels(names_, sorted, labels);
  return sorted;
}

std::vector<std::string> class_labels::unite(const std::vector<std::vector<std::string>>& of_workers,
                                             const std::vector<std::string>& own, std::vector<double>& labels) {
  std::vector<std::string> all;
  for (const auto& w : of_workers) all.insert(all.end(), w.begin(), w.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  sort_names(all);
  move_labels(own, all, labels);
  return all;
}

class_labels labels_of(const sample_options& options) {
  const bool binary = options.label == sample_options::label_rule::binary;
  class_labels labels(options.classes, class_labels::of_classes, binary ? 2 : class_labels::most_classes);
  const auto& known = options.classes;
  // 0 and -1 both stand for the class that is not 1.
  if (binary && known.size() == 2 && known[1] == "1" && (known[0] == "0" || known[0] == "-1"))
    labels.add_name(known[0] == "0" ? "-1" : "0", 0);
  return labels;
}

void note_sign(sample_rows& rows, const std::string& label) {
  double v = 0;
  if (!read_whole_number(label, v) || (v != 0 && v != -1)) return;
  (v == 0 ? rows.has_label_zero : rows.has_label_minus_one) = true;
  if (rows.has_label_zero && rows.has_label_minus_one)
    throw class_labels::refused{"found label " + quote_for_error(label) + " in an input that has label " +
                                (v == 0 ? "-1" : "0") + " too; want 0 and 1, or -1 and +1"};
}

void to_signs(const std::string& where, const sample_options& options, sample_rows& rows) {
  if (!reads_labels(options) || options.label != sample_options::label_rule::binary) return;
  auto& classes = rows.classes;
  if (classes.size() > 2) throw data_error(where + ": found the labels " + first_names(classes) + ", want two classes");
  if (classes.size() == 1) {
    const auto only = classes.front();
    if (only != "0" && only != "1" && only != "-1")
      throw data_error(where + ": found only the label " + cut_name(only) + ", want two classes");
    classes = {only == "-1" ? "-1" : "0", "1"};
    for (auto& l : rows.label) l = only == "1" ? 1 : 0;
  }
  for (auto& l : rows.label) l = 2 * l - 1;
}

std::string class_name(const std::string& label) {
  try {
    return class_labels({}).name_of(label);
  } catch (const class_labels::refused&) {
    return label;  // which is no class
  }
}

std::string class_labels::libsvm_problem(std::string_view label) {
  if (label.find(':') == std::string_view::npos) return {};
  return "found " + quote_for_error(label) + ", want a label, and index:value after it";
}

}  // namespace paracel
