// SPDX-License-Identifier: BSD-3-Clause
//
// Repeated lists of row ids: the shards know them by digest.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/gather.hpp"
#include "worker/parameters/table_client.hpp"

namespace paracel {

namespace {

// A shard with too little room for the lists of all its clients may evict one before it is used.
constexpr unsigned most_list_attempts = 16;

}  // namespace

std::shared_ptr<listed_rows> table_client::find_list(const names& rows) {
  if (rows.ids == nullptr || rows.count < least_listed) return nullptr;
  const auto print = print_of_list(rows.count, [&](std::size_t i) { return rows.ids[i]; });
  auto list = lists_.find(
      print, [&](const listed_rows& l) { return std::ranges::equal(l.ids, std::span(rows.ids, rows.count)); });
  find_places();
  if (list != nullptr && list->epoch == epoch_) return list;
  const auto bytes = rows.count * (2 * sizeof(std::uint64_t) + sizeof(std::uint32_t));
  if (list == nullptr && !lists_.is_due(print, bytes)) return nullptr;
  list = make_list(rows);
  lists_.keep(print, list, bytes);
  return list;
}

std::shared_ptr<listed_rows> table_client::make_list(const names& rows) {
  auto list = std::make_shared<listed_rows>();
  list->is_unique = are_distinct(rows);
  if (!list->is_unique) {
    end_.assign(most_channels_ + std::size_t{1}, 0);
    list->is_unique = place_merged(rows, duplicates::last) == rows.count;
  }
  plan(rows, row_bytes_ + sizeof(std::uint64_t), duplicates::keep);
  list->epoch = epoch_;
  list->ids.assign(rows.ids, rows.ids + rows.count);
  list->order = order_;
  for (const auto i : order_) list->sent.push_back(rows.ids[i]);
  for (const auto& one : parts_) {
    auto& p = list->parts.emplace_back(listed_rows::part{one.channel, one.first, one.count});
    p.digest = digest_of(std::as_bytes(list->ids_of(p)));
  }
  return list;
}

/// Shared by the handlers of its requests, which may have to resend them: by then the table_client may be destroyed.
struct table_client::listed_call {
  parasrv& servers;
  kvclt::call what;
  value_tag element;
  std::shared_ptr<listed_rows> list;
  std::vector<shared_buffer> values;  // part by part; none for a pull
  part_handler done;
  requests sent;
  struct attempts {
    unsigned count = 0;
    kvclt::sequence first = 0;
  };
  std::vector<attempts> tried;  // part by part
};

void table_client::send_list(kvclt::call c, std::shared_ptr<listed_rows> list, const row_values& values,
                             const part_handler& done, const requests& sent) {
  c.table = id_;
  const auto call =
      std::make_shared<listed_call>(listed_call{servers_, c, element_, std::move(list), {}, done, sent, {}});
  const auto& l = *call->list;
  call->tried.resize(l.parts.size());
  for (const auto& p : l.parts) {
    if (values.rows == nullptr) break;
    auto& v = call->values.emplace_back(shared_buffer::allocate(p.count * bytes_of_row(c.flags)));
    if (values.are_updates && residuals_ != nullptr) {
      const auto ids = l.ids_of(p);
      const auto put = [&](std::uint32_t k, std::byte* row) {
        const std::size_t at = l.order.empty() ? p.first + k : l.order[p.first + k];
        std::memcpy(row, values.rows + at * row_bytes_, row_bytes_);
      };
      write_updates(
          c.flags, p.count, [&](std::uint32_t k) -> const auto& { return ids[k]; }, put, v.mutable_data());
    } else if (l.order.empty()) {
      std::memcpy(v.mutable_data(), values.rows + p.first * row_bytes_, v.size());
    } else {
      gather_values(v.mutable_data(), values.rows, std::span(l.order).subspan(p.first, p.count), row_bytes_);
    }
  }
  const server_group::pin_routing here(servers_.client());
  for (std::uint32_t k = 0; k < l.parts.size(); ++k) send_listed(call, k);
}

void table_client::send_listed(const std::shared_ptr<listed_call>& call, std::uint32_t part) {
  auto& client = call->servers.client();
  auto& p = call->list->parts[part];
  auto c = call->what;
  const auto values = call->values.empty() ? shared_buffer() : call->values[part];
  shared_buffer payload = values;
  const bool known = std::exchange(p.is_known, true);
  if (known) {
    c.flags |= net::flag_listed;
  } else {
    const auto ids = std::as_bytes(call->list->ids_of(p));
    payload = shared_buffer::allocate(ids.size() + values.size());
    std::ranges::copy(values.bytes(), std::ranges::copy(ids, payload.mutable_data()).out);
  }
  const auto digest = net::text_of(std::as_bytes(std::span(&p.digest, 1)));
  const bool large = payload.size() > net::tail_threshold_bytes;
  const auto s = client.shard_request(
      c, p.channel, p.count, call->element, large ? std::span<const std::byte>() : payload.bytes(),
      [call, part](const kv_result& r) {
        const auto& l = *call->list;
        auto& p = call->list->parts[part];
        auto& tried = call->tried[part];
        auto& client = call->servers.client();
        if (r.header.result == net::status::unknown_set) {
          // The shard has forgotten the list. It holds back later requests of this client until this one is resent.
          p.is_known = false;
          const server_group::pin_routing here(client);
          if (tried.count < most_list_attempts && l.epoch == client.servers().epoch) return send_listed(call, part);
          client.shard_request({.what = net::verb::ping}, p.channel, 0, value_tag::none, {}, nullptr);
        }
        call->done(p.first, p.count, r);
      },
      large ? std::move(payload) : shared_buffer(), digest);
  auto& tried = call->tried[part];
  if (tried.count++ == 0) tried.first = s;
  client.retain_rows(s, known ? call->list : nullptr, part, tried.first);
  if (call->sent != nullptr) call->sent->push_back(s);
}

}  // namespace paracel
