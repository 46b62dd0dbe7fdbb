// SPDX-License-Identifier: BSD-3-Clause
//
// Kills the process that loads it, before any of its symbols can be looked up.
#include <csignal>

namespace {

[[gnu::constructor]] void die() { raise(SIGSEGV); }

}  // namespace
