// SPDX-License-Identifier: BSD-3-Clause
//
// One process, one worker, one server: the only place where server and worker meet.
#include <memory>
#include <utility>

#include "net/inproc_transport.hpp"
#include "server/server_node.hpp"
#include "worker/embedded.hpp"
#include "worker/session.hpp"

namespace paracel {

std::shared_ptr<session> start_embedded_job() {
  auto transport = std::make_shared<net::inproc_transport>();
  srv::node_options o;
  o.bind = "inproc://server";
  auto node = std::make_shared<srv::server_node>(*transport, std::move(o));
  membership members;
  members.servers.push_back(node->addresses());
  node->set_membership(members);
  auto* object = &node->object();
  return session::alone(std::move(transport), std::move(members), std::move(node),
                        [object](const std::string& folder) { object->allow_plugin_folder(folder); });
}

}  // namespace paracel
