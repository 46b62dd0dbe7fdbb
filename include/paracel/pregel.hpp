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
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/distributed_graph.hpp>
#include <paracel/error.hpp>
#include <paracel/exchange.hpp>
#include <paracel/pregel_checkpoint.hpp>

namespace paracel {

struct pregel_options {
  std::uint64_t max_supersteps = ~std::uint64_t{0};  ///< stop after so many, counted from the very first one
  std::string checkpoint_folder;                     ///< empty: no checkpoints
  std::uint64_t checkpoint_every = 0;                ///< supersteps between checkpoints; 0: none
  /// Called on every worker after each superstep: its number, the number of awake vertices and of messages sent, of all
  /// workers.
  std::function<void(std::uint64_t superstep, std::uint64_t awake, std::uint64_t messages)> watch{};
};

struct pregel_summary {
  std::uint64_t supersteps = 0;  ///< computed, including those before a checkpoint
  std::uint64_t messages = 0;    ///< of all workers, after each has combined its own before sending
  bool finished = false;         ///< all halted, or `proceed` returned false; false: max_supersteps came first
};

namespace pregel_detail {

struct nothing {};

template <class Program>
struct aggregate_of {
  using type = nothing;
};
template <class Program>
requires requires { typename Program::aggregate_type; }
struct aggregate_of<Program> {
  using type = typename Program::aggregate_type;
};

}  // namespace pregel_detail

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
  using aggregate_type = typename pregel_detail::aggregate_of<Program>::type;
  static constexpr bool combines = requires(Program & p, message_type& into, const message_type& more) {
    p.combine(into, more);
  };
  static constexpr bool aggregates = !std::is_same_v<aggregate_type, pregel_detail::nothing>;
  static_assert(std::is_trivially_copyable_v<message_type> && std::is_trivially_copyable_v<aggregate_type>);

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
    /// Of the edge to targets()[e]; 1 if the graph has no weights.
    [[nodiscard]] double weight(std::size_t e) const { return of_.graph_.out.weight_at(of_.graph_.out.begin[v_] + e); }
    /// The same for the edges that enter, in a graph loaded with `incoming`.
    [[nodiscard]] std::span<const std::uint32_t> sources() const { return of_.graph_.in.of(v_); }
    [[nodiscard]] double source_weight(std::size_t e) const {
      return of_.graph_.in.weight_at(of_.graph_.in.begin[v_] + e);
    }

    void send(std::uint32_t local, const message_type& m) { of_.send(local, m); }
    void send_to_targets(const message_type& m) {
      for (const auto t : targets()) of_.send(t, m);
    }
    void send_to_sources(const message_type& m) {
      for (const auto s : sources()) of_.send(s, m);
    }
    /// To any vertex, by its number. Cost: O(log ghosts). Throws: error when it does not exist.
    void send_to_number(std::uint64_t number, const message_type& m) { of_.send_to_number(number, m); }
    /// To any vertex, by its id. The worker that would own it throws an error if it does not exist.
    void send_to_id(std::uint64_t id, const message_type& m) { of_.send_to_id(id, m); }
    void send_to_id(std::string_view id, const message_type& m) { of_.send_to_id(id, m); }

    /// Not to be computed again until a message arrives.
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
      : comm_(std::move(comm)), graph_(graph), halo_(std::move(borders)), program_(std::move(program)) {
    if (!halo_) halo_ = std::make_shared<const halo>(comm_, graph_);
    if (graph.own() >= local_limit || graph.own() + graph.ghosts.size() >= local_limit)
      throw error("pregel: a worker has 2^32 vertices or more; use more workers");
    values_.resize(graph.own());
    awake_.resize(graph.own());
    for (std::size_t v = 0; v < graph.own(); ++v) awake_[v] = static_cast<std::uint32_t>(v);
    if constexpr (combines) {
      slot_.resize(graph.own() + graph.ghosts.size());
      written_.resize(slot_.size());
    }
    gather_first_ids();
  }

  [[nodiscard]] Program& program() noexcept { return program_; }
  [[nodiscard]] value_type& value(std::size_t own) { return values_[own]; }
  [[nodiscard]] std::vector<value_type>& values() noexcept { return values_; }
  [[nodiscard]] const aggregate_type& aggregated() const noexcept { return aggregated_; }
  [[nodiscard]] std::uint64_t superstep() const noexcept { return superstep_; }

  /// Runs supersteps until the end. Every worker must call it, with the same options.
  pregel_summary run(const pregel_options& options = {}) {
    bool proceeds = true;
    while (proceeds && active_ && superstep_ < options.max_supersteps) {
      compute();
      exchange();
      ++superstep_;
      if constexpr (requires { program_.proceed(superstep_, aggregated_); })
        proceeds = program_.proceed(superstep_ - 1, aggregated_);
      if (options.watch) options.watch(superstep_ - 1, awake_total_, sent_total_);
      const bool ended = !proceeds || !active_;
      if (ended || options.checkpoint_every == 0 || superstep_ % options.checkpoint_every != 0) continue;
      if constexpr (std::is_trivially_copyable_v<value_type>) {
        save(options.checkpoint_folder);
      } else {
        throw usage_error("pregel: to be checkpointed, values must be trivially copyable");
      }
    }
    const bool finished = !proceeds || !active_;
    if (finished) remove_checkpoints();
    return {superstep_, messages_, finished};
  }

  /// Tells the checkpoints of this computation from those of others on the same graph, as pregel_identity("bfs",
  /// {source}); 0 if never called. Before `run`, `save` and `restore`, on every worker with the same number.
  void identify(std::uint64_t computation) noexcept { computation_ = computation; }

  /// Writes what a later `restore` needs to resume: values, awake vertices, messages in flight, the
  /// aggregate, the superstep number. A program's own variables are not included. Every worker must call it.
  /// Other checkpoints in the folder are removed when every worker has written this one.
  void save(const std::string& folder) requires std::is_trivially_copyable_v<value_type> {
    byte_vector state;
    put_bytes(state, superstep_);
    put_bytes(state, messages_);
    put_bytes(state, static_cast<std::uint64_t>(active_));
    put_bytes(state, aggregated_);
    put_list(state, values_);
    put_list(state, awake_);
    put_list(state, inbox_target_);
    put_list(state, inbox_);
    pregel_detail::write_checkpoint(folder, superstep_, shape(), state);
    checkpoint_folders_.insert(folder);
    comm_.synchronize();
    pregel_detail::remove_checkpoints(folder, comm_.get_rank(), superstep_);
  }

  /// Removes the checkpoints that this run has written or restored; `run` does it when it has finished. Every
  /// worker must call it.
  void remove_checkpoints() {
    if (checkpoint_folders_.empty()) return;
    comm_.synchronize();
    for (const auto& folder : checkpoint_folders_) pregel_detail::remove_checkpoints(folder, comm_.get_rank());
    checkpoint_folders_.clear();
  }

  /// Restores the newest checkpoint that every worker has; false: there is none. Every worker must call it.
  /// Throws: error, on every worker, when a checkpoint is of another graph, another computation (see `identify`) or
  /// another number of workers.
  bool restore(const std::string& folder) requires std::is_trivially_copyable_v<value_type> {
    const auto own_shape = shape();
    std::vector<std::uint64_t> mine;
    std::string wrong;
    try {
      mine = pregel_detail::find_checkpoints(folder, own_shape);
    } catch (const error& e) {
      wrong = e.what();
    }
    for (const auto& text : comm_.allgather(wrong))
      if (!text.empty()) throw error(text);
    const auto all = comm_.allgather(mine);
    std::optional<std::uint64_t> newest;
    for (const auto s : mine) {
      const bool everywhere =
          std::all_of(all.begin(), all.end(), [&](const auto& list) { return std::ranges::count(list, s) > 0; });
      if (everywhere && (!newest || s > *newest)) newest = s;
    }
    if (!newest) return false;
    const auto state = pregel_detail::read_checkpoint(folder, *newest, own_shape);
    checkpoint_folders_.insert(folder);
    byte_reader in(state);
    superstep_ = in.get<std::uint64_t>();
    messages_ = in.get<std::uint64_t>();
    active_ = in.get<std::uint64_t>() != 0;
    aggregated_ = in.get<aggregate_type>();
    get_list(in, values_);
    get_list(in, awake_);
    get_list(in, inbox_target_);
    get_list(in, inbox_);
    return true;
  }

 private:
  static constexpr std::size_t local_limit = std::size_t{1} << 32U;
  // If the list of touched vertices is longer than this fraction of all, scanning all of them in order is faster than
  // sorting it (16 comparisons of a sort against 16 bytes to read).
  static constexpr std::size_t scan_from = 16;

  // ---- computation

  void compute() {
    partial_ = aggregate_type{};
    next_awake_.clear();
    std::size_t a = 0, m = 0;
    const auto end = static_cast<std::uint32_t>(values_.size());
    while (true) {
      std::uint32_t v = end;
      if (a < awake_.size()) v = awake_[a];
      if (m < inbox_target_.size() && inbox_target_[m] < v) v = inbox_target_[m];
      if (v == end) break;
      if (a < awake_.size() && awake_[a] == v) ++a;
      const auto from = m;
      while (m < inbox_target_.size() && inbox_target_[m] == v) ++m;
      vertex handle(*this, v);
      program_.compute(handle, std::span<const message_type>(inbox_).subspan(from, m - from));
      if (!handle.halts_) next_awake_.push_back(v);
    }
    awake_.swap(next_awake_);
    inbox_target_.clear();
    inbox_.clear();
  }

  void send(std::uint32_t local, const message_type& m) {
    if constexpr (combines) {
      if (written_[local] != 0) {
        program_.combine(slot_[local], m);
        return;
      }
      written_[local] = 1;
      slot_[local] = m;
    } else {
      (local < values_.size() ? to_own_ : to_ghosts_).push_back(m);
    }
    if (local < values_.size()) {
      touched_own_.push_back(local);
    } else {
      touched_ghosts_.push_back(static_cast<std::uint32_t>(local - values_.size()));
    }
  }

  void send_to_number(std::uint64_t number, const message_type& m) {
    const auto first = graph_.first[graph_.rank];
    if (number >= first && number - first < values_.size()) return send(static_cast<std::uint32_t>(number - first), m);
    if (number >= graph_.vertices_total())
      throw error("pregel: a message to vertex number " + std::to_string(number) + ", and there are " +
                  std::to_string(graph_.vertices_total()));
    const auto ghost = std::lower_bound(graph_.ghosts.begin(), graph_.ghosts.end(), number);
    if (ghost != graph_.ghosts.end() && *ghost == number) {
      return send(static_cast<std::uint32_t>(values_.size() + static_cast<std::size_t>(ghost - graph_.ghosts.begin())),
                  m);
    }
    const auto w = graph_.owner(number);
    far_[w].targets.push_back(static_cast<std::uint32_t>(number - graph_.first[w]));
    far_[w].messages.push_back(m);
  }

  template <class Id>
  void send_to_id(const Id& id, const message_type& m) {
    if (graph_.ids.numeric() != std::is_same_v<Id, std::uint64_t>)
      throw error("pregel: a message to id " + text_of(id) + ": the ids of this graph are " +
                  (graph_.ids.numeric() ? "numbers" : "names"));
    // Of the workers that have vertices, the last one whose first id is not greater.
    std::size_t w = comm_.get_size();
    for (std::size_t r = 0; r < first_ids_.size(); ++r)
      if (first_ids_[r].present && (w == comm_.get_size() || !(id < first_ids_[r].template as<Id>()))) w = r;
    if (w == graph_.rank || w == comm_.get_size()) return send(find_own(id), m);
    auto& far = far_[w];
    if constexpr (std::is_same_v<Id, std::uint64_t>) {
      put_bytes(far.by_id, std::uint32_t{sizeof id});
      put_bytes(far.by_id, id);
    } else {
      put_bytes(far.by_id, static_cast<std::uint32_t>(id.size()));
      put_bytes(far.by_id, id.data(), id.size());
    }
    put_bytes(far.by_id, m);
    ++far.ids;
  }
  template <class Id>
  std::uint32_t find_own(const Id& id) const {
    const auto found = graph_.ids.find(id);
    if (!found) throw error("pregel: a message to id " + text_of(id) + ", which no vertex has");
    return static_cast<std::uint32_t>(*found);
  }
  static std::string text_of(std::uint64_t id) { return std::to_string(id); }
  static std::string text_of(std::string_view id) { return std::string(id); }

  // ---- exchange
  //
  // A block from one worker to another; numbers are 64 bits unless noted:
  //
  //     | room of exchange_blocks | awake | messages sent | aggregate |
  //     | n | kind | which (bytes) | n messages |      to ghosts: `which` is n times 4 bytes, or a bit for each ghost
  //     | n | n times 4 bytes: own index there | n messages |
  //     | n | n times: length (4 bytes), id, message |

  enum class kind : std::uint64_t { list = 0, bits = 1 };

  void exchange() {
    const std::size_t size = comm_.get_size();
    const std::size_t rank = comm_.get_rank();
    std::vector<byte_vector> blocks(size);
    std::uint64_t sends = touched_own_.size() + touched_ghosts_.size();
    for (const auto& far : far_) sends += far.targets.size() + far.ids;
    for (std::size_t w = 0; w < size; ++w) {
      put_bytes(blocks[w], std::uint64_t{0});
      put_bytes(blocks[w], static_cast<std::uint64_t>(awake_.size()));
      put_bytes(blocks[w], sends);
      put_bytes(blocks[w], partial_);
    }
    pack_ghosts(blocks);
    for (std::size_t w = 0; w < size; ++w) {
      auto& far = far_[w];
      auto& b = blocks[w];
      put_bytes(b, static_cast<std::uint64_t>(far.targets.size()));
      put_bytes(b, far.targets.data(), far.targets.size());
      put_bytes(b, far.messages.data(), far.messages.size());
      put_bytes(b, far.ids);
      b.insert(b.end(), far.by_id.begin(), far.by_id.end());
      far = {};
    }
    auto got = exchange_blocks(comm_, blocks);

    std::uint64_t awake = 0, sent = 0;
    aggregated_ = aggregate_type{};
    collected_.clear();
    collected_target_.clear();
    for (std::size_t w = 0; w < size; ++w) {
      byte_reader in(got[w], exchange_room);
      awake += in.get<std::uint64_t>();
      sent += in.get<std::uint64_t>();
      const auto part = in.get<aggregate_type>();
      if constexpr (aggregates) program_.fold(aggregated_, part);
      if constexpr (!combines) {
        if (w == rank) {
          collected_target_.insert(collected_target_.end(), touched_own_.begin(), touched_own_.end());
          collected_.insert(collected_.end(), to_own_.begin(), to_own_.end());
        }
      }
      unpack(in, w);
      got[w] = {};
    }
    fill_inbox();
    touched_own_.clear();
    to_own_.clear();
    messages_ += sent;
    active_ = awake > 0 || sent > 0;
    awake_total_ = awake;
    sent_total_ = sent;
  }

  void pack_ghosts(std::vector<byte_vector>& blocks) {
    const std::size_t own = values_.size();
    const std::size_t ghosts = graph_.ghosts.size();
    if constexpr (combines) {
      if (touched_ghosts_.size() * scan_from > ghosts) {
        touched_ghosts_.clear();
        for (std::size_t g = 0; g < ghosts; ++g)
          if (written_[own + g] != 0) touched_ghosts_.push_back(static_cast<std::uint32_t>(g));
      } else {
        std::sort(touched_ghosts_.begin(), touched_ghosts_.end());
      }
      std::size_t at = 0;
      for (std::size_t w = 0; w < blocks.size(); ++w) {
        const auto first = halo_->ghost_first(w), last = halo_->ghost_first(w + 1);
        const auto from = at;
        while (at < touched_ghosts_.size() && touched_ghosts_[at] < last) ++at;
        const auto n = at - from;
        const auto bits = (last - first + 7) / 8;
        auto& b = blocks[w];
        put_bytes(b, static_cast<std::uint64_t>(n));
        if (bits < n * sizeof(std::uint32_t)) {
          put_bytes(b, kind::bits);
          const auto start = b.size();
          b.resize(start + bits);
          for (auto i = from; i < at; ++i) {
            const auto k = touched_ghosts_[i] - first;
            b[start + k / 8] |= static_cast<std::byte>(1U << (k % 8));
          }
        } else {
          put_bytes(b, kind::list);
          for (auto i = from; i < at; ++i) put_bytes(b, static_cast<std::uint32_t>(touched_ghosts_[i] - first));
        }
        const auto start = b.size();
        b.resize(start + n * sizeof(message_type));
        for (auto i = from; i < at; ++i) {
          std::memcpy(b.data() + start + (i - from) * sizeof(message_type), &slot_[own + touched_ghosts_[i]],
                      sizeof(message_type));
          written_[own + touched_ghosts_[i]] = 0;
        }
      }
    } else {
      std::vector<std::vector<std::uint32_t>> which(blocks.size());
      std::vector<std::vector<message_type>> messages(blocks.size());
      for (std::size_t i = 0; i < touched_ghosts_.size(); ++i) {
        const auto g = touched_ghosts_[i];
        std::size_t w = 0;
        while (halo_->ghost_first(w + 1) <= g) ++w;
        which[w].push_back(static_cast<std::uint32_t>(g - halo_->ghost_first(w)));
        messages[w].push_back(to_ghosts_[i]);
      }
      for (std::size_t w = 0; w < blocks.size(); ++w) {
        put_bytes(blocks[w], static_cast<std::uint64_t>(which[w].size()));
        put_bytes(blocks[w], kind::list);
        put_bytes(blocks[w], which[w].data(), which[w].size());
        put_bytes(blocks[w], messages[w].data(), messages[w].size());
      }
      to_ghosts_.clear();
    }
    touched_ghosts_.clear();
  }

  void unpack(byte_reader& in, std::size_t w) {
    const auto shared = halo_->shared_with(w);
    auto n = in.get<std::uint64_t>();
    const auto how = in.get<kind>();
    if (how == kind::bits) {
      const auto* bits = in.take((shared.size() + 7) / 8);
      const auto* messages = in.take(n * sizeof(message_type));
      for (std::size_t k = 0; k < shared.size(); ++k) {
        if ((std::to_integer<unsigned>(bits[k / 8]) >> (k % 8) & 1U) == 0) continue;
        receive(shared[k], messages);
        messages += sizeof(message_type);
      }
    } else {
      in.get(index_, n);
      const auto* messages = in.take(n * sizeof(message_type));
      for (std::size_t i = 0; i < n; ++i) receive(shared[index_[i]], messages + i * sizeof(message_type));
    }
    n = in.get<std::uint64_t>();
    in.get(index_, n);
    const auto* messages = in.take(n * sizeof(message_type));
    for (std::size_t i = 0; i < n; ++i) receive(index_[i], messages + i * sizeof(message_type));
    n = in.get<std::uint64_t>();
    for (std::size_t i = 0; i < n; ++i) {
      const auto bytes = in.get<std::uint32_t>();
      const auto* id = in.take(bytes);
      std::uint32_t target = 0;
      if (graph_.ids.numeric()) {
        std::uint64_t number = 0;
        std::memcpy(&number, id, sizeof number);
        target = find_own(number);
      } else {
        target = find_own(std::string_view(reinterpret_cast<const char*>(id), bytes));
      }
      receive(target, in.take(sizeof(message_type)));
    }
  }

  void receive(std::uint32_t target, const std::byte* bytes) {
    message_type m;
    std::memcpy(&m, bytes, sizeof m);
    if constexpr (combines) {
      send(target, m);
    } else {
      collected_target_.push_back(target);
      collected_.push_back(m);
    }
  }

  /// Messages in the order of their targets; those of one target stay in arrival order.
  void fill_inbox() {
    if constexpr (combines) {
      const std::size_t own = values_.size();
      if (touched_own_.size() * scan_from > own) {
        for (std::size_t v = 0; v < own; ++v)
          if (written_[v] != 0) inbox_target_.push_back(static_cast<std::uint32_t>(v));
      } else {
        std::sort(touched_own_.begin(), touched_own_.end());
        inbox_target_ = touched_own_;
      }
      inbox_.reserve(inbox_target_.size());
      for (const auto v : inbox_target_) {
        inbox_.push_back(slot_[v]);
        written_[v] = 0;
      }
    } else {
      const auto n = collected_.size();
      std::vector<std::size_t> order(n);
      if (n * scan_from > values_.size()) {
        std::vector<std::size_t> at(values_.size() + 1);
        for (const auto t : collected_target_) ++at[t + 1];
        for (std::size_t v = 0; v < values_.size(); ++v) at[v + 1] += at[v];
        for (std::size_t i = 0; i < n; ++i) order[at[collected_target_[i]]++] = i;
      } else {
        for (std::size_t i = 0; i < n; ++i) order[i] = i;
        std::stable_sort(order.begin(), order.end(),
                         [&](auto a, auto b) { return collected_target_[a] < collected_target_[b]; });
      }
      inbox_target_.reserve(n);
      inbox_.reserve(n);
      for (const auto i : order) {
        inbox_target_.push_back(collected_target_[i]);
        inbox_.push_back(collected_[i]);
      }
    }
  }

  // ---- the rest

  struct first_id {
    bool present = false;
    std::uint64_t number = 0;
    std::string name;
    template <class Id>
    [[nodiscard]] Id as() const {
      if constexpr (std::is_same_v<Id, std::uint64_t>) {
        return number;
      } else {
        return std::string_view(name);
      }
    }
  };
  struct far_messages {  // to vertices of another worker that are not ghosts here
    std::vector<std::uint32_t> targets;
    std::vector<message_type> messages;
    byte_vector by_id;
    std::uint64_t ids = 0;
  };

  void gather_first_ids() {
    far_.resize(comm_.get_size());
    const auto& ids = graph_.ids;
    std::string mine;
    if (ids.size() > 0) mine = (ids.numeric() ? "#" : "=") + ids.text(0);
    for (const auto& text : comm_.allgather(mine)) {
      first_id f;
      f.present = !text.empty();
      if (f.present && text[0] == '#') f.number = std::stoull(text.substr(1));
      if (f.present && text[0] == '=') f.name = text.substr(1);
      first_ids_.push_back(std::move(f));
    }
  }

  /// A collective the first time: every edge is visited.
  [[nodiscard]] pregel_detail::checkpoint_shape shape() {
    if (!graph_identity_) graph_identity_ = graph_identity(comm_, graph_);
    return {comm_.get_size(),     comm_.get_rank(),       graph_.vertices_total(),
            graph_.own(),         graph_.edges_total,     sizeof(value_type),
            sizeof(message_type), sizeof(aggregate_type), pregel_identity("", {computation_, *graph_identity_})};
  }
  template <class T>
  static void put_list(byte_vector& state, const std::vector<T>& list) {
    put_bytes(state, static_cast<std::uint64_t>(list.size()));
    put_bytes(state, list.data(), list.size());
  }
  template <class T>
  static void get_list(byte_reader& in, std::vector<T>& list) {
    const auto n = in.get<std::uint64_t>();
    in.get(list, n);
  }

  Comm comm_;
  const distributed_graph& graph_;
  std::shared_ptr<const halo> halo_;
  Program program_;
  std::vector<value_type> values_;
  std::uint64_t superstep_ = 0;
  std::uint64_t messages_ = 0;
  std::uint64_t awake_total_ = 0, sent_total_ = 0;  // of the last superstep
  bool active_ = true;
  aggregate_type partial_{};
  aggregate_type aggregated_{};
  std::vector<first_id> first_ids_;  // by rank
  std::uint64_t computation_ = 0;    // the number passed to `identify`
  std::optional<std::uint64_t> graph_identity_;
  std::set<std::string> checkpoint_folders_;  // of this run's checkpoints

  std::vector<std::uint32_t> awake_, next_awake_;  // own vertices, ascending
  std::vector<std::uint32_t> inbox_target_;        // own vertices, ascending, one element per message
  std::vector<message_type> inbox_;
  std::vector<message_type> slot_;     // with a combiner: by local index
  std::vector<std::uint8_t> written_;  // whether slot_ holds a message
  std::vector<std::uint32_t> touched_own_, touched_ghosts_;
  std::vector<message_type> to_own_, to_ghosts_;  // without one: as touched_own_ and touched_ghosts_
  std::vector<std::uint32_t> collected_target_, index_;
  std::vector<message_type> collected_;
  std::vector<far_messages> far_;  // by rank
};

}  // namespace paracel
