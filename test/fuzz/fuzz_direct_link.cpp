// SPDX-License-Identifier: BSD-3-Clause
//
// What strangers send where a worker listens for a direct connection, and over one: arbitrary bytes, or what a worker
// has sent with some bytes changed. No hello but the very one is accepted, no message that was not sent is delivered in
// an encrypted job, and what is delivered does not depend on how the bytes are cut.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "net/direct_link.hpp"
#include "net/zmq_transport.hpp"
#include "property.hpp"
#include "worker/job/link_handshake.hpp"

namespace {

using namespace paracel;
using net::direct_link;
using net::link_box;
using net::owned_fd;
using bytes = std::vector<std::byte>;

constexpr link_box::key key{9, 8, 7};
constexpr std::size_t most_message_bytes = 2000;
constexpr std::uint64_t messages = 3;

struct message {
  std::uint64_t number = 0;
  byte_vector body;
  friend bool operator==(const message&, const message&) = default;
};

std::pair<owned_fd, owned_fd> connected_pair() {
  std::array<int, 2> both{};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both.data()) == 0, "a pair of sockets");
  return {owned_fd(both[0]), owned_fd(both[1])};
}

std::optional<direct_link::boxes> boxes(bool encrypted, bool offers) {
  if (!encrypted) return std::nullopt;
  return direct_link::boxes{.out = {key, offers}, .in = {key, !offers}};
}

byte_vector body_of(std::uint64_t number) { return byte_vector(number * 70, static_cast<std::byte>(number)); }

/// The bytes of some messages.
bytes sent(bool encrypted) {
  auto [one, other] = connected_pair();
  direct_link from(std::move(one), boxes(encrypted, true), most_message_bytes);
  for (std::uint64_t i = 1; i <= messages; ++i)
    from.send({.number = i, .size = body_of(i).size()}, shared_buffer::holding(body_of(i)));
  bytes all(8000);
  const auto n = ::recv(other.get(), all.data(), all.size(), MSG_DONTWAIT);
  require(n > 0, "they are sent");
  all.resize(static_cast<std::size_t>(n));
  return all;
}

std::vector<message> received(std::span<const std::byte> all, bool encrypted, std::size_t cut) {
  auto [one, other] = connected_pair();
  direct_link to(std::move(one), boxes(encrypted, false), most_message_bytes);
  std::vector<message> got;
  const auto read = [&] {
    return to.receive([&](const net::link_record& r, byte_vector body) {
      require(body.size() == r.size && r.size <= most_message_bytes, "a message has its size, which is limited");
      got.push_back({r.number, std::move(body)});
    });
  };
  for (std::size_t i = 0; i < all.size() && !to.has_ended(); i += cut) {
    const auto part = all.subspan(i, std::min(cut, all.size() - i));
    if (::send(other.get(), part.data(), part.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(part.size())) break;
    while (read() && !to.has_ended()) {
    }
  }
  return got;
}

void check_hello(std::span<const std::byte> data, bool encrypted, bool begins_well) {
  link_box out(key, false), in(key, false);
  const link_hello own{.rank = 5, .client = 77, .turn = 2};
  auto said = own.bytes(key, encrypted ? &out : nullptr);
  const auto right = said;
  if (begins_well) {
    for (std::size_t i = 0; i + 1 < data.size(); i += 2)
      said[std::to_integer<std::size_t>(data[i]) % said.size()] ^= data[i + 1];
  } else {
    said.assign(data.begin(), data.end());
  }
  const auto read = link_hello::read(said, key, encrypted ? &in : nullptr);
  const bool has_proof = said.size() == right.size() &&
                         (encrypted ? std::equal(said.begin() + 4, said.end(), right.begin() + 4)
                                    : std::equal(said.begin() + 4, said.begin() + 4 + key.size(), right.begin() + 4));
  require(read.has_value() == has_proof, "who has the key is admitted, and nobody else");
  if (read && encrypted) require(read->client == own.client && read->turn == own.turn, "a hello says what was said");
}

void check_offer(std::span<const std::byte> data) {
  const auto o = link_offer::read(data);
  if (!o) return;
  const auto again = o->bytes();
  require(std::ranges::equal(again, data), "an offer is read as it was written");
  require(o->port != 0 && o->host.size() <= 64, "an offer has a port and a host");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const net::zmq_transport zmq({}, {}, std::nullopt);  // libsodium is found once ZeroMQ is there
  if (size < 2) return 0;
  require(link_box::is_available(), "libzmq has libsodium");
  const bool encrypted = (data[0] & 1U) != 0;
  const bool begins_well = (data[0] & 2U) != 0;
  const std::size_t cut = std::size_t{1} + data[1];
  const auto rest = std::as_bytes(std::span(data, size)).subspan(2).first(std::min<std::size_t>(size - 2, 4000));
  check_hello(rest, encrypted, begins_well);
  check_offer(rest);

  bytes all(rest.begin(), rest.end());
  std::size_t whole = 0;  // bytes from the beginning that nobody has changed
  if (begins_well) {
    all = sent(encrypted);
    whole = all.size();
    for (std::size_t i = 0; i + 2 < rest.size(); i += 3) {
      const auto at =
          (std::to_integer<std::size_t>(rest[i]) * 256 + std::to_integer<std::size_t>(rest[i + 1])) % all.size();
      if (rest[i + 2] != std::byte{0}) whole = std::min(whole, at);
      all[at] ^= rest[i + 2];
    }
  }
  const auto got = received(all, encrypted, all.size() + 1);
  require(received(all, encrypted, cut) == got, "what is delivered does not depend on how the bytes are cut");
  if (!encrypted) return 0;
  require(got.size() <= (begins_well ? messages : 0), "nothing is delivered that was not sent");
  for (std::uint64_t i = 1; i <= got.size(); ++i)
    require(got[i - 1] == message{i, body_of(i)}, "messages are delivered as they were sent, in order");
  if (begins_well && whole == all.size()) require(got.size() == messages, "what nobody changed is delivered");
  return 0;
}
