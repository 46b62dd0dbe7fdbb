// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace paracel {

/// The seals of such a file: nobody can make it shorter, and its mapping unusable.
inline constexpr int seals_of_size = F_SEAL_SHRINK | F_SEAL_GROW;

/// A file of zeros in memory, of this size for ever, for other processes to map, too. The memory of the first
/// `reserved` bytes is there: the first access to a page that the system refuses (vm.overcommit_memory 2) would end a
/// process with SIGBUS. Returns: its descriptor; -1 with errno if the system refuses one of it, or the limit of a
/// file's size, beyond which it would end this process with SIGXFSZ, is lower.
inline int sealed_memory(const char* name, std::size_t bytes, std::size_t reserved) noexcept {
  rlimit largest{};
  if (::getrlimit(RLIMIT_FSIZE, &largest) != 0) return -1;
  if (largest.rlim_cur < bytes) {
    errno = EFBIG;
    return -1;
  }
  const int fd = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  int error = ::ftruncate(fd, static_cast<off_t>(bytes)) != 0 ? errno : 0;
  if (error == 0 && reserved != 0) error = ::posix_fallocate(fd, 0, static_cast<off_t>(reserved));
  if (error == 0 && ::fcntl(fd, F_ADD_SEALS, seals_of_size | F_SEAL_SEAL) != 0) error = errno;
  if (error == 0) return fd;
  ::close(fd);
  errno = error;
  return -1;
}

}  // namespace paracel
