// SPDX-License-Identifier: BSD-3-Clause
//
// Results for other programs: arrays, and a model's manifest that names them.
//
//     model.json    {"format": "npy", "algorithm": "kmeans", "objective": 9682.6, ...,
//                    "settings": {"kclusters": 10, ...},
//                    "arrays": {"centers": {"dtype": "<f8", "shape": [10, 64], "files": ["centers_0.npy"]},
//                               "users": {..., "files": ["users_0.npy", "users_1.npy"], "rows": [40, 38],
//                                         "ids": ["users_id_0.npy", "users_id_1.npy"]}}}
//
// With one file for all workers (paralg::set_one_output_file) names have no rank: "centers.npy", "users.npy",
// "users_id.txt". An array in several files is the concatenation of their rows. Ids of rows are numbers in .npy files
// of uint64, or names in .txt files, one a line. File names are relative to the manifest. With "format": "text" the
// files have Paracel's text form: numbers separated by |; "keyed": one row a line, preceded by its number or id and a
// tab.
//
// In Python:  m = json.load(open("model.json")); np.concatenate([np.load(f) for f in m["arrays"]["users"]["files"]])
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/error.hpp>
#include <paracel/id_list.hpp>
#include <paracel/json_parser.hpp>
#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>

#include "json_object.hpp"
#include "npy.hpp"
#include "result_keys.hpp"

namespace paracel::alg {

/// Writes a model: arrays, and finally the manifest <output>/model.json. Every worker must make the same calls.
/// Throws (add, add_rows): error when a number is not finite; then there is no manifest.
/// Thread-safety: none
class model_writer {
 public:
  model_writer(paralg& job, std::string algorithm, result_format format);

  /// Adds an array that rank 0 has, in <name>_0.npy, or <name>.npy with one file for all workers. In text form, one
  /// dimension: numbers separated by |; two: one row a line.
  template <npy_number T>
  void add(const std::string& name, std::span<const T> values, std::vector<std::uint64_t> shape) {
    if (first_) add_whole(name, npy_type_of<T>(), std::as_bytes(values), std::move(shape));
  }
  template <npy_number T>
  void add(const std::string& name, const std::vector<T>& values) {
    add(name, std::span<const T>(values), {values.size()});
  }
  /// Adds an array whose rows are distributed over the workers (concatenated in rank order), each row of shape
  /// `row_shape` (empty: one number), in <name>_<rank>.npy or <name>.npy; `ids`: ids of this worker's rows, on every
  /// worker or on none. A collective. In text form one row a line: its global number or its id, a tab, and the numbers.
  template <npy_number T>
  void add_rows(const std::string& name, std::span<const T> values, std::vector<std::uint64_t> row_shape = {},
                const id_list* ids = nullptr) {
    add_part(name, npy_type_of<T>(), std::as_bytes(values), std::move(row_shape), ids);
  }
  /// Numbers of any kind may follow: the distance of a vertex that is not reached is infinite.
  void allow_infinity() noexcept { infinity_ = true; }
  /// Additional fields of the manifest itself (objective, rows, ...), and of "settings", where they precede the keys of
  /// the config; keys that name files are left out.
  [[nodiscard]] json_object& fields() noexcept { return fields_; }
  [[nodiscard]] json_object& settings() noexcept { return settings_; }
  /// Writes the manifest once the files of all workers exist. A collective.
  void finish();

 private:
  void add_whole(const std::string& name, npy_type type, std::span<const std::byte> bytes,
                 std::vector<std::uint64_t> shape);
  void add_part(const std::string& name, npy_type type, std::span<const std::byte> bytes,
                std::vector<std::uint64_t> row_shape, const id_list* ids);

  paralg& job_;
  std::string algorithm_;
  bool infinity_ = false;
  bool text_;
  bool first_;
  json_object fields_;
  json_object settings_;
  json_object arrays_;
};

/// `model`: one file or folder, or empty. Throws: config_error when it is a list.
key_spec& model_key(key_list& k, std::string& model, const char* help);

/// What the keys say about a model that training continues from.
struct initial_model {
  /// The key initial_model; `model`: what the key `name`, which was read before, has. Throws: config_error for both.
  void key(key_list& k, const std::string& model, const char* name = "model");
  [[nodiscard]] bool given() const noexcept { return !path.empty(); }

  std::string path;  ///< folder or manifest; empty: none
};
/// What a config may leave to the initial model: throws config_error for a key that is given with another value than
/// the model has. `place`: that of the key, or empty if it is not given.
void want_as_in_model(const std::string& place, const std::string& found, const std::string& of_model);
/// A template, since a word (`const char*`) would otherwise become a bool.
template <std::same_as<bool> Bool>
void want_as_in_model(const std::string& place, Bool found, bool of_model) {
  const auto word = [](bool b) { return std::string(b ? "true" : "false"); };
  want_as_in_model(place, word(found), word(of_model));
}
/// The place of a key if it is given, otherwise "".
std::string place_if_given(const config& from, const std::string& key);

/// A model that model_writer wrote: every worker can read all of it.
/// Throws (every call): data_error that names the file and the field.
/// Thread-safety: const-concurrent
class model_reader {
 public:
  /// `path`: the manifest, or the folder that contains model.json.
  /// Throws: data_error when it is not a manifest, or one of another algorithm.
  model_reader(const std::string& path, const std::string& algorithm);

  [[nodiscard]] bool has(const std::string& array) const;
  /// The manifest.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] bool has_field(const std::string& name) const { return manifest_.has(name); }
  /// The shape of the whole array.
  [[nodiscard]] std::vector<std::uint64_t> shape(const std::string& array) const;
  /// All elements, file by file, in C order.
  template <npy_number T>
  [[nodiscard]] std::vector<T> read(const std::string& array) const {
    return read_array(array).as<T>();
  }
  /// The same for numbers that programs compute with. Throws: data_error also when one is not finite.
  [[nodiscard]] std::vector<double> read_finite(const std::string& array) const;
  /// The ids of the array's rows, in order. Throws: data_error when it has none.
  [[nodiscard]] id_list ids(const std::string& array) const;
  /// A field of the manifest ("objective", "settings.kclusters").
  template <class T>
  [[nodiscard]] T field(const std::string& name) const {
    try {
      return manifest_.parse<T>(name);
    } catch (const config_error& e) {
      throw data_error(e.what());
    }
  }
  /// A field that is one of these words.
  template <class T>
  [[nodiscard]] T field(const std::string& name, choices<T> among) const {
    const auto word = field<std::string>(name);
    if (const auto value = value_of(among, word)) return *value;
    std::string words;
    for (const auto& c : among) words.append(words.empty() ? "" : ", ").append(c.word);
    throw data_error(path_ + ": key \"" + name + "\": found \"" + word + "\", want one of " + words);
  }
  /// The elements of a field that is a list.
  template <class T>
  [[nodiscard]] std::vector<T> fields(const std::string& name) const {
    try {
      return manifest_.parse_v<T>(name);
    } catch (const config_error& e) {
      throw data_error(e.what());
    }
  }
  template <class T>
  [[nodiscard]] T field(const std::string& name, const T& fallback) const {
    return manifest_.has(name) ? field<T>(name) : fallback;
  }

 private:
  [[nodiscard]] std::vector<std::string> files(const std::string& array, const char* which) const;
  [[nodiscard]] npy_array read_array(const std::string& array) const;

  std::string path_;
  std::string folder_;
  json_parser manifest_;
};

/// The rounds that a model was trained for, which are numbered on. Throws: data_error unless 0 to 10^9.
int rounds_of(const model_reader& model);

}  // namespace paracel::alg
