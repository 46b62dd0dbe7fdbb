// SPDX-License-Identifier: BSD-3-Clause
//
// The macros of dmlc's logging that programs written for ps-lite use. A CHECK that fails and LOG(FATAL) write their
// line and throw dmlc::Error; nothing ends the process by itself. Lines go to standard error, one write each.
#pragma once

#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

namespace dmlc {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class log_level : int { info, warning, error, fatal };

/// Does nothing: the program's name is in the lines already (ps::Start).
inline void InitLogging(const char* /*argv0*/) {}

/// Writes one line: `[12:34:56] file.cc:7: text`. Thread-safety: any thread.
void write_log_line(log_level level, const char* file, int line, const std::string& text);

/// Collects a line, and writes it when it ends.
class LogMessage {
 public:
  LogMessage(const char* file, int line, log_level level = log_level::info) : file_(file), line_(line), level_(level) {}
  LogMessage(const LogMessage&) = delete;
  LogMessage& operator=(const LogMessage&) = delete;
  ~LogMessage() { write_log_line(level_, file_, line_, text_.str()); }
  std::ostream& stream() { return text_; }

 private:
  const char* file_;
  int line_;
  log_level level_;
  std::ostringstream text_;
};

class LogMessageFatal {
 public:
  LogMessageFatal(const char* file, int line) : file_(file), line_(line) {}
  LogMessageFatal(const LogMessageFatal&) = delete;
  LogMessageFatal& operator=(const LogMessageFatal&) = delete;
  ~LogMessageFatal() noexcept(false) {
    write_log_line(log_level::fatal, file_, line_, text_.str());
    throw Error(std::string(file_) + ':' + std::to_string(line_) + ": " + text_.str());
  }
  std::ostream& stream() { return text_; }

 private:
  const char* file_;
  int line_;
  std::ostringstream text_;
};

/// Makes `condition ? (void)0 : voidify() & stream` an expression.
struct LogMessageVoidify {
  void operator&(std::ostream& /*stream*/) const {}
};

template <class X, class Y>
std::unique_ptr<std::string> compared(const X& x, const Y& y) {
  std::ostringstream text;
  text << " (" << x << " vs. " << y << ") ";
  return std::make_unique<std::string>(text.str());
}

// Comparisons of a signed number with an unsigned one, as programs write them, are not worth a warning.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
#define PARACEL_PS_COMPARISON(name, op)                                 \
  template <class X, class Y>                                           \
  std::unique_ptr<std::string> LogCheck##name(const X& x, const Y& y) { \
    return x op y ? nullptr : compared(x, y);                           \
  }
PARACEL_PS_COMPARISON(_LT, <)
PARACEL_PS_COMPARISON(_GT, >)
PARACEL_PS_COMPARISON(_LE, <=)
PARACEL_PS_COMPARISON(_GE, >=)
PARACEL_PS_COMPARISON(_EQ, ==)
PARACEL_PS_COMPARISON(_NE, !=)
#undef PARACEL_PS_COMPARISON
#pragma GCC diagnostic pop

template <class P>
P not_null(const char* file, int line, const char* name, P pointer) {
  if (pointer == nullptr) LogMessageFatal(file, line).stream() << "Check notnull: " << name << ' ';
  return pointer;
}

}  // namespace dmlc

#define LOG_INFO ::dmlc::LogMessage(__FILE__, __LINE__)
#define LOG_WARNING ::dmlc::LogMessage(__FILE__, __LINE__, ::dmlc::log_level::warning)
#define LOG_ERROR ::dmlc::LogMessage(__FILE__, __LINE__, ::dmlc::log_level::error)
#define LOG_FATAL ::dmlc::LogMessageFatal(__FILE__, __LINE__)
#define LOG_QFATAL LOG_FATAL
#define LOG(severity) LOG_##severity.stream()
#define LG LOG_INFO.stream()
#define LL LOG_ERROR.stream()
#define LOG_IF(severity, condition) !(condition) ? (void)0 : ::dmlc::LogMessageVoidify() & LOG(severity)

// A loop that throws in its first round: an if would take an else of the program.
#define CHECK(x) \
  while (!(x)) ::dmlc::LogMessageFatal(__FILE__, __LINE__).stream() << "Check failed: " #x << ' '
#define PARACEL_PS_CHECK(name, op, x, y)                            \
  while (const auto paracel_ps_text = ::dmlc::LogCheck##name(x, y)) \
  ::dmlc::LogMessageFatal(__FILE__, __LINE__).stream() << "Check failed: " << #x " " #op " " #y << *paracel_ps_text
#define CHECK_LT(x, y) PARACEL_PS_CHECK(_LT, <, x, y)
#define CHECK_GT(x, y) PARACEL_PS_CHECK(_GT, >, x, y)
#define CHECK_LE(x, y) PARACEL_PS_CHECK(_LE, <=, x, y)
#define CHECK_GE(x, y) PARACEL_PS_CHECK(_GE, >=, x, y)
#define CHECK_EQ(x, y) PARACEL_PS_CHECK(_EQ, ==, x, y)
#define CHECK_NE(x, y) PARACEL_PS_CHECK(_NE, !=, x, y)
#define CHECK_NOTNULL(x) ::dmlc::not_null(__FILE__, __LINE__, #x, x)

#ifdef NDEBUG
#define PARACEL_PS_IN_DEBUG(statement) \
  while (false) statement
#else
#define PARACEL_PS_IN_DEBUG(statement) statement
#endif
#define DCHECK(x) PARACEL_PS_IN_DEBUG(CHECK(x))
#define DCHECK_LT(x, y) PARACEL_PS_IN_DEBUG(CHECK_LT(x, y))
#define DCHECK_GT(x, y) PARACEL_PS_IN_DEBUG(CHECK_GT(x, y))
#define DCHECK_LE(x, y) PARACEL_PS_IN_DEBUG(CHECK_LE(x, y))
#define DCHECK_GE(x, y) PARACEL_PS_IN_DEBUG(CHECK_GE(x, y))
#define DCHECK_EQ(x, y) PARACEL_PS_IN_DEBUG(CHECK_EQ(x, y))
#define DCHECK_NE(x, y) PARACEL_PS_IN_DEBUG(CHECK_NE(x, y))
#ifdef NDEBUG
#define DLOG(severity) true ? (void)0 : ::dmlc::LogMessageVoidify() & LOG(severity)
#else
#define DLOG(severity) LOG(severity)
#endif
#define DLOG_IF(severity, condition) LOG_IF(severity, condition)
