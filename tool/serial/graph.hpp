// SPDX-License-Identifier: BSD-3-Clause
//
// Shared by the serial graph algorithms: reading edges, compressed adjacency, and their main.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace serial {

/// The edges of a text file: source, target and optionally a weight, separated by tabs, blanks, commas, semicolons, |
/// or :. Blank lines and lines that begin with # are skipped.
struct edge_list {
  std::vector<std::uint64_t> ids;  // of the vertices, ascending; elsewhere vertices are numbered 0, 1, ... in this
                                   // order
  std::vector<std::uint32_t> from, to;
  std::vector<double> weight;  // of each edge; empty unless requested
};

/// Calls f with the beginning and end of each line.
template <class F>
void each_line(const std::string& file, F&& f) {
  const int descriptor = open(file.c_str(), O_RDONLY);
  struct stat about {};
  if (descriptor < 0 || fstat(descriptor, &about) != 0) throw std::runtime_error("cannot read " + file);
  const auto bytes = static_cast<std::size_t>(about.st_size);
  if (bytes == 0) {
    close(descriptor);
    return;
  }
  const auto* text = static_cast<const char*>(mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0));
  if (text == MAP_FAILED) throw std::runtime_error("cannot map " + file);
  const char* end = text + bytes;
  for (const char* line = text; line < end;) {
    const auto* stop = static_cast<const char*>(std::memchr(line, '\n', static_cast<std::size_t>(end - line)));
    if (stop == nullptr) stop = end;
    f(line, stop);
    line = stop + 1;
  }
  munmap(const_cast<char*>(text), bytes);
  close(descriptor);
}

inline bool between(char c) {
  return c == '\t' || c == ' ' || c == ',' || c == ';' || c == '|' || c == ':' || c == '\r';
}

template <class T>
bool take(const char*& at, const char* end, T& value) {
  while (at < end && between(*at)) ++at;
  const auto read = std::from_chars(at, end, value);
  at = read.ptr;
  return read.ec == std::errc();
}

/// Numbers the ids in `raw` 0 ... n - 1 in ascending order: with a table if the ids are dense, otherwise by search.
inline void number(std::vector<std::uint64_t>& raw, edge_list& g) {
  std::uint64_t greatest = 0;
  for (const auto id : raw) greatest = std::max(greatest, id);
  const auto fill = [&](auto&& number_of) {
    const auto edges = raw.size() / 2;
    g.from.resize(edges);
    g.to.resize(edges);
    for (std::size_t e = 0; e < edges; ++e) {
      g.from[e] = number_of(raw[2 * e]);
      g.to[e] = number_of(raw[2 * e + 1]);
    }
  };
  if (greatest < 4 * raw.size() + 1024) {
    std::vector<std::uint32_t> table(greatest + 1);
    for (const auto id : raw) table[id] = 1;
    for (std::uint64_t id = 0; id <= greatest; ++id) {
      if (table[id] == 0) continue;
      table[id] = static_cast<std::uint32_t>(g.ids.size());
      g.ids.push_back(id);
    }
    fill([&](std::uint64_t id) { return table[id]; });
  } else {
    g.ids = raw;
    std::sort(g.ids.begin(), g.ids.end());
    g.ids.erase(std::unique(g.ids.begin(), g.ids.end()), g.ids.end());
    fill([&](std::uint64_t id) {
      return static_cast<std::uint32_t>(std::lower_bound(g.ids.begin(), g.ids.end(), id) - g.ids.begin());
    });
  }
}

/// `weighted`: an edge without a weight gets 1.
inline edge_list load(const std::string& file, bool weighted = false) {
  edge_list g;
  std::vector<std::uint64_t> raw;
  each_line(file, [&](const char* at, const char* end) {
    while (at < end && between(*at)) ++at;
    if (at == end || *at == '#') return;
    std::uint64_t a = 0, b = 0;
    if (!take(at, end, a) || !take(at, end, b)) throw std::runtime_error(file + ": a line without two ids");
    raw.push_back(a);
    raw.push_back(b);
    if (!weighted) return;
    double w = 1;
    take(at, end, w);
    g.weight.push_back(w);
  });
  number(raw, g);
  return g;
}

/// Compressed adjacency. `both`: edges in both directions, deduplicated, without self-loops.
struct csr {
  std::vector<std::uint64_t> begin;
  std::vector<std::uint32_t> target;
  std::vector<double> weight;
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(begin.size() - 1); }
};

inline csr compress(const edge_list& g, bool both) {
  csr a;
  const auto n = g.ids.size();
  a.begin.assign(n + 1, 0);
  const auto each = [&](auto&& f) {
    for (std::size_t e = 0; e < g.from.size(); ++e) {
      if (both && g.from[e] == g.to[e]) continue;
      f(g.from[e], g.to[e], e);
      if (both) f(g.to[e], g.from[e], e);
    }
  };
  each([&](std::uint32_t u, std::uint32_t, std::size_t) { ++a.begin[u + 1]; });
  for (std::size_t v = 0; v < n; ++v) a.begin[v + 1] += a.begin[v];
  a.target.resize(a.begin[n]);
  a.weight.resize(g.weight.size());  // only without `both`
  auto next = a.begin;
  each([&](std::uint32_t u, std::uint32_t t, std::size_t e) {
    if (!a.weight.empty()) a.weight[next[u]] = g.weight[e];
    a.target[next[u]++] = t;
  });
  if (!both) return a;
  std::uint64_t kept = 0;
  for (std::size_t v = 0; v < n; ++v) {
    const auto from = a.target.begin() + static_cast<std::ptrdiff_t>(a.begin[v]);
    const auto to = a.target.begin() + static_cast<std::ptrdiff_t>(a.begin[v + 1]);
    std::sort(from, to);
    const auto last = std::unique(from, to);
    a.begin[v] = kept;
    for (auto t = from; t != last; ++t) a.target[kept++] = *t;
  }
  a.begin[n] = kept;
  a.target.resize(kept);
  return a;
}

/// Values of --NAME options by name, and positional arguments.
struct arguments {
  std::string input;
  std::map<std::string, std::string> option;

  arguments(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      if (word.starts_with("--") && i + 1 < argc) option[word.substr(2)] = argv[++i];
      else input = word;
    }
  }
};

/// The vertex given by --source.
inline std::uint32_t source_of(arguments& from, const edge_list& g) {
  const auto id = std::stoull(from.option.at("source"));
  const auto v = static_cast<std::uint32_t>(std::lower_bound(g.ids.begin(), g.ids.end(), id) - g.ids.begin());
  if (v == g.ids.size() || g.ids[v] != id) throw std::runtime_error("no vertex has the id of --source");
  return v;
}

/// Runs `solve(arguments&)`, and prints an exception as a line on stderr.
template <class F>
int run(int argc, char** argv, const char* usage, F&& solve) {
  try {
    arguments from(argc, argv);
    if (from.input.empty()) throw std::runtime_error(std::string("want EDGES") + usage);
    solve(from);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
    return 1;
  }
}

}  // namespace serial
