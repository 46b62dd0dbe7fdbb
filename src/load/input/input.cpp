// SPDX-License-Identifier: BSD-3-Clause
#include "load/input/input.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include "core/trace.hpp"
#include "load/collective_errors.hpp"
#include "load/input/foreign_format.hpp"
#include "paracel/error.hpp"
#include "paracel/samples.hpp"

namespace paracel {

namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
constexpr std::size_t chunk_bytes = std::size_t{64} << 10;

std::uint64_t line_ends(std::string_view text) noexcept {
  return static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

void read_to_end(input_stream& source) {
  std::vector<char> chunk(chunk_bytes);
  while (source.read(chunk.data(), chunk.size()) > 0) {
  }
}

std::uint64_t line_ends_before(const input_file& file, std::uint64_t offset) {
  const auto from = open_source(file);
  std::vector<char> chunk(chunk_bytes);
  std::uint64_t lines = 0;
  while (offset > 0) {
    const auto n = from->read(chunk.data(), static_cast<std::size_t>(std::min<std::uint64_t>(offset, chunk.size())));
    if (n == 0) break;
    lines += line_ends({chunk.data(), n});
    offset -= n;
  }
  return lines;
}

}  // namespace

// ---- a piece

input_piece::input_piece(const std::string& file, std::string_view text, std::string_view lines)
    : name_(&file), text_(lines), offset_(static_cast<std::uint64_t>(lines.data() - text.data())) {
  begins_file_ = offset_ == 0;
  lines_before_ = line_ends(text.substr(0, offset_));
  if (offset_ == 0 && text_.starts_with(byte_order_mark)) {
    text_.remove_prefix(byte_order_mark.size());
    offset_ = byte_order_mark.size();
  }
}

std::string input_piece::place(const char* at) const {
  const auto before = text_.substr(0, static_cast<std::size_t>(at - text_.data()));
  const auto lines = (recount_ != nullptr ? line_ends_before(*recount_, offset_) : lines_before_) + line_ends(before);
  const auto newline = before.rfind('\n');
  const auto column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1);
  return *name_ + ":" + std::to_string(lines + 1) + ":" + std::to_string(column + 1);
}

void input_piece::fail(const char* at, const std::string& what) const { throw data_error(place(at) + ": " + what); }

// ---- lines of a source

/// Splits the bytes of a source into runs of whole lines: those that begin before `end`.
class input_set::line_reader {
 public:
  /// The source continues at byte `offset` of the file, after `at_hand`. A run may be shorter than `piece_bytes` if the
  /// source takes more than `patience` for it.
  line_reader(input_stream& from, std::uint64_t offset, std::uint64_t end, std::size_t piece_bytes,
              std::string_view at_hand, std::chrono::nanoseconds patience)
      : from_(from),
        offset_(offset),
        end_(end),
        piece_bytes_(std::max<std::size_t>(piece_bytes, 1)),
        patience_(patience) {
    capacity_ = std::max(piece_bytes_, at_hand.size());
    bytes_ = std::make_unique_for_overwrite<char[]>(capacity_);
    if (!at_hand.empty()) std::memcpy(bytes_.get(), at_hand.data(), at_hand.size());
    filled_ = at_hand.size();
  }

  /// Skips everything up to the first line end.
  void skip_line() {
    while (offset_ < end_) {
      if (begin_ == filled_ && !fill(chunk_bytes)) return;
      const char* first = bytes_.get() + begin_;
      const auto* newline = static_cast<const char*>(std::memchr(first, '\n', filled_ - begin_));
      const auto skipped = newline == nullptr ? filled_ - begin_ : static_cast<std::size_t>(newline - first) + 1;
      begin_ += skipped;
      offset_ += skipped;
      if (newline != nullptr) return;
    }
  }

  /// False when there are no more lines. `offset`: where the lines begin in the file.
  bool next(std::string_view& lines, std::uint64_t& offset) {
    if (over_ || offset_ >= end_) return false;
    std::memmove(bytes_.get(), bytes_.get() + begin_, filled_ - begin_);
    filled_ -= begin_;
    begin_ = 0;
    const auto length = run_of_lines();
    if (length == 0) return false;
    lines = {bytes_.get(), length};
    offset = offset_;
    begin_ = length;
    offset_ += length;
    return true;
  }
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

 private:
  /// Reads at most `most` bytes more; false at the end of the file.
  bool fill(std::size_t most) {
    if (begin_ == filled_) begin_ = filled_ = 0;
    if (filled_ == capacity_) {
      const auto larger = std::max(capacity_ * 2, chunk_bytes);
      auto bytes = std::make_unique_for_overwrite<char[]>(larger);
      std::memcpy(bytes.get(), bytes_.get(), filled_);
      bytes_ = std::move(bytes);
      capacity_ = larger;
    }
    const auto n = from_.read(bytes_.get() + filled_, std::min(most, capacity_ - filled_));
    filled_ += n;
    return n > 0;
  }

  /// The length of the next run, at the front of the buffer. 0: there is none.
  std::size_t run_of_lines() {
    std::size_t searched = 0;
    const auto begun = std::chrono::steady_clock::now();
    for (;;) {
      const auto left = end_ - offset_;
      if (filled_ >= left) {
        // Lines that begin before the end are this rank's; the last of them may extend past it.
        const auto from = std::max(searched, static_cast<std::size_t>(left) - 1);
        const auto* newline = static_cast<const char*>(std::memchr(bytes_.get() + from, '\n', filled_ - from));
        if (newline != nullptr) {
          over_ = true;
          return static_cast<std::size_t>(newline - bytes_.get()) + 1;
        }
        searched = filled_;
      } else if (filled_ >= piece_bytes_ || std::chrono::steady_clock::now() - begun > patience_) {
        const std::string_view fresh(bytes_.get() + searched, filled_ - searched);
        if (const auto newline = fresh.rfind('\n'); newline != std::string_view::npos) return searched + newline + 1;
        searched = filled_;
      }
      const auto most = filled_ < left ? std::min<std::uint64_t>(left - filled_, capacity_) : chunk_bytes;
      if (!fill(static_cast<std::size_t>(most))) {
        over_ = true;
        return filled_;
      }
    }
  }

  input_stream& from_;
  std::uint64_t offset_;  // in the file, of bytes_[begin_]
  std::uint64_t end_;
  std::size_t piece_bytes_;
  std::chrono::nanoseconds patience_;
  std::size_t capacity_;
  std::unique_ptr<char[]> bytes_;
  std::size_t begin_ = 0;
  std::size_t filled_ = 0;
  bool over_ = false;
};

// ---- all files

namespace {

/// What rank 0 sends about a file.
struct told_file {
  std::string name;
  std::string seen_from;
  std::uint32_t kind = 0;
  std::uint64_t bytes = 0, content = 0, device = 0, number = 0;
  std::int64_t modified_ns = 0;
  MSGPACK_DEFINE(name, seen_from, kind, bytes, content, device, number, modified_ns)

  static told_file of(const input_file& f) {
    return {f.name,   f.seen_from,  static_cast<std::uint32_t>(f.kind), f.bytes, f.content, f.device,
            f.number, f.modified_ns};
  }
  [[nodiscard]] input_file file() const {
    return {name, static_cast<file_kind>(kind), bytes, content, seen_from, device, number, modified_ns};
  }
};

}  // namespace

input_set::input_set(const std::vector<std::string>& names) {
  for (const auto& name : expand(names)) take(look_at(name));
}

input_set::input_set(Comm& comm, const std::vector<std::string>& names) {
  std::vector<told_file> mine;
  all_or_throw(comm, [&] {
    if (comm.get_rank() != 0) return;
    for (const auto& name : expand(names)) mine.push_back(told_file::of(look_at(name)));
  });
  // Gathered, not broadcast: the replacement of a dead rank 0 gets what its predecessor found.
  const auto all = comm.allgather(mine);
  for (const auto& told : all.front()) take(told.file());
}

void input_set::take(input_file file) {
  names_.push_back(file.shown());
  standard_input_ = standard_input_ || file.kind == file_kind::standard_input;
  files_.push_back(std::move(file));
}

input_set::~input_set() = default;

std::vector<file_piece> input_set::parts(std::size_t rank, std::size_t size) const {
  std::vector<file_piece> pieces;
  if (standard_input_) {
    for (std::size_t f = 0; rank == 0 && f < files_.size(); ++f) pieces.push_back({f, 0, files_[f].bytes});
    return pieces;
  }
  std::vector<std::uint64_t> bytes;
  // A file that cannot be split counts as non-empty, even if it is empty: its reader reports what is wrong with it.
  for (const auto& f : files_) bytes.push_back(f.divisible() ? f.bytes : std::max<std::uint64_t>(f.bytes, 1));
  for (const auto& piece : byte_range(bytes, rank, size)) {
    if (files_[piece.file].divisible()) pieces.push_back(piece);
    else if (piece.begin == 0) pieces.push_back({piece.file, 0, files_[piece.file].bytes});
  }
  return pieces;
}

void input_set::visit(std::size_t rank, std::size_t size, const std::function<void(const input_piece&)>& visit,
                      const load_progress& progress, std::size_t piece_bytes) {
  const auto mine = parts(rank, size);
  std::uint64_t total = 0;
  for (const auto& m : mine) total += m.end - m.begin;
  const trace::phase_scope traced(trace::phase::load, 0, total);
  std::uint64_t before = 0;
  for (const auto& m : mine) {
    const auto& file = files_[m.file];
    const bool whole = !file.divisible();
    const bool later = m.begin > 0;  // the line that may contain this byte is another rank's
    std::unique_ptr<input_stream> source;
    std::string at_hand;
    if (const auto opened = opened_.find(m.file); opened != opened_.end()) {
      source = std::move(opened->second);
      at_hand = std::move(heads_[m.file]);
      opened_.erase(opened);
    } else {
      source = open_source(file, later ? m.begin - 1 : 0);
    }
    const auto end = whole ? std::numeric_limits<std::uint64_t>::max() : m.end;
    // What a slow program writes to standard input is visited, and its progress shown, without waiting for a full
    // piece.
    const auto patience =
        file.kind == file_kind::standard_input ? std::chrono::milliseconds{200} : std::chrono::nanoseconds::max();
    line_reader reader(*source, later ? m.begin - 1 : 0, end, piece_bytes, at_hand, patience);
    if (later) reader.skip_line();
    input_piece piece;
    piece.name_ = &names_[m.file];
    piece.file_index_ = m.file;
    while (reader.next(piece.text_, piece.offset_)) {
      const auto read = before + (whole ? source->consumed() : std::min(reader.offset(), m.end) - m.begin);
      piece.done_ = standard_input_ || total == 0 ? 0 : static_cast<double>(read) / static_cast<double>(total);
      piece.begins_file_ = piece.offset_ == 0;
      if (piece.begins_file_ && piece.text_.starts_with(byte_order_mark)) {
        piece.text_.remove_prefix(byte_order_mark.size());
        piece.offset_ = byte_order_mark.size();
      }
      if (whole && piece.begins_file_) refuse_foreign_format(names_[m.file], piece.text_);
      piece.recount_ = whole || piece.offset_ == 0 ? nullptr : &file;
      try {
        visit(piece);
      } catch (const data_error&) {
        // Corrupt data may look like invalid text long before a checksum fails: then the corruption is reported.
        if (file.kind == file_kind::gzip || file.kind == file_kind::zstd) read_to_end(*source);
        throw;
      }
      if (whole) piece.lines_before_ += line_ends(piece.text_);
      if (progress) progress(read, standard_input_ ? 0 : total);
    }
    source->verify();
    before += m.end - m.begin;
  }
}

bool input_set::blank_before(std::size_t file, std::uint64_t offset) const {
  const auto from = open_source(files_[file]);
  std::vector<char> chunk(chunk_bytes);
  bool first = true;
  while (offset > 0) {
    const auto n = from->read(chunk.data(), static_cast<std::size_t>(std::min<std::uint64_t>(offset, chunk.size())));
    if (n == 0) break;
    std::string_view text(chunk.data(), n);
    if (first && text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
    if (text.find_first_not_of(" \t\r\n") != std::string_view::npos) return false;
    first = false;
    offset -= n;
  }
  return true;
}

std::string input_set::head(std::size_t file, std::size_t bytes, std::uint64_t* offset) {
  if (offset != nullptr) *offset = 0;
  std::unique_ptr<input_stream> own;
  std::string own_text;
  const bool once = files_[file].kind == file_kind::standard_input;
  auto& source = once ? opened_[file] : own;
  auto& text = once ? heads_[file] : own_text;
  if (source == nullptr) source = open_source(files_[file]);
  std::size_t length = std::string::npos;
  bytes = std::max<std::size_t>(bytes, 1);
  // What was appended since is ignored.
  if (files_[file].divisible()) bytes = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, files_[file].bytes));
  if (bytes == 0) return {};
  for (;;) {
    const auto newline = text.find('\n', bytes - 1);
    if (newline != std::string::npos) {
      length = newline + 1;
      break;
    }
    const auto had = text.size();
    text.resize(had + chunk_bytes);
    const auto n = source->read(text.data() + had, chunk_bytes);
    text.resize(had + n);
    if (n == 0) break;
  }
  auto front = text.substr(0, length);
  refuse_foreign_format(files_[file].shown(), front);  // of what was compressed
  if (!front.starts_with(byte_order_mark)) return front;
  front.erase(0, byte_order_mark.size());
  if (offset != nullptr) *offset = byte_order_mark.size();
  return front;
}

}  // namespace paracel
