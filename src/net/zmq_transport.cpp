// SPDX-License-Identifier: BSD-3-Clause
#include "net/zmq_transport.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

#include <paracel/error.hpp>

#include "net/message_limit.hpp"
#include "net/unread_replies.hpp"

namespace paracel::net {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A job of 64 servers with 32 threads each is 2,048 sockets in a worker; ZeroMQ's own limit is 1,023.
constexpr int max_sockets = 16384;
// What is unsent when a port closes still gets this long, so that a last reply leaves; a dead peer costs no more than this.
constexpr int linger_ms = 200;
// Processes of a job start together: who connects first must not wait long for who binds last. The time between attempts
// doubles from the first to the second figure, so that a server that is gone costs little.
constexpr int reconnect_ms = 2;
constexpr int longest_reconnect_ms = 50;
// A silent tcp peer is looked at every 2 s and given up after 30 s. Deaths are seen sooner by the scheduler; this only frees
// the connections of a vanished host. It must not be short: a stopped process that goes on must find its replies.
constexpr int tcp_heartbeat_ms = 2000;
constexpr int tcp_heartbeat_timeout_ms = 30000;
// Requests of one peer that wait in this process before its connection is no longer read. Replies have no such mark: a
// client bounds them itself by the bytes it lets be outstanding, and a dropped reply would be a request without an answer.
constexpr int request_high_water_mark = 4096;
// So many messages from one socket, then the others have their turn.
constexpr int burst = 64;
// The most that one call gives.
constexpr std::size_t largest_batch = 32;
// Asking a router that turns out to be empty costs a system call. After that was in vain, so many calls at most take what
// they have before one looks again whether requests come faster than they are answered.
constexpr unsigned longest_doubt = 15;
// What ZeroMQ and poll can count, in milliseconds.
constexpr milliseconds longest_wait(INT_MAX);

// What ZeroMQ opens when it starts, two threads and the first socket, with some to spare. It ends the process where it gets none.
constexpr std::size_t first_descriptors = 16;

[[noreturn]] void fail(const std::string& what) {
  const int code = zmq_errno();
  std::string why = zmq_strerror(code);
  if (rlimit limit{}; code == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    why += "; this process may have " + std::to_string(limit.rlim_cur) + " (ulimit -n)";
  }
  throw network_error(what + ": " + why, false);
}

/// Throws: network_error when ZeroMQ could not open what it cannot do without.
void require_descriptors() {
  std::array<int, first_descriptors> open;
  std::size_t n = 0;
  while (n < open.size() && (open[n] = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) ++n;
  const int code = errno;
  for (std::size_t i = 0; i < n; ++i) ::close(open[i]);
  errno = code;
  if (n < open.size()) fail("cannot start ZeroMQ");
}

void set(void* socket, int option, int value) {
  if (zmq_setsockopt(socket, option, &value, sizeof value) != 0) fail("cannot set a socket option");
}

bool starts_with(const std::string& s, const char* prefix) { return s.rfind(prefix, 0) == 0; }

// ZeroMQ's own inproc:// would hand the sender's memory to the receiver, who may change what he alone seems to hold.
void check_address(const std::string& address) {
  if (starts_with(address, "ipc://") || starts_with(address, "tcp://")) return;
  throw network_error("address \"" + address + "\" does not begin with ipc:// or tcp://", false);
}

/// A tail that lives in the message in which it came.
struct received_tail : blob::control {
  zmq_msg_t message;
};

blob adopt(zmq_msg_t& from) {
  auto* c = new received_tail;
  zmq_msg_init(&c->message);
  zmq_msg_move(&c->message, &from);
  c->data = static_cast<std::byte*>(zmq_msg_data(&c->message));
  c->size = zmq_msg_size(&c->message);
  c->destroy = [](blob::control* self) {
    auto* tail = static_cast<received_tail*>(self);
    zmq_msg_close(&tail->message);
    delete tail;
  };
  return blob::adopt(c);
}

void drop_blob(void*, void* hint) { blob::drop(static_cast<blob::control*>(hint)); }

/// The parts of a message on their way out. ZeroMQ takes each as it is sent; the rest is released here.
struct sending {
  /// `mark`: takes the place of the frame's memory, or of the tail's holder; it is this object's from now on.
  explicit sending(const outgoing& message, unread_replies::mark* mark = nullptr) {
    const std::size_t head = message.head.size();
    const std::size_t body = message.body.size();
    zmq_msg_init(&delimiter);
    const bool marks_frame = mark != nullptr && message.tail.size() == 0;
    if (marks_frame ? zmq_msg_init_data(&frame, mark->frame(), head + body, &unread_replies::mark::release, mark) != 0
                    : zmq_msg_init_size(&frame, head + body) != 0) {
      if (mark != nullptr) unread_replies::mark::release(nullptr, mark);
      throw std::bad_alloc();
    }
    auto* to = static_cast<std::byte*>(zmq_msg_data(&frame));
    if (head != 0) std::memcpy(to, message.head.data(), head);
    if (body != 0) std::memcpy(to + head, message.body.data(), body);
    if (message.tail.size() == 0) return;
    blob::control* kept = blob(message.tail).release();
    auto* const release = mark != nullptr ? &unread_replies::mark::release : &drop_blob;
    void* const hint = mark != nullptr ? static_cast<void*>(mark) : kept;
    if (mark != nullptr) mark->hold(kept);
    if (zmq_msg_init_data(&tail, kept->data, kept->size, release, hint) != 0) {
      release(nullptr, hint);
      zmq_msg_close(&frame);
      throw std::bad_alloc();
    }
    has_tail = true;
  }
  sending(const sending&) = delete;
  sending& operator=(const sending&) = delete;
  ~sending() {
    const int error = errno;
    if (has_id) zmq_msg_close(&id);
    zmq_msg_close(&delimiter);
    zmq_msg_close(&frame);
    if (has_tail) zmq_msg_close(&tail);
    errno = error;
  }
  zmq_msg_t& address(const peer& to) {
    // At most 31 bytes: they fit into the message itself and nothing is allocated.
    has_id = true;
    zmq_msg_init_size(&id, to.size);
    std::memcpy(zmq_msg_data(&id), to.id.data(), to.size);
    return id;
  }
  zmq_msg_t id, delimiter, frame, tail;
  bool has_id = false;
  bool has_tail = false;
};

}  // namespace

class zmq_transport::context {
 public:
  context() {
    require_descriptors();
    handle_ = zmq_ctx_new();
    if (handle_ == nullptr) fail("cannot start ZeroMQ");
    zmq_ctx_set(handle_, ZMQ_MAX_SOCKETS, max_sockets);
  }
  context(const context&) = delete;
  context& operator=(const context&) = delete;
  ~context() {
    while (zmq_ctx_term(handle_) != 0 && zmq_errno() == EINTR) {
    }
  }
  [[nodiscard]] void* handle() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

class zmq_transport::zmq_port final : public port {
 public:
  zmq_port(std::shared_ptr<context> c, transport_limits limits) : context_(std::move(c)), limits_(limits) {
    zmq_msg_init(&id_);
    zmq_msg_init(&delimiter_);
    zmq_msg_init(&extra_);
    for (zmq_msg_t& f : frames_) zmq_msg_init(&f);
  }

  ~zmq_port() override {
    for (end& e : ends_) close(e);
    zmq_msg_close(&id_);
    zmq_msg_close(&delimiter_);
    zmq_msg_close(&extra_);
    for (zmq_msg_t& f : frames_) zmq_msg_close(&f);
  }

  std::string bind(const std::string& address) override {
    check_address(address);
    if (router_ < 0) {
      ends_.push_back(make(ZMQ_ROUTER));
      router_ = static_cast<int>(ends_.size()) - 1;
      ends_.back().channel = -1;
      set(ends_.back().socket, ZMQ_ROUTER_MANDATORY, 1);
    }
    void* socket = ends_[static_cast<std::size_t>(router_)].socket;
    set_heartbeat(socket, address);
    if (zmq_bind(socket, address.c_str()) != 0) fail("cannot bind " + address);
    char real[512];
    std::size_t size = sizeof real;
    if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, real, &size) != 0) fail("cannot bind " + address);
    return real;
  }

  int connect(const std::string& address) override {
    check_address(address);
    end e = make(ZMQ_DEALER);
    e.channel = static_cast<int>(channels_.size());
    try {
      set_heartbeat(e.socket, address);
      if (zmq_connect(e.socket, address.c_str()) != 0) fail("cannot connect to " + address);
    } catch (...) {
      close(e);
      throw;
    }
    channels_.push_back(ends_.size());
    ends_.push_back(e);
    return e.channel;
  }

  void disconnect(int channel) override { close(at(channel)); }

  void send(int channel, const outgoing& message) override {
    check_message_size(message, limits_);
    end& e = at(channel);
    if (e.socket == nullptr) throw network_error("channel " + std::to_string(channel) + " is disconnected", false);
    if (!send_message(e, nullptr, message)) {
      // A channel has no high-water mark; its queue is gone only when the connection was given up.
      if (zmq_errno() == EAGAIN) {
        throw network_error("channel " + std::to_string(channel) +
                                " is closed: what answers there broke the protocol or sent more than " +
                                std::to_string(limits_.max_message_bytes) + " bytes",
                            false);
      }
      fail("cannot send on channel " + std::to_string(channel));
    }
    ++e.outstanding;
  }

  void reply(const peer& to, const outgoing& message) override {
    check_message_size(message, limits_);
    if (router_ < 0) throw network_error("a reply from a port that is not bound", false);
    end& e = ends_[static_cast<std::size_t>(router_)];
    auto* const mark = unread_.due(to, message.head.size() + message.body.size(), message.tail.size());
    if (!send_message(e, &to, message, mark) && !gone(zmq_errno())) fail("cannot send a reply");
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
  /// A socket and what is known of it.
  struct end {
    void* socket = nullptr;
    int channel = -1;
    int descriptor = -1;
    int receive_timeout_ms = -1;     // what RCVTIMEO is set to
    std::uint64_t outstanding = 0;   // requests without a reply; a channel without any has nothing to say
    bool may_have_input = true;      // false: it was found empty and its descriptor will tell
  };
  enum class outcome { message, nothing, interrupted, dropped };

  end make(int type) {
    end e;
    e.socket = zmq_socket(context_->handle(), type);
    if (e.socket == nullptr) fail("cannot open a socket");
    try {
      set(e.socket, ZMQ_LINGER, linger_ms);
      set(e.socket, ZMQ_IMMEDIATE, 0);  // queue at once, also while nobody is bound
      set(e.socket, ZMQ_RECONNECT_IVL, reconnect_ms);
      set(e.socket, ZMQ_RECONNECT_IVL_MAX, longest_reconnect_ms);
      set(e.socket, ZMQ_SNDHWM, 0);
      set(e.socket, ZMQ_RCVHWM, type == ZMQ_ROUTER ? request_high_water_mark : 0);
      const auto limit = static_cast<std::int64_t>(std::min<std::size_t>(limits_.max_message_bytes, INT64_MAX));
      if (zmq_setsockopt(e.socket, ZMQ_MAXMSGSIZE, &limit, sizeof limit) != 0) fail("cannot set a socket option");
      std::size_t size = sizeof e.descriptor;
      if (zmq_getsockopt(e.socket, ZMQ_FD, &e.descriptor, &size) != 0) fail("cannot open a socket");
    } catch (...) {
      close(e);
      throw;
    }
    return e;
  }

  static void set_heartbeat(void* socket, const std::string& address) {
    const bool tcp = starts_with(address, "tcp://");
    set(socket, ZMQ_HEARTBEAT_IVL, tcp ? tcp_heartbeat_ms : 0);
    set(socket, ZMQ_HEARTBEAT_TIMEOUT, tcp ? tcp_heartbeat_timeout_ms : 0);
  }

  static void close(end& e) {
    if (e.socket != nullptr) zmq_close(e.socket);
    e.socket = nullptr;
    e.outstanding = 0;
    e.may_have_input = false;
  }

  end& at(int channel) {
    if (channel < 0 || static_cast<std::size_t>(channel) >= channels_.size()) {
      throw network_error("there is no channel " + std::to_string(channel), false);
    }
    return ends_[channels_[static_cast<std::size_t>(channel)]];
  }

  static bool gone(int error) { return error == EHOSTUNREACH || error == EAGAIN; }

  static bool send_part(void* socket, zmq_msg_t& part, int flags) {
    while (zmq_msg_send(&part, socket, flags | ZMQ_DONTWAIT) < 0) {
      if (zmq_errno() != EINTR) return false;
    }
    return true;
  }

  /// The address of a reply, the empty frame and the message itself. False with errno when it could not be sent.
  static bool send_message(end& e, const peer* to, const outgoing& message, unread_replies::mark* mark = nullptr) {
    // Sending takes in what other threads have told the socket, news of input among it, and clears its descriptor.
    e.may_have_input = true;
    // What can fail for lack of memory comes before the first part leaves.
    sending parts(message, mark);
    const bool two = message.tail.size() != 0;
    bool sent = to == nullptr || send_part(e.socket, parts.address(*to), ZMQ_SNDMORE);
    sent = sent && send_part(e.socket, parts.delimiter, ZMQ_SNDMORE);
    sent = sent && send_part(e.socket, parts.frame, two ? ZMQ_SNDMORE : 0);
    return sent && (!two || send_part(e.socket, parts.tail, 0));
  }

  /// The one socket from which something can come, if there is just one: then ZeroMQ can do the waiting, which saves two
  /// system calls a message against asking first and waiting afterwards.
  end* only_source() {
    end* found = nullptr;
    for (end& e : ends_) {
      if (!is_source(e)) continue;
      if (found != nullptr) return nullptr;
      found = &e;
    }
    return found;
  }
  static bool is_source(const end& e) { return e.socket != nullptr && (e.channel < 0 || e.outstanding != 0); }

  /// The next message and whence it came; the frames of the batch before are given back.
  end* receive_first(incoming& out, milliseconds timeout) {
    // Frame 0 is about to be received into, which gives it back.
    for (std::size_t i = 1; i < held_; ++i) {
      zmq_msg_close(&frames_[i]);
      zmq_msg_init(&frames_[i]);
    }
    held_ = 0;
    timeout = std::min(timeout, longest_wait);
    if (end* only = only_source(); only != nullptr) return receive_from_one(*only, out, timeout) ? only : nullptr;
    return receive_from_several(out, timeout);
  }

  /// A message that is here already, malformed ones left out.
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
      // Rare: only a malformed message makes the clock worth asking.
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

  /// Sleeps until one of the sources that were found empty is told something; false when interrupted or in vain.
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

  /// One message from one socket, into the next frame that is free.
  outcome take(end& e, incoming& out, milliseconds timeout) {
    out.tail = blob{};
    zmq_msg_t& frame = frames_[held_];
    int flags = ZMQ_DONTWAIT;
    if (timeout.count() > 0) {
      flags = 0;
      const int wanted = static_cast<int>(timeout.count());
      if (e.receive_timeout_ms != wanted) {
        set(e.socket, ZMQ_RCVTIMEO, wanted);
        e.receive_timeout_ms = wanted;
      }
    }
    const bool request = e.channel < 0;
    zmq_msg_t* first = request ? &id_ : &delimiter_;
    if (zmq_msg_recv(first, e.socket, flags) < 0) {
      const int error = zmq_errno();
      if (error == EINTR) return outcome::interrupted;
      if (error != EAGAIN) fail("cannot receive");
      e.may_have_input = false;
      return outcome::nothing;
    }
    e.may_have_input = true;
    // The other frames of a message are there when its first one is.
    if (request) {
      if (!next_part(e, id_, delimiter_)) return outcome::dropped;
      if (zmq_msg_size(&id_) > peer::capacity) return drop(e, delimiter_);
    }
    if (zmq_msg_size(&delimiter_) != 0) return drop(e, delimiter_);
    if (!next_part(e, delimiter_, frame)) return outcome::dropped;
    if (zmq_msg_more(&frame) != 0) {
      if (!next_part(e, frame, extra_)) return outcome::dropped;
      if (zmq_msg_more(&extra_) != 0) return drop(e, extra_);
      if (zmq_msg_size(&extra_) != 0) out.tail = adopt(extra_);
    }
    out.channel = e.channel;
    out.frame = {static_cast<const std::byte*>(zmq_msg_data(&frame)), zmq_msg_size(&frame)};
    ++held_;
    if (request) {
      out.from.size = static_cast<std::uint8_t>(zmq_msg_size(&id_));
      std::memcpy(out.from.id.data(), zmq_msg_data(&id_), out.from.size);
      out.unread_bytes = unread_.unread(out.from);
    } else if (e.outstanding != 0) {
      --e.outstanding;
    }
    return outcome::message;
  }

  static bool next_part(end& e, zmq_msg_t& previous, zmq_msg_t& into) {
    if (zmq_msg_more(&previous) == 0) return false;
    while (zmq_msg_recv(&into, e.socket, ZMQ_DONTWAIT) < 0) {
      if (zmq_errno() != EINTR) fail("cannot receive the rest of a message");
    }
    return true;
  }

  /// Reads a malformed message to its end.
  outcome drop(end& e, zmq_msg_t& last) {
    bool more = zmq_msg_more(&last) != 0;
    while (more) {
      next_part_of_dropped(e);
      more = zmq_msg_more(&extra_) != 0;
    }
    return outcome::dropped;
  }
  void next_part_of_dropped(end& e) {
    while (zmq_msg_recv(&extra_, e.socket, ZMQ_DONTWAIT) < 0) {
      if (zmq_errno() != EINTR) fail("cannot receive the rest of a message");
    }
  }

  std::shared_ptr<context> context_;
  transport_limits limits_;
  std::vector<end> ends_;              // the router and the channels, in the order of their making
  int router_ = -1;                    // its place in ends_
  std::vector<std::size_t> channels_;  // channel -> place in ends_
  std::size_t next_ = 0;               // with several sources: the one to ask first
  int in_a_row_ = 0;
  std::vector<pollfd> polled_;
  std::vector<std::size_t> polled_ends_;
  unsigned doubt_ = 0;       // how many calls in a row may take one request without looking for a second
  unsigned doubt_left_ = 0;  // of these
  unread_replies unread_;    // of the router's peers
  zmq_msg_t id_, delimiter_, extra_;
  std::array<zmq_msg_t, largest_batch> frames_;  // of the messages that the caller has in hand
  std::size_t held_ = 0;                         // how many of them
};

zmq_transport::zmq_transport(transport_limits limits) : context_(std::make_shared<context>()), limits_(limits) {}
zmq_transport::~zmq_transport() = default;

std::unique_ptr<port> zmq_transport::open() { return std::make_unique<zmq_port>(context_, limits_); }

}  // namespace paracel::net
