// SPDX-License-Identifier: BSD-3-Clause
#include "worker/results/result_files.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

#include <paracel/error.hpp>

#include "load/collective_errors.hpp"

namespace paracel {

namespace {

// Block size for copying a file: large enough that system calls do not matter.
constexpr std::size_t piece_bytes = std::size_t{256} << 10;

std::ifstream open_to_read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw data_error(path + ": cannot be opened: " + std::strerror(errno));
  return in;
}

std::uint64_t bytes_of_file(const std::string& path) {
  std::error_code problem;
  const auto n = std::filesystem::file_size(path, problem);
  if (problem) throw data_error(path + ": " + problem.message());
  return n;
}

}  // namespace

std::string result_path(const std::string& output, const std::string& name) {
  // The name precedes a rank or a suffix: "" and "sub/" are names too.
  const auto normal = std::filesystem::path(name + "0").lexically_normal();
  if (normal.is_absolute() || *normal.begin() == ".." || name.find('\0') != std::string::npos)
    throw data_error(name + ": results are written below the output folder");
  return (std::filesystem::path(output.empty() ? "." : output) / name).string();
}

result_file::result_file(std::string path, bool append)
    : path_(std::move(path)), written_(append ? path_ : path_ + ".tmp"), append_(append) {
  std::error_code none;
  was_there_ = std::filesystem::exists(path_, none);
  file_.reset(std::fopen(written_.c_str(), append ? "ab" : "wb"));
  if (!file_) fail("cannot be opened");
  std::setvbuf(file_.get(), nullptr, _IOFBF, piece_bytes);
  if (append) begin_ = bytes_of_file(path_);
}

result_file::~result_file() {
  if (written_.empty()) return;
  file_.reset();
  std::error_code none;
  if (append_ && was_there_) std::filesystem::resize_file(path_, begin_, none);
  else std::filesystem::remove(written_, none);
}

void result_file::fail(const char* what) const { throw data_error(path_ + ": " + what + ": " + std::strerror(errno)); }

void result_file::write(std::string_view text) {
  if (!text.empty() && std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) fail("cannot be written");
}

void result_file::close() {
  if (std::fclose(file_.release()) != 0) fail("cannot be written");
  if (!append_ && std::rename(written_.c_str(), path_.c_str()) != 0) fail("cannot be written");
  written_.clear();
}

void write_together(Comm& comm, const std::function<std::unique_ptr<result_file>()>& open, const result_pieces& next,
                    std::uint64_t chunk_bytes) {
  const auto ranks = comm.get_size();
  const auto rank = comm.get_rank();
  std::unique_ptr<result_file> out;
  std::string chunk;   // what this rank sends next
  bool ended = false;  // it is the last one
  const auto fill = [&] {
    chunk.clear();
    while (!ended && chunk.size() < chunk_bytes) ended = !next(chunk);
  };
  all_or_throw(comm, [&] {
    if (rank == 0) out = open();
    fill();
  });
  for (std::size_t turn = 0; turn < ranks;) {
    struct offer {
      std::uint64_t bytes;
      bool last;
    };
    std::vector<offer> offers;
    const std::vector<std::int64_t> mine{static_cast<std::int64_t>(chunk.size()), ended ? 1 : 0};
    for (const auto& o : comm.allgather(mine)) offers.push_back({static_cast<std::uint64_t>(o[0]), o[1] != 0});
    // Ranks from `turn` on send, up to the first that has more: so ranks that have little or nothing share a round.
    auto end = turn + 1;
    for (auto bytes = offers[turn].bytes; end < ranks && offers[end - 1].last; ++end) {
      bytes += offers[end].bytes;
      if (bytes > chunk_bytes) break;
    }
    const bool sends = turn <= rank && rank < end;
    std::vector<byte_vector> to(ranks);
    if (sends) {
      const auto bytes = std::as_bytes(std::span(chunk));
      to[0].assign(bytes.begin(), bytes.end());
    }
    const auto from = comm.alltoall_bytes(to);
    all_or_throw(comm, [&] {
      if (out)
        for (const auto& piece : from) out->write({reinterpret_cast<const char*>(piece.data()), piece.size()});
      if (sends) fill();
    });
    turn = offers[end - 1].last ? end : end - 1;
  }
  all_or_throw(comm, [&] {
    if (out) out->close();
  });
}

void join_results(Comm& comm, const std::string& part, std::uint64_t begin, const std::string& whole, bool append,
                  std::uint64_t chunk_bytes) {
  std::ifstream in;
  std::uint64_t left = 0;
  bool opened = false;
  const auto open = [&] { return std::make_unique<result_file>(whole, append); };
  const auto next = [&](std::string& text) {
    if (!std::exchange(opened, true)) {
      in = open_to_read(part);
      in.seekg(static_cast<std::streamoff>(begin));
      left = bytes_of_file(part) - begin;
    }
    if (left == 0) return false;
    const auto before = text.size();
    const auto size = std::min<std::uint64_t>(left, std::min<std::uint64_t>(piece_bytes, chunk_bytes));
    text.resize(before + size);
    in.read(text.data() + before, static_cast<std::streamsize>(size));
    if (!in) throw data_error(part + ": changed while it was read");
    left -= size;
    return true;
  };
  write_together(comm, open, next, chunk_bytes);
}

void copy_results(const std::vector<std::string>& files, const std::string& whole, bool append) {
  std::error_code none;
  result_file out(whole, append);
  std::string piece;
  for (const auto& path : files) {
    if (std::filesystem::equivalent(path, whole, none)) continue;
    auto in = open_to_read(path);
    bool ended = true;
    for (;;) {
      piece.resize(piece_bytes);
      in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      piece.resize(static_cast<std::size_t>(in.gcount()));
      if (in.bad()) throw data_error(path + ": cannot be read: " + std::strerror(errno));
      if (piece.empty()) break;
      out.write(piece);
      ended = piece.back() == '\n';
    }
    if (!ended) out.write("\n");
  }
  out.close();
}

}  // namespace paracel
