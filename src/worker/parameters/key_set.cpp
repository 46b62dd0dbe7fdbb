// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/key_set.hpp>

#include "client/sharded_keys.hpp"

namespace paracel {

std::size_t key_set::size() const noexcept { return parts_ == nullptr ? 0 : parts_->keys.size(); }

const list_type<str_type>& key_set::keys() const noexcept {
  static const list_type<str_type> none;
  return parts_ == nullptr ? none : parts_->keys;
}

}  // namespace paracel
