// SPDX-License-Identifier: BSD-3-Clause
//
// Redirects the calls of one shared library to the C library or another one, in this process only and without touching
// the calls of anybody else: the addresses in that library's relocation tables are exchanged. Used by connection_guard,
// since ZeroMQ has no hook there.
//
// A function of the same name defined here would take precedence for every library of the process, or, in a library
// that an interpreter has loaded, for none.
#pragma once

#include <span>

namespace paracel::net {

struct redirected_call {
  const char* name;   ///< as `recv`
  void* replacement;  ///< of the same type. It reaches the original by dlsym, of RTLD_DEFAULT or of that library
};

/// Redirects these calls of the library that contains `member`, a function or an object of it. Repeating it has no
/// effect, unless the dynamic linker has resolved a call meanwhile.
/// Returns: whether each of the functions is called from there, and all calls are redirected.
/// Thread-safety: any thread, one at a time. Cost: about 100 us, once the tables are in memory 20.
bool redirect_calls(const void* member, std::span<const redirected_call> calls);

}  // namespace paracel::net
