// SPDX-License-Identifier: BSD-3-Clause
//
// The schema of a program in Python: declared key by key, checked by the code that checks those of programs in C++.
#include <paracel/schema.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <paracel/consistency.hpp>

#include "job.hpp"
#include "worker/program_config.hpp"

namespace paracel::py {

namespace {

constexpr std::array<std::pair<std::string_view, key_type>, 10> type_names = {{
    {"string", key_type::string},
    {"int", key_type::integer},
    {"double", key_type::number},
    {"bool", key_type::boolean},
    {"doubles", key_type::numbers},
    {"strings", key_type::strings},
    {"file", key_type::file},
    {"files", key_type::files},
    {"plugin", key_type::plugin},
    {"folder_out", key_type::output_folder},
}};

void set_default(key_spec& key, key_type type, nb::handle value) {
  switch (type) {
    case key_type::boolean:
      key.fallback(nb::cast<bool>(value));
      break;
    case key_type::integer:
      key.fallback(nb::cast<std::int64_t>(value));
      break;
    case key_type::number:
      key.fallback(nb::cast<double>(value));
      break;
    case key_type::numbers:
    case key_type::strings:
    case key_type::files:
      throw nb::type_error("a list has no default");
    default:
      key.fallback(nb::cast<std::string>(value));
  }
}

/// Keys without a value are None.
any_dict dict_of(const config& from) {
  any_dict all;
  for (const auto& s : from.all()) {
    nb::object value = nb::none();
    if (from.has_value(s.name)) {
      std::visit(
          [&](const auto& v) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(v)>, std::monostate>) value = nb::cast(v);
          },
          s.value);
    }
    all[s.name.c_str()] = value;
  }
  return all;
}

}  // namespace

void bind_schema(nb::module_& m) {
  nb::class_<config_schema>(m, "_Schema", "The keys of a program's config.")
      .def(
          "__init__",
          [](config_schema* to, std::string program, std::string summary) {
            new (to) config_schema(std::move(program), std::move(summary));
          },
          nb::arg("program"), nb::arg("summary"))
      .def(
          "key",
          [](config_schema& s, std::string name, const std::string& type, std::string help, nb::handle fallback,
             bool required, std::vector<std::string> required_unless, std::vector<std::string> one_of,
             std::optional<double> at_least, std::optional<double> above, std::optional<double> at_most) {
            for (const auto& [word, kind] : type_names) {
              if (word != type) continue;
              auto& key = s.key(std::move(name), kind, std::move(help));
              if (!fallback.is_none()) set_default(key, kind, fallback);
              if (required) key.required();
              if (!required_unless.empty()) key.required_unless(std::move(required_unless));
              if (!one_of.empty()) key.one_of(std::move(one_of));
              if (at_least) key.at_least(*at_least);
              if (above) key.above(*above);
              if (at_most) key.at_most(*at_most);
              return;
            }
            throw nb::value_error(("found type " + type).c_str());
          },
          nb::arg("name"), nb::arg("type"), nb::arg("help"), nb::arg("default").none(), nb::arg("required"),
          nb::arg("required_unless"), nb::arg("one_of"), nb::arg("at_least").none(), nb::arg("above").none(),
          nb::arg("at_most").none())
      .def(
          "consistency_keys",
          [](config_schema& s) {
            add_consistency_keys(s, "iterations", "asp",
                                 {consistency_model::asp, consistency_model::ssp, consistency_model::bsp});
            s.also([](const config& c) { (void)read_consistency(c, {}); });
          },
          "Adds those that every Paralg reads.")
      .def("help_text", &config_schema::help_text)
      .def("to_json", &config_schema::to_json)
      .def(
          "check_answer",
          [](const config_schema& s, const std::string& file, bool files, const std::vector<std::string>& overrides) {
            return check_answer(s, file, files, overrides);
          },
          nb::arg("file"), nb::arg("check_files"), nb::arg("overrides"), "The line of JSON that prun asks for.")
      .def(
          "accept",
          [](const config_schema& s, const std::string& file, const std::vector<std::string>& overrides) {
            const auto checked = accept_config(s, file, overrides);
            auto all = dict_of(checked);
            nb::typed<nb::set, nb::str> given;
            for (const auto& setting : checked.all()) {
              if (checked.given(setting.name)) given.add(nb::cast(setting.name));
            }
            return nb::typed<nb::tuple, any_dict, nb::typed<nb::set, nb::str>>(nb::make_tuple(all, given));
          },
          nb::arg("file"), nb::arg("overrides"),
          "Reads and checks the config of a run, with KEY=VALUE of --set: its values, and the names of the keys that "
          "it has.");
}

}  // namespace paracel::py
