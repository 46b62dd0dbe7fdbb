// SPDX-License-Identifier: BSD-3-Clause
//
// A shard whose partitions have copies: what comes again is answered as before, and what a batch has changed is written
// as records.
#include <algorithm>
#include <string>
#include <utility>

#include "server/shard.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

// ---- what comes again -----------------------------------------------------------------------------------------------

/// Answers a request of one key that has come again, if it was applied before.
bool shard::was_answered(const net::request_header& h, std::string_view key, std::uint64_t hash, completion& done) {
  const context c{&h, h.what};
  outcome out;
  if (!was_applied(c, key, hash, out)) return false;
  net::reply_header reply;
  reply.result = out.result;
  reply.value_version = out.version;
  reply.tag = out.view().tag;
  if (out.result != status::ok) done.answer(reply, net::bytes_of(out.text));
  else if (out.value != nullptr && out.value->is_large()) done.answer(reply, {}, out.value->share());
  else done.answer(reply, out.view().bytes);
  return true;
}

bool shard::was_applied(const context& c, std::string_view key, std::uint64_t hash, outcome& out) {
  journal::earlier before;
  switch (journal_.next_answer(partition_of(hash), before)) {
    case dedup_window::verdict::fresh: return false;
    case dedup_window::verdict::forgotten:
      out.fail(status::forgotten, told("it came again so late that it is not known whether it was applied"));
      return true;
    case dedup_window::verdict::applied: break;
  }
  out.result = before.item.result;
  out.version = before.item.version;
  if (out.result != status::ok) {
    out.text = told(net::text_of(before.item.value.bytes));
  } else if (before.item.value.tag != value_tag::none) {
    out.elements = before.item.value;
    // What was too large to be kept is answered as it is now; the update is in it.
    if (before.values_left_out && c.what == verb::bupdate) {
      out.elements = {};
      if (const auto* e = keys_.find(hash, key)) {
        out.value = e;
        out.version = e->version();
      } else {
        out.fail(status::not_found,
                 told("it was applied; its answer was too large to be kept, and the key has gone since"));
      }
    }
  }
  return true;
}

/// The exception in hand, of a request on one key, as its outcome. The key is as before; what was done to others earlier
/// is still answered and remembered.
void shard::take_exception(outcome& out) noexcept {
  const auto fail = [&](status why, std::string_view text) {
    out = {};
    out.fail(why, told(text));
  };
  try {
    throw;
  } catch (const memory_limit_reached& e) {
    fail(status::out_of_memory, e.what());
  } catch (const std::bad_alloc&) {
    fail(status::out_of_memory, "there was no memory for it");
  } catch (const std::exception& e) {
    fail(status::internal, e.what());
  }
}

/// Before a request changes anything: that its item of this key will be answered.
void shard::expect_answer(std::uint64_t hash) {
  if (const auto partition = partition_of(hash); keys_.owns(partition)) journal_.expect(partition);
}

void shard::note(const context& c, std::string_view key, std::uint64_t hash, bool staged) {
  switch (c.what) {
    case verb::pull:
    case verb::contains:
    case verb::pull_at: return;
    case verb::remove: return journal_.key_gone(hash, key);
    case verb::update:
    case verb::update_default:
    case verb::update_at:
      if (staged) return;  // `stage` notes it
      break;
    default: break;
  }
  journal_.key(hash, key);
}

void shard::note_answer(std::uint16_t partition, const outcome& out) {
  const bool failed = out.result != status::ok;
  journal_.answered(partition, out.result, out.version,
                    failed ? value_view{value_tag::packed, net::bytes_of(out.text)} : out.view());
}

/// `answers`: the values of a bupdate as they are answered; a key that is there twice has two.
void shard::note_answers(const context& c, const prepared_set& set, std::span<const std::byte> answers) {
  const bool values = c.what == verb::bupdate;
  for (std::size_t i = 0; i < set.size(); ++i) {
    const auto* e = keys_.find(set.hash(i), set.key(i));
    journal_.answered(partition_of(set.hash(i)), status::ok, e->version(),
                       values ? value_view{set.tag(), answers.subspan(i * set.value_bytes(), set.value_bytes())} : value_view{});
  }
}

/// What `clear` is where other partitions are copies of somebody else's. Once the first is cleared nothing can fail.
void shard::clear_owned(completion& done) {
  std::vector<std::uint16_t> partitions;
  for (std::uint32_t p = settings_.index; p < partition_count; p += settings_.threads) {
    if (keys_.owns(static_cast<std::uint16_t>(p))) partitions.push_back(static_cast<std::uint16_t>(p));
  }
  for (const auto p : partitions) {
    journal_.touch(p);
    journal_.expect(p);
  }
  journal_.hold_places();
  journal_.make_room_for_cleared(partitions.size());
  std::uint64_t count = 0;
  std::erase_if(partitions, [&](std::uint16_t p) {
    journal::earlier before;
    if (!journal_.retried() || journal_.next_answer(p, before) != dedup_window::verdict::applied) return false;
    count += before.item.version;
    return true;
  });
  std::vector<std::string> staged;
  for (const auto& [key, s] : staged_) {
    if (std::binary_search(partitions.begin(), partitions.end(), partition_of(hash_key(key)))) staged.push_back(key);
  }
  rows_.split_staged();
  for (const auto p : partitions) {
    const auto keys = keys_.table_of_partition(p).size();
    count += keys;
    keys_.clear(p);
    rows_.clear(p);
    journal_.cleared(p);
    journal_.answered(p, status::ok, keys, {});
  }
  for (const auto& key : staged) forget_staged(key);
  net::reply_header reply;
  reply.count = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, 0xffffffffU));
  shard_counters::add(counters_.bytes_out, net::reply_header_bytes);
  done.answer(reply);
}

// ---- what has changed, as records -----------------------------------------------------------------------------------

void shard::order_changes() {
  at_ = {};
  auto& j = journal_;
  const auto by_hash = [](const auto& a, const auto& b) { return a.hash < b.hash; };  // so by partition too
  const auto by_partition = [](const auto& a, const auto& b) { return a.partition < b.partition; };
  std::stable_sort(j.keys().begin(), j.keys().end(), by_hash);
  std::stable_sort(j.rows().begin(), j.rows().end(), by_hash);
  std::stable_sort(j.batches().begin(), j.batches().end(), by_partition);
  std::stable_sort(j.applied().begin(), j.applied().end(), by_partition);
  std::sort(j.cleared().begin(), j.cleared().end());
  std::sort(j.touched().begin(), j.touched().end());
}

/// The least partition from `partition` on that has changed, or been touched.
bool shard::next_changed(std::uint16_t& partition) {
  auto& j = journal_;
  std::uint32_t least = partition_count;
  const auto see = [&](const auto& list, std::size_t at, const auto& partition_at) {
    if (at < list.size()) least = std::min<std::uint32_t>(least, partition_at(list[at]));
  };
  see(j.keys(), at_.key, [](const auto& k) { return partition_of(k.hash); });
  see(j.rows(), at_.row, [](const auto& r) { return partition_of(r.hash); });
  see(j.batches(), at_.batch, [](const auto& b) { return b.partition; });
  see(j.applied(), at_.applied, [](const auto& a) { return a.partition; });
  see(j.cleared(), at_.cleared, [](const auto p) { return p; });
  see(j.touched(), at_.touched, [](const auto p) { return p; });
  if (least == partition_count) return false;
  partition = static_cast<std::uint16_t>(least);
  return true;
}

void shard::encode_changes(std::uint16_t partition, std::vector<std::byte>& out) {
  auto& j = journal_;
  while (at_.touched < j.touched().size() && j.touched()[at_.touched] == partition) ++at_.touched;
  if (at_.cleared < j.cleared().size() && j.cleared()[at_.cleared] == partition) append(out, {.kind = record_kind::clear});
  while (at_.cleared < j.cleared().size() && j.cleared()[at_.cleared] == partition) ++at_.cleared;
  while (at_.key < j.keys().size() && partition_of(j.keys()[at_.key].hash) == partition) {
    at_.key = encode_key_changes(at_.key, out);
  }
  const auto batch = at_.batch;
  while (at_.batch < j.batches().size() && j.batches()[at_.batch].partition == partition) ++at_.batch;
  const auto row = at_.row;
  while (at_.row < j.rows().size() && partition_of(j.rows()[at_.row].hash) == partition) ++at_.row;
  rows_.encode_changes(partition, std::span(j.rows()).subspan(row, at_.row - row),
                       std::span(j.batches()).subspan(batch, at_.batch - batch), out);
  for (; at_.applied < j.applied().size() && j.applied()[at_.applied].partition == partition; ++at_.applied) {
    const auto& a = j.applied()[at_.applied];
    append_applied(out, a.client, a.low, a.sequence, {a.flags, j.items(a)});
  }
}

/// Writes what has become of one key; its changes, `first` and behind it, have one hash. Returns: where others begin.
std::size_t shard::encode_key_changes(std::size_t first, std::vector<std::byte>& out) {
  const auto& list = journal_.keys();
  const auto hash = list[first].hash;
  const auto key = journal_.text(list[first].at, list[first].bytes);
  std::uint8_t what = 0;
  std::uint64_t arrival = ~std::uint64_t{0};
  std::uint32_t folded = 0;
  auto next = first;
  for (; next < list.size() && list[next].hash == hash; ++next) {
    const auto& c = list[next];
    if (journal_.text(c.at, c.bytes) != key) break;
    what |= c.what;
    folded = std::max(folded, c.folded);
    if ((c.what & journal::waits) != 0) arrival = std::min(arrival, c.arrival);
  }
  const auto bytes = net::bytes_of(key);
  const auto staged = staged_.find(key, hash);
  if ((what & journal::gone) != 0) append(out, {.kind = record_kind::erase, .key = bytes});
  else if (folded != 0) append(out, {.kind = record_kind::folded, .a = folded, .key = bytes});
  if ((what & journal::whole) != 0) {
    if (const auto* e = keys_.find(hash, key)) encode_key(*e, hash, out);
  }
  if (staged == staged_.end()) return next;
  if ((what & journal::gone) != 0) {
    encode_staged(key, staged->second, out);
    return next;
  }
  if ((what & journal::waits) != 0) {
    for (const auto& u : staged->second.waiting) {
      if (u.arrival >= arrival) encode_staged(key, u, out);
    }
  }
  encode_broken(key, staged->second, out);
  return next;
}

}  // namespace paracel::srv
