// SPDX-License-Identifier: BSD-3-Clause
#include "worker/comm/comm_group.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include <paracel/detail/bytes.hpp>

#include "core/hash.hpp"
#include "worker/comm/comm_operations.hpp"

namespace paracel {

std::shared_ptr<comm_backend> comm_group::of_color(const std::shared_ptr<comm_backend>& all, comm_backend& from,
                                                   std::uint64_t id, std::uint64_t splits, int color,
                                                   const std::vector<std::size_t>& members) {
  const std::array mine{color};
  const auto colors = comm_operations::allgather(from, std::as_bytes(std::span(mine)));
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
                      1U;  // odd: its collectives use the next number
  return std::make_shared<comm_group>(all, std::move(same), own, number);
}

std::shared_ptr<comm_backend> comm_group::split(int color) {
  return of_color(all_, *this, id_, splits_++, color, members_);
}

shared_memory* comm_group::memory() {
  const auto* of_all = all_->memory();
  if (of_all == nullptr) return nullptr;
  memory_.allowed = of_all->allowed;
  return &memory_;
}

void comm_group::send(const message_address& to, byte_vector bytes, bool waits, patience limit) {
  const auto rank = static_cast<int>(members_[static_cast<std::size_t>(to.rank)]);
  all_->send({rank, to.tag, id_ + to.communicator}, std::move(bytes), waits, limit);
}

comm_backend::ticket comm_group::post(const message_address& from) {
  const auto rank =
      from.rank == any_source ? any_source : static_cast<int>(members_[static_cast<std::size_t>(from.rank)]);
  return all_->post({rank, from.tag, id_ + from.communicator});
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
