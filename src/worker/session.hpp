// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "client/abort_signal.hpp"
#include "client/server_group.hpp"
#include "core/membership.hpp"
#include "core/shared_buffer.hpp"
#include "net/heartbeat.hpp"
#include "net/mutex.hpp"
#include "net/protocol.hpp"
#include "net/scheduler_channel.hpp"
#include "net/transport.hpp"
#include "worker/collective_sequence.hpp"
#include "worker/output_folder.hpp"
#include "worker/recovery_file.hpp"
#include "worker/worker_checkpoint.hpp"

namespace paracel {

struct session_options {
  std::shared_ptr<net::transport> over;
  std::uint64_t job = 0;
  std::string scheduler;  ///< address
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::size_t max_message_bytes = std::size_t{1} << 30;  ///< as the servers have it
  std::chrono::milliseconds heartbeat_interval{500};
  std::chrono::milliseconds heartbeat_limit{3000};  ///< the scheduler's; it is waited for longer itself
  /// After the job was aborted the process ends itself with the job's status if the algorithm has not returned by then;
  /// 0: never (several sessions share one process in tests).
  std::chrono::milliseconds grace{0};
  /// Where this worker keeps what another process in its place needs (recovery_file.hpp); empty: it is not replaced.
  std::string state_folder{};
};

/// One worker's part in a job: what it knows of the servers, its line to the scheduler, its heartbeat.
/// Thread-safety: owned by the thread that runs the algorithm.
class session {
 public:
  /// Joins the job.
  /// Blocks: until every server and worker has joined.
  /// Throws: error with the scheduler's text when it refuses, job_error when it ends the job or is silent.
  static std::shared_ptr<session> join(session_options options);
  /// A job of one worker without a scheduler. `keep` (the embedded server) lives as long as the session.
  static std::shared_ptr<session> alone(std::shared_ptr<net::transport> over, membership servers,
                                        std::shared_ptr<void> keep,
                                        std::function<void(const std::string&)> allow_plugin_folder);
  ~session();
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  [[nodiscard]] std::uint32_t rank() const noexcept { return options_.rank; }
  [[nodiscard]] std::uint32_t size() const noexcept { return options_.size; }
  /// As they were when the job began.
  [[nodiscard]] const membership& servers() const noexcept { return members_; }
  /// The output folder, which this job has from now on. Throws: as output_folder.
  output_folder& output(const std::string& folder);
  [[nodiscard]] bool has_scheduler() const noexcept { return to_scheduler_ != nullptr; }
  [[nodiscard]] const std::shared_ptr<abort_signal>& ended() const noexcept { return ended_; }

  /// A client of the job's servers for the calling thread.
  std::unique_ptr<server_group> open_client();

  /// A request to the scheduler. The views of the answer are valid until the next call.
  /// Blocks: until it is answered or the job ends. Throws: job_error; error with the scheduler's text when it fails.
  const net::reply_view& ask(net::request_header& h, std::span<const std::byte> body, shared_buffer tail = {});
  /// The second frame of the last answer, if it had one.
  [[nodiscard]] const shared_buffer& answer_tail() const noexcept { return to_scheduler_->tail(); }
  /// Tells the scheduler something and does not wait for the answer.
  void tell(net::verb what, const std::string& json);

  /// Iterations that this worker has committed, of all its algorithms: a worker has one clock in a job.
  [[nodiscard]] std::uint32_t finished() const noexcept { return finished_.load(std::memory_order_relaxed); }
  void set_finished(std::uint32_t n) noexcept { finished_.store(n, std::memory_order_relaxed); }

  /// The paralgs of this worker, and what a checkpoint has of them.
  [[nodiscard]] worker_checkpoint& parts() noexcept { return parts_; }
  /// Writes this worker's part of a checkpoint at the clock that it has just committed, and waits for the others'. That
  /// one failed is the scheduler's to tell; the job goes on. Blocks: until every worker has come here and the servers
  /// have written, or one of them cannot. Throws: job_error.
  void checkpoint();

  // ---- workers that may be replaced (doc/workers.md)

  /// Whether each commit is written down first.
  [[nodiscard]] bool keeps() const noexcept { return keeps_ != nullptr; }
  /// Part `part` is about to commit an iteration, whose updates are all acknowledged. Throws: error of the disk; the
  /// job must not go on then.
  void keep(std::size_t part);
  /// The number of the collective that is called now.
  std::uint64_t next_operation();
  /// A paralg asks for the first iteration of its loop.
  void loop_begins(std::size_t part);
  /// A paralg goes. When it has never asked, nobody can know whether what it did is done twice by whoever repeats it.
  void loop_ends(std::size_t part);
  /// This process is in the place of another one and repeats what that one has done: up to the next collective, at
  /// least.
  [[nodiscard]] bool repeats() const noexcept { return numbers_.repeats(); }

  /// An algorithm of this worker works under BSP: before it leaves, it looks whether all its updates could be folded.
  void stages() noexcept { stages_ = true; }
  /// What went wrong where nothing could be thrown: the first such is thrown by `leave`.
  void fails(std::exception_ptr why) noexcept {
    if (!failure_) failure_ = std::move(why);
  }

  /// Says that this worker is done, to the clock (nobody waits for it any more) and to the scheduler; the job is
  /// complete when all have said so. Throws, and says nothing: what an update failed with that nobody has waited for,
  /// or that could not be folded.
  void leave();

  /// In the embedded mode the server is told to accept plug-ins of a folder; elsewhere prun.py has done so.
  void allow_plugin_folder(const std::string& folder) const {
    if (allow_plugin_folder_) allow_plugin_folder_(folder);
  }

 private:
  explicit session(session_options options);
  [[nodiscard]] net::request_header marked(net::request_header h) const noexcept;
  void take_over();
  [[noreturn]] void refuse_to_repeat();
  void look_whether_caught_up();
  void warn(const std::string& text);
  [[nodiscard]] std::string beat(nlohmann::json body);
  void end(const net::directive& o);
  void obey(const net::directive& o);

  session_options options_;
  membership members_;
  std::shared_ptr<void> keep_;
  std::function<void(const std::string&)> allow_plugin_folder_;
  std::shared_ptr<abort_signal> ended_ = std::make_shared<abort_signal>();
  std::shared_ptr<latest_membership> board_ = std::make_shared<latest_membership>();
  std::unique_ptr<net::scheduler_channel> to_scheduler_;
  std::atomic<std::uint32_t> finished_{0};  // the heartbeat tells the scheduler
  worker_checkpoint parts_;
  output_folders outputs_;
  std::unique_ptr<recovery_file> keeps_;
  collective_sequence numbers_;
  bool stages_ = false;
  std::exception_ptr failure_;
  std::string cannot_;     // be replaced, because
  bool replaces_ = false;  // another process
  std::atomic<bool> caught_up_{false};
  mutex mutex_;
  replay_range kept_collectives_ PARACEL_GUARDED_BY(mutex_);  // the heartbeat tells the scheduler
  net::reply_view answer_;
  std::atomic<bool> closing_{false};
  std::atomic<bool> done_{false};              // the job is, and all have left
  std::unique_ptr<net::heartbeat> heartbeat_;  // last: it stops first
};

}  // namespace paracel
