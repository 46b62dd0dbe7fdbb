// SPDX-License-Identifier: BSD-3-Clause
#include "test/sim/replica_check.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/store/partition_records.hpp"
#include "test/sim/history.hpp"

namespace paracel::sim {

namespace {

/// The records without those of applied requests, which the head drops slightly earlier when it is read.
std::vector<std::byte> without_memory(std::span<const std::byte> state) {
  std::vector<std::byte> out;
  srv::records cursor(state);
  for (srv::record r; cursor.next(r);)
    if (r.kind != srv::record_kind::applied) srv::append(out, r);
  return out;
}

}  // namespace

void compare_replicas(const std::map<std::uint64_t, server_process*>& servers,
                      const std::set<std::uint16_t>& partitions, std::uint32_t replicas, std::uint32_t threads) {
  std::shared_ptr<const srv::replica_view> view;
  for (const auto& [incarnation, s] : servers) {
    const auto v = s->object().replicas();
    if (v != nullptr && (view == nullptr || v->members.epoch > view->members.epoch)) view = v;
  }
  if (view == nullptr) wrong("nobody knows a membership");
  for (const auto partition : partitions) {
    std::vector<std::byte> head;
    const auto chain = view->router.chain(partition);
    if (chain.size() < replicas) wrong("partition " + std::to_string(partition) + " lacks replicas");
    for (std::size_t i = 0; i < chain.size(); ++i) {
      const auto at = servers.find(view->members.servers[chain[i]].incarnation);
      if (at == servers.end()) wrong("a copy is to be with a server that is not there");
      std::vector<std::byte> state;
      at->second->object().at(shard_of(partition, threads)).encode_partition(partition, state);
      state = without_memory(state);
      if (i == 0) head = state;
      else if (state != head) wrong("the replicas of partition " + std::to_string(partition) + " differ");
    }
  }
  std::vector<std::byte> head;
  for (const auto member : view->router.chain(clock_partition)) {
    const auto state = servers.at(view->members.servers[member].incarnation)->object().clock().encode();
    if (head.empty()) head = state;
    else if (state != head) wrong("the replicas of the clock differ");
  }
}

}  // namespace paracel::sim
