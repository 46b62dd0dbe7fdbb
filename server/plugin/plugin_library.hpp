// SPDX-License-Identifier: BSD-3-Clause
//
// A loaded plug-in and the symbols that it exports. The sandbox's process has one as well, so nothing here needs the
// framework's library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace paracel::srv {

/// One exported symbol.
struct plugin_symbol {
  std::string name;
  unsigned type;  ///< STT_OBJECT, STT_FUNC, ...
  std::uint64_t size;
  const std::byte* address;

  [[nodiscard]] bool is_object() const noexcept;
  /// Its first bytes, at most `most`.
  [[nodiscard]] std::vector<std::byte> bytes(std::size_t most) const;
  /// The bytes where a magic would be; 0 when there are none.
  [[nodiscard]] std::uint32_t magic() const noexcept;
};

/// Thread-safety: one thread at a time.
/// Lifetime: what the symbols point to lives as long as the process, or the sandbox.
class plugin_library {
 public:
  plugin_library() = default;
  plugin_library(const plugin_library&) = delete;
  plugin_library& operator=(const plugin_library&) = delete;
  virtual ~plugin_library() = default;

  [[nodiscard]] virtual std::optional<plugin_symbol> find(std::string_view name) = 0;
  /// The names of the objects that begin with `magic`.
  [[nodiscard]] virtual std::vector<std::string> exports(std::uint32_t magic) = 0;
  /// Whether its functions run in another process.
  [[nodiscard]] virtual bool is_sandboxed() const noexcept { return false; }
};

/// A library in this process. It is never unloaded.
class mapped_library final : public plugin_library {
 public:
  /// False: `why` has the loader's reason. Blocks: while the dynamic loader works, static initialisers included.
  [[nodiscard]] bool open(const std::string& path, std::string& why);
  [[nodiscard]] std::optional<plugin_symbol> find(std::string_view name) override;
  [[nodiscard]] std::vector<std::string> exports(std::uint32_t magic) override;
  /// Makes the symbols of another library visible to plug-ins that are opened from now on. False: it does not exist.
  static bool share(const char* library) noexcept;

 private:
  void* handle_ = nullptr;
};

/// The folder of the shared object that contains this code: libparacel.so, or the program it was linked into.
[[nodiscard]] std::string framework_folder();

}  // namespace paracel::srv
