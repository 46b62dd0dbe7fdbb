// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <paracel/comm.hpp>

namespace paracel::alg {

/// Rank 0 writes "warning: text" to its stderr, and to that of the launcher, which would otherwise be in a log only.
void warn(const Comm& comm, const std::string& text);

/// The warning of a run whose `rounds` were not enough: what is still too large, what is wanted, and the key to raise.
/// The rule for all programs: a result that has not reached its tolerance is written with this warning; a program whose
/// result would be of no use then (a linear model far from its minimum) ends with status 1 instead.
void warn_not_converged(const Comm& comm, int rounds, const std::string& quantity, double found, double wanted,
                        const std::string& remedy = "raise rounds");

/// For methods whose step size and start are in the units of the targets: warns if the targets' standard deviation is
/// not between 0.01 and 100. `what`: "the ratings".
void warn_of_spread(const Comm& comm, const std::string& what, double deviation, const std::string& keys);

}  // namespace paracel::alg
