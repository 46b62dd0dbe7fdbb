// SPDX-License-Identifier: BSD-3-Clause
#include "table.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <paracel/error.hpp>

#include "row_weights.hpp"

namespace paracel::alg {

void table_settings::keys(key_list& k, const table_parts& parts) {
  using rule = sample_options::header_rule;
  const auto refuse = [&](const char* key, const std::string& why) {
    throw config_error(k.from()->place_of(key) + ": " + why);
  };
  k("header", samples.header,
    "CSV: whether the first line names the fields; automatic: yes if none of them is a number",
    {{"automatic", rule::automatic}, {"yes", rule::yes}, {"no", rule::no}});
  if (parts.labels)
    k("target", samples.target, "the field with the labels: its name, or its number from 0; default: the last")
        .or_numbers();
  k("features", samples.features, "the fields with the features, by name or by number from 0; default: all others")
      .or_numbers();
  if (k.from() != nullptr) features_place = k.from()->place_of("features");
  std::string separator;
  k("separator", separator, "CSV: field separator; default: comma, semicolon or tab, as in the file");
  if (separator.size() > 1) refuse("separator", "found \"" + separator + "\", want one character");
  if (!separator.empty()) samples.separator = separator[0];
  if (parts.weights) {
    k("weight", samples.weight, "the field with the rows' weights: its name, or its number from 0").or_numbers();
    k.files("row_weights", row_weights,
            "weights of the rows of the training input, one number per line, instead of weight; default: 1");
    if (!row_weights.empty() && !samples.weight.empty())
      refuse("row_weights", "not together with weight, a field of the samples");
  }
  if (parts.classes) of_classes.keys(k);
  if (parts.groups)
    k("group", samples.group, "the field with the rows' groups: its name, or its number from 0; for libsvm, \"qid\"")
        .or_numbers();
  if (parts.categories)
    k("categorical", samples.categorical,
      "categorical features (integers from 0, or words), by name or by number from 0")
        .or_numbers();
  if (parts.missing) {
    samples.missing = true;
    k("missing", samples.missing_as,
      "what stands for a missing feature besides an empty field, NA, nan, NaN, null and ?: words and numbers")
        .or_numbers();
  }
}

namespace {

/// Adds columns of 0 at the end.
void widen(sample_rows& rows, std::uint32_t columns) {
  if (rows.dense) {
    std::vector<float> wide(rows.rows() * columns);
    for (std::size_t i = 0; i < rows.rows(); ++i)
      std::ranges::copy(rows.float_row(i), wide.begin() + static_cast<std::ptrdiff_t>(i * columns));
    rows.floats = std::move(wide);
  }
  rows.columns = columns;
}

/// Gives rows that continue a model its columns.
void match_columns(sample_rows& rows, std::uint32_t of_model, const sample_options& how, const std::string& file) {
  if (rows.columns == of_model) return;
  const bool numbered = rows.fields.count == 0;  // libsvm: the features that occur
  if (!numbered || (rows.columns > of_model && how.fields.count != 0))
    throw data_error(file + ": found " + std::to_string(rows.columns) + " features, want " + std::to_string(of_model) +
                     ", those of the initial model");
  if (rows.columns < of_model) widen(rows, of_model);
}

}  // namespace

sample_rows load_training_rows(Comm comm, const std::vector<std::string>& names, sample_options& how) {
  const auto of_model = std::exchange(how.columns, 0);  // libsvm drops what is beyond it
  auto rows = load_samples(std::move(comm), names, how);
  if (of_model != 0) match_columns(rows, of_model, how, names.front());
  if (of_model == 0 || how.fields.count == 0) {
    how.names = rows.names;
    how.fields = rows.fields;
  }
  rows.names = how.names;
  how.columns = rows.columns;
  return rows;
}

sample_rows load_training_table(Comm comm, const std::vector<std::string>& names, table_settings& table) {
  auto rows = load_training_rows(comm, names, table.samples);
  if (rows.columns == 0) throw data_error(names.front() + ": found samples without any feature");
  if (!table.row_weights.empty()) rows.weight = load_row_weights(comm, table.row_weights, rows);
  table.samples.classes = rows.classes;
  return rows;
}

void weigh_signs(Comm comm, const table_settings& table, sample_rows& rows) {
  if (!table.of_classes.given()) return;
  std::vector<double> class_of(rows.label.size());
  std::vector<double> count(rows.classes.size());
  for (std::size_t i = 0; i < class_of.size(); ++i) {
    class_of[i] = rows.label[i] > 0 ? 1 : 0;
    ++count[rows.label[i] > 0 ? 1 : 0];
  }
  comm.allreduce(count);
  weigh_classes(comm, table.of_classes, rows.classes, count, class_of, rows.weight);
}

void add_classes(model_writer& model, const std::vector<std::string>& classes) {
  model.fields().raw("classes", json_list_of_texts(classes));
}

void add_fields(model_writer& model, const sample_options& trained) {
  const auto& fields = trained.fields;
  std::string names;
  for (const auto& n : trained.names) names.append(names.empty() ? "" : ",").append(json_quoted(n));
  json_object where;
  if (!fields.target.empty()) where.add("target", fields.target);
  if (!fields.weight.empty()) where.add("weight", fields.weight);
  if (!fields.group.empty()) where.add("group", fields.group);
  const auto add_place = [&](const char* key, std::uint32_t at) {
    if (at != sample_fields::none) where.add(key, std::uint64_t{at});
  };
  add_place("label", fields.label);
  add_place("weight_at", fields.weight_at);
  add_place("group_at", fields.group_at);
  where.add("count", std::uint64_t{fields.count});
  if (fields.separator != 0) where.add("separator", std::string(1, fields.separator));
  // The list is left out where it only counts.
  bool counts = true;
  std::string list;
  for (std::size_t c = 0; c < fields.features.size(); ++c) {
    counts = counts && fields.features[c] == c;
    list.append(list.empty() ? "" : ",").append(std::to_string(fields.features[c]));
  }
  std::string missing;
  for (const auto& m : trained.missing_as) missing.append(missing.empty() ? "" : ",").append(json_quoted(m));
  if (!missing.empty()) where.raw("missing", "[" + missing + "]");
  if (!counts) where.raw("features", "[" + list + "]");
  model.fields().raw("names", "[" + names + "]").raw("fields", where.text());
}

void read_fields(const model_reader& model, std::uint32_t columns, table_settings& table) {
  auto& to = table.samples;
  auto& fields = to.fields;
  to.columns = columns;
  if (model.has_field("names")) to.names = model.fields<std::string>("names");
  if (to.missing_as.empty() && model.has_field("fields.missing"))
    to.missing_as = model.fields<std::string>("fields.missing");
  fields.target = model.field<std::string>("fields.target", "");
  fields.weight = model.field<std::string>("fields.weight", "");
  fields.group = model.field<std::string>("fields.group", "");
  fields.label = model.field<std::uint32_t>("fields.label", sample_fields::none);
  fields.weight_at = model.field<std::uint32_t>("fields.weight_at", sample_fields::none);
  fields.group_at = model.field<std::uint32_t>("fields.group_at", sample_fields::none);
  fields.count = model.field<std::uint32_t>("fields.count", 0);
  const auto separator = model.field<std::string>("fields.separator", "");
  if (separator.size() == 1) fields.separator = separator[0];
  if (model.has_field("fields.features")) {
    fields.features = model.fields<std::uint32_t>("fields.features");
  } else if (fields.count != 0) {
    fields.features.resize(columns);
    std::iota(fields.features.begin(), fields.features.end(), 0U);
  }
  const auto wrong = [&] {
    throw data_error(model.path() + ": found names and fields that do not match the features");
  };
  if ((!to.names.empty() && to.names.size() != columns) || (fields.count != 0 && fields.features.size() != columns))
    wrong();
  for (const auto f : fields.features) {
    if (f >= fields.count) wrong();
  }
  for (const auto f : {fields.weight_at, fields.group_at}) {
    if (f != sample_fields::none && f >= fields.count) wrong();
  }
  if (to.names.empty() || to.features.empty()) return;
  bool same = to.features.size() == columns;
  for (std::size_t c = 0; same && c < columns; ++c)
    same = to.features[c] == to.names[c] ||
           (c < fields.features.size() && to.features[c] == std::to_string(fields.features[c]));
  if (same) return;
  std::string all;
  for (std::size_t c = 0; c < columns && c < 10; ++c) all += (c == 0 ? "" : ", ") + to.names[c];
  throw config_error(table.features_place + ": found other features than those of the model: " + all +
                     (columns > 10 ? ", ..." : "") + "; want these, or no key");
}

}  // namespace paracel::alg
