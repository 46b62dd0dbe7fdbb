// SPDX-License-Identifier: BSD-3-Clause
//
// Ends the process that loads it, before anything of it can be looked at.
#include <csignal>

namespace {

[[gnu::constructor]] void die() { raise(SIGSEGV); }

}  // namespace
