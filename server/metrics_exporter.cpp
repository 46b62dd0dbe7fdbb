// SPDX-License-Identifier: BSD-3-Clause
//
// libparacel_metrics.so: families of metrics as prometheus-cpp has them, behind its HTTP server and in a file for the
// textfile collector of node_exporter.
#include "server/metrics_exporter.hpp"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <paracel/error.hpp>

namespace paracel::srv {
namespace {

constexpr std::chrono::seconds file_interval{2};

prometheus::MetricFamily family_of(const metric_family& from) {
  using prometheus::MetricType;
  prometheus::MetricFamily to;
  to.name = from.name;
  to.help = from.help;
  to.type = from.kind == metric_kind::counter ? MetricType::Counter
            : from.kind == metric_kind::gauge ? MetricType::Gauge
                                              : MetricType::Histogram;
  for (const auto& sample : from.samples) {
    auto& metric = to.metric.emplace_back();
    for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
    metric.counter.value = metric.gauge.value = sample.value;
    if (from.kind != metric_kind::histogram) continue;
    std::uint64_t until = 0;
    for (std::size_t i = 0; i < sample.counts.size(); ++i) {
      until += sample.counts[i];
      const bool bounded = i < from.bounds.size();
      metric.histogram.bucket.push_back({until, bounded ? from.bounds[i] : std::numeric_limits<double>::infinity()});
    }
    metric.histogram.sample_count = until;
    metric.histogram.sample_sum = sample.value;
  }
  return to;
}

class job_metrics final : public prometheus::Collectable {
 public:
  explicit job_metrics(std::function<std::vector<metric_family>()> collect) : collect_(std::move(collect)) {}

  /// Families without samples have neither HELP nor TYPE: they are left out.
  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> all;
    for (const auto& family : collect_())
      if (!family.samples.empty()) all.push_back(family_of(family));
    return all;
  }

 private:
  std::function<std::vector<metric_family>()> collect_;
};

std::string in_url(const std::string& host) { return host.find(':') == std::string::npos ? host : "[" + host + "]"; }

struct found_address {
  std::string numeric;
  int port;
  sockaddr_storage binary;
};

/// The numeric address of `host`, and a port that can be bound there. The HTTP server would not say why it cannot.
found_address bindable(const std::string& host, int port) {
  const auto fail = [&](const std::string& why) -> usage_error {
    return usage_error("--metrics-port " + std::to_string(port) + ": cannot listen at " + in_url(host) + ": " + why);
  };
  addrinfo want{};
  want.ai_socktype = SOCK_STREAM;
  want.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const auto text = std::to_string(port);
  if (const int error = getaddrinfo(host.c_str(), text.c_str(), &want, &list); error != 0)
    throw fail(std::string(gai_strerror(error)) + " (--metrics-bind)");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(list, &freeaddrinfo);
  const int s = socket(all->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s < 0) throw fail(std::strerror(errno));
  const int one = 1;
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const bool bound = bind(s, all->ai_addr, all->ai_addrlen) == 0 && listen(s, 1) == 0;
  const int error = errno;
  sockaddr_storage at{};  // with the port that the system has chosen
  socklen_t size = sizeof at;
  char numeric[NI_MAXHOST] = {};
  char service[NI_MAXSERV] = {};
  const bool named = bound && getsockname(s, reinterpret_cast<sockaddr*>(&at), &size) == 0 &&
                     getnameinfo(reinterpret_cast<sockaddr*>(&at), size, numeric, sizeof numeric, service,
                                 sizeof service, NI_NUMERICHOST | NI_NUMERICSERV) == 0;
  close(s);
  if (!bound && error == EADDRINUSE)
    throw fail("another process uses that port: want another one, or 0 for one that is free");
  if (!bound && error == EACCES) throw fail("ports below 1024 are the system's: want another one");
  if (!bound || !named) throw fail(std::strerror(error));
  return {numeric, std::atoi(service), at};
}

class exporter final : public metrics_exporter {
 public:
  explicit exporter(const export_options& options)
      : metrics_(std::make_shared<job_metrics>(options.collect)), file_(options.file) {
    if (options.port >= 0) open_port(options.host, options.port);
    if (file_.empty()) return;
    temporary_ = file_ + "." + std::to_string(getpid()) + ".tmp";
    if (const auto why = write_file(); !why.empty()) throw usage_error("--metrics-file: " + why);
    writer_ = std::thread([this] { rewrite(); });
  }

  ~exporter() override {
    close_port();
    remove_file();
  }
  exporter(const exporter&) = delete;
  exporter& operator=(const exporter&) = delete;

  [[nodiscard]] const std::string& address() const noexcept override { return address_; }

  void remove_file() noexcept override {
    if (!writer_.joinable()) return;
    {
      const std::lock_guard held(mutex_);
      over_ = true;
    }
    wake_.notify_all();
    writer_.join();
    std::remove(temporary_.c_str());
    std::remove(file_.c_str());  // values that no longer change would be taken for those of a job that runs
  }

 private:
  void open_port(const std::string& host, int port) {
    const auto at = bindable(host, port);
    const auto where = in_url(at.numeric) + ":" + std::to_string(at.port);
    try {
      // A slow or silent reader holds one of these threads for five seconds at most.
      server_ = std::make_unique<prometheus::Exposer>(
          std::vector<std::string>{"listening_ports", where, "num_threads", "3", "request_timeout_ms", "5000"});
    } catch (const std::exception& e) {
      throw usage_error("--metrics-port " + std::to_string(port) + ": cannot listen at " + where + ": " + e.what());
    }
    server_->RegisterCollectable(metrics_);
    address_ = "http://" + where + "/metrics";
    bound_ = at.binary;
  }

  /// The thread that accepts connections looks after each, or once in two seconds, whether it shall end.
  void close_port() {
    if (server_ == nullptr) return;
    std::atomic<bool> closed{false};
    std::thread knocking([this, &closed] {
      while (!closed) {
        const int s = socket(bound_.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s >= 0) {
          connect(s, reinterpret_cast<const sockaddr*>(&bound_),
                  bound_.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
          close(s);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
    server_.reset();
    closed = true;
    knocking.join();
  }

  void rewrite() {
    bool said = false;
    std::unique_lock held(mutex_);
    while (!wake_.wait_for(held, file_interval, [this] { return over_; })) {
      held.unlock();
      if (const auto why = write_file(); !why.empty() && !std::exchange(said, true))
        std::fprintf(stderr, "start_scheduler: warning: --metrics-file: %s\n", why.c_str());
      held.lock();
    }
  }

  /// A reader sees the old file or the new one. Returns: why it has failed.
  std::string write_file() {
    {
      std::ofstream out(temporary_, std::ios::trunc);
      if (out) prometheus::TextSerializer().Serialize(out, metrics_->Collect());
      out.close();
      if (!out) {
        const std::string why = temporary_ + " cannot be written: " + std::strerror(errno);
        std::remove(temporary_.c_str());
        return why;
      }
    }
    if (std::rename(temporary_.c_str(), file_.c_str()) == 0) return {};
    return file_ + " cannot be replaced: " + std::strerror(errno);
  }

  const std::shared_ptr<job_metrics> metrics_;
  std::unique_ptr<prometheus::Exposer> server_;
  std::string address_;
  sockaddr_storage bound_{};
  std::string file_;
  std::string temporary_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread writer_;
};

}  // namespace
}  // namespace paracel::srv

extern "C" paracel::srv::metrics_exporter* paracel_export_metrics(const paracel::srv::export_options& options) {
  return new paracel::srv::exporter(options);
}
