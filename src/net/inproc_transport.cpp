// SPDX-License-Identifier: BSD-3-Clause
//
// A port owns a mailbox. A channel refers to the place (address) to which it is connected; the place refers to the
// mailbox bound there, or holds the requests that wait for one. Locking order: hub, place, mailbox.
#include "net/inproc_transport.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <unordered_map>
#include <vector>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/check.hpp"
#include "net/message_limit.hpp"
#include "net/mutex.hpp"

namespace paracel::net {

// Keeps a deadline from overflowing the clock.
constexpr std::chrono::milliseconds longest_sleep = std::chrono::hours(24 * 365);

struct inproc_transport::message {
  int channel = -1;
  peer from{};
  std::vector<std::byte> frame;
  shared_buffer tail;
};

struct inproc_transport::mailbox {
  mutex access;
  std::condition_variable arrived;
  std::deque<message> queue PARACEL_GUARDED_BY(access);
  bool waiting PARACEL_GUARDED_BY(access) = false;  // the owner sleeps
  bool closed PARACEL_GUARDED_BY(access) = false;

  void put(message&& m) {
    bool wake = false;
    {
      const mutex_lock lock(access);
      if (closed) return;
      queue.push_back(std::move(m));
      wake = waiting;
      waiting = false;
    }
    if (wake) arrived.notify_one();
  }
};

struct inproc_transport::place {
  mutex access;
  std::shared_ptr<mailbox> bound PARACEL_GUARDED_BY(access);
  std::vector<message> unclaimed PARACEL_GUARDED_BY(access);  // empty while bound

  void put(message&& m) {
    const mutex_lock lock(access);
    if (bound != nullptr) {
      PARACEL_ASSERT(unclaimed.empty());
      bound->put(std::move(m));
    } else {
      unclaimed.push_back(std::move(m));
    }
  }
};

class inproc_transport::hub {
 public:
  std::uint64_t add(const std::shared_ptr<mailbox>& m) {
    const mutex_lock lock(mutex_);
    mailboxes_.emplace(++last_port_, m);
    return last_port_;
  }
  void remove(std::uint64_t port_number) {
    const mutex_lock lock(mutex_);
    mailboxes_.erase(port_number);
  }
  std::shared_ptr<mailbox> find(std::uint64_t port_number) {
    const mutex_lock lock(mutex_);
    const auto it = mailboxes_.find(port_number);
    return it == mailboxes_.end() ? nullptr : it->second;
  }
  std::shared_ptr<place> at(const std::string& address) {
    const mutex_lock lock(mutex_);
    std::shared_ptr<place>& p = places_[address];
    if (p == nullptr) p = std::make_shared<place>();
    return p;
  }
  std::string free_address(std::string pattern) {
    pattern.pop_back();
    const mutex_lock lock(mutex_);
    std::string address;
    do {
      address = pattern + std::to_string(++last_wildcard_);
    } while (places_.count(address) != 0);
    return address;
  }

 private:
  mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<mailbox>> mailboxes_ PARACEL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<place>> places_ PARACEL_GUARDED_BY(mutex_);
  std::uint64_t last_port_ PARACEL_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_wildcard_ PARACEL_GUARDED_BY(mutex_) = 0;
};

class inproc_transport::inproc_port final : public port {
 public:
  inproc_port(std::shared_ptr<hub> h, transport_limits limits)
      : hub_(std::move(h)), limits_(limits), mailbox_(std::make_shared<mailbox>()), number_(hub_->add(mailbox_)) {}

  ~inproc_port() override {
    for (const auto& p : bound_) {
      const mutex_lock lock(p->access);
      p->bound = nullptr;
    }
    hub_->remove(number_);
    std::deque<message> unread;
    {
      const mutex_lock lock(mailbox_->access);
      mailbox_->closed = true;
      unread.swap(mailbox_->queue);
    }
  }

  std::string bind(const std::string& address) override {
    if (address.empty()) throw network_error("cannot bind an empty address", false);
    const std::string real = address.back() == '*' ? hub_->free_address(address) : address;
    const std::shared_ptr<place> p = hub_->at(real);
    const mutex_lock lock(p->access);
    if (p->bound != nullptr) throw network_error("cannot bind " + address + ": address already in use", false);
    bound_.push_back(p);
    p->bound = mailbox_;
    for (message& m : p->unclaimed) mailbox_->put(std::move(m));
    p->unclaimed.clear();
    return real;
  }

  int connect(const std::string& address) override {
    if (address.empty()) throw network_error("cannot connect to an empty address", false);
    channels_.push_back(hub_->at(address));
    return static_cast<int>(channels_.size()) - 1;
  }

  void disconnect(int channel) override { at(channel) = nullptr; }

  void send(int channel, const outgoing& what) override {
    check_message_size(what, limits_);
    const std::shared_ptr<place>& to = at(channel);
    if (to == nullptr) throw network_error("channel " + std::to_string(channel) + " is disconnected", false);
    message m = make(what);
    m.from = name_of(channel);
    to->put(std::move(m));
  }

  void reply(const peer& to, const outgoing& what) override {
    check_message_size(what, limits_);
    std::uint64_t number = 0;
    std::int32_t channel = -1;
    if (to.size != sizeof number + sizeof channel) return;
    load_fields(to.id.data(), number);
    load_fields(to.id.data() + sizeof number, channel);
    const std::shared_ptr<mailbox> box = hub_->find(number);
    if (box == nullptr) return;
    message m = make(what);
    m.channel = channel;
    box->put(std::move(m));
  }

  bool receive(incoming& out, std::chrono::milliseconds timeout) override {
    return receive_batch({&out, 1}, timeout) != 0;
  }

  std::size_t receive_batch(std::span<incoming> out, std::chrono::milliseconds timeout) override {
    for (message& m : current_) keep_buffer(std::move(m.frame));
    current_.clear();
    const auto deadline =
        std::chrono::steady_clock::now() + std::clamp(timeout, std::chrono::milliseconds(0), longest_sleep);
    while (current_.size() < out.size()) {
      // Fetched replies on channels that have been disconnected since are dropped.
      if (batch_.empty() && (!current_.empty() || !fetch(timeout, deadline))) break;
      message m = std::move(batch_.front());
      batch_.pop_front();
      if (m.channel >= 0 && at(m.channel) == nullptr) {
        keep_buffer(std::move(m.frame));
        continue;
      }
      incoming& in = out[current_.size()];
      in.channel = m.channel;
      in.from = m.from;
      in.tail = std::move(m.tail);
      current_.push_back(std::move(m));
      in.frame = current_.back().frame;  // a vector's buffer keeps its address when it is moved
    }
    return current_.size();
  }

 private:
  std::shared_ptr<place>& at(int channel) {
    if (channel < 0 || static_cast<std::size_t>(channel) >= channels_.size()) {
      throw network_error("there is no channel " + std::to_string(channel), false);
    }
    return channels_[static_cast<std::size_t>(channel)];
  }

  [[nodiscard]] peer name_of(int channel) const {
    peer p;
    const auto c = static_cast<std::int32_t>(channel);
    store_fields(p.id.data(), number_);
    store_fields(p.id.data() + sizeof number_, c);
    p.size = sizeof number_ + sizeof c;
    return p;
  }

  message make(const outgoing& what) {
    message m;
    if (!spare_.empty()) {
      m.frame = std::move(spare_.back());
      spare_.pop_back();
    }
    m.frame.clear();
    m.frame.reserve(what.head.size() + what.body.size());
    m.frame.insert(m.frame.end(), what.head.begin(), what.head.end());
    m.frame.insert(m.frame.end(), what.body.begin(), what.body.end());
    m.tail = what.tail;
    return m;
  }

  // Received buffers are reused: a request's buffer becomes its reply, so that a steady exchange allocates nothing.
  void keep_buffer(std::vector<std::byte>&& buffer) {
    constexpr std::size_t most = 64;
    constexpr std::size_t largest = 256 * 1024;
    if (buffer.capacity() != 0 && buffer.capacity() <= largest && spare_.size() < most)
      spare_.push_back(std::move(buffer));
  }

  /// Fetches everything that has arrived; waits if nothing has.
  bool fetch(std::chrono::milliseconds timeout, std::chrono::steady_clock::time_point deadline) {
    mutex_lock lock(mailbox_->access);
    while (mailbox_->queue.empty()) {
      if (timeout.count() <= 0) return false;
      mailbox_->waiting = true;
      if (mailbox_->arrived.wait_until(lock.native(), deadline) == std::cv_status::timeout && mailbox_->queue.empty()) {
        mailbox_->waiting = false;
        return false;
      }
    }
    mailbox_->waiting = false;
    batch_.swap(mailbox_->queue);
    return true;
  }

  std::shared_ptr<hub> hub_;
  transport_limits limits_;
  std::shared_ptr<mailbox> mailbox_;
  std::uint64_t number_;
  std::vector<std::shared_ptr<place>> bound_;
  std::vector<std::shared_ptr<place>> channels_;
  std::deque<message> batch_;     // fetched from the mailbox, not yet delivered
  std::vector<message> current_;  // what the caller sees
  std::vector<std::vector<std::byte>> spare_;
};

inproc_transport::inproc_transport(transport_limits limits) : hub_(std::make_shared<hub>()), limits_(limits) {}
inproc_transport::~inproc_transport() = default;

std::unique_ptr<port> inproc_transport::open() { return std::make_unique<inproc_port>(hub_, limits_); }

}  // namespace paracel::net
