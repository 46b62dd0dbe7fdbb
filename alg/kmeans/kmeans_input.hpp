// SPDX-License-Identifier: BSD-3-Clause
//
// Points with names, Paracel's fvec: `name<tab>x,x,...`, one point a line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/id_list.hpp>
#include <paracel/samples.hpp>

namespace paracel::alg {

/// Whether the first line that is not blank has that form. A collective: rank 0 looks.
bool is_fvec(Comm comm, const std::vector<std::string>& files);

/// Adds a line to `rows` (dense) and `names`; a blank line is skipped. Returns the error of a malformed line as
/// `column: found ..., want ...`, otherwise an empty text. The first line sets rows.columns if it is 0.
std::string parse_fvec_line(std::string_view line, sample_rows& rows, id_list& names);

/// Each worker loads its part of the points. `columns`: the coordinates that a point must have, or 0.
/// Throws: data_error file:line:column, the same on every worker. Blocks: a collective.
sample_rows load_fvec(Comm comm, const std::vector<std::string>& files, std::uint32_t columns, id_list& names);

}  // namespace paracel::alg
