// SPDX-License-Identifier: BSD-3-Clause
#include "lda_initial.hpp"

#include <cmath>
#include <numeric>

namespace paracel::alg {

lda_initial::lda_initial(const model_reader& from)
    : path(from.path()),
      text(from.field<bool>("text")),
      online(from.field<std::string>("settings.method") == "online"),
      counts(from.read<double>("word_topic")),
      alpha(from.read<double>("alpha")),
      beta(from.field<double>("beta")),
      steps(from.field<std::uint64_t>("steps", 0)) {
  auto ids = from.ids("word_topic");
  if (alpha.empty() || counts.size() != ids.size() * alpha.size() || ids.size() == 0)
    throw data_error(path + ": found " + std::to_string(counts.size()) + " counts of " + std::to_string(ids.size()) +
                     " words in " + std::to_string(alpha.size()) + " topics");
  if (!ids.numeric()) names = std::move(ids);
  tokens = static_cast<std::uint64_t>(std::llround(std::accumulate(counts.begin(), counts.end(), 0.0)));
}

}  // namespace paracel::alg
