// SPDX-License-Identifier: BSD-3-Clause
#include "server/node/checkpoint_service.hpp"

#include <exception>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/hex.hpp"
#include "core/json_io.hpp"
#include "server/node/server.hpp"
#include "server/plugin/plugin_registry.hpp"
#include "server/shard/shard.hpp"

namespace paracel::srv {

using net::status;
using nlohmann::json;

namespace {

/// Loads it, unless it is loaded. Throws: plugin_error.
std::uint64_t id_of(plugin_registry& plugins, bool is_filter, const std::string& plugin, const std::string& symbol) {
  return is_filter ? plugins.load_filter(plugin, symbol).id : plugins.load_update(plugin, symbol).id;
}

/// Loads the functions that were registered at the servers. Returns: what is missing or has changed, for error
/// messages.
std::string load_again(plugin_registry& plugins, const std::vector<storage::checkpoint_function>& functions) {
  std::string missing;
  for (const auto& f : functions) {
    std::string why;
    try {
      if (id_of(plugins, f.filter, f.plugin, f.symbol) != f.id) why = "has changed since the checkpoint was written";
    } catch (const plugin_error& e) {
      why = e.what();
    }
    if (!why.empty()) missing += (missing.empty() ? "" : "; ") + f.plugin + ":" + f.symbol.c_str() + " " + why;
  }
  return missing;
}

}  // namespace

void checkpoint_service::handle(shard& of, unsigned index, const ownership* owned, const net::request_view& request,
                                completion done) {
  if (options_.job != 0 && request.header.job != options_.job) {
    return done.fail(status::wrong_job, "this server belongs to another job");
  }
  const auto body = json_from(net::text_of(request.body));
  const auto text = [&](const char* key) {
    const auto at = body.is_object() ? body.find(key) : body.end();
    return at != body.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const auto what = text("do");
  const auto folder = text("folder");
  const auto clock = body.is_object() ? body.find("clock") : body.end();
  const bool has_clock = body.is_object() && clock != body.end() && clock->is_number_unsigned() &&
                         clock->get<std::uint64_t>() < net::no_clock;
  if (folder.empty() || !(what == "restore" || (what == "save" && has_clock))) {
    return done.fail(status::bad_request, "a checkpoint is saved or restored, with a folder and a clock");
  }
  if (net::text_of(request.body) == request_) return give_answer(done);
  if (owned == nullptr || owned->epoch < request.header.epoch) {
    return done.fail(status::stale_epoch, "this server does not know yet which server owns which partition");
  }
  // Partitions that have moved since would be in no server's file.
  if (what == "save" && owned->epoch != request.header.epoch) {
    return done.fail(status::stale_epoch, "the servers have changed meanwhile");
  }
  request_ = net::text_of(request.body);
  try {
    answer_ = what == "save" ? save(of, index, *owned, folder, clock->get<std::uint32_t>(), request.header.job)
                             : restore(of, index, *owned, folder);
    result_ = status::ok;
  } catch (const std::exception& e) {  // the disk, or out of memory for a partition's records
    answer_ = e.what();
    result_ = status::internal;
  }
  give_answer(done);
}

void checkpoint_service::give_answer(completion& done) const {
  net::reply_header reply;
  reply.result = result_;
  done.answer(reply, net::bytes_of(answer_));
}

std::string checkpoint_service::save(shard& of, unsigned index, const ownership& owned, const std::string& folder,
                                     std::uint32_t clock, std::uint64_t job) const {
  storage::checkpoint_entry e;
  e.header = {.kind = storage::checkpoint_kind::server,
              .clock = clock,
              .index = options_.slot,
              .job = job,
              .thread = index,
              .count = options_.threads};
  e.name = storage::checkpoint_file_name(e.header);
  disk_->make_folder(folder);
  storage::checkpoint_writer file(*disk_, folder + "/" + e.name, e.header);
  std::vector<std::byte> records;
  for (std::uint32_t p = 0; p < partition_count; ++p) {
    if (!owned.mine[p] || shard_of(static_cast<std::uint16_t>(p), options_.threads) != index) continue;
    records.clear();
    of.encode_partition(static_cast<std::uint16_t>(p), records);
    file.add(p, records);
  }
  e.digest = file.finish();
  json functions = json::array();
  for (const auto& f : plugins_.registrations()) {
    functions.push_back({{"id", to_hex(id_of(plugins_, f.is_filter, f.plugin, f.symbol))},
                         {"plugin", f.plugin},
                         {"symbol", f.symbol},
                         {"filter", f.is_filter}});
  }
  return json_text({{"file", json::parse(storage::to_json(e))}, {"functions", std::move(functions)}});
}

std::string checkpoint_service::restore(shard& of, unsigned index, const ownership& owned,
                                        const std::string& folder) const {
  const auto manifest = storage::read_manifest(*disk_, folder);
  const auto missing = load_again(plugins_, manifest.functions);
  const auto wanted = [&](std::uint32_t p) {
    return p < partition_count && owned.replicas[p] &&
           shard_of(static_cast<std::uint16_t>(p), options_.threads) == index;
  };
  // A faster head may already have sent what it has read.
  std::bitset<partition_count> all;
  for (std::uint32_t p = 0; p < partition_count; ++p) all[p] = wanted(p);
  of.drop_partitions(all);
  std::uint64_t bytes = 0;
  std::uint32_t partition = 0;
  std::vector<std::byte> records;
  for (const auto& f : manifest.files) {
    if (f.header.kind != storage::checkpoint_kind::server) continue;
    const auto path = folder + "/" + f.name;
    storage::checkpoint_reader file(*disk_, path);
    if (file.header() != f.header) throw data_error(path + ": byte 0: belongs to another job, clock or server");
    while (file.next(partition, records, wanted)) {
      std::string why;
      if (of.apply_records(static_cast<std::uint16_t>(partition), records, why) == status::ok) {
        bytes += records.size();
        continue;
      }
      throw data_error(path + ": byte " + std::to_string(file.offset()) + ": " + why +
                       (missing.empty() ? "" : " (" + missing + ")"));
    }
  }
  return json_text({{"bytes", bytes}});
}

}  // namespace paracel::srv
