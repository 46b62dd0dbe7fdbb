// SPDX-License-Identifier: BSD-3-Clause
#include "worker/comm/peer_collectives.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>
#include <paracel/free_memory.hpp>

#include "core/reduction.hpp"
#include "worker/comm/memory_collectives.hpp"

namespace paracel {

namespace {

constexpr std::uint64_t collective_communicator = 1;
// How many pieces a rank sends ahead of those it has received.
constexpr std::size_t window = 2;
// Up to this many ranks send short vectors to each other directly.
constexpr std::size_t most_direct = 3;
constexpr std::size_t largest_piece = std::size_t{256} << 10U;
// MPI counts in int.
constexpr std::size_t largest_exchange = std::size_t{256} << 20U;
// How long a failing rank waits for the failures of the others.
constexpr std::chrono::milliseconds farewell_of_failure{2000};

/// The exchanges of an operation. After a failure midway some are still open, and their memory is about to be freed.
class open_exchanges {
 public:
  explicit open_exchanges(comm_exchanges& over) : over_(over) {}
  open_exchanges(const open_exchanges&) = delete;
  open_exchanges& operator=(const open_exchanges&) = delete;
  ~open_exchanges() { over_.give_up_exchanges(); }

 private:
  comm_exchanges& over_;
};

}  // namespace

// ---- messages

void peer_collectives::apply(const fold_rule& how, std::span<std::byte> into, std::span<const std::byte> from) {
  if (into.size() != from.size()) throw protocol_error("a piece of another task has another length");
  if (into.empty()) return;
  if (how.fold) how.fold(into, from);
  else fold(how.element, into, from, how.op);
}

void peer_collectives::copy_to(std::span<std::byte> to, std::span<const std::byte> from) {
  if (to.size() != from.size()) throw protocol_error("a piece of another task has another length");
  if (!to.empty() && to.data() != from.data()) std::memcpy(to.data(), from.data(), to.size());
}

void peer_collectives::send(std::size_t to, byte_vector bytes) {
  try {
    over_.send({static_cast<int>(to), tag_, collective_communicator}, std::move(bytes), false, limit_);
  } catch (const network_error& e) {
    fail_together({static_cast<std::uint32_t>(rank()), e.status(), e.what()});
  }
}

std::optional<byte_vector> peer_collectives::receive_within(std::size_t from, patience limit) {
  const auto ticket = over_.post({static_cast<int>(from), tag_, collective_communicator});
  try {
    if (auto m = over_.take(ticket, limit)) return std::move(m->bytes);
  } catch (...) {
    over_.give_up(ticket);
    throw;
  }
  over_.give_up(ticket);
  return std::nullopt;
}

/// The next message of a rank. `first`: the rank may not have begun the operation yet.
byte_vector peer_collectives::receive(const peer_call& c, std::size_t from, bool first) {
  const auto begin = std::chrono::steady_clock::now();
  std::optional<byte_vector> m;
  try {
    m = receive_within(from, limit_);
  } catch (const network_error& e) {
    fail_together({static_cast<std::uint32_t>(rank()), e.status(), c.text() + ": " + e.what()}, from);
  }
  if (first) waited_ += std::chrono::steady_clock::now() - begin;
  if (!m)
    fail_together({static_cast<std::uint32_t>(rank()), exit_status::failure,
                   c.text() + ": no message from task " + std::to_string(from) + " for " +
                       std::to_string(limit_->count()) + " ms"},
                  from);
  const auto f = peer_header::in(*m);
  if (f.kind == peer_message::failure)
    fail_together({f.root, static_cast<int>(f.length),
                   std::string(reinterpret_cast<const char*>(payload_of(*m).data()), payload_of(*m).size())},
                  from);
  return std::move(*m);
}

byte_vector peer_collectives::receive_call(const peer_call& c, std::size_t from) {
  auto m = receive(c, from, true);
  compare(c, from, m);
  if (peer_header::in(m).kind != peer_message::call) throw protocol_error("a call was to come from another task");
  return m;
}

byte_vector peer_collectives::receive_piece(const peer_call& c, std::size_t from, std::size_t number) {
  if (number == 0) return receive_call(c, from);
  auto m = receive(c, from, false);
  const auto f = peer_header::in(m);
  if (f.kind != peer_message::piece) compare(c, from, m);
  if (f.kind != peer_message::piece || f.number != number)
    throw protocol_error(c.text() + ": task " + std::to_string(from) + " sent piece " + std::to_string(f.number) +
                         ", want " + std::to_string(number));
  return m;
}

/// Makes all ranks fail if the call in another rank's message differs from this one.
void peer_collectives::compare(const peer_call& mine, std::size_t from, std::span<const std::byte> theirs) {
  const auto kind = peer_header::in(theirs).kind;
  if (kind == peer_message::piece) return;
  std::string other = "sends a message";
  if (kind != peer_message::value) {
    const auto c = peer_call::in(theirs);
    if (c.fits(mine)) return;
    other = "calls " + c.text();
  }
  const auto me = rank();
  const auto one = "task " + std::to_string(me) + " calls " + mine.text();
  const auto two = "task " + std::to_string(from) + " " + other;
  const auto text = "the tasks differ: " + (me < from ? one + ", " + two : two + ", " + one);
  fail_together({static_cast<std::uint32_t>(me), exit_status::failure, text});
}

// ---- failures

void peer_collectives::raise(const failure& f) {
  failed_ = true;
  switch (f.status) {
    case exit_status::usage:
      throw usage_error(f.text);
    case exit_status::config:
      throw config_error(f.text);
    case exit_status::data:
      throw data_error(f.text);
    case exit_status::plugin:
      throw plugin_error(f.text);
    default:
      throw error(f.text, f.status);
  }
}

void peer_collectives::fail_together(failure mine, std::optional<std::size_t> heard) {
  const auto me = rank();
  if (size() == 1) raise(mine);
  if (auto* const m = memory()) {
    try {
      memory_collectives(*m, over_, limit_, waited_, tag_ != own_tag).fail(std::move(mine), heard);
    } catch (const peer_failure& all) {
      raise(all);
    }
  }
  peer_header f;
  f.kind = peer_message::failure;
  f.length = static_cast<std::uint64_t>(mine.status);
  f.root = mine.origin;
  const auto m = f.message({}, std::as_bytes(std::span(mine.text)));
  if (log_ != nullptr) (void)gather_logged(m);
  for (std::size_t r = 0; r < size(); ++r) {
    if (r == me) continue;
    try {
      over_.send({static_cast<int>(r), tag_, collective_communicator}, m, false, limit_);
    } catch (const network_error&) {  // that rank has exited and needs no reason
    }
  }
  const auto end = std::chrono::steady_clock::now() + farewell_of_failure;
  for (std::size_t r = 0; r < size(); ++r) {
    if (r == me || r == heard) continue;
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      std::optional<byte_vector> theirs;
      try {
        theirs = receive_within(r, std::max(left, std::chrono::milliseconds{0}));
      } catch (const network_error&) {
      }
      if (!theirs) break;
      const auto g = peer_header::in(*theirs);
      if (g.kind != peer_message::failure) continue;
      if (g.root < mine.origin) {
        const auto text = payload_of(*theirs);
        mine = {g.root, static_cast<int>(g.length), {reinterpret_cast<const char*>(text.data()), text.size()}};
      }
      break;
    }
  }
  raise(mine);
}

void peer_collectives::fail(const std::string& what, int status) {
  fail_together({static_cast<std::uint32_t>(rank()), status, what});
}

// ---- short vectors: every rank gets every call

std::vector<byte_vector> peer_collectives::gather_calls(const peer_call& c, std::span<const std::byte> payload) {
  if (log_ != nullptr) return gather_logged(c.message(payload));
  const auto p = size();
  if (p <= most_direct) return gather_directly(c, payload);
  const auto me = rank();
  std::vector<byte_vector> calls(p);
  calls[me] = c.message(payload);
  for (std::size_t distance = 1; distance < p; distance *= 2) {
    const auto count = std::min(distance, p - distance);
    peer_header f;
    f.kind = peer_message::calls;
    byte_vector m;
    std::size_t bytes = peer_header::bytes;
    for (std::size_t i = 0; i < count; ++i) bytes += sizeof(std::uint64_t) + calls[(me + i) % p].size();
    m.reserve(bytes);
    put_fields(m, f);
    for (std::size_t i = 0; i < count; ++i) {
      const auto& one = calls[(me + i) % p];
      put_fields(m, std::uint64_t{one.size()});
      m.insert(m.end(), one.begin(), one.end());
    }
    send((me + p - distance) % p, std::move(m));
    const auto from = (me + distance) % p;
    const auto got = receive(c, from, true);
    compare(c, from, got);
    if (peer_header::in(got).kind != peer_message::calls) throw protocol_error("calls were to come from another task");
    byte_reader rest(got, peer_header::bytes);
    for (std::size_t i = 0; i < count; ++i) {
      const auto r = (from + i) % p;
      const auto n = rest.get<std::uint64_t>();
      const auto* begin = rest.take(n);
      calls[r].assign(begin, begin + n);
      compare(c, r, calls[r]);
    }
  }
  return calls;
}

std::vector<byte_vector> peer_collectives::gather_directly(const peer_call& c, std::span<const std::byte> payload) {
  const auto p = size();
  const auto me = rank();
  std::vector<byte_vector> calls(p);
  calls[me] = c.message(payload);
  for (std::size_t i = 1; i < p; ++i) send((me + i) % p, calls[me]);
  for (std::size_t r = 0; r < p; ++r)
    if (r != me) calls[r] = receive_call(c, r);
  return calls;
}

/// `mine`: a call, or a failure.
std::vector<byte_vector> peer_collectives::gather_logged(std::span<const std::byte> mine) {
  const auto begin = std::chrono::steady_clock::now();
  auto all = log_->allgather(mine);
  waited_ += std::chrono::steady_clock::now() - begin;
  for (auto& m : all) {
    if (m.empty()) continue;  // of a worker that was ejected
    const auto f = peer_header::in(m);
    if (f.kind != peer_message::failure) continue;
    const auto text = payload_of(m);
    raise({f.root, static_cast<int>(f.length), {reinterpret_cast<const char*>(text.data()), text.size()}});
  }
  // Every rank compares with rank 0, so all find the same difference.
  const auto first = peer_call::in(all.front());
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    const auto other = peer_call::in(all[r]);
    if (!first.fits(other))
      raise({0, exit_status::failure,
             "the tasks differ: task 0 calls " + first.text() + ", task " + std::to_string(r) + " calls " +
                 other.text()});
  }
  return all;
}

void peer_collectives::fold_calls(const fold_rule& how, std::vector<byte_vector>& calls, std::span<std::byte> into) {
  const auto sum = payload_of(calls.front());
  for (std::size_t r = 1; r < calls.size(); ++r)
    if (!calls[r].empty()) apply(how, sum, payload_of(calls[r]));
  copy_to(into, sum);
}

// ---- long vectors, in pieces

std::size_t peer_collectives::long_bytes(std::size_t ranks) noexcept {
  return ranks <= 2 ? std::size_t{64} << 10U : std::size_t{16} << 10U;
}

/// Into how many pieces `bytes` are cut.
std::size_t peer_collectives::steps_of(std::size_t bytes) const {
  const auto most = std::min(largest_piece, chunk_bytes / (2 * window * (size() - 1)) / 64 * 64);
  const auto piece = std::max(most, std::size_t{64});
  return std::max<std::size_t>(1, (bytes + piece - 1) / piece);
}

/// Sends `piece(k, r)` for k = 0 ... to each peer, at most `window` ahead of `take_all(k)`, which receives one from
/// each peer. `peers`: pairs of a rank and the number of pieces exchanged with it; both ends must agree on it.
void peer_collectives::in_steps(const peer_call& c, std::size_t first_step, const peer_list& peers,
                                const next_piece& piece, const std::function<void(std::size_t)>& take_all) {
  std::size_t steps = 0;
  for (const auto& [r, n] : peers) steps = std::max(steps, n);
  std::size_t sent = 0;
  for (std::size_t k = 0; k < steps; ++k) {
    for (; sent < std::min(steps, k + window); ++sent) {
      for (const auto& [r, n] : peers) {
        if (sent >= n) continue;
        if (first_step + sent == 0) {
          send(r, c.message(piece(sent, r)));
          continue;
        }
        peer_header f;
        f.kind = peer_message::piece;
        f.number = static_cast<std::uint32_t>(first_step + sent);
        send(r, f.message({}, piece(sent, r)));
      }
    }
    take_all(k);
  }
}

/// All other ranks, starting with the next one, so that not all send to the same rank at once.
peer_collectives::peer_list peer_collectives::others(std::size_t steps) const {
  peer_list all;
  for (std::size_t i = 1; i < size(); ++i) all.emplace_back((rank() + i) % size(), steps);
  return all;
}

/// Between the root and each other rank only.
peer_collectives::peer_list peer_collectives::around(std::size_t root, std::size_t steps) const {
  if (rank() == root) return others(steps);
  return {{root, steps}};
}

std::span<std::byte> peer_collectives::piece_of(std::span<std::byte> values, std::size_t width, std::size_t owner,
                                                std::size_t steps, std::size_t k) const {
  const auto range = owned_range_of(values.size() / width, size(), owner);
  const auto part = owned_range_of(range.size(), steps, k);
  return values.subspan((range.begin + part.begin) * width, part.size() * width);
}

std::span<std::byte> peer_collectives::range_of(std::span<std::byte> values, std::size_t width,
                                                std::size_t owner) const {
  return piece_of(values, width, owner, 1, 0);
}

/// Steps of the longest range.
std::size_t peer_collectives::steps_of_ranges(std::size_t length, std::size_t width) const {
  return steps_of(owned_range_of(length, size(), 0).size() * width);
}

/// The first phase: folds this rank's range in place.
void peer_collectives::scatter_folded(const peer_call& c, const fold_rule& how, std::span<std::byte> values,
                                      std::size_t steps) {
  const auto width = element_bytes(how.element);
  const auto me = rank();
  const auto piece = [&](std::size_t k, std::size_t r) { return piece_of(values, width, r, steps, k); };
  in_steps(c, 0, others(steps), piece, [&](std::size_t k) {
    const auto own = piece(k, me);
    byte_vector lower;  // the pieces of the ranks below this one, folded
    for (std::size_t r = 0; r < size(); ++r) {
      if (r == me) {
        if (me == 0) continue;
        apply(how, payload_of(lower), own);
        copy_to(own, payload_of(lower));
        free_memory(lower);
        continue;
      }
      auto m = receive_piece(c, r, k);
      if (r > me) apply(how, own, payload_of(m));
      else if (r == 0) lower = std::move(m);
      else apply(how, payload_of(lower), payload_of(m));
    }
  });
}

// ---- long vectors, by exchanges. All ranks have called the same, so each knows what the others send.

comm_exchanges* peer_collectives::exchanges() const { return log_ != nullptr ? nullptr : over_.exchanges(); }

comm_exchanges* peer_collectives::exchanges(const fold_rule& how) const { return how.fold ? nullptr : exchanges(); }

void peer_collectives::finish_exchange(comm_exchanges& over, const peer_call& c) {
  const auto missing = over.finish_exchange(limit_);
  if (!missing) return;
  const auto whom =
      *missing == rank() ? "another task has not received" : "no data from task " + std::to_string(*missing);
  fail_together({static_cast<std::uint32_t>(rank()), exit_status::failure,
                 c.text() + ": " + whom + " for " + std::to_string(limit_->count()) + " ms"},
                missing);
}

/// The first phase, as scatter_folded.
void peer_collectives::exchange_folded(comm_exchanges& over, const peer_call& c, const fold_rule& how,
                                       std::span<std::byte> values, std::size_t steps) {
  const auto width = element_bytes(how.element);
  const auto me = rank();
  const auto longest = piece_of(values, width, me, steps, 0).size();
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(std::min(window, steps) * size() * longest);
  // What rank r has sent of this rank's range; place 0 accumulates the sum of the ranks below this one.
  const auto received = [&](std::size_t k, std::size_t r) {
    return std::span(memory.get() + (k % window * size() + r) * longest, piece_of(values, width, me, steps, k).size());
  };
  const open_exchanges guard(over);
  const auto begin = [&](std::size_t k) {
    std::vector<std::span<const std::byte>> out(size());
    std::vector<std::span<std::byte>> in(size());
    for (const auto& [r, n] : others(1)) {
      in[r] = received(k, r);
      out[r] = piece_of(values, width, r, steps, k);
    }
    over.begin_exchange(out, in);
  };
  for (std::size_t k = 0; k < std::min(window, steps); ++k) begin(k);
  for (std::size_t k = 0; k < steps; ++k) {
    finish_exchange(over, c);
    const auto own = piece_of(values, width, me, steps, k);
    if (me > 0) {
      const auto lower = received(k, 0);
      for (std::size_t r = 1; r < me; ++r) apply(how, lower, received(k, r));
      apply(how, lower, own);
      copy_to(own, lower);
    }
    for (std::size_t r = me + 1; r < size(); ++r) apply(how, own, received(k, r));
    if (k + window < steps) begin(k + window);
  }
}

/// The first phase, by exchanges if they are supported and the vector is long enough.
void peer_collectives::reduce_ranges(const peer_call& c, const fold_rule& how, std::span<std::byte> values,
                                     std::size_t steps) {
  auto* const over = exchanges(how);
  if (over == nullptr || values.size() < long_bytes(size())) return scatter_folded(c, how, values, steps);
  (void)gather_calls(c, {});
  exchange_folded(*over, c, how, values, steps);
}

/// `out[r]` goes to each rank r, `in[r]` comes from it. Ranks may take different numbers of steps: each step waits only
/// for peers that have the same step.
void peer_collectives::exchange_blocks(comm_exchanges& over, const peer_call& c, const blocks_out& out,
                                       const blocks_in& in) {
  std::size_t longest = 0;
  for (std::size_t r = 0; r < size(); ++r) longest = std::max({longest, out[r].size(), in[r].size()});
  const auto part = [](auto block, std::size_t at) {
    const auto begin = std::min(at, block.size());
    return block.subspan(begin, std::min(largest_exchange, block.size() - begin));
  };
  const open_exchanges guard(over);
  for (std::size_t at = 0; at < longest; at += largest_exchange) {
    blocks_out sent(size());
    blocks_in received(size());
    for (const auto& [r, n] : others(1)) {
      sent[r] = part(out[r], at);
      received[r] = part(in[r], at);
    }
    over.begin_exchange(sent, received);
    finish_exchange(over, c);
  }
}

/// The second phase, as gather_ranges.
void peer_collectives::exchange_ranges(comm_exchanges& over, const peer_call& c, std::span<std::byte> values,
                                       std::size_t width, std::optional<std::size_t> has_all) {
  blocks_out out(size());
  blocks_in in(size());
  for (const auto& [r, n] : others(1)) {
    if (r != has_all) out[r] = range_of(values, width, rank());
    if (rank() != has_all) in[r] = range_of(values, width, r);
  }
  exchange_blocks(over, c, out, in);
}

/// Of a long vector whose length all ranks know. Two ranks send it whole, more its ranges, as gather_ranges.
void peer_collectives::exchange_broadcast(comm_exchanges& over, const peer_call& c, std::span<std::byte> values,
                                          std::size_t width) {
  const bool whole = size() == 2;
  blocks_out out(size());
  blocks_in in(size());
  if (rank() != c.root) in[c.root] = whole ? values : range_of(values, width, rank());
  else
    for (const auto& [r, n] : others(1)) out[r] = whole ? values : range_of(values, width, r);
  exchange_blocks(over, c, out, in);
  if (!whole) exchange_ranges(over, c, values, width, c.root);
}

/// The second phase: every rank gets every range; `has_all` only sends its own.
void peer_collectives::gather_ranges(const peer_call& c, std::span<std::byte> values, std::size_t width,
                                     std::size_t steps, std::size_t first_step, std::optional<std::size_t> has_all) {
  const auto me = rank();
  in_steps(
      c, first_step, others(steps),
      [&](std::size_t k, std::size_t r) {
        return r == has_all ? std::span<std::byte>() : piece_of(values, width, me, steps, k);
      },
      [&](std::size_t k) {
        for (std::size_t r = 0; r < size(); ++r) {
          if (r == me) continue;
          auto m = receive_piece(c, r, first_step + k);
          if (me != has_all) copy_to(piece_of(values, width, r, steps, k), payload_of(m));
        }
      });
}

/// The second phase if only the root gets the result.
void peer_collectives::gather_at_root(const peer_call& c, std::span<std::byte> values, std::size_t width,
                                      std::size_t steps, std::size_t first_step) {
  const auto me = rank();
  in_steps(
      c, first_step, around(c.root, steps),
      [&](std::size_t k, std::size_t) {
        return me == c.root ? std::span<std::byte>() : piece_of(values, width, me, steps, k);
      },
      [&](std::size_t k) {
        if (me != c.root) return (void)receive_piece(c, c.root, first_step + k);
        for (std::size_t r = 0; r < size(); ++r) {
          if (r == me) continue;
          auto m = receive_piece(c, r, first_step + k);
          copy_to(piece_of(values, width, r, steps, k), payload_of(m));
        }
      });
}

}  // namespace paracel
