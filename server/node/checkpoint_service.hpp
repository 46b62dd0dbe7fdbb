// SPDX-License-Identifier: BSD-3-Clause
//
// A shard's part of a checkpoint: the partitions that it heads, written to a file or read back. Both are the verb
// `checkpoint`, sent by the scheduler to every shard thread, with a JSON object as its body:
//
//   {"do":"save","folder":F,"clock":c}   F = the checkpoint's own folder. Writes server-<slot>-<thread>.ckpt there. The
//                                        reply: {"file":{...},"functions":[...]}, in the manifest's format
//   {"do":"restore","folder":F}          reads, from all server files in F's manifest, the partitions of which this
//                                        thread has a replica. The reply: {"bytes":n}; stale_epoch: retry, the
//                                        membership is not known here yet
//
// Both may be repeated, also after the job has continued: a completed request is not executed again, but answered
// as before.
#pragma once

#include <cstdint>
#include <string>

#include "net/protocol.hpp"
#include "server/request/completion.hpp"
#include "server/store/key_store.hpp"
#include "storage/checkpoint_store.hpp"
#include "storage/file_system.hpp"

namespace paracel::srv {

class plugin_registry;
class shard;
struct server_options;

/// One per shard, owned by its thread.
class checkpoint_service {
 public:
  checkpoint_service(const server_options& options, storage::file_system& disk, plugin_registry& plugins) noexcept
      : options_(options), disk_(&disk), plugins_(plugins) {}

  void use_disk(storage::file_system& disk) noexcept { disk_ = &disk; }

  /// `owned`: null when it is not known yet.
  /// Blocks: until the disk I/O is complete.
  void handle(shard& of, unsigned index, const ownership* owned, const net::request_view& request, completion done);

 private:
  std::string save(shard& of, unsigned index, const ownership& owned, const std::string& folder, std::uint32_t clock,
                   std::uint64_t job) const;
  std::string restore(shard& of, unsigned index, const ownership& owned, const std::string& folder) const;
  void give_answer(completion& done) const;

  const server_options& options_;
  storage::file_system* disk_;
  plugin_registry& plugins_;
  // The last completed request, and its reply; empty: none.
  std::string request_;
  net::status result_ = net::status::ok;
  std::string answer_;
};

}  // namespace paracel::srv
