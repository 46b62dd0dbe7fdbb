// SPDX-License-Identifier: BSD-3-Clause
#include "client/retained_request.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/hash.hpp"
#include "net/row_codec.hpp"

namespace paracel {

namespace {

using net::verb;

constexpr bool is_set(verb v) noexcept { return net::kind_of(v) == net::verb_kind::key_set; }
constexpr bool is_rows(verb v) noexcept { return net::kind_of(v) == net::verb_kind::rows; }

[[noreturn]] void malformed_request() { throw protocol_error("a request that is to be sent again is malformed"); }

}  // namespace

request_items_view::request_items_view(const retained_request& r) : request_(r), what_(r.header.what) {
  const auto key_bytes = r.header.key_bytes;
  if (key_bytes > r.body.size()) malformed_request();
  const auto payload = r.tail ? r.tail.bytes() : std::span(r.body).subspan(key_bytes);
  if (r.rows != nullptr) read_listed(payload);
  else if (is_rows(what_)) read_rows(payload);
  else if (is_set(what_)) read_set(payload);
  else read_items(payload);
}

void request_items_view::read_items(std::span<const std::byte> payload) {
  net::request_items items(payload, request_.header.count);
  for (net::request_item i; items.next(i);) {
    items_.push_back({i.key, i.value});
    partitions_.push_back(partition_of(hash_key(i.key)));
  }
  if (!items.ok()) malformed_request();
}

void request_items_view::read_set(std::span<const std::byte> payload) {
  if (request_.set == nullptr) malformed_request();
  const auto& set = *request_.set;
  const auto& part = set.parts.at(request_.set_part);
  const std::size_t count = part.end - part.begin;
  const auto tag = request_.header.tag;
  what_ = net::multi_of(net::traits_of(what_).each);
  net::request_items values(payload, request_.header.count);
  const bool as_items = tag == value_tag::none && !payload.empty();
  if (!as_items && count != 0 && payload.size() % count != 0) malformed_request();
  const auto each = as_items || count == 0 ? 0 : payload.size() / count;
  for (std::size_t k = 0; k < count; ++k) {
    const std::string_view key = set.keys[set.order[part.begin + k]];
    value_view value;
    if (as_items) {
      net::request_item i;
      if (!values.next(i)) malformed_request();
      value = i.value;
    } else if (tag != value_tag::none) {
      value = {tag, payload.subspan(k * each, each)};
    }
    items_.push_back({key, value});
    partitions_.push_back(partition_of(hash_key(key)));
  }
}

void request_items_view::read_rows(std::span<const std::byte> payload) {
  form_ = form::rows;
  const std::size_t count = request_.header.count;
  if ((request_.header.flags & net::flag_gaps) != 0) {
    read_gaps(payload);
    return;
  }
  const bool named = (request_.header.flags & net::flag_named) != 0;
  const std::size_t front = named ? sizeof(std::uint32_t) : sizeof(std::uint64_t);
  if (count > payload.size() / front) malformed_request();
  std::size_t names = count * front;
  if (named) {
    std::size_t texts = 0;
    auto lengths = payload.first(names);
    for (std::uint32_t length = 0; take_fields(lengths, length);) texts += length;
    names = net::names_bytes(count, texts);
  }
  if (names > payload.size()) malformed_request();
  const auto row_bytes = count == 0 ? 0 : (payload.size() - names) / count;
  net::rows_view rows;
  if (net::decode(payload, request_.header.count, named, row_bytes, rows) != nullptr) malformed_request();
  std::size_t text = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::string_view name = net::text_of(payload.subspan(i * front, front));  // the 8 bytes of an id
    if (named) {
      name = rows.texts.substr(text, rows.length(i));
      text += name.size();
    }
    add_row(name, rows.values.subspan(i * row_bytes, row_bytes));
  }
}

void request_items_view::read_gaps(std::span<const std::byte> payload) {
  std::uint64_t first = 0;
  std::uint32_t bytes = 0;
  const std::size_t count = request_.header.count;
  auto front = payload;
  if (count == 0 || !take_fields(front, first, bytes)) malformed_request();
  const auto names = net::gaps_bytes(count, bytes);
  if (names > payload.size()) malformed_request();
  const auto row_bytes = (payload.size() - names) / count;
  net::rows_view rows;
  if (net::decode_gaps(payload, request_.header.count, row_bytes, ids_, rows) != nullptr) malformed_request();
  add_rows(ids_, rows.values);
}

void request_items_view::read_listed(std::span<const std::byte> payload) {
  form_ = form::rows;
  const auto ids = request_.rows->ids_of(request_.rows->parts.at(request_.set_part));
  if (ids.size() != request_.header.count || payload.size() % std::max<std::size_t>(ids.size(), 1) != 0)
    malformed_request();
  add_rows(ids, payload);
}

/// The ids must outlive this.
void request_items_view::add_rows(std::span<const std::uint64_t> ids, std::span<const std::byte> values) {
  const auto row_bytes = ids.empty() ? 0 : values.size() / ids.size();
  for (std::size_t i = 0; i < ids.size(); ++i)
    add_row(net::text_of(std::as_bytes(ids.subspan(i, 1))), values.subspan(i * row_bytes, row_bytes));
}

void request_items_view::add_row(std::string_view name, std::span<const std::byte> value) {
  items_.push_back({name, {request_.header.tag, value}});
  partitions_.push_back(partition_of(hash_key(name)));
}

void request_items_view::write(std::span<const std::uint32_t> items, net::request_header& h,
                               std::vector<std::byte>& body) const {
  body.clear();
  h = request_.header;
  h.what = what_;
  h.count = static_cast<std::uint32_t>(items.size());
  h.flags &= static_cast<std::uint16_t>(~(net::flag_listed | net::flag_gaps));
  h.key_bytes = 0;
  h.tail_bytes = 0;
  if (form_ == form::items) {
    if (is_set(request_.header.what)) h.tag = value_tag::none;
    for (const auto i : items) net::append_item(body, items_[i].key, items_[i].value);
  } else {
    const bool named = (h.flags & net::flag_named) != 0;
    if (named) {
      for (const auto i : items) put_bytes(body, static_cast<std::uint32_t>(items_[i].key.size()));
    }
    for (const auto i : items) put_bytes(body, items_[i].key.data(), items_[i].key.size());
    if (named) body.resize((body.size() + 7) / 8 * 8);
    for (const auto i : items) put_bytes(body, items_[i].value.bytes.data(), items_[i].value.bytes.size());
  }
  h.body_bytes = static_cast<std::uint32_t>(body.size());
}

namespace {

[[noreturn]] void misfit() { throw protocol_error("the answer to a part of a request does not fit it"); }

void merge_items(std::size_t items, std::span<const request_part> parts, merged_reply& out) {
  struct one {
    net::status result = net::status::internal;
    std::uint64_t version = 0;
    value_view value;
  };
  std::vector<one> all(items);
  for (const auto& p : parts) {
    if (p.header.result != net::status::ok) {
      for (const auto i : p.items) all.at(i) = {p.header.result, 0, {value_tag::packed, p.reply}};
      continue;
    }
    net::reply_items answers(p.reply, p.header.count);
    net::reply_item a;
    for (const auto i : p.items) {
      if (!answers.next(a)) misfit();
      all.at(i) = {a.result, a.version, a.value};
    }
    if (!answers.ok()) misfit();
  }
  out.header.result = net::status::ok;
  out.header.count = static_cast<std::uint32_t>(items);
  for (const auto& a : all) net::append_item(out.body, a.result, a.version, a.value);
}

/// The first failure is the whole reply. Returns: whether there was one.
bool merge_counts(std::span<const request_part> parts, merged_reply& out) {
  std::uint64_t count = 0;
  for (const auto& p : parts) {
    if (p.header.result != net::status::ok) {
      out.header = p.header;
      out.body = p.reply;
      return true;
    }
    count += p.header.count;
  }
  out.header.count = static_cast<std::uint32_t>(count);
  return false;
}

void merge_rows(net::verb what, std::size_t items, std::span<const request_part> parts, merged_reply& out) {
  if (merge_counts(parts, out) || what != net::verb::rows_pull) return;
  std::size_t row_bytes = 0;
  for (const auto& p : parts)
    if (!p.items.empty()) row_bytes = p.reply.size() / p.items.size();
  out.header.count = static_cast<std::uint32_t>(items);
  out.body.resize(items * row_bytes);
  for (const auto& p : parts) {
    if (p.reply.size() != p.items.size() * row_bytes) misfit();
    for (std::size_t k = 0; k < p.items.size(); ++k)
      if (row_bytes != 0)
        std::memcpy(out.body.data() + p.items[k] * row_bytes, p.reply.data() + k * row_bytes, row_bytes);
  }
}

}  // namespace

merged_reply merge(net::verb what, std::size_t items, std::span<const request_part> parts) {
  merged_reply out;
  if (!parts.empty()) out.header = parts.front().header;
  out.header.flags = 0;
  if (what == verb::clear) merge_counts(parts, out);
  else if (is_rows(what)) merge_rows(what, items, parts, out);
  else merge_items(items, parts, out);
  out.header.body_bytes = static_cast<std::uint32_t>(out.body.size());
  out.header.tail_bytes = 0;
  return out;
}

}  // namespace paracel
