// SPDX-License-Identifier: BSD-3-Clause
//
// The files of pregel's checkpoints; numbers are 64 bits in the machine's byte order:
//
//     | "PCLPREG3" | shape (9 numbers) | superstep | bytes of state | state | XXH3-64 of all before |
#include <paracel/pregel_checkpoint.hpp>

#include <bit>
#include <charconv>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <paracel/error.hpp>
#include <paracel/exchange.hpp>
#include <paracel/random.hpp>

#include "core/hash.hpp"
#include "storage/file_system.hpp"

namespace paracel {

namespace {

/// Depends on the order of the two.
std::uint64_t mixed(std::uint64_t a, std::uint64_t b) { return mix64(mix64(a + 0x9e3779b97f4a7c15U) ^ b); }

}  // namespace

std::uint64_t pregel_identity(std::string_view name, std::initializer_list<std::uint64_t> arguments) {
  auto identity = mixed(hash_key(name), arguments.size());
  for (const auto a : arguments) identity = mixed(identity, a);
  return identity;
}

std::uint64_t graph_identity(Comm comm, const distributed_graph& graph) {
  // Sums, so that ownership does not matter. Unsigned, so that they may overflow.
  std::uint64_t sum = 0;
  for (std::size_t v = 0; v < graph.own(); ++v) {
    const auto from = mix64(graph.number(v) + 0x9e3779b97f4a7c15U);
    if (v < graph.ids.size())  // a graph built by a program may have none
      sum += mixed(from, graph.ids.numeric() ? graph.ids.number(v) : hash_key(graph.ids.name(v)));
    for (auto e = graph.out.begin[v]; e < graph.out.begin[v + 1]; ++e) {
      const auto weight = std::bit_cast<std::uint64_t>(graph.out.weight_at(e));
      sum += mixed(mixed(from, graph.number(graph.out.target[e])), weight);
    }
  }
  std::uint64_t all = 0;
  for (const auto part : comm.allgather(sum)) all += part;
  return mixed(all, graph.directed ? 1 : 0);
}

namespace pregel_detail {

namespace {

constexpr char magic[] = "PCLPREG3";
constexpr std::size_t magic_bytes = 8;
constexpr std::size_t checkpoint_head_bytes = magic_bytes + sizeof(checkpoint_shape) + 2 * sizeof(std::uint64_t);

std::string path_of(const std::string& folder, std::uint64_t superstep, std::uint64_t rank) {
  return folder + "/pregel_" + std::to_string(superstep) + "_" + std::to_string(rank);
}

/// The whole file, or nothing if it cannot be read or is corrupt.
byte_vector read_whole(const std::string& path) try {
  const auto in = storage::posix_file_system().open(path);
  if (in->size() < checkpoint_head_bytes + sizeof(std::uint64_t)) return {};
  byte_vector all(in->size());
  if (in->read_at(0, all) != all.size() || std::memcmp(all.data(), magic, magic_bytes) != 0) return {};
  const auto state = load_field<std::uint64_t>(all.data() + checkpoint_head_bytes - sizeof(std::uint64_t));
  const auto sum = load_field<std::uint64_t>(all.data() + all.size() - sizeof(std::uint64_t));
  if (state != all.size() - checkpoint_head_bytes - sizeof sum) return {};
  running_hash of;
  of.add(std::span(all).first(checkpoint_head_bytes + state));
  if (of.value() != sum) return {};
  return all;
} catch (const error&) {
  return {};
}

/// Calls f(superstep, path) for the files of this rank.
template <class F>
void each_file(const std::string& folder, std::uint64_t rank, F&& f) {
  std::vector<std::string> names;
  try {
    names = storage::posix_file_system().list(folder);
  } catch (const error&) {  // none yet
  }
  for (const auto& name : names) {
    std::uint64_t superstep = 0, of = 0;
    if (!name.starts_with("pregel_")) continue;
    const char* end = name.data() + name.size();
    const auto first = std::from_chars(name.data() + 7, end, superstep);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != '_') continue;
    const auto second = std::from_chars(first.ptr + 1, end, of);
    if (second.ec != std::errc() || second.ptr != end || of != rank) continue;
    f(superstep, folder + "/" + name);
  }
}

}  // namespace

void put_kept(saved_state& to, const std::string& name, byte_vector state) {
  // Padded to 8-byte integers, which are stored verbatim; the state itself tells where it ends.
  state.resize((state.size() + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t) * sizeof(std::uint64_t));
  to.put_value(name, {value_tag::i64_array, state});
}

byte_vector get_kept(const saved_state& from, const std::string& name) {
  byte_vector state;
  from.visit(name, [&](const std::string&, const value_view& v) { state.assign(v.bytes.begin(), v.bytes.end()); });
  if (state.empty()) throw error("the checkpoint has no \"" + name + "\": it is of another version of this program");
  return state;
}

void write_checkpoint(const std::string& folder, std::uint64_t superstep, const checkpoint_shape& shape,
                      std::span<const std::byte> state) {
  storage::posix_file_system disk;
  disk.make_folder(folder);
  byte_vector head;
  put_bytes(head, magic, magic_bytes);
  put_fields(head, shape, superstep, static_cast<std::uint64_t>(state.size()));
  running_hash of;
  of.add(head);
  of.add(state);
  const auto sum = of.value();
  const auto file = disk.create(path_of(folder, superstep, shape.rank));
  file->append(head);
  file->append(state);
  file->append(std::as_bytes(std::span(&sum, 1)));
  file->commit();
}

std::vector<std::uint64_t> find_checkpoints(const std::string& folder, const checkpoint_shape& shape) {
  std::vector<std::uint64_t> found;
  each_file(folder, shape.rank, [&](std::uint64_t superstep, const std::string& path) {
    const auto all = read_whole(path);
    if (all.empty()) return;
    const auto theirs = load_field<checkpoint_shape>(all.data() + magic_bytes);
    if (theirs.workers != shape.workers)
      throw error(path + ": is a checkpoint of " + std::to_string(theirs.workers) + " workers, want " +
                  std::to_string(shape.workers));
    if (theirs != shape)
      throw error(path +
                  ": is a checkpoint of another graph, or of a computation with another name or other arguments");
    found.push_back(superstep);
  });
  return found;
}

byte_vector read_checkpoint(const std::string& folder, std::uint64_t superstep, const checkpoint_shape& shape) {
  const auto path = path_of(folder, superstep, shape.rank);
  const auto all = read_whole(path);
  if (all.empty()) throw error(path + ": cannot be read again");
  return {all.begin() + checkpoint_head_bytes, all.end() - static_cast<std::ptrdiff_t>(sizeof(std::uint64_t))};
}

void remove_checkpoints(const std::string& folder, std::uint64_t rank, std::optional<std::uint64_t> but) {
  storage::posix_file_system disk;
  each_file(folder, rank, [&](std::uint64_t superstep, const std::string& path) {
    if (superstep != but) disk.remove(path);
  });
  if (!but) disk.remove_unfinished(folder);
}

}  // namespace pregel_detail

}  // namespace paracel
