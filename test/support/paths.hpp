// SPDX-License-Identifier: BSD-3-Clause
//
// Paths of the project's files and of the build. Only one file is compiled with these paths (paths.cpp), so that a
// compiler cache can share all other objects between clones.
#pragma once

#include <string>

namespace paracel::test {

// The folder of the plug-ins built from test/support/plugins.
std::string plugin_folder();
// The folder of the framework's built plug-ins.
std::string default_plugin_folder();
// The folder of the programs, built.
std::string program_folder();
// The root of the project's sources.
std::string source_folder();

}  // namespace paracel::test
