// SPDX-License-Identifier: BSD-3-Clause
//
// One process, one worker, one server: the only file that uses both server and worker code.
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "config/json_document.hpp"
#include "net/inproc_transport.hpp"
#include "net/trace_file.hpp"
#include "server/node/server_node.hpp"
#include "server/plugin/plugin_registry.hpp"
#include "worker/embedded.hpp"
#include "worker/job/session.hpp"

namespace paracel {

namespace {

/// The same as prun.py's for its servers: those of the configs, of the program, and of the framework.
std::vector<std::string> plugin_folders() {
  auto folders = config_folders();
  std::error_code failed;
  if (const auto program = std::filesystem::read_symlink("/proc/self/exe", failed); !failed)
    folders.push_back(program.parent_path().string());
  const auto framework = srv::framework_folder();
  folders.push_back(framework);
  folders.push_back(framework + "/paracel");
  folders.push_back(framework + "/../_plugins");  // of the Python package
  return folders;
}

}  // namespace

std::shared_ptr<session> start_embedded_job() {
  net::start_tracing_if_asked();
  auto transport = std::make_shared<net::inproc_transport>();
  srv::node_options o;
  o.bind = "inproc://server";
  o.server.plugin_folders = plugin_folders();
  auto node = std::make_shared<srv::server_node>(*transport, std::move(o));
  membership members;
  members.servers.push_back(node->addresses());
  node->set_membership(members);
  auto* object = &node->object();
  return session::alone(std::move(transport), std::move(members), std::move(node),
                        [object](const std::string& folder) { object->allow_plugin_folder(folder); });
}

}  // namespace paracel
