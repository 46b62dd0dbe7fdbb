// SPDX-License-Identifier: BSD-3-Clause
//
// The helpers that programs written for Paracel 0.3 find in utils.hpp, with the same names and meaning.
#pragma once

#include "utils/comm.hpp"  // also defines MPI_COMM_WORLD

#include <glob.h>

#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/detail/free_tcp_ports.hpp>
#include <paracel/detail/split_text.hpp>
#include <paracel/error.hpp>
#include <paracel/json_parser.hpp>
#include <paracel/main_env.hpp>
#include <paracel/samples.hpp>

#include "matrix_utils.hpp"
#include "packer.hpp"
#include "paracel_types.hpp"
#include "utils/decomp.hpp"
#include "utils/func_utility.hpp"
#include "utils/hash.hpp"

/// Writes the place and the message to stderr and continues. `ERR` is an exception.
#define ERROR_PRINT(ERR, INFO) \
  { std::cerr << __FILE__ << ":" << __LINE__ << " - " << INFO << (ERR).what() << '\n'; }

/// Ends the program with the place and the message: throws paracel::error. (0.3 printed the line and continued.)
#define ERROR_ABORT(INFO)                                          \
  {                                                                \
    std::ostringstream paracel_text_;                              \
    paracel_text_ << __FILE__ << ":" << __LINE__ << " - " << INFO; \
    throw ::paracel::error(paracel_text_.str());                   \
  }

namespace paracel {

using string_lst = list_type<str_type>;

// ---- strings ------------------------------------------------------------------------------------------------------

/// The parts of `text` between any of the characters `separators`; empty parts are dropped.
inline string_lst str_split(const str_type& text, const str_type& separators) {
  string_lst parts;
  for (std::size_t at = text.find_first_not_of(separators); at != str_type::npos;) {
    const auto end = text.find_first_of(separators, at);
    parts.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(separators, end);
  }
  return parts;
}
inline string_lst str_split(const str_type& text, char separator) { return str_split(text, str_type(1, separator)); }

/// The parts of `text` between matches of the regular expression `separator`; empty parts are kept, except the last.
/// Throws: usage_error when `separator` is not a regular expression.
/// Cost: a plain search when `separator` has no special character.
inline string_lst str_split_by_word(const str_type& text, const str_type& separator) {
  string_lst parts;
  if (separator.empty()) {
    parts.push_back(text);
  } else if (separator.find_first_of("\\^$.|?*+()[]{}") == str_type::npos) {
    std::size_t at = 0;
    for (auto end = text.find(separator); end != str_type::npos; end = text.find(separator, at)) {
      parts.push_back(text.substr(at, end - at));
      at = end + separator.size();
    }
    parts.push_back(text.substr(at));
  } else {
    parts = split_text(text, separator);
  }
  if (!parts.empty() && parts.back().empty()) parts.pop_back();
  return parts;
}

inline str_type str_join(const string_lst& parts, const str_type& separator) {
  str_type text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += parts[i];
  }
  return text;
}

inline bool startswith(const str_type& text, const str_type& beginning) { return text.starts_with(beginning); }
inline bool endswith(const str_type& text, const str_type& end) { return text.ends_with(end); }

/// Throws: argument_error (an std::invalid_argument) when `id` is not an integer from 0 to 2^64-1.
inline default_id_type cvt(const str_type& id) {
  std::size_t used = 0;
  try {
    const auto value = std::stoull(id, &used);
    if (used == id.size() && id.front() >= '0' && id.front() <= '9') return value;
  } catch (const std::logic_error&) {
  }
  throw argument_error("\"" + id + "\" is not an id: want an integer from 0 to 2^64-1", exit_status::data);
}
inline str_type cvt(default_id_type id) { return std::to_string(id); }

// ---- files --------------------------------------------------------------------------------------------------------
// `expand`, which turns a file, a folder or a pattern into names of files, is in <paracel/samples.hpp>.

inline bool isfile(const str_type& name) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(name, ignored);
}
inline bool isdir(const str_type& name) {
  std::error_code ignored;
  return std::filesystem::is_directory(name, ignored);
}
/// The names that match a shell pattern, sorted; a leading ~ is expanded. No match is not an error.
inline string_lst paracel_glob(const str_type& pattern) {
  ::glob_t found{};
  string_lst names;
  if (::glob(pattern.c_str(), GLOB_TILDE, nullptr, &found) == 0)
    names.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return names;
}
/// The files of a folder and its subfolders, sorted; hidden ones are skipped.
inline string_lst expand_dir_rec(const str_type& folder) {
  string_lst files;
  for (const auto& name : paracel_glob(folder.ends_with('/') ? folder + "*" : folder + "/*")) {
    if (isdir(name)) {
      const auto below = expand_dir_rec(name);
      files.insert(files.end(), below.begin(), below.end());
    } else if (isfile(name)) {
      files.push_back(name);
    }
  }
  return files;
}
/// Replaces each `from` in a file by `to`. Throws: data_error when it cannot be read, error when it cannot be written.
inline void file_replace(const str_type& name, const str_type& from, const str_type& to) {
  std::ifstream in(name, std::ios::binary);
  if (!in) throw data_error(name + ": cannot be opened");
  str_type text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  in.close();
  for (auto at = from.empty() ? str_type::npos : text.find(from); at != str_type::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  std::ofstream out(name, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw error(name + ": cannot be written");
}
/// `name` with a trailing slash.
inline str_type todir(const str_type& name) { return name.ends_with('/') ? name : name + '/'; }

/// `folder` with today's date (year, month, day; no padding) and a trailing slash.
inline str_type add_folder_suffix_with_date(const str_type& folder) {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  localtime_r(&now, &day);
  const auto stem = folder.ends_with('/') ? folder.substr(0, folder.size() - 1) : folder;
  return stem + std::to_string(day.tm_year + 1900) + std::to_string(day.tm_mon + 1) + std::to_string(day.tm_mday) + '/';
}

/// `func(line)` for the last `k` lines, or for all when there are fewer.
/// Throws: data_error when the file cannot be read.
template <class T, class F>
std::vector<T> tail(const str_type& filename, int k, F&& func) {
  std::ifstream file(filename);
  if (!file) throw data_error(filename + ": cannot be opened");
  std::deque<str_type> last;
  for (str_type line; std::getline(file, line);) {
    last.push_back(std::move(line));
    if (last.size() > static_cast<std::size_t>(std::max(k, 0))) last.pop_front();
  }
  std::vector<T> result;
  result.reserve(last.size());
  for (const auto& line : last) result.push_back(func(line));
  return result;
}

/// Writes `data` to a file, for unpkl_dat_sequential. Throws: error when the file cannot be written.
template <class T>
void pkl_dat_sequential(const T& data, const str_type& filename) {
  str_type bytes;
  packer<T>(data).pack(bytes);
  std::ofstream file(filename, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw error(filename + ": cannot be written");
}
/// Throws: data_error when the file cannot be read, type_error or protocol_error when it holds something else.
template <class T>
void unpkl_dat_sequential(const str_type& filename, T& data) {
  std::ifstream file(filename, std::ios::binary);
  if (!file) throw data_error(filename + ": cannot be opened");
  const str_type bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  data = packer<T>().unpack(bytes);
}
#ifdef EIGEN_WORLD_VERSION
inline void pkl_dat_sequential(const Eigen::MatrixXd& m, const str_type& filename) {
  pkl_dat_sequential(mat2vec(m), filename);
}
inline void pkl_dat_sequential(const Eigen::SparseMatrix<double, Eigen::RowMajor>& m, const str_type& filename) {
  pkl_dat_sequential(mat2vec(m), filename);
}
inline void unpkl_dat_sequential(const str_type& filename, Eigen::MatrixXd& m, std::size_t columns) {
  std::vector<double> numbers;
  unpkl_dat_sequential(filename, numbers);
  m = vec2mat(numbers, columns);
}
inline void unpkl_dat_sequential(const str_type& filename, Eigen::SparseMatrix<double, Eigen::RowMajor>& m) {
  std::vector<std::pair<std::pair<int, int>, double>> entries;
  unpkl_dat_sequential(filename, entries);
  m = vec2mat(entries);
}
#endif

// ---- numbers ------------------------------------------------------------------------------------------------------

inline double dot_product(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size())
    throw error("dot_product of " + std::to_string(a.size()) + " and " + std::to_string(b.size()) + " numbers");
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// A number in the open interval (0, 1). Each thread has its own sequence, the same in every process and in every run:
/// workers start from equal draws, as in 0.3.
inline double random_double() {
  thread_local std::mt19937_64 engine;  // NOLINT(cert-msc51-cpp): the fixed seed is the point
  double x = 0;
  while (x == 0) x = static_cast<double>(engine() >> 11) * 0x1p-53;
  return x;
}
/// `length` numbers in (0, upper_bound).
inline list_type<double> random_double_list(std::size_t length, double upper_bound = 1.0) {
  list_type<double> numbers(length);
  std::generate(numbers.begin(), numbers.end(), [&] { return upper_bound * random_double(); });
  return numbers;
}

/// The position of `key` in sorted `points` on a ring: the index of the first point not less than it, 0 past the last.
template <class T>
std::size_t ring_bsearch(const std::vector<T>& points, const T& key) {
  const auto at = std::lower_bound(points.begin(), points.end(), key);
  return at == points.end() ? 0 : static_cast<std::size_t>(at - points.begin());
}

template <class K, class V>
struct heap_node {
  heap_node(K id, V v) : val(std::move(id), std::move(v)) {}
  std::pair<K, V> val;
};

/// In 0.3 a trick to release memory; a no-op now.
inline void cheat_to_os() {}

// ---- servers ------------------------------------------------------------------------------------------------------

using local_dict_type = dict_type<str_type, str_type>;

/// In 0.3 the launcher's wait for its servers. Servers now find the job by themselves: this returns what prun.py passes
/// as --server_info. The arguments are ignored. Throws: error outside a job.
inline str_type get_hostnames_string(int /*servers*/, const str_type& /*init_port*/) {
  const char* info = std::getenv("PARACEL_RENDEZVOUS");
  if (info == nullptr || *info == '\0') throw error("get_hostnames_string: prun.py has not started this process");
  return info;
}
/// Hosts and ports from 0.3's text `host:port,port_PARACEL_host:port,...`; for what get_hostnames_string returns, one
/// entry with the whole text as "host". Throws: argument_error when it is neither.
inline list_type<local_dict_type> get_hostnames_dict(const str_type& names) {
  if (names.starts_with("paracel1;")) return {{{"host", names}, {"ports", ""}}};
  list_type<local_dict_type> servers;
  for (const auto& item : str_split_by_word(names, seperator)) {
    const auto colon = item.find(':');
    if (colon == str_type::npos || colon == 0)
      throw argument_error("\"" + item + "\": want host:port,port,...", exit_status::usage);
    servers.push_back({{"host", item.substr(0, colon)}, {"ports", item.substr(colon + 1)}});
  }
  return servers;
}
inline list_type<std::size_t> get_ports() { return free_tcp_ports(threads_num); }

// ---- futures ------------------------------------------------------------------------------------------------------

/// Waits for an update; on the thread that owns the paralg. Throws: the error of the update.
inline bool wait(async_functor_type& update) { return update.get(); }

}  // namespace paracel
