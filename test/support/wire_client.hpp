// SPDX-License-Identifier: BSD-3-Clause
//
// A client that implements the wire format without the client library.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/protocol.hpp"
#include "net/transport.hpp"

namespace paracel::test {

constexpr std::chrono::milliseconds patience{10'000};

inline value_view view(const double& d) { return {value_tag::f64, std::as_bytes(std::span(&d, 1))}; }
inline value_view view(const std::vector<double>& d) { return {value_tag::f64_array, std::as_bytes(std::span(d))}; }

inline std::vector<std::byte> frame_of(net::request_header h, std::string_view key, const value_view& value,
                                       std::size_t tail = 0) {
  h.tag = value.tag;
  h.key_bytes = static_cast<std::uint32_t>(key.size());
  h.body_bytes = static_cast<std::uint32_t>(key.size() + value.bytes.size());
  h.tail_bytes = tail;
  std::vector<std::byte> frame(net::request_header_bytes);
  net::encode(h, std::span<std::byte, net::request_header_bytes>(frame));
  frame.insert(frame.end(), net::bytes_of(key).begin(), net::bytes_of(key).end());
  frame.insert(frame.end(), value.bytes.begin(), value.bytes.end());
  return frame;
}

struct wire_answer {
  net::reply_header header;
  std::vector<std::byte> body;
  shared_buffer tail;
  [[nodiscard]] std::string text() const { return std::string(net::text_of(body)); }
  [[nodiscard]] std::vector<double> doubles() const {
    const auto bytes = tail ? tail.bytes() : std::span<const std::byte>(body);
    std::vector<double> d(bytes.size() / sizeof(double));
    if (!d.empty()) std::memcpy(d.data(), bytes.data(), d.size() * sizeof(double));
    return d;
  }
};

/// One request at a time to any address, like a program in another language.
class wire_client {
 public:
  wire_client(net::transport& over, std::uint64_t job) : port_(over.open()), job_(job) {}

  std::uint64_t send(const std::string& address, net::request_header h, std::string_view key = {},
                     const value_view& value = {}, shared_buffer tail = {}) {
    h.job = job_;
    h.sequence = ++sequence_;
    port_->send(channel(address), {.head = frame_of(h, key, value, tail.size()), .tail = std::move(tail)});
    return h.sequence;
  }
  void send_raw(const std::string& address, std::span<const std::byte> frame, shared_buffer tail = {}) {
    port_->send(channel(address), {.head = frame, .tail = std::move(tail)});
  }
  /// The reply to `sequence`; other replies are dropped.
  std::optional<wire_answer> receive(std::uint64_t sequence, std::chrono::milliseconds limit = patience) {
    const auto end = std::chrono::steady_clock::now() + limit;
    net::incoming in;
    while (std::chrono::steady_clock::now() < end) {
      if (!port_->receive(in, std::chrono::milliseconds(20))) continue;
      net::reply_view r;
      EXPECT_EQ(net::decode(in.frame, in.tail.size(), r), nullptr);
      if (r.header.sequence == sequence) return wire_answer{r.header, {r.body.begin(), r.body.end()}, in.tail};
    }
    return std::nullopt;
  }
  /// The next message, whatever it is.
  bool receive_any(std::chrono::milliseconds limit) {
    net::incoming in;
    return port_->receive(in, limit);
  }
  wire_answer ask(const std::string& address, net::request_header h, std::string_view key = {},
                  const value_view& value = {}, shared_buffer tail = {}) {
    const auto s = send(address, h, key, value, std::move(tail));
    auto a = receive(s);
    EXPECT_TRUE(a.has_value()) << "no answer to " << net::name_of(h.what);
    return a.value_or(wire_answer{});
  }
  wire_answer ask(const std::string& address, net::verb what, std::string_view key = {}, const value_view& value = {}) {
    return ask(address, {.what = what}, key, value);
  }

 private:
  int channel(const std::string& address) {
    const auto [at, fresh] = channels_.try_emplace(address, -1);
    if (fresh) at->second = port_->connect(address);
    return at->second;
  }
  std::unique_ptr<net::port> port_;
  std::uint64_t job_;
  std::map<std::string, int> channels_;
  std::uint64_t sequence_ = 0;
};

}  // namespace paracel::test
