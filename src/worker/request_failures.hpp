// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "client/kvclt.hpp"
#include "net/protocol.hpp"

namespace paracel {

/// Throws what a server's status stands for. `doing`: what was being done.
[[noreturn]] void throw_status(net::status why, const std::string& text, const std::string& doing);

/// How a request ended, in its server's words.
struct outcome {
  net::status result = net::status::ok;
  std::string text;

  outcome() = default;
  outcome(net::status why, std::string_view words) : result(why), text(words) {}
  explicit outcome(const kv_result& r) : result(r.header.result), text(r.ok() ? std::string_view() : r.text()) {}
  [[nodiscard]] bool ok() const noexcept { return result == net::status::ok; }
  [[noreturn]] void raise(const std::string& doing) const { throw_status(result, text, doing); }
};

/// What several futures, or several requests, share: the updates of a key that were added up, the parts of an array.
struct shared_update {
  std::string name;
  net::status result = net::status::ok;
  std::string text;
  std::vector<kvclt::sequence> sent{};  // requests of its own
};

/// What a worker's requests failed with, until somebody asks: the future of a request, or the next waiting point.
///
/// Thread-safety: none; owned by the thread of its client.
class request_failures {
 public:
  using sequence = kvclt::sequence;

  /// A request failed. 0: one that nobody can ask for.
  void record(sequence number, net::status result, std::string_view text, std::string doing);
  /// What the caller threw when it was given the answer.
  void record(sequence number, std::exception_ptr error);
  /// The first reason counts.
  void record(const std::shared_ptr<shared_update>& u, net::status result, std::string_view text);
  /// It read a key that is not there.
  void record_missing(sequence number) { missing_.insert(number); }
  [[nodiscard]] std::size_t size() const noexcept { return failed_.size(); }

  /// Of a request that is answered. False: a key that was read is not there. Throws: what it failed with.
  bool take(sequence number);
  void take(const std::shared_ptr<shared_update>& u) { std::erase(joint_, u); }
  /// Throws the first failure that nobody was told; the others are forgotten, but for their futures.
  void throw_first();
  /// An iteration ends: nobody asks any more which of its reads found nothing.
  void forget_missing() noexcept { missing_.clear(); }

 private:
  struct failed_request {
    sequence number = 0;
    outcome how;
    std::string doing;
    std::exception_ptr error;  // instead of the outcome
    bool told = false;         // thrown by a waiting point already; kept for the future, should it be asked
  };
  [[noreturn]] static void raise(const failed_request& f);

  std::vector<failed_request> failed_;
  std::vector<std::shared_ptr<shared_update>> joint_;  // whose futures nobody has asked
  std::unordered_set<sequence> missing_;               // reads of this iteration, not yet asked for
};

}  // namespace paracel
