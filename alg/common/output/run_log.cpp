// SPDX-License-Identifier: BSD-3-Clause
#include "run_log.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace paracel::alg {

namespace {

/// Whether what is printed goes to a terminal. prun.py, which passes it on, says so: the ranks of an mpirun write to a
/// terminal of mpirun's own.
bool for_people() {
  static const bool is = std::getenv("PARACEL_PRINTS_TO_TERMINAL") != nullptr ||
                         (std::getenv("PARACEL_RENDEZVOUS") == nullptr && isatty(STDOUT_FILENO) == 1);
  return is;
}

std::string short_number(double v) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.6g", v);
  return text.data();
}

}  // namespace

run_log::run_log(paralg& job, int rounds, std::string metric, bool debug)
    : job_(job),
      metric_(std::move(metric)),
      start_(std::chrono::steady_clock::now()),
      rounds_(rounds),
      debug_(debug),
      first_(job.get_worker_id() == 0) {
  if (!first_) return;
  metrics_.open(job.paracel_result("metrics.jsonl"));
}

void run_log::watch(std::string metric, int rounds) {
  metric_ = std::move(metric);
  rounds_ = rounds;
}

void run_log::round(int number, double value, const figures& more) {
  if (!first_) return;
  json_object line;
  line.add("round", number).add(metric_, value).add("seconds", seconds());
  for (const auto& [name, other] : more) line.add(name, other);
  metrics_.write(line.text());
  if (debug_) {
    std::printf("round %d: %s %.10g\n", number, metric_.c_str(), value);
    std::fflush(stdout);
  }
  job_.report_progress({number, rounds_, value, metric_});
}

void run_log::result(const char* name, double value) {
  result(name, for_people() ? short_number(value) : json_number(value));
}
void run_log::result(const char* name, std::uint64_t value) { result(name, std::to_string(value)); }
void run_log::result(const char* name, const std::string& value) {
  if (!first_) return;
  std::printf("%s %s\n", name, value.c_str());
  std::fflush(stdout);
}

double run_log::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

whole_file::whole_file(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp") {
  out_.open(temporary_, std::ios::binary | std::ios::trunc);
  if (!out_) failed();
}

whole_file::~whole_file() {
  if (!done_) std::remove(temporary_.c_str());
}

void whole_file::finish() {
  out_.flush();
  if (!out_) failed();
  out_.close();
  if (!out_ || std::rename(temporary_.c_str(), path_.c_str()) != 0) failed();
  done_ = true;
}

void whole_file::failed() const { throw error(path_ + ": cannot be written: " + std::strerror(errno)); }

void write_text_file(const std::string& path, const std::string& text) {
  whole_file file(path);
  file.write(text);
  file.finish();
}

}  // namespace paracel::alg
