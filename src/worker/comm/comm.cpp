// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/comm.hpp>

#include <string>
#include <utility>

#include "worker/comm/comm_backend.hpp"
#include "worker/comm/comm_operations.hpp"

namespace paracel {

std::size_t Comm::get_rank() const { return backend_->rank(); }
std::size_t Comm::get_size() const { return backend_->size(); }

// ---- collectives

void Comm::synchronize() { comm_operations::barrier(*backend_); }

void Comm::bcast_bytes(byte_vector& data, std::size_t root) const {
  check_root(root);
  comm_operations::bcast(*backend_, data, root);
}

void Comm::allreduce_bytes(value_tag element, std::span<std::byte> data, reduce_op op) const {
  comm_operations::allreduce(*backend_, element, data, op);
}

std::vector<byte_vector> Comm::allgather_bytes(std::span<const std::byte> mine) const {
  return comm_operations::allgather(*backend_, mine);
}

std::vector<byte_vector> Comm::alltoall_bytes(const std::vector<byte_vector>& blocks) {
  if (blocks.size() != get_size()) throw error("alltoall: the send buffer must have one element for each worker");
  return comm_operations::alltoall(*backend_, blocks);
}

void Comm::check_root(std::size_t root) const {
  if (root >= get_size())
    throw error("a collective has root " + std::to_string(root) + ", want less than the number of workers, " +
                std::to_string(get_size()));
}

Comm Comm::split(int color) const {
  if (color < 0) throw error("split: the color is " + std::to_string(color) + ", want 0 or more");
  Comm part(backend_->split(color), session_);
  part.deadline_ = deadline_;
  return part;
}

ompi_communicator_t* Comm::get_comm() const { return backend_->communicator(); }

// ---- messages

Comm::posted::posted(const Comm& comm, const message_address& from)
    : backend_(comm.backend_), ticket_(backend_->post(from)) {}

std::optional<received_message> Comm::posted::take(std::optional<std::chrono::milliseconds> limit) {
  auto message = backend_->take(ticket_, limit);
  if (message) open_ = false;
  return message;
}

void Comm::posted::give_up() noexcept {
  if (std::exchange(open_, false)) backend_->give_up(ticket_);
}

received_message Comm::received(posted& pending, int src, int tag) const {
  if (auto message = pending.take(deadline_)) return std::move(*message);
  pending.give_up();  // the next receive gets a message that arrives from now on
  throw network_error("no message from " + (src == any_source ? "any worker" : "worker " + std::to_string(src)) +
                          (tag == any_tag ? "" : " with tag " + std::to_string(tag)) + " for " +
                          std::to_string(deadline_->count()) + " ms",
                      false);
}

void Comm::send_bytes(const message_address& to, byte_vector bytes, bool waits) const {
  backend_->send(to, std::move(bytes), waits, deadline_);
}

}  // namespace paracel
