// SPDX-License-Identifier: BSD-3-Clause
#include "net/courier.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include <paracel/error.hpp>

namespace paracel::net {

using std::chrono::milliseconds;

courier::~courier() {
  {
    const mutex_lock lock(access_);
    stops_ = true;
  }
  if (!thread_.joinable()) return;
  ::eventfd_write(alarm_.get(), 1);
  thread_.join();
}

void courier::take(const std::shared_ptr<courier_task>& task) {
  if (!task->hand_over()) return;
  const mutex_lock lock(access_);
  fresh_.push_back(task);
  if (thread_.joinable()) {
    ::eventfd_write(alarm_.get(), 1);
    return;
  }
  alarm_ = owned_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (alarm_.get() < 0) throw network_error(std::string("cannot open an eventfd: ") + std::strerror(errno), false);
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void courier::run() {
  using clock = courier_task::clock;
  std::vector<std::shared_ptr<courier_task>> mine;
  std::vector<pollfd> polled;
  auto end = clock::time_point::max();
  for (;;) {
    eventfd_t ignored = 0;
    ::eventfd_read(alarm_.get(), &ignored);
    const auto now = clock::now();
    {
      const mutex_lock lock(access_);
      mine.insert(mine.end(), fresh_.begin(), fresh_.end());
      fresh_.clear();
      if (stops_ && end == clock::time_point::max()) end = now + milliseconds(200);
    }
    std::erase_if(mine, [&](const auto& task) { return task->work(now); });
    if (end != clock::time_point::max() && (mine.empty() || now >= end)) return;
    polled.assign(1, {alarm_.get(), POLLIN, 0});
    auto until = end;
    for (const auto& task : mine) {
      const auto wish = task->waits_for();
      until = std::min(until, wish.until);
      if (wish.fd >= 0) polled.push_back({wish.fd, wish.events, 0});
    }
    constexpr std::int64_t longest = 1000;
    int rest = -1;
    if (until != clock::time_point::max()) {
      const auto left = std::chrono::ceil<milliseconds>(until - now).count();
      rest = static_cast<int>(std::clamp<std::int64_t>(left, 0, longest));
    }
    ::poll(polled.data(), polled.size(), rest);
  }
}

}  // namespace paracel::net
