// SPDX-License-Identifier: BSD-3-Clause
#include "server/replication/replication_chain.hpp"

#include <algorithm>
#include <string>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>
#include <paracel/free_memory.hpp>

#include "core/check.hpp"
#include "server/replication/replication_entries.hpp"
#include "server/request/verb_rules.hpp"
#include "server/store/partition_records.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

namespace {

/// Requests of clients depend on the epoch; these do not.
bool is_of_any_epoch(place at, verb v) noexcept {
  const auto* rule = rule_of(at, v);
  return rule != nullptr && rule->when != epoch_rule::current;
}

/// Requests on all partitions, which wait until the replicas of these are complete.
bool looks_everywhere(verb v) noexcept { return net::traits_of(v).scope != net::verb_scope::named; }

}  // namespace

std::vector<server_identity> identities_in(const membership& members) {
  std::vector<server_identity> all;
  for (const auto& s : members.servers)
    if (takes_part(s.state) || s.state == server_state::left) all.push_back({s.slot, s.incarnation});
  return all;
}

replica_view::replica_view(membership m, std::uint32_t slot) : members(std::move(m)), router(members) {
  const auto at =
      std::find_if(members.servers.begin(), members.servers.end(), [&](const auto& s) { return s.slot == slot; });
  if (at == members.servers.end()) {
    throw error("slot " + std::to_string(slot) + " is not among the servers of epoch " + std::to_string(members.epoch));
  }
  self = static_cast<std::uint32_t>(at - members.servers.begin());
  owned.epoch = members.epoch;
  owned.servers = identities_in(members);
  for (std::uint32_t p = 0; p < partition_count; ++p) {
    owned.mine[p] = router.locate_partition(static_cast<std::uint16_t>(p)).server == self;
  }
}

replication_chain::replication_chain(const replication_chain_options& options, server_budgets& budgets,
                                     replicated_store& of, net::port& port, serve_function serve)
    : options_(options),
      budgets_(budgets),
      store_(of),
      port_(port),
      at_once_(port),
      serve_(std::move(serve)),
      held_(&budgets.replies),
      streams_(&budgets.streams) {
  const auto count = (partition_count + options_.threads - 1) / options_.threads;
  index_.resize(count);
  route_of_.resize(count);
  routes_.emplace_back();
}

// ---- epochs ---------------------------------------------------------------------------------------------------------

void replication_chain::follow(std::shared_ptr<const replica_view> view) {
  if (view_ != nullptr && view->members.epoch <= epoch_) return;
  const auto before = std::exchange(view_, std::move(view));
  const bool unanswered = asked_ != 0;
  epoch_ = view_->members.epoch;
  // Clients without a reply retry, by the new membership; what was applied is remembered.
  const auto json = view_->members.to_json();
  held_.refuse(status::stale_epoch, epoch_, net::bytes_of(json),
               [&](const net::peer& to, const net::outgoing& m) { port_.reply(to, m); });
  store_.refuse_waiting(at_once_, status::stale_epoch, json);
  for (auto& [number, f] : forwarded_) f.done.fail(status::stale_epoch, json);
  forwarded_.clear();
  pending_.clear();
  questions_.clear();
  pieces_.clear();
  asked_ = 0;
  give_up_links();
  store_.keep_replicas();
  store_.begin_epoch(epoch_);
  begin_epoch();
  if (unanswered || needs_handover(before.get())) request_handover();
  check_synced();
  retry_parked();
}

void replication_chain::run_unreplicated(std::uint32_t epoch) {
  epoch_ = epoch;
  retry_parked();
}

void replication_chain::begin_epoch() {
  const auto& servers = view_->members.servers;
  routes_.assign(1, {});
  std::map<route, std::uint32_t> numbers;
  incomplete_.reset();
  installs_.clear();
  sweeping_bytes_ = 0;
  std::bitset<partition_count> gone;
  bundles questions;
  for (std::uint32_t p = options_.index; p < partition_count; p += options_.threads) {
    const auto partition = static_cast<std::uint16_t>(p);
    const auto place = p / options_.threads;
    const auto chain = view_->router.chain(partition);
    route_of_[place] = 0;
    if (std::find(chain.begin(), chain.end(), view_->self) == chain.end()) {
      if (index_[place] != 0 || partial_.contains(partition)) gone.set(p);
      index_[place] = 0;
      partial_.erase(partition);
      continue;
    }
    if (chain.front() != view_->self) continue;
    if (const auto begun = partial_.find(partition); begun != partial_.end()) {
      if (!begun->second.is_aside)
        throw error("partition " + std::to_string(p) + " was lost while it was being copied here");
      partial_.erase(begun);  // what is here is a complete older version, and nothing newer was answered
    }
    if (chain.size() == 1) continue;
    route rest;
    for (const auto s : chain.subspan(1)) rest.push_back(hop_to(servers[s], partition));
    const auto [at, fresh] = numbers.try_emplace(rest, static_cast<std::uint32_t>(routes_.size()));
    if (fresh) routes_.push_back(rest);
    route_of_[place] = at->second;
    incomplete_.set(p);
    ask_about(questions[at->second], partition);
  }
  if (gone.any()) store_.drop_partitions(gone);
  store_.watch(&incomplete_);
  for (auto& [number, b] : questions) dispatch(number, b, 0, 0);
}

/// Is the replica at our index?
void replication_chain::ask_about(bundle& b, std::uint16_t partition) const {
  const auto index = index_[partition / options_.threads];
  append(b.entries, {.partition = partition, .what = entry_kind::question, .previous = index, .index = index});
  b.probes.push_back(partition);
}

/// Whether a live server served one of our partitions before: then it is asked whether it has stopped.
bool replication_chain::needs_handover(const replica_view* before) const {
  if (before == nullptr) return view_->members.servers[view_->self].state == server_state::up && epoch_ > 1;
  for (std::uint32_t p = options_.index; p < partition_count; p += options_.threads) {
    if (!view_->owned.mine[p] || before->owned.mine[p]) continue;
    const auto& was = before->members.servers[before->router.locate_partition(static_cast<std::uint16_t>(p)).server];
    for (const auto& s : view_->members.servers) {
      const bool lives = takes_part(s.state) || s.state == server_state::left;
      if (lives && s.slot == was.slot && s.incarnation == was.incarnation) return true;
    }
  }
  return false;
}

void replication_chain::request_handover() {
  const auto ask = [this](const hop& to) {
    questions_.emplace(transmit(to, verb::handover, {}), asked{to, now_});
    ++asked_;
  };
  for (const auto& s : view_->members.servers) {
    if (s.slot == view_->members.servers[view_->self].slot) continue;
    if (!may_head(s.state) && s.state != server_state::left) continue;
    if (options_.at == place::clock) {
      ask(hop_to(s, clock_partition));
      continue;
    }
    for (std::uint32_t i = 0; i < s.threads; ++i) {
      if (s.threads == options_.threads && i != options_.index) continue;  // has none of our partitions
      ask({s.slot, i});
    }
  }
}

/// The thread of that server that has our partition, or would have it.
replication_chain::hop replication_chain::hop_to(const server_entry& s, std::uint16_t partition) const noexcept {
  return {s.slot, options_.at == place::clock ? clock_thread : shard_of(partition, s.threads)};
}

void replication_chain::check_synced() {
  if (synced_ == epoch_ || asked_ != 0 || !is_whole()) return;
  PARACEL_ASSERT(incomplete_.none());
  synced_ = epoch_;
  store_.watch(nullptr);
  retry_parked();
}

// ---- requests -------------------------------------------------------------------------------------------------------

void replication_chain::send(const net::peer& to, const net::outgoing& message) { held_.hold(to, message); }

void replication_chain::refuse_stale(completion& done) { refuse(done, status::stale_epoch, view_->members.to_json()); }

void replication_chain::park(const net::request_view& request, shared_buffer&& tail, completion&& done) {
  held_bytes held;
  if (!held.take(budgets_.parked, request.body.size() + tail.size() + sizeof(parked))) {
    return refuse_for_lack_of_room(request.header, done, "too much waits here for a membership");
  }
  parked_.push_back(
      {request.header, {request.body.begin(), request.body.end()}, std::move(tail), std::move(done), std::move(held)});
}

/// Refuses a request for which there is no room. One of a stream will be resent, with all that follow, in order.
void replication_chain::refuse_for_lack_of_room(const net::request_header& h, completion& done, std::string_view why) {
  const bool comes_again = (h.flags & net::flag_stream) != 0;
  if (comes_again) streams_.end(h);
  refuse(done, comes_again ? status::connection_reset : status::internal, comes_again ? std::string_view() : why);
}

/// Answers immediately, whatever waits.
void replication_chain::confirm(completion& done) {
  done.leave_through(at_once_);
  done.ok();
}

/// Likewise.
void replication_chain::refuse(completion& done, status why, std::string_view text) {
  done.leave_through(at_once_);
  done.fail(why, text);
}

/// Parked requests are retried, in order of arrival.
void replication_chain::retry_parked() {
  for (auto& p : std::exchange(parked_, {})) {
    p.held = {};  // it may be parked again
    admit({p.header, p.body}, std::move(p.tail), std::move(p.done));
  }
  flush();  // before the replies are sealed, and before a whole partition is written that would already contain it
}

void replication_chain::handle(const net::request_view& request, shared_buffer tail, completion done) {
  const auto& h = request.header;
  if (!accepts(h, done.peer())) return refuse(done, status::connection_reset, {});
  // Whether this thread is alive does not depend on its replicas.
  if (h.what == verb::ping && (h.count == net::ping_alive || options_.at == place::clock)) return confirm(done);
  // An unresponsive replica must not make its head hold back replies to all other clients.
  const bool of_chains = h.what == verb::replicate || h.what == verb::handover;
  const bool from_server = of_chains || is_of_any_epoch(options_.at, h.what);
  if (!from_server && budgets_.replies.is_over()) {
    budgets_.replies.refuse();
    return refuse_for_lack_of_room(h, done, "too many replies wait here for the replicas");
  }
  admit(request, std::move(tail), std::move(done));
}

/// Refuses what is parked of the stream that this request restarts.
void replication_chain::forget_waiting(const net::request_header& first) {
  store_.refuse_client(at_once_, first.client, status::connection_reset);
  pieces_.erase({first.client, first.rank});
  std::erase_if(parked_, [&](parked& p) {
    if (!sender_connections::are_of_one(p.header, first)) return false;
    refuse(p.done, status::connection_reset, {});
    return true;
  });
}

void replication_chain::admit(const net::request_view& request, shared_buffer tail, completion done) {
  const auto& h = request.header;
  done.set_epoch(epoch_);
  // A request of a later epoch waits: its reply could be held, and then be refused with a membership that its sender
  // already has.
  const auto* rule = rule_of(options_.at, h.what);
  if (is_of_any_epoch(options_.at, h.what) && h.epoch <= epoch_) {
    const auto what = h.what;
    serve_(request, std::move(tail), std::move(done));
    if (what == verb::checkpoint) find_restored();
    return;
  }
  if (h.epoch > epoch_) return park(request, std::move(tail), std::move(done));
  const bool of_chains = h.what == verb::replicate || h.what == verb::handover;
  if (view_ == nullptr && of_chains) return refuse(done, status::bad_request, no_peer);
  if (view_ == nullptr) return serve_(request, std::move(tail), std::move(done));
  if (h.epoch < epoch_) return refuse_stale(done);
  if (rule != nullptr && rule->who == asker::peer && !is_of_peer(h)) return refuse(done, status::bad_request, no_peer);
  if (h.what == verb::replicate) return replicate(request, std::move(done));
  if (h.what == verb::handover) return confirm(done);
  // Requests of a client stay in order: what follows a parked one is parked too.
  const bool everywhere = options_.at == place::shard && looks_everywhere(h.what);
  const bool waits =
      asked_ != 0 || (everywhere && synced_ != epoch_) ||
      std::any_of(parked_.begin(), parked_.end(), [&](const auto& p) { return p.header.client == h.client; });
  if (waits) return park(request, std::move(tail), std::move(done));
  serve_(request, std::move(tail), std::move(done));
}

/// Partitions restored from a checkpoint have reached every replica without an index: unlike empty ones they get one
/// now. Replicas asked while they had none are asked again: the head may have been the last to read its part.
void replication_chain::find_restored() {
  if (view_ == nullptr) return;
  bundles questions;
  for (std::uint32_t p = options_.index; p < partition_count; p += options_.threads) {
    auto& at = index_[p / options_.threads];
    if (at != 0) continue;
    state_.clear();
    store_.encode_partition(static_cast<std::uint16_t>(p), state_);
    if (state_.empty()) continue;
    at = 1;
    const auto number = route_of_[p / options_.threads];
    if (number == 0) continue;
    incomplete_.set(p);
    ask_about(questions[number], static_cast<std::uint16_t>(p));
  }
  if (questions.empty()) return;
  synced_ = 0;
  store_.watch(&incomplete_);
  for (auto& [number, b] : questions) dispatch(number, b, 0, 0);
}

void replication_chain::close() {
  for (auto& p : parked_) refuse(p.done, status::job_ended, "the server is stopping");
  for (auto& [number, f] : forwarded_) f.done.fail(status::job_ended, "the server is stopping");
  parked_.clear();
  forwarded_.clear();
  held_.release(~std::uint64_t{0}, [&](const net::peer&, const net::outgoing&) {});
}

// ---- the head -------------------------------------------------------------------------------------------------------

void replication_chain::end_batch(const net::clock_source& time, time_point lease_end) {
  now_ = time.now();
  flush();
  sweep();
  check_links();
  held_.seal(last_sent_);
  if (!held_.empty() && time.now() < lease_end) {
    held_.release(next_open(), [&](const net::peer& to, const net::outgoing& m) { port_.reply(to, m); });
  }
}

/// Sends what the requests since the last call have changed.
void replication_chain::flush() {
  if (view_ == nullptr || !store_.has_changes()) return;
  bundles out;
  store_.take_changes([&](std::uint16_t partition, std::span<const std::byte> records) {
    const auto place = partition / options_.threads;
    auto& at = index_[place];
    const auto previous = at;
    if (!records.empty()) at = std::max(at + 1, std::uint64_t{epoch_} << 32U);
    PARACEL_ASSERT(partition % options_.threads == options_.index);
    if (route_of_[place] == 0) return;
    if (incomplete_[partition]) {
      install(partition, out, 0, 0);
    } else if (!records.empty()) {
      append(out[route_of_[place]].entries,
             {.partition = partition, .previous = previous, .index = at, .records = records});
    }
    if (auto& b = out[route_of_[place]]; b.entries.size() > options_.message_bytes) dispatch(route_of_[place], b, 0, 0);
  });
  for (auto& [number, b] : out) dispatch(number, b, 0, 0);
}

void replication_chain::install(std::uint16_t partition, bundles& into, std::uint64_t parent, std::size_t sweep) {
  const auto place = partition / options_.threads;
  PARACEL_CHECK(route_of_[place] != 0);
  state_.clear();
  store_.encode_partition(partition, state_);
  incomplete_.reset(partition);
  // Split at record ends, so that no server has to hold more than a message.
  std::vector<std::span<const std::byte>> parts;
  const std::span<const std::byte> all(state_);
  std::size_t begin = 0;
  records cursor(all);
  for (record r; cursor.next(r);) {
    const auto end = all.size() - cursor.rest().size();
    if (end - begin < options_.message_bytes && end != all.size()) continue;
    parts.push_back(all.subspan(begin, end - begin));
    begin = end;
  }
  if (parts.empty()) parts.emplace_back();
  PARACEL_ASSERT(begin == all.size());
  auto& b = into[route_of_[place]];
  replication_entry e{.partition = partition, .what = entry_kind::whole_state, .index = index_[place]};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    e.after = static_cast<std::uint32_t>(parts.size() - 1 - i);
    e.records = parts[i];
    append(b.entries, e);
    e.what = entry_kind::more_state;
    b.makes_whole = true;
    if (b.entries.size() > options_.message_bytes) dispatch(route_of_[place], b, parent, sweep);
  }
  free_if_larger(state_, most_kept_state_bytes);
}

/// Sends whole partitions to replicas that lack them, only so many at once that other requests are not delayed.
void replication_chain::sweep() {
  if (installs_.empty()) return;
  bundles out;
  std::size_t bytes = 0;
  while (!installs_.empty() && sweeping_bytes_ + bytes < options_.sweep_bytes) {
    const auto partition = installs_.front();
    installs_.pop_front();
    if (!incomplete_[partition]) continue;
    install(partition, out, 0, 1);
    bytes = 0;
    for (const auto& [number, b] : out) bytes += b.entries.size();
  }
  for (auto& [number, b] : out) dispatch(number, b, 0, 1);
  check_synced();
}

std::vector<std::byte> replication_chain::replicate_body(const route& to, std::span<const std::byte> entries) {
  std::vector<std::byte> body;
  body.reserve(sizeof(std::uint32_t) + to.size() * sizeof(hop) + entries.size());
  put_bytes(body, static_cast<std::uint32_t>(to.size()));
  put_bytes(body, to.data(), to.size());
  put_bytes(body, entries.data(), entries.size());
  return body;
}

/// Sends a bundle and empties it. Later replies wait for it.
std::uint64_t replication_chain::dispatch(std::uint32_t number, bundle& b, std::uint64_t parent, std::size_t sweep) {
  if (b.entries.empty()) return 0;
  const auto& to = routes_[number];
  const auto n = transmit(to.front(), verb::replicate, replicate_body(to, b.entries));
  PARACEL_CHECK(n > last_sent_);  // replies wait for it
  auto& s = pending_[n];
  s.parent = parent;
  s.route = number;
  s.at = now_;
  s.probes = std::move(b.probes);
  if (!s.probes.empty() || b.makes_whole) last_install_ = n;
  if (sweep != 0) {
    s.bytes = b.entries.size();
    sweeping_bytes_ += s.bytes;
  }
  if (const auto p = pending_.find(parent); parent != 0 && p != pending_.end()) ++p->second.open;
  b.entries.clear();
  b.probes.clear();
  b.makes_whole = false;
  last_sent_ = n;
  return n;
}

void replication_chain::answered(std::uint64_t number, const std::vector<std::uint16_t>& lacking) {
  auto& s = pending_.at(number);
  bundles out;
  if (s.again) {
    for (const auto p : s.probes) {
      const bool lacks = std::binary_search(lacking.begin(), lacking.end(), p);
      if (!incomplete_[p]) {
        if (lacks) install(p, out, number, 0);
      } else if (lacks) {
        installs_.push_back(p);
      } else {
        incomplete_.reset(p);
      }
    }
  } else if (!s.probes.empty()) {
    for (const auto p : s.probes) {
      if (std::binary_search(lacking.begin(), lacking.end(), p)) installs_.push_back(p);
      else incomplete_.reset(p);
    }
  } else {
    for (const auto p : lacking) {
      if (p < partition_count && p % options_.threads == options_.index && route_of_[p / options_.threads] != 0) {
        install(p, out, number, 0);
      }
    }
  }
  for (auto& [route_number, b] : out) dispatch(route_number, b, number, 0);
  sweeping_bytes_ -= std::exchange(s.bytes, 0);
  close_one(number);
  check_synced();
}

/// A message has one outstanding reply fewer; the last one closes it, and counts as a reply to the message that it
/// stands for.
void replication_chain::close_one(std::uint64_t number) {
  for (auto at = pending_.find(number); at != pending_.end() && --at->second.open == 0; at = pending_.find(number)) {
    number = at->second.parent;
    PARACEL_CHECK(number < at->first);
    pending_.erase(at);
  }
}

void replication_chain::take_reply(const net::incoming& in) {
  net::reply_view reply;
  if (net::decode(in.frame, in.tail.size(), reply) != nullptr) return;
  const auto number = reply.header.sequence;
  const auto from = std::ranges::find_if(links_, [&](const auto& l) { return l.second.channel.owns(in.channel); });
  if (from == links_.end()) return;  // over a connection that was given up: asked again since
  // Another process has its address. Of the server itself we only know that it is silent.
  if (reply.header.server != from->second.incarnation) return;
  if (take_refusal(from->first, from->second, reply.header, in.channel)) return;
  from->second.heard = now_;
  const bool is_ahead = reply.header.result == status::stale_epoch || reply.header.result == status::job_ended;
  if ((reply.header.result == status::ok || is_ahead) && questions_.erase(number) != 0) {
    // Refused: the other server is ahead of us, or exiting, so it does not serve by an older membership either.
    if (--asked_ == 0) {
      check_synced();
      retry_parked();
    }
    return;
  }
  // A server of another epoch, or one that exits, will be known from the next membership. Any other refusal would never
  // be resolved.
  if (is_ahead) return;
  if (reply.header.result == status::expired) return ask_after(number);
  if (reply.header.result != status::ok) {
    if (!pending_.contains(number) && !forwarded_.contains(number) && !questions_.contains(number)) return;
    throw error("a replica rejected a message: " + std::string(net::text_of(reply.body)));
  }
  std::vector<std::uint16_t> lacking;
  lacking.reserve(reply.body.size() / sizeof(std::uint16_t));
  for (std::uint16_t p = 0; take_fields(reply.body, p);) lacking.push_back(p);
  if (const auto f = forwarded_.find(number); f != forwarded_.end()) {
    auto& all = f->second.lacking;
    all.insert(all.end(), lacking.begin(), lacking.end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    answer(f->second.done, all);
    forwarded_.erase(f);
    return;
  }
  std::sort(lacking.begin(), lacking.end());
  if (pending_.contains(number)) answered(number, lacking);
}

}  // namespace paracel::srv
