// SPDX-License-Identifier: BSD-3-Clause
//
// The floor under every figure of the framework: a bare echo between DEALER and ROUTER in two processes, with the same
// frames, sizes and window as the call it is compared with, and nothing else. It uses ZeroMQ directly and as well as it can
// be used: no copy of a tail, no poll, no allocation of its own.
#include <gflags/gflags.h>
#include <zmq.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench_support.hpp"

DEFINE_uint64(request_bytes, 112, "first frame of a request, header included");
DEFINE_uint64(reply_bytes, 72, "first frame of a reply, header included");
DEFINE_uint64(tail_request_bytes, 0, "second frame of a request; 0: none");
DEFINE_uint64(tail_reply_bytes, 0, "second frame of a reply; 0: none");
DEFINE_uint64(window, 1, "requests in flight");
DEFINE_int32(clients, 1, "client processes");
DEFINE_int32(servers, 1, "server processes; a client goes round");
DEFINE_double(seconds, 1, "measured time");
DEFINE_double(warm_up, 0.2, "time before it");
DEFINE_string(transport, "ipc", "ipc or tcp");

namespace {

using namespace paracel::bench;

void check(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string(what) + ": " + zmq_strerror(zmq_errno()));
}

/// A socket without high-water marks.
void* open(void* context, int type) {
  void* s = zmq_socket(context, type);
  check(s != nullptr, "zmq_socket");
  const int none = 0;
  zmq_setsockopt(s, ZMQ_SNDHWM, &none, sizeof none);
  zmq_setsockopt(s, ZMQ_RCVHWM, &none, sizeof none);
  zmq_setsockopt(s, ZMQ_LINGER, &none, sizeof none);
  return s;
}

/// What is sent: a frame copied into the message as every program must, a tail that is not.
struct payload {
  payload(std::size_t frame_bytes, std::size_t tail_bytes) : frame(frame_bytes, 'f'), tail(tail_bytes, 't') {}
  void send(void* socket) {
    check(zmq_send(socket, "", 0, ZMQ_SNDMORE) >= 0, "zmq_send");
    zmq_msg_t m;
    zmq_msg_init_size(&m, frame.size());
    std::memcpy(zmq_msg_data(&m), frame.data(), frame.size());
    check(zmq_msg_send(&m, socket, tail.empty() ? 0 : ZMQ_SNDMORE) >= 0, "zmq_msg_send");
    if (tail.empty()) return;
    zmq_msg_init_data(&m, tail.data(), tail.size(), [](void*, void*) {}, nullptr);
    check(zmq_msg_send(&m, socket, 0) >= 0, "zmq_msg_send");
  }
  std::vector<char> frame, tail;
};

void receive(void* socket, zmq_msg_t* part) {
  do {
    while (zmq_msg_recv(part, socket, 0) < 0) check(zmq_errno() == EINTR, "zmq_msg_recv");
  } while (zmq_msg_more(part) != 0);
}

void serve(int out, const std::string& address) {
  keep_large_blocks();
  void* context = zmq_ctx_new();
  void* router = open(context, ZMQ_ROUTER);
  check(zmq_bind(router, address.c_str()) == 0, address.c_str());
  char real[256] = {};
  std::size_t size = sizeof real;
  zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, real, &size);
  write_all(out, real, sizeof real);
  payload reply(FLAGS_reply_bytes, FLAGS_tail_reply_bytes);
  zmq_msg_t id;
  zmq_msg_t part;
  zmq_msg_init(&id);
  zmq_msg_init(&part);
  for (;;) {
    while (zmq_msg_recv(&id, router, 0) < 0) check(zmq_errno() == EINTR, "zmq_msg_recv");
    receive(router, &part);
    check(zmq_msg_send(&id, router, ZMQ_SNDMORE) >= 0, "zmq_msg_send");
    reply.send(router);
  }
}

std::function<tally()> prepare(int index, const std::vector<std::string>& addresses) {
  keep_large_blocks();
  void* context = zmq_ctx_new();
  auto sockets = std::make_shared<std::vector<void*>>();
  auto request = std::make_shared<payload>(FLAGS_request_bytes, FLAGS_tail_request_bytes);
  auto part = std::make_shared<zmq_msg_t>();
  zmq_msg_init(part.get());
  for (const std::string& address : addresses) {
    sockets->push_back(open(context, ZMQ_DEALER));
    check(zmq_connect(sockets->back(), address.c_str()) == 0, address.c_str());
    request->send(sockets->back());
    receive(sockets->back(), part.get());
  }
  return [=] {
    tally t;
    const std::size_t n = sockets->size();
    const std::size_t window = FLAGS_window;
    // Calls go round the servers and answers come back in the same order, so the times of sending form a ring.
    std::vector<clock::time_point> sent(window);
    std::size_t next_send = static_cast<std::size_t>(index);
    std::size_t next_receive = next_send;
    stopwatch watch(t, FLAGS_warm_up, FLAGS_seconds);
    for (std::size_t i = 0; i < window; ++i) {
      sent[next_send % window] = clock::now();
      request->send((*sockets)[next_send++ % n]);
    }
    for (;;) {
      receive((*sockets)[next_receive % n], part.get());
      const clock::time_point now = clock::now();
      if (!watch.answered(sent[next_receive++ % window], now)) return t;
      sent[next_send % window] = now;
      request->send((*sockets)[next_send++ % n]);
    }
  };
}

void run() {
  std::string folder = "/tmp/prc-floor-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot make a folder in /tmp");
  std::vector<child> servers;
  std::vector<std::string> addresses;
  for (int i = 0; i < FLAGS_servers; ++i) {
    const std::string address = FLAGS_transport == "tcp" ? "tcp://127.0.0.1:*" : "ipc://" + folder + "/" + std::to_string(i);
    servers.emplace_back([&address](int, int out) { serve(out, address); });
    char real[256];
    read_all(servers.back().in(), real, sizeof real);
    addresses.emplace_back(real);
  }
  const tally t = run_clients<tally>(FLAGS_clients, [&addresses](int i) { return prepare(i, addresses); });
  for (int i = 0; i < FLAGS_servers; ++i) ::unlink((folder + "/" + std::to_string(i)).c_str());
  ::rmdir(folder.c_str());
  print(t, static_cast<double>(std::max(FLAGS_request_bytes + FLAGS_tail_request_bytes,
                                        FLAGS_reply_bytes + FLAGS_tail_reply_bytes)));
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("a bare DEALER-ROUTER echo; prints one line of JSON");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    if (FLAGS_window == 0 || FLAGS_clients < 1 || FLAGS_servers < 1) {
      throw std::runtime_error("window, clients and servers begin at 1");
    }
    if (FLAGS_transport != "ipc" && FLAGS_transport != "tcp") throw std::runtime_error("--transport is ipc or tcp");
    run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_zmq_floor: error: %s\n", e.what());
    return 1;
  }
  return 0;
}
