// SPDX-License-Identifier: BSD-3-Clause
//
// JSON that comes from other processes and goes to them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace paracel {

/// A host's name, or what an error says, need not be UTF-8: a byte that is not becomes U+FFFD. Cost: recursion as deep
/// as `j`.
[[nodiscard]] std::string json_text(const nlohmann::json& j);

/// What `text` says; discarded (`is_discarded`) if it is no JSON, longer than `most_bytes`, or nested deeper than 16
/// levels: whoever writes it again would recurse as deep. Cost: memory in proportion to the text.
[[nodiscard]] nlohmann::json json_from(std::string_view text, std::size_t most_bytes = std::size_t{1} << 20);

/// The same for whoever wants to say what is wrong, of any length.
/// Throws: nlohmann::json::exception; data_error when it is nested too deeply.
[[nodiscard]] nlohmann::json json_or_throw(std::string_view text);

}  // namespace paracel
