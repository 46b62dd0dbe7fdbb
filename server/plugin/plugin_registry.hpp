// SPDX-License-Identifier: BSD-3-Clause
//
// User functions in the server: plug-ins found by name below the allowed folders, loaded once and checked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/plugin/plugin_files.hpp"
#include "server/plugin/plugin_library.hpp"
#include "server/plugin/plugin_sandbox.hpp"
#include "server/plugin/user_functions.hpp"

namespace paracel::srv {

/// The functions of one kind: looked up by id without a lock, added by any thread that loads them.
template <class Function>
class function_index {
 public:
  function_index() {
    tables_.push_back(std::make_unique<const table>());
    current_.store(tables_.back().get(), std::memory_order_release);
  }
  /// Null: not found. Thread-safety: any thread.
  [[nodiscard]] const Function* find(std::uint64_t id) const noexcept {
    const auto* t = current_.load(std::memory_order_acquire);
    const auto found = t->find(id);
    return found == t->end() ? nullptr : found->second;
  }
  /// No-op if the id exists. Thread-safety: one thread at a time. Lifetime: `f` must outlive the index.
  void add(const Function& f) {
    auto next = std::make_unique<table>(*tables_.back());
    if (!next->emplace(f.id, &f).second) return;  // the same content under another name
    tables_.push_back(std::move(next));
    current_.store(tables_.back().get(), std::memory_order_release);
  }

 private:
  using table = std::unordered_map<std::uint64_t, const Function*>;
  std::vector<std::unique_ptr<const table>> tables_;  // all versions: a reader may still use an old one
  std::atomic<const table*> current_{nullptr};
};

/// The plug-ins of one server.
///
/// Thread-safety: any thread. Loading is serialised; `find` takes no lock.
/// Lifetime: libraries stay loaded until the process ends, even after the registry: a thread may be inside one.
class plugin_registry {
 public:
  /// Plug-ins are looked up in these folders; the first one that contains the name wins. The default plug-in is first
  /// looked up next to libparacel.so. With a sandbox all others run in its processes (plugin_sandbox.hpp).
  explicit plugin_registry(std::vector<std::string> allowed_folders, sandbox_options sandbox = {});
  ~plugin_registry();
  plugin_registry(const plugin_registry&) = delete;
  plugin_registry& operator=(const plugin_registry&) = delete;

  /// Adds `folder` to the search path, after those that are allowed already.
  void allow_folder(std::string folder);

  /// The update function `symbol` of `plugin`, loaded on demand. For a path only the base name counts; "lr_update",
  /// "lr_update.so" and "liblr_update.so" are equivalent. No plug-in: the default one; no symbol in it: "paracel_add".
  ///
  /// An optimizer may be followed by its hyper-parameters: `symbol` is then "paracel_adagrad\0lr=0.1,eps=1e-6". They
  /// are part of its identity: the same optimizer with different ones is another function, which shares its state.
  ///
  /// Throws: plugin_error that names plug-in and symbol, what was found and what is expected.
  /// Blocks: while the dynamic loader works, static initialisers of the plug-in included.
  const loaded_update& load_update(std::string_view plugin, std::string_view symbol);

  /// The filter `symbol` of `plugin`; as load_update, but without a default.
  const loaded_filter& load_filter(std::string_view plugin, std::string_view symbol);

  /// What another server needs to load the same functions; ids are content hashes, so they are the same there.
  struct registration {
    bool is_filter = false;
    std::string plugin;
    std::string symbol;  ///< with hyper-parameters
    friend bool operator==(const registration&, const registration&) = default;
  };
  /// All loaded functions, in unspecified order. Blocks: while another thread is loading.
  [[nodiscard]] std::vector<registration> registrations() const;
  /// Their number. Cost: one load.
  [[nodiscard]] std::size_t registered() const noexcept { return registered_.load(std::memory_order_acquire); }

  /// From now on the function with this id fails with `why` whenever it is called, even if it is loaded later; the
  /// first reason is kept. Does not wait for a thread that is loading.
  void forbid(std::uint64_t id, const std::string& why);

  /// Null: functions run in this process.
  [[nodiscard]] plugin_sandbox* sandbox() const noexcept { return sandbox_.get(); }

  /// Null: not loaded here. Cost: one hash lookup, no lock.
  [[nodiscard]] const loaded_update* find(std::uint64_t id) const noexcept { return update_index_.find(id); }
  [[nodiscard]] const loaded_filter* find_filter(std::uint64_t id) const noexcept { return filter_index_.find(id); }

 private:
  struct library;
  template <class Function>
  void check_refused(const Function& f);
  template <class Function>
  using by_symbol = std::map<std::pair<const library*, std::string>, std::unique_ptr<Function>>;
  /// Registers a function by name and by id; if there is no memory, by neither.
  template <class Function>
  const Function& keep(by_symbol<Function>& all, typename by_symbol<Function>::key_type name,
                       std::unique_ptr<Function> f, function_index<Function>& index);

  library& find_library(std::string_view plugin);
  std::unique_ptr<plugin_library> open(const plugin_file& file, std::string& why);

  std::vector<std::string> folders_;
  const std::unique_ptr<plugin_sandbox> sandbox_;  // null: functions run in this process
  mutable std::mutex mutex_;
  std::atomic<std::size_t> registered_{0};
  std::map<std::string, std::unique_ptr<library>, std::less<>> libraries_;  // by path
  std::map<std::string, library*, std::less<>> spellings_;                  // as requested
  by_symbol<loaded_update> updates_;
  by_symbol<loaded_filter> filters_;
  std::mutex refused_mutex_;
  std::map<std::uint64_t, std::string> refused_;  // by id: why; the texts never move
  function_index<loaded_update> update_index_;
  function_index<loaded_filter> filter_index_;
};

}  // namespace paracel::srv
