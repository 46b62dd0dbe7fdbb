// SPDX-License-Identifier: BSD-3-Clause
//
// Pushes one value of this size and pulls it back: ps_large BYTES.
#include <cstdio>
#include <cstdlib>

#include "ps/ps.h"

int main(int argc, char** argv) {
  const std::size_t n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000;
  if (ps::IsServer()) {
    auto* server = new ps::KVServer<char>(0);
    server->set_request_handle([](const ps::KVMeta& meta, const ps::KVPairs<char>& data, ps::KVServer<char>* self) {
      CHECK_EQ(data.lens.size(), 0U);
      self->Response(meta, data);
    });
    ps::RegisterExitCallback([server] { delete server; });
  }
  ps::Start(0);
  if (ps::IsWorker()) {
    ps::KVWorker<char> kv(0, 0);
    ps::SArray<char> sent(n), got;
    for (std::size_t i = 0; i < n; i += 4096) sent[i] = static_cast<char>(i / 4096 % 251);
    kv.Wait(kv.ZPushPull(ps::SArray<ps::Key>{5}, sent, &got));
    CHECK_EQ(got.size(), n);
    for (std::size_t i = 0; i < n; i += 4096) CHECK_EQ(got[i], static_cast<char>(i / 4096 % 251)) << "byte " << i;
    std::printf("%zu bytes came back\n", n);
  }
  ps::Finalize(0, true);
  return 0;
}
