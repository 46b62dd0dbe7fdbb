// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <paracel/error.hpp>

#include "storage/file_system.hpp"

namespace paracel::test {

/// A disk in memory that fails or loses power at any step, with realistic contents afterwards.
///
/// Unsynchronised data may survive completely, partly, or not at all: a file keeps a prefix of what was written since
/// its last fsync (followed by zeros, as file systems leave them), a name in an unsynchronised folder refers to the old
/// or the new file. `seed` determines the choices.
class crash_disk final : public storage::file_system {
 public:
  struct power_loss {};

  /// Steps so far: each modifying call, where `commit` counts as three (fsync, rename, fsync of the folder).
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// The power fails before this step: power_loss is thrown there and at every later step.
  void lose_power_at(std::uint64_t step) { power_ = step; }
  /// From this step on all operations that need space fail as on a full disk, until `free_space`.
  void fill_at(std::uint64_t step) { full_ = step; }
  void free_space() { full_.reset(); }
  /// From now on a commit reports success without synchronising.
  void forget_to_sync() { syncs_ = false; }

  /// The machine has restarted.
  void restart(std::uint64_t seed) {
    std::mt19937_64 dice(seed);
    std::set<std::string> paths;
    for (const auto& [path, f] : now_) paths.insert(path);
    for (const auto& [path, f] : safe_) paths.insert(path);
    std::map<std::string, std::shared_ptr<file>> left;
    for (const auto& path : paths) {
      const auto old = safe_.find(path);
      const auto fresh = now_.find(path);
      const bool take_new = dice() % 2 == 0;
      if (const auto& from = take_new ? fresh : old; from != (take_new ? now_.end() : safe_.end()))
        left[path] = from->second;
    }
    std::set<file*> torn;
    for (auto& [path, f] : left) {
      if (!torn.insert(f.get()).second || f->synced == f->bytes.size()) continue;
      const auto kept = f->synced + dice() % (f->bytes.size() - f->synced + 1);
      f->bytes.resize(kept);
      f->bytes.resize(kept + dice() % 32, std::byte{0});
      f->synced = f->bytes.size();
    }
    now_ = left;
    safe_ = left;
    power_.reset();
  }

  std::unique_ptr<storage::file_writer> create(const std::string& path) override {
    step(path, true);
    if (!folders_.contains(folder_of(path))) throw error(path + ": cannot be written: No such file or directory");
    auto temporary = folder_of(path) + "/.paracel." + std::to_string(steps_) + ".tmp";
    auto f = std::make_shared<file>();
    now_[temporary] = f;
    return std::make_unique<writer>(*this, path, std::move(temporary), std::move(f));
  }
  [[nodiscard]] std::unique_ptr<storage::file_reader> open(const std::string& path) const override {
    const auto f = now_.find(path);
    if (f == now_.end()) throw error(path + ": cannot be opened: No such file or directory");
    return std::make_unique<reader>(f->second);
  }
  [[nodiscard]] std::vector<std::byte> read(const std::string& path, std::size_t most_bytes) const override {
    const auto f = now_.find(path);
    if (f == now_.end()) throw error(path + ": cannot be opened: No such file or directory");
    if (f->second->bytes.size() > most_bytes)
      throw error(path + ": longer than " + std::to_string(most_bytes) + " bytes");
    return f->second->bytes;
  }
  [[nodiscard]] std::vector<std::string> list(const std::string& folder) const override {
    if (!folders_.contains(folder)) throw error(folder + ": cannot be listed: No such file or directory");
    std::set<std::string> names;
    for (const auto& [path, f] : now_) {
      if (folder_of(path) == folder && !path.ends_with(".tmp")) names.insert(path.substr(folder.size() + 1));
    }
    for (const auto& f : folders_) {
      if (f != folder && folder_of(f) == folder) names.insert(f.substr(folder.size() + 1));
    }
    return {names.begin(), names.end()};
  }
  void make_folder(const std::string& folder) override {
    step(folder, true);
    for (auto f = folder; f != "." && f != "/" && folders_.insert(f).second;) f = folder_of(f);
  }
  bool remove_folder(const std::string& folder) override {
    step(folder, false);
    if (!folders_.contains(folder)) return false;
    std::erase_if(now_, [&](const auto& f) { return folder_of(f.first) == folder; });
    std::erase_if(safe_, [&](const auto& f) { return folder_of(f.first) == folder; });
    folders_.erase(folder);
    return true;
  }
  void rename(const std::string& from, const std::string& to) override {
    step(from, false);
    std::map<std::string, std::shared_ptr<file>> moved;
    for (auto& [path, f] : now_) {
      moved[path == from ? to : folder_of(path) == from ? to + path.substr(from.size()) : path] = f;
    }
    now_ = safe_ = moved;
    if (folders_.erase(from) != 0) folders_.insert(to);
  }
  bool remove(const std::string& path) override {
    step(path, false);
    return now_.erase(path) != 0;
  }

  /// For tests that corrupt files.
  [[nodiscard]] std::vector<std::byte>& bytes_of(const std::string& path) { return now_.at(path)->bytes; }
  /// The paths of all files, including unfinished ones.
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> all;
    for (const auto& [path, f] : now_) all.push_back(path);
    return all;
  }

 private:
  struct file {
    std::vector<std::byte> bytes;
    std::size_t synced = 0;
  };

  class writer final : public storage::file_writer {
   public:
    writer(crash_disk& on, std::string path, std::string temporary, std::shared_ptr<file> f)
        : on_(on), path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(f)) {}
    ~writer() override {
      if (!on_.power_ || on_.steps_ < *on_.power_) on_.now_.erase(temporary_);
    }
    void append(std::span<const std::byte> bytes) override {
      on_.step(path_, true);
      file_->bytes.insert(file_->bytes.end(), bytes.begin(), bytes.end());
    }
    void commit() override {
      on_.step(path_, true);
      if (on_.syncs_) file_->synced = file_->bytes.size();
      on_.step(path_, false);
      on_.now_.erase(temporary_);
      on_.now_[path_] = file_;
      on_.step(path_, false);
      if (!on_.syncs_) return;
      std::erase_if(on_.safe_, [&](const auto& f) { return folder_of(f.first) == folder_of(path_); });
      for (const auto& [path, f] : on_.now_) {
        if (folder_of(path) == folder_of(path_)) on_.safe_[path] = f;
      }
    }

   private:
    crash_disk& on_;
    std::string path_;
    std::string temporary_;
    std::shared_ptr<file> file_;
  };

  class reader final : public storage::file_reader {
   public:
    explicit reader(std::shared_ptr<file> f) : file_(std::move(f)) {}
    [[nodiscard]] std::uint64_t size() const override { return file_->bytes.size(); }
    [[nodiscard]] std::size_t read_at(std::uint64_t offset, std::span<std::byte> into) const override {
      const auto& b = file_->bytes;
      const auto from = std::min<std::uint64_t>(offset, b.size());
      const auto n = std::min<std::size_t>(into.size(), b.size() - from);
      std::copy_n(b.begin() + static_cast<std::ptrdiff_t>(from), n, into.begin());
      return n;
    }

   private:
    std::shared_ptr<file> file_;
  };

  static std::string folder_of(const std::string& path) {
    const auto slash = path.rfind('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  }
  void step(const std::string& path, bool takes_space) {
    if (power_ && steps_ >= *power_) throw power_loss{};
    const auto mine = steps_++;
    if (takes_space && full_ && mine >= *full_) throw error(path + ": cannot be written: No space left on device");
  }

  std::map<std::string, std::shared_ptr<file>> now_;   // as seen by the running machine
  std::map<std::string, std::shared_ptr<file>> safe_;  // as named by the folders on the disk
  std::set<std::string> folders_{"."};
  std::uint64_t steps_ = 0;
  std::optional<std::uint64_t> power_;
  std::optional<std::uint64_t> full_;
  bool syncs_ = true;
};

}  // namespace paracel::test
