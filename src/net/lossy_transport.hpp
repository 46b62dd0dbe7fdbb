// SPDX-License-Identifier: BSD-3-Clause
//
// A transport that disturbs messages on purpose (prun.py --drop-messages): some of those that its ports send on their
// channels, and of the replies received there, are lost, duplicated or delayed, as by connections that break or stall:
//
//   lost      with everything else in flight: the channel gets a new connection, without notice to either side
//   doubled   the message arrives twice in a row
//   delayed   it and all that follow it on the channel in this direction wait for up to 50 ms
//
// Only messages that are resent when lost are disturbed: those of streams (net::flag_stream), and their replies. Not
// disturbed are heartbeats, notices from the clock to shards, requests that a server forwards, and progress reports,
// whose replies are not awaited.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "net/transport.hpp"

namespace paracel::net {

struct lossy_options {
  double percent = 1;  ///< of the messages that are disturbed, a third each are lost, doubled and delayed
  std::uint64_t seed = 1;
  std::string process{};  ///< as `w0`, `s1`: processes of a job make different choices
};

/// The choice for a message depends only on the seed, the process, and the numbers of port, channel and message.
///
/// Thread-safety: as the inner transport; counters: any thread.
class lossy_transport final : public transport {
 public:
  struct counters {
    std::atomic<std::uint64_t> messages{0};  ///< that could have been disturbed
    std::atomic<std::uint64_t> lost{0};
    std::atomic<std::uint64_t> doubled{0};
    std::atomic<std::uint64_t> delayed{0};
  };

  lossy_transport(std::shared_ptr<transport> inner, lossy_options options);
  /// Parses options from a command line or the environment.
  /// Throws: usage_error that names the text.
  static lossy_options options_from(std::string_view percent, std::string_view seed, std::string process);

  std::unique_ptr<port> open() override;
  port_group open_group(const std::string& address, std::size_t ports) override;

  [[nodiscard]] const counters& counts() const noexcept { return state_->counts; }
  /// A line for the log.
  [[nodiscard]] std::string report() const;

 private:
  friend class lossy_port;
  struct state {
    lossy_options options;
    counters counts;
    std::atomic<std::uint64_t> ports{0};
  };

  std::unique_ptr<port> wrap(std::unique_ptr<port> inner);

  std::shared_ptr<transport> inner_;
  std::shared_ptr<state> state_;
};

}  // namespace paracel::net
