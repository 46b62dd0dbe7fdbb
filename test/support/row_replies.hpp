// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/protocol.hpp"
#include "server/request/completion.hpp"
#include "test/support/recorded_reply.hpp"

namespace paracel::test {

/// A reply to a request on rows of floats: its second frame if there is one, otherwise its body.
struct row_reply {
  net::reply_header header;
  std::vector<std::byte> body;
  [[nodiscard]] net::status result() const { return header.result; }
  [[nodiscard]] std::string text() const { return std::string(net::text_of(body)); }
  [[nodiscard]] std::vector<float> numbers() const {
    std::vector<float> f(body.size() / sizeof(float));
    if (!f.empty()) std::memcpy(f.data(), body.data(), body.size());
    return f;
  }
};

/// Records replies until they are taken.
class row_replies final : public srv::reply_sink {
 public:
  void send(const net::peer&, const net::outgoing& message) override {
    const recorded_reply r(message);
    all.push_back({r.view.header, {r.value.begin(), r.value.end()}});
  }
  /// The oldest; `internal` if there is none.
  row_reply take() {
    if (all.empty()) return {{.result = net::status::internal}, {}};
    auto r = std::move(all.front());
    all.erase(all.begin());
    return r;
  }
  std::vector<row_reply> all;
};

}  // namespace paracel::test
