// SPDX-License-Identifier: BSD-3-Clause
//
// One shard without sockets: loading in batches, memory of a key, and scans over a million keys. Prints one JSON
// object. Keys have 20 characters and a double each.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gflags/gflags.h>
#include <nlohmann/json.hpp>

#include "net/protocol.hpp"
#include "net/scan_codec.hpp"
#include "server/node/resident_memory.hpp"
#include "server/node/server.hpp"

DEFINE_uint64(keys, 1'000'000, "keys of the scans and of the memory figure");
DEFINE_uint64(load, 10'000'000, "keys of the loading figure; 0: skip it");
DEFINE_uint64(batch, 1000, "keys a request when loading");
DEFINE_uint64(repeat, 21, "repetitions of each scan; the median is reported");

namespace {

using namespace paracel;
using clock_type = std::chrono::steady_clock;

double seconds_since(clock_type::time_point begun) {
  return std::chrono::duration<double>(clock_type::now() - begun).count();
}

/// Processor time of this thread, unaffected by other load.
double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

/// Stores the relevant parts of the last reply.
class last_reply final : public srv::reply_sink {
 public:
  void send(const net::peer&, const net::outgoing& message) override {
    std::vector<std::byte> frame(message.head.begin(), message.head.end());
    net::reply_view view;
    body.assign(message.body.begin(), message.body.end());
    frame.insert(frame.end(), body.begin(), body.end());
    if (net::decode(frame, message.tail.size(), view) != nullptr || view.header.result != net::status::ok) {
      std::fprintf(stderr, "bench_shard: a request failed\n");
      std::exit(1);
    }
    header = view.header;
  }
  net::reply_header header;
  std::vector<std::byte> body;
};

/// A server of one shard, called directly.
class subject {
 public:
  const net::reply_header& ask(net::request_header h, std::span<const std::byte> body) {
    h.sequence = ++sequence_;
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    frame_.resize(net::request_header_bytes);
    net::encode(h, std::span<std::byte, net::request_header_bytes>(frame_));
    frame_.insert(frame_.end(), body.begin(), body.end());
    net::request_view request;
    if (net::decode(frame_, 0, request) != nullptr) std::exit(1);
    net::peer from;
    from.size = 1;
    server_.handle(0, request, {}, server_.completion_for(sink_, from, request.header));
    return sink_.header;
  }
  void load(std::uint64_t first, std::uint64_t last, std::uint64_t batch) {
    char key[32];
    std::vector<std::byte> body;
    for (auto i = first; i < last;) {
      body.clear();
      net::request_header h;
      h.what = net::verb::push_multi;
      for (; i < last && h.count < batch; ++i, ++h.count) {
        std::snprintf(key, sizeof key, "feature_%012llu", static_cast<unsigned long long>(i));
        const double value = static_cast<double>(i * 2654435761U % 1'000'003);
        net::append_item(body, key, {value_tag::f64, std::as_bytes(std::span(&value, 1))});
      }
      const auto begun = clock_type::now();
      ask(h, body);
      working_ += seconds_since(begun);
    }
  }
  /// By a scan that removes key by key, like a filter; every key has this prefix.
  void remove_all() {
    net::scan_request r;
    std::vector<std::byte> body;
    for (bool more = true; more;) {
      const std::string_view prefix = "feature_";
      body.assign(net::bytes_of(prefix).begin(), net::bytes_of(prefix).end());
      append(body, r);
      net::request_header h;
      h.what = net::verb::remove_if;
      h.key_bytes = static_cast<std::uint32_t>(prefix.size());
      more = (ask(h, body).flags & net::reply_more) != 0;
      net::scan_reply at;
      if (decode(sink_.body, at) != nullptr) std::exit(1);
      r.from = at.next;
    }
  }
  /// Repeats the request from cursor to cursor until the scan ends. Returns the longest slice in seconds.
  template <class Request>
  double scan(net::verb what, Request r, std::uint16_t flags = 0) {
    double longest = 0;
    slices = items = bytes = 0;
    std::vector<std::byte> body;
    for (bool more = true; more;) {
      body.clear();
      append(body, r);
      net::request_header h;
      h.what = what;
      h.flags = flags;
      const auto begun = clock_type::now();
      const auto& reply = ask(h, body);
      longest = std::max(longest, seconds_since(begun));
      more = (reply.flags & net::reply_more) != 0;
      net::scan_reply at;
      if (decode(sink_.body, at) != nullptr) std::exit(1);
      r.from = at.next;
      ++slices;
      items += reply.count;
      bytes += sink_.body.size();
    }
    return longest;
  }
  [[nodiscard]] double working() const { return working_; }
  [[nodiscard]] nlohmann::json stats() const { return nlohmann::json::parse(server_.stats_json()); }

  std::uint64_t slices = 0;
  std::uint64_t items = 0;
  std::uint64_t bytes = 0;

 private:
  srv::server server_{srv::server_options{}};
  last_reply sink_;
  std::vector<std::byte> frame_;
  std::uint64_t sequence_ = 0;
  double working_ = 0;
};

template <class Request>
nlohmann::json measure(subject& s, net::verb what, const Request& r, std::uint16_t flags = 0) {
  std::vector<double> times;
  std::vector<double> busy;
  double longest = 0;
  for (std::uint64_t i = 0; i < FLAGS_repeat; ++i) {
    const auto begun = clock_type::now();
    const auto busy_before = processor_seconds();
    longest = std::max(longest, s.scan(what, r, flags));
    times.push_back(seconds_since(begun));
    busy.push_back(processor_seconds() - busy_before);
  }
  return {{"ms", median(times) * 1e3},
          {"processor_ms", median(busy) * 1e3},
          {"longest_slice_ms", longest * 1e3},
          {"slices", s.slices},
          {"items", s.items},
          {"bytes", s.bytes}};
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("figures of one shard without sockets");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  nlohmann::json out;
  out["keys"] = FLAGS_keys;
  {
    const auto before = srv::resident_bytes();
    subject s;
    s.load(0, FLAGS_keys, FLAGS_batch);
    out["bytes_a_key"] = static_cast<double>(srv::resident_bytes() - before) / static_cast<double>(FLAGS_keys);
    out["counted_bytes_a_key"] = s.stats()["memory_bytes"].get<double>() / static_cast<double>(FLAGS_keys);
    out["top_10"] = measure(s, net::verb::top_k, net::top_k_request{{}, 10});
    out["sum"] = measure(s, net::verb::reduce, net::reduce_request{});
    out["histogram"] = measure(s, net::verb::reduce, net::reduce_request{{}, 100, 0, 1e6});
    out["scan"] = measure(s, net::verb::scan, net::scan_request{});
    out["keys_only"] = measure(s, net::verb::scan, net::scan_request{}, net::flag_keys_only);
  }
  {
    // Twice with different keys: what the first ones leak shows as growth after the second ones.
    subject s;
    std::vector<std::size_t> left;
    for (std::uint64_t round = 0; round < 3; ++round) {
      s.load(round * FLAGS_keys, (round + 1) * FLAGS_keys, FLAGS_batch);
      s.remove_all();
      left.push_back(srv::resident_bytes());
    }
    const auto growth = static_cast<std::int64_t>(left.back()) - static_cast<std::int64_t>(left.front());
    out["in_and_out"] = {{"bytes_left", s.stats()["memory_bytes"]}, {"growth_bytes", growth}};
  }
  if (FLAGS_load != 0) {
    subject s;
    s.load(0, FLAGS_load, FLAGS_batch);
    out["load"] = {
        {"keys", FLAGS_load}, {"batch", FLAGS_batch}, {"keys_a_second", static_cast<double>(FLAGS_load) / s.working()}};
  }
  std::printf("%s\n", out.dump(1).c_str());
}
