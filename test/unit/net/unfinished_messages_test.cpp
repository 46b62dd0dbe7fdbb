// SPDX-License-Identifier: BSD-3-Clause
//
// Members of a job that send parts without an end: by the counters alone, and as another process with the job's key,
// whose parts a real port receives while its memory is measured.
#include "net/unfinished_messages.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <zmq.hpp>

#include "net/zmq_curve.hpp"
#include "net/zmq_transport.hpp"
#include "test/support/transports.hpp"

namespace paracel::net {
namespace {

using namespace std::chrono_literals;
using test::answering;
using test::at_most;
using test::echo;
using test::frame_text;
using test::saying;

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr curve_secret key_of_all{1, 2, 3, 4};

TEST(UnfinishedMessages, FullPartsCountByTheirBytesAndOthersByTheirNumberToo) {
  constexpr inbound_limits limits{.most_parts = 2, .full_part_bytes = 10, .most_message_bytes = 45};
  unfinished_message m;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(m.take(10, limits));
  EXPECT_FALSE(m.take(10, limits));
  EXPECT_TRUE(m.take(0, limits));
  EXPECT_TRUE(m.take(5, limits));
  EXPECT_EQ(m.bytes(), 45U);
  EXPECT_FALSE(m.take(0, limits));
  m.end();
  EXPECT_EQ(m.bytes(), 0U);
  EXPECT_TRUE(m.take(45, limits));
  EXPECT_FALSE(m.take(~std::uint64_t{0}, limits));
}

TEST(UnfinishedMessages, WhenAllTakeTooMuchTheLargestGoes) {
  unfinished_messages all;
  EXPECT_EQ(all.set(1, 30, 100), std::nullopt);
  EXPECT_EQ(all.set(2, 60, 100), std::nullopt);
  EXPECT_EQ(all.set(3, 10, 100), std::nullopt);
  EXPECT_EQ(all.set(3, 11, 100), 2) << "not the one that arrived last";
  EXPECT_EQ(all.total(), 41U);
  EXPECT_EQ(all.set(1, 0, 100), std::nullopt);
  all.forget(2);
  EXPECT_EQ(all.total(), 11U);
  EXPECT_EQ(all.set(4, 101, 100), 4);
  EXPECT_EQ(all.total(), 11U);
}

std::size_t resident_bytes() {
  unsigned long pages = 0;
  unsigned long resident = 0;
  std::FILE* const f = std::fopen("/proc/self/statm", "r");
  const bool read = f != nullptr && std::fscanf(f, "%lu %lu", &pages, &resident) == 2;
  if (f != nullptr) std::fclose(f);
  return read ? resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

/// A process with the key. Each of its connections sends a message of very many parts; or it is bound, and each of its
/// replies is such a message. It must be made before this process has threads.
class hostile_member {
 public:
  enum class end { connects, is_bound };
  hostile_member(int connections, int parts, end of = end::connects) {
    if (pipe(pipe_.data()) != 0 || pipe(bound_.data()) != 0) return;
    process_ = fork();
    if (process_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      if (of == end::is_bound) reply(parts);
      else send(read_text(pipe_[0]), connections, parts);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "hostile_member: %s\n", e.what());
    }
    _exit(1);
  }
  hostile_member(const hostile_member&) = delete;
  hostile_member& operator=(const hostile_member&) = delete;
  ~hostile_member() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    for (const int one : pipe_) close(one);
    for (const int one : bound_) close(one);
  }
  /// Where it is bound.
  [[nodiscard]] std::string address() const { return read_text(bound_[0]); }
  /// Lets it begin. Returns: by how many bytes this process has grown at most until `is_over()`.
  template <class Condition>
  std::size_t growth(const std::string& address, const Condition& is_over) {
    const auto before = resident_bytes();
    auto most = before;
    EXPECT_EQ(write(pipe_[1], address.data(), address.size()), static_cast<ssize_t>(address.size()));
    const auto end = std::chrono::steady_clock::now() + 120s;
    while (!is_over() && std::chrono::steady_clock::now() < end) {
      most = std::max(most, resident_bytes());
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(is_over());
    return most - before;
  }

 private:
  static std::string read_text(int from) {
    std::string text(64, '\0');
    const auto n = read(from, text.data(), text.size());
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    return text;
  }
  static void send_parts(zmq::socket_t& s, int parts) {
    static std::byte bytes[part_bytes];  // of all parts
    for (int k = 0; k < parts; ++k)
      s.send(zmq::message_t(bytes, part_bytes, [](void*, void*) {}), zmq::send_flags::sndmore);
    s.send(zmq::message_t(1), zmq::send_flags::none);  // ZeroMQ sends nothing of a message before it has all of it
  }
  /// The first reply is the request, so that a client knows that it is connected.
  void reply(int parts) const {
    zmq::context_t context;
    const zmq_curve keys(key_of_all);
    const zmq_admission admission(context, keys);
    zmq::socket_t s(context, zmq::socket_type::router);
    keys.secure(s, zmq_curve::side::bound);
    s.bind("tcp://127.0.0.1:*");
    const auto address = s.get(zmq::sockopt::last_endpoint);
    if (write(bound_[1], address.data(), address.size()) < 0) return;
    for (bool first = true;; first = false) {
      std::array<zmq::message_t, 3> request;  // who, delimiter, frame
      for (auto& part : request)
        if (!s.recv(part)) return;
      s.send(request[0], zmq::send_flags::sndmore);
      s.send(request[1], zmq::send_flags::sndmore);
      if (first) s.send(request[2], zmq::send_flags::none);
      else send_parts(s, parts);
    }
  }
  static void send(const std::string& address, int connections, int parts) {
    zmq::context_t context;
    const zmq_curve keys(key_of_all);
    std::vector<zmq::socket_t> all;
    for (int i = 0; i < connections; ++i) {
      auto& s = all.emplace_back(context, zmq::socket_type::dealer);
      keys.secure(s, zmq_curve::side::connecting);
      s.set(zmq::sockopt::reconnect_ivl, -1);
      s.connect(address);
      s.send(zmq::message_t(), zmq::send_flags::sndmore);
      send_parts(s, parts);
    }
    for (;;) pause();
  }

  std::array<int, 2> pipe_{};
  std::array<int, 2> bound_{};
  pid_t process_ = -1;
};

/// A port of the job that echoes, and what it is asked by another member meanwhile.
class ZmqUnfinishedMessages : public testing::Test {
 protected:
  std::string start(const transport_limits& limits) {
    job.emplace(
        limits,
        [this](std::string_view why) {
          EXPECT_NE(why.find(expected), std::string_view::npos) << why;
          ++dropped;
        },
        key_of_all);
    auto p = job->open();
    const auto address = p->bind("tcp://127.0.0.1:*");
    server.emplace(std::move(p), echo);
    EXPECT_EQ(answer_to_another(address), "still there");  // the first answer takes memory, too
    return address;
  }
  static std::string answer_to_another(const std::string& address) {
    zmq_transport member({}, {}, key_of_all);
    const auto client = member.open();
    client->send(client->connect(address), saying("still there"));
    incoming in;
    return client->receive(in, at_most) ? frame_text(in) : std::string("nothing");
  }

  std::string_view expected;
  std::atomic<int> dropped{0};
  std::optional<zmq_transport> job;
  std::optional<answering> server;
};

TEST_F(ZmqUnfinishedMessages, OneThatIsTooLargeEndsItsConnectionBeforeAllOfItIsInMemory) {
  hostile_member other(1, 600);
  expected = "too many parts or bytes";
  const auto address = start({.max_message_bytes = 4 * mib});
  EXPECT_LE(other.growth(address, [&] { return dropped == 1; }), 64 * mib);
  EXPECT_EQ(answer_to_another(address), "still there");
}

/// A server that is broken, or hostile, cannot take a worker down that has asked it something.
TEST_F(ZmqUnfinishedMessages, AReplyWithoutAnEndIsLimitedAsARequestIs) {
  hostile_member other(1, 600, hostile_member::end::is_bound);
  expected = "too many parts or bytes";
  const auto address = start({.max_message_bytes = 4 * mib});
  const auto port = job->open();
  const int channel = port->connect(other.address());
  port->send(channel, saying("are you there?"));
  incoming in;
  ASSERT_TRUE(port->receive(in, at_most));
  EXPECT_EQ(frame_text(in), "are you there?");
  port->send(channel, saying("and now?"));
  EXPECT_LE(other.growth({}, [&] { return dropped == 1; }), 64 * mib);
  EXPECT_FALSE(port->receive(in, 100ms));
  EXPECT_EQ(answer_to_another(address), "still there");
}

TEST_F(ZmqUnfinishedMessages, RepliesTakeTogetherNoMoreThanTheLimitOfTheProcess) {
  constexpr int servers = 6;
  std::vector<std::unique_ptr<hostile_member>> all;
  for (int i = 0; i < servers; ++i)
    all.push_back(std::make_unique<hostile_member>(1, 200, hostile_member::end::is_bound));
  expected = "take too much memory, and its own is the largest";
  const auto address = start({.max_unfinished_bytes = 32 * mib});
  const auto port = job->open();
  for (const auto& one : all) {
    const int channel = port->connect(one->address());
    port->send(channel, saying("are you there?"));
    incoming in;
    ASSERT_TRUE(port->receive(in, at_most));
    port->send(channel, saying("and now?"));
  }
  EXPECT_LE(all.front()->growth({}, [&] { return dropped >= servers; }), 96 * mib);
  EXPECT_EQ(answer_to_another(address), "still there");
}

TEST_F(ZmqUnfinishedMessages, TogetherTheyTakeNoMoreThanTheLimitOfTheProcess) {
  constexpr int connections = 8;
  hostile_member other(connections, 200);
  expected = "take too much memory, and its own is the largest";
  const auto address = start({.max_unfinished_bytes = 32 * mib});
  EXPECT_LE(other.growth(address, [&] { return dropped == connections; }), 96 * mib);
  EXPECT_EQ(answer_to_another(address), "still there");
}

}  // namespace
}  // namespace paracel::net
