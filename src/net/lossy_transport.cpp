// SPDX-License-Identifier: BSD-3-Clause
#include "net/lossy_transport.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

#include "core/hash.hpp"
#include "core/number_parsing.hpp"
#include "net/protocol.hpp"

namespace paracel::net {

namespace {

using steady = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr double most_percent = 50;
constexpr std::uint64_t longest_delay_ms = 50;

enum class fate : std::uint8_t { arrives, lost, doubled, delayed };
struct choice {
  fate what = fate::arrives;
  milliseconds delay{0};
};

choice choose(double percent, std::uint64_t key, std::uint64_t channel, std::uint64_t number, bool reply) {
  const std::array<std::uint64_t, 4> of{key, channel, number, reply ? 1U : 0U};
  const auto bytes = std::as_bytes(std::span(of));
  const auto hash = hash_key({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const auto uniform = static_cast<double>(hash >> 11U) * 0x1p-53;
  if (uniform * 100 >= percent) return {};
  const auto more = hash_key({reinterpret_cast<const char*>(&hash), sizeof hash});
  constexpr std::array fates{fate::lost, fate::doubled, fate::delayed};
  return {fates[more % fates.size()], milliseconds(1 + more / fates.size() % longest_delay_ms)};
}

struct held_message {
  std::vector<std::byte> frame;
  shared_buffer tail;
  steady::time_point due;
};

}  // namespace

class lossy_port final : public port {
 public:
  lossy_port(std::unique_ptr<port> inner, std::shared_ptr<lossy_transport::state> s, std::uint64_t number)
      : inner_(std::move(inner)), state_(std::move(s)) {
    const auto& o = state_->options;
    key_ = hash_key(o.process + ' ' + std::to_string(o.seed) + ' ' + std::to_string(number));
  }
  ~lossy_port() override {
    try {
      for (auto& l : lines_)
        for (auto& m : l.out) inner_->send(l.inner, {.head = m.frame, .tail = std::move(m.tail)});
    } catch (const error&) {  // the connection is gone
    }
  }

  std::string bind(const std::string& address) override { return inner_->bind(address); }
  int connect(const std::string& address) override {
    const auto free = free_.empty() ? lines_.size() : free_.back();
    if (free == lines_.size()) lines_.emplace_back();
    else free_.pop_back();
    lines_[free] = {};
    lines_[free].address = address;
    connect(free);
    return static_cast<int>(free);
  }
  void disconnect(int channel) override {
    auto& l = at(channel);
    clear(l);
    if (l.inner < 0) return;
    outer_[static_cast<std::size_t>(l.inner)] = -1;
    inner_->disconnect(std::exchange(l.inner, -1));
    closed_.push_back(static_cast<std::size_t>(channel));
  }
  std::uint64_t traffic(int channel) override { return inner_->traffic(at(channel).inner); }
  void reply(const peer& to, const outgoing& message) override { inner_->reply(to, message); }

  void send(int channel, const outgoing& message) override {
    release();
    auto& l = at(channel);
    const auto [what, flags] = fields_of(message.head);
    l.is_stream = l.is_stream || (flags & flag_stream) != 0;
    const auto c = (flags & flag_stream) != 0 && what != verb::progress ? next_choice(l, channel, false) : choice{};
    if (c.what == fate::lost) return break_connection(channel);
    if (c.what == fate::delayed) l.out_until = steady::now() + c.delay;
    for (int copy = c.what == fate::doubled ? 2 : 1; copy != 0; --copy) {
      if (l.out.empty() && l.out_until == steady::time_point{}) {
        inner_->send(l.inner, message);
        continue;
      }
      held_message m{.frame = {message.head.begin(), message.head.end()}, .tail = message.tail, .due = l.out_until};
      m.frame.insert(m.frame.end(), message.body.begin(), message.body.end());
      l.out.push_back(std::move(m));
    }
  }

  bool receive(incoming& out, milliseconds timeout) override { return receive_batch({&out, 1}, timeout) != 0; }

  std::size_t receive_batch(std::span<incoming> out, milliseconds timeout) override {
    given_.clear();
    if (out.empty()) return 0;
    free_.insert(free_.end(), closed_.begin(), closed_.end());
    closed_.clear();
    const auto end = steady::now() + timeout;
    for (;;) {
      release();
      if (const auto n = give(out); n != 0) return n;
      const auto now = steady::now();
      auto wait = std::max(milliseconds{0}, std::chrono::ceil<milliseconds>(end - now));
      if (const auto due = next_due())
        wait = std::clamp(std::chrono::ceil<milliseconds>(*due - now), milliseconds{0}, wait);
      const auto received = inner_->receive_batch(out, wait);
      std::size_t n = 0;
      for (std::size_t i = 0; i < received; ++i) {
        if (!arrives(out[i])) continue;
        if (n != i) out[n] = std::move(out[i]);
        ++n;
      }
      for (auto i = n; i < received; ++i) out[i].tail = {};
      if (n != 0) return n;
      if (steady::now() >= end && (!next_due() || *next_due() > steady::now())) return 0;
    }
  }

 private:
  struct line {
    std::string address;
    int inner = -1;
    bool is_stream = false;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    steady::time_point out_until{};  // messages sent before then wait
    steady::time_point in_until{};
    std::deque<held_message> out;
    std::deque<held_message> in;
  };

  static std::pair<verb, std::uint16_t> fields_of(std::span<const std::byte> head) {
    std::uint8_t what = 0;
    std::uint16_t flags = 0;
    if (head.size() < request_header_bytes) return {verb::none, flags};
    std::memcpy(&what, head.data() + 5, sizeof what);
    std::memcpy(&flags, head.data() + 6, sizeof flags);
    return {static_cast<verb>(what), flags};
  }

  line& at(int channel) { return lines_.at(static_cast<std::size_t>(channel)); }
  void connect(std::size_t channel) {
    const auto inner = inner_->connect(lines_[channel].address);
    lines_[channel].inner = inner;
    outer_.resize(std::max(outer_.size(), static_cast<std::size_t>(inner) + 1), -1);
    outer_[static_cast<std::size_t>(inner)] = static_cast<int>(channel);
  }
  static void clear(line& l) {
    l.out.clear();
    l.in.clear();
    l.out_until = {};
    l.in_until = {};
  }
  void break_connection(int channel) {
    auto& l = at(channel);
    clear(l);
    outer_[static_cast<std::size_t>(l.inner)] = -1;
    inner_->disconnect(l.inner);
    connect(static_cast<std::size_t>(channel));
  }

  choice next_choice(line& l, int channel, bool reply) {
    const auto number = reply ? ++l.received : ++l.sent;
    auto& counts = state_->counts;
    ++counts.messages;
    const auto c = choose(state_->options.percent, key_, static_cast<std::uint64_t>(channel), number, reply);
    if (c.what == fate::lost) ++counts.lost;
    if (c.what == fate::doubled) ++counts.doubled;
    if (c.what == fate::delayed) ++counts.delayed;
    return c;
  }

  /// Whether a received message is delivered now; maps the channel of a reply to the owner's.
  bool arrives(incoming& in) {
    if (in.channel < 0) return true;
    const auto channel = outer_[static_cast<std::size_t>(in.channel)];
    if (channel < 0) return false;  // over a connection that has broken
    in.channel = channel;
    auto& l = at(channel);
    const auto c = l.is_stream ? next_choice(l, channel, true) : choice{};
    if (c.what == fate::lost) {
      break_connection(channel);
      return false;
    }
    if (c.what == fate::delayed) l.in_until = steady::now() + c.delay;
    const bool waits = !l.in.empty() || l.in_until != steady::time_point{};
    for (int copies = (waits ? 1 : 0) + (c.what == fate::doubled ? 1 : 0); copies != 0; --copies)
      l.in.push_back({.frame = {in.frame.begin(), in.frame.end()}, .tail = in.tail, .due = l.in_until});
    return !waits;
  }

  /// Sends messages whose delay is over.
  void release() {
    for (auto& l : lines_) {
      if (l.out.empty() && l.out_until == steady::time_point{}) continue;
      const auto now = steady::now();
      while (!l.out.empty() && l.out.front().due <= now) {
        auto m = std::move(l.out.front());
        l.out.pop_front();
        inner_->send(l.inner, {.head = m.frame, .tail = std::move(m.tail)});
      }
      if (l.out_until <= now) l.out_until = {};
    }
  }
  /// Delivers replies whose delay is over.
  std::size_t give(std::span<incoming> out) {
    std::size_t n = 0;
    for (std::size_t channel = 0; channel < lines_.size(); ++channel) {
      auto& l = lines_[channel];
      if (l.in.empty() && l.in_until == steady::time_point{}) continue;
      const auto now = steady::now();
      for (; n < out.size() && !l.in.empty() && l.in.front().due <= now; ++n) {
        given_.push_back(std::move(l.in.front()));
        l.in.pop_front();
        auto& m = given_.back();
        out[n] = {};
        out[n].channel = static_cast<int>(channel);
        out[n].frame = m.frame;
        out[n].tail = std::move(m.tail);
      }
      if (l.in_until <= now) l.in_until = {};
    }
    return n;
  }
  [[nodiscard]] std::optional<steady::time_point> next_due() const {
    std::optional<steady::time_point> least;
    const auto see = [&](const auto& held) {
      if (!held.empty() && (!least || held.front().due < *least)) least = held.front().due;
    };
    for (const auto& l : lines_) {
      see(l.out);
      see(l.in);
    }
    return least;
  }

  std::unique_ptr<port> inner_;
  std::shared_ptr<lossy_transport::state> state_;
  std::uint64_t key_ = 0;
  std::deque<line> lines_;
  std::vector<std::size_t> closed_;  // disconnected since the last receive
  std::vector<std::size_t> free_;    // before that
  std::vector<int> outer_;           // by channel of the inner port: ours; -1: disconnected
  std::deque<held_message> given_;   // their frames are valid until the next receive
};

lossy_transport::lossy_transport(std::shared_ptr<transport> inner, lossy_options options)
    : inner_(std::move(inner)), state_(std::make_shared<state>()) {
  state_->options = std::move(options);
}

lossy_options lossy_transport::options_from(std::string_view percent, std::string_view seed, std::string process) {
  lossy_options o;
  o.process = std::move(process);
  if (!read_whole_number(percent, o.percent) || !(o.percent > 0 && o.percent <= most_percent))
    throw usage_error("--drop-messages: want a percentage above 0, at most 50, not " + quote_for_error(percent));
  std::int64_t number = 0;
  if (!read_whole_integer(seed, number) || number < 0)
    throw usage_error("--seed: want a whole number, not " + quote_for_error(seed));
  o.seed = static_cast<std::uint64_t>(number);
  return o;
}

std::unique_ptr<port> lossy_transport::wrap(std::unique_ptr<port> inner) {
  return std::make_unique<lossy_port>(std::move(inner), state_, ++state_->ports);
}

std::unique_ptr<port> lossy_transport::open() { return wrap(inner_->open()); }

port_group lossy_transport::open_group(const std::string& address, std::size_t ports) {
  auto group = inner_->open_group(address, ports);
  for (auto& p : group.ports) p = wrap(std::move(p));
  return group;
}

std::string lossy_transport::report() const {
  const auto& c = state_->counts;
  char percent[32];
  std::snprintf(percent, sizeof percent, "%g", state_->options.percent);
  return std::string("--drop-messages ") + percent + " --seed " + std::to_string(state_->options.seed) + ": of " +
         std::to_string(c.messages) + " messages " + std::to_string(c.lost) + " lost, " + std::to_string(c.doubled) +
         " doubled, " + std::to_string(c.delayed) + " delayed";
}

}  // namespace paracel::net
