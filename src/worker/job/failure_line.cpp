// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/failure_line.hpp"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <utility>

#include <paracel/error.hpp>

#include "core/failure_text.hpp"

namespace paracel {

namespace {

/// Never destroyed: it may be needed while the process ends.
std::string& name_of_this() {
  static auto* name = new std::string("program");
  return *name;
}

}  // namespace

std::string program_name(const char* path) {
  const std::string whole = path != nullptr && *path != '\0' ? path : "program";
  return whole.substr(whole.rfind('/') + 1);
}

int tell_failure(const std::string& program, const std::exception_ptr& failure) noexcept {
  const auto say = [&](const char* what) {
    std::fflush(stdout);  // output printed before the failure comes first
    std::fprintf(stderr, "%s: error: %s\n", program.c_str(), what);
  };
  try {
    std::rethrow_exception(failure);
  } catch (const error& e) {
    say(e.what());
    return e.status();
  } catch (const argument_error& e) {
    say(e.what());
    return e.status();
  } catch (const std::exception& e) {
    say(failure_text(e));
  } catch (...) {
    say("an exception that is not a std::exception");
  }
  return exit_status::failure;
}

void end_with(int status) noexcept {
  static int wanted = exit_status::ok;
  if (std::exchange(wanted, status) != exit_status::ok) return;
  on_exit(
      [](int said, void*) {
        if (said != exit_status::ok) return;
        std::cout.flush();
        std::fflush(nullptr);
        std::_Exit(wanted);
      },
      nullptr);
}

void end_on_uncaught(const std::string& program) {
  name_of_this() = program;
  std::set_terminate([] {
    const auto failure = std::current_exception();
    if (!failure) std::abort();
    const int status = tell_failure(name_of_this(), failure);
    std::fflush(nullptr);
    std::_Exit(status);
  });
}

}  // namespace paracel
