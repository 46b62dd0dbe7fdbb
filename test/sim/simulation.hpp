// SPDX-License-Identifier: BSD-3-Clause
//
// Time, threads and the network of a job that happens in one thread, from one seed.
//
// A process has actors, one for each thread of the real one. An actor sleeps until a message comes to its port or its
// time is over, then makes one step. Steps take no time; what comes between two is chance. Each process has a clock of
// its own, which runs a little fast or slow.
//
// The network is that of ZeroMQ's DEALER and ROUTER over a stream: a connection carries messages each way in order,
// none lost and none doubled as long as both ends live. Different connections know no order. So what is chance here is
// how long each message takes, links that stand still and are released in any order, how much of what a process had
// sent is still delivered when it is killed (a prefix, on every connection), and what it had sent of a step in the
// midst of which it died. A connection between two that live may break: of what is on its way, each way, a prefix
// arrives; of the rest of the requests the last ones go over the connection that takes its place, what lies between is
// lost, and so are the answers. Nobody is told; the other side knows the new connection from the old one, of which
// something may still come. Doubled messages are made by clients alone, who send again.
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

/// What must hold did not.
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

/// A thread that is none.
struct actor {
  process* of = nullptr;
  std::string name;
  std::function<nanos()> step;  ///< returns for how long it sleeps, by the clock of its process
  nanos wake_at = never;
};

/// Something with threads, ports and a clock, that lives and dies as one.
class process final : public net::transport {
 public:
  process(simulation& in, std::string name, double rate, nanos offset);
  ~process() override;

  /// The ports that are opened while an actor makes a step, or with `own`, are that actor's.
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
  /// After that many more messages nothing that it sends leaves, and it is killed at the end of that step.
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
  int sends_left_ = -1;  // -1: no end
  actor* current_ = nullptr;
  std::vector<std::unique_ptr<actor>> actors_;
};

struct message {
  int channel = -1;
  net::peer from{};
  std::vector<std::byte> frame;
  shared_buffer tail;
};

class sim_port;

struct connection {
  struct way {
    std::deque<std::pair<nanos, message>> messages;  // and when each may arrive
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
  bool dead = false;    // its other side is
  bool broken = false;  // another has taken its place
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
  /// kill -9. Its objects are for the caller to destroy, afterwards.
  void kill(process& p);
  /// SIGSTOP and SIGCONT.
  void stop(process& p);
  void go_on(process& p);
  /// Nothing passes between the two, either way, until `mend`.
  void cut(process& a, process& b);
  void mend(process& a, process& b);
  void mend_all();
  /// Each connection that `a` has made to `b`, half of the time.
  void break_some(process& a, process& b);

  void log(std::string_view what, std::uint64_t a = 0, std::uint64_t b = 0);
  [[nodiscard]] std::uint64_t hash() const { return hash_; }
  [[nodiscard]] std::uint64_t events() const { return events_; }
  bool verbose = false;
  /// Is shown every reply that leaves (who, on which connection, the frame), and every request.
  std::function<void(process&, const connection&, std::span<const std::byte>)> on_reply;
  std::function<void(process&, const connection&, std::span<const std::byte>)> on_request;
  /// May give the answer to a request that is sent, which then is there at once. The request goes on its way all the
  /// same, unless it is swallowed; it may lose the flags that make it one of a stream.
  struct forged {
    std::vector<std::byte> answer;
    bool swallowed = false;
    bool stray = false;
  };
  std::function<forged(std::span<const std::byte>)> forge;
  /// Is called when a process that was to die in the midst of a step has made it.
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
