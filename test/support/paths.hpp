// SPDX-License-Identifier: BSD-3-Clause
//
// Where the tests find the project's files and what was built. One file is compiled with these paths (paths.cpp), so
// that a compiler cache serves the objects of all others to every clone.
#pragma once

#include <string>

namespace paracel::test {

// The folder of the plug-ins in test/support/plugins, built.
std::string plugin_folder();
// The folder of the plug-ins that the framework ships, built.
std::string default_plugin_folder();
// The folder of the programs, built.
std::string program_folder();
// The root of the project's sources.
std::string source_folder();

}  // namespace paracel::test
