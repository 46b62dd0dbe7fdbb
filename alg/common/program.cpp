// SPDX-License-Identifier: BSD-3-Clause
#include "program.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>

#include <gflags/gflags.h>
#include <paracel/error.hpp>
#include <paracel/main_env.hpp>

DEFINE_string(server_info, "", "where the job's scheduler is; prun.py passes it");
DEFINE_string(cfg_file, "", "the config");
DEFINE_bool(schema, false, "print the keys of the config as JSON");

// gflags calls this when it cannot understand the command line; it says why on stderr itself.
namespace GFLAGS_NAMESPACE {
extern void (*gflags_exitfunc)(int);
}

namespace paracel::alg {

int run_program(int argc, char** argv, const config_schema& schema,
                const std::function<void(const config&, const std::string&)>& solve) {
  const std::string name = schema.program();
  try {
    main_env environment(argc, argv);
    GFLAGS_NAMESPACE::gflags_exitfunc = [](int) { std::_Exit(exit_status::usage); };
    gflags::ParseCommandLineNonHelpFlags(&argc, &argv, true);
    if (gflags::GetCommandLineFlagInfoOrDie("help").current_value == "true") {
      std::fputs(schema.help_text().c_str(), stdout);
      return exit_status::ok;
    }
    if (FLAGS_schema) {
      std::fputs(schema.to_json().c_str(), stdout);
      return exit_status::ok;
    }
    if (argc > 1) throw usage_error("found " + std::string(argv[1]) + ", want --cfg_file FILE; see --help");
    solve(schema.check(FLAGS_cfg_file), FLAGS_server_info);
    return exit_status::ok;
  } catch (const error& e) {
    std::fprintf(stderr, "%s: error: %s\n", name.c_str(), e.what());
    return e.status();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: error: %s\n", name.c_str(), e.what());
    return exit_status::failure;
  }
}

}  // namespace paracel::alg
