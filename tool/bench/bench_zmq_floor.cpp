// SPDX-License-Identifier: BSD-3-Clause
//
// The floor for every measurement of the framework: a bare echo between DEALER and ROUTER in two processes, with the
// same frames, sizes and window as the call it is compared with, and nothing else. It uses ZeroMQ directly and as
// efficiently as possible: no copy of a tail, no poll, no allocations of its own.
#include <gflags/gflags.h>

#include <memory>
#include <string>
#include <vector>

#include <zmq.hpp>

#include "bench_support.hpp"

DEFINE_uint64(request_bytes, 112, "first frame of a request, header included");
DEFINE_uint64(reply_bytes, 72, "first frame of a reply, header included");
DEFINE_uint64(tail_request_bytes, 0, "second frame of a request; 0: none");
DEFINE_uint64(tail_reply_bytes, 0, "second frame of a reply; 0: none");
DEFINE_uint64(window, 1, "requests in flight");
DEFINE_int32(clients, 1, "client processes");
DEFINE_int32(servers, 1, "server processes; a client alternates between them");
DEFINE_double(seconds, 1, "measured time");
DEFINE_double(warm_up, 0.2, "warm-up time before it");
DEFINE_string(transport, "ipc", "ipc or tcp");

namespace {

using namespace paracel::bench;

[[noreturn]] void fail(const std::string& what, const zmq::error_t& error) {
  throw std::runtime_error(what + ": " + error.what());
}

/// A socket without high-water marks.
zmq::socket_t open(zmq::context_t& context, zmq::socket_type type) try {
  zmq::socket_t s(context, type);
  s.set(zmq::sockopt::sndhwm, 0);
  s.set(zmq::sockopt::rcvhwm, 0);
  s.set(zmq::sockopt::linger, 0);
  return s;
} catch (const zmq::error_t& error) {
  fail("zmq_socket", error);
}

/// What is sent: a frame copied into the message as every program must, and a tail that is not copied.
struct payload {
  payload(std::size_t frame_bytes, std::size_t tail_bytes) : frame(frame_bytes, 'f'), tail(tail_bytes, 't') {}
  void send(zmq::socket_t& socket) try {
    socket.send(zmq::const_buffer(), zmq::send_flags::sndmore);
    const auto flags = tail.empty() ? zmq::send_flags::none : zmq::send_flags::sndmore;
    socket.send(zmq::message_t(frame.data(), frame.size()), flags);
    if (tail.empty()) return;
    socket.send(zmq::message_t(tail.data(), tail.size(), [](void*, void*) {}), zmq::send_flags::none);
  } catch (const zmq::error_t& error) {
    fail("zmq_msg_send", error);
  }
  std::vector<char> frame, tail;
};

/// Receives the next part of a message; returns whether more follow.
bool receive_part(zmq::socket_t& socket, zmq::message_t& part) {
  for (;;) {
    try {
      if (socket.recv(part)) return part.more();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) fail("zmq_msg_recv", error);
    }
  }
}

void receive(zmq::socket_t& socket, zmq::message_t& part) {
  while (receive_part(socket, part)) {
  }
}

void serve(int out, const std::string& address) {
  keep_large_blocks();
  payload reply(FLAGS_reply_bytes, FLAGS_tail_reply_bytes);
  zmq::context_t context;
  zmq::socket_t router = open(context, zmq::socket_type::router);
  try {
    router.bind(address);
  } catch (const zmq::error_t& error) {
    fail(address, error);
  }
  char real[256] = {};
  static_cast<void>(router.get(zmq::sockopt::last_endpoint, zmq::buffer(real)));
  write_all(out, real, sizeof real);
  zmq::message_t id;
  zmq::message_t part;
  for (;;) {
    receive_part(router, id);
    receive(router, part);
    router.send(id, zmq::send_flags::sndmore);
    reply.send(router);
  }
}

/// The sockets of a client. They close before their context, and the payload outlives both, because ZeroMQ may still
/// read it.
struct client {
  payload request{FLAGS_request_bytes, FLAGS_tail_request_bytes};
  zmq::context_t context;
  std::vector<zmq::socket_t> sockets;
  zmq::message_t part;
};

std::function<tally()> prepare(int index, const std::vector<std::string>& addresses,
                               const std::vector<pid_t>& servers) {
  keep_large_blocks();
  auto self = std::make_shared<client>();
  for (const std::string& address : addresses) {
    zmq::socket_t& socket = self->sockets.emplace_back(open(self->context, zmq::socket_type::dealer));
    try {
      socket.connect(address);
    } catch (const zmq::error_t& error) {
      fail(address, error);
    }
    self->request.send(socket);
    receive(socket, self->part);
  }
  return [self, index, servers] {
    auto& [request, context, sockets, part] = *self;
    tally t;
    const std::size_t n = sockets.size();
    const std::size_t window = FLAGS_window;
    // Calls alternate between servers and replies arrive in the same order, so the send times form a ring.
    std::vector<clock::time_point> sent(window);
    std::size_t next_send = static_cast<std::size_t>(index);
    std::size_t next_receive = next_send;
    stopwatch watch(t, FLAGS_warm_up, FLAGS_seconds, servers);
    for (std::size_t i = 0; i < window; ++i) {
      sent[next_send % window] = clock::now();
      request.send(sockets[next_send++ % n]);
    }
    for (;;) {
      receive(sockets[next_receive % n], part);
      const clock::time_point now = clock::now();
      if (!watch.answered(sent[next_receive++ % window], now)) return t;
      sent[next_send % window] = now;
      request.send(sockets[next_send++ % n]);
    }
  };
}

void run() {
  std::string folder = "/tmp/prc-floor-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot create a folder in /tmp");
  std::vector<child> servers;
  std::vector<std::string> addresses;
  std::vector<pid_t> processes;
  for (int i = 0; i < FLAGS_servers; ++i) {
    const std::string address =
        FLAGS_transport == "tcp" ? "tcp://127.0.0.1:*" : "ipc://" + folder + "/" + std::to_string(i);
    servers.emplace_back([&address](int, int out) { serve(out, address); });
    char real[256];
    read_all(servers.back().in(), real, sizeof real);
    addresses.emplace_back(real);
    processes.push_back(servers.back().process());
  }
  const tally t = run_clients<tally>(FLAGS_clients, [&](int i) { return prepare(i, addresses, processes); });
  for (int i = 0; i < FLAGS_servers; ++i) ::unlink((folder + "/" + std::to_string(i)).c_str());
  ::rmdir(folder.c_str());
  print(t,
        static_cast<double>(
            std::max(FLAGS_request_bytes + FLAGS_tail_request_bytes, FLAGS_reply_bytes + FLAGS_tail_reply_bytes)),
        1);
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("a bare DEALER-ROUTER echo; prints one line of JSON");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    if (FLAGS_window == 0 || FLAGS_clients < 1 || FLAGS_servers < 1) {
      throw std::runtime_error("window, clients and servers must be at least 1");
    }
    if (FLAGS_transport != "ipc" && FLAGS_transport != "tcp")
      throw std::runtime_error("--transport must be ipc or tcp");
    run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_zmq_floor: error: %s\n", e.what());
    return 1;
  }
  return 0;
}
