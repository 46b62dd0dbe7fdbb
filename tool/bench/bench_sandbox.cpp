// SPDX-License-Identifier: BSD-3-Clause
//
// The cost of --plugin-sandbox: updates by a user function in a server that runs it itself and in one that has it run
// in another process, alternately in one run. Prints one line of JSON: for each load the calls (for many keys: the
// keys) a second of both, and the median of the ratios of the pairs.
#include <gflags/gflags.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench_job.hpp"
#include "bench_support.hpp"

DEFINE_string(plugin, "liblr_update.so", "the plug-in, in lib/ beside this program's folder");
DEFINE_string(function, "lr_theta_update", "its function, which takes doubles");
DEFINE_uint64(value_bytes, 8, "size of a value");
DEFINE_uint64(window, 64, "requests in flight");
DEFINE_uint64(keys_per_call, 1000, "keys of a call of many keys");
DEFINE_uint64(pairs, 15, "runs of each side");
DEFINE_double(seconds, 0.3, "length of a run");
DEFINE_string(bin_dir, "", "where start_server and start_scheduler are; empty: beside this program");

namespace {

using namespace paracel;
using namespace paracel::bench;
using net::verb;

void check(const kv_result& r) {
  if (!r.ok()) throw std::runtime_error(std::string(net::name_of(r.header.result)) + ": " + std::string(r.text()));
}

std::string lib_folder() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib").string();
}

/// A job with one server, and its only worker.
class side {
 public:
  explicit side(bool sandbox)
      : job_({.bin_dir = FLAGS_bin_dir, .server_options = arguments(sandbox)}),
        session_(job_.join(0)),
        client_(session_->open_client()),
        value_(FLAGS_value_bytes / sizeof(double), 0.0) {
    call_.what = verb::update;
    client_->broadcast({.what = verb::register_update}, FLAGS_plugin, net::bytes_of(FLAGS_function),
                       [this](const kv_result& r) {
                         check(r);
                         std::memcpy(&call_.function, r.body.data(), sizeof call_.function);
                       });
    client_->wait_all();
    for (std::size_t i = 0; i < std::max(FLAGS_keys_per_call, FLAGS_window); ++i) {
      keys_.push_back("key " + std::to_string(i));
      client_->request({.what = verb::push}, keys_.back(), value(), check);
    }
    client_->wait_all();
  }
  ~side() { session_->leave(); }
  side(const side&) = delete;
  side& operator=(const side&) = delete;

  /// Calls a second.
  double waiting() {
    return measure([&](stopwatch& watch) {
      for (std::size_t i = 0;; ++i) {
        const auto sent = clock::now();
        client_->wait(client_->request(call_, keys_[i % FLAGS_window], value(), check));
        if (!watch.answered(sent, clock::now())) return;
      }
    });
  }
  double in_flight() {
    return measure([&](stopwatch& watch) {
      bool over = false;
      std::function<void(std::size_t)> go = [&](std::size_t i) {
        const auto sent = clock::now();
        client_->request(call_, keys_[i], value(), [&, i, sent](const kv_result& r) {
          check(r);
          over = !watch.answered(sent, clock::now()) || over;
          if (!over) go(i);
        });
      };
      for (std::size_t i = 0; i < FLAGS_window; ++i) go(i);
      client_->wait_all();
    });
  }
  /// Keys a second.
  double many_keys() {
    auto call = call_;
    call.what = verb::update_multi;
    const std::vector<std::string> keys(keys_.begin(),
                                        keys_.begin() + static_cast<std::ptrdiff_t>(FLAGS_keys_per_call));
    const std::vector<value_view> values(keys.size(), value());
    return static_cast<double>(keys.size()) * measure([&](stopwatch& watch) {
             while (true) {
               const auto sent = clock::now();
               client_->many().multi_async(call, keys, values,
                                           [](std::size_t, std::string_view, const net::reply_item& item) {
                                             if (item.result != net::status::ok)
                                               throw std::runtime_error(net::name_of(item.result));
                                           });
               client_->wait_all();
               if (!watch.answered(sent, clock::now())) return;
             }
           });
  }

 private:
  static std::string arguments(bool sandbox) {
    return "--plugin-dirs " + lib_folder() + (sandbox ? " --plugin-sandbox" : "");
  }
  [[nodiscard]] value_view value() const {
    return {value_.size() == 1 ? value_tag::f64 : value_tag::f64_array, std::as_bytes(std::span(value_))};
  }
  template <class Work>
  static double measure(const Work& work) {
    tally t;
    stopwatch watch(t, 0.02, FLAGS_seconds);
    work(watch);
    return static_cast<double>(t.calls) / FLAGS_seconds;
  }

  job job_;
  std::shared_ptr<session> session_;
  std::unique_ptr<server_group> client_;
  kvclt::call call_;
  const std::vector<double> value_;
  std::vector<std::string> keys_;
};

double median(std::vector<double> v) {
  std::ranges::nth_element(v, v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2));
  return v[v.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("the cost of --plugin-sandbox");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    side own(false);
    side sandbox(true);
    nlohmann::json out{{"value_bytes", FLAGS_value_bytes}, {"pairs", FLAGS_pairs}};
    const std::array<std::pair<const char*, double (side::*)()>, 3> loads{
        {{"waiting", &side::waiting}, {"in_flight", &side::in_flight}, {"many_keys", &side::many_keys}}};
    for (const auto& [name, load] : loads) {
      std::vector<double> first, second, ratios;
      for (std::size_t i = 0; i < FLAGS_pairs; ++i) {
        first.push_back((own.*load)());
        second.push_back((sandbox.*load)());
        ratios.push_back(second.back() / first.back());
      }
      out[name] = {{"own_per_second", median(first)},
                   {"sandbox_per_second", median(second)},
                   {"ratio", median(ratios)},
                   {"least_ratio", std::ranges::min(ratios)},
                   {"greatest_ratio", std::ranges::max(ratios)}};
    }
    std::printf("%s\n", out.dump().c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_sandbox: error: %s\n", e.what());
    return 1;
  }
}
