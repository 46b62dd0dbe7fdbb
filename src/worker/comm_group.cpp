// SPDX-License-Identifier: BSD-3-Clause
#include "worker/comm_group.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include <paracel/bytes.hpp>

#include "core/hash.hpp"
#include "core/reduction.hpp"

namespace paracel {

namespace {

constexpr int collective_tag = 0;

}  // namespace

std::shared_ptr<comm_backend> comm_group::of_color(const std::shared_ptr<comm_backend>& all, comm_backend& from,
                                                   std::uint64_t id, std::uint64_t splits, int color,
                                                   const std::vector<std::size_t>& members) {
  const std::array mine{color};
  const auto colors = from.allgather(std::as_bytes(std::span(mine)));
  std::vector<std::size_t> same;
  std::size_t own = 0;
  for (std::size_t r = 0; r < colors.size(); ++r) {
    if (colors[r].size() != sizeof color) throw protocol_error("split: rank " + std::to_string(r) + " did not split");
    if (load_field<int>(colors[r].data()) != color) continue;
    if (r == from.rank()) own = same.size();
    same.push_back(members.empty() ? r : members[r]);
  }
  // All members compute the same, and two communicators of a process never have the same three numbers.
  byte_vector name;
  put_fields(name, id, splits, color);
  const auto number = hash_key(std::string_view(reinterpret_cast<const char*>(name.data()), name.size())) |
                      1U;  // odd: the next is its collectives'
  return std::make_shared<comm_group>(all, std::move(same), own, number);
}

std::shared_ptr<comm_backend> comm_group::split(int color) {
  return of_color(all_, *this, id_, splits_++, color, members_);
}

void comm_group::give(std::size_t to, std::span<const std::byte> bytes) {
  all_->send({static_cast<int>(members_[to]), collective_tag, id_ + 1}, byte_vector(bytes.begin(), bytes.end()), false,
             {});
}

byte_vector comm_group::get(std::size_t from) {
  const auto t = all_->post({static_cast<int>(members_[from]), collective_tag, id_ + 1});
  return std::move(all_->take(t, {})->bytes);
}

void comm_group::barrier() { (void)allgather({}); }

void comm_group::bcast(byte_vector& data, std::size_t root) {
  if (own_ != root) {
    data = get(root);
    return;
  }
  for (std::size_t r = 0; r < size(); ++r)
    if (r != root) give(r, data);
}

void comm_group::allreduce(value_tag element, std::span<std::byte> data, reduce_op op) {
  byte_vector result;
  if (own_ == 0) {
    result.assign(data.begin(), data.end());
    std::string wrong;
    for (std::size_t r = 1; r < size(); ++r) {
      const auto part = get(r);
      if (part.size() != data.size()) wrong = std::to_string(r);
      else fold(element, result, part, op);
    }
    if (!wrong.empty()) result.resize(data.size() + 1);  // a length that no rank accepts
  } else {
    give(0, data);
  }
  bcast(result, 0);
  if (result.size() != data.size()) throw error("allreduce: the ranks disagree on the length");
  std::ranges::copy(result, data.begin());
}

std::vector<byte_vector> comm_group::allgather(std::span<const std::byte> mine) {
  byte_vector all;
  const auto add = [&](std::span<const std::byte> part) {
    put_fields(all, std::uint64_t{part.size()});
    all.insert(all.end(), part.begin(), part.end());
  };
  if (own_ == 0) {
    add(mine);
    for (std::size_t r = 1; r < size(); ++r) add(get(r));
  } else {
    give(0, mine);
  }
  bcast(all, 0);
  std::vector<byte_vector> parts;
  byte_reader rest(all);
  for (std::size_t r = 0; r < size(); ++r) {
    const auto n = rest.get<std::uint64_t>();
    const auto* bytes = rest.take(n);
    parts.emplace_back(bytes, bytes + n);
  }
  return parts;
}

std::vector<byte_vector> comm_group::alltoall(const std::vector<byte_vector>& blocks) {
  for (std::size_t r = 0; r < size(); ++r)
    if (r != own_) give(r, blocks[r]);
  std::vector<byte_vector> got(size());
  for (std::size_t r = 0; r < size(); ++r) got[r] = r == own_ ? blocks[r] : get(r);
  return got;
}

void comm_group::send(const message_address& to, byte_vector bytes, bool waits, patience limit) {
  const auto rank = static_cast<int>(members_[static_cast<std::size_t>(to.rank)]);
  all_->send({rank, to.tag, id_}, std::move(bytes), waits, limit);
}

comm_backend::ticket comm_group::post(const message_address& from) {
  const auto rank =
      from.rank == any_source ? any_source : static_cast<int>(members_[static_cast<std::size_t>(from.rank)]);
  return all_->post({rank, from.tag, id_});
}

std::optional<received_message> comm_group::take(ticket t, patience limit) {
  auto message = all_->take(t, limit);
  if (message) {
    const auto at = std::ranges::find(members_, static_cast<std::size_t>(message->from.rank));
    message->from.rank = static_cast<int>(at - members_.begin());
  }
  return message;
}

}  // namespace paracel
