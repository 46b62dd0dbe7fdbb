// SPDX-License-Identifier: BSD-3-Clause
//
// How fast text is converted into the structures of the algorithms, compared with a plain loop over std::from_chars
// with the same result in the same run: the rate depends on the load of the machine, the ratio shows the cost of the
// reader. Rates are by processor time, of the kernel and of the process, which equals elapsed time on an idle machine:
// there is one thread, and the files, generated here, are in the page cache. Each measurement runs in its own process,
// so that it has its own peak of memory.
#include <fcntl.h>
#include <gflags/gflags.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>
#include <paracel/distributed_graph.hpp>
#include <paracel/random.hpp>
#include <paracel/samples.hpp>
#include <paracel/sparse.hpp>

#include "worker/comm/single_comm.hpp"

DEFINE_uint64(megabytes, 128, "text of each file");
DEFINE_uint64(pairs, 5, "alternating measurements of both");
DEFINE_string(only, "", "only rows whose name contains this");

namespace {

using paracel::counter_random;

// ---- files

void append(std::string& to, std::uint64_t n) {
  char digits[24];
  to.append(digits, std::to_chars(digits, digits + sizeof digits, n).ptr);
}

/// Labels of two classes and 14 of 123 features that are 1, like a9a.
void binary_line(std::string& to, counter_random& random) {
  to += random.below(4) == 0 ? "+1" : "-1";
  for (std::uint64_t k = 0; k < 14; ++k) {
    to += ' ';
    append(to, 1 + k * 123 / 14 + random.below(123 / 14));
    to += ":1";
  }
  to += " \n";
}

void real(std::string& to, counter_random& random) {
  char text[32];
  to.append(text, static_cast<std::size_t>(std::snprintf(text, sizeof text, "%.*g", 9, random.normal())));
}

void real_line(std::string& to, counter_random& random) {
  to += random.below(2) == 0 ? "1" : "0";
  for (std::uint64_t k = 1; k <= 28; ++k) {
    to += ' ';
    append(to, k);
    to += ':';
    real(to, random);
  }
  to += '\n';
}

void csv_line(std::string& to, counter_random& random) {
  for (int k = 0; k < 28; ++k) {
    real(to, random);
    to += ',';
  }
  to += random.below(2) == 0 ? "1\n" : "0\n";
}

constexpr std::uint64_t vertices = std::uint64_t{1} << 20;

void edge_line(std::string& to, counter_random& random) {
  // The bitwise and makes the degrees uneven.
  append(to, random.below(vertices) & random.below(vertices));
  to += '\t';
  append(to, random.below(vertices));
  to += '\n';
}

void wide_edge_line(std::string& to, counter_random& random) {
  append(to, paracel::mix64(random.below(vertices) & random.below(vertices)));
  to += '\t';
  append(to, paracel::mix64(random.below(vertices)));
  to += '\n';
}

void name_line(std::string& to, counter_random& random) {
  for (const char after : {'\t', '\n'}) {
    char text[32];
    const auto n = std::snprintf(text, sizeof text, "user_%09llu%c",
                                 static_cast<unsigned long long>(random.below(vertices)), after);
    to.append(text, static_cast<std::size_t>(n));
  }
}

void rating_line(std::string& to, counter_random& random) {
  append(to, 1 + random.below(100'000));
  to += ' ';
  append(to, 1 + random.below(10'000));
  to += ' ';
  real(to, random);
  to += '\n';
}

void libsvm_entries_line(std::string& to, counter_random& random) {
  append(to, random.below(vertices));
  for (std::uint64_t k = 0; k < 20; ++k) {
    to += ' ';
    append(to, k * 5'000 + random.below(5'000));
    to += ':';
    real(to, random);
  }
  to += '\n';
}

std::string make_file(const std::string& path, void (*line)(std::string&, counter_random&),
                      const std::string& before = "") {
  counter_random random(1);
  std::ofstream out(path, std::ios::binary);
  out << before;
  std::string text;
  for (std::uint64_t bytes = 0; bytes < FLAGS_megabytes * 1'000'000; bytes += text.size()) {
    text.clear();
    while (text.size() < 1'000'000) line(text, random);
    out << text;
  }
  return path;
}

// ---- plain loops

struct mapped {
  explicit mapped(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY);
    struct stat about {};
    ::fstat(fd, &about);
    size = static_cast<std::size_t>(about.st_size);
    data = static_cast<const char*>(::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0));
    ::close(fd);
  }
  const char* data;
  std::size_t size;
};

void plain_libsvm(const std::string& path) {
  const mapped file(path);
  std::vector<double> label;
  std::vector<std::size_t> begin{0};
  std::vector<std::uint32_t> column;
  std::vector<double> value;
  for (const char *at = file.data, *end = at + file.size; at < end; ++at) {
    double y = 0;
    at = std::from_chars(*at == '+' ? at + 1 : at, end, y).ptr;
    label.push_back(y);
    while (at < end && *at == ' ') {
      std::uint32_t index = 0;
      const auto [colon, problem] = std::from_chars(++at, end, index);
      if (problem != std::errc()) break;
      double v = 0;
      at = std::from_chars(colon + 1, end, v).ptr;
      column.push_back(index - 1);
      value.push_back(v);
    }
    begin.push_back(value.size());
  }
}

void plain_csv(const std::string& path) {
  const mapped file(path);
  std::vector<double> value;
  for (const char *at = file.data, *end = at + file.size; at < end; ++at) {
    double v = 0;
    at = std::from_chars(at, end, v).ptr;
    value.push_back(v);
  }
}

void plain_edges(const std::string& path) {
  const mapped file(path);
  std::vector<std::uint32_t> from;
  std::vector<std::uint32_t> to;
  std::uint32_t greatest = 0;
  for (const char *at = file.data, *end = at + file.size; at < end; ++at) {
    std::uint32_t a = 0;
    std::uint32_t b = 0;
    at = std::from_chars(at, end, a).ptr;
    at = std::from_chars(at + 1, end, b).ptr;
    from.push_back(a);
    to.push_back(b);
    greatest = std::max({greatest, a, b});
  }
  std::vector<std::uint64_t> begin(std::size_t{greatest} + 2);
  for (const auto a : from) ++begin[a + 1];
  for (std::size_t v = 0; v <= greatest; ++v) begin[v + 1] += begin[v];
  std::vector<std::uint32_t> target(to.size());
  auto place = begin;
  for (std::size_t e = 0; e < from.size(); ++e) target[place[from[e]]++] = to[e];
}

// ---- measuring

struct measurement {
  double seconds = 0;
  double peak_bytes = 0;  // beyond the process's initial memory, without pages of mapped files
  double kept_bytes = 0;  // at the end
};

std::uint64_t status_bytes(const char* name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != name) continue;
    std::uint64_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

measurement measure(const std::function<void(const std::function<void()>& done)>& load) {
  int ends[2];
  if (::pipe(ends) != 0) std::exit(1);
  std::fflush(stdout);
  const auto child = ::fork();
  if (child == 0) {
    measurement m;
    const auto before = status_bytes("RssAnon:");
    std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
    const auto begin = processor_seconds();
    load([&] {
      m.seconds = processor_seconds() - begin;
      m.kept_bytes = static_cast<double>(status_bytes("RssAnon:") - before);
      m.peak_bytes = static_cast<double>(status_bytes("VmHWM:") - status_bytes("RssFile:") - before);
    });
    const auto written = ::write(ends[1], &m, sizeof m);
    std::_Exit(written == static_cast<ssize_t>(sizeof m) ? 0 : 1);
  }
  ::close(ends[1]);
  measurement m;
  const auto got = ::read(ends[0], &m, sizeof m);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (got != static_cast<ssize_t>(sizeof m) || status != 0) {
    std::fprintf(stderr, "bench_input: a measurement failed\n");
    std::exit(1);
  }
  return m;
}

double median(std::vector<double> all) {
  std::ranges::sort(all);
  return all[all.size() / 2];
}

void row(const std::string& name, const std::string& path, const std::function<void(const std::string&)>& plain,
         const std::function<void(const std::string&, const std::function<void()>&)>& ours) {
  const auto bytes = static_cast<double>(std::filesystem::file_size(path));
  std::vector<double> ratios;
  std::vector<double> plain_rates;
  std::vector<double> our_rates;
  measurement last;
  for (std::uint64_t i = 0; i < std::max<std::uint64_t>(FLAGS_pairs, 1); ++i) {
    last = measure([&](const auto& done) { ours(path, done); });
    our_rates.push_back(bytes / 1e6 / last.seconds);
    if (!plain) continue;
    const auto base = measure([&](const auto& done) {
      plain(path);
      done();
    });
    plain_rates.push_back(bytes / 1e6 / base.seconds);
    ratios.push_back(our_rates.back() / plain_rates.back());
  }
  nlohmann::json line{{"row", name},
                      {"mb_per_s", median(our_rates)},
                      {"best_mb_per_s", *std::ranges::max_element(our_rates)},
                      {"kept_mb", last.kept_bytes / 1e6},
                      {"peak_mb", last.peak_bytes / 1e6}};
  if (plain) {
    line["plain_mb_per_s"] = median(plain_rates);
    line["ratio"] = median(ratios);
  }
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("how fast text is loaded, compared with a plain loop");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  std::string pattern = (std::filesystem::temp_directory_path() / "bench_loading_XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  try {
    const paracel::Comm alone(std::make_shared<paracel::single_comm>());
    const auto samples = [&](const std::string& path, const auto& done) {
      const auto rows = paracel::load_samples(alone, {path});
      done();
    };
    const auto wanted = [](const char* name) {
      return std::string_view(name).find(FLAGS_only) != std::string_view::npos;
    };
    const auto run = [&](const char* name, void (*line)(std::string&, counter_random&), const auto& plain,
                         const auto& ours) {
      if (!wanted(name)) return;
      const auto path = make_file((folder / "input").string(), line);
      row(name, path, plain, ours);
      std::filesystem::remove(path);
    };
    const auto graph = [&](const std::string& path, const auto& done) {
      const auto g = paracel::load_graph(alone, {path});
      done();
    };
    run("libsvm, binary features", binary_line, plain_libsvm, samples);
    run("libsvm, real features", real_line, plain_libsvm, samples);
    run("csv, real features", csv_line, plain_csv, samples);
    run("edges, dense ids", edge_line, plain_edges, graph);
    const auto matrix = [&](const std::string& path, const auto& done) {
      const auto m = paracel::load_sparse(alone, {path});
      done();
    };
    const std::function<void(const std::string&)> no_plain_loop;
    run("edges, 64-bit ids", wide_edge_line, no_plain_loop, graph);
    run("edges, names", name_line, no_plain_loop, graph);
    run("entries, row column value", rating_line, no_plain_loop, matrix);
    run("entries, libsvm", libsvm_entries_line, no_plain_loop, matrix);
    if (wanted("entries, MatrixMarket")) {
      const auto path = (folder / "input").string();
      make_file(path, rating_line);
      // The same lines with a header that states their number.
      std::ifstream in(path);
      const auto lines = std::count(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>(), '\n');
      make_file(path, rating_line,
                "%%MatrixMarket matrix coordinate real general\n100000 10000 " + std::to_string(lines) + "\n");
      row("entries, MatrixMarket", path, no_plain_loop, matrix);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_input: error: %s\n", e.what());
    std::filesystem::remove_all(folder);
    return 1;
  }
  std::filesystem::remove_all(folder);
  return 0;
}
