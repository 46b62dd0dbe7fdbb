// SPDX-License-Identifier: BSD-3-Clause
//
// Time, threads and the network of a job in a single thread, reproducible from one seed.
//
// A process has actors, one for each thread of the real one. An actor sleeps until a message arrives at its port or its
// time has passed, then executes one step. Steps take no time; what happens between two is random. Each process has its
// own clock, which runs slightly fast or slow.
//
// The network behaves like ZeroMQ's DEALER and ROUTER over a stream: a connection carries messages in each direction in
// order, without loss or duplication while both ends live. Different connections are not ordered. Chosen at random: the
// time that each message takes, links that stall and are released in any order, how much of what a killed process had
// sent is still delivered (a prefix, on every connection), and what it had sent of the step in which it died. A
// connection between two live processes may break: of the messages in flight, a prefix arrives in each direction; of
// the remaining requests the last ones are sent over the new connection, those in between are lost, and so are the
// replies. Neither side is notified; the other side can distinguish the new connection from the old one, on which
// messages may still arrive. Or it swallows everything from some moment on, in both directions, while new connections
// between the two work. Only clients duplicate messages, by retrying.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/shared_buffer.hpp"
#include "net/clock_source.hpp"
#include "net/transport.hpp"

namespace paracel::sim {

/// Simulated time since the beginning. Units: ns.
using nanos = std::int64_t;
constexpr nanos operator""_us(unsigned long long n) { return static_cast<nanos>(n) * 1000; }
constexpr nanos operator""_ms(unsigned long long n) { return static_cast<nanos>(n) * 1'000'000; }
constexpr nanos operator""_s(unsigned long long n) { return static_cast<nanos>(n) * 1'000'000'000; }
constexpr nanos never = INT64_MAX;
constexpr nanos nanos_of(net::clock_source::time_point::duration d) { return std::chrono::nanoseconds(d).count(); }

/// An invariant is violated.
class violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// splitmix64. Source: Steele, Lea, Flood, Fast splittable pseudorandom number generators, 2014.
class chance {
 public:
  explicit chance(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  nanos between(nanos a, nanos b) { return a + static_cast<nanos>(below(static_cast<std::uint64_t>(b - a + 1))); }
  bool in(std::uint64_t one_of) { return below(one_of) == 0; }

 private:
  std::uint64_t state_;
};

class simulation;
class process;

/// The equivalent of a thread.
struct actor {
  process* of = nullptr;
  std::string name;
  std::function<nanos()> step;  ///< returns how long it sleeps, by the clock of its process
  nanos wake_at = never;
};

/// A unit with threads, ports and a clock that fails as a whole.
class process final : public net::transport {
 public:
  process(simulation& in, std::string name, double rate, nanos offset);
  ~process() override;

  /// Ports opened during an actor's step, or with `own`, belong to that actor.
  std::unique_ptr<net::port> open() override;
  void own(actor& a) { current_ = &a; }
  actor& add(std::string name);

  class clock final : public net::clock_source {
   public:
    explicit clock(const process& of) : of_(of) {}
    time_point now() const override;

   private:
    const process& of_;
  };
  [[nodiscard]] const clock& time() const { return clock_; }
  [[nodiscard]] simulation& in() const { return in_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool alive() const { return alive_; }
  [[nodiscard]] bool stopped() const { return stopped_; }
  /// After this many more messages nothing that it sends leaves the process, and it is killed at the end of that step.
  void die_after(int sends) { sends_left_ = sends; }

 private:
  friend class simulation;
  friend class sim_port;
  simulation& in_;
  std::string name_;
  double rate_;
  nanos offset_;
  clock clock_;
  bool alive_ = true;
  bool stopped_ = false;
  int sends_left_ = -1;  // -1: unlimited
  actor* current_ = nullptr;
  std::vector<std::unique_ptr<actor>> actors_;
};

struct message {
  int channel = -1;
  net::peer from{};
  std::vector<std::byte> frame;
  shared_buffer tail;
};

/// What messages cost in a job whose time is of interest (`simulation::prices`): links and threads are queues, each
/// with a time at which it is free again. Without it messages take random times, and steps none.
class price_list {
 public:
  virtual ~price_list() = default;
  /// When a message that is sent now arrives at the other process.
  virtual nanos arrival(const process& from, const process& to, std::size_t bytes) = 0;
  /// When an actor is done with a message that arrives now; its step is executed at that moment. Not before an earlier
  /// message of the actor.
  virtual nanos done(const actor& by, std::span<const std::byte> frame) = 0;
};

class sim_port;

struct connection {
  struct way {
    std::deque<std::pair<nanos, message>> messages;  // with the earliest arrival time of each
    std::deque<message> arrived;                     // and wait for their thread, with prices only
    nanos last = 0;
    bool moving = false;
  };
  std::uint64_t number = 0;
  process* from = nullptr;
  process* to = nullptr;  // null until the address is bound
  sim_port* asks = nullptr;
  sim_port* answers = nullptr;
  int channel = -1;
  bool open = true;
  bool dead = false;      // the other end is dead
  bool broken = false;    // replaced by a new connection
  bool swallows = false;  // nothing that is sent arrives, in either direction
  way out;
  way back;
};

class simulation {
 public:
  explicit simulation(std::uint64_t seed);
  ~simulation();
  simulation(const simulation&) = delete;
  simulation& operator=(const simulation&) = delete;

  [[nodiscard]] nanos now() const { return now_; }
  chance& dice() { return dice_; }
  void at(nanos when, std::function<void()> f);
  void after(nanos delay, std::function<void()> f) { at(now_ + delay, std::move(f)); }
  /// The next event. False when there is none.
  bool step();

  void wake(actor& a, nanos when);
  /// kill -9. The caller destroys its objects afterwards.
  void kill(process& p);
  /// SIGSTOP and SIGCONT.
  void stop(process& p);
  void resume(process& p);
  /// Blocks messages between the two, in both directions, until `mend`.
  void cut(process& a, process& b);
  void mend(process& a, process& b);
  void mend_all();
  /// Breaks each connection from `a` to `b` with probability 1/2.
  void break_some(process& a, process& b);
  /// From now on each connection from `a` to `b` swallows everything, with probability 1/2; new ones do not.
  void swallow_some(process& a, process& b);

  void log(std::string_view what, std::uint64_t a = 0, std::uint64_t b = 0);
  [[nodiscard]] std::uint64_t hash() const { return hash_; }
  [[nodiscard]] std::uint64_t events() const { return events_; }
  bool verbose = false;
  /// Called with every reply that is sent (process, connection, frame), and with every request.
  std::function<void(process&, const connection&, std::span<const std::byte>)> on_reply;
  std::function<void(process&, const connection&, std::span<const std::byte>)> on_request;
  /// May forge an immediate reply to a request. The request is still sent, unless it is swallowed; it may lose the
  /// flags that make it part of a stream.
  struct forged {
    std::vector<std::byte> answer;
    bool swallowed = false;
    bool stray = false;
  };
  std::function<forged(std::span<const std::byte>)> forge;
  price_list* prices = nullptr;  ///< in a job without faults
  /// Called after the last step of a process that was to die during it.
  std::function<void(process&)> on_death;

 private:
  friend class process;
  friend class sim_port;
  struct event {
    nanos when;
    std::uint64_t order;
    std::function<void()> run;
    friend bool operator<(const event& a, const event& b) {  // the earliest is on top
      return a.when != b.when ? a.when > b.when : a.order > b.order;
    }
  };
  void run(actor& a);
  void send(connection& c, bool out, message m);
  void move(std::uint64_t number, bool out);
  void take_arrived(std::uint64_t number, bool out);
  void drop_tail(connection::way& w);
  void replace(connection& old);
  void bound(const std::string& address, sim_port& here);
  void closed(sim_port& p);
  [[nodiscard]] bool is_cut(const process* a, const process* b) const;

  chance dice_;
  nanos now_ = 0;
  std::uint64_t order_ = 0;
  std::priority_queue<event> queue_;
  std::map<std::uint64_t, std::unique_ptr<connection>> connections_;
  std::uint64_t last_connection_ = 0;
  std::map<std::string, sim_port*> places_;
  std::set<std::pair<std::string, std::string>> cuts_;
  std::uint64_t hash_ = 0xcbf29ce484222325U;
  std::uint64_t events_ = 0;
};

}  // namespace paracel::sim
