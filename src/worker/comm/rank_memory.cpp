// SPDX-License-Identifier: BSD-3-Clause
#include "worker/comm/rank_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/futex_wait.hpp"
#include "core/hash.hpp"
#include "core/sealed_memory.hpp"

namespace paracel {

// ---- layout; initially all zeros

struct rank_memory::front {
  alignas(64) std::atomic<std::uint64_t> arrivals;  ///< steps published by all ranks together
  alignas(64) std::atomic<std::uint32_t> round;
  std::atomic<std::uint32_t> sleepers;
};

struct alignas(64) rank_memory::state {
  std::atomic<std::uint64_t> published;
  std::array<std::atomic<std::uint64_t>, 2> failed;
};

struct alignas(64) rank_memory::head {
  peer_header call;
  std::array<char, peer_call::longest_name + 1> name;
  std::array<std::uint32_t, most_ranks> sent;
};

struct alignas(64) rank_memory::note {
  std::uint32_t origin;
  std::int32_t status;
  std::uint32_t text_bytes;
  std::array<char, 4000> text;
};

std::size_t rank_memory::bytes_for(std::size_t ranks) {
  return sizeof(front) + ranks * (sizeof(state) + 2 * (sizeof(head) + sizeof(note) + block_bytes));
}

// ---- creation

class rank_memory::file {
 public:
  explicit file(int descriptor) : descriptor_(descriptor) {}
  file(const file&) = delete;
  file& operator=(const file&) = delete;
  ~file() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

memory_offer memory_offer::of_this_process() {
  memory_offer o;
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  for (const char* space : {"/proc/self/ns/pid", "/proc/self/ns/net"}) {
    struct stat s {};
    if (id.empty() || ::stat(space, &s) != 0) return o;
    id += " " + std::to_string(s.st_ino);
  }
  o.host = hash_key(id + " " + std::to_string(::geteuid())) | 1U;
  o.process = ::getpid();
  return o;
}

std::shared_ptr<rank_memory::file> rank_memory::make(std::size_t ranks, memory_offer& offer) {
  const auto bytes = bytes_for(ranks);
  auto made = std::make_shared<file>(sealed_memory("paracel_ranks", bytes, bytes));
  struct stat s {};
  // Where the system refuses the memory, the ranks use messages.
  if (made->descriptor() < 0 || ::fstat(made->descriptor(), &s) != 0) return nullptr;
  offer.descriptor = made->descriptor();
  offer.device = s.st_dev;
  offer.inode = s.st_ino;
  return made;
}

std::unique_ptr<rank_memory> rank_memory::open(const memory_offer& of_rank_0, std::size_t rank, std::size_t ranks) {
  const auto path = "/proc/" + std::to_string(of_rank_0.process) + "/fd/" + std::to_string(of_rank_0.descriptor);
  const file opened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat s {};
  if (opened.descriptor() < 0 || ::fstat(opened.descriptor(), &s) != 0 || s.st_dev != of_rank_0.device ||
      s.st_ino != of_rank_0.inode || s.st_size != static_cast<off_t>(bytes_for(ranks)))
    return nullptr;
  const auto bytes = bytes_for(ranks);
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened.descriptor(), 0);
  if (at == MAP_FAILED) return nullptr;
  const auto unmap = [bytes](std::byte* mapped) { ::munmap(mapped, bytes); };
  return std::make_unique<rank_memory>(std::shared_ptr<std::byte>(static_cast<std::byte*>(at), unmap), rank, ranks);
}

rank_memory::rank_memory(std::shared_ptr<std::byte> zeros, std::size_t rank, std::size_t ranks)
    : memory_(std::move(zeros)), rank_(rank), ranks_(ranks), sent_(ranks), received_(ranks) {
  auto* at = memory_.get();
  front_ = reinterpret_cast<front*>(at);
  at += sizeof(front);
  states_ = reinterpret_cast<state*>(at);
  at += ranks * sizeof(state);
  heads_ = reinterpret_cast<head*>(at);
  at += 2 * ranks * sizeof(head);
  notes_ = reinterpret_cast<note*>(at);
  blocks_ = at + 2 * ranks * sizeof(note);
}

// ---- steps

std::span<std::byte> rank_memory::block(std::size_t rank, std::uint64_t step) const {
  return {blocks_ + (2 * rank + step % 2) * block_bytes, block_bytes};
}

void rank_memory::publish(const peer_header& f, std::string_view name) {
  auto& h = heads_[2 * rank_ + (step_ + 1) % 2];
  h.call = f;
  std::ranges::copy(name, h.name.begin());
  std::ranges::copy(sent_, h.sent.begin());
  announce();
}

std::uint64_t rank_memory::last_note() const {
  return states_[rank_].failed[(step_ + 1) % 2].load(std::memory_order_relaxed);
}

void rank_memory::publish(const peer_failure& f) {
  auto& n = notes_[2 * rank_ + (step_ + 1) % 2];
  n.origin = f.origin;
  n.status = f.status;
  n.text_bytes = static_cast<std::uint32_t>(std::min(f.text.size(), n.text.size()));
  std::ranges::copy(std::string_view{f.text}.substr(0, n.text_bytes), n.text.begin());
  states_[rank_].failed[(step_ + 1) % 2].store(step_ + 1, std::memory_order_relaxed);
  announce();
}

void rank_memory::announce() {
  states_[rank_].published.store(++step_, std::memory_order_release);
  // The last rank to arrive wakes all others. After a rank has failed without waiting for another one, the wrong rank
  // may count as the last; sleepers then find out when their timeout expires.
  if ((front_->arrivals.fetch_add(1, std::memory_order_acq_rel) + 1) % ranks_ != 0) return;
  front_->round.fetch_add(1, std::memory_order_seq_cst);
  if (front_->sleepers.load(std::memory_order_seq_cst) != 0) futex::wake(front_->round);
}

bool rank_memory::has_published(std::size_t rank, std::uint64_t step) const {
  return states_[rank].published.load(std::memory_order_acquire) >= step;
}

bool rank_memory::has_failed(std::size_t rank, std::uint64_t step) const {
  return states_[rank].failed[step % 2].load(std::memory_order_relaxed) == step;
}

peer_failure rank_memory::failure_of(std::size_t rank, std::uint64_t step) const {
  const auto& n = notes_[2 * rank + step % 2];
  return {n.origin, n.status, std::string(n.text.data(), n.text_bytes)};
}

const peer_header& rank_memory::header_of(std::size_t rank, std::uint64_t step) const {
  return heads_[2 * rank + step % 2].call;
}

peer_call rank_memory::call_of(std::size_t rank, std::uint64_t step) const {
  const auto& h = heads_[2 * rank + step % 2];
  return peer_call::of(h.call, {h.name.data(), h.call.name_bytes});
}

bool rank_memory::all_received_of(std::size_t rank, std::uint64_t step) const {
  return heads_[2 * rank + step % 2].sent[rank_] == received_[rank];
}

std::uint32_t rank_memory::round() const noexcept { return front_->round.load(std::memory_order_acquire); }

void rank_memory::sleep(std::uint32_t round, std::chrono::nanoseconds limit) {
  if (futex::spin(front_->round, round)) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec nap{seconds.count(), (limit - seconds).count()};
  front_->sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (front_->round.load(std::memory_order_seq_cst) == round) futex::sleep_while(front_->round, round, &nap);
  front_->sleepers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace paracel
