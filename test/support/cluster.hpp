// SPDX-License-Identifier: BSD-3-Clause
//
// A whole job in one process: scheduler, servers and workers as threads, over the in-process transport, so that
// sanitizers can check all of it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>

#include "client/server_group.hpp"
#include "core/hex.hpp"
#include "net/heartbeat.hpp"
#include "net/inproc_transport.hpp"
#include "server/node/server_node.hpp"
#include "server/scheduler/scheduler_node.hpp"
#include "test/support/mortal_transport.hpp"
#include "worker/comm/comm_scheduler.hpp"
#include "worker/job/session.hpp"

namespace paracel::test {

struct cluster_options {
  std::size_t workers = 1;
  std::size_t servers = 1;
  std::uint32_t threads = 1;
  std::chrono::milliseconds heartbeat_limit{10'000};
  std::uint32_t replicas = 1;
  bool elastic = false;                ///< servers may join and leave even without replicas
  std::string state_folder{};          ///< if set, workers that die are replaced, at most once in 30 s
  std::chrono::milliseconds lease{0};  ///< of servers with replicas; 0: heartbeat_limit
  /// By slot: handles the shards' requests instead of the servers. Such servers need no time to build replicas.
  std::function<srv::request_handler*(std::size_t)> handler{};
  /// Called with each membership that the server of a slot receives.
  std::function<void(std::size_t, const membership&)> told{};
  std::vector<std::string> plugin_folders{};
  std::size_t max_parked_bytes = srv::server_options().max_parked_bytes;
  std::size_t max_message_bytes = srv::server_options().max_message_bytes;  ///< of the servers and of the transport
  std::size_t max_set_bytes = srv::server_options().max_set_bytes;
  srv::checkpoint_options checkpoints{};
  srv::scheduler::event_sink events{};
  std::shared_ptr<net::transport> over{};  ///< null: an inproc_transport
  std::string bind = "inproc://";          ///< prefix of every address; for ipc it ends with a folder and a slash
  bool shares_memory = true;               ///< collectives of the workers
  bool shares_connections = true;          ///< with several threads: as start_server --shared-connections
  std::chrono::milliseconds resend_after = net::late;
};

class cluster {
 public:
  static constexpr std::uint64_t job = 0x7e57;

  explicit cluster(cluster_options options) : options_(std::move(options)), transport_(options_.over) {
    if (transport_ == nullptr) {
      transport_ = std::make_shared<net::inproc_transport>(net::transport_limits{options_.max_message_bytes});
    }
    srv::scheduler_node_options s;
    s.job.job = job;
    s.job.workers = static_cast<std::uint32_t>(options_.workers);
    s.job.servers = static_cast<std::uint32_t>(options_.servers);
    s.job.heartbeat_limit = options_.heartbeat_limit;
    // Most tests report a server's death themselves: leases are not tested on a loaded machine.
    s.job.lease_limit = options_.lease.count() != 0 ? options_.lease : options_.heartbeat_limit;
    s.job.replicas = options_.replicas;
    s.job.elastic = options_.elastic;
    if (!options_.state_folder.empty()) s.job.worker_wait = std::chrono::seconds(30);
    s.job.checkpoints = options_.checkpoints;
    s.events = options_.events;
    s.bind = options_.bind + "scheduler";
    scheduler_ = std::make_unique<srv::scheduler_node>(*transport_, std::move(s));
    members_.job = job;
    members_.workers = static_cast<std::uint32_t>(options_.workers);
    members_.replicas = options_.replicas;
    members_.elastic = options_.elastic;
    members_.checkpoints = options_.checkpoints.plan;
    for (std::size_t i = 0; i < options_.servers; ++i) {
      nodes_.push_back(make_node(i, 0));
      members_.servers.push_back(nodes_.back()->addresses());
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      tell(*nodes_[i], members_);
      announcers_.push_back(std::make_unique<announcer>(*this, *nodes_[i]));
    }
    board_->put(members_);
  }
  ~cluster() {
    announcers_.clear();
    nodes_.clear();
    scheduler_.reset();
  }
  cluster(const cluster&) = delete;
  cluster& operator=(const cluster&) = delete;

  /// Runs `work` on a thread for each worker and returns when all have ended; rethrows the first exception.
  void run(const std::function<void(Comm)>& work) {
    on_each_worker([&](std::size_t rank) {
      const auto mine = join(rank, transport_, 0);
      work(comm_of(mine));
      bool leaves = true;
      {
        const std::lock_guard lock(mutex_);
        leaves = !silent_.contains(rank);
      }
      if (leaves && !mine->ended()->raised()) mine->leave();
    });
  }

  /// As `run`, with cluster_options::state_folder: the processes of a worker die one after the other as fates[rank]
  /// says, and each is replaced. Messages are not counted while the first process joins, nor while any process leaves.
  /// Returns: for each worker the number of messages of its last process.
  std::vector<std::uint64_t> run_with_deaths(const std::function<void(Comm)>& work,
                                             const std::vector<std::vector<fate>>& fates) {
    std::vector<std::uint64_t> steps(options_.workers);
    on_each_worker([&](std::size_t rank) {
      for (std::size_t turn = 0;; ++turn) {
        const auto life = std::make_shared<mortal_transport>(transport_);
        const auto end = turn < fates[rank].size() ? fates[rank][turn] : fate{};
        try {
          if (turn != 0) life->begins(end);
          const auto mine = join(rank, life, turn);
          if (turn == 0) life->begins(end);
          work(comm_of(mine));
          steps[rank] = life->ends();
          return mine->leave();
        } catch (const death&) {
          const auto answer = send_request(net::verb::report_death,
                                           R"({"role":"worker","rank":)" + std::to_string(rank) + R"(,"pid":)" +
                                               std::to_string(pid_of(rank, turn)) + R"(,"why":"killed"})");
          if (answer.find("\"continues\":true") == std::string::npos) throw error("the job ends: " + answer);
        }
      }
    });
    return steps;
  }

  /// Makes this worker exit without leaving.
  void silence(const Comm& comm) {
    const std::lock_guard lock(mutex_);
    silent_.insert(comm.get_rank());
  }

  /// A client that is not a worker of the job.
  std::unique_ptr<server_group> client(kvclt_options o = {}, std::shared_ptr<abort_signal> ended = nullptr) {
    return std::make_unique<server_group>(*transport_, *board_->newest(), 0, o, std::move(ended), board_);
  }

  /// The server exits, and its death is reported to the scheduler, as a launcher does. Returns: the epoch without it, 0
  /// when the job has ended.
  std::uint32_t lose(std::size_t i) {
    announcers_[i].reset();
    nodes_[i].reset();
    const auto answer = send_request(net::verb::report_death,
                                     R"({"role":"server","slot":)" + std::to_string(i) + R"(,"pid":1,"why":"lost"})");
    const auto at = answer.find("\"epoch\":");
    if (answer.find("\"continues\":true") == std::string::npos || at == std::string::npos) return 0;
    return static_cast<std::uint32_t>(std::stoul(answer.substr(at + 8)));
  }
  /// The death of a worker's first process is reported to the scheduler.
  void lose_worker(std::size_t rank) {
    send_request(net::verb::report_death, R"({"role":"worker","rank":)" + std::to_string(rank) + R"(,"pid":)" +
                                              std::to_string(pid_of(rank, 0)) + R"(,"why":"killed"})");
  }
  /// The scheduler receives nothing more from this server, which otherwise continues.
  void silence_server(std::size_t i) { announcers_[i].reset(); }
  /// The scheduler stops, and answers nothing more.
  void end_scheduler() { scheduler_.reset(); }
  /// Starts a replacement in the slot of a lost server.
  void replace(std::size_t i) {
    nodes_[i] = make_node(i, ++made_);
    announcers_[i] = std::make_unique<announcer>(*this, *nodes_[i]);
  }
  /// Adds or removes a server, as the launcher does. Blocks: until it serves, or has left and all replicas are
  /// complete, at most 20 s. Returns: its slot; -1 when the scheduler rejects it or on timeout.
  int grow() {
    const auto slot = begin_growing();
    return slot >= 0 && waits_for(static_cast<std::size_t>(slot), server_state::up) ? slot : -1;
  }
  int shrink() {
    const auto slot = resize("-1");
    return slot >= 0 && retire(static_cast<std::size_t>(slot)) ? slot : -1;
  }
  /// As `grow`, but does not wait.
  int begin_growing() {
    const auto slot = resize("1");
    if (slot < 0) return -1;
    const auto i = static_cast<std::size_t>(slot);
    if (i >= nodes_.size()) {
      nodes_.resize(i + 1);
      announcers_.resize(i + 1);
    }
    replace(i);
    return slot;
  }
  /// Waits until a server has left, like `shrink`, and stops it.
  bool retire(std::size_t slot) {
    if (!waits_for(slot, server_state::left)) return false;
    announcers_[slot].reset();
    nodes_[slot].reset();
    return true;
  }
  /// Requests one more or one fewer server from the scheduler. Returns: the slot; -1 when it is rejected.
  int resize(const std::string& by) {
    const auto answer = send_request(net::verb::resize, R"({"servers":)" + by + "}");
    const auto at = answer.find("\"slot\":");
    return at == std::string::npos ? -1 : std::stoi(answer.substr(at + 7));
  }
  /// Waits until the newest membership has the slot in this state, and the scheduler reports all replicas as complete.
  /// Blocks: at most 20 s; returns false on timeout.
  bool waits_for(std::size_t slot, server_state state) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (; std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(std::chrono::milliseconds(2))) {
      const auto m = newest();
      if (slot >= m.servers.size() || m.servers[slot].state != state) continue;
      const auto stats = send_request(net::verb::stats, "");
      if (stats.find("\"settled\":true") != std::string::npos) return true;
    }
    return false;
  }
  /// Waits until clients have a membership of at least this epoch. Blocks: at most 20 s; returns false on timeout.
  bool reaches(std::uint32_t epoch) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (board_->epoch() < epoch && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return board_->epoch() >= epoch;
  }
  [[nodiscard]] membership newest() const { return *board_->newest(); }
  [[nodiscard]] const membership& members() const { return members_; }
  [[nodiscard]] net::transport& transport() { return *transport_; }
  [[nodiscard]] std::string scheduler_address() const { return scheduler_->address(); }
  [[nodiscard]] srv::scheduler_node& scheduler() { return *scheduler_; }
  [[nodiscard]] srv::server_node& node(std::size_t i) { return *nodes_[i]; }

  /// Number of requests handled by the shards of all servers, except pings of the nodes themselves.
  [[nodiscard]] std::uint64_t requests_served() const {
    std::uint64_t n = 0;
    for (const auto& node : nodes_)
      if (node) n += node->object().requests_served();
    return n;
  }

 private:
  void on_each_worker(const std::function<void(std::size_t)>& be) {
    std::vector<std::thread> threads;
    std::exception_ptr first;
    std::mutex mutex;
    for (std::size_t rank = 0; rank < options_.workers; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          be(rank);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
      });
    }
    for (auto& t : threads) t.join();
    if (first) std::rethrow_exception(first);
  }
  std::shared_ptr<session> join(std::size_t rank, std::shared_ptr<net::transport> over, std::size_t turn) {
    session_options o;
    o.over = std::move(over);
    o.job = job;
    o.scheduler = scheduler_->address();
    o.rank = static_cast<std::uint32_t>(rank);
    o.size = static_cast<std::uint32_t>(options_.workers);
    o.heartbeat_interval = options_.heartbeat_limit / 10;
    o.heartbeat_limit = options_.heartbeat_limit;
    o.state_folder = options_.state_folder;
    o.pid = pid_of(rank, turn);
    o.peer_address = options_.bind + "worker-" + std::to_string(o.pid);
    o.shares_memory = options_.shares_memory;
    o.resend_after = options_.resend_after;
    return session::join(std::move(o));
  }
  static std::int64_t pid_of(std::size_t rank, std::size_t turn) {
    return static_cast<std::int64_t>(1000 * (rank + 1) + turn);
  }
  static Comm comm_of(const std::shared_ptr<session>& mine) {
    return Comm(std::make_shared<comm_scheduler>(mine->rank(), mine->size(), [mine] { return mine; }), mine);
  }
  std::unique_ptr<srv::server_node> make_node(std::size_t i, unsigned made) {
    srv::node_options o;
    o.bind = options_.bind + "server" + std::to_string(i) + (made == 0 ? "" : "_" + std::to_string(made));
    if (o.bind.starts_with("ipc://")) std::filesystem::create_directory(o.bind.substr(6));
    o.shares_connections = options_.shares_connections;
    o.server.slot = static_cast<std::uint32_t>(i);
    o.server.threads = options_.threads;
    o.server.job = job;
    o.server.workers = 0;  // set by the membership, like the clock and the checkpoint plan
    o.server.plugin_folders = options_.plugin_folders;
    o.server.max_parked_bytes = options_.max_parked_bytes;
    o.server.max_message_bytes = options_.max_message_bytes;
    o.server.max_set_bytes = options_.max_set_bytes;
    o.server.resend_after = options_.resend_after;
    o.log = [](const std::string&) {};
    if (options_.handler) o.handler = options_.handler(i);
    return std::make_unique<srv::server_node>(*transport_, std::move(o));
  }
  void tell(srv::server_node& node, const membership& m) {
    node.set_membership(m);
    if (options_.told) options_.told(node.addresses().slot, m);
  }
  /// Sends one request to the scheduler. Returns: the body of the reply.
  std::string send_request(net::verb what, const std::string& body) {
    const auto port = transport_->open();
    net::request_header h;
    h.what = what;
    h.job = job;
    h.sequence = 1;
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    net::request_bytes head;
    net::encode(h, head);
    port->send(port->connect(scheduler_->address()), {.head = head, .body = net::bytes_of(body)});
    net::incoming in;
    net::reply_view reply;
    if (!port->receive(in, std::chrono::seconds(20)) || net::decode(in.frame, in.tail.size(), reply) != nullptr)
      return {};
    return std::string(net::text_of(reply.body));
  }

  /// The equivalent of start_server: joins the scheduler and sends heartbeats for a server.
  class announcer {
   public:
    announcer(cluster& of, srv::server_node& node)
        : port_(of.transport_->open()),
          heartbeat_(
              *of.transport_,
              net::heartbeat_options{.scheduler = of.scheduler_->address(),
                                     .job = job,
                                     .interval = of.members_.may_change() ? std::chrono::milliseconds(50)
                                                                          : of.options_.heartbeat_limit / 10,
                                     .limit = of.options_.heartbeat_limit,
                                     .on_membership =
                                         [&of, &node](std::string_view json) {
                                           const auto m = membership::from_json(json);
                                           of.tell(node, m);
                                           of.board_->put(m);
                                           return m.epoch;
                                         }},
              [&of, &node] { return beat_of(node, of.options_.handler != nullptr); }, [](const net::directive&) {}) {
      const auto body = join_of(node.addresses());
      net::request_header h;
      h.what = net::verb::join;
      h.job = job;
      h.sequence = 1;
      h.body_bytes = static_cast<std::uint32_t>(body.size());
      net::request_bytes head;
      net::encode(h, head);
      port_->send(port_->connect(of.scheduler_->address()), {.head = head, .body = net::bytes_of(body)});
      if (!of.members_.may_change()) return;
      const auto now = of.board_->epoch();
      if (now == 0) {
        heartbeat_.follow(1);
        return;
      }
      net::incoming in;  // a replacement: the job is running, so the reply is immediate
      net::reply_view reply;
      if (!port_->receive(in, std::chrono::seconds(20)) || net::decode(in.frame, in.tail.size(), reply) != nullptr)
        return;
      const auto m = membership::from_json(net::text_of(reply.body));
      of.tell(node, m);
      of.board_->put(m);
      heartbeat_.follow(m.epoch);
    }

   private:
    static std::string beat_of(srv::server_node& node, bool is_synced) {
      return R"({"role":"server","slot":)" + std::to_string(node.addresses().slot) + R"(,"pid":1,"incarnation":")" +
             to_hex(node.addresses().incarnation) + R"(","busy":[])" + R"(,"synced":)" +
             std::to_string(is_synced ? node.object().epoch() : node.synced()) + "}";
    }
    static std::string join_of(const server_entry& s) {
      std::string shards;
      for (const auto& a : s.shards) shards += (shards.empty() ? "\"" : ",\"") + a + "\"";
      return R"({"role":"server","slot":)" + std::to_string(s.slot) + R"(,"incarnation":")" + to_hex(s.incarnation) +
             R"(","threads":)" + std::to_string(s.threads) + R"(,"host":"here","pid":1,"shards":[)" + shards +
             R"(],"clock":")" + s.clock + R"(","control":")" + s.control + R"("})";
    }
    std::unique_ptr<net::port> port_;
    net::heartbeat heartbeat_;
  };

  cluster_options options_;
  std::shared_ptr<net::transport> transport_;
  std::unique_ptr<srv::scheduler_node> scheduler_;
  membership members_;
  std::vector<std::unique_ptr<srv::server_node>> nodes_;
  std::vector<std::unique_ptr<announcer>> announcers_;
  std::shared_ptr<latest_membership> board_ = std::make_shared<latest_membership>();
  unsigned made_ = 0;
  std::mutex mutex_;
  std::set<std::size_t> silent_;
};

}  // namespace paracel::test
