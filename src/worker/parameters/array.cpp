// SPDX-License-Identifier: BSD-3-Clause
//
// A partitioned array. The key of its name holds the definition: a packed
//
//     ("paracel array", elements, type tag of one, elements of a piece, bits of the first value, [salt of each piece])
//
// and piece i is the key <name>#<i>.<salt>. The first worker picks the salts so that the pieces are spread round-robin
// over the shards of the servers; the others read them, so that the names never change. Definition and pieces
// are created by updates that keep existing values, so any number of workers may begin at once.
#include <paracel/array.hpp>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include <paracel/codec.hpp>
#include <paracel/paralg.hpp>

#include "client/server_group.hpp"
#include "core/shared_buffer.hpp"
#include "worker/parameters/parasrv.hpp"

namespace paracel {

namespace {

const std::string magic = "paracel array";
const std::string default_plugin = "libparacel_default.so";

// Measured with tool/bench/bench_array, one worker and two servers on two shared cores, reading the whole array: 32
// KB take 58 us in one piece and 127 in two, 128 KB 63 and 139. So small arrays are not split. Pieces of large ones are
// a megabyte, which is also what an update in place may have to copy; 8 MB were read in 4 to 13 ms with any piece
// size.
constexpr std::size_t least_piece_bytes = std::size_t{64} << 10;
constexpr std::size_t most_piece_bytes = std::size_t{1} << 20;
constexpr std::size_t largest_piece_bytes = std::size_t{128} << 20;  // half of a server's default limit
constexpr std::size_t piece_step_bytes =
    64;  // a cache line: no two pieces share one, and vector loops have no remainder

using definition =
    std::tuple<std::string, std::uint64_t, std::uint32_t, std::uint64_t, std::uint64_t, std::vector<std::uint32_t>>;

std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

std::string piece_key(const std::string& name, std::size_t i, std::uint32_t salt) {
  return name + '#' + std::to_string(i) + '.' + std::to_string(salt);
}

/// Elements per piece: a piece for each shard when the array is large enough to be worth it, several when
/// they would be too large.
std::uint64_t piece_elements(std::uint64_t n, std::size_t width, std::size_t shards, std::size_t wanted_bytes) {
  const auto step = piece_step_bytes / width;
  auto bytes = std::min<std::uint64_t>(wanted_bytes, largest_piece_bytes);
  if (bytes == 0) {
    const auto all = n * width;
    bytes = std::max<std::uint64_t>(divide_up(all, shards), least_piece_bytes);
    if (bytes > most_piece_bytes) bytes = divide_up(bytes, divide_up(bytes, most_piece_bytes));
  }
  return std::max<std::uint64_t>(divide_up(divide_up(bytes, width), step) * step, step);
}

/// Names spread round-robin over the shards of all servers, shard 0 of each first.
std::vector<std::uint32_t> choose_salts(const server_group& client, const std::string& name, std::size_t pieces) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> homes;
  const auto& servers = client.servers().servers;
  std::size_t most = 0;
  for (const auto& s : servers) most = std::max(most, s.shards.size());
  for (std::uint32_t shard = 0; shard < most; ++shard) {
    for (std::uint32_t server = 0; server < servers.size(); ++server) {
      if (shard < servers[server].shards.size() && may_head(servers[server].state)) homes.emplace_back(server, shard);
    }
  }
  std::vector<std::uint32_t> salts(pieces);
  for (std::size_t i = 0; i < pieces; ++i) {
    const auto [server, shard] = homes[i % homes.size()];
    // On average as many tries as there are shards find the right one; a shard without a partition is never found.
    const auto tries = static_cast<std::uint32_t>(homes.size() * 64);
    while (salts[i] < tries) {
      const auto at = client.locate(piece_key(name, i, salts[i]));
      if (at.server == server && at.shard == shard) break;
      ++salts[i];
    }
  }
  return salts;
}

template <class T>
std::byte* append_numbers(std::byte* to, const T* from, std::size_t count) {
  if (count != 0) std::memcpy(to, from, count * sizeof(T));
  return to + count * sizeof(T);
}

}  // namespace

struct array_base::layout {
  parasrv& servers;
  std::string name;
  std::uint64_t n;
  value_tag element;
  std::size_t width;
  std::uint64_t piece;  // elements
  std::vector<std::string> keys;

  [[nodiscard]] value_tag array_tag() const noexcept {
    return static_cast<value_tag>(static_cast<unsigned>(element) | 0x10U);
  }
  [[nodiscard]] std::uint64_t elements_of(std::size_t i) const noexcept { return std::min(piece, n - i * piece); }

  void check(std::uint64_t first, std::uint64_t count) const {
    if (first <= n && count <= n - first) return;
    throw error("array \"" + name + "\" has " + std::to_string(n) + " elements; asked for " + std::to_string(count) +
                " from " + std::to_string(first) + " on");
  }

  /// Calls f(piece, first element in it, elements, elements before) for each piece that the range touches.
  template <class F>
  void for_each_piece(std::uint64_t first, std::uint64_t count, const F& f) const {
    for (std::uint64_t done = 0; done < count;) {
      const auto i = static_cast<std::size_t>((first + done) / piece);
      const auto begin = (first + done) % piece;
      const auto here = std::min(elements_of(i) - begin, count - done);
      f(i, begin, here, done);
      done += here;
    }
  }

  /// One part for each piece that the numbers touch: `whole` with all of its elements, or update_at. `kept`: memory of
  /// the latter.
  std::vector<parasrv_multi::part> parts_of(std::uint64_t first, std::span<const std::byte> numbers, net::verb whole,
                                            std::vector<shared_buffer>& kept) const;

  [[nodiscard]] std::uint64_t find(const plugin_function& f, bool waits) const {
    return waits ? servers.functions().bupdate_function_of(f) : servers.functions().update_function_of(f);
  }
};

namespace {

/// Indices sorted by piece: those of piece touched[k] are begin[k] to begin[k + 1] in `offsets` (within the piece) and
/// `places` (in the caller's list), in the caller's order.
struct by_piece {
  by_piece(std::span<const std::uint64_t> indices, std::uint64_t piece, std::size_t pieces)
      : offsets(indices.size()), places(indices.size()) {
    std::vector<std::size_t> fill(pieces + 1, 0);
    std::vector<std::uint32_t> piece_of(indices.size());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      piece_of[i] = static_cast<std::uint32_t>(indices[i] / piece);
      ++fill[piece_of[i] + 1];
    }
    for (std::size_t p = 0; p < pieces; ++p) {
      if (fill[p + 1] != 0) {
        touched.push_back(p);
        begin.push_back(fill[p]);
      }
      fill[p + 1] += fill[p];
    }
    begin.push_back(indices.size());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto at = fill[piece_of[i]]++;
      offsets[at] = static_cast<std::uint32_t>(indices[i] - piece_of[i] * piece);
      places[at] = i;
    }
  }
  [[nodiscard]] std::size_t count(std::size_t k) const { return begin[k + 1] - begin[k]; }

  std::vector<std::size_t> touched;
  std::vector<std::size_t> begin;
  std::vector<std::uint32_t> offsets;
  std::vector<std::size_t> places;
};

template <class Bits>
void move_numbers(const std::byte* from, const std::size_t* from_at, std::byte* to, const std::size_t* to_at,
                  std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(to + (to_at != nullptr ? to_at[i] : i) * sizeof(Bits),
                from + (from_at != nullptr ? from_at[i] : i) * sizeof(Bits), sizeof(Bits));
  }
}
void move_numbers(std::size_t width, const std::byte* from, const std::size_t* from_at, std::byte* to,
                  const std::size_t* to_at, std::size_t count) {
  if (width == 4) move_numbers<std::uint32_t>(from, from_at, to, to_at, count);
  else move_numbers<std::uint64_t>(from, from_at, to, to_at, count);
}

}  // namespace

array_base::array_base(paralg& owner, const str_type& name, std::size_t n, value_tag element, std::uint64_t first_bits,
                       const array_options& options) {
  auto& servers = owner.servers();
  const auto width = element_bytes(element);
  std::size_t shards = 0;
  for (const auto& s : servers.client().servers().servers) shards += may_head(s.state) ? s.shards.size() : 0;
  const auto wanted = piece_elements(n, width, shards, options.piece_bytes);
  const definition mine{magic,  n,          static_cast<std::uint32_t>(element),
                        wanted, first_bits, choose_salts(servers.client(), name, divide_up(n, wanted))};
  definition all;
  bool is_definition = false;
  {
    const encoded<definition> e(mine);
    const auto keep = servers.functions().find_function({default_plugin, "paracel_keep"});
    servers.bupdate(name, e.view(), keep, [&](const value_view& v) {
      if (v.tag != value_tag::packed) return;
      try {
        decode_into(v, all);
        is_definition = std::get<0>(all) == magic;
      } catch (const type_error&) {  // another packed value
      }
    });
  }
  const auto& [what, size, tag, piece, bits, salts] = all;
  if (!is_definition || piece == 0 || salts.size() != divide_up(size, piece))
    throw type_error("key \"" + name + "\" holds a value and is not the definition of an array");
  if (size != n || tag != static_cast<std::uint32_t>(element)) {
    throw error("array \"" + name + "\" already exists with " + std::to_string(size) + " elements of type " +
                name_of(static_cast<value_tag>(tag)) + "; asked for " + std::to_string(n) + " of type " +
                name_of(element));
  }
  layout_ = std::make_unique<layout>(layout{servers, name, size, element, width, piece, {}});
  std::vector<encoded<std::tuple<std::uint64_t, std::uint32_t, std::uint64_t>>> beginnings;
  std::vector<value_view> views;
  for (std::size_t i = 0; i < salts.size(); ++i) {
    layout_->keys.push_back(piece_key(name, i, salts[i]));
    beginnings.emplace_back(std::tuple(layout_->elements_of(i), tag, bits));
  }
  for (const auto& b : beginnings) views.push_back(b.view());
  const auto begin = servers.functions().find_function({default_plugin, "paracel_begin_array"});
  servers.many().update_multi(layout_->keys, {value_tag::none, 0, {}, views}, begin, false, nullptr);
}

array_base::array_base(array_base&&) noexcept = default;
array_base& array_base::operator=(array_base&&) noexcept = default;
array_base::~array_base() = default;

const str_type& array_base::name() const noexcept { return layout_->name; }
std::size_t array_base::size() const noexcept { return layout_->n; }
const list_type<str_type>& array_base::pieces() const noexcept { return layout_->keys; }
std::size_t array_base::piece_size() const noexcept { return layout_->piece; }

void array_base::remove() {
  auto keys = layout_->keys;
  keys.push_back(layout_->name);
  layout_->servers.many().remove_multi(keys);
}

void array_base::same_size(std::size_t given, std::size_t wanted) const {
  if (given == wanted) return;
  throw error("array \"" + layout_->name + "\": got " + std::to_string(given) + " numbers, want " +
              std::to_string(wanted));
}

void array_base::read(std::size_t first, std::span<std::byte> out) const {
  const auto& l = *layout_;
  const auto count = out.size() / l.width;
  l.check(first, count);
  struct range {
    std::uint32_t first;
    std::uint32_t count;
  };
  struct target {
    std::byte* to;
    std::size_t bytes;
  };
  std::vector<range> ranges;
  ranges.reserve(2);  // only the first and the last piece may be read in part
  std::vector<parasrv_multi::part> parts;
  std::vector<target> targets;
  l.for_each_piece(first, count, [&](std::size_t i, std::uint64_t begin, std::uint64_t here, std::uint64_t done) {
    parasrv_multi::part p{.key = l.keys[i], .what = net::verb::pull, .value = {}, .large = {}};
    if (here != l.elements_of(i)) {
      ranges.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(here)});
      p.what = net::verb::pull_at;
      p.flags = net::flag_range;
      p.value = {value_tag::i32_array, std::as_bytes(std::span(&ranges.back(), 1))};
    }
    parts.push_back(std::move(p));
    targets.push_back({out.data() + done * l.width, here * l.width});
  });
  l.servers.many().read_parts(l.name, parts, [&](std::size_t i, const value_view& v) {
    if (v.tag != l.array_tag() || v.bytes.size() != targets[i].bytes)
      throw type_error("a piece of array \"" + l.name + "\" has been replaced by something else");
    std::memcpy(targets[i].to, v.bytes.data(), v.bytes.size());
  });
}

void array_base::read_at(std::span<const std::uint64_t> indices, std::byte* out) const {
  const auto& l = *layout_;
  if (indices.empty()) return;
  l.check(*std::ranges::max_element(indices), 1);
  const by_piece sorted(indices, l.piece, l.keys.size());
  std::vector<std::string> keys;
  std::vector<value_view> elements;
  for (std::size_t k = 0; k < sorted.touched.size(); ++k) {
    keys.push_back(l.keys[sorted.touched[k]]);
    const std::span mine(sorted.offsets.data() + sorted.begin[k], sorted.count(k));
    elements.push_back({value_tag::i32_array, std::as_bytes(mine)});
  }
  l.servers.many().read_parts(l.name, keys, elements, [&](std::size_t k, const value_view& v) {
    if (v.tag != l.array_tag() || v.bytes.size() != sorted.count(k) * l.width)
      throw type_error("a piece of array \"" + l.name + "\" has been replaced by something else");
    move_numbers(l.width, v.bytes.data(), nullptr, out, sorted.places.data() + sorted.begin[k], sorted.count(k));
  });
}

std::vector<parasrv_multi::part> array_base::layout::parts_of(std::uint64_t first, std::span<const std::byte> numbers,
                                                              net::verb whole, std::vector<shared_buffer>& kept) const {
  std::vector<parasrv_multi::part> parts;
  for_each_piece(first, numbers.size() / width,
                 [&](std::size_t i, std::uint64_t begin, std::uint64_t here, std::uint64_t done) {
                   const auto own = numbers.subspan(done * width, here * width);
                   parasrv_multi::part p{.key = keys[i], .what = whole, .value = {array_tag(), own}, .large = {}};
                   if (here != elements_of(i)) {
                     const auto offset = static_cast<std::uint32_t>(begin);
                     auto both = shared_buffer::allocate(sizeof offset + own.size());
                     append_numbers(append_numbers(both.mutable_data(), &offset, 1), own.data(), own.size());
                     p.what = net::verb::update_at;
                     p.flags = net::flag_range;
                     p.value.bytes = both.bytes();
                     if (both.size() > net::tail_threshold_bytes) p.large = both;
                     kept.push_back(std::move(both));
                   }
                   parts.push_back(std::move(p));
                 });
  return parts;
}

void array_base::write(std::size_t first, std::span<const std::byte> values) {
  const auto& l = *layout_;
  l.check(first, values.size() / l.width);
  std::vector<shared_buffer> kept;
  auto parts = l.parts_of(first, values, net::verb::push, kept);
  const auto assign = !kept.empty() ? l.servers.functions().find_function({default_plugin, "paracel_assign"}) : 0;
  l.servers.many().write_parts(l.name, parts, assign);
}

void array_base::fill(std::uint64_t bits) {
  const auto& l = *layout_;
  const value_view number{l.element, std::as_bytes(std::span(&bits, 1)).first(l.width)};
  std::vector<parasrv_multi::part> parts;
  for (const auto& key : l.keys) parts.push_back({.key = key, .what = net::verb::update, .value = number, .large = {}});
  l.servers.many().write_parts(l.name, parts, l.servers.functions().find_function({default_plugin, "paracel_fill"}));
}

async_functor_type array_base::update(std::size_t first, std::span<const std::byte> deltas, const plugin_function& f,
                                      bool waits) {
  const auto& l = *layout_;
  l.check(first, deltas.size() / l.width);
  const auto id = l.find(f, waits);
  std::vector<shared_buffer> kept;
  auto parts = l.parts_of(first, deltas, net::verb::update, kept);
  return l.servers.result_of(l.servers.many().update_parts(l.name, parts, id, !waits));
}

async_functor_type array_base::update_at(std::span<const std::uint64_t> indices, std::span<const std::byte> deltas,
                                         const plugin_function& f, bool waits) {
  const auto& l = *layout_;
  if (!indices.empty()) l.check(*std::ranges::max_element(indices), 1);
  const auto id = l.find(f, waits);
  const by_piece sorted(indices, l.piece, l.keys.size());
  std::vector<parasrv_multi::part> parts;
  std::vector<shared_buffer> kept;
  for (std::size_t k = 0; k < sorted.touched.size(); ++k) {
    const auto count = sorted.count(k);
    auto both = shared_buffer::allocate(count * (sizeof(std::uint32_t) + l.width));
    auto* numbers = append_numbers(both.mutable_data(), sorted.offsets.data() + sorted.begin[k], count);
    move_numbers(l.width, deltas.data(), sorted.places.data() + sorted.begin[k], numbers, nullptr, count);
    parasrv_multi::part p{.key = l.keys[sorted.touched[k]],
                          .what = net::verb::update_at,
                          .value = {l.array_tag(), both.bytes()},
                          .large = {}};
    if (both.size() > net::tail_threshold_bytes) p.large = both;
    kept.push_back(std::move(both));
    parts.push_back(std::move(p));
  }
  return l.servers.result_of(l.servers.many().update_parts(l.name, parts, id, !waits));
}

}  // namespace paracel
