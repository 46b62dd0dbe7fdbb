// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/blob.hpp"
#include "core/membership.hpp"
#include "net/heartbeat.hpp"
#include "net/protocol.hpp"
#include "net/transport.hpp"
#include "worker/abort_signal.hpp"
#include "worker/kvclt.hpp"

namespace paracel {

struct session_options {
  std::shared_ptr<net::transport> over;
  std::uint64_t job = 0;
  std::string scheduler;  ///< address
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::size_t max_message_bytes = std::size_t{1} << 30;  ///< as the servers have it
  std::chrono::milliseconds heartbeat_interval{500};
  std::chrono::milliseconds heartbeat_limit{3000};
  /// After the job was aborted the process ends itself with the job's status if the algorithm has not returned by then;
  /// 0: never (several sessions share one process in tests).
  std::chrono::milliseconds grace{0};
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
  [[nodiscard]] const membership& servers() const noexcept { return members_; }
  [[nodiscard]] bool has_scheduler() const noexcept { return to_scheduler_ != nullptr; }
  [[nodiscard]] const std::shared_ptr<abort_signal>& ended() const noexcept { return ended_; }

  /// A client of the job's servers for the calling thread.
  std::unique_ptr<kvclt> open_client();

  /// A request to the scheduler. The views of the answer are valid until the next call.
  /// Blocks: until it is answered or the job ends. Throws: job_error; error with the scheduler's text when it fails.
  const net::reply_view& ask(net::request_header& h, std::span<const std::byte> body, blob tail = {});
  /// The second frame of the last answer, if it had one.
  [[nodiscard]] const blob& answer_tail() const noexcept { return incoming_.tail; }
  /// Tells the scheduler something and does not wait for the answer.
  void tell(net::verb what, const std::string& json);

  /// Iterations that this worker has committed, of all its algorithms: a worker has one clock in a job.
  [[nodiscard]] std::uint32_t finished() const noexcept { return finished_; }
  void set_finished(std::uint32_t n) noexcept { finished_ = n; }

  /// Says that this worker is done, to the clock (nobody waits for it any more) and to the scheduler; the job is complete
  /// when all have said so.
  void leave();

  /// In the embedded mode the server is told to accept plug-ins of a folder; elsewhere prun.py has done so.
  void allow_plugin_folder(const std::string& folder) const {
    if (allow_plugin_folder_) allow_plugin_folder_(folder);
  }

 private:
  explicit session(session_options options);
  void send(net::request_header& h, std::span<const std::byte> body, blob tail);
  void end(const net::order& o);
  void obey(const net::order& o);

  session_options options_;
  membership members_;
  std::shared_ptr<void> keep_;
  std::function<void(const std::string&)> allow_plugin_folder_;
  std::shared_ptr<abort_signal> ended_ = std::make_shared<abort_signal>();
  std::unique_ptr<net::port> to_scheduler_;
  int channel_ = -1;
  std::uint64_t sequence_ = 0;
  std::uint32_t finished_ = 0;
  net::incoming incoming_;
  net::reply_view answer_;
  std::atomic<bool> closing_{false};
  std::unique_ptr<net::heartbeat> heartbeat_;  // last: it stops first
};

}  // namespace paracel
