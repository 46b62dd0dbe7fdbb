// SPDX-License-Identifier: BSD-3-Clause
//
// What rank 0 reports about a run: metrics.jsonl (one line a round), progress, and `name value` lines on stdout at the
// end. Names follow doc/metrics.md: `objective` is only what the program minimises or maximises.
#pragma once

#include <chrono>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <paracel/metrics.hpp>
#include <paracel/paralg.hpp>

#include "json_object.hpp"

namespace paracel::alg {

/// Metrics and progress of a run. On ranks other than 0 every call does nothing.
/// Thread-safety: none
class run_log {
 public:
  /// `metric` names the number that is tracked each round; `rounds` is the maximum, 0 if it is unknown.
  /// Throws: error when <output>/metrics.jsonl cannot be opened; a later write error is reported once.
  run_log(paralg& job, int rounds, std::string metric = "objective", bool debug = false);

  /// From now on rounds track another metric, and count to `rounds`.
  void watch(std::string metric, int rounds);
  /// Writes a line {"round", metric, "seconds", more...} and reports progress to prun.py; with `debug` also a line on
  /// stdout.
  using figures = std::vector<std::pair<const char*, double>>;
  void round(int number, double value, const figures& more = {});
  /// `name value` on stdout, with sufficient digits.
  void result(const char* name, double value);
  void result(const char* name, std::uint64_t value);
  void result(const char* name, const std::string& value);
  /// Seconds since construction.
  [[nodiscard]] double seconds() const;

 private:
  paralg& job_;
  std::string metric_;
  metrics_file metrics_;
  std::chrono::steady_clock::time_point start_;
  int rounds_;
  bool debug_;
  bool first_;
};

/// A file that is written under a temporary name, so that it appears atomically. Throws: error that names the file.
class whole_file {
 public:
  explicit whole_file(std::string path);
  ~whole_file();
  whole_file(const whole_file&) = delete;
  whole_file& operator=(const whole_file&) = delete;
  void write(std::string_view bytes) { out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size())); }
  /// Renames the file to its final name. Must be the last call.
  void finish();

 private:
  [[noreturn]] void failed() const;

  std::string path_;
  std::string temporary_;
  std::ofstream out_;
  bool done_ = false;
};

/// Writes `text` to `path`, atomically. Throws: error that names the file.
void write_text_file(const std::string& path, const std::string& text);

/// Writes elements of this worker, one a line, to the file job.result_name(filename): as paracel_dump_vector does when
/// each worker has its own file. Not a collective; for small results.
template <class T>
void write_lines(paralg& job, const std::vector<T>& elements, const std::string& filename) {
  using paracel::append_text;
  std::string text;
  for (const auto& e : elements) {
    append_text(text, e);
    text += '\n';
  }
  write_text_file(job.paracel_result(job.result_name(filename)), text);
}

}  // namespace paracel::alg
