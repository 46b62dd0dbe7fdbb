// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/table.hpp>

#include <filesystem>

#include <paracel/paralg.hpp>

#include "net/row_values.hpp"
#include "worker/parameters/table_client.hpp"

namespace paracel {

namespace table_detail {

handle::handle(paralg& job, const str_type& name, value_tag element, std::size_t width, const row_init& init,
               const row_optimizer& optimizer, const table_options& options)
    : width_(width) {
  if (width == 0 || width > net::most_width)
    throw error("table \"" + name + "\": a width of " + std::to_string(width) + ", want 1 to " +
                std::to_string(net::most_width));
  if (options.wire != wire_format::full && !net::can_be_quantised(element))
    throw error("table \"" + name + "\": rows of " + name_of(element) + " cannot be sent as " +
                net::name_of(options.wire) + ", want float or double");
  net::table_definition d;
  d.element = element;
  d.width = static_cast<std::uint32_t>(width);
  d.init = init;
  std::string plugin;
  std::string symbol;
  if (!optimizer.file_name.empty() || !optimizer.func_name.empty()) {
    // Allows its folder.
    (void)job.servers().functions().find_function(optimizer);
    plugin = std::filesystem::path(optimizer.file_name).filename().string();
    symbol = server_functions::symbol_with(optimizer.func_name, optimizer.hyper);
  } else if (!optimizer.hyper.empty()) {
    throw error("table \"" + name + "\": hyper-parameters without an optimizer");
  }
  d.plugin = plugin;
  d.symbol = symbol;
  client_ = std::make_unique<table_client>(job.servers(), name, d, options);
}

handle::handle(handle&&) noexcept = default;
handle& handle::operator=(handle&&) noexcept = default;
handle::~handle() = default;

void handle::check(std::size_t rows, std::size_t numbers) const {
  if (numbers != rows * width_)
    throw error(std::to_string(rows) + " rows of " + std::to_string(width_) + " numbers: found a buffer of " +
                std::to_string(numbers) + " numbers, want " + std::to_string(rows * width_));
}

void handle::pull(const row_names& rows, std::byte* out) { client_->pull(rows, out); }
async_functor_type handle::pull_async(const row_names& rows, std::byte* out) { return client_->pull_async(rows, out); }
void handle::push(const row_names& rows, const std::byte* values) { client_->push(rows, values); }
void handle::update(const row_names& rows, const std::byte* deltas, bool wait) { client_->update(rows, deltas, wait); }
void handle::flush() { client_->flush(); }
std::string handle::residuals() const { return client_->residuals(); }
void handle::restore_residuals(std::string_view from) { client_->restore_residuals(from); }
std::size_t handle::residual_bytes() const noexcept { return client_->residual_bytes(); }
std::uint64_t handle::remove(const row_names& rows) { return client_->remove(rows); }
std::uint64_t handle::size() { return client_->size(); }
void handle::scan(bool named, const std::function<void(std::uint64_t, std::string_view, const std::byte*)>& each) {
  client_->scan(named, each);
}

}  // namespace table_detail

}  // namespace paracel
