// SPDX-License-Identifier: BSD-3-Clause
#include "load/input/input_stream.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/hash.hpp"
#include "load/input/foreign_format.hpp"
#include "paracel/error.hpp"
#include "storage/memory_file.hpp"

namespace paracel {

namespace {

constexpr std::size_t raw_buffer_bytes = std::size_t{256} << 10;
constexpr std::string_view gzip_magic = "\x1f\x8b";
constexpr std::string_view zstd_magic = "\x28\xb5\x2f\xfd";

// When a file is inspected again: how much of its beginning and of its end is compared.
constexpr std::size_t compared_bytes = std::size_t{4} << 10;
// An append sets the modification time a moment before the length.
constexpr std::chrono::milliseconds append_takes_at_most{1000};
constexpr std::chrono::milliseconds append_poll{5};

[[noreturn]] void unreadable(const std::string& name, const std::string& why) {
  throw data_error(name + ": cannot be read: " + why);
}

[[noreturn]] void became_shorter(const input_file& file, std::uint64_t now) {
  throw data_error(file.name + ": became shorter while it was loaded: found " + std::to_string(now) +
                   " bytes, want the " + std::to_string(file.bytes) + " that it had at first");
}

[[noreturn]] void replaced(const input_file& file) {
  throw data_error(file.name +
                   ": was replaced or rewritten while it was loaded, want it unchanged except for appended data");
}

/// This host since it was booted, and this process's mounts; empty when unknown.
const std::string& own_view() {
  static const std::string view = [] {
    std::string boot;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
    char mounts[64];
    const auto n = ::readlink("/proc/self/ns/mnt", mounts, sizeof mounts);
    return boot.empty() || n <= 0 ? std::string() : boot + ' ' + std::string(mounts, static_cast<std::size_t>(n));
  }();
  return view;
}

std::int64_t modified_ns(const struct stat& about) noexcept {
  return std::int64_t{about.st_mtim.tv_sec} * 1'000'000'000 + about.st_mtim.tv_nsec;
}

file_kind kind_of(std::string_view front) noexcept {
  if (front.starts_with(gzip_magic)) return file_kind::gzip;
  // A data frame, or one to be skipped (0x184D2A50 to 5F, little-endian).
  if (front.starts_with(zstd_magic)) return file_kind::zstd;
  if (front.size() >= 4 && (static_cast<unsigned char>(front[0]) & 0xf0U) == 0x50 &&
      front.substr(1, 3) == "\x2a\x4d\x18")
    return file_kind::zstd;
  return file_kind::plain;
}

class descriptor {
 public:
  explicit descriptor(int fd) : fd_(fd) {}
  ~descriptor() {
    if (fd_ > 0) ::close(fd_);
  }
  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  descriptor& operator=(descriptor&&) = delete;
  descriptor(const descriptor&) = delete;

  /// A regular file. Does not block on a fifo.
  static descriptor open(const std::string& name) {
    descriptor d(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (d.fd_ < 0) unreadable(name, std::strerror(errno));
    if (!S_ISREG(d.about(name).st_mode)) unreadable(name, "not a regular file");
    return d;
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] struct stat about(const std::string& name) const {
    struct stat found {};
    if (::fstat(fd_, &found) != 0) unreadable(name, std::strerror(errno));
    return found;
  }

 private:
  int fd_;
};

/// Reads [offset, offset + size) of a file; less at its end.
std::size_t read_at(const descriptor& from, const std::string& name, std::uint64_t offset, std::span<char> to) {
  std::size_t have = 0;
  while (have < to.size()) {
    const auto n = ::pread(from.get(), to.data() + have, to.size() - have, static_cast<off_t>(offset + have));
    if (n == 0) break;
    if (n > 0) have += static_cast<std::size_t>(n);
    else if (errno != EINTR) unreadable(name, std::strerror(errno));
  }
  return have;
}

/// The hash of the first and the last of the first `bytes` bytes. `kind`: detected from the first ones.
std::uint64_t content_of(const descriptor& from, const std::string& name, std::uint64_t bytes, file_kind& kind) {
  char front[compared_bytes];
  char back[compared_bytes];
  const auto some = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, compared_bytes));
  const auto first = read_at(from, name, 0, {front, some});
  const auto last = read_at(from, name, bytes - some, {back, some});
  kind = kind_of({front, first});
  refuse_foreign_format(name, {front, first});
  return hash_block(std::as_bytes(std::span(back, last)), hash_key({front, first}));
}

/// Checks that the open file is `file`, or an extended version of it.
void must_be(const input_file& file, const descriptor& opened, bool own) {
  for (const auto until = std::chrono::steady_clock::now() + append_takes_at_most;;) {
    const auto now = opened.about(file.name);
    const auto bytes = static_cast<std::uint64_t>(now.st_size);
    if (bytes < file.bytes) became_shorter(file, bytes);
    if (own && (now.st_ino != file.number || now.st_dev != file.device)) replaced(file);
    if (!own || bytes > file.bytes || modified_ns(now) == file.modified_ns) break;
    if (std::chrono::steady_clock::now() >= until) replaced(file);
    std::this_thread::sleep_for(append_poll);
  }
  file_kind kind = file.kind;
  if (content_of(opened, file.name, file.bytes, kind) != file.content) replaced(file);
}

/// The bytes of a file as stored, or of standard input.
class raw_source final : public input_stream {
 public:
  raw_source(input_file file, descriptor from, std::uint64_t offset)
      : file_(std::move(file)),
        from_(std::move(from)),
        offset_(offset),
        end_(file_.divisible() ? std::uint64_t{LLONG_MAX} : file_.bytes),
        seekable_(true),
        own_(!file_.seen_from.empty() && file_.seen_from == own_view()) {
    must_be(file_, from_, own_);
  }
  explicit raw_source(input_file standard_input) : file_(std::move(standard_input)), from_(STDIN_FILENO) {}

  std::size_t read(char* to, std::size_t size) override {
    if (seekable_) size = static_cast<std::size_t>(std::min<std::uint64_t>(size, end_ - std::min(offset_, end_)));
    for (;;) {
      const auto n =
          seekable_ ? ::pread(from_.get(), to, size, static_cast<off_t>(offset_)) : ::read(from_.get(), to, size);
      if (n == 0 && offset_ < file_.bytes) became_shorter(file_, offset_);
      if (n >= 0) {
        offset_ += static_cast<std::uint64_t>(n);
        return static_cast<std::size_t>(n);
      }
      if (errno != EINTR) unreadable(file_.shown(), std::strerror(errno));
    }
  }
  void verify() override {
    if (seekable_) must_be(file_, from_, own_);
  }
  [[nodiscard]] std::uint64_t consumed() const override { return offset_; }

 private:
  input_file file_;
  descriptor from_;
  std::uint64_t offset_ = 0;
  std::uint64_t end_ = 0;
  bool seekable_ = false;
  bool own_ = false;  // its location and modification time are meaningful here
};

/// A file of this process's memory, which does not change.
class memory_source final : public input_stream {
 public:
  memory_source(std::shared_ptr<const storage::memory_file> from, std::uint64_t offset)
      : from_(std::move(from)), offset_(std::min(offset, from_->bytes)) {}

  std::size_t read(char* to, std::size_t size) override {
    size = static_cast<std::size_t>(std::min<std::uint64_t>(size, from_->bytes - offset_));
    from_->read(offset_, {to, size});
    offset_ += size;
    return size;
  }
  [[nodiscard]] std::uint64_t consumed() const override { return offset_; }

 private:
  std::shared_ptr<const storage::memory_file> from_;
  std::uint64_t offset_;
};

/// Standard input can be read only once: a second reader gets an error instead of the rest, or nothing.
void take_standard_input() {
  static std::mutex mutex;
  static dev_t device = 0;
  static ino_t number = 0;
  struct stat about {};
  if (::fstat(STDIN_FILENO, &about) != 0) unreadable("stdin", std::strerror(errno));
  const std::lock_guard lock(mutex);
  const bool again = about.st_dev == device && about.st_ino == number;
  device = about.st_dev;
  number = about.st_ino;
  if (again) throw data_error("stdin: has already been read, want a file for input that is read twice");
}

/// A source and its buffered bytes.
class buffered {
 public:
  explicit buffered(std::unique_ptr<input_stream> from) : from_(std::move(from)), bytes_(raw_buffer_bytes) {}

  /// The buffered bytes; after `more` at least one, unless the end is reached.
  [[nodiscard]] std::string_view front() const noexcept { return {bytes_.data() + begin_, end_ - begin_}; }
  void drop(std::size_t n) noexcept { begin_ += n; }
  /// Reads more after the buffered bytes; false at the end.
  bool more() {
    if (begin_ > 0) {
      std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    const auto n = from_->read(bytes_.data() + end_, bytes_.size() - end_);
    end_ += n;
    return n > 0;
  }
  /// At least the first `n` bytes, or all there are.
  std::string_view peek(std::size_t n) {
    while (front().size() < n && more()) {
    }
    return front();
  }
  void verify() { from_->verify(); }
  /// Byte offset in the file at which front() begins.
  [[nodiscard]] std::uint64_t offset() const { return from_->consumed() - (end_ - begin_); }

 private:
  std::unique_ptr<input_stream> from_;
  std::vector<char> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// Uncompressed standard input, once its first bytes were inspected.
class peeked_source final : public input_stream {
 public:
  explicit peeked_source(buffered from) : from_(std::move(from)) {}

  std::size_t read(char* to, std::size_t size) override {
    if (from_.front().empty() && !from_.more()) return 0;
    const auto n = std::min(size, from_.front().size());
    std::memcpy(to, from_.front().data(), n);
    from_.drop(n);
    return n;
  }
  [[nodiscard]] std::uint64_t consumed() const override { return from_.offset(); }

 private:
  buffered from_;
};

/// Source: RFC 1952; a file may be several members, one after the other.
class gzip_source final : public input_stream {
 public:
  gzip_source(std::string name, buffered from) : name_(std::move(name)), from_(std::move(from)) {
    if (::inflateInit2(&state_, MAX_WBITS + 16) != Z_OK) fail("zlib cannot be initialised");
  }
  ~gzip_source() override { ::inflateEnd(&state_); }

  std::size_t read(char* to, std::size_t size) override {
    size = std::min<std::size_t>(size, 1U << 30);
    state_.next_out = reinterpret_cast<Bytef*>(to);
    state_.avail_out = static_cast<uInt>(size);
    while (state_.avail_out == size) {
      if (between_ && !next_member()) return 0;
      if (from_.front().empty() && !from_.more()) fail("the gzip data is cut off");
      const auto in = from_.front();
      state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
      state_.avail_in = static_cast<uInt>(in.size());
      const int outcome = ::inflate(&state_, Z_NO_FLUSH);
      from_.drop(in.size() - state_.avail_in);
      if (outcome == Z_STREAM_END) between_ = true;
      else if (outcome != Z_OK && outcome != Z_BUF_ERROR)
        fail(std::string("the gzip data is damaged: ") + (state_.msg != nullptr ? state_.msg : "no reason given"));
    }
    return size - state_.avail_out;
  }
  void verify() override { from_.verify(); }
  [[nodiscard]] std::uint64_t consumed() const override { return from_.offset(); }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw data_error(name_ + ": byte " + std::to_string(from_.offset()) + ": " + what);
  }
  /// False at the end of the file.
  bool next_member() {
    const auto in = from_.peek(gzip_magic.size());
    if (in.empty() && !first_) return false;
    if (!in.empty() && !in.starts_with(gzip_magic)) fail("found bytes that do not begin a gzip member");
    ::inflateReset(&state_);
    between_ = first_ = false;
    return true;
  }

  std::string name_;
  buffered from_;
  z_stream state_{};
  bool first_ = true;
  bool between_ = true;
};

/// Source: RFC 8878; frames one after the other.
class zstd_source final : public input_stream {
 public:
  zstd_source(std::string name, buffered from)
      : name_(std::move(name)), from_(std::move(from)), state_(::ZSTD_createDStream(), ::ZSTD_freeDStream) {
    if (state_ == nullptr) fail("zstd cannot be initialised");
  }

  std::size_t read(char* to, std::size_t size) override {
    ZSTD_outBuffer out{to, size, 0};
    while (out.pos == 0) {
      const bool full = held_;  // the last call filled its output: there may be more without more input
      if (!full && from_.front().empty() && !from_.more()) {
        if (inside_) fail("the zstd data is cut off");
        return 0;
      }
      const auto at_hand = from_.front();
      ZSTD_inBuffer in{at_hand.data(), at_hand.size(), 0};
      const auto outcome = ::ZSTD_decompressStream(state_.get(), &out, &in);
      if (::ZSTD_isError(outcome) != 0U) fail(std::string("the zstd data is damaged: ") + ::ZSTD_getErrorName(outcome));
      from_.drop(in.pos);
      inside_ = outcome != 0;
      held_ = inside_ && out.pos == size;
    }
    return out.pos;
  }
  void verify() override { from_.verify(); }
  [[nodiscard]] std::uint64_t consumed() const override { return from_.offset(); }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw data_error(name_ + ": byte " + std::to_string(from_.offset()) + ": " + what);
  }

  std::string name_;
  buffered from_;
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> state_;
  bool inside_ = true;  // an empty file is not a zstd file
  bool held_ = false;
};

std::unique_ptr<input_stream> decompressed(file_kind kind, const std::string& name, buffered from) {
  if (kind == file_kind::gzip) return std::make_unique<gzip_source>(name, std::move(from));
  if (kind == file_kind::zstd) return std::make_unique<zstd_source>(name, std::move(from));
  return std::make_unique<peeked_source>(std::move(from));
}

}  // namespace

input_file look_at(const std::string& name) {
  input_file file;
  file.name = name;
  if (name == "-") {
    file.kind = file_kind::standard_input;
    return file;
  }
  if (const auto memory = storage::find_memory_file(name)) {
    file.bytes = memory->bytes;
    return file;
  }
  const auto opened = descriptor::open(name);
  const auto about = opened.about(name);
  file.bytes = static_cast<std::uint64_t>(about.st_size);
  file.device = about.st_dev;
  file.number = about.st_ino;
  file.modified_ns = modified_ns(about);
  file.seen_from = own_view();
  file.content = content_of(opened, name, file.bytes, file.kind);
  if (name.ends_with(".gz") && file.kind != file_kind::gzip)
    throw data_error(name + ": byte 0: found no gzip data, want it in a file that is called .gz");
  if (name.ends_with(".zst") && file.kind != file_kind::zstd)
    throw data_error(name + ": byte 0: found no zstd data, want it in a file that is called .zst");
  return file;
}

std::unique_ptr<input_stream> open_source(const input_file& file, std::uint64_t from) {
  if (file.kind == file_kind::standard_input) {
    take_standard_input();
    buffered in(std::make_unique<raw_source>(file));
    const auto front = in.peek(4);
    const auto kind = kind_of(front);
    refuse_foreign_format(file.shown(), front);
    return decompressed(kind, file.shown(), std::move(in));
  }
  if (auto memory = storage::find_memory_file(file.name))
    return std::make_unique<memory_source>(std::move(memory), from);
  auto opened = descriptor::open(file.name);
  static_cast<void>(::posix_fadvise(opened.get(), static_cast<off_t>(from), 0, POSIX_FADV_SEQUENTIAL));
  auto raw = std::make_unique<raw_source>(file, std::move(opened), from);
  if (file.divisible()) return raw;
  return decompressed(file.kind, file.name, buffered(std::move(raw)));
}

}  // namespace paracel
