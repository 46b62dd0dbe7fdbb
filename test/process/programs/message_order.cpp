// SPDX-License-Identifier: BSD-3-Clause
//
// Two workers: which receive gets which message, by MPI's rules, and that barriers and all-reduces of a communicator
// are independent of what collectives send. Prints "in order".
#include <cstdio>
#include <string>
#include <vector>

#include <paracel/collectives.hpp>
#include <paracel/comm.hpp>
#include <paracel/paralg.hpp>
#include <paracel/run.hpp>

namespace {

void expect(int got, int wanted, const char* what) {
  if (got != wanted)
    throw paracel::error(std::string(what) + ": got " + std::to_string(got) + ", want " + std::to_string(wanted));
}

void send_all(paracel::Comm& comm) {
  comm.send(1, 1, 1);
  comm.send(2, 1, 2);
  comm.send(3, 1, 2);
  comm.sync();
  comm.sync();
  comm.send(4, 1, 1);
  comm.send(5, 1, 2);
}

void receive_all(paracel::Comm& comm) {
  int a = 0, b = 0;
  comm.sync();  // all have been sent
  comm.recv(a, 0, 2);
  expect(a, 2, "the first with tag 2");
  comm.recv(a, 0, paracel::any_tag);
  expect(a, 1, "the first of the others");
  comm.recv(a, paracel::any_source, paracel::any_tag);
  expect(a, 3, "the last");
  auto first = comm.irecv(a, 0, paracel::any_tag);
  comm.sync();
  comm.recv(b, 0, 2);
  first.wait();
  expect(a, 4, "what was asked for first");
  expect(b, 5, "what was asked for later");
}

void send_beside_barriers(const paracel::Comm& of) {
  paracel::Comm comm = of;
  paracel::collectives all(comm);
  std::vector<double> v(30'000, 1 + static_cast<double>(all.rank()));
  if (all.rank() == 0) all.send(1, 7);
  comm.sync();
  comm.allreduce(v);
  expect(static_cast<int>(v.back()), 3, "an all-reduce");
  if (all.rank() == 1) expect(all.receive<int>(0), 7, "a message of collectives");
  all.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return paracel::run(argc, argv, [&] {
    paracel::paralg job{paracel::Comm()};
    auto comm = job.get_comm();
    if (comm.get_size() != 2) throw paracel::usage_error("message_order: want two workers");
    if (comm.get_rank() == 0) send_all(comm);
    else receive_all(comm);
    send_beside_barriers(comm);
    send_beside_barriers(comm.split(0));
    if (comm.get_rank() == 0) std::printf("in order\n");
  });
}
