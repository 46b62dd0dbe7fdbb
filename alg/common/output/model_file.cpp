// SPDX-License-Identifier: BSD-3-Clause
#include "model_file.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string_view>

#include <paracel/run.hpp>
#include <paracel/text_output.hpp>

#include "run_log.hpp"

namespace paracel::alg {

namespace {

std::string json_of(const config_value& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* i = std::get_if<std::int64_t>(&value)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&value)) return json_number(*d);
  if (const auto* s = std::get_if<std::string>(&value)) return json_quoted(*s);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) return json_list_of_texts(*texts);
  const auto* numbers = std::get_if<std::vector<double>>(&value);
  return numbers != nullptr ? json_list(*numbers) : "[]";
}

const char* ending_of(bool text) { return text ? "" : ".npy"; }

}  // namespace

model_writer::model_writer(paralg& job, std::string algorithm, result_format format)
    : job_(job),
      algorithm_(std::move(algorithm)),
      text_(format == result_format::text),
      first_(job.get_worker_id() == 0) {}

namespace {

// Appends the next piece of a file to its argument; false at the end.
using pieces = std::function<bool(std::string&)>;

/// A file of lines: `label(row)` and the row's `width` numbers with | between them.
pieces text_pieces(npy_type type, std::span<const std::byte> bytes, std::uint64_t rows,
                   std::function<std::string(std::uint64_t)> label) {
  const std::uint64_t width = rows == 0 ? 0 : bytes.size() / bytes_of(type) / rows;
  return [=, row = std::uint64_t{0}](std::string& text) mutable {
    if (row == rows) return false;
    text += label(row);
    with_type(type, [&](auto e) {
      for (std::uint64_t j = 0; j < width; ++j) {
        std::memcpy(&e, bytes.data() + (row * width + j) * sizeof e, sizeof e);
        if (j > 0) text += '|';
        append_text(text, e);
      }
    });
    text += '\n';
    ++row;
    return true;
  };
}

/// `header`, if any, and the elements.
pieces npy_pieces(std::string header, std::span<const std::byte> bytes) {
  constexpr std::size_t piece_bytes = std::size_t{256} << 10U;
  return [=](std::string& text) mutable {
    const auto piece = bytes.first(std::min(bytes.size(), piece_bytes));
    if (header.empty() && piece.empty()) return false;
    text += std::exchange(header, {});
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    bytes = bytes.subspan(piece.size());
    return true;
  };
}

bool all_finite(npy_type type, std::span<const std::byte> bytes) {
  if (type != npy_type::float64 && type != npy_type::float32) return true;
  return with_type(type, [&](auto e) {
    bool finite = true;
    for (std::size_t i = 0; i < bytes.size(); i += sizeof e) {
      std::memcpy(&e, bytes.data() + i, sizeof e);
      finite &= std::isfinite(static_cast<double>(e));
    }
    return finite;
  });
}

// The programs watch their losses (divergence.hpp); this is for what no loss has seen.
[[noreturn]] void refuse_array(const std::string& name) {
  throw error("the model's " + name +
              " has numbers that are not finite, so it is not written; want smaller numbers in " +
              "the input, or a smaller step size");
}

}  // namespace

void model_writer::add_whole(const std::string& name, npy_type type, std::span<const std::byte> bytes,
                             std::vector<std::uint64_t> shape) {
  if (!infinity_ && !all_finite(type, bytes)) refuse_array(name);
  const bool keyed = shape.size() > 1;
  const auto file = job_.result_name(name + "_", ending_of(text_));
  const auto path = job_.paracel_result(file);
  if (text_) {
    const auto label = [&](std::uint64_t row) { return keyed ? std::to_string(row) + '\t' : std::string(); };
    const auto next = text_pieces(type, bytes, keyed ? shape.front() : 1, label);
    whole_file out(path);
    for (std::string line; next(line); line.clear()) out.write(line);
    out.finish();
  } else {
    write_npy(path, type, bytes, shape);
  }
  json_object entry;
  entry.add("dtype", npy_name(type)).raw("shape", json_list(shape)).raw("files", json_list_of_texts({file}));
  if (text_) entry.add("keyed", keyed);
  arrays_.raw(name, entry.text());
}

void model_writer::add_part(const std::string& name, npy_type type, std::span<const std::byte> bytes,
                            std::vector<std::uint64_t> row_shape, const id_list* ids) {
  std::uint64_t width = bytes_of(type);
  for (const auto n : row_shape) width *= n;
  const std::uint64_t rows = width == 0 ? 0 : bytes.size() / width;
  auto comm = job_.get_comm();
  // What the manifest and the text form need from all ranks: their rows, and the kind of their ids; and whether their
  // numbers are finite.
  const std::vector<std::int64_t> mine{static_cast<std::int64_t>(rows),
                                       ids == nullptr                       ? 0
                                       : ids->numeric() || ids->size() == 0 ? 1
                                                                            : 2,
                                       infinity_ || all_finite(type, bytes) ? 1 : 0};
  const auto all = comm.allgather(mine);
  std::vector<std::uint64_t> counts;
  std::uint64_t total = 0;
  std::uint64_t first_row = 0;
  std::int64_t kind = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (r == comm.get_rank()) first_row = total;
    counts.push_back(static_cast<std::uint64_t>(all[r][0]));
    total += counts.back();
    kind = std::max(kind, all[r][1]);
    if (all[r][2] == 0) refuse_array(name);
  }

  // A single file has one header, for all rows.
  const bool one = job_.one_output_file();
  const auto npy = [&](npy_type of, std::span<const std::byte> elements, std::vector<std::uint64_t> of_row) {
    of_row.insert(of_row.begin(), one ? total : rows);
    return npy_pieces(one && !first_ ? std::string() : npy_header_of(of, of_row), elements);
  };
  if (rows * width != bytes.size()) throw error(name + ": found an incomplete row");
  if (ids != nullptr && ids->size() != rows)
    throw error(name + ": found " + std::to_string(ids->size()) + " ids for " + std::to_string(rows) + " rows");
  const std::string ending = ending_of(text_);
  const std::string id_ending = kind == 2 ? ".txt" : ".npy";
  if (text_) {
    const auto label = [&](std::uint64_t row) {
      return (ids != nullptr ? ids->text(row) : std::to_string(first_row + row)) + '\t';
    };
    job_.paracel_dump_pieces(name + "_", text_pieces(type, bytes, rows, label), ending);
  } else {
    job_.paracel_dump_pieces(name + "_", npy(type, bytes, row_shape), ending);
  }
  if (ids != nullptr && !text_ && kind == 2) {
    const auto next = [&, i = std::size_t{0}](std::string& text) mutable {
      if (i == rows) return false;
      text += ids->text(i++) + '\n';
      return true;
    };
    job_.paracel_dump_pieces(name + "_id_", next, id_ending);
  } else if (ids != nullptr && !text_) {
    const auto& numbers = ids->numbers();
    job_.paracel_dump_pieces(name + "_id_", npy(npy_type::uint64, std::as_bytes(std::span(numbers)), {}), id_ending);
  }
  if (!first_) return;
  std::vector<std::string> names;
  std::vector<std::string> id_names;
  for (std::size_t r = 0; r < (one ? 1 : all.size()); ++r) {
    const auto name_of = [&](const std::string& what, const std::string& end) {
      return one ? job_.result_name(what, end) : what + std::to_string(r) + end;
    };
    names.push_back(name_of(name + "_", ending));
    id_names.push_back(text_ ? names.back() : name_of(name + "_id_", id_ending));
  }
  if (one) counts = {total};
  auto shape = std::move(row_shape);
  shape.insert(shape.begin(), total);
  json_object entry;
  entry.add("dtype", npy_name(type)).raw("shape", json_list(shape)).raw("files", json_list_of_texts(names));
  entry.raw("rows", json_list(counts));
  if (text_) entry.add("keyed", true);
  if (ids != nullptr) entry.raw("ids", json_list_of_texts(id_names)).add("id_kind", kind == 2 ? "name" : "number");
  arrays_.raw(name, entry.text());
}

void model_writer::finish() {
  job_.get_comm().synchronize();
  if (!first_) return;
  json_object manifest;
  manifest.add("format", text_ ? "text" : "npy").add("algorithm", algorithm_).append(fields_);
  if (const auto* config = running_config()) {
    for (const auto& s : config->all()) {
      const bool place = s.type == key_type::file || s.type == key_type::files || s.type == key_type::plugin ||
                         s.type == key_type::output_folder;
      // If it is absent, its value is not one that a config may contain.
      const bool absent = s.name == output_files_key && !config->given(s.name);
      if (!place && !absent && !settings_.has(s.name)) settings_.raw(s.name, json_of(s.value));
    }
  }
  manifest.on_new_line().raw("settings", settings_.text()).on_new_line().raw("arrays", arrays_.text());
  write_text_file(job_.paracel_result("model.json"), manifest.text() + '\n');
}

namespace {

std::string manifest_path(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? path + "/model.json" : path;
}

json_parser manifest_of(const std::string& path) {
  try {
    return json_parser(path);
  } catch (const config_error& e) {
    throw data_error(e.what());
  }
}

}  // namespace

key_spec& model_key(key_list& k, std::string& model, const char* help) {
  std::vector<std::string> names;
  auto& key = k.files("model", names, help);
  if (names.size() > 1) {
    throw config_error(k.from()->place_of("model") + ": found " + std::to_string(names.size()) +
                       " names, want one model");
  }
  if (!names.empty()) model = names.front();
  return key;
}

void initial_model::key(key_list& k, const std::string& model, const char* name) {
  std::vector<std::string> names;
  k.files("initial_model", names, "folder or manifest of a model of this program that training continues from");
  if (names.size() > 1)
    throw config_error(k.from()->place_of("initial_model") + ": found " + std::to_string(names.size()) +
                       " names, want one model");
  if (names.empty()) return;
  path = names.front();
  if (!model.empty())
    throw config_error(k.from()->place_of("initial_model") + ": not with " + name +
                       ", which is used as it is; want one of the two");
}

void want_as_in_model(const std::string& place, const std::string& found, const std::string& of_model) {
  if (place.empty() || found == of_model) return;
  throw config_error(place + ": found " + found + ", want " + of_model + " as in the initial model");
}

std::string place_if_given(const config& from, const std::string& key) {
  return from.given(key) ? from.place_of(key) : std::string();
}

model_reader::model_reader(const std::string& path, const std::string& algorithm)
    : path_(manifest_path(path)), manifest_(manifest_of(path_)) {
  folder_ = std::filesystem::path(path_).parent_path().string();
  if (!folder_.empty()) folder_ += '/';
  if (!manifest_.has("algorithm") || !manifest_.has("arrays") || !manifest_.has("format"))
    throw data_error(path_ + ": found no model, want a manifest with algorithm, format and arrays");
  if (const auto found = field<std::string>("algorithm"); found != algorithm)
    throw data_error(path_ + ": found a model of " + found + ", want one of " + algorithm);
}

bool model_reader::has(const std::string& array) const { return manifest_.has("arrays." + array); }

std::vector<std::string> model_reader::files(const std::string& array, const char* which) const {
  std::vector<std::string> names;
  try {
    names = manifest_.parse_v<std::string>("arrays." + array + "." + which);
  } catch (const config_error& e) {
    throw data_error(e.what());
  }
  for (auto& name : names) {
    if (name.find('/') != std::string::npos)
      throw data_error(path_ + ": found the file " + name + ", want one in the folder of the manifest");
    name = folder_ + name;
  }
  return names;
}

std::vector<std::uint64_t> model_reader::shape(const std::string& array) const {
  try {
    return manifest_.parse_v<std::uint64_t>("arrays." + array + ".shape");
  } catch (const config_error& e) {
    throw data_error(e.what());
  }
}

npy_array model_reader::read_array(const std::string& array) const {
  npy_array whole;
  whole.shape = shape(array);
  const auto type_name = field<std::string>("arrays." + array + ".dtype");
  bool known = false;
  for (const auto type : npy_types) {
    if (type_name != npy_name(type)) continue;
    whole.type = type;
    known = true;
  }
  if (!known)
    throw data_error(path_ + ": array " + array + ": found dtype " + type_name + ", want <f8, <f4, <i8 or <u8");
  const bool text = field<std::string>("format") == "text";
  const bool keyed = text && field<bool>("arrays." + array + ".keyed", false);
  for (const auto& file : files(array, "files")) {
    if (!text) {
      const auto part = read_npy(file);
      if (part.type != whole.type) {
        throw data_error(file + ": found elements of type " + npy_name(part.type) + ", want " + npy_name(whole.type) +
                         ", as the manifest says");
      }
      whole.bytes.insert(whole.bytes.end(), part.bytes.begin(), part.bytes.end());
      continue;
    }
    const auto content = read_whole(file);
    if (!content.empty() && content.back() != '\n')
      throw data_error(file + ": found no end of the last line, want the whole file");
    std::size_t number = 0;
    for (std::size_t begin = 0; begin < content.size();) {
      ++number;
      auto end = content.find('\n', begin);
      if (end == std::string::npos) end = content.size();
      auto line = std::string_view(content).substr(begin, end - begin);
      begin = end + 1;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (keyed) line.remove_prefix(std::min(line.size(), line.rfind('\t') + 1));
      with_type(whole.type, [&](auto e) {
        while (!line.empty()) {
          const auto [stop, failed] = std::from_chars(line.data(), line.data() + line.size(), e);
          const auto used = static_cast<std::size_t>(stop - line.data());
          if (failed != std::errc{} || (used < line.size() && line[used] != '|')) {
            throw data_error(file + ":" + std::to_string(number) + ": found \"" + std::string(line.substr(0, 20)) +
                             "\", want numbers separated by |");
          }
          const auto at = whole.bytes.size();
          whole.bytes.resize(at + sizeof e);
          std::memcpy(whole.bytes.data() + at, &e, sizeof e);
          line.remove_prefix(std::min(line.size(), used + 1));
        }
      });
    }
  }
  const auto count = elements_of(whole.shape, bytes_of(whole.type));
  if (!count || *count * bytes_of(whole.type) != whole.bytes.size()) {
    throw data_error(path_ + ": array " + array + ": found " +
                     std::to_string(whole.bytes.size() / bytes_of(whole.type)) +
                     " elements in its files, want the shape " + shape_text(whole.shape));
  }
  return whole;
}

int rounds_of(const model_reader& model) {
  const auto rounds = model.field<int>("rounds");
  if (rounds < 0 || rounds > 1000000000)
    throw data_error(model.path() + ": key \"rounds\": found " + std::to_string(rounds) + ", want 0 to 1000000000");
  return rounds;
}

std::vector<double> model_reader::read_finite(const std::string& array) const {
  auto numbers = read<double>(array);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!std::isfinite(numbers[i]))
      throw data_error(path_ + ": array " + array + ": found " + std::to_string(numbers[i]) + " as element " +
                       std::to_string(i) + ", want finite numbers");
  }
  return numbers;
}

id_list model_reader::ids(const std::string& array) const {
  const bool numeric = field<std::string>("arrays." + array + ".id_kind", "") != "name";
  const bool text = field<std::string>("format") == "text";
  auto list = id_list::empty(numeric);
  for (const auto& file : files(array, "ids")) {
    if (!text && numeric) {
      for (const auto n : read_npy(file).as<std::uint64_t>()) list.push_back(n);
      continue;
    }
    const auto content = read_whole(file);
    for (std::size_t begin = 0; begin < content.size();) {
      auto end = content.find('\n', begin);
      if (end == std::string::npos) end = content.size();
      auto name = std::string_view(content).substr(begin, end - begin);
      begin = end + 1;
      if (name.ends_with('\r')) name.remove_suffix(1);
      if (text) name = name.substr(0, name.rfind('\t'));
      if (!numeric) {
        list.push_back(name);
        continue;
      }
      std::uint64_t n = 0;
      const auto [stop, failed] = std::from_chars(name.data(), name.data() + name.size(), n);
      if (failed != std::errc{} || stop != name.data() + name.size())
        throw data_error(file + ": found the id \"" + std::string(name) + "\", want a number");
      list.push_back(n);
    }
  }
  if (list.size() != (shape(array).empty() ? 0 : shape(array).front()))
    throw data_error(path_ + ": array " + array + ": found " + std::to_string(list.size()) + " ids, want one per row");
  return list;
}

}  // namespace paracel::alg
