// SPDX-License-Identifier: BSD-3-Clause
#include "server/plugin/plugin_files.hpp"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <grp.h>
#include <link.h>
#include <linux/openat2.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

#include <paracel/error.hpp>
#include <paracel/update.hpp>

#include "core/hash.hpp"

namespace paracel::srv {

namespace {

class descriptor {
 public:
  explicit descriptor(int fd) : fd_(fd) {}
  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  descriptor& operator=(descriptor&&) = delete;
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_;
};

std::string errno_text(int code) { return std::generic_category().message(code); }

/// Opens `name`, a base name, in the folder; never follows a symbolic link.
descriptor open_beneath(const descriptor& folder, const std::string& name) {
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  auto fd = static_cast<int>(::syscall(SYS_openat2, folder.get(), name.c_str(), &how, sizeof(how)));
  // Kernels before 5.6 and some container runtimes lack it; for a name without a slash this is equivalent.
  if (fd < 0 && (errno == ENOSYS || errno == EPERM))
    fd = ::openat(folder.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  return descriptor(fd);
}

std::string read_content(int fd) {
  std::string content;
  std::array<char, 1 << 16> piece;
  ssize_t n = 0;
  while ((n = ::read(fd, piece.data(), piece.size())) != 0) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw plugin_error("cannot be read: " + errno_text(errno));
    content.append(piece.data(), static_cast<std::size_t>(n));
  }
  return content;
}

/// Whether a library is truncated: the loader would map what does not exist, and reading that raises
/// SIGBUS.
bool is_cut_off(std::string_view content) {
  ElfW(Ehdr) head;
  if (content.size() < sizeof head || !content.starts_with(ELFMAG)) return false;  // not a library: the loader says so
  std::memcpy(&head, content.data(), sizeof head);
  const auto fits = [&](std::uint64_t at, std::uint64_t bytes) {
    return at <= content.size() && bytes <= content.size() - at;
  };
  if (!fits(head.e_phoff, std::uint64_t{head.e_phnum} * sizeof(ElfW(Phdr)))) return true;
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    ElfW(Phdr) segment;
    std::memcpy(&segment, content.data() + head.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type == PT_LOAD && !fits(segment.p_offset, segment.p_filesz)) return true;
  }
  return false;
}

/// Whether a group is the private one of this user or of root: it has the user's name and no other user. Systems that
/// give each user such a group have umask 002, so that what is installed is writable by it.
bool is_private_group(gid_t group) {
  static std::mutex one_at_a_time;  // the functions of the C library share their result
  const std::lock_guard lock(one_at_a_time);
  const auto* found = ::getgrgid(group);
  if (found == nullptr) return false;
  const std::string name = found->gr_name;
  std::vector<std::string> members;
  for (char** m = found->gr_mem; *m != nullptr; ++m) members.emplace_back(*m);
  const auto is_ours = [](uid_t user) { return user == ::geteuid() || user == 0; };
  const auto* of_name = ::getpwnam(name.c_str());
  if (of_name == nullptr || !is_ours(of_name->pw_uid) || of_name->pw_gid != group) return false;
  for (const auto& member : members) {
    const auto* user = ::getpwnam(member.c_str());
    if (user == nullptr || !is_ours(user->pw_uid)) return false;
  }
  ::setpwent();
  bool alone = true;
  while (const auto* user = ::getpwent()) alone = alone && (user->pw_gid != group || is_ours(user->pw_uid));
  ::endpwent();
  return alone;
}

/// Which user other than root and this one could modify it; empty: none.
std::string others_who_may_change(const struct stat& about) {
  if (about.st_uid != ::geteuid() && about.st_uid != 0)
    return "belongs to another user (uid " + std::to_string(about.st_uid) + ", neither root nor this one, " +
           std::to_string(::geteuid()) + ")";
  // In a folder with the sticky bit users cannot replace each other's files.
  if (S_ISDIR(about.st_mode) && (about.st_mode & S_ISVTX) != 0) return {};
  if ((about.st_mode & S_IWOTH) != 0) return "may be written by everyone: chmod o-w it";
  if ((about.st_mode & S_IWGRP) != 0 && !is_private_group(about.st_gid))
    return "may be written by its group: chmod g-w it";
  return {};
}

/// A file that is read at offsets that the file itself names.
class elf_file {
 public:
  elf_file(int fd, std::uint64_t size) : fd_(fd), size_(size) {}

  template <class T>
  [[nodiscard]] std::optional<T> at(std::uint64_t offset) const {
    T out;
    if (offset > size_ || size_ - offset < sizeof out) return std::nullopt;
    if (::pread(fd_, &out, sizeof out, static_cast<off_t>(offset)) != static_cast<ssize_t>(sizeof out))
      return std::nullopt;
    return out;
  }
  template <class T>
  [[nodiscard]] std::vector<T> list_at(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset > size_ || size_ - offset < bytes || bytes > most_list_bytes) return {};
    std::vector<T> out(bytes / sizeof(T));
    const auto whole = static_cast<ssize_t>(out.size() * sizeof(T));
    if (::pread(fd_, out.data(), static_cast<std::size_t>(whole), static_cast<off_t>(offset)) != whole) return {};
    return out;
  }

 private:
  static constexpr std::uint64_t most_list_bytes = 16 << 20;
  int fd_;
  std::uint64_t size_;
};

/// AddressSanitizer's symbols include the redzones around the objects.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool padded_objects = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool padded_objects = true;
#else
constexpr bool padded_objects = false;
#endif
#else
constexpr bool padded_objects = false;
#endif

bool exports_functions(int fd, std::uint64_t size) {
  using header = std::conditional_t<sizeof(void*) == 8, Elf64_Ehdr, Elf32_Ehdr>;
  using section = std::conditional_t<sizeof(void*) == 8, Elf64_Shdr, Elf32_Shdr>;
  using symbol = std::conditional_t<sizeof(void*) == 8, Elf64_Sym, Elf32_Sym>;
  const elf_file file(fd, size);
  const auto head = file.at<header>(0);
  if (!head || std::memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_shentsize != sizeof(section)) return false;
  const auto is_one = [](const symbol& s) {
    if (s.st_shndx == SHN_UNDEF || (s.st_info & 0xfU) != STT_OBJECT) return false;
    return s.st_size == sizeof(update_result) || s.st_size == sizeof(filter_result) ||
           s.st_size == sizeof(optimizer_result) || (padded_objects && s.st_size > sizeof(filter_result));
  };
  for (const auto& s : file.list_at<section>(head->e_shoff, std::uint64_t{head->e_shnum} * sizeof(section)))
    if (s.sh_type == SHT_DYNSYM && std::ranges::any_of(file.list_at<symbol>(s.sh_offset, s.sh_size), is_one))
      return true;
  return false;
}

}  // namespace

plugin_file find_plugin_file(const std::string& folder, const std::string& name) {
  plugin_file c;
  c.path = folder + "/" + name;
  const descriptor directory(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return c;
  const auto file = open_beneath(directory, name);
  if (!file) {
    const int code = errno;
    if (code == ENOENT) return c;
    c.exists = true;
    c.problem = code == ELOOP ? "is a symbolic link, which is not followed: put the file itself there"
                              : "cannot be opened: " + errno_text(code);
    return c;
  }
  c.exists = true;
  struct stat at_file {
  }, at_folder{}, by_path{};
  if (::fstat(file.get(), &at_file) != 0 || ::fstat(directory.get(), &at_folder) != 0) {
    c.problem = "cannot be examined: " + errno_text(errno);
  } else if (!S_ISREG(at_file.st_mode)) {
    c.problem = "is not a regular file";
  } else if (const auto who = others_who_may_change(at_file); !who.empty()) {
    c.problem = who;
  } else if (const auto whose = others_who_may_change(at_folder); !whose.empty()) {
    c.problem = "lies in " + folder + ", which " + whose;
  } else {
    // The loader gets the path and not /proc/self/fd/N: debuggers read it, and glibc mistakes a reused descriptor
    // number for the library that had it before.
    const std::unique_ptr<char, decltype(&std::free)> real(::realpath(folder.c_str(), nullptr), &std::free);
    if (real != nullptr) c.path = std::string(real.get()) + "/" + name;
    if (::stat(c.path.c_str(), &by_path) != 0 || by_path.st_dev != at_file.st_dev || by_path.st_ino != at_file.st_ino)
      c.problem = "was replaced while it was being checked";
  }
  if (c.problem.empty()) {
    try {
      const auto content = read_content(file.get());
      c.content = hash_key(content);
      if (is_cut_off(content))
        c.problem = "is cut off: the file is shorter than the library in it; copy or build it again";
    } catch (const plugin_error& e) {
      c.problem = e.what();
    }
  }
  return c;
}

std::vector<std::string> plugins_in(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()), &::closedir);
  if (dir == nullptr) return names;
  const descriptor directory(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  while (const auto* entry = ::readdir(dir.get())) {
    const std::string name = entry->d_name;
    if (!name.ends_with(".so")) continue;
    const auto file = open_beneath(directory, name);
    struct stat about {};
    if (!file || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) continue;
    if (exports_functions(file.get(), static_cast<std::uint64_t>(about.st_size))) names.push_back(name);
  }
  return names;
}

std::vector<std::string> plugin_file_names(std::string_view plugin) {
  if (const auto slash = plugin.rfind('/'); slash != std::string_view::npos) plugin.remove_prefix(slash + 1);
  if (plugin.empty()) throw plugin_error("a plug-in is named by the file name of its library, such as libx.so");
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
  if (plugin == "." || plugin == ".." || plugin.size() > NAME_MAX - 6 || std::ranges::any_of(plugin, is_control)) {
    std::string shown(plugin.substr(0, 64));
    std::ranges::replace_if(shown, is_control, '?');
    throw plugin_error("'" + shown + "' cannot be the file name of a plug-in");
  }
  const std::string name(plugin);
  const std::string suffix = plugin.ends_with(".so") ? "" : ".so";
  std::vector<std::string> names{name};
  if (!suffix.empty()) names.push_back(name + suffix);
  names.push_back("lib" + name + suffix);
  return names;
}

}  // namespace paracel::srv
