// SPDX-License-Identifier: BSD-3-Clause
//
// Requests are retained until they are answered, so that they can be retried: on a new connection, or at the server
// that serves their partitions then. A request for many keys or rows may have to go to several servers instead of one:
// it is split here, and the replies to its parts are merged. Nothing here depends on sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "client/listed_rows.hpp"
#include "client/sharded_keys.hpp"
#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"

namespace paracel {

/// Those items of a request that belong to one shard.
struct request_part {
  std::uint32_t channel = 0;
  std::vector<std::uint32_t> items{};  ///< by index in the whole request, ascending
  bool answered = false;
  net::reply_header header{};      ///< of the reply
  std::vector<std::byte> reply{};  ///< its body or tail
};

struct retained_request {
  net::request_header header;   ///< as last sent
  std::uint64_t place = 0;      ///< sequence number of the request, or of the one it belongs to
  std::vector<std::byte> body;  ///< with the key
  shared_buffer tail;
  std::uint32_t channel = 0;  ///< to which it went as a whole
  std::uint32_t slot = 0;     ///< the server first asked, and which of its threads
  std::uint64_t incarnation = 0;
  std::uint32_t thread = 0;
  std::shared_ptr<const sharded_keys> set;  ///< of a request on a prepared key set
  std::shared_ptr<const listed_rows> rows;  ///< of a request that names its rows by the digest of a list
  std::uint32_t set_part = 0;               ///< which part of these
  std::vector<request_part> parts;          ///< once it has been split
  std::size_t items = 0;                    ///< of all parts
};

/// The keys or rows of a request.
///
/// A request on a prepared key set is split as the `*_multi` request of the same keys: a shard that did not exist
/// before has no set, and what a shard remembers of an update does not depend on how it was requested. One on listed
/// rows is split with their ids.
/// Lifetime: the request must outlive it.
class request_items_view {
 public:
  /// Throws: protocol_error when the request is malformed.
  explicit request_items_view(const retained_request& r);

  [[nodiscard]] std::size_t size() const noexcept { return partitions_.size(); }
  [[nodiscard]] std::uint16_t partition(std::size_t i) const noexcept { return partitions_[i]; }
  /// The request for some of the items: sets the header's verb, count, and lengths except those of key and tail.
  void write(std::span<const std::uint32_t> items, net::request_header& h, std::vector<std::byte>& body) const;

 private:
  enum class form : std::uint8_t { items, rows };
  struct item {
    std::string_view key;  // of an item, or the name or id of a row
    value_view value;
  };
  void read_items(std::span<const std::byte> payload);
  void read_set(std::span<const std::byte> payload);
  void read_rows(std::span<const std::byte> payload);
  void read_gaps(std::span<const std::byte> payload);
  void read_listed(std::span<const std::byte> payload);
  void add_rows(std::span<const std::uint64_t> ids, std::span<const std::byte> values);
  void add_row(std::string_view name, std::span<const std::byte> value);

  const retained_request& request_;
  form form_ = form::items;
  net::verb what_;                  // of the requests that are written
  std::vector<std::uint64_t> ids_;  // that came as gaps; items_ point to them
  std::vector<item> items_;
  std::vector<std::uint16_t> partitions_;
};

/// The reply that the whole request would have got.
struct merged_reply {
  net::reply_header header;
  std::vector<std::byte> body;
};
/// Every part is answered. `items`: how many the request has.
/// For keys, a failed part gives its status and text to each of its items; for rows it is the whole reply.
/// Throws: protocol_error when a reply does not match its part.
[[nodiscard]] merged_reply merge(net::verb what, std::size_t items, std::span<const request_part> parts);

}  // namespace paracel
