// SPDX-License-Identifier: BSD-3-Clause
#include "net/unix_ring.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <new>
#include <utility>

#include "core/sealed_memory.hpp"
#include "net/mutex.hpp"

namespace paracel::net {

namespace {

constexpr std::size_t alignment = 64;
// Of the memory that is asked for at a time.
constexpr std::size_t reserve_step = std::size_t{256} * 1024;

std::atomic<std::size_t> rings_made{0};  // those that exist

bool is_inside(std::uint64_t offset, std::uint64_t bytes) noexcept {
  return bytes != 0 && bytes <= ring_capacity && offset <= ring_capacity - bytes;
}

}  // namespace

ring_memory::ring_memory(int file) noexcept {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  void* mapped = file < 0 ? MAP_FAILED : ::mmap(nullptr, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  at_ = mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

ring_memory::~ring_memory() {
  if (at_ != nullptr) ::munmap(at_, file_bytes);
}

/// What a ring and its loans have in common.
class ring_reader::shared {
 public:
  explicit shared(int file) noexcept : memory(file) { ++rings_made; }
  shared(const shared&) = delete;
  shared& operator=(const shared&) = delete;
  ~shared() { --rings_made; }

  /// The number of the next block.
  std::uint64_t next() {
    const mutex_lock lock(access_);
    is_back_.push_back(false);
    return taken_ + is_back_.size() - 1;
  }
  /// The sender frees blocks in order.
  void give_back(std::uint64_t number) noexcept {
    const mutex_lock lock(access_);
    is_back_[number - taken_] = true;
    for (; !is_back_.empty() && is_back_.front(); ++taken_) is_back_.pop_front();
    memory.taken().store(taken_, std::memory_order_release);
  }

  const ring_memory memory;

 private:
  mutex access_;
  std::deque<bool> is_back_ PARACEL_GUARDED_BY(access_);  // the blocks from taken_ on
  std::uint64_t taken_ PARACEL_GUARDED_BY(access_) = 0;
};

struct ring_reader::loan : shared_buffer::control {
  std::shared_ptr<shared> from;
  std::uint64_t number = 0;
};

std::unique_ptr<ring_reader> ring_reader::make() noexcept {
  owned_fd file(sealed_memory("paracel_ring", ring_memory::file_bytes, ring_memory::front_bytes));
  if (file.get() < 0) return nullptr;
  try {
    auto state = std::make_shared<shared>(file.get());
    if (!state->memory || rings_made > most_rings) return nullptr;
    return std::unique_ptr<ring_reader>(new ring_reader(std::move(file), std::move(state)));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

bool ring_reader::take(std::uint64_t offset, std::uint64_t bytes, shared_buffer& out) {
  if (!is_inside(offset, bytes)) return false;
  out = shared_buffer::copy_of({shared_->memory.blocks() + offset, bytes});
  shared_->give_back(shared_->next());
  return true;
}

bool ring_reader::lend(std::uint64_t offset, std::uint64_t bytes, shared_buffer& out) {
  if (!is_inside(offset, bytes)) return false;
  auto lent = std::make_unique<loan>();
  lent->data = shared_->memory.blocks() + offset;
  lent->size = bytes;
  lent->from = shared_;
  lent->number = shared_->next();
  lent->destroy = [](shared_buffer::control* c) {
    const std::unique_ptr<loan> ended(static_cast<loan*>(c));
    ended->from->give_back(ended->number);
  };
  out = shared_buffer::adopt(lent.release());
  return true;
}

std::unique_ptr<ring_writer> ring_writer::open(owned_fd file) noexcept {
  struct stat s {};
  struct statfs system {};
  const int seals = file.get() < 0 ? -1 : ::fcntl(file.get(), F_GET_SEALS);
  // In memory, but not in huge pages: none may be left when one is needed.
  if (seals < 0 || (seals & seals_of_size) != seals_of_size || ::fstat(file.get(), &s) != 0 ||
      s.st_size != static_cast<off_t>(ring_memory::file_bytes) || ::fstatfs(file.get(), &system) != 0 ||
      system.f_type != TMPFS_MAGIC)
    return nullptr;
  std::unique_ptr<ring_writer> opened(new (std::nothrow) ring_writer(std::move(file)));
  return opened && opened->memory_ ? std::move(opened) : nullptr;
}

std::optional<std::uint64_t> ring_writer::put(std::span<const std::byte> first,
                                              std::span<const std::byte> second) noexcept {
  const std::size_t bytes = first.size() + second.size();
  if (bytes == 0 || bytes > ring_capacity) return {};
  reclaim();
  if (!is_usable_ || put_ - freed_ == most_blocks) return {};
  const auto offset = room_for(bytes);
  if (!offset || !reserve(*offset + bytes)) return {};
  auto* to = memory_.blocks() + *offset;
  if (!first.empty()) std::memcpy(to, first.data(), first.size());
  if (!second.empty()) std::memcpy(to + first.size(), second.data(), second.size());
  blocks_[put_++ % most_blocks] = {*offset, bytes};
  unread_ += bytes;
  return *offset;
}

/// Where a block fits behind the newest one. The first one again once all are taken: that memory is still in the
/// caches.
std::optional<std::size_t> ring_writer::room_for(std::size_t bytes) const noexcept {
  if (put_ == freed_) return 0;
  const auto behind = (newest().offset + newest().bytes + alignment - 1) / alignment * alignment;
  const bool is_wrapped = newest().offset < oldest().offset;
  const auto end = is_wrapped ? oldest().offset : ring_capacity;
  if (behind <= end && bytes <= end - behind) return behind;
  if (!is_wrapped && bytes <= oldest().offset) return 0;
  return {};
}

void ring_writer::reclaim() noexcept {
  const auto taken = memory_.taken().load(std::memory_order_acquire);
  if (taken - freed_ > put_ - freed_) {  // the receiver does not keep to the rules
    is_usable_ = false;
    return;
  }
  for (; freed_ != taken; ++freed_) unread_ -= oldest().bytes;
}

/// A page that the system refuses when it is first written would end the process.
bool ring_writer::reserve(std::size_t end) noexcept {
  if (end <= reserved_) return true;
  end = std::min(ring_capacity, (end + reserve_step - 1) / reserve_step * reserve_step);
  if (::posix_fallocate(file_.get(), static_cast<off_t>(ring_memory::front_bytes + reserved_),
                        static_cast<off_t>(end - reserved_)) != 0)
    return false;
  reserved_ = end;
  return true;
}

}  // namespace paracel::net
