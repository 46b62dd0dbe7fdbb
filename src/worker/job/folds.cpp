// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/folds.hpp"

#include <string>

#include "client/server_group.hpp"
#include "worker/job/request_failures.hpp"

namespace paracel {

void fold_everywhere(server_group& client, std::uint32_t clock) {
  for (bool more = true; more;) {
    client.refresh_membership();
    const auto epoch = client.servers().epoch;
    auto result = net::status::ok;
    std::string text;
    more = false;
    client.broadcast({.what = net::verb::fold, .clock = clock}, {}, {}, [&](const kv_result& r) {
      more = more || (r.header.flags & net::reply_more) != 0;
      if (r.ok() || result != net::status::ok) return;
      result = r.header.result;
      text = r.text();
    });
    client.refresh_membership();
    if (client.servers().epoch != epoch) more = true;  // the head of a partition may have been its replica until now
    else if (result != net::status::ok) throw_status(result, text, "folding staged updates");
  }
}

}  // namespace paracel
