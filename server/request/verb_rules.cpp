// SPDX-License-Identifier: BSD-3-Clause
#include "server/request/verb_rules.hpp"

#include "core/check.hpp"

namespace paracel::srv {

using net::status;

namespace {

constexpr auto by_place = [] {
  std::array<std::array<std::uint8_t, net::verb_count>, places> all{};  // number of the rule + 1
  static_assert(verb_rules.size() < 255);
  for (std::size_t i = 0; i < verb_rules.size(); ++i) {
    const auto& r = verb_rules[i];
    auto& number = all[static_cast<std::size_t>(r.at)][static_cast<std::size_t>(r.what)];
    if (number != 0) throw "a verb has two rules at one place";  // a compile-time error
    number = static_cast<std::uint8_t>(i + 1);
  }
  return all;
}();

}  // namespace

const char* name_of(place p) noexcept {
  switch (p) {
    case place::shard:
      return "a shard thread";
    case place::clock:
      return "the clock thread";
    case place::control:
      return "the control thread";
    case place::scheduler:
      return "the scheduler";
    case place::worker:
      return "a worker";
  }
  return "?";
}

const verb_rule* rule_of(place at, net::verb what) noexcept {
  PARACEL_ASSERT(static_cast<std::size_t>(at) < places);
  const auto v = static_cast<std::size_t>(what);
  const auto number = v < net::verb_count ? by_place[static_cast<std::size_t>(at)][v] : std::uint8_t{0};
  return number == 0 ? nullptr : &verb_rules[number - 1U];
}

std::optional<refusal_at_door> refused_at(place at, const net::request_header& h, std::uint64_t job,
                                          std::uint64_t incarnation) {
  const auto* rule = rule_of(at, h.what);
  if (job != 0 && h.job != job) [[unlikely]] {
    return refusal_at_door{status::wrong_job, std::string(name_of(at)) + " of another job"};
  }
  if (rule == nullptr) [[unlikely]] {
    return refusal_at_door{status::bad_request, std::string(net::name_of(h.what)) + " is not a verb of " + name_of(at)};
  }
  if (rule->who == asker::itself && h.client != incarnation) [[unlikely]] {
    return refusal_at_door{status::bad_request, std::string(net::name_of(h.what)) + " comes from this server alone"};
  }
  if (rule->who == asker::scheduler && job != 0 && h.client != job) [[unlikely]] {
    return refusal_at_door{status::bad_request, std::string(net::name_of(h.what)) + " comes from the scheduler alone"};
  }
  return std::nullopt;
}

}  // namespace paracel::srv
