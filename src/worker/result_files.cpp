// SPDX-License-Identifier: BSD-3-Clause
#include "worker/result_files.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <paracel/error.hpp>

namespace paracel {

namespace {

// A piece of a file that is copied: large enough that system calls do not count.
constexpr std::size_t piece_bytes = std::size_t{256} << 10;

std::ifstream open_to_read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw data_error(path + ": cannot be opened: " + std::strerror(errno));
  return in;
}

/// The bytes [begin, begin + size) of a file.
std::string read_part(std::ifstream& in, const std::string& path, std::uint64_t begin, std::uint64_t size) {
  std::string bytes(static_cast<std::size_t>(size), '\0');
  in.seekg(static_cast<std::streamoff>(begin));
  in.read(bytes.data(), static_cast<std::streamsize>(size));
  if (!in) throw data_error(path + ": changed while it was read");
  return bytes;
}

std::uint64_t bytes_of_file(const std::string& path) {
  std::error_code problem;
  const auto n = std::filesystem::file_size(path, problem);
  if (problem) throw data_error(path + ": " + problem.message());
  return n;
}

}  // namespace

std::string result_path(const std::string& output, const std::string& name) {
  // The name stands before a rank or a suffix: "" and "sub/" are names too.
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

void result_file::fail(const char* what) const {
  throw data_error(path_ + ": " + what + ": " + std::strerror(errno));
}

void result_file::write(std::string_view text) {
  if (!text.empty() && std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) fail("cannot be written");
}

void result_file::close() {
  if (std::fclose(file_.release()) != 0) fail("cannot be written");
  if (!append_ && std::rename(written_.c_str(), path_.c_str()) != 0) fail("cannot be written");
  written_.clear();
}

void join_results(Comm& comm, const std::string& part, std::uint64_t begin, const std::string& whole, bool append,
                  std::uint64_t chunk_bytes) {
  const auto ranks = comm.get_size();
  const auto rank = comm.get_rank();
  const auto sizes = comm.allgather(static_cast<std::int64_t>(bytes_of_file(part) - begin));
  // The parts one after the other are one text; mine is [first, last) of it, and round k moves the bytes
  // [k * chunk, (k + 1) * chunk) of all.
  std::uint64_t first = 0, total = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (r == rank) first = total;
    total += static_cast<std::uint64_t>(sizes[r]);
  }
  const auto last = first + static_cast<std::uint64_t>(sizes[rank]);
  auto in = open_to_read(part);
  std::unique_ptr<result_file> out;
  if (rank == 0) out = std::make_unique<result_file>(whole, append);
  std::vector<std::string> to(ranks), from;
  for (std::uint64_t at = 0; at < total; at += chunk_bytes) {
    const auto mine_from = std::max(first, at);
    const auto mine_to = std::min(last, at + chunk_bytes);
    to[0] = mine_from < mine_to ? read_part(in, part, begin + (mine_from - first), mine_to - mine_from) : std::string();
    comm.alltoall(to, from);
    if (out)
      for (const auto& piece : from) out->write(piece);
  }
  if (out) out->close();
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
