// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

/// Ends the process, which libFuzzer reports with its input, unless the property holds.
inline void require(bool holds, const char* what = "", const std::string& why = {}) {
  if (holds) return;
  std::fprintf(stderr, "property broken: %s %s\n", what, why.c_str());
  std::abort();
}
