// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/run.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/error.hpp>

#include "config/json_document.hpp"
#include "config/launch_facts.hpp"
#include "worker/job/failure_line.hpp"
#include "worker/program_config.hpp"

namespace paracel {

namespace {

struct command_line {
  std::string cfg_file;
  std::optional<std::string> checked_file;
  std::vector<std::string> overrides;
  bool no_files = false;
  bool help = false;
  bool schema = false;
};

/// Throws: usage_error with what was found.
command_line parse(int argc, char** argv) {
  command_line c;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto refuse = [&](const std::string& why) {
      throw usage_error("found " + std::string(word) + why + ", want --cfg_file FILE; see --help");
    };
    if (!word.starts_with('-')) refuse("");
    const auto equals = word.find('=');
    const bool has_value = equals != std::string_view::npos;
    auto name = word.substr(0, equals);
    name.remove_prefix(name.starts_with("--") ? 2 : 1);
    const auto refuse_unknown = [&] {
      const auto near = nearest_name(name, {"cfg_file", "set", "check", "no_files", "help", "schema"});
      if (near.empty()) refuse("");
      throw usage_error("unknown option " + std::string(word.substr(0, equals)) + ": did you mean --" + near +
                        "? See --help");
    };
    const auto value = [&]() -> std::string {
      if (has_value) return std::string(word.substr(equals + 1));
      if (i + 1 == argc) refuse(" without its value");
      return argv[++i];
    };
    if (name == "cfg_file") c.cfg_file = value();
    else if (name == "set") c.overrides.push_back(value());
    else if (name == "check") c.checked_file = value();
    else if (name == "no_files" && !has_value) c.no_files = true;
    else if (name == "server_info") value();  // main_env handles it
    else if ((name == "help" || name == "h") && !has_value) c.help = true;
    else if (name == "schema" && !has_value) c.schema = true;
    else refuse_unknown();
  }
  return c;
}

/// --check. Returns: the exit status.
int answer_check(const config_schema& schema, const command_line& c) {
  const auto answer = [](const std::string& json) { std::printf("%s\n", json.c_str()); };
  try {
    answer(check_answer(schema, *c.checked_file, !c.no_files, c.overrides));
    return exit_status::ok;
  } catch (const error& e) {
    answer(failure_json(e));
    throw;
  }
}

/// prun.py says it of a job.
bool is_launched() { return std::getenv("PARACEL_RENDEZVOUS") != nullptr; }

/// For a person.
void say_summary(const config_schema& schema, const config& settings, std::chrono::steady_clock::time_point begin) {
  const auto output = facts_of(settings, schema).output;
  std::fflush(stdout);
  std::fprintf(stderr, "%s: done in %.2f s%s%s\n", schema.program().c_str(),
               std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
               output.empty() ? "" : ", results in ", output.c_str());
}

const config* running = nullptr;

struct announced {
  explicit announced(const config& settings) { running = &settings; }
  ~announced() { running = nullptr; }
  announced(const announced&) = delete;
  announced& operator=(const announced&) = delete;
};

}  // namespace

const config* running_config() noexcept { return running; }

int run(int argc, char** argv, const config_schema& schema, const std::function<void(const config&)>& solve) try {
  const auto c = parse(argc, argv);
  if (c.help || c.schema) {
    const auto text = c.help ? schema.help_text() : schema.to_json();
    std::fputs(text.c_str(), stdout);
    return exit_status::ok;
  }
  if (c.checked_file) return answer_check(schema, c);
  main_env environment(argc, argv);
  const auto settings = accept_config(schema, c.cfg_file, c.overrides);
  const announced now(settings);
  const auto begin = std::chrono::steady_clock::now();
  solve(settings);
  if (!is_launched() && isatty(STDERR_FILENO) == 1) say_summary(schema, settings, begin);
  return exit_status::ok;
} catch (...) {
  return tell_failure(schema.program(), std::current_exception());
}

int run(int argc, char** argv, const std::function<void()>& solve) try {
  main_env environment(argc, argv);
  solve();
  return exit_status::ok;
} catch (...) {
  return tell_failure(program_name(argc > 0 ? argv[0] : nullptr), std::current_exception());
}

}  // namespace paracel
