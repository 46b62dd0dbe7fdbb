// SPDX-License-Identifier: BSD-3-Clause
//
// Messages between the processes of a job, exactly once and in the order of each sender, over connections that may
// break.
//
//     send       any thread, under a lock: the port `out_`, on which only acknowledgements arrive
//     receive    a thread of its own: the port `in_`, which is bound
//
// A message acknowledges what its sender has received from its receiver; what is not acknowledged that way within 20 ms
// is acknowledged by a reply of the port. A gap is answered `connection_reset`, and the sender resends all
// unacknowledged messages (net/reliable_channel.hpp).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/shared_buffer.hpp"
#include "net/mutex.hpp"
#include "net/reliable_channel.hpp"
#include "net/transport.hpp"
#include "ps/internal/message.h"

namespace paracel::ps_compat {

/// The sender of a message: `client` identifies its process and no later one, 0 the scheduler; `node` is 0 until it has
/// an id.
struct sender {
  std::uint64_t client = 0;
  int node = 0;
};

/// Thread-safety: any thread, unless stated otherwise.
class node_channels {
 public:
  static constexpr std::uint64_t scheduler = 0;  ///< the scheduler's key at other nodes
  struct options {
    std::uint64_t job = 0;
    std::uint64_t client = 0;
    bool is_scheduler = false;
    std::chrono::milliseconds resend{1000};  ///< silence after which a sender asks about unacknowledged messages
    int drop_percent = 0;                    ///< of received messages, at random
  };
  using deliver_function = std::function<void(const sender& from, ::ps::Message received)>;
  using tick_function = std::function<void()>;

  /// Binds to each address. Throws: network_error that names the one that cannot be used.
  node_channels(net::transport& over, const options& o, const std::vector<std::string>& addresses);
  ~node_channels();

  /// The addresses to connect to.
  [[nodiscard]] const std::vector<std::string>& addresses() const { return addresses_; }
  /// Begins to receive: `deliver` runs on the receiving thread, and `tick` there at least every 100 ms.
  void start(deliver_function deliver, tick_function tick);
  /// Waits until all is acknowledged, at most `limit`; then receives nothing more.
  void stop(std::chrono::milliseconds limit);

  void set_node(int id) { node_ = id; }
  void connect(std::uint64_t client, const std::string& address);
  /// Gives up unacknowledged messages, and ignores what still arrives from there.
  void disconnect(std::uint64_t client);
  /// Keeps the arrays until they are acknowledged. Returns: the bytes sent, -1 when there is no connection. Never
  /// blocks for the receiver. Throws: network_error when the message is too large.
  std::int64_t send(std::uint64_t client, const ::ps::Message& m);
  /// How long no message to it has been acknowledged; 0: none is unacknowledged.
  [[nodiscard]] std::chrono::nanoseconds unacknowledged(std::uint64_t client);
  /// This process was suspended for so long: the others had not that time to acknowledge.
  void was_away(std::chrono::nanoseconds time);
  /// Whether it has acknowledged a message: it may not have been started before.
  [[nodiscard]] bool has_answered(std::uint64_t client);

 private:
  using steady_clock = std::chrono::steady_clock;
  struct outgoing_node {
    net::reliable_channel channel;
    std::uint64_t last = 0;  // sequence
    steady_clock::time_point progressed;
    steady_clock::time_point looked;
  };
  struct incoming_node {
    std::uint64_t client = 0;
    net::peer from;
    std::atomic<std::uint64_t> taken{0};
    std::atomic<std::uint64_t> acknowledged{0};
    std::uint64_t sequence = 0;  // of the last message, which a reply answers
    std::atomic<bool> ignored{false};
  };

  void run();
  void on_message();
  void reply(const net::peer& to, std::uint64_t sequence, net::verb what, net::status result, std::uint64_t next);
  void acknowledge(std::uint64_t client, std::uint64_t next);
  void acknowledge_all();
  void serve_replies() PARACEL_REQUIRES(mutex_);
  void check_channels();
  [[nodiscard]] net::request_header header_for(const outgoing_node& to, std::uint64_t client) PARACEL_REQUIRES(mutex_);

  const options options_;
  std::vector<std::string> addresses_;
  std::atomic<int> node_{0};
  deliver_function deliver_;
  tick_function tick_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};

  mutex mutex_;
  std::unique_ptr<net::port> out_ PARACEL_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, outgoing_node> to_ PARACEL_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, std::unique_ptr<incoming_node>> from_ PARACEL_GUARDED_BY(mutex_);
  net::incoming reply_ PARACEL_GUARDED_BY(mutex_);

  // Used by the receiving thread only.
  std::unique_ptr<net::port> in_;
  net::incoming received_;
  bool owes_ = false;  // acknowledgements
  steady_clock::time_point looked_;
  std::minstd_rand drops_;
};

}  // namespace paracel::ps_compat
