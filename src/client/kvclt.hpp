// SPDX-License-Identifier: BSD-3-Clause
//
// The client of the servers: many requests in flight, answers matched by sequence number, driven by its caller (it has
// no thread). A key's request goes straight to the shard thread that owns the key.
//
// In a job with copies every request is kept until it is answered. When the membership changes, all that are unanswered
// go again, in the order in which they were made, under their old numbers, to whoever serves their partitions now; a server
// that has applied one already answers from what it remembers. So handlers run once, and an update counts once. Nothing
// else makes this client give up on a server: a silent one is the scheduler's business (kvclt_failover.cpp). A connection
// that broke, or stays silent, is made anew, and what was unanswered there goes again in the same way. Without copies a
// connection that broke is an error.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "client/abort_signal.hpp"
#include "client/kept_request.hpp"
#include "client/key_parts.hpp"
#include "client/membership_board.hpp"
#include "core/blob.hpp"
#include "core/membership.hpp"
#include "core/small_function.hpp"
#include "net/line_care.hpp"
#include "net/protocol.hpp"
#include "net/time_source.hpp"
#include "net/transport.hpp"

namespace paracel {

/// An answer. The views are valid inside the handler only; `tail` may be kept.
struct kv_result {
  net::reply_header header;
  std::span<const std::byte> body;
  blob tail;
  [[nodiscard]] bool ok() const noexcept { return header.result == net::status::ok; }
  [[nodiscard]] value_view value() const noexcept {
    return {header.tag, tail ? tail.bytes() : body};
  }
  /// Why it failed, in the server's words.
  [[nodiscard]] std::string_view text() const noexcept { return net::text_of(body); }
};

struct kvclt_options {
  std::chrono::milliseconds timeout{60'000};          ///< silence of the servers before a waiting call gives up; 0: never,
                                                      ///< for jobs whose scheduler watches over the servers
  std::size_t max_outstanding_bytes = 256UL << 20;    ///< sent and not yet answered; a sender waits beyond it
  std::size_t max_message_bytes = 1UL << 30;
  std::size_t multi_chunk_bytes = 8UL << 20;          ///< a multi request is cut into requests of about this size
  std::uint64_t incarnation = 0;                      ///< 0: a random one is made
  const net::time_source* time = nullptr;             ///< none: that of the machine
};

/// A client of every server of a job.
///
/// Order: requests for one key are executed in the order they were made. Only when a server or a connection was lost while
/// several of them were on their way may a read be executed after an update that was made behind it.
/// Thread-safety: owned by the thread that made it; a program with several threads makes several.
/// Handlers run inside `wait`, `wait_all`, `poll`, or a request that had to wait for room. They may make requests, which
/// then do not wait for room (the views of the answer in hand would not outlive it), but they may not wait.
class kvclt {
 public:
  using handler = small_function<void(const kv_result&)>;
  using item_handler = std::function<void(std::size_t index, const net::reply_item&)>;
  using sequence = std::uint64_t;
  /// The same with the key, which is valid inside the handler.
  using keyed_handler = small_function<void(std::size_t index, std::string_view key, const net::reply_item&)>;
  /// The answer to one part of a key set: `order` are the indices of its keys.
  using part_handler = small_function<void(std::span<const std::uint32_t> order, const kv_result&)>;
  /// With the number of the call. It does not throw.
  using end_handler = small_function<void(sequence)>;

  /// What a request carries besides key and value.
  struct call {
    net::verb what = net::verb::none;
    std::uint64_t function = 0;
    std::uint32_t clock = net::no_clock;
    std::uint16_t flags = 0;
    std::uint32_t table = 0;
    std::uint32_t credit = 0;  ///< bytes that an answer may have; 0: as many as the server likes
    /// Of a single-key request: what stands in its payload before the value. Read before `request` returns.
    std::span<const std::byte> prefix{};
  };

  /// `ended` is raised when the job has ended, for whatever reason: with it a server that says so itself is not believed,
  /// since it knows neither the cause nor the status.
  kvclt(net::transport& transport, membership servers, std::uint32_t rank, kvclt_options options = {},
        std::shared_ptr<abort_signal> ended = nullptr, std::shared_ptr<membership_board> board = nullptr);
  ~kvclt();
  kvclt(const kvclt&) = delete;
  kvclt& operator=(const kvclt&) = delete;

  /// Sends a single-key request and returns at once. `value` is copied unless `large` holds it, which then travels
  /// without a copy (its bytes must not change until the answer).
  /// Throws: network_error when it is larger than the limit; job_error when the job has ended.
  sequence request(const call& c, std::string_view key, const value_view& value, handler done, blob large = {});

  /// One request a shard (or several, when large), all shards at once. `values` is empty or has one for each key.
  /// `each` runs for every key, in no particular order; a request refused as a whole runs it with that status and its
  /// text as a packed value for each of its keys. Returns after the last answer.
  void multi(const call& c, std::span<const std::string> keys, std::span<const value_view> values,
             const item_handler& each);

  /// To one shard of one server (by its index in the membership); returns at once. `key` says no place.
  sequence shard_request(const call& c, std::uint32_t server, std::uint32_t shard, std::string_view key,
                         std::span<const std::byte> payload, handler done);
  /// The same, and returns at once. The number stands for all of its requests: it is answered when they are. `each` runs
  /// as they are answered, then `end`; keys and values are copied.
  sequence multi_async(const call& c, std::span<const std::string> keys, std::span<const value_view> values,
                       keyed_handler each, end_handler end = {});

  /// Where the keys of a set live. Cost: two hashes a key; nothing is sent.
  [[nodiscard]] std::shared_ptr<const key_parts> split(std::vector<std::string> keys) const;
  /// Sends the keys to those shards that have not had them from this client. Returns at once.
  void prepare(const key_parts& set);
  /// The values that a request on a set carries: none (tag none and no items), numbers one after the other in the order of
  /// the keys, or anything as items.
  struct set_payload {
    value_tag tag = value_tag::none;          ///< of each value
    std::size_t value_bytes = 0;              ///< of each
    std::span<const std::byte> numbers;
    std::span<const value_view> items;
  };
  /// One request for each part of the set, all at once; returns at once. Where a server has forgotten the set, it is given
  /// the keys and the request again, before anything that this client asked of that shard afterwards. The values are
  /// copied. `each` runs for each part, then `end`.
  /// Throws: error when the set is one of another job.
  sequence set_async(const call& c, std::shared_ptr<const key_parts> set, const set_payload& values, part_handler each,
                     end_handler end = {});

  /// The same request to every shard of every server; returns after the last answer.
  void broadcast(const call& c, std::string_view key, std::span<const std::byte> payload, const handler& each);

  /// A request that is not of one key to the shard thread behind `channel`. `payload` is copied; `large`, if there is one,
  /// travels in a frame of its own, without a copy (its bytes must not change until the answer).
  sequence shard_request(const call& c, std::uint32_t channel, std::uint32_t count, value_tag tag,
                         std::span<const std::byte> payload, handler done, blob large = {});
  /// The channel of the shard thread that owns a partition.
  [[nodiscard]] std::uint32_t channel_of(std::uint16_t partition) const noexcept {
    const auto at = router_.locate_partition(partition);
    return first_channel_[at.server] + at.shard;
  }
  [[nodiscard]] const kvclt_options& options() const noexcept { return options_; }
  /// While it is there places stay what they are (`channel_of`, `locate`, servers()), for whoever asks and sends afterwards.
  class [[nodiscard]] stay {
   public:
    explicit stay(kvclt& c) : client_(c) { ++client_.staying_; }
    ~stay() { --client_.staying_; }
    stay(const stay&) = delete;
    stay& operator=(const stay&) = delete;

   private:
    kvclt& client_;
  };
  /// Takes the newest membership that this process has heard of, if that is another one. Nothing happens inside a handler.
  void follow() {
    if (keeps_) [[unlikely]] follow_newest();
  }

  /// To the clock thread of the server that owns the clock. `clock`: finished iterations (tick), needed minimum (wait).
  sequence clock_request(net::verb what, std::uint32_t clock, handler done, std::uint16_t flags = 0);

  /// To the control thread of one server (stats, ping).
  sequence control_request(net::verb what, std::uint32_t server, handler done);

  /// Drives the client until `s` is answered.
  /// Throws: network_error when a server has been silent for the timeout (it is unknown whether the request was applied);
  /// job_error when the job has ended; whatever a handler throws.
  void wait(sequence s);
  void wait_all();
  /// The handlers of requests that change nothing do not run any more: what they would fill may have gone.
  void forget_reads() noexcept;
  /// Handles what has arrived; never blocks. Returns the number of answers.
  std::size_t poll();

  [[nodiscard]] bool answered(sequence s) const noexcept;
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }
  [[nodiscard]] const membership& servers() const noexcept { return members_; }
  [[nodiscard]] std::uint64_t incarnation() const noexcept { return incarnation_; }
  /// Whoever holds requests back (combined updates) gives this: it is called before a request leaves that could see or
  /// be seen by them, with its key, or with null when it is about many. It may make requests, and may not wait.
  void set_before(std::function<void(net::verb, const std::string_view* key)> before) { before_ = std::move(before); }
  /// The number of the request before which `set_before`'s function is being called.
  [[nodiscard]] sequence next() const noexcept { return next_; }

  /// Asks a shard to answer when the clock is beyond `clock` (items: key and known version). Nothing waits for it but a
  /// poll or whoever drives the client for another reason.
  sequence subscribe(std::uint32_t server, std::uint32_t shard, std::uint32_t clock, std::span<const std::byte> items,
                     std::uint32_t count, handler done);
  /// Where a key lives; for tests and tools.
  [[nodiscard]] location locate(std::string_view key) const noexcept { return router_.locate(key); }
  [[nodiscard]] location locate_partition(std::uint16_t p) const noexcept { return router_.locate_partition(p); }

 private:
  struct pending {
    handler done;
    std::uint32_t channel = 0;
    std::uint32_t bytes = 0;
    net::verb what = net::verb::none;
    bool open = false;
    bool group = false;  // several requests: answered when they are, and never by a reply of its own
    std::unique_ptr<kept_request> kept{};  // in jobs with copies
  };
  struct group;  // kvclt_group.hpp
  using unsigned_range = std::pair<std::uint32_t, std::uint32_t>;
  struct channel_state {
    int number = -1;  // of the port; -1 while it is not open
    std::string address;
    bool open = true;  // its server is not down
    std::uint32_t slot = 0;
    bool begun = false;     // something has been sent over this connection
    bool broken = false;    // the other side has seen another connection
    net::line_care care;
  };

  /// How often a blocked call looks whether the membership has changed.
  static constexpr std::chrono::milliseconds follow_interval{20};

  pending& slot(sequence s) noexcept { return window_[s & (window_.size() - 1)]; }
  [[nodiscard]] const pending& slot(sequence s) const noexcept { return window_[s & (window_.size() - 1)]; }
  net::request_header header_of(const call& c) const noexcept;
  static void check_key(std::string_view key);
  group& open_group(const call& c);
  void answered_part(group& g);
  void release(group& g) noexcept;
  static void silence(group& g) noexcept;
  void send_items(group& g, std::uint32_t channel, unsigned_range piece, std::span<const std::string> keys,
                  std::span<const value_view> values, std::size_t bytes);
  void take_items(group& g, std::size_t chunk, const kv_result& r);
  void send_prepare(const key_parts& set, const key_parts::part& part, handler done);
  void send_part(group& g, std::size_t chunk);
  void take_part(group& g, std::size_t chunk, const kv_result& r);
  void close(pending& p) noexcept;
  sequence send(std::uint32_t channel, net::request_header& h, std::string_view key, std::span<const std::byte> prefix,
                std::span<const std::byte> payload, blob tail, handler done);
  void open_channels();
  void transmit(channel_state& to, const net::outgoing& message);
  // Jobs with copies, in kvclt_failover.cpp:
  void keep(pending& p, const net::request_header& h, std::uint32_t channel, std::span<const std::byte> payload,
            const blob& tail);
  void follow_newest();
  void begin_stream(std::uint32_t channel, net::request_header& h) noexcept;
  void note_broken(int number) noexcept;
  void note_alive(int number) noexcept;
  void ping(std::uint32_t channel);
  void note_silence(std::chrono::nanoseconds time);
  void note_silence_while_polling();
  void renew(std::uint32_t channel);
  void adopt(const membership& fresh);
  void tell_new_server(std::uint32_t server);
  void clear_everywhere(const call& c, const handler& each);
  void ask_everywhere(pending& p);
  void send_part(pending& p, request_part part, net::request_header h, std::span<const std::byte> body);
  [[nodiscard]] std::uint32_t server_of(std::uint32_t channel) const noexcept;
  void send_again();
  void send_again(sequence s);
  void send_kept(pending& p, std::uint32_t channel);
  void send_apart(pending& p);
  void answer_here(sequence s, net::status result, std::string_view text);
  void remember(const call& c, std::string_view key, std::span<const std::byte> payload);
  void recycle(pending& p) noexcept;
  /// Whoever waits for room while places must stay would wait for servers that are gone.
  [[nodiscard]] bool waits_in_vain() const noexcept { return keeps_ && staying_ != 0 && (left_behind_ || broken_ || behind()); }
  [[nodiscard]] bool serves(std::uint32_t channel) const noexcept { return channels_[channel].open; }
  [[nodiscard]] std::uint32_t clock_channel() const noexcept;
  bool takes(pending& p, const net::reply_view& reply);
  [[nodiscard]] bool behind() const noexcept { return keeps_ && board_->epoch() > members_.epoch; }
  std::shared_ptr<const key_parts> here(std::shared_ptr<const key_parts> set);
  bool receive(std::chrono::milliseconds timeout);
  void close_front() noexcept;
  void run(const handler& done, const kv_result& result);
  /// While it is there nothing waits and no place changes, as inside a handler.
  class no_waiting {
   public:
    explicit no_waiting(kvclt& c) : flag_(c.in_handler_), before_(std::exchange(flag_, true)) {}
    ~no_waiting() { flag_ = before_; }
    no_waiting(const no_waiting&) = delete;
    no_waiting& operator=(const no_waiting&) = delete;

   private:
    bool& flag_;
    bool before_;
  };
  void make_room(std::size_t bytes);
  /// Room for one more open request in the window.
  void widen();
  /// Drives until `reached()`; `s` is the request that is waited for, to be named if it is never answered.
  template <class Reached>
  void drive(const Reached& reached, sequence s);
  /// Sends what `send_all` sends and drives until `unanswered` is 0. The handlers may refer to the caller's stack: none of
  /// them is left behind.
  template <class Send>
  void send_and_finish(const Send& send_all, const std::size_t& unanswered);
  void forget(sequence first, sequence last) noexcept;
  [[noreturn]] void give_up_connection(int number) const;
  [[noreturn]] void give_up(sequence s, std::chrono::milliseconds silence) const;

  membership members_;
  key_router router_;
  kvclt_options options_;
  std::shared_ptr<abort_signal> ended_;
  std::unique_ptr<net::port> port_;
  std::uint64_t incarnation_;
  std::uint32_t rank_;
  sequence next_ = 1;
  sequence low_ = 1;  // every sequence below it is answered
  std::size_t in_flight_ = 0;
  std::size_t outstanding_bytes_ = 0;
  bool in_handler_ = false;
  bool keeps_ = false;                        // servers may change
  bool left_behind_ = false;                  // a request waits for `send_again`
  bool broken_ = false;                       // one of the channels is
  std::chrono::nanoseconds waited_{};         // in vain, ever
  std::chrono::nanoseconds polled_{};         // when it was last polled in vain, by options_.time
  std::chrono::nanoseconds silence_{};        // of all servers; both count what was waited, not what this process slept
  unsigned staying_ = 0;
  bool subscribes_ = false;                   // the clock has been told so
  std::shared_ptr<membership_board> board_;
  /// What every server has to know before anything else: functions and tables.
  struct registration {
    call what;
    std::string key;
    std::vector<std::byte> payload;
  };
  std::vector<registration> registrations_;
  std::vector<std::unique_ptr<kept_request>> spare_;  // with their memory
  std::map<std::weak_ptr<const key_parts>, std::shared_ptr<const key_parts>, std::owner_less<>> sets_here_;
  std::function<void(net::verb, const std::string_view*)> before_;
  struct subscription {
    std::uint32_t channel;
    std::uint32_t clock;
    handler done;
  };
  std::map<sequence, subscription> parked_;   // they are not in flight, and nobody waits for them
  std::vector<pending> window_;               // ring over sequences; its size is a power of two
  std::vector<std::uint32_t> first_channel_;  // of each server: its shards, then clock, then control
  std::vector<channel_state> channels_;
  std::vector<std::byte> front_;              // header, key and prefix of the request being sent
  std::vector<std::unique_ptr<group>> groups_;
  std::vector<group*> free_groups_;           // of these
  std::set<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> prepared_;  // channel and digest
  net::incoming incoming_;
};

}  // namespace paracel
