// SPDX-License-Identifier: BSD-3-Clause
//
// Messages over MPI: the only file of the framework that uses mpi.h (apart from the compat header).
#define OMPI_SKIP_MPICXX 1  // mpi.h would include the C++ bindings, whose library we do not link
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
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
#include <utility>
#include <vector>

#include "core/interruption.hpp"
#include "core/message_matcher.hpp"
#include "worker/comm/comm_backend.hpp"
#include "worker/comm/mpi/polling.hpp"
#include "worker/comm/mpi_library.hpp"
#include "worker/comm/rank_memory.hpp"

namespace paracel {
namespace {

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw error(std::string(what) + ": " + std::string(text, static_cast<std::size_t>(length)));
}

/// MPI counts in int. A test lowers the limit, so that it needs no 2 GiB.
std::size_t largest_count() {
  static const std::size_t most = [] {
    const char* lowered = std::getenv("PARACEL_MPI_LARGEST_COUNT");
    const auto all = static_cast<unsigned long>(std::numeric_limits<int>::max());
    return lowered == nullptr ? all : std::clamp(std::strtoul(lowered, nullptr, 10), 1UL, all);
  }();
  return most;
}

/// A number of bytes as a count of a datatype.
class counted_bytes {
 public:
  explicit counted_bytes(std::size_t bytes) : count_(1) {
    const auto most = largest_count();
    if (bytes <= most) {
      count_ = static_cast<int>(bytes);
      return;
    }
    MPI_Datatype part = MPI_DATATYPE_NULL;
    check(MPI_Type_contiguous(static_cast<int>(most), MPI_BYTE, &part), "MPI_Type_contiguous");
    const int counts[] = {static_cast<int>(bytes / most), static_cast<int>(bytes % most)};
    const MPI_Aint begins[] = {0, static_cast<MPI_Aint>(bytes / most * most)};
    const MPI_Datatype types[] = {part, MPI_BYTE};
    check(MPI_Type_create_struct(2, counts, begins, types, &type_), "MPI_Type_create_struct");
    check(MPI_Type_commit(&type_), "MPI_Type_commit");
    MPI_Type_free(&part);
  }
  counted_bytes(const counted_bytes&) = delete;
  counted_bytes& operator=(const counted_bytes&) = delete;
  /// A transfer that has begun keeps the datatype.
  ~counted_bytes() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);
  }
  [[nodiscard]] int count() const noexcept { return count_; }
  [[nodiscard]] MPI_Datatype type() const noexcept { return type_; }

 private:
  int count_;
  MPI_Datatype type_ = MPI_BYTE;
};

// As in peer_channels: a blocking send waits while more than this is in flight.
constexpr std::size_t window_bytes = std::size_t{256} << 20U;
// How long a communicator's destructor waits for its sends to complete; memory that MPI still uses must not be freed.
constexpr std::chrono::milliseconds last_wait{2000};

// Pending sends of all communicators: a call on any of them makes progress on all. Only one thread calls MPI.
std::size_t unsent = 0;
// A wait was abandoned: an exchange whose memory was freed while MPI still uses it, or one that was interrupted, whose
// messages would be taken for others. MPI must not be called any more.
bool stuck = false;
// How often this process, waiting in shared memory, has polled for messages since it last sent one.
unsigned looks_since_sent = 0;

void check_usable() {
  if (stuck) throw network_error("MPI cannot be used any more: a wait for other workers was abandoned", true);
}

/// Throws: what ends a wait of a host process.
void check_waiting() {
  try {
    check_interruption();
  } catch (...) {
    stuck = true;
    throw;
  }
}

class comm_mpi;
std::vector<comm_mpi*> live;

class comm_mpi final : public comm_backend, public comm_exchanges {
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
    if (over == 0 && !stuck && std::uncaught_exceptions() == 0) {
      MPI_Comm_free(&exchanges_);
      MPI_Comm_free(&collectives_);
      MPI_Comm_free(&comm_);
    }
  }

  [[nodiscard]] std::size_t rank() const override { return static_cast<std::size_t>(rank_); }
  [[nodiscard]] std::size_t size() const override { return static_cast<std::size_t>(size_); }

  void send(const message_address& to, byte_vector bytes, bool waits, patience limit) override {
    check_usable();
    if (to.rank == rank_) return arrived_.arrive({to, std::move(bytes)});
    looks_since_sent = 0;
    const counted_bytes n(bytes.size());
    auto& s = sends_.emplace_back();
    s.bytes = std::move(bytes);
    open_bytes_ += s.bytes.size();
    ++unsent;
    check(MPI_Isend(s.bytes.data(), n.count(), n.type(), to.rank, to.tag, channel_of(to.communicator), &s.request),
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
  [[nodiscard]] comm_exchanges* exchanges() override { return this; }
  void begin_exchange(std::span<const std::span<const std::byte>> out,
                      std::span<const std::span<std::byte>> in) override {
    check_usable();
    auto& e = open_.emplace_back();
    for (int r = 0; r < size_; ++r) {
      const auto to = in[static_cast<std::size_t>(r)];
      if (to.empty()) continue;
      e.from.push_back(r);
      const counted_bytes n(to.size());
      check(MPI_Irecv(to.data(), n.count(), n.type(), r, 0, exchanges_, &e.requests.emplace_back()), "MPI_Irecv");
    }
    for (int i = 1; i < size_; ++i) {  // starting with the next one, so that not all send to the same rank at once
      const int r = (rank_ + i) % size_;
      const auto bytes = out[static_cast<std::size_t>(r)];
      if (bytes.empty()) continue;
      const counted_bytes n(bytes.size());
      check(MPI_Isend(bytes.data(), n.count(), n.type(), r, 0, exchanges_, &e.requests.emplace_back()), "MPI_Isend");
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
    for (std::size_t i = 0; i < e.requests.size() && !done; ++i) {
      int there = 0;
      check(MPI_Test(&e.requests[i], &there, MPI_STATUS_IGNORE), "MPI_Test");
      // If only sends are missing, others have not received what was sent to them.
      if (there == 0) return i < e.from.size() ? static_cast<std::size_t>(e.from[i]) : rank();
    }
    open_.pop_front();
    return std::nullopt;
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
    check_waiting();
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
      MPI_Count bytes = 0;
      check(MPI_Get_elements_x(&status, MPI_BYTE, &bytes), "MPI_Get_elements_x");
      received_message m{{status.MPI_SOURCE, status.MPI_TAG, a.communicator},
                         byte_vector(static_cast<std::size_t>(bytes))};
      const counted_bytes n(m.bytes.size());
      check(
          MPI_Recv(m.bytes.data(), n.count(), n.type(), status.MPI_SOURCE, status.MPI_TAG, channel, MPI_STATUS_IGNORE),
          "MPI_Recv");
      arrived_.arrive(std::move(m));
    }
  }
  template <class Done>
  bool poll(patience limit, Done&& done) {
    return poll_until(
        limit, done, [this] { progress(); }, &check_waiting);
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
