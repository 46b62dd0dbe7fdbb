// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes are a file, plain, gzip or zstd, or a data_error; compressed text is restored; and pieces and ranks
// together cover all of it, in complete lines. The first byte selects the operation.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "load/input/input.hpp"
#include "memory_file.hpp"
#include "paracel/error.hpp"
#include "property.hpp"
#include "test/support/compressed.hpp"

namespace {

std::string read_all(const std::string& name, std::size_t ranks, std::size_t piece_bytes) {
  std::string all;
  for (std::size_t r = 0; r < ranks; ++r) {
    paracel::input_set input({name});
    input.visit(
        r, ranks,
        [&](const paracel::input_piece& piece) {
          require(all.empty() || all.back() == '\n');
          require(!piece.text().empty() || piece.begins_file());
          all += piece.text();
        },
        {}, piece_bytes);
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t piece = 1 + data[0] / 4;
  switch (data[0] % 4) {
    case 0:
      bytes = paracel::test::gzip(bytes, 1);
      break;
    case 1:
      bytes = paracel::test::zstd(bytes, 1);
      break;
    default:
      break;  // unmodified: perhaps they start like one of these formats
  }
  const memory_file file(bytes);
  try {
    auto one = read_all(file.name(), 1, 1 << 18);
    if (data[0] % 4 < 2) {
      std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
      if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
      require(one == text);
    }
    require(read_all(file.name(), 1, piece) == one);
    require(read_all(file.name(), 3, piece) == one);
    paracel::input_set input({file.name()});
    require(one.starts_with(input.head(0)) && one.starts_with(input.head(0, piece)));
  } catch (const paracel::data_error& e) {
    // Compressed text is read, unless it is in another encoding, or is another format once more.
    require(data[0] % 4 >= 2 || std::string_view(e.what()).find(": found ") != std::string_view::npos);
  }
  return 0;
}
