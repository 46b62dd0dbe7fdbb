// SPDX-License-Identifier: BSD-3-Clause
//
// Colours of features: no sample has two nonzero features of the same colour, so the optimum of one does not depend on
// the others of its colour. Each one-hot field gets one colour.
//
// Greedy, one colour after the other: a feature takes the colour if it comes first among the undecided ones in each of
// its samples; then those that share a sample with it are left for a later colour, and this repeats until no feature is
// undecided. "First" is by number, so the colours are those of the serial greedy algorithm (each feature takes the
// least colour that none of its earlier neighbours has), for any number of workers. Where that would be a long chain,
// the order changes after 64 repetitions to that of a hash of the number, which needs only logarithmically many more.
//
// Source: M. Luby, "A simple parallel algorithm for the maximal independent set problem", SIAM J. Comput. 15, 1986;
// G. Blelloch, J. Fineman, J. Shun, "Greedy sequential maximal independent set and matching are parallel on average",
// SPAA 2012.
#pragma once

#include <cstdint>
#include <vector>

#include <paracel/collectives.hpp>
#include <paracel/samples.hpp>

namespace paracel::alg {

inline constexpr std::uint32_t no_colour = 0xffffffffU;  ///< of a feature that no sample of any worker has

/// The colour of each feature, from 0, the same at every worker. A collective. Cost: a repetition is a pass over the
/// entries without a colour and two sums of rows.columns bits; a colour usually takes one or two repetitions, at most
/// about 64 + log2(columns).
std::vector<std::uint32_t> colour_features(collectives& all, const sample_rows& rows);

}  // namespace paracel::alg
