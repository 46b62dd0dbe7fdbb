// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>

#include <memory>
#include <string>

#include <paracel/error.hpp>

#include "server/metrics_exporter.hpp"

namespace paracel::srv {

std::unique_ptr<metrics_exporter> export_metrics(const export_options& options) {
  constexpr const char* name = "libparacel_metrics.so";  // found by the run path of this program
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw usage_error("--metrics-port and --metrics-file need " + std::string(name) +
                      ", which is built where prometheus-cpp is installed (Debian: prometheus-cpp-dev): " + dlerror());
  const auto open = reinterpret_cast<decltype(&paracel_export_metrics)>(dlsym(library, "paracel_export_metrics"));
  if (open == nullptr) throw usage_error(std::string(name) + " is of another version of the framework");
  return std::unique_ptr<metrics_exporter>(open(options));
}

}  // namespace paracel::srv
