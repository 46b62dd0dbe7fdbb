// SPDX-License-Identifier: BSD-3-Clause
//
// The framework's update functions on numbers; default/README.md lists them. The loops are written so that the compiler
// vectorises them: the spans never overlap, as `restrict` says, and the loops call no functions.
#include <paracel/add.hpp>
#include <paracel/update.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace {

// A NaN in the delta changes nothing, a NaN in the value stays: comparisons with it are false.
struct larger {
  template <class T>
  void operator()(std::span<T> value, std::span<const std::type_identity_t<T>> delta) const noexcept {
    T* __restrict v = value.data();
    const T* __restrict d = delta.data();
    for (std::size_t i = 0; i < value.size(); ++i) v[i] = v[i] < d[i] ? d[i] : v[i];
  }
};

struct smaller {
  template <class T>
  void operator()(std::span<T> value, std::span<const std::type_identity_t<T>> delta) const noexcept {
    T* __restrict v = value.data();
    const T* __restrict d = delta.data();
    for (std::size_t i = 0; i < value.size(); ++i) v[i] = d[i] < v[i] ? d[i] : v[i];
  }
};

struct assign {
  template <class T>
  void operator()(std::span<T> value, std::span<const std::type_identity_t<T>> delta) const noexcept {
    T* __restrict v = value.data();
    const T* __restrict d = delta.data();
    for (std::size_t i = 0; i < value.size(); ++i) v[i] = d[i];
  }
};

/// Values of other types and sizes are replaced unchanged.
std::int32_t assign_any(const paracel::update_result*, const paracel::abi::value*, const paracel::abi::value* delta,
                        const paracel::abi::sink* out, paracel::abi::error_text* error) noexcept {
  std::byte* memory = out->place(out->context, delta->tag, delta->bytes);
  if (memory == nullptr) {
    paracel::update_detail::write_text(error, "no memory for the value");
    return paracel::abi::failed;
  }
  if (delta->bytes != 0) std::memcpy(memory, delta->data, delta->bytes);
  return paracel::abi::ok;
}

paracel::update_result assign_everything() {
  auto u = paracel::update_in_place_any(assign());
  paracel::update_detail::copy_text(u.value_type, "any value");
  paracel::update_detail::copy_text(u.delta_type, "any value");
  u.apply = assign_any;
  return u;
}

}  // namespace

extern "C" {
extern paracel::update_result paracel_add;
extern paracel::update_result paracel_assign;
extern paracel::update_result paracel_max;
extern paracel::update_result paracel_min;
// The names that Paracel 0.3 used.
extern paracel::update_result default_incr_i;
extern paracel::update_result default_incr_f;
extern paracel::update_result default_incr_d;
extern paracel::update_result default_incr_li;
extern paracel::update_result default_incr_lf;
extern paracel::update_result default_incr_ld;
}

paracel::update_result paracel_add = paracel::additive(paracel::update_in_place_any(paracel::add_elements()));
paracel::update_result paracel_assign = assign_everything();
paracel::update_result paracel_max = paracel::update_in_place_any(larger());
paracel::update_result paracel_min = paracel::update_in_place_any(smaller());

paracel::update_result default_incr_i = paracel::additive(paracel::update_in_place<int>(paracel::add_elements()));
paracel::update_result default_incr_f = paracel::additive(paracel::update_in_place<float>(paracel::add_elements()));
paracel::update_result default_incr_d = paracel::additive(paracel::update_in_place<double>(paracel::add_elements()));
paracel::update_result default_incr_li = paracel::additive(paracel::update_in_place<int>(paracel::add_elements()));
paracel::update_result default_incr_lf = paracel::additive(paracel::update_in_place<float>(paracel::add_elements()));
paracel::update_result default_incr_ld = paracel::additive(paracel::update_in_place<double>(paracel::add_elements()));
