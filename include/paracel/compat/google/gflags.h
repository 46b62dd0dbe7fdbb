// SPDX-License-Identifier: BSD-3-Clause
//
// The name under which Paracel 0.3's programs include gflags. Its namespace `google` still exists.
#pragma once

#include <gflags/gflags.h>
