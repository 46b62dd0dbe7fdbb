// SPDX-License-Identifier: BSD-3-Clause
#include "test/support/paths.hpp"

namespace paracel::test {

std::string plugin_folder() { return PARACEL_BUILD_DIR "/lib/test_plugins"; }
std::string default_plugin_folder() { return PARACEL_BUILD_DIR "/lib"; }
std::string program_folder() { return PARACEL_BUILD_DIR "/bin"; }
std::string source_folder() { return PARACEL_SOURCE_DIR; }

}  // namespace paracel::test
