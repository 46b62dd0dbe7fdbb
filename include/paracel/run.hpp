// SPDX-License-Identifier: BSD-3-Clause
//
// The main of a program, in one call. With settings that are a struct (settings.hpp):
//
//   int main(int argc, char** argv) { return paracel::run<my_algorithm>(argc, argv); }
//
// With a schema and the config itself:
//
//   int main(int argc, char** argv) {
//     return paracel::run(argc, argv, schema(), [](const paracel::config& config) { my_algorithm(config).solve(); });
//   }
#pragma once

#include <functional>
#include <type_traits>

#include <paracel/comm.hpp>
#include <paracel/main_env.hpp>
#include <paracel/schema.hpp>
#include <paracel/settings.hpp>

namespace paracel {

/// Runs `solve` on the config that --cfg_file names, after checking it against the schema. The command line is
///
///     --cfg_file FILE      the config
///     --set KEY=VALUE      replaces a key of the config; VALUE is JSON, or else a text; may be repeated
///     --check FILE         check the config, print what prun.py needs from it as JSON (or the error), and exit
///     --no_files           with --check: skip files and folders, which are on other hosts
///     --help, --schema     print the keys of the config, as text and as JSON, and exit
///     --server_info TEXT   the address of the job; prun.py passes it
///
/// each with one dash or two, and with = or a space before its value. An exception becomes one line on stderr,
/// `program: error: ...` with the schema's program name, and ends the process; so does an uncaught exception in another
/// thread. std::exit(0) is equivalent to returning once every paralg has been destroyed; before that it is a failure,
/// with one line and status 1. Returns: the exit status: 0, that of a paracel::error, or 1 for any other exception.
int run(int argc, char** argv, const config_schema& schema, const std::function<void(const config& settings)>& solve);

/// The same for an algorithm whose settings are a struct built from the config. What its constructor rejects, --check
/// and prun.py reject too.
template <class Settings, class F>
int run(int argc, char** argv, config_schema schema, const F& solve) {
  schema.also([](const config& c) { (void)Settings(c); });
  return run(argc, argv, schema, [&](const config& c) { solve(Settings(c)); });
}

/// The same for a class: `settings_type` is the struct of its settings, its constructor takes them, alone or after a
/// Comm and the address of the servers ("": those of the job), and `solve()` does the work. What the settings reject,
/// --check and prun.py reject too.
template <class Program>
int run(int argc, char** argv) {
  using settings = typename Program::settings_type;
  return run(argc, argv, schema_of<settings>(), [](const config& from) {
    const auto read = read_settings<settings>(from);
    if constexpr (std::is_constructible_v<Program, const settings&>) Program(read).solve();
    else Program(Comm(), "", read).solve();
  });
}

/// The same for a program without a config: the command line is its own, after MPI has removed its options.
int run(int argc, char** argv, const std::function<void()>& solve);

/// The config of the program that `run` is running; null without one. For logging what was run.
const config* running_config() noexcept;

}  // namespace paracel
