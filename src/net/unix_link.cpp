// SPDX-License-Identifier: BSD-3-Clause
#include "net/unix_link.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include <paracel/error.hpp>

#include "core/check.hpp"

namespace paracel::net {

namespace {

using std::chrono::milliseconds;

// As ZeroMQ's in zmq_socket.cpp: the time between two attempts to connect doubles from the first to the second.
constexpr milliseconds first_pause(2);
constexpr milliseconds longest_pause(50);
// Copying these together costs less than telling the kernel about each part.
constexpr std::size_t most_flat_bytes = 512;

iovec part(std::span<const std::byte> bytes) noexcept { return {const_cast<std::byte*>(bytes.data()), bytes.size()}; }

/// Ends the process, as ZeroMQ does, when a descriptor of ours turns out to be none: a user function has closed it, and
/// most likely all others. What is opened next would get its number.
ssize_t checked(const owned_fd& of, ssize_t outcome) noexcept {
  PARACEL_CHECK(outcome >= 0 || errno != EBADF || of.get() < 0);
  return outcome;
}

/// Whether the process at the other end is ours.
bool is_own(int fd) noexcept {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace

std::string unix_path(const std::string& address) {
  constexpr std::string_view scheme = "ipc://";
  if (!address.starts_with(scheme))
    throw network_error("address \"" + address + "\" does not begin with ipc://, as --transport unix needs", false);
  auto path = address.substr(scheme.size());
  if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path))
    throw network_error(address + ": want a path of 1 to 107 bytes", false);
  return path;
}

unix_link::unix_link(const transport_limits& limits, owned_fd accepted, std::uint64_t number)
    : inbox(limits), limits_(limits), number_(number), fd_(std::move(accepted)) {
  connected_.store(true, std::memory_order_release);
  send_bytes(std::as_bytes(std::span(zmtp_opening(true))));
}

unix_link::unix_link(const transport_limits& limits, std::string path, int events, std::uint64_t number)
    : inbox(limits), limits_(limits), number_(number), path_(std::move(path)), events_(events) {}

unix_link::sent unix_link::send(const outgoing& message) {
  const zmtp_framing framing(message);
  const std::size_t small = framing.before_head_bytes + message.head.size() + message.body.size();
  if (small <= most_flat_bytes && framing.before_tail_bytes == 0 && kept_.empty()) {
    std::array<std::byte, most_flat_bytes> flat;
    auto* to = std::copy_n(framing.before_head.begin(), framing.before_head_bytes, flat.data());
    to = std::ranges::copy(message.head, to).out;
    std::ranges::copy(message.body, to);
    return send_bytes({flat.data(), small});
  }
  if (std::max(message.head.size() + message.body.size(), message.tail.size()) >= least_ring_frame)
    return send_large(message);
  return send_framed(message, framing, {});
}

/// Puts what fits into the ring. The rest, and all as long as there is none, goes over the socket.
unix_link::sent unix_link::send_large(const outgoing& message) {
  ring_places places;
  if (ring_) {
    if (message.head.size() + message.body.size() >= least_ring_frame)
      places.head = ring_->put(message.head, message.body);
    if (message.tail.size() >= least_ring_frame) places.tail = ring_->put(message.tail.bytes());
  } else if ((awaits_ring_ || large_messages_ == 0) && is_connected() && std::has_single_bit(++large_messages_)) {
    // Asked for again now and then: the other side may have had a reason not to make one that has passed.
    awaits_ring_ = true;
    if (send_bytes(std::as_bytes(std::span(zmtp_wants_ring))) == sent::broken) return sent::broken;
  }
  return send_framed(message, zmtp_framing(message, places), places);
}

unix_link::sent unix_link::send_framed(const outgoing& message, const zmtp_framing& framing,
                                       const ring_places& places) {
  std::array<iovec, 6> parts;
  std::size_t n = 0;
  const auto add = [&](std::span<const std::byte> bytes) {
    if (!bytes.empty()) parts[n++] = part(bytes);
  };
  add(kept_);
  add({framing.before_head.data(), framing.before_head_bytes});
  if (!places.head) {
    add(message.head);
    add(message.body);
  }
  add({framing.before_tail.data(), framing.before_tail_bytes});
  if (!places.tail) add(message.tail.bytes());
  const auto outcome = send_parts(std::span(parts).first(n), places.tail ? shared_buffer{} : message.tail);
  kept_.clear();
  return outcome;
}

bool unix_link::keep(const outgoing& message) {
  if (message.tail.size() != 0 || kept_.size() + message.head.size() + message.body.size() > most_kept_bytes)
    return false;
  const zmtp_framing framing(message);
  kept_.insert(kept_.end(), framing.before_head.begin(), framing.before_head.begin() + framing.before_head_bytes);
  kept_.insert(kept_.end(), message.head.begin(), message.head.end());
  kept_.insert(kept_.end(), message.body.begin(), message.body.end());
  return true;
}

unix_link::sent unix_link::send_kept() {
  const auto outcome = send_bytes(kept_);
  kept_.clear();
  return outcome;
}

unix_link::sent unix_link::send_bytes(std::span<const std::byte> bytes) {
  std::size_t done = 0;
  if (is_connected() && queued() == 0) [[likely]] {
    const auto n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n == static_cast<ssize_t>(bytes.size())) [[likely]]
      return sent::all;
    if (n > 0) done = static_cast<std::size_t>(n);
  }
  auto one = part(bytes.subspan(done));
  return send_parts({&one, 1}, {});
}

ssize_t unix_link::receive(std::span<std::byte> to, int flags) {
  if (!awaits_ring_) [[likely]]
    return checked(fd_, ::recv(fd_.get(), to.data(), to.size(), flags));
  iovec bytes{to.data(), to.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> beside{};  // the system closes any further ones
  msghdr m{};
  m.msg_iov = &bytes;
  m.msg_iovlen = 1;
  m.msg_control = beside.data();
  m.msg_controllen = beside.size();
  const auto n = checked(fd_, ::recvmsg(fd_.get(), &m, flags | MSG_CMSG_CLOEXEC));
  if (n < 0) return n;
  if (const auto* c = CMSG_FIRSTHDR(&m); c != nullptr && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
                                         c->cmsg_len == CMSG_LEN(sizeof(int))) {
    int file = -1;
    std::memcpy(&file, CMSG_DATA(c), sizeof file);
    passed_ = owned_fd(file);
  }
  return n;
}

void unix_link::make_ring() {
  if (inbox.ring || !is_connected() || queued() != 0) return;
  auto made = ring_reader::make();
  if (!made) return;
  auto text = part(std::as_bytes(std::span(zmtp_has_ring)));
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> beside{};
  msghdr m{};
  m.msg_iov = &text;
  m.msg_iovlen = 1;
  m.msg_control = beside.data();
  m.msg_controllen = beside.size();
  auto* c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  const int file = made->file();
  std::memcpy(CMSG_DATA(c), &file, sizeof file);
  if (::sendmsg(fd_.get(), &m, MSG_DONTWAIT | MSG_NOSIGNAL) != static_cast<ssize_t>(zmtp_has_ring.size())) return;
  made->close_file();
  inbox.ring = std::move(made);
}

void unix_link::take_ring() noexcept {
  if (!awaits_ring_) return;
  awaits_ring_ = false;
  ring_ = ring_writer::open(std::exchange(passed_, owned_fd()));
}

/// The last part is the tail, if there is one.
unix_link::sent unix_link::send_parts(std::span<iovec> parts, const shared_buffer& tail) {
  std::size_t all = 0;
  for (const auto& p : parts) all += p.iov_len;
  std::size_t done = 0;
  if (is_connected() && queued() == 0) [[likely]] {
    msghdr m{};
    m.msg_iov = parts.data();
    m.msg_iovlen = parts.size();
    ssize_t n = 0;
    do {
      n = checked(fd_, ::sendmsg(fd_.get(), &m, MSG_DONTWAIT | MSG_NOSIGNAL));
    } while (n < 0 && errno == EINTR);
    if (n == static_cast<ssize_t>(all)) [[likely]]
      return sent::all;
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) return sent::broken;
    if (n > 0) done = static_cast<std::size_t>(n);
  }
  const mutex_lock lock(access_);
  if (closed_) return sent::broken;
  queue(parts, tail, done);
  queued_.fetch_add(all - done, std::memory_order_release);
  return sent::rest_queued;
}

void unix_link::queue(std::span<const iovec> parts, const shared_buffer& tail, std::size_t done) {
  piece small;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto skipped = std::min(done, parts[i].iov_len);
    done -= skipped;
    if (tail.size() != 0 && i + 1 == parts.size()) {
      if (!small.bytes.empty()) queue_.push_back(std::exchange(small, {}));
      queue_.push_back({.bytes = {}, .tail = tail, .done = skipped});
      return;
    }
    const auto* from = static_cast<const std::byte*>(parts[i].iov_base);
    small.bytes.insert(small.bytes.end(), from + skipped, from + parts[i].iov_len);
  }
  if (!small.bytes.empty()) queue_.push_back(std::move(small));
}

void unix_link::try_connect() {
  if (with_courier_) return;  // it may be waiting for the opening
  const mutex_lock lock(access_);
  if (clock::now() >= next_try_) connect_now();
}

void unix_link::connect_now() {
  if (connected_ || closed_) return;
  if (fd_.get() < 0) {
    owned_fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path, path_.data(), path_.size());
    const auto opening = zmtp_opening(false);
    if (fd.get() >= 0 && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 &&
        is_own(fd.get()) &&
        ::send(fd.get(), opening.data(), opening.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(opening.size()))
      fd_ = std::move(fd);
  }
  if (fd_.get() >= 0 && take_opening()) return;
  fd_ = owned_fd();
  opening_bytes_ = 0;
  pause_ = std::clamp(2 * pause_, first_pause, longest_pause);
  next_try_ = clock::now() + pause_;
}

/// Reads the opening of the other side and not a byte more: what follows must signal the owner. Returns: false: it is
/// none, or the connection is gone.
bool unix_link::take_opening() {
  constexpr std::size_t before_command = 64 + 2;
  for (;;) {
    std::size_t wanted = before_command;
    if (opening_bytes_ >= before_command) wanted += std::to_integer<std::size_t>(opening_[before_command - 1]);
    if (wanted == opening_bytes_) break;
    const auto n = ::recv(fd_.get(), opening_.data() + opening_bytes_, wanted - opening_bytes_, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    opening_bytes_ += static_cast<std::size_t>(n);
  }
  zmtp_inbox fresh(limits_);
  std::memcpy(fresh.room().data(), opening_.data(), opening_bytes_);
  fresh.filled(opening_bytes_);
  zmtp_inbox::message none;
  if (fresh.next(none) != zmtp_inbox::outcome::incomplete || !fresh.is_established()) return false;
  ::fcntl(fd_.get(), F_SETFL, 0);  // from now on a receive may wait; sends say that they do not
  inbox = std::move(fresh);
  connected_.store(true, std::memory_order_release);
  epoll_event e{};
  e.events = EPOLLIN | EPOLLET;
  e.data.u64 = number_;
  // Without memory for that, the next message finds the connection broken.
  if (events_ >= 0 && ::epoll_ctl(events_, EPOLL_CTL_ADD, fd_.get(), &e) != 0) ::shutdown(fd_.get(), SHUT_RDWR);
  return true;
}

void unix_link::close(clock::time_point linger) {
  const mutex_lock lock(access_);
  if (closed_) return;
  if (linger != clock::time_point{} && !queue_.empty()) {
    linger_ = linger;
    if (connected_ && events_ >= 0) ::epoll_ctl(events_, EPOLL_CTL_DEL, fd_.get(), nullptr);
    events_ = -1;
    return;
  }
  closed_ = true;
  queue_.clear();
  queued_ = 0;
  fd_ = owned_fd();
}

/// Returns: false: the connection is broken; its owner will see that, too.
bool unix_link::write_queue() {
  constexpr std::size_t most_parts = 64;
  while (!queue_.empty()) {
    std::array<iovec, most_parts> parts;
    std::size_t n = 0;
    for (auto at = queue_.begin(); at != queue_.end() && n < most_parts; ++at) parts[n++] = part(at->rest());
    msghdr m{};
    m.msg_iov = parts.data();
    m.msg_iovlen = n;
    const auto written = checked(fd_, ::sendmsg(fd_.get(), &m, MSG_DONTWAIT | MSG_NOSIGNAL));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
    auto left = static_cast<std::size_t>(written);
    while (!queue_.empty() && left >= queue_.front().rest().size()) {
      left -= queue_.front().rest().size();
      queue_.pop_front();
    }
    if (!queue_.empty()) queue_.front().done += left;
    // Zero only once everything is sent: from then on the owner sends directly.
    queued_.fetch_sub(static_cast<std::uint64_t>(written), std::memory_order_release);
  }
  return true;
}

bool unix_link::work(clock::time_point now) {
  const mutex_lock lock(access_);
  bool over = closed_ || (linger_ != clock::time_point{} && now >= linger_);
  if (!over && !connected_ && now >= next_try_) connect_now();
  if (!over && connected_) over = !write_queue();
  if (!over && (!connected_ || !queue_.empty())) return false;
  if (over || linger_ != clock::time_point{}) {
    closed_ = true;
    queue_.clear();
    queued_ = 0;
    // The owner closes its descriptor itself: it may be receiving.
    if (linger_ != clock::time_point{}) fd_ = owned_fd();
    else if (connected_) ::shutdown(fd_.get(), SHUT_RDWR);
  }
  with_courier_ = false;
  return true;
}

unix_link::wish unix_link::waits_for() {
  const mutex_lock lock(access_);
  if (closed_) return {};
  const auto end = linger_ != clock::time_point{} ? linger_ : clock::time_point::max();
  if (connected_) return {fd_.get(), POLLOUT, end};
  return fd_.get() >= 0 ? wish{fd_.get(), POLLIN, end} : wish{-1, 0, std::min(next_try_, end)};
}

}  // namespace paracel::net
