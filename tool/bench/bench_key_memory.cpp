// SPDX-License-Identifier: BSD-3-Clause
//
// Many keys in a real server: how fast they are loaded with multi requests, how much of the server's resident memory a
// key takes, and whether keys that are created and removed leak any.
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench_job.hpp"
#include "bench_support.hpp"

DEFINE_uint64(keys, 1'000'000, "distinct keys");
DEFINE_uint64(key_bytes, 20, "size of a key, at least 12");
DEFINE_uint64(value_bytes, 8, "size of a value, an array of doubles; a multiple of 8");
DEFINE_uint64(keys_per_call, 10'000, "keys in one call");
DEFINE_int32(clients, 2, "clients, each a thread that waits for its calls");
DEFINE_int32(threads, 1, "shard threads of the server");
DEFINE_int32(turns, 3, "times that all keys are loaded and removed");
DEFINE_string(transport, "ipc", "ipc or tcp");
DEFINE_string(bin_dir, "", "where start_server and start_scheduler are; empty: the folder of this program");

namespace {

using namespace paracel;
using namespace paracel::bench;

/// Processor seconds of the server's shard threads.
double shard_seconds(pid_t server) {
  double sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(server) + "/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    // "server 0", "server 1", ... are shard threads; the clock thread is "server k" and the control thread "server c".
    if (!name.starts_with("server ") || name.back() < '0' || name.back() > '9') continue;
    double on_processor_ns = 0;
    std::ifstream(task.path() / "schedstat") >> on_processor_ns;
    sum += on_processor_ns / 1e9;
  }
  return sum;
}

std::string key_of(std::size_t i) {
  char text[32];
  std::snprintf(text, sizeof text, "key:%08zu", i);
  std::string k = text;
  k.resize(std::max<std::size_t>(k.size(), FLAGS_key_bytes), '.');
  return k;
}

class loader {
 public:
  loader(session& s, std::size_t index) : client_(s.open_client()), index_(index), value_(FLAGS_value_bytes / 8, 1.5) {}

  /// Runs a verb on its share of the keys, one call at a time.
  void every_key(net::verb what) {
    const value_view value{value_tag::f64_array, std::as_bytes(std::span(value_))};
    const auto clients = static_cast<std::size_t>(FLAGS_clients);
    std::vector<std::string> keys;
    for (std::size_t first = index_ * FLAGS_keys_per_call; first < FLAGS_keys; first += clients * FLAGS_keys_per_call) {
      keys.clear();
      for (std::size_t i = first; i < std::min<std::size_t>(FLAGS_keys, first + FLAGS_keys_per_call); ++i) {
        keys.push_back(key_of(i));
      }
      std::vector<value_view> values;
      if (what == net::verb::push_multi) values.assign(keys.size(), value);
      client_->many().multi({.what = what}, keys, values, [](std::size_t, const net::reply_item& item) {
        if (item.result != net::status::ok) throw std::runtime_error(net::name_of(item.result));
      });
    }
  }

 private:
  std::unique_ptr<server_group> client_;
  std::size_t index_;
  std::vector<double> value_;
};

/// Runs one verb over all keys. Returns: seconds.
double over_all_keys(session& s, net::verb what) {
  std::vector<std::exception_ptr> failed(static_cast<std::size_t>(FLAGS_clients));
  const auto begin = clock::now();
  std::vector<std::thread> all;
  for (std::size_t i = 0; i < failed.size(); ++i) {
    all.emplace_back([&s, &failed, what, i] {
      try {
        loader(s, i).every_key(what);
      } catch (...) {
        failed[i] = std::current_exception();
      }
    });
  }
  for (std::thread& t : all) t.join();
  for (const auto& f : failed) {
    if (f) std::rethrow_exception(f);
  }
  return std::chrono::duration<double>(clock::now() - begin).count();
}

void run() {
  const job j({.bin_dir = FLAGS_bin_dir, .transport = FLAGS_transport, .threads = FLAGS_threads});
  const auto worker = j.join(0);
  const pid_t server = j.server_process(0);
  const auto keys = static_cast<double>(FLAGS_keys);
  const auto resident = [server] { return static_cast<double>(resident_bytes(server)); };

  const double empty = resident();
  double load_seconds = 0;  // of the first round: later ones reuse its memory
  double remove_seconds = 0;
  double core_seconds = 0;
  std::vector<double> loaded;
  std::vector<double> emptied;
  for (int turn = 0; turn < FLAGS_turns; ++turn) {
    const double used = shard_seconds(server);
    const double loading = over_all_keys(*worker, net::verb::push_multi);
    const double working = shard_seconds(server) - used;
    loaded.push_back(resident());
    const double removing = over_all_keys(*worker, net::verb::remove_multi);
    if (turn == 0) {
      load_seconds = loading;
      core_seconds = working;
      remove_seconds = removing;
    }
    emptied.push_back(resident());
  }
  worker->leave();
  std::printf(
      "{\"keys\": %.0f, \"bytes_per_key\": %.1f, \"growth_bytes\": %.0f, \"empty_bytes\": %.0f, \"loaded_bytes\": "
      "%.0f, "
      "\"removed_bytes\": %.0f, \"load_keys_per_second\": %.0f, \"load_keys_per_core_second\": %.0f, "
      "\"remove_keys_per_second\": %.0f}\n",
      keys, (loaded.front() - empty) / keys, loaded.back() - loaded.front(), empty, loaded.front(), emptied.front(),
      keys / load_seconds, keys / core_seconds, keys / remove_seconds);
}

void check_flags() {
  if (FLAGS_keys == 0 || FLAGS_keys_per_call == 0 || FLAGS_clients < 1 || FLAGS_threads < 1 || FLAGS_turns < 1) {
    throw std::runtime_error("keys, keys_per_call, clients, threads and turns must be at least 1");
  }
  if (FLAGS_value_bytes == 0 || FLAGS_value_bytes % 8 != 0)
    throw std::runtime_error("--value_bytes must be a multiple of 8");
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("loads and removes many keys; prints one line of JSON");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    check_flags();
    run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_key_memory: error: %s\n", e.what());
    return 1;
  }
  return 0;
}
