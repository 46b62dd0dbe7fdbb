// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/optimizer_state.hpp"

#include <cstring>
#include <span>
#include <vector>

#include <paracel/detail/bytes.hpp>

namespace paracel::srv {
namespace {

constexpr std::size_t front_bytes = 16;

struct front {
  std::uint64_t family = 0;
  std::uint64_t steps = 0;
};

}  // namespace

entry* step_key(key_store& keys, const loaded_update& f, std::uint64_t hash, std::string_view key,
                const value_view& gradient, std::string& error, abi::outcome& outcome) {
  auto& values = keys.table_of(hash);
  auto* e = values.find(hash, key);
  const bool fresh = e == nullptr;
  if (fresh) {
    if (!steps(f, element_of(gradient.tag))) {
      error = f.name + ": the key does not exist, and a gradient of type " + name_of(gradient.tag) +
              " does not determine its type: want float or double";
      outcome = abi::type_mismatch;
      return nullptr;
    }
    auto zeros = shared_buffer::allocate(gradient.bytes.size());
    if (zeros.size() != 0) std::memset(zeros.mutable_data(), 0, zeros.size());
    e = &keys.store(hash, key, gradient.tag, std::move(zeros));
  }
  std::vector<std::byte> before;  // backup: the new state is allocated after the value was changed, and may fail
  const auto undo = [&] {
    if (fresh) keys.erase(hash, key);
    else if (!before.empty()) std::memcpy(values.open(*e).data(), before.data(), before.size());
  };
  try {
    front begin{f.family, 0};
    entry* state = nullptr;
    std::span<std::byte> numbers;
    std::vector<double> scratch;  // new state, until the step has succeeded; aligned for every element
    bool new_state = false;
    std::size_t state_bytes = 0;
    if (f.optimizer->states != 0 || f.counts_steps()) {
      const auto bytes = state_bytes = front_bytes + f.optimizer->states * e->value().size();
      state = keys.find_state(hash, key);
      if (state != nullptr) {
        load_fields(state->value().data(), begin);
        new_state = state->value().size() != bytes || begin.family != f.family;
      }
      if (state == nullptr || new_state) {
        new_state = true;
        begin = {f.family, 0};
        if (!keys.has_room(bytes)) throw memory_limit_reached();
        scratch.assign((bytes - front_bytes + sizeof(double) - 1) / sizeof(double), 0.0);
        numbers = std::as_writable_bytes(std::span(scratch)).first(bytes - front_bytes);
      } else {
        numbers = keys.open_state(hash, *state).subspan(front_bytes);
      }
    }
    ++begin.steps;
    const auto number = f.counts_steps() ? begin.steps : 0;
    const auto value = values.open(*e);
    if (new_state && !fresh) before.assign(value.begin(), value.end());
    if (!apply_step(f, e->tag(), value, numbers, number, gradient, error, &outcome)) {
      if (fresh) undo();
      return nullptr;
    }
    if (new_state) {
      state = &keys.make_state(hash, key, state_bytes);
      const auto to = keys.open_state(hash, *state).subspan(front_bytes);
      if (!numbers.empty()) std::memcpy(to.data(), numbers.data(), numbers.size());
    }
    if (state != nullptr) store_fields(keys.open_state(hash, *state).data(), begin);
    values.changed(*e);
    return e;
  } catch (...) {
    undo();
    throw;
  }
}

}  // namespace paracel::srv
