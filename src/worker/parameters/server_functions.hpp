// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <paracel/types.hpp>

#include "client/server_group.hpp"
#include "net/protocol.hpp"
#include "worker/job/session.hpp"

namespace paracel {

/// The functions of plug-ins that are registered at the servers.
/// Thread-safety: none; owned by the thread of its client. Lifetime: session and client must outlive it.
class server_functions {
 public:
  server_functions(session& job, server_group& client) noexcept : job_(job), client_(client) {}

  /// Finds (on first use registers) a function at every shard. Throws: plugin_error with the first server's reason.
  std::uint64_t find_function(const plugin_function& f);
  /// The same for a filter.
  std::uint64_t find_filter(const std::string& file, const std::string& symbol);
  /// `f`, or the function of `paracel_update` or of `paracel_bupdate` if it names none.
  std::uint64_t update_function_of(const plugin_function& f) { return f.given() ? find_function(f) : update_function; }
  std::uint64_t bupdate_function_of(const plugin_function& f) {
    return f.given() ? find_function(f) : bupdate_function;
  }
  /// Whether it is element-wise addition, so that it can be applied to a cached copy as well. 0: the servers' default,
  /// which is.
  [[nodiscard]] bool is_additive(std::uint64_t function) const;
  /// The wire form of a symbol with its optimizer's hyper-parameters: symbol, and `\0name=value,name=value` if there
  /// are any. Throws: plugin_error for a number that is not finite.
  static std::string symbol_with(const std::string& symbol, const hyper_parameters& hyper);

  // Functions and filters of calls that name none; empty: not registered yet.
  std::uint64_t update_function = 0;
  std::uint64_t bupdate_function = 0;
  std::optional<std::uint64_t> read_filter;
  std::optional<std::uint64_t> remove_filter;

 private:
  struct known_function {
    std::uint64_t id = 0;
    bool additive = true;
  };
  std::uint64_t find(const std::string& file, const std::string& symbol, net::verb what);

  session& job_;
  server_group& client_;
  std::vector<std::pair<std::string, known_function>> known_;  // "file\0symbol\0verb"; a handful
};

}  // namespace paracel
