// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "kv.hpp"
#include "paracel_types.hpp"

namespace paracel {

/// In 0.3 the tables of a server process. Servers keep theirs elsewhere: these are empty until the program fills them.
inline kvs<str_type, int> ssp_tbl;
inline kvs<str_type, str_type> tbl_store;

}  // namespace paracel
