// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/collective_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <paracel/error.hpp>

namespace paracel::srv {
namespace {

constexpr std::uint64_t page = 4096;      // of the file: the unit that is freed
constexpr std::size_t about_bytes = 200;  // an answer's entry

int open_nameless(const std::string& folder) {
  if (const int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600); fd >= 0) return fd;
  auto path = folder + "/.paracel.answers.XXXXXX";  // not every file system supports unnamed files
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) unlink(path.c_str());
  return fd;
}

}  // namespace

collective_log::collective_log(options o) : options_(std::move(o)) {
  for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) needs_.try_emplace(rank);
}

collective_log::~collective_log() {
  if (file_ >= 0) close(file_);
}

/// Keeps it in memory when the disk fails.
collective_log::stored collective_log::store(const shared_buffer& bytes) {
  stored s;
  if (bytes.size() <= options_.file_from || (file_ < 0 && (file_ = open_nameless(options_.folder)) < 0)) {
    s.bytes = bytes;
    return s;
  }
  for (std::size_t done = 0; done < bytes.size();) {
    const auto n = pwrite(file_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(file_end_ + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      s.bytes = bytes;
      return s;
    }
    done += static_cast<std::size_t>(n);
  }
  s.at = file_end_;
  s.size = bytes.size();
  file_end_ += (s.size + page - 1) / page * page;
  file_bytes_ += s.size;
  return s;
}

void collective_log::keep(std::uint64_t number, std::string what, value_tag tag, const shared_buffer& shared,
                          std::vector<shared_buffer> own) {
  known_ = std::max(known_, number + 1);
  answer a{.what = std::move(what), .tag = tag, .parts = {}};
  if (own.empty()) a.parts.push_back(store(shared));
  for (const auto& bytes : own) a.parts.push_back(store(bytes));
  a.bytes = about_bytes;
  for (const auto& p : a.parts) a.bytes += sizeof p + p.bytes.size();
  bytes_ += a.bytes;
  if (const auto old = answers_.find(number); old != answers_.end()) drop(old);
  answers_.emplace(number, std::move(a));
  // The oldest first: a program that never marks the start of its loop needs all of them, and its workers can then no
  // longer be replaced.
  while (bytes_ > options_.most_bytes && answers_.size() > 1) drop(answers_.begin());
}

void collective_log::drop(std::map<std::uint64_t, answer>::iterator it) {
  bytes_ -= it->second.bytes;
  for (const auto& p : it->second.parts) {
    if (p.size == 0) continue;
    file_bytes_ -= p.size;
    // Where that is unsupported, the file does not shrink.
    [[maybe_unused]] const int same =
        fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(p.at),
                  static_cast<off_t>((p.size + page - 1) / page * page));
  }
  answers_.erase(it);
}

void collective_log::needs(std::uint32_t rank, std::vector<std::pair<std::uint64_t, std::uint64_t>> again,
                           std::uint64_t from) {
  const auto it = needs_.find(rank);
  if (it == needs_.end() || (it->second.from == from && it->second.again == again)) return;
  it->second = {std::move(again), from};
  tidy();
}

void collective_log::needs_nothing(std::uint32_t rank) {
  if (needs_.erase(rank) != 0) tidy();
}

void collective_log::tidy() {
  std::uint64_t end = known_;
  for (const auto& [rank, n] : needs_) end = std::min(end, n.from);
  const auto is_needed = [&](std::uint64_t number) {
    return std::ranges::any_of(needs_, [number](const auto& of) {
      return std::ranges::any_of(
          of.second.again, [number](const auto& range) { return range.first <= number && number < range.second; });
    });
  };
  for (auto it = answers_.begin(); it != answers_.end() && it->first < end;) {
    const auto here = it++;
    if (!is_needed(here->first)) drop(here);
  }
}

collective_log::found collective_log::find(std::uint64_t number, std::uint32_t rank, const std::string& what,
                                           shared_buffer& out, value_tag& tag, std::string& why) {
  const auto it = answers_.find(number);
  if (it == answers_.end()) {
    if (number >= known_) return found::no;
    why = "it was answered before, and the answer has not been kept";
    return found::dropped;
  }
  const auto& a = it->second;
  if (a.what != what) {
    why = "rank " + std::to_string(rank) + " calls " + what + ", but the process that it replaces called " + a.what;
    return found::differs;
  }
  tag = a.tag;
  const auto& p = a.parts.size() == 1 ? a.parts.front() : a.parts.at(rank);
  out = p.bytes;
  if (p.size == 0) return found::yes;
  out = shared_buffer::allocate(static_cast<std::size_t>(p.size));
  for (std::size_t done = 0; done < p.size;) {
    const auto n = pread(file_, out.mutable_data() + done, static_cast<std::size_t>(p.size) - done,
                         static_cast<off_t>(p.at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      why = std::string("its answer cannot be read again: ") + (n < 0 ? std::strerror(errno) : "it is cut off");
      return found::dropped;
    }
    done += static_cast<std::size_t>(n);
  }
  return found::yes;
}

}  // namespace paracel::srv
