// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/consistency.hpp"

#include "paracel/settings.hpp"

namespace paracel {

namespace {

constexpr char model_key[] = "consistency";
constexpr char switch_key[] = "ssp_switch";
constexpr char staleness_key[] = "limit_s";

}  // namespace

const char* name_of(consistency_model model) noexcept {
  switch (model) {
    case consistency_model::asp:
      return "asp";
    case consistency_model::ssp:
      return "ssp";
    case consistency_model::bsp:
      return "bsp";
  }
  return "asp";
}

void add_consistency_keys(config_schema& schema, const std::string& unit, const std::string& preferred,
                          const std::vector<consistency_model>& supported) {
  std::vector<std::string> names{"auto"};
  for (const auto model : supported) names.emplace_back(name_of(model));
  schema
      .key(model_key, key_type::string,
           "consistency model of reads and updates; auto: ssp if ssp_switch is set, else " + preferred)
      .fallback("auto")
      .one_of(std::move(names));
  schema.key(switch_key, key_type::boolean, "ssp: let workers be up to limit_s " + unit + " apart").fallback(false);
  schema.key(staleness_key, key_type::integer, unit + " that a worker may be ahead of the slowest under ssp")
      .fallback(0)
      .at_least(0)
      .at_most(1000000000);
}

void consistency_keys(key_list& k, consistency& to, const std::string& unit, const std::string& preferred,
                      const std::vector<consistency_model>& supported) {
  if (k.schema() != nullptr) add_consistency_keys(*k.schema(), unit, preferred, supported);
  else to = read_consistency(*k.from(), to);
}

consistency read_consistency(const config& from, const consistency& preferred) {
  const auto named = from.get<std::string>(model_key);
  const bool switched = from.get<bool>(switch_key);
  const auto staleness = from.get<std::uint32_t>(staleness_key);
  if (named == "auto") return switched ? consistency::ssp(staleness) : preferred;
  if (from.given(switch_key) && switched != (named == "ssp")) {
    throw config_error(from.place_of(switch_key) + ": found " + (switched ? "true" : "false") +
                       " with \"consistency\": \"" + named + "\", want one of the two keys, or both saying the same");
  }
  if (named == "ssp") return consistency::ssp(staleness);
  if (staleness > 0) {
    throw config_error(from.place_of(staleness_key) + ": found " + std::to_string(staleness) +
                       " with \"consistency\": \"" + named + "\", want it only with ssp");
  }
  return named == "bsp" ? consistency::bsp() : consistency::asp();
}

}  // namespace paracel
