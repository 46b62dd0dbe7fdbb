// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <paracel/consistency.hpp>
#include <paracel/key_set.hpp>
#include <paracel/types.hpp>
#include <paracel/value.hpp>
#include <tsl/robin_map.h>

#include "client/server_group.hpp"
#include "core/read_cache.hpp"
#include "worker/session.hpp"
#include "worker/subscriber.hpp"
#include "worker/update_combiner.hpp"

namespace paracel {

/// The servers as one worker sees them: the client, this worker's clock, and the cache that the staleness rule allows.
/// Thread-safety: owned by the thread that runs the algorithm.
class parasrv {
  friend class async_result;

 public:
  using put_value = std::function<void(const value_view&)>;
  using put_item = std::function<void(std::size_t index, const value_view&)>;

  /// A function as the servers know it. Additive: value + delta element by element, so that it can be applied to a cached
  /// copy as well.
  struct function_ref {
    std::uint64_t id = 0;  // 0: the servers' default, which adds
    bool additive = true;
  };

  /// `begin`: iterations that this worker had finished in other parasrvs when the first use of this one began.
  parasrv(std::shared_ptr<session> job, const consistency& c, std::uint32_t begin);
  ~parasrv();
  parasrv(const parasrv&) = delete;
  parasrv& operator=(const parasrv&) = delete;

  void set_model(consistency_model model);
  [[nodiscard]] consistency_model model() const noexcept { return model_; }
  void set_total_iters(std::uint32_t n) { total_iters_ = n; }

  /// False when the key is not there. Blocks: as the rule of paralg.hpp says.
  bool read(const std::string& key, const put_value& put);
  /// The same without a copy: the entry of the cache, or null. Under ASP, too, the value lies in the cache, but each
  /// call asks the server. Lifetime: until the next call of this object.
  const read_cache::entry* read_kept(const std::string& key);
  /// What the cache has of a key, however old, or null.
  [[nodiscard]] const read_cache::entry* find_cached(const std::string& key) const { return cache_.find_fresh(key, 0); }
  void write(const std::string& key, const value_view& value);
  async_functor_type update(const std::string& key, const value_view& delta, std::uint64_t function);
  /// `put` may be empty; the new value then does not travel, unless the cache wants it.
  void bupdate(const std::string& key, const value_view& delta, std::uint64_t function, const put_value& put);
  /// Staged under BSP as `update` is.
  async_functor_type update_default(const std::string& key, const value_view& initial, const value_view& delta,
                                    std::uint64_t function);
  /// Replaces the value if its version is `version` (0: if it is not there); `version` is then the new one, otherwise the
  /// one that is there. Immediate; under BSP it sees what a read would.
  bool cas(const std::string& key, std::uint64_t& version, const value_view& value);
  /// As `read`, but never from the cache; returns the version, 0: not there.
  std::uint64_t read_version(const std::string& key, const put_value& put);
  bool contains(const std::string& key);
  bool remove(const std::string& key);

  // The same without waiting. A number stands for the request: `finish` waits for it, and what it fails with is thrown there
  // or, if nobody finishes it, by `settle`. What they write to must be there until then.

  /// `then`, if there is one, runs in `settle` or `poll` after the value was put; a missing key is then an error.
  kvclt::sequence start_read(const std::string& key, value_sink to, std::function<void()> then = {});
  kvclt::sequence start_write(const std::string& key, const value_view& value);
  kvclt::sequence start_update(const std::string& key, const value_view& delta, std::uint64_t function);
  kvclt::sequence start_read_multi(std::span<const std::string> keys, put_item put, bool all);
  kvclt::sequence start_update_multi(std::span<const std::string> keys, std::span<const value_view> deltas,
                                     std::uint64_t function, bool clocked, put_item put);

  [[nodiscard]] std::shared_ptr<const key_parts> prepare(std::vector<std::string> keys);
  kvclt::sequence start_set_read(std::shared_ptr<const key_parts> set, std::shared_ptr<set_target> to);
  kvclt::sequence start_set_write(std::shared_ptr<const key_parts> set, const set_source& values);
  /// `to` may be null; with it the update is immediate and the new values come back.
  kvclt::sequence start_set_update(std::shared_ptr<const key_parts> set, const set_source& deltas, std::uint64_t function,
                                   bool clocked, std::shared_ptr<set_target> to);

  /// Blocks: until the request is answered. False: a key that was read is not there. Throws: what it failed with.
  bool finish(kvclt::sequence number);
  [[nodiscard]] async_result result_of(kvclt::sequence number) const { return {self_, number}; }
  /// Of several requests: `other` waits for them and says how they ended.
  [[nodiscard]] async_result result_of(std::future<bool> other,
                                       std::shared_ptr<const std::vector<kvclt::sequence>> requests) const {
    return {self_, std::move(other), std::move(requests)};
  }
  /// Runs what has become ready and never waits. Returns: the number of answers.
  std::size_t poll();

  /// `all`: a missing key is a key_error.
  void read_multi(const std::vector<std::string>& keys, const put_item& put, bool all);
  void write_multi(const std::vector<std::string>& keys, const std::vector<value_view>& values);
  /// `clocked`: of this iteration, so that BSP stages them.
  void update_multi(const std::vector<std::string>& keys, const std::vector<value_view>& deltas, std::uint64_t function,
                    bool clocked, const put_item* put);
  void update_default_multi(const std::vector<std::string>& keys, const std::vector<value_view>& initials,
                            const std::vector<value_view>& deltas, std::uint64_t function);
  bool remove_multi(const std::vector<std::string>& keys);
  void clear();

  /// One request of a call on a value that lies in several keys (paracel/array.hpp).
  /// Lifetime: key and value until the call has returned.
  struct part {
    std::string_view key;
    net::verb what = net::verb::none;
    value_view value;  ///< what goes along
    blob large;        ///< in its place: travels without a copy
    std::uint16_t flags = 0;
  };
  /// All parts at once, as a read of one key. Throws: key_error when a part is not there; the others then may have come.
  void read_parts(const std::string& name, std::span<const part> parts, const put_item& put);
  /// The same for parts of one kind (pull_at) of which a shard may hold many: one request a shard.
  void read_parts(const std::string& name, const std::vector<std::string>& keys, const std::vector<value_view>& elements,
                  const put_item& put);
  /// All parts at once, as `update` of one key; one future for all. `clocked`: of this iteration, so that BSP stages them.
  async_functor_type update_parts(const std::string& name, std::span<part> parts, std::uint64_t function, bool clocked);
  /// As `write` of one key. Parts may be pushes, or updates that assign.
  void write_parts(const std::string& name, std::span<part> parts, std::uint64_t assign);

  /// Finds (at the first use registers) a function at every shard. Throws: plugin_error with the first server's reason.
  std::uint64_t find_function(const std::string& file, const std::string& function, const hyper_parameters& hyper = {});
  /// A symbol with the hyper-parameters of its optimizer, as it travels: symbol, and `\0name=value,name=value` if there
  /// are any. Throws: plugin_error for a number that is not finite.
  static std::string symbol_with(const std::string& symbol, const hyper_parameters& hyper);
  std::uint64_t update_function = 0;
  std::uint64_t bupdate_function = 0;

  /// The same for a filter.
  std::uint64_t find_filter(const std::string& file, const std::string& symbol);
  /// Filters of the calls that name none; nothing: not registered yet.
  std::optional<std::uint64_t> read_filter;
  std::optional<std::uint64_t> remove_filter;

  /// Keys have gone that nobody can name.
  void forget_cached() { cache_.clear(); }

  /// Returns: whether this worker is to stop here for a checkpoint.
  bool commit();
  /// On: additive updates are added up here until the commit, or until a request that must not overtake them. Unless it
  /// was said, it is on under SSP and off under ASP; under BSP it is always off.
  void set_combining(bool on);
  /// On: under SSP the shards send what changes of the keys in the cache when the clock moves.
  void set_push(bool on);
  /// Keys to be sent from now on. Throws: key_error.
  void subscribe(const std::vector<std::string>& keys);
  [[nodiscard]] std::uint64_t pushes_taken() const noexcept { return pushed_ ? pushed_->taken() : 0; }
  /// Sends what was added up, waits for what is in flight and runs the callbacks that become ready. Throws the first failure
  /// of a request whose future nobody has asked; the others that failed before are forgotten with it.
  void settle();
  /// Under BSP: all updates of iterations that every worker has finished are in the values. Throws: what one of them failed
  /// with.
  void fold_finished();
  /// The same of the iterations that this worker has finished. Blocks: until every worker has.
  void fold_committed();
  [[nodiscard]] std::uint32_t last_staleness() const noexcept { return last_staleness_; }
  [[nodiscard]] server_group& client() noexcept { return *client_; }

  // For what stands on the same rule of reads and updates: tables, arrays.

  /// What a read carries now. Blocks: until the rule of paralg.hpp allows it.
  kvclt::call begin_read(net::verb what);
  /// What a write carries now: under BSP what all have finished is folded before it. Blocks: under BSP, as begin_read.
  kvclt::call begin_write(net::verb what);
  /// `clocked`: an update of this iteration, which BSP stages. Blocks: one that is not, under BSP, as begin_read.
  [[nodiscard]] kvclt::call begin_update(net::verb what, std::uint64_t function, bool clocked) {
    return update_call(what, function, clocked);
  }
  /// The next commit or settle throws this, unless another failure came before. `what`: whose update it was.
  void failed_later(const std::string& what, net::status why, std::string text);
  /// Throws what `why` stands for. `what` was being done.
  [[noreturn]] static void raise(net::status why, const std::string& text, const std::string& what);
  /// Empty once this parasrv has gone.
  [[nodiscard]] std::weak_ptr<parasrv*> self() const noexcept { return self_; }

 private:
  struct failure {
    net::status result = net::status::ok;
    std::string text;
  };
  /// A request whose future was not asked yet.
  struct failed_request {
    kvclt::sequence number = 0;
    failure outcome;
    std::string what;          // was being done
    std::exception_ptr error;  // instead of the outcome
    bool told = false;         // thrown by a waiting point already; kept for who asks its future
  };
  /// Counts a read whose answer the cache waits for.
  struct read_mark {
    explicit read_mark(parasrv* s) : of(s), sent_at(s->changes_) { ++s->reads_in_flight_; }
    read_mark(read_mark&& other) noexcept : of(std::exchange(other.of, nullptr)), sent_at(other.sent_at) {}
    read_mark& operator=(read_mark&&) = delete;
    ~read_mark() {
      if (of != nullptr && --of->reads_in_flight_ == 0) of->changed_.clear();
    }
    parasrv* of;
    std::uint64_t sent_at;  // own changes that were made before it was sent
  };
  struct multi_call;
  struct set_call;

  /// What several futures, or several requests, share: the updates of a key that were added up, the parts of an array.
  struct joint_update {
    std::string name;
    net::status result = net::status::ok;
    std::string text;
    std::vector<kvclt::sequence> sent{};  // requests of its own
  };
  struct combined_update : joint_update {
    bool waits = true;
  };
  void note(const std::shared_ptr<joint_update>& u, net::status result, std::string_view text);
  async_functor_type future_of(std::shared_ptr<joint_update> u, bool* waits);
  using combiner = update_combiner<combined_update>;
  static void unsent(combined_update& u);

  [[nodiscard]] bool combines(const std::string& key, const value_view& delta, std::uint64_t function) const;
  async_functor_type combine(const std::string& key, const value_view& delta, std::uint64_t function);
  void send_combined(combiner::entry e);
  void before_request(net::verb what, const std::string_view* key);
  const read_cache::entry* find_fresh(const std::string& key);
  void was_read(const std::string& key);
  /// Before a request leaves: of one key, or of many.
  void send_combined_before(const std::string_view* key);
  /// All of them in requests of many keys. Blocks: until they are answered; failures are in `failed_`.
  void send_all_combined();

  [[nodiscard]] bool clocked() const noexcept { return model_ != consistency_model::asp; }
  [[nodiscard]] bool cached() const noexcept { return clocked() && finished() - begin_ < total_iters_; }
  /// Iterations of this worker.
  [[nodiscard]] std::uint32_t finished() const noexcept { return job_->finished(); }
  [[nodiscard]] std::uint32_t needed() const noexcept;
  void wait_for_minimum();
  kvclt::call read_call(net::verb what) const noexcept;
  kvclt::call update_call(net::verb what, std::uint64_t function, bool clocked);
  void finish_last();
  /// Throws the first failure that nobody was told.
  void throw_untold();
  /// An update that is on its way when it returns. `value` travels; `delta` is what becomes of a cached copy.
  kvclt::sequence send_update(const kvclt::call& c, const std::string& key, const value_view& value,
                              const value_view& delta);
  kvclt::sequence send_updates(const kvclt::call& c, std::span<const std::string> keys,
                               std::span<const value_view> values, std::span<const value_view> deltas, bool clocked,
                               put_item put);
  [[noreturn]] static void refuse(const failed_request& f);
  void note(kvclt::sequence number, net::status result, std::string_view text, std::string what);
  void note(kvclt::sequence number, std::exception_ptr error);
  /// `may_miss`: a key that is not there is no failure.
  void take_read(const kv_result& r, value_sink to, const std::string* key, bool may_miss);
  void run_ready();
  /// An own change of `key` is on its way: answers to reads that were sent before must not be remembered.
  void changing(const std::string& key) {
    if (reads_in_flight_ != 0) changed_[key] = ++changes_;
  }
  void remember_read(std::string_view key, const value_view& value, std::uint64_t version, std::uint32_t minimum,
                     const read_mark& mark);
  kvclt::sequence start_set(const kvclt::call& c, std::shared_ptr<const key_parts> set, const set_source& values,
                            std::shared_ptr<set_target> to, const char* doing);
  void forget_set(const key_parts& set);
  /// Under BSP what all have finished is folded into the values, so that a write replaces it. It is not waited for: the
  /// write follows on the same channel.
  void fold_before_write(std::span<const std::string> keys);
  void remember_write(const std::string& key, const value_view& value, std::uint32_t minimum);
  void apply_to_cache(const std::string& key, const value_view& delta, std::uint64_t function);
  std::uint64_t find_function(const std::string& file, const std::string& symbol, net::verb what);
  [[nodiscard]] bool is_additive(std::uint64_t function) const;

  std::shared_ptr<session> job_;
  std::unique_ptr<server_group> client_;
  std::uint32_t staleness_;
  consistency_model model_;
  std::uint32_t total_iters_ = UINT32_MAX;
  std::uint32_t begin_;               // what this worker had finished, in another parasrv of the job, when this one began
  std::uint32_t known_slowest_ = 0;   // of all workers
  std::uint32_t last_staleness_ = 0;
  read_cache cache_;
  std::vector<std::pair<std::string, function_ref>> functions_;  // "file\0symbol\0verb"; a handful
  std::vector<failed_request> failed_;
  std::unordered_set<kvclt::sequence> missing_;  // reads of this iteration whose keys are not there, not yet asked for
  std::deque<std::function<void()>> ready_;  // callbacks, to be run at the next waiting point
  std::size_t reads_in_flight_ = 0;          // that the cache is to remember
  std::uint64_t changes_ = 0;                // own changes while there were any
  tsl::robin_map<std::string, std::uint64_t> changed_;  // the last of these, by key
  combiner combiner_;
  std::vector<std::shared_ptr<joint_update>> joint_failed_;  // whose futures nobody has asked
  bool closing_ = false;  // callers' memory may have gone
  std::optional<bool> combining_;  // as it was said
  std::unique_ptr<subscriber> pushed_;  // null: off
  std::shared_ptr<parasrv*> self_ = std::make_shared<parasrv*>(this);  // futures look whether it is still there
};

}  // namespace paracel
