// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of word_count: one process, no framework, the standard library's hash table.
//
//     wc_serial FILE [--tokens paracel|space] [--topk K] [--dump FILE]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

bool in_word(unsigned char c, bool space) {
  if (space) return c != ' ' && !(c >= '\t' && c <= '\r');
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string file;
    std::string dump;
    bool space = false;
    std::size_t k = 10;
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      if (name.rfind("--", 0) != 0) {
        file = name;
        continue;
      }
      if (++i == argc) throw std::runtime_error("no value after " + name);
      const std::string value = argv[i];
      if (name == "--tokens") space = value == "space";
      else if (name == "--topk") k = std::stoul(value);
      else if (name == "--dump") dump = value;
      else throw std::runtime_error("unknown option " + name);
    }
    std::ifstream in(file, std::ios::binary);
    if (!in) throw std::runtime_error("cannot read " + file);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());

    std::unordered_map<std::string_view, std::uint64_t> counts;
    std::uint64_t words = 0;
    for (std::size_t at = 0; at < text.size();) {
      while (at < text.size() && !in_word(static_cast<unsigned char>(text[at]), space)) ++at;
      const std::size_t begin = at;
      while (at < text.size() && in_word(static_cast<unsigned char>(text[at]), space)) ++at;
      if (at == begin) break;
      ++counts[std::string_view(text).substr(begin, at - begin)];
      ++words;
    }

    std::vector<std::pair<std::string_view, std::uint64_t>> all(counts.begin(), counts.end());
    if (!dump.empty()) {
      std::sort(all.begin(), all.end());
      std::ofstream out(dump, std::ios::binary);
      for (const auto& [word, count] : all) out << word << '\t' << count << '\n';
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    for (std::size_t i = 0; i < std::min(k, all.size()); ++i) {
      std::printf("%.*s : %llu\n", static_cast<int>(all[i].first.size()), all[i].first.data(),
                  static_cast<unsigned long long>(all[i].second));
    }
    std::printf("distinct %zu\nwords %llu\n", all.size(), static_cast<unsigned long long>(words));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "wc_serial: error: %s\n", e.what());
    return 1;
  }
}
