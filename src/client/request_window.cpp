// SPDX-License-Identifier: BSD-3-Clause
#include "client/request_window.hpp"

#include "client/multi_request.hpp"
#include "core/check.hpp"

namespace paracel {

namespace {

constexpr std::size_t first_size = 1024;
// Memory that requests may keep for later ones.
constexpr std::size_t most_spare = 1024;
constexpr std::size_t most_spare_bytes = std::size_t{64} << 10;
// The same for a few large ones.
constexpr std::size_t most_large_spare = 16;

}  // namespace

request_window::request_window() : entries_(first_size) {}

void request_window::widen() {
  PARACEL_CHECK(low_ <= next_ && next_ - low_ <= entries_.size());
  std::vector<entry> wider(entries_.size() * 2);
  for (auto s = low_; s < next_; ++s) wider[s & (wider.size() - 1)] = std::move(at(s));
  entries_ = std::move(wider);
}

request_window::sequence request_window::open(net::verb what, multi_request& several) noexcept {
  const auto s = open(what, 0, 0, nullptr);
  at(s).multi = &several;
  return s;
}

retained_request& request_window::retain_next() {
  auto& e = at(next_);
  PARACEL_ASSERT(!e.open);
  if (e.retained == nullptr) {
    if (spare_.empty()) {
      e.retained = std::make_unique<retained_request>();
    } else {
      e.retained = std::move(spare_.back());
      spare_.pop_back();
      if (e.retained->body.capacity() > most_spare_bytes) --large_spare_;
    }
  }
  return *e.retained;
}

void request_window::recycle(entry& e) noexcept {
  PARACEL_ASSERT(!e.open);
  auto r = std::move(e.retained);
  const bool large = r->body.capacity() > most_spare_bytes;
  if (spare_.size() >= most_spare || r->body.capacity() > kept_buffer_bytes) return;
  if (large && large_spare_ == most_large_spare) return;
  if (r->tail) r->tail = {};
  if (r->set != nullptr) r->set = nullptr;
  if (r->rows != nullptr) r->rows = nullptr;
  r->parts.clear();
  if (spare_.capacity() == 0) spare_.reserve(most_spare);
  spare_.push_back(std::move(r));
  if (large) ++large_spare_;
}

bool request_window::is_consistent() const {
  std::size_t open = 0;
  std::size_t bytes = 0;
  for (auto s = low_; s < next_; ++s) {
    if (!at(s).open) continue;
    ++open;
    bytes += at(s).bytes;
    if (parked_.contains(s)) return false;
  }
  return open == in_flight_ && bytes == bytes_ && (low_ == next_ || at(low_).open);
}

void request_window::forget(sequence first, sequence last) noexcept {
  for (auto s = std::max(first, low_); s <= last && s < next_; ++s) {
    auto& e = at(s);
    e.done = nullptr;
    if (e.open && e.multi != nullptr) e.multi->silence();
  }
}

void request_window::forget_reads() noexcept {
  for (auto s = low_; s < next_; ++s)
    if (at(s).open && net::only_looks(at(s).what)) forget(s, s);
}

request_window::sequence request_window::park(subscription s) {
  PARACEL_CHECK(next_ - low_ < entries_.size() && !at(next_).open);
  parked_.emplace(next_, std::move(s));
  ++next_;
  advance_watermark();
  return next_ - 1;
}

std::optional<request_window::subscription> request_window::find_parked(sequence s) {
  const auto found = parked_.find(s);
  if (found == parked_.end()) return std::nullopt;
  return std::move(parked_.extract(found).mapped());
}

std::vector<request_window::subscription> request_window::take_parked_at(std::uint32_t channel) {
  std::vector<subscription> taken;
  for (auto at = parked_.begin(); at != parked_.end();) {
    const auto here = at++;
    if (here->second.channel != channel || !here->second.done) continue;
    taken.push_back(std::move(parked_.extract(here).mapped()));
  }
  return taken;
}

}  // namespace paracel
