// SPDX-License-Identifier: BSD-3-Clause
//
// The iterative communication queue: compute functions and collectives, added in order and repeated as supersteps
// until a criterion holds. Each task (a worker of the job) runs the same program on its own rows.
//
//   com_queue q(job);
//   q.init_with_partitioned_data("rows", std::move(rows));
//   q.init_with_broadcast_data("w", std::vector<double>(columns));
//   q.add([](com_context& c) { ... c.put_obj("gradient", std::move(g)); });
//   q.add(all_reduce("gradient"));
//   q.add([](com_context& c) { ... c.get_obj<std::vector<double>>("w") ... c.put_obj("change", change); });
//   q.set_compare_criterion_of_node0([](com_context& c) { return c.get_obj<double>("change") < 1e-6; });
//   q.set_max_iter(100);
//   q.close_with([](com_context& c) { return c.get_obj<std::vector<double>>("w"); });
//   const auto w = q.exec<std::vector<double>>();
//
// Source: the programming model of Alink's IterativeComQueue. Differences: folds are in rank order, so that results are
// bit-identical from run to run; short vectors are folded by all tasks; when tasks disagree or one fails, all end with
// the same error; a superstep is the unit of recovery. doc/com_queue.md has a complete program.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <vector>

#include <paracel/collectives.hpp>
#include <paracel/com_context.hpp>
#include <paracel/error.hpp>
#include <paracel/paralg.hpp>

namespace paracel {

/// A collective of a queue, created by the functions below. All operate on the object of that name, on every task.
/// Throws (inside exec, the same on every task): error when the tasks differ in length, type or operation; key_error
/// when the object is missing on one of them, type_error when it is neither a vector of double, float, int32 or int64
/// nor one such number.
class queue_item {
 public:
  using step = std::function<void(com_context&, collectives&)>;
  queue_item(std::string what, step run) : what_(std::move(what)), run_(std::move(run)) {}
  /// For messages, such as all_reduce("gradient").
  [[nodiscard]] const std::string& what() const noexcept { return what_; }
  void operator()(com_context& c, collectives& all) const { run_(c, all); }

 private:
  std::string what_;
  step run_;
};

/// Folds the vectors of the tasks element by element in rank order, in place: every task gets the result.
/// `length_name`: an integer object; only that many leading elements are folded, the others stay as they are.
/// Cost: collectives.hpp.
[[nodiscard]] queue_item all_reduce(const std::string& name, reduce_op op = reduce_op::sum);
[[nodiscard]] queue_item all_reduce(const std::string& name, const std::string& length_name,
                                    reduce_op op = reduce_op::sum);
[[nodiscard]] queue_item all_reduce_with(const std::string& name, const std::string& length_name,
                                         collectives::fold_rule how);
/// With a user-defined function, which must work element by element: it gets pieces of the vectors.
template <raw_number T>
[[nodiscard]] queue_item all_reduce(const std::string& name, span_fold<T> fold) {
  return all_reduce_with(name, "", {tag_of<T>(), reduce_op::sum, collectives::bytes_fold<T>(std::move(fold))});
}
template <raw_number T>
[[nodiscard]] queue_item all_reduce(const std::string& name, const std::string& length_name, span_fold<T> fold) {
  return all_reduce_with(name, length_name, {tag_of<T>(), reduce_op::sum, collectives::bytes_fold<T>(std::move(fold))});
}

/// Folds whole objects of any type that has an encoding: fold(accumulator, contribution), in rank order, on every task.
/// Cost: every object is sent to every task.
template <class T>
[[nodiscard]] queue_item all_reduce_object(const std::string& name, std::function<void(T&, const T&)> fold) {
  return {"all_reduce_object(\"" + name + "\")", [name, fold = std::move(fold)](com_context& c, collectives& all) {
            auto parts = all.all_gather_objects(c.get_obj<T>(name), name);
            for (std::size_t r = 1; r < parts.size(); ++r) fold(parts.front(), parts[r]);
            c.get_obj<T>(name) = std::move(parts.front());
          }};
}

/// Folds as all_reduce; then each task's vector has only the elements that it owns (owned_range_of).
[[nodiscard]] queue_item reduce_scatter(const std::string& name, reduce_op op = reduce_op::sum);
/// Every task's vector becomes the concatenation of all tasks' vectors in rank order. Lengths may differ. After a
/// reduce_scatter it completes an all_reduce.
[[nodiscard]] queue_item all_gather(const std::string& name);
/// Copies the object of task `root` to every task, whether or not it had one of this name; any type that has an
/// encoding.
[[nodiscard]] queue_item broadcast(const std::string& name, std::size_t root = 0);

/// A user-defined step, for what the others do not cover: `step(context, all)` with all.send and all.receive by rank,
/// and every operation of collectives.hpp. What one task sends, another must receive in the same step.
/// Not replayed: with `--on-worker-death wait:T` a queue that sends messages cannot continue after a worker's death.
[[nodiscard]] queue_item communicate(std::function<void(com_context&, collectives&)> step);

/// One superstep of task 0, in seconds.
struct superstep_report {
  int step = 0;
  double seconds = 0;                                   ///< the whole superstep
  double computing = 0;                                 ///< in compute functions, the criterion included
  double waiting = 0;                                   ///< for other tasks that had not begun the same collective
  double folding = 0;                                   ///< the rest: collectives, commits
  std::size_t chunks_given = 0;                         ///< own chunks of rows that other tasks computed
  std::size_t chunks_taken = 0;                         ///< chunks of other tasks' rows computed by this one
  std::vector<std::pair<std::string, double>> metrics;  ///< of com_context::set_metric
};

/// The iterative communication queue. Every task builds the same queue and calls exec.
///
/// Supersteps are iterations of the job's clock (paralg::iter_commit) where that matters: when the job writes
/// checkpoints, can replace workers, or uses ssp or bsp. Then the objects of put_obj and init_with_broadcast_data are
/// saved with each superstep, and a job that resumes with as many tasks continues after the last one saved,
/// bit-identically. Data of init_with_partitioned_data are not saved: the program reads them again. Resuming with
/// another number of tasks is refused (config_error). Runs that had already ended return their results again.
///
/// Progress is reported to prun.py, and written to <output>/metrics.jsonl if the algorithm has an output folder and no
/// set_watch: round, the metrics of com_context, seconds, compute_seconds, wait_seconds, fold_seconds.
///
/// Thread-safety: none; on the thread that made the paralg. Lifetime: the paralg must outlive it.
class com_queue {
 public:
  using compute = std::function<void(com_context&)>;

  explicit com_queue(paralg& job);
  ~com_queue();
  com_queue(const com_queue&) = delete;
  com_queue& operator=(const com_queue&) = delete;

  /// This task's own rows, of any type, read with get_obj<const T>; a task without rows passes an empty container. They
  /// stay in the queue for its next run. std::cref(rows): without moving them; they must outlive the queue.
  template <class T>
  com_queue& init_with_partitioned_data(const std::string& name, T rows) {
    return keep_partition(name, std::make_shared<const T>(std::move(rows)));
  }
  template <class T>
  com_queue& init_with_partitioned_data(const std::string& name, std::reference_wrapper<const T> rows) {
    return keep_partition(name, std::shared_ptr<const T>(std::shared_ptr<void>(), &rows.get()));
  }
  /// Task 0's value, on every task when a run begins; the others' values only give its type. T as for put_obj.
  template <class T>
  com_queue& init_with_broadcast_data(const std::string& name, T value) {
    return add_start([name, value = std::move(value)](com_context& c, collectives& all) {
      auto copy = value;
      all.broadcast_object(copy, 0, name);
      c.put_obj(name, std::move(copy));
    });
  }

  /// A compute function, called once per superstep on every task. Consecutive ones are one step, without a barrier
  /// between them.
  com_queue& add(compute f);
  com_queue& add(queue_item item);
  /// Called after each superstep, on task 0 only; true makes it the last one, on every task.
  com_queue& set_compare_criterion_of_node0(std::function<bool(com_context&)> criterion);
  /// At most n supersteps; without a criterion exactly n. Throws: config_error unless it is at least 1.
  com_queue& set_max_iter(int n);
  /// On: tasks that have finished their part of an over_rows step take over chunks of stragglers (over_rows.hpp).
  /// Results stay bit-identical. Must be the same on every task. Default: the key "work_stealing" of the program's
  /// config, if its schema has it; else off. Cost: doc/com_queue.md. Throws (exec): config_error with --on-worker-death
  /// wait:T and eject.
  com_queue& set_work_stealing(bool on);
  /// Called once, in the last superstep, on every task. What task 0's call returns is the result of exec; it must have
  /// an encoding. It may return std::optional, which may be empty on the other tasks, or nothing.
  template <class F>
  com_queue& close_with(F f) {
    own_results_ = false;
    return keep_close(std::move(f));
  }
  /// The same for results that differ between tasks: exec returns on each task what its own call returned, which may be
  /// large: it is not sent, and neither copied nor encoded unless a checkpoint or wait:T needs it.
  template <class F>
  com_queue& close_each_with(F f) {
    own_results_ = true;
    return keep_close(std::move(f));
  }

  /// Called after each superstep, on task 0, instead of writing metrics.jsonl. Progress is reported in either case.
  com_queue& set_watch(std::function<void(const superstep_report&)> watch);

  /// Runs the queue from the beginning; nothing is left of an earlier run. Returns: on every task the result of
  /// close_with's function on task 0; with close_each_with its own. Throws: the same error on every task when one of
  /// them fails: config_error when the queue has neither a criterion nor a maximum, or nothing to do; the errors of its
  /// items; what a function threw, with task and superstep in the text.
  template <class R = void>
  R exec() {
    if (std::type_index(typeid(R)) != result_type_ && !std::is_void_v<R>)
      throw error("exec: its result type differs from the one that the function of close_with returns");
    const auto found = run();
    if constexpr (!std::is_void_v<R>) {
      if (found.own != nullptr) return std::move(*static_cast<R*>(found.own.get()));
      return decode<R>(collectives::view_of(found.bytes));
    }
  }
  /// Supersteps of the last run, those before a checkpoint included.
  [[nodiscard]] int steps() const noexcept { return steps_; }

 private:
  /// The result of a run: as bytes, or with close_each_with the object itself, which is encoded only where it is saved.
  struct outcome {
    byte_vector bytes;
    std::shared_ptr<void> own;
    byte_vector (*encode)(const void* own) = nullptr;
  };
  template <class T>
  static byte_vector encode(const void* value) {
    const encoded<T> e(*static_cast<const T*>(value));
    return collectives::value_bytes(e.view());
  }
  template <class T>
  struct without_optional {
    using type = T;
  };
  template <class T>
  struct without_optional<std::optional<T>> {
    using type = T;
  };
  template <class T>
  static T* pointer_to(T& v) {
    return &v;
  }
  template <class T>
  static T* pointer_to(std::optional<T>& v) {
    return v ? &*v : nullptr;
  }
  template <class T>
  com_queue& keep_partition(const std::string& name, std::shared_ptr<const T> rows) {
    partitions_[name] = [rows = std::move(rows)]() -> std::unique_ptr<queue_detail::object> {
      return std::make_unique<queue_detail::partition_object<T>>(rows);
    };
    return *this;
  }
  template <class F>
  com_queue& keep_close(F f) {
    using returned = std::invoke_result_t<F, com_context&>;
    if constexpr (std::is_void_v<returned>) {
      close_ = [f = std::move(f)](com_context& c) {
        f(c);
        return outcome();
      };
      result_type_ = typeid(void);
    } else {
      using result = typename without_optional<returned>::type;
      close_ = [f = std::move(f), own = own_results_](com_context& c) {
        returned r = f(c);
        result* value = pointer_to(r);
        const bool needed = own || c.task_id() == 0;
        if (needed && value == nullptr)
          throw error("close_with: task " + std::to_string(c.task_id()) + " returned no result");
        outcome found;
        if (own) found = {{}, std::make_shared<result>(std::move(*value)), &encode<result>};
        else if (needed) found.bytes = encode<result>(value);
        return found;
      };
      result_type_ = typeid(result);
    }
    return *this;
  }
  com_queue& add_start(queue_item::step start);
  outcome run();

  struct execution;
  paralg& job_;
  int steps_ = 0;
  std::map<std::string, std::function<std::unique_ptr<queue_detail::object>()>> partitions_;
  std::vector<queue_item::step> starts_;
  std::vector<queue_item> items_;
  std::vector<bool> computes_;  // whether an item is a compute function
  std::function<bool(com_context&)> criterion_;
  int max_iter_ = 0;
  bool work_stealing_ = false;
  std::function<outcome(com_context&)> close_;
  bool own_results_ = false;  // each task returns its own result
  std::type_index result_type_ = typeid(void);
  std::function<void(const superstep_report&)> watch_;
};

}  // namespace paracel
