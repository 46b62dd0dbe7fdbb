// SPDX-License-Identifier: BSD-3-Clause
//
// Graphs held by one worker, with Paracel's interface: `digraph`, `undirected_graph`, `bigraph`,
// `bigraph_continuous`.
//
// Added edges go to a buffer. The first call that reads edges turns it into compressed adjacency (one sort), and so
// does the next one after more edges were added. Vertices are visited in ascending order of their ids, and the edges of
// a vertex in ascending order of the other end. Adding an edge again replaces its weight; it remains one edge.
//
// Ids are 64-bit numbers or names (std::string); any comparable and hashable type will do.
//
// Thread-safety: none, not even of const members: the first read of an edge sorts.
// Cost: per edge 4 bytes in each stored direction, 12 if any weight is not 1, and 8 or 16 more while edges are added;
// per vertex 8 bytes, its id and its slot in a table (6 to 12 bytes). The forms that return dictionaries build them.
#pragma once

#include <paracel/bigraph.hpp>
#include <paracel/digraph.hpp>
