// SPDX-License-Identifier: BSD-3-Clause
//
// An output folder belongs to one job at a time, and knows which of its files a program's last run wrote:
//
//     out/.paracel/turn             locked while somebody enters
//     out/.paracel/job              the job that is here, each of whose workers holds a shared lock on it
//     out/.paracel/kmeans.2.files   what worker 2 of the last run of kmeans wrote: a name a line, below `out`
//
// The kernel releases the locks of a process that dies. Who enters first for a job removes what the last run of the
// same program has listed, and nothing else: inputs, files of other programs and what somebody appends to stay.
#pragma once

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

  /// `folder`: is there.
  /// Throws: config_error that names the folder when a job that is running has it; error of the file system.
  /// Blocks: up to two seconds for the processes of a job that is ending. Cost: where the file system has no locks
  /// nobody is refused.
  output_folder(std::string folder, owner who);
  ~output_folder();
  output_folder(const output_folder&) = delete;
  output_folder& operator=(const output_folder&) = delete;

  /// `name` (below the folder) is written by this run: the program's next run removes it.
  void record(const std::string& name);

  /// What this process reads of earlier results is not removed: files, or folders with a saved model. To be called
  /// before the folder is entered.
  static void keep(const std::vector<std::string>& paths);

 private:
  [[nodiscard]] std::string own(const std::string& name) const { return folder_ + "/.paracel/" + name; }
  void enter();
  void remove_earlier();

  std::string folder_;
  owner who_;
  std::string files_;  // the list of this worker
  int job_fd_ = -1;
  mutex mutex_;
  std::vector<std::string> recorded_ PARACEL_GUARDED_BY(mutex_);
};

/// The output folders of a process's part in a job.
/// Thread-safety: owned by the thread that runs the algorithm.
class output_folders {
 public:
  /// Enters the folder, the first time that it is asked for.
  output_folder& at(const std::string& folder, std::uint64_t job, std::uint32_t rank);

 private:
  std::map<std::string, std::unique_ptr<output_folder>> entered_;
};

}  // namespace paracel
