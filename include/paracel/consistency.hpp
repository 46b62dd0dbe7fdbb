// SPDX-License-Identifier: BSD-3-Clause
//
// The consistency of an algorithm: a model and, for SSP, its staleness. Programs read it from the same three config
// keys, so that these mean the same everywhere:
//
//   "consistency"   "bsp", "ssp" or "asp", as far as the algorithm supports them; "auto" (or no key): see ssp_switch
//   "ssp_switch"    true: ssp, even with a staleness of 0; false (or no key): the algorithm's own default
//   "limit_s"       the staleness of ssp
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/types.hpp>

namespace paracel {

class config;
class config_schema;

/// What reads may miss (paralg.hpp has the rule). `staleness` matters for ssp alone: it is 0 with bsp and unbounded
/// with asp.
struct consistency {
  consistency_model model = consistency_model::asp;
  std::uint32_t staleness = 0;  ///< iterations

  [[nodiscard]] static consistency asp() noexcept { return {}; }
  [[nodiscard]] static consistency bsp() noexcept { return {consistency_model::bsp, 0}; }
  [[nodiscard]] static consistency ssp(std::uint32_t staleness) noexcept { return {consistency_model::ssp, staleness}; }
  friend bool operator==(const consistency&, const consistency&) = default;
};

/// "bsp", "ssp" or "asp".
[[nodiscard]] const char* name_of(consistency_model model) noexcept;

/// Adds the keys consistency, ssp_switch and limit_s. `supported`: the models that the algorithm can run under.
/// `unit`: what the user calls an iteration, such as "rounds". `preferred`: its default, for the help.
void add_consistency_keys(config_schema& schema, const std::string& unit, const std::string& preferred,
                          const std::vector<consistency_model>& supported);

/// The consistency that a config asks for; `preferred` where it names none.
/// Throws: config_error when the keys contradict each other: bsp or asp with ssp_switch or a limit_s above 0, ssp with
/// "ssp_switch": false. A limit_s next to "ssp_switch": false is ignored, as in Paracel 0.3.
[[nodiscard]] consistency read_consistency(const config& from, const consistency& preferred);

}  // namespace paracel
