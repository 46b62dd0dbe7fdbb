// SPDX-License-Identifier: BSD-3-Clause
//
// The parts of point-to-point messages between workers; `Comm` (comm.hpp) has the operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include <paracel/detail/bytes.hpp>

namespace paracel {

/// Wildcards of a receive: any sender, any tag. The values are Open MPI's.
inline constexpr int any_source = -1;
inline constexpr int any_tag = -1;

/// Where a message comes from or goes to: the rank of the other side, the tag, and the communicator (0: all workers),
/// so that messages of two communicators never match each other.
struct message_address {
  int rank = any_source;
  int tag = any_tag;
  std::uint64_t communicator = 0;
};

/// A message that has been received.
struct received_message {
  message_address from;
  byte_vector bytes;
};

/// What a receive says about the message, with MPI's names: converts to MPI_Status.
struct recv_status {
  int MPI_SOURCE = any_source;
  int MPI_TAG = any_tag;
  int MPI_ERROR = 0;

  template <class Status>
  requires requires(Status s) {
    s.MPI_SOURCE;
    s.MPI_TAG;
    s.MPI_ERROR;
  }
  operator Status() const {  // NOLINT(google-explicit-constructor): 0.3's programs declare an MPI_Status
    Status s{};
    s.MPI_SOURCE = MPI_SOURCE;
    s.MPI_TAG = MPI_TAG;
    s.MPI_ERROR = MPI_ERROR;
    return s;
  }
};

/// Operations in progress: what isend and irecv return.
/// An isend is complete at once, because the value was copied. An irecv is complete when its value is written, in
/// `wait` or `test`; destroying a vrequest earlier cancels the receive. Thread-safety: none; on the thread of its Comm.
class vrequest {
 public:
  /// Tries to complete an operation, and waits for it if `wait`. Returns: whether it is complete.
  using operation = std::function<bool(bool wait)>;

  vrequest() = default;
  explicit vrequest(operation open) : count_(1) { open_.push_back(std::move(open)); }
  vrequest(const vrequest&) = delete;
  vrequest& operator=(const vrequest&) = delete;
  vrequest(vrequest&& other) noexcept : open_(std::move(other.open_)), count_(std::exchange(other.count_, 0)) {
    other.open_.clear();
  }
  vrequest& operator=(vrequest&& other) noexcept {
    open_ = std::move(other.open_);
    other.open_.clear();
    count_ = std::exchange(other.count_, 0);
    return *this;
  }
  ~vrequest() = default;

  /// An operation that is already complete.
  [[nodiscard]] static vrequest completed() {
    vrequest r;
    r.count_ = 1;
    return r;
  }

  /// Takes over the operations of `other`.
  void append(vrequest& other) {
    std::move(other.open_.begin(), other.open_.end(), std::back_inserter(open_));
    other.open_.clear();
    count_ += std::exchange(other.count_, 0);
  }
  void append(vrequest&& other) { append(other); }
  /// Blocks: until all are complete. Throws: as Comm::recv.
  void wait() {
    for (auto& o : open_) (void)o(true);
    open_.clear();
  }
  /// 1 when all are complete, else 0. Throws: as Comm::recv.
  [[nodiscard]] int test() {
    std::erase_if(open_, [](operation& o) { return o(false); });
    return open_.empty() ? 1 : 0;
  }
  /// How many operations there are, complete or not.
  [[nodiscard]] int size() const noexcept { return count_; }

 private:
  std::vector<operation> open_;
  int count_ = 0;
};

}  // namespace paracel
