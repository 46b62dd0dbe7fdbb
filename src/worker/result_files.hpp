// SPDX-License-Identifier: BSD-3-Clause
//
// Files of results, below the output folder of a job. Written, joined and copied in pieces: memory stays bounded
// however large they become.
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

/// A file that is being written: under another name, so that it is whole or not there; or after what is there, which is
/// all that stays when the rest cannot be written. Throws: every function throws data_error with the path and the
/// reason of the system.
class result_file {
 public:
  /// `append`: after what is there; otherwise what is there goes.
  result_file(std::string path, bool append);
  ~result_file();
  result_file(const result_file&) = delete;
  result_file& operator=(const result_file&) = delete;

  /// Cost: a copy; a system call for every 256 KiB.
  void write(std::string_view text);
  /// What was written so far is in the file. Nothing may follow.
  void close();
  /// Bytes that were there before.
  [[nodiscard]] std::uint64_t begin() const noexcept { return begin_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  struct closer {
    void operator()(std::FILE* f) const noexcept { std::fclose(f); }
  };
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  std::string written_;  // where it is until it is whole
  std::uint64_t begin_ = 0;
  bool append_;
  bool was_there_ = true;
  std::unique_ptr<std::FILE, closer> file_;
};

/// Appends the next piece of a result to its argument; false, and nothing appended: there is none.
using result_pieces = std::function<bool(std::string&)>;

/// Rank 0 writes the pieces of all ranks, in rank order, to the file that it opens with `open`; no other rank needs to
/// see that file system. A collective. When it returns the file is complete, on every rank.
///
/// Throws: on every rank what one of them threw, of the same kind; then there is no part of the file. job_error when a
///         rank is lost meanwhile.
/// Cost: each byte travels once, to rank 0, in rounds of `chunk_bytes` of all ranks together; a round is an all-to-all
///       and two allgathers of a few bytes. Memory: a few times `chunk_bytes` and a piece. Ranks make their pieces one
///       after the other.
void write_together(Comm& comm, const std::function<std::unique_ptr<result_file>()>& open, const result_pieces& next,
                    std::uint64_t chunk_bytes = std::uint64_t{4} << 20);

/// The same with what is in the files `part` of all ranks, each from byte `begin` of its own on, into `whole`.
void join_results(Comm& comm, const std::string& part, std::uint64_t begin, const std::string& whole, bool append,
                  std::uint64_t chunk_bytes = std::uint64_t{4} << 20);

/// Copies `files` one after the other into `whole`, which is left out if it is one of them; a last line without an end
/// gets one. Throws: data_error that names the file.
void copy_results(const std::vector<std::string>& files, const std::string& whole, bool append);

}  // namespace paracel
