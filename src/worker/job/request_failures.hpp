// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "client/server_group.hpp"
#include "net/protocol.hpp"

namespace paracel {

/// Throws the exception for a server's status. `doing`: the operation that failed.
[[noreturn]] void throw_status(net::status why, const std::string& text, const std::string& doing);

/// The outcome of a request, in its server's words.
struct outcome {
  net::status result = net::status::ok;
  std::string text;

  outcome() = default;
  outcome(net::status why, std::string_view words) : result(why), text(words) {}
  explicit outcome(const kv_result& r) : result(r.header.result), text(r.ok() ? std::string_view() : r.text()) {}
  [[nodiscard]] bool ok() const noexcept { return result == net::status::ok; }
  [[noreturn]] void raise(const std::string& doing) const { throw_status(result, text, doing); }
};

/// State shared by several futures or requests: the combined updates of a key, the parts of an array.
struct shared_update {
  std::string name;
  net::status result = net::status::ok;
  std::string text;
  std::vector<kvclt::sequence> sent{};  // requests of its own
};

/// Errors of a worker's requests, until they are reported: by the future of a request, or the next waiting point.
///
/// Thread-safety: none; owned by the thread of its client. Lifetime: the client must outlive every call.
class request_failures {
 public:
  using sequence = kvclt::sequence;

  explicit request_failures(server_group& client) noexcept : client_(client) {}

  /// A request failed. 0: one without a future.
  void record(sequence number, net::status result, std::string_view text, std::string doing);
  /// An exception of the caller while it handled the reply.
  void record(sequence number, std::exception_ptr error);
  /// `f(number, sent, text)`: called when a request fails, by its number or as one of several.
  void on_failure(std::function<void(sequence, const std::vector<sequence>*, const std::string&)> f) {
    on_failure_ = std::move(f);
  }
  /// Why a request whose future was not asked has failed; empty: it has not.
  [[nodiscard]] std::string reason(sequence number) const;
  [[nodiscard]] std::string reason(const std::vector<sequence>* sent) const;
  /// The first reason wins.
  void record(const std::shared_ptr<shared_update>& u, net::status result, std::string_view text);
  /// The request read a missing key.
  void record_missing(sequence number) { missing_.insert(number); }
  [[nodiscard]] std::size_t size() const noexcept { return failed_.size(); }

  /// Blocks: until the request is answered; 0: there was none. False: a key that was read does not exist. Throws: the
  /// error of the request.
  bool finish(sequence number);
  /// Blocks: until all of its requests are answered. Throws: their first error.
  void finish(const std::shared_ptr<shared_update>& u);
  void take(const std::shared_ptr<shared_update>& u) { std::erase(joint_, u); }
  /// Throws the first unreported failure; the others are cleared, except for their futures.
  void throw_first();
  /// An iteration ends: reads of it that found nothing are forgotten.
  void forget_missing() noexcept { missing_.clear(); }

 private:
  struct failed_request {
    sequence number = 0;
    outcome how;
    std::string doing;
    std::exception_ptr error;  // instead of the outcome
    bool told = false;         // already thrown by a waiting point; kept in case the future is asked
  };
  [[noreturn]] static void raise(const failed_request& f);
  [[nodiscard]] static std::string text_of(const failed_request& f);
  bool take(sequence number);

  server_group& client_;
  std::function<void(sequence, const std::vector<sequence>*, const std::string&)> on_failure_;
  std::vector<failed_request> failed_;
  std::vector<std::shared_ptr<shared_update>> joint_;  // whose futures were not asked
  std::unordered_set<sequence> missing_;               // reads of this iteration, not yet asked for
};

}  // namespace paracel
