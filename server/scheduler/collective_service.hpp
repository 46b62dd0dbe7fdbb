// SPDX-License-Identifier: BSD-3-Clause
//
// Collectives among the workers of a job, for jobs without MPI: every rank sends its contribution (format:
// src/net/collective_codec.hpp), the last one to arrive completes it for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/shared_buffer.hpp"
#include "net/collective_codec.hpp"
#include "net/protocol.hpp"
#include "net/transport.hpp"
#include "server/request/completion.hpp"
#include "server/scheduler/collective_log.hpp"
#include "server/scheduler/message_log.hpp"

namespace paracel::srv {

struct collective_limits {
  std::uint32_t max_ranks = 1U << 16;
  /// Incomplete operations. Each rank waits in one at a time, so a correct job never has more of them than
  /// communicators; an incorrect one must not grow without bound.
  std::size_t max_operations = 4096;
  /// Bytes of parked contributions.
  std::size_t max_parked_bytes = std::size_t{4} << 30;
  /// Bytes of one rank's reply: at most a message of the transport.
  std::size_t max_answer_bytes = net::transport_limits{}.max_message_bytes;
};

/// Parks the contributions of each (communicator, operation) until all its ranks have arrived, then answers all.
///
/// Reductions fold in rank order, whatever the order of arrival, so their results are bit-identical from run to run. A
/// NaN anywhere makes the maximum and the minimum NaN; integer sums wrap around.
/// When ranks disagree (kind, number of ranks, reduction, type, length, root), each of them is answered bad_request
/// with a text that says which ranks called what: the program's ranks have taken different paths, and none of them may
/// hang. Thread-safety: owned by the thread of its completions. Cost: O(bytes) an operation; a contribution received
/// as a tail, or copied from a body, is held until the last rank arrives. The replies of all-gather, broadcast and
/// reduce share one buffer.
class collective_service {
 public:
  explicit collective_service(collective_limits limits = {}) : limits_(limits) {}

  /// Accepts one rank's part. `in` must be of `verb::collective`; nothing of it is used after the call.
  void handle(const net::request_view& in, shared_buffer tail, completion done);
  /// Answers everything that waits.
  void fail_all(net::status why, std::string_view text);
  /// A rank of a communicator is lost: operations that wait for it, now or later, fail with bad_request.
  void depart(std::uint32_t comm, std::uint32_t rank, const std::string& who);
  /// The others continue without a rank of a communicator. Where it has not contributed yet, now and later, it counts
  /// as an empty contribution: a reduction folds the rest, its block of an all-gather or all-to-all is empty. A
  /// broadcast from it fails with bad_request.
  void eject(std::uint32_t comm, std::uint32_t rank, const std::string& who);

  /// From now on the answers of communicator 0 are logged, for replacements of its ranks; and its ranks may send
  /// messages, which are logged as well.
  void keep_answers(collective_log::options o) { kept_.emplace(std::move(o)); }
  [[nodiscard]] collective_log* kept() noexcept { return kept_ ? &*kept_ : nullptr; }
  /// Another process acts as this rank from now on: pending contributions of the previous one are
  /// dropped.
  void replace(std::uint32_t rank);
  /// How many collectives a rank of communicator 0 has called, if answers are kept.
  [[nodiscard]] std::uint64_t called(std::uint32_t rank) const {
    const auto it = called_.find(rank);
    return it == called_.end() ? 0 : it->second;
  }

  /// Pending contributions.
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }
  [[nodiscard]] std::size_t parked_bytes() const noexcept { return parked_bytes_; }
  [[nodiscard]] std::size_t message_bytes() const noexcept { return messages_.bytes(); }

 private:
  struct part {
    bool arrived = false;
    bool absent = false;  // ejected before it contributed; counts as arrived
    net::collective_request request;
    shared_buffer bytes;
    completion done;
  };
  struct operation {
    std::vector<part> parts;  // by rank
    std::uint32_t arrived = 0;
    std::uint32_t absent = 0;
    std::string failed;  // when set, later arrivals get this text
  };
  using operation_key = std::pair<std::uint32_t, std::uint64_t>;  // communicator, number
  using operations = std::map<operation_key, operation>;

  void fail(operation& o, std::string text);
  void finish(operations::iterator it);
  static void leave_out(operation& o, std::uint32_t rank);
  [[nodiscard]] static const part* speaker(const operation& o);
  [[nodiscard]] static std::size_t largest_answer(const operation& o);
  void complete(const operation_key& key, operation& o);
  void pass_message(const net::collective_request& r, shared_buffer bytes, completion done);
  bool answer_again(const net::collective_request& r, std::size_t contribution_bytes, completion& done);
  void erase_if_all_came(operations::iterator it);
  [[nodiscard]] bool make_room();

  collective_limits limits_;
  operations open_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> departed_;  // (communicator, rank) -> why
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> ejected_;   // likewise
  std::optional<collective_log> kept_;
  message_log messages_;                           // with kept_
  std::map<std::uint32_t, std::uint64_t> called_;  // by rank; with kept_
  std::size_t waiting_ = 0;
  std::size_t parked_bytes_ = 0;
};

}  // namespace paracel::srv
