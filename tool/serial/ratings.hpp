// SPDX-License-Identifier: BSD-3-Clause
//
// Ratings for als_serial and mf_serial: lines `user,item,value`.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace serial {

struct rating {
  std::uint64_t user;
  std::uint64_t item;
  double value;
};

inline std::vector<rating> load(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + file);
  std::ostringstream buffer;
  buffer << in.rdbuf();
  const auto text = std::move(buffer).str();
  std::vector<rating> ratings;
  const char* at = text.c_str();
  while (*at != 0) {
    char* end = nullptr;
    rating r{};
    r.user = std::strtoull(at, &end, 10);
    r.item = std::strtoull(end + 1, &end, 10);
    r.value = std::strtod(end + 1, &end);
    ratings.push_back(r);
    at = std::strchr(end, '\n');
    if (at == nullptr) break;
    ++at;
  }
  return ratings;
}

}  // namespace serial
