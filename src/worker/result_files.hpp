// SPDX-License-Identifier: BSD-3-Clause
//
// Files of results, below the output folder of a job. Written, joined and copied in pieces: memory stays bounded however
// large they become.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/comm.hpp>

namespace paracel {

/// <output>/<name>; the current folder when `output` is empty.
/// Throws: data_error when that is not below the output folder.
std::string result_path(const std::string& output, const std::string& name);

/// A file that is being written: under another name, so that it is whole or not there; or after what is there, which is all
/// that stays when the rest cannot be written.
/// Throws: every function throws data_error with the path and the reason of the system.
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

/// Rank 0 joins what is in the files `part` of all ranks, each from byte `begin` of its own on, in rank order, into `whole`.
/// Every rank must call it; the files need not be in one file system.
///
/// Throws: data_error that names the file; job_error when a rank is lost meanwhile.
/// Cost: each byte travels once, to rank 0, in rounds of `chunk_bytes` of all ranks together: so much memory a rank.
void join_results(Comm& comm, const std::string& part, std::uint64_t begin, const std::string& whole, bool append,
                  std::uint64_t chunk_bytes = std::uint64_t{4} << 20);

/// Copies `files` one after the other into `whole`, which is left out if it is one of them; a last line without an end gets
/// one. Throws: data_error that names the file.
void copy_results(const std::vector<std::string>& files, const std::string& whole, bool append);

}  // namespace paracel
