// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace paracel::net {

/// Whether only processes of this host can reach what is bound at `address`: anything but tcp, or an interface or host
/// whose addresses are all of the loopback network (127.0.0.0/8, ::1), however they are written. A name counts by what
/// it resolves to, and not by its letters; one that resolves to nothing is no loopback.
/// Cost: that of the resolver. Thread-safety: any thread.
[[nodiscard]] bool is_loopback(const std::string& address);

/// Without the key of an encrypted job (job_key.hpp) frames are readable and their senders unknown, so binding anything
/// but loopback must be requested. Throws: usage_error with the address.
void check_bind(const std::string& address, bool insecure);

}  // namespace paracel::net
