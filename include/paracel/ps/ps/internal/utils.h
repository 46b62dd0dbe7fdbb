// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Programs written for ps-lite expect more from ps/ps.h than it needs.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dmlc/logging.h"
#include "ps/internal/env.h"

namespace ps {

/// The number in an environment variable; `otherwise` when it is not set. Throws: dmlc::Error when it is no number.
template <class T>
T GetEnv(const char* name, T otherwise) {
  const char* text = Environment::Get()->find(name);
  if (text == nullptr || *text == '\0') return otherwise;
  std::istringstream from(text);
  T value{};
  CHECK(from >> value && from.peek() == std::istringstream::traits_type::eof())
      << name << "='" << text << "': want a number";
  return value;
}

/// PS_VERBOSE.
[[nodiscard]] int verbosity();

}  // namespace ps

#ifndef DISALLOW_COPY_AND_ASSIGN
#define DISALLOW_COPY_AND_ASSIGN(Type) \
  Type(const Type&) = delete;          \
  void operator=(const Type&) = delete
#endif
#define PS_VLOG(level) LOG_IF(INFO, ::ps::verbosity() >= (level))
#ifndef VLOG
#define VLOG(level) PS_VLOG(level)
#endif
