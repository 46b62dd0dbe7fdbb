// SPDX-License-Identifier: BSD-3-Clause
//
// Peer-to-peer collective operations among the tasks of a communicator: vectors go directly from worker to worker, and
// the scheduler only introduces them. A typed skin over src/worker/comm/peer_collectives.hpp, which folds in the same
// way in shared memory and over messages of local processes, MPI, and groups made by Comm::split, so that results are
// bit-identical on all of them. Comm's own collectives are the same operations without names, deadlines and failures.
//
//   collectives all(comm);
//   all.all_reduce(std::span(gradient));                                  // sum, in rank order
//   all.all_reduce(std::span(least), reduce_op::min);
//   all.all_reduce<double>(v, [](std::span<double> into, std::span<const double> from) { ... });
//
// Costs are of one task, p being the number of tasks, n the bytes of the vector, and a step the time of one message:
//
//   all_reduce       short: ceil(log2 p) steps, (p-1) n bytes out and in     long: 2 steps, 2 (p-1)/p n out and in
//   reduce_scatter   1 step, (p-1)/p n out and in
//   reduce           short: 1 step                                           long: 2 steps, the root gets 2 (p-1)/p n
//   all_gather       short: ceil(log2 p) steps                               long: 1 more; own bytes p-1 times out
//   broadcast        short: ceil(log2 p) steps                               long: 2 more steps, each task forwards n/p
//   all_to_all       1 step if all blocks are short, else 2
//   barrier          ceil(log2 p) steps
//
// Tasks on one host share memory (doc/com_queue.md). There every operation is a barrier. A short vector (at most 64 KiB
// with 2 tasks, otherwise 16 KiB) takes 1 step; an all_reduce of a longer one takes 1 more than it has pieces of 512
// KiB; a broadcast, all_gather or all_to_all takes as many as the longest vector (or all blocks of a task together) has
// pieces.
//
// Folds are in rank order, ((v0 op v1) op v2) ..., so results are bit-identical from run to run, and for exact
// operations for every number of tasks. A long vector is sent in pieces; in addition to it an operation uses at most 2
// chunks of memory (peer_collectives::chunk_bytes).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/comm.hpp>
#include <paracel/detail/value.hpp>
#include <paracel/types.hpp>

namespace paracel {

class peer_collectives;

/// A part of a vector: [begin, end).
struct owned_range {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
};

/// Which part of a vector of `length` elements a task owns: parts are contiguous and in rank order, and the first
/// length % tasks tasks have one element more than the others. reduce_scatter, the long all_reduce and com_queue use
/// it.
[[nodiscard]] constexpr owned_range owned_range_of(std::size_t length, std::size_t tasks, std::size_t task) noexcept {
  const auto each = length / tasks;
  const auto more = length % tasks;
  const auto begin_of = [&](std::size_t t) { return each * t + (t < more ? t : more); };
  return {begin_of(task), begin_of(task + 1)};
}

/// Folds a contribution into an accumulator of the same length. It must work element by element: it is called with
/// pieces of the vectors, in no particular order of the pieces.
template <raw_number T>
using span_fold = std::function<void(std::span<T> accumulator, std::span<const T> contribution)>;

/// Every task must call the same operations in the same order, with the same name, operation, type and, where stated,
/// length. These are compared: a mismatch is the same error on every task, which names two tasks and what each of them
/// called. What a task reports with `fail` is thrown by the others in their next operation.
///
/// `name`: what is reduced or sent, for error messages; at most 255 bytes of it are sent.
/// Thread-safety: none; on the thread of its Comm. Objects of the same communicator may be used alternately.
/// Blocks: until the other tasks have called, at most the deadline of the communicator for one message.
/// Throws: error for a failure of any task; network_error that names a task which is gone or silent; job_error.
class collectives {
 public:
  /// Copies of a Comm share its messages; later changes of its deadline have no effect.
  explicit collectives(const Comm& comm);

  [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Element-wise over the tasks, in place. Shape: the same length on every task. Sums of integers wrap around; NaN
  /// makes a maximum or minimum NaN.
  template <raw_number T>
  void all_reduce(std::span<T> values, reduce_op op = reduce_op::sum, std::string_view name = {}) {
    all_reduce_bytes({tag_of<T>(), op, {}}, std::as_writable_bytes(values), name);
  }
  template <raw_number T>
  void all_reduce(std::span<T> values, const span_fold<T>& fold, std::string_view name = {}) {
    all_reduce_bytes({tag_of<T>(), reduce_op::sum, bytes_fold<T>(fold)}, std::as_writable_bytes(values), name);
  }
  /// The same, but only rank `root` gets the result; `values` is then unspecified on the others.
  template <raw_number T>
  void reduce(std::span<T> values, std::size_t root, reduce_op op = reduce_op::sum, std::string_view name = {}) {
    reduce_bytes({tag_of<T>(), op, {}}, std::as_writable_bytes(values), root, name);
  }
  /// Folds the elements of this task's owned_range_of, in place; the rest of `values` is then unspecified.
  /// Returns: the owned part of `values`.
  template <raw_number T>
  std::span<T> reduce_scatter(std::span<T> values, reduce_op op = reduce_op::sum, std::string_view name = {}) {
    reduce_scatter_bytes({tag_of<T>(), op, {}}, std::as_writable_bytes(values), name);
    const auto own = owned_range_of(values.size(), size_, rank_);
    return values.subspan(own.begin, own.size());
  }
  template <raw_number T>
  std::span<T> reduce_scatter(std::span<T> values, const span_fold<T>& fold, std::string_view name = {}) {
    reduce_scatter_bytes({tag_of<T>(), reduce_op::sum, bytes_fold<T>(fold)}, std::as_writable_bytes(values), name);
    const auto own = owned_range_of(values.size(), size_, rank_);
    return values.subspan(own.begin, own.size());
  }
  /// The tasks' vectors, concatenated in rank order. Lengths may differ.
  template <raw_number T>
  std::vector<T> all_gather(std::span<const T> mine, std::string_view name = {}) {
    std::vector<T> all;
    all_gather_bytes(tag_of<T>(), std::as_bytes(mine), name, [&](const std::vector<std::size_t>& bytes) {
      std::size_t total = 0;
      for (const auto b : bytes) total += b;
      all.resize(total / sizeof(T));
      return std::as_writable_bytes(std::span(all));
    });
    return all;
  }
  /// The tasks' objects, in rank order. T: any type that has an encoding.
  template <class T>
  std::vector<T> all_gather_objects(const T& mine, std::string_view name = {}) {
    const encoded<T> e(mine);
    const auto parts = all_gather_values(e.view(), name);
    std::vector<T> all(parts.size());
    for (std::size_t r = 0; r < parts.size(); ++r) take_value(parts[r], all[r]);
    return all;
  }
  /// Copies root's vector to every task, whatever length it had there.
  template <raw_number T>
  void broadcast(std::vector<T>& values, std::size_t root, std::string_view name = {}) {
    broadcast_bytes(tag_of<T>(), std::as_bytes(std::span(values)), root, name, [&](std::size_t bytes) {
      values.resize(bytes / sizeof(T));
      return std::as_writable_bytes(std::span(values));
    });
  }
  /// Copies root's object to every task. T: any type that has an encoding.
  template <class T>
  void broadcast_object(T& object, std::size_t root, std::string_view name = {}) {
    byte_vector value;
    if (rank_ == root) {
      const encoded<T> e(object);
      value = value_bytes(e.view());
    }
    broadcast_value(value, root, name);
    if (rank_ != root) take_value(value, object);
  }
  /// `blocks[r]` goes to rank r. Returns: what each rank sent here, in rank order. Lengths may differ.
  template <raw_number T>
  std::vector<std::vector<T>> all_to_all(const std::vector<std::vector<T>>& blocks, std::string_view name = {}) {
    std::vector<std::span<const std::byte>> out;
    for (const auto& b : blocks) out.push_back(std::as_bytes(std::span(b)));
    std::vector<std::vector<T>> in(size_);
    all_to_all_bytes(tag_of<T>(), out, name, [&](std::size_t r, std::size_t bytes) {
      in[r].resize(bytes / sizeof(T));
      return std::as_writable_bytes(std::span(in[r]));
    });
    return in;
  }
  void barrier(std::string_view name = {});

  // ---- messages between operations: a receiving task is told of failures, too

  /// To one rank; does not block. T: any type that has an encoding. Messages from one task to another are received in
  /// the order in which they were sent, and between the same operations.
  template <class T>
  void send(std::size_t to, const T& object) {
    const encoded<T> e(object);
    send_value(to, e.view());
  }
  /// Throws: type_error when the message has another type, error when the other task called an operation instead.
  template <class T>
  [[nodiscard]] T receive(std::size_t from) {
    T object{};
    take_value(receive_value(from), object);
    return object;
  }

  // ---- failures

  /// This task cannot continue: notifies all others, and waits at most 2 seconds until they have been told. `status`:
  /// an exit_status. Throws: the same error on every task, that of the lowest rank which failed on its own.
  [[noreturn]] void fail(const std::string& what, int status);

  /// Whether one of this object's operations has ended in a failure.
  [[nodiscard]] bool failed() const noexcept;

  /// How long this task has waited in its operations for the first message of other tasks, that is, for slower ones.
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept;

  // ---- for com_queue

  /// From now on messages belong to an iteration each: where workers are replaced, they are kept for the replacement.
  void keep_messages();

  using byte_fold = std::function<void(std::span<std::byte>, std::span<const std::byte>)>;
  /// How elements of a type are folded. With an empty `fold`, `op` applies.
  struct fold_rule {
    value_tag element = value_tag::f64;
    reduce_op op = reduce_op::sum;
    byte_fold fold{};
  };
  template <raw_number T>
  static byte_fold bytes_fold(span_fold<T> fold) {
    return [fold = std::move(fold)](std::span<std::byte> into, std::span<const std::byte> from) {
      fold({reinterpret_cast<T*>(into.data()), into.size() / sizeof(T)},
           {reinterpret_cast<const T*>(from.data()), from.size() / sizeof(T)});
    };
  }
  void all_reduce_bytes(const fold_rule& how, std::span<std::byte> values, std::string_view name);
  void reduce_bytes(const fold_rule& how, std::span<std::byte> values, std::size_t root, std::string_view name);
  void reduce_scatter_bytes(const fold_rule& how, std::span<std::byte> values, std::string_view name);
  /// `place(bytes of each rank)`: where to put all of them, concatenated.
  void all_gather_bytes(value_tag element, std::span<const std::byte> mine, std::string_view name,
                        const std::function<std::span<std::byte>(const std::vector<std::size_t>&)>& place);
  /// `place(bytes)`: where to put root's; not called on root.
  void broadcast_bytes(value_tag element, std::span<const std::byte> mine, std::size_t root, std::string_view name,
                       const std::function<std::span<std::byte>(std::size_t)>& place);
  /// `place(r, bytes)`: where to put those of rank r.
  void all_to_all_bytes(value_tag element, const std::vector<std::span<const std::byte>>& blocks, std::string_view name,
                        const std::function<std::span<std::byte>(std::size_t, std::size_t)>& place);

  // A value as bytes: its tag, then its encoding.
  static byte_vector value_bytes(const value_view& v);
  static value_view view_of(std::span<const std::byte> bytes);
  void broadcast_value(byte_vector& value, std::size_t root, std::string_view name);
  std::vector<byte_vector> all_gather_values(const value_view& mine, std::string_view name);

 private:
  template <class T>
  static void take_value(const byte_vector& bytes, T& into) {
    decode_into(view_of(bytes), into);
  }
  void send_value(std::size_t to, const value_view& v);
  byte_vector receive_value(std::size_t from);

  std::shared_ptr<peer_collectives> impl_;
  std::size_t rank_ = 0;
  std::size_t size_ = 1;
};

}  // namespace paracel
