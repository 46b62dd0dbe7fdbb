// SPDX-License-Identifier: BSD-3-Clause
//
// The loop around the steps: in one process, and as a com_queue.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <tuple>
#include <utility>

#include <paracel/com_queue.hpp>
#include <paracel/optim.hpp>
#include <paracel/over_rows.hpp>
#include <paracel/paralg.hpp>

#include "optim/methods.hpp"

namespace paracel::optim {

namespace {

/// The workers of a queue, inside one of its steps.
class queue_team final : public team {
 public:
  void enter(collectives& all, com_context* context = nullptr) {
    all_ = &all;
    context_ = context;
  }
  void sum(std::span<double> values) override { all_->all_reduce(values, reduce_op::sum, "objective"); }
  [[nodiscard]] std::pair<std::size_t, std::size_t> owned(std::size_t n) const override {
    const auto own = owned_range_of(n, all_->size(), all_->rank());
    return {own.begin, own.end};
  }
  void gather(std::span<double> values) override {
    const auto [first, last] = owned(values.size());
    const auto whole = all_->all_gather(std::span<const double>(values.subspan(first, last - first)), "direction");
    std::copy(whole.begin(), whole.end(), values.begin());
  }
  void sum_chunks(objective& f, std::size_t chunks, std::span<const double> w, std::span<double> sums) override {
    const auto add = [](std::span<std::byte> bytes, auto&& compute) {
      const std::span<double> to(reinterpret_cast<double*>(bytes.data()), bytes.size() / sizeof(double));
      to.back() = compute(to.first(to.size() - 1));
    };
    chunk_work work;
    work.name = "objective";
    work.rows = f.rows();
    work.chunks = chunks;
    work.inputs = [&] { return std::vector{chunk_work::input{"w", digest_of_input(std::as_bytes(w))}}; };
    work.compute = [&](owned_range r, std::span<std::byte> to) {
      add(to, [&](std::span<double> g) { return f.range_value_and_gradient(r.begin, r.end, w, g); });
    };
    work.pack = [&](owned_range r) { return f.pack_rows(r.begin, r.end); };
    work.unpack = [&](std::span<const std::byte> packed) { return f.unpack_rows(packed); };
    work.compute_of = [&](const void* rows, std::size_t, owned_range, std::span<std::byte> to) {
      add(to, [&](std::span<double> g) { return f.packed_value_and_gradient(rows, w, g); });
    };
    compute_chunks(*context_, work, std::as_writable_bytes(sums));
  }

 private:
  collectives* all_ = nullptr;
  com_context* context_ = nullptr;
};

/// One step; the first one also calls `begin`. Returns: whether it was the last, max_steps aside.
bool advance(problem& p, method_state& s, int number, ending& why) {
  if (number == 1) begin(p, s);
  const bool is_minimum = number == 1 && !p.how().reference.empty() && is_within_tolerance(p, s);
  if (s.numbers[gradient_norm] == 0 || is_minimum) {
    why = ending::gradient;
    return true;
  }
  const double before = s.numbers[value];
  if (step(p, s, number) == step_outcome::nothing_found) {
    why = ending::line_search;
    return true;
  }
  return has_converged(p, s, before, why);
}

/// Results on the held-out rows, as numbers of a checkpoint: loss and accuracy now, the least loss, and steps since.
enum held_out_number : std::size_t { held_loss, held_accuracy, least_loss, steps_since, held_count };

std::vector<double> held_numbers(const settings& s) {
  const auto nothing = std::numeric_limits<double>::quiet_NaN();
  return {nothing, nothing, s.held_out.best.loss, static_cast<double>(s.held_out.best.steps_since)};
}

/// Measures the held-out rows, with a sum over the workers. Returns: whether to stop.
bool measure(problem& p, const method_state& state, std::vector<double>& numbers, std::vector<double>& best) {
  const auto& held = p.how().held_out;
  if (!held.measure) return false;
  std::vector<double> sums(3);
  held.measure(state.w, sums);
  p.workers().sum(sums);
  numbers[held_loss] = sums[1] / sums[0];
  numbers[held_accuracy] = sums[2] / sums[0];
  if (numbers[held_loss] < numbers[least_loss]) {
    numbers[least_loss] = numbers[held_loss];
    numbers[steps_since] = 0;
    best = state.w;
    return false;
  }
  numbers[steps_since] += 1;
  return held.patience > 0 && numbers[steps_since] >= held.patience;
}

result result_of(const settings& s, std::vector<double> w, const std::vector<double>& numbers, int steps, ending why) {
  result r;
  r.with_reference = !s.reference.empty();
  r.w = std::move(w);
  r.value = numbers[value];
  r.gradient_norm = numbers[gradient_norm];
  r.first_gradient_norm = numbers[first_gradient_norm];
  r.steps = steps;
  r.evaluations = static_cast<std::uint64_t>(numbers[evaluations]);
  r.products = static_cast<std::uint64_t>(numbers[products]);
  r.why = why;
  return r;
}

progress progress_of(const method_state& s, const std::vector<double>& held, int number) {
  return {.step = number,
          .value = s.numbers[value],
          .gradient_norm = s.numbers[gradient_norm],
          .evaluations = s.numbers[evaluations],
          .products = s.numbers[products],
          .validation_loss = held[held_loss],
          .validation_accuracy = held[held_accuracy]};
}

}  // namespace

std::string result::text() const {
  char numbers[160];
  std::snprintf(numbers, sizeof numbers, "at step %d, objective %.10g, gradient norm %.3g of %.3g at the %s", steps,
                value, gradient_norm, first_gradient_norm, with_reference ? "reference" : "start");
  switch (why) {
    case ending::gradient:
      return std::string("the gradient is within its tolerance ") + numbers;
    case ending::objective:
      return std::string("the objective changes by less than its tolerance ") + numbers;
    case ending::steps:
      return std::string("the maximum number of steps is reached ") + numbers;
    case ending::line_search:
      return std::string("the line search finds no step that lowers the objective ") + numbers;
    case ending::validation:
      return std::string("the loss of the validation rows no longer falls ") + numbers;
  }
  return numbers;
}

result minimize(objective& f, const settings& s) {
  team alone;
  problem p(f, s, alone);
  method_state state;
  state.w = s.start;
  state.w.resize(p.size());
  ending why = ending::steps;
  int number = 0;
  auto held = held_numbers(s);
  auto best = s.held_out.best.w;
  for (bool last = false; !last && number < s.max_steps;) {
    const auto begun = std::chrono::steady_clock::now();
    last = advance(p, state, ++number, why);
    if (!last) why = ending::steps;
    if (measure(p, state, held, best) && !last) {
      why = ending::validation;
      last = true;
    }
    if (!s.watch) continue;
    auto now = progress_of(state, held, number);
    now.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    s.watch(now);
  }
  auto found = result_of(s, std::move(state.w), state.numbers, number, why);
  found.best = {std::move(best), held[least_loss], static_cast<int>(held[steps_since])};
  return found;
}

// Objects of the context, all in checkpoints: w, gradient, metric, memory and numbers of method_state, held and best of
// the held-out rows, and why (int32; -1: not ended).
result minimize(paralg& job, objective& f, const settings& s) {
  queue_team workers;
  std::optional<problem> p;
  // Its sums are not part of a superstep: the replacement of a worker repeats them.
  collectives before(job.get_comm());
  workers.enter(before);
  try {
    p.emplace(f, s, workers);
  } catch (const job_error&) {
    throw;
  } catch (const error& e) {
    if (before.failed()) throw;
    before.fail("task " + std::to_string(before.rank()) + ": " + e.what(), e.status());
  } catch (const std::exception& e) {
    before.fail("task " + std::to_string(before.rank()) + ": " + e.what(), exit_status::failure);
  }
  com_queue q(job);
  q.set_work_stealing(s.work_stealing);
  auto start = s.start;
  start.resize(f.dimension());
  const std::vector<double> own_start(start.begin() + static_cast<std::ptrdiff_t>(f.shared()), start.end());
  start.resize(f.shared());
  q.init_with_broadcast_data("w", std::move(start));
  q.init_with_broadcast_data("held", held_numbers(s));
  q.init_with_broadcast_data("best", s.held_out.best.w);
  q.add(communicate([&](com_context& c, collectives& all) {
    workers.enter(all, &c);
    method_state state;
    using vector = std::vector<double>;
    const bool first = c.step_no() == 1;
    // Moved out and back: no copies.
    state.w = std::move(c.get_obj<vector>("w"));
    if (first) {
      state.w.insert(state.w.end(), own_start.begin(), own_start.end());
    } else {
      state.gradient = std::move(c.get_obj<vector>("gradient"));
      state.metric = std::move(c.get_obj<vector>("metric"));
      state.memory = std::move(c.get_obj<vector>("memory"));
      state.numbers = std::move(c.get_obj<vector>("numbers"));
    }
    ending why = ending::steps;
    bool last = advance(*p, state, c.step_no(), why);
    auto& held = c.get_obj<vector>("held");
    if (measure(*p, state, held, c.get_obj<vector>("best")) && !last) {
      why = ending::validation;
      last = true;
    }
    const auto now = progress_of(state, held, c.step_no());
    c.set_metric("objective", now.value);
    c.set_metric("gradient_norm", now.gradient_norm);
    c.set_metric("evaluations", now.evaluations);
    c.set_metric("products", now.products);
    if (s.held_out.measure) {
      c.set_metric("validate_loss", now.validation_loss);
      c.set_metric("validate_accuracy", now.validation_accuracy);
    }
    c.get_obj<vector>("w") = std::move(state.w);
    c.put_obj("gradient", std::move(state.gradient));
    c.put_obj("metric", std::move(state.metric));
    c.put_obj("memory", std::move(state.memory));
    c.put_obj("numbers", std::move(state.numbers));
    c.put_obj("why", last ? static_cast<std::int32_t>(why) : -1);
  }));
  q.set_compare_criterion_of_node0([](com_context& c) { return c.get_obj<std::int32_t>("why") >= 0; });
  q.set_max_iter(s.max_steps);
  using ended =
      std::tuple<std::vector<double>, std::vector<double>, std::int32_t, std::vector<double>, std::vector<double>>;
  const auto close = [](com_context& c) {
    const auto why = c.get_obj<std::int32_t>("why");
    return ended(c.get_obj<std::vector<double>>("w"), c.get_obj<std::vector<double>>("numbers"),
                 why < 0 ? static_cast<std::int32_t>(ending::steps) : why, c.get_obj<std::vector<double>>("held"),
                 c.get_obj<std::vector<double>>("best"));
  };
  if (p->has_own()) q.close_each_with(close);
  else q.close_with(close);
  if (s.watch) {
    q.set_watch([&](const superstep_report& r) {
      progress now{.step = r.step, .seconds = r.seconds};
      for (const auto& [name, v] : r.metrics) {
        if (name == "objective") now.value = v;
        else if (name == "gradient_norm") now.gradient_norm = v;
        else if (name == "evaluations") now.evaluations = v;
        else if (name == "products") now.products = v;
        else if (name == "validate_loss") now.validation_loss = v;
        else if (name == "validate_accuracy") now.validation_accuracy = v;
      }
      s.watch(now);
    });
  }
  auto [w, numbers, why, held, best] = q.exec<ended>();
  auto found = result_of(s, std::move(w), numbers, q.steps(), static_cast<ending>(why));
  found.best = {std::move(best), held[least_loss], static_cast<int>(held[steps_since])};
  return found;
}

}  // namespace paracel::optim
