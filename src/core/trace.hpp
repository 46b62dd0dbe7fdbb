// SPDX-License-Identifier: BSD-3-Clause
//
// What a thread did when, as records of one size. A thread that has entered the trace has a buffer of its own; without
// a lock it adds records, and its log (net/trace_file.hpp) writes them when the buffer is full or some time has passed.
//
// A request is recorded by its client, by the thread of the server that serves it, and by the replicas: all have the
// same (client, sequence). The client decides which requests are recorded, and the others follow the header's flag.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace paracel::trace {

enum class kind : std::uint8_t {
  sync = 0,     ///< begin, end: ticks before and after clocks were read; client: CLOCK_BOOTTIME; sequence: wall, in ns
  request = 1,  ///< from sending until the reply
  serve = 2,    ///< by a thread of a server
  replicate = 3,  ///< message to a replica, from sending until the reply; sequence: its number; more: the thread here
  apply = 4,      ///< such a message at the replica; client: the sender; more: the sender's thread
  hold = 5,  ///< replies to what was served before `begin` wait for the replicas; sequence: the last message waited for
  phase = 6,  ///< `what` is a trace::phase; sequence: its number, bytes: as far as known
};

/// What a thread does besides requests. The names are in names_of_phases.
enum class phase : std::uint8_t {
  load = 1,
  iteration,
  commit,
  superstep,
  barrier,
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  checkpoint,
  fold,
};
inline constexpr const char* names_of_phases[] = {
    "",       "load",           "iteration",  "commit",    "superstep",  "barrier",    "all_reduce",
    "reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "checkpoint", "fold"};

/// Times are ticks of `now`.
struct record {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t client = 0;    ///< incarnation
  std::uint64_t sequence = 0;  ///< of that client
  std::uint32_t bytes = 0;     ///< of the request
  std::uint32_t more = 0;      ///< request: bytes of the reply; otherwise as above
  std::uint16_t slot = 0;      ///< request: of the server; replicate: of the replica
  std::uint16_t result = 0;    ///< request: the reply's status
  trace::kind kind = trace::kind::sync;
  std::uint8_t what = 0;  ///< the verb, or the phase
  std::uint16_t reserved = 0;
};
static_assert(sizeof(record) == 48);

/// Where a thread's records go. Thread-safety: owned by that thread.
class log {
 public:
  virtual ~log() = default;
  /// No error leaves it: a log that cannot write says so once, and then only counts.
  virtual void write(std::span<const record> records) noexcept = 0;
};

/// Whether this process is traced: the only cost otherwise.
inline std::atomic<bool> on{false};
[[nodiscard]] inline bool is_on() noexcept { return on.load(std::memory_order_relaxed); }

/// A clock that never goes back and is the same in all threads of a host: the processor's counter where it has a
/// constant rate, otherwise CLOCK_BOOTTIME in ns. Cost: about 10 ns, or 30.
[[nodiscard]] std::uint64_t now() noexcept;
[[nodiscard]] bool counts_cycles() noexcept;

/// The records of a thread that are not yet written.
class buffer {
 public:
  static constexpr std::size_t capacity = 512;
  /// Records are written after this time at the latest, if the thread adds others: 0.05 to 0.25 s.
  static constexpr std::uint64_t longest_delay = 250'000'000;

  explicit buffer(std::unique_ptr<log> to) : to_(std::move(to)), written_(now()) { records_.reserve(capacity); }
  ~buffer() { flush(); }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;

  void add(const record& r) noexcept {
    records_.push_back(r);  // within its capacity
    if (records_.size() == capacity || r.end - written_ > longest_delay) [[unlikely]]
      flush();
  }
  void flush() noexcept {
    if (!records_.empty()) to_->write(records_);
    records_.clear();
    written_ = now();
  }

 private:
  std::unique_ptr<log> to_;
  std::uint64_t written_;
  std::vector<record> records_;
};

/// This thread's buffer; null: it has not entered. initial-exec: a plain load, where a shared library would call.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local buffer* mine;

/// Adds a record of this thread, if it has entered.
inline void add(const record& r) noexcept {
  if (mine != nullptr) mine->add(r);
}
/// This thread waits: what it has recorded is written. Cost: a system call if there is anything.
inline void idle() noexcept {
  if (is_on() && mine != nullptr) mine->flush();
}

/// Opens the log of a thread of process `role` number `index`. Returns: null where nothing can be written.
using opener =
    std::function<std::unique_ptr<log>(const std::string& role, std::uint32_t index, const std::string& thread)>;
/// From now on threads may enter; a client records one in `every` requests that do not wait for each other.
/// Call it before the threads that enter begin. An empty `open` ends it.
void start(opener open, std::uint32_t every);
[[nodiscard]] std::uint32_t every() noexcept;

/// While it exists this thread is traced, if the process is. Not twice: an inner one does nothing. It must be destroyed
/// on its thread.
class thread_scope {
 public:
  thread_scope(const std::string& role, std::uint32_t index, const std::string& thread);
  ~thread_scope();
  thread_scope(const thread_scope&) = delete;
  thread_scope& operator=(const thread_scope&) = delete;

 private:
  std::unique_ptr<buffer> own_;
};

/// A phase of this thread, until the end of the block.
class phase_scope {
 public:
  explicit phase_scope(phase p, std::uint64_t number = 0, std::size_t bytes = 0) noexcept {
    if (is_on() && mine != nullptr) [[unlikely]] {
      record_.begin = now();
      record_.sequence = number;
      record_.bytes = static_cast<std::uint32_t>(bytes < UINT32_MAX ? bytes : UINT32_MAX);
      record_.kind = kind::phase;
      record_.what = static_cast<std::uint8_t>(p);
    }
  }
  ~phase_scope() {
    if (record_.kind != kind::phase) [[likely]]
      return;
    record_.end = now();
    add(record_);
  }
  phase_scope(const phase_scope&) = delete;
  phase_scope& operator=(const phase_scope&) = delete;

 private:
  record record_{};
};

}  // namespace paracel::trace
