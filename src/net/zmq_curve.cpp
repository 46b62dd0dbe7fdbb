// SPDX-License-Identifier: BSD-3-Clause
#include "net/zmq_curve.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

#include "net/connection_guard.hpp"

namespace paracel::net {

namespace {

constexpr const char* handler_address = "inproc://zeromq.zap.01";  // fixed by ZAP
constexpr std::string_view domain = "paracel";
// A draft in zmq.h, not in all of them: with it a socket refuses everybody when no handler is bound.
constexpr int enforce_domain_option = 93;

[[noreturn]] void fail(const std::string& what, const zmq::error_t& error) {
  throw network_error(what + ": " + error.what(), false);
}

// A request: version, number, domain, address, identity, mechanism, then the client's key.
constexpr std::size_t request_parts = 7;

/// The parts of the next message; none: the context has been shut down.
std::vector<zmq::message_t> next_request(zmq::socket_t& from) {
  std::vector<zmq::message_t> parts;
  do {
    zmq::message_t part;
    while (zmq_msg_recv(part.handle(), from.handle(), 0) < 0) {
      if (zmq_errno() != EINTR) return {};
    }
    // Others than ZeroMQ cannot send here, and its requests are short; what is beyond is counted, not kept.
    if (parts.size() <= request_parts) parts.push_back(std::move(part));
    else parts.back() = std::move(part);
  } while (parts.back().more());
  return parts;
}

bool is_member(std::vector<zmq::message_t>& request, const zmq_curve::public_key& key) {
  return request.size() == request_parts && request[2].to_string_view() == domain &&
         request[5].to_string_view() == "CURVE" &&
         std::ranges::equal(request[6].to_string_view(), std::string_view(key.data(), key.size()));
}

/// Returns: false when the context has been shut down.
bool answer(zmq::socket_t& to, const zmq::message_t& number, bool admits) {
  const std::array<std::string_view, 6> parts{
      "1.0", {number.data<char>(), number.size()}, admits ? "200" : "400", admits ? "OK" : "not of this job", "", ""};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int more = i + 1 < parts.size() ? ZMQ_SNDMORE : 0;
    while (zmq_send(to.handle(), parts[i].data(), parts[i].size(), more) < 0) {
      if (zmq_errno() != EINTR) return false;
    }
  }
  return true;
}

void handle_requests(zmq::socket_t socket, const zmq_curve::public_key key) {
  for (;;) {
    auto request = next_request(socket);
    if (request.empty()) return;
    if (request.size() < 2) request.resize(2);
    if (!answer(socket, request[1], is_member(request, key))) return;
  }
}

/// As ZeroMQ's own threads: signals are for the others.
class no_signals {
 public:
  no_signals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~no_signals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  no_signals(const no_signals&) = delete;
  no_signals& operator=(const no_signals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

zmq_curve::zmq_curve(const curve_secret& secret) {
  if (zmq_has("curve") == 0)
    throw network_error("this build of ZeroMQ cannot encrypt (CURVE), and the job is encrypted", false);
  zmq_z85_encode(secret_text_.data(), secret.data(), secret.size());
  if (zmq_curve_public(open_text_.data(), secret_text_.data()) != 0) fail("cannot make the job's key", zmq::error_t());
  zmq_z85_decode(reinterpret_cast<std::uint8_t*>(open_.data()), open_text_.data());
}

void zmq_curve::secure(zmq::socket_t& socket, side which) const try {
  if (which == side::bound) {
    if (constexpr int on = 1; zmq_setsockopt(socket.handle(), enforce_domain_option, &on, sizeof on) != 0)
      throw network_error("this build of ZeroMQ has no ZMQ_ZAP_ENFORCE_DOMAIN, which an encrypted job needs", false);
    socket.set(zmq::sockopt::zap_domain, domain);  // without one the option above admits everybody
    socket.set(zmq::sockopt::curve_server, true);
    socket.set(zmq::sockopt::curve_secretkey, secret_text_.data());
    return;
  }
  socket.set(zmq::sockopt::curve_serverkey, open_text_.data());
  socket.set(zmq::sockopt::curve_publickey, open_text_.data());
  socket.set(zmq::sockopt::curve_secretkey, secret_text_.data());
} catch (const zmq::error_t& error) {
  fail("cannot encrypt a connection", error);
}

void* zmq_curve::library_function(const char* name) noexcept {
  return connection_guard::function_of_library(reinterpret_cast<const void*>(&zmq_ctx_new), name);
}

zmq_admission::zmq_admission(zmq::context_t& context, const zmq_curve& key) try {
  zmq::socket_t socket(context, zmq::socket_type::rep);
  socket.set(zmq::sockopt::linger, 0);
  socket.bind(handler_address);
  const no_signals in_the_thread;
  thread_ = std::thread(&handle_requests, std::move(socket), key.open_key());
} catch (const zmq::error_t& error) {
  fail("cannot listen for ZeroMQ's authentication requests", error);
} catch (const std::system_error& error) {
  throw network_error(std::string("cannot start a thread for the admission of connections: ") + error.what(), false);
}

}  // namespace paracel::net
