// SPDX-License-Identifier: BSD-3-Clause
#include "core/message_matcher.hpp"

#include <gtest/gtest.h>

#include <string>

namespace paracel {
namespace {

received_message from(int rank, int tag, char content, std::uint64_t communicator = 0) {
  return {{rank, tag, communicator}, {static_cast<std::byte>(content)}};
}

char taken(message_matcher& m, message_matcher::ticket t) {
  const auto message = m.take(t);
  return message ? static_cast<char>(message->bytes.at(0)) : '-';
}

TEST(MessageMatcher, AReceiveGetsTheOldestMessageThatFits) {
  message_matcher m;
  m.arrive(from(1, 5, 'a'));
  m.arrive(from(2, 5, 'b'));
  m.arrive(from(1, 5, 'c'));
  EXPECT_EQ(taken(m, m.post({2, 5, 0})), 'b');
  EXPECT_EQ(taken(m, m.post({1, 5, 0})), 'a');
  EXPECT_EQ(taken(m, m.post({1, 6, 0})), '-');
  EXPECT_EQ(taken(m, m.post({any_source, any_tag, 0})), 'c');
  EXPECT_EQ(m.waiting(), 0U);
}

TEST(MessageMatcher, AMessageGoesToTheOldestReceiveThatItFits) {
  message_matcher m;
  const auto of_2 = m.post({2, any_tag, 0});
  const auto any = m.post({any_source, 7, 0});
  const auto of_1 = m.post({1, 7, 0});
  m.arrive(from(1, 7, 'a'));
  m.arrive(from(1, 7, 'b'));
  m.arrive(from(2, 7, 'c'));
  EXPECT_EQ(taken(m, of_1), 'b');
  EXPECT_EQ(taken(m, any), 'a');
  EXPECT_EQ(taken(m, of_2), 'c');
}

TEST(MessageMatcher, AnotherCommunicatorsMessagesNeverFit) {
  message_matcher m;
  m.arrive(from(1, 1, 'x', 9));
  EXPECT_EQ(taken(m, m.post({any_source, any_tag, 0})), '-');
  EXPECT_EQ(taken(m, m.post({any_source, any_tag, 9})), 'x');
}

TEST(MessageMatcher, AReceiveThatIsGivenUpTakesNoMessageFromLaterOnes) {
  message_matcher m;
  m.give_up(m.post({1, 1, 0}));
  m.arrive(from(1, 1, 'a'));
  EXPECT_EQ(m.waiting(), 1U);
  const auto t = m.post({1, 1, 0});
  EXPECT_EQ(taken(m, t), 'a');
  EXPECT_EQ(taken(m, t), '-');
}

TEST(MessageMatcher, AMessageThatArrivedForAReceiveThatIsGivenUpIsKeptInItsPlace) {
  message_matcher m;
  const auto late = m.post({1, 1, 0});
  m.arrive(from(2, 1, 'z'));
  m.arrive(from(1, 1, 'a'));
  m.arrive(from(1, 1, 'b'));
  EXPECT_EQ(m.waiting(), 2U);
  m.give_up(late);
  EXPECT_EQ(m.waiting(), 3U);
  EXPECT_EQ(taken(m, m.post({1, 1, 0})), 'a');
  EXPECT_EQ(taken(m, m.post({any_source, 1, 0})), 'z');
  EXPECT_EQ(taken(m, m.post({1, 1, 0})), 'b');
  EXPECT_EQ(m.waiting(), 0U);
}

TEST(MessageMatcher, ReceivesPostedAfterOneThatIsGivenUpGetWhatTheyWouldHaveGotWithoutIt) {
  message_matcher m;
  const auto gone = m.post({1, any_tag, 0});
  const auto next = m.post({1, 7, 0});
  const auto other = m.post({2, 7, 0});
  const auto last = m.post({any_source, 7, 0});
  m.arrive(from(1, 7, 'a'));
  m.arrive(from(1, 7, 'b'));
  m.arrive(from(1, 7, 'c'));
  m.arrive(from(1, 7, 'd'));
  m.give_up(gone);
  EXPECT_EQ(taken(m, next), 'a');
  EXPECT_EQ(taken(m, other), '-');
  EXPECT_EQ(taken(m, last), 'b');
  EXPECT_EQ(taken(m, m.post({1, 7, 0})), 'c');
  EXPECT_EQ(taken(m, m.post({1, 7, 0})), 'd');
}

}  // namespace
}  // namespace paracel
