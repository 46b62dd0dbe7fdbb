// SPDX-License-Identifier: BSD-3-Clause
#include "net/direct_link.hpp"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "net/zmq_curve.hpp"

namespace paracel::net {

namespace {

using std::chrono::milliseconds;

// Queued bytes are the courier's after this: until then the owner's next call is likely to send them.
constexpr milliseconds courier_delay{1};
// From this size on the rest of a message is received into its own memory.
constexpr std::size_t least_direct_bytes = std::size_t{16} << 10U;
constexpr int most_reads = 8;
constexpr std::size_t most_parts = 64;
// Timeouts in a row, each twice as long as the one before, of at least 0.2 s.
constexpr unsigned most_timeouts = 2;

struct secret_boxes {
  using function = int(unsigned char*, const unsigned char*, unsigned long long, const unsigned char*,
                       const unsigned char*);
  function* seal = reinterpret_cast<function*>(zmq_curve::library_function("crypto_secretbox_easy"));
  function* open = reinterpret_cast<function*>(zmq_curve::library_function("crypto_secretbox_open_easy"));
};
const secret_boxes& box_functions() {
  static const secret_boxes all;
  return all;
}

unsigned char* raw(std::byte* bytes) noexcept { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) noexcept { return reinterpret_cast<const unsigned char*>(bytes); }
bool would_block() noexcept { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS; }

// How many processes between the first one and this one are copies by fork.
std::atomic<unsigned> forks{0};
unsigned forks_so_far() {
  static const int watched = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
  (void)watched;
  return forks;
}

constexpr std::size_t box_front = sizeof(std::uint32_t);
constexpr std::size_t most_sealed_bytes = box_front + link_box::overhead + direct_link::most_box_bytes;

}  // namespace

bool link_box::is_available() noexcept { return box_functions().seal != nullptr && box_functions().open != nullptr; }

void link_box::count() noexcept { std::memcpy(nonce_.data() + 16, &++counter_, sizeof counter_); }

void link_box::seal(std::byte* to, std::span<const std::byte> from) noexcept {
  box_functions().seal(raw(to), raw(from.data()), from.size(), nonce_.data(), key_.data());
  count();
}

bool link_box::open(std::byte* to, std::span<const std::byte> from) noexcept {
  if (from.size() < overhead ||
      box_functions().open(raw(to), raw(from.data()), from.size(), nonce_.data(), key_.data()) != 0)
    return false;
  count();
  return true;
}

direct_link::direct_link(owned_fd connected, std::optional<boxes> encrypted, std::size_t most_message_bytes)
    : fd_(std::move(connected)),
      most_message_bytes_(most_message_bytes),
      forks_before_(forks_so_far()),
      boxes_(encrypted) {
  buffer_.resize(2 * most_sealed_bytes);
  if (boxes_) {
    content_.resize(most_box_bytes);
    plain_.resize(most_box_bytes);
    sealed_.resize(most_sealed_bytes);
  }
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(fd_.get(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // As ZeroMQ's heartbeat: the connections of hosts that are gone are freed.
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

// ---- sending

void direct_link::begin(std::vector<std::byte> hello) {
  const mutex_lock lock(access_);
  hello_ = std::move(hello);
  begun_ = false;
  heard_ = false;
  queued_ = true;
  due_ = clock::now() + courier_delay;
  if (!write()) broken_ = true;
}

/// The owner's. Its lock may be held by a thread that the copy does not have.
bool direct_link::is_copied() noexcept {
  if (forks.load(std::memory_order_relaxed) == forks_before_) return false;
  broken_ = true;
  ended_ = true;
  return true;
}

void direct_link::send(const link_record& head, shared_buffer body) {
  if (is_copied()) return;
  const mutex_lock lock(access_);
  if (broken_) return;
  piece p{.head = {}, .body = std::move(body)};
  std::memcpy(p.head.data(), &head, sizeof head);
  queue_.push_back(std::move(p));
  if (!queued_.exchange(true)) due_ = clock::time_point::max();
  if (!write()) broken_ = true;
  if (queued_ && due_ == clock::time_point::max()) due_ = clock::now() + courier_delay;
}

bool direct_link::push() {
  if (!has_queued()) return true;
  if (is_copied()) return false;
  const mutex_lock lock(access_);
  if (!broken_ && !write()) broken_ = true;
  return !queued_;
}

/// Returns: false: the connection is broken.
bool direct_link::write() {
  while (!hello_.empty()) {
    const auto n = ::send(fd_.get(), hello_.data(), hello_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return would_block() || errno == ENOTCONN;
    hello_.erase(hello_.begin(), hello_.begin() + n);
    begun_.store(hello_.empty(), std::memory_order_release);
  }
  while (!queue_.empty() || sealed_done_ != sealed_bytes_) {
    const auto n = boxes_ ? write_sealed() : write_clear();
    if (n < 0) return would_block();
  }
  queued_.store(false, std::memory_order_release);
  return true;
}

/// The parts of what is queued. Returns: how many.
std::size_t direct_link::gather(std::span<iovec> parts, std::size_t most) {
  std::size_t n = 0;
  for (auto& p : queue_) {
    const auto add = [&](std::span<const std::byte> all, std::size_t done) {
      if (done >= all.size() || most == 0 || n == parts.size()) return;
      const auto rest = all.subspan(done).first(std::min(all.size() - done, most));
      parts[n++] = {const_cast<std::byte*>(rest.data()), rest.size()};
      most -= rest.size();
    };
    add(p.head, p.done);
    add(p.body.bytes(), p.done > p.head.size() ? p.done - p.head.size() : 0);
    if (most == 0 || n + 1 >= parts.size()) break;
  }
  return n;
}

void direct_link::drop_written(std::size_t bytes) {
  while (!queue_.empty()) {
    auto& p = queue_.front();
    const auto part = std::min(bytes, p.size() - p.done);
    p.done += part;
    bytes -= part;
    if (p.done != p.size()) return;
    queue_.pop_front();
  }
}

ssize_t direct_link::write_clear() {
  std::array<iovec, most_parts> parts;
  msghdr m{};
  m.msg_iov = parts.data();
  m.msg_iovlen = gather(parts, SIZE_MAX);
  const auto n = ::sendmsg(fd_.get(), &m, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n > 0) drop_written(static_cast<std::size_t>(n));
  return n;
}

ssize_t direct_link::write_sealed() {
  if (sealed_done_ == sealed_bytes_) {
    std::array<iovec, most_parts> parts;
    const auto count = gather(parts, most_box_bytes);
    std::span<const std::byte> content;
    if (count == 1) {
      content = {static_cast<const std::byte*>(parts[0].iov_base), parts[0].iov_len};
    } else {
      auto* to = content_.data();
      for (std::size_t i = 0; i < count; ++i)
        to = std::copy_n(static_cast<const std::byte*>(parts[i].iov_base), parts[i].iov_len, to);
      content = {content_.data(), static_cast<std::size_t>(to - content_.data())};
    }
    const auto size = static_cast<std::uint32_t>(content.size() + link_box::overhead);
    store_fields(sealed_.data(), size);
    boxes_->out.seal(sealed_.data() + box_front, content);
    sealed_done_ = 0;
    sealed_bytes_ = box_front + size;
    drop_written(content.size());
  }
  const auto n =
      ::send(fd_.get(), sealed_.data() + sealed_done_, sealed_bytes_ - sealed_done_, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n > 0) sealed_done_ += static_cast<std::size_t>(n);
  return n;
}

// ---- receiving

bool direct_link::receive(const taker& take) {
  if (is_copied()) return true;
  bool any = false;
  for (int i = 0; i < most_reads && !ended_; ++i) {
    const bool direct = !boxes_ && head_bytes_ == sizeof record_ && body_.size() - body_bytes_ >= least_direct_bytes;
    auto* const to = direct ? body_.data() + body_bytes_ : buffer_.data() + filled_;
    const auto room = direct ? body_.size() - body_bytes_ : buffer_.size() - filled_;
    const auto n = ::recv(fd_.get(), to, room, MSG_DONTWAIT);
    if (n < 0 && would_block()) {
      ended_ = is_broken();
      return any || ended_;
    }
    if (n <= 0) {
      broken_ = true;
      ended_ = true;
      return true;
    }
    any = true;
    heard_ = true;
    const auto bytes = static_cast<std::size_t>(n);
    bool is_good = true;
    if (direct) {
      body_bytes_ += bytes;
      is_good = parse({}, take);
    } else if (!boxes_) {
      is_good = parse({buffer_.data(), bytes}, take);
    } else {
      filled_ += bytes;
      is_good = parse_sealed(take);
    }
    if (!is_good) {
      broken_ = true;
      ended_ = true;
    }
    if (bytes < room) return true;
  }
  return any;
}

/// Returns: false: no box of the other side.
bool direct_link::parse_sealed(const taker& take) {
  std::size_t at = 0;
  bool is_good = true;
  while (is_good && !ended_ && filled_ - at >= box_front) {
    std::uint32_t size = 0;
    load_fields(buffer_.data() + at, size);
    if (size <= link_box::overhead || size > link_box::overhead + most_box_bytes) return false;
    if (filled_ - at < box_front + size) break;
    const std::span<const std::byte> box(buffer_.data() + at + box_front, size);
    const auto content = size - link_box::overhead;
    at += box_front + size;
    if (head_bytes_ == sizeof record_ && body_.size() - body_bytes_ >= content) {
      is_good = boxes_->in.open(body_.data() + body_bytes_, box);
      body_bytes_ += content;
      is_good = is_good && parse({}, take);
    } else {
      is_good = boxes_->in.open(plain_.data(), box) && parse({plain_.data(), content}, take);
    }
  }
  std::memmove(buffer_.data(), buffer_.data() + at, filled_ - at);
  filled_ -= at;
  return is_good;
}

/// Returns: false: a message is larger than the limit.
bool direct_link::parse(std::span<const std::byte> bytes, const taker& take) {
  for (;;) {
    if (head_bytes_ < sizeof record_) {
      const auto n = std::min(bytes.size(), sizeof record_ - head_bytes_);
      std::copy_n(bytes.data(), n, head_.data() + head_bytes_);
      head_bytes_ += n;
      bytes = bytes.subspan(n);
      if (head_bytes_ < sizeof record_) return true;
      std::memcpy(&record_, head_.data(), sizeof record_);
      if (record_.size > most_message_bytes_) return false;
      body_bytes_ = 0;
      if (bytes.size() < record_.size) body_ = byte_vector(record_.size);
    }
    if (body_.empty()) {
      body_.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(record_.size));
      bytes = bytes.subspan(record_.size);
    } else {
      const auto n = std::min(bytes.size(), body_.size() - body_bytes_);
      std::copy_n(bytes.data(), n, body_.data() + body_bytes_);
      body_bytes_ += n;
      bytes = bytes.subspan(n);
      if (body_bytes_ < body_.size()) return true;
    }
    head_bytes_ = 0;
    take(record_, std::exchange(body_, {}));
    if (bytes.empty() || ended_) return true;
  }
}

// ---- its state

bool direct_link::has_arrived() const noexcept {
  int unsent = 0;
  return !has_queued() && ::ioctl(fd_.get(), SIOCOUTQ, &unsent) == 0 && unsent == 0;
}

bool direct_link::is_silent() const noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_retransmits >= most_timeouts;
}

void direct_link::close() {
  if (is_copied()) return;
  ended_ = true;
  const mutex_lock lock(access_);
  broken_ = true;
  queue_.clear();
  sealed_done_ = sealed_bytes_ = 0;
  queued_ = false;
  ::shutdown(fd_.get(), SHUT_RDWR);
}

bool direct_link::work(clock::time_point now) {
  const mutex_lock lock(access_);
  if (!broken_ && queued_ && now < due_) return false;
  if (!broken_ && queued_ && !write()) broken_ = true;
  if (!broken_ && queued_) return false;
  with_courier_ = false;
  return true;
}

courier_task::wish direct_link::waits_for() {
  const mutex_lock lock(access_);
  if (broken_ || !queued_) return {};
  if (clock::now() < due_) return {-1, 0, due_};
  return {fd_.get(), POLLOUT, clock::time_point::max()};
}

}  // namespace paracel::net
