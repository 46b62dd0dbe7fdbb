// SPDX-License-Identifier: BSD-3-Clause
//
// Collective operations and messages among the workers of a job. Messages go from worker to worker, under mpirun by
// MPI. Collectives use memory that the workers of one host share, or messages (collectives.hpp has their costs); in
// jobs that survive workers' deaths (--on-worker-death) the scheduler carries them out. Every worker must call the same
// ones in the same order; a difference is the same error on each. All fold in rank order, so results are bit-identical
// from run to run, and the same in all three ways.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/detail/bytes.hpp>
#include <paracel/detail/messages.hpp>
#include <paracel/detail/value.hpp>
#include <paracel/error.hpp>
#include <paracel/types.hpp>

/// Open MPI's communicator, declared here so that this header does not need mpi.h.
struct ompi_communicator_t;

namespace paracel {

class session;
class comm_backend;

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

  [[nodiscard]] std::size_t get_rank() const;
  [[nodiscard]] std::size_t get_size() const;

  /// A barrier. Commands that arrive while this worker waits run at once (paralg::paracel_on_command).
  void synchronize();
  void sync() { synchronize(); }

  /// Broadcasts root's value. T: any type that has an encoding. Cost: O(bytes) a worker.
  template <class T>
  void bcast(T& data, std::size_t root = 0) {
    byte_vector bytes;
    if (get_rank() == root) bytes = pack(data);
    bcast_bytes(bytes, root);
    if (get_rank() != root) unpack(bytes, data);
  }

  /// 0.3's form: the first `count` elements of a container. Throws: error when it has fewer.
  template <class T>
  void bcast(T& data, int count, int root) {
    T part(data.begin(), data.begin() + checked_count(data, count, "bcast"));
    bcast(part, static_cast<std::size_t>(root));
    data.resize(std::max(data.size(), part.size()));
    std::copy(part.begin(), part.end(), data.begin());
  }

  /// Element-wise over the workers, in place. T: a number or a std::vector of numbers (bool excluded).
  /// Unsigned and small integers are sent as 64-bit. Cost: O(bytes) a worker.
  template <class T>
  void allreduce(T& data, reduce_op op = reduce_op::sum) {
    if constexpr (raw_number<T>) {
      allreduce_bytes(tag_of<T>(), std::as_writable_bytes(std::span<T>(&data, 1)), op);
    } else if constexpr (std::is_integral_v<T>) {
      auto wide = static_cast<std::int64_t>(data);
      allreduce(wide, op);
      data = static_cast<T>(wide);
    } else {
      using E = typename T::value_type;
      if constexpr (raw_number<E>) {
        allreduce_bytes(tag_of<E>(), std::as_writable_bytes(std::span<E>(data)), op);
      } else {
        std::vector<std::int64_t> wide(data.begin(), data.end());
        allreduce(wide, op);
        for (std::size_t i = 0; i < wide.size(); ++i) data[i] = static_cast<E>(wide[i]);
      }
    }
  }

  /// 0.3's form: the first `count` elements of a container. Throws: error when it has fewer.
  template <class T>
  void allreduce(T& data, int count) {
    T part(data.begin(), data.begin() + checked_count(data, count, "allreduce"));
    allreduce(part);
    std::copy(part.begin(), part.end(), data.begin());
  }

  /// All-gather: every worker gets every worker's value, in rank order.
  template <class T>
  std::vector<T> allgather(const T& mine) {
    const auto bytes = pack(mine);
    const auto all = allgather_bytes(bytes);
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
    std::vector<byte_vector> blocks;
    blocks.reserve(sbuf.size());
    for (const auto& item : sbuf) blocks.push_back(pack(item));
    const auto got = alltoall_bytes(blocks);
    rbuf.resize(got.size());
    for (std::size_t r = 0; r < got.size(); ++r) unpack(got[r], rbuf[r]);
  }

  /// The same with raw bytes.
  std::vector<byte_vector> alltoall_bytes(const std::vector<byte_vector>& blocks);

  // ---- messages: to one rank, with a tag of 0 or more
  //
  // A message is one value of any type that has an encoding, and is received as that type: a value of another type, or
  // a container of a length other than `count`, is an error; nothing is received in part. Tags and any_source, any_tag
  // are as in MPI: messages from one rank with one tag are received in the order in which they were sent.
  // Throws: network_error that names the rank which is gone, or silent for longer than set_deadline; job_error;
  // type_error and error that name sender and tag, when the message is not what was asked for (it is then lost).

  /// Copies the value. Blocks: only when 256 MiB are in flight to that rank, until it receives or sends something.
  template <class T>
  void send(const T& data, int dest, int tag) {
    send_bytes(destination(dest, tag), pack(data), true);
  }
  /// The first `count` elements of a container.
  template <class T>
  void send(const T& data, int count, int dest, int tag) {
    send(T(data.begin(), data.begin() + checked_count(data, count, "send")), dest, tag);
  }
  /// As send, but never blocks: what cannot be sent yet is buffered here.
  template <class T>
  vrequest isend(const T& data, int dest, int tag) {
    send_bytes(destination(dest, tag), pack(data), false);
    return vrequest::completed();
  }
  template <class T>
  vrequest isend(const T& data, int count, int dest, int tag) {
    return isend(T(data.begin(), data.begin() + checked_count(data, count, "isend")), dest, tag);
  }
  /// Blocks: until the message has arrived.
  template <class T>
  recv_status recv(T& data, int src, int tag) {
    posted pending(*this, source(src, tag));
    return unpack(received(pending, src, tag), data);
  }
  /// Into the first `count` elements of a container. Throws: error when the message has another length.
  template <class T>
  recv_status recv(T& data, int count, int src, int tag) {
    T part{};
    const auto status = recv(part, src, tag);
    if (count < 0 || part.size() != static_cast<std::size_t>(count))
      throw error(name_of(status) + " has " + std::to_string(part.size()) + " elements, want " + std::to_string(count));
    data.resize(std::max(data.size(), part.size()));
    std::copy(part.begin(), part.end(), data.begin());
    return status;
  }
  /// The value is written by the vrequest's `wait` or `test`. Lifetime: `data` must live until then.
  template <class T>
  vrequest irecv(T& data, int src, int tag) {
    auto pending = std::make_shared<posted>(*this, source(src, tag));
    return vrequest([self = *this, pending, &data, src, tag](bool wait) {
      if (wait) {
        unpack(self.received(*pending, src, tag), data);
        return true;
      }
      const auto message = pending->take(std::chrono::milliseconds{0});
      if (!message) return false;
      unpack(*message, data);
      return true;
    });
  }
  /// Sends to rank `sto` and receives from rank `rfrom`. Does not deadlock when all ranks call it.
  template <class T>
  void sendrecv(const T& sdata, T& rdata, int sto, int stag, int rfrom, int rtag) {
    auto sent = isend(sdata, sto, stag);
    recv(rdata, rfrom, rtag);
    sent.wait();
  }
  void wait(vrequest& request) { request.wait(); }
  /// An MPI_Request; after including <mpi.h> and the compat headers.
  template <class Request>
  void wait(Request& request) {
    paracel_wait_for_mpi(request);
  }
  template <class Status>
  [[nodiscard]] int get_source(const Status& status) const {
    return status.MPI_SOURCE;
  }
  /// `func(value)` with this rank's own value, then with those of the ranks after it, around a ring. A collective.
  template <class T, class F>
  void bcastring(const T& data, F&& func) {
    func(data);
    in_ring([&](int from, int to) {
      T received{};
      sendrecv(data, received, to, ring_tag, from, ring_tag);
      func(received);
    });
  }
  /// `func(block)` with the own sbuf[rank], then with the block that each other rank has for this one. `rbuf` is only
  /// resized, to the size of sbuf. A collective.
  template <class T, class F>
  void alltoallring(const T& sbuf, T& rbuf, F&& func) {
    if (sbuf.size() != get_size()) throw error("alltoallring: the send buffer must have one element for each worker");
    rbuf.resize(sbuf.size());
    func(sbuf[get_rank()]);
    in_ring([&](int from, int to) {
      typename T::value_type received{};
      sendrecv(sbuf[static_cast<std::size_t>(to)], received, to, ring_tag, from, ring_tag);
      func(received);
    });
  }

  /// A communicator of the workers that pass the same color, ranked in their order here. A collective.
  /// Cost: an all-gather. Without MPI the new one's collectives do not survive a worker's death.
  /// Throws: error for a negative color.
  [[nodiscard]] Comm split(int color) const;
  /// MPI's communicator under mpirun. Elsewhere null, which means all workers; for a subset of them it throws error.
  [[nodiscard]] ompi_communicator_t* get_comm() const;
  /// A receive, or a send that blocks, throws network_error after this long. Empty (the default): no limit. Applies to
  /// this object and its later copies.
  void set_deadline(std::optional<std::chrono::milliseconds> limit) { deadline_ = limit; }

  [[nodiscard]] const std::optional<std::chrono::milliseconds>& deadline() const { return deadline_; }
  /// For what the framework builds on it (collectives.hpp).
  [[nodiscard]] const std::shared_ptr<comm_backend>& backend() const { return backend_; }

  /// Reports progress to the launcher, if the job has one. `json`: the text of an object. Cost: a message to the
  /// scheduler, without waiting for a reply.
  void report(const std::string& json) const;
  /// The same communicator, attached to a job.
  [[nodiscard]] Comm within(std::shared_ptr<session> job) const {
    Comm c(backend_, std::move(job));
    c.deadline_ = deadline_;
    return c;
  }

  /// The job this communicator belongs to; null for a standalone one.
  [[nodiscard]] const std::shared_ptr<session>& job() const { return session_; }

 private:
  static constexpr int ring_tag = 2014;

  /// A posted receive, given up if its message is never taken.
  class posted {
   public:
    posted(const Comm& comm, const message_address& from);
    posted(const posted&) = delete;
    posted& operator=(const posted&) = delete;
    ~posted() { give_up(); }
    /// Nothing when it has not arrived within `limit`.
    [[nodiscard]] std::optional<received_message> take(std::optional<std::chrono::milliseconds> limit);
    void give_up() noexcept;

   private:
    std::shared_ptr<comm_backend> backend_;
    std::uint64_t ticket_;
    bool open_ = true;
  };

  void check_root(std::size_t root) const;
  void bcast_bytes(byte_vector& data, std::size_t root) const;
  void allreduce_bytes(value_tag element, std::span<std::byte> data, reduce_op op) const;
  [[nodiscard]] std::vector<byte_vector> allgather_bytes(std::span<const std::byte> mine) const;
  void send_bytes(const message_address& to, byte_vector bytes, bool waits) const;

  [[nodiscard]] message_address destination(int dest, int tag) const {
    if (dest < 0 || static_cast<std::size_t>(dest) >= get_size())
      throw error("a message to rank " + std::to_string(dest) + ": want one from 0 to " +
                  std::to_string(get_size() - 1));
    if (tag < 0) throw error("a message with tag " + std::to_string(tag) + ": want 0 or more");
    return {dest, tag, 0};
  }
  [[nodiscard]] message_address source(int src, int tag) const {
    if (src != any_source && (src < 0 || static_cast<std::size_t>(src) >= get_size()))
      throw error("a message from rank " + std::to_string(src) + ": want one from 0 to " +
                  std::to_string(get_size() - 1) + ", or any_source");
    if (tag < 0 && tag != any_tag) throw error("a message with tag " + std::to_string(tag) + ": want 0 or more");
    return {src, tag, 0};
  }
  [[nodiscard]] received_message received(posted& pending, int src, int tag) const;
  static std::string name_of(const recv_status& s) {
    return "the message from worker " + std::to_string(s.MPI_SOURCE) + " with tag " + std::to_string(s.MPI_TAG);
  }
  template <class T>
  static recv_status unpack(const received_message& message, T& data) {
    const recv_status status{message.from.rank, message.from.tag};
    try {
      unpack(message.bytes, data);
    } catch (const type_error& e) {
      throw type_error(name_of(status) + ": " + e.what());
    }
    return status;
  }
  template <class F>
  void in_ring(F&& exchange) const {
    const auto n = static_cast<int>(get_size());
    const auto rank = static_cast<int>(get_rank());
    for (int i = 1; i < n; ++i) exchange((rank + i) % n, (rank + n - i) % n);
  }
  template <class T>
  static std::ptrdiff_t checked_count(const T& data, int count, const char* what) {
    if (count < 0 || static_cast<std::size_t>(count) > data.size())
      throw error(std::string(what) + " of " + std::to_string(count) + " elements of " + std::to_string(data.size()));
    return count;
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
  std::optional<std::chrono::milliseconds> deadline_;
};

}  // namespace paracel
