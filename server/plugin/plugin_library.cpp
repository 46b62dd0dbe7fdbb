// SPDX-License-Identifier: BSD-3-Clause
//
// The only file that uses the dynamic loader for plug-ins.
#include "server/plugin/plugin_library.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <mutex>

namespace paracel::srv {

namespace {

/// The number of dynamic symbols is stored only in the hash sections; with the GNU one it is the end of the last chain.
std::size_t symbol_count(const std::uint32_t* gnu_hash, const std::uint32_t* hash) {
  if (hash != nullptr) return hash[1];
  if (gnu_hash == nullptr) return 0;
  const auto buckets = gnu_hash[0];
  const auto first = gnu_hash[1];
  const auto* bucket = gnu_hash + 4 + gnu_hash[2] * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
  const auto* chain = bucket + buckets;
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < buckets; ++i) last = std::max(last, bucket[i]);
  if (last < first) return first;
  while ((chain[last - first] & 1U) == 0) ++last;
  return last + std::size_t{1};
}

/// The symbols that the library itself defines; dlsym would also find those of the libraries it needs.
template <class F>
void for_each_symbol(void* handle, F&& f) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return;
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* gnu_hash = nullptr;
  const std::uint32_t* hash = nullptr;
  for (const auto* d = map->l_ld; d->d_tag != DT_NULL; ++d) {
    switch (d->d_tag) {
      case DT_SYMTAB:
        symbols = reinterpret_cast<const ElfW(Sym)*>(d->d_un.d_ptr);
        break;
      case DT_STRTAB:
        strings = reinterpret_cast<const char*>(d->d_un.d_ptr);
        break;
      case DT_GNU_HASH:
        gnu_hash = reinterpret_cast<const std::uint32_t*>(d->d_un.d_ptr);
        break;
      case DT_HASH:
        hash = reinterpret_cast<const std::uint32_t*>(d->d_un.d_ptr);
        break;
      default:
        break;
    }
  }
  if (symbols == nullptr || strings == nullptr) return;
  const auto count = symbol_count(gnu_hash, hash);
  for (std::size_t i = 1; i < count; ++i) {
    const auto& s = symbols[i];
    if (s.st_shndx == SHN_UNDEF || s.st_shndx == SHN_ABS) continue;
    f(strings + s.st_name, s, reinterpret_cast<const std::byte*>(map->l_addr + s.st_value));
  }
}

plugin_symbol symbol(const char* name, const ElfW(Sym) & s, const std::byte* address) {
  return {name, static_cast<unsigned>(s.st_info & 0xfU), s.st_size, address};
}

/// Not checked by AddressSanitizer: with clang's, a symbol's size includes redzones.
[[gnu::no_sanitize_address]] void copy_unchecked(const std::byte* from, std::size_t bytes, std::byte* to) noexcept {
  const volatile std::byte* at = from;  // no memcpy, which would be checked
  for (std::size_t i = 0; i < bytes; ++i) to[i] = at[i];
}

}  // namespace

bool plugin_symbol::is_object() const noexcept { return type == STT_OBJECT; }

std::vector<std::byte> plugin_symbol::bytes(std::size_t most) const {
  std::vector<std::byte> out(std::min<std::size_t>(most, size));
  copy_unchecked(address, out.size(), out.data());
  return out;
}

std::uint32_t plugin_symbol::magic() const noexcept {
  std::uint32_t m = 0;
  if (is_object() && size >= sizeof m) copy_unchecked(address, sizeof m, reinterpret_cast<std::byte*>(&m));
  return m;
}

bool mapped_library::open(const std::string& path, std::string& why) {
  // Two servers in one process may load the same file. The loader has its own lock, but ThreadSanitizer does not see
  // that it orders a plug-in's initialisers before later reads of their results: this lock makes it visible.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ != nullptr) return true;
  const char* reason = ::dlerror();
  why = reason != nullptr ? reason : "no reason given";
  return false;
}

bool mapped_library::share(const char* library) noexcept {
  return ::dlopen(library, RTLD_NOW | RTLD_GLOBAL) != nullptr;
}

std::optional<plugin_symbol> mapped_library::find(std::string_view name) {
  std::optional<plugin_symbol> found;
  for_each_symbol(handle_, [&](const char* known, const auto& s, const std::byte* address) {
    if (known == name) found = symbol(known, s, address);
  });
  return found;
}

std::vector<std::string> mapped_library::exports(std::uint32_t magic) {
  std::vector<std::string> names;
  for_each_symbol(handle_, [&](const char* name, const auto& s, const std::byte* address) {
    if (symbol(name, s, address).magic() == magic) names.emplace_back(name);
  });
  return names;
}

std::string framework_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&framework_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string path = info.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

}  // namespace paracel::srv
