// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <string>

namespace paracel {

/// The exit statuses of every program of the framework; README.md's table is generated from these.
namespace exit_status {
inline constexpr int ok = 0;
inline constexpr int failure = 1;
inline constexpr int usage = 2;
inline constexpr int config = 3;
inline constexpr int data = 4;
inline constexpr int plugin = 5;
inline constexpr int worker_lost = 10;
inline constexpr int server_lost = 11;
inline constexpr int timeout = 12;
inline constexpr int scheduler_lost = 13;
}  // namespace exit_status

/// Base of everything the framework throws; `status()` is the exit status that main should return.
class error : public std::runtime_error {
 public:
  explicit error(const std::string& what, int status = exit_status::failure)
      : std::runtime_error(what), status_(status) {}
  [[nodiscard]] int status() const noexcept { return status_; }

 private:
  int status_;
};

/// A command line that cannot be parsed.
class usage_error : public error {
 public:
  explicit usage_error(const std::string& what) : error(what, exit_status::usage) {}
};

/// A config file or key that is wrong; the text names the key, what was found and what is allowed.
class config_error : public error {
 public:
  explicit config_error(const std::string& what) : error(what, exit_status::config) {}
};

/// Input data that is wrong; the text begins with file:line:column.
class data_error : public error {
 public:
  explicit data_error(const std::string& what) : error(what, exit_status::data) {}
};

/// What Paracel 0.3 reports as a std::invalid_argument: a file named by a config that does not exist (check_parse), a
/// text that is not an id (cvt). It is not an `error`: derived from both, it could not be caught as a std::exception.
class argument_error : public std::invalid_argument {
 public:
  argument_error(const std::string& what, int status) : std::invalid_argument(what), status_(status) {}
  [[nodiscard]] int status() const noexcept { return status_; }

 private:
  int status_;
};

/// A plug-in that cannot be loaded or a function of it that failed. The value it was to change is unchanged.
class plugin_error : public error {
 public:
  explicit plugin_error(const std::string& what) : error(what, exit_status::plugin) {}
};

/// Bytes that violate the protocol or a value encoding.
class protocol_error : public error {
 public:
  explicit protocol_error(const std::string& what) : error(what) {}
};

/// A missing key; the text names the key.
class key_error : public error {
 public:
  explicit key_error(const std::string& what) : error(what) {}
};

/// A value of another type than requested, or one that would lose precision. When a user function does not accept the
/// value or the delta, the status is exit_status::plugin.
class type_error : public error {
 public:
  explicit type_error(const std::string& what, int status = exit_status::failure) : error(what, status) {}
};

/// A request without a reply.
class network_error : public error {
 public:
  network_error(const std::string& what, bool may_have_been_applied, int status = exit_status::failure)
      : error(what, status), may_have_been_applied_(may_have_been_applied) {}
  /// True: the request left this process and it is unknown whether the server executed it.
  [[nodiscard]] bool may_have_been_applied() const noexcept { return may_have_been_applied_; }

 private:
  bool may_have_been_applied_;
};

/// The scheduler ended the job; the text is the first cause.
class job_error : public error {
 public:
  job_error(const std::string& what, int status) : error(what, status) {}
};

}  // namespace paracel
