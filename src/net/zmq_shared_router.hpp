// SPDX-License-Identifier: BSD-3-Clause
//
// A ROUTER that several threads share, so that a client needs one connection for all of them. An internal header of
// zmq_transport.cpp.
//
// Each thread has a lane: a queue of its requests. There is no thread for the socket: any idle lane receives, puts the
// requests of other lanes into their queues and wakes those that sleep. All idle lanes wait for the socket's
// descriptor, each in an epoll of its own with EPOLLEXCLUSIVE, so that new input wakes one of them. A busy lane does
// not hold up the others: the next input wakes another one.
//
// The descriptor signals new input once, and any send may consume the signal (ZMQ_FD). So a lane that replies while
// others sleep checks the socket afterwards, but at most every `check_interval`: a check is a system call. Input that
// is missed in between waits until that lane has replied again or handled its batch, and at most until the timeout of a
// sleeper (100 ms in a server), which checks the socket too.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <zmq.hpp>

#include "core/shared_buffer.hpp"
#include "net/mutex.hpp"
#include "net/transport.hpp"
#include "net/zmq_socket.hpp"

namespace paracel::net {

/// Thread-safety: any thread; each lane's `take` and `wait` by the lane's own thread.
/// Locking order: the socket, a lane.
class zmq_shared_router {
 public:
  /// A request in the queue of its lane.
  struct request {
    peer from;
    zmq::message_t frame;
    shared_buffer tail;
  };
  /// Another descriptor that a lane's thread waits for in addition to the socket, as `wait` reports it.
  using other = std::uint32_t;

  /// While a lane's queued requests take more, nothing is received until its thread takes them. Connections then fill
  /// up to their high-water mark, as they do where each thread has its own socket.
  static constexpr std::size_t most_queued_bytes = std::size_t{64} << 20;

  /// Throws: network_error when the address cannot be bound.
  zmq_shared_router(std::shared_ptr<zmq_context> in, const std::string& address, std::size_t lanes,
                    const transport_limits& limits);
  ~zmq_shared_router();
  zmq_shared_router(const zmq_shared_router&) = delete;
  zmq_shared_router& operator=(const zmq_shared_router&) = delete;

  [[nodiscard]] const std::string& address() const noexcept { return address_; }

  /// Takes the queued requests of a lane, in the order of arrival; if there are none, first receives from the socket.
  /// `into`: empty. Returns: whether there were any. Blocks: only for the lock.
  bool take(std::uint16_t lane, std::vector<request>& into);
  /// Sends a reply. Returns: 0 or the error for which it was not sent.
  int reply(const peer& to, const outgoing& message, send_queue_meter::probe* mark);
  /// Sleeps until the lane may have requests, or one of its other descriptors is signalled; these are appended.
  /// Blocks: at most `timeout`. Returns: false if nothing was signalled.
  bool wait(std::uint16_t lane, std::chrono::milliseconds timeout, std::vector<other>& signalled);
  /// Lets a lane wait for another descriptor too. Each signal is reported once.
  void add(std::uint16_t lane, int descriptor, other number);
  void remove(std::uint16_t lane, int descriptor) noexcept;
  /// The lane's thread has left: its requests are dropped from now on.
  void close(std::uint16_t lane) noexcept;

 private:
  // A reply within this time after the last check does not check again. Measured: a check takes 0.1 to 1.6 us.
  static constexpr std::chrono::microseconds check_interval{200};
  // Most messages received in a row before the receiver turns to its own requests.
  static constexpr std::size_t most_in_a_row = 1024;
  // What a queued request takes besides its bytes.
  static constexpr std::size_t request_overhead = 256;

  struct lane {
    mutex access;
    std::vector<request> queue PARACEL_GUARDED_BY(access);
    std::size_t bytes PARACEL_GUARDED_BY(access) = 0;
    bool is_asleep PARACEL_GUARDED_BY(access) = false;
    bool is_closed PARACEL_GUARDED_BY(access) = false;
    std::atomic<bool> has_requests{false};
    int alarm = -1;   // an eventfd; written to wake the thread
    int events = -1;  // an epoll: the alarm, the socket's descriptor, others
  };
  /// The alarms of lanes to be woken when the socket's lock is released.
  class wake_list {
   public:
    wake_list() = default;
    wake_list(const wake_list&) = delete;
    wake_list& operator=(const wake_list&) = delete;
    ~wake_list() { ring(); }
    void add(int alarm) noexcept {
      if (count_ == alarms_.size()) ring();
      alarms_[count_++] = alarm;
    }

   private:
    void ring() noexcept;
    std::array<int, 16> alarms_;
    std::size_t count_ = 0;
  };

  void open(lane& l) const;
  void receive_all(wake_list& wake) PARACEL_REQUIRES(socket_access_);
  void receive_now();
  /// Returns: false when that lane's queue is full now.
  bool put(std::uint16_t to, request&& r, wake_list& wake);
  void wake_one(wake_list& wake);

  const std::shared_ptr<zmq_context> context_;
  const transport_limits limits_;
  std::string address_;
  int descriptor_ = -1;
  std::vector<std::unique_ptr<lane>> lanes_;
  // False: the socket was found empty, and its descriptor will signal new input.
  std::atomic<bool> may_have_input_{true};
  std::atomic<bool> is_stalled_{false};  // a lane's queue is full
  std::atomic<unsigned> sleepers_{0};
  mutex socket_access_;
  zmq_end socket_ PARACEL_GUARDED_BY(socket_access_);
  zmq_end::envelope envelope_ PARACEL_GUARDED_BY(socket_access_);
  std::chrono::steady_clock::time_point checked_ PARACEL_GUARDED_BY(socket_access_);
};

}  // namespace paracel::net
