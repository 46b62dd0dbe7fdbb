// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

namespace ps {

/// Where settings come from: a map that the program gives, then the process's environment.
class Environment {
 public:
  /// The one of this process; Init before the first use gives it values of its own.
  static Environment* Get() { return Shared(nullptr).get(); }
  static std::shared_ptr<Environment> _GetSharedRef() { return Shared(nullptr); }
  static Environment* Init(const std::unordered_map<std::string, std::string>& values) { return Shared(&values).get(); }

  /// The value of a variable; null when it is not set.
  const char* find(const char* name) const;

 private:
  Environment() = default;
  static std::shared_ptr<Environment> Shared(const std::unordered_map<std::string, std::string>* values);

  std::unordered_map<std::string, std::string> values_;
};

}  // namespace ps
