// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/direct_links.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace paracel {

namespace {

using net::owned_fd;

constexpr std::chrono::seconds hello_limit{2};
// A worker that computes answers no offer.
constexpr std::chrono::seconds offer_limit{60};
constexpr std::size_t most_accepted = 64;
// With more connections it costs less to ask which of them have input than to try each.
constexpr std::size_t most_tried = 3;

struct resolved {
  addrinfo* all = nullptr;
  resolved(const std::string& host, const std::string& port, int flags) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &all) != 0) all = nullptr;
  }
  resolved(const resolved&) = delete;
  resolved& operator=(const resolved&) = delete;
  ~resolved() {
    if (all != nullptr) ::freeaddrinfo(all);
  }
};

owned_fd tcp_socket(const addrinfo& of) {
  return owned_fd(::socket(of.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

/// Returns: whether this worker listens.
bool direct_links::listen() {
  if (listener_) return true;
  const resolved here(options_.host, "0", AI_PASSIVE);
  if (here.all == nullptr) return false;
  auto fd = tcp_socket(*here.all);
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  auto* const address = reinterpret_cast<sockaddr*>(&name);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (fd.get() < 0 || ::bind(fd.get(), here.all->ai_addr, here.all->ai_addrlen) != 0 ||
      ::listen(fd.get(), most_accepted) != 0 || ::getsockname(fd.get(), address, &size) != 0 ||
      ::getnameinfo(address, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return false;
  host_ = host;
  port_ = static_cast<std::uint16_t>(std::strtoul(port, nullptr, 10));
  listener_ = std::move(fd);
  return true;
}

byte_vector direct_links::offer(std::uint32_t to, std::uint32_t turn) {
  if (offers_.contains(to) || links_.contains(to)) return {};
  if (const auto o = over_.find(to); o != over_.end() && o->second >= turn) return {};
  over_[to] = turn;
  offered o{.turn = turn, .until = clock::now() + offer_limit};
  if (::getrandom(o.key.data(), o.key.size(), 0) != static_cast<ssize_t>(o.key.size()) || !listen()) return {};
  offers_.emplace(to, o);
  return link_offer{.port = port_, .key = o.key, .host = host_}.bytes();
}

std::shared_ptr<net::direct_link> direct_links::linked(owned_fd fd, const net::direct_link::boxes& b) const {
  return std::make_shared<net::direct_link>(std::move(fd), options_.encrypts ? std::optional(b) : std::nullopt,
                                            options_.most_message_bytes);
}

void direct_links::take_offer(std::uint32_t from, std::uint64_t client, std::uint32_t turn,
                              std::span<const std::byte> offer, std::uint32_t own_turn) {
  const auto o = link_offer::read(offer);
  if (!o || links_.contains(from)) return;
  // Of two offers that have crossed, that of the lower rank counts.
  if (offers_.contains(from) && options_.rank < from) return;
  offers_.erase(from);
  over_[from] = std::max(over_[from], turn);
  const resolved there(o->host, std::to_string(o->port), AI_NUMERICHOST);
  if (there.all == nullptr) return;
  auto fd = tcp_socket(*there.all);
  if (fd.get() < 0) return;
  if (::connect(fd.get(), there.all->ai_addr, there.all->ai_addrlen) != 0 && errno != EINPROGRESS) return;
  net::direct_link::boxes b{.out = {o->key, false}, .in = {o->key, true}};
  auto hello = link_hello{.rank = options_.rank, .client = options_.client, .turn = own_turn}.bytes(
      o->key, options_.encrypts ? &b.out : nullptr);
  auto link = linked(std::move(fd), b);
  link->begin(std::move(hello));
  if (link->has_queued()) courier_.take(link);  // this worker may compute for longer than the hello is waited for
  links_[from] = {.link = std::move(link), .client = client, .turn = turn};
}

void direct_links::forget_before(std::uint32_t rank, std::uint32_t turn) {
  if (const auto o = offers_.find(rank); o != offers_.end() && o->second.turn < turn) offers_.erase(o);
  if (const auto p = links_.find(rank); p != links_.end() && p->second.turn < turn) p->second.link->close();
}

void direct_links::attend_listener() {
  if (!listener_) return;
  const auto now = clock::now();
  for (std::size_t i = 0; i < most_accepted && !offers_.empty(); ++i) {
    owned_fd fd(::accept4(listener_->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() < 0) {
      // Without a descriptor for it, a connection that waits would be looked at again and again.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) offers_.clear();
      break;
    }
    if (accepted_.size() >= most_accepted) accepted_.erase(accepted_.begin());
    accepted_.push_back({.fd = std::move(fd), .until = now + hello_limit});
  }
  std::erase_if(accepted_, [&](accepted& a) { return admit(a) || a.until < now; });
  // Not before: a worker that computed for as long may have taken an offer in time.
  std::erase_if(offers_, [&](const auto& o) { return o.second.until < now; });
  if (!offers_.empty()) return;
  accepted_.clear();
  listener_.reset();
}

/// Returns: whether the connection is a link now, or of no use.
bool direct_links::admit(accepted& a) {
  const auto wanted = link_hello::size(options_.encrypts);
  const auto n = ::recv(a.fd.get(), a.hello.data() + a.filled, wanted - a.filled, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  if (n <= 0) return true;
  a.filled += static_cast<std::size_t>(n);
  if (a.filled != wanted) return false;
  const auto said = std::span<const std::byte>(a.hello).first(wanted);
  const auto o = offers_.find(link_hello::claimed_rank(said));
  if (o == offers_.end()) return true;
  const auto& key = o->second.key;
  net::direct_link::boxes b{.out = {key, true}, .in = {key, false}};
  const auto hello = link_hello::read(said, key, options_.encrypts ? &b.in : nullptr);
  if (!hello) return true;
  if (hello->turn >= o->second.turn)
    links_[hello->rank] = {.link = linked(std::move(a.fd), b), .client = hello->client, .turn = hello->turn};
  offers_.erase(o);
  return true;
}

direct_links::peer_link* direct_links::find(std::uint32_t rank) {
  const auto p = links_.find(rank);
  return p == links_.end() || p->second.link->is_broken() || !p->second.link->has_begun() ? nullptr : &p->second;
}

bool direct_links::progress(const taker& take) {
  attend_listener();
  const bool asks = links_.size() > most_tried;
  if (asks) {
    const auto all = descriptors();
    if (::poll(all.data(), all.size(), 0) <= 0) return false;
  }
  bool any = false;
  std::size_t i = 0;
  for (auto& one : links_) {
    if (asks && polled_[i++].revents == 0) continue;
    auto& link = *one.second.link;
    link.push();
    any = link.receive([&](const net::link_record& r, byte_vector body) {
      take(one.first, one.second, r, std::move(body));
    }) || any;
  }
  return any;
}

std::optional<std::uint32_t> direct_links::take_broken() {
  for (auto p = links_.begin(); p != links_.end(); ++p) {
    if (!p->second.link->has_ended()) continue;
    const auto rank = p->first;
    p->second.link->close();
    links_.erase(p);
    return rank;
  }
  return std::nullopt;
}

void direct_links::close(std::uint32_t rank) {
  offers_.erase(rank);
  if (const auto p = links_.find(rank); p != links_.end()) p->second.link->close();
}

std::span<pollfd> direct_links::descriptors() {
  polled_.clear();
  for (const auto& [rank, p] : links_)
    polled_.push_back({p.link->descriptor(), static_cast<short>(p.link->has_queued() ? POLLIN | POLLOUT : POLLIN), 0});
  if (listener_) polled_.push_back({listener_->get(), POLLIN, 0});
  for (const auto& a : accepted_) polled_.push_back({a.fd.get(), POLLIN, 0});
  return polled_;
}

void direct_links::for_each(const std::function<void(std::uint32_t, peer_link&)>& call) {
  for (auto& [rank, p] : links_) call(rank, p);
}

}  // namespace paracel
