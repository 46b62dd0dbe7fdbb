// SPDX-License-Identifier: BSD-3-Clause
//
// Any line is the entries of a graph or an error at one of its bytes; accepted entries satisfy their invariants, and
// are unchanged when written and parsed again.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/number_parsing.hpp"
#include "load/format/field_parser.hpp"
#include "property.hpp"

namespace {

void check(std::string_view line, bool mixed) {
  std::vector<std::string_view> fields;
  paracel::split_fields(line, fields);
  for (const auto f : fields) {
    require(!f.empty() && f.data() >= line.data() && f.data() + f.size() <= line.data() + line.size());
    require(f.find_first_of(",; \t\r") == f.npos);
  }
  try {
    std::vector<paracel::entry_view> entries;
    paracel::read_entries(fields, mixed, entries);
    require(entries.size() == (fields.empty() ? 0 : mixed ? fields.size() - 1 : 1));
    if (entries.empty()) return;
    std::string again(entries[0].row);
    for (const auto& e : entries) {
      require(std::isfinite(e.weight) && !e.row.empty() && !e.column.empty() && e.row == entries[0].row);
      // The third field may be a weight, and then the second one may be anything.
      if (fields.size() == 3 && !mixed) again = std::string(e.row) + "," + std::string(e.column) + ",";
      else again += "," + std::string(e.column) + "|";
      paracel::append_number(again, e.weight);
    }
    std::vector<std::string_view> fields_again;
    std::vector<paracel::entry_view> entries_again;
    paracel::split_fields(again, fields_again);
    paracel::read_entries(fields_again, mixed, entries_again);
    require(entries_again.size() == entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      require(entries_again[i].row == entries[i].row && entries_again[i].column == entries[i].column);
      require(entries_again[i].weight == entries[i].weight);
      try {
        require(std::to_string(paracel::read_id(entries[i].column)).size() <= entries[i].column.size());
      } catch (const paracel::field_problem&) {
      }
    }
  } catch (const paracel::field_problem& p) {
    require(p.at >= line.data() && p.at <= line.data() + line.size() && !p.what.empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  check(line, false);
  check(line, true);
  return 0;
}
