// SPDX-License-Identifier: BSD-3-Clause
#include "server/node/server.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/check.hpp"
#include "core/hex.hpp"
#include "core/identity.hpp"
#include "server/node/resident_memory.hpp"

namespace paracel::srv {
namespace {

server_options checked(server_options o) {
  if (o.threads == 0 || o.threads > membership::most_threads) {
    throw usage_error("threads must be 1 to " + std::to_string(membership::most_threads) + ", not " +
                      std::to_string(o.threads));
  }
  if (o.workers > membership::most_workers) {
    throw usage_error("workers must be at most " + std::to_string(membership::most_workers) + ", not " +
                      std::to_string(o.workers));
  }
  constexpr std::size_t least_message = std::size_t{1} << 20;
  constexpr std::size_t beside_a_value = net::request_header_bytes + net::max_key_bytes;
  if (o.max_message_bytes < least_message) {
    throw usage_error("max_message_bytes must be at least " + std::to_string(least_message));
  }
  // Lengths in the header are 32 bits; a value comes with a header and a key, and must also be sent back.
  o.max_message_bytes = std::min<std::size_t>(o.max_message_bytes, std::numeric_limits<std::uint32_t>::max());
  o.max_value_bytes = std::min(o.max_value_bytes, o.max_message_bytes - beside_a_value);
  o.sandbox.max_value_bytes = o.max_value_bytes;
  if (o.incarnation == 0) o.incarnation = random_id();
  return o;
}

/// The memory of the machine: a partition that does not fit cannot be replicated here.
std::size_t machine_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long bytes = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || bytes <= 0) return std::size_t{1} << 40U;
  return static_cast<std::size_t>(pages) * static_cast<std::size_t>(bytes);
}

}  // namespace

server::server(server_options options)
    : options_(checked(std::move(options))),
      budgets_(options_.max_parked_bytes, machine_bytes(),
               std::max(options_.max_unread_bytes, slow_consumer_guard::least_limit), options_.threads),
      plugins_(options_.plugin_folders, options_.sandbox),
      clock_(options_.workers),
      chains_(options_.threads + 1),
      workers_(options_.workers),
      unread_(options_.max_unread_bytes) {
  shard_settings s;
  s.slot = options_.slot;
  s.threads = options_.threads;
  s.job = options_.job;
  s.max_value_bytes = options_.max_value_bytes;
  s.max_set_bytes = options_.max_set_bytes;
  s.max_message_bytes = options_.max_message_bytes;
  s.times = options_.times;
  if (s.times) clock_.keep_times();
  if (options_.max_memory_bytes != 0) s.max_memory_bytes = options_.max_memory_bytes / options_.threads;
  shard_owned_ = std::make_unique<std::atomic<const ownership*>[]>(options_.threads);
  for (s.index = 0; s.index < options_.threads; ++s.index) {
    shards_.push_back(std::make_unique<shard>(s, plugins_, shard_owned_[s.index]));
    checkpoints_.emplace_back(options_, file_system_, plugins_);
  }
}

replication_chain& server::begin_replication(unsigned thread, net::port& port, replication_chain::serve_function serve,
                                             std::function<void(const std::string&)> log) {
  replication_chain_options o{.job = options_.job,
                              .incarnation = options_.incarnation,
                              .slot = options_.slot,
                              .index = thread,
                              .threads = threads(),
                              .most_body_bytes = options_.max_message_bytes / 2,
                              .resend_after = options_.resend_after,
                              .log = std::move(log)};
  replicated_store* of = &clock_;
  if (thread < threads()) {
    of = shards_[thread].get();
  } else {
    o.at = place::clock;
    o.index = clock_partition;
    o.threads = partition_count;
  }
  PARACEL_CHECK(thread <= threads() && chains_[thread] == nullptr);
  chains_[thread] = std::make_unique<replication_chain>(o, budgets_, *of, port, std::move(serve));
  return *chains_[thread];
}

void server::handle(unsigned shard, const net::request_view& request, shared_buffer tail, completion done) {
  if (request.header.what == net::verb::checkpoint) [[unlikely]] {
    const auto* owned = owned_.load(std::memory_order_acquire);
    return checkpoints_[shard].handle(*shards_[shard], shard, owned, request, std::move(done));
  }
  shards_[shard]->handle(request, std::move(tail), std::move(done));
}

void server::use_disk(storage::file_system& instead) noexcept {
  for (auto& c : checkpoints_) c.use_disk(instead);
}

void server::closing(unsigned shard) { shards_[shard]->closing(); }

void server::handle_clock(const net::request_view& request, completion done, clock_service::time_point now,
                          std::optional<bool> keeps) {
  if (options_.job != 0 && request.header.job != options_.job) {
    return done.fail(net::status::wrong_job, "this server belongs to another job");
  }
  if (request.header.what != net::verb::ping && !keeps.value_or(keeps_clock_.load(std::memory_order_relaxed))) {
    return done.fail(net::status::wrong_owner, "s" + std::to_string(options_.slot) + " does not keep the clock");
  }
  clock_.handle(request, std::move(done), now);
}

std::chrono::milliseconds server::tend_clock(clock_service::time_point now) {
  using std::chrono::milliseconds;
  const auto workers = workers_.load(std::memory_order_acquire);
  // Stored before the number of workers: ticks that have waited for the start must find it.
  clock_.checkpoint_every(checkpoint_every_.load(std::memory_order_relaxed));
  if (!clock_.begun()) {
    // A client may already wait for the start; it takes only moments.
    if (workers == 0) return clock_.parked() == 0 ? milliseconds(100) : milliseconds(1);
    clock_.begin(workers, now, first_clock_.load(std::memory_order_relaxed));
  }
  clock_.expire(now);
  return milliseconds(100);
}

std::uint32_t server::epoch() const noexcept {
  const auto* owned = owned_.load(std::memory_order_acquire);
  return owned == nullptr ? 0 : owned->epoch;
}

bool server::is_of_peer(const net::request_header& h) const noexcept {
  const auto between = link::of(h);
  if (between.to != options_.incarnation) return false;
  const server_identity sender{between.from_slot, between.from};
  if (sender == server_identity{options_.slot, options_.incarnation}) return true;
  const auto* owned = owned_.load(std::memory_order_acquire);
  return owned != nullptr && owned->knows(sender);
}

void server::set_membership(const membership& members) {
  const auto self = std::find_if(members.servers.begin(), members.servers.end(),
                                 [&](const auto& s) { return s.slot == options_.slot; });
  if (self == members.servers.end()) {
    throw error("slot " + std::to_string(options_.slot) + " is not among the servers of epoch " +
                std::to_string(members.epoch));
  }
  const auto index = static_cast<std::uint32_t>(self - members.servers.begin());
  const key_router router(members);
  auto fresh = std::make_unique<ownership>();
  fresh->epoch = members.epoch;
  fresh->servers = identities_in(members);
  for (std::uint32_t p = 0; p < partition_count; ++p) {
    const auto chain = router.chain(static_cast<std::uint16_t>(p));
    fresh->mine[p] = chain.front() == index;
    fresh->replicas[p] = std::find(chain.begin(), chain.end(), index) != chain.end();
  }
  // Before requests arrive that belong to these partitions.
  for (const auto& f : members.refused) plugins_.forbid(f.id, f.why);
  const std::lock_guard lock(memberships_mutex_);
  if (!views_.empty() && members.epoch <= views_.back()->members.epoch) return;  // it had arrived on another path
  memberships_.push_back(std::move(fresh));
  const bool has_replicas =
      members.may_change() || !views_.empty() ||
      std::ranges::any_of(members.servers, [](const auto& s) { return s.state != server_state::up; });
  if (has_replicas) {
    views_.push_back(std::make_shared<const replica_view>(members, options_.slot));
    // A thread that still uses an older one holds a reference to it.
    std::erase_if(views_,
                  [newest = views_.back().get()](const auto& v) { return v.get() != newest && v.use_count() == 1; });
    replicas_epoch_.store(members.epoch, std::memory_order_release);
  } else {
    for (unsigned i = 0; i < threads(); ++i)
      shard_owned_[i].store(memberships_.back().get(), std::memory_order_release);
  }
  // A thread that sees the epoch also sees whether it has replicas.
  owned_.store(memberships_.back().get(), std::memory_order_release);
  first_clock_.store(members.checkpoints.clock, std::memory_order_relaxed);
  checkpoint_every_.store(members.checkpoints.every, std::memory_order_relaxed);
  workers_.store(members.workers, std::memory_order_release);
  has_replicas_.store(members.may_change(), std::memory_order_relaxed);
  keeps_clock_.store(router.clock_server() == index, std::memory_order_relaxed);
}

std::shared_ptr<const replica_view> server::replicas() const {
  const std::lock_guard lock(memberships_mutex_);
  return views_.empty() ? nullptr : views_.back();
}

std::uint64_t server::requests_served() const noexcept {
  std::uint64_t n = 0;
  for (const auto& s : shards_) {
    const auto& requests = s->counters().requests;
    for (std::size_t v = 0; v < requests.size(); ++v) n += requests[v].load(std::memory_order_relaxed);
  }
  return n;
}

std::map<std::string, nan_watch::found> server::stored_nans() const {
  std::map<std::string, nan_watch::found> all;
  for (const auto& s : shards_) {
    for (auto& [function, f] : s->nans().all()) {
      auto& of_function = all[function];
      of_function.updates += f.updates;
      if (of_function.first.empty()) of_function.first = std::move(f.first);
    }
  }
  return all;
}

std::size_t server::memory_bytes() const noexcept {
  std::size_t n = 0;
  for (const auto& s : shards_) n += s->counters().memory_bytes.load(std::memory_order_relaxed);
  return n;
}

/// f(name, budget) for each; a name is repeated for each shard that has such a budget.
template <class F>
void server::each_budget(const F& f) const {
  budgets_.each(f);
  f("clock_waits", clock_.budget());
  for (const auto& s : shards_) s->each_budget(f);
}

/// Of all shards, the most frequent first.
std::vector<hot_keys::entry> server::hottest(std::size_t most) const {
  std::vector<hot_keys::entry> hot;
  for (const auto& s : shards_) std::ranges::move(s->hot().list(), std::back_inserter(hot));
  std::ranges::sort(hot, std::greater<>{}, &hot_keys::entry::requests);
  hot.resize(std::min(hot.size(), most));
  return hot;
}

/// Of the partitions that are served here, those with the most keys since the server began. Counters of 32 bits: one
/// that was asked for 2^37 keys begins again.
std::vector<server::asked_partition> server::busiest(std::size_t most) const {
  std::vector<asked_partition> all;
  const auto* owned = owned_.load(std::memory_order_acquire);
  for (std::uint32_t p = 0; p < partition_count; ++p) {
    const auto number = static_cast<std::uint16_t>(p);
    const auto c = counted_at(number);
    if (c.times != 0 && (owned == nullptr || owned->mine[p]))
      all.push_back({number, std::uint64_t{c.times} * partition_load::one_of, c.bytes});
  }
  const auto kept = std::min(all.size(), most);
  std::ranges::partial_sort(all, all.begin() + static_cast<std::ptrdiff_t>(kept), std::greater<>{},
                            &asked_partition::keys);
  all.resize(kept);
  return all;
}

server_load server::load(net::clock_source::time_point now) {
  const auto* owned = owned_.load(std::memory_order_acquire);
  const std::lock_guard lock(loads_mutex_);
  if (owned == nullptr) return {};
  auto load = loads_.look(now, owned->epoch, threads(), owned->mine, [this](std::uint16_t p) { return counted_at(p); });
  if (options_.max_memory_bytes != 0) {
    const std::uint64_t limit = options_.max_memory_bytes / options_.threads;
    load.room = limit;
    for (const auto& s : shards_) {
      const std::uint64_t used = s->counters().memory_bytes.load(std::memory_order_relaxed);
      load.room = std::min(*load.room, limit - std::min(limit, used));
    }
  }
  return load;
}

std::string server::stats_json() const {
  using nlohmann::json;
  const auto value = [](const shard_counters::counter& c) { return c.load(std::memory_order_relaxed); };
  json all = {
      {"slot", options_.slot},
      {"incarnation", to_hex(options_.incarnation)},
      {"job", to_hex(options_.job)},
      {"epoch", epoch()},
      {"pid", getpid()},
      {"keys", 0},
      {"memory_bytes", memory_bytes()},
      {"resident_bytes", resident_bytes()},
      {"max_memory_bytes", options_.max_memory_bytes},
      {"connections_dropped", connections_dropped()},
      {"unread", {{"limit_bytes", unread_.limit()}, {"refused", unread_.refused()}, {"dropped", unread_.dropped()}}}};
  struct holding {
    std::size_t bytes = 0;
    std::size_t limit = 0;
    std::uint64_t refused = 0;
  };
  std::map<std::string, holding> holdings;
  each_budget([&](const char* name, const byte_budget& b) {
    auto& h = holdings[name];
    h.bytes += b.held();
    h.limit += b.limit();
    h.refused += b.refused();
  });
  for (const auto& [name, h] : holdings) {
    all["held"][name] = {{"bytes", h.bytes}, {"limit_bytes", h.limit}, {"refused", h.refused}};
  }
  if (const auto* sandbox = plugins_.sandbox())
    all["sandbox"] = {{"started", sandbox->started()}, {"lost", sandbox->lost()}};
  for (const auto& [function, f] : stored_nans()) all["nan"][function] = {{"updates", f.updates}, {"first", f.first}};
  constexpr std::size_t most_hot = 16;
  all["hot"] = json::array();
  for (const auto& h : hottest(most_hot)) all["hot"].push_back({{"key", h.key}, {"requests", h.requests}});
  all["partitions"] = json::array();
  for (const auto& p : busiest(most_hot))
    all["partitions"].push_back({{"partition", p.number}, {"keys", p.keys}, {"bytes", p.bytes}});
  std::uint64_t keys = 0;
  for (const auto& s : shards_) {
    const auto& c = s->counters();
    json requests = json::object();
    for (std::size_t v = 0; v < c.requests.size(); ++v) {
      if (const auto n = value(c.requests[v]); n != 0) {
        requests[v == 0 ? "other" : net::name_of(static_cast<net::verb>(v))] = n;
      }
    }
    json one = {{"requests", std::move(requests)}, {"bytes_in", value(c.bytes_in)},
                {"bytes_out", value(c.bytes_out)}, {"failures", value(c.failures)},
                {"keys", value(c.keys)},           {"memory_bytes", value(c.memory_bytes)},
                {"staged", value(c.staged)},       {"rows", value(c.rows)}};
    if (const auto b = s->busy(); b.name != nullptr) one["busy"] = *b.name;
    keys += value(c.keys);
    all["shards"].push_back(std::move(one));
  }
  all["keys"] = keys;
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

nlohmann::json server::usage() const {
  constexpr std::size_t most_shards = 64;
  std::array<std::uint64_t, 4> all{};
  auto shards = nlohmann::json::array();
  for (const auto& s : shards_) {
    const auto& c = s->counters();
    std::array<std::uint64_t, 4> one{0, c.bytes_in.load(std::memory_order_relaxed),
                                     c.bytes_out.load(std::memory_order_relaxed),
                                     c.keys.load(std::memory_order_relaxed)};
    for (const auto& n : c.requests) one[0] += n.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < one.size(); ++i) all[i] += one[i];
    if (shards.size() < most_shards) shards.push_back(one);
  }
  nlohmann::json j{{"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count()},
                   {"requests", all[0]},
                   {"bytes_in", all[1]},
                   {"bytes_out", all[2]},
                   {"keys", all[3]},
                   {"shards", std::move(shards)}};
  constexpr std::size_t most_busy = 8;
  auto& partitions = j["partitions"] = nlohmann::json::array();
  for (const auto& p : busiest(most_busy)) partitions.push_back(nlohmann::json::array({p.number, p.keys, p.bytes}));
  rusage used{};
  if (getrusage(RUSAGE_SELF, &used) == 0) {
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    j["cpu"] = seconds(used.ru_utime) + seconds(used.ru_stime);
  }
  return j;
}

nlohmann::json server::metrics() const {
  using nlohmann::json;
  struct histogram {
    std::array<std::uint64_t, verb_times::buckets> counts{};
    std::uint64_t nanoseconds = 0;
  };
  std::map<net::verb, histogram> verbs;
  const auto merge = [&](const verb_times* times) {
    if (times == nullptr) return;
    times->each([&](net::verb what, const auto& counts, std::uint64_t nanoseconds) {
      auto& h = verbs[what];
      for (std::size_t i = 0; i < counts.size(); ++i) h.counts[i] += counts[i];
      h.nanoseconds += nanoseconds;
    });
  };
  std::array<std::uint64_t, 3> sums{};
  for (const auto& s : shards_) {
    merge(s->times());
    const auto& c = s->counters();
    std::size_t i = 0;
    for (const auto* one : {&c.rows, &c.staged, &c.failures}) sums[i++] += one->load(std::memory_order_relaxed);
  }
  merge(clock_.times());
  json times = json::object();
  for (const auto& [what, h] : verbs) {
    auto& list = times[what == net::verb::none ? "other" : net::name_of(what)] = json::array({h.nanoseconds});
    for (std::size_t i = 0; i < h.counts.size(); ++i)
      if (h.counts[i] != 0) list.push_back(json::array({i, h.counts[i]}));
  }
  constexpr std::size_t most_hot = 8;
  json hot = json::array();
  for (const auto& h : hottest(most_hot)) hot.push_back(json::array({h.key, h.requests}));
  std::uint64_t nans = 0;
  for (const auto& [function, f] : stored_nans()) nans += f.updates;
  const auto* sandbox = plugins_.sandbox();
  return {{"times", std::move(times)},
          {"hot", std::move(hot)},
          {"rows", sums[0]},
          {"staged", sums[1]},
          {"failures", sums[2]},
          {"nan", nans},
          {"dropped", connections_dropped()},
          {"max_memory_bytes", options_.max_memory_bytes},
          {"sandboxes", sandbox != nullptr ? sandbox->started() : 0},
          {"sandboxes_lost", sandbox != nullptr ? sandbox->lost() : 0}};
}

}  // namespace paracel::srv
