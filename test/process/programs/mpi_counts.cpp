// SPDX-License-Identifier: BSD-3-Clause
//
// Messages and collectives that are longer than MPI can count, which is made to end at 1000 bytes. Prints "complete".
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/paralg.hpp>
#include <paracel/run.hpp>

namespace {

/// What `from` sends to `to`; lengths differ.
std::string block(std::size_t from, std::size_t to, std::size_t length) {
  std::string b(length + 7 * from + 3 * to, '\0');
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<char>(i * 31 + from * 7 + to);
  return b;
}

void expect(bool right, const std::string& what) {
  if (!right) throw paracel::error(what + ": got other bytes than were sent");
}

void exchange(paracel::Comm comm, std::size_t length) {
  const auto me = comm.get_rank();
  const auto size = comm.get_size();
  const auto text = " of " + std::to_string(length) + " bytes";
  std::string b;
  if (me == 1 % size) b = block(1, 1, length);
  comm.bcast(b, 1 % size);
  expect(b == block(1, 1, length), "bcast" + text);

  const auto all = comm.allgather(block(me, 0, length));
  for (std::size_t r = 0; r < size; ++r) expect(all.at(r) == block(r, 0, length), "allgather" + text);

  std::vector<std::string> out, in;
  for (std::size_t r = 0; r < size; ++r) out.push_back(me == r ? "" : block(me, r, r == 0 ? 0 : length));
  comm.alltoall(out, in);
  for (std::size_t r = 0; r < size; ++r)
    expect(in.at(r) == (me == r ? "" : block(r, me, me == 0 ? 0 : length)), "alltoall" + text);

  const auto next = static_cast<int>((me + 1) % size);
  const auto previous = static_cast<int>((me + size - 1) % size);
  auto sent = comm.isend(block(me, 9, length), next, 3);
  std::string got;
  comm.recv(got, previous, 3);
  expect(got == block(static_cast<std::size_t>(previous), 9, length), "a message" + text);

  std::vector<double> sum(length / 8, 1.0);
  comm.allreduce(sum);
  expect(sum == std::vector<double>(length / 8, static_cast<double>(size)), "allreduce" + text);
}

}  // namespace

int main(int argc, char** argv) {
  ::setenv("PARACEL_MPI_LARGEST_COUNT", "1000", 1);
  return paracel::run(argc, argv, [&] {
    paracel::paralg job{paracel::Comm()};
    auto comm = job.get_comm();
    for (const std::size_t length : {0U, 1U, 333U, 334U, 999U, 1000U, 1001U, 2000U, 12'345U, 400'000U})
      exchange(comm, length);
    if (comm.get_rank() == 0) std::printf("complete\n");
  });
}
