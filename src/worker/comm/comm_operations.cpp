// SPDX-License-Identifier: BSD-3-Clause
#include "worker/comm/comm_operations.hpp"

#include "core/trace.hpp"
#include "worker/comm/peer_collectives.hpp"

namespace paracel::comm_operations {

namespace {

peer_collectives among_peers(comm_backend& over, logged_collectives* log = nullptr) {
  return {over, {}, log, peer_collectives::own_tag};
}

class wait_in_barrier {
 public:
  explicit wait_in_barrier(comm_backend& over) : over_(over), accepts_commands_(over_.in_barrier(true)) {}
  wait_in_barrier(const wait_in_barrier&) = delete;
  wait_in_barrier& operator=(const wait_in_barrier&) = delete;
  ~wait_in_barrier() { over_.in_barrier(false); }

  [[nodiscard]] bool accepts_commands() const noexcept { return accepts_commands_; }

 private:
  comm_backend& over_;
  const bool accepts_commands_;
};

}  // namespace

/// A rank that has passed may send a command whose function calls a collective, which is refused in a barrier. Over
/// messages a rank learns that all have arrived while others still wait to learn it; so, where commands are accepted,
/// it passes only when all have stopped running them.
void barrier(comm_backend& over) {
  if (over.size() == 1) return;
  if (auto* const log = over.log()) {
    const trace::phase_scope traced(trace::phase::barrier);
    return log->barrier();
  }
  auto all = among_peers(over);
  const auto arrive = [&] {
    const wait_in_barrier now(over);
    return all.barrier("", now.accepts_commands());
  };
  if (arrive()) (void)all.barrier("");
}

void bcast(comm_backend& over, byte_vector& data, std::size_t root) {
  if (over.size() == 1) return;
  if (auto* const log = over.log()) {
    const trace::phase_scope traced(trace::phase::broadcast, 0, data.size());
    return log->bcast(data, root);
  }
  among_peers(over).broadcast(value_tag::packed, data, root, "", [&](std::size_t bytes) {
    data.resize(bytes);
    return std::span(data);
  });
}

/// A long vector goes through the log in blocks, after a step in which all ranks have compared its length.
void allreduce(comm_backend& over, value_tag element, std::span<std::byte> data, reduce_op op) {
  if (over.size() == 1) return;
  auto* const log = over.log();
  if (log != nullptr && data.size() <= peer_collectives::logged_block_bytes) {
    const trace::phase_scope traced(trace::phase::all_reduce, 0, data.size());
    return log->allreduce(element, data, op);
  }
  among_peers(over, log).all_reduce({element, op, {}}, data, "");
}

std::vector<byte_vector> allgather(comm_backend& over, std::span<const std::byte> mine) {
  if (over.size() == 1) return {byte_vector(mine.begin(), mine.end())};
  if (auto* const log = over.log()) {
    const trace::phase_scope traced(trace::phase::all_gather, 0, mine.size());
    return log->allgather(mine);
  }
  std::vector<byte_vector> parts(over.size());
  among_peers(over).all_gather(value_tag::packed, mine, "", [&](const std::vector<std::size_t>& bytes) {
    peer_collectives::places to;
    for (std::size_t r = 0; r < parts.size(); ++r) {
      parts[r].resize(bytes[r]);
      to.emplace_back(parts[r]);
    }
    return to;
  });
  return parts;
}

std::vector<byte_vector> alltoall(comm_backend& over, const std::vector<byte_vector>& blocks) {
  if (over.size() == 1) return blocks;
  if (auto* const log = over.log()) {
    const trace::phase_scope traced(trace::phase::all_to_all);
    return log->alltoall(blocks);
  }
  std::vector<byte_vector> got(over.size());
  const std::vector<std::span<const std::byte>> out(blocks.begin(), blocks.end());
  among_peers(over).all_to_all(value_tag::packed, out, "", [&](std::size_t r, std::size_t bytes) {
    got[r].resize(bytes);
    return std::span(got[r]);
  });
  return got;
}

}  // namespace paracel::comm_operations
