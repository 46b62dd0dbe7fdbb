// SPDX-License-Identifier: BSD-3-Clause
//
// JSON exchanged with other processes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace paracel {

/// A host's name, or an error text, need not be UTF-8: an invalid byte becomes U+FFFD. Cost: recursion depth is that
/// of `j`.
[[nodiscard]] std::string json_text(const nlohmann::json& j);

/// Parses `text`; discarded (`is_discarded`) if it is not JSON, longer than `most_bytes`, or nested deeper than 16
/// levels: serialising it again would recurse as deep. Cost: memory in proportion to the text.
[[nodiscard]] nlohmann::json json_from(std::string_view text, std::size_t most_bytes = std::size_t{1} << 20);

/// The same for a text of any length, with an exception that says what is wrong.
/// Throws: nlohmann::json::exception; data_error when it is nested too deeply.
[[nodiscard]] nlohmann::json json_or_throw(std::string_view text);

}  // namespace paracel
