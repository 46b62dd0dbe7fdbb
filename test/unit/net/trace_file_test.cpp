// SPDX-License-Identifier: BSD-3-Clause
#include "net/trace_file.hpp"

#include <stdlib.h>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/trace.hpp"
#include "test/support/file_size_limit.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel {
namespace {

struct traced_file {
  nlohmann::json about;
  std::uint64_t dropped = 0;
  std::vector<trace::record> records;
};

traced_file read_traced(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(file), {});
  traced_file t;
  EXPECT_EQ(all.substr(0, 8), "PRCTRC01");
  std::uint32_t header = 0;
  std::uint32_t width = 0;
  std::uint32_t text = 0;
  load_fields(reinterpret_cast<const std::byte*>(all.data()) + 8, header, width, t.dropped, text);
  EXPECT_EQ(width, sizeof(trace::record));
  EXPECT_EQ(header % width, 0U);
  EXPECT_EQ((all.size() - header) % width, 0U);
  t.about = nlohmann::json::parse(all.substr(32, text));
  t.records.resize((all.size() - header) / width);
  std::memcpy(t.records.data(), all.data() + header, t.records.size() * width);
  return t;
}

class TraceFile : public testing::Test {
 protected:
  ~TraceFile() override { trace::start({}, 1); }

  static void add(int n) {
    for (int i = 0; i < n; ++i)
      trace::add({.begin = 1, .end = trace::now(), .sequence = 5, .kind = trace::kind::serve});
  }

  test::temporary_folder folder;
};

TEST_F(TraceFile, HasWhoWroteItAndItsRecords) {
  net::start_tracing({.folder = folder.path() + "/new"});
  {
    const trace::thread_scope scope("server", 2, "shard 0");
    add(3);
  }
  const auto t = read_traced(folder / "new/server_2.0.trace");
  EXPECT_EQ(t.about["role"], "server");
  EXPECT_EQ(t.about["index"], 2);
  EXPECT_EQ(t.about["thread"], "shard 0");
  EXPECT_EQ(t.about["pid"], getpid());
  EXPECT_EQ(t.about["verbs"]["1"], "pull");
  EXPECT_EQ(t.about["phases"]["1"], "load");
  EXPECT_EQ(t.dropped, 0U);
  ASSERT_EQ(t.records.size(), 5U) << "the time when it was opened, that of the write, and three";
  EXPECT_EQ(t.records[0].kind, trace::kind::sync);
  EXPECT_EQ(t.records[1].kind, trace::kind::sync);
  EXPECT_LT(t.records[0].client, t.records[1].client);
  EXPECT_EQ(t.records[4].sequence, 5U);
}

TEST_F(TraceFile, AProcessThatIsStartedAgainTakesAnotherName) {
  net::start_tracing({.folder = folder.path()});
  for (int i = 0; i < 3; ++i) const trace::thread_scope scope("worker", 0, "x");
  EXPECT_TRUE(std::filesystem::exists(folder / "worker_0.2.trace"));
}

TEST_F(TraceFile, WhatDoesNotFitIsCounted) {
  net::start_tracing({.folder = folder.path(), .most_bytes = 64 << 10});
  {
    const trace::thread_scope scope("worker", 0, "x");
    add(5000);
  }
  const auto t = read_traced(folder / "worker_0.0.trace");
  EXPECT_LE(std::filesystem::file_size(folder / "worker_0.0.trace"), 64U << 10);
  std::size_t kept = 0;
  for (const auto& r : t.records) kept += r.kind == trace::kind::serve ? 1 : 0;
  EXPECT_GT(kept, 0U);
  EXPECT_EQ(kept + t.dropped, 5000U);
}

TEST_F(TraceFile, AFullDiskEndsTheTraceOnly) {
  net::start_tracing({.folder = folder.path()});
  testing::internal::CaptureStderr();
  {
    const trace::thread_scope scope("worker", 0, "x");
    add(600);
    const test::file_size_limit full(40'000);
    add(1200);
  }
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("worker_0.0.trace cannot be written: File too large: the rest of this thread is not traced"),
            std::string::npos)
      << said;
  EXPECT_EQ(said.find("warning", 10), std::string::npos) << "once: " << said;
  const auto t = read_traced(folder / "worker_0.0.trace");  // no record is cut off
  EXPECT_GE(t.records.size(), 512U);
  EXPECT_GE(t.dropped, 1800U - 600U);
}

TEST_F(TraceFile, AFolderThatCannotBeWrittenIsReported) {
  testing::internal::CaptureStderr();
  net::start_tracing({.folder = folder.path() + "/no/where"});
  EXPECT_NE(testing::internal::GetCapturedStderr().find("this process is not traced: "), std::string::npos);
  EXPECT_FALSE(trace::is_on());
  const auto file = folder.write("file", "");
  testing::internal::CaptureStderr();
  net::start_tracing({.folder = file});  // exists, but is no folder
  const trace::thread_scope scope("worker", 1, "x");
  EXPECT_EQ(trace::mine, nullptr);
  EXPECT_NE(
      testing::internal::GetCapturedStderr().find("worker 1, x, is not traced: " + file + "/worker_1.0.trace: Not"),
      std::string::npos);
}

TEST_F(TraceFile, IsAskedForByTheEnvironment) {
  const auto with = [&](const char* bytes, const char* every) {
    setenv("PARACEL_TRACE", folder.path().c_str(), 1);
    setenv("PARACEL_TRACE_BYTES", bytes, 1);
    setenv("PARACEL_TRACE_EVERY", every, 1);
    std::string why;
    try {
      net::start_tracing_if_asked();
    } catch (const usage_error& e) {
      why = e.what();
    }
    for (const char* name : {"PARACEL_TRACE", "PARACEL_TRACE_BYTES", "PARACEL_TRACE_EVERY"}) unsetenv(name);
    return why;
  };
  net::start_tracing_if_asked();
  EXPECT_FALSE(trace::is_on());
  EXPECT_EQ(with("1M", "0"), "environment variable PARACEL_TRACE_EVERY=0: want a whole number, at least 1");
  EXPECT_EQ(with("1M", "2x"), "environment variable PARACEL_TRACE_EVERY=2x: want a whole number, at least 1");
  EXPECT_EQ(with("1K", ""), "environment variable PARACEL_TRACE_BYTES=1K: want a number of bytes, at least 64K");
  EXPECT_EQ(with("", "3"), "");
  EXPECT_TRUE(trace::is_on());
  EXPECT_EQ(trace::every(), 3U);
}

}  // namespace
}  // namespace paracel
