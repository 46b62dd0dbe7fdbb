// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/collectives.hpp>

#include <utility>

#include "worker/comm/peer_collectives.hpp"

namespace paracel {

namespace {

/// With the communicator that it uses.
struct owning_collectives {
  owning_collectives(std::shared_ptr<comm_backend> b, comm_backend::patience limit)
      : over(std::move(b)), all(*over, limit, over->log()) {}
  std::shared_ptr<comm_backend> over;
  peer_collectives all;
};

}  // namespace

collectives::collectives(const Comm& comm) : rank_(comm.get_rank()), size_(comm.get_size()) {
  auto owner = std::make_shared<owning_collectives>(comm.backend(), comm.deadline());
  impl_ = std::shared_ptr<peer_collectives>(owner, &owner->all);
}

void collectives::keep_messages() { impl_->keep_messages(); }
void collectives::barrier(std::string_view name) { impl_->barrier(name); }
void collectives::fail(const std::string& what, int status) { impl_->fail(what, status); }
bool collectives::failed() const noexcept { return impl_->failed(); }
std::chrono::nanoseconds collectives::waited() const noexcept { return impl_->waited(); }

void collectives::all_reduce_bytes(const fold_rule& how, std::span<std::byte> values, std::string_view name) {
  impl_->all_reduce(how, values, name);
}

void collectives::reduce_bytes(const fold_rule& how, std::span<std::byte> values, std::size_t root,
                               std::string_view name) {
  impl_->reduce(how, values, root, name);
}

void collectives::reduce_scatter_bytes(const fold_rule& how, std::span<std::byte> values, std::string_view name) {
  impl_->reduce_scatter(how, values, name);
}

void collectives::all_gather_bytes(value_tag element, std::span<const std::byte> mine, std::string_view name,
                                   const std::function<std::span<std::byte>(const std::vector<std::size_t>&)>& place) {
  impl_->all_gather(element, mine, name, [&](const std::vector<std::size_t>& bytes) {
    auto rest = place(bytes);
    peer_collectives::places parts;
    for (const auto b : bytes) {
      parts.push_back(rest.first(b));
      rest = rest.subspan(b);
    }
    return parts;
  });
}

void collectives::broadcast_bytes(value_tag element, std::span<const std::byte> mine, std::size_t root,
                                  std::string_view name,
                                  const std::function<std::span<std::byte>(std::size_t)>& place) {
  impl_->broadcast(element, mine, root, name, place);
}

void collectives::all_to_all_bytes(value_tag element, const std::vector<std::span<const std::byte>>& blocks,
                                   std::string_view name,
                                   const std::function<std::span<std::byte>(std::size_t, std::size_t)>& place) {
  impl_->all_to_all(element, blocks, name, place);
}

byte_vector collectives::value_bytes(const value_view& v) {
  byte_vector bytes;
  bytes.reserve(1 + v.bytes.size());
  bytes.push_back(static_cast<std::byte>(v.tag));
  bytes.insert(bytes.end(), v.bytes.begin(), v.bytes.end());
  return bytes;
}

value_view collectives::view_of(std::span<const std::byte> bytes) {
  if (bytes.empty()) throw protocol_error("an empty value of another task");
  return {static_cast<value_tag>(bytes.front()), bytes.subspan(1)};
}

void collectives::broadcast_value(byte_vector& value, std::size_t root, std::string_view name) {
  impl_->broadcast(value_tag::packed, value, root, name, [&](std::size_t bytes) {
    value.resize(bytes);
    return std::span(value);
  });
}

std::vector<byte_vector> collectives::all_gather_values(const value_view& mine, std::string_view name) {
  const auto own = value_bytes(mine);
  std::vector<byte_vector> parts(size_);
  impl_->all_gather(value_tag::packed, own, name, [&](const std::vector<std::size_t>& bytes) {
    peer_collectives::places to;
    for (std::size_t r = 0; r < bytes.size(); ++r) {
      parts[r].resize(bytes[r]);
      to.emplace_back(parts[r]);
    }
    return to;
  });
  return parts;
}

void collectives::send_value(std::size_t to, const value_view& v) { impl_->send_value(to, v); }
byte_vector collectives::receive_value(std::size_t from) { return impl_->receive_value(from); }

}  // namespace paracel
