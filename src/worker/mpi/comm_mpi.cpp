// SPDX-License-Identifier: BSD-3-Clause
//
// Collectives and messages over MPI: the only file of the framework that uses mpi.h (apart from the compat header).
#define OMPI_SKIP_MPICXX 1  // mpi.h would include the C++ bindings, whose library we do not link
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <exception>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/message_matcher.hpp"
#include "worker/mpi_library.hpp"
#include "worker/peer_collectives.hpp"

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

// As in peer_channels: a blocking send waits while more than this is in flight.
constexpr std::size_t window_bytes = std::size_t{256} << 20U;
// A waiting rank first polls continuously and only yields the core; after this time it sleeps between polls. Long
// messages travel in many parts, and MPI moves a part only while we call it: every nap adds to the transfer time.
constexpr std::chrono::microseconds spin{1000};
constexpr std::chrono::microseconds nap{50};
// A rank that waits for certain messages polls for others, too, but not every time.
constexpr unsigned looks_between_others = 16;
constexpr unsigned looks_between_yields = 8;
// How long a communicator's destructor waits for its sends to complete; memory that MPI still uses must not be freed.
constexpr std::chrono::milliseconds last_wait{2000};

// Pending sends of all communicators: a call on any of them makes progress on all. Only one thread calls MPI.
std::size_t unsent = 0;
// An exchange was given up and its memory freed while MPI still uses it: MPI must not be called any more.
bool stuck = false;
// How often this process, waiting in shared memory, has polled for messages since it last sent one.
unsigned looks_since_sent = 0;

void check_usable() {
  if (stuck)
    throw network_error("MPI cannot be used any more: a collective was abandoned while its data was in flight", true);
}

class comm_mpi;
std::vector<comm_mpi*> live;

class comm_mpi final : public comm_backend {
 public:
  explicit comm_mpi(MPI_Comm of) {
    check(MPI_Comm_dup(of, &comm_), "MPI_Comm_dup");
    set_up();
  }
  struct adopted {
    MPI_Comm comm;
  };
  explicit comm_mpi(adopted a) : comm_(a.comm) { set_up(); }
  ~comm_mpi() override {
    std::erase(live, this);
    int over = 0;
    MPI_Finalized(&over);
    if (stuck) over = 1;
    if (over == 0) finish_sends();
    // Freeing is collective: a failing rank must not wait for the others there.
    if (over == 0 && std::uncaught_exceptions() == 0) {
      MPI_Comm_free(&exchanges_);
      MPI_Comm_free(&collectives_);
      MPI_Comm_free(&comm_);
    }
  }

  [[nodiscard]] std::size_t rank() const override { return static_cast<std::size_t>(rank_); }
  [[nodiscard]] std::size_t size() const override { return static_cast<std::size_t>(size_); }

  void barrier() override { operations_.barrier(""); }

  void bcast(byte_vector& data, std::size_t root) override {
    std::uint64_t n = data.size();
    check(MPI_Bcast(&n, 1, MPI_UINT64_T, static_cast<int>(root), comm_), "MPI_Bcast");
    data.resize(n);
    check(MPI_Bcast(data.data(), count_of(n, "bcast"), MPI_BYTE, static_cast<int>(root), comm_), "MPI_Bcast");
  }

  // MPI may reduce in any order; rank order makes runs bit-identical. Its min and max also lose a NaN in some orders.
  void allreduce(value_tag element, std::span<std::byte> data, reduce_op op) override {
    operations_.all_reduce({element, op, {}}, data, "");
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
    check_usable();
    if (to.rank == rank_) return arrived_.arrive({to, std::move(bytes)});
    looks_since_sent = 0;
    const auto n = count_of(bytes.size(), "send");
    auto& s = sends_.emplace_back();
    s.bytes = std::move(bytes);
    open_bytes_ += s.bytes.size();
    ++unsent;
    check(MPI_Isend(s.bytes.data(), n, MPI_BYTE, to.rank, to.tag, channel_of(to.communicator), &s.request),
          "MPI_Isend");
    int sent = 0;  // a short message already is
    check(MPI_Test(&s.request, &sent, MPI_STATUS_IGNORE), "MPI_Test");
    if (sent != 0) {
      forget(s);
      sends_.pop_back();
    }
    if (to.communicator == 0 || sends_.size() > looks_between_others) progress();
    if (!waits) return;
    if (!poll(limit, [this] { return open_bytes_ <= window_bytes; }))
      throw network_error("worker " + std::to_string(to.rank) + " has not received what was sent to it", true);
  }
  ticket post(const message_address& from) override { return arrived_.post(from); }
  void give_up(ticket t) noexcept override { arrived_.give_up(t); }
  std::optional<received_message> take(ticket t, patience limit) override {
    auto message = arrived_.take(t);
    if (message) return message;
    if (limit && limit->count() <= 0) progress();
    // All of the program's messages, in MPI's order: another receive may be the first to match one of them.
    auto from = arrived_.asked(t);
    if (from.communicator == 0) from = {any_source, any_tag, 0};
    (void)poll(limit, [&] {
      receive_from(from);
      message = arrived_.take(t);
      return message.has_value();
    });
    return message;
  }
  [[nodiscard]] bool has_exchanges() const override { return true; }
  void begin_exchange(std::span<const std::span<const std::byte>> out,
                      std::span<const std::span<std::byte>> in) override {
    check_usable();
    auto& e = open_.emplace_back();
    for (int r = 0; r < size_; ++r) {
      const auto to = in[static_cast<std::size_t>(r)];
      if (to.empty()) continue;
      e.from.push_back(r);
      check(
          MPI_Irecv(to.data(), count_of(to.size(), "receive"), MPI_BYTE, r, 0, exchanges_, &e.requests.emplace_back()),
          "MPI_Irecv");
    }
    for (int i = 1; i < size_; ++i) {  // starting with the next one, so that not all send to the same rank at once
      const int r = (rank_ + i) % size_;
      const auto bytes = out[static_cast<std::size_t>(r)];
      if (bytes.empty()) continue;
      check(MPI_Isend(bytes.data(), count_of(bytes.size(), "send"), MPI_BYTE, r, 0, exchanges_,
                      &e.requests.emplace_back()),
            "MPI_Isend");
    }
  }
  std::optional<std::size_t> finish_exchange(patience limit) override {
    auto& e = open_.front();
    const bool done = poll(limit, [&] {
      int all = 0;
      check(MPI_Testall(static_cast<int>(e.requests.size()), e.requests.data(), &all, MPI_STATUSES_IGNORE),
            "MPI_Testall");
      return all != 0;
    });
    if (done) {
      open_.pop_front();
      return std::nullopt;
    }
    for (std::size_t i = 0; i < e.from.size(); ++i) {
      int there = 0;
      MPI_Test(&e.requests[i], &there, MPI_STATUS_IGNORE);
      if (there == 0) return static_cast<std::size_t>(e.from[i]);
    }
    return rank();  // others have not received what was sent to them
  }
  void give_up_exchanges() noexcept override { stuck = stuck || !open_.empty(); }
  /// MPI ends the job when a rank dies, so the contents of shared memory need not outlive one.
  [[nodiscard]] shared_memory* memory() override { return &memory_; }
  /// Messages make progress only while this rank calls MPI, and MPI may report one as sent before it has left.
  [[nodiscard]] std::chrono::microseconds attends_every() const override {
    constexpr unsigned doublings = 11;
    if (unsent != 0) return nap;
    return std::min(comm_backend::attends_every(), nap * (1U << std::min(looks_since_sent, doublings)));
  }
  void attend(std::size_t, bool) override {
    ++looks_since_sent;
    for (auto* c : live) c->progress();
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
  struct open_exchange {
    std::vector<int> from;              // the ranks of the receives
    std::vector<MPI_Request> requests;  // receives, then sends
  };

  /// Messages of collectives have a communicator of their own.
  [[nodiscard]] MPI_Comm channel_of(std::uint64_t communicator) const {
    return communicator == 0 ? comm_ : collectives_;
  }

  void set_up() {
    live.push_back(this);
    check(MPI_Comm_dup(comm_, &collectives_), "MPI_Comm_dup");
    check(MPI_Comm_dup(comm_, &exchanges_), "MPI_Comm_dup");
    const char* shares = std::getenv("PARACEL_SHARED_MEMORY");
    memory_.allowed = shares == nullptr || std::string_view(shares) != "0";
    MPI_Comm_set_errhandler(exchanges_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(collectives_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  }

  void forget(const pending_send& s) {
    open_bytes_ -= s.bytes.size();
    --unsent;
  }
  /// Receives what has arrived and drops what has been sent.
  void progress() {
    check_usable();
    receive_from({any_source, any_tag, 0});
    receive_from({any_source, any_tag, 1});
    for (auto s = sends_.begin(); s != sends_.end();) {
      int sent = 0;
      check(MPI_Test(&s->request, &sent, MPI_STATUS_IGNORE), "MPI_Test");
      if (sent != 0) forget(*s);
      s = sent != 0 ? sends_.erase(s) : std::next(s);
    }
  }
  /// Receives all matching messages that have arrived.
  void receive_from(const message_address& a) {
    check_usable();
    const auto channel = channel_of(a.communicator);
    for (;;) {
      int there = 0;
      MPI_Status status;
      check(MPI_Iprobe(a.rank == any_source ? MPI_ANY_SOURCE : a.rank, a.tag == any_tag ? MPI_ANY_TAG : a.tag, channel,
                       &there, &status),
            "MPI_Iprobe");
      if (there == 0) return;
      int n = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &n), "MPI_Get_count");
      received_message m{{status.MPI_SOURCE, status.MPI_TAG, a.communicator}, byte_vector(static_cast<std::size_t>(n))};
      check(MPI_Recv(m.bytes.data(), n, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, channel, MPI_STATUS_IGNORE),
            "MPI_Recv");
      arrived_.arrive(std::move(m));
    }
  }
  /// Polls until `done`, at most `limit`. MPI has no call that waits for a message with a timeout.
  template <class Done>
  bool poll(patience limit, Done&& done) {
    const auto begin = std::chrono::steady_clock::now();
    bool naps = false;
    for (unsigned looks = 1;; ++looks) {
      if (done()) return true;
      if (limit && limit->count() <= 0) return false;
      if (!naps && looks % looks_between_yields != 0) continue;
      if (naps || looks % looks_between_others == 0) progress();
      const auto passed = std::chrono::steady_clock::now() - begin;
      if (limit && passed >= *limit) return false;
      naps = passed >= spin;
      // MPI itself yields the core after each poll if it knows that there are more ranks than cores.
      if (naps) std::this_thread::sleep_for(nap);
      else std::this_thread::yield();
    }
  }
  void finish_sends() noexcept {
    try {
      if (poll(std::uncaught_exceptions() == 0 ? last_wait : std::chrono::milliseconds{0},
               [this] { return sends_.empty(); }))
        return;
    } catch (const error&) {  // the ranks are ending: MPI keeps what it still needs
    }
    unsent -= sends_.size();
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
  MPI_Comm exchanges_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  message_matcher arrived_;
  std::list<pending_send> sends_;
  std::size_t open_bytes_ = 0;
  std::deque<open_exchange> open_;
  shared_memory memory_;
  peer_collectives operations_{*this, {}, false, peer_collectives::own_tag};
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

void paracel_mpi_finalize() {
  if (!paracel::stuck) MPI_Finalize();
}

paracel::comm_backend* paracel_mpi_comm(ompi_communicator_t* communicator) {
  return new paracel::comm_mpi(communicator != nullptr ? communicator : MPI_COMM_WORLD);
}
