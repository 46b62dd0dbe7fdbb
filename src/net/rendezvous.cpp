// SPDX-License-Identifier: BSD-3-Clause
#include "net/rendezvous.hpp"

#include <charconv>
#include <cstdio>

#include <paracel/error.hpp>

namespace paracel::net {

namespace {
constexpr std::string_view prefix = "paracel1;";
constexpr std::size_t job_digits = 16;
}  // namespace

std::uint64_t parse_job_id(std::string_view text) {
  std::uint64_t job = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), job, 16);
  if (text.size() != job_digits || failure != std::errc{} || end != text.data() + text.size())
    throw usage_error("job id \"" + std::string(text) + "\": want 16 hex digits");
  return job;
}

std::string rendezvous::to_string() const {
  char digits[job_digits + 1];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(job));
  return std::string(prefix) + digits + ';' + scheduler;
}

rendezvous rendezvous::parse(std::string_view text) {
  if (!text.starts_with(prefix) || text.size() <= prefix.size() + job_digits + 1 ||
      text[prefix.size() + job_digits] != ';')
    throw usage_error("server info \"" + std::string(text) +
                      "\" was not made by this framework: want the string that prun.py passes as --server_info");
  rendezvous r;
  r.job = parse_job_id(text.substr(prefix.size(), job_digits));
  r.scheduler = std::string(text.substr(prefix.size() + job_digits + 1));
  return r;
}

}  // namespace paracel::net
