// SPDX-License-Identifier: BSD-3-Clause
#include "worker/comm/memory_collectives.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/growing_timer.hpp"
#include "net/reliable_channel.hpp"
#include "worker/comm/peer_collectives.hpp"

namespace paracel {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// After a failure, how long the other ranks have to publish theirs.
constexpr milliseconds after_failure{2000};
// After waiting this long, a rank first checks whether the one that it waits for is alive.
constexpr milliseconds first_doubt{100};
constexpr std::size_t cache_line = 64;
// How much is folded at a time, so that the partial sum stays in the L1 cache.
constexpr std::size_t cached_bytes = std::size_t{8} << 10U;

/// Part `k` of bytes that are sent in parts of `most`.
template <class Byte>
std::span<Byte> part_of(std::span<Byte> bytes, std::size_t most, std::size_t k) {
  const auto begin = std::min(bytes.size(), k * most);
  return bytes.subspan(begin, std::min(most, bytes.size() - begin));
}

std::size_t parts_of(std::size_t bytes, std::size_t most) { return (bytes + most - 1) / most; }

}  // namespace

// ---- steps

/// The first other rank that has not published the step; ranks() if all have.
std::size_t memory_collectives::missing(std::uint64_t step, std::optional<std::size_t> but) const {
  std::size_t r = 0;
  while (r < m_.ranks() && (r == m_.rank() || r == but || m_.has_published(r, step))) ++r;
  return r;
}

bool memory_collectives::anybody_failed(std::uint64_t step) const {
  for (std::size_t r = 0; r < m_.ranks(); ++r)
    if (m_.has_published(r, step) && m_.has_failed(r, step)) return true;
  return false;
}

/// Blocks: until all have published the last step. `or_failed`: or one has failed in it and the others stay silent.
void memory_collectives::await(const peer_call& c, bool or_failed) {
  const auto step = m_.step();
  if (missing(step) == m_.ranks()) return;
  const auto begin = steady_clock::now();
  auto attended = begin;
  growing_timer doubt(first_doubt, net::late, begin);
  std::optional<steady_clock::time_point> end;
  for (;;) {
    const auto round = m_.round();
    const auto r = missing(step);
    if (r == m_.ranks()) return;
    const auto every = over_.attends_every();
    std::chrono::microseconds nap = every;
    if (limit_) nap = std::min<std::chrono::microseconds>(std::max(*limit_, milliseconds{1}), nap);
    m_.sleep(round, nap);
    const auto now = steady_clock::now();
    if (m_.has_published(r, step)) continue;
    if (limit_ && now - begin > *limit_)
      fail({static_cast<std::uint32_t>(m_.rank()), exit_status::failure,
            c.text() + ": no message from task " + std::to_string(r) + " for " + std::to_string(limit_->count()) +
                " ms"},
           r);
    if (now - attended < every) continue;
    attended = now;
    try {
      over_.attend(r, doubt.has_passed(now));
    } catch (const network_error& e) {
      fail({static_cast<std::uint32_t>(m_.rank()), e.status(), c.text() + ": " + e.what()}, r);
    }
    if (or_failed && !end && anybody_failed(step)) end = now + after_failure;
    if (end && now > *end) return;
  }
}

/// Returns: whether all have published it within `after_failure`. Unlike `await`, never calls `fail`.
bool memory_collectives::await_briefly(std::uint64_t step, std::optional<std::size_t> but) {
  const auto end = steady_clock::now() + after_failure;
  for (;;) {
    const auto round = m_.round();
    const auto r = missing(step, but);
    if (r == m_.ranks()) return true;
    const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now());
    if (left.count() <= 0) return false;
    m_.sleep(round, std::min(left, milliseconds{20}));
    over_.attend(r, false);
  }
}

/// This rank's block of the next step.
std::span<std::byte> memory_collectives::begin(const peer_call& c) {
  await(c, false);  // then no rank reads it any more
  return m_.block(m_.rank(), m_.step() + 1);
}

/// Publishes the step that carries piece `number` of the operation; this rank's block has been written. Afterwards the
/// others' blocks can be read until the next `begin`.
void memory_collectives::meet(const peer_call& c, std::size_t number) {
  auto f = c.header();
  f.number = static_cast<std::uint32_t>(number);
  m_.publish(f, c.name);
  if (number != 0) {
    await(c, true);
  } else if (missing(m_.step()) != m_.ranks()) {
    const auto before = steady_clock::now();
    await(c, true);
    waited_ += steady_clock::now() - before;
  }
  compare(c);
}

void memory_collectives::compare(const peer_call& c) {
  const auto step = m_.step();
  std::optional<peer_failure> lowest;
  for (std::size_t r = 0; r < m_.ranks(); ++r) {
    if (!m_.has_published(r, step) || !m_.has_failed(r, step)) continue;
    auto f = m_.failure_of(r, step);
    if (!lowest || f.origin < lowest->origin) lowest = std::move(f);
  }
  if (lowest) throw peer_failure(*lowest);
  // Every rank compares with rank 0, so all find the same difference.
  const auto first = m_.call_of(0, step);
  const auto number = m_.header_of(0, step).number;
  for (std::size_t r = 1; r < m_.ranks(); ++r) {
    const auto other = m_.call_of(r, step);
    const auto its_number = m_.header_of(r, step).number;
    if (first.fits(other) && number == its_number) continue;
    const auto piece = [](std::uint32_t n) { return n == 0 ? std::string() : ", piece " + std::to_string(n); };
    throw peer_failure{0, exit_status::failure,
                       "the tasks differ: task 0 calls " + first.text() + piece(number) + ", task " +
                           std::to_string(r) + " calls " + other.text() + piece(its_number)};
  }
  for (std::size_t r = 0; r < m_.ranks() && among_messages_; ++r)
    if (r != m_.rank() && !m_.all_received_of(r, step))
      fail({static_cast<std::uint32_t>(m_.rank()), exit_status::failure,
            "the tasks differ: task " + std::to_string(m_.rank()) + " calls " + c.text() + ", task " +
                std::to_string(r) + " sends a message"});
}

void memory_collectives::fail(peer_failure mine, std::optional<std::size_t> heard) {
  // Another rank may still be reading the note that this one overwrites. If it does not finish, the others find out as
  // if this rank had died.
  const auto note = m_.last_note();
  if (note != 0 && !await_briefly(note + 1)) throw peer_failure(std::move(mine));
  m_.publish(mine);
  const auto step = m_.step();
  mine = m_.failure_of(m_.rank(), step);  // as the others see it, perhaps cut off
  (void)await_briefly(step, heard);
  for (std::size_t r = 0; r < m_.ranks(); ++r) {
    if (!m_.has_published(r, step) || !m_.has_failed(r, step)) continue;
    auto f = m_.failure_of(r, step);
    if (f.origin < mine.origin) mine = std::move(f);
  }
  throw peer_failure(std::move(mine));
}

// ---- reductions

/// A block's part for a rank; all are of the same length.
std::span<std::byte> memory_collectives::slot(std::span<std::byte> block, std::size_t rank) const {
  const auto each = block.size() / m_.ranks() / cache_line * cache_line;
  return block.subspan(rank * each, each);
}

/// All have published vectors of this length.
void memory_collectives::fold_short(const fold_rule& how, std::span<std::byte> values) {
  peer_collectives::copy_to(values, theirs(0).first(values.size()));
  for (std::size_t r = 1; r < m_.ranks(); ++r) peer_collectives::apply(how, values, theirs(r).first(values.size()));
}

void memory_collectives::fold_pieces(const peer_call& c, const fold_rule& how, std::span<std::byte> values,
                                     folded where) {
  const auto me = m_.rank();
  const auto p = m_.ranks();
  const auto width = element_bytes(how.element);
  const auto length = values.size() / width;
  const auto most = slot(m_.block(0, 0), 0).size();
  const auto piece = [&](std::size_t owner, std::size_t k) {
    const auto range = owned_range_of(length, p, owner);
    return part_of(values.subspan(range.begin * width, range.size() * width), most, k);
  };
  const bool gets_all = where == folded::to_all || (where == folded::to_root && me == c.root);
  // Rank 0's range is the longest.
  const auto pieces = std::max<std::size_t>(1, parts_of(owned_range_of(length, p, 0).size() * width, most));
  const auto steps = pieces + (where == folded::by_owner ? 0 : 1);
  for (std::size_t k = 0; k < steps; ++k) {
    const auto out = begin(c);  // its own slot has what was folded in the previous step
    if (k < pieces)
      for (std::size_t i = 1; i < p; ++i) {
        const auto r = (me + i) % p;
        const auto v = piece(r, k);
        peer_collectives::copy_to(slot(out, r).first(v.size()), v);
      }
    meet(c, k);
    if (k < pieces) {
      const auto own = piece(me, k);
      // All have published this step, so the next one's block is free.
      const auto sum = slot(m_.block(me, m_.step() + 1), me);
      for (std::size_t i = 0; i < parts_of(own.size(), cached_bytes); ++i) {
        const auto mine = part_of(own, cached_bytes, i);
        const auto folded_part = sum.subspan(i * cached_bytes, mine.size());
        const auto of = [&](std::size_t r) {
          return r == me ? mine : slot(theirs(r), me).subspan(i * cached_bytes, mine.size());
        };
        peer_collectives::copy_to(folded_part, of(0));
        for (std::size_t r = 1; r < p; ++r) peer_collectives::apply(how, folded_part, of(r));
        peer_collectives::copy_to(mine, folded_part);
      }
    }
    if (k == 0 || !gets_all) continue;
    for (std::size_t i = 1; i < p; ++i) {
      const auto r = (me + i) % p;
      const auto v = piece(r, k - 1);
      peer_collectives::copy_to(v, slot(theirs(r), r).first(v.size()));
    }
  }
}

void memory_collectives::all_reduce(const peer_call& c, const fold_rule& how, std::span<std::byte> values) {
  if (values.size() >= peer_collectives::long_bytes(m_.ranks())) return fold_pieces(c, how, values, folded::to_all);
  peer_collectives::copy_to(begin(c).first(values.size()), values);
  meet(c, 0);
  fold_short(how, values);
}

void memory_collectives::reduce(const peer_call& c, const fold_rule& how, std::span<std::byte> values) {
  if (values.size() >= peer_collectives::long_bytes(m_.ranks())) return fold_pieces(c, how, values, folded::to_root);
  peer_collectives::copy_to(begin(c).first(values.size()), values);
  meet(c, 0);
  if (m_.rank() == c.root) fold_short(how, values);
}

void memory_collectives::reduce_scatter(const peer_call& c, const fold_rule& how, std::span<std::byte> values) {
  fold_pieces(c, how, values, folded::by_owner);
}

// ---- copies

void memory_collectives::all_gather(
    const peer_call& c, std::span<const std::byte> mine,
    const std::function<std::vector<std::span<std::byte>>(const std::vector<std::size_t>&)>& place) {
  const auto width = element_bytes(c.element);
  std::vector<std::span<std::byte>> to;
  std::size_t steps = 1;
  for (std::size_t k = 0; k < steps; ++k) {
    const auto own = part_of(mine, rank_memory::block_bytes, k);
    peer_collectives::copy_to(begin(c).first(own.size()), own);
    meet(c, k);
    if (k == 0) {
      std::vector<std::size_t> bytes(m_.ranks());
      for (std::size_t r = 0; r < bytes.size(); ++r) bytes[r] = m_.header_of(r, m_.step()).length * width;
      steps = std::max<std::size_t>(1, parts_of(*std::ranges::max_element(bytes), rank_memory::block_bytes));
      to = place(bytes);
      peer_collectives::copy_to(to[m_.rank()], mine);
    }
    for (std::size_t r = 0; r < to.size(); ++r) {
      if (r == m_.rank()) continue;
      const auto v = part_of(to[r], rank_memory::block_bytes, k);
      peer_collectives::copy_to(v, theirs(r).first(v.size()));
    }
  }
}

void memory_collectives::broadcast(const peer_call& c, std::span<const std::byte> mine,
                                   const std::function<std::span<std::byte>(std::size_t)>& place) {
  const bool gives = m_.rank() == c.root;
  std::span<std::byte> to;
  std::size_t steps = 1;
  for (std::size_t k = 0; k < steps; ++k) {
    const auto out = begin(c);
    if (gives) {
      const auto own = part_of(mine, rank_memory::block_bytes, k);
      peer_collectives::copy_to(out.first(own.size()), own);
    }
    meet(c, k);
    if (k == 0) {
      const auto bytes = m_.header_of(c.root, m_.step()).length * element_bytes(c.element);
      steps = std::max<std::size_t>(1, parts_of(bytes, rank_memory::block_bytes));
      if (!gives) to = place(bytes);
    }
    const auto v = part_of(to, rank_memory::block_bytes, k);
    peer_collectives::copy_to(v, theirs(c.root).first(v.size()));
  }
}

/// Each slot begins with the length of the whole block for that rank; the first step reads it.
void memory_collectives::all_to_all(const peer_call& c, const std::vector<std::span<const std::byte>>& blocks,
                                    const std::function<std::span<std::byte>(std::size_t, std::size_t)>& place) {
  const auto me = m_.rank();
  const auto p = m_.ranks();
  const auto most = slot(m_.block(0, 0), 0).size() - sizeof(std::uint64_t);
  std::vector<std::span<std::byte>> in(p);
  std::size_t steps = 1;
  for (std::size_t k = 0; k < steps; ++k) {
    const auto out = begin(c);
    for (std::size_t i = 1; i < p; ++i) {
      const auto r = (me + i) % p;
      const auto v = part_of(blocks[r], most, k);
      const auto to = slot(out, r);
      store_fields(to.data(), std::uint64_t{blocks[r].size()});
      peer_collectives::copy_to(to.subspan(sizeof(std::uint64_t), v.size()), v);
    }
    meet(c, k);
    for (std::size_t r = 0; r < p && k == 0; ++r) {
      for (std::size_t q = 0; q < p; ++q) {
        if (q == r) continue;
        const auto bytes = load_field<std::uint64_t>(slot(theirs(r), q).data());
        steps = std::max(steps, parts_of(bytes, most));
        if (q == me) in[r] = place(r, bytes);
      }
    }
    for (std::size_t i = 1; i < p; ++i) {
      const auto r = (me + i) % p;
      const auto v = part_of(in[r], most, k);
      peer_collectives::copy_to(v, slot(theirs(r), me).subspan(sizeof(std::uint64_t), v.size()));
    }
  }
}

void memory_collectives::barrier(const peer_call& c) {
  (void)begin(c);
  meet(c, 0);
}

}  // namespace paracel
