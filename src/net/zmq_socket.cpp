// SPDX-License-Identifier: BSD-3-Clause
#include "net/zmq_socket.hpp"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace paracel::net {

namespace {

// A job of 64 servers with 32 threads each needs 2,048 sockets in a worker; ZeroMQ's own limit is 1,023.
constexpr int max_sockets = 16384;
// Unsent messages get this long when a port closes, so that a last reply is sent; a dead peer costs no more than this.
constexpr int linger_ms = 200;
// Processes of a job start together: one that connects first must not wait long for one that binds last. The time
// between attempts doubles from the first to the second figure, so that a server that is gone costs little.
constexpr int reconnect_ms = 2;
constexpr int longest_reconnect_ms = 50;
// A handshake takes a round trip. One that takes longer than this is given up, and the side that connects tries again:
// a connection may be accepted and never answered, by a proxy or a process that is suspended, while a new one would be.
constexpr int handshake_ms = 1000;
constexpr int accepted_handshake_ms = 4000;   // strangers may hold up a handshake for this long
constexpr int encrypted_handshake_ms = 2000;  // on either side: two round trips, and about 1 ms of computing
// The same for a connection of which the other side's host says nothing; the system would try for two minutes.
constexpr int connect_ms = 2000;
// A silent tcp peer is probed every 2 s and given up after 30 s. The scheduler detects deaths sooner; this only
// frees the connections of a vanished host. It must not be short: a stopped process that resumes must find its replies.
constexpr int tcp_heartbeat_ms = 2000;
constexpr int tcp_heartbeat_timeout_ms = 30000;
// Messages of one peer queued in this process before its connection is no longer read; none is dropped. A client bounds
// replies itself, by its limits of outstanding requests (4,096) and bytes: the mark for them is for a member of the job
// that sends what nobody has asked for.
constexpr int request_high_water_mark = 4096;
constexpr int reply_high_water_mark = 16 * request_high_water_mark;  // channels may share a connection

// Descriptors that ZeroMQ opens when it starts, for two threads and the first socket, with some to spare. It aborts the
// process when it cannot get them.
constexpr std::size_t first_descriptors = 16;

/// Throws: network_error when ZeroMQ could not open a descriptor that it needs.
void require_descriptors() {
  std::array<int, first_descriptors> open;
  std::size_t n = 0;
  while (n < open.size() && (open[n] = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) ++n;
  const zmq::error_t error(errno);
  for (std::size_t i = 0; i < n; ++i) ::close(open[i]);
  if (n < open.size()) fail_by_zmq("cannot start ZeroMQ", error);
}

template <class Option, class T>
void set(zmq::socket_t& socket, Option option, T value) try {
  socket.set(option, value);
} catch (const zmq::error_t& error) {
  fail_by_zmq("cannot set a socket option", error);
}

std::uint64_t most_unfinished_bytes(const transport_limits& limits) {
  if (limits.max_unfinished_bytes != 0) return limits.max_unfinished_bytes;
  const auto memory =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return std::max<std::uint64_t>(memory / 2, limits.max_message_bytes);
}

zmq::context_t start() try {
  require_descriptors();
  connection_guard::install(reinterpret_cast<const void*>(&zmq_ctx_new));  // this context has no threads yet
  return zmq::context_t(ZMQ_IO_THREADS_DFLT, max_sockets);
} catch (const zmq::error_t& error) {
  fail_by_zmq("cannot start ZeroMQ", error);
}

}  // namespace

void fail_by_zmq(const std::string& what, const zmq::error_t& error) {
  std::string why = error.what();
  if (rlimit limit{}; error.num() == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    why += "; the limit of this process is " + std::to_string(limit.rlim_cur) + " (ulimit -n)";
  }
  throw network_error(what + ": " + why, false);
}

// ZeroMQ's own inproc:// would share the sender's memory with the receiver, which may modify what seems to be unshared.
void check_zmq_address(const std::string& address) {
  if (address.starts_with("ipc://") || address.starts_with("tcp://")) return;
  throw network_error("address \"" + address + "\" does not begin with ipc:// or tcp://", false);
}

zmq_context::zmq_context(const transport_limits& limits, std::function<void(std::string_view)> dropped,
                         const std::optional<curve_secret>& secret)
    : context_(start()),
      dropped_(std::move(dropped)),
      guard_(std::make_shared<connection_guard>(
          connection_guard::limits{.message = {.most_message_bytes = 2 * limits.max_message_bytes},
                                   .most_unfinished_bytes = most_unfinished_bytes(limits)},
          dropped_)) {
  if (!secret) return;
  connection_guard::install_decryption(reinterpret_cast<const void*>(&zmq_ctx_new));  // this context has no threads yet
  key_.emplace(*secret);
}

zmq_context::~zmq_context() {
  const mutex_lock lock(admission_access_);
  if (admission_) context_.shutdown();
}

void zmq_context::open_admission() {
  const mutex_lock lock(admission_access_);
  if (!admission_) admission_.emplace(context_, *key_);
}

zmq_end::zmq_end(zmq_context& in, zmq::socket_type type, const transport_limits& limits) {
  try {
    socket_ = zmq::socket_t(in.get(), type);
    descriptor_ = socket_.get(zmq::sockopt::fd);
  } catch (const zmq::error_t& error) {
    fail_by_zmq("cannot open a socket", error);
  }
  const bool is_router = type == zmq::socket_type::router;
  set(socket_, zmq::sockopt::linger, linger_ms);
  set(socket_, zmq::sockopt::immediate, false);  // queue at once, even while no peer is bound
  set(socket_, zmq::sockopt::reconnect_ivl, reconnect_ms);
  set(socket_, zmq::sockopt::reconnect_ivl_max, longest_reconnect_ms);
  set(socket_, zmq::sockopt::handshake_ivl, is_router ? accepted_handshake_ms : handshake_ms);
  set(socket_, zmq::sockopt::connect_timeout, connect_ms);
  set(socket_, zmq::sockopt::sndhwm, 0);
  set(socket_, zmq::sockopt::rcvhwm, is_router ? request_high_water_mark : reply_high_water_mark);
  most_frame_bytes_ = std::min<std::size_t>(limits.max_message_bytes, INT64_MAX - zmq_curve::frame_overhead);
  if (is_router) set(socket_, zmq::sockopt::router_mandatory, true);
}

std::string zmq_end::bind(zmq_context& in, const std::string& address) {
  const auto* const key = in.key_for(address);
  set_tcp_options(address, key != nullptr);
  if (key != nullptr) {
    in.open_admission();
    key->secure(socket_, zmq_curve::side::bound);
    set(socket_, zmq::sockopt::handshake_ivl, encrypted_handshake_ms);
    is_secured_ = true;
  } else if (is_secured_) {  // ZeroMQ cannot go back
    throw network_error("cannot bind " + address + " after an encrypted address: want it before", false);
  }
  std::string here;
  const auto bind_it = [&] {
    try {
      socket_.bind(address);
      return here = socket_.get(zmq::sockopt::last_endpoint);
    } catch (const zmq::error_t& error) {
      fail_by_zmq("cannot bind " + address, error);
    }
  };
  bound_.push_back(in.guard().open(reinterpret_cast<const void*>(&zmq_ctx_new), bind_it, key != nullptr));
  return here;
}

void zmq_end::connect(zmq_context& in, const std::string& address) {
  const auto* const key = in.key_for(address);
  set_tcp_options(address, key != nullptr);
  if (key != nullptr) {
    key->secure(socket_, zmq_curve::side::connecting);
    set(socket_, zmq::sockopt::handshake_ivl, encrypted_handshake_ms);
  }
  connected_.push_back(in.guard().to(address, key != nullptr));
  try {
    socket_.connect(address);
  } catch (const zmq::error_t& error) {
    fail_by_zmq("cannot connect to " + address, error);
  }
}

/// Of what is bound or connected next.
void zmq_end::set_tcp_options(const std::string& address, bool is_encrypted) {
  const bool tcp = address.starts_with("tcp://");
  set(socket_, zmq::sockopt::ipv6, address.starts_with("tcp://["));
  set(socket_, zmq::sockopt::heartbeat_ivl, tcp ? tcp_heartbeat_ms : 0);
  set(socket_, zmq::sockopt::heartbeat_timeout, tcp ? tcp_heartbeat_timeout_ms : 0);
  const auto frame = most_frame_bytes_ + (is_encrypted ? zmq_curve::frame_overhead : 0);
  set(socket_, zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(tcp ? std::min(frame, most_part_bytes) : frame));
  cuts_ = cuts_ || tcp;
}

int zmq_end::send_cut(zmq_message_parts& parts) {
  // Whatever may fail for lack of memory comes before the first part is sent.
  std::vector<zmq::message_t> all;
  const auto cut = [&](zmq::message_t& frame, bool followed) {
    if (!cuts_ || frame.size() <= part_bytes) {
      for_each_part(frame.size(), false, followed, [&](std::size_t, std::size_t n) {
        if (n == 0) all.emplace_back();
        else all.push_back(std::move(frame));
      });
      return;
    }
    const auto whole = shared_buffer::adopt(new held_message(frame));
    for_each_part(whole.size(), true, followed, [&](std::size_t at, std::size_t n) {
      if (n == 0) return void(all.emplace_back());
      shared_buffer::control* const kept = shared_buffer(whole).release();
      try {
        all.emplace_back(kept->data + at, n, &zmq_message_parts::drop_buffer, kept);
      } catch (...) {
        shared_buffer::drop(kept);
        throw;
      }
    });
  };
  try {
    cut(parts.frame, parts.tail.has_value());
    if (parts.tail) cut(*parts.tail, false);
  } catch (const zmq::error_t&) {
    throw std::bad_alloc();
  }
  constexpr auto more = zmq::send_flags::sndmore;
  int error = parts.id ? send_part(*parts.id, more) : 0;
  if (error == 0) error = send_part(parts.delimiter, more);
  for (auto& part : all) {
    if (error != 0) return error;
    error = send_part(part, &part == &all.back() ? zmq::send_flags::none : more);
  }
  return error;
}

zmq_end::outcome zmq_end::join(zmq::message_t& frame, envelope& e) {
  std::vector<zmq::message_t> parts;
  frame_joiner joiner(most_frame_bytes_);
  bool more = e.extra.more();
  const auto refuse = [&] {
    e.is_too_large = true;
    return drop(e.extra, e);
  };
  if (!joiner.take(frame.size()) || !joiner.take(e.extra.size())) return refuse();
  parts.push_back(std::move(frame));
  parts.push_back(std::move(e.extra));
  while (more) {
    receive_rest(e.extra);
    more = e.extra.more();
    if (!joiner.take(e.extra.size())) return refuse();
    parts.push_back(std::move(e.extra));
  }
  // Each part is released when it has been copied, so that the message is not in memory twice.
  const auto copy = [&](std::size_t first, std::size_t count, std::byte* to) {
    for (std::size_t i = first; i < first + count; ++i) {
      if (const auto n = parts[i].size(); n != 0) to = std::copy_n(parts[i].data<std::byte>(), n, to);
      parts[i].rebuild();
    }
  };
  const auto& head = joiner[0];
  if (head.parts == 1) {
    frame = std::move(parts.front());
  } else {
    frame.rebuild(head.bytes);
    copy(0, head.parts, frame.data<std::byte>());
  }
  const auto& tail = joiner[1];
  if (tail.bytes == 0) return outcome::message;
  if (tail.parts == 1) {
    e.tail = shared_buffer::adopt(new held_message(parts[head.parts]));
  } else {
    auto joined = shared_buffer::allocate(tail.bytes);
    copy(head.parts, tail.parts, joined.mutable_data());
    e.tail = std::move(joined);
  }
  return outcome::message;
}

namespace {
/// The number of a socket, not of its descriptor, which may be used again; 0: unknown.
std::uint64_t cookie_of(int fd) noexcept {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}
}  // namespace

/// ZeroMQ may close it later, and open another connection: its traffic is then unknown.
void zmq_end::find_connection(zmq::message_t& received) noexcept {
  connection_ = zmq_msg_get(received.handle(), ZMQ_SRCFD);
  cookie_ = cookie_of(connection_);
}

std::uint64_t zmq_end::traffic() const noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (connection_ < 0 || cookie_of(connection_) != cookie_ ||
      getsockopt(connection_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
    return 0;
  return info.tcpi_bytes_received + info.tcpi_bytes_acked;
}

void zmq_end::set_receive_timeout(int timeout_ms) {
  set(socket_, zmq::sockopt::rcvtimeo, timeout_ms);
  receive_timeout_ms_ = timeout_ms;
}

}  // namespace paracel::net
