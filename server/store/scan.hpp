// SPDX-License-Identifier: BSD-3-Clause
//
// The verbs that scan a shard: scan, top_k, reduce, remove_if. The server keeps no cursor state: a request says where
// to begin, the server works until the reply is full or its time slice is over, and replies with what it has and with
// the place to continue from. So a scan of any length blocks others for at most a slice, needs no message as large as
// its result, and a client that disappears leaves nothing behind.
//
// A place is (partition, low 16 bits of the hash): both stay with a key whatever is inserted, erased or rehashed
// between two requests. A step of the scan covers a range of such places in one go: a group of partitions (read in
// address order, where it is small enough), a partition, or a part of one; a range that does not fit the reply is
// halved. So a key that exists throughout is visited exactly once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/protocol.hpp"
#include "net/scan_codec.hpp"
#include "server/plugin/plugin_registry.hpp"
#include "server/store/key_store.hpp"

namespace paracel::srv {

/// What a scan needs from its shard.
class scan_observer {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  virtual ~scan_observer() = default;
  /// Folds the staged updates of every key that are of clocks before this one. False: the slice ended first; finished
  /// folds stay.
  virtual bool fold_all_before(std::uint32_t clock, time_point until) = 0;
  /// The failure of a folded update of a key with this prefix, which every BSP reader is told.
  virtual net::status broken(std::string_view prefix, std::string& why) const = 0;
  /// The key is about to be erased, with its staged updates.
  virtual void erasing(std::string_view key, std::uint64_t hash) = 0;
  /// The user function that runs from now on; null: none.
  virtual void runs(const std::string* function) noexcept = 0;
};

struct scan_answer {
  net::status result = net::status::ok;
  std::string text;  ///< why not
  net::reply_header header;
  std::span<const std::byte> body;  ///< valid until the next request
};

/// Thread-safety: owned by the shard thread.
/// Lifetime: keys, plug-ins and host must outlive it.
class scan_service {
 public:
  struct limits {
    std::chrono::microseconds slice{4000};           ///< other clients wait at most this long, plus one step
    std::size_t reply_bytes = std::size_t{4} << 20;  ///< of a client that grants no credit
  };

  scan_service(key_store& keys, const plugin_registry& plugins, scan_observer& host, limits l)
      : keys_(keys), plugins_(plugins), host_(host), limits_(l) {}
  scan_service(key_store& keys, const plugin_registry& plugins, scan_observer& host)
      : scan_service(keys, plugins, host, limits()) {}

  /// Executes one slice. `header.what` is one of the four verbs.
  /// Throws: std::bad_alloc; only the removals of remove_if remain.
  /// Blocks: for about `limits::slice`; a single value or filter call that takes longer is finished.
  scan_answer handle(const net::request_view& request);

 private:
  struct call;
  template <class Visitor>
  void visit(call& c, Visitor& visitor);
  template <class Visitor>
  bool step_over_group(call& c, std::size_t group, Visitor& visitor);
  scan_answer scan(call& c);
  scan_answer top_k(call& c, std::uint32_t k);
  scan_answer reduce(call& c, const net::reduce_request& r);
  scan_answer remove_if(call& c);
  scan_answer finished(const call& c, std::uint64_t count);

  key_store& keys_;
  const plugin_registry& plugins_;
  scan_observer& host_;
  limits limits_;
  std::vector<std::byte> body_;  // capacity is reused
};

}  // namespace paracel::srv
