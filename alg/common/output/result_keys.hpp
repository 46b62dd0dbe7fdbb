// SPDX-License-Identifier: BSD-3-Clause
//
// The keys about results that most programs have.
#pragma once

#include <string>

#include <paracel/settings.hpp>

namespace paracel::alg {

/// Format of arrays of numbers: Paracel's text, or .npy files with a manifest (npy.hpp).
enum class result_format { text, npy };

/// `output`, required unless it has a default, and `output_files`.
inline void output_keys(key_list& k, std::string& output) {
  auto& key = k.output_folder("output", output, "folder of the results");
  if (output.empty()) key.required();
  k.output_files();
}

/// `format`, or another name.
inline void format_key(key_list& k, result_format& format, const char* help, const char* name = "format") {
  k(name, format, help, {{"text", result_format::text}, {"npy", result_format::npy}});
}

}  // namespace paracel::alg
