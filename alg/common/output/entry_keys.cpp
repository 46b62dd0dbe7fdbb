// SPDX-License-Identifier: BSD-3-Clause
#include "entry_keys.hpp"

#include <algorithm>
#include <utility>

#include <paracel/error.hpp>

namespace paracel::alg {

void entry_keys::keys(key_list& k, const std::string& fields, bool value_needed) {
  using rule = entry_options::header_rule;
  k("header", header, "whether the first line of each file names the fields; automatic: if it alone has no numbers",
    {{"automatic", rule::automatic}, {"yes", rule::yes}, {"no", rule::no}});
  k("comment", comments, "skip lines that begin with #, % or //");
  k("columns", columns,
    "the fields of " + fields + ": names of the header, or numbers from 0; default: the first three")
      .or_numbers();
  if (columns.empty()) return;
  const auto refuse = [&](const std::string& what) { throw config_error(k.from()->place_of("columns") + ": " + what); };
  const std::size_t least = value_needed ? 3 : 2;
  if (columns.size() < least || columns.size() > 3)
    refuse("found " + std::to_string(columns.size()) + (value_needed ? ", want 3" : ", want 2 or 3"));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].empty()) refuse("found an empty name, want names or numbers from 0");
    if (std::find(columns.begin(), columns.begin() + static_cast<std::ptrdiff_t>(i), columns[i]) !=
        columns.begin() + static_cast<std::ptrdiff_t>(i))
      refuse("found \"" + columns[i] + "\" twice, want different fields");
    if (header == rule::no && columns[i].find_first_not_of("0123456789") != std::string::npos)
      refuse("found \"" + columns[i] + "\" with \"header\": \"no\", want numbers from 0");
  }
}

void entry_keys::apply(entry_options& to) const {
  to.header = header;
  to.comments = comments;
  to.columns = columns;
}

void require_some(std::uint64_t entries, const std::vector<std::string>& files, const char* what) {
  if (entries == 0) throw data_error(files.front() + ":1:1: found no " + what);
}

sparse_rows load_some(Comm comm, const std::vector<std::string>& files, const entry_options& options,
                      const char* what) {
  auto rows = load_sparse(std::move(comm), files, options);
  require_some(rows.entries_total, files, what);
  return rows;
}

void duplicates_key(key_list& k, duplicate_rule& duplicates) {
  using rule = duplicate_rule;
  k("duplicates", duplicates, "value of entries of the same pair: their sum, the least, the greatest, or an error",
    {{"sum", rule::sum}, {"min", rule::min}, {"max", rule::max}, {"error", rule::refuse}});
}

}  // namespace paracel::alg
