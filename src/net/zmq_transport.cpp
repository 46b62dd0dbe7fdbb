// SPDX-License-Identifier: BSD-3-Clause
#include "net/zmq_transport.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>
#include <vector>

#include <paracel/error.hpp>
#include <zmq.hpp>

#include "net/message_limit.hpp"
#include "net/send_queue_meter.hpp"

namespace paracel::net {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A job of 64 servers with 32 threads each needs 2,048 sockets in a worker; ZeroMQ's own limit is 1,023.
constexpr int max_sockets = 16384;
// What is unsent when a port closes gets this long, so that a last reply is sent; a dead peer costs no more than
// this.
constexpr int linger_ms = 200;
// Processes of a job start together: one that connects first must not wait long for one that binds last. The time
// between attempts doubles from the first to the second figure, so that a server that is gone costs little.
constexpr int reconnect_ms = 2;
constexpr int longest_reconnect_ms = 50;
// A silent tcp peer is probed every 2 s and given up after 30 s. The scheduler detects deaths sooner; this only
// frees the connections of a vanished host. It must not be short: a stopped process that resumes must find its replies.
constexpr int tcp_heartbeat_ms = 2000;
constexpr int tcp_heartbeat_timeout_ms = 30000;
// Requests of one peer queued in this process before its connection is no longer read. Replies have no such mark: a
// client bounds them itself by its limit of outstanding bytes, and a dropped reply would be a request without a
// reply.
constexpr int request_high_water_mark = 4096;
// Most messages from one socket before the others have their turn.
constexpr int burst = 64;
// Most messages returned by one call.
constexpr std::size_t largest_batch = 32;
// Polling a router that turns out to be empty costs a system call. After that was in vain, at most so many calls return
// what they have before checking again whether requests come faster than they are answered.
constexpr unsigned longest_doubt = 15;
// The range of ZeroMQ and poll, in milliseconds.
constexpr milliseconds longest_wait(INT_MAX);

// Descriptors ZeroMQ opens when it starts, two threads and the first socket, with some to spare. It aborts the process
// when it gets none.
constexpr std::size_t first_descriptors = 16;

[[noreturn]] void fail(const std::string& what, const zmq::error_t& error) {
  std::string why = error.what();
  if (rlimit limit{}; error.num() == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    why += "; this process may have " + std::to_string(limit.rlim_cur) + " (ulimit -n)";
  }
  throw network_error(what + ": " + why, false);
}

/// Throws: network_error when ZeroMQ could not open a descriptor that it needs.
void require_descriptors() {
  std::array<int, first_descriptors> open;
  std::size_t n = 0;
  while (n < open.size() && (open[n] = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) ++n;
  const zmq::error_t error(errno);
  for (std::size_t i = 0; i < n; ++i) ::close(open[i]);
  if (n < open.size()) fail("cannot start ZeroMQ", error);
}

template <class Option, class T>
void set(zmq::socket_t& socket, Option option, T value) try {
  socket.set(option, value);
} catch (const zmq::error_t& error) {
  fail("cannot set a socket option", error);
}

bool starts_with(const std::string& s, const char* prefix) { return s.rfind(prefix, 0) == 0; }

// ZeroMQ's own inproc:// would share the sender's memory with the receiver, who may modify what seems to be unshared.
void check_address(const std::string& address) {
  if (starts_with(address, "ipc://") || starts_with(address, "tcp://")) return;
  throw network_error("address \"" + address + "\" does not begin with ipc:// or tcp://", false);
}

/// A tail stored in the message in which it was received.
struct received_tail : shared_buffer::control {
  explicit received_tail(zmq::message_t& from) : message(std::move(from)) {
    data = message.data<std::byte>();
    size = message.size();
    destroy = [](shared_buffer::control* self) { delete static_cast<received_tail*>(self); };
  }
  zmq::message_t message;
};

void drop_blob(void*, void* hint) { shared_buffer::drop(static_cast<shared_buffer::control*>(hint)); }

/// The parts of an outgoing message. ZeroMQ takes over each as it is sent; the rest is released here.
struct sending {
  /// `mark`: replaces the frame's memory, or the tail's holder; this object owns it from now on.
  explicit sending(const outgoing& message, send_queue_meter::probe* mark = nullptr)
      : frame(make_frame(message, mark)) {
    const std::size_t head = message.head.size();
    const std::size_t body = message.body.size();
    auto* to = frame.data<std::byte>();
    if (head != 0) std::memcpy(to, message.head.data(), head);
    if (body != 0) std::memcpy(to + head, message.body.data(), body);
    if (message.tail.size() == 0) return;
    shared_buffer::control* kept = shared_buffer(message.tail).release();
    auto* const release = mark != nullptr ? &send_queue_meter::probe::release : &drop_blob;
    void* const hint = mark != nullptr ? static_cast<void*>(mark) : kept;
    if (mark != nullptr) mark->hold(kept);
    try {
      tail.emplace(kept->data, kept->size, release, hint);
    } catch (const zmq::error_t&) {
      release(nullptr, hint);
      throw std::bad_alloc();
    }
  }
  // At most 31 bytes: they fit into the message itself and nothing is allocated.
  zmq::message_t& address(const peer& to) { return id.emplace(to.id.data(), to.size); }

  std::optional<zmq::message_t> id;
  zmq::message_t delimiter, frame;
  std::optional<zmq::message_t> tail;

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

}  // namespace

class zmq_transport::context {
 public:
  context() : context_(start()) {}
  [[nodiscard]] zmq::context_t& get() { return context_; }

 private:
  static zmq::context_t start() try {
    require_descriptors();
    return zmq::context_t(ZMQ_IO_THREADS_DFLT, max_sockets);
  } catch (const zmq::error_t& error) {
    fail("cannot start ZeroMQ", error);
  }

  zmq::context_t context_;
};

class zmq_transport::zmq_port final : public port {
 public:
  zmq_port(std::shared_ptr<context> c, transport_limits limits) : context_(std::move(c)), limits_(limits) {}

  std::string bind(const std::string& address) override {
    check_address(address);
    if (router_ < 0) {
      ends_.push_back(make(zmq::socket_type::router));
      router_ = static_cast<int>(ends_.size()) - 1;
      ends_.back().channel = -1;
      set(ends_.back().socket, zmq::sockopt::router_mandatory, true);
    }
    zmq::socket_t& socket = ends_[static_cast<std::size_t>(router_)].socket;
    set_heartbeat(socket, address);
    try {
      socket.bind(address);
      return socket.get(zmq::sockopt::last_endpoint);
    } catch (const zmq::error_t& error) {
      fail("cannot bind " + address, error);
    }
  }

  int connect(const std::string& address) override {
    check_address(address);
    end e = make(zmq::socket_type::dealer);
    e.channel = static_cast<int>(channels_.size());
    set_heartbeat(e.socket, address);
    try {
      e.socket.connect(address);
    } catch (const zmq::error_t& error) {
      fail("cannot connect to " + address, error);
    }
    channels_.push_back(ends_.size());
    ends_.push_back(std::move(e));
    return ends_.back().channel;
  }

  void disconnect(int channel) override {
    end& e = at(channel);
    e.socket.close();
    e.outstanding = 0;
    e.may_have_input = false;
  }

  void send(int channel, const outgoing& message) override {
    check_message_size(message, limits_);
    end& e = at(channel);
    if (!e.socket) throw network_error("channel " + std::to_string(channel) + " is disconnected", false);
    if (const int error = send_message(e, nullptr, message); error != 0) {
      // A channel has no high-water mark; its queue is gone only when the connection was given up.
      if (error == EAGAIN) {
        throw network_error("channel " + std::to_string(channel) +
                                " is closed: what answers there broke the protocol or sent more than " +
                                std::to_string(limits_.max_message_bytes) + " bytes",
                            false);
      }
      fail("cannot send on channel " + std::to_string(channel), zmq::error_t(error));
    }
    ++e.outstanding;
  }

  void reply(const peer& to, const outgoing& message) override {
    check_message_size(message, limits_);
    if (router_ < 0) throw network_error("a reply from a port that is not bound", false);
    end& e = ends_[static_cast<std::size_t>(router_)];
    auto* const mark = unread_.due(to, message.head.size() + message.body.size(), message.tail.size());
    const int error = send_message(e, &to, message, mark);
    if (error != 0 && !gone(error)) fail("cannot send a reply", zmq::error_t(error));
  }

  bool receive(incoming& out, milliseconds timeout) override { return receive_first(out, timeout) != nullptr; }

  std::size_t receive_batch(std::span<incoming> out, milliseconds timeout) override {
    if (out.empty()) return 0;
    end* from = receive_first(out.front(), timeout);
    if (from == nullptr) return 0;
    const std::size_t most = std::min(out.size(), largest_batch);
    std::size_t n = 1;
    if (n == most) return n;
    if (from->channel < 0 && doubt_left_ != 0) {
      --doubt_left_;
      return n;
    }
    while (n < most && is_source(*from) && take_next(*from, out[n])) ++n;
    in_a_row_ += static_cast<int>(n) - 1;
    if (from->channel < 0) {
      doubt_ = n > 1 ? 0 : std::min(2 * doubt_ + 1, longest_doubt);
      doubt_left_ = doubt_;
    }
    return n;
  }

 private:
  /// A socket and its state.
  struct end {
    zmq::socket_t socket;
    int channel = -1;
    int descriptor = -1;
    int receive_timeout_ms = -1;    // what RCVTIMEO is set to
    std::uint64_t outstanding = 0;  // requests without a reply; a channel without any has nothing to receive
    bool may_have_input = true;     // false: it was found empty and its descriptor will signal
  };
  enum class outcome { message, nothing, interrupted, dropped };

  end make(zmq::socket_type type) {
    end e;
    try {
      e.socket = zmq::socket_t(context_->get(), type);
      e.descriptor = e.socket.get(zmq::sockopt::fd);
    } catch (const zmq::error_t& error) {
      fail("cannot open a socket", error);
    }
    set(e.socket, zmq::sockopt::linger, linger_ms);
    set(e.socket, zmq::sockopt::immediate, false);  // queue at once, even while no peer is bound
    set(e.socket, zmq::sockopt::reconnect_ivl, reconnect_ms);
    set(e.socket, zmq::sockopt::reconnect_ivl_max, longest_reconnect_ms);
    set(e.socket, zmq::sockopt::sndhwm, 0);
    set(e.socket, zmq::sockopt::rcvhwm, type == zmq::socket_type::router ? request_high_water_mark : 0);
    set(e.socket, zmq::sockopt::maxmsgsize,
        static_cast<std::int64_t>(std::min<std::size_t>(limits_.max_message_bytes, INT64_MAX)));
    return e;
  }

  static void set_heartbeat(zmq::socket_t& socket, const std::string& address) {
    const bool tcp = starts_with(address, "tcp://");
    set(socket, zmq::sockopt::heartbeat_ivl, tcp ? tcp_heartbeat_ms : 0);
    set(socket, zmq::sockopt::heartbeat_timeout, tcp ? tcp_heartbeat_timeout_ms : 0);
  }

  end& at(int channel) {
    if (channel < 0 || static_cast<std::size_t>(channel) >= channels_.size()) {
      throw network_error("there is no channel " + std::to_string(channel), false);
    }
    return ends_[channels_[static_cast<std::size_t>(channel)]];
  }

  static bool gone(int error) { return error == EHOSTUNREACH || error == EAGAIN; }

  /// 0, or the error for which it was not sent. By the raw handles, because cppzmq throws when the peer is gone: a
  /// reply to a client that died would cost 1.4 us instead of 80 ns, and it may have left thousands of requests.
  static int send_part(zmq::socket_t& socket, zmq::message_t& part, zmq::send_flags flags) {
    while (zmq_msg_send(part.handle(), socket.handle(), static_cast<int>(flags | zmq::send_flags::dontwait)) < 0) {
      if (const int error = zmq_errno(); error != EINTR) return error;
    }
    return 0;
  }

  /// The address of a reply, the empty frame and the message itself. 0, or the error for which it was not sent.
  static int send_message(end& e, const peer* to, const outgoing& message, send_queue_meter::probe* mark = nullptr) {
    // Sending processes what other threads have signalled to the socket, new input included, and clears its descriptor.
    e.may_have_input = true;
    // Anything that may fail for lack of memory comes before the first part is sent.
    sending parts(message, mark);
    constexpr auto more = zmq::send_flags::sndmore;
    constexpr auto last = zmq::send_flags::none;
    int error = to == nullptr ? 0 : send_part(e.socket, parts.address(*to), more);
    if (error == 0) error = send_part(e.socket, parts.delimiter, more);
    if (error == 0) error = send_part(e.socket, parts.frame, parts.tail ? more : last);
    if (error == 0 && parts.tail) error = send_part(e.socket, *parts.tail, last);
    return error;
  }

  /// The one socket that can receive anything, if there is just one: then ZeroMQ can do the waiting, which saves
  /// two system calls a message compared with polling first and waiting afterwards.
  end* only_source() {
    end* found = nullptr;
    for (end& e : ends_) {
      if (!is_source(e)) continue;
      if (found != nullptr) return nullptr;
      found = &e;
    }
    return found;
  }
  static bool is_source(const end& e) { return e.socket && (e.channel < 0 || e.outstanding != 0); }

  /// The next message and its source; the frames of the previous batch are released.
  end* receive_first(incoming& out, milliseconds timeout) {
    // Frame 0 is about to be received into, which releases it.
    for (std::size_t i = 1; i < held_; ++i) frames_[i].rebuild();
    held_ = 0;
    timeout = std::min(timeout, longest_wait);
    if (end* only = only_source(); only != nullptr) return receive_from_one(*only, out, timeout) ? only : nullptr;
    return receive_from_several(out, timeout);
  }

  /// A message that has already arrived, malformed ones skipped.
  bool take_next(end& e, incoming& out) {
    outcome o;
    do {
      o = take(e, out, milliseconds(0));
    } while (o == outcome::dropped || o == outcome::interrupted);
    return o == outcome::message;
  }

  bool receive_from_one(end& e, incoming& out, milliseconds timeout) {
    auto deadline = steady_clock::time_point::max();
    for (;;) {
      const outcome o = take(e, out, timeout);
      if (o == outcome::message) return true;
      if (o != outcome::dropped) return false;
      // Rare: only a malformed message makes the clock worth reading.
      if (deadline == steady_clock::time_point::max()) deadline = steady_clock::now() + timeout;
      timeout = left(deadline);
    }
  }

  end* receive_from_several(incoming& out, milliseconds timeout) {
    auto deadline = steady_clock::time_point::max();
    for (;;) {
      const std::size_t n = ends_.size();
      for (std::size_t i = 0; i < n; ++i) {
        end& e = ends_[next_ % n];
        if (is_source(e) && e.may_have_input && take_next(e, out)) {
          if (++in_a_row_ >= burst) next_after(n);
          return &e;
        }
        next_after(n);
      }
      if (timeout.count() <= 0) return nullptr;
      if (deadline == steady_clock::time_point::max()) {
        deadline = steady_clock::now() + timeout;
      } else {
        timeout = left(deadline);
        if (timeout.count() <= 0) return nullptr;
      }
      if (!wait(timeout)) return nullptr;
    }
  }
  void next_after(std::size_t n) {
    next_ = (next_ + 1) % n;
    in_a_row_ = 0;
  }

  /// Sleeps until one of the sources that were found empty is signalled; false when interrupted or in vain.
  /// By poll itself: poller_t needs libzmq's draft API, which Debian's library does not have, and zmq::poll makes two
  /// system calls for a wait that sleeps. Given sockets it also polls each of them: a round trip with 64 channels takes
  /// 7.0 us instead of 6.0.
  bool wait(milliseconds timeout) {
    polled_.clear();
    polled_ends_.clear();
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      if (!is_source(ends_[i])) continue;
      polled_.push_back({ends_[i].descriptor, POLLIN, 0});
      polled_ends_.push_back(i);
    }
    const int ready = ::poll(polled_.data(), polled_.size(), static_cast<int>(timeout.count()));
    if (ready <= 0) return false;
    for (std::size_t i = 0; i < polled_.size(); ++i) {
      if (polled_[i].revents != 0) ends_[polled_ends_[i]].may_have_input = true;
    }
    return true;
  }

  static milliseconds left(steady_clock::time_point deadline) {
    const auto rest = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    return std::max(rest, milliseconds(0));
  }

  /// Receives one message from one socket, into the next free frame.
  outcome take(end& e, incoming& out, milliseconds timeout) {
    out.tail = shared_buffer{};
    zmq::message_t& frame = frames_[held_];
    auto flags = zmq::recv_flags::dontwait;
    if (timeout.count() > 0) {
      flags = zmq::recv_flags::none;
      const int wanted = static_cast<int>(timeout.count());
      if (e.receive_timeout_ms != wanted) {
        set(e.socket, zmq::sockopt::rcvtimeo, wanted);
        e.receive_timeout_ms = wanted;
      }
    }
    const bool request = e.channel < 0;
    const outcome first = receive_part(e, request ? id_ : delimiter_, flags, "cannot receive");
    if (first != outcome::message) {
      if (first == outcome::nothing) e.may_have_input = false;
      return first;
    }
    e.may_have_input = true;
    // The other frames of a message have arrived when its first one has.
    if (request) {
      if (!next_part(e, id_, delimiter_)) return outcome::dropped;
      if (id_.size() > peer::capacity) return drop(e, delimiter_);
    }
    if (delimiter_.size() != 0) return drop(e, delimiter_);
    if (!next_part(e, delimiter_, frame)) return outcome::dropped;
    if (frame.more()) {
      receive_rest(e, extra_);
      if (extra_.more()) return drop(e, extra_);
      if (extra_.size() != 0) out.tail = shared_buffer::adopt(new received_tail(extra_));
    }
    out.channel = e.channel;
    out.frame = {frame.data<std::byte>(), frame.size()};
    ++held_;
    if (request) {
      out.from.size = static_cast<std::uint8_t>(id_.size());
      std::memcpy(out.from.id.data(), id_.data(), out.from.size);
      out.unread_bytes = unread_.unread(out.from);
    } else if (e.outstanding != 0) {
      --e.outstanding;
    }
    return outcome::message;
  }

  /// Receives one part of a message, nothing, or interrupted. `failure`: the prefix of an error text.
  static outcome receive_part(end& e, zmq::message_t& into, zmq::recv_flags flags, const char* failure) {
    try {
      return e.socket.recv(into, flags) ? outcome::message : outcome::nothing;
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) fail(failure, error);
      return outcome::interrupted;
    }
  }

  /// A part that must exist because of the one before it.
  static void receive_rest(end& e, zmq::message_t& into) {
    constexpr const char* failure = "cannot receive the rest of a message";
    outcome o;
    while ((o = receive_part(e, into, zmq::recv_flags::dontwait, failure)) != outcome::message) {
      if (o == outcome::nothing) fail(failure, zmq::error_t(EAGAIN));
    }
  }

  static bool next_part(end& e, const zmq::message_t& previous, zmq::message_t& into) {
    if (!previous.more()) return false;
    receive_rest(e, into);
    return true;
  }

  /// Reads a malformed message to its end.
  outcome drop(end& e, const zmq::message_t& last) {
    for (bool more = last.more(); more; more = extra_.more()) receive_rest(e, extra_);
    return outcome::dropped;
  }

  std::shared_ptr<context> context_;
  transport_limits limits_;
  std::vector<end> ends_;              // the router and the channels, in creation order
  int router_ = -1;                    // its index in ends_
  std::vector<std::size_t> channels_;  // channel -> index in ends_
  std::size_t next_ = 0;               // with several sources: the one to poll first
  int in_a_row_ = 0;
  std::vector<pollfd> polled_;
  std::vector<std::size_t> polled_ends_;
  unsigned doubt_ = 0;       // how many calls in a row may return one request without looking for a second
  unsigned doubt_left_ = 0;  // remaining ones
  send_queue_meter unread_;  // of the router's peers
  zmq::message_t id_, delimiter_, extra_;
  std::array<zmq::message_t, largest_batch> frames_;  // of the messages that the caller currently holds
  std::size_t held_ = 0;                              // how many of them
};

zmq_transport::zmq_transport(transport_limits limits) : context_(std::make_shared<context>()), limits_(limits) {}
zmq_transport::~zmq_transport() = default;

std::unique_ptr<port> zmq_transport::open() { return std::make_unique<zmq_port>(context_, limits_); }

}  // namespace paracel::net
