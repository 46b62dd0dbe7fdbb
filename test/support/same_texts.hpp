// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"

namespace paracel::test {

/// Runs `work` on each worker of a job. Returns: the messages of the exceptions, one for each worker.
inline std::multiset<std::string> texts_of(std::size_t workers, const std::function<void(Comm)>& work,
                                           cluster_options o = {}) {
  std::multiset<std::string> texts;
  std::mutex mutex;
  o.workers = workers;
  o.servers = 1;
  cluster c(std::move(o));
  c.run([&](Comm comm) {
    std::string text = "nothing was thrown";
    try {
      work(comm);
    } catch (const std::exception& e) {
      text = e.what();
    }
    const std::lock_guard lock(mutex);
    texts.insert(text);
  });
  return texts;
}

/// Runs `work` as an algorithm of each worker of a job.
inline void with_job(std::size_t workers, const std::function<void(paralg&)>& work) {
  cluster c({.workers = workers, .servers = 1});
  c.run([&](Comm comm) {
    paralg job("", comm);
    work(job);
  });
}

/// As texts_of, for an algorithm.
inline std::multiset<std::string> texts_of_job(std::size_t workers, const std::function<void(paralg&)>& work) {
  return texts_of(workers, [&](Comm comm) {
    paralg job("", comm);
    work(job);
  });
}

/// All workers threw the same text.
inline void expect_one_text(const std::multiset<std::string>& texts, const testing::Matcher<std::string>& wanted) {
  ASSERT_FALSE(texts.empty());
  EXPECT_THAT(*texts.begin(), wanted);
  EXPECT_EQ(texts.count(*texts.begin()), texts.size()) << testing::PrintToString(texts);
}

}  // namespace paracel::test
