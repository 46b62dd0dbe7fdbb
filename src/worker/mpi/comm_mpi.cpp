// SPDX-License-Identifier: BSD-3-Clause
//
// Collectives and messages over MPI: the only file of the framework that uses mpi.h (the compat header apart).
#define OMPI_SKIP_MPICXX 1  // mpi.h would include the C++ bindings, whose library we do not link
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <list>
#include <string>
#include <thread>
#include <utility>

#include "core/message_matcher.hpp"
#include "core/reduction.hpp"
#include "worker/mpi_library.hpp"

namespace paracel {
namespace {

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw error(std::string(what) + ": " + std::string(text, static_cast<std::size_t>(length)));
}

int count_of(std::size_t n, const char* what) {
  if (n > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw error(std::string(what) + ": " + std::to_string(n) + " elements are more than MPI can count");
  return static_cast<int>(n);
}

MPI_Datatype type_of(value_tag element) {
  switch (element) {
    case value_tag::i32:
      return MPI_INT32_T;
    case value_tag::i64:
      return MPI_INT64_T;
    case value_tag::f32:
      return MPI_FLOAT;
    case value_tag::f64:
      return MPI_DOUBLE;
    default:
      throw error(std::string("MPI has no reduction for ") + name_of(element));
  }
}

// As peer_channels': a send that blocks does so beyond this.
constexpr std::size_t window_bytes = std::size_t{256} << 20U;
// How long a receiver is polled before it yields the core, and how long it then sleeps between two looks.
constexpr std::chrono::microseconds spin{50};
constexpr std::chrono::microseconds nap{50};
// What has not been received when a communicator ends gets this long; freed memory must not be MPI's.
constexpr std::chrono::milliseconds last_wait{2000};

class comm_mpi final : public comm_backend {
 public:
  explicit comm_mpi(MPI_Comm of) {
    check(MPI_Comm_dup(of, &comm_), "MPI_Comm_dup");
    look();
  }
  struct adopted {
    MPI_Comm comm;
  };
  explicit comm_mpi(adopted a) : comm_(a.comm) { look(); }
  ~comm_mpi() override {
    int over = 0;
    MPI_Finalized(&over);
    if (over == 0) finish_sends();
    // Freeing is collective: a failing rank must not wait for the others there.
    if (over == 0 && std::uncaught_exceptions() == 0) {
      MPI_Comm_free(&collectives_);
      MPI_Comm_free(&comm_);
    }
  }

  [[nodiscard]] std::size_t rank() const override { return static_cast<std::size_t>(rank_); }
  [[nodiscard]] std::size_t size() const override { return static_cast<std::size_t>(size_); }

  void barrier() override { check(MPI_Barrier(comm_), "MPI_Barrier"); }

  void bcast(byte_vector& data, std::size_t root) override {
    std::uint64_t n = data.size();
    check(MPI_Bcast(&n, 1, MPI_UINT64_T, static_cast<int>(root), comm_), "MPI_Bcast");
    data.resize(n);
    check(MPI_Bcast(data.data(), count_of(n, "bcast"), MPI_BYTE, static_cast<int>(root), comm_), "MPI_Bcast");
  }

  void allreduce(value_tag element, std::span<std::byte> data, reduce_op op) override {
    const auto n = count_of(data.size() / element_bytes(element), "allreduce");
    if (element == value_tag::f32 || element == value_tag::f64) {
      // MPI may reduce in any order; rank order makes runs bit-identical. Its extremes also lose a NaN in some orders.
      const auto all = allgather(data);
      for (std::size_t r = 0; r < all.size(); ++r) {
        if (all[r].size() != data.size()) throw error("allreduce: the ranks disagree on the length");
        if (r == 0) std::ranges::copy(all[r], data.begin());
        else fold(element, data, all[r], op);
      }
      return;
    }
    const MPI_Op how = op == reduce_op::sum ? MPI_SUM : op == reduce_op::max ? MPI_MAX : MPI_MIN;
    check(MPI_Allreduce(MPI_IN_PLACE, data.data(), n, type_of(element), how, comm_), "MPI_Allreduce");
  }

  std::vector<byte_vector> allgather(std::span<const std::byte> mine) override {
    const auto lengths = gather_lengths(mine.size());
    std::vector<int> counts, begins;
    const auto total = layout(lengths, counts, begins);
    byte_vector all(total);
    check(MPI_Allgatherv(mine.data(), count_of(mine.size(), "allgather"), MPI_BYTE, all.data(), counts.data(),
                         begins.data(), MPI_BYTE, comm_),
          "MPI_Allgatherv");
    return cut(all, counts, begins);
  }

  std::vector<byte_vector> alltoall(const std::vector<byte_vector>& blocks) override {
    std::vector<std::uint64_t> out(blocks.size()), in(blocks.size());
    for (std::size_t r = 0; r < blocks.size(); ++r) out[r] = blocks[r].size();
    check(MPI_Alltoall(out.data(), 1, MPI_UINT64_T, in.data(), 1, MPI_UINT64_T, comm_), "MPI_Alltoall");
    std::vector<int> out_counts, out_begins, in_counts, in_begins;
    byte_vector sending(layout(out, out_counts, out_begins));
    byte_vector receiving(layout(in, in_counts, in_begins));
    for (std::size_t r = 0; r < blocks.size(); ++r)
      if (!blocks[r].empty()) std::memcpy(sending.data() + out_begins[r], blocks[r].data(), blocks[r].size());
    check(MPI_Alltoallv(sending.data(), out_counts.data(), out_begins.data(), MPI_BYTE, receiving.data(),
                        in_counts.data(), in_begins.data(), MPI_BYTE, comm_),
          "MPI_Alltoallv");
    return cut(receiving, in_counts, in_begins);
  }

  void send(const message_address& to, byte_vector bytes, bool waits, patience limit) override {
    if (to.rank == rank_) return arrived_.arrive({to, std::move(bytes)});
    const auto n = count_of(bytes.size(), "send");
    auto& s = sends_.emplace_back();
    s.bytes = std::move(bytes);
    open_bytes_ += s.bytes.size();
    check(MPI_Isend(s.bytes.data(), n, MPI_BYTE, to.rank, to.tag, channel_of(to.communicator), &s.request),
          "MPI_Isend");
    progress();
    if (!waits) return;
    const bool sent = poll(limit, [this] { return open_bytes_ <= window_bytes; });
    if (!sent) throw network_error("worker " + std::to_string(to.rank) + " has not received what was sent to it", true);
  }
  ticket post(const message_address& from) override { return arrived_.post(from); }
  void give_up(ticket t) noexcept override { arrived_.give_up(t); }
  std::optional<received_message> take(ticket t, patience limit) override {
    std::optional<received_message> message;
    (void)poll(limit, [&] {
      message = arrived_.take(t);
      return message.has_value();
    });
    return message;
  }
  std::shared_ptr<comm_backend> split(int color) override {
    MPI_Comm part = MPI_COMM_NULL;
    check(MPI_Comm_split(comm_, color, rank_, &part), "MPI_Comm_split");
    return std::make_shared<comm_mpi>(adopted{part});
  }
  [[nodiscard]] ompi_communicator_t* communicator() const override { return comm_; }

 private:
  struct pending_send {
    byte_vector bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  /// Messages of collectives have a communicator of their own.
  [[nodiscard]] MPI_Comm channel_of(std::uint64_t communicator) const {
    return communicator == 0 ? comm_ : collectives_;
  }

  void look() {
    check(MPI_Comm_dup(comm_, &collectives_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(collectives_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  }

  /// Receives what has arrived and drops what has been sent.
  void progress() {
    receive_from(0);
    receive_from(1);
    for (auto s = sends_.begin(); s != sends_.end();) {
      int sent = 0;
      check(MPI_Test(&s->request, &sent, MPI_STATUS_IGNORE), "MPI_Test");
      if (sent != 0) open_bytes_ -= s->bytes.size();
      s = sent != 0 ? sends_.erase(s) : std::next(s);
    }
  }
  void receive_from(std::uint64_t communicator) {
    for (;;) {
      int there = 0;
      MPI_Status status;
      check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, channel_of(communicator), &there, &status), "MPI_Iprobe");
      if (there == 0) return;
      int n = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &n), "MPI_Get_count");
      received_message m{{status.MPI_SOURCE, status.MPI_TAG, communicator}, byte_vector(static_cast<std::size_t>(n))};
      check(MPI_Recv(m.bytes.data(), n, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, channel_of(communicator),
                     MPI_STATUS_IGNORE),
            "MPI_Recv");
      arrived_.arrive(std::move(m));
    }
  }
  /// Until `done`, at most `limit`. MPI has no call that waits for either a message or a time.
  template <class Done>
  bool poll(patience limit, Done&& done) {
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
      progress();
      if (done()) return true;
      const auto passed = std::chrono::steady_clock::now() - begin;
      if (limit && passed >= *limit) return false;
      if (passed < spin) std::this_thread::yield();
      else std::this_thread::sleep_for(nap);
    }
  }
  void finish_sends() noexcept {
    try {
      if (poll(std::uncaught_exceptions() == 0 ? last_wait : std::chrono::milliseconds{0},
               [this] { return sends_.empty(); }))
        return;
    } catch (const error&) {  // the ranks are ending: MPI keeps what it still needs
    }
    new std::list<pending_send>(std::move(sends_));  // not freed: MPI may read it until the process ends
  }

  std::vector<std::uint64_t> gather_lengths(std::uint64_t mine) {
    std::vector<std::uint64_t> lengths(size());
    check(MPI_Allgather(&mine, 1, MPI_UINT64_T, lengths.data(), 1, MPI_UINT64_T, comm_), "MPI_Allgather");
    return lengths;
  }
  static std::size_t layout(const std::vector<std::uint64_t>& lengths, std::vector<int>& counts,
                            std::vector<int>& begins) {
    std::size_t total = 0;
    for (const auto n : lengths) {
      begins.push_back(count_of(total, "collective"));
      counts.push_back(count_of(n, "collective"));
      total += n;
    }
    return total;
  }
  static std::vector<byte_vector> cut(const byte_vector& all, const std::vector<int>& counts,
                                      const std::vector<int>& begins) {
    std::vector<byte_vector> out;
    for (std::size_t r = 0; r < counts.size(); ++r)
      out.emplace_back(all.begin() + begins[r], all.begin() + begins[r] + counts[r]);
    return out;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Comm collectives_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  message_matcher arrived_;
  std::list<pending_send> sends_;
  std::size_t open_bytes_ = 0;
};

}  // namespace
}  // namespace paracel

int paracel_mpi_init(int* argc, char*** argv) {
  int ready = 0;
  MPI_Initialized(&ready);
  if (ready != 0) return 0;
  int provided = 0;
  // The heartbeat thread never calls MPI, so FUNNELED is enough.
  MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
  return 1;
}

void paracel_mpi_finalize() { MPI_Finalize(); }

paracel::comm_backend* paracel_mpi_comm(ompi_communicator_t* communicator) {
  return new paracel::comm_mpi(communicator != nullptr ? communicator : MPI_COMM_WORLD);
}
