// SPDX-License-Identifier: BSD-3-Clause
//
// One ZeroMQ socket with the framework's options and envelope: what ports (zmq_transport.cpp) and the socket that
// several of them share (zmq_shared_router.cpp) have in common. An internal header of these files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/error.hpp>
#include <zmq.hpp>

#include "core/shared_buffer.hpp"
#include "net/connection_guard.hpp"
#include "net/frame_parts.hpp"
#include "net/lane_address.hpp"
#include "net/mutex.hpp"
#include "net/send_queue_meter.hpp"
#include "net/transport.hpp"
#include "net/zmq_curve.hpp"

namespace paracel::net {

/// Throws: network_error with ZeroMQ's reason.
[[noreturn]] void fail_by_zmq(const std::string& what, const zmq::error_t& error);

/// ZeroMQ's threads, the guard of what is bound there, and the key if connections are encrypted. Thread-safety: any
/// thread.
class zmq_context {
 public:
  /// `dropped`: see zmq_transport. With `secret`, what is bound or connected by tcp is encrypted.
  /// Throws: network_error when ZeroMQ cannot be started.
  zmq_context(const transport_limits& limits, std::function<void(std::string_view)> dropped,
              const std::optional<curve_secret>& secret);
  ~zmq_context();
  [[nodiscard]] zmq::context_t& get() { return context_; }
  [[nodiscard]] connection_guard& guard() { return *guard_; }
  /// A connection of this process to another was dropped.
  void tell_dropped(const std::string& why) const {
    if (dropped_) dropped_(why);
  }

  /// A message that came in parts was dropped.
  void tell_too_large(const transport_limits& limits) const {
    tell_dropped("a message had more than two frames, or more than " + std::to_string(limits.max_message_bytes) +
                 " bytes in one of them; the message is dropped (--max-message-bytes)");
  }

  /// The key with which connections of this address are encrypted; null: they are not.
  [[nodiscard]] const zmq_curve* key_for(std::string_view address) const {
    return key_ && address.starts_with("tcp://") ? &*key_ : nullptr;
  }
  /// Before a secured socket is bound. Throws: network_error.
  void open_admission();

 private:
  zmq::context_t context_;
  std::function<void(std::string_view)> dropped_;
  std::shared_ptr<connection_guard> guard_;
  std::optional<zmq_curve> key_;
  mutex admission_access_;
  std::optional<zmq_admission> admission_ PARACEL_GUARDED_BY(admission_access_);  // none: nothing is bound yet
};

/// Throws: network_error unless it begins with ipc:// or tcp://.
void check_zmq_address(const std::string& address);

/// The parts of an outgoing message. ZeroMQ takes over each as it is sent; the rest is released here.
class zmq_message_parts {
 public:
  /// `mark`: replaces the frame's memory, or the tail's holder; this object owns it from now on.
  zmq_message_parts(std::uint16_t lane, const outgoing& message, send_queue_meter::probe* mark = nullptr)
      : frame(make_frame(message, mark)) {
    const std::size_t head = message.head.size();
    const std::size_t body = message.body.size();
    auto* to = frame.data<std::byte>();
    if (head != 0) std::memcpy(to, message.head.data(), head);
    if (body != 0) std::memcpy(to + head, message.body.data(), body);
    if (lane != 0) {
      const lane_frame bytes(lane);
      delimiter.rebuild(bytes.bytes().data(), bytes.bytes().size());
    }
    if (message.tail.size() == 0) return;
    shared_buffer::control* kept = shared_buffer(message.tail).release();
    auto* const release = mark != nullptr ? &send_queue_meter::probe::release : &drop_buffer;
    void* const hint = mark != nullptr ? static_cast<void*>(mark) : kept;
    if (mark != nullptr) mark->hold(kept);
    try {
      tail.emplace(kept->data, kept->size, release, hint);
    } catch (const zmq::error_t&) {
      release(nullptr, hint);
      throw std::bad_alloc();
    }
  }
  /// Where a ROUTER sends it. At most 31 bytes: they fit into the message itself and nothing is allocated.
  void address(std::span<const std::byte> identity) { id.emplace(identity.data(), identity.size()); }

  std::optional<zmq::message_t> id;
  zmq::message_t delimiter, frame;
  std::optional<zmq::message_t> tail;

  /// ZeroMQ's callback on the release of a part; `hint`: the shared_buffer::control with its bytes.
  static void drop_buffer(void*, void* hint) { shared_buffer::drop(static_cast<shared_buffer::control*>(hint)); }

 private:
  static zmq::message_t make_frame(const outgoing& message, send_queue_meter::probe* mark) try {
    const std::size_t size = message.head.size() + message.body.size();
    if (mark == nullptr || message.tail.size() != 0) return zmq::message_t(size);
    return zmq::message_t(mark->frame(), size, &send_queue_meter::probe::release, mark);
  } catch (const zmq::error_t&) {
    if (mark != nullptr) send_queue_meter::probe::release(nullptr, mark);
    throw std::bad_alloc();
  }
};

/// A socket and its descriptor. Thread-safety: none.
class zmq_end {
 public:
  enum class outcome { message, nothing, interrupted, dropped };
  /// A received message except its first frame. The memory of id and delimiter is reused.
  struct envelope {
    zmq::message_t id;  ///< of a ROUTER
    std::uint16_t lane = 0;
    shared_buffer tail;
    bool is_too_large = false;  ///< set when a message of parts is dropped; the caller clears it
    zmq::message_t delimiter, extra;
  };

  zmq_end() = default;
  /// Throws: network_error when no descriptor is left.
  zmq_end(zmq_context& in, zmq::socket_type type, const transport_limits& limits);

  /// Throws: network_error with the address.
  std::string bind(zmq_context& in, const std::string& address);
  void connect(zmq_context& in, const std::string& address);
  void close() { socket_.close(); }
  [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(socket_); }
  /// The traffic of a DEALER: see port::traffic.
  [[nodiscard]] std::uint64_t traffic() const noexcept;
  /// Signals new input, once: see ZMQ_FD.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

  /// 0, or the error for which it was not sent: EAGAIN, EHOSTUNREACH, or another.
  /// Sending processes what other threads have signalled to the socket, new input included, and clears its descriptor.
  int send(zmq_message_parts& parts) {
    if (parts.frame.size() >= part_bytes || (parts.tail && parts.tail->size() > part_bytes)) [[unlikely]]
      return send_cut(parts);
    constexpr auto more = zmq::send_flags::sndmore;
    constexpr auto last = zmq::send_flags::none;
    int error = parts.id ? send_part(*parts.id, more) : 0;
    if (error == 0) error = send_part(parts.delimiter, more);
    if (error == 0) error = send_part(parts.frame, parts.tail ? more : last);
    if (error == 0 && parts.tail) error = send_part(*parts.tail, last);
    return error;
  }

  /// Receives one message; malformed ones are read to their end and dropped.
  /// Blocks: at most `timeout_ms`; 0: not at all.
  outcome receive(bool is_router, zmq::message_t& frame, envelope& e, int timeout_ms) {
    e.tail = shared_buffer{};
    auto flags = zmq::recv_flags::dontwait;
    if (timeout_ms > 0) {
      flags = zmq::recv_flags::none;
      if (receive_timeout_ms_ != timeout_ms) set_receive_timeout(timeout_ms);
    }
    const outcome first = receive_part(is_router ? e.id : e.delimiter, flags, "cannot receive");
    if (first != outcome::message) return first;
    // The other frames of a message have arrived when its first one has.
    if (is_router) {
      if (!next_part(e.id, e.delimiter)) return outcome::dropped;
      if (e.id.size() > peer::capacity) return drop(e.delimiter, e);
    }
    const auto lane = lane_frame::parse({e.delimiter.data<std::byte>(), e.delimiter.size()});
    if (!lane) return drop(e.delimiter, e);
    e.lane = *lane;
    if (!next_part(e.delimiter, frame)) return outcome::dropped;
    if (connection_ == unknown && !is_router) [[unlikely]]
      find_connection(frame);
    if (frame.more()) {
      receive_rest(e.extra);
      if (e.extra.more() || frame.size() == part_bytes) return join(frame, e);
      if (e.extra.size() != 0) e.tail = shared_buffer::adopt(new held_message(e.extra));
    }
    return outcome::message;
  }

 private:
  /// Bytes stored in a message of ZeroMQ: a tail as it was received, or what is sent in several parts.
  struct held_message : shared_buffer::control {
    explicit held_message(zmq::message_t& from) : message(std::move(from)) {
      data = message.data<std::byte>();
      size = message.size();
      destroy = [](shared_buffer::control* self) { delete static_cast<held_message*>(self); };
    }
    zmq::message_t message;
  };

  /// As `send`, of a message with large frames.
  int send_cut(zmq_message_parts& parts);
  /// A message of which `frame` and `e.extra` have been received, and may have more parts.
  outcome join(zmq::message_t& frame, envelope& e);

  void set_tcp_options(const std::string& address, bool is_encrypted);
  void set_receive_timeout(int timeout_ms);
  void find_connection(zmq::message_t& received) noexcept;

  /// 0, or the error for which it was not sent. Uses the raw handles, because cppzmq throws when the peer is gone: a
  /// reply to a client that died would cost 1.4 us instead of 80 ns, and it may have left thousands of requests.
  int send_part(zmq::message_t& part, zmq::send_flags flags) {
    while (zmq_msg_send(part.handle(), socket_.handle(), static_cast<int>(flags | zmq::send_flags::dontwait)) < 0) {
      if (const int error = zmq_errno(); error != EINTR) return error;
    }
    return 0;
  }

  /// Receives one part of a message, nothing, or interrupted. `failure`: the prefix of an error text.
  outcome receive_part(zmq::message_t& into, zmq::recv_flags flags, const char* failure) {
    try {
      return socket_.recv(into, flags) ? outcome::message : outcome::nothing;
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) fail_by_zmq(failure, error);
      return outcome::interrupted;
    }
  }

  /// A part that must exist because of the one before it.
  void receive_rest(zmq::message_t& into) {
    constexpr const char* failure = "cannot receive the rest of a message";
    outcome o;
    while ((o = receive_part(into, zmq::recv_flags::dontwait, failure)) != outcome::message) {
      if (o == outcome::nothing) fail_by_zmq(failure, zmq::error_t(EAGAIN));
    }
  }

  bool next_part(const zmq::message_t& previous, zmq::message_t& into) {
    if (!previous.more()) return false;
    receive_rest(into);
    return true;
  }

  /// Reads a malformed message to its end.
  outcome drop(const zmq::message_t& last, envelope& e) {
    for (bool more = last.more(); more; more = e.extra.more()) receive_rest(e.extra);
    return outcome::dropped;
  }

  std::vector<connection_guard::address> bound_, connected_;  // outlive the socket
  zmq::socket_t socket_;
  int descriptor_ = -1;
  bool is_secured_ = false;
  bool cuts_ = false;  // large frames: it is bound or connected by tcp
  std::size_t most_frame_bytes_ = 0;
  static constexpr int unknown = -2;
  std::uint64_t cookie_ = 0;     // of that connection
  int connection_ = unknown;     // the descriptor of a DEALER's connection, by the first message; -1: there is none
  int receive_timeout_ms_ = -1;  // what RCVTIMEO is set to
};

}  // namespace paracel::net
