// SPDX-License-Identifier: BSD-3-Clause
//
// Exports a job's metrics to Prometheus. libparacel_metrics.so implements it with prometheus-cpp, so that jobs without
// --metrics-port and --metrics-file load none of that.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/scheduler/metric_family.hpp"

namespace paracel::srv {

struct export_options {
  /// Called by the exporter's threads, several at a time.
  std::function<std::vector<metric_family>()> collect;
  std::string host = "127.0.0.1";  ///< a name or an address of this host at which `port` is bound
  int port = -1;                   ///< 0: a free one, -1: none
  std::string file{};              ///< rewritten every two seconds, and removed in the end; empty: none
};

/// Thread-safety: owned by the thread that made it. Lifetime: `collect` must remain callable until it is destroyed.
class metrics_exporter {
 public:
  virtual ~metrics_exporter() = default;
  /// Where the metrics are: http://host:port/metrics; empty without a port.
  [[nodiscard]] virtual const std::string& address() const noexcept = 0;
  /// Removes the file, and writes none any more: for a process that is about to exit without destructors.
  virtual void remove_file() noexcept = 0;
};

/// Loads libparacel_metrics.so.
/// Throws: usage_error when it is not there, the port cannot be bound, or the file cannot be written.
[[nodiscard]] std::unique_ptr<metrics_exporter> export_metrics(const export_options& options);

}  // namespace paracel::srv

/// In libparacel_metrics.so. Throws: usage_error, as above.
extern "C" paracel::srv::metrics_exporter* paracel_export_metrics(const paracel::srv::export_options& options);
