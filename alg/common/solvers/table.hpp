// SPDX-License-Identifier: BSD-3-Clause
//
// The keys by which configs describe tables of samples, the same in every program that reads samples, and what a model
// keeps of the table that it was trained with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/samples.hpp>
#include <paracel/settings.hpp>

#include "alg/common/output/model_file.hpp"
#include "class_weights.hpp"
#include "design_matrix.hpp"

namespace paracel::alg {

/// The parts of a table that have a meaning for a program, besides the features.
struct table_parts {
  bool labels = true;       ///< target
  bool weights = true;      ///< weight, row_weights
  bool classes = false;     ///< class_weight
  bool groups = false;      ///< group
  bool categories = false;  ///< categorical
  bool missing = false;     ///< missing
};
/// The keys header, features, separator, and those of the table's parts.
struct table_settings {
  /// Throws: config_error.
  void keys(key_list& k, const table_parts& parts);

  sample_options samples;
  std::vector<std::string> row_weights;
  class_weights of_classes;
  std::string features_place;  // of the key, for error messages
};

/// Loads training samples. From now on `how` describes other samples for the same model. After read_fields they
/// continue a model: they have its features, whose names and fields remain; rows of libsvm may lack the last ones, and
/// have new ones at the end if the model's rows were libsvm, too. A collective. Throws: data_error.
sample_rows load_training_rows(Comm comm, const std::vector<std::string>& names, sample_options& how);
/// The same; `rows.weight` is also set from row_weights. Throws: data_error also when there are no features.
sample_rows load_training_table(Comm comm, const std::vector<std::string>& names, table_settings& table);

/// Multiplies the weights of rows with binary labels by those of their classes. A collective. Throws: config_error for
/// an unknown class.
void weigh_signs(Comm comm, const table_settings& table, sample_rows& rows);

/// Adds the classes to a manifest.
void add_classes(model_writer& model, const std::vector<std::string>& classes);
/// Adds the names and fields of the training samples to a manifest.
void add_fields(model_writer& model, const sample_options& trained);
/// Reads them for a model of so many features. Throws: data_error; config_error for another key `features`.
void read_fields(const model_reader& model, std::uint32_t columns, table_settings& to);

}  // namespace paracel::alg
