// SPDX-License-Identifier: BSD-3-Clause
#include "server/replication/replica.hpp"

#include <algorithm>
#include <bitset>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include <paracel/error.hpp>

#include "core/check.hpp"
#include "server/replication/replication_entries.hpp"
#include "server/request/verb_rules.hpp"
#include "server/store/partition_records.hpp"

namespace paracel::srv {

using net::status;

namespace {

constexpr std::chrono::milliseconds log_interval{1000};

}  // namespace

void replica::begin_epoch() {
  pieces_.clear();
  std::bitset<partition_count> gone;
  context_.each_partition([&](std::uint16_t partition) {
    const auto chain = context_.view->router.chain(partition);
    const bool is_ours = std::find(chain.begin(), chain.end(), context_.view->self) != chain.end();
    head_of_[context_.place_of(partition)] = is_ours && chain.front() != context_.view->self ? chain.front() : none;
    const auto begun = partial_.find(partition);
    if (!is_ours) {
      auto& at = context_.index[context_.place_of(partition)];
      if (at != 0 || begun != partial_.end()) gone.set(partition);
      at = 0;
    } else if (begun == partial_.end() || chain.front() != context_.view->self) {
      return;
    } else if (!begun->second.is_aside) {
      throw error("partition " + std::to_string(partition) + " was lost while it was being copied here");
    }
    // As its head we have a complete older version, and nothing newer was answered.
    if (begun != partial_.end()) partial_.erase(begun);
  });
  if (gone.any()) context_.store.drop_partitions(gone);
}

/// Reassembles the message of this piece. After the last one `whole` is its body, if it came in pieces.
replica::piece replica::join_pieces(const net::request_view& request, std::vector<std::byte>& whole) {
  const auto& h = request.header;
  const std::pair sender{h.client, h.rank};
  const auto begun = pieces_.find(sender);
  if (h.count == 0 && begun == pieces_.end()) return piece::last;
  if (begun != pieces_.end() && h.count + 1 != begun->second.left) {  // otherwise the message might never be complete
    pieces_.erase(begun);
    return piece::unexpected;
  }
  auto& all = begun != pieces_.end() ? begun->second : pieces_[sender];
  if (!all.held.take(context_.budgets.pieces, request.body.size() + sizeof all)) {
    throw error("what another server sends in pieces is more than " + std::to_string(context_.budgets.pieces.limit()) +
                " bytes: a replica of it cannot be kept");
  }
  all.left = h.count;
  all.bytes.insert(all.bytes.end(), request.body.begin(), request.body.end());
  if (h.count != 0) return piece::more;
  whole = std::move(all.bytes);
  pieces_.erase(sender);
  return piece::last;
}

/// Whether this thread has a replica of the partition, and the sender is its head.
bool replica::follows(std::uint16_t partition, const server_identity& sender) const {
  if (!context_.is_own(partition)) return false;
  const auto head = head_of_[context_.place_of(partition)];
  if (head == none) return false;
  const auto& from = context_.view->members.servers[head];
  return from.slot == sender.slot && from.incarnation == sender.incarnation;
}

void replica::replicate(const net::request_view& request, completion done) {
  done.leave_through(at_once_);
  std::vector<std::byte> whole;
  const auto is = join_pieces(request, whole);
  if (is == piece::more) return answer(done, {});
  if (is == piece::unexpected) return done.fail(status::bad_request, "a piece that is not the next one");
  const auto all = whole.empty() ? request.body : std::span<const std::byte>(whole);
  auto left = all;
  std::uint32_t thread = 0;
  bool fits = take_fields(left, thread) && thread == context_.self().thread;
  const auto entries = left;
  const auto between = link::of(request.header);
  const server_identity sender{between.from_slot, between.from};
  replication_entry e;
  std::string why;
  while (fits && !left.empty())
    fits = take_entry(left, e) && follows(e.partition, sender) &&
           context_.store.check_replica(e.partition, e.records, why);
  if (!fits) {
    std::string text = "what is to be replicated is malformed, or not a replica of this thread";
    if (!why.empty()) {  // the sender is its head
      text = "a replica of partition " + std::to_string(e.partition) + " is malformed: " + why;
      if (context_.options.log && context_.now >= next_log_) {
        context_.options.log("refuses what s" + std::to_string(sender.slot) + " sends: " + text);
        next_log_ = context_.now + log_interval;
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
  answer(done, lacking);
}

void replica::apply_records(std::uint16_t partition, std::span<const std::byte> records) {
  std::string why;
  if (context_.store.apply_replica(partition, records, why) == status::ok) return;
  // It is then not a replica, and cannot become one: better to lose a server than to keep a broken replica.
  throw error("a copy of partition " + std::to_string(partition) + " cannot be kept: " + why);
}

void replica::drop(std::uint16_t partition) {
  std::bitset<partition_count> one;
  one.set(partition);
  context_.store.drop_partitions(one);
}

/// Returns: whether the replica is now at its head's index, or will be after the parts still to come.
bool replica::apply(const replication_entry& e) {
  PARACEL_CHECK(context_.is_own(e.partition));
  auto& at = context_.index[context_.place_of(e.partition)];
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
    if (!keeps && e.what == entry_kind::whole_state && (at != 0 || is_torn)) drop(e.partition);
    if (!keeps) at = 0;  // until it is complete
    if (e.after == 0) {
      apply_records(e.partition, e.records);
      at = e.index;
      return true;
    }
    begun = partial_.try_emplace(e.partition).first;
    begun->second.index = e.index;
    begun->second.after = e.after;
    begun->second.is_aside = keeps;
  }
  auto& p = begun->second;
  if (p.is_aside && e.after != 0 && p.held.take(context_.budgets.pieces, e.records.size())) {
    p.aside.insert(p.aside.end(), e.records.begin(), e.records.end());
    return true;
  }
  if (p.is_aside) {
    drop(e.partition);
    at = 0;
    apply_records(e.partition, p.aside);
    p.is_aside = false;
    p.aside = {};
    p.held = {};
  }
  apply_records(e.partition, e.records);
  if (e.after != 0) return true;
  PARACEL_ASSERT(!p.is_aside);
  partial_.erase(begun);
  at = e.index;
  return true;
}

void replica::answer(completion& done, const std::vector<std::uint16_t>& lacking) {
  net::reply_header reply;
  reply.count = static_cast<std::uint32_t>(lacking.size());
  done.answer(reply, std::as_bytes(std::span(lacking)));
}

}  // namespace paracel::srv
