// SPDX-License-Identifier: BSD-3-Clause
//
// A plug-in is trusted once it is loaded; what is checked here is that its author and this server agree on the layout
// of `update_result`.
#include "server/plugin/plugin_registry.hpp"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <system_error>

#include <paracel/error.hpp>

#include "core/hash.hpp"
#include "core/number_parsing.hpp"
#include "server/plugin/last_words.hpp"
#include "server/plugin/plugin_files.hpp"

namespace paracel::srv {

namespace {

constexpr std::string_view default_plugin = "libparacel_default.so";
constexpr std::string_view default_symbol = "paracel_add";
constexpr std::size_t most_names_in_a_text = 8;
// Functions of all plug-ins; each set of hyper-parameters counts as one. Memory grows with its square: for lock-free
// readers every version of the index is kept.
constexpr std::size_t most_functions = 1024;
constexpr std::size_t most_spellings = 1024;  // of plug-ins; further ones are looked up each time
constexpr std::size_t most_written_bytes = 512;
constexpr const char* how_to_allow =
    "; a path in the config allows its folder, prun.py --plugin-dir DIR allows another";

std::string join(std::vector<std::string> names) {
  std::ranges::sort(names);
  const bool cut = names.size() > most_names_in_a_text;
  if (cut) names.resize(most_names_in_a_text);
  std::string all;
  for (const auto& n : names) all += (all.empty() ? "" : ", ") + n;
  return cut ? all + ", ..." : all;
}

/// The name as the user wrote it, for an error text.
std::string written(std::string_view plugin) {
  std::string text(plugin.substr(0, most_written_bytes));
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, '?');
  return text.size() < plugin.size() ? text + "..." : text;
}

/// The dynamic loader and its view of a library belong to the process and not to a registry. Its own lock is
/// invisible to ThreadSanitizer, so servers that share a process take turns.
std::mutex& turn_at_the_loader() {
  static std::mutex turn;
  return turn;
}

/// What a plug-in exports, and how error texts refer to it.
struct function_kind {
  std::uint32_t magic;
  const char* article;
  const char* noun;
  const char* type;
  const char* maker;
};
constexpr function_kind update_kind{abi::update_magic, "an ", "update function", "paracel::update_result",
                                    "paracel::update_proxy"};
constexpr function_kind filter_kind{abi::filter_magic, "a ", "filter", "paracel::filter_result",
                                    "paracel::filter_proxy"};

std::string exported(plugin_library& from, const function_kind& kind) {
  auto names = from.exports(kind.magic);
  if (kind.magic == abi::update_magic) {
    for (auto& optimizer : from.exports(abi::optimizer_magic)) names.push_back(std::move(optimizer));
  }
  if (names.empty())
    return std::string("it exports no ") + kind.noun + "; write extern \"C\" { extern " + kind.type + " f; } " +
           kind.type + " f = " + kind.maker + "(...);";
  return "it exports " + join(std::move(names));
}

std::string other_abi(std::uint16_t version, std::uint16_t bytes, std::size_t bytes_here) {
  return "was built for plug-in ABI " + std::to_string(version) + " (" + std::to_string(bytes) +
         " bytes), this server has " + std::to_string(abi::version) + " (" + std::to_string(bytes_here) +
         " bytes): build the plug-in against this version of paracel/update.hpp";
}

/// Why `s`, which has the magic of an optimizer, is not usable by this server; empty when it is.
std::string problem_of_optimizer(const plugin_symbol& s) {
  if (s.size < offsetof(optimizer_result, flags))
    return "is not a paracel::optimizer_result made by paracel::optimizer_proxy";
  const auto* o = reinterpret_cast<const optimizer_result*>(s.address);
  if (o->abi_version != abi::version || o->struct_bytes != sizeof(optimizer_result) ||
      s.size < sizeof(optimizer_result))
    return other_abi(o->abi_version, o->struct_bytes, sizeof(optimizer_result));
  if (o->step == nullptr || o->hyper_count > abi::most_hyper_parameters || o->states > abi::most_states)
    return "is not an optimizer made by paracel::optimizer_proxy";
  for (std::uint32_t i = 0; i < o->hyper_count; ++i) {
    if (::strnlen(o->hyper_names[i], abi::hyper_name_bytes) == abi::hyper_name_bytes)
      return "has a hyper-parameter whose name is not terminated";
  }
  return {};
}

/// Why `s` is not usable as this kind by this server; empty when it is.
template <class Result>
std::string problem_of(const plugin_symbol& s, const std::string& name, const function_kind& kind) {
  if (s.type == STT_FUNC || s.type == STT_GNU_IFUNC)
    return std::string("is a function; export ") + kind.type + " NAME = " + kind.maker + "(" + name +
           ") and give the name of that";
  for (const auto& other : {update_kind, filter_kind})
    if (other.magic != kind.magic && s.magic() == other.magic)
      return std::string("is ") + other.article + other.noun + ", and " + kind.article + kind.noun + " was asked for";
  if (s.magic() != kind.magic || s.size < offsetof(Result, flags))
    return std::string("is not a ") + kind.type + " made by " + kind.maker;
  const auto* r = reinterpret_cast<const Result*>(s.address);
  if (r->abi_version != abi::version || r->struct_bytes != sizeof(Result) || s.size < sizeof(Result))
    return other_abi(r->abi_version, r->struct_bytes, sizeof(Result));
  return {};
}

std::string problem_of_update(const plugin_symbol& s, const std::string& name) {
  if (auto problem = problem_of<update_result>(s, name, update_kind); !problem.empty()) return problem;
  const auto* u = reinterpret_cast<const update_result*>(s.address);
  if (u->apply == nullptr && u->in_place == nullptr) return "has neither a general nor an in-place function";
  if (!is_known(static_cast<value_tag>(u->value_tag)) || !is_known(static_cast<value_tag>(u->delta_tag)))
    return "names a type that this version does not know";
  return {};
}

std::string problem_of_filter(const plugin_symbol& s, const std::string& name) {
  if (auto problem = problem_of<filter_result>(s, name, filter_kind); !problem.empty()) return problem;
  const auto* f = reinterpret_cast<const filter_result*>(s.address);
  if (f->test == nullptr) return "has no function to call";
  if (!is_known(static_cast<value_tag>(f->value_tag))) return "names a type that this version does not know";
  return {};
}

std::uint64_t function_id(std::uint64_t content, std::string_view kind, const std::string& symbol) {
  std::string identity(reinterpret_cast<const char*>(&content), sizeof(content));
  identity += kind;
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

/// Parses "lr=0.1,eps=1e-6" into `values`. Returns what is wrong with it; empty if valid.
std::string read_hyper(const optimizer_result& o, std::string_view text, std::span<double> values) {
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto part = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const auto equals = part.find('=');
    const auto name = part.substr(0, equals);
    std::uint32_t at = 0;
    while (at < o.hyper_count && name != o.hyper_names[at]) ++at;
    if (at == o.hyper_count)
      return "has no hyper-parameter '" + std::string(name.substr(0, 64)) + "': " + hyper_names_of(o);
    const auto number = equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    double value = 0;
    if (!read_whole_number(number, value))
      return "hyper-parameter '" + std::string(name) + "' is '" + std::string(number.substr(0, 64)) +
             "', want a finite number; " + hyper_names_of(o);
    values[at] = value;
  }
  return {};
}

/// The stand-in for an optimizer's update function.
std::int32_t refuse_optimizer(const update_result*, const abi::value*, const abi::value*, const abi::sink*,
                              abi::error_text* error) noexcept {
  update_detail::write_text(error, "is an optimizer, which steps whole keys and rows; this call cannot use one");
  return abi::failed;
}
std::int32_t refuse_to_begin(const update_result*, const abi::value*, const abi::sink*,
                             abi::error_text* error) noexcept {
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
  std::unique_ptr<plugin_library> symbols;
};

namespace {

template <class Library>
void refuse(const Library& from, const std::string& symbol, const std::string& problem) {
  if (!problem.empty()) throw plugin_error("plug-in " + from.path + ": '" + symbol + "' " + problem);
}

template <class Library>
plugin_symbol symbol_of(const Library& from, const std::string& symbol, const function_kind& kind) {
  if (symbol.empty())
    throw plugin_error("plug-in " + from.path + ": no function was named; " + exported(*from.symbols, kind));
  const auto found = from.symbols->find(symbol);
  if (!found) throw plugin_error("plug-in " + from.path + " has no '" + symbol + "'; " + exported(*from.symbols, kind));
  return *found;
}

}  // namespace

plugin_registry::plugin_registry(std::vector<std::string> allowed_folders, sandbox_options sandbox)
    : folders_(std::move(allowed_folders)),
      sandbox_(sandbox.program.empty() ? nullptr : std::make_unique<plugin_sandbox>(std::move(sandbox))) {}

plugin_registry::~plugin_registry() = default;

void plugin_registry::allow_folder(std::string folder) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(folders_, folder) == folders_.end()) folders_.push_back(std::move(folder));
}

/// Null: `why` says why not. The framework's own functions are trusted, and run here.
std::unique_ptr<plugin_library> plugin_registry::open(const plugin_file& file, std::string& why) {
  std::error_code none;
  const auto own = std::filesystem::path(framework_folder()) / default_plugin;
  if (!std::filesystem::equivalent(file.path, own, none)) {
    if (sandbox_ != nullptr) return sandbox_->open(file, why);
    last_words::admit_user_code();
  }
  auto mapped = std::make_unique<mapped_library>();
  if (!mapped->open(file.path, why)) return nullptr;
  return mapped;
}

plugin_registry::library& plugin_registry::find_library(std::string_view plugin) {
  if (const auto known = spellings_.find(plugin); known != spellings_.end()) return *known->second;
  const auto names = plugin_file_names(plugin.empty() ? default_plugin : plugin);

  auto folders = folders_;
  if (std::ranges::find(names, default_plugin) != names.end()) folders.insert(folders.begin(), framework_folder());
  // A path's own folder is searched first, if it is allowed.
  if (const auto slash = plugin.rfind('/'); slash != std::string_view::npos) {
    std::error_code none;
    const std::filesystem::path written(plugin.substr(0, slash + 1));
    const auto same = [&](const std::string& f) { return std::filesystem::equivalent(f, written, none); };
    if (const auto at = std::ranges::find_if(folders, same); at != folders.end())
      std::rotate(folders.begin(), at, at + 1);
  }
  std::string problem;
  for (const auto& name : names) {
    for (const auto& folder : folders) {
      auto c = find_plugin_file(folder, name);
      if (!c.exists) continue;
      if (!c.problem.empty()) {
        if (problem.empty()) problem = "plug-in " + c.path + " " + c.problem;
        continue;
      }
      auto& slot = libraries_[c.path];
      if (slot == nullptr) {
        std::string reason;
        auto symbols = open(c, reason);
        if (symbols == nullptr) {
          libraries_.erase(c.path);
          throw plugin_error("plug-in " + c.path + " cannot be loaded: " + reason +
                             "; a plug-in is a shared library for this machine, linked with what it uses");
        }
        slot = std::make_unique<library>(library{name, c.path, c.content, std::move(symbols)});
      }
      if (spellings_.size() < most_spellings) spellings_.emplace(plugin, slot.get());
      return *slot;
    }
  }
  if (!problem.empty()) throw plugin_error(problem);

  std::string text = "no plug-in \"" + written(plugin.empty() ? default_plugin : plugin) + "\": ";
  if (folders.empty()) throw plugin_error(text + "no folder is allowed for plug-ins" + how_to_allow);
  text += "looked for " + names.front() + (names.back() != names.front() ? " and " + names.back() : "") + " in ";
  std::vector<std::string> there;
  for (const auto& folder : folders) {
    text += (&folder == &folders.front() ? "" : ", ") + folder;
    const auto in_folder = plugins_in(folder);
    there.insert(there.end(), in_folder.begin(), in_folder.end());
  }
  text += how_to_allow;
  if (!there.empty()) text += "; plug-ins there: " + join(std::move(there));
  throw plugin_error(text);
}

namespace {

void require_room(std::size_t functions) {
  if (functions < most_functions) return;
  throw plugin_error(std::to_string(most_functions) +
                     " functions are registered already, the most that a server accepts");
}

}  // namespace

template <class Function>
const Function& plugin_registry::keep(by_symbol<Function>& all, typename by_symbol<Function>::key_type name,
                                      std::unique_ptr<Function> f, function_index<Function>& index) {
  const auto at = all.emplace(std::move(name), std::move(f)).first;
  try {
    index.add(*at->second);
  } catch (...) {
    all.erase(at);
    throw;
  }
  check_refused(*at->second);
  registered_.store(updates_.size() + filters_.size(), std::memory_order_release);
  return *at->second;
}

const loaded_update& plugin_registry::load_update(std::string_view plugin, std::string_view symbol) {
  const std::scoped_lock lock(mutex_, turn_at_the_loader());
  auto& from = find_library(plugin);
  if (symbol.empty() && from.name == default_plugin) symbol = default_symbol;
  std::string name(symbol);  // including its hyper-parameters
  if (const auto known = updates_.find({&from, name}); known != updates_.end()) return *known->second;
  require_room(updates_.size() + filters_.size());
  const auto asked_as = name;
  std::string hyper;
  if (const auto zero = name.find('\0'); zero != std::string::npos) {
    hyper = name.substr(zero + 1);
    name.resize(zero);
  }

  const auto found = symbol_of(from, name, update_kind);
  auto loaded = std::make_unique<loaded_update>();
  loaded->sandboxed = from.symbols->is_sandboxed();
  loaded->id = function_id(from.content, "update", name);
  loaded->name = from.name + ":" + name;
  if (found.magic() == abi::optimizer_magic) {
    refuse(from, name, problem_of_optimizer(found));
    loaded->optimizer = reinterpret_cast<const optimizer_result*>(found.address);
    loaded->function = &optimizer_stand_in;
    std::copy_n(loaded->optimizer->hyper_defaults, loaded->optimizer->hyper_count, loaded->hyper.begin());
    refuse(from, name, read_hyper(*loaded->optimizer, hyper, loaded->hyper));
    loaded->family = loaded->id;
    const auto numbers = std::as_bytes(std::span(loaded->hyper));
    loaded->id = function_id(loaded->family, "update",
                             std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size()));
  } else {
    refuse(from, name, problem_of_update(found, name));
    if (!hyper.empty()) refuse(from, name, "is an update function, which has no hyper-parameters");
    loaded->function = reinterpret_cast<const update_result*>(found.address);
    loaded->additive = (loaded->function->flags & abi::additive) != 0;
  }
  return keep(updates_, {&from, asked_as}, std::move(loaded), update_index_);
}

const loaded_filter& plugin_registry::load_filter(std::string_view plugin, std::string_view symbol) {
  const std::lock_guard lock(mutex_);
  auto& from = find_library(plugin);
  const std::string name(symbol);
  if (const auto known = filters_.find({&from, name}); known != filters_.end()) return *known->second;
  require_room(updates_.size() + filters_.size());

  const auto found = symbol_of(from, name, filter_kind);
  refuse(from, name, problem_of_filter(found, name));
  auto loaded = std::make_unique<loaded_filter>();
  loaded->id = function_id(from.content, "filter", name);
  loaded->name = from.name + ":" + name;
  loaded->function = reinterpret_cast<const filter_result*>(found.address);
  loaded->sandboxed = from.symbols->is_sandboxed();
  return keep(filters_, {&from, name}, std::move(loaded), filter_index_);
}

void plugin_registry::forbid(std::uint64_t id, const std::string& why) {
  const std::lock_guard lock(refused_mutex_);
  const auto& kept = refused_.try_emplace(id, why).first->second;
  // A function being loaded checks the list once it is in the index.
  if (const auto* f = update_index_.find(id)) f->refused.set(kept);
  if (const auto* f = filter_index_.find(id)) f->refused.set(kept);
}

template <class Function>
void plugin_registry::check_refused(const Function& f) {
  const std::lock_guard lock(refused_mutex_);
  if (const auto no = refused_.find(f.id); no != refused_.end()) f.refused.set(no->second);
}

std::vector<plugin_registry::registration> plugin_registry::registrations() const {
  const std::lock_guard lock(mutex_);
  std::vector<registration> all;
  for (const auto& [of, f] : updates_) all.push_back({false, of.first->name, of.second});
  for (const auto& [of, f] : filters_) all.push_back({true, of.first->name, of.second});
  return all;
}

}  // namespace paracel::srv
