// SPDX-License-Identifier: BSD-3-Clause
#include "load/load_cache.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include <paracel/error.hpp>

#include "core/hex.hpp"
#include "core/identity.hpp"
#include "load/collective_errors.hpp"
#include "load/input/input.hpp"

namespace paracel {

namespace {

constexpr std::string_view cache_magic = "pclcache";
constexpr std::uint32_t cache_format = 1;
constexpr std::uint64_t most_description = std::uint64_t{1} << 30U;
constexpr std::chrono::seconds settled{2};

}  // namespace

void cache_reader::bytes(std::span<std::byte> b) {
  if (from_.read_at(at_, b) != b.size()) throw error("cut off");
  at_ += b.size();
  hash_.add(b);
}

std::size_t cache_reader::count(std::size_t width) {
  const auto n = number();
  if (n > (from_.size() - std::min(at_, from_.size())) / width) throw error("cut off");
  return static_cast<std::size_t>(n);
}

bool cache_reader::finish() {
  const auto want = hash_.value();
  return number() == want && at_ == from_.size();
}

std::string text_of_options(const entry_options& o) {
  const auto number = [](auto v) { return " " + std::to_string(static_cast<int>(v)); };
  auto text = "entries" + number(o.format) + number(o.transpose) + number(o.ids) + number(o.duplicates) +
              number(o.values) + number(o.non_negative) + number(o.header) + number(o.comments);
  for (const auto& column : o.columns) text += " " + std::to_string(column.size()) + ":" + column;
  return text;
}

load_cache::load_cache(Comm comm, const load_cache_options& where, const std::string& kind, const std::string& options,
                       const std::vector<std::string>& files, const std::vector<std::string>& more_files)
    : comm_(std::move(comm)), on_(where.on), files_(files), more_files_(more_files) {
  if (!on_) return;
  std::vector<std::string> said(2);  // the path without the rank, the description
  all_or_throw(comm_, [&] {
    if (comm_.get_rank() != 0) return;
    const auto inputs = describe_files();
    files_found_ = inputs.text;
    const auto folder = where.folder.empty() ? inputs.folder + "/.paracel_cache" : where.folder;
    try {
      storage::posix_file_system().make_folder(folder);
    } catch (const error& e) {
      throw config_error(std::string("cache: ") + e.what() + "; the key cache_folder can name another folder");
    }
    const auto stays = options + "\nworkers " + std::to_string(comm_.get_size());
    std::string names;
    for (const auto* list : {&files_, &more_files_}) {
      names += '\n';
      for (const auto& n : *list) names += std::filesystem::absolute(n).string() + '\n';
    }
    said = {folder + "/" + kind + "-" + to_hex(hash_key(stays + names)) + "-",
            kind + "\n" + stays + "\n" + files_found_};
  });
  comm_.bcast(said);
  path_ = said[0] + std::to_string(comm_.get_rank());
  description_ = said[1];
}

load_cache::found load_cache::describe_files() const {
  found f;
  for (const auto* list : {&files_, &more_files_}) {
    if (list->empty()) continue;
    const input_set input(*list);
    if (input.standard_input()) throw config_error("cache: found standard input, want files");
    f.text += "files\n";
    for (const auto& file : input.files()) {
      const auto path = std::filesystem::absolute(file.name);
      if (f.folder.empty()) f.folder = path.parent_path();
      f.text += path.string() + "\n " + std::to_string(file.bytes) + " " + std::to_string(file.modified_ns) + " " +
                to_hex(file.content) + "\n";
      f.newest_ns = std::max(f.newest_ns, file.modified_ns);
    }
  }
  return f;
}

/// Returns: the generation; 0 when the file is of another load.
std::uint64_t load_cache::begin(cache_reader& r) const {
  std::string front(cache_magic.size(), ' ');
  r.bytes(std::as_writable_bytes(std::span(front)));
  std::uint32_t sizes[2] = {};
  r.bytes(std::as_writable_bytes(std::span(sizes)));
  if (front != cache_magic || sizes[0] != cache_format || sizes[1] != description_.size()) return 0;
  std::string description(sizes[1], ' ');
  r.bytes(std::as_writable_bytes(std::span(description)));
  return description == description_ ? r.number() : 0;
}

void load_cache::begin(cache_writer& w, std::uint64_t generation) const {
  const std::uint32_t sizes[2] = {cache_format, static_cast<std::uint32_t>(description_.size())};
  w.bytes(std::as_bytes(std::span(cache_magic)));
  w.bytes(std::as_bytes(std::span(sizes)));
  w.bytes(std::as_bytes(std::span(description_)));
  w.number(generation);
}

/// The replacement of a dead worker gets what the workers agreed on then, whatever its file is now.
bool load_cache::agree(std::uint64_t generation, const std::string& why) {
  const auto all = comm_.allgather(static_cast<std::int64_t>(generation));
  const bool agreed = all[0] != 0 && std::ranges::all_of(all, [&](auto g) { return g == all[0]; });
  if (agreed && generation != static_cast<std::uint64_t>(all[0]))
    throw data_error(path_ + ": could be read when the job began, and cannot any more" +
                     (why.empty() ? "" : ": " + why));
  return agreed;
}

/// 0: the load is not kept.
std::uint64_t load_cache::new_generation() {
  std::int64_t generation = 0;
  all_or_throw(comm_, [&] {
    if (comm_.get_rank() != 0 || description_.size() > most_description) return;
    const auto now = describe_files();
    const auto old_enough = std::chrono::system_clock::now() - settled;
    if (now.text != files_found_ || now.newest_ns > std::chrono::nanoseconds(old_enough.time_since_epoch()).count())
      return;
    generation = static_cast<std::int64_t>(random_id() >> 1U | 1U);
  });
  comm_.allreduce(generation, reduce_op::max);  // a replaced rank 0 gets its predecessor's, too
  return static_cast<std::uint64_t>(generation);
}

void load_cache::warn(const std::string& why) {
  std::fprintf(stderr, "warning: %s; the next job reads the text again\n", why.c_str());
}

}  // namespace paracel
