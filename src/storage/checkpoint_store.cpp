// SPDX-License-Identifier: BSD-3-Clause
#include "storage/checkpoint_store.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>
#include <paracel/error.hpp>

#include "core/hash.hpp"
#include "core/hex.hpp"
#include "core/json_io.hpp"

namespace paracel::storage {
namespace {

using nlohmann::json;

constexpr std::size_t clock_digits = 10;
// 100,000 files of 200 bytes each and room for the functions.
constexpr std::size_t most_manifest_bytes = std::size_t{64} << 20;
constexpr const char* format_name = "paracel checkpoint";

/// The text of a manifest around its contents.
std::string framed(const json& inner) {
  const auto text = json_text(inner);
  return R"({"checkpoint":)" + text + R"(,"xxh3":")" + to_hex(hash_block(std::as_bytes(std::span(text)), 0)) + "\"}\n";
}

struct reading {
  const std::string& path;

  [[noreturn]] void refuse(std::size_t offset, const std::string& what) const {
    throw data_error(path + ": byte " + std::to_string(offset) + ": " + what);
  }
  /// For well-formed JSON with wrong contents; once the hash is verified only a faulty writer leads here.
  [[noreturn]] void refuse(const std::string& what) const { refuse(0, what); }

  const json& member(const json& in, const char* key) const {
    const auto it = in.find(key);
    if (it == in.end()) refuse("\"" + std::string(key) + "\" is missing");
    return *it;
  }
  std::uint64_t number(const json& in, const char* key, std::uint64_t most) const {
    const auto& m = member(in, key);
    if (!m.is_number_unsigned() || m.get<std::uint64_t>() > most) {
      refuse("\"" + std::string(key) + "\" is " + json_text(m) + ", not a whole number up to " + std::to_string(most));
    }
    return m.get<std::uint64_t>();
  }
  std::uint32_t small(const json& in, const char* key) const {
    return static_cast<std::uint32_t>(number(in, key, 0xffffffffU));
  }
  std::string text(const json& in, const char* key) const {
    const auto& m = member(in, key);
    if (!m.is_string()) refuse("\"" + std::string(key) + "\" is not a string");
    return m.get<std::string>();
  }
  bool flag(const json& in, const char* key) const {
    const auto& m = member(in, key);
    if (!m.is_boolean()) refuse("\"" + std::string(key) + "\" is neither true nor false");
    return m.get<bool>();
  }
  std::uint64_t hex(const json& in, const char* key) const {
    const auto id = from_hex(text(in, key));
    if (!id) refuse("\"" + std::string(key) + "\" is not 16 hex digits");
    return *id;
  }
  const json& list(const json& in, const char* key) const {
    const auto& m = member(in, key);
    if (!m.is_array()) refuse("\"" + std::string(key) + "\" is not a list");
    for (const auto& one : m) {
      if (!one.is_object()) refuse("\"" + std::string(key) + "\" contains something that is not an object");
    }
    return m;
  }
};

/// Whether a file of this name may be one of a checkpoint. The user has named the folder of checkpoints, and may have
/// folders of ten digits there too, such as 2026010112.
bool is_of_checkpoint(std::string_view name) {
  return name == manifest_name ||
         ((name.starts_with("worker-") || name.starts_with("server-")) && name.ends_with(".ckpt"));
}

std::string path_in(const std::string& folder, const std::string& name) { return folder + "/" + name; }

}  // namespace

std::string to_json(const checkpoint_entry& e) {
  return json_text({{"name", e.name},
                    {"kind", static_cast<std::uint16_t>(e.header.kind)},
                    {"index", e.header.index},
                    {"thread", e.header.thread},
                    {"count", e.header.count},
                    {"bytes", e.digest.bytes},
                    {"xxh3", to_hex(e.digest.hash)}});
}

checkpoint_entry entry_from_json(std::string_view text, std::uint32_t clock, std::uint64_t job) try {
  const auto j = json_or_throw(text);
  checkpoint_entry e;
  e.header = {.kind = static_cast<checkpoint_kind>(j.at("kind").get<std::uint16_t>()),
              .clock = clock,
              .index = j.at("index").get<std::uint32_t>(),
              .job = job,
              .thread = j.at("thread").get<std::uint32_t>(),
              .count = j.at("count").get<std::uint32_t>()};
  e.name = j.at("name").get<std::string>();
  const auto hash = from_hex(j.at("xxh3").get<std::string>());
  e.digest = {j.at("bytes").get<std::uint64_t>(), hash.value_or(0)};
  const bool has_kind = e.header.kind == checkpoint_kind::server || e.header.kind == checkpoint_kind::worker;
  if (!hash || !has_kind || e.name != checkpoint_file_name(e.header))
    throw error("a file of a checkpoint has an impossible name");
  return e;
} catch (const json::exception& e) {
  throw error(std::string("a file of a checkpoint is not described as it must be: ") + e.what());
}

std::string checkpoint_manifest::to_text() const {
  json inner = {{"format", format_name},      {"version", checkpoint_version},
                {"job", to_hex(job)},         {"clock", clock},
                {"workers", workers},         {"servers", servers},
                {"program", program},         {"config_xxh3", to_hex(config)},
                {"functions", json::array()}, {"files", json::array()}};
  if (!settings.empty()) inner["settings"] = settings;
  for (const auto& f : functions) {
    inner["functions"].push_back(
        {{"id", to_hex(f.id)}, {"plugin", f.plugin}, {"symbol", f.symbol}, {"filter", f.filter}});
  }
  for (const auto& f : files) {
    const bool server = f.header.kind == checkpoint_kind::server;
    json one = {
        {"name", f.name}, {"bytes", f.digest.bytes}, {"xxh3", to_hex(f.digest.hash)}, {"count", f.header.count}};
    if (server) {
      one["slot"] = f.header.index;
      one["thread"] = f.header.thread;
    } else {
      one["rank"] = f.header.index;
    }
    inner["files"].push_back(std::move(one));
  }
  return framed(inner);
}

checkpoint_manifest checkpoint_manifest::from_text(std::string_view text, const std::string& path) {
  const reading in{path};
  json whole;
  try {
    whole = json_or_throw(text);
  } catch (const json::parse_error& e) {
    in.refuse(e.byte == 0 ? 0 : e.byte - 1, "is not JSON: cut off or damaged");
  } catch (const json::exception& e) {  // a number that is too large
    in.refuse(e.what());
  } catch (const data_error& e) {
    in.refuse(std::string("is ") + e.what());
  }
  if (!whole.is_object() || !whole.contains("checkpoint") || !whole["checkpoint"].is_object()) {
    in.refuse(0, "is not the manifest of a checkpoint");
  }
  const auto& inner = whole["checkpoint"];
  const auto version = in.small(inner, "version");
  if (in.text(inner, "format") != format_name) in.refuse("is the manifest of something else");
  if (version != checkpoint_version) {
    in.refuse("has format version " + std::to_string(version) + ", this program reads " +
              std::to_string(checkpoint_version));
  }
  const auto expected = framed(inner);
  if (expected != text) {
    const auto differs = std::mismatch(expected.begin(), expected.end(), text.begin(), text.end());
    in.refuse(static_cast<std::size_t>(differs.second - text.begin()), "the checksum is wrong");
  }
  checkpoint_manifest m;
  m.job = in.hex(inner, "job");
  m.clock = in.small(inner, "clock");
  m.workers = in.small(inner, "workers");
  m.servers = in.small(inner, "servers");
  m.program = in.text(inner, "program");
  m.config = in.hex(inner, "config_xxh3");
  if (inner.contains("settings")) m.settings = in.text(inner, "settings");
  for (const auto& f : in.list(inner, "functions")) {
    m.functions.push_back({in.hex(f, "id"), in.text(f, "plugin"), in.text(f, "symbol"), in.flag(f, "filter")});
  }
  std::set<std::string> names;
  for (const auto& f : in.list(inner, "files")) {
    checkpoint_entry e;
    e.header.kind = f.contains("rank") ? checkpoint_kind::worker : checkpoint_kind::server;
    e.header.clock = m.clock;
    e.header.job = m.job;
    e.header.count = in.small(f, "count");
    if (e.header.kind == checkpoint_kind::server) {
      e.header.index = in.small(f, "slot");
      e.header.thread = in.small(f, "thread");
    } else {
      e.header.index = in.small(f, "rank");
    }
    e.name = in.text(f, "name");
    // So that no name leads outside the folder, or to another file.
    if (e.name != checkpoint_file_name(e.header)) in.refuse("\"" + e.name + "\" is not the name of a checkpoint file");
    if (!names.insert(e.name).second) in.refuse("\"" + e.name + "\" is named twice");
    e.digest = {in.number(f, "bytes", ~std::uint64_t{0}), in.hex(f, "xxh3")};
    m.files.push_back(std::move(e));
  }
  return m;
}

std::string checkpoint_folder_name(std::uint32_t clock) {
  const auto digits = std::to_string(clock);
  return std::string(clock_digits - digits.size(), '0') + digits;
}

std::string checkpoint_file_name(const checkpoint_header& h) {
  if (h.kind == checkpoint_kind::worker) return "worker-" + std::to_string(h.index) + ".ckpt";
  return "server-" + std::to_string(h.index) + "-" + std::to_string(h.thread) + ".ckpt";
}

std::optional<std::uint32_t> clock_of_folder(std::string_view name) {
  std::uint32_t clock = 0;
  if (name.size() != clock_digits) return std::nullopt;
  const auto* end = name.data() + name.size();
  if (const auto [stop, failed] = std::from_chars(name.data(), end, clock); failed != std::errc{} || stop != end) {
    return std::nullopt;
  }
  return clock;
}

checkpoint_manifest read_manifest(const file_system& on, const std::string& folder) {
  const auto path = path_in(folder, manifest_name);
  const auto bytes = on.read(path, most_manifest_bytes);
  return checkpoint_manifest::from_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

checkpoint_manifest verify_checkpoint(const file_system& on, const std::string& folder) {
  auto m = read_manifest(on, folder);
  for (const auto& f : m.files) {
    const auto path = path_in(folder, f.name);
    checkpoint_header header;
    const auto found = verify_checkpoint_file(on, path, &header);
    if (header != f.header) {
      throw data_error(path + ": byte 12: belongs to another job, clock or node than the manifest says (job " +
                       to_hex(header.job) + ", clock " + std::to_string(header.clock) + ")");
    }
    if (found.bytes != f.digest.bytes) {
      throw data_error(path + ": byte " + std::to_string(std::min(found.bytes, f.digest.bytes)) + ": has " +
                       std::to_string(found.bytes) + " bytes, the manifest says " + std::to_string(f.digest.bytes));
    }
    if (found.hash != f.digest.hash) throw data_error(path + ": byte 0: is not the file that the manifest describes");
  }
  return m;
}

std::vector<std::uint32_t> checkpoint_clocks(const file_system& on, const std::string& folder) {
  std::vector<std::uint32_t> clocks;
  std::vector<std::string> names;
  try {
    names = on.list(folder);
  } catch (const error&) {  // does not exist yet
    return clocks;
  }
  for (const auto& name : names) {
    if (const auto clock = clock_of_folder(name)) clocks.push_back(*clock);
  }
  std::sort(clocks.begin(), clocks.end());
  return clocks;
}

chosen_checkpoint choose_checkpoint(const file_system& on, const std::string& folder) {
  chosen_checkpoint chosen;
  const auto take = [&](const std::string& one) {
    try {
      chosen.manifest = verify_checkpoint(on, one);
      chosen.folder = one;
      return true;
    } catch (const error& e) {
      chosen.passed_over.push_back({one, e.what()});
      return false;
    }
  };
  const auto clocks = checkpoint_clocks(on, folder);
  if (clocks.empty()) {
    if (take(folder)) return chosen;
    throw data_error(folder + ": contains no checkpoint, and is not one itself: " + chosen.passed_over.front().why);
  }
  for (auto c = clocks.rbegin(); c != clocks.rend(); ++c) {
    if (take(path_in(folder, checkpoint_folder_name(*c)))) return chosen;
  }
  std::string all;
  for (const auto& b : chosen.passed_over) all += "\n  " + b.why;
  throw data_error(folder + ": no checkpoint in it is valid:" + all);
}

bool has_foreign_files(const file_system& on, const std::string& folder) {
  try {
    return !std::ranges::all_of(on.list(folder), is_of_checkpoint);
  } catch (const error&) {  // there is no such folder
    return false;
  }
}

std::vector<std::uint32_t> prune_checkpoints(file_system& on, const std::string& folder, std::uint32_t keep,
                                             std::map<std::uint32_t, bool>& known) {
  std::vector<std::uint32_t> removed;
  const auto clocks = checkpoint_clocks(on, folder);
  std::uint32_t good = 0;
  for (auto c = clocks.rbegin(); c != clocks.rend(); ++c) {
    const auto one = path_in(folder, checkpoint_folder_name(*c));
    if (good >= keep) {
      if (has_foreign_files(on, one)) continue;
      // The manifest first: what is left by an interrupted removal is not a checkpoint.
      on.remove(path_in(one, manifest_name));
      on.remove_folder(one);
      known.erase(*c);
      removed.push_back(*c);
      continue;
    }
    const auto [at, fresh] = known.try_emplace(*c, false);
    if (fresh) {
      try {
        verify_checkpoint(on, one);
        at->second = true;
      } catch (const error&) {  // it is reported on an attempt to resume from it
      }
    }
    if (at->second) ++good;
  }
  return removed;
}

std::vector<std::string> set_aside_after(file_system& on, const std::string& folder, std::uint32_t clock) {
  std::vector<std::string> fresh;
  if (checkpoint_clocks(on, folder).empty()) return fresh;
  const auto names = on.list(folder);
  std::set<std::string> taken(names.begin(), names.end());
  for (const auto c : checkpoint_clocks(on, folder)) {
    if (c <= clock) continue;
    const auto name = checkpoint_folder_name(c);
    if (std::ranges::none_of(on.list(path_in(folder, name)), is_of_checkpoint)) continue;
    std::string to = name + ".old";
    for (int i = 2; taken.contains(to); ++i) to = name + ".old" + std::to_string(i);
    on.rename(path_in(folder, name), path_in(folder, to));
    taken.insert(to);
    fresh.push_back(to);
  }
  return fresh;
}

}  // namespace paracel::storage
