// SPDX-License-Identifier: BSD-3-Clause
//
// Retries are answered as before; where partitions have replicas the changes of a request are noted.
#include <algorithm>
#include <string>
#include <utility>

#include "server/shard/shard.hpp"

namespace paracel::srv {

using net::status;
using net::verb;

// ---- retries --------------------------------------------------------------------------------------------------------

/// Answers a retried request of one key, if it was applied before.
bool shard::was_answered(const net::request_header& h, std::string_view key, std::uint64_t hash, completion& done) {
  const key_operation c{&h, h.what};
  key_outcome out;
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

bool shard::was_applied(const key_operation& c, std::string_view key, std::uint64_t hash, key_outcome& out) {
  change_log::earlier before;
  switch (log().next_answer(partition_of(hash), before)) {
    case dedup_window::verdict::fresh:
      return false;
    case dedup_window::verdict::expired:
      out.fail(status::expired, told(change_log::too_late));
      return true;
    case dedup_window::verdict::applied:
      break;
  }
  out.result = before.item.result;
  out.version = before.item.version;
  if (out.result != status::ok) {
    out.text = told(net::text_of(before.item.value.bytes));
  } else if (before.item.value.tag != value_tag::none) {
    out.elements = before.item.value;
    // What was too large to keep is answered with the current value; it includes the update.
    if (before.values_left_out && c.what == verb::bupdate) {
      out.elements = {};
      if (const auto* e = store_.keys().find(hash, key)) {
        out.value = e;
        out.version = e->version();
      } else {
        out.fail(status::not_found,
                 told("it was applied; its answer was too large to be kept, and the key has been removed since"));
      }
    }
  }
  return true;
}

/// Called before a request changes anything: its item for this key will be answered.
void shard::expect_answer(std::uint64_t hash) {
  if (const auto partition = partition_of(hash); store_.keys().owns(partition)) log().expect(partition);
}

void shard::record_change(const key_operation& c, std::string_view key, std::uint64_t hash, bool staged) {
  switch (c.what) {
    case verb::pull:
    case verb::contains:
    case verb::pull_at:
      return;
    case verb::remove:
      return log().key_gone(hash, key);
    case verb::update:
    case verb::update_default:
    case verb::update_at:
      if (staged) return;  // `stage` notes it
      break;
    default:
      break;
  }
  log().key(hash, key);
}

void shard::note_answer(std::uint16_t partition, const key_outcome& out) {
  const bool failed = out.result != status::ok;
  log().answered(partition, out.result, out.version,
                 failed ? value_view{value_tag::packed, net::bytes_of(out.text)} : out.view());
}

/// `answers`: the values of a bupdate in reply order; a duplicate key has two.
void shard::note_answers(const key_operation& c, const prepared_set& set, const resolved_keys& keys) {
  const bool values = c.what == verb::bupdate;
  const auto each = keys.value_bytes();
  if (!log().expects_partitions() && (!values || set.size() * each > change_log::most_answer_bytes))
    return log().answered_alike(set.size(), values ? keys.tag() : value_tag::none);
  for (std::size_t i = 0; i < set.size(); ++i) {
    const auto* e = store_.keys().find(set.hash(i), set.key(i));
    log().answered(partition_of(set.hash(i)), status::ok, e->version(),
                   values ? value_view{keys.tag(), std::span(items_).subspan(i * each, each)} : value_view{});
  }
}

/// `clear` where other partitions are replicas of another server's. Nothing can fail once the first is cleared.
void shard::clear_owned(completion& done) {
  std::vector<std::uint16_t> partitions;
  for (std::uint32_t p = settings_.index; p < partition_count; p += settings_.threads) {
    if (store_.keys().owns(static_cast<std::uint16_t>(p))) partitions.push_back(static_cast<std::uint16_t>(p));
  }
  for (const auto p : partitions) {
    log().touch(p);
    log().expect(p);
  }
  log().hold_places();
  std::uint64_t count = 0;
  bool expired = false;
  std::erase_if(partitions, [&](std::uint16_t p) {
    change_log::earlier before;
    const auto verdict = log().retried() ? log().next_answer(p, before) : dedup_window::verdict::fresh;
    expired = expired || verdict == dedup_window::verdict::expired;
    if (verdict != dedup_window::verdict::applied) return false;
    count += before.item.version;
    return true;
  });
  if (expired) return refuse(done, status::expired, change_log::too_late);
  store_.clear(partitions, [&](std::uint16_t p, std::uint64_t keys) {
    count += keys;
    log().answered(p, status::ok, keys, {});
  });
  net::reply_header reply;
  reply.count = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, 0xffffffffU));
  shard_counters::add(counters_.bytes_out, net::reply_header_bytes);
  done.answer(reply);
}

}  // namespace paracel::srv
