// SPDX-License-Identifier: BSD-3-Clause
//
// A step of a com_queue that computes over the rows of each task in chunks and folds the chunks' results in row order.
// So the result does not depend on which task computed a chunk, and tasks that have finished can take over chunks of
// stragglers ("work_stealing", com_queue::set_work_stealing).
//
//   q.init_with_partitioned_data("rows", std::move(rows));              // a table: std::vector<std::vector<double>>
//   q.add(over_rows(row_work<table>{
//       .rows = "rows",
//       .result = "sums",
//       .reads = {"centres"},
//       .length = [](com_context& c) { return c.get_obj<const table>("centres").size() * width; },
//       .compute = [](const row_chunk<table>& chunk, std::span<double> sums) {
//         const auto& centres = chunk.get_obj<table>("centres");
//         for (std::size_t i = chunk.begin(); i < chunk.end(); ++i) ... chunk.rows()[i] ... sums[j] += ...
//       }}));
//   q.add(all_reduce("sums"));
//
// What compute may use: the rows of its chunk, the objects named in `reads`, and what is the same in every process,
// such as constants. Objects named in `reads` must be the same on every task, as broadcast and all-reduced ones are;
// with work stealing their encodings are compared in each superstep. Bit-identical results also need the same kind of
// processor for all tasks, because a mathematical library may choose other instructions on another one.
// doc/com_queue.md has the costs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/collectives.hpp>
#include <paracel/com_context.hpp>
#include <paracel/com_queue.hpp>
#include <paracel/error.hpp>

namespace paracel {

/// How rows of a type are counted and sliced. Specialise it for types other than vectors. A slice must have an
/// encoding, in which it is sent.
template <class T>
struct row_slices;
template <class E, class A>
struct row_slices<std::vector<E, A>> {
  [[nodiscard]] static std::size_t count(const std::vector<E, A>& rows) { return rows.size(); }
  /// Rows [begin, end).
  [[nodiscard]] static std::vector<E, A> slice(const std::vector<E, A>& rows, std::size_t begin, std::size_t end) {
    return {rows.begin() + static_cast<std::ptrdiff_t>(begin), rows.begin() + static_cast<std::ptrdiff_t>(end)};
  }
};

/// A range of one task's rows. Lifetime: that of the call.
template <class T>
class row_chunk {
 public:
  row_chunk(com_context& context, const std::vector<std::string>& reads, const T& rows, owned_range in_rows,
            std::size_t owner, std::size_t first)
      : context_(&context), reads_(&reads), rows_(&rows), range_(in_rows), owner_(owner), first_(first) {}

  /// A container with these rows, possibly among others: they are [begin, end) of it.
  [[nodiscard]] const T& rows() const noexcept { return *rows_; }
  [[nodiscard]] std::size_t begin() const noexcept { return range_.begin; }
  [[nodiscard]] std::size_t end() const noexcept { return range_.end; }
  [[nodiscard]] std::size_t size() const noexcept { return range_.size(); }
  /// The task that owns the rows, and the number of the first one among its rows.
  [[nodiscard]] std::size_t owner() const noexcept { return owner_; }
  [[nodiscard]] std::size_t first_row() const noexcept { return first_; }
  /// An object of the context that is named in row_work::reads. Throws: key_error for another one; as
  /// com_context::get_obj.
  template <class U>
  [[nodiscard]] const U& get_obj(const std::string& name) const {
    if (std::find(reads_->begin(), reads_->end(), name) == reads_->end())
      throw key_error("\"" + name + "\" is not one of the objects that the step reads");
    return context_->get_obj<const U>(name);
  }

 private:
  com_context* context_;
  const std::vector<std::string>* reads_;
  const T* rows_;
  owned_range range_;
  std::size_t owner_;
  std::size_t first_;
};

/// T: the type of the rows, as given to init_with_partitioned_data. R: the elements of the result.
template <class T, raw_number R = double>
struct row_work {
  std::string rows;                  ///< the name of the rows
  std::string result;                ///< the name of the result, a std::vector<R> that each superstep replaces
  std::vector<std::string> reads{};  ///< objects that `compute` uses: the same on every task
  /// Number of elements of the result; the same on every task. Called on every task before the chunks.
  std::function<std::size_t(com_context&)> length;
  /// Adds what these rows contribute. `result`: `length` elements, which are `empty` before the call. Called any number
  /// of times, on any task.
  std::function<void(const row_chunk<T>&, std::span<R> result)> compute;
  R empty = R{};  ///< what results start from: 0 for sums, the lowest number for maxima
  /// Folds the chunks of a task in row order, as all_reduce folds tasks in rank order.
  reduce_op op = reduce_op::sum;
  span_fold<R> fold{};  ///< instead of `op`
  /// The number of chunks into which a task's rows are cut, or one per row if it has fewer rows: chunk k is
  /// owned_range_of(rows, chunks, k). The result depends on it, but not on work stealing.
  std::size_t chunks = 64;
};

/// One computation in chunks, untyped.
struct chunk_work {
  std::string name;        ///< in messages, and of the rows that other tasks keep: the same on every task
  std::size_t rows = 0;    ///< of this task
  std::size_t chunks = 1;  ///< at most
  collectives::fold_rule how{};
  /// What the chunks of all tasks read: names, and digests of the values. Only called when chunks may go to other
  /// tasks.
  struct input {
    std::string name;
    std::uint64_t digest = 0;
  };
  std::function<std::vector<input>()> inputs;
  /// Computes own rows.
  std::function<void(owned_range rows, std::span<std::byte> result)> compute;
  /// Own rows packed for another task; what it unpacks, and keeps.
  std::function<byte_vector(owned_range rows)> pack;
  std::function<std::shared_ptr<const void>(std::span<const std::byte> packed)> unpack;
  /// Computes those rows, which are `rows` of task `owner`.
  std::function<void(const void* unpacked, std::size_t owner, owned_range rows, std::span<std::byte> result)>
      compute_of;
};

/// Runs it as a part of a queue's item, on every task. `result`: on entry the empty result, on return the fold of all
/// chunks of this task's rows. Throws: error that names the rows, for what `compute` threw.
void compute_chunks(com_context& c, const chunk_work& work, std::span<std::byte> result);
/// For chunk_work::inputs.
[[nodiscard]] std::uint64_t digest_of_input(std::span<const std::byte> bytes);
/// The digest of an object's encoding. Throws: type_error when it has none, such as objects of put_local.
[[nodiscard]] std::uint64_t digest_of_input(com_context& c, const std::string& name);

/// Cost, without work stealing: chunks * length additions; with it doc/com_queue.md.
/// Throws (inside exec, the same on every task): config_error when `length` or `compute` is missing or `chunks` is 0;
/// error that names the rows and their owner, for what `compute` threw, wherever it ran.
template <class T, raw_number R>
[[nodiscard]] queue_item over_rows(row_work<T, R> work) {
  const auto what = "over_rows(\"" + work.rows + "\", \"" + work.result + "\")";
  return {what, [work = std::move(work), what](com_context& c, collectives&) {
            if (!work.length || !work.compute || work.chunks == 0)
              throw config_error("row_work: want length, compute, and chunks of 1 or more");
            const auto& rows = c.get_obj<const T>(work.rows);
            auto& result = c.put_obj(work.result, std::vector<R>(work.length(c), work.empty));
            const auto elements = [](std::span<std::byte> bytes) {
              return std::span<R>(reinterpret_cast<R*>(bytes.data()), bytes.size() / sizeof(R));
            };
            chunk_work untyped;
            untyped.name = what;
            untyped.rows = row_slices<T>::count(rows);
            untyped.chunks = work.chunks;
            untyped.how = {tag_of<R>(), work.op, {}};
            if (work.fold) untyped.how.fold = collectives::bytes_fold<R>(work.fold);
            untyped.inputs = [&] {
              std::vector<chunk_work::input> all;
              for (const auto& name : work.reads) all.push_back({name, digest_of_input(c, name)});
              return all;
            };
            untyped.compute = [&](owned_range r, std::span<std::byte> to) {
              work.compute(row_chunk<T>(c, work.reads, rows, r, c.task_id(), r.begin), elements(to));
            };
            untyped.pack = [&](owned_range r) {
              const auto part = row_slices<T>::slice(rows, r.begin, r.end);
              const encoded<T> e(part);
              return collectives::value_bytes(e.view());
            };
            untyped.unpack = [](std::span<const std::byte> packed) -> std::shared_ptr<const void> {
              return std::make_shared<const T>(decode<T>(collectives::view_of(packed)));
            };
            untyped.compute_of = [&](const void* part, std::size_t owner, owned_range r, std::span<std::byte> to) {
              work.compute(row_chunk<T>(c, work.reads, *static_cast<const T*>(part), {0, r.size()}, owner, r.begin),
                           elements(to));
            };
            compute_chunks(c, untyped, std::as_writable_bytes(std::span(result)));
          }};
}

}  // namespace paracel
