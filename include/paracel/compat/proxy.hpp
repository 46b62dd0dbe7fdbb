// SPDX-License-Identifier: BSD-3-Clause
//
// For plug-ins written for Paracel 0.3: `update_proxy`, `filter_proxy` and what they return. Needs neither MPI nor the
// framework's library. New plug-ins include <paracel/update.hpp>.
#pragma once

#include <utility>

#include <paracel/update.hpp>

#include "packer.hpp"
#include "paracel_types.hpp"

namespace paracel {

/// A filter that looks at the key only; today's filter_proxy tells the two kinds apart by the function's signature.
template <class F>
[[nodiscard]] filter_with_key_result filter_with_key_proxy(F&& f) {
  return filter_proxy(std::forward<F>(f));
}

}  // namespace paracel
