// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/com_queue.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

#include <nlohmann/json.hpp>

#include <paracel/metrics.hpp>
#include <paracel/resumable_loop.hpp>
#include <paracel/run.hpp>

#include "core/trace.hpp"
#include "worker/queue/work_stealing.hpp"

namespace paracel {

namespace {

using seconds = std::chrono::duration<double>;
using steady = std::chrono::steady_clock;

/// The elements of an object that a collective works on.
queue_detail::number_elements numbers_of(com_context& c, const std::string& name) {
  auto& o = c.find(name);
  const auto all = o->numbers();
  if (!all)
    throw type_error("\"" + name + "\" is " + o->type_text() +
                     ", want a vector of double, float, int32 or int64, or one such number");
  return *all;
}

/// The value of an integer object.
std::size_t count_in(com_context& c, const std::string& name) {
  const auto n = numbers_of(c, name);
  const bool is_one = n.bytes.size() == element_bytes(n.element);
  std::int64_t count = -1;
  if (is_one && n.element == value_tag::i64) count = load_field<std::int64_t>(n.bytes.data());
  else if (is_one && n.element == value_tag::i32) count = load_field<std::int32_t>(n.bytes.data());
  else throw type_error("\"" + name + "\" is " + c.find(name)->type_text() + ", want one integer");
  if (count < 0) throw error("\"" + name + "\" is " + std::to_string(count) + ", want a length");
  return static_cast<std::size_t>(count);
}

std::string quoted(const std::string& name) { return "\"" + name + "\""; }

}  // namespace

// ---- the items

queue_item all_reduce_with(const std::string& name, const std::string& length_name, collectives::fold_rule how) {
  const auto what = "all_reduce(" + quoted(name) + (length_name.empty() ? "" : ", " + quoted(length_name)) + ")";
  return {what, [name, length_name, how = std::move(how)](com_context& c, collectives& all) {
            const auto v = numbers_of(c, name);
            auto part = v.bytes;
            if (!length_name.empty()) {
              const auto n = count_in(c, length_name);
              const auto has = v.bytes.size() / element_bytes(v.element);
              if (n > has)
                throw error("\"" + length_name + "\" is " + std::to_string(n) + ", but \"" + name + "\" has " +
                            std::to_string(has) + " elements");
              part = part.first(n * element_bytes(v.element));
            }
            auto rule = how;
            if (!rule.fold) rule.element = v.element;
            else if (rule.element != v.element)
              throw type_error("\"" + name + "\" has elements of " + name_of(v.element) + ", but the function folds " +
                               name_of(rule.element));
            all.all_reduce_bytes(rule, part, name);
          }};
}

queue_item all_reduce(const std::string& name, reduce_op op) {
  return all_reduce_with(name, "", {value_tag::none, op, {}});
}

queue_item all_reduce(const std::string& name, const std::string& length_name, reduce_op op) {
  return all_reduce_with(name, length_name, {value_tag::none, op, {}});
}

queue_item reduce_scatter(const std::string& name, reduce_op op) {
  return {"reduce_scatter(" + quoted(name) + ")", [name, op](com_context& c, collectives& all) {
            const auto v = numbers_of(c, name);
            const auto width = element_bytes(v.element);
            all.reduce_scatter_bytes({v.element, op, {}}, v.bytes, name);
            const auto own = owned_range_of(v.bytes.size() / width, all.size(), all.rank());
            if (own.begin > 0 && own.size() > 0)
              std::memmove(v.bytes.data(), v.bytes.data() + own.begin * width, own.size() * width);
            c.find(name)->resize(own.size());
          }};
}

queue_item all_gather(const std::string& name) {
  return {"all_gather(" + quoted(name) + ")", [name](com_context& c, collectives& all) {
            const auto v = numbers_of(c, name);
            const byte_vector mine(v.bytes.begin(), v.bytes.end());
            all.all_gather_bytes(v.element, mine, name, [&](const std::vector<std::size_t>& bytes) {
              std::size_t total = 0;
              for (const auto b : bytes) total += b;
              return c.find(name)->resize(total / element_bytes(v.element));
            });
          }};
}

queue_item broadcast(const std::string& name, std::size_t root) {
  return {
      "broadcast(" + quoted(name) + ")", [name, root](com_context& c, collectives& all) {
        saved_state one;
        byte_vector value;
        if (all.rank() == root) {
          c.find(name)->save(name, one);
          one.visit(name, [&](const std::string& at, const value_view& v) {
            if (at == name) value = collectives::value_bytes(v);
          });
          if (value.empty())
            throw type_error("\"" + name + "\" is from put_local or init_with_partitioned_data, which cannot be sent");
        }
        all.broadcast_value(value, root, name);
        if (all.rank() == root) return;
        const auto v = collectives::view_of(value);
        c.put_object(
            name, std::make_unique<queue_detail::restored_object>(v.tag, byte_vector(v.bytes.begin(), v.bytes.end())));
      }};
}

queue_item communicate(std::function<void(com_context&, collectives&)> step) {
  return {"communicate", std::move(step)};
}

// ---- the queue

/// One run.
struct com_queue::execution {
  explicit execution(com_queue& queue)
      : of(queue),
        context(queue.job_, queue.job_.get_worker_id(), queue.job_.get_worker_size()),
        all(queue.job_.get_comm()),
        stealing(queue.job_.get_comm(), all, queue.work_stealing_),
        begin(steady::now()) {
    context.compute_with(stealing);
    all.keep_messages();
    for (const auto& [name, make] : of.partitions_) context.put_object(name, make());
  }

  /// Runs one function of the user or one collective; what it throws becomes every task's error. `what`: for the text.
  template <class F>
  void guarded(const std::string& what, F&& f) {
    try {
      f();
    } catch (const job_error&) {
      throw;  // the job is over
    } catch (const error& e) {
      if (all.failed()) {  // all tasks know, or find out in their next collective
        stealing.leave();
        throw;
      }
      fail(what, e.what(), e.status());
    } catch (const std::exception& e) {
      fail(what, e.what(), exit_status::failure);
    }
  }
  [[noreturn]] void fail(const std::string& what, const std::string& why, int status) {
    stealing.leave();
    all.fail("superstep " + std::to_string(context.step_no()) + ", " + what + ", task " +
                 std::to_string(context.task_id()) + ": " + why,
             status);
  }

  void superstep() {
    const auto start = steady::now();
    const auto waited = all.waited();
    const trace::phase_scope traced(trace::phase::superstep, static_cast<std::uint64_t>(context.step_no()));
    stealing.begin_step(context.step_no());
    seconds computing{};
    const auto compute = [&](const std::string& what, auto&& f) {
      const auto before = steady::now();
      guarded(what, f);
      computing += steady::now() - before;
    };
    for (std::size_t i = 0; i < of.items_.size(); ++i) {
      const auto& item = of.items_[i];
      const auto what = of.computes_[i] ? "item " + std::to_string(i + 1) : item.what();
      if (of.computes_[i]) compute(what, [&] { item(context, all); });
      else guarded(what, [&] { item(context, all); });
    }
    last = of.max_iter_ != 0 && context.step_no() >= of.max_iter_;
    if (of.criterion_) {
      auto ends = static_cast<std::int64_t>(last);
      if (context.task_id() == 0)
        compute("the criterion", [&] { ends |= static_cast<std::int64_t>(of.criterion_(context)); });
      guarded("the criterion", [&] { all.broadcast_object(ends, 0, "criterion"); });
      last = ends != 0;
    } else if (!last && stealing.needs_collective())
      guarded("the superstep's end", [&] { all.barrier("the superstep's end"); });
    if (last && of.close_) compute("close_with", [&] { result = of.close_(context); });
    if (last) {
      guarded("the end", [&] {
        if (!of.own_results_) all.broadcast_value(result.bytes, 0, "result");
        all.barrier("the end");  // so that no task continues when another has failed in its last superstep
      });
    }
    report.step = context.step_no();
    report.metrics = context.metrics();
    report.computing = (computing + stealing.computed()).count();
    report.waiting = (seconds(all.waited() - waited) + stealing.waited()).count();
    report.chunks_given = stealing.given();
    report.chunks_taken = stealing.taken();
    report.seconds = seconds(steady::now() - start).count();
    report.folding = std::max(0.0, report.seconds - report.computing - report.waiting);
    tell();
  }

  /// `first`: of the job.
  void open_metrics(bool first) {
    if (of.watch_ || context.task_id() != 0 || of.job_.get_output().empty()) return;
    metrics.open(of.job_.paracel_result("metrics.jsonl"), !first);
  }

  /// On task 0: reports progress and writes a line of metrics.
  void tell() {
    if (context.task_id() != 0) return;
    const bool measured = !report.metrics.empty();
    of.job_.report_progress({.round = report.step,
                             .rounds = of.max_iter_,
                             .objective = measured ? report.metrics.front().second : report.seconds,
                             .metric = measured ? report.metrics.front().first : "round_seconds"});
    if (of.watch_) return of.watch_(report);
    if (!metrics.is_open()) return;
    nlohmann::ordered_json line{{"round", report.step}};
    for (const auto& [name, value] : report.metrics)
      line[name] = std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
    line["seconds"] = seconds(steady::now() - begin).count();
    line["compute_seconds"] = report.computing;
    line["wait_seconds"] = report.waiting;
    line["fold_seconds"] = report.folding;
    if (stealing.is_on()) {
      line["chunks_given"] = report.chunks_given;
      line["chunks_taken"] = report.chunks_taken;
    }
    metrics.write(line.dump());
  }

  com_queue& of;
  com_context context;
  collectives all;
  work_stealing stealing;
  steady::time_point begin;
  metrics_file metrics;
  superstep_report report;
  outcome result;
  bool last = false;
};

com_queue::com_queue(paralg& job) : job_(job) {
  if (const auto* settings = running_config(); settings != nullptr && settings->given("work_stealing"))
    work_stealing_ = settings->get<bool>("work_stealing");
}
com_queue::~com_queue() = default;

com_queue& com_queue::add_start(queue_item::step start) {
  starts_.push_back(std::move(start));
  return *this;
}

com_queue& com_queue::add(compute f) {
  items_.emplace_back("compute", [f = std::move(f)](com_context& c, collectives&) { f(c); });
  computes_.push_back(true);
  return *this;
}

com_queue& com_queue::add(queue_item item) {
  items_.push_back(std::move(item));
  computes_.push_back(false);
  return *this;
}

com_queue& com_queue::set_compare_criterion_of_node0(std::function<bool(com_context&)> criterion) {
  criterion_ = std::move(criterion);
  return *this;
}

com_queue& com_queue::set_max_iter(int n) {
  if (n < 1) throw config_error("set_max_iter: " + std::to_string(n) + ", want 1 or more");
  max_iter_ = n;
  return *this;
}

com_queue& com_queue::set_work_stealing(bool on) {
  work_stealing_ = on;
  return *this;
}

com_queue& com_queue::set_watch(std::function<void(const superstep_report&)> watch) {
  watch_ = std::move(watch);
  return *this;
}

com_queue::outcome com_queue::run() {
  if (items_.empty()) throw config_error("com_queue: nothing was added");
  if (!criterion_ && max_iter_ == 0)
    throw config_error("com_queue: without a criterion and without set_max_iter it would never end");
  execution e(*this);
  e.guarded("work stealing", [&] { e.stealing.begin_run(); });
  // A checkpoint has the objects; after the end of the run, only the bytes of what exec returns.
  resumable_loop loop(job_);
  loop.keep_with(
      [&](saved_state& to, const std::string& prefix) {
        if (!e.last) e.context.save(prefix + "object.", to);
        if (e.result.own != nullptr) e.result.bytes = e.result.encode(e.result.own.get());
        if (!e.result.bytes.empty()) to.put_value(prefix + "result", collectives::view_of(e.result.bytes));
      },
      [&](const saved_state& from, const std::string& prefix) {
        e.context.restore(prefix + "object.", from);
        from.visit(prefix + "result",
                   [&](const std::string&, const value_view& v) { e.result.bytes = collectives::value_bytes(v); });
      });
  bool begins = true;
  while (loop.next()) {
    const auto step = static_cast<int>(loop.iteration()) + 1;
    if (std::exchange(begins, false)) e.open_metrics(loop.is_first());
    if (step == 1)
      for (const auto& start : starts_) e.guarded("init_with_broadcast_data", [&] { start(e.context, e.all); });
    e.context.begin_step(step);
    e.superstep();
    if (e.last) loop.stop();
  }
  steps_ = static_cast<int>(loop.iteration());
  return std::move(e.result);
}

}  // namespace paracel
