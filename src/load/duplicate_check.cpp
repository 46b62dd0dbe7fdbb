// SPDX-License-Identifier: BSD-3-Clause
#include "load/duplicate_check.hpp"

#include "core/number_parsing.hpp"
#include "load/format/entry_reader.hpp"
#include "paracel/error.hpp"

namespace paracel {

void duplicate_check(Comm comm, const duplicate_entry& twice, const id_list& row_ids, const global_ids& columns,
                     const std::vector<std::string>& files, const entry_options& options, entry_role role,
                     bool either_way) {
  const auto found = comm.allgather(twice ? row_ids.text(twice->first) : std::string());
  const auto has = comm.allgather(std::int64_t{twice ? 1 : 0});
  std::size_t first = 0;
  while (first < has.size() && has[first] == 0) ++first;
  if (first == has.size()) return;
  // Every worker takes part in the query for the column's id.
  std::vector<std::uint64_t> column;
  if (comm.get_rank() == first) column.push_back(twice->second);
  const auto answer = ids_of(comm, columns, column);
  std::string name = column.empty() ? std::string() : answer.text(0);
  comm.bcast(name, first);
  const auto place = place_of_second(comm, files, options, {found[first], name}, role, either_way);
  throw data_error(place + ": found an entry of row " + quote_for_error(found[first]) + " and column " +
                   quote_for_error(name) + " for the second time, want each at most once");
}

}  // namespace paracel
