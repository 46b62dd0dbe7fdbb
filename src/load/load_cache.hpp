// SPDX-License-Identifier: BSD-3-Clause
//
// Loaded graphs and matrices in binary form, so that the next load of the same files is a read.
//
//     <folder>/<kind>-<hash>-<rank>     "pclcache" | u32 format | u32 bytes of the description | description |
//         u64 generation | the parts: of a vector u64 elements and these, of a number 8 bytes | u64 XXH3-64 of all this
//
// The description says what the result depends on: options, number of workers, and of each file its name, size,
// modification time and a hash of its ends. The hash in the name covers what stays the same when a file changes, so
// that a changed file's parts replace the old ones. The parts of one load have one generation: workers read theirs only
// if all have the same.
//
// Several jobs may load at once: a file appears complete, and two jobs that write the same one write the same parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/sparse.hpp>

#include "core/hash.hpp"
#include "storage/file_system.hpp"

namespace paracel {

/// Writes parts one after the other.
class cache_writer {
 public:
  explicit cache_writer(storage::file_writer& to) : to_(to) {}
  template <class T>
  void operator()(const std::vector<T>& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    number(v.size());
    bytes(std::as_bytes(std::span(v)));
  }
  void operator()(const std::string& s) {
    number(s.size());
    bytes(std::as_bytes(std::span(s)));
  }
  template <class T>
  void operator()(const T& n) requires std::is_integral_v<T> {
    number(static_cast<std::uint64_t>(n));
  }
  void number(std::uint64_t n) { bytes(std::as_bytes(std::span(&n, 1))); }
  void bytes(std::span<const std::byte> b) {
    hash_.add(b);
    to_.append(b);
  }
  void finish() {
    const auto sum = hash_.value();
    to_.append(std::as_bytes(std::span(&sum, 1)));
  }

 private:
  storage::file_writer& to_;
  running_hash hash_;
};

/// Reads them back. Throws: error when the file is shorter than it says.
class cache_reader {
 public:
  explicit cache_reader(const storage::file_reader& from) : from_(from) {}
  template <class T>
  void operator()(std::vector<T>& v) {
    v.resize(count(sizeof(T)));
    bytes(std::as_writable_bytes(std::span(v)));
  }
  void operator()(std::string& s) {
    s.resize(count(1));
    bytes(std::as_writable_bytes(std::span(s)));
  }
  template <class T>
  void operator()(T& n) requires std::is_integral_v<T> {
    n = static_cast<T>(number());
  }
  std::uint64_t number() {
    std::uint64_t n = 0;
    bytes(std::as_writable_bytes(std::span(&n, 1)));
    return n;
  }
  void bytes(std::span<std::byte> b);
  /// Whether the file ends here, with the right checksum.
  [[nodiscard]] bool finish();

 private:
  /// Reads the number of elements of `width` bytes; the file has them.
  std::size_t count(std::size_t width);

  const storage::file_reader& from_;
  std::uint64_t at_ = 0;
  running_hash hash_;
};

/// What a result depends on, except for the files.
std::string text_of_options(const entry_options& options);

/// One load. Thread-safety: none. Every call is a collective.
class load_cache {
 public:
  /// `kind`: a word. `options`: what the result depends on besides the files and the number of workers.
  /// Throws: config_error when `where` asks for a cache and standard input is among the files, or the folder cannot be
  /// created or is another user's; data_error when a file cannot be read.
  load_cache(Comm comm, const load_cache_options& where, const std::string& kind, const std::string& options,
             const std::vector<std::string>& files, const std::vector<std::string>& more_files);

  /// `parts(reader)` reads this worker's parts. Returns: whether every worker has them; otherwise what was read must be
  /// discarded. Cost: reads the parts; a round trip.
  template <class Parts>
  bool read(Parts&& parts) {
    if (!on_) return false;
    std::uint64_t generation = 0;
    std::string why;
    try {
      const auto file = storage::posix_file_system().open(path_);
      cache_reader r(*file);
      generation = begin(r);
      if (generation != 0) parts(r);
      if (generation != 0 && !r.finish()) generation = 0;
    } catch (const std::exception& e) {  // missing or damaged
      generation = 0;
      why = e.what();
    }
    return agree(generation, why);
  }
  /// `parts(writer)` writes them. A failure to write is a warning on stderr. Nothing is written if a file was changed
  /// in the last two seconds, or during the load: a further change might leave no trace. Blocks: for fsync. Cost:
  /// writes the parts; two round trips.
  template <class Parts>
  void write(Parts&& parts) {
    if (!on_) return;
    const auto generation = new_generation();
    if (generation == 0) return;
    try {
      const auto file = storage::posix_file_system().create(path_);
      cache_writer w(*file);
      begin(w, generation);
      parts(w);
      w.finish();
      file->commit();
    } catch (const std::exception& e) {
      warn(e.what());
    }
  }

 private:
  struct found {
    std::string text;
    std::string folder;  ///< of the first input
    std::int64_t newest_ns = 0;
  };
  [[nodiscard]] found describe_files() const;
  [[nodiscard]] std::uint64_t begin(cache_reader& r) const;
  void begin(cache_writer& w, std::uint64_t generation) const;
  [[nodiscard]] bool agree(std::uint64_t generation, const std::string& why);
  [[nodiscard]] std::uint64_t new_generation();
  static void warn(const std::string& why);

  Comm comm_;
  bool on_ = false;
  std::vector<std::string> files_;
  std::vector<std::string> more_files_;
  std::string path_;
  std::string files_found_;  // at rank 0
  std::string description_;
};

}  // namespace paracel
