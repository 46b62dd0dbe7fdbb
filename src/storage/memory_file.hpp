// SPDX-License-Identifier: BSD-3-Clause
//
// Inputs that exist only in this process: a config names them "memory:NAME" where it could name a file. For programs
// that run inside an interpreter, on arrays that it holds; their bytes are made while they are read, so there is no
// copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace paracel::storage {

struct memory_file {
  std::uint64_t bytes = 0;
  /// Fills `to` with the bytes from `offset` on; they are within the file, and always the same. Called by any thread.
  std::function<void(std::uint64_t offset, std::span<char> to)> read;
};

/// From now on the file has this name, which begins with "memory:". Throws: error when the name is another one, or
/// taken. Thread-safety: any thread, as the other functions here.
void add_memory_file(const std::string& name, memory_file file);
/// Readers that have opened it may continue.
void remove_memory_file(const std::string& name) noexcept;
/// Null: there is none of this name.
std::shared_ptr<const memory_file> find_memory_file(const std::string& name);

}  // namespace paracel::storage
