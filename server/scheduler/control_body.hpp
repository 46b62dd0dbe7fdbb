// SPDX-License-Identifier: BSD-3-Clause
//
// Fields of the JSON bodies of control verbs (scheduler.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "net/protocol.hpp"

namespace paracel::srv {

/// The longest cause of a loss or an abort that is kept; the rest is cut off.
inline constexpr std::size_t max_cause_bytes = 4096;

/// A request that cannot be served; the text is returned to its sender.
class refusal : public error {
 public:
  using error::error;
};

/// Throws: refusal when the body is too long, or not a JSON object.
[[nodiscard]] nlohmann::json object_in(const net::request_view& in);
/// Throws: refusal when the member is missing, or not a whole number up to `most`.
[[nodiscard]] std::uint64_t whole_number_in(const nlohmann::json& j, const char* key, std::uint64_t most);
/// Throws: refusal when the member is missing, or not a string of at most 1,024 bytes.
[[nodiscard]] std::string text_in(const nlohmann::json& j, const char* key);
/// An address that can be connected to: the scheduler does that later, when it could refuse nothing any more.
/// Throws: refusal.
[[nodiscard]] std::string address_in(const nlohmann::json& j, const char* key);
/// `otherwise` when the member is missing or not a string.
[[nodiscard]] std::string text_or(const nlohmann::json& j, const char* key, std::string otherwise);
/// The member `key`, or `otherwise`, of at most max_cause_bytes.
[[nodiscard]] std::string cause_or(const nlohmann::json& j, const char* key, std::string otherwise);
/// The member `key`, "usage" or "metrics", as text, without line ends; empty when it is missing, not an object, or
/// longer than 64 KiB.
[[nodiscard]] std::string counters_in(const nlohmann::json& j, const char* key);
/// An exit status from outside; invalid ones become the general failure.
[[nodiscard]] int exit_status_in(const nlohmann::json& j);

}  // namespace paracel::srv
