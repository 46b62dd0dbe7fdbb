// SPDX-License-Identifier: BSD-3-Clause
#include "load/input/foreign_format.hpp"

#include <algorithm>
#include <cstddef>

#include "paracel/error.hpp"

namespace paracel {

namespace {

using namespace std::string_view_literals;

struct signature {
  std::string_view bytes;
  const char* name;
  bool binary_next = false;  // the bytes are letters: only if something that is no text follows
};

// Longer ones first where one begins like another.
constexpr signature signatures[] = {
    {"BZh"sv, "bzip2 data"},  // and see is_bzip2
    {"\xfd"
     "7zXZ\0"sv,
     "xz data"},
    {"\x5d\0\0"sv, "lzma data"},
    {"LZIP\x01"sv, "lzip data"},
    {"\x89LZO"sv, "lzop data"},
    {"\x04\x22\x4d\x18"sv, "lz4 data"},
    {"\xff\x06\0\0sNaPpY"sv, "snappy data"},
    {"\x1f\x9d"sv, "data of compress (.Z)"},
    {"PK\x03\x04"sv, "a zip archive (.zip, .npz, .xlsx)"},
    {"PK\x05\x06"sv, "an empty zip archive"},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive"},
    {"Rar!\x1a\x07"sv, "a rar archive"},
    {"PAR1"sv, "a Parquet file", true},
    {"ARROW1\0"sv, "an Arrow file"},
    {"ORC"sv, "an ORC file", true},
    {"Obj\x01"sv, "an Avro file"},
    {"\x89HDF\r\n\x1a\n"sv, "an HDF5 file"},
    {"SQLite format 3\0"sv, "an SQLite database"},
    {"\xd0\xcf\x11\xe0"sv, "an Excel file (.xls)"},
    {"\xff\xfe\0\0"sv, "text in UTF-32"},
    {"\0\0\xfe\xff"sv, "text in UTF-32"},
    {"\xff\xfe"sv, "text in UTF-16"},
    {"\xfe\xff"sv, "text in UTF-16"},
};

// Where formats whose first bytes may be text have their marks.
constexpr std::size_t tar_at = 257;
constexpr std::size_t matlab_at = 124;
constexpr std::string_view matlab_marks[] = {"\0\1IM"sv, "\1\0MI"sv};
// Bytes that are looked at to tell letters of a format from a text.
constexpr std::size_t telling_bytes = 16;

bool is_text_byte(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return byte == '\t' || byte == '\n' || byte == '\r' || (byte >= 0x20 && byte < 0x7f);
}

bool looks_like_text(std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const auto first = static_cast<unsigned char>(bytes[0]);
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xc2 ? 0
                               : first < 0xe0 ? 2
                               : first < 0xf0 ? 3
                               : first < 0xf5 ? 4
                                              : 0;
    if (length == 0 || (length == 1 && !is_text_byte(bytes[0]))) return false;
    const auto rest = bytes.substr(1, length - 1);  // may be cut off
    if (std::ranges::any_of(rest, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }))
      return false;
    bytes.remove_prefix(std::min(length, bytes.size()));
  }
  return true;
}

/// BZh and a digit may begin a text; the magic of a block, or of the end, follows.
bool is_bzip2(std::string_view front) noexcept {
  const auto magic = front.substr(std::min<std::size_t>(front.size(), 4));
  return magic.starts_with("1AY&SY") || magic.starts_with("\x17\x72\x45\x38\x50\x90");
}

const char* format_of(std::string_view front) noexcept {
  for (const auto& s : signatures) {
    if (!front.starts_with(s.bytes)) continue;
    if (s.binary_next && looks_like_text(front.substr(s.bytes.size(), telling_bytes))) continue;
    if (s.bytes == "BZh" && !is_bzip2(front)) continue;
    return s.name;
  }
  // Protocols 2 to 5 of Python.
  if (front.size() > 1 && front[0] == '\x80' && front[1] >= 2 && front[1] <= 5) return "a Python pickle";
  if (front.size() > tar_at &&
      (front.substr(tar_at).starts_with("ustar\0"sv) || front.substr(tar_at).starts_with("ustar  \0"sv)))
    return "a tar archive";
  if (front.size() > matlab_at && front.starts_with("MATLAB 5.0 MAT-file") &&
      std::ranges::any_of(matlab_marks, [&](auto mark) { return front.substr(matlab_at).starts_with(mark); }))
    return "a MATLAB file";
  // Letters of UTF-16 without a byte order mark.
  if (front.size() >= 4 && (front[0] == '\0') != (front[1] == '\0') && (front[0] == '\0') == (front[2] == '\0') &&
      (front[1] == '\0') == (front[3] == '\0') && is_text_byte(front[0] == '\0' ? front[1] : front[0]))
    return "text in UTF-16";
  return nullptr;
}

}  // namespace

void refuse_foreign_format(const std::string& file, std::string_view front) {
  const auto* const name = format_of(front);
  if (name == nullptr) return;
  throw data_error(file + ": found " + name + ", which is not supported; want text in UTF-8, plain, or compressed by " +
                   "gzip or zstd");
}

}  // namespace paracel
