// SPDX-License-Identifier: BSD-3-Clause
#include "entry_keys.hpp"

#include <algorithm>
#include <utility>

#include <paracel/error.hpp>

namespace paracel::alg {

void add_entry_keys(config_schema& s, const std::string& fields) {
  s.key("header", key_type::string,
        "whether the first line of each file names the fields; automatic: if it alone has no numbers")
      .fallback("automatic")
      .one_of({"automatic", "yes", "no"});
  s.key("comment", key_type::boolean, "skip lines that begin with #, % or //").fallback(true);
  s.key("columns", key_type::strings,
        "the fields of " + fields + ": names of the header, or numbers from 0; default: the first three")
      .or_numbers();
}

entry_keys::entry_keys(const config& from, bool value_needed)
    : comments(from.get<bool>("comment")), columns(from.get<std::vector<std::string>>("columns")) {
  using rule = entry_options::header_rule;
  const auto said = from.get<std::string>("header");
  header = said == "yes" ? rule::yes : said == "no" ? rule::no : rule::automatic;
  if (columns.empty()) return;
  const auto refuse = [&](const std::string& what) { throw config_error(from.place_of("columns") + ": " + what); };
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

void add_duplicates_key(config_schema& s, const char* fallback) {
  s.key("duplicates", key_type::string,
        "value of entries of the same pair: their sum, the least, the greatest, or an error")
      .fallback(fallback)
      .one_of({"sum", "min", "max", "error"});
}

duplicate_rule duplicates_of(const config& from) {
  const auto said = from.get<std::string>("duplicates");
  return said == "sum"   ? duplicate_rule::sum
         : said == "min" ? duplicate_rule::min
         : said == "max" ? duplicate_rule::max
                         : duplicate_rule::refuse;
}

}  // namespace paracel::alg
