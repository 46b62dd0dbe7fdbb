// SPDX-License-Identifier: BSD-3-Clause
//
// Requests of a stream that arrive twice, at a server whose partitions have no replicas: each counts once, and gets the
// same answer again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/request/dedup_window.hpp"
#include "test/support/shard_test.hpp"

namespace paracel {
namespace {

using net::status;
using net::verb;

class ShardResend : public test::shard_test {
 protected:
  static with stream(with w = {}) {
    w.flags |= net::flag_stream;
    return w;
  }
  /// Makes the request twice under one number. Returns: both answers.
  std::pair<answer, answer> twice(const std::function<answer()>& request) {
    auto first = request();
    --sequence_;
    return {std::move(first), request()};
  }
  void expect_same(const std::pair<answer, answer>& both) {
    EXPECT_EQ(both.first.header.result, both.second.header.result) << both.second.text();
    EXPECT_EQ(both.first.header.value_version, both.second.header.value_version);
    EXPECT_EQ(both.first.header.count, both.second.header.count);
    EXPECT_EQ(both.first.header.tag, both.second.header.tag);
    EXPECT_EQ(std::vector(both.first.bytes().begin(), both.first.bytes().end()),
              std::vector(both.second.bytes().begin(), both.second.bytes().end()));
  }
  const double one_ = 1;
};

TEST_F(ShardResend, OfOneKeyCountsOnceAndIsAnsweredTheSame) {
  push("k", 5);
  expect_same(twice([&] { return call(verb::update, "k", view(one_), stream()); }));
  EXPECT_EQ(pull("k"), 6);
  const auto added = twice([&] { return call(verb::bupdate, "k", view(one_), stream()); });
  expect_same(added);
  EXPECT_EQ(added.second.doubles(), std::vector<double>{7});
  EXPECT_EQ(pull("k"), 7);
  const auto version = call(verb::pull, "k").header.value_version;
  const auto payload = expecting(version, view(one_));
  const auto swapped = twice([&] { return call(verb::cas, "k", {value_tag::f64, payload}, stream()); });
  EXPECT_EQ(swapped.first.header.result, status::ok);
  expect_same(swapped);
  const auto refused = twice([&] { return call(verb::cas, "k", {value_tag::f64, payload}, stream()); });
  EXPECT_EQ(refused.first.header.result, status::conflict);
  EXPECT_EQ(refused.second.header.result, status::conflict);
  expect_same(twice([&] { return call(verb::remove, "k", {}, stream()); }));
  const auto gone = twice([&] { return call(verb::remove, "k", {}, stream()); });
  EXPECT_EQ(gone.second.header.result, status::not_found);
}

TEST_F(ShardResend, WhatFailedFailsAgainAndWhatIsNoStreamIsDoneAgain) {
  push("k", 5);
  const std::vector<double> three{1, 2, 3};
  const auto failed = twice([&] { return call(verb::update, "k", view(three), stream()); });
  EXPECT_EQ(failed.first.header.result, status::type_mismatch);
  EXPECT_EQ(failed.second.header.result, status::type_mismatch);
  EXPECT_EQ(failed.first.text(), failed.second.text());
  twice([&] { return call(verb::update, "k", view(one_)); });
  EXPECT_EQ(pull("k"), 7);
  EXPECT_EQ(server_->at(0).applied().size(), 1U);
}

TEST_F(ShardResend, OfManyKeysCountsOnceInAll) {
  std::vector<std::pair<std::string, value_view>> items;
  for (int i = 0; i < 100; ++i) items.emplace_back("k" + std::to_string(i), view(one_));
  for (const auto& [key, value] : items) push(key, 5);
  const auto updated = twice([&] { return multi(verb::update_multi, items, stream()); });
  EXPECT_EQ(updated.second.items().size(), items.size());
  for (const auto& i : updated.second.items()) EXPECT_EQ(i.result, status::ok);
  EXPECT_EQ(server_->at(0).applied().size(), 1U) << "it is one part";
  expect_same(twice([&] { return multi(verb::bupdate_multi, items, stream()); }));
  for (const auto& [key, value] : items) EXPECT_EQ(pull(key), 7) << key;

  const std::vector<double> three{1, 2, 3};
  items[50].second = view(three);
  const auto mixed = twice([&] { return multi(verb::update_multi, items, stream()); });
  const auto first = mixed.first.items(), second = mixed.second.items();
  ASSERT_EQ(second.size(), items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(second[i].result, i == 50 ? status::type_mismatch : status::ok) << i;
    EXPECT_EQ(first[i].value, second[i].value) << i;
    EXPECT_EQ(pull(items[i].first), i == 50 ? 7 : 8) << i;
  }
}

TEST_F(ShardResend, AnAnswerTooLargeToBeKeptIsTheCurrentValue) {
  const std::vector<double> big(1000, 1);
  ASSERT_EQ(call(verb::push, "big", view(big)).header.result, status::ok);
  const auto a = twice([&] { return call(verb::bupdate, "big", view(big), stream()); });
  EXPECT_EQ(a.second.doubles(), std::vector<double>(1000, 2));
  EXPECT_EQ(call(verb::pull, "big").doubles(), std::vector<double>(1000, 2));
}

TEST_F(ShardResend, ALargeValueThatIsAnsweredBeforeItIsUpdatedCountsOnce) {
  const std::vector<double> big(20'000, 1);
  const auto tail = [&] { return shared_buffer::copy_of(std::as_bytes(std::span(big))); };
  ASSERT_EQ(call_tail(verb::push, "big", value_tag::f64_array, tail()).header.result, status::ok);
  expect_same(twice([&] { return call_tail(verb::update, "big", value_tag::f64_array, tail(), stream()); }));
  EXPECT_EQ(call(verb::pull, "big").doubles(), std::vector<double>(20'000, 2));
}

TEST_F(ShardResend, ClearCountsOnce) {
  for (int i = 0; i < 7; ++i) push("k" + std::to_string(i), 1);
  net::request_header h;
  h.what = verb::clear;
  const auto first = send(h, {}, stream());
  EXPECT_EQ(first.header.count, 7U);
  push("later", 1);
  sequence_ -= 2;
  const auto again = send(h, {}, stream());
  ++sequence_;
  EXPECT_EQ(again.header.count, 7U);
  EXPECT_EQ(pull("later"), 1);
}

TEST_F(ShardResend, OutsideTheWindowItIsAnErrorAndNeverDoneTwice) {
  constexpr auto most = srv::dedup_window::most_requests;
  for (std::size_t i = 0; i < most + 1; ++i) (void)call(verb::update, "k", view(one_), stream());
  sequence_ = 0;
  const auto late = call(verb::update, "k", view(one_), stream());
  EXPECT_EQ(late.header.result, status::expired);
  EXPECT_THAT(late.text(), testing::HasSubstr("not known whether it was applied"));
  std::vector<std::pair<std::string, value_view>> items{{"k", view(one_)}, {"l", view(one_)}};
  sequence_ = 0;
  for (const auto& i : multi(verb::update_multi, items, stream()).items()) EXPECT_EQ(i.result, status::expired);
  sequence_ = 1;
  EXPECT_EQ(call(verb::update, "k", view(one_), stream()).header.result, status::ok) << "it is still known";
  sequence_ = most + 10;
  EXPECT_EQ(pull("k"), static_cast<double>(most + 1));
}

TEST_F(ShardResend, AClearOutsideTheWindowIsAnErrorAlsoWithReplicas) {
  net::request_header h;
  h.what = verb::clear;
  for (const bool replicas : {false, true}) {
    reset({});
    if (replicas) server_->at(0).keep_replicas();
    sequence_ = 0;
    EXPECT_EQ(send(h, {}, stream()).header.result, status::ok);
    constexpr auto most = srv::dedup_window::most_requests;
    for (std::size_t i = 0; i < most + 1; ++i) (void)call(verb::update, "k", view(one_), stream());
    sequence_ = 0;
    EXPECT_EQ(send(h, {}, stream()).header.result, status::expired) << replicas;
    EXPECT_EQ(pull("k"), static_cast<double>(most + 1));
  }
}

TEST_F(ShardResend, AFullWindowRefusesNewClientsAndDisplacesNobody) {
  auto& window = server_->at(0).applied();
  for (std::uint64_t c = 1000; window.admits(c); ++c) window.add(c, 1, 1, 0, {});
  const auto refused = call(verb::update, "k", view(one_), stream());
  EXPECT_EQ(refused.header.result, status::out_of_memory);
  EXPECT_THAT(refused.text(), testing::HasSubstr("too many clients are remembered"));
  client_ = 1000;
  EXPECT_EQ(call(verb::update, "k", view(one_), stream()).header.result, status::ok);
  EXPECT_EQ(pull("k"), 1);
}

}  // namespace
}  // namespace paracel
