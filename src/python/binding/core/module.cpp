// SPDX-License-Identifier: BSD-3-Clause
//
// paracel._core: the framework for Python. The package re-exports what users call.
#include "job.hpp"

NB_MODULE(_core, m) {
  using namespace paracel::py;
  bind_host(m);
  nb::class_<paralg_object> algorithm(m, "Paralg", nb::is_weak_referenceable());
  algorithm.def(nb::init<>());
  bind_job(algorithm, m);
  bind_parameters(algorithm, m);
  bind_key_sets(algorithm, m);
  bind_comm(algorithm, m);
  bind_arrays(m);
  bind_loading(algorithm, m);
  bind_queue(m);
  bind_schema(m);
}
