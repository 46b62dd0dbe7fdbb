// SPDX-License-Identifier: BSD-3-Clause
//
// Points with names, Paracel's fvec: `name<tab>x,x,...`, one point a line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/id_list.hpp>
#include <paracel/samples.hpp>

namespace paracel::alg {

/// Whether the first line that is not blank has that form. A collective; rank 0 reads the line.
bool is_fvec(Comm comm, const std::vector<std::string>& files);

/// Adds a line to `rows` (dense) and `names`; a blank line is skipped. Returns the error of a malformed line as
/// `column: found ..., want ...`, otherwise an empty string. The first line sets rows.columns if it is 0.
std::string parse_fvec_line(std::string_view line, sample_rows& rows, id_list& names);

/// Each worker loads its part of the points. `columns`: the coordinates that a point must have, or 0.
/// Throws: data_error file:line:column, the same on every worker. Blocks: a collective.
sample_rows load_fvec(Comm comm, const std::vector<std::string>& files, std::uint32_t columns, id_list& names);

// ---- haversine: the distance on a globe grows with the chord between two points, so the nearest centre is also the
// nearest one on the unit sphere, and the centre of a cluster is the mean of its points there, scaled to length 1, as
// for cosine.

/// Pairs of latitude and longitude in degrees as points of the unit sphere, three coordinates each.
std::vector<double> on_sphere(std::span<const double> degrees);
/// The reverse: latitudes in [-90, 90], longitudes in (-180, 180]; points may have any length; one of length 0 is at
/// (0, 0).
std::vector<double> on_globe(std::span<const double> points);
/// Turns rows of two columns, dense or sparse, into dense rows of three. Throws: data_error for another number of
/// columns, or a latitude beyond 90 degrees; `files`, `how`: where the rows came from, for the message.
void to_sphere(sample_rows& rows, const std::vector<std::string>& files, const sample_options& how = {});

}  // namespace paracel::alg
