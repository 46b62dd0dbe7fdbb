// SPDX-License-Identifier: BSD-3-Clause
#include "worker/parameters/scan_client.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include <paracel/codec.hpp>
#include <paracel/error.hpp>

#include "core/number_parsing.hpp"

namespace paracel {

namespace {

// Two of them are the 8 MiB that a shard may use of a worker's memory.
constexpr std::uint32_t answer_bytes = 4U << 20;

/// The state of one shard. A reply that arrives after its scan was abandoned finds only this.
struct shard_progress {
  std::uint32_t server = 0;
  std::uint32_t shard = 0;
  kvclt::sequence asked = 0;
  bool more = true;
  net::reply_header header;
  std::vector<std::byte> body;
  net::scan_cursor done;  ///< everything before it has been passed to the caller
};

/// Past every place.
constexpr net::scan_cursor the_end{partition_count, 0};

[[noreturn]] void malformed(const char* why) {
  throw protocol_error(std::string("a server's answer to a scan: ") + why);
}

template <class Reply>
Reply decoded(std::span<const std::byte> bytes) {
  Reply r;
  if (const char* wrong = net::decode(bytes, r); wrong != nullptr) malformed(wrong);
  return r;
}

template <class F>
void for_each_item(std::span<const std::byte> bytes, std::uint32_t count, const F& f) {
  net::request_items items(bytes, count);
  for (net::request_item i; items.next(i);) f(i.key, i.value);
  if (!items.ok()) malformed("its items do not fit its body");
}

/// A key with one number, as the servers order them: the larger number first, then by key.
struct ranked {
  std::string key;
  value_tag tag;
  std::vector<std::byte> value;
  long double number;  // holds a double and an int64, both exactly

  bool operator<(const ranked& other) const noexcept {
    return number != other.number ? number > other.number : key < other.key;
  }
};

long double number_of(const value_view& v) {
  long double number = 0;
  const bool is_one = is_numeric(v.tag) && !is_array(v.tag) && codec_detail::with_element(v.tag, [&](auto* p) {
                        std::remove_const_t<std::remove_pointer_t<decltype(p)>> x;
                        if (v.bytes.size() != sizeof x) return false;
                        std::memcpy(&x, v.bytes.data(), sizeof x);
                        number = static_cast<long double>(x);
                        return true;
                      });
  if (!is_one) malformed("an item of a top_k is not a number");
  return number;
}

std::string scan_name(net::verb what, const key_selection& keys) {
  const std::string text = net::name_of(what);
  return keys.prefix.empty() ? text : text + " of the keys that begin with " + quote_for_error(keys.prefix);
}

}  // namespace

void scan_client::scan(net::verb what, std::uint16_t flags, const key_selection& keys,
                       const std::function<void(std::vector<std::byte>&, net::scan_cursor)>& ask,
                       const std::function<void(const net::reply_header&, std::span<const std::byte>)>& look,
                       const begin_again& again) {
  auto call = servers_.begin_read(servers_.clock().of_range(keys.prefix), what);
  call.flags = static_cast<std::uint16_t>(call.flags | flags);
  call.function = keys.filter;
  call.credit = answer_bytes;
  auto& client = servers_.client();

  std::vector<std::byte> payload;
  const auto send = [&](const std::shared_ptr<shard_progress>& to, net::scan_cursor from) {
    payload.clear();
    ask(payload, from);
    to->asked = client.shard_request(call, to->server, to->shard, keys.prefix, payload, [to](const kv_result& r) {
      to->header = r.header;
      to->body.assign(r.body.begin(), r.body.end());
    });
  };
  std::vector<std::shared_ptr<shard_progress>> all;
  std::vector<std::shared_ptr<shard_progress>> shards;  // that are not finished
  std::vector<std::uint32_t> progress_of;               // by partition, in `all`
  std::uint32_t epoch = 0;
  const auto begin = [&] {
    client.refresh_membership();
    const server_group::pin_routing here(client);
    const auto& members = client.servers();
    epoch = members.epoch;
    all.clear();
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> number;
    for (std::uint32_t server = 0; server < members.servers.size(); ++server) {
      if (!takes_part(members.servers[server].state)) continue;
      for (std::uint32_t shard = 0; shard < members.servers[server].shards.size(); ++shard) {
        number[{server, shard}] = static_cast<std::uint32_t>(all.size());
        all.push_back(std::make_shared<shard_progress>());
        all.back()->server = server;
        all.back()->shard = shard;
        send(all.back(), {});
      }
    }
    shards = all;
    if (!members.may_change()) return;
    progress_of.resize(partition_count);
    for (std::uint32_t p = 0; p < partition_count; ++p) {
      const auto at = client.locate_partition(static_cast<std::uint16_t>(p));
      progress_of[p] = number.at({at.server, at.shard});
    }
  };
  begin();

  std::vector<std::byte> body;
  while (!shards.empty()) {
    bool moved = false;
    for (const auto& s : shards) {
      client.wait(s->asked);
      const auto header = s->header;
      body.swap(s->body);
      if (header.result == net::status::stale_epoch) {
        moved = true;
        break;
      }
      if (header.result != net::status::ok) {
        throw_status(header.result, std::string(net::text_of(body)), scan_name(what, keys));
      }
      s->more = (header.flags & net::reply_more) != 0;
      moved = client.servers().epoch != epoch;
      s->done = s->more ? decoded<net::scan_reply>(body).next : the_end;
      if (s->more && !moved) send(s, s->done);
      look(header, body);
      if (moved) break;
    }
    if (moved) {
      again([&](std::uint16_t partition) { return all[progress_of[partition]]->done; });
      begin();
      continue;
    }
    std::erase_if(shards, [](const auto& s) { return !s->more; });
  }
}

void scan_client::scan(const key_selection& keys, bool keys_only, const put_item& put,
                       const std::function<void()>& chunk_end) {
  std::vector<std::uint32_t> given;  // by partition: positions before it were passed on; empty until a restart
  const auto put_new = [&](std::string_view key, const value_view& value) {
    const auto hash = hash_key(key);
    if (given[partition_of(hash)] <= (hash & (net::scan_positions - 1))) put(key, value);
  };
  scan(
      net::verb::scan, keys_only ? net::flag_keys_only : std::uint16_t{0}, keys,
      [](std::vector<std::byte>& payload, net::scan_cursor from) { net::append(payload, net::scan_request{from}); },
      [&](const net::reply_header& h, std::span<const std::byte> body) {
        const auto items = decoded<net::scan_reply>(body).rest;
        if (given.empty()) for_each_item(items, h.count, put);
        else for_each_item(items, h.count, put_new);
        if (chunk_end) chunk_end();
      },
      [&](const place_of& done) {
        given.resize(partition_count);
        for (std::uint32_t p = 0; p < partition_count; ++p) {
          const auto place = done(static_cast<std::uint16_t>(p));
          if (p < place.partition) given[p] = net::scan_positions;
          else if (p == place.partition) given[p] = std::max(given[p], place.position);
        }
      });
}

void scan_client::top_k(const key_selection& keys, std::uint32_t k, const put_item& put) {
  if (k == 0) return;
  std::vector<ranked> best;
  scan(
      net::verb::top_k, 0, keys,
      [k](std::vector<std::byte>& payload, net::scan_cursor from) {
        net::append(payload, net::top_k_request{from, k});
      },
      [&](const net::reply_header& h, std::span<const std::byte> body) {
        for_each_item(decoded<net::top_k_reply>(body).items, h.count, [&](std::string_view key, const value_view& v) {
          best.push_back({std::string(key), v.tag, {v.bytes.begin(), v.bytes.end()}, number_of(v)});
        });
        if (best.size() <= k) return;
        std::nth_element(best.begin(), best.begin() + k, best.end());
        best.resize(k);
      },
      [&](const place_of&) { best.clear(); });
  std::sort(best.begin(), best.end());
  for (const auto& b : best) put(b.key, {b.tag, b.value});
}

net::summary scan_client::reduce(const key_selection& keys, double low, double high, std::uint32_t bins) {
  net::summary all;
  all.bins.resize(bins);
  scan(
      net::verb::reduce, 0, keys,
      [&](std::vector<std::byte>& payload, net::scan_cursor from) {
        net::append(payload, net::reduce_request{from, bins, low, high});
      },
      [&](const net::reply_header&, std::span<const std::byte> body) {
        all.merge(decoded<net::summary>(decoded<net::scan_reply>(body).rest));
      },
      [&](const place_of&) {
        all = {};
        all.bins.resize(bins);
      });
  return all;
}

std::uint64_t scan_client::remove_if(const key_selection& keys) {
  std::uint64_t removed = 0;
  servers_.cache().clear();
  scan(
      net::verb::remove_if, 0, keys,
      [](std::vector<std::byte>& payload, net::scan_cursor from) { net::append(payload, net::scan_request{from}); },
      [&](const net::reply_header& h, std::span<const std::byte>) { removed += h.count; }, [](const place_of&) {});
  servers_.cache().clear();
  return removed;
}

}  // namespace paracel
