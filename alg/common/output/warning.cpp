// SPDX-License-Identifier: BSD-3-Clause
#include "warning.hpp"

#include <cstdio>

#include <paracel/json_parser.hpp>

#include "run_log.hpp"

namespace paracel::alg {

void warn(const Comm& comm, const std::string& text) {
  if (comm.get_rank() != 0) return;
  const auto line = "warning: " + text;
  std::fprintf(stderr, "%s\n", line.c_str());
  comm.report(json_object().add("warning", "worker 0: " + line).text());
}

void warn_not_converged(const Comm& comm, int rounds, const std::string& quantity, double found, double wanted,
                        const std::string& remedy) {
  warn(comm, "not converged after " + std::to_string(rounds) + (rounds == 1 ? " round: " : " rounds: ") + quantity +
                 " is " + json_number(found) + ", want at most " + json_number(wanted) + "; " + remedy);
}

void warn_of_spread(const Comm& comm, const std::string& what, double deviation, const std::string& keys) {
  constexpr double usual = 100;
  if (!(deviation > usual) && !(deviation > 0 && deviation < 1 / usual)) return;
  warn(comm, what + " have a standard deviation of " + json_number(deviation) + ", and " + keys +
                 " are meant for about 1: divide them by it, or change these keys");
}

}  // namespace paracel::alg
