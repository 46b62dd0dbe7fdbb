// SPDX-License-Identifier: BSD-3-Clause
#include "net/zmq_shared_router.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/check.hpp"
#include "net/lane_address.hpp"

namespace paracel::net {

namespace {

// What an epoll reports besides the numbers of other descriptors.
constexpr std::uint64_t by_alarm = ~std::uint64_t{0};
constexpr std::uint64_t by_socket = by_alarm - 1;

void watch(int events, int descriptor, std::uint32_t how, std::uint64_t number) {
  epoll_event e{};
  e.events = EPOLLIN | how;
  e.data.u64 = number;
  if (epoll_ctl(events, EPOLL_CTL_ADD, descriptor, &e) != 0) {
    fail_by_zmq("cannot wait for a descriptor", zmq::error_t(errno));
  }
}

}  // namespace

zmq_shared_router::zmq_shared_router(std::shared_ptr<zmq_context> in, const std::string& address, std::size_t lanes,
                                     const transport_limits& limits)
    : context_(std::move(in)), limits_(limits), socket_(*context_, zmq::socket_type::router, limits) {
  descriptor_ = socket_.descriptor();
  for (std::size_t i = 0; i < lanes; ++i) {
    lanes_.push_back(std::make_unique<lane>());
    open(*lanes_.back());
  }
  address_ = socket_.bind(*context_, address);
}

zmq_shared_router::~zmq_shared_router() {
  for (const auto& l : lanes_) {
    if (l->events >= 0) ::close(l->events);
    if (l->alarm >= 0) ::close(l->alarm);
  }
}

void zmq_shared_router::open(lane& l) const {
  l.alarm = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  l.events = epoll_create1(EPOLL_CLOEXEC);
  if (l.alarm < 0 || l.events < 0) fail_by_zmq("cannot open a socket", zmq::error_t(errno));
  watch(l.events, l.alarm, EPOLLET, by_alarm);  // never read: each write is one event
  watch(l.events, descriptor_, EPOLLET | EPOLLEXCLUSIVE, by_socket);
}

void zmq_shared_router::wake_list::ring() noexcept {
  constexpr std::uint64_t once = 1;
  // It cannot fail: the counter is never read, and too large to overflow.
  for (std::size_t i = 0; i < count_; ++i) (void)!::write(alarms_[i], &once, sizeof once);
  count_ = 0;
}

bool zmq_shared_router::take(std::uint16_t number, std::vector<request>& into) {
  lane& mine = *lanes_[number];
  if (!mine.has_requests.load(std::memory_order_acquire) && may_have_input_ && !is_stalled_) receive_now();
  if (!mine.has_requests.load(std::memory_order_acquire)) return false;
  bool was_full = false;
  {
    const mutex_lock lock(mine.access);
    mine.has_requests.store(false, std::memory_order_relaxed);
    into.swap(mine.queue);
    was_full = std::exchange(mine.bytes, 0) > most_queued_bytes;
    if (was_full) is_stalled_ = false;
  }
  if (was_full) receive_now();  // for the waiting lanes, before this one is busy again
  return !into.empty();
}

int zmq_shared_router::reply(const peer& to, const outgoing& message, send_queue_meter::probe* mark) {
  PARACEL_ASSERT(to.size >= sizeof(std::uint16_t));
  std::uint16_t lane = 0;
  const auto identity = to.bytes().first(to.size - sizeof lane);
  load_fields(to.id.data() + identity.size(), lane);
  // Anything that may fail for lack of memory comes before the first part is sent.
  zmq_message_parts parts(lane, message, mark);
  parts.address(identity);
  wake_list wake;
  const mutex_lock lock(socket_access_);
  const int error = socket_.send(parts);
  may_have_input_ = true;
  if (sleepers_ != 0 && !is_stalled_) {
    const auto now = std::chrono::steady_clock::now();
    if (now - checked_ >= check_interval) {
      checked_ = now;
      receive_all(wake);
    }
  }
  return error;
}

void zmq_shared_router::receive_now() {
  wake_list wake;
  const mutex_lock lock(socket_access_);
  receive_all(wake);
}

/// Receives everything that has arrived, into the queues of its lanes.
void zmq_shared_router::receive_all(wake_list& wake) {
  for (std::size_t received = 0; received < most_in_a_row;) {
    request r;
    const auto outcome = socket_.receive(true, r.frame, envelope_, 0);
    if (outcome == zmq_end::outcome::nothing) {
      may_have_input_ = false;
      return;
    }
    if (std::exchange(envelope_.is_too_large, false)) [[unlikely]]
      context_->tell_too_large(limits_);
    if (outcome != zmq_end::outcome::message) continue;
    ++received;
    // Each lane of a client is a peer of its own.
    const auto lane = envelope_.lane;
    const auto identity = envelope_.id.size();
    if (lane >= lanes_.size() || identity + sizeof lane > peer::capacity) continue;
    std::memcpy(r.from.id.data(), envelope_.id.data(), identity);
    store_fields(r.from.id.data() + identity, lane);
    r.from.size = static_cast<std::uint8_t>(identity + sizeof lane);
    r.tail = std::move(envelope_.tail);
    if (!put(lane, std::move(r), wake)) {
      may_have_input_ = true;
      return;
    }
  }
  may_have_input_ = true;
  wake_one(wake);  // the rest would not be signalled to sleepers
}

bool zmq_shared_router::put(std::uint16_t to, request&& r, wake_list& wake) {
  lane& l = *lanes_[to];
  const mutex_lock lock(l.access);
  if (l.is_closed) return true;
  l.bytes += r.frame.size() + r.tail.size() + request_overhead;
  l.queue.push_back(std::move(r));
  l.has_requests.store(true, std::memory_order_release);
  if (std::exchange(l.is_asleep, false)) wake.add(l.alarm);
  if (l.bytes <= most_queued_bytes) return true;
  is_stalled_ = true;
  return false;
}

void zmq_shared_router::wake_one(wake_list& wake) {
  for (const auto& l : lanes_) {
    const mutex_lock lock(l->access);
    if (std::exchange(l->is_asleep, false)) return wake.add(l->alarm);
  }
}

bool zmq_shared_router::wait(std::uint16_t number, std::chrono::milliseconds timeout, std::vector<other>& signalled) {
  lane& mine = *lanes_[number];
  ++sleepers_;
  // A thread that sends after this line sees a sleeper; an earlier send is visible to it.
  bool sleeps = !may_have_input_ || is_stalled_;
  if (sleeps) {
    const mutex_lock lock(mine.access);
    sleeps = mine.queue.empty();
    mine.is_asleep = sleeps;
  }
  if (!sleeps) {
    --sleepers_;
    return true;
  }
  std::array<epoll_event, 64> events;
  const int n =
      epoll_wait(mine.events, events.data(), static_cast<int>(events.size()), static_cast<int>(timeout.count()));
  --sleepers_;
  {
    const mutex_lock lock(mine.access);
    mine.is_asleep = false;
  }
  if (n <= 0) {
    if (n == 0) may_have_input_ = true;  // see the top of the header
    return false;
  }
  for (int i = 0; i < n; ++i) {
    const auto number_of_event = events[static_cast<std::size_t>(i)].data.u64;
    if (number_of_event == by_socket) may_have_input_ = true;
    else if (number_of_event != by_alarm) signalled.push_back(static_cast<other>(number_of_event));
  }
  return true;
}

void zmq_shared_router::add(std::uint16_t lane, int descriptor, other number) {
  watch(lanes_[lane]->events, descriptor, EPOLLET, number);
}

void zmq_shared_router::remove(std::uint16_t lane, int descriptor) noexcept {
  epoll_ctl(lanes_[lane]->events, EPOLL_CTL_DEL, descriptor, nullptr);
}

void zmq_shared_router::close(std::uint16_t number) noexcept {
  lane& mine = *lanes_[number];
  std::vector<request> unread;
  {
    const mutex_lock lock(mine.access);
    mine.is_closed = true;
    unread.swap(mine.queue);
    if (std::exchange(mine.bytes, 0) > most_queued_bytes) is_stalled_ = false;
  }
  // This thread may have consumed the socket's signal.
  may_have_input_ = true;
  wake_list wake;
  wake_one(wake);
}

}  // namespace paracel::net
