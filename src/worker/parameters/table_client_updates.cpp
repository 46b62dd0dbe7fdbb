// SPDX-License-Identifier: BSD-3-Clause
//
// Writing rows: pushes, updates with what earlier ones have kept back, removals.
#include <algorithm>
#include <cstring>
#include <utility>

#include "worker/parameters/table_client.hpp"

namespace paracel {

void table_client::send_change(const kvclt::call& c, const names& rows, const row_values& values, duplicates what,
                               const part_handler& done, const requests& sent) {
  if (auto list = find_list(rows); list != nullptr && list->is_unique)
    return send_list(c, std::move(list), values, done, sent);
  plan(rows, row_bytes_ + sizeof(std::uint64_t), what);
  send_parts(c, rows, values, done, sent);
}

void table_client::push(const names& rows, const std::byte* values) {
  const auto c = servers_.clock().write_call(servers_.clock().of(name_), net::verb::rows_push);
  finish("pushing rows of ", nullptr, [&](const part_handler& done, const requests& sent) {
    send_change(c, rows, {values}, duplicates::last, done, sent);
    forget_residuals(rows);
  });
}

void table_client::update(const names& rows, const std::byte* deltas, bool wait) {
  drop_cleared_residuals();
  const auto has_room = [&] {
    return rows.ids != nullptr ? residuals_->has_room(std::span(rows.ids, rows.count))
                               : residuals_->has_room(std::span(rows.names, rows.count));
  };
  send_update(rows, deltas, wait, residuals_ != nullptr && has_room() ? wire_ : wire_format::full);
}

void table_client::send_update(const names& rows, const std::byte* deltas, bool wait, wire_format format) {
  auto c = servers_.clock().update_call(servers_.clock().of(name_), net::verb::rows_update, 0, !wait);
  c.flags |= net::flag_of(format);
  const row_values values{deltas, true};
  if (wait) {
    return finish("updating rows of ", nullptr, [&](const part_handler& done, const requests& sent) {
      send_change(c, rows, values, duplicates::sum, done, sent);
    });
  }
  send_change(
      c, rows, values, duplicates::sum,
      [failures = &servers_.failures(), what = "updating \"a row of " + place() + "\""](std::uint32_t, std::uint32_t,
                                                                                        const kv_result& r) {
        if (!r.ok()) failures->record(0, r.header.result, r.text(), what);
      },
      nullptr);
}

std::uint64_t table_client::remove(const names& rows) {
  std::uint64_t n = 0;
  plan(rows, sizeof(std::uint64_t), duplicates::keep);
  finish(
      "removing rows of ", [&](const kv_result& r) { n += r.header.count; },
      [&](const part_handler& done, const requests& sent) {
        send_parts({.what = net::verb::rows_remove}, rows, {}, done, sent);
        forget_residuals(rows);
      });
  return n;
}

// ---- what quantised updates keep back -------------------------------------------------------------------------------

void table_client::flush() {
  if (residuals_ == nullptr) return;
  drop_cleared_residuals();
  const auto ids = residuals_->ids();
  const auto texts = residuals_->names();
  constexpr std::size_t batch_bytes = std::size_t{8} << 20;
  const auto batch = std::max<std::size_t>(batch_bytes / row_bytes_, 1);
  const std::vector<std::byte> zeros(std::min(batch, std::max(ids.size(), texts.size())) * row_bytes_);
  for (std::size_t i = 0; i < ids.size(); i += batch)
    send_update({ids.data() + i, nullptr, std::min(batch, ids.size() - i)}, zeros.data(), false, wire_format::full);
  for (std::size_t i = 0; i < texts.size(); i += batch)
    send_update({nullptr, texts.data() + i, std::min(batch, texts.size() - i)}, zeros.data(), false, wire_format::full);
  residuals_->clear();
}

std::string table_client::residuals() const { return residuals_ != nullptr ? residuals_->encode() : std::string(); }

void table_client::restore_residuals(std::string_view from) {
  if (from.empty()) return;
  const auto* wrong = residuals_ != nullptr ? residuals_->decode(from) : "its rows are sent in full precision";
  if (wrong != nullptr) throw error(place() + ": found residuals that are not those of this table: " + wrong);
  clears_ = servers_.many().clears();
}

/// Once this worker has emptied the servers.
void table_client::drop_cleared_residuals() noexcept {
  const auto before = std::exchange(clears_, servers_.many().clears());
  if (residuals_ != nullptr && before != clears_) residuals_->clear();
}

void table_client::forget_residuals(const names& rows) noexcept {
  if (residuals_ == nullptr || residuals_->size() == 0) return;
  for (std::size_t i = 0; i < rows.count; ++i) {
    if (rows.ids != nullptr) residuals_->forget(rows.ids[i]);
    else residuals_->forget(rows.names[i]);
  }
}

}  // namespace paracel
