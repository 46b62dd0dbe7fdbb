// SPDX-License-Identifier: BSD-3-Clause
//
// The cost of encryption over tcp on loopback: our transport without it and with it, and ZeroMQ's CURVE alone (bare
// sockets), alternately in one run, each with an answering process of its own. Prints one line of JSON: round trips of
// 64 bytes, large values one way, and the time from a new transport to its first answer; the medians, and the medians
// of the ratios of the turns.
#include <gflags/gflags.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <zmq.hpp>

#include "bench_support.hpp"
#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "net/zmq_transport.hpp"

DEFINE_uint64(turns, 15, "runs of each side");
DEFINE_uint64(round_trips, 300, "of a run");
DEFINE_uint64(values, 48, "large values of a run");
DEFINE_uint64(value_bytes, 1 << 20, "size of a large value");
DEFINE_uint64(window, 8, "large values in flight");
DEFINE_uint64(starts, 5, "of a run");

namespace {

using namespace paracel;
using namespace paracel::bench;

constexpr net::curve_secret secret{1, 2, 3};
constexpr std::size_t address_bytes = 64;

/// Connections to an answering process.
class side {
 public:
  side() = default;
  side(const side&) = delete;
  side& operator=(const side&) = delete;
  virtual ~side() = default;
  virtual void open() = 0;
  virtual void close() = 0;
  /// Sends this many bytes, in a message that is not copied if it is large. `receive` awaits a short answer.
  virtual void send(std::size_t bytes) = 0;
  virtual void receive() = 0;
};

child answering(const std::function<void(int out)>& run) {
  return child([run](int, int out) {
    keep_large_blocks();
    run(out);
  });
}
void tell(int out, std::string address) {
  address.resize(address_bytes);
  write_all(out, address.data(), address.size());
}
std::string told(const child& by) {
  std::array<char, address_bytes + 1> text{};
  read_all(by.in(), text.data(), address_bytes);
  return text.data();
}

class ours final : public side {
 public:
  explicit ours(std::optional<net::curve_secret> key)
      : key_(key),
        server_(answering([key](int out) {
          net::zmq_transport over({}, {}, key);
          const auto port = over.open();
          tell(out, port->bind("tcp://127.0.0.1:*"));
          net::incoming in;
          for (;;) {
            if (port->receive(in, std::chrono::milliseconds(1000))) port->reply(in.from, {.head = in.frame});
          }
        })),
        address_(told(server_)),
        value_(shared_buffer::allocate(FLAGS_value_bytes)) {
    std::memset(value_.mutable_data(), 7, value_.size());
  }

  void open() override {
    over_ = std::make_unique<net::zmq_transport>(net::transport_limits{}, nullptr, key_);
    port_ = over_->open();
    channel_ = port_->connect(address_);
  }
  void close() override {
    port_.reset();
    over_.reset();
  }
  void send(std::size_t bytes) override {
    if (bytes == value_.size()) port_->send(channel_, {.head = net::bytes_of("large"), .tail = value_});
    else port_->send(channel_, {.head = std::span(value_.data(), bytes)});
  }
  void receive() override {
    net::incoming in;
    if (!port_->receive(in, std::chrono::seconds(20))) throw std::runtime_error("no answer");
  }

 private:
  std::optional<net::curve_secret> key_;
  child server_;
  std::string address_;
  shared_buffer value_;
  std::unique_ptr<net::zmq_transport> over_;
  std::unique_ptr<net::port> port_;
  int channel_ = 0;
};

class curve_alone final : public side {
 public:
  curve_alone() : value_(FLAGS_value_bytes, 7) {
    zmq_curve_keypair(open_key_.data(), secret_key_.data());
    server_.emplace(answering([this](int out) {
      zmq::context_t context;
      zmq::socket_t router(context, zmq::socket_type::router);
      router.set(zmq::sockopt::rcvhwm, 0);
      router.set(zmq::sockopt::curve_server, true);
      router.set(zmq::sockopt::curve_secretkey, secret_key_.data());
      router.bind("tcp://127.0.0.1:*");
      tell(out, router.get(zmq::sockopt::last_endpoint));
      for (;;) {
        zmq::message_t id;
        zmq::message_t part;
        if (!router.recv(id)) continue;
        while (id.more() && router.recv(part) && part.more()) {
        }
        router.send(id, zmq::send_flags::sndmore);
        router.send(zmq::buffer("answer", 6), zmq::send_flags::none);
      }
    }));
    address_ = told(*server_);
  }
  void open() override {
    context_ = std::make_unique<zmq::context_t>();
    socket_ = zmq::socket_t(*context_, zmq::socket_type::dealer);
    socket_.set(zmq::sockopt::sndhwm, 0);
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::curve_serverkey, open_key_.data());
    socket_.set(zmq::sockopt::curve_publickey, open_key_.data());
    socket_.set(zmq::sockopt::curve_secretkey, secret_key_.data());
    socket_.connect(address_);
  }
  void close() override {
    socket_.close();
    context_.reset();
  }
  void send(std::size_t bytes) override {
    socket_.send(zmq::message_t(value_.data(), bytes, [](void*, void*) {}), zmq::send_flags::none);
  }
  void receive() override {
    zmq::message_t part;
    while (!socket_.recv(part) || part.more()) {
    }
  }

 private:
  std::array<char, 41> open_key_{};
  std::array<char, 41> secret_key_{};
  std::vector<char> value_;
  std::optional<child> server_;
  std::string address_;
  std::unique_ptr<zmq::context_t> context_;
  zmq::socket_t socket_;
};

double since(clock::time_point begin) { return std::chrono::duration<double>(clock::now() - begin).count(); }

double round_trip_us(side& s) {
  s.open();
  histogram all;
  for (std::size_t i = 0; i < FLAGS_round_trips + 20; ++i) {
    const auto begin = clock::now();
    s.send(64);
    s.receive();
    if (i >= 20) all.add(static_cast<std::uint64_t>(since(begin) * 1e9));
  }
  s.close();
  return all.quantile(0.5);
}

double megabytes_per_second(side& s) {
  s.open();
  s.send(64);
  s.receive();
  const auto begin = clock::now();
  for (std::size_t i = 0; i < FLAGS_values + FLAGS_window; ++i) {
    if (i < FLAGS_values) s.send(FLAGS_value_bytes);
    if (i >= FLAGS_window) s.receive();
  }
  const double seconds = since(begin);
  s.close();
  return static_cast<double>(FLAGS_values * FLAGS_value_bytes) / 1e6 / seconds;
}

double start_ms(side& s) {
  double sum = 0;
  for (std::size_t i = 0; i < FLAGS_starts; ++i) {
    const auto begin = clock::now();
    s.open();
    s.send(64);
    s.receive();
    sum += since(begin);
    s.close();
  }
  return 1e3 * sum / static_cast<double>(FLAGS_starts);
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

nlohmann::json compared(const std::vector<std::pair<const char*, side*>>& sides, double (*measure)(side&)) {
  std::vector<std::vector<double>> found(sides.size());
  for (std::size_t turn = 0; turn < FLAGS_turns; ++turn)
    for (std::size_t i = 0; i < sides.size(); ++i) found[i].push_back(measure(*sides[i].second));
  nlohmann::json all;
  for (std::size_t i = 0; i < sides.size(); ++i) {
    all[sides[i].first] = median(found[i]);
    if (i == 0) continue;
    std::vector<double> ratios;
    for (std::size_t turn = 0; turn < FLAGS_turns; ++turn) ratios.push_back(found[i][turn] / found[0][turn]);
    all[std::string(sides[i].first) + "_to_" + sides[0].first] = median(ratios);
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) try {
  gflags::SetUsageMessage("the cost of encrypted connections, beside plain ones and beside CURVE alone");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  keep_large_blocks();
  ours encrypted(secret);
  ours plain(std::nullopt);
  curve_alone curve;
  const std::vector<std::pair<const char*, side*>> sides{
      {"encrypted", &encrypted}, {"plain", &plain}, {"curve_alone", &curve}};
  const nlohmann::json all{{"round_trip_us", compared(sides, &round_trip_us)},
                           {"megabytes_per_second", compared(sides, &megabytes_per_second)},
                           {"start_ms", compared(sides, &start_ms)}};
  std::printf("%s\n", all.dump().c_str());
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_encryption: error: %s\n", e.what());
  return 1;
}
