// SPDX-License-Identifier: BSD-3-Clause
//
// How a replica handles messages: see the head of replication_chain.hpp. Nothing is changed before the whole message is
// known to be well-formed and from our predecessor in the chains of its partitions.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <paracel/error.hpp>

#include "core/check.hpp"
#include "server/replication/replication_chain.hpp"
#include "server/replication/replication_entries.hpp"
#include "server/request/verb_rules.hpp"
#include "server/store/partition_records.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

namespace {

constexpr std::chrono::milliseconds log_interval{1000};

}  // namespace

/// Whether the sender is a thread of a server of this epoch, and means us.
bool replication_chain::is_of_peer(const net::request_header& h) const {
  const auto between = link::of(h);
  return between.to == options_.incarnation && view_->owned.knows({between.from_slot, between.from});
}

/// Reassembles the message of this piece. After the last one `whole` is its body, if it came in pieces.
replication_chain::piece replication_chain::join_pieces(const net::request_view& request,
                                                        std::vector<std::byte>& whole) {
  const auto& h = request.header;
  const std::pair sender{h.client, h.rank};
  const auto begun = pieces_.find(sender);
  if (h.count == 0 && begun == pieces_.end()) return piece::last;
  if (begun != pieces_.end() && h.count + 1 != begun->second.left) {  // otherwise the message might never be complete
    pieces_.erase(begun);
    return piece::unexpected;
  }
  auto& all = begun != pieces_.end() ? begun->second : pieces_[sender];
  if (!all.held.take(budgets_.pieces, request.body.size() + sizeof all)) {
    throw error("what another server sends in pieces is more than " + std::to_string(budgets_.pieces.limit()) +
                " bytes: a replica of it cannot be kept");
  }
  all.left = h.count;
  all.bytes.insert(all.bytes.end(), request.body.begin(), request.body.end());
  if (h.count != 0) return piece::more;
  whole = std::move(all.bytes);
  pieces_.erase(sender);
  return piece::last;
}

/// Whether this thread has a replica of the partition, and the sender is our predecessor.
bool replication_chain::follows(std::uint16_t partition, const server_identity& sender) const {
  if (partition >= partition_count || partition % options_.threads != options_.index) return false;
  const auto chain = view_->router.chain(partition);
  const auto us = std::find(chain.begin(), chain.end(), view_->self);
  if (us == chain.end() || us == chain.begin()) return false;
  const auto& before = view_->members.servers[*(us - 1)];
  return before.slot == sender.slot && before.incarnation == sender.incarnation;
}

void replication_chain::replicate(const net::request_view& request, completion done) {
  done.leave_through(at_once_);
  std::vector<std::byte> whole;
  const auto is = join_pieces(request, whole);
  if (is == piece::more) return answer(done, {});
  if (is == piece::unexpected) return done.fail(status::bad_request, "a piece that is not the next one");
  const auto all = whole.empty() ? request.body : std::span<const std::byte>(whole);
  const hop us{options_.slot, options_.at == place::clock ? clock_thread : options_.index};
  auto left = all;
  std::uint32_t hops = 0;
  hop first{};
  bool fits = take_fields(left, hops, first) && hops != 0 && first == us && (hops - 1) <= left.size() / sizeof(hop);
  route rest(fits ? hops - 1 : 0);
  for (auto& to : rest) fits = take_fields(left, to);
  const auto entries = left;
  const auto between = link::of(request.header);
  const server_identity sender{between.from_slot, between.from};
  replication_entry e;
  std::string why;
  while (fits && !left.empty())
    fits = take_entry(left, e) && follows(e.partition, sender) && store_.check_replica(e.partition, e.records, why);
  if (!fits) {
    std::string text = "what is to be replicated is malformed, or not a replica of this thread";
    if (!why.empty()) {  // the sender is our predecessor
      text = "a replica of partition " + std::to_string(e.partition) + " is malformed: " + why;
      if (options_.log && now_ >= next_log_) {
        options_.log("refuses what s" + std::to_string(sender.slot) + " sends: " + text);
        next_log_ = now_ + log_interval;
      }
    }
    return done.fail(status::bad_request, text);
  }
  std::vector<std::uint16_t> lacking;
  for (left = entries; !left.empty();) {
    const bool is_one = take_entry(left, e);
    PARACEL_CHECK(is_one);  // as above
    if (!apply(e)) lacking.push_back(e.partition);
  }
  if (rest.empty()) return answer(done, lacking);
  const auto number = transmit(rest.front(), verb::replicate, replicate_body(rest, entries));
  forwarded_.emplace(number, forwarded{std::move(done), std::move(lacking), rest.front(), now_});
}

void replication_chain::apply_to_replica(std::uint16_t partition, std::span<const std::byte> records) {
  std::string why;
  if (store_.apply_replica(partition, records, why) == status::ok) return;
  // It is then not a replica, and cannot become one: better to lose a server than to keep a broken replica.
  throw error("a copy of partition " + std::to_string(partition) + " cannot be kept: " + why);
}

void replication_chain::empty_copy(std::uint16_t partition) {
  std::bitset<partition_count> one;
  one.set(partition);
  store_.drop_partitions(one);
}

/// Returns: whether the replica is now at its head's index, or will be after the parts still to come.
bool replication_chain::apply(const replication_entry& e) {
  PARACEL_CHECK(e.partition % options_.threads == options_.index);
  auto& at = index_[e.partition / options_.threads];
  auto begun = partial_.find(e.partition);
  if (e.what == entry_kind::more_state) {
    if (begun == partial_.end() || begun->second.index != e.index || begun->second.after != e.after + 1) {
      return e.after != 0 || at == e.index;  // the first part was not needed, or all of it is sent again
    }
    begun->second.after = e.after;
  } else {
    const bool is_torn = begun != partial_.end() && !begun->second.is_aside;
    if (at == e.index && !is_torn) return true;
    if (e.what == entry_kind::question || (e.what == entry_kind::changes && (at != e.previous || is_torn)))
      return false;
    if (begun != partial_.end()) partial_.erase(begun);
    const bool keeps = e.after != 0 && at != 0;
    if (!keeps && e.what == entry_kind::whole_state && (at != 0 || is_torn)) empty_copy(e.partition);
    if (!keeps) at = 0;  // until it is complete
    if (e.after == 0) {
      apply_to_replica(e.partition, e.records);
      at = e.index;
      return true;
    }
    begun = partial_.try_emplace(e.partition).first;
    begun->second.index = e.index;
    begun->second.after = e.after;
    begun->second.is_aside = keeps;
  }
  auto& p = begun->second;
  if (p.is_aside && e.after != 0 && p.held.take(budgets_.pieces, e.records.size())) {
    p.aside.insert(p.aside.end(), e.records.begin(), e.records.end());
    return true;
  }
  if (p.is_aside) {
    empty_copy(e.partition);
    at = 0;
    apply_to_replica(e.partition, p.aside);
    p.is_aside = false;
    p.aside = {};
    p.held = {};
  }
  apply_to_replica(e.partition, e.records);
  if (e.after != 0) return true;
  PARACEL_ASSERT(!p.is_aside);
  partial_.erase(begun);
  at = e.index;
  return true;
}

void replication_chain::answer(completion& done, const std::vector<std::uint16_t>& lacking) {
  net::reply_header reply;
  reply.count = static_cast<std::uint32_t>(lacking.size());
  done.answer(reply, std::as_bytes(std::span(lacking)));
}

}  // namespace paracel::srv
