// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include <paracel/error.hpp>

#include "net/job_key.hpp"

namespace paracel::net {

/// Whether only processes of this host can reach what is bound at `address`: anything but tcp, or a loopback interface.
constexpr bool is_loopback(std::string_view address) noexcept {
  constexpr std::string_view tcp = "tcp://";
  if (!address.starts_with(tcp)) return true;
  const auto host = address.substr(tcp.size(), address.rfind(':') - tcp.size());
  return host.starts_with("127.") || host == "localhost" || host == "[::1]" || host == "lo";
}

/// Without the key of an encrypted job (job_key.hpp) frames are readable and their senders unknown, so binding anything
/// but loopback must be requested. Throws: usage_error with the address.
inline void check_bind(const std::string& address, bool insecure) {
  if (!insecure && !job_curve_secret() && !is_loopback(address))
    throw usage_error(address +
                      " can be reached from other hosts, by anybody and unencrypted: start the job with prun.py, which "
                      "encrypts, or add --insecure if the network is trusted");
}

}  // namespace paracel::net
