// SPDX-License-Identifier: BSD-3-Clause
//
// The baseline of bench_rows --where ipc: rows of one float by 64-bit id in a std::unordered_map, a server and a client
// process over ZeroMQ, with the frames of the framework (src/net): a header of 96 bytes and sorted ids there, a header
// of 64 bytes and values back, in a second frame above 64 KiB. One thread, one table, no checks, no errors. What one
// could write in a day. Prints one line of JSON.
#include <gflags/gflags.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <zmq.hpp>

#include "tool/bench/bench_support.hpp"
#include "tool/bench/id_lists.hpp"

DEFINE_string(op, "pull", "pull or add");
DEFINE_uint64(rows, 1'000'000, "rows of the table");
DEFINE_uint64(rows_per_call, 10'000, "rows of a call, drawn at random, each once, sorted");
DEFINE_uint64(lists, 64, "lists of rows that the calls use in turn; 0: each call has a new one");
DEFINE_double(seconds, 1, "measured time");
DEFINE_double(warm_up, 0.3, "time before it");

namespace {

using namespace paracel::bench;

constexpr std::size_t request_header = 96;
constexpr std::size_t reply_header = 64;
constexpr std::size_t largest_body = 64 * 1024;
constexpr std::size_t load_rows = 50'000;

struct request {
  std::uint32_t adds = 0;
  std::uint32_t count = 0;
};

zmq::socket_t open(zmq::context_t& context, zmq::socket_type type) {
  zmq::socket_t s(context, type);
  s.set(zmq::sockopt::sndhwm, 0);
  s.set(zmq::sockopt::rcvhwm, 0);
  s.set(zmq::sockopt::linger, 0);
  return s;
}

/// A header and a body, as one frame or two. `fill(to)` writes the body.
template <class Fill>
void send(zmq::socket_t& socket, const void* header, std::size_t header_bytes, std::size_t body_bytes,
          const Fill& fill) {
  const bool second = body_bytes > largest_body;
  socket.send(zmq::const_buffer(), zmq::send_flags::sndmore);
  zmq::message_t head(header_bytes + (second ? 0 : body_bytes));
  std::memcpy(head.data(), header, header_bytes);
  if (!second) fill(head.data<std::byte>() + header_bytes);
  socket.send(head, second ? zmq::send_flags::sndmore : zmq::send_flags::none);
  if (!second) return;
  zmq::message_t tail(body_bytes);
  fill(tail.data<std::byte>());
  socket.send(tail, zmq::send_flags::none);
}

struct message {
  zmq::message_t id, empty, head, tail;
  void receive(zmq::socket_t& socket, bool has_id) {
    if (has_id) (void)socket.recv(id);
    (void)socket.recv(empty);
    (void)socket.recv(head);
    tail.rebuild();
    if (head.more()) (void)socket.recv(tail);
  }
  [[nodiscard]] const std::byte* body(std::size_t header_bytes) const {
    return tail.size() != 0 ? tail.data<std::byte>() : head.data<std::byte>() + header_bytes;
  }
};

void serve(int out, const std::string& address) {
  keep_large_blocks();
  std::unordered_map<std::uint64_t, float> rows;
  rows.reserve(FLAGS_rows);
  zmq::context_t context;
  auto socket = open(context, zmq::socket_type::router);
  socket.bind(address);
  write_all(out, "r", 1);
  const std::vector<std::byte> header(reply_header);
  for (message m;;) {
    m.receive(socket, true);
    request r;
    std::memcpy(&r, m.head.data(), sizeof r);
    const auto* ids = m.body(request_header);
    const auto* values = ids + r.count * sizeof(std::uint64_t);
    const auto row = [&](std::size_t i) -> float& {
      std::uint64_t id = 0;
      std::memcpy(&id, ids + i * sizeof id, sizeof id);
      return rows[id];
    };
    for (std::size_t i = 0; r.adds != 0 && i < r.count; ++i) {
      float delta = 0;
      std::memcpy(&delta, values + i * sizeof delta, sizeof delta);
      row(i) += delta;
    }
    socket.send(m.id, zmq::send_flags::sndmore);
    send(socket, header.data(), header.size(), r.adds != 0 ? 0 : r.count * sizeof(float), [&](std::byte* to) {
      for (std::size_t i = 0; r.adds == 0 && i < r.count; ++i)
        std::memcpy(to + i * sizeof(float), &row(i), sizeof(float));
    });
  }
}

class client {
 public:
  explicit client(const std::string& address) : socket_(open(context_, zmq::socket_type::dealer)) {
    socket_.connect(address);
  }
  void pull(std::span<const std::uint64_t> ids, std::span<float> out) {
    ask(ids, {});
    std::memcpy(out.data(), reply_.body(reply_header), ids.size() * sizeof(float));
  }
  void add(std::span<const std::uint64_t> ids, std::span<const float> deltas) { ask(ids, deltas); }

 private:
  void ask(std::span<const std::uint64_t> ids, std::span<const float> deltas) {
    std::byte header[request_header] = {};
    const request r{deltas.empty() ? 0U : 1U, static_cast<std::uint32_t>(ids.size())};
    std::memcpy(header, &r, sizeof r);
    send(socket_, header, sizeof header, ids.size_bytes() + deltas.size_bytes(), [&](std::byte* to) {
      std::memcpy(to, ids.data(), ids.size_bytes());
      if (!deltas.empty()) std::memcpy(to + ids.size_bytes(), deltas.data(), deltas.size_bytes());
    });
    reply_.receive(socket_, false);
  }
  zmq::context_t context_;
  zmq::socket_t socket_;
  message reply_;
};

void run() {
  std::string folder = "/tmp/prc-plain-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot create a folder in /tmp");
  const std::string address = "ipc://" + folder + "/s";
  const child server([&](int, int out) { serve(out, address); });
  char ready = 0;
  read_all(server.in(), &ready, 1);
  keep_large_blocks();
  tally t;
  {
    client c(address);
    std::vector<float> values(load_rows, 0.001F);
    std::vector<std::uint64_t> ids(load_rows);
    for (std::uint64_t first = 0; first < FLAGS_rows; first += load_rows) {
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = std::min(first + i, FLAGS_rows - 1);
      c.pull(ids, values);
    }
    id_lists calls(FLAGS_rows, FLAGS_rows_per_call, FLAGS_lists, "ascending");
    const auto numbers = std::span(values).first(FLAGS_rows_per_call);
    stopwatch watch(t, FLAGS_warm_up, FLAGS_seconds, {server.process()});
    for (;;) {
      const auto sent = clock::now();
      const auto list = calls.next();
      if (FLAGS_op == "pull") c.pull(list, numbers);
      else c.add(list, numbers);
      if (!watch.answered(sent, clock::now())) break;
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  const auto n = static_cast<double>(FLAGS_rows_per_call);
  print(t, n * sizeof(float), n);
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("rows of one float by id, in a plain server; prints one line of JSON");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    if (FLAGS_op != "pull" && FLAGS_op != "add") throw std::runtime_error("--op must be pull or add");
    if (FLAGS_rows_per_call == 0 || FLAGS_rows_per_call > load_rows || FLAGS_rows < 2 * FLAGS_rows_per_call)
      throw std::runtime_error("rows_per_call is 1 to " + std::to_string(load_rows) + ", and half of the rows at most");
    run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "plain_rows: error: %s\n", e.what());
    return 1;
  }
  return 0;
}
