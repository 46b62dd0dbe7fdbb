// SPDX-License-Identifier: BSD-3-Clause
//
// Typed tables: rows of `width` numbers, by 64-bit id or by name, initialised on first touch by a seeded initialiser
// and partitioned over all servers; for embeddings, factors and any other millions of short vectors.
//
//   paracel::table<float> emb(*this, "emb", 16, paracel::row_init::uniform(-0.1, 0.1, 1),
//                             {"libparacel_default.so", "paracel_adagrad", {{"lr", 0.1}}});
//   emb.pull(ids, rows);         // ids.size() * 16 floats, in the order of the ids
//   emb.update(ids, gradients);  // the optimizer, with its state, runs in the servers
//
// What a pull may miss is the rule of paralg.hpp, as for keys; rows are not cached in the worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <paracel/detail/row_init.hpp>
#include <paracel/detail/value.hpp>
#include <paracel/detail/wire_format.hpp>
#include <paracel/error.hpp>
#include <paracel/types.hpp>

namespace paracel {

class paralg;
class table_client;

/// The function that `table::update` runs in the servers: none (deltas are added), an optimizer with its
/// hyper-parameters, or an update function that works in place. The plug-in's folder must be allowed, as for
/// paracel_register_update.
using row_optimizer = plugin_function;

/// Options of a handle, not of the table: two handles may differ in them, even on one worker, such as one that pulls as
/// f16 and one that updates as i8.
struct table_options {
  /// f16 or i8, for rows of float or double: pulls and updates carry fewer bytes, in this format. What an update has
  /// not sent of a row, by rounding, is kept by the handle and added to the next update of that row (error feedback),
  /// so the sum of the updates that arrive stays within one rounding of the sum of those that were made; `flush` sends
  /// the rest. The table's function must be the default addition, `additive(...)`, or an optimizer, whose gradients are
  /// rounded so; others are refused when the table is opened.
  ///
  /// In full precision: pushes, scans, the rows in the servers, their replicas and checkpoints. What is kept is gone if
  /// the handle is destroyed, and after a resume unless checkpoint_state has saved it (`residuals`). A push and a
  /// removal by this handle drop what is kept of these rows, a paracel_clear of this worker that of all.
  ///
  /// Numbers out of range (f16: from 65520): a pull is refused, naming the row; an update sends the greatest number
  /// that there is and keeps the rest. NaN and infinities are sent as such by f16; with i8 such a row arrives as NaN.
  wire_format wire = wire_format::full;
  /// Memory for what is kept: a row has its numbers and 32 bytes (by name 88 and the name). An update of rows for which
  /// there is no room is sent in full precision, with what is kept of its rows, which frees memory.
  std::size_t most_residual_bytes = std::size_t{256} << 20;
};

namespace table_detail {

/// Rows of a call: ids or names.
struct row_names {
  const std::uint64_t* ids = nullptr;
  const str_type* names = nullptr;
  std::size_t count = 0;
};

/// The untyped part; its code is in the library.
class handle {
 public:
  handle(paralg& job, const str_type& name, value_tag element, std::size_t width, const row_init& init,
         const row_optimizer& optimizer, const table_options& options);
  handle(handle&&) noexcept;
  handle& operator=(handle&&) noexcept;
  ~handle();

  [[nodiscard]] std::size_t width() const noexcept { return width_; }
  void check(std::size_t rows, std::size_t numbers) const;
  void pull(const row_names& rows, std::byte* out);
  async_functor_type pull_async(const row_names& rows, std::byte* out);
  void push(const row_names& rows, const std::byte* values);
  void update(const row_names& rows, const std::byte* deltas, bool wait);
  void flush();
  [[nodiscard]] std::string residuals() const;
  void restore_residuals(std::string_view from);
  [[nodiscard]] std::size_t residual_bytes() const noexcept;
  std::uint64_t remove(const row_names& rows);
  std::uint64_t size();
  void scan(bool named, const std::function<void(std::uint64_t, std::string_view, const std::byte*)>& each);

 private:
  std::unique_ptr<table_client> client_;
  std::size_t width_;
};

}  // namespace table_detail

/// A handle to a table of the job. Every worker that opens the same name gets the same table, and must pass the same
/// arguments.
///
/// Duplicates in a batch: a pull returns the row for each of them; in a push the last one wins; in an update they are
/// summed before they are sent, so that an optimizer makes one step with the sum of the gradients. Rows by id and rows
/// by name coexist in a table; "7" is not 7. Names are exact: two with the same hash are two rows. Thread-safety: none;
/// use it on the thread that made its paralg. Lifetime: the paralg must outlive it. Throws: every call: error for a
/// span of the wrong size, otherwise as the calls of paralg. Cost: a call on n rows sends one request per shard, all in
/// parallel, cut at 8 MB; 8 + width * sizeof(T) bytes a row, or 8 + 2 * width, 12 + width (table_options). No
/// allocation per row.
template <raw_number T>
class table {
 public:
  /// Opens the table, or creates it. Throws: error when it exists with other properties; plugin_error.
  /// Cost: one round trip to every shard.
  table(paralg& job, const str_type& name, std::size_t width, const row_init& init = row_init::zeros(),
        const row_optimizer& optimizer = {}, const table_options& options = {})
      : handle_(job, name, tag_of<T>(), width, init, optimizer, options) {}

  /// Numbers in a row.
  [[nodiscard]] std::size_t width() const noexcept { return handle_.width(); }

  /// Copies row ids[i] to row i of `out`; missing rows are created.
  /// Shape: out holds ids.size() * width numbers. Blocks: until the rule of paralg.hpp allows the read.
  void pull(std::span<const std::uint64_t> ids, std::span<T> out) { pull_rows(rows_of(ids), out); }
  void pull(std::span<const str_type> names, std::span<T> out) { pull_rows(rows_of(names), out); }

  /// The same without waiting for the rows: `get()` or `wait()` of the future does, and throws on failure.
  /// Lifetime: `out` until then. Blocks: for the clock only.
  [[nodiscard]] async_functor_type pull_async(std::span<const std::uint64_t> ids, std::span<T> out) {
    return pull_rows_async(rows_of(ids), out);
  }
  [[nodiscard]] async_functor_type pull_async(std::span<const str_type> names, std::span<T> out) {
    return pull_rows_async(rows_of(names), out);
  }

  /// Sets rows unconditionally; their optimizer state is reset. Blocks: until the servers have them; under BSP
  /// it waits for the clock as a pull does.
  void push(std::span<const std::uint64_t> ids, std::span<const T> values) { push_rows(rows_of(ids), values); }
  void push(std::span<const str_type> names, std::span<const T> values) { push_rows(rows_of(names), values); }

  /// Adds, or steps the optimizer. Returns once it is sent; under BSP it takes effect when the clock ticks. Failures
  /// are thrown by the next iter_commit or paracel_sync; each row is then either updated or unchanged.
  void update(std::span<const std::uint64_t> ids, std::span<const T> deltas) { update_rows(rows_of(ids), deltas); }
  void update(std::span<const str_type> names, std::span<const T> deltas) { update_rows(rows_of(names), deltas); }

  /// The same, blocking until the servers have it. Immediate under BSP too.
  void bupdate(std::span<const std::uint64_t> ids, std::span<const T> deltas) {
    update_rows(rows_of(ids), deltas, true);
  }
  void bupdate(std::span<const str_type> names, std::span<const T> deltas) {
    update_rows(rows_of(names), deltas, true);
  }

  /// Sends what updates as f16 or i8 have kept back, in full precision, as one more update of those rows; with an
  /// optimizer that is a step. No-op for `wire_format::full`. Cost: an update of the rows of which something is kept.
  void flush() { handle_.flush(); }
  /// What is kept back, for paralg::checkpoint_state; a resumed worker passes it to `restore_residuals` of the same
  /// table before its first update, and goes on as if it had not been stopped. Empty for `wire_format::full`.
  [[nodiscard]] std::string residuals() const { return handle_.residuals(); }
  /// Throws: error for residuals of another table. An empty text is ignored.
  void restore_residuals(std::string_view from) { handle_.restore_residuals(from); }
  /// Memory of what is kept back, estimated from above.
  [[nodiscard]] std::size_t residual_bytes() const noexcept { return handle_.residual_bytes(); }

  /// Removes rows with their state; touched again, they are re-initialised. Returns how many existed.
  std::uint64_t remove(std::span<const std::uint64_t> ids) { return handle_.remove(rows_of(ids)); }
  std::uint64_t remove(std::span<const str_type> names) { return handle_.remove(rows_of(names)); }

  /// The number of rows in all servers. Cost: one round trip to every shard.
  [[nodiscard]] std::uint64_t size() { return handle_.size(); }

  /// Calls `f(std::uint64_t id, std::span<const T> row)` for every row by id, in no particular order. A row that exists
  /// throughout is visited once; the span is valid during the call, which may not use the paralg. Cost: chunks of
  /// 1 MB, one in flight. Blocks: as pull.
  template <class F>
  void for_each(F f) {
    handle_.scan(false, [&](std::uint64_t id, std::string_view, const std::byte* row) { f(id, row_at(row)); });
  }
  /// The same with rows by name: `f(std::string_view name, std::span<const T> row)`.
  template <class F>
  void for_each_named(F f) {
    handle_.scan(true, [&](std::uint64_t, std::string_view name, const std::byte* row) { f(name, row_at(row)); });
  }

 private:
  using rows = table_detail::row_names;
  static rows rows_of(std::span<const std::uint64_t> ids) noexcept { return {ids.data(), nullptr, ids.size()}; }
  static rows rows_of(std::span<const str_type> names) noexcept { return {nullptr, names.data(), names.size()}; }
  std::span<const T> row_at(const std::byte* row) const noexcept { return {reinterpret_cast<const T*>(row), width()}; }
  void pull_rows(const rows& r, std::span<T> out) {
    handle_.check(r.count, out.size());
    handle_.pull(r, std::as_writable_bytes(out).data());
  }
  async_functor_type pull_rows_async(const rows& r, std::span<T> out) {
    handle_.check(r.count, out.size());
    return handle_.pull_async(r, std::as_writable_bytes(out).data());
  }
  void push_rows(const rows& r, std::span<const T> values) {
    handle_.check(r.count, values.size());
    handle_.push(r, std::as_bytes(values).data());
  }
  void update_rows(const rows& r, std::span<const T> deltas, bool wait = false) {
    handle_.check(r.count, deltas.size());
    handle_.update(r, std::as_bytes(deltas).data(), wait);
  }

  table_detail::handle handle_;
};

}  // namespace paracel
