// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/link_handshake.hpp"

#include <array>

namespace paracel {

namespace {

using net::link_box;

constexpr std::size_t longest_host = 64;
constexpr std::size_t identity_bytes = sizeof(std::uint64_t) + sizeof(std::uint32_t);

/// In a time that does not tell where they differ.
bool are_equal(const link_box::key& a, const link_box::key& b) noexcept {
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

byte_vector link_offer::bytes() const {
  byte_vector all;
  put_fields(all, std::uint32_t{port}, key);
  put_bytes(all, host.data(), host.size());
  return all;
}

std::optional<link_offer> link_offer::read(std::span<const std::byte> bytes) {
  link_offer o;
  std::uint32_t port = 0;
  if (!take_fields(bytes, port, o.key) || port == 0 || port > UINT16_MAX) return std::nullopt;
  if (bytes.empty() || bytes.size() > longest_host) return std::nullopt;
  o.port = static_cast<std::uint16_t>(port);
  o.host.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (o.host.find('\0') != std::string::npos) return std::nullopt;
  return o;
}

byte_vector link_hello::bytes(const link_box::key& key, link_box* box) const {
  byte_vector identity;
  put_fields(identity, client, turn);
  byte_vector all;
  put_fields(all, rank);
  if (box != nullptr) {
    const auto at = all.size();
    all.resize(at + identity.size() + link_box::overhead);
    box->seal(all.data() + at, identity);
  } else {
    put_fields(all, key);
    put_bytes(all, identity.data(), identity.size());
  }
  return all;
}

std::uint32_t link_hello::claimed_rank(std::span<const std::byte> bytes) noexcept {
  return load_field<std::uint32_t>(bytes.data());
}

std::optional<link_hello> link_hello::read(std::span<const std::byte> bytes, const link_box::key& key, link_box* box) {
  if (bytes.size() != size(box != nullptr)) return std::nullopt;
  link_hello h;
  (void)take_fields(bytes, h.rank);
  std::array<std::byte, identity_bytes> identity;
  if (box != nullptr) {
    if (!box->open(identity.data(), bytes)) return std::nullopt;
    bytes = identity;
  } else {
    link_box::key said{};
    (void)take_fields(bytes, said);
    if (!are_equal(said, key)) return std::nullopt;
  }
  (void)take_fields(bytes, h.client, h.turn);
  return h;
}

}  // namespace paracel
