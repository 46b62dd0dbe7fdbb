// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/chunk_leases.hpp>

#include <algorithm>
#include <thread>
#include <utility>

#include <paracel/error.hpp>

namespace paracel {

namespace {

constexpr const char* lease_plugin = "libparacel_default.so";
constexpr std::chrono::milliseconds longest_pause{20};

}  // namespace

chunk_leases::chunk_leases(paralg& job, std::string key, std::size_t chunks, std::chrono::milliseconds term)
    : job_(&job), key_(std::move(key)), chunks_(static_cast<std::int64_t>(chunks)), term_(term) {
  if (chunks == 0) throw config_error("chunk_leases: an epoch must have at least one chunk");
  if (term.count() < 1) throw config_error("chunk_leases: a lease must last at least 1 ms");
}

lease_table chunk_leases::ask(const lease_request& r) {
  lease_table table;
  job_->paracel_bupdate_get(key_, r, table, lease_plugin, "paracel_lease");
  return table;
}

std::optional<chunk_leases::lease> chunk_leases::next(std::int64_t epoch, std::int64_t ahead) {
  for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, longest_pause)) {
    const auto table = ask({(epoch + 1) * chunks_, -1, term_.count()});
    const auto n = table.answer;
    if (n >= 0) return lease{static_cast<std::size_t>(n % chunks_), n / chunks_, n, table.done_before()};
    if (table.done_before() >= (epoch + 1 - ahead) * chunks_) return std::nullopt;
    std::this_thread::sleep_for(pause);
  }
}

std::vector<double> chunk_leases::add(const lease& of, const std::string& key, const std::vector<double>& delta) {
  once_sum sum;
  job_->paracel_bupdate_get(key, once_delta{delta, of.number, of.done_before}, sum, lease_plugin, "paracel_add_once");
  return std::move(sum.values);
}

void chunk_leases::write(const std::string& key, const std::vector<double>& values) {
  job_->paracel_write(key, once_sum{values, 0, {}});
}

std::vector<double> chunk_leases::read(const std::string& key) {
  return std::move(job_->paracel_read<once_sum>(key).values);
}

bool chunk_leases::complete(const lease& of) { return ask({0, of.number, 0}).answer == of.number; }

}  // namespace paracel
