// SPDX-License-Identifier: BSD-3-Clause
//
// Functions that fail in every way that the server must survive.
#include <paracel/update.hpp>

#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

namespace {

std::int32_t claims_a_double(const paracel::update_result*, const paracel::abi::value*, const paracel::abi::value*,
                             const paracel::abi::sink* out, paracel::abi::error_text*) noexcept {
  std::byte* memory = out->place(out->context, static_cast<std::uint8_t>(paracel::value_tag::f64), 3);
  std::memset(memory, 0, 3);
  return paracel::abi::ok;
}

std::int32_t says_ok(const paracel::update_result*, const paracel::abi::value*, const paracel::abi::value*,
                     const paracel::abi::sink*, paracel::abi::error_text*) noexcept {
  return paracel::abi::ok;
}

paracel::update_result by_hand(decltype(paracel::update_result::apply) f) {
  auto u = paracel::update_proxy([](double a, double b) { return a + b; });
  u.apply = f;
  return u;
}

}  // namespace

extern "C" {
extern paracel::update_result throws_text;
extern paracel::update_result throws_number;
extern paracel::update_result throws_halfway;
extern paracel::update_result returns_malformed;
extern paracel::update_result returns_nothing;
}
paracel::update_result throws_text = paracel::update_proxy([](double a, double) -> double {
  if (a == a) throw std::runtime_error("cannot go on with this value");
  return a;
});
paracel::update_result throws_number = paracel::update_proxy([](double a, double) -> double {
  if (a == a) throw 42;
  return a;
});
paracel::update_result throws_halfway =
    paracel::update_in_place<double>([](std::span<double> value, std::span<const double> delta) {
      for (std::size_t i = 0; i < value.size(); ++i) {
        if (i == value.size() / 2) throw std::runtime_error("stopped halfway");
        value[i] += delta[i];
      }
    });
paracel::update_result returns_malformed = by_hand(claims_a_double);
paracel::update_result returns_nothing = by_hand(says_ok);
