// SPDX-License-Identifier: BSD-3-Clause
//
// The floor for the transport over Unix sockets: a bare echo of two processes with the same bytes and window as the
// call it is compared with. Blocking reads and writes, nothing else: whatever has arrived is answered with one write.
#include <gflags/gflags.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "bench_support.hpp"

DEFINE_uint64(request_bytes, 112, "a request, header included");
DEFINE_uint64(reply_bytes, 72, "a reply, header included");
DEFINE_uint64(tail_request_bytes, 0, "what is sent with a request besides");
DEFINE_uint64(tail_reply_bytes, 0, "what is sent with a reply besides");
DEFINE_uint64(window, 1, "requests in flight");
DEFINE_double(seconds, 1, "measured time");
DEFINE_double(warm_up, 0.2, "warm-up time before it");

namespace {

using namespace paracel::bench;

/// Messages of one size in each direction over one end of a socket pair.
class line {
 public:
  line(int fd, std::size_t sent_bytes, std::size_t received_bytes, std::size_t window)
      : fd_(fd), sent_(sent_bytes), received_(received_bytes), out_(sent_bytes * window, 'o') {
    in_.resize(std::max(received_bytes, std::min<std::size_t>(received_bytes * window, 64 * 1024)));
  }
  void send(std::size_t messages) {
    const char* from = out_.data();
    for (std::size_t left = messages * sent_; left != 0;) {
      const auto n = ::send(fd_, from, left, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw std::runtime_error(std::string("send: ") + std::strerror(errno));
      from += n;
      left -= static_cast<std::size_t>(n);
    }
  }
  /// Blocks: until at least one message is complete. Returns: how many are; 0: the other end is closed.
  std::size_t receive() {
    while (filled_ < received_) {
      const auto n = ::recv(fd_, in_.data() + filled_, in_.size() - filled_, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw std::runtime_error(std::string("recv: ") + std::strerror(errno));
      if (n == 0) return 0;
      filled_ += static_cast<std::size_t>(n);
    }
    const std::size_t messages = filled_ / received_;
    const std::size_t used = messages * received_;
    std::memmove(in_.data(), in_.data() + used, filled_ - used);
    filled_ -= used;
    return messages;
  }

 private:
  int fd_;
  std::size_t sent_, received_;
  std::vector<char> out_, in_;
  std::size_t filled_ = 0;
};

void run() {
  const std::size_t request = FLAGS_request_bytes + FLAGS_tail_request_bytes;
  const std::size_t reply = FLAGS_reply_bytes + FLAGS_tail_reply_bytes;
  const std::size_t window = FLAGS_window;
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw std::runtime_error(std::string("socketpair: ") + std::strerror(errno));
  const child server([&](int, int) {
    keep_large_blocks();
    ::close(ends[0]);
    line to_client(ends[1], reply, request, window);
    while (const auto n = to_client.receive()) to_client.send(n);
  });
  const auto prepare = [&](int) -> std::function<tally()> {
    keep_large_blocks();
    ::close(ends[1]);
    const auto to_server = std::make_shared<line>(ends[0], request, reply, window);
    return [to_server, window, process = server.process()] {
      tally t;
      std::vector<clock::time_point> sent(window, clock::now());  // a ring: replies arrive in order
      std::size_t next = 0;
      stopwatch watch(t, FLAGS_warm_up, FLAGS_seconds, {process});
      to_server->send(window);
      while (const auto n = to_server->receive()) {
        const auto now = clock::now();
        for (std::size_t i = 0; i < n; ++i) {
          auto& at = sent[next++ % window];
          if (!watch.answered(at, now)) return t;
          at = now;
        }
        to_server->send(n);
      }
      throw std::runtime_error("the server's process has ended");
    };
  };
  print(run_clients<tally>(1, prepare), static_cast<double>(std::max(request, reply)), 1);
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("a bare echo over a Unix socket; prints one line of JSON");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    if (FLAGS_window == 0 || FLAGS_request_bytes == 0 || FLAGS_reply_bytes == 0)
      throw std::runtime_error("window, request_bytes and reply_bytes must be at least 1");
    run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_unix_floor: error: %s\n", e.what());
    return 1;
  }
  return 0;
}
