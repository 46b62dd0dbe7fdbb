// SPDX-License-Identifier: BSD-3-Clause
#include "server/shard/clock_service.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <paracel/error.hpp>

#include "core/check.hpp"
#include "core/membership.hpp"
#include "server/store/partition_records.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

namespace {
constexpr std::size_t wait_bytes = 256;   // approximate cost of a parked request
constexpr std::size_t most_asked = 4096;  // clocks of future checkpoints
}  // namespace

void clock_service::answer(completion& done, net::instruction order) const {
  net::reply_header reply;
  reply.order = order;
  reply.clock = clock_.slowest();
  done.answer(reply);
}

bool clock_service::is_checkpoint(std::uint32_t clock) const {
  if (clock == net::no_clock) return false;
  return (every_ != 0 && clock % every_ == 0) || (!asked_.empty() && asked_.contains(clock));
}

void clock_service::ask_for_checkpoint(std::uint32_t clock, completion& done) {
  asked_.erase(asked_.begin(), asked_.upper_bound(clock_.slowest()));
  ++changes_;  // the next keeper of the clock has to stop the remaining workers there
  if (clock == net::no_clock) clock = clock_.greatest() + 1;
  if (asked_.size() >= most_asked && !asked_.contains(clock)) {
    return done.fail(status::internal,
                     "checkpoints are requested at " + std::to_string(most_asked) + " clocks already");
  }
  asked_.insert(clock);
  net::reply_header reply;
  reply.clock = clock;
  done.answer(reply);
}

void clock_service::wake() {
  const auto end = waits_.upper_bound(clock_.slowest());
  for (auto w = waits_.begin(); w != end; w = waits_.erase(w)) {
    answer(w->second.done);
    count(verb::clock_wait, w->second.begin);
  }
  PARACEL_ASSERT(waits_.empty() || waits_.begin()->first > clock_.slowest());
}

void clock_service::begin(std::uint32_t workers, time_point now, std::uint32_t clock) {
  if (begun_) return;
  now_ = now;
  clock_ = ssp_clock(workers, clock);
  begun_ = true;
  for (auto& h : std::exchange(held_, {})) {
    h.held = {};
    handle({h.header, {}}, std::move(h.done), now);
  }
}

void clock_service::handle(const net::request_view& request, completion done, time_point now) {
  const auto& h = request.header;
  const auto begin = times_ != nullptr ? ticks_now() : 0;
  now_ = now;
  // Requests served now may observe a state that the replicas lack.
  if (incomplete_ != nullptr && (*incomplete_)[clock_partition]) ++changes_;
  if (ended_ != status::ok) return done.fail(ended_, why_ended_);
  if (!begun_ && (h.what == verb::clock_tick || h.what == verb::clock_wait || h.what == verb::checkpoint)) {
    // A worker may be told that the job has begun before its servers are.
    held_bytes held;
    if (!held.take(budget_, wait_bytes)) return done.fail(status::internal, "the job has not begun");
    held_.push_back({h, std::move(done), std::move(held)});
    return;
  }
  switch (h.what) {
    case verb::ping:
      return done.ok();
    case verb::checkpoint:
      return ask_for_checkpoint(h.clock, done);
    case verb::subscribe:
      ++changes_;
      watched_ = true;
      return answer(done);
    case verb::clock_tick: {
      if (h.rank >= clock_.workers()) {
        return done.fail(status::bad_request,
                         "rank " + std::to_string(h.rank) + " of " + std::to_string(clock_.workers()) + " workers");
      }
      ++changes_;
      if ((h.flags & net::flag_staged) != 0) stages_ = true;
      if (h.clock == net::no_clock) return leave(h.rank, std::move(done));
      const bool rose = clock_.tick(h.rank, h.clock);
      answer(done, is_checkpoint(h.clock) ? net::instruction::checkpoint : net::instruction::proceed);
      count(h.what, begin);
      if (rose) wake();
      return;
    }
    case verb::clock_wait: {
      if (clock_.slowest() >= h.clock) {
        answer(done);
        return count(h.what, begin);
      }
      const auto deadline = h.deadline_ms == 0 ? time_point::max() : now + std::chrono::milliseconds(h.deadline_ms);
      held_bytes held;
      if (!held.take(budget_, wait_bytes)) return done.fail(status::internal, "too many requests wait for the clock");
      next_deadline_ = std::min(next_deadline_, deadline);
      waits_.emplace(h.clock, wait{std::move(done), deadline, std::move(held), begin});
      return;
    }
    default:
      return done.fail(status::bad_request, std::string(net::name_of(h.what)) + " is not a verb of the clock thread");
  }
}

void clock_service::leave(std::uint32_t rank, completion done) {
  if (stages_ && clock_.is_in(rank)) {
    auto& l = leaving_[rank];
    l.finished = clock_.finished(rank);
    l.done.push_back(std::move(done));
    return;
  }
  const bool rose = clock_.remove(rank);
  answer(done);
  if (rose) wake();
}

void clock_service::left(std::uint32_t rank, std::uint32_t dropped, std::string_view example) {
  auto gone = leaving_.extract(rank);
  if (gone.empty()) return;
  ++changes_;
  const bool rose = clock_.remove(rank);
  for (auto& done : gone.mapped().done) {
    net::reply_header reply;
    reply.clock = clock_.slowest();
    reply.count = dropped;
    done.answer(reply, net::bytes_of(example));
  }
  if (rose) wake();
}

std::vector<std::byte> clock_service::encode() const {
  std::vector<std::byte> state{static_cast<std::byte>((watched_ ? 1U : 0U) | (stages_ ? 2U : 0U))};
  const auto append = [&](std::uint32_t number) {
    for (unsigned i = 0; i < 4; ++i) state.push_back(static_cast<std::byte>(number >> (8 * i)));
  };
  append(static_cast<std::uint32_t>(asked_.size()));
  for (const auto clock : asked_) append(clock);
  const auto numbers = clock_.encode();
  state.insert(state.end(), numbers.begin(), numbers.end());
  return state;
}

/// Empty if these bytes are not a state of this clock; `wrong` then says why.
std::optional<clock_service::decoded> clock_service::decode(std::span<const std::byte> state,
                                                            const char*& wrong) const {
  wrong = "the state of a clock is malformed";
  constexpr std::size_t front = 5;
  if (state.size() < front || state[0] > std::byte{3}) return {};
  const auto number_at = [&](std::size_t at) {
    std::uint32_t number = 0;
    for (unsigned i = 0; i < 4; ++i) number |= std::to_integer<std::uint32_t>(state[at + i]) << (8 * i);
    return number;
  };
  const std::size_t asked = number_at(1);
  if (asked > (state.size() - front) / 4) return {};
  try {
    decoded d{.watched = (state[0] & std::byte{1}) != std::byte{0},
              .stages = (state[0] & std::byte{2}) != std::byte{0},
              .clock = ssp_clock::decode(state.subspan(front + asked * 4))};
    for (std::size_t i = 0; i < asked; ++i) d.asked.push_back(number_at(front + i * 4));
    if (begun_ && d.clock.workers() != clock_.workers()) {
      wrong = "a clock of another number of workers";
      return {};
    }
    wrong = nullptr;
    return d;
  } catch (const error&) {
    return {};
  }
}

const char* clock_service::replace(std::span<const std::byte> state) {
  const char* wrong = nullptr;
  auto other = decode(state, wrong);
  if (!other) return wrong;
  if (!begun_) begin(other->clock.workers(), now_);
  watched_ = other->watched;
  stages_ = other->stages;
  asked_ = std::set(other->asked.begin(), other->asked.end());
  clock_ = std::move(other->clock);
  wake();
  return nullptr;
}

void clock_service::drop_partitions(const std::bitset<partition_count>& which) {
  if (!which[clock_partition]) return;
  begun_ = false;
  watched_ = false;
  stages_ = false;
  asked_.clear();
  clock_ = ssp_clock(0);
}

void clock_service::take_changes(const std::function<void(std::uint16_t, std::span<const std::byte>)>& f) {
  taken_ = changes_;
  std::vector<std::byte> state;
  encode_partition(clock_partition, state);
  f(clock_partition, state);
}

void clock_service::encode_partition(std::uint16_t partition, std::vector<std::byte>& out) {
  if (partition != clock_partition || !begun_) return;
  const auto state = encode();
  append(out, {.kind = record_kind::clock, .value = state});
}

bool clock_service::check_replica(std::uint16_t partition, std::span<const std::byte> bytes, std::string& why) const {
  records walk(bytes);
  const char* wrong = nullptr;
  for (record r; wrong == nullptr && walk.next(r);) {
    if (partition == clock_partition && r.kind == record_kind::clock) static_cast<void>(decode(r.value, wrong));
    else wrong = "not a record of the clock";
  }
  if (wrong == nullptr && !walk.ok()) wrong = "its records are malformed";
  if (wrong != nullptr) why = wrong;
  return wrong == nullptr;
}

status clock_service::apply_replica(std::uint16_t partition, std::span<const std::byte> bytes, std::string& why) {
  if (!check_replica(partition, bytes, why)) return status::bad_request;
  records walk(bytes);
  for (record r; walk.next(r);) static_cast<void>(replace(r.value));
  return status::ok;
}

void clock_service::expire(time_point now) {
  now_ = now;
  if (now < next_deadline_) return;
  next_deadline_ = time_point::max();
  for (auto w = waits_.begin(); w != waits_.end();) {
    if (w->second.deadline <= now) {
      net::reply_header reply;
      reply.result = status::deadline_exceeded;
      reply.clock = clock_.slowest();
      w->second.done.answer(reply, net::bytes_of("the slowest worker has not got that far"));
      w = waits_.erase(w);
    } else {
      next_deadline_ = std::min(next_deadline_, w->second.deadline);
      ++w;
    }
  }
}

void clock_service::fail_all(status why, std::string_view text) {
  ended_ = why;
  why_ended_ = text;
  refuse_all(why, text, nullptr);
}

void clock_service::refuse_waiting(reply_sink& through, status why, std::string_view text) {
  refuse_all(why, text, &through);
}

void clock_service::refuse_all(status why, std::string_view text, reply_sink* through) {
  const auto refuse = [&](completion& done) {
    if (through != nullptr) done.leave_through(*through);
    done.fail(why, text);
  };
  for (auto& waiting : waits_) refuse(waiting.second.done);
  for (auto& h : held_) refuse(h.done);
  for (auto& leaving : leaving_)
    for (auto& done : leaving.second.done) refuse(done);
  leaving_.clear();
  waits_.clear();
  held_.clear();
}

}  // namespace paracel::srv
