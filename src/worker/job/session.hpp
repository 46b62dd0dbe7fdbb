// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include <paracel/metrics.hpp>

#include "client/abort_signal.hpp"
#include "client/server_group.hpp"
#include "core/membership.hpp"
#include "core/shared_buffer.hpp"
#include "core/trace.hpp"
#include "net/heartbeat.hpp"
#include "net/protocol.hpp"
#include "net/scheduler_channel.hpp"
#include "net/transport.hpp"
#include "worker/job/usage.hpp"
#include "worker/job/worker_checkpoint.hpp"
#include "worker/job/worker_replacement.hpp"
#include "worker/results/output_folder.hpp"

namespace paracel {

class command_channel;
class peer_channels;

struct session_options {
  std::shared_ptr<net::transport> over;
  std::uint64_t job = 0;
  std::string scheduler;  ///< address
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::size_t max_message_bytes = std::size_t{1} << 30;  ///< the servers' setting
  std::chrono::milliseconds heartbeat_interval{500};
  std::chrono::milliseconds heartbeat_limit{3000};  ///< the scheduler's; this process waits longer
  std::chrono::milliseconds resend_after = net::late;
  /// As kvclt_options::resends.
  bool resends = true;
  /// After an abort the process exits by itself with the job's status if the algorithm has not returned by then;
  /// 0: never (several sessions share one process in tests).
  std::chrono::milliseconds grace{0};
  /// What the scheduler knows this process by; 0: its id (several sessions share one process in tests).
  std::int64_t pid = 0;
  std::uint64_t incarnation = 0;  ///< tells it from others with that id on a host of that name; 0: chosen by `join`
  /// Where this worker saves what its replacement needs (recovery_file.hpp); empty: it is not replaced.
  std::string state_folder{};
  bool state_outlives_host = false;  ///< the replacement may be started on another host, which sees that folder
  /// The others continue without a worker that dies (--on-worker-death eject).
  bool ejects = false;
  /// Where other workers reach this one; empty: it exchanges no messages with them.
  std::string peer_address{};
  /// Collectives between workers of one host go through memory that they share.
  bool shares_memory = true;
  /// Workers that exchange messages by tcp connect directly (direct_links.hpp).
  bool links_directly = true;
};

/// One worker's part of a job: the servers it knows, its connection to the scheduler, its heartbeat.
/// Thread-safety: owned by the thread that runs the algorithm.
class session {
 public:
  /// Joins the job.
  /// Blocks: until every server and worker has joined.
  /// Throws: error with the scheduler's text when it is refused, job_error when the scheduler ends the job or is
  /// silent.
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
  /// The initial membership.
  [[nodiscard]] const membership& servers() const noexcept { return members_; }
  /// The output folder, which this job owns from now on. Throws: as output_folder.
  output_folder& output(const std::string& folder);
  [[nodiscard]] usage& used() noexcept { return used_; }
  /// The metrics of the program's own calls, in an output folder.
  [[nodiscard]] metrics_file& metrics(const std::string& output) { return metrics_[output]; }
  [[nodiscard]] bool has_scheduler() const noexcept { return to_scheduler_ != nullptr; }
  [[nodiscard]] const std::shared_ptr<abort_signal>& ended() const noexcept { return ended_; }

  /// A client of the job's servers for the calling thread.
  std::unique_ptr<server_group> open_client();

  /// A request to the scheduler. The views of the reply are valid until the next call.
  /// Blocks: until it is answered or the job ends. Throws: job_error; error with the scheduler's text when it fails.
  const net::reply_view& ask(net::request_header& h, std::span<const std::byte> body, shared_buffer tail = {});
  /// The last reply. Valid until the next call.
  [[nodiscard]] const net::reply_view& answer() const noexcept { return answer_; }
  /// The second frame of the last reply, if it had one.
  [[nodiscard]] const shared_buffer& answer_tail() const noexcept { return to_scheduler_->tail(); }
  /// Notifies the scheduler without waiting for the reply.
  void tell(net::verb what, const std::string& json);

  /// The messages between the workers. Throws: error when this job's workers have none. A worker that uses them cannot
  /// be replaced: nothing keeps what another process has sent and received.
  [[nodiscard]] peer_channels& peers();
  /// The same for messages that may get lost when a worker dies. Throws: error when this job's workers have none.
  [[nodiscard]] peer_channels& channels();
  [[nodiscard]] bool shares_memory() const noexcept { return options_.shares_memory; }

  /// Commands to this worker and from it.
  [[nodiscard]] command_channel& commands();
  /// Runs what has arrived, if this worker accepts commands. Returns: how many.
  std::size_t take_commands();
  /// While this worker waits in a barrier, how often it does so.
  static constexpr std::chrono::milliseconds command_interval{10};
  [[nodiscard]] bool accepts_commands() const noexcept { return commands_ != nullptr; }
  /// The functions can neither ask the scheduler nor call collectives. `waits`: false once the barrier is complete;
  /// what arrives then may rely on that, and runs later.
  void take_commands_in_barrier(const std::function<bool()>& waits);
  /// Throws: error in a function that runs inside take_commands_in_barrier.
  void refuse_collective_of_command() const;
  void forget_commands(const void* owner);

  /// Iterations that this worker has committed, of all its algorithms: a worker has one clock in a job.
  [[nodiscard]] std::uint32_t finished() const noexcept { return finished_.load(std::memory_order_relaxed); }
  void set_finished(std::uint32_t n) noexcept { finished_.store(n, std::memory_order_relaxed); }

  /// For the trace: an iteration of this worker ends, and the next one begins.
  void trace_iteration() noexcept;

  /// The paralgs of this worker, and their parts of a checkpoint.
  [[nodiscard]] worker_checkpoint& parts() noexcept { return parts_; }
  /// Writes this worker's part of a checkpoint at the clock that it has just committed, and waits for the others'. A
  /// failure is reported by the scheduler; the job continues. Blocks: until every worker has arrived here and the
  /// servers have written, or one of them cannot. Throws: job_error.
  void checkpoint();

  // ---- workers that can be replaced (doc/workers.md)

  /// Whether a worker's death may leave the others running: then what they share goes through the scheduler, which
  /// repeats it for a replacement, or leaves out the dead worker's part.
  [[nodiscard]] bool survives_deaths() const noexcept { return replacement_.is_on() || options_.ejects; }

  [[nodiscard]] worker_replacement& replacement() noexcept { return replacement_; }

  /// An algorithm of this worker uses BSP: before it leaves, it checks that all its updates could be folded.
  void stages() noexcept { stages_ = true; }
  /// An error where throwing was impossible: the first one is thrown by `leave`.
  void fails(std::exception_ptr why) noexcept {
    if (!failure_) failure_ = std::move(why);
  }

  /// Tells the clock (nothing waits for this worker any more) and the scheduler that this worker is done; the job is
  /// complete when all have. Throws, without telling: the error of an update that was not waited for,
  /// or that could not be folded.
  void leave();

  /// In embedded mode the server is told to accept plug-ins of a folder; elsewhere prun.py has done so.
  void allow_plugin_folder(const std::string& folder) const {
    if (allow_plugin_folder_) allow_plugin_folder_(folder);
  }

 private:
  class asking;
  explicit session(session_options options);
  void check_waiting();
  void refuse_in_barrier(const std::string& what) const;
  [[nodiscard]] net::request_header marked(net::request_header h) const noexcept;
  void open_peers(std::unique_ptr<net::port> bound, const std::string& address);
  void warn(const std::string& text);
  [[noreturn]] void abort(const std::string& cause);
  [[nodiscard]] std::string beat(nlohmann::json body);
  void end(const net::directive& o);
  void obey(const net::directive& o);

  session_options options_;
  const std::thread::id owner_ = std::this_thread::get_id();
  trace::thread_scope traced_;
  std::uint64_t iteration_began_ = trace::now();
  usage used_;
  membership members_;
  std::shared_ptr<void> keep_;
  std::function<void(const std::string&)> allow_plugin_folder_;
  std::shared_ptr<abort_signal> ended_ = std::make_shared<abort_signal>();
  std::shared_ptr<latest_membership> board_ = std::make_shared<latest_membership>();
  std::unique_ptr<net::scheduler_channel> to_scheduler_;
  std::unique_ptr<peer_channels> peers_;
  bool talks_ = false;                         // it has used them
  std::unique_ptr<command_channel> commands_;  // null: not used yet
  bool asks_ = false;                          // it waits for the scheduler, or runs commands in a barrier
  std::atomic<std::uint32_t> finished_{0};     // the heartbeat reports it to the scheduler
  worker_checkpoint parts_;
  output_folders outputs_;
  std::map<std::string, metrics_file> metrics_;  // by output folder
  worker_replacement replacement_{parts_, finished_};
  bool stages_ = false;
  std::exception_ptr failure_;
  net::reply_view answer_;
  std::atomic<bool> closing_{false};
  std::atomic<bool> done_{false};              // the job has ended, and all have left
  std::unique_ptr<net::heartbeat> heartbeat_;  // last: it is stopped first
};

}  // namespace paracel
