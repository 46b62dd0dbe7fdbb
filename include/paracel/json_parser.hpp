// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace paracel {

struct config_node;

/// `text` as a JSON string with its quotes. A byte that is not UTF-8 becomes U+FFFD.
[[nodiscard]] std::string json_quoted(std::string_view text);

/// A config file, read key by key.
///
/// T is std::string, bool, float, double or an integer type. A number or a boolean may also be written as a string
/// ("rounds": "10"), and can also be read as one. `outer.inner` names a key inside an object.
///
/// Throws:        config_error: file and key, what was found, what is allowed. The two that check files: argument_error
///                (an std::invalid_argument) when one does not exist.
/// Thread-safety: const-concurrent
class json_parser {
 public:
  explicit json_parser(const std::string& file);

  /// The value of a required key.
  template <class T>
  T parse(const std::string& key) const {
    T value{};
    get(key, nullptr, value);
    return value;
  }
  /// The value of a key, or `fallback` when the key is absent.
  template <class T>
  T parse(const std::string& key, const T& fallback) const {
    return has(key) ? parse<T>(key) : fallback;
  }
  /// The name of a file, folder or glob pattern that must exist.
  template <class T>
  T check_parse(const std::string& key) const {
    static_assert(std::is_same_v<T, std::string>, "check_parse is for names of files");
    T name = parse<T>(key);
    check_exists(key, name);
    return name;
  }
  /// A list of values; a single value counts as a list of one.
  template <class T>
  std::vector<T> parse_v(const std::string& key) const {
    std::vector<T> values(count(key));
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value{};
      get(key, &i, value);
      values[i] = std::move(value);
    }
    return values;
  }
  /// A list of names of files, folders or glob patterns that must all exist.
  template <class T>
  std::vector<T> check_parse_v(const std::string& key) const {
    static_assert(std::is_same_v<T, std::string>, "check_parse_v is for names of files");
    auto names = parse_v<T>(key);
    for (const auto& name : names) check_exists(key, name);
    return names;
  }
  [[nodiscard]] bool has(const std::string& key) const;

 private:
  const config_node& at(const std::string& key) const;
  const config_node& item(const std::string& key, const std::size_t* index) const;
  [[nodiscard]] std::size_t count(const std::string& key) const;
  void check_exists(const std::string& key, const std::string& name) const;
  [[noreturn]] void wrong(const std::string& key, const config_node& found, const std::string& wanted) const;

  void get(const std::string& key, const std::size_t* index, std::string& to) const;
  void get(const std::string& key, const std::size_t* index, bool& to) const;
  void get(const std::string& key, const std::size_t* index, double& to) const;
  void get(const std::string& key, const std::size_t* index, float& to) const;
  [[nodiscard]] std::int64_t signed_at(const std::string& key, const std::size_t* index, std::int64_t least,
                                       std::int64_t most) const;
  [[nodiscard]] std::uint64_t unsigned_at(const std::string& key, const std::size_t* index, std::uint64_t most) const;
  template <class T>
  requires(std::is_integral_v<T>) void get(const std::string& key, const std::size_t* index, T& to) const {
    constexpr T most = std::numeric_limits<T>::max();
    if constexpr (std::is_signed_v<T>) {
      to = static_cast<T>(signed_at(key, index, -static_cast<std::int64_t>(most) - 1, most));
    } else {
      to = static_cast<T>(unsigned_at(key, index, most));
    }
  }

  std::string file_;
  std::shared_ptr<const config_node> root_;
};

}  // namespace paracel
