// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/collective_service.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "test/support/recorded_reply.hpp"

namespace {

using namespace paracel;
using net::collective_kind;
using net::status;
using bytes = std::vector<std::byte>;

/// Appends one length-prefixed block.
void append_block(bytes& to, const bytes& block) {
  const auto at = to.size();
  to.resize(at + 8 + block.size());
  net::write_block(to.data() + at, block);
}

/// The replies by receiver; the peer's first byte is the number of the request.
class recorded_replies final : public srv::reply_sink {
 public:
  struct answer {
    status result;
    value_tag tag;
    bytes data;
    bool in_tail;
    [[nodiscard]] std::string text() const { return std::string(net::text_of(data)); }
  };
  void send(const net::peer& to, const net::outgoing& message) override {
    const test::recorded_reply recorded(message);
    const auto& reply = recorded.view;
    const auto number = std::to_integer<int>(to.id[0]);
    ASSERT_FALSE(answers.contains(number)) << "answered twice";
    const auto from = recorded.value;
    answers[number] = {reply.header.result, reply.header.tag, bytes(from.begin(), from.end()),
                       static_cast<bool>(message.tail)};
  }
  std::map<int, answer> answers;
};

class CollectiveService : public testing::Test {
 protected:
  /// Sends one contribution; the reply will be `to(number)`.
  void send(int number, const net::collective_request& r, const bytes& contribution = {}) {
    net::request_header h;
    h.sequence = static_cast<std::uint64_t>(number);
    const auto front = net::encode(r, contribution.size(), h);
    bytes frame(net::request_header_bytes);
    net::encode(h, std::span<std::byte, net::request_header_bytes>(frame.data(), net::request_header_bytes));
    frame.insert(frame.end(), front.begin(), front.end());
    shared_buffer tail;
    if (net::travels_as_tail(contribution.size())) {
      tail = shared_buffer::allocate(contribution.size());
      std::ranges::copy(contribution, tail.mutable_data());
    } else {
      frame.insert(frame.end(), contribution.begin(), contribution.end());
    }
    net::request_view view;
    ASSERT_EQ(net::decode(frame, tail.size(), view), nullptr);
    net::peer who;
    who.size = 1;
    who.id[0] = static_cast<std::byte>(number);
    service.handle(view, std::move(tail), srv::completion(book, who, h.what, h.sequence, 1, 1));
  }
  const recorded_replies::answer& to(int number) {
    static const recorded_replies::answer none{status::internal, value_tag::none, {}, false};
    const auto it = book.answers.find(number);
    EXPECT_NE(it, book.answers.end()) << number << " is unanswered";
    return it == book.answers.end() ? none : it->second;
  }
  static bytes of(std::string_view text) {
    const auto b = net::bytes_of(text);
    return {b.begin(), b.end()};
  }
  template <class T>
  static bytes raw(const std::vector<T>& v) {
    bytes b(v.size() * sizeof(T));
    if (!v.empty()) std::memcpy(b.data(), v.data(), b.size());
    return b;
  }
  template <class T>
  static std::vector<T> numbers(const bytes& b) {
    std::vector<T> v(b.size() / sizeof(T));
    if (!v.empty()) std::memcpy(v.data(), b.data(), b.size());
    return v;
  }
  static std::vector<bytes> blocks(const bytes& b) {
    std::vector<bytes> out;
    std::span<const std::byte> rest(b);
    std::span<const std::byte> block;
    while (net::take_block(rest, block)) out.emplace_back(block.begin(), block.end());
    EXPECT_TRUE(rest.empty());
    return out;
  }
  static net::collective_request part(collective_kind kind, std::uint32_t rank, std::uint32_t size,
                                      std::uint64_t operation = 0) {
    net::collective_request r;
    r.kind = kind;
    r.rank = rank;
    r.size = size;
    r.operation = operation;
    return r;
  }
  static net::collective_request reduction(std::uint32_t rank, std::uint32_t size, value_tag tag,
                                           reduce_op op = reduce_op::sum) {
    auto r = part(collective_kind::reduce, rank, size);
    r.tag = tag;
    r.op = op;
    return r;
  }

  recorded_replies book;
  srv::collective_service service{
      {.max_ranks = 64, .max_operations = 4, .max_parked_bytes = 1 << 20, .max_answer_bytes = 1 << 19}};
};

TEST_F(CollectiveService, ABarrierHoldsEverybodyUntilTheLastComes) {
  send(0, part(collective_kind::barrier, 2, 3));
  send(1, part(collective_kind::barrier, 0, 3));
  EXPECT_TRUE(book.answers.empty());
  EXPECT_EQ(service.waiting(), 2U);
  send(2, part(collective_kind::barrier, 1, 3));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(to(i).result, status::ok);
    EXPECT_TRUE(to(i).data.empty());
  }
  EXPECT_EQ(service.waiting(), 0U);
}

TEST_F(CollectiveService, AllGatherGivesEveryContributionInRankOrder) {
  send(2, part(collective_kind::allgather, 2, 3), of("two"));
  send(0, part(collective_kind::allgather, 0, 3), of("zero"));
  send(1, part(collective_kind::allgather, 1, 3), {});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(blocks(to(i).data), (std::vector<bytes>{of("zero"), {}, of("two")}));
  EXPECT_EQ(service.parked_bytes(), 0U);
}

TEST_F(CollectiveService, BroadcastGivesTheRootsBytesAndType) {
  auto r = part(collective_kind::bcast, 0, 2);
  r.root = 1;
  send(0, r);
  r.rank = 1;
  r.tag = value_tag::packed;
  send(1, r, of("from the root"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(to(i).data, of("from the root"));
    EXPECT_EQ(to(i).tag, value_tag::packed);
  }
}

TEST_F(CollectiveService, ReduceFoldsSumMaxAndMinOfEveryType) {
  const auto check = [&]<class T>(T, value_tag tag) {
    const std::vector<std::vector<T>> in{{1, -5, 7}, {4, 2, 7}, {-9, 3, 8}};
    const std::map<reduce_op, std::vector<T>> want{
        {reduce_op::sum, {-4, 0, 22}}, {reduce_op::max, {4, 3, 8}}, {reduce_op::min, {-9, -5, 7}}};
    for (const auto& [op, result] : want) {
      book.answers.clear();
      for (std::uint32_t rank : {1U, 2U, 0U}) send(static_cast<int>(rank), reduction(rank, 3, tag, op), raw(in[rank]));
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(numbers<T>(to(i).data), result);
        EXPECT_EQ(to(i).tag, tag);
      }
    }
  };
  check(std::int32_t{}, value_tag::i32_array);
  check(std::int64_t{}, value_tag::i64_array);
  check(float{}, value_tag::f32_array);
  check(double{}, value_tag::f64_array);
}

TEST_F(CollectiveService, ReductionsAreBitIdenticalWhateverTheOrderOfArrival) {
  constexpr std::uint32_t size = 5;
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-200, 200);
  std::vector<std::vector<double>> in(size, std::vector<double>(100));
  for (auto& v : in)
    for (auto& x : v) x = std::exp2(exponent(random)) * (random() % 2 == 0 ? 1 : -1);
  std::vector<std::uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0U);
  std::vector<double> want(in[0]);
  for (std::uint32_t r = 1; r < size; ++r)
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += in[r][i];
  do {
    book.answers.clear();
    for (const auto rank : order)
      send(static_cast<int>(rank), reduction(rank, size, value_tag::f64_array), raw(in[rank]));
    for (int i = 0; i < static_cast<int>(size); ++i) ASSERT_EQ(to(i).data, raw(want));
  } while (std::ranges::next_permutation(order).found);
}

TEST_F(CollectiveService, ANanAnywhereIsTheMaximumAndTheMinimum) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto op : {reduce_op::max, reduce_op::min}) {
    for (std::uint32_t where = 0; where < 3; ++where) {
      book.answers.clear();
      for (std::uint32_t rank = 0; rank < 3; ++rank)
        send(static_cast<int>(rank), reduction(rank, 3, value_tag::f64_array, op),
             raw<double>({rank == where ? nan : 1.0}));
      EXPECT_TRUE(std::isnan(numbers<double>(to(0).data)[0])) << where;
    }
  }
}

TEST_F(CollectiveService, IntegerSumsWrapAround) {
  const auto most = std::numeric_limits<std::int32_t>::max();
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    send(static_cast<int>(rank), reduction(rank, 2, value_tag::i32_array), raw<std::int32_t>({rank == 0 ? most : 1}));
  EXPECT_EQ(numbers<std::int32_t>(to(1).data)[0], std::numeric_limits<std::int32_t>::min());
}

TEST_F(CollectiveService, ReducingNothingGivesNothing) {
  for (std::uint32_t rank = 0; rank < 2; ++rank) send(static_cast<int>(rank), reduction(rank, 2, value_tag::f64_array));
  EXPECT_EQ(to(0).result, status::ok);
  EXPECT_TRUE(to(0).data.empty());
}

TEST_F(CollectiveService, AllToAllTransposesTheBlocks) {
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    bytes row;
    for (std::uint32_t column = 0; column < 3; ++column)
      append_block(row, of(std::string(rank, 'x') + std::to_string(10 * rank + column)));
    send(static_cast<int>(rank), part(collective_kind::alltoall, rank, 3), row);
  }
  EXPECT_EQ(blocks(to(0).data), (std::vector<bytes>{of("0"), of("x10"), of("xx20")}));
  EXPECT_EQ(blocks(to(2).data), (std::vector<bytes>{of("2"), of("x12"), of("xx22")}));
}

TEST_F(CollectiveService, LongContributionsAndAnswersTravelAsTails) {
  const std::vector<double> big(20'000, 1.5);  // 160 kB
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    send(static_cast<int>(rank), reduction(rank, 2, value_tag::f64_array), raw(big));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(to(i).in_tail);
    EXPECT_EQ(numbers<double>(to(i).data), std::vector<double>(20'000, 3.0));
  }
  book.answers.clear();
  auto r = part(collective_kind::bcast, 0, 2, 1);
  send(0, r, raw(big));
  r.rank = 1;
  send(1, r);
  EXPECT_TRUE(to(1).in_tail);
  EXPECT_EQ(to(1).data, raw(big));
}

TEST_F(CollectiveService, OperationsAndCommunicatorsAreKeptApart) {
  auto other = part(collective_kind::allgather, 0, 2, 0);
  other.comm = 9;
  send(0, part(collective_kind::allgather, 0, 2, 0), of("a"));
  send(1, part(collective_kind::allgather, 0, 2, 1), of("b"));
  send(2, other, of("c"));
  other.rank = 1;
  send(3, other, of("d"));
  EXPECT_EQ(book.answers.size(), 2U);
  EXPECT_EQ(blocks(to(2).data), (std::vector<bytes>{of("c"), of("d")}));
  send(4, part(collective_kind::allgather, 1, 2, 1), of("e"));
  EXPECT_EQ(blocks(to(1).data), (std::vector<bytes>{of("b"), of("e")}));
  EXPECT_EQ(service.waiting(), 1U);
}

TEST_F(CollectiveService, RanksThatDisagreeAreAllToldWhoWantsWhat) {
  send(0, part(collective_kind::barrier, 0, 3));
  send(1, reduction(1, 3, value_tag::f64_array), raw<double>({1, 2}));
  const std::string want =
      "the ranks disagree about collective 0 of communicator 0: rank 1 calls reduce (sum of 2 f64) among 3 ranks, rank "
      "0 "
      "calls barrier among 3 ranks";
  EXPECT_EQ(to(0).result, status::bad_request);
  EXPECT_EQ(to(0).text(), want);
  EXPECT_EQ(to(1).text(), want);
  send(2, part(collective_kind::barrier, 2, 3));  // it is late, and must not wait forever
  EXPECT_EQ(to(2).text(), want);
  EXPECT_EQ(service.waiting(), 0U);
  // the number can be reused
  for (int i = 3; i < 6; ++i) send(i, part(collective_kind::barrier, static_cast<std::uint32_t>(i - 3), 3));
  EXPECT_EQ(to(5).result, status::ok);
}

TEST_F(CollectiveService, AnyDifferenceIsADisagreement) {
  const auto f64 = value_tag::f64_array;
  auto other_root = part(collective_kind::bcast, 1, 2);
  other_root.root = 1;
  const std::vector<std::pair<net::collective_request, net::collective_request>> pairs{
      {part(collective_kind::barrier, 0, 2), part(collective_kind::barrier, 1, 3)},
      {part(collective_kind::barrier, 0, 2), part(collective_kind::barrier, 2, 3)},
      {reduction(0, 2, f64), reduction(1, 2, f64, reduce_op::max)},
      {reduction(0, 2, f64), reduction(1, 2, value_tag::i64_array)},
      {part(collective_kind::bcast, 0, 2), other_root}};
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    SCOPED_TRACE(i);
    book.answers.clear();
    service.fail_all(status::job_ended, "");
    send(0, pairs[i].first, raw<double>({1}));
    send(1, pairs[i].second, raw<double>({1}));
    EXPECT_EQ(to(0).result, status::bad_request);
    EXPECT_EQ(to(1).result, status::bad_request);
  }
  book.answers.clear();
  service.fail_all(status::job_ended, "");
  send(0, reduction(0, 2, f64), raw<double>({1}));
  send(1, reduction(1, 2, f64), raw<double>({1, 2}));
  EXPECT_NE(to(0).text().find("sum of 2 f64"), std::string::npos);
}

TEST_F(CollectiveService, AContributionThatCannotBeFoldedFailsTheOperationForAll) {
  send(0, reduction(0, 2, value_tag::f64_array), raw<double>({1}));
  send(1, reduction(1, 2, value_tag::f64_array), of("seven b"));
  EXPECT_EQ(to(0).text(), "rank 1 in collective 0 of communicator 0: the length is not a multiple of the element size");
  EXPECT_EQ(to(1).text(), to(0).text());
  auto r = part(collective_kind::alltoall, 0, 2, 1);
  bytes one;
  append_block(one, of("only one block"));
  send(2, r, one);
  EXPECT_EQ(to(2).result, status::bad_request);
  send(3, reduction(0, 2, value_tag::packed), of("x"));
  EXPECT_EQ(to(3).text(), "rank 0 in collective 0 of communicator 0: only arrays of numbers can be reduced");
}

TEST_F(CollectiveService, ARankThatComesTwiceIsRefusedAndTheOthersGoOn) {
  send(0, part(collective_kind::allgather, 0, 2), of("first"));
  send(1, part(collective_kind::allgather, 0, 2), of("again"));
  EXPECT_EQ(to(1).text(), "rank 0 took part in collective 0 of communicator 0 twice");
  send(2, part(collective_kind::allgather, 1, 2), of("b"));
  EXPECT_EQ(blocks(to(0).data), (std::vector<bytes>{of("first"), of("b")}));
}

TEST_F(CollectiveService, ImpossibleRanksSizesAndRootsAreRefused) {
  send(0, part(collective_kind::barrier, 2, 2));
  send(1, part(collective_kind::barrier, 0, 0));
  send(2, part(collective_kind::barrier, 0, 65));
  auto r = part(collective_kind::bcast, 0, 2);
  r.root = 2;
  send(3, r);
  r = part(static_cast<collective_kind>(5), 0, 2);
  send(4, r);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(to(i).result, status::bad_request) << i;
  EXPECT_EQ(service.waiting(), 0U);
}

TEST_F(CollectiveService, FailAllAnswersEverybodyWhoWaits) {
  send(0, part(collective_kind::barrier, 0, 3));
  send(1, part(collective_kind::allgather, 1, 3, 1), of("x"));
  service.fail_all(status::job_ended, "why");
  EXPECT_EQ(to(0).result, status::job_ended);
  EXPECT_EQ(to(1).text(), "why");
  EXPECT_EQ(service.waiting(), 0U);
  EXPECT_EQ(service.parked_bytes(), 0U);
}

TEST_F(CollectiveService, ARankThatLeftFailsWhoWaitsForItNowAndLater) {
  send(0, part(collective_kind::barrier, 0, 3));
  service.depart(0, 2, "worker 2 has left the job");
  EXPECT_EQ(to(0).text(), "collective 0 of communicator 0 waits for rank 2, but worker 2 has left the job");
  send(1, part(collective_kind::barrier, 1, 3));
  EXPECT_EQ(to(1).result, status::bad_request);
  send(2, part(collective_kind::barrier, 0, 3, 1));
  EXPECT_EQ(to(2).text(), "rank 0 calls barrier among 3 ranks, but worker 2 has left the job");
  send(3, part(collective_kind::barrier, 0, 2, 2));  // a collective without the ejected worker
  send(4, part(collective_kind::barrier, 1, 2, 2));
  EXPECT_EQ(to(4).result, status::ok);
}

TEST_F(CollectiveService, TheOthersGoOnWithoutARankThatWasEjected) {
  // It had not arrived: the waiting workers are answered immediately.
  send(0, reduction(1, 3, value_tag::f64_array), raw(std::vector<double>{1, 2}));
  send(1, reduction(2, 3, value_tag::f64_array), raw(std::vector<double>{10, 20}));
  EXPECT_FALSE(book.answers.contains(0));
  service.eject(0, 0, "worker 0 was ejected");
  EXPECT_EQ(numbers<double>(to(0).data), (std::vector<double>{11, 22}));
  EXPECT_EQ(numbers<double>(to(1).data), (std::vector<double>{11, 22}));
  EXPECT_EQ(service.waiting(), 0U);
  EXPECT_EQ(service.parked_bytes(), 0U);
  // Later collectives do not wait for it, and its own contribution is rejected.
  send(2, part(collective_kind::allgather, 1, 3, 1), of("b"));
  send(3, part(collective_kind::allgather, 0, 3, 1), of("a"));
  EXPECT_EQ(to(3).text(), "worker 0 was ejected");
  send(4, part(collective_kind::allgather, 2, 3, 1), of("c"));
  EXPECT_EQ(blocks(to(2).data), (std::vector<bytes>{{}, of("b"), of("c")}));
  const auto row = [](std::string_view a, std::string_view b, std::string_view c) {
    bytes out;
    for (const auto text : {a, b, c}) {
      const std::uint64_t size = text.size();
      const auto front = std::as_bytes(std::span(&size, 1));
      out.insert(out.end(), front.begin(), front.end());
      const auto block = net::bytes_of(text);
      out.insert(out.end(), block.begin(), block.end());
    }
    return out;
  };
  send(5, part(collective_kind::alltoall, 1, 3, 2), row("10", "11", "12"));
  send(6, part(collective_kind::alltoall, 2, 3, 2), row("20", "21", "22"));
  EXPECT_EQ(blocks(to(5).data), (std::vector<bytes>{{}, of("11"), of("21")}));
  EXPECT_EQ(blocks(to(6).data), (std::vector<bytes>{{}, of("12"), of("22")}));
  send(7, part(collective_kind::barrier, 2, 3, 3));
  send(8, part(collective_kind::barrier, 1, 3, 3));
  EXPECT_EQ(to(7).result, status::ok);
  // Data that only it has is lost.
  send(9, part(collective_kind::bcast, 1, 3, 4));
  send(10, part(collective_kind::bcast, 2, 3, 4));
  EXPECT_EQ(to(9).text(), "collective 4 of communicator 0 is a bcast from rank 0, but worker 0 was ejected");
  EXPECT_EQ(service.waiting(), 0U);
}

TEST_F(CollectiveService, WhatARankContributedBeforeItWasEjectedCounts) {
  send(0, reduction(2, 3, value_tag::i64_array), raw(std::vector<std::int64_t>{100}));
  send(1, reduction(0, 3, value_tag::i64_array), raw(std::vector<std::int64_t>{1}));
  service.eject(0, 2, "worker 2 was ejected");
  EXPECT_FALSE(book.answers.contains(1));
  send(3, reduction(1, 3, value_tag::i64_array), raw(std::vector<std::int64_t>{10}));
  EXPECT_EQ(numbers<std::int64_t>(to(1).data), std::vector<std::int64_t>{111});
  service.eject(0, 1, "worker 1 was ejected");  // one is left
  send(4, part(collective_kind::barrier, 0, 3, 1));
  EXPECT_EQ(to(4).result, status::ok);
}

TEST_F(CollectiveService, AProcessInThePlaceOfARankIsAnsweredAgainAndThenTakesPart) {
  service.keep_answers({.ranks = 2, .folder = testing::TempDir()});
  send(0, part(collective_kind::allgather, 0, 2, 0), of("a"));
  send(1, part(collective_kind::allgather, 1, 2, 0), of("b"));
  send(2, part(collective_kind::barrier, 0, 2, 1));
  send(3, part(collective_kind::barrier, 1, 2, 1));
  const bytes large(100'000, std::byte{3});
  send(4, part(collective_kind::bcast, 1, 2, 2));
  send(5, part(collective_kind::bcast, 0, 2, 2), large);
  send(6, part(collective_kind::barrier, 1, 2, 3));  // rank 1 waits, and dies
  EXPECT_EQ(service.called(1), 4U);
  service.replace(1);
  EXPECT_EQ(service.waiting(), 0U);
  send(7, part(collective_kind::allgather, 1, 2, 0), of("b"));
  EXPECT_EQ(blocks(to(7).data), (std::vector<bytes>{of("a"), of("b")}));
  send(8, part(collective_kind::barrier, 1, 2, 1));
  EXPECT_EQ(to(8).result, status::ok);
  send(9, part(collective_kind::bcast, 1, 2, 2));
  EXPECT_EQ(to(9).data, large);
  send(10, part(collective_kind::barrier, 1, 2, 3));  // the replacement waits like its predecessor did
  EXPECT_FALSE(book.answers.contains(10));
  send(11, part(collective_kind::barrier, 0, 2, 3));
  EXPECT_EQ(to(10).result, status::ok);
  EXPECT_EQ(to(11).result, status::ok);
  send(12, part(collective_kind::barrier, 1, 2, 0));
  EXPECT_EQ(to(12).result, status::bad_request);
  EXPECT_EQ(to(12).text(),
            "collective 0 of communicator 0: rank 1 calls barrier among 2 ranks, but the process that it "
            "replaces called allgather among 2 ranks");
  service.kept()->needs(0, {}, 4);
  service.kept()->needs(1, {}, 4);
  EXPECT_EQ(service.kept()->size(), 0U);
}

TEST_F(CollectiveService, WhatARankThatDiedHadContributedCountsUntilAnotherProcessIsThere) {
  service.keep_answers({.ranks = 2, .folder = testing::TempDir()});
  send(0, reduction(1, 2, value_tag::i64_array), raw(std::vector<std::int64_t>{10}));
  send(1, reduction(0, 2, value_tag::i64_array), raw(std::vector<std::int64_t>{1}));
  EXPECT_EQ(numbers<std::int64_t>(to(1).data), std::vector<std::int64_t>{11});
  service.replace(1);
  send(2, reduction(1, 2, value_tag::i64_array), raw(std::vector<std::int64_t>{10}));
  EXPECT_EQ(numbers<std::int64_t>(to(2).data), std::vector<std::int64_t>{11});
  const std::vector<std::int64_t> longer{1, 2};
  send(3, reduction(1, 2, value_tag::i64_array), raw(longer));
  EXPECT_EQ(to(3).result, status::bad_request);
}

TEST_F(CollectiveService, MessagesAreKeptUntilTheReceiverHasCommittedWhatItTook) {
  const auto message = [](collective_kind kind, std::uint32_t rank, std::uint32_t other, std::uint32_t clock,
                          std::uint64_t count) {
    auto r = part(kind, rank, 3, count);
    r.root = other;
    r.clock = clock;
    return r;
  };
  const auto sends = [&](std::uint32_t clock, std::uint64_t count) {
    return message(collective_kind::send, 0, 1, clock, count);
  };
  const auto receives = [&](std::uint32_t clock, std::uint64_t count) {
    return message(collective_kind::receive, 1, 0, clock, count);
  };
  send(1, sends(0, 0), of("a"));
  EXPECT_EQ(to(1).result, status::bad_request) << "where nobody is replaced";
  service.keep_answers({.ranks = 3, .folder = {}});

  send(2, receives(4, 0));
  EXPECT_FALSE(book.answers.contains(2)) << "it waits";
  send(3, sends(7, 0), of("a"));
  EXPECT_EQ(to(3).result, status::ok);
  EXPECT_EQ(to(2).text(), "a");
  const bytes large(100'000, std::byte{7});
  send(4, sends(7, 1), large);
  send(5, sends(7, 1), large);  // of its replacement
  send(6, sends(7, 0), of("a"));
  send(7, sends(8, 0), of("b"));
  EXPECT_EQ(service.message_bytes(), 100'002U);

  send(8, receives(4, 1));
  EXPECT_EQ(to(8).data, large);
  EXPECT_TRUE(to(8).in_tail);
  service.replace(1);
  send(9, receives(4, 0));
  EXPECT_EQ(to(9).text(), "a") << "again";
  send(10, receives(4, 1));
  EXPECT_EQ(to(10).data, large);
  send(11, receives(5, 0));
  EXPECT_EQ(to(11).text(), "b");
  EXPECT_EQ(service.message_bytes(), 1U) << "of the iteration that is not committed";

  // A rank that waits in a collective sends nothing more.
  send(12, receives(5, 1));
  send(13, part(collective_kind::barrier, 2, 3));
  EXPECT_FALSE(book.answers.contains(12));
  auto call = part(collective_kind::allgather, 0, 3, 1);
  send(14, call, of("call"));
  EXPECT_EQ(to(12).text(), "call");
  send(15, receives(5, 1));
  EXPECT_EQ(to(15).text(), "call");
  service.depart(0, 2, "rank 2 has left");
  send(16, message(collective_kind::receive, 1, 2, 5, 0));
  EXPECT_EQ(to(16).text(), "rank 1 waits for a message, but rank 2 has left");
}

TEST_F(CollectiveService, AWrongProgramCannotFillTheMemory) {
  const bytes half(std::size_t{600} << 10);
  send(0, part(collective_kind::allgather, 0, 3), half);
  send(1, part(collective_kind::allgather, 1, 3), half);
  EXPECT_EQ(to(0).result, status::bad_request);
  EXPECT_EQ(service.parked_bytes(), 0U);
  const bytes third(std::size_t{300} << 10);
  send(2, part(collective_kind::allgather, 0, 2, 1), third);
  send(3, part(collective_kind::allgather, 1, 2, 1), third);
  EXPECT_NE(to(2).text().find("the result is larger than 524288 bytes"), std::string::npos);
  for (int i = 4; i < 12; ++i) send(i, part(collective_kind::barrier, 0, 2, static_cast<std::uint64_t>(i)));
  EXPECT_EQ(service.waiting(), 4U) << "more operations than allowed wait";
  EXPECT_EQ(to(11).result, status::too_large);
}

}  // namespace
