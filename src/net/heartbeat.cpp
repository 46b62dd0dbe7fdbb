// SPDX-License-Identifier: BSD-3-Clause
#include "net/heartbeat.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/json_io.hpp"

namespace paracel::net {

namespace {

using time_point = clock_source::time_point;
// How long the destructor may wait for a thread with an unanswered beat.
constexpr std::chrono::milliseconds look_up_interval{50};
// After this many beats the watch is sent again: the parked one may have been lost with a connection.
constexpr std::uint64_t beats_a_watch = 4;
constexpr unsigned most_doublings = 6;

}  // namespace

directive directive_of(const reply_view& reply) {
  directive o;
  o.what = reply.header.order;
  if (reply.header.result != status::ok) o.what = instruction::abort;
  if (o.what != instruction::abort) return o;
  const auto body = json_from(text_of(reply.body));
  o.status = exit_status::failure;
  if (body.is_object() && body.contains("cause") && body["cause"].is_string()) {
    o.cause = body["cause"].get<std::string>();
    if (body.contains("status") && body["status"].is_number_integer()) o.status = body["status"].get<int>();
  } else {
    o.cause = std::string(text_of(reply.body));
  }
  return o;
}

heartbeat::heartbeat(transport& over, heartbeat_options options, std::function<std::string()> describe,
                     std::function<void(const directive&)> obey)
    : options_(std::move(options)), describe_(std::move(describe)), obey_(std::move(obey)) {
  thread_ = std::thread([this, mine = over.open()]() mutable {
    try {
      run(*mine);
    } catch (const error& e) {
      obey_({instruction::abort, e.status(), e.what()});
    } catch (const std::exception& e) {
      obey_({instruction::abort, exit_status::failure, e.what()});
    }
    mine.reset();  // a port is destroyed on the thread that used it
  });
}

heartbeat::~heartbeat() {
  {
    const mutex_lock lock(mutex_);
    stop_.store(true, std::memory_order_relaxed);
  }
  wake_.notify_one();
  thread_.join();
}

void heartbeat::follow(std::uint32_t epoch) {
  {
    const mutex_lock lock(mutex_);
    epoch_.store(epoch, std::memory_order_relaxed);
  }
  wake_.notify_one();
}

/// The requests of one heartbeat, and which of them are unanswered.
class heartbeat_driver::line {
 public:
  line(port& to_scheduler, const heartbeat_options& options)
      : port_(to_scheduler),
        address_(options.scheduler),
        job_(options.job),
        renewal_after_(options.limit / (6 * patience_with_scheduler)),
        channel_(to_scheduler.connect(address_)) {}

  void beat(const std::string& body, time_point now) {
    beat_ = send(verb::heartbeat, 0, body);
    sent_[beat_ % sent_.size()] = now;
    if (std::exchange(answered_, false)) silent_since_ = now;
  }
  /// This process was suspended until now.
  void was_away(time_point now) noexcept { silent_since_ = now; }
  /// Returns: whether the next beat, which is due now, uses a new connection.
  bool renew_if_silent(time_point now) {
    if (answered_ || now - silent_since_ < renewal_after_ * (1U << std::min(renewals_, most_doublings))) return false;
    int fresh = -1;
    try {
      fresh = port_.connect(address_);
    } catch (const network_error&) {  // no descriptor is left: the connection stays as it is
      return false;
    }
    if (before_ >= 0) port_.disconnect(before_);
    before_ = std::exchange(channel_, fresh);
    silent_since_ = now;
    watch_ = 0;
    ++renewals_;
    return true;
  }
  void watch(const std::string& body, std::uint32_t epoch) { watch_ = send(verb::watch, epoch, body); }
  /// Returns false when nothing arrived. `reply` is valid until the next call.
  bool receive(std::chrono::milliseconds timeout, reply_view& reply) {
    if (!port_.receive(in_, timeout)) return false;
    return decode(in_.frame, in_.tail.size(), reply) == nullptr;
  }
  /// Whether this is the reply to the watch, which is then consumed.
  bool ends_watch(const reply_view& reply) noexcept {
    if (watch_ == 0 || reply.header.sequence != watch_) return false;
    watch_ = 0;
    return true;
  }
  /// When the beat answered here was sent. Beats older than the last few are ignored.
  std::optional<time_point> take_answer(const reply_view& reply) noexcept {
    answered_ = true;
    renewals_ = 0;
    if (before_ >= 0 && in_.channel == channel_) port_.disconnect(std::exchange(before_, -1));
    const auto s = reply.header.sequence;
    if (reply.header.what != verb::heartbeat || s > beat_ || s + sent_.size() <= beat_) return std::nullopt;
    return sent_[s % sent_.size()];
  }
  [[nodiscard]] bool answered() const noexcept { return answered_; }
  [[nodiscard]] bool watches() const noexcept { return watch_ != 0; }
  [[nodiscard]] bool has_to_watch() const noexcept { return watch_ == 0 || sequence_ - watch_ >= beats_a_watch; }

 private:
  std::uint64_t send(verb what, std::uint32_t epoch, const std::string& body) {
    request_header h;
    h.what = what;
    h.job = job_;
    h.epoch = epoch;
    h.sequence = ++sequence_;
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    request_bytes head;
    encode(h, head);
    port_.send(channel_, {.head = head, .body = bytes_of(body)});
    return sequence_;
  }

  port& port_;
  const std::string address_;
  const std::uint64_t job_;
  const std::chrono::milliseconds renewal_after_;
  int channel_;
  int before_ = -1;            // the connection that it replaced
  unsigned renewals_ = 0;      // since the last answer
  time_point silent_since_{};  // while the beat is unanswered
  std::uint64_t sequence_ = 0;
  std::uint64_t beat_ = 0;   // the last one's number
  std::uint64_t watch_ = 0;  // of the one that is parked; 0: none
  std::array<time_point, 32> sent_{};
  bool answered_ = true;
  incoming in_;
};

heartbeat_driver::heartbeat_driver(port& to_scheduler, heartbeat_options options, std::function<std::string()> describe,
                                   std::function<void(const directive&)> obey, std::atomic<std::uint32_t>& followed,
                                   const clock_source& time)
    : options_(std::move(options)),
      describe_(std::move(describe)),
      obey_(std::move(obey)),
      followed_(followed),
      time_(time),
      scheduler_(std::make_unique<line>(to_scheduler, options_)),
      last_answer_(time.now()),
      next_beat_(last_answer_),
      own_(last_answer_, std::max(options_.limit / 4, options_.interval * 3 / 2)) {}

heartbeat_driver::~heartbeat_driver() = default;

bool heartbeat_driver::is_idle() const noexcept { return scheduler_->answered() && !scheduler_->watches(); }

/// If this process was itself suspended, the scheduler gets a full interval to answer.
void heartbeat_driver::look_up(time_point now) {
  if (own_.absence(now).count() == 0) return;
  last_answer_ = now;
  scheduler_->was_away(now);
}

void heartbeat_driver::beat_if_due() {
  const auto now = time_.now();
  look_up(now);
  if (scheduler_->renew_if_silent(now)) next_beat_ = now;
  if (now < next_beat_) return;
  // The scheduler only replies: the time for which this process slept between beats does not count as silence.
  if (scheduler_->answered()) last_answer_ = std::max(last_answer_, now - options_.interval);
  next_beat_ = now + options_.interval;
  scheduler_->beat(describe_(), now);
  const auto followed = told_ = followed_.load(std::memory_order_relaxed);
  if (followed != 0 && scheduler_->has_to_watch()) scheduler_->watch(describe_(), followed);
}

heartbeat_driver::outcome heartbeat_driver::listen(std::chrono::milliseconds timeout) {
  reply_view reply;
  if (!scheduler_->receive(timeout, reply)) {
    const auto now = time_.now();
    look_up(now);
    if (scheduler_->answered() || now - last_answer_ <= options_.limit) return outcome::nothing;
    obey_({instruction::abort, exit_status::scheduler_lost,
           "the scheduler is lost: silent for " + std::to_string(options_.limit.count()) + " ms"});
    return outcome::over;
  }
  if (scheduler_->ends_watch(reply)) {
    if (reply.header.result != status::job_ended) {
      // If it is rejected for another reason it is sent again with the next beat.
      if (reply.header.result != status::ok || !options_.on_membership) return outcome::heard;
      const auto epoch = options_.on_membership(text_of(reply.body));
      followed_.store(epoch, std::memory_order_relaxed);
      told_ = epoch;
      scheduler_->watch(describe_(), epoch);
      return outcome::heard;
    }
  } else if (reply.header.what == verb::watch && reply.header.result != status::job_ended) {
    return outcome::heard;  // to one that has been resent since
  } else {
    last_answer_ = time_.now();
    const auto sent = scheduler_->take_answer(reply);
    const bool continues = reply.header.result == status::ok && reply.header.order == instruction::proceed;
    const bool known = reply.header.count == known_sender;
    if (sent && continues && known && options_.on_answer) options_.on_answer(*sent);
  }
  const auto asked = directive_of(reply);
  if (asked.what == instruction::proceed) return outcome::heard;
  obey_(asked);
  return outcome::over;
}

void heartbeat::run(port& to_scheduler) {
  const boot_time_source time;
  heartbeat_driver b(to_scheduler, options_, describe_, obey_, epoch_, time);
  while (!stop_.load(std::memory_order_relaxed)) {
    b.beat_if_due();
    if (b.is_idle()) {
      mutex_lock lock(mutex_);
      wake_.wait_for(lock.native(), b.next_beat() - time.now(),
                     [&] { return stop_.load(std::memory_order_relaxed) || b.follows_another(); });
      if (b.follows_another()) b.beat_now();
      continue;
    }
    const auto until_beat = std::chrono::ceil<std::chrono::milliseconds>(b.next_beat() - time.now());
    if (b.listen(std::clamp(until_beat, std::chrono::milliseconds{1}, look_up_interval)) ==
        heartbeat_driver::outcome::over)
      return;
  }
}

}  // namespace paracel::net
