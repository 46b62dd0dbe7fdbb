// SPDX-License-Identifier: BSD-3-Clause
//
// The operations of peer_collectives, composed of its phases.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <paracel/error.hpp>

#include "core/growing_timer.hpp"
#include "core/trace.hpp"
#include "net/reliable_channel.hpp"
#include "worker/comm/memory_collectives.hpp"
#include "worker/comm/peer_collectives.hpp"

namespace paracel {

namespace {

// Up to this size, data travels with the call in operations whose lengths may differ.
constexpr std::size_t inline_bytes = std::size_t{16} << 10U;

/// The payload of a message, which must have this length.
const std::byte* peer_payload(const byte_vector& message, std::size_t bytes) {
  const auto at = peer_header::payload_at(message);
  if (message.size() != at + bytes) throw protocol_error("a call of another task has another length");
  return message.data() + at;
}

std::uint8_t code_of(const collectives::fold_rule& how) {
  return how.fold ? peer_call::own_fold : static_cast<std::uint8_t>(how.op);
}

}  // namespace

// ---- in memory

shared_memory* peer_collectives::shared_state() { return log_ != nullptr ? nullptr : over_.memory(); }

rank_memory* peer_collectives::memory() {
  const auto* const state = shared_state();
  return state != nullptr ? state->all.get() : nullptr;
}

template <class Operation>
bool peer_collectives::in_memory(const peer_call& c, const Operation& operation) {
  auto* const state = shared_state();
  if (state == nullptr) return false;
  if (!state->known) share_memory(c, *state);
  if (!state->all) return false;
  try {
    operation(memory_collectives(*state->all, over_, limit_, waited_, tag_ != own_tag));
  } catch (const peer_failure& f) {
    raise(f);
  }
  return true;
}

/// Sends messages that carry the call of the first operation. All ranks come to the same decision.
void peer_collectives::share_memory(const peer_call& c, shared_memory& with) {
  const auto p = size();
  memory_offer mine;
  if (with.allowed && p <= rank_memory::most_ranks) mine = memory_offer::of_this_process();
  const auto made = rank() == 0 && mine.host != 0 ? rank_memory::make(p, mine) : nullptr;
  const auto offers = gather_calls(c, std::as_bytes(std::span(&mine, 1)));
  const auto offer_of = [&](std::size_t r) {
    return load_field<memory_offer>(peer_payload(offers[r], sizeof(memory_offer)));
  };
  const auto first = offer_of(0);
  bool together = first.descriptor >= 0;
  std::unique_ptr<rank_memory> opened;
  for (std::size_t r = 0; r < p; ++r) together = together && first.host != 0 && offer_of(r).host == first.host;
  if (together) {
    opened = rank_memory::open(first, rank(), p);
    const std::array done{opened != nullptr};
    for (const auto& m : gather_calls(c, std::as_bytes(std::span(done))))
      together = together && load_field<bool>(peer_payload(m, sizeof(bool)));
  }
  with.set(together ? std::move(opened) : nullptr);
}

// ---- operations

void peer_collectives::all_reduce(const fold_rule& how, std::span<std::byte> values, std::string_view name) {
  const auto width = element_bytes(how.element);
  const peer_call c{.what = peer_operation::all_reduce,
                    .element = how.element,
                    .op = code_of(how),
                    .length = values.size() / width,
                    .name = name};
  if (size() == 1) return;
  const trace::phase_scope traced(trace::phase::all_reduce, 0, values.size());
  if (in_memory(c, [&](auto m) { m.all_reduce(c, how, values); })) return;
  if (values.size() < long_bytes(size())) {
    auto calls = gather_calls(c, values);
    return fold_calls(how, calls, values);
  }
  if (log_ != nullptr) {
    (void)gather_calls(c, {});
    return reduce_logged(how, values);
  }
  const auto steps = steps_of_ranges(c.length, width);
  reduce_ranges(c, how, values, steps);
  if (auto* const over = exchanges(how)) exchange_ranges(*over, c, values, width);
  else gather_ranges(c, values, width, steps, steps);
}

void peer_collectives::reduce(const fold_rule& how, std::span<std::byte> values, std::size_t root,
                              std::string_view name) {
  const auto width = element_bytes(how.element);
  const peer_call c{.what = peer_operation::reduce,
                    .element = how.element,
                    .op = code_of(how),
                    .length = values.size() / width,
                    .root = checked_root(root),
                    .name = name};
  if (size() == 1) return;
  const trace::phase_scope traced(trace::phase::reduce, 0, values.size());
  if (in_memory(c, [&](auto m) { m.reduce(c, how, values); })) return;
  if (log_ != nullptr) {
    (void)gather_calls(c, {});
    return reduce_logged(how, values);
  }
  if (values.size() >= long_bytes(size())) {
    const auto steps = steps_of_ranges(c.length, width);
    reduce_ranges(c, how, values, steps);
    return gather_at_root(c, values, width, steps, steps);
  }
  if (rank() != root) return send(root, c.message(values));
  std::vector<byte_vector> calls(size());
  for (std::size_t r = 0; r < size(); ++r) calls[r] = r == root ? c.message(values) : receive_call(c, r);
  fold_calls(how, calls, values);
}

void peer_collectives::reduce_scatter(const fold_rule& how, std::span<std::byte> values, std::string_view name) {
  const auto width = element_bytes(how.element);
  const peer_call c{.what = peer_operation::reduce_scatter,
                    .element = how.element,
                    .op = code_of(how),
                    .length = values.size() / width,
                    .name = name};
  if (size() == 1) return;
  const trace::phase_scope traced(trace::phase::reduce_scatter, 0, values.size());
  if (in_memory(c, [&](auto m) { m.reduce_scatter(c, how, values); })) return;
  if (log_ != nullptr) {
    (void)gather_calls(c, {});
    return reduce_logged(how, values);
  }
  reduce_ranges(c, how, values, steps_of_ranges(c.length, width));
}

void peer_collectives::all_gather(value_tag element, std::span<const std::byte> mine, std::string_view name,
                                  const std::function<places(const std::vector<std::size_t>&)>& place) {
  const auto width = element_bytes(element);
  const auto me = rank();
  const peer_call c{
      .what = peer_operation::all_gather, .element = element, .length = mine.size() / width, .name = name};
  const trace::phase_scope traced(trace::phase::all_gather, 0, mine.size());
  if (size() > 1 && in_memory(c, [&](auto m) { m.all_gather(c, mine, place); })) return;
  const auto is_inline = [&](std::size_t bytes) { return log_ != nullptr || size() == 1 || bytes <= inline_bytes; };
  auto calls = size() == 1 ? std::vector<byte_vector>(1)
                           : gather_calls(c, is_inline(mine.size()) ? mine : std::span<const std::byte>());
  std::vector<std::size_t> bytes(size(), mine.size());
  std::size_t longest = 0;
  for (std::size_t r = 0; r < size(); ++r) {
    if (r != me) bytes[r] = peer_call::in(calls[r]).length * width;
    if (!is_inline(bytes[r])) longest = std::max(longest, bytes[r]);
  }
  const auto to = place(bytes);
  copy_to(to[me], mine);
  for (std::size_t r = 0; r < size(); ++r)
    if (r != me && is_inline(bytes[r])) copy_to(to[r], payload_of(calls[r]));
  calls.clear();
  if (longest == 0) return;
  if (auto* const over = exchanges()) {
    blocks_out out(size());
    blocks_in in(size());
    for (const auto& [r, n] : others(1)) {
      if (!is_inline(mine.size())) out[r] = mine;
      if (!is_inline(bytes[r])) in[r] = to[r];
    }
    return exchange_blocks(*over, c, out, in);
  }
  const auto steps = steps_of(longest);
  const auto part = [&](auto block, std::size_t k) {
    if (is_inline(block.size())) return block.first(0);
    const auto p = owned_range_of(block.size(), steps, k);
    return block.subspan(p.begin, p.size());
  };
  in_steps(
      c, 1, others(steps), [&](std::size_t k, std::size_t) { return part(mine, k); },
      [&](std::size_t k) {
        for (std::size_t r = 0; r < size(); ++r) {
          if (r == me) continue;
          auto m = receive_piece(c, r, 1 + k);
          copy_to(part(to[r], k), payload_of(m));
        }
      });
}

void peer_collectives::broadcast(value_tag element, std::span<const std::byte> mine, std::size_t root,
                                 std::string_view name, const std::function<std::span<std::byte>(std::size_t)>& place) {
  const auto width = element_bytes(element);
  const auto me = rank();
  peer_call c{.what = peer_operation::broadcast,
              .element = element,
              .length = me == root ? mine.size() / width : 0,
              .root = checked_root(root),
              .name = name};
  if (size() == 1) return;
  const trace::phase_scope traced(trace::phase::broadcast, 0, mine.size());
  if (in_memory(c, [&](auto m) { m.broadcast(c, mine, place); })) return;
  const auto is_short = [&](std::size_t bytes) { return log_ != nullptr || bytes < long_bytes(size()); };
  auto calls = gather_calls(c, me == root && is_short(mine.size()) ? mine : std::span<const std::byte>());
  std::span<std::byte> values;
  if (me == root) {
    values = {const_cast<std::byte*>(mine.data()), mine.size()};  // only read: the root has all
  } else {
    c.length = peer_call::in(calls[root]).length;
    values = place(c.length * width);
    if (is_short(values.size())) copy_to(values, payload_of(calls[root]));
  }
  if (is_short(values.size())) return;
  if (auto* const over = exchanges()) return exchange_broadcast(*over, c, values, width);
  const auto steps = steps_of_ranges(c.length, width);
  in_steps(
      c, 1, around(root, steps),
      [&](std::size_t k, std::size_t r) {
        return me == root ? piece_of(values, width, r, steps, k) : std::span<std::byte>();
      },
      [&](std::size_t k) {
        for (const auto& [r, n] : around(root, steps)) {
          auto m = receive_piece(c, r, 1 + k);
          if (me != root) copy_to(piece_of(values, width, me, steps, k), payload_of(m));
        }
      });
  gather_ranges(c, values, width, steps, 1 + steps, root);
}

void peer_collectives::all_to_all(value_tag element, const std::vector<std::span<const std::byte>>& blocks,
                                  std::string_view name,
                                  const std::function<std::span<std::byte>(std::size_t, std::size_t)>& place) {
  const auto width = element_bytes(element);
  const auto me = rank();
  if (blocks.size() != size())
    throw error("all_to_all: " + std::to_string(blocks.size()) + " blocks, want one for each of the " +
                std::to_string(size()) + " tasks");
  copy_to(place(me, blocks[me].size()), blocks[me]);
  if (size() == 1) return;
  const trace::phase_scope traced(trace::phase::all_to_all, 0);
  peer_call c{.what = peer_operation::all_to_all, .element = element, .name = name};
  if (in_memory(c, [&](auto m) { m.all_to_all(c, blocks, place); })) return;
  if (log_ != nullptr) {
    (void)gather_calls(c, {});
    std::vector<byte_vector> out(size());
    for (std::size_t r = 0; r < size(); ++r)
      if (r != me) out[r].assign(blocks[r].begin(), blocks[r].end());
    const auto in = log_->alltoall(out);
    for (std::size_t r = 0; r < size(); ++r)
      if (r != me) copy_to(place(r, in[r].size()), in[r]);
    return;
  }
  const auto is_inline = [](std::size_t bytes) { return bytes <= inline_bytes; };
  for (const auto& [r, n] : others(1)) {
    c.length = blocks[r].size() / width;
    send(r, c.message(is_inline(blocks[r].size()) ? blocks[r] : std::span<const std::byte>()));
  }
  blocks_out out(size());
  blocks_in in(size());
  peer_list peers;
  for (const auto& [r, n] : others(1)) {
    auto m = receive_call(c, r);
    in[r] = place(r, peer_call::in(m).length * width);
    if (is_inline(in[r].size())) copy_to(std::exchange(in[r], {}), payload_of(m));
    if (!is_inline(blocks[r].size())) out[r] = blocks[r];
    if (const auto most = std::max(out[r].size(), in[r].size()); most > 0) peers.emplace_back(r, steps_of(most));
  }
  if (auto* const over = exchanges()) return exchange_blocks(*over, c, out, in);
  const auto steps_with = [&](std::size_t rank_of_peer) {
    return std::ranges::find(peers, rank_of_peer, &std::pair<std::size_t, std::size_t>::first)->second;
  };
  const auto part = [&](auto block, std::size_t r, std::size_t k) {
    const auto p = owned_range_of(block.size(), steps_with(r), k);
    return block.subspan(p.begin, p.size());
  };
  in_steps(
      c, 1, peers, [&](std::size_t k, std::size_t r) { return part(out[r], r, k); },
      [&](std::size_t k) {
        for (const auto& [r, n] : peers) {
          if (k >= n) continue;
          auto m = receive_piece(c, r, 1 + k);
          copy_to(part(in[r], r, k), payload_of(m));
        }
      });
}

bool peer_collectives::barrier(std::string_view name, bool flag) {
  const peer_call c{.what = peer_operation::barrier, .name = name};
  const trace::phase_scope traced(trace::phase::barrier);
  if (size() == 1 || in_memory(c, [&](auto m) { m.barrier(c); })) return false;
  const std::array<std::byte, 1> raised{};
  const auto calls = gather_calls(c, std::span(raised).first(flag ? 1 : 0));
  return log_ == nullptr &&
         std::ranges::any_of(calls, [](const auto& m) { return m.size() > peer_header::payload_at(m); });
}

/// All ranks get the result.
void peer_collectives::reduce_logged(const fold_rule& how, std::span<std::byte> values) {
  const auto width = element_bytes(how.element);
  const auto block = logged_block_bytes / (how.fold ? size() : 1) / width * width;
  for (std::size_t at = 0; at < values.size(); at += block) {
    const auto part = values.subspan(at, std::min(block, values.size() - at));
    if (!how.fold) {
      log_->allreduce(how.element, part, how.op);
      continue;
    }
    auto all = log_->allgather(part);
    for (std::size_t r = 1; r < all.size(); ++r)
      if (!all[r].empty()) apply(how, all.front(), all[r]);
    copy_to(part, all.front());
  }
}

std::uint32_t peer_collectives::checked_root(std::size_t root) const {
  if (root >= size())
    throw error("a collective has root " + std::to_string(root) + ", want less than the number of tasks, " +
                std::to_string(size()));
  return static_cast<std::uint32_t>(root);
}

// ---- messages of the program

void peer_collectives::send_value(std::size_t to, const value_view& v) {
  if (to >= size())
    throw error("a message to task " + std::to_string(to) + ": want one from 0 to " + std::to_string(size() - 1));
  peer_header f;
  f.kind = peer_message::value;
  f.element = static_cast<std::uint8_t>(v.tag);
  f.length = v.bytes.size();
  if (keeps_) return log_->send_kept(to, f.message({}, v.bytes));
  if (auto* const counts = shared_state()) counts->count_sent(to);
  send(to, f.message({}, v.bytes));
}

byte_vector peer_collectives::receive_value(std::size_t from) {
  if (from >= size())
    throw error("a message from task " + std::to_string(from) + ": want one from 0 to " + std::to_string(size() - 1));
  const peer_call none{.what = {}, .name = {}};
  auto* const shared = memory();
  auto m = keeps_ ? receive_kept(from) : shared != nullptr ? receive_beside(*shared, from) : receive(none, from, true);
  const auto f = peer_header::in(m);
  if (f.kind != peer_message::value)
    fail_together({static_cast<std::uint32_t>(rank()), exit_status::failure,
                   "the tasks differ: task " + std::to_string(rank()) + " receives from task " + std::to_string(from) +
                       ", which calls " + peer_call::in(m).text()});
  if (auto* const counts = shared_state()) counts->count_received(from);
  const auto payload = payload_of(m);
  return collectives::value_bytes({static_cast<value_tag>(f.element), payload});
}

byte_vector peer_collectives::receive_kept(std::size_t from) {
  const auto begin = std::chrono::steady_clock::now();
  auto m = log_->receive_kept(from);
  waited_ += std::chrono::steady_clock::now() - begin;
  if (!m.calls) return std::move(m.bytes);
  std::string called = "a collective of Comm";
  try {
    const auto f = peer_header::in(m.bytes);
    const auto text = payload_of(m.bytes);
    if (f.kind == peer_message::failure)
      fail_together({f.root, static_cast<int>(f.length), {reinterpret_cast<const char*>(text.data()), text.size()}});
    if (f.kind == peer_message::call) called = peer_call::in(m.bytes).text();
  } catch (const protocol_error&) {  // it is none of these
  }
  fail_together({static_cast<std::uint32_t>(rank()), exit_status::failure,
                 "the tasks differ: task " + std::to_string(rank()) + " receives from task " + std::to_string(from) +
                     ", which calls " + called});
}

/// Values are messages even where operations are not: so the sender may call an operation without sending, or fail.
byte_vector peer_collectives::receive_beside(rank_memory& m, std::size_t from) {
  using std::chrono::steady_clock;
  constexpr std::chrono::milliseconds moment{20};
  constexpr std::chrono::milliseconds first_doubt{100};
  const auto begin = steady_clock::now();
  growing_timer doubt(first_doubt, net::late, begin);
  const auto mine = [&](int status, std::string text) {
    return failure{static_cast<std::uint32_t>(rank()), status, std::move(text)};
  };
  for (;;) {
    const auto next = m.step() + 1;
    const bool calls = from != rank() && m.has_published(from, next);
    std::optional<byte_vector> message;
    try {
      message = receive_within(from, moment);
      if (!message && doubt.has_passed()) over_.attend(from, true);
    } catch (const network_error& e) {
      fail_together(mine(e.status(), e.what()), from);
    }
    if (message) {
      waited_ += steady_clock::now() - begin;
      return std::move(*message);
    }
    if (calls && m.has_failed(from, next)) fail_together(m.failure_of(from, next));
    if (calls && m.all_received_of(from, next))
      fail_together(mine(exit_status::failure, "the tasks differ: task " + std::to_string(rank()) +
                                                   " receives from task " + std::to_string(from) + ", which calls " +
                                                   m.call_of(from, next).text()));
    if (limit_ && steady_clock::now() - begin > *limit_)
      fail_together(mine(exit_status::failure, "no message from task " + std::to_string(from) + " for " +
                                                   std::to_string(limit_->count()) + " ms"),
                    from);
  }
}

}  // namespace paracel
