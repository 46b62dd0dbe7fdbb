// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/membership.hpp"
#include "server/node/server_loop.hpp"
#include "storage/file_system.hpp"
#include "test/sim/scheduler_line.hpp"
#include "test/sim/simulation.hpp"

namespace paracel::sim {

/// In front of a server: with a mutation, reads are answered immediately.
class hasty_reader final : public srv::request_handler {
 public:
  hasty_reader(srv::server& s, bool hasty) : server_(s), hasty_(hasty) {}
  void handle(unsigned shard, const net::request_view& request, shared_buffer tail, srv::completion done) override;
  void expect(unsigned shard, std::span<const net::request_view> requests) override { server_.expect(shard, requests); }
  void closing(unsigned shard) override { server_.closing(shard); }
  std::function<void(unsigned, const net::request_header&, std::vector<std::byte>&)> reply_at_once;

 private:
  srv::server& server_;
  const bool hasty_;
};

/// That a simulated server can have.
constexpr std::uint32_t most_threads = 16;

/// Deliberate defects of a server.
struct server_mutations {
  bool ignores_lease = false;
  bool reads_early = false;
  bool ignores_moves = false;
};

/// The membership entry of a server that starts in a slot.
server_entry entry_of(std::uint32_t slot, std::uint64_t incarnation, std::uint32_t threads, int pid);

/// The equivalent of start_server: the loops of a server, its heartbeat, and joining.
class server_process {
 public:
  /// `ended`: called when it is told to exit, or that it counts as dead; possibly in a step of one of its actors.
  server_process(simulation& in, process& p, storage::file_system& disk, const server_entry& self,
                 server_mutations broken, std::function<void()> ended);

  [[nodiscard]] const server_entry& self() const { return self_; }
  [[nodiscard]] process& place() { return process_; }
  [[nodiscard]] srv::server& object() { return server_; }
  [[nodiscard]] hasty_reader& reader() { return reader_; }
  [[nodiscard]] std::uint32_t synced() const;
  /// Whether its lease is valid.
  [[nodiscard]] bool may_answer() const;
  [[nodiscard]] net::port& port(unsigned shard) { return *ports_[shard]; }
  std::function<void()> before_follow;  ///< called before a new membership is applied

 private:
  static srv::server_options options_of(const server_entry& self);
  actor& open(const std::string& thread, const std::string& address);
  void run(actor& a, std::unique_ptr<srv::server_loop> loop);
  srv::loop_context around(unsigned thread);
  void join();
  void renew_lease(net::clock_source::time_point sent);
  std::uint32_t adopt(std::string_view text);
  [[nodiscard]] std::string describe();

  simulation& in_;
  const server_entry self_;
  process& process_;
  srv::server server_;
  hasty_reader reader_;
  const server_mutations broken_;
  std::function<void()> ended_;
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> lease_end_{INT64_MAX};
  std::array<std::atomic<std::uint32_t>, most_threads + 1> synced_{};
  std::shared_ptr<const membership> members_;
  std::vector<std::unique_ptr<net::port>> ports_;  // of the shards, then of the clock
  std::vector<std::unique_ptr<srv::server_loop>> loops_;
  std::optional<pulse> pulse_;
  std::optional<question> joining_;
};

}  // namespace paracel::sim
