// SPDX-License-Identifier: BSD-3-Clause
//
// Vertex programs: each vertex computes from its value and its messages, sends messages, and votes to halt;
// a message wakes it up. The run ends when all vertices have halted and no message is in flight.
//
//   struct greatest {                                    // every vertex ends with the greatest value that reaches it
//     using value_type = double;
//     using message_type = double;
//     static void combine(double& into, double more) { if (more > into) into = more; }      // optional
//     template <class Vertex>
//     void compute(Vertex& v, std::span<const double> messages) {
//       bool news = v.superstep() == 0;
//       for (const double m : messages)
//         if (m > v.value()) { v.value() = m; news = true; }
//       if (news) v.send_to_targets(v.value());
//       v.vote_to_halt();
//     }
//   };
//   pregel_run<greatest> run(comm, graph);
//   for (std::size_t v = 0; v < graph.own(); ++v) run.value(v) = ...;
//   run.run();
//
// Source: G. Malewicz et al., "Pregel: a system for large-scale graph processing", SIGMOD 2010. Messages go to the
// worker that owns the vertex; with a combiner a worker keeps one message for each known vertex and sends only those
// that were written. doc/pregel.md has a complete program.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/detail/pregel_mailbox.hpp>
#include <paracel/detail/saved_state.hpp>
#include <paracel/distributed_graph.hpp>
#include <paracel/error.hpp>
#include <paracel/pregel_checkpoint.hpp>
#include <paracel/resumable_loop.hpp>

namespace paracel {

struct pregel_options {
  std::uint64_t max_supersteps = ~std::uint64_t{0};  ///< stop after this many, counted from the very first one
  std::string checkpoint_folder{};                   ///< empty: no checkpoints
  std::uint64_t checkpoint_every = 0;                ///< supersteps between checkpoints; 0: none
  /// Called on every worker after each superstep, with its number and, over all workers, the numbers of awake vertices
  /// and of messages sent.
  std::function<void(std::uint64_t superstep, std::uint64_t awake, std::uint64_t messages)> watch{};
  /// Supersteps are iterations of this job, for its own checkpoints and for the replacement of dead workers
  /// (resumable_loop.hpp); null: they are not.
  paralg* job = nullptr;
};

struct pregel_summary {
  std::uint64_t supersteps = 0;  ///< computed, including those before a checkpoint
  std::uint64_t messages = 0;    ///< of all workers, after each has combined its own before sending
  bool finished = false;         ///< all halted, or `proceed` returned false; false: max_supersteps came first
};

/// Runs a vertex program on this worker's part of a graph; every worker constructs one and calls the same functions.
///
/// Program has
///   value_type            the state of a vertex; must be trivially copyable for checkpoints
///   message_type          trivially copyable
///   compute(v, messages)  called for each vertex that is awake or has messages, in the order of their numbers
/// and may have
///   combine(into, more)   folds messages to one vertex; `messages` then has at most one element. Without it: all of
///                         them, in the order of their senders' numbers, those sent by id last for each worker
///   aggregate_type, fold(into, more)   trivially copyable; its default value is neutral. What vertices put into
///                         v.aggregate() is folded in rank order; all see the result in the next
///                         superstep
///   proceed(superstep, aggregate)      called on every worker after a superstep with the result; false ends the run
///   keep(loop)            registers its own variables that supersteps change, with resumable_loop::keep; called in
///                         a run with a job
///
/// Shape: messages of a vertex are one list; with a combiner the fold begins with the worker's own ones, then in rank
/// order. Results are bit-identical for the same number of workers, and for any number where `combine` and `fold` are
/// exact. Thread-safety: none. Lifetime: the graph must outlive it. Cost: a superstep is one all-to-all: 4 bytes (or a
/// bit of each ghost, if that is less) and the message for each ghost that was written, 8 + sizeof(message) for one
/// that is not a neighbour here. Memory: a message and a byte for each local vertex with a combiner, a message and
/// 4 bytes for each message without.
template <class Program>
class pregel_run {
 public:
  using value_type = typename Program::value_type;
  using message_type = typename Program::message_type;
  using aggregate_type = typename pregel_detail::mailbox<Program>::aggregate_type;

  /// A vertex's view of itself and the graph in a superstep.
  class vertex {
   public:
    /// 0, 1, ...
    [[nodiscard]] std::uint64_t superstep() const noexcept { return of_.superstep_; }
    [[nodiscard]] std::size_t local() const noexcept { return v_; }
    [[nodiscard]] std::uint64_t number() const { return of_.graph_.first[of_.graph_.rank] + v_; }
    [[nodiscard]] std::string id() const { return of_.graph_.ids.text(v_); }
    [[nodiscard]] std::uint64_t vertices_total() const noexcept { return of_.graph_.vertices_total(); }
    [[nodiscard]] value_type& value() const { return of_.values_[v_]; }

    /// Local indices of the targets of its edges.
    [[nodiscard]] std::span<const std::uint32_t> targets() const { return of_.graph_.out.of(v_); }
    /// The weight of the edge to targets()[e]; 1 if the graph has no weights.
    [[nodiscard]] double weight(std::size_t e) const { return of_.graph_.out.weight_at(of_.graph_.out.begin[v_] + e); }
    /// The same for the edges that enter, in a graph loaded with `incoming`.
    [[nodiscard]] std::span<const std::uint32_t> sources() const { return of_.graph_.in.of(v_); }
    [[nodiscard]] double source_weight(std::size_t e) const {
      return of_.graph_.in.weight_at(of_.graph_.in.begin[v_] + e);
    }

    void send(std::uint32_t local, const message_type& m) { of_.mail_.send(of_.program_, local, m); }
    void send_to_targets(const message_type& m) {
      for (const auto t : targets()) send(t, m);
    }
    void send_to_sources(const message_type& m) {
      for (const auto s : sources()) send(s, m);
    }
    /// Sends to any vertex, by its number. Cost: O(log ghosts). Throws: error when it does not exist.
    void send_to_number(std::uint64_t number, const message_type& m) {
      of_.mail_.send_to_number(of_.program_, number, m);
    }
    /// Sends to any vertex, by its id. The worker that would own it throws an error if it does not exist.
    void send_to_id(std::uint64_t id, const message_type& m) { of_.mail_.send_to_id(of_.program_, id, m); }
    void send_to_id(std::string_view id, const message_type& m) { of_.mail_.send_to_id(of_.program_, id, m); }

    /// This vertex is not computed again until a message arrives.
    void vote_to_halt() noexcept { halts_ = true; }

    /// This worker's contribution to the aggregate of this superstep.
    [[nodiscard]] aggregate_type& aggregate() const noexcept { return of_.partial_; }
    /// The aggregate of the previous superstep.
    [[nodiscard]] const aggregate_type& aggregated() const noexcept { return of_.aggregated_; }

   private:
    friend class pregel_run;
    vertex(pregel_run& of, std::size_t v) : of_(of), v_(v) {}
    pregel_run& of_;
    std::size_t v_;
    bool halts_ = false;
  };

  /// `borders`: an existing halo of the graph. A collective. Cost: that of a halo, if it builds one, and an
  /// all-gather of an id a worker.
  pregel_run(Comm comm, const distributed_graph& graph, Program program = {},
             std::shared_ptr<const halo> borders = nullptr)
      : comm_(std::move(comm)),
        graph_(graph),
        program_(std::move(program)),
        checkpoints_(comm_, graph),
        mail_(comm_, graph, std::move(borders)) {
    checkpoints_.expect_sizes(sizeof(value_type), sizeof(message_type), sizeof(aggregate_type));
    values_.resize(graph.own());
    awake_.resize(graph.own());
    for (std::size_t v = 0; v < graph.own(); ++v) awake_[v] = static_cast<std::uint32_t>(v);
  }

  [[nodiscard]] Program& program() noexcept { return program_; }
  [[nodiscard]] value_type& value(std::size_t own) { return values_[own]; }
  [[nodiscard]] std::vector<value_type>& values() noexcept { return values_; }
  [[nodiscard]] const aggregate_type& aggregated() const noexcept { return aggregated_; }
  [[nodiscard]] std::uint64_t superstep() const noexcept { return superstep_; }

  /// Runs supersteps until the end. Every worker must call it, with the same options.
  /// With a job, a run that had ended at max_supersteps does not continue when it is resumed with a greater number.
  pregel_summary run(const pregel_options& options = {}) {
    if constexpr (!std::is_trivially_copyable_v<value_type>) {
      if (options.checkpoint_every != 0 || options.job != nullptr)
        throw usage_error("pregel: to be checkpointed, values must be trivially copyable");
    }
    // Here and not at the first checkpoint: a worker's replacement repeats the collectives before the loop.
    if (options.checkpoint_every != 0) checkpoints_.prepare();
    first_superstep_ = superstep_;
    finished_ = !active_;
    resumable_loop loop(options.job);
    if (options.job != nullptr) keep_in(loop);
    if (finished_ || superstep_ >= options.max_supersteps) loop.stop();
    while (loop.next()) {
      save_if_due(options);  // here, because the superstep before has been committed: this can be repeated
      compute();
      exchange();
      ++superstep_;
      finished_ = !active_;
      if constexpr (requires { program_.proceed(superstep_, aggregated_); })
        finished_ = !program_.proceed(superstep_ - 1, aggregated_) || finished_;
      if (options.watch) options.watch(superstep_ - 1, awake_total_, sent_total_);
      if (finished_ || superstep_ >= options.max_supersteps) loop.stop();
    }
    if (finished_) remove_checkpoints();
    else save_if_due(options);
    return {superstep_, messages_, finished_};
  }

  /// Distinguishes the checkpoints of this computation from those of others on the same graph, for example with
  /// pregel_identity("bfs", {source}); 0 if never called. Call it before `run`, `save` and `restore`, on every worker
  /// with the same number.
  void identify(std::uint64_t computation) noexcept { checkpoints_.identify(computation); }

  /// Writes what a later `restore` needs to resume: values, awake vertices, messages in flight, the
  /// aggregate, the superstep number. A program's own variables are not included. Every worker must call it.
  /// Other checkpoints in the folder are removed once every worker has written this one.
  void save(const std::string& folder) requires std::is_trivially_copyable_v<value_type> {
    byte_vector state;
    put_state(state);
    checkpoints_.save(folder, superstep_, state);
  }

  /// Removes the checkpoints that this run has written or restored; `run` does it when it has finished. Every
  /// worker must call it.
  void remove_checkpoints() { checkpoints_.remove(); }

  /// Restores the newest checkpoint that every worker has; false: there is none. Every worker must call it.
  /// Throws: error, on every worker, when a checkpoint belongs to another graph, another computation (see `identify`)
  /// or another number of workers.
  bool restore(const std::string& folder) requires std::is_trivially_copyable_v<value_type> {
    const auto state = checkpoints_.restore(folder);
    if (!state) return false;
    byte_reader in(*state);
    get_state(in);
    return true;
  }

 private:
  void put_state(byte_vector& state) const {
    put_bytes(state, superstep_);
    put_bytes(state, messages_);
    put_bytes(state, static_cast<std::uint64_t>(active_));
    put_bytes(state, aggregated_);
    pregel_detail::put_list(state, values_);
    pregel_detail::put_list(state, awake_);
    mail_.save_inbox(state);
  }
  void get_state(byte_reader& in) {
    superstep_ = in.get<std::uint64_t>();
    messages_ = in.get<std::uint64_t>();
    active_ = in.get<std::uint64_t>() != 0;
    aggregated_ = in.get<aggregate_type>();
    pregel_detail::get_list(in, values_);
    if (values_.size() != graph_.own()) throw error("the checkpoint is of another graph");
    pregel_detail::get_list(in, awake_);
    mail_.restore_inbox(in);
  }

  void keep_in(resumable_loop& loop) {
    if constexpr (std::is_trivially_copyable_v<value_type>) {
      checkpoints_.keep(loop);
      loop.keep("first_superstep", first_superstep_).keep("finished", finished_);
      loop.keep_with(
          [this](saved_state& to, const std::string& prefix) {
            byte_vector state;
            put_state(state);
            pregel_detail::put_kept(to, prefix + "vertices", std::move(state));
          },
          [this](const saved_state& from, const std::string& prefix) {
            const auto state = pregel_detail::get_kept(from, prefix + "vertices");
            byte_reader in(state);
            get_state(in);
          });
      if constexpr (requires { program_.keep(loop); }) program_.keep(loop);
    }
  }

  void save_if_due(const pregel_options& options) {
    if (options.checkpoint_every == 0 || superstep_ == first_superstep_) return;
    if constexpr (std::is_trivially_copyable_v<value_type>) {
      if (superstep_ % options.checkpoint_every == 0) save(options.checkpoint_folder);
    }
  }

  void compute() {
    partial_ = aggregate_type{};
    next_awake_.clear();
    const auto targets = mail_.inbox_targets();
    const auto inbox = mail_.inbox();
    std::size_t a = 0, m = 0;
    const auto end = static_cast<std::uint32_t>(values_.size());
    while (true) {
      std::uint32_t v = end;
      if (a < awake_.size()) v = awake_[a];
      if (m < targets.size() && targets[m] < v) v = targets[m];
      if (v == end) break;
      if (a < awake_.size() && awake_[a] == v) ++a;
      const auto from = m;
      while (m < targets.size() && targets[m] == v) ++m;
      vertex handle(*this, v);
      program_.compute(handle, inbox.subspan(from, m - from));
      if (!handle.halts_) next_awake_.push_back(v);
    }
    awake_.swap(next_awake_);
    mail_.clear_inbox();
  }

  void exchange() {
    const auto all = mail_.exchange(program_, awake_.size(), partial_);
    aggregated_ = all.aggregate;
    messages_ += all.sent;
    active_ = all.awake > 0 || all.sent > 0;
    awake_total_ = all.awake;
    sent_total_ = all.sent;
  }

  Comm comm_;
  const distributed_graph& graph_;
  Program program_;
  std::vector<value_type> values_;
  std::uint64_t superstep_ = 0;
  std::uint64_t first_superstep_ = 0;  // of the last call of `run`
  std::uint64_t messages_ = 0;
  std::uint64_t awake_total_ = 0, sent_total_ = 0;  // of the last superstep
  bool active_ = true;
  bool finished_ = false;
  aggregate_type partial_{};
  aggregate_type aggregated_{};
  superstep_checkpoints checkpoints_;
  std::vector<std::uint32_t> awake_, next_awake_;  // own vertices, ascending
  pregel_detail::mailbox<Program> mail_;
};

}  // namespace paracel
