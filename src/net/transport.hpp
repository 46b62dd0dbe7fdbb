// SPDX-License-Identifier: BSD-3-Clause
//
// The transport interface: messages of one or two frames between ports. A port has both roles: it answers requests
// at the addresses it is bound to and sends requests on the channels it has connected. There are three implementations:
// ZeroMQ (zmq_transport), Unix sockets read by their owners (unix_transport), and one inside the process
// (inproc_transport), for tests, sanitizers and the embedded mode.
#pragma once

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/shared_buffer.hpp"
#include "net/lane_address.hpp"

namespace paracel::net {

/// Where a reply is sent: opaque, created by the transport, valid as long as the requester's connection.
struct peer {
  static constexpr std::size_t capacity = 31;
  std::uint8_t size = 0;
  std::array<std::byte, capacity> id{};

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {id.data(), size}; }
  friend bool operator==(const peer& a, const peer& b) noexcept { return std::ranges::equal(a.bytes(), b.bytes()); }
  friend bool operator<(const peer& a, const peer& b) noexcept {
    return std::ranges::lexicographical_compare(a.bytes(), b.bytes());
  }
};

/// A message to send. `head` and `body` become one frame; `tail`, if present, a second frame sent without a
/// copy. The bytes of head and body are copied before the call returns.
struct outgoing {
  std::span<const std::byte> head;
  std::span<const std::byte> body{};
  shared_buffer tail{};
};

/// A received message. `frame` is valid until the next call of `receive` or `receive_batch` on the same port.
struct incoming {
  int channel = -1;                  ///< >= 0: a reply on that channel; -1: a request, to be answered to `from`
  peer from{};                       ///< set when channel is -1
  std::span<const std::byte> frame;  ///< first frame, any alignment
  shared_buffer tail{};              ///< second frame or empty
  bool tail_is_lent = false;         ///< the sender's process can still write it; see port::accept_lent_tails
  std::uint64_t unread_bytes =
      0;  ///< of replies to `from` still queued in this process; 0 when it is little, or unknown
};

struct transport_limits {
  std::size_t max_message_bytes = std::size_t{1}
                                  << 30;  ///< larger frames are rejected before sending and not accepted on receipt
  /// Of the messages over ZeroMQ that have not arrived as a whole, of all connections of the process. 0: half of the
  /// machine's memory, or one frame if that is larger.
  std::size_t max_unfinished_bytes = 0;
};

/// One thread's end of the transport.
/// Thread-safety: owned by the thread that uses it first; `open` may run on another thread before that.
class port {
 public:
  port() = default;
  port(const port&) = delete;
  port& operator=(const port&) = delete;
  virtual ~port() = default;

  /// Starts accepting requests at `address` and returns the address to connect to (a wildcard port is resolved).
  /// Throws: network_error with the address when it cannot be bound.
  virtual std::string bind(const std::string& address) = 0;
  /// Opens a channel. The other side need not exist yet. Returns the channel's number, 0, 1, ...; that of one that was
  /// disconnected may be used again, once `receive` has been called.
  virtual int connect(const std::string& address) = 0;
  virtual void disconnect(int channel) = 0;
  /// How many bytes have arrived on a channel's connection, and how many were acknowledged by the other host: a large
  /// message on its way is not silence. 0: unknown, as before the first reply, and where data takes no time to travel.
  [[nodiscard]] virtual std::uint64_t traffic(int /*channel*/) { return 0; }

  /// Sends a request on a channel. It may be lost without notice when the connection breaks, for whatever reason; later
  /// ones use another. Throws: network_error (not applied) when it cannot be queued.
  virtual void send(int channel, const outgoing& message) = 0;
  /// Sends a reply. Ignored when the peer is gone.
  virtual void reply(const peer& to, const outgoing& message) = 0;
  /// From now on messages may be kept back, so that those to one receiver leave together, until `flush`, or until
  /// nothing is left that `receive` could return without waiting. Calls nest. See batch_of_messages.
  virtual void hold() noexcept {}
  virtual void flush() noexcept {}
  /// From now on tails of replies may be lent: a well-behaved sender leaves them alone until they are released, and has
  /// less room for others until then; another one may change them at any time, so nothing in them may be relied on
  /// that was checked before.
  virtual void accept_lent_tails() noexcept {}

  /// The next message from anywhere. Malformed envelopes are dropped.
  /// Blocks: until a message arrives, at most `timeout` (zero: not at all). False when nothing arrived.
  virtual bool receive(incoming& out, std::chrono::milliseconds timeout) = 0;
  /// As `receive`, but also returns, false, as soon as one of these descriptors is ready, if the port can wait for
  /// both (`waits_beside`).
  virtual bool receive_beside(incoming& out, std::chrono::milliseconds timeout, std::span<const pollfd> /*others*/) {
    return receive(out, timeout);
  }
  [[nodiscard]] virtual bool waits_beside() const noexcept { return false; }
  /// The next messages in the order in which `receive` would return them: at least one unless nothing arrived, and no
  /// more than `out` has room for. More than the first are received only if they have already arrived; more may remain.
  /// Blocks: as `receive`. Returns: how many.
  virtual std::size_t receive_batch(std::span<incoming> out, std::chrono::milliseconds timeout) {
    return !out.empty() && receive(out.front(), timeout) ? 1 : 0;
  }
};

/// While it exists, the port's messages may be gathered.
class batch_of_messages {
 public:
  explicit batch_of_messages(port& of) noexcept : port_(of) { port_.hold(); }
  batch_of_messages(const batch_of_messages&) = delete;
  batch_of_messages& operator=(const batch_of_messages&) = delete;
  ~batch_of_messages() { port_.flush(); }

 private:
  port& port_;
};

/// Ports that are one server to their clients: each has its address and its thread.
struct port_group {
  std::vector<std::unique_ptr<port>> ports;
  std::vector<std::string> addresses;  ///< of each of them
};

class transport {
 public:
  transport() = default;
  transport(const transport&) = delete;
  transport& operator=(const transport&) = delete;
  virtual ~transport() = default;
  /// A new port. Thread-safety: any thread.
  virtual std::unique_ptr<port> open() = 0;
  /// New ports, bound to addresses derived from this one. In a transport with connections, a client's port has one
  /// connection to all of them: its channels to several of these addresses share it. Requests of one channel arrive in
  /// order, a channel that is disconnected and connected again gets a new connection, and the others keep theirs. A
  /// thread that does not receive does not hold up requests to the others, until very many are queued for it.
  /// Throws: network_error with the address when it cannot be bound. Thread-safety: any thread.
  virtual port_group open_group(const std::string& address, std::size_t ports) {
    port_group group;
    for (std::size_t i = 0; i < ports; ++i) {
      group.ports.push_back(open());
      group.addresses.push_back(
          group.ports.back()->bind(i == 0 ? address : lane_address::of(group.addresses.front(), i)));
    }
    return group;
  }
};

}  // namespace paracel::net
