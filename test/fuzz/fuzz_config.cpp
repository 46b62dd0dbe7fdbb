// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes are a config or a config_error of one line, for any schema; and what --set takes, or an error of one
// line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "config/config_sources.hpp"
#include "config/json_document.hpp"
#include "paracel/error.hpp"
#include "paracel/schema.hpp"

namespace {

paracel::config_schema make_schema() {
  using paracel::key_type;
  paracel::config_schema s("fuzz");
  s.key("i", key_type::integer, "an integer").at_least(-5).at_most(5);
  s.key("d", key_type::number, "a number").above(0);
  s.key("b", key_type::boolean, "a boolean");
  s.key("s", key_type::string, "a string");
  s.key("c", key_type::string, "a choice").one_of({"dgd", "ipm"});
  s.key("p", key_type::plugin, "a plug-in");
  s.key("o", key_type::output_folder, "a folder");
  return s;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto schema = make_schema();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto c = schema.check_text("fuzz", text);
    const auto i = c.get<int>("i");
    if (i < -5 || i > 5) std::abort();
    if (c.given("d") && !(c.get<double>("d") > 0)) std::abort();
  } catch (const paracel::config_error& e) {
    if (std::strchr(e.what(), '\n') != nullptr) std::abort();
  }
  try {
    const auto set = paracel::parse_sources("fuzz", R"({"o": {"i": 1}})", {std::string(text)});
    (void)paracel::parse_config("fuzz", paracel::config_json(set));
  } catch (const paracel::usage_error& e) {
    if (std::strchr(e.what(), '\n') != nullptr) std::abort();
  } catch (const paracel::config_error& e) {  // a key given twice, or an include; what is accepted is JSON again
    if (std::strstr(e.what(), "not JSON") != nullptr || std::strchr(e.what(), '\n') != nullptr) std::abort();
  }
  return 0;
}
