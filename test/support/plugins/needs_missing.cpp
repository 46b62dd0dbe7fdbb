// SPDX-License-Identifier: BSD-3-Clause
//
// A plug-in that is not linked with a library that it needs.
#include <paracel/update.hpp>

double defined_nowhere(double a, double b);

extern "C" {
extern paracel::update_result uses_missing;
}
paracel::update_result uses_missing = paracel::update_proxy([](double a, double b) { return defined_nowhere(a, b); });
