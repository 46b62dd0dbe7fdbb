// SPDX-License-Identifier: BSD-3-Clause
#include "worker/queue/work_stealing.hpp"

#include <algorithm>
#include <deque>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>
#include <paracel/free_memory.hpp>

#include "core/hash.hpp"
#include "core/identity.hpp"
#include "core/reduction.hpp"
#include "worker/queue/chunk_shares.hpp"

namespace paracel {

namespace {

using chunk_clock = std::chrono::steady_clock;

// How many bytes of an owner's packed rows another task keeps; rows beyond that are sent each time.
constexpr std::size_t most_kept_bytes = std::size_t{256} << 20U;
// A task announces that it is idle up to this many chunks ahead, if it has 16 times as many.
constexpr std::size_t most_ahead = 2;
// If the job survives worker deaths, a task that has received nothing for this long asks whether those it waits for are
// up.
constexpr std::chrono::milliseconds until_doubt{1000};
constexpr std::uint8_t with_rows = 1;
constexpr std::uint8_t keep_rows = 2;

std::string text_of_tasks(std::size_t a, std::size_t b) {
  return "task " + std::to_string(std::min(a, b)) + " and task " + std::to_string(std::max(a, b));
}

struct message_header {
  std::uint64_t run = 0;
  std::uint64_t process = 0;
  std::uint32_t step = 0;
  std::uint32_t number = 0;
  std::uint32_t what = 0;
  static constexpr std::size_t bytes = 28;

  explicit message_header(std::span<const std::byte> message) {
    if (!take_fields(message, run, process, step, number, what))
      throw protocol_error("a message of work stealing is cut off");
  }
};

}  // namespace

// ---- one computation

class work_stealing::computation {
 public:
  computation(work_stealing& of, const chunk_work& work, std::span<std::byte> result, bool shares, bool alone)
      : of_(of), work_(work), into_(result), empty_(result.begin(), result.end()), shares_(shares), alone_(alone) {
    chunks_.resize(std::min(work.rows, work.chunks));
    if (!shares) return;
    const auto p = of.all_.size();
    tasks_.resize(p);
    tasks_[of.all_.rank()].finished = true;  // only the others count
    sent_ = &of.sent_[work.name];
    sent_->resize(p);
    byte_vector shape;
    put_fields(shape, std::uint64_t{work.chunks}, std::uint64_t{result.size()},
               static_cast<std::uint64_t>(work.how.element));
    put_bytes(shape, work.name.data(), work.name.size());
    shape_ = digest_of_input(shape);
    inputs_ = work.inputs();
  }

  void run() {
    if (alone_) announce();
    if (alone_ || !shares_) {
      for (std::size_t c = 0; c < chunks_.size(); ++c) {
        compute_own(c);
        fold_ready();
      }
      return;
    }
    run_shared();
  }

 private:
  void run_shared() {
    for (std::size_t r = 0; r < tasks_.size(); ++r)
      if (of_.left_[r]) forget(r);
    take_early();
    for (;;) {
      listen();
      fold_ready();
      const auto own = next_open();
      if (own < chunks_.size()) {
        if (!announced_) hand_out();
        // The chunk that was to be computed here may have been given away.
        if (const auto c = next_open(); c < chunks_.size()) {
          if (!announced_ && is_nearly_idle()) announce();
          compute_own(c);
        }
      } else {
        if (!announced_) announce();
        if (!given_to_me_.empty()) compute_given();
        else if (is_done()) break;
        else wait();
      }
    }
  }

  enum class state : std::uint8_t { open, given, computed, folded };
  struct own_chunk {
    state is = state::open;
    std::size_t helper = 0;
    int status = 0;       // exit status of the error, if computing it failed
    byte_vector partial;  // the result, or the text of the error
  };
  struct task {
    bool finished = false;  // it is idle, or does not take part
    bool helps = false;
    std::size_t busy = 0;
    double seconds = 0;  // per chunk
    chunk_clock::time_point ready;
  };
  struct given_chunk {
    std::size_t owner = 0;
    std::uint32_t number = 0;
    owned_range rows;
    std::shared_ptr<const void> unpacked;
  };

  [[nodiscard]] owned_range rows_of(std::size_t c) const { return owned_range_of(work_.rows, chunks_.size(), c); }
  [[nodiscard]] std::size_t next_open() {
    while (first_open_ < chunks_.size() && chunks_[first_open_].is != state::open) ++first_open_;
    return first_open_;
  }

  // ---- computing and folding

  /// Runs and measures `compute(into)`. Returns: 0, or the exit status of its exception, whose text is then in `into`.
  template <class F>
  int computed(byte_vector& into, double& seconds, F&& compute) {
    into = empty_;
    const auto begin = chunk_clock::now();
    int status = 0;
    std::string text;
    try {
      compute(std::span(into));
    } catch (const job_error&) {
      throw;
    } catch (const error& e) {
      status = e.status();
      text = e.what();
    } catch (const std::exception& e) {
      status = exit_status::failure;
      text = e.what();
    }
    const work_stealing::seconds took = chunk_clock::now() - begin;
    seconds = took.count();
    of_.computed_ += took;
    if (status != 0) {
      into.clear();
      put_bytes(into, reinterpret_cast<const std::byte*>(text.data()), text.size());
    }
    return status;
  }

  void compute_own(std::size_t c) {
    double seconds = 0;
    auto& chunk = chunks_[c];
    chunk.status = computed(chunk.partial, seconds, [&](std::span<std::byte> to) { work_.compute(rows_of(c), to); });
    chunk.is = state::computed;
    own_seconds_ += seconds;
    ++own_chunks_;
  }

  /// In the order of the chunks, so the first of several errors is the one that is thrown.
  void fold_ready() {
    for (; folded_ < chunks_.size() && chunks_[folded_].is == state::computed; ++folded_) {
      auto& c = chunks_[folded_];
      if (c.status != 0) {
        const auto rows = rows_of(folded_);
        throw error("rows " + std::to_string(rows.begin) + " to " + std::to_string(rows.end - 1) + ": " +
                        std::string(reinterpret_cast<const char*>(c.partial.data()), c.partial.size()),
                    c.status);
      }
      if (c.partial.size() != into_.size()) throw protocol_error("a chunk's result has another length");
      if (into_.empty()) {
      } else if (work_.how.fold) {
        work_.how.fold(into_, c.partial);
      } else {
        fold(work_.how.element, into_, c.partial, work_.how.op);
      }
      free_memory(c.partial);
      c.is = state::folded;
    }
  }

  void compute_given() {
    const auto g = std::move(given_to_me_.front());
    given_to_me_.pop_front();
    byte_vector partial;
    double seconds = 0;
    const std::int32_t status = computed(
        partial, seconds, [&](std::span<std::byte> to) { work_.compute_of(g.unpacked.get(), g.owner, g.rows, to); });
    ++of_.taken_;
    auto m = of_.header_of(steal_message::result);
    m.reserve(m.size() + 16 + partial.size());
    put_fields(m, g.number, seconds, status);
    m.insert(m.end(), partial.begin(), partial.end());
    of_.send(g.owner, std::move(m));
  }

  // ---- giving

  [[nodiscard]] bool is_done() const {
    return folded_ == chunks_.size() && std::ranges::all_of(tasks_, &task::finished, [](const task& t) { return t; });
  }

  [[nodiscard]] std::size_t open_chunks() const {
    return static_cast<std::size_t>(std::ranges::count(chunks_, state::open, &own_chunk::is));
  }
  [[nodiscard]] double own_mean() const {
    return own_chunks_ > 0 ? own_seconds_ / static_cast<double>(own_chunks_) : 0.0;
  }

  /// Whether this task will finish soon, and needs no help from others.
  [[nodiscard]] bool is_nearly_idle() const {
    if (own_chunks_ == 0 || open_chunks() > std::min(most_ahead, chunks_.size() / 16)) return false;
    return std::ranges::none_of(tasks_, [&](const task& t) { return t.helps && own_mean() > 1.5 * t.seconds; });
  }

  void announce() {
    announced_ = true;
    of_.send_to_all(idle());
  }
  [[nodiscard]] byte_vector idle() const {
    auto m = of_.header_of(steal_message::idle);
    put_fields(m, own_mean(), static_cast<std::uint32_t>(open_chunks()), std::uint32_t{alone_ ? 0U : 1U}, shape_,
               static_cast<std::uint32_t>(inputs_.size()));
    for (const auto& i : inputs_) put_fields(m, i.digest);
    return m;
  }

  void hand_out() {
    std::vector<chunk_helper> helpers;
    const auto now = chunk_clock::now();
    for (std::size_t r = 0; r < tasks_.size(); ++r) {
      const auto& t = tasks_[r];
      const work_stealing::seconds ready = t.ready - now;
      if (t.helps) helpers.push_back({r, t.busy, t.seconds, std::max(0.0, ready.count())});
    }
    if (helpers.empty()) return;
    const auto late = static_cast<std::size_t>(std::ranges::count(tasks_, false, &task::finished)) + 1;
    const auto shares = chunk_shares(open_chunks(), own_mean(), helpers, late);
    for (std::size_t i = 0; i < helpers.size(); ++i) give(helpers[i].rank, shares[i]);
  }

  void give(std::size_t to, std::size_t count) {
    if (count == 0) return;
    auto& keeps = (*sent_)[to];
    keeps.chunks.resize(chunks_.size());
    auto m = of_.header_of(steal_message::grant);
    put_fields(m, static_cast<std::uint32_t>(count));
    for (; count > 0; --count) {
      const auto c = pick(to);
      auto& chunk = chunks_[c];
      chunk.is = state::given;
      chunk.helper = to;
      ++tasks_[to].busy;
      ++of_.given_;
      const auto rows = rows_of(c);
      std::uint8_t flags = 0;
      byte_vector packed;
      if (!keeps.chunks[c]) {
        packed = work_.pack(rows);
        flags = with_rows;
        if (keeps.bytes + packed.size() <= most_kept_bytes) {
          flags |= keep_rows;
          keeps.chunks[c] = true;
          keeps.bytes += packed.size();
        }
      }
      put_fields(m, static_cast<std::uint32_t>(c), std::uint64_t{rows.begin}, std::uint64_t{rows.end}, flags,
                 std::uint64_t{packed.size()});
      m.insert(m.end(), packed.begin(), packed.end());
    }
    of_.send(to, std::move(m));
  }

  /// The last open chunk whose rows that task has; else one whose rows no task has; else the last one.
  [[nodiscard]] std::size_t pick(std::size_t to) const {
    auto at_nobody = chunks_.size();
    auto last = chunks_.size();
    for (auto c = chunks_.size(); c-- > first_open_;) {
      if (chunks_[c].is != state::open) continue;
      if ((*sent_)[to].chunks[c]) return c;
      if (last == chunks_.size()) last = c;
      const auto has = [&](const kept_rows& k) { return c < k.chunks.size() && k.chunks[c]; };
      if (at_nobody == chunks_.size() && std::ranges::none_of(*sent_, has)) at_nobody = c;
    }
    return at_nobody < chunks_.size() ? at_nobody : last;
  }

  /// A task that takes no part any more.
  void forget(std::size_t r) {
    take_back(r);
    tasks_[r].finished = true;
  }

  /// Chunks given to that task are computed here; those that it has given to this one are dropped.
  void take_back(std::size_t r) {
    tasks_[r] = {};
    for (auto& c : chunks_) {
      if (c.is != state::given || c.helper != r) continue;
      c.is = state::open;
      --of_.given_;
    }
    first_open_ = 0;
    std::erase_if(given_to_me_, [&](const given_chunk& g) { return g.owner == r; });
  }

  /// Another process is that task now, and knows nothing of this computation.
  void begin_again(std::size_t r) {
    of_.left_[r] = false;
    of_.forget_rows(r);
    take_back(r);
    if (announced_) of_.send(r, idle());
  }

  /// Forgets tasks that this one waits for if they are gone for good.
  void forget_gone() {
    for (std::size_t r = 0; r < tasks_.size(); ++r) {
      const bool waits_for = r != of_.all_.rank() && !(tasks_[r].finished && tasks_[r].busy == 0);
      if (!waits_for || !of_.log_->is_gone(r)) continue;
      of_.left_[r] = true;
      forget(r);
    }
  }

  // ---- messages

  void take_early() {
    std::vector<received_message> early;
    early.swap(of_.early_);
    for (auto& m : early) {
      const auto process = message_header(m.bytes).process;
      if (process == of_.processes_[static_cast<std::size_t>(m.from.rank)]) on_message(std::move(m));
    }
  }
  void listen() {
    while (auto m = of_.take(std::chrono::milliseconds{0})) on_message(std::move(*m));
  }
  void wait() {
    const auto begin = chunk_clock::now();
    auto m = of_.take(of_.log_ != nullptr ? comm_backend::patience(until_doubt) : of_.limit_);
    of_.waited_ += chunk_clock::now() - begin;
    if (m) on_message(std::move(*m));
    else if (of_.log_ != nullptr) forget_gone();
    else if (of_.limit_) refuse_silence();
  }
  [[noreturn]] void refuse_silence() const {
    for (std::size_t r = 0; r < tasks_.size(); ++r) {
      if (r == of_.all_.rank() || (tasks_[r].finished && tasks_[r].busy == 0)) continue;
      throw network_error(
          "no message from task " + std::to_string(r) + " for " + std::to_string(of_.limit_->count()) + " ms", false);
    }
    throw error("work stealing: nothing was to come");
  }

  void on_message(received_message m) {
    const message_header f(m.bytes);
    if (f.run != of_.run_) return;
    const auto from = static_cast<std::size_t>(m.from.rank);
    const auto what = static_cast<steal_message>(f.what);
    // Also at the first message in this run: what has been sent may have gone to the process before.
    if (std::exchange(of_.processes_[from], f.process) != f.process && of_.log_ != nullptr) begin_again(from);
    if (what == steal_message::left) {
      of_.left_[from] = true;
      return forget(from);
    }
    const auto theirs = std::pair(f.step, f.number);
    const auto ours = std::pair(of_.step_, of_.number_);
    if (theirs < ours) return;  // of a task that failed
    if (theirs > ours) {
      of_.early_.push_back(std::move(m));
      return;
    }
    if (tasks_[from].finished && !tasks_[from].helps) return;  // it has left
    byte_reader rest(m.bytes, message_header::bytes);
    switch (what) {
      case steal_message::idle:
        return on_idle(from, rest);
      case steal_message::grant:
        return on_grant(from, rest);
      case steal_message::result:
        return on_result(from, rest, m.bytes);
      case steal_message::left:
        break;
    }
    throw protocol_error("an unknown message of work stealing");
  }

  void on_idle(std::size_t from, byte_reader& rest) {
    auto& t = tasks_[from];
    t.finished = true;
    t.seconds = rest.get<double>();
    const auto left = work_stealing::seconds(t.seconds) * rest.get<std::uint32_t>();
    t.helps = rest.get<std::uint32_t>() != 0;
    t.ready = chunk_clock::now() + std::chrono::duration_cast<chunk_clock::duration>(left);
    if (rest.get<std::uint64_t>() != shape_ || rest.get<std::uint32_t>() != inputs_.size())
      throw error("the tasks differ: " + text_of_tasks(of_.all_.rank(), from) +
                  " give a different name, length or number of chunks, or read different objects");
    for (const auto& i : inputs_)
      if (rest.get<std::uint64_t>() != i.digest)
        throw error("the tasks differ: \"" + i.name + "\" is not the same at " + text_of_tasks(of_.all_.rank(), from));
  }

  void on_grant(std::size_t from, byte_reader& rest) {
    for (auto count = rest.get<std::uint32_t>(); count > 0; --count) {
      given_chunk g;
      g.owner = from;
      g.number = rest.get<std::uint32_t>();
      g.rows.begin = rest.get<std::uint64_t>();
      g.rows.end = rest.get<std::uint64_t>();
      const auto flags = rest.get<std::uint8_t>();
      const auto bytes = rest.get<std::uint64_t>();
      const std::pair key(work_.name, std::uint64_t{from} << 32U | g.number);
      if ((flags & with_rows) != 0) {
        g.unpacked = work_.unpack({rest.take(bytes), bytes});
        if ((flags & keep_rows) != 0) of_.kept_[key] = g.unpacked;
      } else {
        const auto kept = of_.kept_.find(key);
        if (kept == of_.kept_.end()) throw protocol_error("a chunk without its rows");
        g.unpacked = kept->second;
      }
      given_to_me_.push_back(std::move(g));
    }
  }

  void on_result(std::size_t from, byte_reader& rest, byte_vector& message) {
    const auto c = rest.get<std::uint32_t>();
    const auto seconds = rest.get<double>();
    const auto status = rest.get<std::int32_t>();
    if (c >= chunks_.size() || chunks_[c].is != state::given || chunks_[c].helper != from) return;
    auto& t = tasks_[from];
    t.busy -= std::min<std::size_t>(t.busy, 1);
    t.seconds = seconds;
    auto& chunk = chunks_[c];
    chunk.status = status;
    message.erase(message.begin(), message.begin() + message_header::bytes + 16);
    chunk.partial = std::move(message);
    chunk.is = state::computed;
  }

  work_stealing& of_;
  const chunk_work& work_;
  std::span<std::byte> into_;
  byte_vector empty_;
  bool shares_;
  bool alone_;
  bool announced_ = false;
  std::vector<own_chunk> chunks_;  // own
  std::size_t first_open_ = 0;
  std::size_t folded_ = 0;
  double own_seconds_ = 0;
  std::size_t own_chunks_ = 0;
  std::vector<task> tasks_;
  std::deque<given_chunk> given_to_me_;
  std::vector<kept_rows>* sent_ = nullptr;
  std::uint64_t shape_ = 0;
  std::vector<chunk_work::input> inputs_;
};

// ---- a run

work_stealing::work_stealing(const Comm& comm, collectives& all, bool on)
    : over_(comm.backend()),
      limit_(comm.deadline()),
      all_(all),
      on_(on && all.size() > 1),
      log_(on_ ? over_->log() : nullptr),
      process_(random_id()),
      left_(all.size()),
      processes_(all.size()) {}

work_stealing::~work_stealing() = default;

void work_stealing::begin_run() {
  if (!on_) return;
  // Not a broadcast: a replacement of its root would have another number.
  auto run = static_cast<std::int64_t>(random_id() >> 1U);
  all_.all_reduce(std::span(&run, 1), reduce_op::max, "work stealing");
  run_ = static_cast<std::uint64_t>(run);
}

void work_stealing::begin_step(int step) noexcept {
  step_ = static_cast<std::uint32_t>(step);
  number_ = 0;
  given_ = taken_ = 0;
  computed_ = waited_ = {};
}

void work_stealing::run(const chunk_work& work, std::span<std::byte> result) {
  ++number_;
  computation(*this, work, result, on_, log_ != nullptr && log_->takes_over()).run();
}

void work_stealing::leave() noexcept {
  if (!on_ || run_ == 0) return;
  try {
    send_to_all(header_of(steal_message::left));
  } catch (const std::exception&) {  // of several errors the first one is reported
  }
}

byte_vector work_stealing::header_of(steal_message what) const {
  byte_vector m;
  put_fields(m, run_, process_, step_, number_, static_cast<std::uint32_t>(what));
  return m;
}

void work_stealing::send(std::size_t to, byte_vector message) {
  if (left_[to]) return;
  try {
    over_->send({static_cast<int>(to), stealing_tag, stealing_communicator}, std::move(message), false, limit_);
  } catch (const network_error&) {
    if (log_ == nullptr) throw;
  }
}

/// Starts with the next one, so that not all send to the same task at once.
void work_stealing::send_to_all(const byte_vector& message) {
  const auto p = all_.size();
  for (std::size_t i = 1; i < p; ++i) send((all_.rank() + i) % p, message);
}

/// Forgets which of this task's rows that one keeps, and drops its rows that are kept here.
void work_stealing::forget_rows(std::size_t rank) {
  for (auto& [name, sent] : sent_) sent[rank] = {};
  std::erase_if(kept_, [&](const auto& k) { return k.first.second >> 32U == rank; });
}

/// A message, if one arrives in time.
std::optional<received_message> work_stealing::take(comm_backend::patience limit) {
  const auto ticket = over_->post({any_source, stealing_tag, stealing_communicator});
  std::optional<received_message> m;
  try {
    m = over_->take(ticket, limit);
  } catch (const network_error&) {
    over_->give_up(ticket);
    if (log_ == nullptr) throw;
    return std::nullopt;
  } catch (...) {
    over_->give_up(ticket);
    throw;
  }
  if (!m) over_->give_up(ticket);
  return m;
}

// ---- for steps of a queue

void compute_chunks(com_context& c, const chunk_work& work, std::span<std::byte> result) {
  auto* stealing = c.stealing();
  if (stealing == nullptr) throw error(work.name + " is not part of a queue");
  stealing->run(work, result);
}

std::uint64_t digest_of_input(std::span<const std::byte> bytes) { return digest_of(bytes).low; }

std::uint64_t digest_of_input(com_context& c, const std::string& name) {
  auto& o = c.find(name);
  if (const auto numbers = o->numbers()) return digest_of_input(numbers->bytes);
  if (!o->is_saved())
    throw type_error("\"" + name + "\" is " + o->type_text() +
                     " stored with put_local or init_with_partitioned_data, which tasks cannot compare");
  saved_state one;
  o->save(name, one);
  std::uint64_t digest = 0;
  one.visit(name, [&](const std::string& at, const value_view& v) {
    if (at == name) digest = digest_of_input(collectives::value_bytes(v));
  });
  return digest;
}

}  // namespace paracel
