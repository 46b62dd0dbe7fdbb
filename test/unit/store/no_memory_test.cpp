// SPDX-License-Identifier: BSD-3-Clause
//
// A request that runs out of memory halfway, at a shard whose partitions have copies. Whichever allocation fails, the
// copy that receives the changes equals the head byte for byte, the reply states what was done, and a retry under the
// old number, at the head or at the copy, does nothing twice. The same without copies, for requests of a stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <time.h>

#include "net/protocol.hpp"
#include "server/plugin/plugin_registry.hpp"
#include "server/shard/shard.hpp"
#include "server/store/partition_records.hpp"
#include "test/support/paths.hpp"
#include "test/support/sanitized.hpp"
#include "test/support/shard_requests.hpp"

// ---- failing allocations: only those of a thread between `fail_at` and `fail_no_more` -------------------------------

namespace {

thread_local std::ptrdiff_t allocations_left = -1;  // until one fails; negative: none does
thread_local bool failures_last = false;            // all later ones fail too
thread_local bool has_failed = false;

[[maybe_unused]] bool fails_now() noexcept {  // unused with a sanitizer, whose malloc is kept
  if (allocations_left < 0) [[likely]]
    return false;
  if (allocations_left > 0) {
    --allocations_left;
    return false;
  }
  has_failed = true;
  if (!failures_last) allocations_left = -1;
  return true;
}
void fail_at(std::ptrdiff_t k, bool last) noexcept {
  has_failed = false;
  failures_last = last;
  allocations_left = k;
}
void fail_no_more() noexcept { allocations_left = -1; }

// Requests then take no time, so that no walk is cut off by its time slice, however busy the machine is.
thread_local bool time_stops = false;

}  // namespace

#if !defined(PARACEL_UNDER_ASAN) && !defined(PARACEL_UNDER_TSAN)
// Called by operator new, the arena and the blobs.
extern "C" void* __libc_malloc(std::size_t bytes) noexcept;
extern "C" void* malloc(std::size_t bytes) noexcept {
  if (fails_now()) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(bytes);
}

extern "C" int clock_gettime(clockid_t which, timespec* t) noexcept {
  static const auto real = reinterpret_cast<int (*)(clockid_t, timespec*)>(dlsym(RTLD_NEXT, "clock_gettime"));
  if (!time_stops) return real(which, t);
  *t = {};
  return 0;
}
#endif

namespace paracel::srv {
namespace {

using namespace test::shard_requests;
using net::status;
using net::verb;

constexpr std::uint32_t clock_of_folds = 5;
struct any_reply {
  net::reply_header header;
  bytes body;
};
class no_memory_notebook final : public reply_sink {
 public:
  void send(const net::peer&, const net::outgoing& message) override {
    const auto left = std::exchange(allocations_left, -1);  // the copy kept here is not part of the shard
    bytes frame(message.head.begin(), message.head.end());
    join(frame, message.body);
    net::reply_view view;
    ASSERT_EQ(net::decode(frame, message.tail.size(), view), nullptr);
    last = {view.header, {view.body.begin(), view.body.end()}};
    if (message.tail) join(last.body, message.tail.bytes());
    ++answers;
    allocations_left = left;
  }
  any_reply last;
  int answers = 0;
};

class node {
 public:
  explicit node(bool has_copies = true) : shard_({.threads = threads}, test_plugins(), owned_), is_alone_(!has_copies) {
    if (has_copies) shard_.keep_replicas();
  }

  any_reply send(const request& r) { return send(r, ++sequence_); }
  /// Allocation number `k` fails, unless `k` is negative.
  any_reply send(const request& r, std::uint64_t sequence, std::ptrdiff_t k = -1, bool last = false) {
    sequence_ = std::max(sequence_, sequence);
    auto h = r.h;
    h.client = 5;
    h.sequence = sequence;
    if (is_alone_) h.flags |= net::flag_stream;
    h.key_bytes = static_cast<std::uint32_t>(r.key.size());
    h.body_bytes = static_cast<std::uint32_t>(r.key.size() + (r.in_tail ? 0 : r.payload.size()));
    h.tail_bytes = r.in_tail ? r.payload.size() : 0;
    bytes frame(net::request_header_bytes);
    net::encode(h, std::span<std::byte, net::request_header_bytes>(frame));
    join(frame, net::bytes_of(r.key));
    if (!r.in_tail) join(frame, r.payload);
    auto tail = r.in_tail ? shared_buffer::copy_of(r.payload) : shared_buffer();
    net::request_view request;
    EXPECT_EQ(net::decode(frame, tail.size(), request), nullptr);
    net::peer from;
    from.size = 1;
    const auto answers = sink_.answers;
    completion done(sink_, from, h.what, sequence, 7, 1);
    time_stops = true;
    fail_at(k, last);
    shard_.handle(request, std::move(tail), std::move(done));
    fail_no_more();
    time_stops = false;
    EXPECT_EQ(sink_.answers, answers + 1);
    return sink_.last;
  }
  void begin_at(std::uint64_t sequence) noexcept { sequence_ = sequence - 1; }
  [[nodiscard]] std::uint64_t next_sequence() const noexcept { return sequence_ + 1; }
  shard& object() noexcept { return shard_; }
  std::map<std::uint16_t, bytes> states() {
    std::map<std::uint16_t, bytes> all;
    for (std::uint32_t p = 0; p < partition_count; p += threads) {
      shard_.encode_partition(static_cast<std::uint16_t>(p), all[static_cast<std::uint16_t>(p)]);
    }
    return all;
  }

 private:
  std::atomic<const ownership*> owned_{nullptr};
  shard shard_;
  const bool is_alone_;
  no_memory_notebook sink_;
  std::uint64_t sequence_ = 0;
};

/// The contents by kind, table and key: values, states and batches, without their versions and arrival numbers.
using contents = std::map<std::tuple<record_kind, std::uint64_t, std::string>, std::multiset<std::string>>;
contents contents_of(node& n) {
  contents all;
  const auto text = [](std::span<const std::byte> b) { return std::string(net::text_of(b)); };
  for (const auto& [p, s] : n.states()) {
    records cursor(s);
    for (record r; cursor.next(r);) {
      if (r.kind == record_kind::applied || r.kind == record_kind::table) continue;
      const bool of_table = r.kind == record_kind::row || r.kind == record_kind::row_stage;
      auto state = text(r.state);
      if (r.kind == record_kind::stage || r.kind == record_kind::row_stage) std::fill_n(state.begin() + 8, 8, '\0');
      all[{r.kind, of_table ? r.a : 0, r.kind == record_kind::row_stage ? std::to_string(p) : text(r.key)}].insert(
          std::to_string(r.tag) + text(r.value) + '\n' + state);
    }
  }
  return all;
}
bool has_broken(const contents& c) {
  return std::any_of(c.begin(), c.end(), [](const auto& e) { return std::get<0>(e.first) == record_kind::broken; });
}
std::multiset<std::string> at(const contents& c, const contents::key_type& k) {
  const auto found = c.find(k);
  return found == c.end() ? std::multiset<std::string>() : found->second;
}
/// Every entry is as in one of these.
void expect_once(const contents& now, const std::vector<const contents*>& one_of, const std::string& where) {
  std::set<contents::key_type> keys;
  for (const auto& [k, v] : now) keys.insert(k);
  for (const auto* c : one_of) {
    for (const auto& [k, v] : *c) keys.insert(k);
  }
  for (const auto& k : keys) {
    const auto is = at(now, k);
    EXPECT_TRUE(std::any_of(one_of.begin(), one_of.end(), [&](const auto* c) { return at(*c, k) == is; }))
        << where << ": " << std::get<2>(k);
  }
}

struct test_case {
  std::string what;
  std::vector<request> before;
  request asked;
  bool late = false;  ///< staged updates may be folded at once, or when the next request needs them
  /// A request that fails after it has folded, or handled some rows.
  [[nodiscard]] bool folds_or_has_rows() const noexcept {
    return (asked.h.flags & net::flag_bsp_read) != 0 ||
           (asked.h.what >= verb::rows_pull && asked.h.what <= verb::rows_remove);
  }
};

class no_memory {
 public:
  explicit no_memory(const test_case& c) : case_(c) {
    for (auto* is : {&before_, &folded_, &after_}) {
      node n;
      prepare(n, nullptr);
      if (is == &folded_ && (c.asked.h.flags & net::flag_bsp_read) != 0) fold(n);
      if (is == &after_) {
        EXPECT_EQ(n.send(c.asked).header.result, status::ok) << c.what;
      }
      if (c.late) fold(n);
      *is = contents_of(n);
    }
  }
  /// `cold`: the shard has handled almost no requests, so that no buffer has spare capacity. Returns: the number of
  /// allocations.
  std::ptrdiff_t run(bool last, bool cold) {
    std::ptrdiff_t k = 0;
    while (fails(k, last, cold)) ++k;
    return k;
  }
  std::ptrdiff_t run_alone(bool cold) {
    std::ptrdiff_t k = 0;
    while (fails_alone(k, cold)) ++k;
    return k;
  }

 private:
  void prepare(node& head, node* copy) const {
    for (const auto& r : case_.before) {
      EXPECT_EQ(head.send(r).header.result, status::ok) << case_.what;
      if (copy != nullptr && is_for_all(r)) (void)copy->send(r);
    }
    if (copy != nullptr) ship(head, *copy);
  }
  void prepare_cold(node& head, node& copy) const {
    node other;
    prepare(other, nullptr);
    for (auto* n : {&head, &copy}) {
      for (const auto& [p, s] : other.states()) {
        std::string why;
        EXPECT_EQ(n->object().apply_records(p, s, why), status::ok) << why;
      }
      for (const auto& r : case_.before) {
        if (is_for_all(r) || (r.h.flags & net::flag_bsp_read) != 0) (void)n->send(r);
      }
    }
    ship(head, copy);
    copy.object().store().changes().clear();
    head.begin_at(other.next_sequence());
  }
  /// Whether it gives a shard information that is not part of any partition's state.
  static bool is_for_all(const request& r) noexcept {
    return r.h.what == verb::set_prepare || r.h.what == verb::table_open;
  }
  static void fold(node& n) {
    const request all{{.what = verb::fold, .clock = clock_of_folds}, {}, {}, false};
    for (int slices = 0; slices < 10; ++slices) {  // each has a time limit
      if (const auto a = n.send(all); a.header.result == status::ok && (a.header.flags & net::reply_more) == 0) return;
    }
  }
  static void ship(node& from, node& to) {
    from.object().take_changes([&](std::uint16_t p, std::span<const std::byte> changes) {
      std::string why;
      EXPECT_EQ(to.object().apply_replica(p, changes, why), status::ok) << why;
    });
  }
  /// An item says what became of its key.
  void expect_items(const any_reply& a, const contents& now, const std::string& where) const {
    net::reply_items answers(a.body, many);
    net::reply_item item;
    for (std::size_t i = 0; answers.next(item); ++i) {
      const contents::key_type key{record_kind::put, 0, name(i)};
      if (item.result == status::expired) continue;  // unknown
      EXPECT_EQ(at(now, key), at(item.result == status::ok ? after_ : before_, key)) << where << ": " << name(i);
    }
    EXPECT_TRUE(answers.ok()) << where;
  }
  /// The reply states what was done.
  void expect_true(const any_reply& a, const contents& now, const std::string& where) const {
    const auto what = case_.asked.h.what;
    const bool of_many = (what >= verb::pull_multi && what <= verb::update_at_multi) ||
                         (what >= verb::set_push && what <= verb::set_bupdate);
    if (a.header.result != status::ok) {
      const bool in_part = of_many || what == verb::remove_if || what == verb::fence || what == verb::fold ||
                           a.header.result == status::expired || case_.folds_or_has_rows();
      EXPECT_TRUE(in_part || now == before_) << where << ": it says that it was not done";
    } else if (of_many && (a.header.flags & net::reply_uniform) == 0) {
      if ((case_.asked.h.flags & net::flag_staged) == 0) expect_items(a, now, where);
    } else if ((a.header.flags & net::reply_more) == 0) {
      EXPECT_TRUE(now == after_) << where << ": it says that it was done";
    }
  }
  /// Returns: whether there was an allocation number `k`.
  bool fails(std::ptrdiff_t k, bool last, bool cold) const {
    const auto where = case_.what + ", allocation " + std::to_string(k) + (last ? " and all that follow" : "") +
                       (cold ? ", cold" : "");
    node head;
    node copy;
    if (cold) prepare_cold(head, copy);
    else prepare(head, &copy);
    const auto sequence = head.next_sequence();
    const auto first = head.send(case_.asked, sequence, k, last);
    const bool failed = has_failed;
    ship(head, copy);
    EXPECT_TRUE(head.states() == copy.states()) << where << ": head and copy differ";
    const auto now = contents_of(head);
    const bool broken = has_broken(now) && !has_broken(after_);  // a staged update that is reported as lost
    if (!broken && !case_.late) {
      expect_once(now, {&before_, &folded_, &after_}, where);
      expect_true(first, now, where);
    }

    // The reply was lost: the client retries, at whichever server is the head now.
    const auto again = head.send(case_.asked, sequence);
    const auto there = copy.send(case_.asked, sequence);
    EXPECT_EQ(again.header.result, there.header.result) << where;
    const bool more = ((again.header.flags | there.header.flags) & net::reply_more) != 0;
    if (case_.late || more || (broken && case_.asked.h.what == verb::fold)) {
      fold(head);
      fold(copy);
    }
    if (!broken) {
      expect_once(contents_of(head), {&before_, &folded_, &after_}, where + ", asked again");
      expect_true(again, contents_of(head), where + ", asked again");
    }
    EXPECT_TRUE(contents_of(head) == contents_of(copy)) << where << ": asked again, the two differ";
    return failed && !testing::Test::HasFailure();
  }

  /// The same at a shard without a copy.
  bool fails_alone(std::ptrdiff_t k, bool cold) const {
    const auto where = case_.what + ", allocation " + std::to_string(k) + " without a copy" + (cold ? ", cold" : "");
    node head(false);
    node other(false);
    if (cold) prepare_cold(head, other);
    else prepare(head, nullptr);
    const auto sequence = head.next_sequence();
    const auto first = head.send(case_.asked, sequence, k);
    const bool failed = has_failed;
    const auto now = contents_of(head);
    const bool broken = has_broken(now) && !has_broken(after_);
    if (!broken && !case_.late) {
      expect_once(now, {&before_, &folded_, &after_}, where);
      expect_true(first, now, where);
    }
    const auto again = head.send(case_.asked, sequence);
    const bool more = (again.header.flags & net::reply_more) != 0;
    if (case_.late || more || (broken && case_.asked.h.what == verb::fold)) fold(head);
    if (!broken) {
      expect_once(contents_of(head), {&before_, &folded_, &after_}, where + ", asked again");
      expect_true(again, contents_of(head), where + ", asked again");
    }
    return failed && !testing::Test::HasFailure();
  }

  const test_case& case_;
  contents before_;
  contents folded_;  // by a request that folds and then runs out of memory
  contents after_;
};

void run(const std::vector<test_case>& cases) {
  for (const auto& c : cases) {
    no_memory one(c);
    std::ptrdiff_t allocations = 0;
    for (const bool last : {false, true}) {
      allocations += one.run(last, false);
      allocations += one.run(last, true);
    }
    for (const bool cold : {false, true}) allocations += one.run_alone(cold);
    EXPECT_GT(allocations, 0) << c.what;
    if (testing::Test::HasFailure()) return;
  }
}

class NoMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (test::sanitized) GTEST_SKIP() << "a sanitizer has its own malloc, which does not fail when it is told to";
  }
};

const std::string_view own = "libparacel_default.so";

std::vector<request> all_keys() { return {multi(verb::push_multi)}; }

TEST_F(NoMemory, OneKey) {
  const auto adagrad = function(own, "paracel_adagrad");
  const auto adam = function(own, "paracel_adam");
  const auto one = single(verb::push, 0);
  auto expected = single(verb::cas, 0);
  expected.payload.insert(expected.payload.begin(), sizeof(std::uint64_t), std::byte{0});
  request both{{.what = verb::update_default, .tag = value_tag::packed}, name(0), {}, false};
  net::append_item(both.payload, {}, array(one.payload));
  net::append_item(both.payload, {}, array(one.payload));
  request elements{
      {.what = verb::update_at, .tag = value_tag::f64_array}, name(0), raw(std::vector<std::int32_t>{0, 2}), false};
  join(elements.payload, raw(std::vector<double>{5, 6}));
  auto large = single(verb::push, 0, std::vector<double>(10'000, 0.5));
  large.in_tail = true;
  auto added = large;
  added.h.what = verb::update;
  run({
      {"push", {}, one},
      {"push over an optimizer's state",
       {one, single(verb::update, 0, delta, adam)},
       single(verb::push, 0, {9, 9, 9, 9})},
      {"push of a large value", {one}, large},
      {"cas", {}, expected},
      {"update of none", {}, single(verb::update, 0)},
      {"update", {one}, single(verb::update, 0)},
      {"update of a large value", {large}, added},
      {"bupdate", {one}, single(verb::bupdate, 0)},
      {"update_default of none", {}, both},
      {"update_default", {one}, both},
      {"update_at", {one}, elements},
      {"adagrad of none", {}, single(verb::update, 0, delta, adagrad)},
      {"adagrad's first step", {one}, single(verb::update, 0, delta, adagrad)},
      {"adagrad's second step",
       {one, single(verb::update, 0, delta, adagrad)},
       single(verb::bupdate, 0, delta, adagrad)},
      {"adam after adagrad", {one, single(verb::update, 0, delta, adagrad)}, single(verb::update, 0, delta, adam)},
      {"remove", {one, staged(0, 3)}, single(verb::remove, 0, {})},
  });
}

TEST_F(NoMemory, AFunctionThatFailsHasChangedNothing) {
  const auto positive = function("element_updates", "positive_only_update");
  request elements{{.what = verb::update_at, .tag = value_tag::f64_array, .function = positive},
                   name(0),
                   raw(std::vector<std::int32_t>{0, 2}),
                   false};
  join(elements.payload, raw(std::vector<double>{5, -6}));
  for (const auto& asked : {single(verb::update, 0, {5, 6, -7}, positive), elements}) {
    for (std::ptrdiff_t k = 0; k < 100; ++k) {
      node n;
      ASSERT_EQ(n.send(single(verb::push, 0)).header.result, status::ok);
      const auto before = contents_of(n);
      EXPECT_NE(n.send(asked, n.next_sequence(), k, true).header.result, status::ok);
      ASSERT_TRUE(contents_of(n) == before) << name_of(asked.h.what) << ", allocation " << k;
    }
  }
}

TEST_F(NoMemory, ManyKeys) {
  const auto adam = function(own, "paracel_adam");
  run({
      {"push_multi", {}, multi(verb::push_multi)},
      {"update_multi of none", {}, multi(verb::update_multi)},
      {"update_multi", all_keys(), multi(verb::update_multi)},
      {"update_multi by adam", all_keys(), multi(verb::update_multi, adam)},
      {"bupdate_multi", all_keys(), multi(verb::bupdate_multi)},
      {"update_default_multi", {single(verb::push, 3)}, multi(verb::update_default_multi)},
      {"update_at_multi", all_keys(), multi(verb::update_at_multi)},
      {"remove_multi", all_keys(), multi(verb::remove_multi)},
  });
}

TEST_F(NoMemory, KeySets) {
  const auto ready = [](std::vector<request> r) {
    r.push_back(prepare_set());
    return r;
  };
  run({
      {"set_push of none", ready({}), of_set(verb::set_push)},
      {"set_push", ready(all_keys()), of_set(verb::set_push)},
      {"set_update", ready(all_keys()), of_set(verb::set_update)},
      {"set_update of some", ready({single(verb::push, 3)}), of_set(verb::set_update)},
      {"set_bupdate", ready(all_keys()), of_set(verb::set_bupdate)},
      {"set_bupdate of some", ready({single(verb::push, 3)}), of_set(verb::set_bupdate)},
  });
}

TEST_F(NoMemory, StagedUpdatesAndFolds) {
  const auto adam = function(own, "paracel_adam");
  const std::vector<request> some{single(verb::push, 0), staged(0, 2),       staged(0, 1),      staged(0, 7),
                                  staged(1, 2),          staged(2, 2, adam), staged(2, 1, adam)};
  auto by_rank = staged(0, 3);
  by_rank.h.rank = 3;
  auto late = some;
  late.push_back(bsp(single(verb::pull, 0, {}), clock_of_folds));
  request fold{{.what = verb::fold, .clock = clock_of_folds}, {}, {}, false};
  request fence{{.what = verb::fence, .rank = 3, .clock = 2}, {}, {}, false};
  auto fenced = some;
  for (const auto clock : {1U, 2U, 3U}) {
    by_rank.h.clock = clock;
    fenced.push_back(by_rank);
  }
  auto of_many = multi(verb::update_multi);
  of_many.h.flags = net::flag_staged;
  of_many.h.clock = 3;
  run({
      {"staged", some, staged(0, 3)},
      {"staged, a key of its own", some, staged(5, 3)},
      {"staged late", late, staged(0, 3), true},
      {"staged multi", some, of_many},
      {"a read that folds", some, bsp(single(verb::pull, 0, {}), clock_of_folds)},
      {"an update that folds", some, bsp(single(verb::bupdate, 0), clock_of_folds)},
      {"fold", some, fold},
      {"fence", fenced, fence},
      {"a scan that folds", some, bsp(scan_request(verb::scan), clock_of_folds)},
  });
}

TEST_F(NoMemory, ScansThatWriteAndClear) {
  auto full = all_keys();
  for (std::size_t i = 0; i < 6; ++i) full.push_back(staged(i * 8, 3));
  full.push_back(open({}));
  full.push_back(rows(verb::rows_update, false));
  full.push_back(rows(verb::rows_update, true));
  full.push_back(staged(rows(verb::rows_update, false), 3));
  run({
      {"remove_if", full, scan_request(verb::remove_if)},
      {"clear", full, {{.what = verb::clear}, {}, {}, false}},
  });
}

TEST_F(NoMemory, Rows) {
  for (const bool named : {false, true}) {
    const auto asked = [&](verb v, std::size_t first = 0) { return rows(v, named, first); };
    const std::vector<request> some{open({}), asked(verb::rows_update, 20)};
    const std::vector<request> by_adam{open("paracel_adam"), asked(verb::rows_update, 20)};
    run({
        {"rows_push", some, asked(verb::rows_push)},
        {"rows_update", some, asked(verb::rows_update)},
        {"rows_update by adam", by_adam, asked(verb::rows_update)},
        {"rows_remove", some, asked(verb::rows_remove)},
        {"rows_pull", some, asked(verb::rows_pull)},
    });
  }
}

TEST_F(NoMemory, StagedRowsAndFolds) {
  for (const bool named : {false, true}) {
    const auto asked = [&](verb v, std::size_t first = 0) { return rows(v, named, first); };
    auto by_rank = staged(asked(verb::rows_update, 10), 4);
    by_rank.h.rank = 3;
    const std::vector<request> some{open({}), staged(asked(verb::rows_update, 20), 2),
                                    staged(asked(verb::rows_update), 1), by_rank};
    auto late = some;
    late.push_back(bsp(asked(verb::rows_pull), clock_of_folds));
    request fold{{.what = verb::fold, .clock = clock_of_folds}, {}, {}, false};
    request fence{{.what = verb::fence, .rank = 3, .clock = 2}, {}, {}, false};
    run({
        {"staged rows", some, staged(asked(verb::rows_update, 30), 3)},
        {"staged rows, late", late, staged(asked(verb::rows_update, 30), 3), true},
        {"a pull that folds", some, bsp(asked(verb::rows_pull), clock_of_folds)},
        {"fold of rows", some, fold},
        {"fence of rows", some, fence},
    });
  }
}

TEST(NoMemoryForFunctions, NeitherNameNorIdIsRegisteredAndALaterAttemptSucceeds) {
  if (test::sanitized) GTEST_SKIP() << "as above";
  for (const bool filter : {false, true}) {
    for (std::ptrdiff_t k = 0;; ++k) {
      plugin_registry registry({test::plugin_folder()});
      const auto load = [&](const char* update, const char* selection) {
        return filter ? registry.load_filter("filters", selection).id : registry.load_update("good_updates", update).id;
      };
      (void)load("add_lists", "at_least_half");  // the library is there, and one function
      fail_at(k, false);
      bool loaded = true;
      try {
        (void)load("multiply", "ends_with_seven");
      } catch (const std::bad_alloc&) {
        loaded = false;
      }
      fail_no_more();
      ASSERT_EQ(registry.registered(), loaded ? 2U : 1U) << k;
      const auto id = load("multiply", "ends_with_seven");
      EXPECT_TRUE(filter ? registry.find_filter(id) != nullptr : registry.find(id) != nullptr) << k;
      EXPECT_EQ(registry.registrations().size(), 2U) << k;
      if (loaded && !has_failed) break;
    }
  }
}

}  // namespace
}  // namespace paracel::srv
