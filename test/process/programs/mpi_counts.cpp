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

using bytes = std::vector<std::byte>;

/// What `from` sends to `to`; lengths differ.
bytes block(std::size_t from, std::size_t to, std::size_t length) {
  bytes b(length + 7 * from + 3 * to);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<std::byte>(i * 31 + from * 7 + to);
  return b;
}

void expect(bool right, const std::string& what) {
  if (!right) throw paracel::error(what + ": got other bytes than were sent");
}

void exchange(paracel::Comm comm, std::size_t length) {
  auto& over = *comm.backend();
  const auto me = over.rank();
  const auto size = over.size();
  const auto text = " of " + std::to_string(length) + " bytes";
  bytes b;
  if (me == 1 % size) b = block(1, 1, length);
  over.bcast(b, 1 % size);
  expect(b == block(1, 1, length), "bcast" + text);

  const auto all = over.allgather(block(me, 0, length));
  for (std::size_t r = 0; r < size; ++r) expect(all.at(r) == block(r, 0, length), "allgather" + text);

  std::vector<bytes> out;
  for (std::size_t r = 0; r < size; ++r) out.push_back(me == r ? bytes() : block(me, r, r == 0 ? 0 : length));
  const auto in = over.alltoall(out);
  for (std::size_t r = 0; r < size; ++r)
    expect(in.at(r) == (me == r ? bytes() : block(r, me, me == 0 ? 0 : length)), "alltoall" + text);

  const auto next = static_cast<int>((me + 1) % size);
  const auto previous = static_cast<int>((me + size - 1) % size);
  over.send({next, 3, 0}, block(me, 9, length), false, {});
  const auto got = over.take(over.post({previous, 3, 0}), {});
  expect(got && got->bytes == block(static_cast<std::size_t>(previous), 9, length), "a message" + text);

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
