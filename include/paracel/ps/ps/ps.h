// SPDX-License-Identifier: BSD-3-Clause
//
// The programming model of ps-lite on Paracel's transport: an independent implementation. doc/coming_from_ps_lite.md
// says what maps to what, and what is different.
#pragma once

#include "ps/base.h"
#include "ps/kv_app.h"
#include "ps/simple_app.h"

namespace ps {

[[nodiscard]] inline int NumWorkers() { return Postoffice::Get()->num_workers(); }
[[nodiscard]] inline int NumServers() { return Postoffice::Get()->num_servers(); }
[[nodiscard]] inline bool IsWorker() { return Postoffice::Get()->is_worker() != 0; }
[[nodiscard]] inline bool IsServer() { return Postoffice::Get()->is_server() != 0; }
[[nodiscard]] inline bool IsScheduler() { return Postoffice::Get()->is_scheduler() != 0; }
/// Of this process among those of its role, after Start.
[[nodiscard]] inline int MyRank() { return Postoffice::Get()->my_rank(); }

/// Joins the job. Blocks: until all nodes have; with `do_barrier` until all have returned from joining. A worker
/// process whose threads are customers of their own calls it in each, and DMLC_NUM_WORKER counts all of them.
inline void Start(int customer_id, const char* argv0 = nullptr, bool do_barrier = true) {
  Postoffice::Get()->Start(customer_id, argv0, do_barrier);
}
inline void Start(const char* argv0) { Start(0, argv0); }
inline void Start() { Start(0); }
/// Joins the job without the barrier.
inline void StartAsync(int customer_id, const char* argv0 = nullptr) { Start(customer_id, argv0, false); }

/// Leaves the job. Blocks: with `do_barrier` until all nodes call it. Customer 0 ends the process's connections and
/// then runs the exit callback.
inline void Finalize(int customer_id = 0, bool do_barrier = true) {
  Postoffice::Get()->Finalize(customer_id, do_barrier);
}
inline void RegisterExitCallback(const std::function<void()>& callback) {
  Postoffice::Get()->RegisterExitCallback(callback);
}

}  // namespace ps
