// SPDX-License-Identifier: BSD-3-Clause
#include "net/unix_transport.hpp"

#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/check.hpp"
#include "net/lane_address.hpp"
#include "net/message_limit.hpp"
#include "net/unix_link.hpp"

namespace paracel::net {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class unix_transport::hub {
 public:
  hub(transport_limits limits, std::function<void(std::string_view)> dropped)
      : limits_(limits), dropped_(std::move(dropped)) {}
  [[nodiscard]] const transport_limits& limits() const noexcept { return limits_; }
  [[nodiscard]] net::courier& sender() noexcept { return courier_; }
  void tell_dropped(std::string_view why) const {
    if (dropped_) dropped_(why);
  }

 private:
  const transport_limits limits_;
  const std::function<void(std::string_view)> dropped_;
  courier courier_;
};

namespace {

// Most messages taken from one connection before the others get their turn.
constexpr std::size_t longest_turn = 64;
// Connections read, or accepted, by one call.
constexpr std::size_t most_events = 64;
constexpr int backlog = 4096;
constexpr milliseconds longest_nap = std::chrono::hours(24);
// Unsent messages get this long when a port closes, as ZeroMQ's.
constexpr milliseconds linger(200);
// How long a message may be kept back, as far as the next one shows.
constexpr std::chrono::microseconds longest_hold(100);
// After an accept for which no descriptor was left.
constexpr milliseconds accept_pause(100);
// Smaller queues are no sign that a peer does not read.
constexpr std::uint64_t noticed_bytes = std::uint64_t{1} << 20;

[[noreturn]] void fail_by_system(const std::string& what) {
  throw network_error(what + ": " + std::strerror(errno), false);
}

}  // namespace

class unix_transport::unix_port final : public port {
 public:
  explicit unix_port(std::shared_ptr<hub> h) : hub_(std::move(h)), events_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (events_.get() < 0) fail_by_system("cannot open an epoll descriptor");
  }
  ~unix_port() override {
    const auto until = steady_clock::now() + linger;
    for (auto& l : links_) {
      if (l != nullptr) l->close(until);
    }
    for (const auto& l : listeners_) ::unlink(l.path.c_str());
  }

  std::string bind(const std::string& address) override {
    listener l{.socket = owned_fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
               .path = unix_path(address)};
    if (l.socket.get() < 0) fail_by_system("cannot open a socket");
    sockaddr_un here{};
    here.sun_family = AF_UNIX;
    std::memcpy(here.sun_path, l.path.data(), l.path.size());
    // A process that was killed leaves its socket behind.
    struct stat left {};
    if (::stat(l.path.c_str(), &left) == 0 && S_ISSOCK(left.st_mode)) ::unlink(l.path.c_str());
    if (::bind(l.socket.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here) != 0 ||
        ::listen(l.socket.get(), backlog) != 0) {
      fail_by_system("cannot bind " + address);
    }
    if (!watch(l.socket.get(), listener_mark | listeners_.size())) fail_by_system("cannot bind " + address);
    listeners_.push_back(std::move(l));
    return address;
  }

  int connect(const std::string& address) override {
    auto path = unix_path(address);
    const bool reuses = !free_channels_.empty();
    const int number = reuses ? free_channels_.back() : static_cast<int>(channels_.size());
    channels_.reserve(channels_.size() + 1);
    closed_channels_.reserve(channels_.capacity());
    free_channels_.reserve(channels_.capacity());
    channel c{.path = std::move(path), .link = nullptr, .is_open = true};
    c.link = open_link(number, c.path);
    if (reuses) {
      free_channels_.pop_back();
      at(number) = std::move(c);
    } else {
      channels_.push_back(std::move(c));
    }
    return number;
  }

  void disconnect(int number) override {
    channel& c = at(number);
    if (!c.is_open) return;
    c.is_open = false;
    if (c.link != nullptr) retire(*c.link, true);
    closed_channels_.push_back(number);
  }

  void send(int number, const outgoing& message) override {
    check_message_size(message, hub_->limits());
    channel& c = at(number);
    if (!c.is_open) throw network_error("channel " + std::to_string(number) + " is disconnected", false);
    if (c.link == nullptr) c.link = open_link(number, c.path);
    else if (!c.link->is_connected()) c.link->try_connect();
    if (!send_over(*c.link, message)) {
      // The connection has broken; what was in flight is lost.
      c.link = open_link(number, c.path);
      if (!send_over(*c.link, message)) return;
    }
    if (c.link->outstanding++ == 0) ++asked_;
  }

  void reply(const peer& to, const outgoing& message) override {
    check_message_size(message, hub_->limits());
    if (listeners_.empty()) throw network_error("cannot send a reply from a port that is not bound", false);
    std::uint64_t number = 0;
    if (to.size != sizeof number) return;
    load_fields(to.id.data(), number);
    if (unix_link* link = find(number); link != nullptr && link->channel < 0) send_over(*link, message);
  }

  void hold() noexcept override {
    if (held_++ == 0) held_since_ = {};
  }
  void flush() noexcept override {
    if (--held_ == 0) send_kept();
  }

  void accept_lent_tails() noexcept override { lends_tails_ = true; }

  bool receive(incoming& out, milliseconds timeout) override { return receive_batch({&out, 1}, timeout) != 0; }

  std::size_t receive_batch(std::span<incoming> out, milliseconds timeout) override {
    memory_.clear();
    retired_.clear();
    if (!closed_channels_.empty()) [[unlikely]] {
      free_channels_.insert(free_channels_.end(), closed_channels_.begin(), closed_channels_.end());
      closed_channels_.clear();
    }
    if (out.empty()) return 0;
    timeout = std::clamp(timeout, milliseconds(0), longest_nap);
    auto deadline = steady_clock::time_point::max();
    for (bool first = true;; first = false) {
      std::size_t n = 0;
      while (n < out.size() && !ready_.empty()) n += deliver(out.subspan(n));
      if (n != 0) return n;
      send_kept();
      if (!first && timeout.count() > 0) {  // rare: there was no whole message
        const auto now = steady_clock::now();
        if (deadline == steady_clock::time_point::max()) deadline = now + timeout;
        timeout = std::max(std::chrono::ceil<milliseconds>(deadline - now), milliseconds(0));
      }
      if (!wait(timeout)) return 0;
    }
  }

 private:
  static constexpr std::uint64_t listener_mark = std::uint64_t{1} << 63U;
  struct listener {
    owned_fd socket;
    std::string path;
  };
  struct channel {
    std::string path;
    std::shared_ptr<unix_link> link;  // null: it has broken
    bool is_open = false;
  };

  bool watch(int fd, std::uint64_t number) noexcept {
    epoll_event e{};
    e.events = (number & listener_mark) != 0 ? EPOLLIN : EPOLLIN | EPOLLET;
    e.data.u64 = number;
    return ::epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &e) == 0;
  }

  channel& at(int number) {
    if (number < 0 || static_cast<std::size_t>(number) >= channels_.size()) {
      throw network_error("there is no channel " + std::to_string(number), false);
    }
    return channels_[static_cast<std::size_t>(number)];
  }

  /// A link's number is its place, and how many have been opened: places are used again.
  std::uint64_t next_number() {
    if (free_places_.empty()) {
      free_places_.push_back(static_cast<std::uint32_t>(links_.size()));
      links_.emplace_back();
    }
    return (++opened_ & 0x7fffffffU) << 32U | free_places_.back();
  }
  void place(const std::shared_ptr<unix_link>& link) {
    links_[link->number() & 0xffffffffU] = link;
    free_places_.pop_back();
  }
  unix_link* find(std::uint64_t number) noexcept {
    const auto index = number & 0xffffffffU;
    if (index >= links_.size()) return nullptr;
    auto* link = links_[index].get();
    return link != nullptr && link->number() == number ? link : nullptr;
  }

  std::shared_ptr<unix_link> open_link(int number, const std::string& path) {
    auto link = std::make_shared<unix_link>(hub_->limits(), path, events_.get(), next_number());
    link->channel = number;
    place(link);
    link->try_connect();
    return link;
  }

  /// The link is of no use any more. Its memory stays until the next call: messages of this batch are in it.
  void retire(unix_link& link, bool lingers = false) {
    auto& here = links_[link.number() & 0xffffffffU];
    link.close(lingers ? steady_clock::now() + linger : steady_clock::time_point{});
    if (link.channel >= 0) {
      if (std::exchange(link.outstanding, 0) != 0) --asked_;
      at(link.channel).link = nullptr;
    }
    free_places_.push_back(static_cast<std::uint32_t>(link.number() & 0xffffffffU));
    retired_.push_back(std::move(here));
    here = nullptr;
  }

  /// Returns: false: the connection has broken.
  bool send_over(unix_link& link, const outgoing& message) {
    auto outcome = unix_link::sent::all;
    if (held_ != 0) {
      const auto now = steady_clock::now();
      if (held_since_ == steady_clock::time_point{}) held_since_ = now;
      const bool had = link.keeps();
      if (now - held_since_ < longest_hold && link.keep(message)) {
        if (!had) kept_.push_back(link.number());
        return true;
      }
    }
    outcome = link.send(message);
    return settle(link, outcome);
  }
  bool settle(unix_link& link, unix_link::sent outcome) {
    if (outcome == unix_link::sent::all) [[likely]]
      return true;
    if (outcome == unix_link::sent::rest_queued) {
      hub_->sender().take(links_[link.number() & 0xffffffffU]);
      return true;
    }
    retire(link);
    return false;
  }
  void send_kept() noexcept {
    held_since_ = {};
    for (const auto number : kept_) {
      auto* link = find(number);
      if (link == nullptr || !link->keeps()) continue;
      try {
        settle(*link, link->send_kept());
      } catch (const std::exception&) {  // nothing is left to queue it with: it is lost with its connection
        retire(*link);
      }
    }
    kept_.clear();
  }

  /// Messages of the connection whose turn it is.
  std::size_t deliver(std::span<incoming> out) {
    const auto number = ready_.front();
    const std::size_t most = std::min(out.size(), longest_turn - turn_);
    std::size_t n = 0;
    unix_link* link = find(number);
    while (link != nullptr && n < most) {
      const auto o = take(*link, out[n]);
      if (o == outcome::nothing) break;
      if (o == outcome::message) ++n;
    }
    turn_ += n;
    link = find(number);
    const bool has_more = link != nullptr && n != 0 && link->inbox.has_bytes();
    if (has_more && turn_ < longest_turn) return n;
    turn_ = 0;
    if (has_more) ready_.push_back(number);
    ready_.erase(ready_.begin());
    return n;
  }

  enum class outcome { message, nothing, dropped };
  outcome take(unix_link& link, incoming& out) {
    zmtp_inbox::message m;
    link.inbox.lends_tails = lends_tails_ && link.channel >= 0;
    switch (link.inbox.next(m)) {
      case zmtp_inbox::outcome::incomplete:
        return outcome::nothing;
      case zmtp_inbox::outcome::broken:
        hub_->tell_dropped("what arrived over a connection broke the protocol, or had more than " +
                           std::to_string(hub_->limits().max_message_bytes) + " bytes");
        retire(link);
        return outcome::nothing;
      case zmtp_inbox::outcome::ping:
        if (settle(link, link.send_bytes(link.inbox.pong()))) return outcome::dropped;
        return outcome::nothing;
      case zmtp_inbox::outcome::wants_ring:
        link.make_ring();
        return outcome::dropped;
      case zmtp_inbox::outcome::has_ring:
        link.take_ring();
        return outcome::dropped;
      case zmtp_inbox::outcome::message:
        break;
    }
    out.channel = link.channel;
    out.frame = m.frame;
    out.tail = std::move(m.tail);
    out.tail_is_lent = m.tail_is_lent;
    if (m.memory) memory_.push_back(std::move(m.memory));
    out.unread_bytes = 0;
    if (link.channel < 0) {
      out.from.size = sizeof(std::uint64_t);
      const std::uint64_t number = link.number();
      store_fields(out.from.id.data(), number);
      if (const auto unread = link.unread(); unread >= noticed_bytes) out.unread_bytes = unread;
    } else {
      out.from = {};
      if (link.outstanding != 0 && --link.outstanding == 0) --asked_;
    }
    return outcome::message;
  }

  /// The one connection that can bring anything: then a receive can do the waiting.
  unix_link* only_source() {
    if (!listeners_.empty() || asked_ != 1) return nullptr;
    for (const auto& c : channels_) {
      if (c.link != nullptr && c.link->outstanding != 0) return c.link->is_connected() ? c.link.get() : nullptr;
    }
    return nullptr;
  }

  /// Reads what has arrived. Returns: false: nothing has.
  bool wait(milliseconds timeout) {
    if (timeout.count() != 0 && full_.empty()) {
      if (auto* only = only_source(); only != nullptr) {
        set_timeout(*only, timeout);
        return read(*only, 0);
      }
    }
    if (paused_until_ != steady_clock::time_point{}) resume_accepting();
    full_now_.swap(full_);
    if (!full_now_.empty()) timeout = milliseconds(0);
    std::array<epoll_event, most_events> found;
    const int n = ::epoll_wait(events_.get(), found.data(), found.size(), static_cast<int>(timeout.count()));
    PARACEL_CHECK(n >= 0 || errno == EINTR);  // as in checked() of unix_link.cpp
    const bool any = n > 0 || !full_now_.empty();
    for (const auto number : full_now_) {
      if (unix_link* link = find(number); link != nullptr) read(*link, MSG_DONTWAIT);
    }
    for (int i = 0; i < n; ++i) {
      const auto& event = found[static_cast<std::size_t>(i)];
      const auto number = event.data.u64;
      if ((number & listener_mark) != 0) {
        accept(listeners_[number & ~listener_mark]);
      } else if (unix_link* link = find(number); link != nullptr) {
        if (!std::ranges::count(full_now_, number)) read(*link, MSG_DONTWAIT);
        // Nothing signals the end again that is behind what was read now.
        if ((event.events & (EPOLLHUP | EPOLLERR)) != 0) mark_full(number);
      }
    }
    full_now_.clear();
    return any;
  }
  /// An event is reported once; there may be more than what has been read.
  void mark_full(std::uint64_t number) {
    if (find(number) != nullptr && !std::ranges::count(full_, number)) full_.push_back(number);
  }

  void set_timeout(const unix_link& link, milliseconds timeout) {
    if (timed_ == link.number() && timeout_ == timeout) return;
    timed_ = link.number();
    timeout_ = timeout;
    const timeval t{.tv_sec = timeout.count() / 1000, .tv_usec = timeout.count() % 1000 * 1000};
    ::setsockopt(link.descriptor(), SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
  }

  bool read(unix_link& link, int flags) {
    const auto room = link.inbox.room();
    const auto n = link.receive(room, flags);
    if (n > 0) {
      link.inbox.filled(static_cast<std::size_t>(n));
      ready_.push_back(link.number());
      if (static_cast<std::size_t>(n) == room.size() || link.has_file()) mark_full(link.number());
      return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    retire(link);
    return true;
  }

  void accept(const listener& from) {
    for (std::size_t i = 0; i < most_events; ++i) {
      owned_fd fd(::accept4(from.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (fd.get() < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED) {
          // No descriptor is left: the connection waits until there is one.
          for (const auto& l : listeners_) ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, l.socket.get(), nullptr);
          paused_until_ = steady_clock::now() + accept_pause;
        }
        return;
      }
      ucred peer{};
      socklen_t size = sizeof peer;
      if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
          (peer.uid != ::geteuid() && peer.uid != 0)) {
        hub_->tell_dropped("it comes from user " + std::to_string(peer.uid));
        continue;
      }
      const auto number = next_number();
      const int raw = fd.get();
      const auto link = std::make_shared<unix_link>(hub_->limits(), std::move(fd), number);
      if (watch(raw, number)) place(link);
    }
  }

  void resume_accepting() {
    if (steady_clock::now() < paused_until_) return;
    paused_until_ = {};
    for (std::size_t i = 0; i < listeners_.size(); ++i) watch(listeners_[i].socket.get(), listener_mark | i);
  }

  std::shared_ptr<hub> hub_;
  owned_fd events_;
  std::vector<listener> listeners_;
  steady_clock::time_point paused_until_{};
  std::vector<std::shared_ptr<unix_link>> links_;
  std::vector<std::uint32_t> free_places_;
  std::uint64_t opened_ = 0;
  std::vector<channel> channels_;
  std::vector<int> closed_channels_;  // since the last call: messages of its batch have their numbers
  std::vector<int> free_channels_;    // before
  std::size_t asked_ = 0;             // connections with outstanding requests
  std::vector<std::uint64_t> ready_;  // links that were read, in the order of their turns
  std::vector<std::uint64_t> full_;   // links with more to read
  std::vector<std::uint64_t> full_now_;
  std::size_t turn_ = 0;                             // messages delivered in the current turn
  std::vector<shared_buffer> memory_;                // of frames that the caller holds
  std::vector<std::shared_ptr<unix_link>> retired_;  // since the last call
  bool lends_tails_ = false;
  unsigned held_ = 0;
  steady_clock::time_point held_since_{};
  std::vector<std::uint64_t> kept_;  // links that keep messages back
  std::uint64_t timed_ = 0;          // the link whose timeout was set last, and to what
  milliseconds timeout_{0};
};

unix_transport::unix_transport(transport_limits limits, std::function<void(std::string_view)> dropped)
    : hub_(std::make_shared<hub>(limits, std::move(dropped))) {}
unix_transport::~unix_transport() = default;

std::unique_ptr<port> unix_transport::open() { return std::make_unique<unix_port>(hub_); }

port_group unix_transport::open_group(const std::string& address, std::size_t ports) {
  if (ports != 1) throw network_error("--shared-connections needs --transport zmq", false);
  return transport::open_group(address, ports);
}

}  // namespace paracel::net
