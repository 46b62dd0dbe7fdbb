// SPDX-License-Identifier: BSD-3-Clause
//
// What the threads of a job record of one request: its client, the server's thread, and the replicas.
#include "core/trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "test/support/cluster.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;
using trace::kind;
using trace::record;

/// All that was recorded, by thread.
class collected_trace {
 public:
  explicit collected_trace(std::uint32_t every) {
    trace::start(
        [this](const std::string& role, std::uint32_t index, const std::string& thread) {
          return std::make_unique<part>(*this, role + std::to_string(index) + " " + thread);
        },
        every);
  }
  ~collected_trace() { trace::start({}, 1); }

  std::vector<record> of(kind k, const std::string& threads = "") {
    const std::lock_guard lock(mutex_);
    std::vector<record> found;
    for (const auto& [thread, all] : records_) {
      if (!thread.starts_with(threads)) continue;
      std::ranges::copy_if(all, std::back_inserter(found), [k](const record& r) { return r.kind == k; });
    }
    return found;
  }

 private:
  class part final : public trace::log {
   public:
    part(collected_trace& of, std::string thread) : of_(of), thread_(std::move(thread)) {}
    void write(std::span<const record> records) noexcept override {
      const std::lock_guard lock(of_.mutex_);
      auto& all = of_.records_[thread_];
      all.insert(all.end(), records.begin(), records.end());
    }

   private:
    collected_trace& of_;
    const std::string thread_;
  };

  std::mutex mutex_;
  std::map<std::string, std::vector<record>> records_;
};

const record* with(const std::vector<record>& all, std::uint64_t client, std::uint64_t sequence) {
  const auto at =
      std::ranges::find_if(all, [&](const record& r) { return r.client == client && r.sequence == sequence; });
  return at == all.end() ? nullptr : &*at;
}

void push_one_by_one(server_group& client, int n) {
  const double number = 1;
  for (int i = 0; i < n; ++i) {
    client.wait(client.request({.what = net::verb::push}, "k" + std::to_string(i),
                               {value_tag::f64_array, std::as_bytes(std::span(&number, 1))},
                               [](const kv_result& r) { ASSERT_TRUE(r.ok()) << r.text(); }));
  }
}

TEST(Traces, ARequestIsRecordedByClientShardAndReplicas) {
  constexpr int requests = 50;
  collected_trace all(1);
  std::uint64_t incarnation = 0;
  {
    test::cluster c({.servers = 3, .threads = 2, .heartbeat_limit = 60s, .replicas = 3});
    const trace::thread_scope me("worker", 0, "test");
    const auto client = c.client({.timeout = 0ms});
    incarnation = client->incarnation();
    push_one_by_one(*client, requests);
  }
  const auto sent = all.of(kind::request);
  const auto served = all.of(kind::serve, "server");
  ASSERT_EQ(sent.size(), std::size_t{requests});
  for (const auto& r : sent) {
    EXPECT_EQ(r.client, incarnation);
    EXPECT_EQ(r.what, static_cast<std::uint8_t>(net::verb::push));
    EXPECT_EQ(r.result, 0);
    const auto* const s = with(served, r.client, r.sequence);
    ASSERT_NE(s, nullptr) << r.sequence;
    EXPECT_GE(s->begin, r.begin);
    EXPECT_LE(s->end, r.end) << "replies wait for the replicas, so the shard is done before";
    EXPECT_EQ(s->bytes, r.bytes);
  }
  // Each message to a replica was applied there within it.
  const auto messages = all.of(kind::replicate);
  const auto applied = all.of(kind::apply);
  EXPECT_GE(applied.size(), 2U * requests);
  for (const auto& a : applied) {
    const auto m = std::ranges::find_if(messages, [&](const record& r) {
      return r.client == a.client && r.more == a.more && r.sequence == a.sequence;
    });
    ASSERT_NE(m, messages.end());
    EXPECT_GE(a.begin, m->begin);
    EXPECT_LE(a.begin, m->end);
  }
  const auto held = all.of(kind::hold);
  EXPECT_EQ(held.size(), std::size_t{requests});
  for (const auto& h : held) EXPECT_NE(with(messages, h.client, h.sequence), nullptr);
}

TEST(Traces, OfRequestsThatDoNotWaitSomeAreRecorded) {
  constexpr int requests = 640;
  constexpr std::uint32_t every = 16;
  collected_trace all(every);
  {
    test::cluster c({.servers = 1});
    const trace::thread_scope me("worker", 0, "test");
    const auto client = c.client({.timeout = 0ms});
    const double number = 1;
    for (int i = 0; i < requests; ++i)  // nothing is received in between
      client->request({.what = net::verb::push}, "k", {value_tag::f64_array, std::as_bytes(std::span(&number, 1))},
                      [](const kv_result&) {});
    client->wait_all();
  }
  const auto sent = all.of(kind::request);
  EXPECT_EQ(sent.size(), 4U + requests / every);
  EXPECT_EQ(all.of(kind::serve).size(), sent.size()) << "the server records the same ones";
}

TEST(Traces, AClientOfAThreadThatIsNotTracedAsksForNoRecord) {
  collected_trace all(1);
  {
    test::cluster c({.servers = 1});
    const auto client = c.client({.timeout = 0ms});
    push_one_by_one(*client, 3);
  }
  EXPECT_TRUE(all.of(kind::request).empty());
  EXPECT_TRUE(all.of(kind::serve).empty());
}

}  // namespace
}  // namespace paracel
