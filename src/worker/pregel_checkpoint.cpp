// SPDX-License-Identifier: BSD-3-Clause
//
// The files of pregel's checkpoints; numbers are 64 bits in the machine's order:
//
//     | "PCLPREG2" | shape (9 numbers) | superstep | bytes of state | state | checksum of all before |
#include <paracel/pregel_checkpoint.hpp>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include <unistd.h>

#include <paracel/error.hpp>
#include <paracel/exchange.hpp>
#include <paracel/random.hpp>

#include "core/hash.hpp"

namespace paracel {

namespace {

/// Depends on the order of the two.
std::uint64_t joined(std::uint64_t a, std::uint64_t b) { return mix64(mix64(a + 0x9e3779b97f4a7c15U) ^ b); }

}  // namespace

std::uint64_t pregel_identity(std::string_view name, std::initializer_list<std::uint64_t> arguments) {
  auto identity = joined(hash_key(name), arguments.size());
  for (const auto a : arguments) identity = joined(identity, a);
  return identity;
}

std::uint64_t graph_identity(Comm comm, const graph_part& graph) {
  // Sums, so that it does not matter who owns what. Unsigned, so that they may overflow.
  std::uint64_t sum = 0;
  for (std::size_t v = 0; v < graph.own(); ++v) {
    const auto from = mix64(graph.number(v) + 0x9e3779b97f4a7c15U);
    if (v < graph.ids.size())  // a graph made by a program may have none
      sum += joined(from, graph.ids.numeric() ? graph.ids.number(v) : hash_key(graph.ids.name(v)));
    for (auto e = graph.out.begin[v]; e < graph.out.begin[v + 1]; ++e) {
      const auto weight = std::bit_cast<std::uint64_t>(graph.out.weight_at(e));
      sum += joined(joined(from, graph.number(graph.out.target[e])), weight);
    }
  }
  std::uint64_t all = 0;
  for (const auto part : comm.allgather(sum)) all += part;
  return joined(all, graph.directed ? 1 : 0);
}

namespace pregel_detail {

namespace {

constexpr char magic[] = "PCLPREG2";
constexpr std::size_t magic_bytes = 8;
constexpr std::size_t head_bytes = magic_bytes + sizeof(checkpoint_shape) + 2 * sizeof(std::uint64_t);

std::string path_of(const std::string& folder, std::uint64_t superstep, std::uint64_t rank) {
  return folder + "/pregel_" + std::to_string(superstep) + "_" + std::to_string(rank);
}

class checksum {
 public:
  void add(std::span<const std::byte> bytes) {
    while (bytes.size() >= sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data(), sizeof word);
      state_ = mix64(state_ ^ word) + 0x9e3779b97f4a7c15U;
      bytes = bytes.subspan(sizeof word);
    }
    std::uint64_t word = bytes.size();
    for (const auto b : bytes) word = (word << 8U) | std::to_integer<std::uint64_t>(b);
    state_ = mix64(state_ ^ word) + 0x9e3779b97f4a7c15U;
  }
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0;
};

struct closer {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using file = std::unique_ptr<std::FILE, closer>;

/// The whole file, or nothing where it cannot be read or is damaged.
byte_vector read_whole(const std::string& path) {
  file in(std::fopen(path.c_str(), "rb"));
  if (!in) return {};
  std::error_code none;
  const auto bytes = std::filesystem::file_size(path, none);
  if (none || bytes < head_bytes + sizeof(std::uint64_t)) return {};
  byte_vector all(bytes);
  if (std::fread(all.data(), 1, all.size(), in.get()) != all.size()) return {};
  if (std::memcmp(all.data(), magic, magic_bytes) != 0) return {};
  std::uint64_t state = 0, sum = 0;
  std::memcpy(&state, all.data() + head_bytes - sizeof state, sizeof state);
  if (state != all.size() - head_bytes - sizeof sum) return {};
  std::memcpy(&sum, all.data() + all.size() - sizeof sum, sizeof sum);
  checksum c;
  c.add(std::span(all).first(head_bytes));
  c.add(std::span(all).subspan(head_bytes, state));
  if (c.value() != sum) return {};
  return all;
}

constexpr const char* temporary_back = ".tmp";

/// Calls f(superstep, path, whole) for the files of this rank; one that was not written to its end is not whole.
template <class F>
void each_file(const std::string& folder, std::uint64_t rank, F&& f) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const auto name = entry.path().filename().string();
    std::uint64_t superstep = 0, of = 0;
    if (!name.starts_with("pregel_")) continue;
    const char* at = name.data() + 7;
    const char* end = name.data() + name.size();
    const auto first = std::from_chars(at, end, superstep);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != '_') continue;
    const auto second = std::from_chars(first.ptr + 1, end, of);
    const std::string_view back(second.ptr, static_cast<std::size_t>(end - second.ptr));
    if (second.ec != std::errc() || of != rank || (!back.empty() && back != temporary_back)) continue;
    f(superstep, entry.path().string(), back.empty());
  }
}

}  // namespace

void write_checkpoint(const std::string& folder, std::uint64_t superstep, const checkpoint_shape& shape,
                      std::span<const std::byte> state) {
  std::error_code none;
  std::filesystem::create_directories(folder, none);
  const auto path = path_of(folder, superstep, shape.rank);
  const auto temporary = path + temporary_back;
  byte_vector head;
  put_bytes(head, magic, magic_bytes);
  put_bytes(head, shape);
  put_bytes(head, superstep);
  put_bytes(head, static_cast<std::uint64_t>(state.size()));
  checksum c;
  c.add(head);
  c.add(state);
  const auto sum = c.value();
  file out(std::fopen(temporary.c_str(), "wb"));
  const bool written = out && std::fwrite(head.data(), 1, head.size(), out.get()) == head.size() &&
                       std::fwrite(state.data(), 1, state.size(), out.get()) == state.size() &&
                       std::fwrite(&sum, 1, sizeof sum, out.get()) == sizeof sum && std::fflush(out.get()) == 0 &&
                       fsync(fileno(out.get())) == 0;
  if (!written || std::rename(temporary.c_str(), path.c_str()) != 0)
    throw error(path + ": cannot be written: " + std::strerror(errno));
}

std::vector<std::uint64_t> find_checkpoints(const std::string& folder, const checkpoint_shape& shape) {
  std::vector<std::uint64_t> found;
  each_file(folder, shape.rank, [&](std::uint64_t superstep, const std::string& path, bool whole) {
    if (!whole) return;
    const auto all = read_whole(path);
    if (all.empty()) return;
    checkpoint_shape theirs;
    std::memcpy(&theirs, all.data() + magic_bytes, sizeof theirs);
    if (theirs.workers != shape.workers)
      throw error(path + ": is a checkpoint of " + std::to_string(theirs.workers) + " workers, want " +
                  std::to_string(shape.workers));
    if (theirs != shape)
      throw error(path + ": is a checkpoint of another graph, or of a computation with another name or other arguments");
    found.push_back(superstep);
  });
  return found;
}

byte_vector read_checkpoint(const std::string& folder, std::uint64_t superstep, const checkpoint_shape& shape) {
  const auto path = path_of(folder, superstep, shape.rank);
  const auto all = read_whole(path);
  if (all.empty()) throw error(path + ": cannot be read again");
  return {all.begin() + head_bytes, all.end() - static_cast<std::ptrdiff_t>(sizeof(std::uint64_t))};
}

void remove_checkpoints(const std::string& folder, std::uint64_t rank, std::optional<std::uint64_t> but) {
  std::vector<std::string> gone;
  each_file(folder, rank, [&](std::uint64_t superstep, const std::string& path, bool whole) {
    if (!whole || superstep != but) gone.push_back(path);
  });
  std::error_code none;
  for (const auto& path : gone) std::filesystem::remove(path, none);
}

}  // namespace pregel_detail

}  // namespace paracel
