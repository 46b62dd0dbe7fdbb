// SPDX-License-Identifier: BSD-3-Clause
#include "worker/comm/peer_call.hpp"

#include <algorithm>

#include <paracel/error.hpp>
#include <paracel/types.hpp>

#include "net/collective_codec.hpp"

namespace paracel {

namespace {

const char* text_of_operation(peer_operation o) {
  switch (o) {
    case peer_operation::all_reduce:
      return "all_reduce";
    case peer_operation::reduce:
      return "reduce";
    case peer_operation::reduce_scatter:
      return "reduce_scatter";
    case peer_operation::all_gather:
      return "all_gather";
    case peer_operation::broadcast:
      return "broadcast";
    case peer_operation::all_to_all:
      return "all_to_all";
    case peer_operation::barrier:
      return "barrier";
  }
  return "an unknown operation";
}

const char* text_of_fold(std::uint8_t op) {
  return op == peer_call::own_fold ? "own function" : net::name_of(static_cast<reduce_op>(op));
}

std::size_t filled_up(std::size_t name_bytes) { return (name_bytes + 15) / 16 * 16; }

}  // namespace

peer_header peer_header::in(std::span<const std::byte> message) {
  static_assert(sizeof(peer_header) == peer_header::bytes);
  peer_header f;
  if (!take_fields(message, f) || f.name_bytes > peer_call::longest_name || filled_up(f.name_bytes) > message.size())
    throw protocol_error("a message of a collective is cut off");
  return f;
}

std::size_t peer_header::payload_at(std::span<const std::byte> message) {
  return bytes + filled_up(in(message).name_bytes);
}

byte_vector peer_header::message(std::string_view name, std::span<const std::byte> payload) const {
  byte_vector m;
  m.reserve(bytes + filled_up(name.size()) + payload.size());
  put_fields(m, *this);
  put_bytes(m, name.data(), name.size());
  m.resize(bytes + filled_up(name.size()));
  m.insert(m.end(), payload.begin(), payload.end());
  return m;
}

peer_header peer_call::header() const {
  peer_header f;
  f.kind = peer_message::call;
  f.operation = static_cast<std::uint8_t>(what);
  f.element = static_cast<std::uint8_t>(element);
  f.op = op;
  f.name_bytes = static_cast<std::uint32_t>(std::min(name.size(), longest_name));
  f.length = length;
  f.root = root;
  return f;
}

peer_call peer_call::of(const peer_header& f, std::string_view name) {
  return {.what = static_cast<peer_operation>(f.operation),
          .element = static_cast<value_tag>(f.element),
          .op = f.op,
          .length = f.length,
          .root = f.root,
          .name = name};
}

byte_vector peer_call::message(std::span<const std::byte> payload) const {
  return header().message(name.substr(0, longest_name), payload);
}

peer_call peer_call::in(std::span<const std::byte> message) {
  auto f = peer_header::in(message);
  if (f.kind == peer_message::calls) {
    if (message.size() < peer_header::bytes + sizeof(std::uint64_t)) throw protocol_error("there are no calls");
    message = message.subspan(peer_header::bytes + sizeof(std::uint64_t));
    f = peer_header::in(message);
  }
  return of(f, {reinterpret_cast<const char*>(message.data()) + peer_header::bytes, f.name_bytes});
}

std::string peer_call::text() const {
  std::string all = text_of_operation(what);
  if (!name.empty()) all += "(\"" + std::string(name) + "\")";
  if (what == peer_operation::barrier) return all;
  if (what == peer_operation::broadcast) return all + " of root " + std::to_string(root);
  all += " of " + std::to_string(length) + " " + name_of(element);
  if (what == peer_operation::reduce) all += " for root " + std::to_string(root);
  const bool folds =
      what == peer_operation::all_reduce || what == peer_operation::reduce || what == peer_operation::reduce_scatter;
  return folds ? all + ", " + text_of_fold(op) : all;
}

bool peer_call::fits(const peer_call& other) const {
  const bool any_length =
      what == peer_operation::all_gather || what == peer_operation::broadcast || what == peer_operation::all_to_all;
  return what == other.what && element == other.element && op == other.op && root == other.root &&
         (any_length || length == other.length) && name.substr(0, longest_name) == other.name.substr(0, longest_name);
}

}  // namespace paracel
