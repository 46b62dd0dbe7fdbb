// SPDX-License-Identifier: BSD-3-Clause
//
// A transport whose other side is a function of the test, which decides when something arrives.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/protocol.hpp"
#include "net/transport.hpp"

namespace paracel::test {

class scripted_port final : public net::port {
 public:
  /// A call of `receive`. Returns: whether something has arrived, which `answer` or `arrive` has put into `out`.
  using script = std::function<bool(scripted_port&, net::incoming& out, std::chrono::milliseconds timeout)>;

  explicit scripted_port(script s) : script_(std::move(s)) {}
  std::string bind(const std::string& address) override { return address; }
  int connect(const std::string&) override { return channels_++; }
  void disconnect(int) override {}
  void send(int channel, const net::outgoing& message) override {
    std::vector<std::byte> frame(message.head.begin(), message.head.end());
    frame.insert(frame.end(), message.body.begin(), message.body.end());
    net::request_view sent;
    if (net::decode(frame, message.tail.size(), sent) != nullptr) return;
    last_ = sent.header;
    last_channel_ = channel;
  }
  void reply(const net::peer&, const net::outgoing&) override {}
  bool receive(net::incoming& out, std::chrono::milliseconds timeout) override { return script_(*this, out, timeout); }

  /// The last request that was sent.
  [[nodiscard]] const net::request_header& last() const noexcept { return last_; }
  /// A reply to it.
  void answer(net::incoming& out, net::reply_header h) {
    h.what = last_.what;
    h.sequence = last_.sequence;
    net::reply_bytes head;
    net::encode(h, head);
    put(out, head);
    out.channel = last_channel_;
  }
  /// A request from another process.
  void arrive(net::incoming& out, const net::request_header& h) {
    net::request_bytes head;
    net::encode(h, head);
    put(out, head);
    out.channel = -1;
  }

 private:
  template <class Bytes>
  void put(net::incoming& out, const Bytes& bytes) {
    frame_.assign(bytes.begin(), bytes.end());
    out.frame = frame_;
    out.tail = {};
  }

  script script_;
  int channels_ = 0;
  net::request_header last_;
  int last_channel_ = -1;
  std::vector<std::byte> frame_;
};

class scripted_transport final : public net::transport {
 public:
  explicit scripted_transport(scripted_port::script s) : script_(std::move(s)) {}
  std::unique_ptr<net::port> open() override { return std::make_unique<scripted_port>(script_); }

 private:
  scripted_port::script script_;
};

}  // namespace paracel::test
