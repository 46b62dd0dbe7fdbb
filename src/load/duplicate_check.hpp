// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "load/csr_builder.hpp"
#include "load/format/entry_layout.hpp"
#include "load/ids/global_ids.hpp"
#include "paracel/comm.hpp"
#include "paracel/sparse.hpp"

namespace paracel {

/// If any worker has a duplicate entry where these are not allowed, fails the load on all of them, with the place of
/// the second one. `row_ids`: of this worker's rows; `columns`: which worker has which column's id. Throws: data_error,
/// the same on every worker. Blocks: a collective.
void duplicate_check(Comm comm, const duplicate_entry& twice, const id_list& row_ids, const global_ids& columns,
                     const std::vector<std::string>& files, const entry_options& options, entry_role role,
                     bool either_way);

}  // namespace paracel
