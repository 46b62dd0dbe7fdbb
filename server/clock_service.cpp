// SPDX-License-Identifier: BSD-3-Clause
#include "server/clock_service.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <paracel/error.hpp>

namespace paracel::srv {

using net::status;
using net::verb;

namespace {
constexpr std::size_t most_held = std::size_t{1} << 16;
}

void clock_service::answer(completion& done) const {
  net::reply_header reply;
  reply.clock = clock_.slowest();
  done.answer(reply);
}

void clock_service::wake() {
  const auto end = waits_.upper_bound(clock_.slowest());
  for (auto w = waits_.begin(); w != end; w = waits_.erase(w)) answer(w->second.done);
}

void clock_service::begin(std::uint32_t workers, time_point now) {
  if (begun_) return;
  clock_ = ssp_clock(workers);
  begun_ = true;
  for (auto& [header, done] : std::exchange(held_, {})) handle({header, {}}, std::move(done), now);
}

void clock_service::handle(const net::request_view& request, completion done, time_point now) {
  const auto& h = request.header;
  if (ended_ != status::ok) return done.fail(ended_, why_ended_);
  if (!begun_ && (h.what == verb::clock_tick || h.what == verb::clock_wait)) {
    // A worker may hear that the job has begun before its servers do.
    if (held_.size() >= most_held) return done.fail(status::internal, "the job has not begun");
    held_.emplace_back(h, std::move(done));
    return;
  }
  switch (h.what) {
    case verb::ping: return done.ok();
    case verb::subscribe: watched_ = true; return answer(done);
    case verb::clock_tick: {
      if (h.rank >= clock_.workers()) {
        return done.fail(status::bad_request, "rank " + std::to_string(h.rank) + " of " +
                                                  std::to_string(clock_.workers()) + " workers");
      }
      const bool rose = h.clock == net::no_clock ? clock_.remove(h.rank) : clock_.tick(h.rank, h.clock);
      answer(done);
      if (rose) wake();
      return;
    }
    case verb::clock_wait: {
      if (clock_.slowest() >= h.clock) return answer(done);
      const auto deadline =
          h.deadline_ms == 0 ? time_point::max() : now + std::chrono::milliseconds(h.deadline_ms);
      next_deadline_ = std::min(next_deadline_, deadline);
      waits_.emplace(h.clock, wait{std::move(done), deadline});
      return;
    }
    default:
      return done.fail(status::bad_request, std::string(net::name_of(h.what)) + " is not a verb of the clock thread");
  }
}

void clock_service::expire(time_point now) {
  if (now < next_deadline_) return;
  next_deadline_ = time_point::max();
  for (auto w = waits_.begin(); w != waits_.end();) {
    if (w->second.deadline <= now) {
      net::reply_header reply;
      reply.result = status::deadline_exceeded;
      reply.clock = clock_.slowest();
      w->second.done.answer(reply, net::bytes_of("the slowest worker has not come so far"));
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
  for (auto& [needed, w] : waits_) w.done.fail(why, text);
  for (auto& [header, done] : held_) done.fail(why, text);
  waits_.clear();
  held_.clear();
}

}  // namespace paracel::srv
