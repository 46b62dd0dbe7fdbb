// SPDX-License-Identifier: BSD-3-Clause
#include "test/sim/simulation.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/hash.hpp"
#include "net/protocol.hpp"

namespace paracel::sim {

class sim_port final : public net::port {
 public:
  sim_port(process& of, actor& owner) : of_(of), owner_(owner) {}
  ~sim_port() override { of_.in_.closed(*this); }

  std::string bind(const std::string& address) override {
    of_.in_.bound(address, *this);
    return address;
  }
  int connect(const std::string& address) override {
    auto& in = of_.in_;
    auto c = std::make_unique<connection>();
    c->number = ++in.last_connection_;
    c->from = &of_;
    c->asks = this;
    c->channel = static_cast<int>(channels_.size());
    channels_.push_back(c->number);
    address_of_[c->number] = address;
    if (const auto at = in.places_.find(address); at != in.places_.end()) {
      c->answers = at->second;
      c->to = &at->second->of_;
    }
    in.connections_.emplace(c->number, std::move(c));
    return static_cast<int>(channels_.size()) - 1;
  }
  void disconnect(int channel) override { in(channel).open = false; }

  void send(int channel, const net::outgoing& what) override {
    auto& c = in(channel);
    if (!leaves()) return;
    auto m = make(what);
    sign(m, c.number);
    if (of_.in_.on_request) of_.in_.on_request(of_, c, m.frame);
    if (of_.in_.forge) {
      auto f = of_.in_.forge(m.frame);
      if (!f.answer.empty()) {
        inbox_.push_back({channel, {}, std::move(f.answer), {}});
        of_.in_.wake(owner_, of_.in_.now());
      }
      if (f.swallowed) return;
      if (f.stray) make_stray(m.frame);
    }
    of_.in_.send(c, true, std::move(m));
  }
  void reply(const net::peer& to, const net::outgoing& what) override {
    std::uint64_t number = 0;
    if (to.size != sizeof number) return;
    std::memcpy(&number, to.id.data(), sizeof number);
    const auto at = of_.in_.connections_.find(number);
    if (at == of_.in_.connections_.end() || at->second->broken || !leaves()) return;
    auto m = make(what);
    m.channel = at->second->channel;
    if (of_.in_.on_reply) of_.in_.on_reply(of_, *at->second, m.frame);
    of_.in_.send(*at->second, false, std::move(m));
  }

  bool receive(net::incoming& out, std::chrono::milliseconds timeout) override {
    return receive_batch({&out, 1}, timeout) != 0;
  }
  std::size_t receive_batch(std::span<net::incoming> out, std::chrono::milliseconds timeout) override {
    if (inbox_.empty() && timeout.count() != 0) throw std::logic_error("a simulated thread may not wait");
    current_.clear();
    while (current_.size() < out.size() && !inbox_.empty()) {
      auto m = std::move(inbox_.front());
      inbox_.pop_front();
      if (m.channel >= 0 && !in(m.channel).open) continue;
      auto& to = out[current_.size()];
      to.channel = m.channel;
      to.from = m.from;
      to.tail = std::move(m.tail);
      to.unread_bytes = 0;
      current_.push_back(std::move(m));
      to.frame = current_.back().frame;
    }
    // More may have arrived than fitted.
    if (!inbox_.empty()) of_.in_.wake(owner_, of_.in_.now());
    return current_.size();
  }

 private:
  friend class simulation;
  connection& in(int channel) { return *of_.in_.connections_.at(channels_.at(static_cast<std::size_t>(channel))); }
  bool leaves() {
    if (!of_.alive_ || of_.sends_left_ == 0) return false;
    if (of_.sends_left_ > 0) --of_.sends_left_;
    return true;
  }
  static message make(const net::outgoing& what) {
    message m;
    m.frame.insert(m.frame.end(), what.head.begin(), what.head.end());
    m.frame.insert(m.frame.end(), what.body.begin(), what.body.end());
    m.tail = what.tail;
    return m;
  }

  static void sign(message& m, std::uint64_t connection) {
    std::memcpy(m.from.id.data(), &connection, sizeof connection);
    m.from.size = sizeof connection;
  }
  static void make_stray(std::vector<std::byte>& frame) {
    constexpr std::size_t flags_at = 6;
    std::uint16_t flags = 0;
    std::memcpy(&flags, frame.data() + flags_at, sizeof flags);
    flags = static_cast<std::uint16_t>(flags & ~(net::flag_stream | net::flag_first));
    std::memcpy(frame.data() + flags_at, &flags, sizeof flags);
  }

  process& of_;
  actor& owner_;
  std::vector<std::uint64_t> channels_;
  std::map<std::uint64_t, std::string> address_of_;
  std::deque<message> inbox_;
  std::vector<message> current_;
};

process::process(simulation& in, std::string name, double rate, nanos offset)
    : in_(in), name_(std::move(name)), rate_(rate), offset_(offset), clock_(*this) {}
process::~process() = default;

std::unique_ptr<net::port> process::open() {
  if (current_ == nullptr) throw std::logic_error("a port belongs to an actor");
  return std::make_unique<sim_port>(*this, *current_);
}

actor& process::add(std::string name) {
  actors_.push_back(std::make_unique<actor>());
  auto& a = *actors_.back();
  a.of = this;
  a.name = name_ + "/" + std::move(name);
  return a;
}

net::clock_source::time_point process::clock::now() const {
  const auto local = of_.offset_ + static_cast<nanos>(static_cast<double>(of_.in_.now()) * of_.rate_);
  return time_point(std::chrono::nanoseconds(local));
}

simulation::simulation(std::uint64_t seed) : dice_(seed) {}
simulation::~simulation() = default;

void simulation::log(std::string_view what, std::uint64_t a, std::uint64_t b) {
  const auto mix = [&](std::uint64_t v) { hash_ = (hash_ ^ v) * 0x100000001b3U; };
  mix(static_cast<std::uint64_t>(now_));
  for (const auto c : what) mix(static_cast<unsigned char>(c));
  mix(a);
  mix(b);
  ++events_;
  if (verbose) {
    std::printf("%12.6f %.*s %llu %llu\n", static_cast<double>(now_) / 1e9, static_cast<int>(what.size()), what.data(),
                static_cast<unsigned long long>(a), static_cast<unsigned long long>(b));
  }
}

void simulation::at(nanos when, std::function<void()> f) {
  queue_.push({std::max(when, now_), ++order_, std::move(f)});
}

bool simulation::step() {
  if (queue_.empty()) return false;
  const auto e = queue_.top();
  queue_.pop();
  now_ = e.when;
  e.run();
  return true;
}

void simulation::wake(actor& a, nanos when) {
  if (!a.of->alive_ || when >= a.wake_at) return;
  a.wake_at = when;
  at(when, [this, &a, when] {
    if (a.wake_at == when) run(a);
  });
}

void simulation::run(actor& a) {
  auto& p = *a.of;
  a.wake_at = never;
  if (!p.alive_ || p.stopped_) return;  // resume wakes it
  p.current_ = &a;
  const auto sleep = a.step();
  p.current_ = nullptr;
  if (p.alive_ && p.sends_left_ == 0) {
    on_death(p);
    return;
  }
  if (p.alive_ && sleep != never)
    wake(a, now_ + std::max<nanos>(1, static_cast<nanos>(static_cast<double>(sleep) / p.rate_)));
}

void simulation::kill(process& p) {
  log("kill " + p.name_);
  p.alive_ = false;
  for (auto& [number, c] : connections_) {
    if (c->from == &p) {
      drop_tail(c->out);
      c->back.messages.clear();
      c->open = false;
    }
    if (c->to == &p) {
      drop_tail(c->back);
      c->out.messages.clear();
      c->dead = true;
    }
  }
}

/// Drops a random suffix of what a process had sent.
void simulation::drop_tail(connection::way& w) {
  if (!w.messages.empty()) w.messages.resize(dice_.below(w.messages.size() + 1));
}

void simulation::stop(process& p) {
  log("stop " + p.name_);
  p.stopped_ = true;
}

void simulation::resume(process& p) {
  if (!p.alive_ || !p.stopped_) return;
  log("resume " + p.name_);
  p.stopped_ = false;
  for (auto& a : p.actors_) {
    a->wake_at = never;
    wake(*a, now_ + dice_.between(0, 2_ms));
  }
}

bool simulation::is_cut(const process* a, const process* b) const {
  return !cuts_.empty() && cuts_.contains(std::minmax(a->name_, b->name_));
}

void simulation::cut(process& a, process& b) {
  log("cut " + a.name_ + " " + b.name_);
  cuts_.insert(std::minmax(a.name_, b.name_));
}

void simulation::mend(process& a, process& b) {
  if (cuts_.erase(std::minmax(a.name_, b.name_)) == 0) return;
  log("mend " + a.name_ + " " + b.name_);
  for (auto& [number, c] : connections_) {
    if (!((c->from == &a && c->to == &b) || (c->from == &b && c->to == &a))) continue;
    for (const bool out : {true, false}) {  // each direction is restored at its own time
      auto& w = out ? c->out : c->back;
      if (w.messages.empty() || w.moving) continue;
      w.moving = true;
      after(dice_.between(0, 50_ms), [this, n = number, out] { move(n, out); });
    }
  }
}

void simulation::mend_all() {
  // Cuts are stored by name: processes may no longer exist.
  cuts_.clear();
  for (auto& [number, c] : connections_) {
    for (const bool out : {true, false}) {
      auto& w = out ? c->out : c->back;
      if (w.messages.empty() || w.moving || c->to == nullptr) continue;
      w.moving = true;
      after(dice_.between(0, 50_ms), [this, n = number, out] { move(n, out); });
    }
  }
}

void simulation::break_some(process& a, process& b) {
  log("break " + a.name_ + " " + b.name_);
  std::vector<connection*> between;
  for (auto& [number, c] : connections_) {
    if (c->broken || !c->open || c->dead || c->asks == nullptr || c->answers == nullptr) continue;
    if (c->from == &a && c->to == &b) between.push_back(c.get());
  }
  for (auto* c : between)
    if (dice_.in(2)) replace(*c);
}

void simulation::swallow_some(process& a, process& b) {
  log("swallow " + a.name_ + " " + b.name_);
  for (auto& [number, c] : connections_) {
    if (c->from != &a || c->to != &b || c->broken || !c->open || c->dead || !dice_.in(2)) continue;
    c->swallows = true;
    drop_tail(c->out);
    drop_tail(c->back);
    log("silent", number);
  }
}

void simulation::replace(connection& old) {
  auto fresh = std::make_unique<connection>();
  auto& c = *fresh;
  c.number = ++last_connection_;
  c.from = old.from;
  c.to = old.to;
  c.asks = old.asks;
  c.answers = old.answers;
  c.channel = old.channel;
  c.asks->channels_[static_cast<std::size_t>(c.channel)] = c.number;
  c.asks->address_of_[c.number] = c.asks->address_of_[old.number];
  connections_.emplace(c.number, std::move(fresh));

  old.broken = true;
  auto& sent = old.out.messages;
  const auto arrive = static_cast<std::ptrdiff_t>(dice_.below(sent.size() + 1));
  const auto lost = static_cast<std::ptrdiff_t>(dice_.below(sent.size() - static_cast<std::size_t>(arrive) + 1));
  for (auto m = sent.begin() + arrive + lost; m != sent.end(); ++m) {
    sim_port::sign(m->second, c.number);
    send(c, true, std::move(m->second));
  }
  sent.resize(static_cast<std::size_t>(arrive));
  drop_tail(old.back);
  c.back.last = old.back.last;
  log("broken", old.number, static_cast<std::uint64_t>(lost));
}

void simulation::send(connection& c, bool out, message m) {
  auto& w = out ? c.out : c.back;
  if (out && c.dead) return;  // the message waits forever for a dead process
  if (c.swallows) return;
  const auto price = [&] {
    const auto bytes = m.frame.size() + m.tail.size();
    return prices->arrival(out ? *c.from : *c.to, out ? *c.to : *c.from, bytes) - now_;
  };
  const auto mostly = prices != nullptr && c.to != nullptr ? price()
                      : dice_.in(50)                       ? dice_.between(1_ms, 30_ms)
                                                           : dice_.between(20_us, 400_us);
  const auto when = std::max(w.last + 1, now_ + mostly);
  w.last = when;
  w.messages.emplace_back(when, std::move(m));
  if (w.moving || c.to == nullptr) return;
  w.moving = true;
  at(when, [this, n = c.number, out] { move(n, out); });
}

/// Delivers the first message of a direction, if possible.
void simulation::move(std::uint64_t number, bool out) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  auto& c = *found->second;
  auto& w = out ? c.out : c.back;
  w.moving = false;
  if (w.messages.empty() || c.to == nullptr || is_cut(c.from, c.to)) return;
  const auto when = w.messages.front().first;
  if (when <= now_) {
    auto m = std::move(w.messages.front().second);
    w.messages.pop_front();
    auto* to = out ? c.answers : c.asks;
    if (to != nullptr && to->of_.alive_ && (out || c.open)) {
      log("to " + to->owner_.name, number, hash_key({reinterpret_cast<const char*>(m.frame.data()), m.frame.size()}));
      if (prices != nullptr) {
        const auto done = prices->done(to->owner_, m.frame);
        w.arrived.push_back(std::move(m));
        at(done, [this, number, out] { take_arrived(number, out); });
      } else {
        to->inbox_.push_back(std::move(m));
        wake(to->owner_, now_ + dice_.between(1_us, 60_us));
      }
    }
  }
  if (w.messages.empty()) return;
  w.moving = true;
  at(std::max(now_, w.messages.front().first), [this, number, out] { move(number, out); });
}

void simulation::take_arrived(std::uint64_t number, bool out) {
  auto& c = *connections_.at(number);
  auto& w = out ? c.out : c.back;
  auto* to = out ? c.answers : c.asks;
  auto m = std::move(w.arrived.front());
  w.arrived.pop_front();
  if (to == nullptr) return;
  to->inbox_.push_back(std::move(m));
  wake(to->owner_, now_);
}

void simulation::bound(const std::string& address, sim_port& here) {
  places_[address] = &here;
  for (auto& [number, c] : connections_) {
    if (c->answers != nullptr || c->dead || !c->open || c->asks == nullptr) continue;
    if (c->asks->address_of_[number] != address) continue;
    c->answers = &here;
    c->to = &here.of_;
    if (c->out.messages.empty()) continue;
    c->out.moving = true;
    at(c->out.messages.front().first, [this, n = number] { move(n, true); });
  }
}

void simulation::closed(sim_port& p) {
  std::erase_if(places_, [&](const auto& at) { return at.second == &p; });
  for (auto& [number, c] : connections_) {
    if (c->asks == &p) {
      c->asks = nullptr;
      c->open = false;
    }
    if (c->answers == &p) {
      c->answers = nullptr;
      c->dead = true;
    }
  }
}

}  // namespace paracel::sim
