// SPDX-License-Identifier: BSD-3-Clause
#include "client/routing_table.hpp"

#include <algorithm>
#include <utility>

#include "core/check.hpp"

namespace paracel {

routing_table::routing_table(client_context& shared, membership members)
    : shared_(shared), members_(std::move(members)), router_(members_) {
  for (const auto& s : members_.servers) clients_.push_back(std::make_unique<kvclt>(shared_, s));
  number_channels();
}

void routing_table::number_channels() {
  shared_.epoch = members_.epoch;
  first_channel_.clear();
  ends_.clear();
  PARACEL_CHECK(clients_.size() == members_.servers.size());
  for (const auto& c : clients_) {
    PARACEL_CHECK(!c->serves() || c->shards() > 0);
    first_channel_.push_back(channels());
    for (std::uint32_t t = 0; t < c->threads(); ++t) ends_.push_back({c.get(), t});
  }
}

std::optional<std::uint32_t> routing_table::find(std::uint32_t slot, std::uint64_t incarnation,
                                                 std::uint32_t thread) const noexcept {
  for (std::uint32_t server = 0; server < servers(); ++server)
    if (clients_[server]->is_of(slot, incarnation) && clients_[server]->serves()) return channel_of(server, thread);
  return std::nullopt;
}

std::uint32_t routing_table::channel_behind(int connection) const noexcept {
  const auto found = std::ranges::find_if(ends_, [&](const end& e) { return e.client->owns(e.thread, connection); });
  return static_cast<std::uint32_t>(found - ends_.begin());
}

std::vector<std::uint32_t> routing_table::apply(const membership& fresh) {
  members_ = fresh;
  router_ = key_router(members_);
  auto before = std::exchange(clients_, {});
  std::vector<std::uint32_t> strangers;
  for (const auto& s : members_.servers) {
    const auto known =
        std::ranges::find_if(before, [&](const auto& c) { return c != nullptr && c->is_of(s.slot, s.incarnation); });
    if (takes_part(s.state) && known != before.end()) {
      clients_.push_back(std::move(*known));
      clients_.back()->set_serves(true);
      continue;
    }
    if (takes_part(s.state)) strangers.push_back(servers());
    clients_.push_back(std::make_unique<kvclt>(shared_, s));
  }
  for (const auto& c : before)
    if (c != nullptr) c->disconnect();
  number_channels();
  return strangers;
}

}  // namespace paracel
