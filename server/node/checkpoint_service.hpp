// SPDX-License-Identifier: BSD-3-Clause
//
// A shard's part of a checkpoint: the partitions that it heads, written to a file or read back. Both are the verb
// `checkpoint`, sent by the scheduler to every shard thread, with a JSON object as its body:
//
//   {"do":"save","folder":F,"clock":c}   F = the checkpoint's own folder. Writes server-<slot>-<thread>.ckpt there. The
//                                        answer: {"file":{...},"functions":[...]}, as the manifest has them
//   {"do":"restore","folder":F}          reads, of all files of servers in F's manifest, the partitions of which this
//                                        thread has a copy. The answer: {"bytes":n}; stale_epoch: ask again, who serves
//                                        what is not known here yet
//
// Both may come more than once, also after the job has gone on: a request that was done is not done again, but answered
// as it was.
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

/// One of a shard, owned by its thread.
class checkpoint_service {
 public:
  checkpoint_service(const server_options& options, net::file_system& disk, plugin_registry& plugins) noexcept
      : options_(options), disk_(&disk), plugins_(plugins) {}

  void use_disk(net::file_system& disk) noexcept { disk_ = &disk; }

  /// `owned`: null when it is not known yet.
  /// Blocks: as long as the disk takes.
  void handle(shard& of, unsigned index, const ownership* owned, const net::request_view& request, completion done);

 private:
  std::string save(shard& of, unsigned index, const ownership& owned, const std::string& folder, std::uint32_t clock,
                   std::uint64_t job) const;
  std::string restore(shard& of, unsigned index, const ownership& owned, const std::string& folder) const;
  void give_answer(completion& done) const;

  const server_options& options_;
  net::file_system* disk_;
  plugin_registry& plugins_;
  // The last request that was done, and its answer; empty: none.
  std::string request_;
  net::status result_ = net::status::ok;
  std::string answer_;
};

}  // namespace paracel::srv
