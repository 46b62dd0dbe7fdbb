// SPDX-License-Identifier: BSD-3-Clause
//
// A checkpoint of one server compared with the bare disk: the same number of bytes written to the same folder with
// write and one fsync (like `dd conv=fsync`), alternately, in one run. Then the checkpoint is read into an empty
// server. Prints one JSON object.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gflags/gflags.h>
#include <nlohmann/json.hpp>

#include "core/membership.hpp"
#include "net/protocol.hpp"
#include "server/node/server.hpp"
#include "storage/checkpoint_store.hpp"

DEFINE_uint64(mb, 256, "megabytes of values in the server");
DEFINE_uint64(value_bytes, 8192, "bytes of each value, a multiple of 8");
DEFINE_uint32(threads, 2, "shard threads");
DEFINE_uint32(repeat, 5, "pairs of runs, a checkpoint and the bare disk; medians are reported");
DEFINE_string(folder, "", "where to write; empty: a folder of the system's temporary ones");

namespace {

using namespace paracel;
using nlohmann::json;
using clock_type = std::chrono::steady_clock;

double seconds_since(clock_type::time_point begun) {
  return std::chrono::duration<double>(clock_type::now() - begun).count();
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "bench_checkpoint: %s\n", why.c_str());
  std::exit(1);
}

class last_reply final : public srv::reply_sink {
 public:
  void send(const net::peer&, const net::outgoing& m) override {
    net::reply_view view;
    std::vector<std::byte> frame(m.head.begin(), m.head.end());
    frame.insert(frame.end(), m.body.begin(), m.body.end());
    body = net::text_of(m.body);
    if (net::decode(frame, m.tail.size(), view) != nullptr || view.header.result != net::status::ok) give_up(body);
  }
  std::string body;
};

constexpr std::uint64_t job = 1;

std::unique_ptr<srv::server> make_server() {
  srv::server_options o;
  o.threads = FLAGS_threads;
  o.job = job;
  o.incarnation = 1;
  auto s = std::make_unique<srv::server>(o);
  membership m;
  m.job = job;
  server_entry e;
  e.incarnation = 1;
  e.threads = FLAGS_threads;
  e.shards.assign(FLAGS_threads, "nowhere");
  e.clock = e.control = "nowhere";
  m.servers.push_back(e);
  s->set_membership(m);
  return s;
}

std::string ask(srv::server& s, unsigned shard, net::request_header h, std::span<const std::byte> body) {
  last_reply sink;
  net::request_view r;
  h.job = job;
  h.epoch = 1;
  h.body_bytes = static_cast<std::uint32_t>(body.size());
  r.header = h;
  r.body = body;
  net::peer from;
  from.size = 1;
  s.handle(shard, r, {}, s.completion_for(sink, from, h));
  return sink.body;
}

/// Runs on all shards in parallel, each on its own thread like a server's shard threads. Returns: their replies.
std::vector<std::string> on_all(srv::server& s, const std::string& text) {
  std::vector<std::string> answers(FLAGS_threads);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < FLAGS_threads; ++i) {
    threads.emplace_back([&, i] {
      net::request_header h;
      h.what = net::verb::checkpoint;
      answers[i] = ask(s, i, h, net::bytes_of(text));
    });
  }
  for (auto& t : threads) t.join();
  return answers;
}

std::uint64_t fill(srv::server& s) {
  const auto count = (FLAGS_mb << 20U) / FLAGS_value_bytes;
  std::vector<std::byte> value(FLAGS_value_bytes);
  std::uint64_t state = 1;
  for (auto& b : value)
    b = static_cast<std::byte>((state = state * 6364136223846793005U + 1442695040888963407U) >> 56U);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto key = "feature_" + std::to_string(i);
    net::request_header h;
    h.what = net::verb::push;
    h.tag = value_tag::f64_array;
    h.key_bytes = static_cast<std::uint32_t>(key.size());
    std::vector<std::byte> body(net::bytes_of(key).begin(), net::bytes_of(key).end());
    body.insert(body.end(), value.begin(), value.end());
    ask(s, shard_of(partition_of(hash_key(key)), FLAGS_threads), h, body);
  }
  return count;
}

/// The bare disk: writes `bytes` to one file a thread.
double write_bare(const std::string& folder, std::uint64_t bytes) {
  const std::vector<char> buffer(std::size_t{1} << 20, 'x');
  const auto begun = clock_type::now();
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < FLAGS_threads; ++i) {
    threads.emplace_back([&, i] {
      const auto path = folder + "/bare" + std::to_string(i);
      const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
      if (fd < 0) give_up("cannot write to " + folder);
      for (auto left = bytes / FLAGS_threads; left != 0;) {
        const auto n = ::write(fd, buffer.data(), std::min<std::uint64_t>(left, buffer.size()));
        if (n <= 0) give_up("the disk is full");
        left -= static_cast<std::uint64_t>(n);
      }
      if (::fsync(fd) != 0) give_up("fsync failed");
      ::close(fd);
    });
  }
  for (auto& t : threads) t.join();
  return seconds_since(begun);
}

}  // namespace

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (FLAGS_value_bytes == 0 || FLAGS_value_bytes % 8 != 0 || FLAGS_threads == 0 || FLAGS_repeat == 0) {
    give_up("--value_bytes, --threads and --repeat must be above 0, the first a multiple of 8");
  }
  std::string folder = FLAGS_folder.empty() ? std::filesystem::temp_directory_path().string() : FLAGS_folder;
  folder += "/bench_checkpoint_XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) give_up("cannot create " + folder);
  const auto s = make_server();
  const auto keys = fill(*s);

  storage::posix_file_system disk;
  std::vector<double> saved;
  std::vector<double> bare;
  std::vector<double> ratios;
  std::uint64_t bytes = 0;
  std::string one;
  for (unsigned i = 1; i <= FLAGS_repeat; ++i) {
    std::filesystem::remove_all(one);
    one = folder + "/" + storage::checkpoint_folder_name(i);  // one that it has saved is not saved again
    storage::checkpoint_manifest m{.job = job, .clock = i, .workers = 1, .servers = 1};
    const auto begun = clock_type::now();
    for (const auto& a : on_all(*s, json{{"do", "save"}, {"folder", one}, {"clock", i}}.dump()))
      m.files.push_back(storage::entry_from_json(json::parse(a).at("file").dump(), i, job));
    const auto text = m.to_text();
    disk.write(one + "/" + storage::manifest_name, net::bytes_of(text));
    saved.push_back(seconds_since(begun));
    bytes = 0;
    for (const auto& f : m.files) bytes += f.digest.bytes;
    bare.push_back(write_bare(folder, bytes));
    ratios.push_back(bare.back() / saved.back());
  }

  auto begun = clock_type::now();
  storage::verify_checkpoint(disk, one);
  const double verified = seconds_since(begun);
  const auto again = make_server();
  begun = clock_type::now();
  on_all(*again, json{{"do", "restore"}, {"folder", one}}.dump());
  const double restored = seconds_since(begun);
  std::filesystem::remove_all(folder);

  const double mb = static_cast<double>(bytes) / 1e6;
  std::printf("%s\n", json{{"keys", keys},
                           {"mb", mb},
                           {"threads", FLAGS_threads},
                           {"checkpoint_mb_per_s", mb / median(saved)},
                           {"bare_mb_per_s", mb / median(bare)},
                           {"ratio", median(ratios)},
                           {"verify_mb_per_s", mb / verified},
                           {"restore_mb_per_s", mb / restored},
                           {"restore_seconds", restored}}
                          .dump()
                          .c_str());
  return 0;
}
