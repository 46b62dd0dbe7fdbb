// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes after the magic string are binary sparse rows or a data_error; accepted ones satisfy the invariants
// of sample_rows, and the ranks together read every row once. The first byte selects labels, groups and floats, and
// whether the second one gives the numbers of rows and columns that fit the size; otherwise they are arbitrary, too.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "load/format/csr_reader.hpp"
#include "memory_file.hpp"
#include "paracel/error.hpp"
#include "property.hpp"

namespace {

using label_rule = paracel::sample_options::label_rule;

void put(std::string& to, std::uint64_t number) { to.append(reinterpret_cast<const char*>(&number), sizeof number); }

/// What a rank read, in a form that can be compared: row ends, columns, values.
struct entries {
  std::uint64_t rows = 0;
  std::vector<std::size_t> length;
  std::vector<std::uint32_t> column;
  std::vector<double> value;
  bool operator==(const entries&) const = default;
};

void add(const paracel::sample_rows& part, const paracel::sample_options& options, entries& to) {
  require(part.row_begin.size() == part.rows() + 1 && part.row_begin.front() == 0);
  require(part.column.size() == part.row_begin.back());
  std::vector<double> values(part.floats.begin(), part.floats.end());
  if (!options.floats) values = part.value;
  require(values.size() == part.column.size());
  require(part.group.size() == (options.group.empty() ? 0 : part.rows()));
  require(part.label.size() == (options.label == label_rule::none ? 0 : part.rows()));
  for (std::size_t i = 0; i < part.rows(); ++i) {
    require(part.row_begin[i] <= part.row_begin[i + 1]);
    to.length.push_back(part.row_begin[i + 1] - part.row_begin[i]);
    for (auto k = part.row_begin[i]; k < part.row_begin[i + 1]; ++k) {
      require(part.column[k] < part.columns && std::isfinite(values[k]));
      require(k == part.row_begin[i] || part.column[k - 1] < part.column[k]);
    }
  }
  to.rows += part.rows();
  to.column.insert(to.column.end(), part.column.begin(), part.column.end());
  to.value.insert(to.value.end(), values.begin(), values.end());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto how = data[0];
  std::string rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  std::string bytes("\x93PARCSR1", 8);
  if ((how & 0x80) == 0) {
    const std::uint64_t rows = 1 + data[1] % 8;
    const std::uint64_t parts = how % 4;
    const auto fixed = rows * 8 * ((parts & 1) + (parts >> 1)) + (rows + 1) * 8;
    if (rest.size() < fixed) return 0;
    const auto count = (rest.size() - fixed) / 12;
    rest.resize(fixed + count * 12);
    for (const std::uint64_t number : {rows, std::uint64_t{1} + data[1] / 8, std::uint64_t{count}, parts})
      put(bytes, number);
  }
  const memory_file file(bytes + rest);
  paracel::sample_options options;
  options.label = static_cast<label_rule>((how >> 2) % 5);
  options.floats = (how & 0x20) != 0;
  if ((how & 0x40) != 0) options.group = "group";
  try {
    entries one;
    entries three;
    const paracel::input_set input({file.name()});
    add(paracel::read_csr(input, 0, 1, options), options, one);
    for (std::size_t r = 0; r < 3; ++r) add(paracel::read_csr(input, r, 3, options), options, three);
    require(one == three);
  } catch (const paracel::data_error&) {
  }
  return 0;
}
