// SPDX-License-Identifier: BSD-3-Clause
//
// The direct connections (net/direct_link.hpp) of a worker to others, and how they begin (link_handshake.hpp).
//
// An offer is good for one connection. Who listens reads nothing else of a stranger, for 2 s, of 64 at a time, and only
// while there are offers.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/detail/bytes.hpp>

#include "net/direct_link.hpp"
#include "worker/job/link_handshake.hpp"

namespace paracel {

/// Thread-safety: owned by the thread that runs the algorithm.
class direct_links {
 public:
  struct options {
    std::string host;  ///< where this worker listens
    bool encrypts = false;
    std::uint32_t rank = 0;
    std::uint64_t client = 0;
    std::size_t most_message_bytes = std::size_t{1} << 30;
  };
  /// The communicator of messages that are offers.
  static constexpr std::uint64_t communicator = UINT64_MAX;
  /// Jobs of more workers have none: each is a descriptor that is looked at.
  static constexpr std::uint32_t most_workers = 64;

  explicit direct_links(options o) : options_(std::move(o)) {}

  /// The offer that is to be sent to a worker; empty: none is, or it cannot be listened.
  [[nodiscard]] byte_vector offer(std::uint32_t to, std::uint32_t turn);
  /// An offer of the process that is this worker.
  void take_offer(std::uint32_t from, std::uint64_t client, std::uint32_t turn, std::span<const std::byte> offer,
                  std::uint32_t own_turn);

  struct peer_link {
    std::shared_ptr<net::direct_link> link;
    std::uint64_t client = 0;  ///< the process at the other end
    std::uint32_t turn = 0;    ///< how many were that worker before
  };
  /// Another process is this worker now: what there is with an earlier one ends.
  void forget_before(std::uint32_t rank, std::uint32_t turn);
  /// A connection over which messages can be sent; null: there is none.
  [[nodiscard]] peer_link* find(std::uint32_t rank);
  [[nodiscard]] bool is_idle() const noexcept { return links_.empty() && accepted_.empty() && !listener_; }
  /// Reads what has arrived. Returns: whether there was anything, or a connection has ended.
  using taker = std::function<void(std::uint32_t rank, peer_link& over, const net::link_record&, byte_vector body)>;
  bool progress(const taker& take);
  /// A connection that has ended, which is no longer there.
  [[nodiscard]] std::optional<std::uint32_t> take_broken();
  /// Ends the connection, if there is one: it has broken. None is offered again.
  void close(std::uint32_t rank);
  /// What to poll for.
  [[nodiscard]] std::span<pollfd> descriptors();
  void for_each(const std::function<void(std::uint32_t, peer_link&)>& call);
  /// The queued rest of this link is sent even if this worker computes.
  void hand_over(const peer_link& p) { courier_.take(p.link); }

 private:
  using clock = std::chrono::steady_clock;
  struct offered {
    net::link_box::key key{};
    std::uint32_t turn = 0;
    clock::time_point until{};
  };
  struct accepted {
    net::owned_fd fd;
    clock::time_point until{};
    std::array<std::byte, link_hello::size(false)> hello{};
    std::size_t filled = 0;
  };
  bool listen();
  void attend_listener();
  bool admit(accepted& a);
  [[nodiscard]] std::shared_ptr<net::direct_link> linked(net::owned_fd fd, const net::direct_link::boxes& b) const;

  options options_;
  std::optional<net::owned_fd> listener_;
  std::uint16_t port_ = 0;
  std::string host_;  // numeric
  std::map<std::uint32_t, offered> offers_;
  std::vector<accepted> accepted_;
  std::map<std::uint32_t, std::uint32_t> over_;  // the turn of the process with which there was one, or an offer
  std::map<std::uint32_t, peer_link> links_;
  std::vector<pollfd> polled_;
  net::courier courier_;
};

}  // namespace paracel
