// SPDX-License-Identifier: BSD-3-Clause
//
// The encoding of a collective operation: one request of each rank, `verb::collective`, answered when every rank of the
// communicator has sent its own (server/scheduler/collective_service.hpp). This header is only the encoding, shared by
// both sides.
//
//   header.table     communicator               header.rank      rank in that communicator
//   header.count     collective_kind            header.function  reduce_op (reduce only, otherwise 0)
//   header.tag       type of the contribution (reduce: numeric, the same at every rank)
//   body             u64 operation (this is the key, key_bytes = 8) | u32 size | u32 root | contribution
//   tail             the contribution, when it is longer than tail_threshold_bytes; the body then ends after `root`
//
// The operation number counts a communicator's collectives from 0, the same at every rank, because every rank calls
// them in the same order. `size` is the number of ranks of the communicator; `root` is used by bcast only.
//
//   kind        contribution                      reply (body, or tail when long)
//   barrier     empty                             empty
//   allgather   any bytes                         `size` blocks in rank order
//   bcast       root: any bytes; others: empty    the root's bytes, with the root's tag
//   reduce      an array of numbers               the arrays folded element by element in rank order, same tag
//   alltoall    `size` blocks, one per rank       `size` blocks in rank order: what each rank sent to this one
//
// A block is u64 length | bytes. Everything is little-endian.
//
// Two kinds are not collectives but messages between two ranks, kept for a process that replaces either
// (server/scheduler/message_log.hpp). `root` is the other rank, header.clock the number of iterations that the caller
// has committed, and the operation counts its messages to, or from, that rank since then.
//
//   send        any bytes                         empty, at once
//   receive     empty                             the message, once it has arrived. `count` 1: instead of sending, the
//                                                 other rank waits in a collective; this is its contribution
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <paracel/detail/bytes.hpp>
#include <paracel/detail/value.hpp>
#include <paracel/types.hpp>

#include "net/protocol.hpp"

namespace paracel::net {

/// The numbers are part of the wire format.
enum class collective_kind : std::uint32_t {
  barrier = 0,
  allgather = 1,
  bcast = 2,
  reduce = 3,
  alltoall = 4,
  send = 5,
  receive = 6
};
constexpr bool is_message(collective_kind k) noexcept { return k >= collective_kind::send; }

inline constexpr std::size_t collective_key_bytes = 8;
/// Body bytes before the contribution: operation, size, root.
inline constexpr std::size_t collective_front_bytes = 16;
using collective_front = std::array<std::byte, collective_front_bytes>;

constexpr const char* name_of(collective_kind k) noexcept {
  switch (k) {
    case collective_kind::barrier:
      return "barrier";
    case collective_kind::allgather:
      return "allgather";
    case collective_kind::bcast:
      return "bcast";
    case collective_kind::reduce:
      return "reduce";
    case collective_kind::alltoall:
      return "alltoall";
    case collective_kind::send:
      return "send";
    case collective_kind::receive:
      return "receive";
  }
  return "unknown";
}
constexpr const char* name_of(reduce_op o) noexcept {
  switch (o) {
    case reduce_op::sum:
      return "sum";
    case reduce_op::max:
      return "max";
    case reduce_op::min:
      return "min";
  }
  return "unknown";
}

/// One rank's part of one collective operation, without the contribution.
struct collective_request {
  std::uint32_t comm = 0;
  std::uint64_t operation = 0;
  collective_kind kind = collective_kind::barrier;
  reduce_op op = reduce_op::sum;
  std::uint32_t root = 0;
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  value_tag tag = value_tag::none;
  std::uint32_t clock = no_clock;  ///< of messages
};

/// Whether a contribution or reply of this size is sent in a frame of its own.
constexpr bool travels_as_tail(std::size_t bytes) noexcept { return bytes > tail_threshold_bytes; }

/// Sets the fields of `h` that a collective uses (verb, rank, tag, function, table, count and the lengths; job, client
/// and sequence are unchanged) and returns the first bytes of the body. The contribution follows them in the body
/// or, when `travels_as_tail(contribution_bytes)`, is the tail.
inline collective_front encode(const collective_request& r, std::size_t contribution_bytes,
                               request_header& h) noexcept {
  const bool tail = travels_as_tail(contribution_bytes);
  h.what = verb::collective;
  h.rank = r.rank;
  h.tag = r.tag;
  h.function = r.kind == collective_kind::reduce ? static_cast<std::uint64_t>(r.op) : 0;
  h.table = r.comm;
  h.clock = r.clock;
  h.count = static_cast<std::uint32_t>(r.kind);
  h.key_bytes = static_cast<std::uint32_t>(collective_key_bytes);
  h.body_bytes = static_cast<std::uint32_t>(collective_front_bytes + (tail ? 0 : contribution_bytes));
  h.tail_bytes = tail ? contribution_bytes : 0;
  collective_front front;
  store_fields(front.data(), r.operation, r.size, r.root);
  return front;
}

/// Reads what `encode` wrote. Returns the reason when it is malformed, otherwise nullptr; a contribution in the body is
/// left in `contribution` (it points into the frame).
[[nodiscard]] inline const char* decode(const request_view& in, collective_request& out,
                                        std::span<const std::byte>& contribution) noexcept {
  if (in.header.key_bytes != collective_key_bytes || in.body.size() < collective_front_bytes)
    return "a collective needs operation, size and root";
  if (in.header.tail_bytes != 0 && in.body.size() != collective_front_bytes)
    return "a collective has its contribution in the body or in the tail, not in both";
  if (in.header.count > static_cast<std::uint32_t>(collective_kind::receive)) return "unknown collective";
  if (in.header.function > static_cast<std::uint64_t>(reduce_op::min)) return "unknown reduction";
  out.comm = in.header.table;
  out.kind = static_cast<collective_kind>(in.header.count);
  out.op = static_cast<reduce_op>(in.header.function);
  out.rank = in.header.rank;
  out.tag = in.header.tag;
  out.clock = in.header.clock;
  load_fields(in.body.data(), out.operation, out.size, out.root);
  contribution = in.body.subspan(collective_front_bytes);
  if (out.rank >= out.size) return "the rank is not below the size";
  if (out.root >= out.size) return "the root is not below the size";
  return nullptr;
}

/// Writes one length-prefixed block of 8 + bytes.size() bytes; returns its end.
inline std::byte* write_block(std::byte* to, std::span<const std::byte> bytes) noexcept {
  to = store_fields(to, std::uint64_t{bytes.size()});
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  return to + bytes.size();
}

/// Takes the first block off `rest`. False when the rest is not a whole block; `rest` is then unchanged.
[[nodiscard]] inline bool take_block(std::span<const std::byte>& rest, std::span<const std::byte>& block) noexcept {
  auto after = rest;
  std::uint64_t size = 0;
  if (!take_fields(after, size) || size > after.size()) return false;
  block = after.first(static_cast<std::size_t>(size));
  rest = after.subspan(static_cast<std::size_t>(size));
  return true;
}

}  // namespace paracel::net
