// SPDX-License-Identifier: BSD-3-Clause
//
// Result files, below the output folder of a job. They are written, concatenated and copied in pieces: memory stays
// bounded however large they become.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/comm.hpp>

namespace paracel {

/// <output>/<name>; the current folder when `output` is empty.
/// Throws: data_error when that is not below the output folder.
std::string result_path(const std::string& output, const std::string& name);

/// A file being written: atomically, under a temporary name; or appending, where the old contents remain if the rest
/// cannot be written. Throws: every function throws data_error with the path and the
/// reason of the system.
class result_file {
 public:
  /// `append`: after the existing contents; otherwise they are replaced.
  result_file(std::string path, bool append);
  ~result_file();
  result_file(const result_file&) = delete;
  result_file& operator=(const result_file&) = delete;

  /// Cost: a copy; a system call for every 256 KiB.
  void write(std::string_view text);
  /// Commits what was written to the file. No writes may follow.
  void close();
  /// Bytes that existed before.
  [[nodiscard]] std::uint64_t begin() const noexcept { return begin_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  struct closer {
    void operator()(std::FILE* f) const noexcept { std::fclose(f); }
  };
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  std::string written_;  // temporary path until it is committed
  std::uint64_t begin_ = 0;
  bool append_;
  bool was_there_ = true;
  std::unique_ptr<std::FILE, closer> file_;
};

/// Appends the next piece of a result to its argument; false, with nothing appended: the end.
using result_pieces = std::function<bool(std::string&)>;

/// Rank 0 writes the pieces of all ranks, in rank order, to the file that it opens with `open`; no other rank needs
/// access to that file system. A collective. When it returns the file is complete, on every rank.
///
/// Throws: on every rank what one of them threw, of the same kind; no partial file is left. job_error when a
///         rank is lost meanwhile.
/// Cost: each byte is sent once, to rank 0, in rounds of `chunk_bytes` of all ranks together; a round is an all-to-all
///       and two allgathers of a few bytes. Memory: a few times `chunk_bytes` and a piece. Ranks produce their pieces
///       one after another.
void write_together(Comm& comm, const std::function<std::unique_ptr<result_file>()>& open, const result_pieces& next,
                    std::uint64_t chunk_bytes = std::uint64_t{4} << 20);

/// Concatenates the files `part` of all ranks, each from byte `begin` of its own on, into `whole`.
void join_results(Comm& comm, const std::string& part, std::uint64_t begin, const std::string& whole, bool append,
                  std::uint64_t chunk_bytes = std::uint64_t{4} << 20);

/// Concatenates `files` into `whole`, which is skipped as an input; a missing last line end is
/// added. Throws: data_error that names the file.
void copy_results(const std::vector<std::string>& files, const std::string& whole, bool append);

}  // namespace paracel
