// SPDX-License-Identifier: BSD-3-Clause
//
// The only file that knows the dynamic loader's plug-in side. A plug-in is trusted once it is loaded; what is checked
// here is which file that may be, and that its author and this server mean the same by `update_result`.
#include "server/plugin_registry.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <system_error>

#include <paracel/error.hpp>

#include "core/hash.hpp"

namespace paracel::srv {

namespace {

constexpr std::string_view default_plugin = "libparacel_default.so";
constexpr std::string_view default_symbol = "paracel_add";
constexpr std::size_t most_names_in_a_text = 8;
constexpr std::size_t error_text_bytes = 1024;

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

std::string join(std::vector<std::string> names) {
  std::ranges::sort(names);
  const bool cut = names.size() > most_names_in_a_text;
  if (cut) names.resize(most_names_in_a_text);
  std::string all;
  for (const auto& n : names) all += (all.empty() ? "" : ", ") + n;
  return cut ? all + ", ..." : all;
}

/// The folder of the shared object this code is in: libparacel.so, or the program it was linked into.
std::string own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string path = info.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

/// Opens `name`, a base name, in the folder; never through a symbolic link.
descriptor open_beneath(const descriptor& folder, const std::string& name) {
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  auto fd = static_cast<int>(::syscall(SYS_openat2, folder.get(), name.c_str(), &how, sizeof(how)));
  // Kernels before 5.6 and some container runtimes do not have it; for a name without a slash this says the same.
  if (fd < 0 && (errno == ENOSYS || errno == EPERM))
    fd = ::openat(folder.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  return descriptor(fd);
}

/// What is wrong with `name` in `folder` as a plug-in; the path and content hash when nothing is.
struct candidate {
  std::string path;
  std::uint64_t content = 0;
  bool exists = false;
  std::string problem;
};

std::uint64_t hash_content(int fd) {
  std::string content;
  std::array<char, 1 << 16> piece;
  ssize_t n = 0;
  while ((n = ::read(fd, piece.data(), piece.size())) != 0) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw plugin_error("cannot be read: " + errno_text(errno));
    content.append(piece.data(), static_cast<std::size_t>(n));
  }
  return hash_key(content);
}

candidate inspect(const std::string& folder, const std::string& name) {
  candidate c;
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
  } else if ((at_file.st_mode & S_IWOTH) != 0) {
    c.problem = "may be written by everyone: chmod o-w it";
  } else if ((at_folder.st_mode & S_IWOTH) != 0 && (at_folder.st_mode & S_ISVTX) == 0) {
    c.problem = "lies in a folder in which everyone may exchange it: chmod o-w " + folder;
  } else {
    // The loader gets the path and not /proc/self/fd/N: debuggers read it, and glibc takes a reused number for the
    // library that had it before.
    const std::unique_ptr<char, decltype(&std::free)> real(::realpath(folder.c_str(), nullptr), &std::free);
    if (real != nullptr) c.path = std::string(real.get()) + "/" + name;
    if (::stat(c.path.c_str(), &by_path) != 0 || by_path.st_dev != at_file.st_dev || by_path.st_ino != at_file.st_ino)
      c.problem = "was exchanged while it was looked at";
  }
  if (c.problem.empty()) {
    try {
      c.content = hash_content(file.get());
    } catch (const plugin_error& e) {
      c.problem = e.what();
    }
  }
  return c;
}

std::vector<std::string> libraries_in(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()), &::closedir);
  if (dir == nullptr) return names;
  while (const auto* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name.ends_with(".so")) names.emplace_back(name);
  }
  return names;
}

/// The file names that `plugin` may mean, the likeliest first.
std::vector<std::string> file_names(std::string_view plugin) {
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

/// One exported symbol of a loaded library.
struct symbol_entry {
  const char* name;
  unsigned type;
  std::uint64_t size;
  const std::byte* address;
  [[nodiscard]] bool is_object() const noexcept { return type == STT_OBJECT; }
  [[nodiscard]] std::uint32_t magic() const noexcept {
    std::uint32_t m = 0;
    if (is_object() && size >= sizeof(m)) std::memcpy(&m, address, sizeof(m));
    return m;
  }
};

/// The number of dynamic symbols stands only in the hash sections; with the GNU one it is the end of the last chain.
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
    f(symbol_entry{strings + s.st_name, static_cast<unsigned>(s.st_info & 0xfU), s.st_size,
                   reinterpret_cast<const std::byte*>(map->l_addr + s.st_value)});
  }
}

std::optional<symbol_entry> find_symbol(void* handle, std::string_view name) {
  std::optional<symbol_entry> found;
  for_each_symbol(handle, [&](const symbol_entry& s) {
    if (s.name == name) found = s;
  });
  return found;
}

std::string exported_updates(void* handle) {
  std::vector<std::string> names;
  for_each_symbol(handle, [&](const symbol_entry& s) {
    if (s.magic() == abi::update_magic || s.magic() == abi::optimizer_magic) names.emplace_back(s.name);
  });
  if (names.empty())
    return "it exports no update function; write extern \"C\" { extern paracel::update_result f; } "
           "paracel::update_result f = paracel::update_proxy(...);";
  return "it exports " + join(std::move(names));
}

std::string other_abi(std::uint16_t version, std::uint16_t bytes, std::size_t bytes_here) {
  return "was built for plug-in ABI " + std::to_string(version) + " (" + std::to_string(bytes) +
         " bytes), this server has " + std::to_string(abi::version) + " (" + std::to_string(bytes_here) +
         " bytes): build the plug-in against this version of paracel/update.hpp";
}

/// Why `s`, which has the magic of an optimizer, is none for this server; empty when it is one.
std::string problem_of_optimizer(const symbol_entry& s) {
  if (s.size < offsetof(optimizer_result, flags)) return "is no paracel::optimizer_result that paracel::optimizer_proxy made";
  const auto* o = reinterpret_cast<const optimizer_result*>(s.address);
  if (o->abi_version != abi::version || o->struct_bytes != sizeof(optimizer_result) || s.size < sizeof(optimizer_result))
    return other_abi(o->abi_version, o->struct_bytes, sizeof(optimizer_result));
  if (o->step == nullptr || o->hyper_count > abi::most_hyper_parameters || o->states > abi::most_states)
    return "is no optimizer that paracel::optimizer_proxy made";
  for (std::uint32_t i = 0; i < o->hyper_count; ++i) {
    if (::strnlen(o->hyper_names[i], abi::hyper_name_bytes) == abi::hyper_name_bytes)
      return "has a hyper-parameter whose name does not end";
  }
  return {};
}

/// Why `s` is no update function for this server; empty when it is one.
std::string problem_of(const symbol_entry& s, const std::string& name) {
  if (s.type == STT_FUNC || s.type == STT_GNU_IFUNC)
    return "is a function; export paracel::update_result NAME = paracel::update_proxy(" + name + ") and name that";
  if (s.magic() == abi::filter_magic) return "is a filter, and an update function was asked for";
  if (s.magic() != abi::update_magic || s.size < offsetof(update_result, flags))
    return "is no paracel::update_result that paracel::update_proxy made";
  const auto* u = reinterpret_cast<const update_result*>(s.address);
  if (u->abi_version != abi::version || u->struct_bytes != sizeof(update_result) || s.size < sizeof(update_result))
    return other_abi(u->abi_version, u->struct_bytes, sizeof(update_result));
  if (u->apply == nullptr && u->in_place == nullptr) return "has neither a general nor an in-place function";
  if (!is_known(static_cast<value_tag>(u->value_tag)) || !is_known(static_cast<value_tag>(u->delta_tag)))
    return "names a type that this version does not know";
  return {};
}

std::uint64_t id_of(std::uint64_t content, const std::string& symbol) {
  std::string identity(reinterpret_cast<const char*>(&content), sizeof(content));
  identity += "update";
  identity += '\0';
  identity += symbol;
  return hash_key(identity);
}

// ---- hyper-parameters

std::string hyper_names_of(const optimizer_result& o) {
  if (o.hyper_count == 0) return "it has none";
  std::string text = "it has ";
  for (std::uint32_t i = 0; i < o.hyper_count; ++i) text += (i == 0 ? "" : ", ") + std::string(o.hyper_names[i]);
  return text;
}

/// Reads "lr=0.1,eps=1e-6" into `values`. Returns what is wrong with it; empty when nothing is.
std::string read_hyper(const optimizer_result& o, std::string_view text, std::span<double> values) {
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto part = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const auto equals = part.find('=');
    const auto name = part.substr(0, equals);
    std::uint32_t at = 0;
    while (at < o.hyper_count && name != o.hyper_names[at]) ++at;
    if (at == o.hyper_count) return "has no hyper-parameter '" + std::string(name.substr(0, 64)) + "': " + hyper_names_of(o);
    const auto number = equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    double value = 0;
    const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (problem != std::errc() || end != number.data() + number.size() || !std::isfinite(value))
      return "hyper-parameter '" + std::string(name) + "' is '" + std::string(number.substr(0, 64)) +
             "', want a finite number; " + hyper_names_of(o);
    values[at] = value;
  }
  return {};
}

/// What stands in the place of an optimizer's update function.
std::int32_t refuse_optimizer(const update_result*, const abi::value*, const abi::value*, const abi::sink*,
                              abi::error_text* error) noexcept {
  update_detail::write_text(error, "is an optimizer, which steps whole keys and rows; this call cannot use one");
  return abi::failed;
}
std::int32_t refuse_to_begin(const update_result*, const abi::value*, const abi::sink*, abi::error_text* error) noexcept {
  return refuse_optimizer(nullptr, nullptr, nullptr, nullptr, error);
}
const update_result optimizer_stand_in = [] {
  auto u = update_detail::blank_update("float or double", "gradient");
  u.apply = refuse_optimizer;
  u.initialise = refuse_to_begin;
  return u;
}();

}  // namespace

struct plugin_registry::library {
  std::string name;
  std::string path;
  std::uint64_t content = 0;
  void* handle = nullptr;
};

plugin_registry::plugin_registry(std::vector<std::string> allowed_folders) : folders_(std::move(allowed_folders)) {
  tables_.push_back(std::make_unique<const table>());
  current_.store(tables_.back().get(), std::memory_order_release);
}

plugin_registry::~plugin_registry() = default;

void plugin_registry::allow_folder(std::string folder) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(folders_, folder) == folders_.end()) folders_.push_back(std::move(folder));
}

const loaded_update* plugin_registry::find(std::uint64_t id) const noexcept {
  const auto* t = current_.load(std::memory_order_acquire);
  const auto found = t->find(id);
  return found == t->end() ? nullptr : found->second;
}

void plugin_registry::publish(const loaded_update& update) {
  auto next = std::make_unique<table>(*tables_.back());
  const auto [place, is_new] = next->emplace(update.id, &update);
  if (!is_new) return;  // the same content under another name
  tables_.push_back(std::move(next));
  current_.store(tables_.back().get(), std::memory_order_release);
}

plugin_registry::library& plugin_registry::find_library(std::string_view plugin) {
  if (const auto known = spellings_.find(plugin); known != spellings_.end()) return *known->second;
  const auto names = file_names(plugin.empty() ? default_plugin : plugin);

  auto folders = folders_;
  if (std::ranges::find(names, default_plugin) != names.end()) folders.insert(folders.begin(), own_folder());
  std::string problem;
  for (const auto& name : names) {
    for (const auto& folder : folders) {
      auto c = inspect(folder, name);
      if (!c.exists) continue;
      if (!c.problem.empty()) {
        if (problem.empty()) problem = "plug-in " + c.path + " " + c.problem;
        continue;
      }
      auto& slot = libraries_[c.path];
      if (slot == nullptr) {
        void* handle = ::dlopen(c.path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) {
          const char* reason = ::dlerror();
          libraries_.erase(c.path);
          throw plugin_error("plug-in " + c.path +
                             " cannot be loaded: " + (reason != nullptr ? reason : "no reason given") +
                             "; a plug-in is a shared library for this machine, linked with what it uses");
        }
        slot = std::make_unique<library>(library{name, c.path, c.content, handle});
      }
      spellings_.emplace(plugin, slot.get());
      return *slot;
    }
  }
  if (!problem.empty()) throw plugin_error(problem);

  std::string text = "no plug-in '" + names.front() + "'";
  if (names.back() != names.front()) text += " (nor " + names.back() + ")";
  text += folders.empty() ? ": no folder is allowed for plug-ins" : " in ";
  std::vector<std::string> there;
  for (const auto& folder : folders) {
    text += (&folder == &folders.front() ? "" : ", ") + folder;
    const auto in_folder = libraries_in(folder);
    there.insert(there.end(), in_folder.begin(), in_folder.end());
  }
  if (!there.empty()) text += "; there are " + join(std::move(there));
  throw plugin_error(text);
}

const loaded_update& plugin_registry::load_update(std::string_view plugin, std::string_view symbol) {
  const std::lock_guard lock(mutex_);
  auto& from = find_library(plugin);
  if (symbol.empty() && from.name == default_plugin) symbol = default_symbol;
  std::string name(symbol);  // with its hyper-parameters
  if (const auto known = updates_.find({&from, name}); known != updates_.end()) return *known->second;
  const auto asked_as = name;
  std::string hyper;
  if (const auto zero = name.find('\0'); zero != std::string::npos) {
    hyper = name.substr(zero + 1);
    name.resize(zero);
  }

  const auto refuse = [&](const std::string& why) { throw plugin_error("plug-in " + from.path + why); };
  if (name.empty()) refuse(": no function was named; " + exported_updates(from.handle));
  const auto found = find_symbol(from.handle, name);
  if (!found) refuse(" has no '" + name + "'; " + exported_updates(from.handle));
  auto loaded = std::make_unique<loaded_update>();
  loaded->id = id_of(from.content, name);
  loaded->name = from.name + ":" + name;
  if (found->magic() == abi::optimizer_magic) {
    if (const auto problem = problem_of_optimizer(*found); !problem.empty()) refuse(": '" + name + "' " + problem);
    loaded->optimizer = reinterpret_cast<const optimizer_result*>(found->address);
    loaded->function = &optimizer_stand_in;
    std::copy_n(loaded->optimizer->hyper_defaults, loaded->optimizer->hyper_count, loaded->hyper.begin());
    if (const auto problem = read_hyper(*loaded->optimizer, hyper, loaded->hyper); !problem.empty())
      refuse(": '" + name + "' " + problem);
    loaded->family = loaded->id;
    const auto numbers = std::as_bytes(std::span(loaded->hyper));
    loaded->id = id_of(loaded->family, std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size()));
  } else {
    if (const auto problem = problem_of(*found, name); !problem.empty()) refuse(": '" + name + "' " + problem);
    if (!hyper.empty()) refuse(": '" + name + "' is an update function, which has no hyper-parameters");
    loaded->function = reinterpret_cast<const update_result*>(found->address);
    loaded->additive = (loaded->function->flags & abi::additive) != 0;
  }
  const auto& kept = *(updates_[{&from, asked_as}] = std::move(loaded));
  publish(kept);
  return kept;
}

// ---- calling
// ----------------------------------------------------------------------------------------------------------

namespace {

/// Memory of the thread for one call, aligned to 16. Beyond a megabyte it is given back: every shard thread has two.
class scratch {
 public:
  std::byte* reserve(std::size_t bytes) {
    if (memory_.size() < bytes) memory_.resize(bytes);
    return memory_.data();
  }
  void trim() noexcept {
    if (memory_.size() > (std::size_t{1} << 20)) std::vector<std::byte>().swap(memory_);
  }

 private:
  std::vector<std::byte> memory_;
};
thread_local scratch delta_scratch;
thread_local scratch value_scratch;

std::string describe(const value_view& v) {
  std::string text = codec_detail::describe(v);
  if (is_numeric(v.tag) && is_array(v.tag)) text += " of " + std::to_string(v.bytes.size() / element_bytes(v.tag));
  return text;
}

std::string signature(const loaded_update& u) {
  if (u.optimizer != nullptr) return u.name;
  const auto text = [](const char(&t)[48]) { return std::string(t, ::strnlen(t, sizeof(t))); };
  return u.name + " (" + text(u.function->value_type) + ", " + text(u.function->delta_type) + ")";
}

/// Where a failure is told.
struct verdict {
  const loaded_update& update;
  std::string& error;
  abi::outcome* outcome;

  bool fail(abi::outcome what, const std::string& text) const {
    error = signature(update) + ": " + text;
    if (outcome != nullptr) *outcome = what;
    return false;
  }
  bool mismatch(const value_view& current, const value_view& delta, const std::string& rule) const {
    return fail(abi::type_mismatch, "value is " + describe(current) + ", delta is " + describe(delta) + ": " + rule);
  }
  /// False if `result`, which the plug-in returned, is a failure.
  bool passed(std::int32_t result, const char* text) const {
    if (result == abi::ok) {
      if (outcome != nullptr) *outcome = abi::ok;
      return true;
    }
    return fail(result == abi::type_mismatch ? abi::type_mismatch : abi::failed,
                *text != '\0' ? text : "failed without a reason");
  }
};

bool widen_to(value_tag element, const value_view& from, std::byte* to) {
  switch (element) {
    case value_tag::i32:
      return codec_detail::widen(from, reinterpret_cast<std::int32_t*>(to));
    case value_tag::i64:
      return codec_detail::widen(from, reinterpret_cast<std::int64_t*>(to));
    case value_tag::f32:
      return codec_detail::widen(from, reinterpret_cast<float*>(to));
    case value_tag::f64:
      return codec_detail::widen(from, reinterpret_cast<double*>(to));
    default:
      return false;
  }
}

/// The numbers of `delta` as elements of `current`, aligned. Nothing: they do not fit, and `v` was told.
std::optional<const std::byte*> matching_delta(const value_view& current, const value_view& delta, const verdict& v) {
  const auto* f = v.update.function;
  const auto element = element_of(current.tag);
  if (!is_numeric(current.tag) || !is_numeric(delta.tag)) {
    v.mismatch(current, delta, "the function changes numbers in place");
    return std::nullopt;
  }
  if (f->value_tag != 0 && static_cast<value_tag>(f->value_tag) != element) {
    v.mismatch(current, delta, "the value has another type");
    return std::nullopt;
  }
  if (is_array(current.tag) != is_array(delta.tag)) {
    v.mismatch(current, delta, "one number and an array are not mixed");
    return std::nullopt;
  }
  const auto count = current.bytes.size() / element_bytes(element);
  if (delta.bytes.size() / element_bytes(delta.tag) != count) {
    v.mismatch(current, delta, "both must have the same size");
    return std::nullopt;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(delta.bytes.data());
  if (element_of(delta.tag) == element && address % element_bytes(element) == 0) return delta.bytes.data();
  auto* memory = delta_scratch.reserve(std::max<std::size_t>(current.bytes.size(), 1));
  if (!widen_to(element, delta, memory)) {
    delta_scratch.trim();
    v.mismatch(current, delta, "the delta would lose precision");
    return std::nullopt;
  }
  return memory;
}

/// Runs the in-place form; on failure the value may be half changed.
bool run_in_place(value_tag tag, std::span<std::byte> value, const std::byte* delta, const verdict& v) {
  std::array<char, error_text_bytes> buffer;
  buffer[0] = '\0';
  abi::error_text text{buffer.data(), buffer.size()};
  const auto element = element_of(tag);
  const auto* f = v.update.function;
  const auto result = f->in_place(f, static_cast<std::uint8_t>(element), value.data(), delta,
                                  value.size() / element_bytes(element), &text);
  delta_scratch.trim();
  return v.passed(result, buffer.data());
}

struct vector_sink {
  std::vector<std::byte>& out;
  value_tag tag = value_tag::none;
  bool placed = false;

  static std::byte* place(void* context, std::uint8_t tag, std::uint64_t bytes) noexcept {
    auto& self = *static_cast<vector_sink*>(context);
    self.tag = static_cast<value_tag>(tag);
    try {
      self.out.resize(static_cast<std::size_t>(bytes));
      // An array may be empty, and a null pointer means that there is no memory.
      if (bytes == 0) self.out.reserve(1);
    } catch (const std::exception&) {
      return nullptr;
    }
    self.placed = true;
    return self.out.data();
  }
};

value_tag array_of(value_tag t) noexcept { return static_cast<value_tag>(static_cast<unsigned>(t) | 0x10U); }

bool is_list(const value_view& v) noexcept {
  if (v.tag != value_tag::packed) return is_array(v.tag);
  return std::string_view(codec_detail::packed_kind(v.bytes)) == "packed list";
}

/// Writes `v`, read as what numeric `tag` stands for, to `out`.
void convert_to(value_tag tag, const value_view& v, std::vector<std::byte>& out) {
  const auto store = [&](std::span<const std::byte> bytes) { out.assign(bytes.begin(), bytes.end()); };
  if (tag == v.tag) return store(v.bytes);
  codec_detail::with_element(tag, [&](auto* p) {
    using element = std::remove_const_t<std::remove_pointer_t<decltype(p)>>;
    if (is_array(tag)) {
      const auto numbers = decode<std::vector<element>>(v);
      store(std::as_bytes(std::span(numbers)));
    } else {
      const auto number = decode<element>(v);
      store(std::as_bytes(std::span(&number, 1)));
    }
    return true;
  });
}

abi::value border(const value_view& v) noexcept {
  return {v.bytes.data(), v.bytes.size(), static_cast<std::uint8_t>(v.tag), {}};
}

/// Calls `call` with a sink on `out` and checks what came.
template <class Call>
value_tag run_general(std::vector<std::byte>& out, const verdict& v, Call&& call) {
  std::array<char, error_text_bytes> buffer;
  buffer[0] = '\0';
  abi::error_text text{buffer.data(), buffer.size()};
  vector_sink result{out};
  const abi::sink sink{&result, &vector_sink::place};
  if (!v.passed(call(&sink, &text), buffer.data())) return value_tag::none;
  if (!result.placed || result.tag == value_tag::none || !is_well_formed({result.tag, out})) {
    v.fail(abi::failed, "returned nothing that is a value");
    return value_tag::none;
  }
  return result.tag;
}

}  // namespace

apply_path path_of(const loaded_update& u, const value_view& current, const value_view& delta) noexcept {
  if (u.function->in_place == nullptr || !is_numeric(current.tag)) return apply_path::general;
  if (u.function->apply == nullptr) return apply_path::in_place;
  return current.tag == delta.tag && current.bytes.size() == delta.bytes.size() ? apply_path::in_place
                                                                                : apply_path::general;
}

bool cannot_fail(const loaded_update& u, const value_view& current, const value_view& delta) noexcept {
  const auto wanted = static_cast<value_tag>(u.function->value_tag);
  return u.function->in_place != nullptr && (u.function->flags & abi::no_throw) != 0 && is_numeric(current.tag) &&
         (wanted == value_tag::none || wanted == element_of(current.tag)) && current.tag == delta.tag &&
         current.bytes.size() == delta.bytes.size() &&
         reinterpret_cast<std::uintptr_t>(delta.bytes.data()) % element_bytes(delta.tag) == 0;
}

bool apply_in_place(const loaded_update& u, value_tag tag, std::span<std::byte> value, const value_view& delta,
                    std::string& error, abi::outcome* outcome) {
  const verdict v{u, error, outcome};
  const value_view current{tag, value};
  if (u.function->in_place == nullptr) return v.fail(abi::failed, "cannot work in place");
  const auto change = matching_delta(current, delta, v);
  if (!change) return false;
  if ((u.function->flags & abi::no_throw) != 0) return run_in_place(tag, value, *change, v);

  auto* before = value_scratch.reserve(std::max<std::size_t>(value.size(), 1));
  if (!value.empty()) std::memcpy(before, value.data(), value.size());
  const bool done = run_in_place(tag, value, *change, v);
  if (!done && !value.empty()) std::memcpy(value.data(), before, value.size());
  value_scratch.trim();
  return done;
}

bool steps(const loaded_update& u, value_tag element) noexcept {
  if (u.optimizer == nullptr) return false;
  return (element == value_tag::f32 && (u.optimizer->flags & abi::steps_float) != 0) ||
         (element == value_tag::f64 && (u.optimizer->flags & abi::steps_double) != 0);
}

bool apply_step(const loaded_update& u, value_tag tag, std::span<std::byte> value, std::span<std::byte> state,
                std::uint64_t number, const value_view& gradient, std::string& error, abi::outcome* outcome) {
  const verdict v{u, error, outcome};
  const value_view current{tag, value};
  const auto element = element_of(tag);
  if (!steps(u, element)) return v.mismatch(current, gradient, "the optimizer does not take this type");
  const auto change = matching_delta(current, gradient, v);
  if (!change) return false;
  const auto& o = *u.optimizer;
  const bool may_fail = (o.flags & abi::step_no_throw) == 0;
  if (may_fail) {
    auto* before = value_scratch.reserve(value.size() + state.size() + 1);
    if (!value.empty()) std::memcpy(before, value.data(), value.size());
    if (!state.empty()) std::memcpy(before + value.size(), state.data(), state.size());
  }
  std::array<char, error_text_bytes> buffer;
  buffer[0] = '\0';
  abi::error_text text{buffer.data(), buffer.size()};
  const auto result = o.step(&o, u.hyper.data(), static_cast<std::uint8_t>(element), value.data(), state.data(), *change,
                             value.size() / element_bytes(element), number, &text);
  delta_scratch.trim();
  const bool done = v.passed(result, buffer.data());
  if (may_fail) {
    const auto* before = value_scratch.reserve(0);
    if (!done && !value.empty()) std::memcpy(value.data(), before, value.size());
    if (!done && !state.empty()) std::memcpy(state.data(), before + value.size(), state.size());
    value_scratch.trim();
  }
  return done;
}

value_tag apply(const loaded_update& u, const value_view& current, const value_view& delta, std::vector<std::byte>& out,
                std::string& error, abi::outcome* outcome) {
  const verdict v{u, error, outcome};
  if (path_of(u, current, delta) == apply_path::in_place || u.function->apply == nullptr) {
    const auto change = matching_delta(current, delta, v);
    if (!change) return value_tag::none;
    out.assign(current.bytes.begin(), current.bytes.end());
    return run_in_place(current.tag, out, *change, v) ? current.tag : value_tag::none;
  }
  const auto from = border(current);
  const auto by = border(delta);
  return run_general(out, v, [&](const abi::sink* sink, abi::error_text* text) {
    return u.function->apply(u.function, &from, &by, sink, text);
  });
}

value_tag apply_to_missing(const loaded_update& u, const value_view& delta, std::vector<std::byte>& out,
                           std::string& error, abi::outcome* outcome) {
  const verdict v{u, error, outcome};
  const auto* f = u.function;
  if (f->initialise != nullptr) {
    std::vector<std::byte> first;
    const auto by = border(delta);
    const auto tag = run_general(
        first, v, [&](const abi::sink* sink, abi::error_text* text) { return f->initialise(f, &by, sink, text); });
    return tag == value_tag::none ? tag : apply(u, {tag, first}, delta, out, error, outcome);
  }
  // What becomes the value must be something that the next update can work on.
  const auto wanted = static_cast<value_tag>(f->value_tag);
  if (is_numeric(wanted)) {
    const auto tag = f->apply == nullptr && is_list(delta) ? array_of(wanted) : wanted;
    try {
      convert_to(tag, delta, out);
      if (outcome != nullptr) *outcome = abi::ok;
      return tag;
    } catch (const paracel::error& e) {
      v.fail(abi::type_mismatch,
             std::string("the key is not there, and the delta cannot become its value: ") + e.what());
      return value_tag::none;
    }
  }
  const bool fits = f->apply == nullptr ? is_numeric(delta.tag)
                                        : std::strncmp(f->value_type, f->delta_type, sizeof(f->value_type)) == 0;
  if (fits) {
    out.assign(delta.bytes.begin(), delta.bytes.end());
    if (outcome != nullptr) *outcome = abi::ok;
    return delta.tag;
  }
  v.fail(abi::type_mismatch,
         "the key is not there, and a delta that is " + describe(delta) +
             " cannot become its value: write the key first, or give the function an initialised_by");
  return value_tag::none;
}

}  // namespace paracel::srv
