// SPDX-License-Identifier: BSD-3-Clause
//
// A whole job in one process: scheduler, servers and workers as threads, over the in-process transport, so that the
// sanitizers see all of it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>

#include "net/heartbeat.hpp"
#include "net/inproc_transport.hpp"
#include "server/scheduler_node.hpp"
#include "server/server_node.hpp"
#include "worker/comm_scheduler.hpp"
#include "worker/kvclt.hpp"
#include "worker/session.hpp"

namespace paracel::test {

struct cluster_options {
  std::size_t workers = 1;
  std::size_t servers = 1;
  std::uint32_t threads = 1;
  std::chrono::milliseconds heartbeat_limit{10'000};
  std::vector<std::string> plugin_folders{};
};

class cluster {
 public:
  static constexpr std::uint64_t job = 0x7e57;

  explicit cluster(cluster_options options)
      : options_(std::move(options)), transport_(std::make_shared<net::inproc_transport>()) {
    srv::scheduler_node_options s;
    s.job.job = job;
    s.job.workers = static_cast<std::uint32_t>(options_.workers);
    s.job.servers = static_cast<std::uint32_t>(options_.servers);
    s.job.heartbeat_limit = options_.heartbeat_limit;
    s.bind = "inproc://scheduler";
    scheduler_ = std::make_unique<srv::scheduler_node>(*transport_, std::move(s));
    members_.job = job;
    members_.workers = static_cast<std::uint32_t>(options_.workers);
    for (std::size_t i = 0; i < options_.servers; ++i) {
      srv::node_options o;
      o.bind = "inproc://server" + std::to_string(i);
      o.server.slot = static_cast<std::uint32_t>(i);
      o.server.threads = options_.threads;
      o.server.job = job;
      o.server.workers = members_.workers;
      o.server.plugin_folders = options_.plugin_folders;
      o.log = [](const std::string&) {};
      nodes_.push_back(std::make_unique<srv::server_node>(*transport_, std::move(o)));
      members_.servers.push_back(nodes_.back()->addresses());
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      nodes_[i]->set_membership(members_);
      announcers_.push_back(std::make_unique<announcer>(*this, members_.servers[i]));
    }
  }
  ~cluster() {
    announcers_.clear();
    nodes_.clear();
    scheduler_.reset();
  }
  cluster(const cluster&) = delete;
  cluster& operator=(const cluster&) = delete;

  /// Runs `work` on a thread for each worker and returns when all have ended; the first exception is thrown again.
  void run(const std::function<void(Comm)>& work) {
    std::vector<std::thread> threads;
    std::exception_ptr first;
    std::mutex mutex;
    for (std::size_t rank = 0; rank < options_.workers; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          session_options o;
          o.over = transport_;
          o.job = job;
          o.scheduler = scheduler_->address();
          o.rank = static_cast<std::uint32_t>(rank);
          o.size = static_cast<std::uint32_t>(options_.workers);
          o.heartbeat_interval = options_.heartbeat_limit / 10;
          o.heartbeat_limit = options_.heartbeat_limit;
          const auto mine = session::join(std::move(o));
          work(Comm(std::make_shared<comm_scheduler>(rank, options_.workers, [mine] { return mine; }), mine));
          bool leaves = true;
          {
            const std::lock_guard lock(mutex_);
            leaves = !silent_.contains(rank);
          }
          if (leaves && !mine->ended()->raised()) mine->leave();
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
      });
    }
    for (auto& t : threads) t.join();
    if (first) std::rethrow_exception(first);
  }

  /// This worker will end without saying goodbye.
  void silence(const Comm& comm) {
    const std::lock_guard lock(mutex_);
    silent_.insert(comm.get_rank());
  }

  /// A client that is no worker of the job.
  std::unique_ptr<kvclt> client(kvclt_options o = {}, std::shared_ptr<abort_signal> ended = nullptr) {
    return std::make_unique<kvclt>(*transport_, members_, 0, o, std::move(ended));
  }
  [[nodiscard]] const membership& members() const { return members_; }
  [[nodiscard]] net::transport& transport() { return *transport_; }
  [[nodiscard]] std::string scheduler_address() const { return scheduler_->address(); }
  [[nodiscard]] srv::server_node& node(std::size_t i) { return *nodes_[i]; }

  /// Requests that the shards of all servers have handled, pings of the nodes themselves excepted.
  [[nodiscard]] std::uint64_t requests_served() const {
    std::uint64_t n = 0;
    for (const auto& node : nodes_) n += node->object().requests_served();
    return n;
  }

 private:
  /// What start_server does: joins the scheduler for a server and beats for it.
  class announcer {
   public:
    announcer(cluster& of, const server_entry& self)
        : heartbeat_(*of.transport_,
                     net::heartbeat_options{of.scheduler_->address(), job, of.options_.heartbeat_limit / 10,
                                            of.options_.heartbeat_limit},
                     [body = beat_of(self)] { return body; }, [](const net::order&) {}),
          port_(of.transport_->open()) {
      const auto body = join_of(self);
      net::request_header h;
      h.what = net::verb::join;
      h.job = job;
      h.sequence = 1;
      h.body_bytes = static_cast<std::uint32_t>(body.size());
      net::request_bytes head;
      net::encode(h, head);
      port_->send(port_->connect(of.scheduler_->address()), {.head = head, .body = net::bytes_of(body)});
    }

   private:
    static std::string beat_of(const server_entry& s) {
      return R"({"role":"server","slot":)" + std::to_string(s.slot) + R"(,"pid":1,"busy":[]})";
    }
    static std::string join_of(const server_entry& s) {
      std::string shards;
      for (const auto& a : s.shards) shards += (shards.empty() ? "\"" : ",\"") + a + "\"";
      return R"({"role":"server","slot":)" + std::to_string(s.slot) + R"(,"incarnation":)" +
             std::to_string(s.incarnation >> 12U) + R"(,"threads":)" + std::to_string(s.threads) +
             R"(,"host":"here","pid":1,"shards":[)" + shards + R"(],"clock":")" + s.clock + R"(","control":")" + s.control +
             R"("})";
    }
    net::heartbeat heartbeat_;
    std::unique_ptr<net::port> port_;
  };

  cluster_options options_;
  std::shared_ptr<net::inproc_transport> transport_;
  std::unique_ptr<srv::scheduler_node> scheduler_;
  membership members_;
  std::vector<std::unique_ptr<srv::server_node>> nodes_;
  std::vector<std::unique_ptr<announcer>> announcers_;
  std::mutex mutex_;
  std::set<std::size_t> silent_;
};

}  // namespace paracel::test
