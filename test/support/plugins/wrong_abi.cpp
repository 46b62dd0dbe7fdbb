// SPDX-License-Identifier: BSD-3-Clause
//
// A plug-in built against another version.
#include <paracel/update.hpp>

namespace {

paracel::update_result sum() {
  return paracel::update_proxy([](double a, double b) { return a + b; });
}
paracel::update_result of_version(std::uint16_t version) {
  auto u = sum();
  u.abi_version = version;
  return u;
}
paracel::update_result of_size(std::uint16_t bytes) {
  auto u = sum();
  u.struct_bytes = bytes;
  return u;
}
paracel::update_result without_function() {
  auto u = sum();
  u.apply = nullptr;
  return u;
}
paracel::update_result of_type(std::uint8_t tag) {
  auto u = sum();
  u.value_tag = tag;
  return u;
}

}  // namespace

extern "C" {
extern paracel::update_result newer_version;
extern paracel::update_result other_size;
extern paracel::update_result empty_inside;
extern paracel::update_result unknown_type;
extern paracel::update_result never_assigned;
extern const double not_an_update[64];
extern const char one_byte;
double plain_function(double a, double b);
}
paracel::update_result newer_version = of_version(7);
paracel::update_result other_size = of_size(96);
paracel::update_result empty_inside = without_function();
paracel::update_result unknown_type = of_type(0x77);
paracel::update_result never_assigned;
const double not_an_update[64] = {1};
const char one_byte = 'P';
double plain_function(double a, double b) { return a + b; }
