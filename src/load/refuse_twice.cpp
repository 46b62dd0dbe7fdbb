// SPDX-License-Identifier: BSD-3-Clause
#include "load/refuse_twice.hpp"

#include "core/text_number.hpp"
#include "load/entry_reader.hpp"
#include "paracel/error.hpp"

namespace paracel {

void refuse_twice(Comm comm, const entry_twice& twice, const id_list& row_ids, const numbering& columns,
                  const std::vector<std::string>& files, const entry_options& options, bool either_way) {
  const auto found = comm.allgather(twice ? row_ids.text(twice->first) : std::string());
  const auto has = comm.allgather(std::int64_t{twice ? 1 : 0});
  std::size_t first = 0;
  while (first < has.size() && has[first] == 0) ++first;
  if (first == has.size()) return;
  // Every worker takes part in the question for the column's id.
  std::vector<std::uint64_t> column;
  if (comm.get_rank() == first) column.push_back(twice->second);
  const auto answer = ids_of(comm, columns, column);
  std::string name = column.empty() ? std::string() : answer.text(0);
  comm.bcast(name, first);
  const auto place = place_of_second(comm, files, options, {found[first], name}, either_way);
  throw data_error(place + ": found an entry of row " + shown(found[first]) + " and column " + shown(name) +
                   " that is there before, want each one once");
}

}  // namespace paracel
