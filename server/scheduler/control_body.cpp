// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/control_body.hpp"

#include <utility>

#include "core/json_io.hpp"
#include "core/number_parsing.hpp"
#include "net/lane_address.hpp"

namespace paracel::srv {
namespace {

// A join with 1,024 shard addresses of 50 bytes is 51 kB; the rest is room.
constexpr std::size_t max_control_bytes = std::size_t{1} << 20;
constexpr std::size_t max_text_bytes = 1024;  // of a host or an address, as in core/membership.cpp

}  // namespace

nlohmann::json object_in(const net::request_view& in) {
  if (in.body.size() > max_control_bytes) throw refusal("the body is longer than a control message can be");
  auto j = json_from(net::text_of(in.body), max_control_bytes);
  if (!j.is_object()) throw refusal("the body is not a JSON object");
  return j;
}

std::uint64_t whole_number_in(const nlohmann::json& j, const char* key, std::uint64_t most) {
  const auto it = j.find(key);
  if (it == j.end()) throw refusal(std::string("\"") + key + "\" is missing");
  // nlohmann keeps non-negative integers of a parsed text as unsigned
  if (!it->is_number_unsigned() || it->get<std::uint64_t>() > most)
    throw refusal(std::string("\"") + key + "\" is " + json_text(*it) + ", not a whole number up to " +
                  std::to_string(most));
  return it->get<std::uint64_t>();
}

std::string text_in(const nlohmann::json& j, const char* key) {
  const auto it = j.find(key);
  if (it == j.end() || !it->is_string() || it->get_ref<const std::string&>().size() > max_text_bytes)
    throw refusal(std::string("\"") + key + "\" is missing or not a short string");
  return it->get<std::string>();
}

std::string address_in(const nlohmann::json& j, const char* key) {
  auto a = text_in(j, key);
  if (!net::is_address(a))
    throw refusal(std::string("\"") + key + "\" is " + quote_for_error(a) +
                  ", not ipc://PATH, tcp://HOST:PORT or inproc://NAME");
  return a;
}

std::string text_or(const nlohmann::json& j, const char* key, std::string otherwise) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : std::move(otherwise);
}

std::string cause_or(const nlohmann::json& j, const char* key, std::string otherwise) {
  auto cause = text_or(j, key, std::move(otherwise));
  if (cause.size() > max_cause_bytes) cause.resize(max_cause_bytes);
  return cause;
}

std::string counters_in(const nlohmann::json& j, const char* key) {
  constexpr std::size_t most_bytes = std::size_t{64} << 10;
  const auto it = j.find(key);
  if (it == j.end() || !it->is_object()) return {};
  auto text = json_text(*it);
  return text.size() <= most_bytes ? text : std::string();
}

int exit_status_in(const nlohmann::json& j) {
  const auto it = j.find("status");
  if (it == j.end() || !it->is_number_integer()) return exit_status::failure;
  const auto s = it->get<std::int64_t>();
  return s >= 0 && s <= 255 ? static_cast<int>(s) : exit_status::failure;
}

}  // namespace paracel::srv
