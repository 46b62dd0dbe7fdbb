// SPDX-License-Identifier: BSD-3-Clause
//
// Programs whose last operation fails when no call waits for it any more. They return 0 from main.
//
//   last_update CONSISTENCY fits | another_size | fold | uncommitted
//
// `messages` fits, too, after a message from each worker to the next.
#include <cstdio>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>

int main(int argc, char** argv) {
  paracel::main_env env(argc, argv);
  if (argc < 3) return 2;
  const std::string consistency = argv[1];
  const std::string how = argv[2];
  try {
    paracel::paralg a{paracel::Comm()};
    a.set_consistency(consistency == "bsp"   ? paracel::consistency_model::bsp
                      : consistency == "ssp" ? paracel::consistency_model::ssp
                                             : paracel::consistency_model::asp);
    if (how == "messages") {
      const auto rank = static_cast<int>(a.get_worker_id());
      const auto size = static_cast<int>(a.get_worker_size());
      int got = -1;
      a.get_comm().send(rank, (rank + 1) % size, 0);
      a.get_comm().recv(got, (rank + size - 1) % size, 0);
      if (got != (rank + size - 1) % size) return 9;
    }
    if (a.get_worker_id() == 0) a.paracel_write("doubles", std::vector<double>{1, 2});
    a.paracel_sync();
    if (how == "fold") {  // the first creates the value, the second does not fit it
      const std::vector<double> first{1, 2};
      const std::vector<double> second{1, 2, 3};
      a.paracel_update_default("new", first, first);
      a.paracel_update_default("new", second, second);
      a.iter_commit();
    } else if (how == "uncommitted") {
      a.paracel_update("doubles", std::vector<double>{1, 1});
    } else {
      const bool fits = how == "fits" || how == "messages";
      a.paracel_update("doubles", std::vector<double>(fits ? 2 : 3, 1.0));
      if (fits) a.iter_commit();
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "last_update: %s\n", e.what());
    return 9;  // thrown before the end
  }
  return 0;
}
