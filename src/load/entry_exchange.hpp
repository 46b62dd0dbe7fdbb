// SPDX-License-Identifier: BSD-3-Clause
//
// Sends entries to the workers that own them.
//
//     block   entry ...    row, column, f64 weight; a number is u64, a name u32 length and its bytes
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "load/chunked_alltoall.hpp"
#include "load/process_grid.hpp"
#include "paracel/comm.hpp"
#include "paracel/detail/adjacency.hpp"
#include "paracel/detail/bytes.hpp"
#include "paracel/interner.hpp"

namespace paracel {

inline void append_id(byte_vector& to, std::uint64_t id) { put_bytes(to, id); }
inline void append_id(byte_vector& to, std::string_view id) {
  put_bytes(to, static_cast<std::uint32_t>(id.size()));
  put_bytes(to, id.data(), id.size());
}

/// Inverses of these.
inline void read_id(byte_reader& from, std::uint64_t& id) { id = from.get<std::uint64_t>(); }
inline void read_id(byte_reader& from, std::string_view& id) {
  const auto length = from.get<std::uint32_t>();
  id = {reinterpret_cast<const char*>(from.take(length)), length};
}

template <class Id>
using id_view = std::conditional_t<std::is_same_v<Id, std::string>, std::string_view, std::uint64_t>;

/// Every worker puts its entries and calls finish.
/// Thread-safety: none. Blocks: any put may be a collective.
template <class Id>
class entry_exchange {
 public:
  // Large enough that the round trips do not matter, small compared with what is loaded.
  static constexpr std::size_t round_bytes = std::size_t{8} << 20;

  /// `rows` and `columns` may be the same.
  entry_exchange(Comm comm, process_grid grid, interner<Id>& rows, interner<Id>& columns,
                 std::size_t bytes_a_round = round_bytes)
      : comm_(std::move(comm)),
        grid_(grid),
        rows_(&rows),
        columns_(&columns),
        limit_(bytes_a_round),
        got_(comm_.get_size()),
        blocks_(comm_.get_size()) {}
  entry_exchange(const entry_exchange&) = delete;
  entry_exchange& operator=(const entry_exchange&) = delete;

  void put(id_view<Id> row, id_view<Id> column, double weight) {
    const auto owner = got_.size() == 1 ? 0 : grid_.owner(row, column);
    if (owner == comm_.get_rank()) {
      take(got_[owner], row, column, weight);
      return;
    }
    auto& block = blocks_[owner];
    const auto before = block.size();
    append_id(block, row);
    append_id(block, column);
    put_bytes(block, weight);
    waiting_ += block.size() - before;
    if (waiting_ >= limit_) (void)round(true);
  }

  /// This worker has put all its entries. Returns those that it owns, the ones read by rank 0 first.
  edge_buffer finish() {
    if (got_.size() > 1) {
      while (round(false)) {
      }
    }
    edge_buffer all;
    for (auto& part : got_) {
      if (all.empty()) {
        all = std::move(part);
      } else {
        all.reserve(all.size() + part.size());
        for (std::size_t k = 0; k < part.size(); ++k) all.add(part.from[k], part.to[k], part.weight_at(k));
      }
      part = {};
    }
    return all;
  }

 private:
  void take(edge_buffer& to, id_view<Id> row, id_view<Id> column, double weight) {
    const auto r = rows_->intern(row);
    to.add(r, columns_->intern(column), weight);
  }
  /// Whether any worker needs another round.
  bool round(bool more) {
    waiting_ = 0;
    return exchange_round(comm_, blocks_, more, [&](std::size_t w, std::span<const std::byte> bytes) {
      byte_reader in(bytes);
      while (!in.empty()) {
        id_view<Id> row{};
        id_view<Id> column{};
        read_id(in, row);
        read_id(in, column);
        take(got_[w], row, column, in.get<double>());
      }
    });
  }

  Comm comm_;
  process_grid grid_;
  interner<Id>* rows_;
  interner<Id>* columns_;
  std::size_t limit_;
  std::vector<edge_buffer> got_;  // by the worker that read them: entries are in file order
  std::vector<byte_vector> blocks_;
  std::size_t waiting_ = 0;
};

/// Sorted, unique ids of all workers for which `with(rank)` holds (it must be symmetric).
/// Blocks: a collective of all workers, in rounds in which a worker sends at most `bytes_a_round`.
template <class Id, class With>
std::vector<Id> union_of_ids(Comm comm, std::vector<Id> ids, const With& with,
                             std::size_t bytes_a_round = entry_exchange<Id>::round_bytes) {
  std::vector<std::size_t> others;
  for (std::size_t r = 0; r < comm.get_size(); ++r)
    if (r != comm.get_rank() && with(r)) others.push_back(r);
  if (comm.get_size() > 1) {
    const auto own = ids.size();
    std::size_t next = 0;
    const auto most = bytes_a_round / std::max<std::size_t>(others.size(), 1);
    std::vector<byte_vector> blocks(comm.get_size());
    for (bool again = true; again;) {
      byte_vector block;
      while (!others.empty() && next < own && block.size() < most) append_id(block, ids[next++]);
      for (const auto r : others) blocks[r] = block;
      const bool more = !others.empty() && next < own;
      again = exchange_round(comm, blocks, more, [&](std::size_t, std::span<const std::byte> bytes) {
        byte_reader in(bytes);
        while (!in.empty()) {
          id_view<Id> id{};
          read_id(in, id);
          ids.emplace_back(id);
        }
      });
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace paracel
