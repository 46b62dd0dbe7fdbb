// SPDX-License-Identifier: BSD-3-Clause
#include "worker/parameters/table_client.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <future>
#include <unordered_set>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/gather.hpp"
#include "core/reduction.hpp"

namespace paracel {

namespace {

constexpr std::uint32_t none = 0xffffffffU;
constexpr unsigned unexamined_after_duplicates = 15;

std::uint64_t hash_of(const table_client::names& rows, std::size_t i) {
  return rows.ids != nullptr ? net::hash_row(rows.ids[i]) : net::hash_row(std::string_view(rows.names[i]));
}

}  // namespace

table_client::table_client(parasrv& servers, std::string name, const net::table_definition& definition,
                           const table_options& options)
    : servers_(servers),
      name_(std::move(name)),
      definition_(net::encode(definition)),
      id_(net::table_id(name_)),
      element_(definition.element),
      row_bytes_(definition.width * element_bytes(definition.element)),
      wire_(options.wire),
      channel_of_(partition_count) {
  (void)open();
  if (wire_ == wire_format::full) return;
  residuals_ = std::make_unique<row_residuals>(wire_, element_, definition.width, options.most_residual_bytes);
  clears_ = servers_.many().clears();
  row_.resize(definition.width);
}

bool table_client::strictly_ascend(const names& rows) {
  if (rows.ids == nullptr) return false;
  std::size_t descents = 0;
  for (std::size_t i = 1; i < rows.count; ++i) descents += static_cast<std::size_t>(rows.ids[i] <= rows.ids[i - 1]);
  return descents == 0;
}

/// Whether it is known, without comparing all of them, that no row occurs twice. Lists of one table are mostly alike:
/// after one with duplicates the next few are not examined, which would cost a third of merging them.
bool table_client::are_distinct(const names& rows) {
  if (rows.ids == nullptr) return false;
  if (strictly_ascend(rows)) return true;
  if (unexamined_ != 0) {
    --unexamined_;
    return false;
  }
  const bool distinct = distinct_.are({rows.ids, rows.count});
  if (!distinct) unexamined_ = unexamined_after_duplicates;
  return distinct;
}

void table_client::find_places() {
  auto& client = servers_.client();
  client.refresh_membership();
  if (epoch_ == client.servers().epoch && !channels_.empty()) return;
  epoch_ = client.servers().epoch;
  most_channels_ = 0;
  channels_.clear();
  for (std::uint32_t p = 0; p < partition_count; ++p) {
    channel_of_[p] = client.channel_of(static_cast<std::uint16_t>(p));
    most_channels_ = std::max(most_channels_, channel_of_[p] + 1);
  }
  std::vector<bool> used(most_channels_);
  for (const auto c : channel_of_) used[c] = true;
  for (std::uint32_t c = 0; c < most_channels_; ++c)
    if (used[c]) channels_.push_back(c);
}

/// Idempotent; also the way to ask for the number of rows.
std::uint64_t table_client::open() {
  std::uint64_t rows = 0;
  auto result = net::status::ok;
  std::string text;
  servers_.client().refresh_membership();
  const auto epoch = servers_.client().servers().epoch;
  bool moved = false;
  servers_.client().broadcast(
      {.what = net::verb::table_open, .flags = net::flag_of(wire_)}, name_, definition_, [&](const kv_result& r) {
        std::array<std::uint64_t, 2> sizes{};
        moved = moved || r.header.epoch != epoch;
        if (r.ok() && r.body.size() == sizeof sizes) {
          std::memcpy(sizes.data(), r.body.data(), sizeof sizes);
          rows += sizes[0] + sizes[1];
        } else if (result == net::status::ok) {
          result = r.ok() ? net::status::internal : r.header.result;
          text = r.ok() ? "a server's answer to table_open has a wrong size" : std::string(r.text());
        }
      });
  if (result != net::status::ok) throw_status(result, text, "opening " + place());
  // If the servers have changed meanwhile, rows may be missing or counted twice.
  moved = servers_.client().servers().may_change() && (moved || epoch != servers_.client().servers().epoch);
  return moved ? open() : rows;
}

std::uint64_t table_client::size() { return open(); }

/// Finds the channel of each row, and counts rows per channel in end_. Returns: how many rows.
std::size_t table_client::place_unique(const names& rows) {
  home_.resize(rows.count);
  for (std::size_t i = 0; i < rows.count; ++i) {
    home_[i] = channel_of_[partition_of(hash_of(rows, i))];
    ++end_[home_[i] + 1];
  }
  return rows.count;
}

/// The same for unique rows, with lists of their duplicates.
std::size_t table_client::place_merged(const names& rows, duplicates what) {
  const auto n = rows.count;
  const auto same = [&](std::size_t i, std::size_t k) {
    return rows.ids != nullptr ? rows.ids[i] == rows.ids[k] : rows.names[i] == rows.names[k];
  };
  row_of_.resize(n);
  home_.resize(n);
  const auto slots = std::bit_ceil(std::max<std::size_t>(2 * n, 2));
  seen_.assign(slots, 0);
  next_of_.assign(n, none);
  last_of_.resize(n);
  std::uint32_t unique = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto hash = hash_of(rows, i);
    auto at = hash & (slots - 1);
    while (seen_[at] != 0 && !same(row_of_[seen_[at] - 1], i)) at = (at + 1) & (slots - 1);
    if (seen_[at] == 0) {
      row_of_[unique] = static_cast<std::uint32_t>(i);
      home_[unique] = channel_of_[partition_of(hash)];
      ++end_[home_[unique] + 1];
      seen_[at] = ++unique;
    } else if (what == duplicates::last) {
      row_of_[seen_[at] - 1] = static_cast<std::uint32_t>(i);
    } else {
      next_of_[last_of_[seen_[at] - 1]] = static_cast<std::uint32_t>(i);
    }
    last_of_[seen_[at] - 1] = static_cast<std::uint32_t>(i);
  }
  return unique;
}

/// Sorts the rows by shard and splits them into requests; duplicates are merged, if requested.
void table_client::plan(const names& rows, std::size_t bytes_a_row, duplicates what) {
  find_places();
  if (rows.count >= none) throw error(place() + ": " + std::to_string(rows.count) + " rows are too many for one call");
  end_.assign(most_channels_ + std::size_t{1}, 0);
  merged_ = what != duplicates::keep && !are_distinct(rows);
  in_order_ = !merged_ && channels_.size() == 1;
  order_.clear();
  if (in_order_) {
    end_[channels_[0]] = static_cast<std::uint32_t>(rows.count);
  } else {
    order_.resize(merged_ ? place_merged(rows, what) : place_unique(rows));
    for (std::size_t c = 1; c < end_.size(); ++c) end_[c] += end_[c - 1];
    for (std::uint32_t u = 0; u < order_.size(); ++u)
      order_[end_[home_[u]]++] = u;  // initially the start of the channel
  }

  const auto chunk = std::max<std::size_t>(servers_.client().options().multi_chunk_bytes / bytes_a_row, 1);
  parts_.clear();
  for (const auto c : channels_) {
    for (auto from = in_order_ || c == 0 ? 0 : end_[c - 1]; from < end_[c];) {
      const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(chunk, end_[c] - from));
      parts_.push_back({c, from, count});
      from += count;
    }
  }
}

/// Of its values, in a request with these flags or its reply.
std::size_t table_client::bytes_of_row(std::uint16_t flags) const noexcept {
  const bool full = (flags & (net::flag_f16 | net::flag_i8)) == 0;
  return full ? row_bytes_ : net::wire_bytes(wire_, element_, row_bytes_ / element_bytes(element_));
}

/// Writes the names of a part's rows and their values: to `large` if they are long, and then the span is empty;
/// otherwise to a buffer that is valid until the next call. Sets flag_gaps if that is how ids are written.
std::span<const std::byte> table_client::encode(const names& rows, const part& p, const row_values& values,
                                                std::uint16_t& flags, shared_buffer& large) {
  const auto row = [&](std::uint32_t k) -> std::size_t {
    if (in_order_) return p.first + k;
    return merged_ ? row_of_[order_[p.first + k]] : order_[p.first + k];
  };
  std::size_t front = p.count * sizeof(std::uint64_t);
  std::size_t gap = 0;
  const auto in_order = [&](std::size_t k) { return rows.ids[p.first + k]; };
  const auto at_place = [&](std::size_t k) { return rows.ids[row(static_cast<std::uint32_t>(k))]; };
  if (rows.ids != nullptr) {
    gap = in_order_ ? net::width_of_gaps(p.count, in_order) : net::width_of_gaps(p.count, at_place);
    if (gap != 0) front = net::gaps_bytes(p.count, gap);
    flags = static_cast<std::uint16_t>(gap != 0 ? flags | net::flag_gaps : flags & ~net::flag_gaps);
  } else {
    std::size_t texts = 0;
    for (std::uint32_t k = 0; k < p.count; ++k) texts += rows.names[row(k)].size();
    front = net::names_bytes(p.count, texts);
  }
  const auto total = front + (values.rows == nullptr ? 0 : p.count * bytes_of_row(flags));
  std::byte* to = nullptr;
  if (total > net::tail_threshold_bytes) {
    large = shared_buffer::allocate(total);
    to = large.mutable_data();
  } else {
    payload_.resize(total);
    to = payload_.data();
  }
  if (gap != 0) {
    if (in_order_) net::write_gaps(to, p.count, gap, in_order);
    else net::write_gaps(to, p.count, gap, at_place);
  } else if (rows.ids != nullptr && in_order_) {
    std::memcpy(to, rows.ids + p.first, front);
  } else if (rows.ids != nullptr) {
    for (std::uint32_t k = 0; k < p.count; ++k) std::memcpy(to + k * sizeof(std::uint64_t), &rows.ids[row(k)], 8);
  } else {
    auto* text = to + p.count * sizeof(std::uint32_t);
    for (std::uint32_t k = 0; k < p.count; ++k) {
      const auto& name = rows.names[row(k)];
      const auto length = static_cast<std::uint32_t>(name.size());
      store_fields(to + k * sizeof length, length);
      if (!name.empty()) std::memcpy(text, name.data(), name.size());
      text += name.size();
    }
    std::fill(text, to + front, std::byte{0});
  }
  const auto put_sum = [&](std::size_t first, std::byte* value, auto width) {
    std::memcpy(value, values.rows + first * width, width);
    if (!merged_) return;
    for (auto i = next_of_[first]; i != none; i = next_of_[i])
      fold(element_, {value, row_bytes_}, {values.rows + i * row_bytes_, row_bytes_}, reduce_op::sum);
  };
  if (values.rows != nullptr && values.are_updates && residuals_ != nullptr) {
    const auto write = [&](const auto* keys) {
      write_updates(
          flags, p.count, [&](std::uint32_t k) -> const auto& { return keys[row(k)]; },
          [&](std::uint32_t k, std::byte* value) { put_sum(row(k), value, row_bytes_); }, to + front);
    };
    if (rows.ids != nullptr) write(rows.ids);
    else write(rows.names);
  } else if (values.rows != nullptr && in_order_) {
    std::memcpy(to + front, values.rows + p.first * row_bytes_, p.count * row_bytes_);
  } else if (values.rows != nullptr) {
    with_constant_width(row_bytes_, [&](auto width) {
      for (std::uint32_t k = 0; k < p.count; ++k) put_sum(row(k), to + front + k * width, width);
    });
  }
  return large ? std::span<const std::byte>() : std::span<const std::byte>(to, total);
}

void table_client::send_parts(kvclt::call c, const names& rows, const row_values& values, const part_handler& done,
                              const requests& sent) {
  c.table = id_;
  if (rows.ids == nullptr) c.flags |= net::flag_named;
  const server_group::pin_routing here(servers_.client());
  for (const auto& one : parts_) {
    shared_buffer large;
    const auto bytes = encode(rows, one, values, c.flags, large);
    const auto s = servers_.client().shard_request(
        c, one.channel, one.count, element_, bytes,
        [done, first = one.first, count = one.count](const kv_result& r) { done(first, count, r); }, std::move(large));
    if (sent != nullptr) sent->push_back(s);
  }
}

void table_client::finish(const char* doing, const std::function<void(const kv_result&)>& each,
                          const std::function<void(const part_handler& done, const requests& sent)>& send) {
  // Shared with the handlers: some may still be pending after an exception.
  struct progress {
    net::status result = net::status::ok;
    std::string text;
    const std::function<void(const kv_result&)>* each = nullptr;
  };
  const auto o = std::make_shared<progress>();
  o->each = &each;
  const auto handler = [o](std::uint32_t, std::uint32_t, const kv_result& r) {
    if (r.ok()) {
      if (o->each != nullptr && *o->each) (*o->each)(r);
    } else if (o->result == net::status::ok) {
      o->result = r.header.result;
      o->text = r.text();
    }
  };
  const auto sent = std::make_shared<std::vector<kvclt::sequence>>();
  try {
    send(handler, sent);
    for (std::size_t i = 0; i < sent->size(); ++i) servers_.client().wait((*sent)[i]);
  } catch (...) {
    o->each = nullptr;
    throw;
  }
  if (o->result != net::status::ok) throw_status(o->result, o->text, doing + place());
}

// ---- reading ------------------------------------------------------------------------------------------------------

/// A pull in flight: shared with its handlers, which outlive an exception.
struct table_client::pending_pull {
  std::byte* out = nullptr;  // null: cancelled
  std::size_t row_bytes = 0;
  wire_format wire = wire_format::full;
  value_tag element = value_tag::none;
  std::vector<std::uint32_t> own_order;
  std::shared_ptr<const listed_rows> list;
  std::span<const std::uint32_t> order;  // empty: that of the call
  std::vector<kvclt::sequence> sent;
  net::status result = net::status::ok;
  std::string text;

  void receive(std::uint32_t first, std::uint32_t count, const kv_result& r) {
    const auto values = r.tail ? r.tail.bytes() : r.body;
    if (out == nullptr) return;
    const auto width = row_bytes / element_bytes(element);
    const auto wire_bytes = net::wire_bytes(wire, element, width);
    if (!r.ok() || values.size() != count * wire_bytes) {
      if (result != net::status::ok) return;
      result = r.ok() ? net::status::internal : r.header.result;
      text = r.ok() ? "a server sent a different number of rows than it was asked for" : std::string(r.text());
      return;
    }
    if (wire != wire_format::full) {
      if (order.empty()) return net::dequantise(wire, element, values.data(), count, width, out + first * row_bytes);
      for (std::uint32_t k = 0; k < count; ++k)
        net::dequantise(wire, element, values.data() + k * wire_bytes, 1, width, out + order[first + k] * row_bytes);
      return;
    }
    if (order.empty()) {
      std::memcpy(out + first * row_bytes, values.data(), values.size());
      return;
    }
    scatter_values(out, values.data(), order.subspan(first, count), row_bytes);
  }
  void wait(server_group& client) {
    try {
      for (std::size_t i = 0; i < sent.size(); ++i) client.wait(sent[i]);
    } catch (...) {
      out = nullptr;
      throw;
    }
  }
};

std::shared_ptr<table_client::pending_pull> table_client::send_pull(const names& rows, std::byte* out) {
  auto c = servers_.begin_read(servers_.clock().of(name_), net::verb::rows_pull);
  c.flags |= net::flag_of(wire_);
  auto p = std::make_shared<pending_pull>();
  p->out = out;
  p->row_bytes = row_bytes_;
  p->wire = wire_;
  p->element = element_;
  const part_handler receive = [p](std::uint32_t first, std::uint32_t count, const kv_result& r) {
    p->receive(first, count, r);
  };
  const requests sent(p, &p->sent);
  try {
    if (auto list = find_list(rows)) {
      p->list = list;
      p->order = list->order;
      send_list(c, std::move(list), {}, receive, sent);
    } else {
      plan(rows, std::max(row_bytes_, sizeof(std::uint64_t)), duplicates::keep);
      p->own_order = order_;  // duplicates were kept: unique row i is row i
      p->order = p->own_order;
      send_parts(c, rows, {}, receive, sent);
    }
  } catch (...) {
    p->out = nullptr;
    throw;
  }
  return p;
}

void table_client::pull(const names& rows, std::byte* out) {
  const auto p = send_pull(rows, out);
  p->wait(servers_.client());
  if (p->result != net::status::ok) throw_status(p->result, p->text, "pulling rows of " + place());
}

async_functor_type table_client::pull_async(const names& rows, std::byte* out) {
  auto p = send_pull(rows, out);
  const auto what = "pulling rows of " + place();
  const std::shared_ptr<const std::vector<kvclt::sequence>> requests(p, &p->sent);
  return servers_.result_of(std::async(std::launch::deferred,
                                       [self = servers_.self(), p = std::move(p), what] {
                                         const auto there = self.lock();
                                         if (!there || *there == nullptr)
                                           throw error(what + ": the future was used after its paralg was gone");
                                         p->wait((*there)->client());
                                         if (p->result != net::status::ok) throw_status(p->result, p->text, what);
                                         return true;
                                       }),
                            requests);
}

namespace {

/// Rows that a scan has passed to its caller, in case it has to restart: the partitions of the shards that
/// it has finished, and for the current shard the rows' hashes.
class rows_seen {
 public:
  explicit rows_seen(bool has_replicas) : remembers_(has_replicas), finished_(has_replicas ? partition_count : 0) {}

  template <class Hash>
  bool is_new(const Hash& hash_of) {
    if (!remembers_) return true;
    const auto hash = hash_of();
    if (finished_[partition_of(hash)]) return false;
    if (!before_.empty() && before_.contains(hash)) return false;
    now_.push_back(hash);
    return true;
  }
  void finish(const std::vector<std::uint32_t>& channel_of, std::uint32_t channel) {
    if (!remembers_) return;
    for (std::size_t p = 0; p < finished_.size(); ++p)
      if (channel_of[p] == channel) finished_[p] = true;
    now_.clear();
  }
  void begin_again() {
    before_.insert(now_.begin(), now_.end());
    now_.clear();
  }

 private:
  bool remembers_;
  std::vector<bool> finished_;
  std::vector<std::uint64_t> now_;
  std::unordered_set<std::uint64_t> before_;
};

}  // namespace

void table_client::scan(bool named, const each_row& each) {
  auto c = servers_.begin_read(servers_.clock().of(name_), net::verb::rows_scan);
  c.table = id_;
  if (named) c.flags |= net::flag_named;
  auto& client = servers_.client();
  std::vector<std::byte> answer;
  rows_seen seen(client.servers().may_change());
  find_places();
  for (std::size_t next = 0; next < channels_.size();) {
    const auto channel = channels_[next];
    std::uint64_t cursor = 0;
    bool more = true;
    while (more) {
      auto result = net::status::ok;
      std::string text;
      std::uint32_t count = 0;
      more = false;
      client.wait(client.shard_request(c, channel, 0, value_tag::none, std::as_bytes(std::span(&cursor, 1)),
                                       [&](const kv_result& r) {
                                         result = r.header.result;
                                         if (!r.ok()) {
                                           text = r.text();
                                           return;
                                         }
                                         const auto bytes = r.tail ? r.tail.bytes() : r.body;
                                         answer.assign(bytes.begin(), bytes.end());
                                         count = r.header.count;
                                         more = (r.header.flags & net::reply_more) != 0;
                                       }));
      if (result == net::status::stale_epoch) {
        more = true;
        break;
      }
      if (result != net::status::ok) throw_status(result, text, "scanning " + place());
      net::rows_view r;
      if (answer.size() < sizeof cursor ||
          net::decode(std::span(answer).subspan(sizeof cursor), count, named, row_bytes_, r) != nullptr)
        throw protocol_error(place() + ": the answer to a scan is malformed");
      load_fields(answer.data(), cursor);
      std::size_t at = 0;
      for (std::uint32_t i = 0; i < count; ++i) {
        const auto name = named ? r.texts.substr(at, r.length(i)) : std::string_view();
        at += name.size();
        if (!seen.is_new([&] { return named ? net::hash_row(name) : net::hash_row(r.id(i)); })) continue;
        each(named ? 0 : r.id(i), name, r.values.data() + i * row_bytes_);
      }
      if (epoch_ != client.servers().epoch) break;
    }
    if (!more && epoch_ == client.servers().epoch) {
      seen.finish(channel_of_, channel);
      ++next;
      continue;
    }
    // The rows of a shard are now served by others, or a reply was lost with its connection: restart from the first
    // shard, skipping those that were already passed on.
    if (!more) seen.finish(channel_of_, channel);
    seen.begin_again();
    find_places();
    next = 0;
  }
}

}  // namespace paracel
