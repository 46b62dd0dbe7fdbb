// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/bulk_access.hpp>

#include <cmath>
#include <optional>

#include "worker/parameters/key_errors.hpp"
#include "worker/parameters/parasrv.hpp"
#include "worker/parameters/scan_client.hpp"

namespace paracel {

namespace {

std::uint64_t registered(const std::optional<std::uint64_t>& filter, const char* by) {
  if (!filter) throw plugin_error(std::string("no filter was named and none is registered: call ") + by + " first");
  return *filter;
}

}  // namespace

void bulk_access::read_multi(const list_type<str_type>& keys, set_target& to, bool all) {
  servers_->many().read_multi(keys, to, all);
}
void bulk_access::write_multi(const list_type<str_type>& keys, const std::vector<value_view>& values) {
  servers_->many().write_multi(keys, values);
}
void bulk_access::update_multi(const list_type<str_type>& keys, const set_source& deltas, std::uint64_t function,
                               bool clocked, set_target* to) {
  servers_->many().update_multi(keys, deltas, function, clocked, to);
}
bool bulk_access::paracel_remove_multi(const list_type<str_type>& keys) { return servers_->many().remove_multi(keys); }
void bulk_access::paracel_clear() { servers_->many().clear(); }
void bulk_access::update_default_multi(const list_type<str_type>& keys, const std::vector<value_view>& initials,
                                       const std::vector<value_view>& deltas, std::uint64_t function) {
  servers_->many().update_default_multi(keys, initials, deltas, function);
}
std::uint64_t bulk_access::read_filter() const {
  return registered(servers_->functions().read_filter, "paracel_register_read_special");
}

void bulk_access::scan(std::string_view prefix, std::uint64_t filter, bool keys_only, const item_sink& put,
                       const std::function<void()>& chunk_end) {
  scan_client(*servers_).scan(
      {prefix, filter}, keys_only,
      [&](std::string_view key, const value_view& v) { naming_key(key, [&] { put(key, v); }); }, chunk_end);
}
void bulk_access::top_k(int k, std::uint64_t filter, const item_sink& put) {
  if (k < 0) throw config_error("the k of a top-k is " + std::to_string(k) + ", want 0 or more");
  scan_client(*servers_).top_k(
      {{}, filter}, static_cast<std::uint32_t>(k),
      [&](std::string_view key, const value_view& v) { naming_key(key, [&] { put(key, v); }); });
}
std::size_t bulk_access::paracel_remove_special(const str_type& file_name, const str_type& func_name) {
  return scan_client(*servers_).remove_if({{}, find_filter(file_name, func_name)});
}
std::size_t bulk_access::paracel_remove_special() {
  const auto filter = registered(servers_->functions().remove_filter, "paracel_register_remove_special");
  return scan_client(*servers_).remove_if({{}, filter});
}
list_type<str_type> bulk_access::paracel_keys(const str_type& prefix) {
  list_type<str_type> keys;
  scan(prefix, 0, true, [&](std::string_view key, const value_view&) { keys.emplace_back(key); });
  return keys;
}
number_summary bulk_access::paracel_summary(const str_type& prefix) {
  const auto s = scan_client(*servers_).reduce({prefix});
  return {s.keys, s.numbers, s.total(), s.minimum, s.maximum};
}
number_histogram bulk_access::paracel_histogram(double lo, double hi, std::size_t bins, const str_type& prefix) {
  if (bins == 0 || bins > net::most_histogram_bins)
    throw config_error("a histogram of " + std::to_string(bins) + " bins, want 1 to 65536");
  if (!(std::isfinite(hi - lo) && lo < hi))
    throw config_error("a histogram from " + std::to_string(lo) + " to " + std::to_string(hi) + ", want lo < hi");
  auto s = scan_client(*servers_).reduce({prefix}, lo, hi, static_cast<std::uint32_t>(bins));
  return {std::move(s.bins), s.below, s.above};
}

}  // namespace paracel
