// SPDX-License-Identifier: BSD-3-Clause
#include "net/connection_guard.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <unordered_map>

#include <paracel/error.hpp>

#include "net/library_calls.hpp"

namespace paracel::net {

namespace {

template <class Function>
Function* original(const char* name) noexcept {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// The C library's functions, or those of a sanitizer in front of them.
struct c_library {
  decltype(::accept)* accept = original<decltype(::accept)>("accept");
  decltype(::accept4)* accept4 = original<decltype(::accept4)>("accept4");
  decltype(::connect)* connect = original<decltype(::connect)>("connect");
  decltype(::recv)* recv = original<decltype(::recv)>("recv");
  decltype(::close)* close = original<decltype(::close)>("close");
};
const c_library& real() {
  static const c_library all;
  return all;
}

/// libsodium's, as libzmq finds them: nothing else of the process needs to have it.
struct sodium_library {
  using open_function = int(unsigned char*, const unsigned char*, unsigned long long, const unsigned char*,
                            const unsigned char*);
  using agree_function = int(unsigned char*, const unsigned char*, const unsigned char*);
  open_function* open = nullptr;
  agree_function* agree = nullptr;
};
sodium_library& sodium() {
  static sodium_library all;
  return all;
}
constexpr const char* open_name = "crypto_box_open_easy_afternm";
constexpr const char* agree_name = "crypto_box_beforenm";
constexpr std::size_t box_overhead = 16;

// The descriptor from which this thread has received last.
thread_local int received_from = -1;

/// As ZeroMQ writes an address; empty: of another kind.
std::string address_text(const sockaddr* name, socklen_t size) {
  if (name->sa_family == AF_UNIX) {
    const auto* const local = reinterpret_cast<const sockaddr_un*>(name);
    std::string path(local->sun_path, size - offsetof(sockaddr_un, sun_path));
    if (!path.empty() && path.front() == '\0') path.front() = '@';
    return "ipc://" + path.substr(0, path.find('\0'));
  }
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(name, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) return {};
  const bool six = name->sa_family == AF_INET6;
  return std::string("tcp://") + (six ? "[" : "") + host + (six ? "]:" : ":") + port;
}

/// Of a listening socket.
std::string address_of(int listener) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&name), &size) != 0) return {};
  return address_text(reinterpret_cast<const sockaddr*>(&name), size);
}

/// By which port a name of a host is known: ZeroMQ resolves it each time it connects.
std::string any_host_of(const std::string& address) {
  return "tcp://*" + address.substr(std::min(address.rfind(':'), address.size()));
}

/// The address to which a socket is to be connected, as `address_text` has it then; one with a name is `any_host_of`.
std::string target_of(const std::string& address) {
  if (!address.starts_with("tcp://")) return address;
  const auto colon = std::min(address.rfind(':'), address.size());
  auto host = address.substr(6, colon - 6);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const auto port = address.substr(std::min(colon + 1, address.size()));
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return any_host_of(address);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  return address_text(found->ai_addr, found->ai_addrlen);
}

/// By the credentials that the system keeps of a local connection's other end. Root may do what it likes anyway.
bool is_of_another_user(int fd) noexcept {
  ucred other{};
  socklen_t size = sizeof other;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) != 0) return false;
  return other.uid != 0 && other.uid != geteuid();
}

}  // namespace

/// The guarded connections of the process. Locking order: binding_, mutex_.
class guarded_connections {
 public:
  using guard_pointer = std::shared_ptr<connection_guard>;
  static guarded_connections& all() {
    static auto* const one = new guarded_connections;  // never freed: ZeroMQ's threads may outlive everything
    return *one;
  }

  std::string bind(const guard_pointer& guard, const std::function<std::string()>& bind, bool is_encrypted) {
    const std::lock_guard lock(binding_);
    auto address = bind();
    addresses_.insert_or_assign(address, bound{guard, is_encrypted});
    return address;
  }
  void expect(const guard_pointer& guard, std::string target, bool is_encrypted) {
    const std::lock_guard lock(binding_);
    targets_.emplace(std::move(target), bound{guard, is_encrypted});
  }
  void forget_target(const std::string& target, const connection_guard* of) noexcept {
    const std::lock_guard lock(binding_);
    const auto [begin, end] = targets_.equal_range(target);
    const auto at = std::find_if(begin, end, [&](const auto& one) { return one.second.guard.get() == of; });
    if (at != end) targets_.erase(at);
  }
  /// ZeroMQ is about to connect this socket. What it receives is limited as on a connection that is accepted.
  void opens(int fd, const sockaddr* address, socklen_t size) noexcept try {
    const auto text = address_text(address, size);
    if (text.empty()) return;
    std::optional<bound> to;
    {
      const std::lock_guard lock(binding_);
      auto at = targets_.find(text);
      if (at == targets_.end()) at = targets_.find(any_host_of(text));
      if (at == targets_.end()) return;  // of another user of libzmq
      to = at->second;
    }
    auto limits = to->guard->limits_.message;
    if (to->is_encrypted) limits.handshake_commands = 2;
    const std::lock_guard lock(mutex_);
    connection c{.watch = inbound_watch(limits), .guard = to->guard, .is_encrypted = to->is_encrypted};
    c.waits = false;
    c.to = text;
    watched_.insert_or_assign(fd, std::move(c));
    mark(fd, true);
  } catch (const std::bad_alloc&) {  // it is not limited
  }
  /// Unless it has been bound again by another guard.
  void forget(const std::string& address, const connection_guard* of) noexcept {
    const std::lock_guard lock(binding_);
    if (const auto at = addresses_.find(address); at != addresses_.end() && at->second.guard.get() == of)
      addresses_.erase(at);
  }

  /// `accept` accepts a connection. Returns: the result for ZeroMQ.
  template <class Accept>
  int accepted(int listener, const Accept& accept) noexcept {
    int fd = accept();
    int error = errno;
    bool is_full = fd < 0 && (error == EMFILE || error == ENFILE);
    if (fd < 0 && !is_full) return fd;
    const char* why = nullptr;
    guard_pointer guard;
    try {
      const auto address = address_of(listener);
      const std::lock_guard no_bind(binding_);
      const auto at = addresses_.find(address);
      if (at == addresses_.end()) {
        errno = error;
        return fd;
      }
      guard = at->second.guard;
      const bool is_encrypted = at->second.is_encrypted;
      const std::lock_guard lock(mutex_);
      if (is_full && !without_message_.empty()) {
        // It gets the reserved descriptor, which the oldest connection without a message gives back.
        drop_oldest();
        if (reserve_ >= 0) real().close(std::exchange(reserve_, -1));
        fd = accept();
        error = errno;
        is_full = fd < 0;
      }
      if (is_full) {
        if (turn_away(listener)) why = "no file descriptor is left for it (ulimit -n)";
      } else if (guard->connections_ >= guard->limits_.most_connections) {
        shutdown(fd, SHUT_RDWR);
        why = "too many connections are open";
      } else if (address.starts_with("ipc://") && is_of_another_user(fd)) {
        shutdown(fd, SHUT_RDWR);
        why = "it is of another user of this host";
      } else {
        why = add(fd, guard, is_encrypted);
        if (why == nullptr && reserve_ < 0) why = "no file descriptor is left (ulimit -n)";
      }
    } catch (const std::bad_alloc&) {
      if (fd >= 0) shutdown(fd, SHUT_RDWR);
    }
    say(guard, why);
    errno = is_full ? ECONNABORTED : error;  // which ZeroMQ accepts for any kind of socket
    return fd;
  }

  /// False: the connection is to be dropped.
  bool takes(int fd, const void* bytes, std::size_t count) noexcept {
    if (!is_marked(fd)) return true;
    const char* why = "its messages have too many parts or bytes, or are not ZMTP 3";
    guard_pointer guard;
    std::string opened_to;
    bool is_kept = false;
    {
      const std::lock_guard lock(mutex_);
      const auto at = watched_.find(fd);
      if (at == watched_.end()) return true;
      auto& c = at->second;
      if (c.is_dropped) return false;
      if (c.watch.take({static_cast<const std::byte*>(bytes), count})) {
        if (c.waits && c.watch.is_established()) without_message_.erase(std::exchange(c.waits, false) ? c.number : 0);
        guard = count_unfinished(fd, c);
        why = takes_too_much;
        is_kept = !c.is_dropped;
      } else {
        if (c.is_encrypted && !c.watch.is_established())
          why = "it does not begin as a member of the job does, encrypted";
        guard = c.guard;
        opened_to.swap(c.to);
        remove(at, !opened_to.empty());
      }
    }
    say(guard, why, opened_to);
    return is_kept;
  }
  /// The connection of which bytes have been received last, on this thread, has this key from now on.
  void gets_key(const void* key) noexcept {
    const std::lock_guard lock(mutex_);
    keys_.erase(key);  // of a connection that was closed
    const auto at = watched_.find(received_from);
    if (at == watched_.end() || !at->second.is_encrypted) return;
    try {
      keys_.erase(std::exchange(at->second.key, key));
      keys_.emplace(key, at->first);
    } catch (const std::bad_alloc&) {
      drop(*at);
    }
  }
  /// A part of a member's message, or a command, decrypted with that key. False: the connection is to be dropped.
  bool takes_part(const void* key, std::size_t bytes, bool has_more, bool is_command) noexcept {
    const char* why = "its messages have too many parts or bytes";
    guard_pointer guard;
    std::string opened_to;
    bool is_kept = false;
    {
      const std::lock_guard lock(mutex_);
      const auto of = keys_.find(key);
      if (of == keys_.end()) return true;
      const auto at = watched_.find(of->second);
      auto& c = at->second;
      if (c.is_dropped) return false;
      const auto& limits = c.guard->limits_.message;
      if (is_command ? !has_more && bytes <= limits.most_command_bytes : c.decrypted.take(bytes, limits)) {
        if (!is_command && !has_more) c.decrypted.end();
        guard = count_unfinished(at->first, c);
        why = takes_too_much;
        is_kept = !c.is_dropped;
      } else {
        guard = c.guard;
        try {
          opened_to = c.to;
        } catch (const std::bad_alloc&) {  // it is said without
        }
        drop(*at);
      }
    }
    say(guard, why, opened_to);
    return is_kept;
  }
  /// Closes a descriptor, which may be used again at once.
  int closes(int fd) noexcept {
    if (!is_marked(fd)) return real().close(fd);
    const std::lock_guard lock(mutex_);
    if (const auto at = watched_.find(fd); at != watched_.end()) remove(at);
    const int result = real().close(fd);
    if (reserve_ < 0) {
      const int error = errno;
      reserve_ = spare();
      errno = error;
    }
    return result;
  }

 private:
  struct connection {
    inbound_watch watch;
    guard_pointer guard;
    std::uint64_t number = 0;
    bool is_encrypted = false;
    bool waits = true;               // for its first message, or until it is admitted
    bool is_dropped = false;         // shut down: what it has sent before is not delivered
    const void* key = nullptr;       // of what it sends, once it is encrypted
    unfinished_message decrypted{};  // of which parts have been decrypted
    std::uint64_t counted = 0;       // of its bytes in unfinished_
    std::string to{};                // the address to which it was opened; empty: it was accepted
  };
  using table = std::unordered_map<int, connection>;
  struct bound {
    guard_pointer guard;
    bool is_encrypted = false;
  };
  static constexpr auto* takes_too_much =
      "the unfinished messages of all connections take too much memory, and its own is the largest";
  static constexpr std::size_t most_marks = 65'536;
  static constexpr std::size_t least_without_message = 8;  // however low the limit of descriptors is
  static constexpr std::size_t most_kept_free = 64;        // descriptors

  guarded_connections() : reserve_(spare()) {}

  /// Returns: why another one was dropped, or null.
  const char* add(int fd, const guard_pointer& guard, bool is_encrypted) {
    auto limits = guard->limits_.message;
    if (is_encrypted) limits.handshake_commands = 2;
    const auto number = ++last_;
    without_message_.emplace(number, fd);
    try {
      watched_.insert_or_assign(fd, connection{inbound_watch(limits), guard, number, is_encrypted});
    } catch (...) {
      without_message_.erase(number);
      throw;
    }
    ++guard->connections_;
    mark(fd, true);
    if (without_message_.size() > most_without_message(guard->limits_)) {
      drop_oldest();
      return "too many connections have not sent a message yet";
    }
    if (is_among_the_last(fd) && without_message_.size() > 1) {
      drop_oldest();
      return "few file descriptors are left (ulimit -n), and it has not sent a message yet";
    }
    return nullptr;
  }
  /// Shuts down the connection that has waited longest for its first message: ZeroMQ closes it.
  void drop_oldest() noexcept {
    const auto first = without_message_.begin();
    const int oldest = first->second;
    without_message_.erase(first);
    if (const auto at = watched_.find(oldest); at != watched_.end()) {
      at->second.waits = false;
      at->second.is_dropped = true;
    }
    shutdown(oldest, SHUT_RDWR);
  }
  void drop(table::value_type& one) noexcept {
    auto& [fd, c] = one;
    if (c.waits) without_message_.erase(std::exchange(c.waits, false) ? c.number : 0);
    unfinished_.forget(fd);
    c.counted = 0;
    c.is_dropped = true;
    shutdown(fd, SHUT_RDWR);
  }
  /// After bytes of this connection have arrived. Returns: the guard of a connection that was dropped, maybe this one.
  guard_pointer count_unfinished(int fd, connection& c) noexcept {
    const auto now = c.watch.unfinished_bytes() + c.decrypted.bytes();
    if (now == c.counted) return nullptr;
    auto largest = std::optional(fd);
    try {
      largest = unfinished_.set(fd, now, c.guard->limits_.most_unfinished_bytes);
      c.counted = now;
    } catch (const std::bad_alloc&) {
    }
    if (!largest) return nullptr;
    const auto at = watched_.find(*largest);
    drop(*at);
    return at->second.guard;
  }
  void remove(table::iterator at) noexcept { remove(at, !at->second.to.empty()); }
  void remove(table::iterator at, bool was_opened) noexcept {
    auto& c = at->second;
    if (c.waits) without_message_.erase(c.number);
    if (c.key != nullptr) keys_.erase(c.key);
    unfinished_.forget(at->first);
    if (!was_opened) --c.guard->connections_;
    mark(at->first, false);
    watched_.erase(at);
  }

  /// There is no descriptor for the pending connection: it gets the reserved one, and is closed.
  /// Returns: whether there was one.
  bool turn_away(int listener) noexcept {
    if (reserve_ >= 0) real().close(reserve_);
    const int fd = real().accept(listener, nullptr, nullptr);
    if (fd >= 0) real().close(fd);
    reserve_ = spare();
    return fd >= 0;
  }
  static std::size_t soft_limit() noexcept {
    rlimit limit{};
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
  }
  /// A quarter of the descriptors: the others are for members, and for files.
  static std::size_t most_without_message(const connection_guard::limits& l) noexcept {
    return std::min(l.most_without_message, std::max(least_without_message, soft_limit() / 4));
  }
  /// The system takes the lowest free descriptor, so that a high one means that few are left.
  static bool is_among_the_last(int fd) noexcept {
    const auto all = soft_limit();
    return static_cast<std::size_t>(fd) + std::min(most_kept_free, all / 8) >= all;
  }
  static int spare() noexcept { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

  static void say(const guard_pointer& guard, const char* why, const std::string& opened_to = {}) noexcept {
    try {
      if (guard == nullptr || why == nullptr || !guard->dropped_) return;
      if (opened_to.empty()) return guard->dropped_(why);
      guard->dropped_("what arrived from " + opened_to + " broke the protocol, had more than " +
                      std::to_string(guard->limits_.message.most_message_bytes) +
                      " bytes, or was changed on the way (" + why + "); another one is opened");
    } catch (const std::exception&) {  // this is ZeroMQ's thread
    }
  }

  // Other descriptors are of other users of libzmq, and ZeroMQ's own: one load tells.
  [[nodiscard]] bool is_marked(int fd) const noexcept {
    const auto i = static_cast<std::size_t>(fd);
    return i >= most_marks || (marks_[i / 64].load(std::memory_order_acquire) >> i % 64 & 1U) != 0;
  }
  void mark(int fd, bool is_watched) noexcept {
    const auto i = static_cast<std::size_t>(fd);
    if (i >= most_marks) return;
    const auto bit = std::uint64_t{1} << i % 64;
    if (is_watched) marks_[i / 64].fetch_or(bit, std::memory_order_acq_rel);
    else marks_[i / 64].fetch_and(~bit, std::memory_order_acq_rel);
  }

  std::mutex binding_;
  std::unordered_map<std::string, bound> addresses_;
  std::unordered_multimap<std::string, bound> targets_;  // of connections that are opened
  std::mutex mutex_;                                     // of the rest
  table watched_;                                        // by descriptor
  std::unordered_map<const void*, int> keys_;            // descriptors of encrypted connections
  unfinished_messages unfinished_;
  std::map<std::uint64_t, int> without_message_;  // descriptors, in the order in which they were accepted
  std::uint64_t last_ = 0;
  int reserve_;
  std::array<std::atomic<std::uint64_t>, most_marks / 64> marks_{};
};

namespace {

int guarded_accept(int fd, sockaddr* address, socklen_t* size) {
  return guarded_connections::all().accepted(fd, [=] { return real().accept(fd, address, size); });
}
int guarded_accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  return guarded_connections::all().accepted(fd, [=] { return real().accept4(fd, address, size, flags); });
}
int guarded_connect(int fd, const sockaddr* address, socklen_t size) {
  guarded_connections::all().opens(fd, address, size);
  return real().connect(fd, address, size);
}
ssize_t guarded_recv(int fd, void* buffer, std::size_t bytes, int flags) {
  const auto n = real().recv(fd, buffer, bytes, flags);
  if (n > 0) received_from = fd;
  if (n <= 0 || guarded_connections::all().takes(fd, buffer, static_cast<std::size_t>(n))) return n;
  errno = ECONNRESET;
  return -1;
}
int guarded_close(int fd) { return guarded_connections::all().closes(fd); }

/// ZeroMQ computes a connection's key when it has received the other side's, and then decrypts each part with it. The
/// key stays where it is.
int guarded_agree(unsigned char* key, const unsigned char* theirs, const unsigned char* own) {
  guarded_connections::all().gets_key(key);
  return sodium().agree(key, theirs, own);
}
/// A part begins with a byte of flags: 1 more follow, 2 a command.
int guarded_open(unsigned char* plain, const unsigned char* box, unsigned long long bytes, const unsigned char* nonce,
                 const unsigned char* key) {
  const int result = sodium().open(plain, box, bytes, nonce, key);
  if (result != 0 || bytes <= box_overhead) return result;
  const bool takes =
      guarded_connections::all().takes_part(key, bytes - box_overhead - 1, (plain[0] & 1U) != 0, (plain[0] & 2U) != 0);
  return takes ? 0 : -1;
}

}  // namespace

connection_guard::address::~address() {
  if (text_.empty()) return;
  if (is_target_) guarded_connections::all().forget_target(text_, guard_);
  else guarded_connections::all().forget(text_, guard_);
}

void connection_guard::install(const void* member) {
  // Which of these two a build of libzmq calls depends on how it was configured.
  const std::array accepts{redirected_call{"accept", reinterpret_cast<void*>(&guarded_accept)},
                           redirected_call{"accept4", reinterpret_cast<void*>(&guarded_accept4)}};
  const std::array others{redirected_call{"connect", reinterpret_cast<void*>(&guarded_connect)},
                          redirected_call{"recv", reinterpret_cast<void*>(&guarded_recv)},
                          redirected_call{"close", reinterpret_cast<void*>(&guarded_close)}};
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  (void)real();
  bool accepts_guarded = false;
  for (const auto& one : accepts) accepts_guarded |= redirect_calls(member, std::span(&one, 1));
  if (!accepts_guarded || !redirect_calls(member, others))
    throw network_error("cannot accept connections: this build of libzmq cannot be guarded", false);
}

void connection_guard::install_decryption(const void* member) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  auto& all = sodium();
  if (all.open == nullptr) {
    all.agree = reinterpret_cast<sodium_library::agree_function*>(function_of_library(member, agree_name));
    all.open = reinterpret_cast<sodium_library::open_function*>(function_of_library(member, open_name));
  }
  const std::array calls{redirected_call{open_name, reinterpret_cast<void*>(&guarded_open)},
                         redirected_call{agree_name, reinterpret_cast<void*>(&guarded_agree)}};
  if (all.open == nullptr || all.agree == nullptr || !redirect_calls(member, calls))
    throw network_error("cannot accept encrypted connections: this build of libzmq cannot be guarded", false);
}

void* connection_guard::function_of_library(const void* member, const char* name) noexcept {
  Dl_info library{};
  void* const handle =
      dladdr(member, &library) != 0 ? dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr;  // never closed
  return handle != nullptr ? dlsym(handle, name) : nullptr;
}

connection_guard::address connection_guard::open(const void* member, const std::function<std::string()>& bind,
                                                 bool is_encrypted) {
  install(member);
  if (is_encrypted) install_decryption(member);
  return {guarded_connections::all().bind(shared_from_this(), bind, is_encrypted), this, false};
}

connection_guard::address connection_guard::to(const std::string& target, bool is_encrypted) {
  auto text = target_of(target);
  guarded_connections::all().expect(shared_from_this(), text, is_encrypted);
  return {std::move(text), this, true};
}

}  // namespace paracel::net
