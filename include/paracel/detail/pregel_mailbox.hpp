// SPDX-License-Identifier: BSD-3-Clause
//
// The messages of a vertex program: gathered while vertices compute, combined, exchanged between workers, and sorted by
// target for the next superstep. <paracel/pregel.hpp> runs the program.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/detail/bytes.hpp>
#include <paracel/distributed_graph.hpp>
#include <paracel/error.hpp>
#include <paracel/exchange.hpp>

namespace paracel::pregel_detail {

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

template <class T>
void put_list(byte_vector& state, const std::vector<T>& list) {
  put_bytes(state, static_cast<std::uint64_t>(list.size()));
  put_bytes(state, list.data(), list.size());
}
template <class T>
void get_list(byte_reader& in, std::vector<T>& list) {
  const auto n = in.get<std::uint64_t>();
  in.get(list, n);
}

/// Which worker would own an id: each has a range of them, in rank order.
class id_owners {
 public:
  static constexpr std::size_t none = ~std::size_t{0};

  /// A collective: an all-gather of the first id of each worker.
  id_owners(Comm& comm, const distributed_graph& graph) {
    const auto& ids = graph.ids;
    std::string mine;
    if (ids.size() > 0) mine = (ids.numeric() ? "#" : "=") + ids.text(0);
    for (const auto& text : comm.allgather(mine)) {
      first_id f;
      f.present = !text.empty();
      if (f.present && text[0] == '#') f.number = std::stoull(text.substr(1));
      if (f.present && text[0] == '=') f.name = text.substr(1);
      first_.push_back(std::move(f));
    }
  }

  /// Of the workers that have vertices, the last one whose first id is not greater, or else the first of them; `none`
  /// if no worker has a vertex.
  template <class Id>
  [[nodiscard]] std::size_t find(const Id& id) const {
    auto w = none;
    for (std::size_t r = 0; r < first_.size(); ++r)
      if (first_[r].present && (w == none || !(id < first_[r].template as<Id>()))) w = r;
    return w;
  }

 private:
  struct first_id {
    bool present = false;
    std::uint64_t number = 0;
    std::string name;
    template <class Id>
    [[nodiscard]] Id as() const {
      if constexpr (std::is_same_v<Id, std::uint64_t>) return number;
      else return std::string_view(name);
    }
  };
  std::vector<first_id> first_;  // by rank
};

/// The messages of one worker's vertices. What they mean is up to `pregel_run`, which passes the program to every call
/// that may combine two of them.
template <class Program>
class mailbox {
 public:
  using message_type = typename Program::message_type;
  using aggregate_type = typename aggregate_of<Program>::type;
  static constexpr bool combines = requires(Program & p, message_type& into, const message_type& more) {
    p.combine(into, more);
  };
  static constexpr bool aggregates = !std::is_same_v<aggregate_type, nothing>;
  static_assert(std::is_trivially_copyable_v<message_type> && std::is_trivially_copyable_v<aggregate_type>);

  /// Totals of a superstep, over all workers.
  struct totals {
    std::uint64_t awake = 0, sent = 0;
    aggregate_type aggregate{};
  };

  /// `borders`: an existing halo of the graph, or null. A collective. Throws: error when a worker has too many
  /// vertices.
  mailbox(const Comm& comm, const distributed_graph& graph, std::shared_ptr<const halo> borders)
      : comm_(comm),
        graph_(graph),
        halo_(borders ? std::move(borders) : std::make_shared<const halo>(comm_, graph_)),
        owners_(comm_, graph_),
        own_(graph.own()),
        far_(comm_.get_size()) {
    if (own_ >= local_limit || own_ + graph.ghosts.size() >= local_limit)
      throw error("pregel: a worker has 2^32 vertices or more; use more workers");
    if constexpr (combines) {
      slot_.resize(own_ + graph.ghosts.size());
      written_.resize(slot_.size());
    }
  }

  // ---- received: one target a message, own vertices, ascending

  [[nodiscard]] std::span<const std::uint32_t> inbox_targets() const noexcept { return inbox_target_; }
  [[nodiscard]] std::span<const message_type> inbox() const noexcept { return inbox_; }
  void clear_inbox() noexcept {
    inbox_target_.clear();
    inbox_.clear();
  }
  void save_inbox(byte_vector& state) const {
    put_list(state, inbox_target_);
    put_list(state, inbox_);
  }
  void restore_inbox(byte_reader& in) {
    get_list(in, inbox_target_);
    get_list(in, inbox_);
  }

  // ---- sending, as in pregel_run::vertex

  void send(Program& program, std::uint32_t local, const message_type& m) {
    if constexpr (combines) {
      if (written_[local] != 0) {
        program.combine(slot_[local], m);
        return;
      }
      written_[local] = 1;
      slot_[local] = m;
    } else {
      (local < own_ ? to_own_ : to_ghosts_).push_back(m);
    }
    if (local < own_) {
      touched_own_.push_back(local);
    } else {
      touched_ghosts_.push_back(static_cast<std::uint32_t>(local - own_));
    }
  }

  void send_to_number(Program& program, std::uint64_t number, const message_type& m) {
    const auto first = graph_.first[graph_.rank];
    if (number >= first && number - first < own_) return send(program, static_cast<std::uint32_t>(number - first), m);
    if (number >= graph_.vertices_total())
      throw error("pregel: a message to vertex number " + std::to_string(number) + ", and there are " +
                  std::to_string(graph_.vertices_total()));
    const auto ghost = std::lower_bound(graph_.ghosts.begin(), graph_.ghosts.end(), number);
    if (ghost != graph_.ghosts.end() && *ghost == number) {
      return send(program, static_cast<std::uint32_t>(own_ + static_cast<std::size_t>(ghost - graph_.ghosts.begin())),
                  m);
    }
    const auto w = graph_.owner(number);
    far_[w].targets.push_back(static_cast<std::uint32_t>(number - graph_.first[w]));
    far_[w].messages.push_back(m);
  }

  template <class Id>
  void send_to_id(Program& program, const Id& id, const message_type& m) {
    if (graph_.ids.numeric() != std::is_same_v<Id, std::uint64_t>)
      throw error("pregel: a message to id " + text_of(id) + ": the ids of this graph are " +
                  (graph_.ids.numeric() ? "numbers" : "names"));
    const auto w = owners_.find(id);
    if (w == graph_.rank || w == id_owners::none) return send(program, find_own(id), m);
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

  /// Exchanges the messages sent so far, and fills the inbox. A collective. `awake`, `partial`: this worker's part of
  /// the totals.
  totals exchange(Program& program, std::uint64_t awake, const aggregate_type& partial) {
    auto blocks = packed(awake, partial);
    auto got = exchange_blocks(comm_, blocks);
    totals all;
    collected_.clear();
    collected_target_.clear();
    for (std::size_t w = 0; w < got.size(); ++w) {
      byte_reader in(got[w], exchange_room);
      all.awake += in.get<std::uint64_t>();
      all.sent += in.get<std::uint64_t>();
      const auto part = in.get<aggregate_type>();
      if constexpr (aggregates) program.fold(all.aggregate, part);
      if constexpr (!combines) {
        if (w == graph_.rank) {
          collected_target_.insert(collected_target_.end(), touched_own_.begin(), touched_own_.end());
          collected_.insert(collected_.end(), to_own_.begin(), to_own_.end());
        }
      }
      unpack(program, in, w);
      got[w] = {};
    }
    fill_inbox();
    touched_own_.clear();
    to_own_.clear();
    return all;
  }

 private:
  static constexpr std::size_t local_limit = std::size_t{1} << 32U;
  // If the list of touched vertices is longer than this fraction of all, scanning all of them in order is faster than
  // sorting it (16 comparisons of a sort against 16 bytes to read).
  static constexpr std::size_t scan_from = 16;

  struct far_messages {  // to vertices of another worker that are not ghosts here
    std::vector<std::uint32_t> targets;
    std::vector<message_type> messages;
    byte_vector by_id;
    std::uint64_t ids = 0;
  };

  // A block from one worker to another; numbers are 64 bits unless noted:
  //
  //     | room of exchange_blocks | awake | messages sent | aggregate |
  //     | n | kind | which (bytes) | n messages |      to ghosts: `which` is n times 4 bytes, or a bit for each ghost
  //     | n | n times 4 bytes: index on the receiver | n messages |
  //     | n | n times: length (4 bytes), id, message |

  enum class kind : std::uint64_t { list = 0, bits = 1 };

  std::vector<byte_vector> packed(std::uint64_t awake, const aggregate_type& partial) {
    std::vector<byte_vector> blocks(comm_.get_size());
    std::uint64_t sends = touched_own_.size() + touched_ghosts_.size();
    for (const auto& far : far_) sends += far.targets.size() + far.ids;
    for (auto& b : blocks) {
      put_bytes(b, std::uint64_t{0});
      put_bytes(b, awake);
      put_bytes(b, sends);
      put_bytes(b, partial);
    }
    pack_ghosts(blocks);
    for (std::size_t w = 0; w < blocks.size(); ++w) {
      auto& far = far_[w];
      auto& b = blocks[w];
      put_bytes(b, static_cast<std::uint64_t>(far.targets.size()));
      put_bytes(b, far.targets.data(), far.targets.size());
      put_bytes(b, far.messages.data(), far.messages.size());
      put_bytes(b, far.ids);
      b.insert(b.end(), far.by_id.begin(), far.by_id.end());
      far = {};
    }
    return blocks;
  }

  template <class Id>
  std::uint32_t find_own(const Id& id) const {
    const auto found = graph_.ids.find(id);
    if (!found) throw error("pregel: a message to id " + text_of(id) + ", which no vertex has");
    return static_cast<std::uint32_t>(*found);
  }
  static std::string text_of(std::uint64_t id) { return std::to_string(id); }
  static std::string text_of(std::string_view id) { return std::string(id); }

  void pack_ghosts(std::vector<byte_vector>& blocks) {
    const std::size_t ghosts = graph_.ghosts.size();
    if constexpr (combines) {
      if (touched_ghosts_.size() * scan_from > ghosts) {
        touched_ghosts_.clear();
        for (std::size_t g = 0; g < ghosts; ++g)
          if (written_[own_ + g] != 0) touched_ghosts_.push_back(static_cast<std::uint32_t>(g));
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
          std::memcpy(b.data() + start + (i - from) * sizeof(message_type), &slot_[own_ + touched_ghosts_[i]],
                      sizeof(message_type));
          written_[own_ + touched_ghosts_[i]] = 0;
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

  void unpack(Program& program, byte_reader& in, std::size_t w) {
    const auto shared = halo_->shared_with(w);
    auto n = in.get<std::uint64_t>();
    const auto how = in.get<kind>();
    if (how == kind::bits) {
      const auto* bits = in.take((shared.size() + 7) / 8);
      const auto* messages = in.take(n * sizeof(message_type));
      for (std::size_t k = 0; k < shared.size(); ++k) {
        if ((std::to_integer<unsigned>(bits[k / 8]) >> (k % 8) & 1U) == 0) continue;
        receive(program, shared[k], messages);
        messages += sizeof(message_type);
      }
    } else {
      in.get(index_, n);
      const auto* messages = in.take(n * sizeof(message_type));
      for (std::size_t i = 0; i < n; ++i) receive(program, shared[index_[i]], messages + i * sizeof(message_type));
    }
    n = in.get<std::uint64_t>();
    in.get(index_, n);
    const auto* messages = in.take(n * sizeof(message_type));
    for (std::size_t i = 0; i < n; ++i) receive(program, index_[i], messages + i * sizeof(message_type));
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
      receive(program, target, in.take(sizeof(message_type)));
    }
  }

  void receive(Program& program, std::uint32_t target, const std::byte* bytes) {
    message_type m;
    std::memcpy(&m, bytes, sizeof m);
    if constexpr (combines) {
      send(program, target, m);
    } else {
      collected_target_.push_back(target);
      collected_.push_back(m);
    }
  }

  /// Messages in the order of their targets; those of one target stay in arrival order.
  void fill_inbox() {
    if constexpr (combines) {
      if (touched_own_.size() * scan_from > own_) {
        for (std::size_t v = 0; v < own_; ++v)
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
      if (n * scan_from > own_) {
        std::vector<std::size_t> at(own_ + 1);
        for (const auto t : collected_target_) ++at[t + 1];
        for (std::size_t v = 0; v < own_; ++v) at[v + 1] += at[v];
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

  Comm comm_;
  const distributed_graph& graph_;
  std::shared_ptr<const halo> halo_;
  id_owners owners_;
  std::size_t own_;  // vertices

  std::vector<std::uint32_t> inbox_target_;  // own vertices, ascending, one element per message
  std::vector<message_type> inbox_;
  std::vector<message_type> slot_;     // with a combiner: by local index
  std::vector<std::uint8_t> written_;  // whether slot_ holds a message
  std::vector<std::uint32_t> touched_own_, touched_ghosts_;
  std::vector<message_type> to_own_, to_ghosts_;  // without a combiner: parallel to touched_own_ and touched_ghosts_
  std::vector<std::uint32_t> collected_target_, index_;
  std::vector<message_type> collected_;
  std::vector<far_messages> far_;  // by rank
};

}  // namespace paracel::pregel_detail
