// SPDX-License-Identifier: BSD-3-Clause
#include "test/sim/job.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "storage/checkpoint_store.hpp"
#include "test/sim/faults.hpp"
#include "test/sim/history.hpp"
#include "test/sim/replica_check.hpp"
#include "test/sim/scheduler_process.hpp"
#include "test/sim/server_process.hpp"
#include "test/sim/strays.hpp"
#include "test/sim/worker_process.hpp"
#include "test/support/crash_disk.hpp"

namespace paracel::sim {
namespace {

using net::verb;
using nlohmann::json;

constexpr const char* checkpoint_folder = "checkpoints";
// The faults stop then, and soon afterwards everything must be in order.
constexpr nanos quiet_after = 9_s;
constexpr nanos quiet_after_resume = 4_s;
constexpr nanos well_within = 15_s;

/// What a job starts from.
struct beginning {
  std::string folder{};  ///< of the checkpoint; empty: from scratch
  std::uint32_t clock = 0;
  std::uint32_t workers = 0;
  history::snapshot counted{};
};

class job {
 public:
  job(const job_options& o, test::crash_disk& disk, beginning from)
      : options_(o),
        disk_(disk),
        from_(std::move(from)),
        quiet_after_(from_.folder.empty() ? quiet_after : quiet_after_resume),
        in_(o.seed) {
    in_.verbose = o.verbose;
    auto& dice = in_.dice();
    servers_count_ = 3 + static_cast<std::uint32_t>(dice.below(2));
    replicas_ = dice.in(8) ? 1 : dice.in(3) ? 3 : 2;
    threads_ = 1 + static_cast<std::uint32_t>(dice.below(2));
    workers_count_ = 2 + static_cast<std::uint32_t>(dice.below(2));
    const bool continues = !from_.folder.empty();
    const auto staleness = from_.counted.sums.empty() ? static_cast<std::uint32_t>(dice.below(3)) : 0;
    known_.emplace(in_, workers_count_, staleness, staleness == 0 && (dice.in(2) || !from_.counted.sums.empty()));
    if (continues) known_->resume_from(from_.counted, from_.clock);
    eject_ = !continues && o.faults && known_->sums().empty() && dice.in(2);
    every_ = dice.in(3) ? 0 : 1 + static_cast<std::uint32_t>(dice.below(6));
    using frame = std::span<const std::byte>;
    in_.on_reply = [this](process& p, const connection& c, frame f) { known_->observe_reply(p, c, f); };
    in_.on_request = [this](process&, const connection& c, frame f) { known_->observe_request(c, f); };
    in_.on_death = [this](process& p) { died(p); };
    if (o.broken != mutation::none) in_.forge = [b = o.broken](frame f) { return forge_for(b, f); };
    make_scheduler();
    for (std::uint32_t slot = 0; slot < servers_count_; ++slot) start_server(slot);
    for (std::uint32_t rank = 0; rank < workers_count_; ++rank) {
      auto& p = make_process("w" + std::to_string(rank));
      workers_.push_back(std::make_unique<worker_process>(in_, p, disk_, *known_, rank, workers_count_));
      worker_places_.push_back(&p);
    }
    if (!o.faults) return;
    strays_.emplace(make_process("stray"));
    in_.after(dice.between(200_ms, 900_ms), [this] { break_something(); });
    // Everything stops at once; data not yet synchronised is lost, completely or in part.
    if (!continues && !eject_ && dice.in(2))
      in_.after(dice.between(1_s, quiet_after_), [this] { faults_->lose_power(); });
  }
  ~job() {
    // No more messages are sent.
    for (auto& p : processes_)
      if (p->alive()) in_.kill(*p);
  }

  /// Throws: violation; crash_disk::power_loss, which destroys all processes.
  job_result run() {
    run_until([&] { return in_.now() > quiet_after_; }, never, "");
    faults_end_ = true;
    in_.mend_all();
    for (auto& p : processes_) in_.resume(*p);
    const auto end = in_.now() + well_within;
    // By then every death has been detected.
    run_until([&] { return in_.now() > quiet_after_ + 3_s; }, never, "");
    run_until([&] { return replicas_made_; }, end, "the replicas were not restored");
    std::uint32_t most = 0;
    for (const auto& w : workers_)
      if (w) most = std::max(most, w->iterations());
    for (auto& w : workers_)
      if (w) w->finish(most + 1);
    run_until([&] { return std::ranges::all_of(workers_, [](const auto& w) { return !w || w->finished(); }); }, end,
              "requests are not answered");
    run_until([&] { return replicas_made_; }, end, "the replicas were not restored");
    // Updates that are folded when the clock advances are sent to the replicas without a request that waits for them.
    run_until([until = in_.now() + 1_s, this] { return in_.now() > until; }, never, "");
    run_until([&] { return replicas_made_; }, end, "partitions that move do not arrive");
    if (replicas_ > 1) compare_replicas(by_incarnation_, known_->partitions(), replicas_, threads_);
    workers_[0]->read_all();
    run_until([&] { return workers_[0]->idle(); }, in_.now() + 5_s, "the last reads are not answered");
    known_->check_end();
    return result();
  }
  [[nodiscard]] job_result result() const {
    return {in_.hash(), in_.events(), known_->answers(), losses_, moves_, rebalanced_, saved_, in_.now()};
  }
  [[nodiscard]] const history& known() const { return *known_; }
  /// Clock of the newest checkpoint reported by the scheduler; 0: none.
  [[nodiscard]] std::uint32_t newest_checkpoint() const { return newest_checkpoint_; }

 private:
  template <class Done>
  void run_until(const Done& done, nanos limit, const std::string& otherwise) {
    while (!done()) {
      if (in_.now() > limit) wrong(otherwise + " within " + std::to_string(well_within / 1_s) + " s" + state());
      if (!in_.step()) wrong("nothing happens any more");
      if (!aborted_.empty()) wrong("the job has ended: " + aborted_);
    }
  }
  std::string state() {
    std::string s;
    for (auto& one : servers_) {
      if (one == nullptr) continue;
      s += "; s" + std::to_string(one->self().slot) + (one->place().alive() ? "" : " dead") + " epoch " +
           std::to_string(one->object().epoch()) + " synced " + std::to_string(one->synced());
    }
    for (std::size_t i = 0; i < workers_.size(); ++i)
      if (workers_[i])
        s += "; w" + std::to_string(i) + " has " + std::to_string(workers_[i]->unanswered()) + " unanswered";
    return s;
  }

  process& make_process(const std::string& name) {
    auto& dice = in_.dice();
    // Any two clocks run within 10 % of each other.
    const double rate = 0.955 + 0.001 * static_cast<double>(dice.below(91));
    processes_.push_back(std::make_unique<process>(in_, name, rate, dice.between(1_s, 100'000_s)));
    return *processes_.back();
  }

  // ---- the scheduler

  void make_scheduler() {
    auto& p = make_process("scheduler");
    scheduler_place_ = &p;
    faults_.emplace(in_, disk_, p);
    srv::scheduler_options o;
    o.job = job_id;
    o.workers = workers_count_;
    o.servers = servers_count_;
    o.replicas = replicas_;
    o.elastic = elastic_ = in_.dice().in(2);
    o.eject_workers = eject_;
    // Whatever is measured is reason enough.
    o.rebalance = in_.dice().in(2);
    o.rebalance_when = {.excess = 0.01, .settled = 0.005, .least_gain = 0.001, .deviations = 0, .least_counted = 1};
    o.rebalance_when.keys_a_change = 0;
    o.rebalance_when.pause = std::chrono::seconds(0);
    o.rebalance_when.stays = std::chrono::seconds(in_.dice().below(3));
    o.measured = std::chrono::milliseconds(100 + in_.dice().below(1500));
    o.checkpoints.plan = {checkpoint_folder, every_, from_.folder, from_.clock, from_.workers};
    o.checkpoints.disk = &disk_;
    o.checkpoints.own_thread = false;
    scheduler_.emplace(
        in_, p, std::move(o), [this](std::string_view text) { heard(text); }, options_.broken == mutation::hasty_judge);
    launcher_ = &make_process("launcher");
    launcher_thread_ = &launcher_->add("main");
    launcher_thread_->step = [this] {
      while (to_scheduler_->answer()) {
      }
      return 50_ms;
    };
    launcher_->own(*launcher_thread_);
    to_scheduler_.emplace(*launcher_);
  }

  void heard(std::string_view text) {
    const auto e = json::parse(text);
    const auto what = e.at("event").get<std::string>();
    in_.log(what);
    if (options_.verbose) std::printf("             %.*s\n", static_cast<int>(text.size()), text.data());
    if (what == "abort") aborted_ = e.at("cause").get<std::string>();
    if (what == "lost" && e.value("continues", false)) {
      const auto slot = e.at("index").get<std::uint32_t>();
      replicas_made_ = false;
      if (undetected_.erase(slot) == 0) wrong("s" + std::to_string(slot) + " was taken for lost without a reason");
      ++losses_;
      if (joining_.erase(slot) == 0) --up_;
      if (leaving_ == slot) leaving_.reset();
      if (entering_ == slot) entering_.reset();  // it is not replaced
      else in_.after(in_.dice().between(20_ms, 1500_ms), [this, slot] { start_server(slot); });
    }
    if (what == "ejected") {
      const auto rank = e.at("index").get<std::uint32_t>();
      if (!lost_workers_.contains(rank)) wrong("w" + std::to_string(rank) + " was ejected without a reason");
      if (!e.at("reaped").get<bool>()) in_.after(in_.dice().between(1_ms, 60_ms), [this, rank] { worker_died(rank); });
    }
    on_resize(what, e);
    if (what == "moving") replicas_made_ = false;
    if (what == "moved") ++rebalanced_;
    if (what == "checkpoint") {
      newest_checkpoint_ = e.at("clock").get<std::uint32_t>();
      ++saved_;
    }
    if (what == "joined" && running_) {
      replicas_made_ = false;
      joining_.insert(e.at("index").get<std::uint32_t>());
    }
    if (what == "started") {
      running_ = true;
      spare_ = replicas_ - 1;
      up_ = servers_count_;
    }
    if (what == "serving" || what == "synced") {
      if (what == "serving" && leaving_ && up_ - 1 + joining_.size() >= replicas_) {
        leaving_.reset();
        --up_;
      }
      // Servers that were up have all replicas; those that start serving have received theirs.
      const auto spare = std::max(std::min(replicas_, up_), 1U) - 1;
      spare_ = spare > undetected_.size() ? spare - static_cast<std::uint32_t>(undetected_.size()) : 0;
      replicas_made_ = what == "synced";
      if (what == "serving" && options_.faults) {
        for (const auto slot : joining_)
          if (in_.dice().in(3)) in_.after(in_.dice().between(0, 250_ms), [this, slot] { lose_for_a_while(slot); });
      }
      if (what == "serving") up_ += static_cast<std::uint32_t>(std::exchange(joining_, {}).size());
    }
  }

  /// The launcher's part in adding and removing servers.
  void on_resize(const std::string& what, const json& event) {
    if (what == "not_entered") wrong("a server that was started did not enter");
    if (what != "wanted" && what != "entered" && what != "leaving" && what != "retired") return;
    const auto slot = event.at("index").get<std::uint32_t>();
    if (what == "wanted") {
      entering_ = slot;
      in_.after(in_.dice().between(20_ms, 500_ms), [this, slot] { start_server(slot); });
    } else if (what == "entered") {
      entering_.reset();
    } else if (what == "leaving") {
      leaving_ = slot;
      replicas_made_ = false;
    } else {
      undetected_.erase(slot);  // it was not in use any more
    }
    moves_ += what == "entered" || what == "retired" ? 1 : 0;
  }

  void start_server(std::uint32_t slot) {
    // A machine that is being suspended suspends this process too, which would otherwise give up on a scheduler that is
    // silent for so long.
    if (launcher_->stopped() || all_stop_) return in_.after(100_ms, [this, slot] { start_server(slot); });
    const int pid = ++last_pid_;
    const auto entry = entry_of(slot, in_.dice().next() | 1U, threads_, pid);
    auto& p = make_process("s" + std::to_string(slot) + "#" + std::to_string(pid));
    in_.log("start " + p.name());
    const server_mutations broken{options_.broken == mutation::no_lease, options_.broken == mutation::early_read,
                                  options_.broken == mutation::bare_moves};
    servers_.push_back(std::make_unique<server_process>(in_, p, disk_, entry, broken, [this, &p] {
      in_.after(0, [this, &p] {
        if (p.alive()) died(p);
      });
    }));
    auto& s = *servers_.back();
    by_incarnation_[entry.incarnation] = &s;
    s.reader().reply_at_once = [&s, this](unsigned shard, const net::request_header& h, std::vector<std::byte>& frame) {
      const auto number = known_->connection_of(h.client, h.sequence);
      if (number == 0 || !s.may_answer()) return;
      net::peer to;
      std::memcpy(to.id.data(), &number, sizeof number);
      to.size = sizeof number;
      s.port(shard).reply(to, {.head = frame});
    };
    if (options_.broken == mutation::no_memory) {
      s.before_follow = [&s, this] { forget_applied(s); };
    }
  }

  void forget_applied(server_process& s) const {
    for (unsigned i = 0; i < threads_; ++i) s.object().at(i).applied().drop_if([](std::uint16_t) { return true; });
  }

  /// A server's process has exited.
  void died(process& p) {
    in_.kill(p);
    const auto at = std::ranges::find_if(servers_, [&](const auto& s) { return s && &s->place() == &p; });
    if (at == servers_.end()) wrong(p.name() + " has died");
    const auto self = (*at)->self();
    const bool reaped = !silent_deaths_.contains(p.name());
    by_incarnation_.erase(self.incarnation);
    at->reset();
    if (!reaped) return;
    in_.after(in_.dice().between(1_ms, 60_ms), [this, self] {
      const json body = {{"role", "server"}, {"slot", self.slot}, {"pid", self.pid}, {"why", "killed"}};
      to_scheduler_->ask(verb::report_death, body.dump());
    });
  }

  /// The process of a worker is dead from now on: the launcher kills a worker that has been ejected.
  void worker_died(std::uint32_t rank) {
    if (workers_[rank] != nullptr) {
      in_.kill(*worker_places_[rank]);
      known_->dies(rank);
      workers_[rank].reset();
    }
    in_.after(in_.dice().between(1_ms, 60_ms), [this, rank] {
      const json body = {{"role", "worker"}, {"rank", rank}, {"pid", 1000 + rank}, {"why", "killed"}};
      to_scheduler_->ask(verb::report_death, body.dump());
    });
  }

  // ---- faults

  server_process* any_server() {
    std::vector<server_process*> up;
    for (auto& s : servers_)
      if (s && s->place().alive() && !s->place().stopped() && s->object().epoch() != 0 &&
          !undetected_.contains(s->self().slot) && !broken_.contains(s->self().slot))
        up.push_back(s.get());
    return up.empty() ? nullptr : up[in_.dice().below(up.size())];
  }

  void break_something() {
    if (faults_end_) return;
    auto& dice = in_.dice();
    in_.after(dice.between(50_ms, 900_ms), [this] { break_something(); });
    if (!running_ || paused_) return;
    if (dice.in(25)) return pause();
    if (dice.in(10)) to_scheduler_->ask(verb::checkpoint, json{{"role", "launcher"}}.dump());
    if (dice.in(3)) to_scheduler_->ask(verb::resize, json{{"servers", dice.in(2) ? 1 : -1}}.dump());
    if (dice.in(20)) return faults_->fill_disk();
    if (dice.in(20)) return faults_->stop_scheduler();
    if (eject_ && dice.in(12)) return lose_worker(1 + static_cast<std::uint32_t>(dice.below(workers_count_ - 1)));
    auto* s = any_server();
    if (s == nullptr) return;
    auto& p = s->place();
    const auto slot = s->self().slot;
    if (dice.in(4)) {
      const auto* from = any_server();
      strays_->send(s->self(), from->self(), s->object().epoch());
    }
    switch (dice.below(20)) {
      case 0:
      case 1: {
        if (spare_ == 0 || in_.now() > quiet_after_ - 1_s) return;
        lose(slot);
        if (dice.in(3)) silent_deaths_.insert(p.name());
        if (dice.in(2)) p.die_after(1 + static_cast<int>(dice.below(6)));
        else died(p);
        return;
      }
      case 2:
      case 3:
        return lose_for_a_while(slot);
      case 7:
        return kill_alone(p, slot);
      case 8:
        return disturb_worker(dice.below(worker_places_.size()));
      case 4: {
        disturb(slot);
        in_.stop(p);
        in_.after(dice.between(1_ms, 700_ms), [this, &p] { in_.resume(p); });
        return;
      }
      case 5: {
        disturb(slot);
        in_.cut(p, *scheduler_place_);
        in_.after(dice.between(1_ms, 700_ms), [this, &p] { in_.mend(p, *scheduler_place_); });
        return;
      }
      case 6: {
        auto* other = any_server();
        if (other == s || other == nullptr) return;
        faults_->cut_for_a_while(p, other->place());
        return;
      }
      case 9:
        if (auto* worker = any_worker()) faults_->cut_for_a_while(p, *worker);
        return;
      case 10:
        disturb(slot);
        return faults_->silence_scheduler_lines(p);
      case 11:
        return silence_worker(dice.below(worker_places_.size()));
      case 12:
        if (auto* worker = any_worker()) in_.swallow_some(*worker, p);
        return;
      case 13:
        if (auto* other = any_server()) in_.swallow_some(p, other->place());  // its own ones, too
        return;
      default: {
        auto* other = any_server();
        auto* one = any_worker();
        if (one == nullptr) return;
        auto& worker = *one;
        if (dice.in(4)) faults_->break_scheduler_lines(dice.in(2) ? worker : p);
        else if (dice.in(2)) {
          if (options_.broken == mutation::no_memory && replicas_ == 1 && !elastic_) forget_applied(*s);
          faults_->break_connections(worker, p);
        } else if (other != s && other != nullptr) faults_->break_connections(p, other->place());
      }
    }
  }
  /// Suspended, or cut off from the scheduler, for longer than the lease.
  void lose_for_a_while(std::uint32_t slot) {
    const auto at = std::ranges::find_if(servers_, [&](const auto& s) {
      return s && s->self().slot == slot && s->place().alive() && s->object().epoch() != 0;
    });
    if (at == servers_.end() || spare_ == 0 || in_.now() > quiet_after_ - 1_s || faults_end_) return;
    auto& p = (*at)->place();
    if (undetected_.contains(slot) || broken_.contains(slot) || p.stopped()) return;
    lose(slot);
    faults_->hold_up(p, in_.dice().between(2700_ms, 5_s));
  }
  /// Cut off from all other servers first: no other server has its latest changes.
  void kill_alone(process& p, std::uint32_t slot) {
    if (spare_ == 0 || in_.now() > quiet_after_ - 1_s) return;
    lose(slot);
    for (auto& s : servers_)
      if (s && &s->place() != &p) faults_->cut_for_a_while(p, s->place());
    in_.after(in_.dice().between(1_ms, 80_ms), [this, &p] {
      if (p.alive()) died(p);
    });
  }
  /// The machine is suspended: all processes stop for a while, or the scheduler and some others. Only processes that
  /// die meanwhile may be reported lost, in whatever order the others resume.
  void pause() {
    if (scheduler_place_->stopped()) return;
    auto& dice = in_.dice();
    const bool all =
        dice.in(2) && std::ranges::none_of(processes_, [](const auto& p) { return p->alive() && p->stopped(); });
    const auto time = dice.between(500_ms, all ? 12_s : 7_s);
    paused_ = true;
    quiet_after_ += time;
    if (all) {
      all_stop_ = true;
      in_.after(21_ms, [this] { all_stop_ = false; });
    }
    if (auto* s = any_server(); s != nullptr && spare_ != 0 && dice.in(3)) {
      lose(s->self().slot);
      if (dice.in(2)) silent_deaths_.insert(s->place().name());
      in_.after(dice.between(0, time), [this, &p = s->place()] {
        if (p.alive()) died(p);
      });
    }
    for (auto& p : processes_) {
      if (!p->alive() || p->stopped() || !(all || p.get() == scheduler_place_ || dice.in(2))) continue;
      in_.after(dice.between(0, 20_ms), [this, &p = *p] { in_.stop(p); });
      in_.after(time + dice.between(20_ms, 400_ms), [this, &p = *p] { in_.resume(p); });
    }
    in_.after(time + 1_s, [this] { paused_ = false; });
  }
  void lose(std::uint32_t slot) {
    --spare_;
    undetected_.insert(slot);
  }
  /// Not long enough to count as lost, if nothing else happens to it meanwhile.
  void disturb(std::uint32_t slot) {
    broken_.insert(slot);
    in_.after(1700_ms, [this, slot] { broken_.erase(slot); });
  }
  /// Suspended, or cut off from the scheduler, for less than the time after which it counts as lost.
  void disturb_worker(std::size_t rank) {
    if (lost_workers_.contains(static_cast<std::uint32_t>(rank)) || !disturbed_workers_.insert(rank).second) return;
    in_.after(3_s, [this, rank] { disturbed_workers_.erase(rank); });
    auto& p = *worker_places_[rank];
    faults_->hold_up(p, in_.dice().between(1_ms, 1500_ms));
  }
  /// Connections to the scheduler fall silent, heartbeats included.
  void silence_worker(std::size_t rank) {
    if (lost_workers_.contains(static_cast<std::uint32_t>(rank)) || !disturbed_workers_.insert(rank).second) return;
    in_.after(3_s, [this, rank] { disturbed_workers_.erase(rank); });
    faults_->silence_scheduler_lines(*worker_places_[rank]);
  }
  /// A live one, or null.
  process* any_worker() {
    auto* p = worker_places_[in_.dice().below(worker_places_.size())];
    return p->alive() ? p : nullptr;
  }
  /// Kills it, or suspends it for so long that it counts as lost. The other workers continue without it.
  void lose_worker(std::uint32_t rank) {
    constexpr auto until_lost = 4500_ms;
    auto& p = *worker_places_[rank];
    if (in_.now() > quiet_after_ - 1_s || p.stopped() || disturbed_workers_.contains(rank)) return;
    if (!lost_workers_.insert(rank).second) return;
    known_->endangers(rank);
    if (in_.dice().in(2) || in_.now() > quiet_after_ - until_lost) worker_died(rank);
    else in_.stop(p);
  }

  const job_options options_;
  test::crash_disk& disk_;
  const beginning from_;
  nanos quiet_after_;
  simulation in_;
  std::optional<faults> faults_;  // once the scheduler exists
  std::optional<history> known_;
  std::vector<std::unique_ptr<process>> processes_;
  std::uint32_t servers_count_ = 0;
  std::uint32_t replicas_ = 0;
  bool elastic_ = false;
  std::uint32_t threads_ = 0;
  std::uint32_t workers_count_ = 0;
  process* scheduler_place_ = nullptr;
  std::uint32_t every_ = 0;
  std::uint32_t newest_checkpoint_ = 0;
  unsigned saved_ = 0;
  std::optional<scheduler_process> scheduler_;
  process* launcher_ = nullptr;
  actor* launcher_thread_ = nullptr;
  std::optional<question> to_scheduler_;
  std::optional<strays> strays_;
  std::vector<std::unique_ptr<server_process>> servers_;
  std::map<std::uint64_t, server_process*> by_incarnation_;
  std::vector<std::unique_ptr<worker_process>> workers_;
  std::vector<process*> worker_places_;
  std::set<std::uint32_t> undetected_;  // slots whose loss the scheduler has not detected yet
  std::set<std::uint32_t> broken_;      // slots that are being disturbed
  std::set<std::size_t> disturbed_workers_;
  bool eject_ = false;                    // the other workers continue without one that dies
  std::set<std::uint32_t> lost_workers_;  // ranks
  std::set<std::string> silent_deaths_;   // processes whose death is not reported
  std::set<std::uint32_t> joining_;
  std::optional<std::uint32_t> entering_, leaving_;  // slots
  unsigned moves_ = 0;                               // servers that have joined or left
  unsigned rebalanced_ = 0;                          // times that partitions have moved
  std::uint32_t up_ = 0;
  std::uint32_t spare_ = 0;  // losses that can be survived
  bool running_ = false;
  bool replicas_made_ = true;
  bool faults_end_ = false;
  bool paused_ = false;
  bool all_stop_ = false;  // all processes are about to be suspended
  std::string aborted_;
  int last_pid_ = 0;
  unsigned losses_ = 0;
};

std::optional<storage::chosen_checkpoint> newest_on(const test::crash_disk& disk) {
  try {
    return storage::choose_checkpoint(disk, checkpoint_folder);
  } catch (const error&) {  // there is no valid one
    return std::nullopt;
  }
}

}  // namespace

job_result run_job(const job_options& options) {
  test::crash_disk disk;
  disk.make_folder(checkpoint_folder);
  if (options.broken == mutation::no_sync) disk.forget_to_sync();
  auto first = std::make_unique<job>(options, disk, beginning());
  try {
    return first->run();
  } catch (const test::crash_disk::power_loss&) {
  }
  auto before = first->result();
  const auto told = first->newest_checkpoint();
  auto snapshots = first->known().snapshots();
  first.reset();
  disk.restart(options.seed);

  const auto from = newest_on(disk);
  const auto clock = from ? from->manifest.clock : 0;
  const auto at_clock = [](std::uint32_t c) { return "the checkpoint at clock " + std::to_string(c); };
  if (clock < told) wrong(at_clock(told) + " is gone; what is left is of clock " + std::to_string(clock));
  if (!from) return before;
  if (!snapshots.contains(clock)) wrong(at_clock(clock) + " is there, where not all had stopped");
  storage::set_aside_after(disk, checkpoint_folder, clock);
  auto again = options;
  again.seed = ~options.seed;
  job second(again, disk, {from->folder, clock, from->manifest.workers, std::move(snapshots[clock])});
  const auto after = second.run();
  return {before.hash * 31 + after.hash,          before.events + after.events, before.answers + after.answers,
          before.losses + after.losses,           before.moves + after.moves,   before.rebalanced + after.rebalanced,
          before.checkpoints + after.checkpoints, before.time + after.time};
}

}  // namespace paracel::sim
