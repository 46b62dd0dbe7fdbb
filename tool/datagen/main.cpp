// SPDX-License-Identifier: BSD-3-Clause
//
// Generates input for the algorithms, fast; tool/datagen.py is its front end and documents the options. Arguments are
// name=value. Each row is a function of the seed and of its number: threads generate blocks of rows in any order, and
// the blocks are written in sequence, so the output does not depend on the number of threads.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>

#include "generator.hpp"

namespace datagen {

std::string options::text(const std::string& name, const std::string& fallback) const {
  const auto at = values_.find(name);
  return at == values_.end() ? fallback : at->second;
}

std::uint64_t options::integer(const std::string& name, std::uint64_t fallback, std::uint64_t least,
                               std::uint64_t most) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return fallback;
  std::uint64_t v = 0;
  const char* end = at->second.data() + at->second.size();
  const auto read = std::from_chars(at->second.data(), end, v);
  if (read.ec != std::errc() || read.ptr != end || v < least || v > most) {
    throw option_error(name + ": found " + at->second + ", want a whole number from " + std::to_string(least) + " to " +
                       std::to_string(most));
  }
  return v;
}

double options::number(const std::string& name, double fallback, double least, double most) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return fallback;
  double v = 0;
  const char* end = at->second.data() + at->second.size();
  const auto read = std::from_chars(at->second.data(), end, v);
  if (read.ec != std::errc() || read.ptr != end || !(v >= least && v <= most)) {
    char limits[80];
    std::snprintf(limits, sizeof limits, "%g to %g", least, most);
    throw option_error(name + ": found " + at->second + ", want a number from " + limits);
  }
  return v;
}

std::uint64_t options::rows_of_bytes(double bytes, std::uint64_t fallback) const {
  if (!has("size") || has("rows")) return integer("rows", fallback);
  return static_cast<std::uint64_t>(std::ceil(static_cast<double>(integer("size", 0)) / bytes));
}

namespace {

/// A file that is written under a temporary name until it is complete; "-" is stdout.
class output_file {
 public:
  explicit output_file(std::string path) : path_(std::move(path)) {
    file_ = path_ == "-" ? stdout : std::fopen((path_ + ".tmp").c_str(), "wb");
    if (file_ == nullptr) fail();
    // Blocks are large; buffering would only add a copy.
    std::setvbuf(file_, nullptr, _IONBF, 0);
  }
  output_file(const output_file&) = delete;
  output_file& operator=(const output_file&) = delete;
  ~output_file() {
    if (file_ == nullptr || file_ == stdout) return;
    std::fclose(file_);
    std::remove((path_ + ".tmp").c_str());
  }
  void write(const char* data, std::size_t n) {
    if (n > 0 && std::fwrite(data, 1, n, file_) != n) fail();
  }
  void finish() {
    if (file_ == stdout) return;
    const int closed = std::fclose(file_);
    file_ = nullptr;
    if (closed != 0 || std::rename((path_ + ".tmp").c_str(), path_.c_str()) != 0) fail();
  }

 private:
  [[noreturn]] void fail() const { throw std::runtime_error(path_ + ": " + std::strerror(errno)); }

  std::string path_;
  std::FILE* file_ = nullptr;
};

/// Generates blocks of `from` with `jobs` threads and writes them in order, until the rows end or `limit` bytes are
/// reached.
class pipeline {
 public:
  pipeline(generator& from, std::size_t jobs, std::uint64_t limit, output_file& out, output_file* truth)
      : from_(from), out_(out), truth_(truth), blocks_(2 * jobs + 2), ready_(blocks_.size()), limit_(limit) {
    const auto size = from.rows_a_block();
    count_ = from.rows() / size + (from.rows() % size == 0 ? 0 : 1);
    for (std::size_t j = 0; j < jobs; ++j) threads_.emplace_back([this] { work(); });
  }
  pipeline(const pipeline&) = delete;
  pipeline& operator=(const pipeline&) = delete;
  ~pipeline() {
    stop();
    for (auto& t : threads_) t.join();
  }

  /// Returns the number of rows written.
  std::uint64_t run() {
    std::uint64_t rows = 0;
    for (std::uint64_t n = 0; n < count_ && bytes_ < limit_; ++n) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ready_[n % ready_.size()] == n + 1 || failure_; });
      if (failure_) std::rethrow_exception(failure_);
      lock.unlock();
      rows += write(blocks_[n % blocks_.size()]);
      lock.lock();
      written_ = n + 1;
      changed_.notify_all();
    }
    stop();
    return rows;
  }

 private:
  std::uint64_t write(block& b) {
    std::size_t rows = b.ends.size();
    if (limit_ - bytes_ <= b.text.size()) {
      rows = 0;
      while (bytes_ + b.ends[rows].first < limit_) ++rows;
      ++rows;
    }
    const auto [text, truth] = b.ends[rows - 1];
    out_.write(b.text.data(), text);
    if (truth_ != nullptr) truth_->write(b.truth.data(), truth);
    bytes_ += text;
    from_.fold(b);
    return rows;
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      const auto n = next_++;
      changed_.wait(lock, [&] { return stopped_ || n < written_ + blocks_.size(); });
      if (stopped_ || n >= count_) return;
      lock.unlock();
      auto& b = blocks_[n % blocks_.size()];
      b.clear();
      std::exception_ptr failure;
      try {
        const auto size = from_.rows_a_block();
        from_.render(n * size, std::min((n + 1) * size, from_.rows()), b);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) failure_ = failure;
      ready_[n % ready_.size()] = n + 1;
      changed_.notify_all();
    }
  }

  generator& from_;
  output_file& out_;
  output_file* truth_;
  std::vector<block> blocks_;
  std::vector<std::uint64_t> ready_;  // of each slot: the number of its block + 1
  std::uint64_t limit_;
  std::uint64_t bytes_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t written_ = 0;
  bool stopped_ = false;
  std::exception_ptr failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
};

void make(const options& o) {
  const auto kind = o.text("method", "");
  std::unique_ptr<generator> g;
  for (const auto maker : {make_dense, make_sparse, make_graph, make_text}) {
    if (!g) g = maker(kind, o);
  }
  if (!g) throw option_error("method: found \"" + kind + "\", which is unknown");
  const auto path = o.text("output", "");
  if (path.empty()) throw option_error("output is missing");
  const auto truth_path = o.text("truth", "");
  const auto limit =
      o.integer("size", std::numeric_limits<std::uint64_t>::max(), 1, std::numeric_limits<std::uint64_t>::max());
  output_file out(path);
  std::unique_ptr<output_file> truth;
  if (!truth_path.empty()) truth = std::make_unique<output_file>(truth_path);
  std::uint64_t rows = 0;
  {
    pipeline p(*g, o.integer("jobs", 1, 1, 1024), g->can_be_cut() ? limit : std::numeric_limits<std::uint64_t>::max(),
               out, truth.get());
    rows = p.run();
  }
  out.finish();
  for (const auto& [name, text] : g->beside(rows)) {
    if (name == ".truth") {
      if (truth) truth->write(text.data(), text.size());
    } else if (path != "-") {
      output_file side(path + name);
      side.write(text.data(), text.size());
      side.finish();
    }
  }
  if (truth) truth->finish();
}

}  // namespace
}  // namespace datagen

int main(int argc, char** argv) {
  try {
    std::map<std::string, std::string> values;
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const auto equals = word.find('=');
      if (equals == std::string::npos) throw datagen::option_error("found " + word + ", want name=value");
      values[word.substr(0, equals)] = word.substr(equals + 1);
    }
    datagen::make(datagen::options(std::move(values)));
    return 0;
  } catch (const datagen::option_error& e) {
    std::fprintf(stderr, "datagen: error: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "datagen: error: %s\n", e.what());
    return 1;
  }
}
