// SPDX-License-Identifier: BSD-3-Clause
//
// Collective operations and messages among the workers of a job. A typed skin over an untyped backend; there are two
// backends: MPI under mpirun, and for local processes the job's scheduler (collectives) and channels between the
// workers (messages). Every worker must call the same collectives in the same order. The scheduler reduces in rank
// order, so its results are bit-identical from run to run.
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

#include <paracel/bytes.hpp>
#include <paracel/codec.hpp>
#include <paracel/error.hpp>
#include <paracel/messages.hpp>
#include <paracel/types.hpp>
#include <paracel/value.hpp>

/// Open MPI's communicator, declared here so that this header does not need mpi.h.
struct ompi_communicator_t;

namespace paracel {

class session;
struct shared_memory;

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
  /// Whether its own collectives continue after a worker's death, unlike messages (session::survives_deaths).
  [[nodiscard]] virtual bool survives_deaths() { return false; }
  /// Whether dead workers are replaced; if so, `send_kept` and `receive_kept` are available.
  [[nodiscard]] virtual bool keeps_messages() { return false; }
  /// Messages of the current iteration, which a replacement of either rank receives and sends again. Those of one
  /// sender are received in order. Does not wait for the receiver.
  virtual void send_kept(std::size_t to, std::span<const std::byte> bytes);
  /// A message, or (`calls`) that rank's contribution to a collective in which it waits for this one.
  struct kept_message {
    byte_vector bytes;
    bool calls = false;
  };
  [[nodiscard]] virtual kept_message receive_kept(std::size_t from);
  /// Whether this process replaces one that died, and others may already have done their part of what it is doing: it
  /// has not yet called a collective that its predecessor had not called.
  [[nodiscard]] virtual bool takes_over() { return false; }
  /// Whether that rank neither sends nor receives any more, and no other process will take its place.
  [[nodiscard]] virtual bool is_gone(std::size_t rank);

  // ---- exchanges: transfers without a copy between ranks that know the lengths
  /// Whether they are supported; the same on every rank.
  [[nodiscard]] virtual bool has_exchanges() const { return false; }
  /// Starts to send out[r] to each rank r and to receive in[r] from it; empty ones are skipped. Does not block.
  /// Lifetime: all memory must live until the end of the exchange.
  virtual void begin_exchange(std::span<const std::span<const std::byte>> out,
                              std::span<const std::span<std::byte>> in);
  /// Finishes the oldest exchange. Blocks: until all is sent and received, at most `limit`.
  /// Returns: nothing on success; otherwise a rank from which data is missing, or the own one if others have not
  /// received.
  [[nodiscard]] virtual std::optional<std::size_t> finish_exchange(patience limit);
  /// Abandons unfinished exchanges, whose memory is about to be freed: nothing touches it afterwards.
  virtual void give_up_exchanges() noexcept {}

  /// Holds the memory that all ranks share for collectives, if they run on one host. Null (on every rank): they never
  /// share memory.
  [[nodiscard]] virtual shared_memory* memory() { return nullptr; }
  /// How often a rank that waits in that memory calls `attend`.
  [[nodiscard]] virtual std::chrono::microseconds attends_every() const { return std::chrono::milliseconds{100}; }
  /// Processes what has arrived; `doubts`: also checks that the rank is alive. Throws: network_error that names it when
  /// it is gone; job_error.
  virtual void attend(std::size_t rank, bool doubts);
  /// MPI's communicator; without MPI null, which means all workers. Throws: error without MPI for a subset of them.
  [[nodiscard]] virtual ompi_communicator_t* communicator() const { return nullptr; }
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

  /// A barrier. Cost: one round trip to the scheduler; under mpirun as collectives::barrier.
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
    backend_->send(destination(dest, tag), pack(data), true, deadline_);
  }
  /// The first `count` elements of a container.
  template <class T>
  void send(const T& data, int count, int dest, int tag) {
    send(T(data.begin(), data.begin() + checked_count(data, count, "send")), dest, tag);
  }
  /// As send, but never blocks: what cannot be sent yet is buffered here.
  template <class T>
  vrequest isend(const T& data, int dest, int tag) {
    backend_->send(destination(dest, tag), pack(data), false, deadline_);
    return vrequest::completed();
  }
  template <class T>
  vrequest isend(const T& data, int count, int dest, int tag) {
    return isend(T(data.begin(), data.begin() + checked_count(data, count, "isend")), dest, tag);
  }
  /// Blocks: until the message has arrived.
  template <class T>
  recv_status recv(T& data, int src, int tag) {
    const auto ticket = backend_->post(source(src, tag));
    return unpack(received(ticket, src, tag), data);
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
    auto pending = std::make_shared<posted>(backend_, backend_->post(source(src, tag)));
    return vrequest([self = *this, pending, &data, src, tag](bool wait) {
      if (wait) {
        unpack(self.received(pending->done(), src, tag), data);
        return true;
      }
      auto message = pending->backend->take(pending->ticket, std::chrono::milliseconds{0});
      if (!message) return false;
      (void)pending->done();
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
  /// Cost: an all-gather. Without MPI the new one's collectives are messages among its workers.
  /// Throws: error for a negative color.
  [[nodiscard]] Comm split(int color) const {
    if (color < 0) throw error("split: the color is " + std::to_string(color) + ", want 0 or more");
    Comm part(backend_->split(color), session_);
    part.deadline_ = deadline_;
    return part;
  }
  /// MPI's communicator under mpirun. Elsewhere null, which means all workers; for a subset of them it throws error.
  [[nodiscard]] ompi_communicator_t* get_comm() const { return backend_->communicator(); }
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
  void check_root(std::size_t root) const {
    if (root >= get_size())
      throw error("a collective has root " + std::to_string(root) + ", want less than the number of workers, " +
                  std::to_string(get_size()));
  }
  static constexpr int ring_tag = 2014;

  /// A ticket that is given up if its message is never taken.
  struct posted {
    posted(std::shared_ptr<comm_backend> b, comm_backend::ticket t) : backend(std::move(b)), ticket(t) {}
    posted(const posted&) = delete;
    posted& operator=(const posted&) = delete;
    ~posted() {
      if (open) backend->give_up(ticket);
    }
    [[nodiscard]] comm_backend::ticket done() noexcept {
      open = false;
      return ticket;
    }
    std::shared_ptr<comm_backend> backend;
    comm_backend::ticket ticket;
    bool open = true;
  };

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
  [[nodiscard]] received_message received(comm_backend::ticket ticket, int src, int tag) const {
    auto message = backend_->take(ticket, deadline_);
    if (message) return std::move(*message);
    backend_->give_up(ticket);
    throw network_error("no message from " + (src == any_source ? "any worker" : "worker " + std::to_string(src)) +
                            (tag == any_tag ? "" : " with tag " + std::to_string(tag)) + " for " +
                            std::to_string(deadline_->count()) + " ms",
                        false);
  }
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
