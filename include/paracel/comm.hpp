// SPDX-License-Identifier: BSD-3-Clause
//
// Collective operations among the workers of a job. A typed skin over an untyped backend; there are two backends: MPI
// under mpirun, and the job's scheduler for local processes. Every worker must call the same operations in the same
// order. The scheduler reduces in rank order, so its results are bit-identical from run to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/bytes.hpp>
#include <paracel/codec.hpp>
#include <paracel/error.hpp>
#include <paracel/types.hpp>
#include <paracel/value.hpp>

/// Open MPI's communicator, declared here so that this header does not need mpi.h.
struct ompi_communicator_t;

namespace paracel {

class session;

/// The collective operations of a set of workers, on bytes. Implementations: single_comm, comm_scheduler, comm_mpi.
/// Thread-safety: owned by the thread that runs the algorithm.
/// Blocks: until every rank has called, or the job ends (job_error).
class comm_backend {
 public:
  comm_backend() = default;
  comm_backend(const comm_backend&) = delete;
  comm_backend& operator=(const comm_backend&) = delete;
  virtual ~comm_backend() = default;

  [[nodiscard]] virtual std::size_t rank() const = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;
  virtual void barrier() = 0;
  /// On return every rank holds root's bytes.
  virtual void bcast(byte_vector& data, std::size_t root) = 0;
  /// Element-wise, in place, `element` being one of i32, i64, f32, f64; the same length on every rank.
  virtual void allreduce(value_tag element, std::span<std::byte> data, reduce_op op) = 0;
  virtual std::vector<byte_vector> allgather(std::span<const std::byte> mine) = 0;
  /// `blocks[r]` goes to rank r; returns what each rank sent here, in rank order.
  virtual std::vector<byte_vector> alltoall(const std::vector<byte_vector>& blocks) = 0;
};

/// A communicator, Paracel's `Comm`: cheap to copy, copies share the backend.
///
/// Thread-safety: none
/// Throws: job_error when another node was lost during the call.
class Comm {
 public:
  /// All workers of the job that `main_env` found.
  Comm();
  /// Under mpirun: that communicator. Elsewhere the argument only means "all workers": MPI is linked, never
  /// initialised.
  Comm(ompi_communicator_t* communicator);  // NOLINT(google-explicit-constructor): Paracel's signature
  explicit Comm(std::shared_ptr<comm_backend> backend, std::shared_ptr<session> of = nullptr)
      : backend_(std::move(backend)), session_(std::move(of)) {}

  [[nodiscard]] std::size_t get_rank() const { return backend_->rank(); }
  [[nodiscard]] std::size_t get_size() const { return backend_->size(); }

  /// A barrier. Cost: one round trip to the scheduler, or an MPI barrier.
  void synchronize() { backend_->barrier(); }
  void sync() { backend_->barrier(); }

  /// Broadcasts root's value. T: any type that has an encoding. Cost: O(bytes) a worker.
  template <class T>
  void bcast(T& data, std::size_t root = 0) {
    check_root(root);
    byte_vector bytes;
    if (get_rank() == root) bytes = pack(data);
    backend_->bcast(bytes, root);
    if (get_rank() != root) unpack(bytes, data);
  }

  /// Element-wise over the workers, in place. T: a number or a std::vector of numbers (bool excluded).
  /// Unsigned and small integers are sent as 64-bit. Cost: O(bytes) a worker.
  template <class T>
  void allreduce(T& data, reduce_op op = reduce_op::sum) {
    if constexpr (raw_number<T>) {
      backend_->allreduce(tag_of<T>(), std::as_writable_bytes(std::span<T>(&data, 1)), op);
    } else if constexpr (std::is_integral_v<T>) {
      auto wide = static_cast<std::int64_t>(data);
      allreduce(wide, op);
      data = static_cast<T>(wide);
    } else {
      using E = typename T::value_type;
      if constexpr (raw_number<E>) {
        backend_->allreduce(tag_of<E>(), std::as_writable_bytes(std::span<E>(data)), op);
      } else {
        std::vector<std::int64_t> wide(data.begin(), data.end());
        allreduce(wide, op);
        for (std::size_t i = 0; i < wide.size(); ++i) data[i] = static_cast<E>(wide[i]);
      }
    }
  }

  /// All-gather: every worker gets every worker's value, in rank order.
  template <class T>
  std::vector<T> allgather(const T& mine) {
    const auto bytes = pack(mine);
    const auto all = backend_->allgather(bytes);
    std::vector<T> out(all.size());
    for (std::size_t r = 0; r < all.size(); ++r) unpack(all[r], out[r]);
    return out;
  }

  /// Folds with `func(received, accumulator)` in rank order; `root` gets the result, the others a default T.
  /// Blocks: every worker must call it. Cost: every contribution is sent to every rank.
  template <class T, class F>
  T treereduce(T& data, F&& func, std::size_t root = 0) {
    check_root(root);
    auto all = allgather(data);
    if (get_rank() != root) return T{};
    T result = std::move(all.front());
    for (std::size_t r = 1; r < all.size(); ++r) func(all[r], result);
    return result;
  }

  /// `sbuf[r]` goes to rank r; `rbuf[r]` is what rank r sent here. Both have one element per rank.
  template <class T>
  void alltoall(const std::vector<T>& sbuf, std::vector<T>& rbuf) {
    if (sbuf.size() != get_size()) throw error("alltoall: the send buffer must have one element for each worker");
    std::vector<byte_vector> blocks;
    blocks.reserve(sbuf.size());
    for (const auto& item : sbuf) blocks.push_back(pack(item));
    const auto got = backend_->alltoall(blocks);
    rbuf.resize(got.size());
    for (std::size_t r = 0; r < got.size(); ++r) unpack(got[r], rbuf[r]);
  }

  /// The same with raw bytes.
  std::vector<byte_vector> alltoall_bytes(const std::vector<byte_vector>& blocks) {
    if (blocks.size() != get_size()) throw error("alltoall: the send buffer must have one element for each worker");
    return backend_->alltoall(blocks);
  }

  /// Reports progress to the launcher, if the job has one. `json`: the text of an object. Cost: a message to the
  /// scheduler, without waiting for a reply.
  void report(const std::string& json) const;
  /// The same communicator as a part of a job.
  [[nodiscard]] Comm within(std::shared_ptr<session> job) const { return Comm(backend_, std::move(job)); }

  /// The job this communicator belongs to; null for a standalone one.
  [[nodiscard]] const std::shared_ptr<session>& job() const { return session_; }

 private:
  void check_root(std::size_t root) const {
    if (root >= get_size())
      throw error("a collective has root " + std::to_string(root) + ", want less than the number of workers, " +
                  std::to_string(get_size()));
  }
  template <class T>
  static byte_vector pack(const T& data) {
    const encoded<T> e(data);
    const auto view = e.view();
    byte_vector bytes(1 + view.bytes.size());
    bytes[0] = static_cast<std::byte>(view.tag);
    if (!view.bytes.empty()) std::memcpy(bytes.data() + 1, view.bytes.data(), view.bytes.size());
    return bytes;
  }
  template <class T>
  static void unpack(const byte_vector& bytes, T& out) {
    if (bytes.empty()) throw protocol_error("collective: an empty contribution");
    decode_into(value_view{static_cast<value_tag>(bytes[0]), std::span(bytes).subspan(1)}, out);
  }

  std::shared_ptr<comm_backend> backend_;
  std::shared_ptr<session> session_;
};

}  // namespace paracel
