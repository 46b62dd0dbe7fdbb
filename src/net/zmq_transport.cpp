// SPDX-License-Identifier: BSD-3-Clause
#include "net/zmq_transport.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include <paracel/error.hpp>
#include <zmq.hpp>

#include "net/lane_address.hpp"
#include "net/message_limit.hpp"
#include "net/send_queue_meter.hpp"
#include "net/zmq_shared_router.hpp"
#include "net/zmq_socket.hpp"

namespace paracel::net {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Most messages taken from one socket before the others get their turn.
constexpr int burst = 64;
// Most messages returned by one call.
constexpr std::size_t largest_batch = 32;
// Polling a router that turns out to be empty costs a system call. After one in vain, at most this many calls return
// what they have before checking again whether requests arrive faster than they are answered.
constexpr unsigned longest_doubt = 15;
// Capacity for this many requests of a shared router is kept for the next ones.
constexpr std::size_t most_kept_requests = 4096;
// A connection that ZeroMQ has given up is opened again at once, but no more often than this: a peer that breaks the
// protocol each time costs no more than one that is gone.
constexpr milliseconds reopen_interval(50);
// The range of ZeroMQ and poll, in milliseconds.
constexpr milliseconds longest_wait(INT_MAX);

}  // namespace

class zmq_transport::zmq_port final : public port {
 public:
  /// With `shared`, the port answers on this lane of it and cannot be bound elsewhere.
  zmq_port(std::shared_ptr<zmq_context> c, transport_limits limits, std::shared_ptr<zmq_shared_router> shared = nullptr,
           std::uint16_t lane = 0)
      : context_(std::move(c)), limits_(limits), shared_(std::move(shared)), lane_(lane) {
    if (shared_ == nullptr) return;
    router_ = 0;
    ends_.emplace_back();
  }
  ~zmq_port() override {
    if (shared_ == nullptr) return;
    for (end& e : ends_) close(e);
    shared_->close(lane_);
  }

  std::string bind(const std::string& address) override {
    check_zmq_address(address);
    if (shared_ != nullptr) throw network_error("cannot bind " + address + ": the port shares its address", false);
    if (router_ < 0) {
      end e;
      e.socket = zmq_end(*context_, zmq::socket_type::router, limits_);
      router_ = static_cast<int>(ends_.size());
      ends_.push_back(std::move(e));
    }
    return ends_[static_cast<std::size_t>(router_)].socket.bind(*context_, address);
  }

  int connect(const std::string& address) override {
    check_zmq_address(address);
    const auto parsed = lane_address::parse(address);
    const bool reuses = !free_channels_.empty();
    const int number = reuses ? free_channels_.back() : static_cast<int>(channels_.size());
    // Nothing may fail once there is a connection.
    channels_.reserve(channels_.size() + 1);
    closed_channels_.reserve(channels_.capacity());
    free_channels_.reserve(channels_.capacity());
    channel c{.at = end_for(parsed), .lane = parsed.lane, .is_open = true};
    auto& lanes = ends_[c.at].channels;
    if (lanes.size() <= c.lane) lanes.resize(c.lane + std::size_t{1}, -1);
    lanes[c.lane] = number;
    ++ends_[c.at].open_channels;
    if (reuses) {
      free_channels_.pop_back();
      at(number) = c;
    } else {
      channels_.push_back(c);
    }
    return number;
  }

  void disconnect(int number) override {
    channel& c = at(number);
    if (!c.is_open) return;
    end& e = ends_[c.at];
    c.is_open = false;
    e.outstanding -= std::exchange(c.outstanding, 0);
    e.channels[c.lane] = -1;
    closed_channels_.push_back(number);
    // Receivers tell connections apart: a channel that connects again gets a new one, and the others keep this one.
    if (const auto j = joinable_.find(e.address); j != joinable_.end() && j->second == c.at) joinable_.erase(j);
    if (--e.open_channels == 0) close(e);
  }

  std::uint64_t traffic(int number) override {
    const channel& c = at(number);
    return c.is_open ? ends_[c.at].socket.traffic() : 0;
  }

  void send(int number, const outgoing& message) override {
    check_message_size(message, limits_);
    channel& c = at(number);
    if (!c.is_open) throw network_error("channel " + std::to_string(number) + " is disconnected", false);
    end& e = ends_[c.at];
    e.may_have_input = true;  // see zmq_end::send
    int error = send_over(e, c.lane, message);
    // A channel has no high-water mark: it lacks a queue only after ZeroMQ has given up its connection.
    if (error == EAGAIN && reopen(c.at)) error = send_over(e, c.lane, message);
    if (error != 0 && error != EAGAIN) {
      fail_by_zmq("cannot send on channel " + std::to_string(number), zmq::error_t(error));
    }
    ++e.outstanding;
    ++c.outstanding;
  }

  void reply(const peer& to, const outgoing& message) override {
    check_message_size(message, limits_);
    if (router_ < 0) throw network_error("cannot send a reply from a port that is not bound", false);
    auto* const mark = unread_.due(to, message.head.size() + message.body.size(), message.tail.size());
    int error = 0;
    if (shared_ != nullptr) {
      error = shared_->reply(to, message, mark);
    } else {
      end& e = ends_[static_cast<std::size_t>(router_)];
      e.may_have_input = true;
      zmq_message_parts parts(0, message, mark);
      parts.address(to.bytes());
      error = e.socket.send(parts);
    }
    if (error != 0 && error != EHOSTUNREACH && error != EAGAIN) {
      fail_by_zmq("cannot send a reply", zmq::error_t(error));
    }
  }

  bool receive(incoming& out, milliseconds timeout) override { return receive_first(out, timeout) != nullptr; }

  bool receive_beside(incoming& out, milliseconds timeout, std::span<const pollfd> others) override {
    others_ = others;
    const bool arrived = receive(out, timeout);
    others_ = {};
    return arrived;
  }
  [[nodiscard]] bool waits_beside() const noexcept override { return shared_ == nullptr; }

  std::size_t receive_batch(std::span<incoming> out, milliseconds timeout) override {
    if (out.empty()) return 0;
    end* from = receive_first(out.front(), timeout);
    if (from == nullptr) return 0;
    const std::size_t most = std::min(out.size(), largest_batch);
    std::size_t n = 1;
    if (n == most) return n;
    if (is_router(*from) && shared_ == nullptr && doubt_left_ != 0) {
      --doubt_left_;
      return n;
    }
    while (n < most && is_source(*from) && take_next(*from, out[n])) ++n;
    in_a_row_ += static_cast<int>(n) - 1;
    if (is_router(*from)) {
      doubt_ = n > 1 ? 0 : std::min(2 * doubt_ + 1, longest_doubt);
      doubt_left_ = doubt_;
    }
    return n;
  }

 private:
  using outcome = zmq_end::outcome;
  /// A socket and its state.
  struct end {
    zmq_end socket;             // a shared router's is elsewhere
    std::string address;        // that it is connected to, without a lane; empty: it is the router
    std::vector<int> channels;  // by lane, -1: none; empty: it is the router
    std::size_t open_channels = 0;
    std::uint64_t outstanding = 0;  // requests without a reply; without any there is nothing to receive
    bool may_have_input = true;     // false: it was found empty and its descriptor will signal
    steady_clock::time_point reopened{};
  };
  struct channel {
    std::size_t at = 0;  // index in ends_
    std::uint16_t lane = 0;
    bool is_open = false;
    std::uint64_t outstanding = 0;  // its part of the socket's
  };

  /// The connection of a new channel: one to the same address that no channel has left and on which this lane is free,
  /// or a new one.
  std::size_t end_for(const lane_address& to) {
    const std::string address(to.base);
    if (to.is_shared) {
      const auto j = joinable_.find(address);
      if (j != joinable_.end()) {
        const auto& lanes = ends_[j->second].channels;
        if (lanes.size() <= to.lane || lanes[to.lane] < 0) return j->second;
      }
    }
    end e;
    e.socket = connected_to(address);
    e.address = address;
    // A connection that is renewed takes the place of the one before.
    const auto closed = std::ranges::find_if(ends_, [this](const end& other) { return is_closed(other); });
    const auto index = static_cast<std::size_t>(closed - ends_.begin());
    if (closed == ends_.end()) ends_.emplace_back();
    if (shared_ != nullptr) shared_->add(lane_, e.socket.descriptor(), static_cast<std::uint32_t>(index));
    ends_[index] = std::move(e);
    if (to.is_shared) joinable_[address] = index;
    return index;
  }

  zmq_end connected_to(const std::string& address) {
    zmq_end socket(*context_, zmq::socket_type::dealer, limits_);
    socket.connect(*context_, address);
    return socket;
  }

  static int send_over(end& e, std::uint16_t lane, const outgoing& message) {
    zmq_message_parts parts(lane, message);
    return e.socket.send(parts);
  }

  /// ZeroMQ reconnects when a connection breaks, but not after one on which something arrived that is not ZMTP, too
  /// large, or not from a member of the job. That may have been changed on the way, or come from a stranger that has
  /// the port of a process that died, so it is no more than another way to break: what was in flight is lost, and the
  /// channels of the connection get a new one. Returns: whether they have one; if not, the message is lost as well.
  bool reopen(std::size_t index) {
    end& e = ends_[index];
    const auto now = steady_clock::now();
    if (now - e.reopened < reopen_interval) return false;
    e.reopened = now;
    try {
      auto fresh = connected_to(e.address);
      if (shared_ != nullptr) {
        shared_->add(lane_, fresh.descriptor(), static_cast<std::uint32_t>(index));
        shared_->remove(lane_, e.socket.descriptor());
      }
      e.socket = std::move(fresh);
    } catch (const network_error&) {  // no descriptor is left
      return false;
    }
    context_->tell_dropped("what arrived from " + e.address + " broke the protocol, had more than " +
                           std::to_string(limits_.max_message_bytes) +
                           " bytes, or was changed on the way; another one is opened");
    return true;
  }

  void close(end& e) {
    if (shared_ != nullptr && e.socket.is_open()) shared_->remove(lane_, e.socket.descriptor());
    e.socket.close();
    e.may_have_input = false;
  }

  channel& at(int number) {
    if (number < 0 || static_cast<std::size_t>(number) >= channels_.size()) {
      throw network_error("there is no channel " + std::to_string(number), false);
    }
    return channels_[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] bool is_closed(const end& e) const noexcept { return !is_router(e) && !e.socket.is_open(); }
  [[nodiscard]] bool is_router(const end& e) const noexcept {
    return router_ >= 0 && &e == &ends_[static_cast<std::size_t>(router_)];
  }

  /// The one socket that can receive anything, if there is just one: then ZeroMQ can do the waiting, which saves two
  /// system calls per message compared with polling first and waiting afterwards.
  end* only_source() {
    end* found = nullptr;
    for (end& e : ends_) {
      if (!is_source(e)) continue;
      if (found != nullptr) return nullptr;
      found = &e;
    }
    return found;
  }
  [[nodiscard]] bool is_source(const end& e) const noexcept {
    return e.outstanding != 0 ? e.socket.is_open() : is_router(e);
  }

  /// The next message and its source; the frames of the previous batch are released.
  end* receive_first(incoming& out, milliseconds timeout) {
    // Frame 0 is about to be received into, which releases it.
    for (std::size_t i = 1; i < held_; ++i) frames_[i].rebuild();
    held_ = 0;
    if (!closed_channels_.empty()) [[unlikely]] {
      free_channels_.insert(free_channels_.end(), closed_channels_.begin(), closed_channels_.end());
      closed_channels_.clear();
    }
    timeout = std::min(timeout, longest_wait);
    if (shared_ != nullptr) ends_.front().may_have_input = true;  // only other threads know
    else if (end* only = others_.empty() ? only_source() : nullptr; only != nullptr)
      return receive_from_one(*only, out, timeout) ? only : nullptr;
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
    bool looked = false;
    for (;;) {
      const std::size_t n = ends_.size();
      for (std::size_t i = 0; i < n; ++i) {
        end& e = ends_[next_ % n];
        const bool looks = is_source(e) && e.may_have_input;
        looked = looked || looks;
        if (looks && take_next(e, out)) {
          if (++in_a_row_ >= burst) next_after(n);
          return &e;
        }
        next_after(n);
      }
      if (timeout.count() <= 0) {
        // Sockets that an earlier call found empty were skipped, and may have input by now.
        if (std::exchange(looked, true) || !wait_for_any(timeout)) return nullptr;
        continue;
      }
      if (deadline == steady_clock::time_point::max()) {
        deadline = steady_clock::now() + timeout;
      } else {
        timeout = left(deadline);
        if (timeout.count() <= 0) return nullptr;
      }
      if (!wait_for_any(timeout)) return nullptr;
    }
  }
  bool wait_for_any(milliseconds timeout) { return shared_ != nullptr ? wait_shared(timeout) : wait(timeout); }
  void next_after(std::size_t n) {
    next_ = (next_ + 1) % n;
    in_a_row_ = 0;
  }

  /// Sleeps until one of the sources that were found empty is signalled; false when interrupted or timed out. Uses poll
  /// itself: poller_t needs libzmq's draft API, which Debian's library does not have, and zmq::poll makes two system
  /// calls for a wait that sleeps. Given sockets it also polls each of them: a round trip with 64 channels takes 7.0 us
  /// instead of 6.0.
  bool wait(milliseconds timeout) {
    polled_.clear();
    polled_ends_.clear();
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      if (!is_source(ends_[i])) continue;
      polled_.push_back({ends_[i].socket.descriptor(), POLLIN, 0});
      polled_ends_.push_back(i);
    }
    polled_.insert(polled_.end(), others_.begin(), others_.end());
    const int ready = ::poll(polled_.data(), polled_.size(), static_cast<int>(timeout.count()));
    if (ready <= 0) return false;
    bool any = false;
    for (std::size_t i = 0; i < polled_ends_.size(); ++i) {
      if (polled_[i].revents == 0) continue;
      any = true;
      ends_[polled_ends_[i]].may_have_input = true;
    }
    return any;
  }

  bool wait_shared(milliseconds timeout) {
    signalled_.clear();
    const bool in_vain = !shared_->wait(lane_, timeout, signalled_);
    for (const auto i : signalled_) ends_[i].may_have_input = true;
    ends_.front().may_have_input = true;
    return !in_vain;
  }

  static milliseconds left(steady_clock::time_point deadline) {
    const auto rest = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    return std::max(rest, milliseconds(0));
  }

  /// Receives one message from one socket, into the next free frame.
  outcome take(end& e, incoming& out, milliseconds timeout) {
    out.tail = shared_buffer{};
    const bool request = is_router(e);
    if (request && shared_ != nullptr) return take_shared(e, out);
    const auto o = e.socket.receive(request, frames_[held_], envelope_, static_cast<int>(timeout.count()));
    if (o == outcome::nothing) e.may_have_input = false;
    else e.may_have_input = true;
    if (o != outcome::message) {
      if (std::exchange(envelope_.is_too_large, false)) [[unlikely]]
        context_->tell_too_large(limits_);
      return o;
    }
    out.channel = -1;
    if (request) {
      if (envelope_.lane != 0) return outcome::dropped;
      out.from.size = static_cast<std::uint8_t>(envelope_.id.size());
      std::memcpy(out.from.id.data(), envelope_.id.data(), out.from.size);
      out.unread_bytes = unread_.unread(out.from);
    } else {
      const auto lane = envelope_.lane;
      out.channel = lane < e.channels.size() ? e.channels[lane] : -1;
      if (out.channel < 0) return outcome::dropped;  // to a disconnected channel
      channel& c = at(out.channel);
      if (c.outstanding != 0) {
        --c.outstanding;
        --e.outstanding;
      }
    }
    out.tail = std::move(envelope_.tail);
    out.frame = {frames_[held_].data<std::byte>(), frames_[held_].size()};
    ++held_;
    return outcome::message;
  }

  /// The same from a shared router.
  outcome take_shared(end& e, incoming& out) {
    if (next_request_ == requests_.size()) {
      if (requests_.capacity() > most_kept_requests) std::vector<zmq_shared_router::request>().swap(requests_);
      requests_.clear();
      next_request_ = 0;
      if (!shared_->take(lane_, requests_)) {
        e.may_have_input = false;
        return outcome::nothing;
      }
    }
    auto& r = requests_[next_request_++];
    frames_[held_] = std::move(r.frame);
    out.channel = -1;
    out.from = r.from;
    out.unread_bytes = unread_.unread(out.from);
    out.tail = std::move(r.tail);
    out.frame = {frames_[held_].data<std::byte>(), frames_[held_].size()};
    ++held_;
    return outcome::message;
  }

  std::shared_ptr<zmq_context> context_;
  transport_limits limits_;
  std::shared_ptr<zmq_shared_router> shared_;
  std::uint16_t lane_ = 0;
  std::vector<zmq_shared_router::request> requests_;  // taken from it
  std::size_t next_request_ = 0;                      // the first of them that was not delivered
  std::vector<zmq_shared_router::other> signalled_;
  std::vector<end> ends_;  // the router and the connections, in creation order
  int router_ = -1;        // its index in ends_
  std::vector<channel> channels_;
  std::vector<int> closed_channels_;  // since the last call: messages of its batch have their numbers
  std::vector<int> free_channels_;    // before
  std::unordered_map<std::string, std::size_t> joinable_;  // connections that new channels may share, by address
  std::size_t next_ = 0;                                   // with several sources: the one to poll first
  int in_a_row_ = 0;
  std::vector<pollfd> polled_;
  std::span<const pollfd> others_;  // of receive_beside, while it runs
  std::vector<std::size_t> polled_ends_;
  unsigned doubt_ = 0;       // how many calls in a row may return one request without polling for a second
  unsigned doubt_left_ = 0;  // remaining ones
  send_queue_meter unread_;  // of the router's peers
  zmq_end::envelope envelope_;
  std::array<zmq::message_t, largest_batch> frames_;  // of the messages that the caller currently holds
  std::size_t held_ = 0;                              // how many of them
};

zmq_transport::zmq_transport(transport_limits limits, std::function<void(std::string_view)> dropped,
                             const std::optional<curve_secret>& secret)
    : context_(std::make_shared<zmq_context>(limits, std::move(dropped), secret)), limits_(limits) {}
zmq_transport::~zmq_transport() = default;

std::unique_ptr<port> zmq_transport::open() { return std::make_unique<zmq_port>(context_, limits_); }

port_group zmq_transport::open_group(const std::string& address, std::size_t ports) {
  if (ports == 1) return transport::open_group(address, ports);
  check_zmq_address(address);
  if (ports == 0 || ports > most_lanes) throw network_error("a group must have 1 to 1024 ports", false);
  const auto shared = std::make_shared<zmq_shared_router>(context_, address, ports, limits_);
  port_group group;
  for (std::size_t i = 0; i < ports; ++i) {
    group.addresses.push_back(lane_address::of(shared->address(), i));
    group.ports.push_back(std::make_unique<zmq_port>(context_, limits_, shared, static_cast<std::uint16_t>(i)));
  }
  return group;
}

}  // namespace paracel::net
