// SPDX-License-Identifier: BSD-3-Clause
//
// A shared library that is not a plug-in.
extern "C" int answer() { return 42; }
