// SPDX-License-Identifier: BSD-3-Clause
#include "ps/wire.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <paracel/error.hpp>

#include "core/check.hpp"

namespace paracel::ps_compat {

namespace {

constexpr std::uint8_t wire_version = 1;
constexpr std::size_t front_bytes = 40;
constexpr std::size_t array_front_bytes = 16;
constexpr std::size_t least_tail = std::size_t{64} << 10U;  // below it a copy costs less than another frame
constexpr std::size_t most_copied = (std::size_t{1} << 32U) - 1024;

enum wire_flag : std::uint8_t {
  is_request = 1,
  is_push = 2,
  is_pull = 4,
  is_simple = 8,
  has_failed = 16,
  has_same_keys = 32
};

/// The bytes of an array as a frame of a message.
shared_buffer buffer_of(const ::ps::SArray<char>& a) {
  struct holder : shared_buffer::control {
    std::shared_ptr<char> memory;
  };
  auto* c = new holder;
  c->memory = a.ptr();
  c->data = reinterpret_cast<std::byte*>(a.data());
  c->size = a.size();
  c->destroy = [](shared_buffer::control* self) { delete static_cast<holder*>(self); };
  return shared_buffer::adopt(c);
}

/// A frame of a message as an array.
::ps::SArray<char> array_of(shared_buffer b) {
  ::ps::SArray<char> a;
  auto* data = reinterpret_cast<char*>(b.mutable_data());
  const auto size = b.size();
  a.reset(data, size, [kept = std::move(b)](char*) {});
  return a;
}

}  // namespace

encoded_message encode(const ::ps::Message& m) {
  const auto& meta = m.meta;
  if (m.data.size() > most_arrays)
    throw network_error("a message has " + std::to_string(m.data.size()) + " arrays, more than 16", false);
  std::size_t tail = m.data.size(), largest = least_tail - 1;
  for (std::size_t i = 0; i < m.data.size(); ++i)
    if (m.data[i].size() > largest) {
      largest = m.data[i].size();
      tail = i;
    }
  std::size_t size = front_bytes + m.data.size() * array_front_bytes + meta.body.size();
  for (std::size_t i = 0; i < m.data.size(); ++i)
    if (i != tail) size += m.data[i].size();
  if (size > most_copied)
    throw network_error("a message has " + std::to_string(size) + " bytes besides its largest array, more than 4 GiB",
                        false);
  encoded_message e;
  e.body.resize(size);
  const auto flags = static_cast<std::uint8_t>((meta.request ? is_request : 0) | (meta.push ? is_push : 0) |
                                               (meta.pull ? is_pull : 0) | (meta.simple_app ? is_simple : 0) |
                                               (meta.failed ? has_failed : 0) | (meta.same_keys ? has_same_keys : 0));
  auto* at =
      store_fields(e.body.data(), wire_version, static_cast<std::uint8_t>(meta.control.cmd), flags,
                   static_cast<std::uint8_t>(m.data.size()), meta.head, meta.app_id, meta.customer_id, meta.timestamp,
                   meta.sender, meta.recver, meta.priority, meta.process, static_cast<std::uint32_t>(meta.body.size()));
  for (std::size_t i = 0; i < m.data.size(); ++i)
    at = store_fields(at, static_cast<std::uint64_t>(m.data[i].size()), static_cast<std::uint32_t>(meta.data_type[i]),
                      static_cast<std::uint32_t>(i == tail));
  const auto copy = [&at](const void* from, std::size_t n) {
    if (n > 0) std::memcpy(at, from, n);
    at += n;
  };
  copy(meta.body.data(), meta.body.size());
  for (std::size_t i = 0; i < m.data.size(); ++i)
    if (i != tail) copy(m.data[i].data(), m.data[i].size());
  PARACEL_CHECK(at == e.body.data() + e.body.size());
  if (tail < m.data.size()) e.tail = buffer_of(m.data[tail]);
  return e;
}

::ps::Message decode(std::span<const std::byte> body, shared_buffer tail) {
  const auto malformed = [](const char* what) { return protocol_error(std::string("malformed message: ") + what); };
  ::ps::Message m;
  auto& meta = m.meta;
  std::uint8_t version = 0, command = 0, flags = 0, arrays = 0;
  std::uint32_t text = 0;
  auto rest = body;
  if (!take_fields(rest, version, command, flags, arrays, meta.head, meta.app_id, meta.customer_id, meta.timestamp,
                   meta.sender, meta.recver, meta.priority, meta.process, text))
    throw malformed("cut off");
  if (version != wire_version) throw malformed("another version");
  if (command > ::ps::Control::REFUSED) throw malformed("an unknown command");
  if (arrays > most_arrays) throw malformed("too many arrays");
  meta.control.cmd = static_cast<::ps::Control::Command>(command);
  meta.request = (flags & is_request) != 0;
  meta.push = (flags & is_push) != 0;
  meta.pull = (flags & is_pull) != 0;
  meta.simple_app = (flags & is_simple) != 0;
  meta.failed = (flags & has_failed) != 0;
  meta.same_keys = (flags & has_same_keys) != 0;
  struct front {
    std::uint64_t bytes = 0;
    std::uint32_t type = 0;
    std::uint32_t in_tail = 0;
  } fronts[most_arrays];
  std::size_t tails = 0;
  for (std::size_t i = 0; i < arrays; ++i) {
    auto& f = fronts[i];
    if (!take_fields(rest, f.bytes, f.type, f.in_tail)) throw malformed("cut off");
    if (f.type > ::ps::OTHER || f.in_tail > 1) throw malformed("an unknown type");
    tails += f.in_tail;
    if (f.in_tail == 1 && f.bytes != tail.size()) throw malformed("an array of another length");
  }
  if (tails != (tail ? 1U : 0U)) throw malformed("a frame that belongs to no array");
  if (text > rest.size()) throw malformed("cut off");
  meta.body.assign(reinterpret_cast<const char*>(rest.data()), text);
  rest = rest.subspan(text);
  for (std::size_t i = 0; i < arrays; ++i) {
    const auto& f = fronts[i];
    meta.data_type.push_back(static_cast<::ps::DataType>(f.type));
    if (f.in_tail == 1) {
      m.data.push_back(
          array_of(shared_buffer::own(std::exchange(tail, {}))));  // a sender in this process may change it
      continue;
    }
    if (f.bytes > rest.size()) throw malformed("an array is cut off");
    m.data.push_back(array_of(shared_buffer::copy_of(rest.first(f.bytes))));
    rest = rest.subspan(f.bytes);
  }
  if (!rest.empty()) throw malformed("more bytes than arrays");
  return m;
}

}  // namespace paracel::ps_compat
