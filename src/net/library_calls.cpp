// SPDX-License-Identifier: BSD-3-Clause
//
// Source: System V ABI, AMD64 supplement and ELF for the Arm 64-bit architecture: relocations of functions.
#include "net/library_calls.hpp"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace paracel::net {

namespace {

#if defined(__x86_64__)
constexpr bool is_function(std::uint64_t type) { return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT; }
#elif defined(__aarch64__)
constexpr bool is_function(std::uint64_t type) { return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT; }
#else
constexpr bool is_function(std::uint64_t) { return false; }
#endif

struct search {
  const void* member;
  std::span<const redirected_call> calls;
  std::vector<bool> done;
  bool has_failed = false;
};

/// The tables of a loaded library.
struct library {
  explicit library(const dl_phdr_info& info) : base(info.dlpi_addr) {
    for (std::size_t i = 0; i < info.dlpi_phnum; ++i) {
      const auto& h = info.dlpi_phdr[i];
      if (h.p_type == PT_DYNAMIC) read(reinterpret_cast<const ElfW(Dyn)*>(base + h.p_vaddr));
      if (h.p_type != PT_GNU_RELRO) continue;
      // As the dynamic linker rounds: a last partial page stays writable.
      const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
      read_only_begin = (base + h.p_vaddr) & ~(page - 1);
      read_only_end = (base + h.p_vaddr + h.p_memsz) & ~(page - 1);
    }
  }

  std::uintptr_t base;
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  std::span<const ElfW(Rela)> calls;  // resolved at the first call, or when the library is loaded
  std::span<const ElfW(Rela)> data;   // addresses, those of functions among them
  std::uintptr_t read_only_begin = 0;
  std::uintptr_t read_only_end = 0;

 private:
  void read(const ElfW(Dyn) * entry) {
    const ElfW(Rela)* call_table = nullptr;
    const ElfW(Rela)* data_table = nullptr;
    std::size_t call_bytes = 0;
    std::size_t data_bytes = 0;
    for (; entry->d_tag != DT_NULL; ++entry) {
      // The dynamic linker has made offsets into addresses, where it may write to this table.
      const auto value = entry->d_un.d_ptr;
      const auto address = value < base ? base + value : value;
      switch (entry->d_tag) {
        case DT_SYMTAB:
          symbols = reinterpret_cast<const ElfW(Sym)*>(address);
          break;
        case DT_STRTAB:
          names = reinterpret_cast<const char*>(address);
          break;
        case DT_JMPREL:
          call_table = reinterpret_cast<const ElfW(Rela)*>(address);
          break;
        case DT_PLTRELSZ:
          call_bytes = entry->d_un.d_val;
          break;
        case DT_RELA:
          data_table = reinterpret_cast<const ElfW(Rela)*>(address);
          break;
        case DT_RELASZ:
          data_bytes = entry->d_un.d_val;
          break;
        default:
          break;
      }
    }
    if (call_table != nullptr) calls = {call_table, call_bytes / sizeof(ElfW(Rela))};
    if (data_table != nullptr) data = {data_table, data_bytes / sizeof(ElfW(Rela))};
  }
};

bool contains(const dl_phdr_info& info, const void* member) {
  const auto at = reinterpret_cast<std::uintptr_t>(member);
  for (std::size_t i = 0; i < info.dlpi_phnum; ++i) {
    const auto& h = info.dlpi_phdr[i];
    const auto begin = info.dlpi_addr + h.p_vaddr;
    if (h.p_type == PT_LOAD && at >= begin && at < begin + h.p_memsz) return true;
  }
  return false;
}

/// Returns: whether the address is there now.
bool put(const library& in, std::uintptr_t place, void* what) {
  const std::atomic_ref<void*> slot(*reinterpret_cast<void**>(place));
  if (slot.load(std::memory_order_acquire) == what) return true;
  const bool is_protected = place >= in.read_only_begin && place < in.read_only_end;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* const begin = reinterpret_cast<void*>(place & ~(page - 1));  // a slot is aligned: it is in one page
  if (is_protected && mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) return false;
  slot.store(what, std::memory_order_release);
  if (is_protected) (void)mprotect(begin, page, PROT_READ);
  return true;
}

void redirect(const library& in, std::span<const ElfW(Rela)> table, search& s) {
  for (const auto& r : table) {
    if (!is_function(ELF64_R_TYPE(r.r_info))) continue;
    const char* name = in.names + in.symbols[ELF64_R_SYM(r.r_info)].st_name;
    for (std::size_t i = 0; i < s.calls.size(); ++i) {
      if (std::strcmp(name, s.calls[i].name) != 0) continue;
      if (put(in, in.base + r.r_offset, s.calls[i].replacement)) s.done[i] = true;
      else s.has_failed = true;
    }
  }
}

int visit(dl_phdr_info* info, std::size_t, void* data) {
  auto& s = *static_cast<search*>(data);
  if (!contains(*info, s.member)) return 0;
  const library found(*info);
  if (found.symbols == nullptr || found.names == nullptr) return 1;
  redirect(found, found.calls, s);
  redirect(found, found.data, s);
  return 1;
}

}  // namespace

bool redirect_calls(const void* member, std::span<const redirected_call> calls) {
  search s{member, calls, std::vector<bool>(calls.size())};
  dl_iterate_phdr(&visit, &s);
  if (s.has_failed) return false;
  for (const bool done : s.done)
    if (!done) return false;
  return true;
}

}  // namespace paracel::net
