// SPDX-License-Identifier: BSD-3-Clause
//
// An output folder belongs to one job at a time, and records which of its files a program's last run wrote:
//
//     out/.paracel/turn             locked while a job enters
//     out/.paracel/job              the owning job, each of whose workers holds a shared lock on it
//     out/.paracel/kmeans.2.files   what worker 2 of the last run of kmeans wrote: a name per line, below `out`
//
// The kernel releases the locks of a process that dies. The first worker of a job to enter removes what the last run of
// the same program has listed, and nothing else: inputs, files of other programs and files that were appended to stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/mutex.hpp"

namespace paracel {

/// Thread-safety: any thread
class output_folder {
 public:
  struct owner {
    std::uint64_t job = 0;
    std::uint32_t rank = 0;
    std::string program;
  };

  /// `folder`: must exist.
  /// Throws: config_error that names the folder when a running job owns it; error of the file system.
  /// Blocks: up to two seconds for the processes of a job that is ending. Cost: where the file system has no locks
  /// no job is refused.
  output_folder(std::string folder, owner who);
  ~output_folder();
  output_folder(const output_folder&) = delete;
  output_folder& operator=(const output_folder&) = delete;

  /// This run writes `name` (below the folder): the program's next run removes it. If the disk is full, warns on
  /// stderr, and tries again with the next name and when the job leaves the folder.
  void record(const std::string& name);

  /// Protects earlier results that this process reads from removal: files, or folders with a saved model. Call it
  /// before the folder is entered.
  static void keep(const std::vector<std::string>& paths);

 private:
  [[nodiscard]] std::string own(const std::string& name) const { return folder_ + "/.paracel/" + name; }
  void enter();
  void remove_earlier();
  void write_names() PARACEL_REQUIRES(mutex_);

  std::string folder_;
  owner who_;
  std::string files_;  // the list of this worker
  int job_fd_ = -1;
  mutex mutex_;
  std::vector<std::string> recorded_ PARACEL_GUARDED_BY(mutex_);
  std::size_t written_ PARACEL_GUARDED_BY(mutex_) = 0;  // of recorded_, the first of which are in the list
  bool warned_ PARACEL_GUARDED_BY(mutex_) = false;
};

/// The output folders of this process's part of a job.
/// Thread-safety: owned by the thread that runs the algorithm.
class output_folders {
 public:
  /// Enters the folder, on first use.
  output_folder& at(const std::string& folder, std::uint64_t job, std::uint32_t rank);

 private:
  std::map<std::string, std::unique_ptr<output_folder>> entered_;
};

}  // namespace paracel
