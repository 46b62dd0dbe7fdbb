// SPDX-License-Identifier: BSD-3-Clause
//
// The entries of all input files, each worker its part of them.
#pragma once

#include <string>
#include <vector>

#include "load/format/entry_parser.hpp"
#include "paracel/comm.hpp"
#include "paracel/sparse.hpp"

namespace paracel {

/// Reads this worker's share of all files.
/// Throws: data_error file:line:column, the same on every worker. Blocks: a collective.
local_entries read_entries(Comm comm, const std::vector<std::string>& files, const entry_options& options,
                           entry_use use);

/// The ids of an entry.
struct entry_ids {
  std::string row, column;
};
/// A description of the place of a duplicate entry: file:line:1, or the files' names where they
/// cannot be read again. `either_way`: (column, row) is the same entry. Blocks: a collective. Cost: reads all files
/// again.
std::string place_of_second(Comm comm, const std::vector<std::string>& files, const entry_options& options,
                            const entry_ids& wanted, entry_role role, bool either_way);

}  // namespace paracel
