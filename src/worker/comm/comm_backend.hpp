// SPDX-License-Identifier: BSD-3-Clause
//
// What a communicator is made of. The collectives are not part of it: comm_operations.hpp builds them from messages and
// shared memory (peer_collectives), or leaves them to the scheduler's log.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <paracel/detail/messages.hpp>
#include <paracel/detail/value.hpp>
#include <paracel/error.hpp>
#include <paracel/types.hpp>

/// Open MPI's communicator, declared here so that this header does not need mpi.h.
struct ompi_communicator_t;

namespace paracel {

struct shared_memory;

/// Collectives, and messages between them, that continue after a worker's death: the scheduler carries them out and
/// logs them, so that the replacement of a worker can repeat them. It leaves out an ejected worker.
/// Blocks: until every rank has called, or the job ends (job_error).
class logged_collectives {
 public:
  logged_collectives() = default;
  logged_collectives(const logged_collectives&) = delete;
  logged_collectives& operator=(const logged_collectives&) = delete;
  virtual ~logged_collectives() = default;

  virtual void barrier() = 0;
  /// On return every rank holds root's bytes.
  virtual void bcast(byte_vector& data, std::size_t root) = 0;
  /// Element-wise, in place, `element` being one of i32, i64, f32, f64; the same length on every rank.
  virtual void allreduce(value_tag element, std::span<std::byte> data, reduce_op op) = 0;
  virtual std::vector<byte_vector> allgather(std::span<const std::byte> mine) = 0;
  /// `blocks[r]` goes to rank r; returns what each rank sent here, in rank order.
  virtual std::vector<byte_vector> alltoall(const std::vector<byte_vector>& blocks) = 0;

  /// Whether dead workers are replaced; if so, `send_kept` and `receive_kept` are available.
  [[nodiscard]] virtual bool keeps_messages() { return false; }
  /// Messages of the current iteration, which a replacement of either rank receives and sends again. Those of one
  /// sender are received in order. Does not wait for the receiver.
  virtual void send_kept(std::size_t, std::span<const std::byte>) { refuse_messages(); }
  /// A message, or (`calls`) that rank's contribution to a collective in which it waits for this one.
  struct kept_message {
    byte_vector bytes;
    bool calls = false;
  };
  [[nodiscard]] virtual kept_message receive_kept(std::size_t) { refuse_messages(); }
  /// Whether this process replaces one that died, and others may already have done their part of what it is doing: it
  /// has not yet called a collective that its predecessor had not called.
  [[nodiscard]] virtual bool takes_over() { return false; }
  /// Whether that rank neither sends nor receives any more, and no other process will take its place.
  [[nodiscard]] virtual bool is_gone(std::size_t) { return false; }

 private:
  [[noreturn]] static void refuse_messages() { throw error("this communicator keeps no messages"); }
};

/// Transfers without a copy between ranks that know the lengths.
class comm_exchanges {
 public:
  comm_exchanges() = default;
  comm_exchanges(const comm_exchanges&) = delete;
  comm_exchanges& operator=(const comm_exchanges&) = delete;
  virtual ~comm_exchanges() = default;

  /// Starts to send out[r] to each rank r and to receive in[r] from it; empty ones are skipped. Does not block.
  /// Lifetime: all memory must live until the end of the exchange.
  virtual void begin_exchange(std::span<const std::span<const std::byte>> out,
                              std::span<const std::span<std::byte>> in) = 0;
  /// Finishes the oldest exchange. Blocks: until all is sent and received, at most `limit`.
  /// Returns: nothing on success; otherwise a rank from which data is missing, or the own one if others have not
  /// received.
  [[nodiscard]] virtual std::optional<std::size_t> finish_exchange(std::optional<std::chrono::milliseconds> limit) = 0;
  /// Abandons unfinished exchanges, whose memory is about to be freed: nothing touches it afterwards.
  virtual void give_up_exchanges() noexcept {}
};

/// A rank of a set of workers and its messages to the others, on bytes. Implementations: single_comm, comm_scheduler,
/// comm_group, comm_mpi.
/// Thread-safety: owned by the thread that runs the algorithm.
class comm_backend {
 public:
  comm_backend() = default;
  comm_backend(const comm_backend&) = delete;
  comm_backend& operator=(const comm_backend&) = delete;
  virtual ~comm_backend() = default;

  [[nodiscard]] virtual std::size_t rank() const = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;

  // ---- messages; optional in a backend (error). Their `communicator` is 0, or 1 for those of collectives.
  using ticket = std::uint64_t;
  using patience = std::optional<std::chrono::milliseconds>;  ///< empty: no limit

  /// Takes ownership of the bytes. `waits`: blocks while too much is in flight to that rank; otherwise never blocks.
  /// Messages from one sender to one receiver arrive in order. Throws: network_error that names the rank which is gone,
  /// or has not received within `limit`.
  virtual void send(const message_address& to, byte_vector bytes, bool waits, patience limit);
  /// Posts a receive. A message goes to the first posted ticket that it matches.
  virtual ticket post(const message_address& from);
  virtual void give_up(ticket t) noexcept;
  /// The message of a ticket, which is then used up. Blocks: until it arrives, at most `limit`. Returns: nothing when
  /// it has not; the ticket stays valid. Throws: network_error that names the rank from which no more can arrive.
  virtual std::optional<received_message> take(ticket t, patience limit);
  /// The communicator of the ranks that pass the same color, in rank order. A collective.
  virtual std::shared_ptr<comm_backend> split(int color);
  [[nodiscard]] virtual comm_exchanges* exchanges() { return nullptr; }  ///< null, on every rank, if there are none

  // ---- collectives
  /// What carries out the collectives if the job survives a worker's death. Null (on every rank): they are built from
  /// messages, which do not.
  [[nodiscard]] virtual logged_collectives* log() { return nullptr; }
  /// Holds the memory that all ranks share for collectives, if they run on one host. Null (on every rank): they never
  /// share memory. Throws: error in a command's function that runs while this worker waits in a barrier.
  [[nodiscard]] virtual shared_memory* memory() { return nullptr; }
  /// How often a rank that waits in that memory calls `attend`.
  [[nodiscard]] virtual std::chrono::microseconds attends_every() const { return std::chrono::milliseconds{100}; }
  /// Processes what has arrived; `doubts`: also checks that the rank is alive. Throws: network_error that names it when
  /// it is gone; job_error.
  virtual void attend(std::size_t rank, bool doubts);
  /// A barrier of Comm begins or has ended: between the two, `take` and `attend` may run commands. Returns: whether
  /// this worker accepts any.
  virtual bool in_barrier(bool /*begins*/) { return false; }

  /// MPI's communicator; without MPI null, which means all workers. Throws: error without MPI for a subset of them.
  [[nodiscard]] virtual ompi_communicator_t* communicator() const { return nullptr; }
};

}  // namespace paracel
