// SPDX-License-Identifier: BSD-3-Clause
//
// The settings of a program as a struct: each key of its config is declared once, next to its member. The schema
// (--check, --schema, --help), reading and checking follow from it:
//
//   struct fit_settings {
//     static constexpr auto program = "fit", summary = "a straight line through points";
//     enum class norm { l1, l2 };
//
//     std::vector<std::string> input;
//     std::string output;
//     norm penalty = norm::l2;                // the member's initial value is the key's default
//     int rounds = 100;
//     std::optional<double> alpha;            // a key without a default
//
//     void keys(paracel::key_list& k) {
//       k.files("input", input, "points x,y").required();
//       k.output_folder("output", output, "folder of the results").required();
//       k("penalty", penalty, "norm of the penalty", {{"l1", norm::l1}, {"l2", norm::l2}});
//       k("rounds", rounds, "maximum number of rounds").at_least(1);
//       k("alpha", alpha, "step size; default: found by a search").above(0);
//     }
//     void check(const paracel::config& from) {  // optional: constraints across keys, and what derives from them
//       if (alpha && penalty == norm::l1) throw paracel::config_error(from.place_of("alpha") + ": not with l1");
//     }
//   };
//
// run.hpp starts a program with such settings in one line. Settings that programs share are base structs or members
// whose `keys` are called from theirs.
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/consistency.hpp>
#include <paracel/schema.hpp>

namespace paracel {

/// A word that a key accepts, and the value that it stands for.
template <class T>
struct key_choice {
  const char* word;
  T value;
};
template <class T>
using choices = std::initializer_list<key_choice<T>>;

/// The word of a value; "" when it has none.
template <class T>
constexpr const char* word_of(choices<T> among, const std::type_identity_t<T>& value) noexcept {
  for (const auto& c : among) {
    if (c.value == value) return c.word;
  }
  return "";
}
/// The value of a word, such as one in a saved model.
template <class T>
constexpr std::optional<T> value_of(choices<T> among, std::string_view word) {
  for (const auto& c : among) {
    if (word == c.word) return c.value;
  }
  return {};
}

namespace settings_detail {

template <class T>
struct optional_value {
  using type = T;
  static constexpr bool optional = false;
};
template <class T>
struct optional_value<std::optional<T>> {
  using type = T;
  static constexpr bool optional = true;
};

template <class T>
constexpr key_type type_of() {
  if constexpr (std::same_as<T, bool>) return key_type::boolean;
  else if constexpr (std::integral<T>) return key_type::integer;
  else if constexpr (std::same_as<T, double>) return key_type::number;
  else if constexpr (std::same_as<T, std::vector<double>>) return key_type::numbers;
  else if constexpr (std::same_as<T, std::vector<std::string>>) return key_type::strings;
  else static_assert(std::same_as<T, std::string>, "want bool, an integer, double, text, a list, or choices");
  return key_type::string;
}

}  // namespace settings_detail

/// What `keys(key_list&)` of a settings struct is called with: once to declare its keys to a schema, and once for each
/// config to read them. Both go through the same calls; a call returns the key, whose limits can be set (schema.hpp).
/// A key that the config does not have leaves its member as it is.
/// Thread-safety: none
class key_list {
 public:
  /// Declares. Lifetime: `to` must outlive it.
  explicit key_list(config_schema& to) : schema_(&to) {}
  /// Reads a config that was checked against the schema. Lifetime: `from` must outlive it.
  explicit key_list(const config& from) : from_(&from) {}

  /// A key whose type is that of its member: bool, an integer, double, std::string, a vector of double or std::string,
  /// or std::optional of one of them. Its default is the value of the member; empty texts, lists and optionals are no
  /// default, nor is there one once the key is `required`.
  template <class T>
  key_spec& operator()(std::string name, T& member, std::string help) {
    return add(std::move(name), settings_detail::type_of<typename settings_detail::optional_value<T>::type>(), member,
               std::move(help));
  }
  /// A key whose value is one of a few words. T: any type with ==, usually an enum or bool.
  template <class T>
  key_spec& operator()(std::string name, T& member, std::string help, choices<std::type_identity_t<T>> among) {
    if (from_ != nullptr) {
      if (from_->has_value(name)) member = value_of<T>(among, from_->get<std::string>(name)).value();
      return unused_;
    }
    auto& key = schema_->key(std::move(name), key_type::string, std::move(help));
    std::vector<std::string> words;
    for (const auto& c : among) words.emplace_back(c.word);
    return key.one_of(std::move(words)).fallback(word_of<T>(among, member));
  }
  /// Keys of the types of the same names.
  key_spec& file(std::string name, std::string& member, std::string help) {
    return add(std::move(name), key_type::file, member, std::move(help));
  }
  key_spec& files(std::string name, std::vector<std::string>& member, std::string help) {
    return add(std::move(name), key_type::files, member, std::move(help));
  }
  key_spec& plugin(std::string name, std::string& member, std::string help) {
    return add(std::move(name), key_type::plugin, member, std::move(help));
  }
  key_spec& output_folder(std::string name, std::string& member, std::string help) {
    return add(std::move(name), key_type::output_folder, member, std::move(help));
  }
  /// config_schema::add_output_files. It has no member: paralg reads it from the running config.
  void output_files() {
    if (schema_ != nullptr) schema_->add_output_files();
  }

  /// What it declares to; null while it reads.
  [[nodiscard]] config_schema* schema() const noexcept { return schema_; }
  /// What it reads; null while it declares.
  [[nodiscard]] const config* from() const noexcept { return from_; }

 private:
  template <class T>
  key_spec& add(std::string name, key_type type, T& member, std::string help) {
    using value = settings_detail::optional_value<T>;
    if (from_ != nullptr) {
      if (from_->has_value(name)) member = from_->get<typename value::type>(name);
      return unused_;
    }
    auto& key = schema_->key(std::move(name), type, std::move(help));
    if constexpr (value::optional) {
      if (member) set_default(key, *member);
    } else {
      set_default(key, member);
    }
    return key;
  }
  template <class T>
  static void set_default(key_spec& key, const T& value) {
    if constexpr (std::same_as<T, bool> || std::same_as<T, double>) key.fallback(value);
    else if constexpr (std::integral<T>) key.fallback(static_cast<std::int64_t>(value));
    else if constexpr (std::same_as<T, std::string>) {
      if (!value.empty()) key.fallback(value);
    }
  }

  config_schema* schema_ = nullptr;
  const config* from_ = nullptr;
  key_spec unused_{"", key_type::string, ""};  // returned while reading
};

/// The keys consistency, ssp_switch and limit_s (consistency.hpp). `to`: what the config asks for; its value is the
/// algorithm's default. Throws: config_error when the keys contradict each other.
void consistency_keys(key_list& k, consistency& to, const std::string& unit, const std::string& preferred,
                      const std::vector<consistency_model>& supported);

/// Reads a checked config. Throws: config_error, also what `Settings::check` throws.
template <class Settings>
Settings read_settings(const config& from) {
  Settings s;
  key_list k(from);
  s.keys(k);
  if constexpr (requires { s.check(from); }) s.check(from);
  return s;
}

/// The schema of a program with these settings. Its `check` also makes the checks of `Settings::check`.
template <class Settings>
config_schema schema_of() {
  config_schema schema(Settings::program, Settings::summary);
  Settings s;
  key_list k(schema);
  s.keys(k);
  schema.also([](const config& from) { (void)read_settings<Settings>(from); });
  return schema;
}

/// The settings in a text that was read from `file`. Throws: config_error.
template <class Settings>
Settings parse_settings(const std::string& file, std::string_view text) {
  return read_settings<Settings>(schema_of<Settings>().check_text(file, text));
}

}  // namespace paracel
