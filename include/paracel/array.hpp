// SPDX-License-Identifier: BSD-3-Clause
//
// A distributed vector of numbers: it is partitioned over all servers and shards, so that one huge theta uses every
// server, and it can be read and changed in part.
//
//   paracel::array<double> theta(*this, "theta", n);       // zeros, or the existing values
//   theta.read(local);                                     // all of it, all shards in parallel
//   theta.update(delta);                                   // acknowledged at the commit, as paracel_update
//   theta.update_at(indices, deltas);                      // some elements; a repeated index is applied repeatedly
//   iter_commit();
//
// Atomicity is per piece: a read concurrent with an update of another worker may see it in some pieces and not yet in
// others, under the same clock rule as everything else. Update functions run on each piece, or on the elements of it
// that an update names, and must therefore be element-wise and in place (paracel_add and all of default/ are;
// update_in_place makes others).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <paracel/detail/value.hpp>
#include <paracel/error.hpp>
#include <paracel/types.hpp>

namespace paracel {

class paralg;

struct array_options {
  /// Bytes of a piece; 0: chosen from the array's size and the number of shards. Only the creator's value is used.
  std::size_t piece_bytes = 0;
};

/// The untyped part of `array`. Use `array`.
class array_base {
 public:
  array_base(const array_base&) = delete;
  array_base& operator=(const array_base&) = delete;
  array_base(array_base&&) noexcept;
  array_base& operator=(array_base&&) noexcept;

  [[nodiscard]] const str_type& name() const noexcept;
  /// Number of elements.
  [[nodiscard]] std::size_t size() const noexcept;
  /// Keys that hold the pieces, in element order.
  [[nodiscard]] const list_type<str_type>& pieces() const noexcept;
  /// Elements of each piece except the last, which may have fewer.
  [[nodiscard]] std::size_t piece_size() const noexcept;
  /// Removes the array from the servers. No worker may use it afterwards.
  void remove();

 protected:
  array_base(paralg& owner, const str_type& name, std::size_t n, value_tag element, std::uint64_t first_bits,
             const array_options& options);
  ~array_base();

  void read(std::size_t first, std::span<std::byte> out) const;
  void read_at(std::span<const std::uint64_t> indices, std::byte* out) const;
  void write(std::size_t first, std::span<const std::byte> values);
  void fill(std::uint64_t bits);
  async_functor_type update(std::size_t first, std::span<const std::byte> deltas, const plugin_function& f, bool waits);
  async_functor_type update_at(std::span<const std::uint64_t> indices, std::span<const std::byte> deltas,
                               const plugin_function& f, bool waits);
  /// Throws: error when an argument has `given` elements instead of `wanted`.
  void same_size(std::size_t given, std::size_t wanted) const;

 private:
  struct layout;
  std::unique_ptr<layout> layout_;
};

/// An array of `T` on the servers: int32, int64, float or double.
///
/// Thread-safety: none; owned by the thread of its paralg.
/// Lifetime: the paralg must outlive it.
/// Throws: what the calls of paralg throw; error for elements past the end; key_error when the array was removed.
/// Cost: each call sends one request per piece (read_at: one per shard), all in parallel, in one round trip; each
/// number is copied once between your memory and the message.
template <raw_number T>
class array : public array_base {
 public:
  /// Opens the array, or creates it with `n` elements equal to `first`. Every worker passes the same arguments; the
  /// first one creates it, and its layout never changes. Throws: error when it exists with another size or type,
  /// type_error when the key holds something else. Cost: two round trips; the elements are not transferred.
  array(paralg& owner, const str_type& name, std::size_t n, T first = T{}, const array_options& options = {})
      : array_base(owner, name, n, tag_of<T>(), bits_of(first), options) {}

  // ---- reads: as paracel_read, under the rule of clocks ---------------------------------------------------------

  [[nodiscard]] list_type<T> read() const {
    list_type<T> all(size());
    read(0, all);
    return all;
  }
  /// `out` is resized to the array's size.
  void read(list_type<T>& out) const {
    out.resize(size());
    read(0, out);
  }
  /// The elements from `first` on, as many as fit in `out`.
  void read(std::size_t first, std::span<T> out) const { array_base::read(first, std::as_writable_bytes(out)); }
  /// The elements at these indices, in their order; an index may be repeated.
  void read_at(std::span<const std::uint64_t> indices, std::span<T> out) const {
    same_size(out.size(), indices.size());
    array_base::read_at(indices, reinterpret_cast<std::byte*>(out.data()));
  }
  [[nodiscard]] list_type<T> read_at(std::span<const std::uint64_t> indices) const {
    list_type<T> out(indices.size());
    read_at(indices, out);
    return out;
  }

  // ---- writes: as paracel_write, immediate and blocking ----------------------------------------------------------

  void write(std::span<const T> values) {
    same_size(values.size(), size());
    write(0, values);
  }
  void write(std::size_t first, std::span<const T> values) { array_base::write(first, std::as_bytes(values)); }
  /// Sets every element to `value`. Cost: the elements are not transferred.
  void fill(T value) { array_base::fill(bits_of(value)); }

  // ---- updates: as paracel_update; a failure is thrown by the future, or by the commit ---------------------------

  async_functor_type update(std::span<const T> deltas, const plugin_function& f = registered_function) {
    same_size(deltas.size(), size());
    return update(0, deltas, f);
  }
  async_functor_type update(std::size_t first, std::span<const T> deltas,
                            const plugin_function& f = registered_function) {
    return array_base::update(first, std::as_bytes(deltas), f, false);
  }
  async_functor_type update_at(std::span<const std::uint64_t> indices, std::span<const T> deltas,
                               const plugin_function& f = registered_function) {
    same_size(deltas.size(), indices.size());
    return array_base::update_at(indices, std::as_bytes(deltas), f, false);
  }

  // ---- the same, blocking, and immediate under BSP too, with the function of paracel_bupdate ---------------------

  void bupdate(std::span<const T> deltas, const plugin_function& f = registered_function) {
    same_size(deltas.size(), size());
    bupdate(0, deltas, f);
  }
  void bupdate(std::size_t first, std::span<const T> deltas, const plugin_function& f = registered_function) {
    array_base::update(first, std::as_bytes(deltas), f, true).get();
  }
  void bupdate_at(std::span<const std::uint64_t> indices, std::span<const T> deltas,
                  const plugin_function& f = registered_function) {
    same_size(deltas.size(), indices.size());
    array_base::update_at(indices, std::as_bytes(deltas), f, true).get();
  }

 private:
  static std::uint64_t bits_of(T value) noexcept {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
  }
};

}  // namespace paracel
