// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <paracel/detail/value.hpp>

#include "client/server_group.hpp"
#include "worker/job/request_failures.hpp"
#include "worker/parameters/server_functions.hpp"
#include "worker/parameters/update_combiner.hpp"
#include "worker/parameters/worker_cache.hpp"
#include "worker/parameters/worker_clock.hpp"

namespace paracel {

/// Additive updates that are summed in this worker until the commit, or until a request that must not overtake them.
/// By default under SSP, not under ASP; under BSP never.
///
/// Thread-safety: owned by the thread of its client. Lifetime: what it is made with must outlive every call.
class combined_updates {
 public:
  /// The combined updates of a key.
  struct update : shared_update {
    bool waits = true;  // to be sent
  };

  combined_updates(server_group& client, worker_clock& clock, const server_functions& functions,
                   request_failures& failures, worker_cache& cache) noexcept
      : client_(client), clock_(clock), functions_(functions), failures_(failures), cache_(cache) {}

  void set(bool on);
  [[nodiscard]] bool takes(const std::string& key, const value_view& delta, std::uint64_t function) const;
  std::shared_ptr<update> add(const std::string& key, const value_view& delta, std::uint64_t function);
  [[nodiscard]] bool empty() const noexcept { return sums_.empty(); }
  /// Called before a request on one key, or on many (null), is sent.
  void send_before(const std::string_view* key);
  /// The same for a list of keys.
  void send_before(net::request_items listed);
  /// Sends all of them in requests on many keys. Blocks: until they are answered; their errors are recorded.
  void send_all();
  /// Adds the sum of a key that is not sent yet to a value from its server. False: it does not fit.
  bool add_unsent(std::string_view key, read_cache::entry& e) const;

 private:
  using entry = update_combiner<update>::entry;

  static void unsent(update& u);
  void send(entry e);

  server_group& client_;
  worker_clock& clock_;
  const server_functions& functions_;
  request_failures& failures_;
  worker_cache& cache_;
  update_combiner<update> sums_;
  std::optional<bool> on_;  // as set by the user
};

}  // namespace paracel
