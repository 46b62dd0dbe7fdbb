// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes are entries in one of the formats or a data_error; accepted entries satisfy their invariants, the
// fast path for lines of numbers agrees with the general one, and reading in parts gives the same as reading at once.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "load/format/entry_parser.hpp"
#include "load/input/byte_range.hpp"
#include "paracel/error.hpp"
#include "property.hpp"

namespace {

using namespace paracel;

using entry_list = std::vector<std::tuple<std::string, std::string, double>>;

entry_list entries_of(entry_parser& parser, bool one_dictionary, bool non_negative) {
  auto local = parser.take();
  entry_list out;
  const auto text = [](const id_interner::sorted_ids& ids, std::uint32_t i) {
    require(ids.place.empty() || i < ids.place.size());
    const auto place = ids.place.empty() ? i : ids.place[i];
    require(place < ids.ids.size());
    return ids.ids.text(place);
  };
  for (const auto* ids : {&local.rows.ids, &local.columns.ids}) {
    for (std::size_t i = 1; i < ids->size(); ++i) {
      require(ids->numeric() ? ids->number(i - 1) < ids->number(i) : ids->name(i - 1) < ids->name(i));
    }
  }
  local.entries.each_block([&](const chunked_vector::view& b) {
    for (std::size_t k = 0; k < b.size; ++k) {
      require(std::isfinite(b.value[k]));
      require(!non_negative || b.value[k] >= 0);
      out.emplace_back(text(local.rows, b.row[k]), text(one_dictionary ? local.rows : local.columns, b.column[k]),
                       b.value[k]);
    }
  });
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const unsigned choice = data[0];
  const unsigned more = data[1];
  const std::string text(reinterpret_cast<const char*>(data) + 2, size - 2);
  entry_options options;
  options.format = static_cast<entry_format>(choice % 4);
  options.transpose = (choice & 4U) != 0;
  options.values = static_cast<entry_options::value_rule>((choice >> 3U) % 3);
  options.ids = static_cast<entry_options::id_kind>((choice >> 5U) % 3);
  options.non_negative = (choice & 128U) != 0 && options.values != entry_options::value_rule::ignore;
  options.header = static_cast<entry_options::header_rule>(more % 3);
  options.comments = (more & 4U) == 0;
  if ((more & 8U) != 0) options.columns = {"2", "0", "1"};
  if ((more & 16U) != 0) options.columns = {"a", "b"};
  const bool one_dictionary = (more & 32U) != 0;
  const std::string name = "fuzz";
  try {
    const input_piece whole(name, text);
    const auto head = [&](std::size_t, std::size_t, std::uint64_t& offset) {
      offset = whole.offset();
      return std::string(whole.text());
    };
    const auto layout =
        find_entry_layout({name}, head, options, one_dictionary ? entry_role::edges : entry_role::entries);
    const entry_use use{.one_dictionary = one_dictionary};
    entry_parser at_once(layout, options, use);
    at_once.parse(whole);
    const auto all = entries_of(at_once, one_dictionary, options.non_negative);

    entry_parser in_parts(layout, options, use);
    const auto cut = line_begin(text, text.size() / 3);
    in_parts.parse(input_piece(name, text, std::string_view(text).substr(0, cut)));
    in_parts.parse(input_piece(name, text, std::string_view(text).substr(cut)));
    require(entries_of(in_parts, one_dictionary, options.non_negative) == all);

    // A line without a line end takes the general path.
    entry_parser one_by_one(layout, options, use);
    for (auto rest = whole.text(); !rest.empty();) {
      const auto end = rest.find('\n');
      one_by_one.parse(input_piece(name, text, rest.substr(0, end)));
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    require(entries_of(one_by_one, one_dictionary, options.non_negative) == all);
  } catch (const data_error&) {
  }
  return 0;
}
