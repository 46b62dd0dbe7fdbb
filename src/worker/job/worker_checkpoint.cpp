// SPDX-License-Identifier: BSD-3-Clause
#include "worker/job/worker_checkpoint.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

namespace paracel {
namespace {

constexpr std::size_t part_front_bytes = 8;
constexpr std::size_t value_front_bytes = 16;

template <class... Fields>
void take_state_fields(std::span<const std::byte>& rest, Fields&... fields) {
  if (!take_fields(rest, fields...)) throw protocol_error("saved state: cut off");
}

}  // namespace

std::string short_text(std::string_view text) {
  constexpr std::size_t most = 1024;
  return std::string(text.substr(0, most)) + (text.size() > most ? " ..." : "");
}

// u32 values, then each: u32 bytes of the name | u32 tag | u64 bytes of the value | name | value
std::vector<std::byte> saved_state::to_bytes() const {
  std::vector<std::byte> out;
  put_fields(out, static_cast<std::uint32_t>(values_.size()));
  for (const auto& [name, value] : values_) {
    put_fields(out, static_cast<std::uint32_t>(name.size()), static_cast<std::uint32_t>(value.first),
               static_cast<std::uint64_t>(value.second.size()));
    put_bytes(out, name.data(), name.size());
    put_bytes(out, value.second.data(), value.second.size());
  }
  return out;
}

saved_state saved_state::from_bytes(std::span<const std::byte> bytes) {
  saved_state s;
  std::uint32_t count = 0;
  take_state_fields(bytes, count);
  if (count > bytes.size() / value_front_bytes) throw protocol_error("saved state: cut off");
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint32_t name_bytes = 0;
    std::uint32_t tag = 0;
    std::uint64_t value_bytes = 0;
    take_state_fields(bytes, name_bytes, tag, value_bytes);
    if (name_bytes > bytes.size() || value_bytes > bytes.size() - name_bytes)
      throw protocol_error("saved state: cut off");
    const std::string name(reinterpret_cast<const char*>(bytes.data()), name_bytes);
    const auto value = bytes.subspan(name_bytes, value_bytes);
    const value_view v{static_cast<value_tag>(tag), value};
    if (tag > 0xff || !is_well_formed(v)) throw protocol_error("saved state: \"" + name + "\" is not a value");
    if (!s.values_.try_emplace(name, v.tag, std::vector<std::byte>(value.begin(), value.end())).second) {
      throw protocol_error("saved state: \"" + name + "\" occurs twice");
    }
    bytes = bytes.subspan(name_bytes + value_bytes);
  }
  if (!bytes.empty()) throw protocol_error("saved state: more than its values");
  return s;
}

void worker_checkpoint::read(const storage::file_system& disk, const checkpoint_plan& plan, std::uint32_t rank,
                             std::uint32_t workers) {
  const auto manifest = storage::read_manifest(disk, plan.resume);
  std::set<std::uint32_t> ranks;
  for (const auto& f : manifest.files) {
    if (f.header.kind == storage::checkpoint_kind::worker) ranks.insert(f.header.index);
  }
  // A worker that had left (ejected, or done) has no file. Its replacement must not start at another iteration
  // than the others, so then no worker restores its own state.
  same_workers_ = manifest.workers == workers && ranks.size() == workers;
  kept_.clear();
  kept_.resize(same_workers_ ? 1 : std::max<std::size_t>(manifest.workers, 1));
  for (const auto& f : manifest.files) {
    if (f.header.kind != storage::checkpoint_kind::worker) continue;
    const auto path = plan.resume + "/" + f.name;
    if (!same_workers_ && f.header.index < kept_.size()) kept_[f.header.index] = read_file(disk, path, f.header);
    if (same_workers_ && f.header.index == rank) kept_.front() = read_file(disk, path, f.header);
  }
  // The first one tells where all begin (begin_of_next, enter): it must be one that existed.
  if (!same_workers_ && !ranks.contains(0) && !ranks.empty() && *ranks.begin() < kept_.size())
    kept_.front().swap(kept_[*ranks.begin()]);
}

std::vector<worker_checkpoint::kept> worker_checkpoint::read_file(const storage::file_system& disk,
                                                                  const std::string& path,
                                                                  const storage::checkpoint_header& expected) {
  storage::checkpoint_reader file(disk, path);
  if (file.header() != expected) throw data_error(path + ": byte 0: is of another job, clock or worker");
  std::vector<kept> all;
  std::uint32_t section = 0;
  std::vector<std::byte> payload;
  while (file.next(section, payload)) {
    try {
      if (section != all.size() + 1)
        throw protocol_error("section " + std::to_string(section) + " is not expected here");
      all.push_back(take_section(payload));
    } catch (const protocol_error& e) {
      throw data_error(path + ": byte " + std::to_string(file.offset()) + ": " + e.what());
    }
  }
  return all;
}

std::vector<std::byte> worker_checkpoint::section(const part& p, std::uint32_t commits) {
  saved_state state;
  if (p.save) p.save(state);
  std::vector<std::byte> payload;
  payload.reserve(part_front_bytes);
  put_fields(payload, p.begin, commits);
  const auto bytes = state.to_bytes();
  payload.insert(payload.end(), bytes.begin(), bytes.end());
  return payload;
}

worker_checkpoint::kept worker_checkpoint::take_section(std::span<const std::byte> bytes) {
  kept k;
  take_state_fields(bytes, k.begin, k.commits);
  k.state = saved_state::from_bytes(bytes);
  return k;
}

// each part: u64 bytes | section
std::vector<std::byte> worker_checkpoint::to_bytes(std::size_t committing) const {
  std::vector<std::byte> out;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto one = section(parts_[i], parts_[i].commits + (i == committing ? 1 : 0));
    put_fields(out, std::uint64_t{one.size()});
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

void worker_checkpoint::from_bytes(std::span<const std::byte> bytes) {
  same_workers_ = true;
  kept_.assign(1, {});
  while (!bytes.empty()) {
    std::uint64_t size = 0;
    take_state_fields(bytes, size);
    if (size > bytes.size()) throw protocol_error("saved state: cut off");
    kept_.front().push_back(take_section(bytes.first(static_cast<std::size_t>(size))));
    bytes = bytes.subspan(static_cast<std::size_t>(size));
  }
}

std::uint32_t worker_checkpoint::begin_of_next(std::uint32_t finished) const {
  return !kept_.empty() && parts_.size() < kept_.front().size() ? kept_.front()[parts_.size()].begin : finished;
}

std::size_t worker_checkpoint::enter(std::uint32_t finished, std::function<void(saved_state&)> save) {
  const auto number = parts_.size();
  const bool known = !kept_.empty() && number < kept_.front().size();
  parts_.push_back({begin_of_next(finished), known ? kept_.front()[number].commits : 0, false, std::move(save)});
  return number;
}

bool worker_checkpoint::is_resumed(std::size_t number) const {
  return !kept_.empty() && number < kept_.front().size() && kept_.front()[number].commits != 0;
}

saved_states worker_checkpoint::states(std::size_t number) const {
  std::vector<saved_state> all;
  for (const auto& worker : kept_) all.push_back(number < worker.size() ? worker[number].state : saved_state());
  return {std::move(all), same_workers_};
}

storage::checkpoint_entry worker_checkpoint::write(storage::file_system& disk, const std::string& folder,
                                                   const storage::checkpoint_header& h) const {
  storage::checkpoint_entry e;
  e.header = h;
  e.name = storage::checkpoint_file_name(h);
  disk.make_folder(folder);
  storage::checkpoint_writer file(disk, folder + "/" + e.name, h);
  std::uint32_t number = 0;
  for (const auto& p : parts_) {
    file.add(++number, section(p, p.commits));
  }
  e.digest = file.finish();
  return e;
}

}  // namespace paracel
