// SPDX-License-Identifier: BSD-3-Clause
#include "array_files.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include <paracel/error.hpp>

#include "storage/memory_file.hpp"

namespace nb = nanobind;

namespace paracel::py {

namespace {

enum class number_type { f8, f4, i8, i4 };

number_type type_of(const any_array& array) {
  const auto t = array.dtype();
  const auto is = [&](nb::dlpack::dtype_code code, int bits) {
    return t.code == static_cast<std::uint8_t>(code) && t.bits == bits && t.lanes == 1;
  };
  if (is(nb::dlpack::dtype_code::Float, 64)) return number_type::f8;
  if (is(nb::dlpack::dtype_code::Float, 32)) return number_type::f4;
  if (is(nb::dlpack::dtype_code::Int, 64)) return number_type::i8;
  if (is(nb::dlpack::dtype_code::Int, 32)) return number_type::i4;
  throw data_error("found an array of another type, want float64, float32, int64 or int32");
}

/// Columns of a table: those of one array.
struct columns_of_array {
  const std::byte* data;
  std::ptrdiff_t row_stride, column_stride;  // in bytes
  std::size_t columns;
  number_type type;
};

/// Writes rows [row, row + rows) of these columns to `to`, which is where the first of them begins, rows `step` bytes
/// apart.
template <class Out, class In>
void convert(const columns_of_array& from, std::uint64_t row, std::size_t rows, std::byte* to, std::size_t step) {
  const auto* line = from.data + static_cast<std::ptrdiff_t>(row) * from.row_stride;
  const bool as_it_is = std::is_same_v<Out, In> && from.column_stride == static_cast<std::ptrdiff_t>(sizeof(In));
  for (std::size_t r = 0; r < rows; ++r, line += from.row_stride, to += step) {
    if (as_it_is && from.columns > 1) {
      std::memcpy(to, line, from.columns * sizeof(In));
      continue;
    }
    const auto* at = line;
    for (std::size_t c = 0; c < from.columns; ++c, at += from.column_stride) {
      In v;
      std::memcpy(&v, at, sizeof v);
      const auto out = static_cast<Out>(v);
      std::memcpy(to + c * sizeof out, &out, sizeof out);
    }
  }
}
template <class Out>
void convert(const columns_of_array& from, std::uint64_t row, std::size_t rows, std::byte* to, std::size_t step) {
  switch (from.type) {
    case number_type::f4:
      return convert<Out, float>(from, row, rows, to, step);
    case number_type::i8:
      return convert<Out, std::int64_t>(from, row, rows, to, step);
    case number_type::i4:
      return convert<Out, std::int32_t>(from, row, rows, to, step);
    default:
      return convert<Out, double>(from, row, rows, to, step);
  }
}

/// A part of a file: rows of numbers of one type, from arrays side by side.
struct rows_part {
  using rows_writer = void (*)(const columns_of_array&, std::uint64_t, std::size_t, std::byte*, std::size_t);

  std::uint64_t rows = 0;
  std::size_t number_bytes = 0;
  std::size_t row_bytes = 0;
  rows_writer write = nullptr;
  std::vector<columns_of_array> from;

  [[nodiscard]] std::uint64_t bytes() const { return rows * row_bytes; }
  void write_rows(std::uint64_t row, std::size_t count, std::byte* to) const {
    for (const auto& f : from) {
      write(f, row, count, to, row_bytes);
      to += f.columns * number_bytes;
    }
  }
  void read(std::uint64_t offset, std::span<std::byte> to) const {
    constexpr std::size_t cached = std::size_t{1} << 17U;  // bytes that are written column by column
    std::vector<std::byte> row(row_bytes);
    while (!to.empty()) {
      const auto skip = static_cast<std::size_t>(offset % row_bytes);
      auto n = std::min(to.size(), row_bytes - skip);
      if (n == row_bytes) {
        const auto count = std::clamp<std::size_t>(cached / row_bytes, 1, to.size() / row_bytes);
        write_rows(offset / row_bytes, count, to.data());
        n = count * row_bytes;
      } else {
        write_rows(offset / row_bytes, 1, row.data());
        std::memcpy(to.data(), row.data() + skip, n);
      }
      offset += n;
      to = to.subspan(n);
    }
  }
};

/// A header, and rows.
struct array_file {
  std::string header;
  std::vector<rows_part> parts;
  std::shared_ptr<void> arrays;

  void read(std::uint64_t offset, std::span<char> to) const {
    const auto take = [&](std::uint64_t size, const auto& some) {
      if (offset >= size) {
        offset -= size;
        return;
      }
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(to.size(), size - offset));
      some(to.first(n));
      to = to.subspan(n);
      offset = 0;
    };
    take(header.size(), [&](std::span<char> out) { std::memcpy(out.data(), header.data() + offset, out.size()); });
    for (const auto& p : parts) {
      if (to.empty()) return;
      take(p.bytes(), [&](std::span<char> out) { p.read(offset, std::as_writable_bytes(out)); });
    }
  }
};

/// Keeps arrays alive; may be released by a thread that does not hold the interpreter's lock.
std::shared_ptr<void> keep(std::vector<any_array> arrays) {
  return {new std::vector<any_array>(std::move(arrays)), [](std::vector<any_array>* all) {
            const nb::gil_scoped_acquire held;
            delete all;
          }};
}

template <class Out>
rows_part part_of(const std::vector<any_array>& arrays) {
  rows_part part;
  part.write = &convert<Out>;
  std::size_t columns = 0;
  for (const auto& a : arrays) {
    if (a.ndim() != 1 && a.ndim() != 2)
      throw data_error("found an array of " + std::to_string(a.ndim()) + " dimensions, want 1 or 2");
    if (part.from.empty()) part.rows = a.shape(0);
    else if (a.shape(0) != part.rows)
      throw data_error("found arrays of " + std::to_string(part.rows) + " and " + std::to_string(a.shape(0)) + " rows");
    const auto width = static_cast<std::ptrdiff_t>(a.itemsize());
    const std::size_t count = a.ndim() == 2 ? a.shape(1) : 1;
    part.from.push_back({static_cast<const std::byte*>(a.data()), a.stride(0) * width,
                         a.ndim() == 2 ? a.stride(1) * width : width, count, type_of(a)});
    columns += count;
  }
  part.number_bytes = sizeof(Out);
  part.row_bytes = columns * sizeof(Out);
  return part;
}

void add(const std::string& name, array_file file) {
  std::uint64_t bytes = file.header.size();
  std::erase_if(file.parts, [](const rows_part& p) { return p.bytes() == 0; });
  for (const auto& p : file.parts) bytes += p.bytes();
  const auto shared = std::make_shared<const array_file>(std::move(file));
  storage::add_memory_file(name,
                           {bytes, [shared](std::uint64_t offset, std::span<char> to) { shared->read(offset, to); }});
}

}  // namespace

void add_table_file(const std::string& name, const std::vector<std::vector<any_array>>& parts) {
  array_file file;
  std::vector<any_array> all;
  std::uint64_t rows = 0;
  for (const auto& columns : parts) {
    file.parts.push_back(part_of<double>(columns));
    if (file.parts.back().row_bytes != file.parts.front().row_bytes)
      throw data_error("found parts of different widths");
    rows += file.parts.back().rows;
    all.insert(all.end(), columns.begin(), columns.end());
  }
  if (parts.empty()) throw data_error("found no part of a table, want one or more");
  file.arrays = keep(std::move(all));
  std::string text = "{'descr': '<f8', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", " +
                     std::to_string(file.parts.front().row_bytes / sizeof(double)) + "), }";
  constexpr std::size_t before = 10;  // magic, version and length
  text.resize((before + text.size() + 1 + 63) / 64 * 64 - before - 1, ' ');
  text += '\n';
  file.header = std::string("\x93NUMPY\x01\x00", 8);
  file.header += static_cast<char>(text.size() % 256);
  file.header += static_cast<char>(text.size() / 256);
  file.header += text;
  add(name, std::move(file));
}

void add_sparse_file(const std::string& name, std::uint64_t columns, const any_array& row_begin,
                     const any_array& column, const any_array& value, const std::vector<any_array>& labels,
                     const std::vector<any_array>& groups) {
  if (row_begin.ndim() != 1 || row_begin.shape(0) == 0 || column.size() != value.size())
    throw data_error("found arrays that are not those of a CSR matrix");
  array_file file;
  const std::uint64_t numbers[] = {row_begin.shape(0) - 1, columns, value.size(),
                                   (labels.empty() ? 0U : 1U) + (groups.empty() ? 0U : 2U)};
  file.header = std::string("\x93PARCSR1", 8);
  file.header.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  std::vector<any_array> all{row_begin, column, value};
  for (const auto* some : {&labels, &groups}) {
    if (some->empty()) continue;
    file.parts.push_back(part_of<double>(*some));
    all.insert(all.end(), some->begin(), some->end());
    if (file.parts.back().rows != numbers[0] || file.parts.back().row_bytes != sizeof(double))
      throw data_error("found labels or groups that are not one for each row");
  }
  file.parts.push_back(part_of<std::uint64_t>({row_begin}));
  file.parts.push_back(part_of<double>({value}));
  file.parts.push_back(part_of<std::uint32_t>({column}));
  file.arrays = keep(std::move(all));
  add(name, std::move(file));
}

void add_text_file(const std::string& name, const nb::bytes& text) {
  array_file file;
  file.header.assign(text.c_str(), text.size());
  add(name, std::move(file));
}

}  // namespace paracel::py
