// SPDX-License-Identifier: BSD-3-Clause
//
// Histories: clients with several requests in flight on a few keys; their observations must be linearizable, key by
// key.
//
// PARACEL_DIFFERENTIAL_SECONDS and PARACEL_SEED as in differential_test.cpp.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <paracel/codec.hpp>

#include "client/server_group.hpp"
#include "net/protocol.hpp"
#include "test/support/cluster.hpp"
#include "test/support/linearizability.hpp"
#include "test/support/random_values.hpp"
#include "test/support/server_killer.hpp"

namespace paracel::test::differential {
namespace {

using steady = std::chrono::steady_clock;

/// An operation on an integer key as observed by a client.
struct seen {
  net::verb what = net::verb::none;
  std::int64_t argument = 0;
  std::int64_t initial = 0;    ///< of update_default
  std::uint64_t expected = 0;  ///< of cas
  net::status result = net::status::ok;
  std::uint64_t version = 0;  ///< of the reply
  std::int64_t answer = 0;
};

struct integer {
  bool there = false;
  std::int64_t n = 0;
  std::uint64_t version = 0;  ///< 0 if the key does not exist
  std::uint64_t last = 0;     ///< the greatest version so far
  auto operator<=>(const integer&) const = default;
};

bool explains(integer& i, const seen& s) {
  const auto set = [&](std::int64_t n) {
    if (s.result != net::status::ok || s.version <= i.last) return false;
    i = {true, n, s.version, s.version};
    return true;
  };
  switch (s.what) {
    case net::verb::pull:
      if (s.result == net::status::not_found) return !i.there;
      return s.result == net::status::ok && i.there && s.answer == i.n && s.version == i.version;
    case net::verb::contains:
      if (s.result == net::status::not_found) return !i.there;
      return s.result == net::status::ok && i.there && s.version == i.version;
    case net::verb::push:
      return set(s.argument);
    case net::verb::update:
      return set(sum(i.there ? i.n : 0, s.argument));
    case net::verb::bupdate:
      return set(sum(i.there ? i.n : 0, s.argument)) && s.answer == i.n;
    case net::verb::update_default:
      return set(i.there ? sum(i.n, s.argument) : s.initial);
    case net::verb::cas:
      if (s.result == net::status::conflict) return s.version == i.version && s.version != s.expected;
      return i.version == s.expected && set(s.argument);
    case net::verb::remove:
      if (s.result == net::status::not_found) return !i.there;
      if (s.result != net::status::ok || !i.there) return false;
      i = {false, 0, 0, i.last};
      return true;
    default:
      return false;
  }
}

using history = std::vector<timed<seen>>;

/// A client that sends random requests on `keys`, up to `in_flight` of them at once. A value is a list of `width` equal
/// elements, so that a mixture of old and new is detected.
class prober {
 public:
  prober(std::unique_ptr<server_group> client, std::uint64_t seed, std::vector<std::string> keys, std::size_t width)
      : client_(std::move(client)), random_(seed), keys_(std::move(keys)), width_(width), histories_(keys_.size()) {}

  void run(std::size_t requests, std::size_t in_flight) {
    for (auto& h : histories_) h.reserve(requests);  // handlers refer to their elements
    std::vector<std::uint64_t> version(keys_.size(), 0);
    for (std::size_t i = 0; i < requests; ++i) {
      const auto k = random_.number(keys_.size());
      auto& h = histories_[k];
      auto& t = h.emplace_back();
      auto& s = t.operation;
      constexpr std::array verbs{net::verb::pull,     net::verb::pull,           net::verb::push, net::verb::update,
                                 net::verb::bupdate,  net::verb::update_default, net::verb::cas,  net::verb::cas,
                                 net::verb::contains, net::verb::remove};
      s.what = verbs[random_.number(verbs.size())];
      random_.fill(s.argument);
      random_.fill(s.initial);
      s.expected = random_.one_in(8) ? 0 : version[k];
      const std::vector<std::int64_t> argument(width_, s.argument), initial(width_, s.initial);
      const encoded<std::vector<std::int64_t>> a(argument), first(initial);
      kvclt::call c{.what = s.what};
      value_view payload;
      std::vector<std::byte> both;
      if (s.what == net::verb::update_default) {
        net::append_item(both, {}, first.view());
        net::append_item(both, {}, a.view());
        c.prefix = both;
      } else if (s.what != net::verb::pull && s.what != net::verb::contains && s.what != net::verb::remove) {
        payload = a.view();
        if (s.what == net::verb::cas) c.prefix = std::as_bytes(std::span(&s.expected, 1));
      }
      t.sent = now();
      client_->request(c, keys_[k], payload, [this, &t, &known = version[k]](const kv_result& r) {
        t.answered = now();
        auto& o = t.operation;
        o.result = r.header.result;
        o.version = r.header.value_version;
        if (o.version != 0) known = o.version;
        if (!r.ok() || r.header.tag == value_tag::none) return;
        const auto got = decode<std::vector<std::int64_t>>(r.value());
        if (got.size() != width_) return complain("a value of another width");
        o.answer = got.front();
        for (const auto n : got)
          if (n != o.answer) return complain("a value that is half old and half new");
      });
      while (client_->in_flight() >= in_flight) (void)client_->wait_all();
    }
    client_->wait_all();
  }

  [[nodiscard]] const history& of(std::size_t key) const { return histories_[key]; }
  [[nodiscard]] const std::string& complaint() const { return complaint_; }

 private:
  static std::int64_t now() { return steady::now().time_since_epoch().count(); }
  void complain(const char* what) { complaint_ = what; }

  std::unique_ptr<server_group> client_;
  generator random_;
  std::vector<std::string> keys_;
  std::size_t width_;
  std::vector<history> histories_;
  std::string complaint_;
};

/// `one_by_one`: each client waits for its replies, which are small. Otherwise, of two requests in flight when a server
/// is lost, a read may be executed after a later update; and large replies are not remembered, so a retried update
/// returns the current value.
void check_histories(cluster& c, bool one_by_one) {
  constexpr std::size_t clients = 4, keys = 5;
  const auto seed = first_seed();
  const auto end = steady::now() + time_to_run();
  std::size_t checked = 0;
  for (unsigned round = 0; round == 0 || steady::now() < end; ++round) {
    SCOPED_TRACE("PARACEL_SEED=" + std::to_string(seed) + ", round " + std::to_string(round));
    generator random(seed + round);
    const std::size_t width = random.one_in(4) && !one_by_one ? 9000 : 1;  // 72 kB: in a separate frame
    const auto in_flight = one_by_one ? 1 : 1 + random.number(6);
    std::vector<std::string> names;
    for (std::size_t k = 0; k < keys; ++k) names.push_back("r" + std::to_string(round) + "_" + std::to_string(k));
    std::vector<std::unique_ptr<prober>> probers;
    for (std::size_t p = 0; p < clients; ++p)
      probers.push_back(std::make_unique<prober>(c.client(), (seed + round) * clients + p, names, width));
    std::vector<std::thread> threads;
    for (auto& p : probers) threads.emplace_back([&] { p->run(width == 1 ? 300 : 60, in_flight); });
    for (auto& t : threads) t.join();
    for (const auto& p : probers) ASSERT_EQ(p->complaint(), "");
    for (std::size_t k = 0; k < keys; ++k) {
      std::vector<history> histories;
      for (const auto& p : probers) histories.push_back(p->of(k));
      ASSERT_TRUE(is_linearizable(histories, integer{}, explains)) << names[k];
      for (const auto& h : histories) checked += h.size();
    }
    const auto cleaner = c.client();
    cleaner->many().multi({.what = net::verb::remove_multi}, names, {}, [](std::size_t, const net::reply_item&) {});
  }
  EXPECT_GT(checked, 100U);
}

TEST(Differential, HistoriesOfSharedKeysAreLinearizable) {
  cluster c({.workers = 1, .servers = 2, .threads = 2});
  check_histories(c, false);
}

TEST(Differential, HistoriesAreLinearizableWhileServersAreLost) {
  cluster c({.workers = 1, .servers = 3, .threads = 2, .replicas = 2});
  c.run([&](const Comm&) {
    server_killer disasters(c, 3);
    check_histories(c, true);
    EXPECT_GT(disasters.stop(), 0);
  });
}

}  // namespace
}  // namespace paracel::test::differential
