// SPDX-License-Identifier: BSD-3-Clause
//
// paracel._core: the framework for Python. paracel/__init__.py re-exports what users call.
#include <nanobind/nanobind.h>

#include <paracel/error.hpp>

namespace nb = nanobind;

NB_MODULE(_core, m) {
  m.attr("failure_status") = paracel::exit_status::failure;
}
