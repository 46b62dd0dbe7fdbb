// SPDX-License-Identifier: BSD-3-Clause
#include "storage/checkpoint_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>

#include "core/check.hpp"
#include "core/hex.hpp"

namespace paracel::storage {
namespace {

constexpr std::array<char, 8> front_mark{'P', 'R', 'C', 'L', 'C', 'K', 'P', 'T'};
constexpr std::array<char, 8> end_mark{'P', 'R', 'C', 'L', 'D', 'O', 'N', 'E'};
// Fewer system calls for many small partitions.
constexpr std::size_t buffered_bytes = std::size_t{1} << 20;
constexpr std::size_t hashed_header_bytes = checkpoint_header_bytes - 8;

std::array<std::byte, checkpoint_header_bytes> encode_header(const checkpoint_header& h) {
  std::array<std::byte, checkpoint_header_bytes> out{};
  store_fields(out.data(), front_mark, checkpoint_version, static_cast<std::uint16_t>(h.kind), std::uint16_t{0},
               h.clock, h.index, h.job, h.thread, h.count);
  store_fields(out.data() + hashed_header_bytes, hash_block(std::span(out).first(hashed_header_bytes), 0));
  return out;
}

std::uint64_t hash_of_all(std::span<const std::uint64_t> checksums, std::uint64_t blocks, std::uint64_t bytes) {
  running_hash h;
  h.add(std::as_bytes(checksums));
  h.add(std::as_bytes(std::span(&blocks, 1)));
  h.add(std::as_bytes(std::span(&bytes, 1)));
  return h.value();
}

std::string number(std::uint64_t n) { return std::to_string(n); }

}  // namespace

checkpoint_writer::checkpoint_writer(file_system& on, const std::string& path, const checkpoint_header& header)
    : file_(on.create(path)) {
  waiting_.reserve(buffered_bytes);
  const auto h = encode_header(header);
  checksums_.push_back(load_field<std::uint64_t>(h.data() + hashed_header_bytes));
  put(h);
}

void checkpoint_writer::put(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  if (waiting_.size() + bytes.size() > buffered_bytes) flush();
  if (bytes.size() >= buffered_bytes) {
    whole_.add(bytes);
    file_->append(bytes);
  } else {
    waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
  }
}

void checkpoint_writer::flush() {
  if (waiting_.empty()) return;
  whole_.add(waiting_);
  file_->append(waiting_);
  waiting_.clear();
}

void checkpoint_writer::add(std::uint32_t section, std::span<const std::byte> payload) {
  while (!payload.empty()) {
    const auto part = payload.first(std::min(payload.size(), checkpoint_block_bytes));
    payload = payload.subspan(part.size());
    std::array<std::byte, checkpoint_block_front_bytes> front;
    auto* const end = store_fields(front.data(), static_cast<std::uint32_t>(part.size()), section);
    const auto checksum = hash_block(part, load_field<std::uint64_t>(front.data()));
    store_fields(end, checksum);
    checksums_.push_back(checksum);
    put(front);
    put(part);
  }
}

checkpoint_digest checkpoint_writer::finish() {
  std::array<std::byte, checkpoint_footer_bytes> footer;
  PARACEL_CHECK(!checksums_.empty());  // the header's
  const std::uint64_t blocks = checksums_.size() - 1;
  const std::uint64_t total = bytes_ + footer.size();
  store_fields(footer.data(), blocks, total, hash_of_all(checksums_, blocks, total), end_mark);
  put(footer);
  flush();
  file_->commit();
  return {bytes_, whole_.value()};
}

checkpoint_reader::checkpoint_reader(const file_system& on, std::string path)
    : path_(std::move(path)), file_(on.open(path_)) {
  size_ = file_->size();
  if (size_ < checkpoint_header_bytes + checkpoint_footer_bytes) {
    refuse(size_, "ends here, a checkpoint has at least " + number(checkpoint_header_bytes + checkpoint_footer_bytes) +
                      " bytes");
  }
  std::array<std::byte, checkpoint_header_bytes> h;
  read_exactly(0, h);
  if (std::memcmp(h.data(), front_mark.data(), front_mark.size()) != 0) refuse(0, "is not a checkpoint file");
  // Before the checksum: another version may store it elsewhere.
  if (const auto version = load_field<std::uint32_t>(h.data() + 8); version != checkpoint_version) {
    refuse(8, "has format version " + number(version) + ", this program reads " + number(checkpoint_version));
  }
  std::uint16_t kind = 0;
  std::uint16_t zero = 0;
  load_fields(h.data() + 12, kind, zero, header_.clock, header_.index, header_.job, header_.thread, header_.count);
  header_.kind = static_cast<checkpoint_kind>(kind);
  const auto checksum = load_field<std::uint64_t>(h.data() + hashed_header_bytes);
  if (hash_block(std::span(h).first(hashed_header_bytes), 0) != checksum)
    refuse(0, "the checksum of the header is wrong");
  if (header_.kind != checkpoint_kind::server && header_.kind != checkpoint_kind::worker) {
    refuse(12, "kind " + number(kind) + " is unknown");
  }
  if (encode_header(header_) != h) refuse(14, "bytes that must be 0 are not");
  std::array<std::byte, 8> mark;
  read_exactly(size_ - mark.size(), mark);
  if (std::memcmp(mark.data(), end_mark.data(), mark.size()) != 0) {
    refuse(size_ - mark.size(), "the footer is missing: the file is cut off or was never finished");
  }
  checksums_.push_back(checksum);
  whole_.add(h);
  at_ = checkpoint_header_bytes;
}

void checkpoint_reader::refuse(std::uint64_t offset, const std::string& what) const {
  throw data_error(path_ + ": byte " + number(offset) + ": " + what);
}

void checkpoint_reader::read_exactly(std::uint64_t offset, std::span<std::byte> into) const {
  if (const auto got = file_->read_at(offset, into); got != into.size()) {
    refuse(offset + got, "the file ends here; it had " + number(size_) + " bytes when it was opened");
  }
}

/// False at the footer.
bool checkpoint_reader::read_front() {
  const auto end = size_ - checkpoint_footer_bytes;
  PARACEL_CHECK(at_ <= end);
  if (at_ == end) return false;
  if (end - at_ < checkpoint_block_front_bytes) refuse(at_, "no block fits here before the footer");
  std::array<std::byte, checkpoint_block_front_bytes> f;
  read_exactly(at_, f);
  next_.raw = f;
  load_fields(f.data(), next_.bytes, next_.section, next_.checksum);
  load_fields(f.data(), next_.seed);
  const auto left = end - at_ - checkpoint_block_front_bytes;
  if (next_.bytes == 0 || next_.bytes > std::min<std::uint64_t>(left, checkpoint_block_bytes)) {
    refuse(at_, "a block of " + number(next_.bytes) + " bytes, with " + number(left) +
                    " before the footer and at most " + number(checkpoint_block_bytes) + " allowed");
  }
  return true;
}

bool checkpoint_reader::next(std::uint32_t& section, std::vector<std::byte>& payload,
                             const std::function<bool(std::uint32_t)>& wanted) {
  payload.clear();
  for (;;) {
    if (!has_next_ && !read_front()) {
      check_footer();
      return false;
    }
    section = next_.section;
    section_at_ = at_;
    const bool take = wanted(section);
    do {
      if (take) read_block(payload);
      checksums_.push_back(next_.checksum);
      at_ += checkpoint_block_front_bytes + next_.bytes;
      has_next_ = read_front();
    } while (has_next_ && next_.section == section);
    if (take) return true;
  }
}

void checkpoint_reader::read_block(std::vector<std::byte>& payload) {
  const auto begin = payload.size();
  payload.resize(begin + next_.bytes);
  const auto part = std::span(payload).subspan(begin);
  read_exactly(at_ + checkpoint_block_front_bytes, part);
  if (hash_block(part, next_.seed) != next_.checksum) {
    refuse(at_, "the checksum of the block of section " + number(next_.section) + " (" + number(next_.bytes) +
                    " bytes) is wrong");
  }
  whole_.add(next_.raw);
  whole_.add(part);
}

void checkpoint_reader::check_footer() {
  std::array<std::byte, checkpoint_footer_bytes> f;
  read_exactly(at_, f);
  const std::uint64_t blocks = checksums_.size() - 1;
  std::uint64_t said_blocks = 0;
  std::uint64_t said_bytes = 0;
  std::uint64_t said_hash = 0;
  load_fields(f.data(), said_blocks, said_bytes, said_hash);
  if (said_blocks != blocks) {
    refuse(at_, "the footer says " + number(said_blocks) + " blocks, there are " + number(blocks));
  }
  if (said_bytes != size_) {
    refuse(at_ + 8, "the footer says " + number(said_bytes) + " bytes, there are " + number(size_));
  }
  if (said_hash != hash_of_all(checksums_, blocks, size_)) {
    refuse(at_ + 16, "the checksum of all checksums is wrong");
  }
  whole_.add(f);
}

checkpoint_digest verify_checkpoint_file(const file_system& on, const std::string& path, checkpoint_header* header) {
  checkpoint_reader file(on, path);
  std::uint32_t section = 0;
  std::vector<std::byte> payload;
  while (file.next(section, payload)) {
  }
  if (header != nullptr) *header = file.header();
  return file.digest();
}

}  // namespace paracel::storage
