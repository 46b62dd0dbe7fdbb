// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <gflags/gflags.h>
#include <paracel/paralg.hpp>

#include "lr.hpp"

DEFINE_string(server_info, "", "where the job's scheduler is; prun.py passes it");
DEFINE_string(cfg_file, "", "the config");
DEFINE_bool(schema, false, "print the keys of the config as JSON");

// gflags calls this when it cannot understand the command line; it says why on stderr itself.
namespace GFLAGS_NAMESPACE {
extern void (*gflags_exitfunc)(int);
}

int main(int argc, char** argv) {
  try {
    paracel::main_env environment(argc, argv);
    GFLAGS_NAMESPACE::gflags_exitfunc = [](int) { std::_Exit(paracel::exit_status::usage); };
    gflags::ParseCommandLineNonHelpFlags(&argc, &argv, true);
    const auto schema = paracel::alg::lr_schema();
    if (gflags::GetCommandLineFlagInfoOrDie("help").current_value == "true") {
      std::fputs(schema.help_text().c_str(), stdout);
      return paracel::exit_status::ok;
    }
    if (FLAGS_schema) {
      std::fputs(schema.to_json().c_str(), stdout);
      return paracel::exit_status::ok;
    }
    if (argc > 1) throw paracel::usage_error("found " + std::string(argv[1]) + ", want --cfg_file FILE; see --help");
    const paracel::alg::lr_settings settings(schema.check(FLAGS_cfg_file));
    paracel::alg::logistic_regression solver(paracel::Comm(), FLAGS_server_info, settings);
    solver.solve();
    return paracel::exit_status::ok;
  } catch (const paracel::error& e) {
    std::fprintf(stderr, "lr: error: %s\n", e.what());
    return e.status();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "lr: error: %s\n", e.what());
    return paracel::exit_status::failure;
  }
}
